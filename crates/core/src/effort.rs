//! The processor budget of a run: how much of a processor may be used for a program, in polls and
//! in the threads that make requests.
//!
//! ```text
//!   earned   a part of the time that goes by, and of the time that the program was saved
//!   spent    polls, and all that workers do
//!   saved    the difference: below 0, overdrawn
//!     requests   as many as what is saved pays for, less those that workers still have
//!     polls      rarer while it is overdrawn
//! ```
//! What a program was saved counts because it pays for more: where one reads thousands of files
//! seven times as fast, a tenth of the time that is left does not pay for opening them. A request
//! costs what those before it have cost.
//!
//! # Invariants
//! - At most `SAVED_MAX` is saved, and it is overdrawn by no more than `OVERDRAWN_MAX`.
//! - While it is overdrawn nothing is requested, and polls take no more than half of what is
//!   earned, or come `OVERDRAWN_PAUSE` apart, but `PAUSE_MAX` at most: so it is paid.

use crate::units::Nanos;

/// See the module.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Nanoseconds of a processor.
    saved: i64,
    at: Nanos,
    /// What requests cost of late, and how many these were.
    cost: (u64, u64),
}

/// What was spent since the last time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Processor time of the thread that polls.
    pub polls: Nanos,
    /// Processor time of all others.
    pub workers: Nanos,
    /// Requests that workers have carried out.
    pub requests: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Self { saved: SAVED_MAX, at: Nanos(0), cost: (REQUEST_COST_FIRST, 1) }
    }
}

impl Effort {
    /// Takes in what was spent until `now`, where one part in `one_in` of a processor may be used.
    ///
    /// # Panics
    /// Time goes back.
    pub fn spend(&mut self, now: Nanos, spent: Spent, one_in: u64) {
        assert!(one_in > 0, "there is a budget");
        assert!(self.at <= now, "time does not go back");
        self.gain(now.since(self.at), one_in);
        self.at = now;
        let sum = signed(spent.polls.0.saturating_add(spent.workers.0));
        self.saved = self.saved.saturating_sub(sum).max(-OVERDRAWN_MAX);
        if spent.requests > 0 {
            let (cost, requests) = self.cost;
            self.cost = (cost.saturating_add(spent.workers.0), requests + spent.requests);
            while self.cost.1 > COST_OF_MAX {
                self.cost = (self.cost.0 / 2, self.cost.1 / 2);
            }
        }
        assert!((-OVERDRAWN_MAX..=SAVED_MAX).contains(&self.saved), "the budget has its bounds");
    }

    /// Earns one part in `one_in` of `time`: that goes by, or that the program was saved.
    pub fn gain(&mut self, time: Nanos, one_in: u64) {
        self.saved = self.saved.saturating_add(signed(time.0 / one_in)).min(SAVED_MAX);
    }

    /// How many requests may be made, where workers have `outstanding` others. What is left pays
    /// for one, whatever the last ones have cost: one of them may have listed very many entries.
    #[must_use]
    pub fn requests(&self, outstanding: usize) -> usize {
        let left = self.saved.max(0).unsigned_abs();
        let count = (left / self.request_cost().0).max(u64::from(left > 0));
        usize::try_from(count).unwrap_or(usize::MAX).saturating_sub(outstanding)
    }

    /// What a request costs, as those of late did.
    #[must_use]
    pub fn request_cost(&self) -> Nanos {
        let (cost, requests) = self.cost;
        Nanos((cost / requests).max(1))
    }

    /// The shortest pause after a poll that has used `cost`, where one part in `one_in` of a
    /// processor may be used.
    #[must_use]
    pub fn pause(&self, cost: Nanos, one_in: u64) -> Nanos {
        let overdrawn = self.saved.min(0).unsigned_abs();
        if overdrawn == 0 {
            return Nanos(0);
        }
        // As much again as the next poll will use, so that something is left when it is paid.
        let polls = cost.0.saturating_mul(2);
        let paid = overdrawn.saturating_add(polls).saturating_mul(one_in);
        let longest = OVERDRAWN_PAUSE.max(Nanos(polls.saturating_mul(one_in))).min(PAUSE_MAX);
        Nanos(paid).min(longest)
    }
}

fn signed(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

/// Nanoseconds of a processor that are saved at most: what the first requests of a program cost.
const SAVED_MAX: i64 = 40_000_000;
/// What cannot be paid in two seconds by a tenth of a processor is forgiven.
const OVERDRAWN_MAX: i64 = 200_000_000;
/// What a request is taken to cost before one has ended, in nanoseconds.
const REQUEST_COST_FIRST: u64 = 100_000;
/// A request costs the mean of about so many.
const COST_OF_MAX: u64 = 128;
/// Between polls while the budget is overdrawn.
const OVERDRAWN_PAUSE: Nanos = Nanos::from_millis(10);
/// The longest pause.
pub const PAUSE_MAX: Nanos = Nanos::from_millis(2_000);

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(polls: u64, workers: u64, requests: u64) -> Spent {
        Spent { polls: Nanos::from_millis(polls), workers: Nanos::from_millis(workers), requests }
    }

    #[test]
    fn what_polls_and_workers_use_comes_from_one_budget() {
        #[rustfmt::skip]
        let rows = [ // at ms, polls ms, workers ms, requests, pause ms, why
            (0,     5,   5,  100,  0, "something is left"),
            (100,  10,  20,  200,  0, "so it is of that and of what was earned"),
            (110,   1,  20,  200, 10, "workers have used it up"),
            (300,   0,   0,    0,  0, "time has paid"),
            (400,  30,   0,    0, 10, "polls use it up as well"),
            (9000,  0,   0,    0,  0, "no more is saved than at first"),
        ];
        let mut effort = Effort::default();
        for (at, polls, workers, done, pause, why) in rows {
            effort.spend(Nanos::from_millis(at), spent(polls, workers, done), 10);
            assert_eq!(effort.pause(Nanos(0), 10), Nanos::from_millis(pause), "{why}");
            assert_eq!(effort.requests(0) > 0, effort.saved > 0, "{why}");
        }
        assert_eq!(effort.saved, SAVED_MAX);
    }

    #[test]
    fn requests_are_made_as_far_as_they_are_paid_for() {
        let mut effort = Effort::default();
        effort.spend(Nanos(0), spent(0, 30, 1_000), 10);
        let count = effort.requests(0);
        // 10 ms are left, and each of them took 30 us.
        assert!((300..=340).contains(&count), "{count}");
        assert_eq!(effort.requests(count - 7), 7);
        assert_eq!(effort.requests(1_000), 0);
    }

    #[test]
    fn what_a_program_was_saved_pays() {
        let mut effort = Effort::default();
        effort.spend(Nanos(0), spent(0, 90, 2_000), 10);
        assert_eq!(effort.requests(0), 0);
        effort.gain(Nanos::from_millis(600), 10);
        assert!(effort.requests(0) > 0);
        effort.gain(Nanos::from_millis(600_000), 10);
        assert_eq!(effort.saved, SAVED_MAX);
    }

    #[test]
    fn whatever_workers_do_their_part_is_a_tenth() {
        // Each poll takes 1 ms and requests all that it may; each request takes what it likes.
        let (mut effort, mut now, mut used, mut outstanding) =
            (Effort::default(), Nanos(0), 0, 0_usize);
        for turn in 0..10_000_u64 {
            let each = [30_000, 300_000, 5_000, 1_000_000][(turn / 64 % 4) as usize];
            let (polls, workers) = (Nanos(200_000), Nanos(outstanding as u64 * each));
            effort.spend(now, Spent { polls, workers, requests: outstanding as u64 }, 10);
            used += polls.0 + workers.0;
            outstanding = effort.requests(0).min(256);
            now += effort.pause(polls, 10).max(Nanos::from_millis(1));
        }
        let most = now.0 / 10 + SAVED_MAX.unsigned_abs() + OVERDRAWN_MAX.unsigned_abs();
        assert!(used <= most, "{used} of {most}");
        assert!(used >= now.0 / 20, "the budget is used: {used} of {now:?}");
    }

    #[test]
    fn expensive_polls_leave_half_of_the_budget_to_requests() {
        let mut effort = Effort::default();
        effort.spend(Nanos(0), spent(300, 0, 0), 10);
        assert_eq!(effort.pause(Nanos::from_millis(3), 10), Nanos::from_millis(60));
        assert_eq!(effort.pause(Nanos::from_millis(80), 10), Nanos::from_millis(1_600));
    }

    #[test]
    fn what_is_overdrawn_is_paid_however_little_is_earned() {
        #[rustfmt::skip]
        let rows = [ // one part in, a poll takes us, seconds until it is paid at most
            (10,     1_000,           5),
            (50,     1_000,           25),
            (50,     4_000,           25),
            (500,    200,             220),
            (500,    1_000,           220),
        ];
        for (one_in, polls, seconds) in rows {
            // A listing of very many entries, then polls.
            let mut effort = Effort::default();
            let (mut now, polls) = (Nanos(0), Nanos::from_micros(polls));
            effort.spend(now, spent(0, 300, 1), one_in);
            while effort.requests(0) == 0 {
                now += effort.pause(polls, one_in).max(polls);
                effort.spend(now, Spent { polls, ..Spent::default() }, one_in);
                assert!(now < Nanos::from_millis(seconds * 1_000), "1 in {one_in}, {polls:?}");
            }
        }
    }
}
