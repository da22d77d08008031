//! Plain lists: a key a line, in decimal.
//!
//! Blank lines and lines that begin with `*` or `#` are passed over.
//!
//! # Sources
//! The form of the traces that come with LIRS (Jiang and Zhang 2002): block numbers, `*` lines.

use super::input::{Input, number, shown};
use super::{Fault, Format, Named, Request};

/// See the module.
pub(super) struct Keys;

impl Named for Keys {
    const NAME: &'static str = "keys";
    const SUMMARY: &'static str = "text, a key a line in decimal; lines of * and # are comments";
    type Params = ();

    fn new((): ()) -> Self {
        Self
    }
}

impl Format for Keys {
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, Fault> {
        let Some(line) = input.record_line()? else { return Ok(None) };
        let key = number(line)
            .ok_or_else(|| Fault::Record(format!("{} is not a key below 2^64", shown(line))))?;
        Ok(Some(Request { first: key, count: 1 }))
    }
}
