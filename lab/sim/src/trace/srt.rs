//! `.srt`: Hewlett-Packard's traces, SRT 1.3.
//!
//! ```text
//!   text about the system, up to a form feed; then records, high byte first:
//!   u32 bytes of the record, u16 version, u16 kind, u32 seconds, u32 microseconds, and for kind 1:
//!   u32 start, u32 stop, u32 bytes, u32 sector, u32 device, u32 driver, u32 cylinder, u32 flags...
//! ```
//! A disk's block device and its character device differ in the major number alone, the high 8
//! bits: they are one. Sectors have 512 bytes; bit 0 of the flags is set for a read. Start and stop
//! are microseconds
//! behind the time of the record, which is when the request was made.
//!
//! # Sources
//! The traces hplajw and cello (Ruemmler and Wilkes, "UNIX disk access patterns", USENIX Winter
//! 1993); the fields as `DiskSim` 4.0 reads them.

use forerun_core::units::Nanos;

use super::devices::Devices;
use super::records::{Format, RECORD_BYTES_MAX, Step};
use super::{Op, Request};

/// See the module.
#[derive(Default)]
pub(super) struct Srt {
    /// The text is over.
    is_begun: bool,
    devices: Devices,
}

impl Format for Srt {
    const IS_TEXT: bool = false;

    fn parse(&mut self, bytes: &[u8], _: bool) -> Step {
        if !self.is_begun {
            let Some(end) = memchr::memchr(FORM_FEED, bytes) else { return Step::More };
            self.is_begun = true;
            return Step::Other(end + 1);
        }
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else { return Step::More };
        let used = u32_at(head, 0) as usize;
        if !(HEAD_BYTES..=RECORD_BYTES_MAX).contains(&used) {
            // Where the next one begins is not known.
            let what = format!("it is {used} bytes long, not {HEAD_BYTES} to {RECORD_BYTES_MAX}");
            return Step::Broken(bytes.len(), what);
        }
        let Some(record) = bytes.get(..used) else { return Step::More };
        if u32_at(record, 4) & 0xffff != KIND_REQUEST {
            return Step::Idle(used);
        }
        if used < REQUEST_BYTES {
            let what = format!("it is a request of {used} bytes, not {REQUEST_BYTES} or more");
            return Step::Broken(used, what);
        }
        Step::of(used, self.request(record).map_err(|what| format!("it {what}")))
    }
}

impl Srt {
    fn request(&mut self, record: &[u8]) -> Result<Option<Request>, String> {
        let field = |at: usize| u64::from(u32_at(record, at));
        let request = self.devices.request(field(32) & MINOR, field(28) * 512, field(24))?;
        let time = Nanos(field(8) * 1_000_000_000 + field(12) * 1_000);
        let op = if field(44) & 1 == 1 { Op::Read } else { Op::Write };
        Ok(request.map(|request| request.at(time, op)))
    }
}

/// The word at byte `at`, high byte first.
fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*record[at..].first_chunk().expect("a field of the record"))
}

/// What files begin with.
pub(super) const MAGIC: &[u8] = b"$$TR_IOREC-1.";
const FORM_FEED: u8 = 0x0c;
/// The part of a device's number that tells disks apart.
const MINOR: u64 = 0x00ff_ffff;
const HEAD_BYTES: usize = 16;
const KIND_REQUEST: u32 = 1;
const REQUEST_BYTES: usize = 48;

#[cfg(test)]
mod tests {
    use crate::trace::Op;
    use crate::trace::tests::{broken, facts, requests};

    fn record(kind: u32, words: &[u32]) -> Vec<u8> {
        let bytes = u32::try_from(8 + 4 * words.len()).expect("a few words");
        [bytes, 4 << 16 | kind].iter().chain(words).flat_map(|word| word.to_be_bytes()).collect()
    }

    fn read(second: u32, sector: u32, flags: u32) -> Vec<u8> {
        record(1, &[second, 250, 0, 900, 4_096, sector, 0x0800_0107, 4, 1, flags, 0])
    }

    const TEXT: &[u8] = b"$$TR_IOREC-1.3\nversion = 1.3;\n\x0c";

    #[test]
    fn records_become_requests() {
        let bytes = [TEXT, &read(1, 8, 0x1b), &record(7, &[0, 0, 5]), &read(2, 9, 0)].concat();
        let found = requests("srt", bytes);
        #[rustfmt::skip]
        let expected = [
            (1_000_250_000, 4_096, 4_096, Op::Read), (2_000_250_000, 4_608, 4_096, Op::Write),
        ];
        assert_eq!(facts(&found), expected);
        assert_eq!(found[0].device(), found[1].device());
    }

    #[test]
    fn what_is_no_record_is_broken() {
        let bytes = [TEXT, &read(1, 8, 1)].concat();
        let end = bytes.len() as u64;
        broken("srt", &bytes[..bytes.len() - 1], 1, TEXT.len() as u64, "the trace ends within it");
        broken("srt", [&bytes[..], &[0; 16]].concat(), 2, end, "it is 0 bytes long");
        broken("srt", [&bytes[..], &record(1, &[0, 0])].concat(), 2, end, "a request of 16 bytes");
        broken("srt", b"$$TR_IOREC-1.3", 1, 0, "the trace ends within it");
    }
}
