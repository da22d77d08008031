//! FIU: lines of "time pid process sector sectors R|W major minor md5".
//!
//! ```text
//!   89966527996712 4253 nfsd 508516680 8 W 6 0 b5e9f4e5ab62a4fff5313a606b0ad4e3
//! ```
//! Times are nanoseconds, sectors have 512 bytes. The fields are counted from the end: the name of
//! a process may hold blanks.
//!
//! Files cut out of the published archives may begin with a tar header. It, and the line that the
//! header's end stands on, are passed over, as is the padding of zeros behind the last record.
//!
//! # Sources
//! Koller and Rangaswami, "I/O Deduplication" (FAST 2010), and the readme of its traces.

use super::devices::Devices;
use super::records::{Format, Step, is_comment, line};
use super::scan::{number, shown, time, words};
use super::{Op, Request};

/// See the module.
#[derive(Default)]
pub(super) struct Fiu {
    devices: Devices,
    place: Place,
}

/// Where in the file.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Start,
    /// Behind a tar header, before the first line that is a record.
    Header,
    Records,
}

impl Format for Fiu {
    fn parse(&mut self, bytes: &[u8], is_last: bool) -> Step {
        if self.place == Place::Start {
            if bytes.len() < TAR_BYTES && !is_last {
                return Step::More;
            }
            self.place = if has_tar_header(bytes) { Place::Header } else { Place::Records };
        }
        let Some((line, used)) = line(bytes, is_last) else { return Step::More };
        if is_comment(line) || line[0] == 0 {
            return Step::Other(used);
        }
        match self.request(line) {
            Some(made) => {
                self.place = Place::Records;
                Step::of(used, made.map_err(|why| format!("{} {why}", shown(line))))
            }
            None if self.place == Place::Header => Step::Other(used),
            None => {
                let what = format!("{} is not \"time pid process sector ...\"", shown(line));
                Step::Broken(used, what)
            }
        }
    }
}

impl Fiu {
    /// The request of `line`; none if its fields are not those of a record.
    fn request(&mut self, line: &[u8]) -> Option<Result<Option<Request>, String>> {
        let mut front = words(line);
        let time = time(front.next()?, 1)?;
        number(front.next()?)?;
        let mut back = front.rev();
        let (_md5, minor, major) = (back.next()?, number(back.next()?)?, number(back.next()?)?);
        let op = match back.next()? {
            b"R" => Op::Read,
            b"W" => Op::Write,
            _ => return None,
        };
        let bytes = number(back.next()?)?.checked_mul(512)?;
        let offset = number(back.next()?)?.checked_mul(512)?;
        back.next()?;
        let id = major.checked_mul(1 << 20)?.checked_add(minor)?;
        let made = self.devices.request(id, offset, bytes);
        Some(made.map(|request| request.map(|request| request.at(time, op))))
    }
}

/// Whether `bytes` begin with a member's header of a tar archive.
pub(super) fn has_tar_header(bytes: &[u8]) -> bool {
    bytes.get(257..262) == Some(b"ustar")
}

const TAR_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use crate::trace::Op;
    use crate::trace::tests::{broken, facts, requests};

    const LINE: &str =
        "89966527996712 4253 nfsd 508516680 8 W 6 0 b5e9f4e5ab62a4fff5313a606b0ad4e3\n";

    #[test]
    fn lines_become_requests() {
        let text = format!("{LINE}5 1 a b c 16 1 R 6 1 0\n7 1 a 16 0 R 6 1 0\n");
        let found = requests("fiu", &text);
        #[rustfmt::skip]
        let expected = [
            (89_966_527_996_712, 508_516_680 * 512, 4_096, Op::Write),
            (5, 16 * 512, 512, Op::Read),
        ];
        assert_eq!(facts(&found), expected);
        assert_ne!(found[0].device(), found[1].device());
    }

    #[test]
    fn a_tar_header_and_padding_are_passed_over() {
        let mut header = vec![b'x'; 512];
        header[257..262].copy_from_slice(b"ustar");
        let extra = b"28 ctime=1410563671.72\n";
        let head = [&header[..], extra, &[0; 90]].concat();
        let bytes = [&head, LINE.as_bytes(), LINE.as_bytes(), LINE.as_bytes(), &[0; 700]].concat();
        assert_eq!(requests("fiu", &bytes).len(), 2, "the line that the header ends on is lost");
        assert_eq!(requests("fiu", [LINE.as_bytes(), &[0; 9]].concat()).len(), 1);
    }

    #[test]
    fn what_is_no_request_is_broken() {
        let short = LINE.replacen("nfsd ", "", 1);
        broken("fiu", &short, 1, 0, "is not \"time pid");
        broken("fiu", format!("{LINE}{}", LINE.replace(" W ", " X ")), 2, 76, "is not \"time pid");
        let far = LINE.replace("508516680", "36028797018963968");
        broken("fiu", far, 1, 0, "is not \"time pid");
        broken("fiu", LINE.replace(" 8 W", " 9999999 W"), 1, 0, "more than 262144 blocks");
    }
}
