//! The last few of many values, and what is typical or high among them.
//!
//! ```text
//!   push --> [ .. the last 32, in a ring .. ]    sorted when asked:  ....|....|....|....
//!                                                               median --^    ^-- high
//! ```
//! # Invariants
//! - One value alone, however far off, decides neither figure once there are three.

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    values: [u64; ROOM],
    /// Values ever pushed.
    count: usize,
}

impl Recent {
    /// `value` takes the place of the oldest.
    pub(super) fn push(&mut self, value: u64) {
        self.values[self.count % ROOM] = value;
        // Once round, only the place in the ring matters.
        self.count = if self.count + 1 == 2 * ROOM { ROOM } else { self.count + 1 };
    }

    /// Values held.
    pub(super) fn len(&self) -> usize {
        self.count.min(ROOM)
    }

    /// The middle one, the lower of two.
    pub(super) fn median(&self) -> Option<u64> {
        self.at(2)
    }

    /// One that a quarter are above: near the most, and no outlier.
    pub(super) fn high(&self) -> Option<u64> {
        self.at(3)
    }

    /// Between which the middle half of them lies.
    pub(super) fn spread(&self) -> u64 {
        self.at(3).unwrap_or(0) - self.at(1).unwrap_or(0)
    }

    fn at(&self, quarters: usize) -> Option<u64> {
        let len = self.len();
        let mut sorted = self.values;
        sorted[..len].sort_unstable();
        (len > 0).then(|| sorted[(len - 1) * quarters / 4])
    }
}

const ROOM: usize = 32;

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Recent {
        let mut recent = Recent::default();
        for value in values {
            recent.push(value);
        }
        recent
    }

    #[test]
    fn the_oldest_leave_and_outliers_decide_nothing() {
        #[rustfmt::skip]
        let rows = [ // why            values               median   high
            ("none",                    vec![],              None,    None),
            ("one is all there is",     vec![7],             Some(7), Some(7)),
            ("the lower of two",        vec![900, 7],        Some(7), Some(7)),
            ("one far off",             vec![5, 900, 7],     Some(7), Some(7)),
            ("a quarter is above",      vec![1, 2, 3, 4, 5], Some(3), Some(4)),
        ];
        for (why, values, median, high) in rows {
            let recent = of(values);
            assert_eq!((recent.median(), recent.high()), (median, high), "{why}");
            let twice = of([median, high, median, high].into_iter().flatten());
            assert_eq!(twice.spread(), high.unwrap_or(0) - median.unwrap_or(0), "{why}");
        }
        let recent = of(0..1_000);
        let oldest = 1_000 - ROOM as u64;
        assert_eq!((recent.len(), recent.median()), (ROOM, Some(oldest + 15)));
    }
}
