//! `.lis`: lines of "start count ignored request".
//!
//! ```text
//!   230027 8 0 0      8 units from unit 230027; request 0
//! ```
//! What a unit is the file does not say: 512 bytes in the traces of workstations (P1 to P14),
//! a block of 4 KiB in the others.
//!
//! # Sources
//! Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache" (FAST 2003), whose
//! traces have this form.

use forerun_core::params;
use forerun_core::params::{Bytes, Param, ParamError};

use super::columns::{Column, Columns, Delimiter, Heading, Table};
use super::request::BLOCK_BYTES;
use super::{Named, Reader};

params! {
    /// What the file does not say.
    pub(super) struct Given {
        /// Bytes of a unit. A block of 4 KiB: what all but P1 to P14 have.
        unit: Bytes = Bytes(BLOCK_BYTES),
    }
}

/// See the module.
pub(super) struct Lis;

impl Named for Lis {
    const NAME: &'static str = "lis";
    const SUMMARY: &'static str =
        "text, lines of \"start count ignored request\"; unit=512 or unit=4K bytes";
    type Params = Given;

    fn reader(given: Given) -> Result<Box<dyn Reader>, ParamError> {
        let unit = unit("unit", given.unit)?;
        Ok(Box::new(Columns::new(Table {
            columns: vec![Column::Offset(unit), Column::Size(unit), Column::Number, Column::Number],
            delimiter: Delimiter::Blanks,
            open: false,
            heading: Heading::Never,
        })))
    }
}

/// `given`, if it makes sense as the unit of a trace.
pub(super) fn unit(key: &str, given: Bytes) -> Result<u64, ParamError> {
    if given.0.is_power_of_two() && given.0 <= 1 << 20 {
        return Ok(given.0);
    }
    let form = "a power of two up to 1M".into();
    Err(ParamError::BadValue { key: key.into(), value: given.show(), form })
}

#[cfg(test)]
mod tests {
    use crate::trace::check_format;
    use crate::trace::tests::{broken, requests};

    /// Why, the format, the text, and its requests: first page and count.
    type Row<'a> = (&'a str, &'a str, &'a str, &'a [(u64, u32)]);

    #[test]
    fn lines_become_requests() {
        #[rustfmt::skip]
        let rows: &[Row] = &[
            ("blocks of 4 KiB",       "lis",          "3 2 0 0\n9 1 0 1\n", &[(3, 2), (9, 1)]),
            ("sectors",               "lis:unit=512", "7 2 0 0\n8 8 0 1\n", &[(0, 2), (1, 1)]),
            ("sectors of three blocks", "lis:unit=512", "15 10 0 0",        &[(1, 3)]),
            ("larger units",          "lis:unit=8K",  "1 2 0 0\n",          &[(2, 4)]),
            ("empty requests are none", "lis",        "1 0 0 0\n2 1 0 0\n", &[(2, 1)]),
            ("tabs, blanks",          "lis",          " 5\t1  0 0 \r\n",    &[(5, 1)]),
        ];
        for (why, format, text, expected) in rows {
            let found: Vec<_> = requests(format, text).iter().map(|r| (r.first, r.count)).collect();
            assert_eq!(found, *expected, "{why}");
        }
    }

    #[test]
    fn what_is_no_request_is_broken() {
        #[rustfmt::skip]
        let rows = [
            ("1 1 0\n",                  "has 3 fields, not 4"),
            ("1 1 0 0 0\n",              "has 5 fields, not 4"),
            ("1 x 0 0\n",                "has `x` where a size is"),
            ("1 262145 0 0\n",           "more than 262144 blocks"),
            ("18446744073709551615 9 0 0\n", "where an offset is"),
            ("17592186044416 1 0 0\n",   "past byte 2^56"),
        ];
        for (text, what) in rows {
            broken("lis", text, 1, 0, what);
        }
        assert!(check_format("lis:unit=512").is_ok() && check_format("lis:unit=513").is_err());
        assert!(check_format("lis:unit=0").is_err() && check_format("lis:unit=2M").is_err());
    }
}
