//! What `blktrace` writes: a binary record an event of the block layer.
//!
//! ```text
//!   0      4        8      16       24      28       32    36       40    44      46     48
//!   | magic|sequence| time | sector | bytes | action | pid | device | cpu | error | more | data...
//! ```
//! As in `blkparse`, one kind of event is taken. Records stand in the order of the machine that
//! wrote them, which the magic number tells. `blktrace` writes a file a processor:
//! `blkparse -i NAME -d all.bin` makes one, in the order of time.
//!
//! # Sources
//! The kernel's `include/uapi/linux/blktrace_api.h`, version 7.

use forerun_core::units::Nanos;

use super::blkparse::{Event, EventParams};
use super::devices::Devices;
use super::records::{Format, Step};
use super::{Op, Request};

/// See the module.
pub(super) struct Blktrace {
    event: Event,
    devices: Devices,
}

impl Blktrace {
    pub(super) fn new(given: &EventParams) -> Self {
        Self { event: given.event, devices: Devices::default() }
    }
}

/// Fields of a record, in the order of bytes that its magic number shows.
struct Fields<'a> {
    record: &'a [u8; RECORD_BYTES],
    is_big: bool,
}

impl Fields<'_> {
    /// The number of `BYTES` bytes at byte `at`.
    fn number<const BYTES: usize>(&self, at: usize) -> u64 {
        let field = &self.record[at..at + BYTES];
        let put = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        if self.is_big { field.iter().fold(0, put) } else { field.iter().rev().fold(0, put) }
    }
}

impl Format for Blktrace {
    const IS_TEXT: bool = false;

    fn parse(&mut self, bytes: &[u8], _: bool) -> Step {
        let Some(record) = bytes.first_chunk::<RECORD_BYTES>() else { return Step::More };
        if !is_magic(*record.first_chunk().expect("a record is longer")) {
            // One byte on, until a record begins.
            let next = (1..bytes.len())
                .find(|&at| bytes[at..].first_chunk().copied().is_some_and(is_magic));
            let what = "it does not begin with the magic number of blktrace, version 7".to_owned();
            return Step::Broken(next.unwrap_or(bytes.len()), what);
        }
        let fields = Fields { record, is_big: record.starts_with(&MAGIC.to_be_bytes()) };
        let used = RECORD_BYTES + usize::try_from(fields.number::<2>(46)).expect("16 bits");
        if bytes.len() < used {
            return Step::More;
        }
        Step::of(used, self.request(&fields))
    }
}

impl Blktrace {
    fn request(&mut self, fields: &Fields<'_>) -> Result<Option<Request>, String> {
        let action = fields.number::<4>(28);
        let wanted = match self.event {
            Event::Queued => QUEUED,
            Event::Issued => ISSUED,
            Event::Completed => COMPLETED,
        };
        if action & ACTION != wanted || action & (NOTIFY | DISCARD | DRIVER) != 0 {
            return Ok(None);
        }
        let op = if action & WRITE != 0 { Op::Write } else { Op::Read };
        let offset =
            fields.number::<8>(16).checked_mul(512).ok_or("its sector is past byte 2^64")?;
        let (device, bytes) = (fields.number::<4>(36), fields.number::<4>(24));
        let request = self.devices.request(device, offset, bytes)?;
        Ok(request.map(|request| request.at(Nanos(fields.number::<8>(8)), op)))
    }
}

/// Whether a record of blktrace begins so.
pub(super) fn is_magic(bytes: [u8; 4]) -> bool {
    u32::from_le_bytes(bytes) == MAGIC || u32::from_be_bytes(bytes) == MAGIC
}

const RECORD_BYTES: usize = 48;
/// `BLK_IO_TRACE_MAGIC | BLK_IO_TRACE_VERSION`.
const MAGIC: u32 = 0x6561_7407;
/// The event, without the mark of a control group.
const ACTION: u64 = 0xff;
const QUEUED: u64 = 1;
const ISSUED: u64 = 7;
const COMPLETED: u64 = 8;
/// The kind of the event.
const WRITE: u64 = 1 << (16 + 1);
const NOTIFY: u64 = 1 << (16 + 10);
const DISCARD: u64 = 1 << (16 + 13);
const DRIVER: u64 = 1 << (16 + 14);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests::{broken, facts, requests};

    const READ: u64 = 1 << 16;

    /// A record of device 8,16 with `more` bytes behind it.
    fn record(is_big: bool, time: u64, sector: u64, bytes: u32, action: u64, more: u16) -> Vec<u8> {
        let mut record = Vec::new();
        let mut put = |width: usize, value: u64| {
            let bytes = value.to_be_bytes();
            let mut word = bytes[8 - width..].to_vec();
            if !is_big {
                word.reverse();
            }
            record.extend(word);
        };
        for (width, value) in [
            (4, MAGIC.into()),
            (4, 1),
            (8, time),
            (8, sector),
            (4, bytes.into()),
            (4, action),
            (4, 77),
            (4, 8 << 20 | 16),
            (4, 3),
            (2, 0),
            (2, more.into()),
        ] {
            put(width, value);
        }
        record.resize(RECORD_BYTES + usize::from(more), 0xee);
        record
    }

    fn all(is_big: bool) -> Vec<u8> {
        [
            record(is_big, 1, 0, 0, NOTIFY, 16),
            record(is_big, 5, 16, 4096, QUEUED | READ, 0),
            record(is_big, 6, 24, 512, QUEUED | WRITE | 1 << 8, 8),
            record(is_big, 7, 24, 512, QUEUED | WRITE | DISCARD, 0),
            record(is_big, 8, 0, 0, QUEUED | WRITE, 0),
            record(is_big, 9, 16, 4096, COMPLETED | READ, 0),
        ]
        .concat()
    }

    #[test]
    fn queued_events_become_requests_in_either_order_of_bytes() {
        for is_big in [false, true] {
            let found = requests("blktrace", all(is_big));
            assert_eq!(facts(&found), [(5, 8_192, 4_096, Op::Read), (6, 12_288, 512, Op::Write)]);
            let found = requests("blktrace:event=C", all(is_big));
            assert_eq!(found.iter().map(|r| r.time.0).collect::<Vec<_>>(), [9]);
        }
    }

    #[test]
    fn what_is_no_record_is_broken() {
        let one = record(false, 1, 16, 512, QUEUED | READ, 4);
        broken("blktrace", &one[..51], 1, 0, "the trace ends within it");
        broken("blktrace", [&one[..], b"torn", &one].concat(), 2, 52, "magic number");
        let far = record(false, 1, 1 << 55, 512, QUEUED | READ, 0);
        broken("blktrace", &far, 1, 0, "past byte 2^64");
    }
}
