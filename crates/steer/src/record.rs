//! Runs a program and records its accesses: which files and directories it uses, by which calls,
//! and when.
//!
//! ```text
//!   session --> observers --entry, read--> recorder --> calls, in the order of their begin
//! ```
//! The program runs as under `explain`, with the same observers, and nothing is prefetched.
//!
//! # Invariants
//! - The table of calls has a bound (`calls`); what is beyond is counted.
//! - A read counts once: of a file that is followed by its positions, else by the call that a
//!   thread is blocked in.

mod calls;

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock;
use crate::observe::poll::{Allowance, INTERVAL_MIN, Interval, Pause, PollTimer};
use crate::observe::{ObserverKind, Observers};
use crate::session::{self, Poller, SessionError, Watched};
use crate::wire::wire;
use calls::{CallRecorder, Calls};
pub use calls::{RecordedCall, RecordedKind};
use forerun_core::units::Nanos;

/// What a program did.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The exit status, as a shell reports it.
    pub status: u8,
    /// For [`end_as`](crate::end_as).
    pub key: Option<i32>,
    /// The run time.
    pub ran: Nanos,
    /// Its calls, in the order of their begin.
    pub calls: Vec<RecordedCall>,
    /// Calls that were too many.
    pub calls_left_out: u64,
    /// Processes whose blocked calls could not be observed: the system does not allow it.
    pub calls_refused: u64,
    /// How often a call of a 32-bit program was met, which is not decoded.
    pub calls_foreign: u64,
    /// Processes that could not be looked into.
    pub processes_skipped: u64,
    /// Calls on file systems that had not returned at the program's end, and were given up.
    pub calls_given_up: u64,
    /// Whether the observing process told all that.
    pub is_observed: bool,
    /// The message of a bug of forerun.
    pub bug: Option<String>,
}

/// Runs `words`, a program and its arguments, and records what it uses. Signals stay blocked, as in
/// all that runs a program; see [`end_late`](crate::end_late).
///
/// # Errors
/// The program did not start, or the system refused something; see [`SessionError`].
pub fn record(kind: &ObserverKind, words: &[OsString]) -> Result<Recording, SessionError> {
    let (calls, counts) = (Arc::<Mutex<Calls>>::default(), Arc::<Mutex<Counts>>::default());
    let (for_recorder, for_poller) = (Arc::clone(&calls), Arc::clone(&counts));
    let make = move |observers| CallPoller {
        observers,
        recorder: CallRecorder::new(for_recorder),
        timer: PollTimer::new(),
        published: for_poller,
    };
    let seen = || {
        let calls = std::mem::take(&mut *calls.lock().unwrap_or_else(PoisonError::into_inner));
        let counts = *counts.lock().unwrap_or_else(PoisonError::into_inner);
        (Observation { calls, counts }, 0)
    };
    let run = session::Run { words, kind, output: None, is_reported: true, is_saved: false };
    let Watched { status, key, ran, used: _, report } = session::watch(run, make, seen)?;
    let is_observed = report.is_some();
    let (seen, calls_given_up, bug) = match report {
        Some(report) => (report.seen, report.calls_given_up, report.bug),
        None => (Observation::default(), 0, None),
    };
    let Observation { calls, counts } = seen;
    Ok(Recording {
        status,
        key,
        ran,
        calls_left_out: calls.left_out,
        calls: calls.in_order(),
        calls_refused: counts.refused,
        calls_foreign: counts.foreign,
        processes_skipped: counts.processes_skipped,
        calls_given_up,
        is_observed,
        bug,
    })
}

/// What the observing process tells.
#[derive(Debug, Default)]
struct Observation {
    calls: Calls,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    refused: u64,
    foreign: u64,
    processes_skipped: u64,
}

wire! {
    Observation { calls, counts }
    Counts { refused, foreign, processes_skipped }
}

/// The poller that records.
struct CallPoller {
    observers: Observers,
    recorder: CallRecorder,
    timer: PollTimer,
    /// What was counted until the last poll.
    published: Arc<Mutex<Counts>>,
}

impl Poller for CallPoller {
    fn observers(&self) -> &Observers {
        &self.observers
    }

    fn poll(&mut self, some_ended: bool) -> Pause {
        let (now, began) = (self.observers.clock.now(), clock::thread_time());
        self.recorder.begin_poll(now);
        let allowance = Allowance::of(POLL_MAX);
        let moved = self.observers.poll(now, some_ended, allowance, &mut self.recorder);
        let tree = &self.observers.tree;
        for (pid, _) in tree.folders() {
            for (tid, met) in tree.met(pid) {
                self.recorder.met(pid, tid, met);
            }
        }
        self.publish();
        let cost = clock::thread_time().since(began);
        let interval =
            if moved { Interval::Of(INTERVAL_MIN) } else { Interval::DoubledUpTo(IDLE_MAX) };
        self.timer.pause(now, interval, cost, ONE_IN)
    }

    fn reap(&mut self) {
        let (now, began) = (self.observers.clock.now(), clock::thread_time());
        self.recorder.begin_poll(now);
        self.observers.reap(now, Allowance::of(POLL_MAX), &mut self.recorder);
        self.timer.spend(clock::thread_time().since(began));
    }

    fn finish(&mut self) {
        let now = self.observers.clock.now();
        self.recorder.begin_poll(now);
        self.observers.poll_calls(now, Allowance::of(LAST_POLL_MAX), &mut self.recorder);
        self.publish();
    }

    fn give_up(&mut self) {
        self.observers.tree.clear();
        self.recorder.clear();
    }
}

impl CallPoller {
    fn publish(&self) {
        let blocked = self.observers.blocked_counts();
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = Counts {
            refused: blocked.refused,
            foreign: blocked.foreign,
            processes_skipped: self.observers.tree.skipped(),
        };
    }
}

const IDLE_MAX: Nanos = Nanos::from_millis(4);
/// Processor time of one poll, and of the last, after the program's end.
const POLL_MAX: Nanos = Nanos::from_millis(50);
const LAST_POLL_MAX: Nanos = Nanos::from_millis(500);
/// The poll budget is one part in so many of a processor.
const ONE_IN: u64 = 20;
