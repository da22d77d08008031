//! Alibaba's block traces: lines of "device,op,offset,bytes,time".
//!
//! ```text
//!   419,W,8792731648,16384,1577808144360767      16384 bytes, at so many microseconds
//! ```
//! # Sources
//! The readme of alibaba/block-traces (2020).

use forerun_core::params::ParamError;

use super::columns::{Column, Columns, Delimiter, Heading, Table};
use super::{Named, Reader};

/// See the module.
pub(super) struct Alibaba;

impl Named for Alibaba {
    const NAME: &'static str = "alibaba";
    const SUMMARY: &'static str = "csv of Alibaba: device,op,offset,bytes,microseconds";
    type Params = ();

    fn reader((): ()) -> Result<Box<dyn Reader>, ParamError> {
        Ok(Box::new(Columns::new(Table {
            columns: vec![
                Column::Device,
                Column::Op,
                Column::Offset(1),
                Column::Size(1),
                Column::Time(1_000),
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
        let text = "device_id,opcode,offset,length,timestamp\n\
                    419,W,8792731648,16384,1577808144360767\n0,R,126703644672,4096,1\n";
        let found = requests("alibaba", text);
        let facts: Vec<_> =
            found.iter().map(|r| (r.time.0, r.device(), r.offset(), r.bytes, r.op)).collect();
        #[rustfmt::skip]
        let expected = [
            (1_577_808_144_360_767_000, 419, 8_792_731_648, 16_384, Op::Write),
            (1_000, 0, 126_703_644_672, 4_096, Op::Read),
        ];
        assert_eq!(facts, expected);
    }

    #[test]
    fn what_is_no_request_is_broken() {
        broken("alibaba", "1,W,0,4096\n", 1, 0, "has 4 fields, not 5");
        broken("alibaba", "1,W,0,-4096,1\n", 1, 0, "where a size is");
    }
}
