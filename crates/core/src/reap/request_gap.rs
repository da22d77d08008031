//! Whether to spin for what comes next on a connection, and for how long.
//!
//! ```text
//!   gap of the last request    short: the next one is spun for, as long as a wake would cost
//!                              long:  the thread blocks at once
//! ```
//! A thread that spins for as long as a wake costs, and blocks then, pays at most twice the better
//! of the two. A client that pauses costs one such spin a pause.
//!
//! # Invariants
//! - Constant time and state; the first request is not spun for.
//! # Sources
//! Karlin et al., Competitive Randomized Algorithms for Non-Uniform Problems, 1990 (spin, block).

use crate::units::Nanos;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestGap {
    /// The last gap was a short one.
    is_short: bool,
}

impl RequestGap {
    /// How long to spin for the next request; `None`: block.
    #[must_use]
    pub fn spin(self) -> Option<Nanos> {
        self.is_short.then_some(SPIN_MAX)
    }

    /// A request came `gap` after the thread was ready for it.
    pub fn learn(&mut self, gap: Nanos) {
        self.is_short = gap < SPIN_MAX;
    }
}

/// What a block and a wake cost, a switch of the processor's state among it: 3 us on bare metal, up
/// to some 50 us where a hypervisor halts an idle processor.
const SPIN_MAX: Nanos = Nanos(50_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_gaps_are_spun_for_and_a_long_one_ends_it() {
        let mut gap = RequestGap::default();
        assert_eq!(gap.spin(), None);
        #[rustfmt::skip]
        let rows = [
            (Nanos(SPIN_MAX.0 - 1),    Some(SPIN_MAX)),
            (SPIN_MAX,                 None),
            (Nanos(0),                 Some(SPIN_MAX)),
        ];
        for (last, spin) in rows {
            gap.learn(last);
            assert_eq!(gap.spin(), spin, "{last:?}");
        }
    }
}
