//! The answer to a request for bytes: a function of the range, the file and the fault.
//!
//! # Invariants
//! - A span is within the file.
//! - A fault that has no room is none: half of one byte, or more than the rest of the file.
//! # Sources
//! RFC 9110: section 14.4 (`Content-Range`), 15.3.7 (206), 15.5.17 (416).

use std::ops::Range;

use super::fault::Fault;
use super::request::{Selection, asked};

/// The head of an answer, as values.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// The bytes of the file that its body is made of.
    pub(super) span: Range<u64>,
    pub(super) gzip: bool,
    pub(super) framing: Framing,
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// After its Content-Length.
    Length,
    /// After the last of its chunks.
    Chunked,
    /// With its connection, before half of its Content-Length is over.
    Cut,
}

impl Answer {
    /// An answer without a body.
    pub(super) fn empty(status: u16) -> Self {
        Self { status, span: 0..0, gzip: false, framing: Framing::Length }
    }

    /// The answer to `range` of a file of `bytes`.
    pub(super) fn new(range: Option<&str>, bytes: u64, fault: Option<Fault>) -> Self {
        if fault == Some(Fault::Error) {
            return Self::empty(500);
        }
        let range = range.filter(|_| fault != Some(Fault::IgnoreRange));
        let mut answer = match asked(range, bytes) {
            Selection::Whole => Self { span: 0..bytes, ..Self::empty(200) },
            Selection::Part(span) => Self { span, ..Self::empty(206) },
            Selection::Outside => return Self::empty(416),
        };
        match fault {
            None | Some(Fault::Error | Fault::IgnoreRange) => {}
            Some(Fault::Gzip) => answer.gzip = true,
            Some(Fault::NoLength) => answer.framing = Framing::Chunked,
            Some(Fault::Drop) => answer.framing = Framing::Cut,
            Some(Fault::Short) => answer.alter(|span| span.start..span.start + half(span)),
            Some(Fault::Long) => {
                answer.alter(|span| span.start..bytes.min(span.end + (span.end - span.start)));
            }
            Some(Fault::Shifted) => answer.alter(|span| shifted(span, bytes)),
        }
        answer
    }

    /// Another span, for a request of a part.
    fn alter(&mut self, other: impl Fn(&Range<u64>) -> Range<u64>) {
        if self.status == 206 {
            self.span = other(&self.span);
        }
    }
}

/// The bytes of the first half of `span`, at least 1.
fn half(span: &Range<u64>) -> u64 {
    (span.end - span.start).div_ceil(2)
}

/// `span` a byte further on, or a byte before at the end of the file; all but the first byte of a
/// whole file.
fn shifted(span: &Range<u64>, bytes: u64) -> Range<u64> {
    if span.end < bytes {
        span.start + 1..span.end + 1
    } else if span.start > 0 {
        span.start - 1..span.end - 1
    } else {
        1.min(bytes - 1)..bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_follow_from_range_file_and_fault() {
        use Fault::{Drop, Error, Gzip, IgnoreRange, Long, NoLength, Shifted, Short};
        use Framing::{Chunked, Cut, Length};
        let on = Some;
        let (part, tail) = (Some("bytes=10-19"), Some("bytes=90-"));
        let (full, over) = (Some("bytes=0-"), Some("bytes=100-"));
        #[rustfmt::skip]
        let rows = [ // why                range  fault            status span    gzip   framing
            ("no range",                   None,  None,            200, 0..100,   false, Length),
            ("a range",                    part,  None,            206, 10..20,   false, Length),
            ("no byte of the file",        over,  None,            416, 0..0,     false, Length),
            ("the range is ignored",       part,  on(IgnoreRange), 200, 0..100,   false, Length),
            ("ignored, though past it",    over,  on(IgnoreRange), 200, 0..100,   false, Length),
            ("encoded as a whole",         None,  on(Gzip),        200, 0..100,   true,  Length),
            ("encoded in part",            part,  on(Gzip),        206, 10..20,   true,  Length),
            ("nothing to encode",          over,  on(Gzip),        416, 0..0,     false, Length),
            ("no length",                  None,  on(NoLength),    200, 0..100,   false, Chunked),
            ("no length of a part",        part,  on(NoLength),    206, 10..20,   false, Chunked),
            ("dropped",                    part,  on(Drop),        206, 10..20,   false, Cut),
            ("too short",                  part,  on(Short),       206, 10..15,   false, Length),
            ("nothing to be shorter than", None,  on(Short),       200, 0..100,   false, Length),
            ("too long",                   part,  on(Long),        206, 10..30,   false, Length),
            ("no more to give",            tail,  on(Long),        206, 90..100,  false, Length),
            ("shifted on",                 part,  on(Shifted),     206, 11..21,   false, Length),
            ("shifted back",               tail,  on(Shifted),     206, 89..99,   false, Length),
            ("all shifted",                full,  on(Shifted),     206, 1..100,   false, Length),
            ("an error",                   part,  on(Error),       500, 0..0,     false, Length),
        ];
        for (why, range, fault, status, span, gzip, framing) in rows {
            let expected = Answer { status, span, gzip, framing };
            assert_eq!(Answer::new(range, 100, fault), expected, "{why}");
        }
    }

    #[test]
    fn of_one_byte_no_fault_has_room() {
        for fault in [Fault::Short, Fault::Long, Fault::Shifted] {
            assert_eq!(Answer::new(Some("bytes=0-0"), 1, Some(fault)).span, 0..1, "{fault:?}");
        }
    }
}
