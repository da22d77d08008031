//! Lines of "block count R|W", in blocks of 4 KiB.
//!
//! ```text
//!   287 128 W 0      128 blocks from block 287; a write
//! ```
//! What follows the third field is not looked at.
//!
//! # Sources
//! The traces that come with the simulator sandrain/cachesim (`PostMark` and others). It does not
//! say what a block is; 4 KiB is the usual one of its time.

use forerun_core::params;
use forerun_core::params::{Bytes, ParamError};

use super::columns::{Column, Columns, Delimiter, Heading, Table};
use super::lis::unit;
use super::request::BLOCK_BYTES;
use super::{Named, Reader};

params! {
    /// What the file does not say.
    pub(super) struct Given {
        /// Bytes of a block. 4 KiB: see the module.
        unit: Bytes = Bytes(BLOCK_BYTES),
    }
}

/// See the module.
pub(super) struct Sandrain;

impl Named for Sandrain {
    const NAME: &'static str = "sandrain";
    const SUMMARY: &'static str = "text, lines of \"block count R|W\"; unit=4K bytes";
    type Params = Given;

    fn reader(given: Given) -> Result<Box<dyn Reader>, ParamError> {
        let unit = unit("unit", given.unit)?;
        Ok(Box::new(Columns::new(Table {
            columns: vec![Column::Offset(unit), Column::Size(unit), Column::Op],
            delimiter: Delimiter::Blanks,
            open: true,
            heading: Heading::Never,
        })))
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::Op;
    use crate::trace::tests::{broken, requests};

    #[test]
    fn lines_become_requests() {
        let found = requests("sandrain", "256 4 R 0\n287 128 W\n");
        let facts: Vec<_> = found.iter().map(|r| (r.first, r.count, r.op)).collect();
        assert_eq!(facts, [(256, 4, Op::Read), (287, 128, Op::Write)]);
        assert_eq!(requests("sandrain:unit=512", "9 1 R 0\n")[0].offset(), 9 * 512);
    }

    #[test]
    fn what_is_no_request_is_broken() {
        broken("sandrain", "1 1\n", 1, 0, "has 2 fields, not 3 or more");
        broken("sandrain", "1 1 X\n", 1, 0, "where reading or writing is");
    }
}
