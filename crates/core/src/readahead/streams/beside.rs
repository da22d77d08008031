//! Misses just behind cached pages: how many come there, beside how many chance would bring.
//!
//! ```text
//!   a miss of a file of n pages, k of which lone reads have left in the cache
//!     expected += k / n          what reads at random would come to
//!     seen     += 1              if the page before it is cached
//! ```
//! Where as many are seen as are expected, all of them are chance, and a window there is wasted.
//! Where streams take turns nearly every miss is one of them. In between, of `seen` as many are
//! chance as are expected: a window may be longer by as much as chance is rarer, smoothly.
//!
//! # Invariants
//! - Reads at random leave windows as they are, on average.

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beside {
    seen: u64,
    /// In parts of [`ONE`].
    expected: u64,
}

impl Beside {
    /// A miss in a file of `pages`, of which lone reads have left `places` in the cache; `is_seen`:
    /// the page before it is cached.
    pub(super) fn missed(&mut self, pages: u64, places: u64, is_seen: bool) {
        self.seen += u64::from(is_seen);
        self.expected += places.min(pages) * ONE / pages.max(1);
    }

    /// `pages`, times how much more often misses come behind cached pages than by chance.
    pub(super) fn scaled(self, pages: u64) -> u64 {
        let (seen, expected) = (self.seen + PRIOR, self.expected / ONE + PRIOR);
        if seen <= expected {
            return pages;
        }
        let scaled = u128::from(pages) * u128::from(seen) / u128::from(expected);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

const ONE: u64 = 1 << 16;
/// Before a file has shown anything, so many misses behind cached pages are taken for chance, and
/// as many for what chance brings.
const PRIOR: u64 = 4;

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
            ("twice as often",                1_000,  100,    5,           198),
            ("nearly always",                 1_000,  10,     1,           7_723),
            ("a few, before chance has any",  4,      0,      1,           200),
        ];
        for (why, misses, places, one_in, scaled) in rows {
            let mut beside = Beside::default();
            for nth in 0..misses {
                beside.missed(1_000, places, nth % one_in == 0);
            }
            assert_eq!(beside.scaled(100), scaled, "{why}");
        }
    }
}
