//! The journal's encoding of events and actions: a tag, then the fields as variable-length
//! integers, in the order of declaration.
//!
//! ```text
//!   event:   tag (1 byte)  now (varint)  fields (varint each)
//!   action:  tag (1 byte)                fields (varint each)  frames of a run (varint each)
//!   varint:  7 bits a byte, least significant first, high bit: more follow
//! ```
//!
//! The flags of a record share one varint, which stands where the first of them is declared.
//!
//! # Invariants
//! - Decoding what was encoded gives the same event; a cut or foreign record is an error, never a
//!   panic, and consumes no more than the input.
//! - [`VERSION`] changes as `event.rs` says. A reader that does not know a tag says so
//!   ([`DecodeError::UnknownTag`]).

use alloc::vec::Vec;

use super::{Action, Actions, Error, Event, FetchKind, FrameRun, Hit, PrefetchOutcomes};
use crate::readahead::{Cause, StreamId, Window};
use crate::units::{FileId, FrameId, HandleId, Nanos, PageId, PartitionId, RequestId};

/// The version of the encoding: of all tags, and of the fields behind each.
pub const VERSION: u8 = 6;

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

/// The numbers of a record, for a reader that prints it without decoding it.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The byte that the record begins with.
    pub tag: u8,
    /// What the record is, under this tag and those that follow it.
    pub names: &'static [&'static str],
    /// Each field's name, and the names of its numbers; an empty one stands for the field's own.
    /// A number named [`FRAMES`] has as many frames after the last field.
    pub fields: &'static [(&'static str, &'static [&'static str])],
}

/// The name of the number of frames that follow a record.
pub const FRAMES: &str = "count";

/// Appends `event`, which happened at `now`, to `out`.
pub fn encode(now: Nanos, event: &Event<'_>, out: &mut Vec<u8>) {
    let mut to = Record::new(event.tag(), &[], out);
    now.0.put(&mut to);
    event.put_fields(&mut to);
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
    let (&tag, rest) = input.split_first().ok_or(DecodeError::Cut)?;
    let mut from = Fields { rest, flags: None, hits: Some(hits) };
    let now = Nanos(u64::take(&mut from)?);
    let event = Event::take_fields(tag, &mut from)?;
    if from.flags.is_some_and(|unknown| unknown != 0) {
        return Err(DecodeError::OutOfRange);
    }
    let used = input.len() - from.rest.len();
    assert!(used > 1, "a record has a tag and a time");
    Ok((now, event, used))
}

/// Appends every action to `out`: what two runs are compared by.
pub fn encode_actions(actions: &Actions, out: &mut Vec<u8>) {
    for action in &actions.list {
        action.put_fields(&mut Record::new(action.tag(), &actions.frames, out));
    }
}

/// The name of the actions with this tag, and their shape.
#[must_use]
pub fn action_shape(tag: u8) -> Option<(&'static str, &'static Shape)> {
    Action::SHAPES.iter().find_map(|shape| {
        let nth = tag.checked_sub(shape.tag)?;
        Some((*shape.names.get(usize::from(nth))?, shape))
    })
}

/// The tags of actions are dense, from 1.
const _: () = {
    let (mut at, mut tag) = (0, 1);
    while at < Action::SHAPES.len() {
        assert!(Action::SHAPES[at].tag as usize == tag);
        tag += Action::SHAPES[at].names.len();
        at += 1;
    }
};

/// Appends `value` in 7 bits a byte.
pub fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// The number at the start of `input`, which is moved past it.
///
/// # Errors
/// The input ends within the number, or the number does not fit 64 bits.
pub fn take_varint(input: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut value = 0;
    for (at, &byte) in input.iter().enumerate() {
        let bits = u64::from(byte & 0x7f);
        if at > 9 || at == 9 && bits > 1 {
            return Err(DecodeError::OutOfRange);
        }
        value |= bits << (7 * at);
        if byte & 0x80 == 0 {
            *input = &input[at + 1..];
            return Ok(value);
        }
    }
    Err(DecodeError::Cut)
}

/// Declares an enum of records: each variant with its tag, each field with its type. `decoded`
/// before it makes the records readable, too. `NAME = 3 or "OTHER"`: a field of the variant
/// may raise the tag by one, and the record has the other name then.
macro_rules! records {
    (decoded $($table:tt)*) => {
        $crate::event::codec::records! { $($table)* }
        $crate::event::codec::records! { @decode $($table)* }
    };
    (@decode $(#[$meta:meta])* pub enum $name:ident<$life:lifetime> { $(
        $(#[$doc:meta])*
        $variant:ident = $tag:literal $({ $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })?,
    )* }) => {
        impl<$life> $name<$life> {
            fn take_fields(
                tag: u8,
                from: &mut $crate::event::codec::Fields<'_, $life>,
            ) -> Result<Self, $crate::event::codec::DecodeError> {
                Ok(match tag {
                    $($tag => Self::$variant $({
                        $($field: $crate::event::codec::Take::take(from)?,)*
                    })?,)*
                    _ => return Err($crate::event::codec::DecodeError::UnknownTag(tag)),
                })
            }
        }
    };
    ($(#[$meta:meta])* pub enum $name:ident $(<$life:lifetime>)? { $(
        $(#[$doc:meta])*
        $variant:ident = $tag:literal $(or $other:literal)?
        $({ $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })?,
    )* }) => {
        $(#[$meta])*
        pub enum $name $(<$life>)? { $(
            $(#[$doc])*
            $variant $({ $($(#[$field_doc])* $field: $type,)* })?,
        )* }

        impl $(<$life>)? $name $(<$life>)? {
            /// The numbers of each record, by its tag.
            pub const SHAPES: &'static [$crate::event::codec::Shape] = &[$(
                $crate::event::codec::Shape {
                    tag: $tag,
                    names: &[stringify!($variant) $(, $other)?],
                    fields: &[$($((
                        stringify!($field),
                        <$type as $crate::event::codec::Put>::PARTS,
                    ),)*)?],
                },
            )*];

            fn tag(&self) -> u8 {
                match self { $(Self::$variant { .. } => $tag,)* }
            }

            fn put_fields(&self, to: &mut $crate::event::codec::Record<'_>) {
                match self { $(
                    Self::$variant $({ $($field),* })? => {
                        $($($crate::event::codec::Put::put($field, to);)*)?
                    }
                )* }
            }
        }
    };
}

pub(crate) use records;

/// A record that is written.
pub(crate) struct Record<'o> {
    tag_at: usize,
    /// Where the flags stand, and how many there are.
    flags: Option<(usize, u32)>,
    /// What the runs of an action name.
    frames: &'o [FrameId],
    out: &'o mut Vec<u8>,
}

impl<'o> Record<'o> {
    fn new(tag: u8, frames: &'o [FrameId], out: &'o mut Vec<u8>) -> Self {
        let tag_at = out.len();
        out.push(tag);
        Self { tag_at, flags: None, frames, out }
    }

    fn flag(&mut self, set: bool) {
        let (at, nth) = self.flags.unwrap_or_else(|| {
            self.out.push(0);
            (self.out.len() - 1, 0)
        });
        assert!(nth < 7, "the flags of a record are one byte");
        self.out[at] |= u8::from(set) << nth;
        self.flags = Some((at, nth + 1));
    }
}

/// The fields of a record that is read.
pub(crate) struct Fields<'i, 'h> {
    rest: &'i [u8],
    /// The flags that were not read yet.
    flags: Option<u64>,
    hits: Option<&'h mut Vec<Hit>>,
}

/// What a field writes.
pub(crate) trait Put {
    /// The names of its numbers; an empty one stands for the field's own.
    const PARTS: &'static [&'static str] = &[""];

    fn put(&self, to: &mut Record<'_>);
}

/// What a field reads.
pub(crate) trait Take<'h>: Sized {
    fn take(from: &mut Fields<'_, 'h>) -> Result<Self, DecodeError>;
}

macro_rules! numbers {
    ($($type:ty: $put:expr, $take:expr;)*) => {$(
        impl Put for $type {
            fn put(&self, to: &mut Record<'_>) {
                let wide: fn($type) -> u64 = $put;
                put_varint(wide(*self), to.out);
            }
        }

        impl Take<'_> for $type {
            fn take(from: &mut Fields<'_, '_>) -> Result<Self, DecodeError> {
                let narrow: fn(u64) -> Option<$type> = $take;
                narrow(take_varint(&mut from.rest)?).ok_or(DecodeError::OutOfRange)
            }
        }
    )*};
}

numbers! {
    u64: |wide| wide, Some;
    u32: u64::from, narrow;
    i32: |errno| errno.cast_unsigned().into(), |wide| narrow(wide).map(u32::cast_signed);
    RequestId: |id| id.0, |wide| Some(RequestId(wide));
    HandleId: |id| id.0.into(), |wide| narrow(wide).map(HandleId);
    FileId: |id| id.0.into(), |wide| narrow(wide).map(FileId);
    PartitionId: |id| id.0.into(), |wide| narrow(wide).map(PartitionId);
    FrameId: |id| id.0.into(), |wide| narrow(wide).map(FrameId);
}

fn narrow(wide: u64) -> Option<u32> {
    u32::try_from(wide).ok()
}

impl Put for bool {
    fn put(&self, to: &mut Record<'_>) {
        to.flag(*self);
    }
}

impl Take<'_> for bool {
    fn take(from: &mut Fields<'_, '_>) -> Result<Self, DecodeError> {
        let flags = match from.flags {
            Some(flags) => flags,
            None => take_varint(&mut from.rest)?,
        };
        from.flags = Some(flags >> 1);
        Ok(flags & 1 != 0)
    }
}

/// A flag, and the number or 0.
impl Put for Option<u64> {
    fn put(&self, to: &mut Record<'_>) {
        to.flag(self.is_some());
        self.unwrap_or(0).put(to);
    }
}

impl Take<'_> for Option<u64> {
    fn take(from: &mut Fields<'_, '_>) -> Result<Self, DecodeError> {
        let known = bool::take(from)?;
        let value = u64::take(from)?;
        Ok(known.then_some(value))
    }
}

/// 0, or one more than the name.
impl Put for Option<StreamId> {
    fn put(&self, to: &mut Record<'_>) {
        self.map_or(0, |stream| u64::from(stream.0) + 1).put(to);
    }
}

macro_rules! parts {
    ($($type:ty: $($part:literal = $value:expr),*;)*) => {$(
        impl Put for $type {
            const PARTS: &'static [&'static str] = &[$($part),*];

            fn put(&self, to: &mut Record<'_>) {
                $({
                    let value: fn(&$type) -> u64 = $value;
                    value(self).put(to);
                })*
            }
        }
    )*};
}

parts! {
    Cause: "" = |cause| *cause as u64;
    PageId: "file" = |page| page.file.0.into(), "page" = |page| page.index;
    Hit: "frame" = |hit| hit.frame.0.into(), "generation" = |hit| hit.generation.into();
    Window: "start" = |at| at.start, "size" = |at| at.size.into(),
        "async_size" = |at| at.async_size.into();
    PrefetchOutcomes: "used" = |of| of.used.into(), "late" = |of| of.late.into(),
        "wasted" = |of| of.wasted.into(), "failed" = |of| of.failed.into();
    Error: "error" = |error| error_numbers(*error).0, "a" = |error| error_numbers(*error).1,
        "b" = |error| error_numbers(*error).2;
}

impl Take<'_> for Hit {
    fn take(from: &mut Fields<'_, '_>) -> Result<Self, DecodeError> {
        Ok(Self { frame: FrameId::take(from)?, generation: u32::take(from)? })
    }
}

/// How many there are, and each of them.
impl Put for &[Hit] {
    const PARTS: &'static [&'static str] = &["hits"];

    fn put(&self, to: &mut Record<'_>) {
        (self.len() as u64).put(to);
        for hit in *self {
            hit.put(to);
        }
    }
}

impl<'h> Take<'h> for &'h [Hit] {
    fn take(from: &mut Fields<'_, 'h>) -> Result<Self, DecodeError> {
        let hits = from.hits.take().expect("a record has one batch");
        hits.clear();
        for _ in 0..u64::take(from)? {
            hits.push(Hit::take(from)?);
        }
        Ok(hits)
    }
}

/// How many there are; the frames themselves end the record.
impl Put for FrameRun {
    const PARTS: &'static [&'static str] = &[FRAMES];

    fn put(&self, to: &mut Record<'_>) {
        self.count.put(to);
        let frames = to.frames;
        for frame in &frames[self.at as usize..][..self.count as usize] {
            frame.put(to);
        }
    }
}

/// Readahead has the next tag.
impl Put for FetchKind {
    const PARTS: &'static [&'static str] = &[];

    fn put(&self, to: &mut Record<'_>) {
        to.out[to.tag_at] += u8::from(*self == Self::Readahead);
    }
}

fn error_numbers(error: Error) -> (u64, u64, u64) {
    match error {
        Error::Store { page, errno } => (1, page.index, u64::from(errno.cast_unsigned())),
        Error::Writeback { errno } => (2, u64::from(errno.cast_unsigned()), 0),
        Error::PastEnd { page, file_pages } => (3, page, file_pages),
        Error::Changed { page } => (4, page, 0),
        Error::NoFrames { capacity } => (5, capacity.into(), 0),
        Error::Busy { bound } => (6, bound.into(), 0),
        Error::TooLarge { pages, bound } => (7, pages.into(), bound.into()),
        Error::Cancelled => (8, 0, 0),
        Error::DirtyFull { bound } => (9, bound.into(), 0),
    }
}

#[cfg(test)]
mod tests;
