//! Runs a program and finds out what it reads, where it waits, and what prefetching would gain.
//!
//! ```text
//!   session --> waits (state of its threads) ------------+
//!           \-> observers --> recorder (files, streams) --> ProgramSummary --> predict (a model)
//! ```
//! The program runs as under `run`, with the same observers. Nothing is prefetched, so that the
//! summary is of the program as it is.
//!
//! # Invariants
//! - No byte of the program's files is read.
//! - All tables are bounded: files, streams and access samples, as `recorder` says.
//! - What could not be observed is counted, and what is inferred says from what.

mod predict;
mod rate;
mod recorder;
mod residency;
mod streams;
mod summary;
mod waits;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use forerun_core::units::Nanos;

use crate::clock;
use crate::observe::poll::{Allowance, INTERVAL_MIN, Interval, Pause, PollTimer};
use crate::observe::{ObserverKind, Observers};
use crate::session::{self, Poller, SessionError, Watched};
use crate::wire::wire;
pub use predict::{DeviceLimit, Prediction, Why, predict};
use rate::RateMeter;
use recorder::{AccessRecorder, Recorded, Records};
pub use summary::{
    AccessSample, FileSummary, InitialResidency, Pattern, ProgramSummary, StreamSummary, WaitBasis,
};
use waits::{WaitSampler, WaitSums};

/// Runs `words`, a program and its arguments, and observes what it reads. Its output goes to
/// `output`, if there is one.
///
/// # Errors
/// The program did not start, or the system refused something; see [`SessionError`].
pub fn explain(
    kind: &ObserverKind,
    words: &[OsString],
    output: Option<OwnedFd>,
) -> Result<ProgramSummary, SessionError> {
    let residency = residency::before(words);
    let (records, published) = (Records::default(), Arc::new(Mutex::new(Counts::default())));
    let (for_poller, counts) = (records.clone(), Arc::clone(&published));
    let make = move |observers| Explainer {
        observers,
        recorder: AccessRecorder::new(residency, for_poller),
        waits: WaitSampler::new(),
        rate: RateMeter::default(),
        timer: PollTimer::new(),
        published: counts,
    };
    let seen = || {
        let counts = *published.lock().unwrap_or_else(PoisonError::into_inner);
        (Seen { counts, recorded: records.recorded() }, 0)
    };
    let run = session::Run { words, kind, output, is_reported: true };
    let Watched { status, ran, used, report } = session::watch(run, make, seen)?;
    let own = clock::process_time();
    let (polling, calls_given_up, bug, seen) = match report {
        Some(report) => {
            (own + report.processor, report.calls_given_up, report.bug, Some(report.seen))
        }
        None => (own, 0, None, None),
    };
    let Seen { counts, recorded } = seen.unwrap_or_default();
    let (waits, (read_from, read_until)) = (counts.waits, recorded.reading);
    let idle = ran.since(used.processor).since(waits.queued().unwrap_or_default());
    let waited = waits.waited(idle).min(ran);
    Ok(ProgramSummary {
        status,
        ran,
        processor: used.processor,
        waited,
        basis: waits.basis(),
        queued: waits.queued(),
        device_bytes: used.device_bytes,
        bytes_read: recorded.bytes_read,
        read_from: read_from.min(ran),
        read_until: read_until.min(ran),
        rate: counts.rate,
        processes: counts.processes,
        processes_skipped: counts.processes_skipped,
        records_lost: counts.records_lost,
        polls: counts.polls,
        polling,
        calls_given_up,
        bug,
        files_left_out: recorded.files_left_out,
        files: recorded.files(waited, waits.sampled()),
    })
}

/// What the observing process tells.
#[derive(Debug, Default)]
struct Seen {
    counts: Counts,
    recorded: Recorded,
}

/// What is counted beside the accesses.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    waits: WaitSums,
    rate: Option<u64>,
    processes: u64,
    processes_skipped: u64,
    records_lost: u64,
    polls: u64,
}

wire! {
    Seen { counts, recorded }
    Counts { waits, rate, processes, processes_skipped, records_lost, polls }
}

/// The poller that only observes.
struct Explainer {
    observers: Observers,
    recorder: AccessRecorder,
    waits: WaitSampler,
    rate: RateMeter,
    timer: PollTimer,
    /// What was counted until the last poll.
    published: Arc<Mutex<Counts>>,
}

impl Poller for Explainer {
    fn observers(&self) -> &Observers {
        &self.observers
    }

    fn poll(&mut self, some_ended: bool) -> Pause {
        let (now, began) = (self.observers.clock.now(), clock::thread_time());
        let recorder = &mut self.recorder;
        let waits = self.waits.poll(now, &self.observers.tree, |pid, time| {
            recorder.waited(pid, time);
        });
        let allowance = Allowance::of(POLL_MAX);
        let moved = self.observers.poll(now, some_ended, allowance, &mut self.recorder);
        self.rate.poll(now, &self.observers.tree, self.recorder.bytes_read());
        self.publish();
        let cost = clock::thread_time().since(began);
        let is_busy = moved || waits;
        let interval =
            if is_busy { Interval::Of(INTERVAL_MIN) } else { Interval::DoubledUpTo(IDLE_MAX) };
        self.timer.pause(now, interval, cost, ONE_IN)
    }

    fn finish(&mut self) {
        // Records from before the program's end.
        let now = self.observers.clock.now();
        self.observers.poll_calls(now, Allowance::of(LAST_POLL_MAX), &mut self.recorder);
        self.publish();
    }

    fn give_up(&mut self) {
        self.observers.tree.clear();
        self.recorder.clear();
    }
}

impl Explainer {
    fn publish(&self) {
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = Counts {
            waits: self.waits.sums,
            rate: self.rate.best(),
            processes: self.observers.tree.seen(),
            processes_skipped: self.observers.tree.skipped(),
            records_lost: self.observers.records_lost(),
            polls: self.observers.polls(),
        };
    }
}

const IDLE_MAX: Nanos = Nanos::from_millis(4);
/// Processor time of one poll, and of the last, after the program's end.
const POLL_MAX: Nanos = Nanos::from_millis(50);
const LAST_POLL_MAX: Nanos = Nanos::from_millis(500);
/// The poll budget is one part in so many of a processor.
const ONE_IN: u64 = 20;
