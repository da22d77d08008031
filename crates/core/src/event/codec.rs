//! The journal's encoding of events and actions: a tag, then the fields as variable-length
//! integers, in the order of declaration.
//!
//! ```text
//!   record:  tag (1 byte)  now (varint)  fields (varint each; flags as bits of one varint)
//!   varint:  7 bits a byte, least significant first, high bit: more follow
//! ```
//!
//! # Invariants
//! - Decoding what was encoded gives the same event; a cut or foreign record is an error, never a
//!   panic, and consumes no more than the input.
//! - The tags are part of the format: [`VERSION`] changes when one of them, or the fields behind
//!   it, does. A new tag does not change it: every older record still reads as it was written, and
//!   a reader that does not know the tag says so ([`DecodeError::UnknownTag`]).

use alloc::vec::Vec;

use super::{Action, Actions, Error, Event, Fates, FetchKind, Hit};
use crate::units::{FileId, FrameId, HandleId, Nanos, PartitionId, RequestId};

/// The format's version.
pub const VERSION: u8 = 2;

/// Why a record could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The input ends within the record.
    Cut,
    /// The first byte is no event's tag.
    UnknownTag(u8),
    /// A field does not fit its type.
    OutOfRange,
}

impl core::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Cut => write!(f, "the record is cut off"),
            Self::UnknownTag(tag) => write!(f, "{tag} is no event"),
            Self::OutOfRange => write!(f, "a field is out of range"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Appends `event`, which happened at `now`, to `out`.
pub fn encode(now: Nanos, event: &Event<'_>, out: &mut Vec<u8>) {
    let mut put = |tag: u8, fields: &[u64]| {
        out.push(tag);
        varint(now.0, out);
        for &field in fields {
            varint(field, out);
        }
    };
    let errno_bits = |errno: i32| u64::from(errno.cast_unsigned());
    match *event {
        Event::Open { handle, file, partition, file_pages } => {
            put(1, &[handle.0.into(), file.0.into(), partition.0.into(), file_pages]);
        }
        Event::Close { handle } => put(2, &[handle.0.into()]),
        Event::Read { request, handle, first, count, previous_end, congested } => {
            let (flags, end) = reading(previous_end, congested);
            put(3, &[request.0, handle.0.into(), first, count.into(), flags, end]);
        }
        Event::Hits { hits } => {
            put(4, &[hits.len() as u64]);
            for hit in hits {
                varint(hit.frame.0.into(), out);
                varint(hit.generation.into(), out);
            }
        }
        Event::Marker { handle, hit, count, previous_end, congested } => {
            let (flags, end) = reading(previous_end, congested);
            let (frame, generation) = (hit.frame.0.into(), hit.generation.into());
            put(5, &[handle.0.into(), frame, generation, count.into(), flags, end]);
        }
        Event::Write { request, handle, first, count, head_partial, tail_partial, durable } => {
            let flags =
                u64::from(head_partial) | u64::from(tail_partial) << 1 | u64::from(durable) << 2;
            put(6, &[request.0, handle.0.into(), first, count.into(), flags]);
        }
        Event::Filled { request, frame } => put(7, &[request.0, frame.0.into()]),
        Event::Flush { request, handle } => put(8, &[request.0, handle.0.into()]),
        Event::Cancel { request } => put(9, &[request.0]),
        Event::Arrived { first, count } => put(10, &[first.0.into(), count.into()]),
        Event::Failed { first, count, errno } => {
            put(11, &[first.0.into(), count.into(), errno_bits(errno)]);
        }
        Event::Written { first, count } => put(12, &[first.0.into(), count.into()]),
        Event::WriteFailed { first, count, errno } => {
            put(13, &[first.0.into(), count.into(), errno_bits(errno)]);
        }
        Event::Synced { file, errno } => put(14, &[file.0.into(), errno_bits(errno)]),
        Event::Truncate { file, pages } => put(15, &[file.0.into(), pages]),
        Event::Invalidate { file, first, count } => put(16, &[file.0.into(), first, count]),
        Event::Pinned { frame } => put(17, &[frame.0.into()]),
        Event::Settled => put(18, &[]),
        Event::Resize { partition, frames } => put(19, &[partition.0.into(), frames.into()]),
        Event::Tick => put(20, &[]),
        Event::Prefetch { handle, first, count } => {
            put(21, &[handle.0.into(), first, count.into()]);
        }
    }
}

/// The event at the start of `input`, when it happened, and how many bytes it takes. The hits of
/// a batch go to `hits`, which is emptied first.
///
/// # Errors
/// The record is cut, its tag is unknown, or a field does not fit.
pub fn decode<'h>(
    input: &[u8],
    hits: &'h mut Vec<Hit>,
) -> Result<(Nanos, Event<'h>, usize), DecodeError> {
    let mut from = Fields { input, at: 1 };
    let &tag = input.first().ok_or(DecodeError::Cut)?;
    let now = Nanos(from.u64()?);
    let event = match tag {
        1 => Event::Open {
            handle: HandleId(from.u32()?),
            file: FileId(from.u32()?),
            partition: PartitionId(from.u32()?),
            file_pages: from.u64()?,
        },
        2 => Event::Close { handle: HandleId(from.u32()?) },
        3 => {
            let (request, handle) = (RequestId(from.u64()?), HandleId(from.u32()?));
            let (first, count) = (from.u64()?, from.u32()?);
            let (previous_end, congested) = from.reading()?;
            Event::Read { request, handle, first, count, previous_end, congested }
        }
        4 => {
            let count = from.u64()?;
            hits.clear();
            for _ in 0..count {
                hits.push(Hit { frame: from.frame()?, generation: from.u32()? });
            }
            Event::Hits { hits }
        }
        5 => {
            let handle = HandleId(from.u32()?);
            let hit = Hit { frame: from.frame()?, generation: from.u32()? };
            let count = from.u32()?;
            let (previous_end, congested) = from.reading()?;
            Event::Marker { handle, hit, count, previous_end, congested }
        }
        6 => {
            let (request, handle) = (RequestId(from.u64()?), HandleId(from.u32()?));
            let (first, count, flags) = (from.u64()?, from.u32()?, from.flags(7)?);
            let (head_partial, tail_partial) = (flags & 1 != 0, flags & 2 != 0);
            let durable = flags & 4 != 0;
            Event::Write { request, handle, first, count, head_partial, tail_partial, durable }
        }
        7 => Event::Filled { request: RequestId(from.u64()?), frame: from.frame()? },
        8 => Event::Flush { request: RequestId(from.u64()?), handle: HandleId(from.u32()?) },
        9 => Event::Cancel { request: RequestId(from.u64()?) },
        10 => Event::Arrived { first: from.frame()?, count: from.u32()? },
        11 => Event::Failed { first: from.frame()?, count: from.u32()?, errno: from.errno()? },
        12 => Event::Written { first: from.frame()?, count: from.u32()? },
        13 => Event::WriteFailed { first: from.frame()?, count: from.u32()?, errno: from.errno()? },
        14 => Event::Synced { file: FileId(from.u32()?), errno: from.errno()? },
        15 => Event::Truncate { file: FileId(from.u32()?), pages: from.u64()? },
        16 => {
            Event::Invalidate { file: FileId(from.u32()?), first: from.u64()?, count: from.u64()? }
        }
        17 => Event::Pinned { frame: from.frame()? },
        18 => Event::Settled,
        19 => Event::Resize { partition: PartitionId(from.u32()?), frames: from.u32()? },
        20 => Event::Tick,
        21 => {
            let (handle, first) = (HandleId(from.u32()?), from.u64()?);
            Event::Prefetch { handle, first, count: from.u32()? }
        }
        _ => return Err(DecodeError::UnknownTag(tag)),
    };
    Ok((now, event, from.at))
}

/// Appends every action to `out`: what two runs are compared by.
pub fn encode_actions(actions: &Actions, out: &mut Vec<u8>) {
    for action in &actions.list {
        encode_action(action, actions, out);
    }
}

fn encode_action(action: &Action, actions: &Actions, out: &mut Vec<u8>) {
    let mut put = |tag: u8, fields: &[u64]| {
        out.push(tag);
        for &field in fields {
            varint(field, out);
        }
    };
    match *action {
        Action::Serve { request, page, frame } => put(1, &[request.0, page, frame.0.into()]),
        Action::Fill { request, page, frame, fresh } => {
            put(2, &[request.0, page, frame.0.into(), fresh.into()]);
        }
        Action::Fetch { kind, page, count, frames_at } => {
            let tag = if kind == FetchKind::Demand { 3 } else { 4 };
            put(tag, &[page.file.0.into(), page.index, count.into()]);
            for frame in actions.run(frames_at, count) {
                varint(frame.0.into(), out);
            }
        }
        Action::Write { page, count, frames_at } => {
            put(5, &[page.file.0.into(), page.index, count.into()]);
            for frame in actions.run(frames_at, count) {
                varint(frame.0.into(), out);
            }
        }
        Action::Sync { file } => put(6, &[file.0.into()]),
        Action::Done { request } => put(7, &[request.0]),
        Action::Fail { request, error } => {
            let (kind, a, b) = error_fields(error);
            put(8, &[request.0, kind, a, b]);
        }
        Action::Publish { page, frame, generation, marker } => {
            let (file, frame) = (page.file.0.into(), frame.0.into());
            put(9, &[file, page.index, frame, generation.into(), marker.into()]);
        }
        Action::Retract { frame, gone } => put(10, &[frame.0.into(), gone.into()]),
        Action::Explain { handle, page, decision, fresh } => {
            let window = decision.window;
            let (size, tail) = (window.size.into(), window.async_size.into());
            let cause = decision.cause as u64;
            let stream = decision.stream.map_or(0, |stream| u64::from(stream.0) + 1);
            let (handle, fresh) = (handle.0.into(), fresh.into());
            put(11, &[handle, page, cause, window.start, size, tail, fresh, stream]);
        }
        Action::Fate { window, fates } => {
            let Fates { used, late, wasted, failed } = fates;
            put(12, &[window, used, late, wasted, failed].map(u64::from));
        }
    }
}

fn error_fields(error: Error) -> (u64, u64, u64) {
    match error {
        Error::Store { page, errno } => (1, page.index, u64::from(errno.cast_unsigned())),
        Error::Writeback { errno } => (2, u64::from(errno.cast_unsigned()), 0),
        Error::PastEnd { page, file_pages } => (3, page, file_pages),
        Error::Changed { page } => (4, page, 0),
        Error::NoFrames { capacity } => (5, capacity.into(), 0),
        Error::Busy { bound } => (6, bound.into(), 0),
        Error::TooLarge { pages, bound } => (7, pages.into(), bound.into()),
        Error::Cancelled => (8, 0, 0),
    }
}

/// Flags and position of a read: bit 0, congested; bit 1, there was a previous read.
fn reading(previous_end: Option<u64>, congested: bool) -> (u64, u64) {
    let known = u64::from(previous_end.is_some()) << 1;
    (u64::from(congested) | known, previous_end.unwrap_or(0))
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

struct Fields<'a> {
    input: &'a [u8],
    at: usize,
}

impl Fields<'_> {
    fn u64(&mut self) -> Result<u64, DecodeError> {
        let (mut value, mut shift) = (0_u64, 0);
        loop {
            let &byte = self.input.get(self.at).ok_or(DecodeError::Cut)?;
            self.at += 1;
            let bits = u64::from(byte & 0x7f);
            if shift > 63 || shift == 63 && bits > 1 {
                return Err(DecodeError::OutOfRange);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            shift += 7;
        }
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.u64()?).map_err(|_| DecodeError::OutOfRange)
    }

    fn frame(&mut self) -> Result<FrameId, DecodeError> {
        self.u32().map(FrameId)
    }

    fn errno(&mut self) -> Result<i32, DecodeError> {
        self.u32().map(u32::cast_signed)
    }

    fn flags(&mut self, all: u64) -> Result<u64, DecodeError> {
        let flags = self.u64()?;
        if flags > all { Err(DecodeError::OutOfRange) } else { Ok(flags) }
    }

    fn reading(&mut self) -> Result<(Option<u64>, bool), DecodeError> {
        let (flags, end) = (self.flags(3)?, self.u64()?);
        Ok(((flags & 2 != 0).then_some(end), flags & 1 != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::{DecodeError, decode, encode};
    use crate::event::{Event, Hit};
    use crate::prng::Prng;
    use crate::units::{FileId, FrameId, HandleId, Nanos, PartitionId, RequestId};
    use alloc::{vec, vec::Vec};

    fn samples(hits: &[Hit]) -> Vec<Event<'_>> {
        let (request, handle) = (RequestId(u64::MAX), HandleId(7));
        let (file, frame, first) = (FileId(9), FrameId(300), FrameId(70_000));
        let partition = PartitionId(2);
        vec![
            Event::Open { handle, file, partition, file_pages: 1 << 40 },
            Event::Close { handle },
            Event::Read {
                request,
                handle,
                first: 127,
                count: 128,
                previous_end: Some(1 << 50),
                congested: true,
            },
            Event::Read {
                request,
                handle,
                first: 0,
                count: 1,
                previous_end: None,
                congested: false,
            },
            Event::Hits { hits },
            Event::Marker {
                handle,
                hit: Hit { frame, generation: 3 },
                count: 5,
                previous_end: None,
                congested: true,
            },
            Event::Write {
                request,
                handle,
                first: 5,
                count: 6,
                head_partial: true,
                tail_partial: false,
                durable: true,
            },
            Event::Write {
                request,
                handle,
                first: 5,
                count: 6,
                head_partial: false,
                tail_partial: true,
                durable: false,
            },
            Event::Filled { request, frame },
            Event::Flush { request, handle },
            Event::Cancel { request },
            Event::Arrived { first, count: 256 },
            Event::Failed { first, count: 1, errno: -5 },
            Event::Written { first, count: 2 },
            Event::WriteFailed { first, count: 3, errno: 28 },
            Event::Synced { file, errno: 5 },
            Event::Truncate { file, pages: 3 },
            Event::Invalidate { file, first: 4, count: u64::MAX },
            Event::Pinned { frame },
            Event::Settled,
            Event::Resize { partition, frames: 1024 },
            Event::Tick,
            Event::Prefetch { handle, first: 1 << 60, count: u32::MAX },
        ]
    }

    #[test]
    fn every_event_survives_the_journal_and_every_cut_is_an_error() {
        let batch = [
            Hit { frame: FrameId(0), generation: 1 },
            Hit { frame: FrameId(u32::MAX), generation: u32::MAX },
        ];
        for event in samples(&batch) {
            let mut bytes = Vec::new();
            encode(Nanos(123_456_789), &event, &mut bytes);
            let mut hits = vec![Hit { frame: FrameId(1), generation: 1 }];
            let decoded = decode(&bytes, &mut hits);
            assert_eq!(decoded, Ok((Nanos(123_456_789), event, bytes.len())));
            for cut in 0..bytes.len() {
                assert_eq!(decode(&bytes[..cut], &mut hits), Err(DecodeError::Cut), "{event:?}");
            }
        }
    }

    #[test]
    fn foreign_bytes_are_errors_not_panics() {
        let mut hits = Vec::new();
        assert_eq!(decode(&[0, 0], &mut hits), Err(DecodeError::UnknownTag(0)));
        assert_eq!(decode(&[22, 0], &mut hits), Err(DecodeError::UnknownTag(22)));
        let too_long = [18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert_eq!(decode(&too_long, &mut hits), Err(DecodeError::OutOfRange));
        let top = [18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(decode(&top, &mut hits), Ok((Nanos(u64::MAX), Event::Settled, 11)));
        let wide_frame = [17, 0, 0x80, 0x80, 0x80, 0x80, 0x10];
        assert_eq!(decode(&wide_frame, &mut hits), Err(DecodeError::OutOfRange));
        let flags_of_four_bits = [3, 0, 1, 1, 1, 1, 4, 0];
        assert_eq!(decode(&flags_of_four_bits, &mut hits), Err(DecodeError::OutOfRange));
        let mut random = Prng::new(1);
        for _ in 0..20_000 {
            let length = random.below(24);
            let bytes: Vec<u8> =
                (0..length).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
            if let Ok((_, _, used)) = decode(&bytes, &mut hits) {
                assert!(used <= bytes.len());
            }
        }
    }
}
