//! MSR Cambridge: lines of "time,host,disk,type,offset,bytes,response".
//!
//! ```text
//!   128166372003061629,hm,0,Read,8192,4096,153      4096 bytes from byte 8192 of disk 0 of hm
//! ```
//! Times are Windows file times: 100 ns since 1601. Disks of the first host keep their numbers;
//! those of others get numbers of their own, so that several files may be put together.
//!
//! # Sources
//! Narayanan, Donnelly, Rowstron, "Write Off-Loading" (FAST 2008), and the readme of its traces at
//! SNIA.

use forerun_core::params::ParamError;

use super::columns::{Column, Columns, Delimiter, Heading, Table};
use super::{Named, Reader};

/// See the module.
pub(super) struct Msr;

impl Named for Msr {
    const NAME: &'static str = "msr";
    const SUMMARY: &'static str = "csv of MSR Cambridge: time,host,disk,type,offset,bytes,response";
    type Params = ();

    fn reader((): ()) -> Result<Box<dyn Reader>, ParamError> {
        Ok(Box::new(Columns::new(Table {
            columns: vec![
                Column::Time(100),
                Column::Host,
                Column::Device,
                Column::Op,
                Column::Offset(1),
                Column::Size(1),
                Column::Ignored,
            ],
            delimiter: Delimiter::Byte(b','),
            open: false,
            heading: Heading::IfWords,
        })))
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::tests::{broken, requests};
    use crate::trace::{Op, Request};

    const HM: &str = "128166372003061629,hm,0,Read,8192,4096,153\n\
                      128166372016382155,hm,1,Write,5000,9000,8\n";

    #[test]
    fn lines_become_requests() {
        let head = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n";
        for text in [HM.to_owned(), format!("{head}{HM}")] {
            let found = requests("msr", &text);
            let facts: Vec<_> =
                found.iter().map(|r| (r.time.0, r.device(), r.offset(), r.bytes, r.op)).collect();
            #[rustfmt::skip]
            let expected = [
                (12_816_637_200_306_162_900, 0, 8_192, 4_096, Op::Read),
                (12_816_637_201_638_215_500, 1, 5_000, 9_000, Op::Write),
            ];
            assert_eq!(facts, expected);
        }
    }

    #[test]
    fn disks_of_several_hosts_are_several_disks() {
        let text = format!("{HM}{}{HM}", HM.replace("hm", "usr"));
        let devices: Vec<u32> = requests("msr", &text).iter().map(Request::device).collect();
        assert_eq!(devices[..2], [0, 1]);
        assert_eq!(devices[4..], [0, 1]);
        assert!(devices[2] != devices[3] && devices[2..4].iter().all(|&device| device > 1));
    }

    #[test]
    fn what_is_no_request_is_broken() {
        broken("msr", format!("{HM}1,hm,0,Read,8192\n"), 3, 85, "has 5 fields, not 7");
        broken("msr", "1,hm,0,Seek,8192,1,1\n", 1, 0, "reading or writing");
    }
}
