//! Misses just behind cached pages: how many come there, beside how many chance would bring.
//!
//! ```text
//!   a miss of c pages of a file of n, k places of which lone reads have left in the cache
//!     chance += k / (n / c)    what reads at random would come to
//!     seen   += 1              if the page before it is cached
//! ```
//! Random reads of many pages are taken for reads of records of that size: one ends where another
//! may begin. Of `seen` misses as many are chance as chance brings, and the others are of streams
//! that take turns. Windows of `w` pages there waste `w * chance`, and bring `w * (seen - chance)`
//! to use. What may be wasted is a page in so many random reads (`ODDS`), and one in
//! [`WASTED_ONE_IN`] of what streams use:
//!
//! ```text
//!   w * chance <= w_0 * chance + w * (seen - chance) / WASTED_ONE_IN
//! ```
//! where `w_0` is what random reads alone allow. So `w` is `w_0` where all is chance, grows as
//! chance is rarer, and has no bound of this kind from `WASTED_ONE_IN + 1` times chance on.
//!
//! # Invariants
//! - Reads at random leave windows as they are, on average.

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beside {
    seen: u64,
    /// In parts of [`ONE`].
    chance: u64,
}

impl Beside {
    /// A miss in a file of so many `records` of its size, of which lone reads have left `places` in
    /// the cache; `is_seen`: the page before it is cached.
    pub(super) fn missed(&mut self, records: u64, places: u64, is_seen: bool) {
        self.seen += u64::from(is_seen);
        self.chance += places.min(records) * ONE / records.max(1);
    }

    /// Halves what was seen so many times.
    pub(super) fn age(&mut self, halvings: u64) {
        self.seen >>= halvings;
        self.chance >>= halvings;
    }

    /// The largest window behind cached pages, where random reads alone allow `pages / places`.
    pub(super) fn window(self, pages: u64, places: u64) -> u32 {
        let chance = self.chance + PRIOR * ONE;
        let streams = ((self.seen + PRIOR) * ONE).saturating_sub(chance);
        let left = chance.saturating_sub(streams / WASTED_ONE_IN);
        let all = u128::from(pages) * u128::from(chance);
        let window = all.checked_div(u128::from(places) * u128::from(left));
        window.map_or(u32::MAX, |window| u32::try_from(window).unwrap_or(u32::MAX))
    }
}

const ONE: u64 = 1 << 16;
/// So many misses behind cached pages, before a file has shown any, and all of them by chance.
const PRIOR: u64 = 1;
/// One page in vain for so many that are used: bytes from object stores are paid for.
const WASTED_ONE_IN: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_by_as_much_as_chance_is_rarer() {
        #[rustfmt::skip]
        let rows = [ // why                   misses  places  seen one in  of 100 pages
            ("nothing is known",              0,      0,      1,           100),
            ("as often as by chance",         1_000,  100,    10,          100),
            ("less often",                    1_000,  100,    100,         100),
            ("twice as often",                1_000,  100,    5,           110),
            ("nearly always",                 1_000,  10,     1,           u32::MAX),
            ("a few, before chance has any",  4,      0,      1,           166),
            ("ten of them",                   10,     0,      1,           u32::MAX),
        ];
        for (why, misses, places, one_in, window) in rows {
            let mut beside = Beside::default();
            for nth in 0..misses {
                beside.missed(1_000, places, nth % one_in == 0);
            }
            assert_eq!(beside.window(1_000, 10), window, "{why}");
        }
    }
}
