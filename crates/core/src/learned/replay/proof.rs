//! What a list may have under way before it has proved right: as much as its program has used of
//! it, and a little more.
//!
//! A list may be that of another program, or of an old version. Its requests are in the way of the
//! program's own then, on a device that seeks most of all.
//!
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

    fn minus(self, other: Self) -> Self {
        assert!(other.is_within(self), "no more goes than there is");
        Self { requests: self.requests - other.requests, bytes: self.bytes - other.bytes }
    }

    fn is_within(self, bound: Self) -> bool {
        self.requests <= bound.requests && self.bytes <= bound.bytes
    }
}

impl Proof {
    /// Whether so much more may be requested of a device that `seeks`, or where that is not known.
    pub(super) fn allows(&self, cost: Cost, seeks: Option<bool>) -> bool {
        self.unproven.plus(cost).is_within(self.used.plus(first(seeks)))
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
/// unnoticed at a start; elsewhere it is as much as a list is ahead at least.
fn first(seeks: Option<bool>) -> Cost {
    let requests = if seeks == Some(true) { SEEKS_FIRST } else { super::AHEAD_MIN as u64 };
    Cost { requests, bytes: BYTES_FIRST }
}

const SEEKS_FIRST: u64 = 4;
const BYTES_FIRST: u64 = 8 << 20;
