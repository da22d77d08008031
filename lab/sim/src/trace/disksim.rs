//! `.disksim`: lines of "time device block blocks flag".
//!
//! ```text
//!   5265.313 0 6357144 8 0      8 blocks of 512 bytes from block 6357144 of device 0; a write
//! ```
//! Flag 1 is a read. A time with a fraction is in milliseconds, as `DiskSim` writes it; one without
//! is in nanoseconds, as simulators of flash write it.
//!
//! # Sources
//! The manual of `DiskSim` 4.0 (Bucy and others 2008), section 7.2: the ASCII format; the readme
//! of `SSDsim`, which took it over with times in nanoseconds.

use forerun_core::params::ParamError;

use super::columns::{Column, Columns, Delimiter, Heading, Table};
use super::{Named, Reader};

/// See the module.
pub(super) struct Disksim;

impl Named for Disksim {
    const NAME: &'static str = "disksim";
    const SUMMARY: &'static str =
        "text, lines of \"time device block blocks flag\"; blocks of 512 bytes, flag 1 = read";
    type Params = ();

    fn reader((): ()) -> Result<Box<dyn Reader>, ParamError> {
        Ok(Box::new(Columns::new(Table {
            columns: vec![
                Column::TimeMillisOrNanos,
                Column::Device,
                Column::Offset(512),
                Column::Size(512),
                Column::ReadIf(1),
            ],
            delimiter: Delimiter::Blanks,
            open: false,
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
        let text = "5265.313 0 6357144 8 0\n97900000 3 16 1 1\n  \n0 0 9 0 1\n";
        let found = requests("disksim", text);
        let facts: Vec<_> =
            found.iter().map(|r| (r.time.0, r.device(), r.offset(), r.bytes, r.op)).collect();
        #[rustfmt::skip]
        let expected = [
            (5_265_313_000, 0, 6_357_144 * 512, 4_096, Op::Write),
            (97_900_000, 3, 16 * 512, 512, Op::Read),
        ];
        assert_eq!(facts, expected);
    }

    #[test]
    fn what_is_no_request_is_broken() {
        broken("disksim", "0 0 1 8\n", 1, 0, "has 4 fields, not 5");
        broken("disksim", "x 0 1 8 1\n", 1, 0, "where a time is");
        broken("disksim", "0 0 1 8 r\n", 1, 0, "where a number that says");
        broken("disksim", "0 0 1 8 1\n0 0 0x1 8 1\n", 2, 10, "where an offset is");
    }
}
