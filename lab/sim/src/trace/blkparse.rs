//! What `blkparse` prints: a line an event of the block layer.
//!
//! ```text
//!   8,16   5        2     0.000001850 18615  Q   R 1444645666 + 256 [java]
//!   device cpu  number    seconds     pid  event op sector  sectors  process
//! ```
//! A request passes several events; the reader takes one kind: queued (Q), the programs' requests,
//! or completed (C) where the queued ones were filtered out. Discards and flushes without data
//! request no page. Text after the events (sums a processor, totals) is no record.
//!
//! # Sources
//! The manual page blkparse(1): the default output format. Sectors have 512 bytes.

use forerun_core::params;

use super::devices::Devices;
use super::records::{Format, Step, is_comment, line};
use super::scan::{digits, number, time, words};
use super::{Op, Request};
use forerun_core::params::choice;

params! {
    /// The events that count as requests.
    pub(super) struct EventParams {
        /// The event. Q is the request before the kernel merged it.
        event: Event = Event::Queued,
    }
}

choice! {
    /// The events of a request in the block layer.
    pub(super) enum Event ("Q (queued), D (sent to the driver) or C (completed)") {
        /// The request was queued.
        Queued = "Q",
        /// The request went to the driver.
        Issued = "D",
        /// The request completed.
        Completed = "C",
    }
}

impl Event {
    /// Its letter.
    pub(super) fn letter(self) -> u8 {
        match self {
            Self::Queued => b'Q',
            Self::Issued => b'D',
            Self::Completed => b'C',
        }
    }
}

/// See the module.
pub(super) struct Blkparse {
    event: u8,
    devices: Devices,
    /// The events are over.
    is_summary: bool,
}

impl Blkparse {
    pub(super) fn new(given: &EventParams) -> Self {
        Self { event: given.event.letter(), devices: Devices::default(), is_summary: false }
    }
}

impl Format for Blkparse {
    fn parse(&mut self, bytes: &[u8], is_last: bool) -> Step {
        let Some((line, used)) = line(bytes, is_last) else { return Step::More };
        self.is_summary |= line.starts_with(b"CPU") || line.starts_with(b"Total");
        if self.is_summary || is_comment(line) {
            return Step::Other(used);
        }
        Step::of_line(used, line, self.request(line))
    }
}

impl Blkparse {
    fn request(&mut self, line: &[u8]) -> Result<Option<Request>, String> {
        let head = head(line).ok_or("is not an event of blkparse")?;
        if head.event != [self.event] {
            return Ok(None);
        }
        let Some(op) = op(head.kind) else { return Ok(None) };
        let mut rest = head.rest;
        let (Some(sector), Some(b"+"), Some(sectors)) = (rest.next(), rest.next(), rest.next())
        else {
            return Ok(None);
        };
        let bytes = |word| number(word).and_then(|count| count.checked_mul(512));
        let place = bytes(sector).zip(bytes(sectors));
        let (offset, size) = place.ok_or("has no \"sector + sectors\"")?;
        let request = self.devices.request(head.device, offset, size)?;
        Ok(request.map(|request| request.at(head.time, op)))
    }
}

/// The fields of every event.
struct Head<'a, W> {
    device: u64,
    time: forerun_core::units::Nanos,
    event: &'a [u8],
    kind: &'a [u8],
    rest: W,
}

fn head(line: &[u8]) -> Option<Head<'_, impl Iterator<Item = &[u8]>>> {
    let mut words = words(line);
    let device = device(words.next()?)?;
    let (_cpu, _number) = (number(words.next()?)?, number(words.next()?)?);
    let time = time(words.next()?, 1_000_000_000)?;
    let _pid = number(words.next()?)?;
    let event = words.next()?;
    // Messages and plugs may have nothing more to say.
    let kind = words.next().unwrap_or(b"N");
    Some(Head { device, time, event, kind, rest: words })
}

/// "major,minor" as one number.
fn device(word: &[u8]) -> Option<u64> {
    let (major, length) = digits(word)?;
    let minor = number(word[length..].strip_prefix(b",")?)?;
    major.checked_mul(1 << 20)?.checked_add(minor)
}

/// Whether a request of this kind (`R`, `WS`, `FWFS`, ...) moves data, and which way.
fn op(kind: &[u8]) -> Option<Op> {
    // A flush before the data stands before the direction.
    match kind.strip_prefix(b"F").unwrap_or(kind).first()? {
        b'R' => Some(Op::Read),
        b'W' => Some(Op::Write),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::Op;
    use crate::trace::tests::{broken, facts, requests};

    const EVENTS: &str = "\
  8,16   5        1     0.000000000 18615  A   R 1444645666 + 256 <- (8,17) 1444645632
  8,16   5        2     0.000001850 18615  Q   R 1444645666 + 256 [java]
  8,16   5        4     0.000008750 18615  P   N [java]
259,2    0        5     1.500000000     0  Q  WS 16 + 8 [flush 8:16]
  8,16   5        6     1.500000001     0  Q   D 16 + 8 [fstrim]
  8,16   5        7     1.500000002     0  Q  FWFS [jbd2]
  8,16   5        8     1.500000003     0  Q FWS 32 + 8 [jbd2]
  8,16   5        9     1.500000004     0  m   N cfq18615S / alloced
  8,16   5       10     2.000000000     0  C   R 1444645666 + 256 [0]
  8,16   5       11     2.000000001     0 UT   N [java] 1
CPU0 (8,16):
 Reads Queued:           0,        0KiB\t Writes Queued:           0,        0KiB
";

    #[test]
    fn queued_events_become_requests() {
        let found = requests("blkparse", EVENTS);
        #[rustfmt::skip]
        let expected = [
            (1_850, 1_444_645_666 * 512, 131_072, Op::Read),
            (1_500_000_000, 8_192, 4_096, Op::Write),
            (1_500_000_003, 16_384, 4_096, Op::Write),
        ];
        assert_eq!(facts(&found), expected);
        assert!(found[0].device() == found[2].device() && found[0].device() != found[1].device());
    }

    #[test]
    fn other_events_may_be_asked_for() {
        let found = requests("blkparse:event=C", EVENTS);
        assert_eq!(found.iter().map(|r| r.time.0).collect::<Vec<_>>(), [2_000_000_000]);
        assert!(requests("blkparse:event=D", EVENTS).is_empty());
    }

    #[test]
    fn what_is_no_event_is_broken() {
        let line = "  8,16 5 2 0.1 7 Q R 8 + 8 [x]\n";
        broken("blkparse", format!("{line}hello\n"), 2, 31, "`hello` is not an event");
        broken("blkparse", line.replace("0.1", "0,1"), 1, 0, "is not an event");
        broken("blkparse", line.replace("+ 8", "+ x"), 1, 0, "has no \"sector + sectors\"");
        broken("blkparse", line.replace("R 8 +", "R 999999999999999 +"), 1, 0, "past byte 2^56");
    }
}
