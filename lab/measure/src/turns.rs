//! The order of requests that have times: that of the trace, at the store too.
//!
//! ```text
//!   slot --take--> request, turn --wait--> begun --> the store is about to be called --> passed on
//!                                                \-> answered without a call -----------/
//! ```
//! A thread may stand still at any moment. So a turn is passed on as late as can be: between the
//! turn and the system call there is no work left, and the next request has all of its own before
//! it. Out of order are only two of which the first one's thread stood still just there.
//!
//! # Invariants
//! - Turns begin in their order.
//! - A request that waits, as for another's fetch, keeps the turn no longer than [`WAITING_MAX`]:
//!   the ones behind it are not late for a device. One whose thread has no processor keeps it, up
//!   to [`HELD_MAX`].
//! # Locking
//! Two locks, never both.

use std::cell::Cell;
use std::{fs, thread};

use forerun_console::machine;
use forerun_core::units::Nanos;
use forerun_sim::schedule::Pace;
use forerun_sim::workload::{Access, Reader};
use parking_lot::Mutex;
use rustix::thread::{Pid, gettid};

/// See the module.
pub(crate) struct Turns {
    pub(crate) timed: bool,
    /// Turns that were given, and when the latest request with one is due.
    given: Mutex<(u64, Nanos)>,
    held: Mutex<Held>,
}

/// Whose turn it is.
#[derive(Default)]
struct Held {
    turn: u64,
    /// Since when, and by which thread; none: it has not begun.
    begun: Option<(Nanos, Pid)>,
}

thread_local! {
    /// The turn that this thread has begun and not passed on.
    static BEGUN: Cell<Option<u64>> = const { Cell::new(None) };
}

impl Turns {
    pub(crate) fn new(pace: Pace) -> Self {
        Self { timed: pace != Pace::Closed, given: Mutex::default(), held: Mutex::default() }
    }

    /// The next request of the list behind `reader`, and its turn; none where it has no time, or
    /// comes behind one that is due later, as in traces that are not quite in the order of theirs.
    pub(crate) fn take(&self, reader: &mut Reader) -> Option<(Access, Option<u64>)> {
        if !self.timed {
            return reader.next().map(|access| (access, None));
        }
        let mut given = self.given.lock();
        let access = reader.next()?;
        let (turn, latest) = *given;
        if access.not_before < latest {
            return Some((access, None));
        }
        *given = (turn + 1, access.not_before);
        Some((access, Some(turn)))
    }

    /// Waits until the one before has passed `turn` on, or has kept it for too long; the moment,
    /// or nothing where `stopped` is so meanwhile.
    pub(crate) fn wait(&self, turn: u64, stopped: impl Fn() -> bool) -> Option<Nanos> {
        loop {
            if let Some(now) = self.begin(turn, machine::now, is_waiting) {
                BEGUN.set(Some(turn));
                return Some(now);
            }
            if stopped() {
                return None;
            }
            // The one before may need this processor.
            thread::yield_now();
        }
    }

    /// Begins `turn` if it may; `clock` says when, `is_waiting` whether a thread waits.
    fn begin(
        &self,
        turn: u64,
        clock: impl FnOnce() -> Nanos,
        is_waiting: impl FnOnce(Pid) -> bool,
    ) -> Option<Nanos> {
        let mut held = self.held.lock();
        // Read under the lock: moments have the order of the turns.
        let now = clock();
        let is_over = |since, thread| match now.since(since) {
            kept if kept < WAITING_MAX => false,
            kept => kept >= HELD_MAX || is_waiting(thread),
        };
        let begins = match held.begun {
            None => held.turn == turn,
            Some((since, thread)) => held.turn + 1 == turn && is_over(since, thread),
        };
        begins.then(|| {
            *held = Held { turn, begun: Some((now, gettid())) };
            now
        })
    }

    /// Ends the turn of this thread, if it has one: what follows is the call, or nothing.
    pub(crate) fn pass_on(&self) {
        let Some(turn) = BEGUN.take() else { return };
        let mut held = self.held.lock();
        if held.turn == turn {
            *held = Held { turn: turn + 1, begun: None };
        }
    }
}

/// Whether `thread` of this process sleeps: it neither runs, nor would if it had a processor.
fn is_waiting(thread: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    // Behind the name, which may hold anything.
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')))
}

/// Several times what the engine needs from a request to its system call.
const WAITING_MAX: Nanos = Nanos::from_micros(200);
const HELD_MAX: Nanos = Nanos::from_millis(50);

#[cfg(test)]
mod tests {
    use forerun_sim::schedule;
    use forerun_sim::trace::Request;

    use super::*;

    const OPEN: Pace = Pace::Open { speed_ppm: 1_000_000 };

    fn access(due: u64) -> Access {
        let request = Request::blocks(1, 0, 4_096).unwrap().unwrap();
        schedule::access(&request, 0, Nanos(due))
    }

    #[test]
    fn a_turn_begins_when_the_one_before_is_passed_on() {
        const REQUESTS: u64 = 2_000;
        let turns = Turns::new(OPEN);
        let list = (0..REQUESTS).map(|at| access(at * 50));
        let made = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for mut slot in schedule::slots(list, 8) {
                let (turns, made) = (&turns, &made);
                scope.spawn(move || {
                    while let Some((_, turn)) = turns.take(&mut slot) {
                        let turn = turn.unwrap();
                        let at = turns.wait(turn, || false).unwrap();
                        made.lock().push((turn, at));
                        turns.pass_on();
                    }
                });
            }
        });
        let mut made = made.into_inner();
        assert_eq!(made.len() as u64, REQUESTS, "each once");
        made.sort_unstable_by_key(|&(turn, at)| (at, turn));
        assert!(made.iter().map(|&(turn, _)| turn).eq(0..REQUESTS));
    }

    #[test]
    fn a_turn_is_not_begun_before_its_predecessor_has_ended_or_kept_it_for_long() {
        let turns = Turns::new(OPEN);
        let begins = |turn, micros, waits| {
            turns.begin(turn, || Nanos::from_micros(micros), |_| waits).is_some()
        };
        assert!(!begins(1, 0, true) && begins(0, 1, true) && !begins(0, 2, true));
        assert!(!begins(1, 200, true), "kept for 199 us");
        assert!(!begins(1, 50_000, false), "its thread has no processor");
        assert!(begins(1, 201, true), "it waits for another's fetch");
        BEGUN.set(Some(0));
        turns.pass_on();
        assert!(!begins(2, 202, true), "what is passed on late is no longer its own");
        BEGUN.set(Some(1));
        turns.pass_on();
        turns.pass_on();
        assert!(begins(2, 203, false) && !begins(3, 50_202, false) && begins(3, 50_203, false));
    }

    #[test]
    fn a_thread_that_sleeps_is_told_from_one_that_runs() {
        assert!(!is_waiting(gettid()));
        let (send, told) = std::sync::mpsc::channel();
        let sleeper = thread::spawn(move || {
            send.send(gettid()).unwrap();
            thread::park();
        });
        let id = told.recv().unwrap();
        while !is_waiting(id) {
            thread::yield_now();
        }
        sleeper.thread().unpark();
        sleeper.join().unwrap();
    }

    #[test]
    fn what_comes_behind_a_later_request_has_no_turn() {
        let turns = Turns::new(OPEN);
        let mut list = Reader::new([5, 9, 7, 9, 12].map(access).into_iter());
        let given: Vec<Option<u64>> =
            std::iter::from_fn(|| turns.take(&mut list)).map(|taken| taken.1).collect();
        assert_eq!(given, [Some(0), Some(1), None, Some(2), Some(3)]);
        let closed = Turns::new(Pace::Closed);
        assert_eq!(closed.take(&mut Reader::new([0, 0].map(access).into_iter())).unwrap().1, None);
    }

    #[test]
    fn a_turn_ends_when_the_replay_is_stopped() {
        let turns = Turns::new(OPEN);
        assert_eq!(turns.wait(1, || true), None, "its predecessor was never made");
        assert!(turns.wait(0, || true).is_some());
        assert_eq!(turns.wait(1, || true), None, "its predecessor has not passed it on");
    }
}
