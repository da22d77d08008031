//! Tencent's block traces: lines of "time,offset,size,op,volume".
//!
//! ```text
//!   1538323200,12910952,128,0,1063      128 sectors from sector 12910952 of volume 1063; a read
//! ```
//! Sectors have 512 bytes, times are seconds, op 0 is a read.
//!
//! # Sources
//! Zhang and others, "OSCA" (USENIX ATC 2020), and the readme of its traces at SNIA.

use forerun_core::params::ParamError;

use super::columns::{Column, Columns, Delimiter, Heading, Table};
use super::{Named, Reader};

/// See the module.
pub(super) struct Tencent;

impl Named for Tencent {
    const NAME: &'static str = "tencent";
    const SUMMARY: &'static str =
        "csv of Tencent: seconds,offset,size,op,volume; sectors of 512 bytes, op 0 = read";
    type Params = ();

    fn reader((): ()) -> Result<Box<dyn Reader>, ParamError> {
        Ok(Box::new(Columns::new(Table {
            columns: vec![
                Column::Time(1_000_000_000),
                Column::Offset(512),
                Column::Size(512),
                Column::ReadIf(0),
                Column::Device,
            ],
            delimiter: Delimiter::Byte(b','),
            open: false,
            heading: Heading::IfWords,
        })))
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::Op;
    use crate::trace::tests::{broken, requests};

    #[test]
    fn lines_become_requests() {
        let text = "Timestamp,Offset,Size,IOType,VolumeID\n\
                    1538323200,12910952,128,0,1063\n1538323201,8,1,1,7\n";
        let found = requests("tencent", text);
        let facts: Vec<_> =
            found.iter().map(|r| (r.time.0, r.device(), r.offset(), r.bytes, r.op)).collect();
        #[rustfmt::skip]
        let expected = [
            (1_538_323_200_000_000_000, 1_063, 12_910_952 * 512, 65_536, Op::Read),
            (1_538_323_201_000_000_000, 7, 4_096, 512, Op::Write),
        ];
        assert_eq!(facts, expected);
    }

    #[test]
    fn what_is_no_request_is_broken() {
        broken("tencent", "1,8,1,1\n", 1, 0, "has 4 fields, not 5");
        broken("tencent", "1,8,1,R,1\n", 1, 0, "where a number that says");
    }
}
