//! How fast a stream is: its part of all pages that are used.
//!
//! ```text
//!   uses of all     |--------------|--------------|------>
//!   own             |--|           |-----|        |-->      own / total: its part
//!                   window         window         now
//! ```
//! There is no clock in it: a stream that has no use while all others go on becomes slower, and
//! where no reader reads nothing changes.
//!
//! # Invariants
//! - `own <= total`.

use crate::units::PageIndex;

/// How many pages a stream used of those that all of them used meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    pub(super) own: u64,
    pub(super) total: u64,
}

/// How fast a stream is, next to all: each window counts half as much as the one after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    before: Part,
    /// Pages that all streams had used when its last window was opened.
    uses: u64,
    /// Where its reader was then.
    reached: PageIndex,
}

impl Pace {
    pub(super) fn new(uses: u64, reached: PageIndex) -> Self {
        Self { before: Part::default(), uses, reached }
    }

    /// Its part until its reader is at `reached`.
    pub(super) fn until(self, uses: u64, reached: PageIndex) -> Part {
        let own = self.reached.abs_diff(reached);
        let total = uses.saturating_sub(self.uses).max(own);
        Part { own: self.before.own / 2 + own, total: self.before.total / 2 + total }
    }

    /// The same, as another window is opened.
    pub(super) fn renewed(self, uses: u64, reached: PageIndex) -> Self {
        Self { before: self.until(uses, reached), uses, reached }
    }
}
