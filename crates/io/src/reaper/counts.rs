//! Counts of a reaper, which only grow: groups by the way they were waited for, what went wrong
//! about a wait, and where the time of waits went.
//!
//! # Invariants
//! - Each group is counted under one way of waiting; times are sums.

use std::array;

use forerun_core::{reap::Way, units::Nanos};

/// Declares [`ReapCounts`], whose fields are sums of events and of times, with its arithmetic.
macro_rules! counts {
    (
        events { $($(#[$about:meta])* $event:ident,)* }
        times { $($(#[$what:meta])* $time:ident,)* }
    ) => {
        /// See the module.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ReapCounts {
            /// Groups by how they were waited for, by [`Way::index`].
            pub groups: [u64; 3],
            $($(#[$about])* pub $event: u64,)*
            $($(#[$what])* pub $time: Nanos,)*
        }

        impl ReapCounts {
            /// What was counted since `earlier`.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self {
                    groups: array::from_fn(|way| self.groups[way] - earlier.groups[way]),
                    $($event: self.$event - earlier.$event,)*
                    $($time: self.$time.since(earlier.$time),)*
                }
            }

            /// Adds what another reaper counted.
            pub fn add(&mut self, other: &Self) {
                self.groups = array::from_fn(|way| self.groups[way] + other.groups[way]);
                $(self.$event += other.$event;)*
                $(self.$time += other.$time;)*
            }
        }
    };
}

counts! {
    events {
        /// Operations of all groups.
        operations,
        /// Of those, the ones that failed.
        failed,
        /// Groups of readahead: they are waited for by interrupt, and no policy learns from them.
        readahead,
        /// Sleepers that woke when all was complete.
        late,
        /// Groups that were waited for by interrupt as the port lacks what their plan needs.
        unsupported,
        /// Groups that found no budget to spin, or the processor contended.
        spin_refused,
        /// Times that the processor was found contended.
        contended,
        /// Spinning that ended at its budget, in a wait for the interrupt.
        budget_ended,
        /// Sleeps that the timer ended.
        timer_ended,
    }
    times {
        /// Time that was spun.
        spun,
        /// Time asleep by a timer.
        slept,
        /// Time blocked until an interrupt.
        blocked,
        /// How late the timer was in all, over [`ReapCounts::timer_ended`] sleeps.
        overshot,
        /// Processor time of this thread in submitting and waiting.
        cpu,
        /// From submission to reaping, over all groups.
        waited,
    }
}

impl ReapCounts {
    /// Groups in all.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.groups.iter().sum()
    }

    /// Groups that were waited for in this way.
    #[must_use]
    pub fn by(&self, way: Way) -> u64 {
        self.groups[way.index()]
    }

    /// The mean time by which a timer was late.
    #[must_use]
    pub fn overshoot_mean(&self) -> Nanos {
        Nanos(self.overshot.0 / self.timer_ended.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_what_came_since() {
        let part = ReapCounts {
            groups: [1, 2, 3],
            operations: 4,
            failed: 5,
            readahead: 6,
            late: 7,
            unsupported: 8,
            spin_refused: 9,
            contended: 10,
            budget_ended: 11,
            spun: Nanos(12),
            slept: Nanos(13),
            blocked: Nanos(14),
            timer_ended: 15,
            overshot: Nanos(16),
            cpu: Nanos(17),
            waited: Nanos(18),
        };
        let mut twice = part;
        twice.add(&part);
        assert_eq!(twice.since(&part), part);
        assert_eq!((part.all(), part.by(Way::SleepSpin)), (6, 3));
        assert_eq!(twice.overshoot_mean(), Nanos(1));
        assert_eq!(ReapCounts::default().overshoot_mean(), Nanos(0));
    }
}
