//! The ring between the shim and its reader in forerun: memory that many write and one reads.
//!
//! Steer includes this file too, so both sides have the same layout.
//!
//! ```text
//!   magic, layout | head | slot 0 | slot 1 | ...                    | slot SLOTS - 1 |
//!                    |
//!                    next number; record n lies in slot n mod SLOTS
//!
//!   turn of a slot:   0 never used    2n + 1 record n is being written    2n + 2 it is there
//! ```
//!
//! A writer takes a number, then the slot, then writes. Neither side waits for the other: a writer
//! that finds its slot taken drops the record, and a reader that comes too late finds a later turn.
//! A number that was taken and not written shows as a gap, so every loss can be counted.
//!
//! # Invariants
//! - A slot is written by the thread that made its turn odd, and by no other until it is even.
//! - All is atomic words. Any process that maps the memory may write anything there, so the reader
//!   masks numbers, checks each record, and takes it for a hint.
//! - A writer makes no system call and no loop; it may be a signal handler, or die at any step.
//!
//! # Sources
//! The turns are a sequence lock in each slot (Boehm, "Can seqlocks get along with programming
//! language memory models?", 2012).

use core::{
    ffi::CStr,
    sync::atomic::{AtomicU64, Ordering, fence},
};

/// The environment variable with the number of the ring's descriptor.
pub const VARIABLE: &CStr = c"FORERUN_RING";

/// Records that the ring holds.
pub const SLOTS: usize = 1 << 14;

/// Bytes of a run of reads that are recorded at once: fewer may be held back.
pub const RUN_BYTES: u64 = 64 << 10;

/// The shared memory. All zero but for the first two words, it is a ring without a record.
#[repr(C)]
#[derive(Debug)]
pub struct Ring {
    magic: AtomicU64,
    layout: AtomicU64,
    head: Head,
    slots: [Slot; SLOTS],
}

/// On a cache line of its own: every writer changes it.
#[repr(C, align(64))]
#[derive(Debug)]
struct Head(AtomicU64);

/// A record and its turn, on one cache line.
#[repr(C, align(64))]
#[derive(Debug)]
struct Slot {
    turn: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// What a program did with a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The descriptor was opened, or used for the first time; `length` is the file's.
    Open = 1,
    /// These bytes were read.
    Read = 2,
    /// These bytes were mapped.
    Map = 3,
    /// The descriptor is about to be closed.
    Close = 4,
    /// A call is about to move at most these bytes to another descriptor.
    Move = 5,
    /// That call has returned, whatever it has moved.
    Moved = 6,
}

/// The record of one thing that a program did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What the program did.
    pub kind: Kind,
    /// The process, as its own namespace numbers it.
    pub pid: u32,
    /// Its descriptor, which may since be closed or another file's.
    pub fd: u32,
    /// The file's device, as `stat` gives it.
    pub dev: u64,
    /// The file's number on that device.
    pub ino: u64,
    /// The first byte.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// The descriptor that they are moved to, and where there.
    pub to: (u32, u64),
}

/// The state of a record's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// The record, as far as its words make sense.
    Written(Option<Record>),
    /// The record is not there yet, and may never be.
    Missing,
    /// A later record lies there by now.
    Overwritten,
}

impl Ring {
    /// The first words of a new ring.
    pub const HEADER: [u64; 2] = [MAGIC, LAYOUT];

    /// Whether the process that made this memory has the same layout.
    pub fn is_sound(&self) -> bool {
        [&self.magic, &self.layout].map(|word| word.load(Ordering::Acquire)) == Self::HEADER
    }

    /// The number that the next record gets.
    pub fn head(&self) -> u64 {
        self.head.0.load(Ordering::Acquire)
    }

    /// Adds `record`, or drops it where its slot is taken.
    pub fn push(&self, record: &Record) {
        if let Some(number) = self.take() {
            self.write(number, record);
        }
    }

    /// Takes a number, and its slot unless that is taken.
    pub(super) fn take(&self) -> Option<u64> {
        let number = self.head.0.fetch_add(1, Ordering::Relaxed);
        let slot = self.slot(number);
        let before = slot.turn.load(Ordering::Relaxed);
        let is_taken = before % 2 == 1 || later(before, written(number));
        let taking = written(number).wrapping_sub(1);
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        let took =
            !is_taken && slot.turn.compare_exchange(before, taking, acquire, relaxed).is_ok();
        took.then_some(number)
    }

    /// Writes the record whose number and slot were taken.
    pub(super) fn write(&self, number: u64, record: &Record) {
        let slot = self.slot(number);
        // No word is stored before the odd turn.
        fence(Ordering::Release);
        for (word, value) in slot.words.iter().zip(record.words()) {
            word.store(value, Ordering::Relaxed);
        }
        slot.turn.store(written(number), Ordering::Release);
    }

    /// Reads the slot of record `number`.
    pub fn read(&self, number: u64) -> SlotState {
        let slot = self.slot(number);
        let turn = slot.turn.load(Ordering::Acquire);
        if turn != written(number) {
            let over = later(turn, written(number));
            return if over { SlotState::Overwritten } else { SlotState::Missing };
        }
        let words = slot.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        // No word is loaded after the turn is loaded again.
        fence(Ordering::Acquire);
        if slot.turn.load(Ordering::Relaxed) == turn {
            SlotState::Written(Record::from_words(words))
        } else {
            SlotState::Overwritten
        }
    }

    fn slot(&self, number: u64) -> &Slot {
        // The remainder is the same whatever a cut number loses: SLOTS is a power of two.
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
        let index = number as usize % SLOTS;
        &self.slots[index]
    }
}

impl Record {
    fn words(&self) -> [u64; WORDS] {
        let kind = self.kind as u64 | u64::from(self.fd) << 32;
        let pid = u64::from(self.pid) | u64::from(self.to.0) << 32;
        [kind, pid, self.dev, self.ino, self.offset, self.length, self.to.1]
    }

    /// The record in `words`, if they are one: the bounds are those of the kernel.
    fn from_words([kind, pid, dev, ino, offset, length, to_at]: [u64; WORDS]) -> Option<Self> {
        let halves = |word: u64| (word >> 32, word & u64::from(u32::MAX));
        let ((fd, kind), (to, pid)) = (halves(kind), halves(pid));
        let kind = KINDS.into_iter().find(|known| *known as u64 == kind)?;
        let number = |value: u64| u32::try_from(i32::try_from(value).ok()?).ok();
        let pid = number(pid).filter(|pid| *pid > 0)?;
        i64::try_from(offset.checked_add(length)?).ok()?;
        i64::try_from(to_at).ok()?;
        let (fd, to) = (number(fd)?, (number(to)?, to_at));
        Some(Self { kind, pid, fd, dev, ino, offset, length, to })
    }
}

/// The turn of a slot that holds record `number`.
fn written(number: u64) -> u64 {
    number.wrapping_mul(2).wrapping_add(2)
}

/// Whether `turn` comes after `other`, as far as numbers that wrap can tell.
fn later(turn: u64, other: u64) -> bool {
    turn != other && turn.wrapping_sub(other) < 1 << 63
}

const MAGIC: u64 = u64::from_le_bytes(*b"forering");
/// The version of this layout, and its size.
const LAYOUT: u64 = 2 << 32 | SLOTS as u64;
const WORDS: usize = 7;
/// All kinds of records.
pub const KINDS: [Kind; 6] =
    [Kind::Open, Kind::Read, Kind::Map, Kind::Close, Kind::Move, Kind::Moved];

const _: () = assert!(SLOTS.is_power_of_two());
const _: () = assert!(size_of::<Slot>() == 64 && size_of::<Ring>() == 128 + 64 * SLOTS);
