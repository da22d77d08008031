//! fio's iolog, versions 2 and 3: what `write_iolog` writes and `read_iolog` replays.
//!
//! ```text
//!   fio version 2 iolog            fio version 3 iolog
//!   /dev/sda add                   0 /dev/sda add
//!   /dev/sda open                  0 /dev/sda open
//!   /dev/sda read 4096 8192        125 /dev/sda read 4096 8192     125 us after the start
//!   /dev/sda wait 100 0            (no waits)
//! ```
//! Offsets and lengths are bytes. Waits of version 2 add up to the time. Other operations on a file
//! (sync, trim, close) request no page.
//!
//! # Sources
//! The manual page fio(1), "TRACE FILE FORMAT". It gives no unit for the times of version 3: fio
//! 3.33 writes microseconds.

use forerun_core::units::Nanos;

use super::devices::Devices;
use super::records::{Format, Step, is_comment, line};
use super::scan::{number, shown, time, words};
use super::{Op, Request};

/// See the module.
#[derive(Default)]
pub(super) struct Fio {
    /// The version, from the first line.
    version: Option<Version>,
    devices: Devices,
    /// Of version 2: the waits so far.
    now: Nanos,
}

#[derive(Clone, Copy)]
enum Version {
    Two,
    Three,
}

impl Version {
    fn of(line: &[u8]) -> Option<Self> {
        match line.trim_ascii() {
            b"fio version 2 iolog" => Some(Self::Two),
            b"fio version 3 iolog" => Some(Self::Three),
            _ => None,
        }
    }
}

/// Whether a file that begins with `line` is one.
pub(super) fn is_heading(line: &[u8]) -> bool {
    Version::of(line).is_some()
}

impl Format for Fio {
    fn parse(&mut self, bytes: &[u8], is_last: bool) -> Step {
        let Some((line, used)) = line(bytes, is_last) else { return Step::More };
        if is_comment(line) {
            return Step::Other(used);
        }
        let Some(version) = self.version else {
            self.version = Version::of(line);
            let what = "is not \"fio version 2 iolog\" or 3";
            return match self.version {
                Some(_) => Step::Other(used),
                None => Step::Broken(used, format!("{} {what}", shown(line))),
            };
        };
        Step::of_line(used, line, self.request(version, line))
    }
}

impl Fio {
    fn request(&mut self, version: Version, line: &[u8]) -> Result<Option<Request>, String> {
        let mut words = words(line);
        if let Version::Three = version {
            let at = words.next().and_then(|word| time(word, 1_000));
            self.now = at.ok_or("does not begin with a time")?;
        }
        let (Some(file), Some(action)) = (words.next(), words.next()) else {
            return Err("has no action".to_owned());
        };
        let mut count = || words.next().and_then(number);
        let op = match (action, version) {
            (b"read", _) => Op::Read,
            (b"write", _) => Op::Write,
            (b"wait", Version::Two) => {
                let wait = count().and_then(|micros| micros.checked_mul(1_000));
                let now = wait.and_then(|wait| self.now.0.checked_add(wait));
                self.now = now.map(Nanos).ok_or("waits for no number of microseconds")?;
                return Ok(None);
            }
            (b"add" | b"open" | b"close" | b"sync" | b"datasync" | b"trim", _) => return Ok(None),
            _ => return Err(format!("has {}, which is no action", shown(action))),
        };
        let (offset, size) = count().zip(count()).ok_or("has no \"offset length\"")?;
        let device = self.devices.named(file).map_err(|why| why.to_string())?;
        let request = Request::blocks(device, offset, size).map_err(|why| why.to_string())?;
        Ok(request.map(|request| request.at(self.now, op)))
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::Op;
    use crate::trace::tests::{broken, facts, requests};

    #[test]
    fn both_versions_become_requests() {
        let two = "fio version 2 iolog\n/a add\n/b add\n/a open\n/a read 4096 8192\n/a wait 150 0\n\
                   /b write 0 512\n/a wait 50 0\n/a read 0 0\n/a trim 0 4096\n/a sync 0 0\n\
                   /a read 1 1\n/a close\n";
        let three = "fio version 3 iolog\n0 /a add\n0 /a open\n0 /a read 4096 8192\n\
                     150 /b write 0 512\n160 /a datasync 0 0\n200 /a read 1 1\n9 /a close\n";
        for text in [two, three] {
            let found = requests("fio", text);
            #[rustfmt::skip]
            let expected = [
                (0, 4_096, 8_192, Op::Read), (150_000, 0, 512, Op::Write),
                (200_000, 1, 1, Op::Read),
            ];
            assert_eq!(facts(&found), expected);
            assert!(found[0].device() == found[2].device());
            assert!(found[0].device() != found[1].device());
        }
    }

    #[test]
    fn what_is_no_action_is_broken() {
        let two = "fio version 2 iolog\n";
        let three = "fio version 3 iolog\n";
        #[rustfmt::skip]
        let rows = [ // text  record  byte  what
            ("0, 0, 4096\n".to_owned(),         1, 0,  "is not \"fio version 2 iolog\""),
            (format!("{two}/a add\n/a\n"),      2, 27, "has no action"),
            (format!("{two}/a seek 0 0\n"),     1, 20, "`seek`, which is no action"),
            (format!("{two}/a read 0\n"),       1, 20, "has no \"offset length\""),
            (format!("{two}/a wait x 0\n"),     1, 20, "waits for no number"),
            (format!("{three}/a read 0 1\n"),   1, 20, "does not begin with a time"),
            (format!("{three}1 /a wait 1 1\n"), 1, 20, "`wait`, which is no action"),
        ];
        for (text, record, offset, what) in rows {
            broken("fio", text, record, offset, what);
        }
    }
}
