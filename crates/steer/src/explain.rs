//! Runs a program and finds out what it reads, where it waits, and what prefetching would gain.
//!
//! ```text
//!   session --> observers --> recorder (files, streams), entries (calls that are blocked in)
//!           \-> waits (state of its threads) --------------------+
//!   trees (walks, directories, after the end) --> ProgramSummary --> predict (a model)
//! ```
//! The program runs as under `run`, with the same observers. Nothing is prefetched, so that the
//! summary is of the program as it is.
//!
//! # Invariants
//! - No byte of the program's files is read, and no directory is listed while it runs.
//! - All tables are bounded: files, streams and access samples, as `recorder` says.
//! - What could not be observed is counted, and what is inferred says from what.

mod causes;
mod entries;
mod predict;
mod rate;
mod recorder;
mod residency;
mod summary;
mod sums;
mod timeline;
mod trees;
mod waits;
mod walks;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use forerun_core::device::waits::WaitEstimate;
pub use forerun_core::observed::gain::{DeviceLimit, Prediction, Why};
pub use forerun_core::observed::streams::{Pattern, StreamSummary};
use forerun_core::units::Nanos;

use crate::clock;
use crate::observe::poll::{Allowance, INTERVAL_MIN, Interval, Pause, PollTimer};
use crate::observe::{ObserverKind, Observers};
use crate::session::{self, Poller, SessionError, Watched};
use crate::wire::wire;
pub use causes::{Cause, CauseTimes};
use entries::{Entries, EntryRecords};
pub use predict::{predict, predict_learned};
use rate::RateMeter;
use recorder::{AccessRecorder, Recorded, Records};
pub use summary::{
    AccessSample, DeviceFacts, FileSummary, InitialResidency, ProgramSummary, WaitBasis,
};
pub use timeline::SmallReads;
pub use trees::{DirectorySummary, Trap, TrapSummary, TreeSummary};
use waits::{WaitSampler, WaitSums};
pub use walks::WalkSummary;

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
    let entries = EntryRecords::default();
    let entries_for_poller = entries.clone();
    let make = move |observers| Explainer {
        observers,
        recorder: AccessRecorder::new(residency, for_poller, entries_for_poller),
        waits: WaitSampler::new(),
        rate: RateMeter::default(),
        timer: PollTimer::new(),
        published: counts,
    };
    let seen = || {
        let counts = *published.lock().unwrap_or_else(PoisonError::into_inner);
        (Observation { counts, recorded: records.recorded(), entries: entries.entries() }, 0)
    };
    let run = session::Run { words, kind, output, is_reported: true, is_saved: false };
    session::watch(run, make, seen).map(summarized)
}

/// What was seen of a program that has ended, put together.
fn summarized(Watched { status, key, ran, used, report }: Watched<Observation>) -> ProgramSummary {
    let own = clock::process_time();
    let (polling, calls_given_up, bug, seen) = match report {
        Some(report) => {
            (own + report.processor, report.calls_given_up, report.bug, Some(report.seen))
        }
        None => (own, 0, None, None),
    };
    let Observation { counts, recorded, entries } = seen.unwrap_or_default();
    let (waits, (mut read_from, mut read_until)) = (counts.waits, recorded.reading);
    if let Some(began) = entries.began {
        (read_from, read_until) = (read_from.min(began), read_until.max(entries.ended));
    }
    let idle = ran.since(used.processor).since(waits.queued().unwrap_or_default());
    let waited = waits.waited(ran, idle);
    let mut causes = entries.causes;
    causes.scale(waited, waits.sampled());
    ProgramSummary {
        status,
        key,
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
        answers: WaitEstimate::of(entries.rows.iter().map(|row| row.blocked)),
        processes: counts.processes,
        processes_skipped: counts.processes_skipped,
        records_lost: counts.records_lost,
        polls: counts.polls,
        polling,
        calls_given_up,
        bug,
        causes,
        entries_met: entries.rows.len() as u64 + entries.left_out,
        entries_left_out: entries.left_out,
        calls_refused: counts.calls_refused,
        calls_foreign: counts.calls_foreign,
        trees: None,
        entries_on: trees::place(&entries),
        entries,
        sampled: waits.sampled(),
        files_left_out: recorded.files_left_out,
        files: recorded.files(waited, waits.sampled()),
    }
}

/// What the observing process tells.
#[derive(Debug, Default)]
struct Observation {
    counts: Counts,
    recorded: Recorded,
    entries: Entries,
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
    calls_refused: u64,
    calls_foreign: u64,
}

wire! {
    Observation { counts, recorded, entries }
    Counts {
        waits, rate, processes, processes_skipped, records_lost, polls, calls_refused,
        calls_foreign,
    }
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
        let allowance = Allowance::of(POLL_MAX);
        let moved = self.observers.poll(now, some_ended, allowance, &mut self.recorder);
        let recorder = &mut self.recorder;
        let waits = self.waits.poll(now, &self.observers.tree, |thread, wait| {
            recorder.waited(now, thread, wait);
        });
        self.rate.poll(now, &self.observers.tree, self.recorder.bytes_read());
        self.publish();
        let cost = clock::thread_time().since(began);
        let is_busy = moved || waits;
        let interval =
            if is_busy { Interval::Of(INTERVAL_MIN) } else { Interval::DoubledUpTo(IDLE_MAX) };
        self.timer.pause(now, interval, cost, ONE_IN)
    }

    fn reap(&mut self) {
        let (now, began) = (self.observers.clock.now(), clock::thread_time());
        self.observers.reap(now, Allowance::of(POLL_MAX), &mut self.recorder);
        self.timer.spend(clock::thread_time().since(began));
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
        let blocked = self.observers.blocked_counts();
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = Counts {
            waits: self.waits.sums,
            rate: self.rate.best(),
            processes: self.observers.tree.seen(),
            processes_skipped: self.observers.tree.skipped(),
            records_lost: self.observers.records_lost(),
            polls: self.observers.polls(),
            calls_refused: blocked.refused,
            calls_foreign: blocked.foreign,
        };
    }
}

const IDLE_MAX: Nanos = Nanos::from_millis(4);
/// Processor time of one poll, and of the last, after the program's end.
const POLL_MAX: Nanos = Nanos::from_millis(50);
const LAST_POLL_MAX: Nanos = Nanos::from_millis(500);
/// The poll budget is one part in so many of a processor, as under `run`: what that sees is to be
/// seen here.
const ONE_IN: u64 = 10;
