//! The last few of many values, and what is typical or high among them.
//!
//! ```text
//!   push --> [ .. the last 32, in a ring .. ]    and the same in order:  ....|....|....|....
//!                                                                   median --^    ^-- high
//! ```
//! # Invariants
//! - `sorted` holds the values of the ring, each as often. So a figure is a look, and a value
//!   costs a search and a move of at most 32 others: there are more questions than values.
//! - One value alone, however far off, decides neither figure once there are three.

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    values: [u64; ROOM],
    sorted: [u64; ROOM],
    /// Values ever pushed.
    count: usize,
}

impl Recent {
    /// `value` takes the place of the oldest.
    pub(super) fn push(&mut self, value: u64) {
        let (len, at) = (self.len(), self.count % ROOM);
        let oldest = core::mem::replace(&mut self.values[at], value);
        // The place that comes free: that of the oldest, or one behind all.
        let free =
            if len == ROOM { self.sorted.partition_point(|&held| held < oldest) } else { len };
        let place = self.sorted[..len].partition_point(|&held| held < value);
        if place <= free {
            self.sorted[place..=free].rotate_right(1);
            self.sorted[place] = value;
        } else {
            self.sorted[free..place].rotate_left(1);
            self.sorted[place - 1] = value;
        }
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
        (len > 0).then(|| self.sorted[(len - 1) * quarters / 4])
    }
}

pub(super) const ROOM: usize = 32;

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
        // Whatever comes and goes, what is in order is what is held.
        let mut recent = Recent::default();
        for step in 0..500_u64 {
            recent.push(step * step * 7 % 41);
            let len = recent.len();
            let mut sorted = recent.values;
            sorted[..len].sort_unstable();
            assert_eq!(recent.sorted[..len], sorted[..len], "{step}");
        }
        let recent = of(0..1_000);
        let oldest = 1_000 - ROOM as u64;
        assert_eq!((recent.len(), recent.median()), (ROOM, Some(oldest + 15)));
    }
}
