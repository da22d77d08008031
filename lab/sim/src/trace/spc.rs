//! SPC: lines of "unit,block,bytes,op,seconds": the `UMass` traces (Financial, `WebSearch`).
//!
//! ```text
//!   0,20941264,8192,W,0.551706      8192 bytes from sector 20941264 of unit 0
//! ```
//! Blocks are of 512 bytes. Fields may be added behind the fifth.
//!
//! # Sources
//! Storage Performance Council, "SPC Trace File Format Specification" 1.0.1 (2002). It leaves the
//! size of a block open; the traces have 512 bytes.

use forerun_core::params::ParamError;

use super::columns::{Column, Columns, Delimiter, Heading, Table};
use super::{Named, Reader};

/// See the module.
pub(super) struct Spc;

impl Named for Spc {
    const NAME: &'static str = "spc";
    const SUMMARY: &'static str = "csv of UMass: unit,block,bytes,op,seconds; blocks of 512 bytes";
    type Params = ();

    fn reader((): ()) -> Result<Box<dyn Reader>, ParamError> {
        Ok(Box::new(Columns::new(Table {
            columns: vec![
                Column::Device,
                Column::Offset(512),
                Column::Size(1),
                Column::Op,
                Column::Time(1_000_000_000),
            ],
            delimiter: Delimiter::Byte(b','),
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
        let found = requests("spc", "0,20941264,8192,W,0.551706\r\n1, 8 ,512,r,1.5,x,y\n");
        let facts: Vec<_> =
            found.iter().map(|r| (r.time.0, r.device(), r.offset(), r.bytes, r.op)).collect();
        #[rustfmt::skip]
        let expected = [
            (551_706_000, 0, 20_941_264 * 512, 8_192, Op::Write),
            (1_500_000_000, 1, 4_096, 512, Op::Read),
        ];
        assert_eq!(facts, expected);
    }

    #[test]
    fn what_is_no_request_is_broken() {
        broken("spc", "0,1,512,W\n", 1, 0, "has 4 fields, not 5 or more");
        broken("spc", "0,1,512,1,0\n", 1, 0, "where reading or writing is");
        broken("spc", "0,-1,512,W,0\n", 1, 0, "`-1` where an offset is");
    }
}
