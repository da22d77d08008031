//! What a list may have under way before it has proved right: as much as its program has used of
//! it, and a little more.
//!
//! A list may be that of another program, or of an old version. Its requests are in the way of the
//! program's own then, on a device that seeks most of all.
//!
//! ```text
//!   seen of the program, newest last   . H H . H H H H H H    8 of 16 listed: it follows the list
//!   before   used + a little     as it follows   8 x used     16 judged   no bound, or none at all
//! ```
//! # Invariants
//! - What is unproven was requested, and the program was not seen to use it.

/// Requests, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) requests: u64,
    pub(super) bytes: u64,
}

/// Of the last entries that were judged: one bit each, set for one that was used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recent {
    bits: u64,
    count: u32,
}

impl Recent {
    pub(super) fn note(&mut self, is_used: bool) {
        self.bits = self.bits << 1 | u64::from(is_used);
        self.count = (self.count + 1).min(u64::BITS);
    }

    /// In percent; none while there are too few.
    pub(super) fn precision(self) -> Option<u32> {
        (self.count >= super::JUDGED_MIN).then(|| self.bits.count_ones() * 100 / self.count)
    }
}

/// Of the last paths that a program was seen to use first: one bit each, set for one of its list.
/// A list that one run has taught has some half of them, that of another program those few that
/// all programs use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sightings(u16);

impl Sightings {
    pub(super) fn note(&mut self, is_listed: bool) {
        self.0 = self.0 << 1 | u16::from(is_listed);
    }

    /// Whether a half of so many as are kept are listed; those not seen yet are not.
    pub(super) fn are_listed(self) -> bool {
        self.0.count_ones() >= u16::BITS / 2
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Proof {
    unproven: Cost,
    used: Cost,
}

impl Cost {
    fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn times(self, count: u64) -> Self {
        Self {
            requests: self.requests.saturating_mul(count),
            bytes: self.bytes.saturating_mul(count),
        }
    }

    fn minus(self, other: Self) -> Self {
        assert!(other.is_within(self), "no more goes than there is");
        Self { requests: self.requests - other.requests, bytes: self.bytes - other.bytes }
    }

    fn is_within(self, bound: Self) -> bool {
        self.requests <= bound.requests && self.bytes <= bound.bytes
    }
}

impl Proof {
    /// Whether so much more may be requested of a device that `seeks`, or where that is not known,
    /// if what was used pays for `confirmed` times as much.
    pub(super) fn allows(&self, cost: Cost, seeks: Option<bool>, confirmed: u64) -> bool {
        self.unproven.plus(cost).is_within(self.used.times(confirmed).plus(first(seeks)))
    }

    /// Whether that is more than a list may request before anything of it was used.
    pub(super) fn is_large(cost: Cost, seeks: Option<bool>) -> bool {
        !cost.is_within(first(seeks))
    }

    /// It was requested.
    pub(super) fn request(&mut self, cost: Cost) {
        self.unproven = self.unproven.plus(cost);
    }

    /// It tells nothing any more: it was there, or no use of it would be seen.
    pub(super) fn forget(&mut self, cost: Cost) {
        self.unproven = self.unproven.minus(cost);
    }

    /// The program uses it.
    pub(super) fn used(&mut self, cost: Cost) {
        self.used = self.used.plus(cost);
    }
}

/// What a list may have under way of which nothing was used. A seek takes some 10 ms, so few pass
/// unnoticed at a start, and no more bytes than pass in one; elsewhere it is as much as a list is
/// ahead at least. A device of which nothing is known may be one that seeks.
fn first(seeks: Option<bool>) -> Cost {
    if seeks == Some(false) {
        Cost { requests: super::AHEAD_MIN as u64, bytes: BYTES_FIRST }
    } else {
        Cost { requests: SEEKS_FIRST, bytes: SEEKING_BYTES_FIRST }
    }
}

const SEEKS_FIRST: u64 = 4;
const SEEKING_BYTES_FIRST: u64 = 1 << 20;
const BYTES_FIRST: u64 = 8 << 20;
