//! The poll interval and the poll budget: how long to wait until the next poll.
//!
//! ```text
//!   interval    short while polls find accesses, doubled up to a bound while they find none
//!   budget      one part in so many of a processor; what is not used is saved, up to a bound
//!   pause       the interval, or longer until the budget has paid for the last poll
//!   allowance   what one poll may use: what is left to do then goes on with the next one
//! ```
//! Savings let one expensive poll, such as the first of bytes that are not cached, be followed by a
//! short pause, just when the program comes to the end of what was prefetched.
//!
//! # Invariants
//! - A pause is never longer than its bound; cost that the longest pause does not pay stays
//!   overdrawn until the next ones pay it, and what [`SCAN_PAUSE_MAX`] does not pay is forgiven.
//! - At most [`SAVED_MAX`] is saved.

use forerun_core::effort;
use forerun_core::units::Nanos;

use crate::clock::{monotonic, thread_time};

/// Processor time that a poll may still use. What goes on in steps looks at it between them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    time: Nanos,
    /// What this thread will have used then, and the time before which it cannot have.
    ends: Nanos,
    not_before: Nanos,
}

impl Allowance {
    /// So much of this thread's time, from now on.
    pub(crate) fn of(time: Nanos) -> Self {
        let not_before = monotonic() + time;
        Self { time, ends: thread_time() + time, not_before }
    }

    /// One that no test uses up.
    #[cfg(test)]
    pub(crate) fn endless() -> Self {
        Self::of(Nanos(u64::MAX / 2))
    }

    /// One part in `one_in` of it, from now on, whatever was used of it before.
    pub(crate) fn share(self, one_in: u64) -> Self {
        Self::of(Nanos(self.time.0 / one_in))
    }

    /// Whether it is used up.
    pub(crate) fn is_over(self) -> bool {
        // No system call, and a thread uses no more than the time that goes by.
        monotonic() >= self.not_before && thread_time() >= self.ends
    }

    /// Calls `act` with `keys`, which ascend, from `next` on and then those before, until it is
    /// used up: `next` is what the next poll goes on with then. Whether any call returned true.
    pub(super) fn in_turn<K: Copy + Ord>(
        self,
        mut keys: Vec<K>,
        next: &mut K,
        mut act: impl FnMut(K) -> bool,
    ) -> bool {
        let before = keys.partition_point(|key| *key < *next);
        keys.rotate_left(before);
        let mut any = false;
        for key in keys {
            if self.is_over() {
                *next = key;
                break;
            }
            any |= act(key);
        }
        any
    }
}

/// Processor time that polls may use, and what of it is left.
#[derive(Debug)]
pub(crate) struct PollBudget {
    /// Nanoseconds that are saved; below 0, overdrawn.
    saved: i64,
    at: Nanos,
}

impl PollBudget {
    /// A budget with all that can be saved.
    pub(crate) fn full() -> Self {
        Self { saved: SAVED_MAX, at: Nanos(0) }
    }

    /// The pause after a poll at `now` that used `cost`, where polls may use one part in `one_in`
    /// of a processor: `bounds` are the shortest pause and the longest.
    pub(crate) fn pause(
        &mut self,
        now: Nanos,
        bounds: (Nanos, Nanos),
        cost: Nanos,
        one_in: u64,
    ) -> Nanos {
        let (shortest, longest) = bounds;
        assert!(shortest <= longest, "bounds are in order");
        let saved = self.balance(now, one_in);
        self.at = now;
        let forgiven_from = -signed(SCAN_PAUSE_MAX.max(longest).0 / one_in);
        self.saved = saved.saturating_sub(signed(cost.0)).max(forgiven_from);
        let overdrawn = self.saved.min(0).unsigned_abs();
        let pause = Nanos(overdrawn * one_in).clamp(shortest, longest);
        assert!(pause <= longest, "a pause has a bound");
        pause
    }

    /// Beside polls, so much was used.
    fn spend(&mut self, cost: Nanos) {
        self.saved = self.saved.saturating_sub(signed(cost.0));
    }

    /// What is saved at `now`, with what was earned since the last poll.
    fn balance(&self, now: Nanos, one_in: u64) -> i64 {
        assert!(one_in > 0, "there is a budget");
        assert!(self.at <= now, "time does not go back");
        let earned = signed(now.since(self.at).0 / one_in);
        self.saved.saturating_add(earned).min(SAVED_MAX)
    }
}

/// The poll interval of the program that is watched, with its budget.
#[derive(Debug)]
pub(crate) struct PollTimer {
    interval: Nanos,
    budget: PollBudget,
    /// Polls that each cost more than the longest pause pays, less those that did not.
    expensive: u32,
}

/// The time until the next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) time: Nanos,
    /// It is longer than the interval, as it pays for polls: the end of a process does not cut it
    /// short, or one that ends processes all the time would have each of them polled for.
    pub(crate) is_paying: bool,
}

impl Pause {
    /// One that pays for nothing.
    pub(crate) fn of(time: Nanos) -> Self {
        Self { time, is_paying: false }
    }
}

/// What the poll interval becomes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Interval {
    Of(Nanos),
    /// Twice what it was, at most so much.
    DoubledUpTo(Nanos),
}

impl PollTimer {
    pub(crate) fn new() -> Self {
        Self { interval: INTERVAL_MIN, budget: PollBudget::full(), expensive: 0 }
    }

    /// What a poll at `now` may use, where polls may use one part in `one_in` of a processor: what
    /// the longest pause pays, and an eighth of that where the pause before it, cut short by an
    /// event or at its bound, has not paid for the polls before.
    pub(crate) fn allowance(&self, now: Nanos, one_in: u64) -> Allowance {
        let allowance = Allowance::of(Nanos(PAUSE_MAX.0 / one_in));
        if self.budget.balance(now, one_in) < 0 {
            allowance.share(OVERDRAWN_ONE_IN)
        } else {
            allowance
        }
    }

    /// Beside polls, so much was used: the next pauses pay it as well.
    pub(crate) fn spend(&mut self, cost: Nanos) {
        self.budget.spend(cost);
    }

    /// The pause after a poll at `now` that used `cost`, where polls may use one part in `one_in`
    /// of a processor.
    pub(crate) fn pause(
        &mut self,
        now: Nanos,
        interval: Interval,
        cost: Nanos,
        one_in: u64,
    ) -> Pause {
        self.interval = match interval {
            Interval::Of(interval) => interval,
            Interval::DoubledUpTo(longest) => Nanos(self.interval.0 * 2).min(longest),
        };
        assert!((INTERVAL_MIN..=PAUSE_MAX).contains(&self.interval), "{:?}", self.interval);
        // A single look, which no allowance cuts, may cost more each time than a pause pays.
        let is_expensive = cost.0 > PAUSE_MAX.0 / one_in;
        self.expensive = if is_expensive {
            (self.expensive + 1).min(2 * EXPENSIVE_POLLS)
        } else {
            self.expensive.saturating_sub(1)
        };
        assert!(self.expensive <= 2 * EXPENSIVE_POLLS, "cheap polls soon count again");
        let longest = if self.expensive < EXPENSIVE_POLLS { PAUSE_MAX } else { SCAN_PAUSE_MAX };
        let time = self.budget.pause(now, (self.interval, longest), cost, one_in);
        Pause { time, is_paying: time > self.interval }
    }
}

fn signed(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

/// The interval while a program reads what is not cached.
pub(crate) const INTERVAL_MIN: Nanos = Nanos::from_millis(1);
/// The longest pause between polls of where readers are.
pub(crate) const PAUSE_MAX: Nanos = Nanos::from_millis(100);
/// The longest pause after a scan of all that a process has, however expensive the scan was: what
/// begins meanwhile is seen that late.
pub(crate) const SCAN_PAUSE_MAX: Nanos = Nanos::from_millis(2_000);
/// After so many polls more that [`PAUSE_MAX`] does not pay, pauses are as long as it takes.
const EXPENSIVE_POLLS: u32 = 4;
/// A poll may use one part in so many of what it else may, while another is to be paid for.
const OVERDRAWN_ONE_IN: u64 = 8;
/// Nanoseconds of a processor that are saved at most.
const SAVED_MAX: i64 = 10_000_000;

const _: () = assert!(INTERVAL_MIN.0 <= PAUSE_MAX.0 && PAUSE_MAX.0 <= SCAN_PAUSE_MAX.0);
const _: () = assert!(effort::PAUSE_MAX.0 <= SCAN_PAUSE_MAX.0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_use_their_part_of_a_processor_and_what_was_saved() {
        let millis = Nanos::from_millis;
        let mut budget = PollBudget::full();
        #[rustfmt::skip]
        let rows = [ // at ms, cost ms, pause ms
            (0,     9,   1, "saved"),
            (1,     1,   1, "a little is left"),
            (2,     1,  8, "overdrawn by .8 ms"),
            (10,    1,  10, "that is paid, nothing is saved"),
            (1_000, 9,   1, "saved again, no more than at first"),
            (1_001, 99, 100, "never longer"),
            (1_101, 0, 100, "what that did not pay stays overdrawn"),
            (1_801, 0, 100, "until it is paid"),
            (1_980, 0,   1, "as a whole"),
        ];
        for (at, cost, pause, why) in rows {
            let is = budget.pause(millis(at), (millis(1), millis(100)), millis(cost), 10);
            assert_eq!(is, millis(pause), "{why}");
        }
    }

    #[test]
    fn polls_that_each_cost_more_than_the_longest_pause_pays_keep_to_their_part() {
        let millis = Nanos::from_millis;
        for cost in [2, 13, 50] {
            let (mut timer, mut now, mut polls) = (PollTimer::new(), Nanos(0), 0);
            while now < millis(20_000) {
                let interval = Interval::DoubledUpTo(PAUSE_MAX);
                now = now + millis(cost) + timer.pause(now, interval, millis(cost), 50).time;
                polls += 1;
            }
            // A fiftieth, what is saved, and what is overdrawn before the pauses grow.
            let most = 400 + 10 + u64::from(EXPENSIVE_POLLS + 2) * cost;
            assert!(polls * cost <= most, "{polls} polls of {cost} ms");
        }
    }

    #[test]
    fn a_poll_whose_pause_has_paid_for_the_last_one_has_a_whole_allowance() {
        let millis = Nanos::from_millis;
        let mut timer = PollTimer::new();
        let whole = timer.allowance(millis(0), 50).time;
        assert_eq!(whole, millis(2));
        // All that is saved and 1 ms.
        let pause = timer.pause(millis(0), Interval::Of(INTERVAL_MIN), millis(11), 50);
        assert_eq!(pause, Pause { time: millis(50), is_paying: true });
        assert_eq!(timer.allowance(millis(49), 50).time, Nanos(whole.0 / OVERDRAWN_ONE_IN));
        assert_eq!(timer.allowance(pause.time, 50).time, whole);
    }

    #[test]
    fn a_share_is_whole_after_all_else_was_used() {
        let allowance = Allowance::of(Nanos::from_millis(2));
        let used = Allowance { ends: Nanos(0), not_before: Nanos(0), ..allowance };
        assert!(used.is_over() && !used.share(4).is_over());
    }

    #[test]
    fn the_pause_after_an_expensive_scan_ends() {
        let mut budget = PollBudget::full();
        for cost in [Nanos::from_millis(600_000), Nanos(u64::MAX)] {
            let pause = budget.pause(Nanos(0), (INTERVAL_MIN, SCAN_PAUSE_MAX), cost, 50);
            assert_eq!(pause, SCAN_PAUSE_MAX);
        }
    }

    #[test]
    fn the_interval_doubles_while_nothing_is_read() {
        let mut timer = PollTimer::new();
        let four = Nanos::from_millis(4);
        let mut next = |interval| {
            let pause = timer.pause(Nanos(0), interval, Nanos(0), 10);
            assert!(!pause.is_paying, "a poll without a cost is paid for");
            pause.time.0 / 1_000_000
        };
        assert_eq!([(); 3].map(|()| next(Interval::DoubledUpTo(four))), [2, 4, 4]);
        assert_eq!(next(Interval::Of(INTERVAL_MIN)), 1);
        assert_eq!(next(Interval::DoubledUpTo(four)), 2);
    }
}
