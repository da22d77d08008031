//! What a reaper did, in numbers that only grow: groups by the way they were waited for, what went
//! wrong about a wait, and where the time of waits went.
//!
//! # Invariants
//! - Each group is counted under one way of waiting; times are sums.

use forerun_core::{reap::Way, units::Nanos};

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Groups by how they were waited for, by [`Way::index`].
    pub groups: [u64; 3],
    /// Operations of all groups.
    pub operations: u64,
    /// Of those, the ones that failed.
    pub failed: u64,
    /// Groups of readahead: they are waited for by interrupt, and no policy learns from them.
    pub readahead: u64,
    /// Sleepers that woke when all was complete.
    pub late: u64,
    /// Groups whose plan needs what the port has not: waited for by interrupt.
    pub unsupported: u64,
    /// Groups that found no room to spin.
    pub no_room: u64,
    /// Times that somebody else was seen to want the processor.
    pub disturbed: u64,
    /// Spinning that ended at its budget, in a wait for the interrupt.
    pub budget_ended: u64,
    /// Time that was spun.
    pub spun: Nanos,
    /// Time asleep by a timer.
    pub slept: Nanos,
    /// Time blocked until an interrupt.
    pub blocked: Nanos,
    /// Sleeps that the timer ended, and by how much it was late in all.
    pub timer_ended: u64,
    /// See [`Counts::timer_ended`].
    pub overshot: Nanos,
    /// Processor time of this thread in submitting and waiting.
    pub cpu: Nanos,
    /// From submission to reaping, over all groups.
    pub waited: Nanos,
}

impl Counts {
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

    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut groups = self.groups;
        for (now, before) in groups.iter_mut().zip(earlier.groups) {
            *now -= before;
        }
        Self {
            groups,
            operations: self.operations - earlier.operations,
            failed: self.failed - earlier.failed,
            readahead: self.readahead - earlier.readahead,
            late: self.late - earlier.late,
            unsupported: self.unsupported - earlier.unsupported,
            no_room: self.no_room - earlier.no_room,
            disturbed: self.disturbed - earlier.disturbed,
            budget_ended: self.budget_ended - earlier.budget_ended,
            spun: self.spun.since(earlier.spun),
            slept: self.slept.since(earlier.slept),
            blocked: self.blocked.since(earlier.blocked),
            timer_ended: self.timer_ended - earlier.timer_ended,
            overshot: self.overshot.since(earlier.overshot),
            cpu: self.cpu.since(earlier.cpu),
            waited: self.waited.since(earlier.waited),
        }
    }

    /// Adds what another reaper counted.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.groups.iter_mut().zip(other.groups) {
            *sum += more;
        }
        self.operations += other.operations;
        self.failed += other.failed;
        self.readahead += other.readahead;
        self.late += other.late;
        self.unsupported += other.unsupported;
        self.no_room += other.no_room;
        self.disturbed += other.disturbed;
        self.budget_ended += other.budget_ended;
        self.spun += other.spun;
        self.slept += other.slept;
        self.blocked += other.blocked;
        self.timer_ended += other.timer_ended;
        self.overshot += other.overshot;
        self.cpu += other.cpu;
        self.waited += other.waited;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_what_came_since() {
        let part = Counts {
            groups: [1, 2, 3],
            operations: 4,
            failed: 5,
            readahead: 6,
            late: 7,
            unsupported: 8,
            no_room: 9,
            disturbed: 10,
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
        assert_eq!(Counts::default().overshoot_mean(), Nanos(0));
    }
}
