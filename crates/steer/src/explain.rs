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
mod usage;
mod waits;

use std::ffi::OsString;
use std::os::fd::OwnedFd;

use forerun_core::units::Nanos;

use crate::clock;
use crate::observe::poll::{INTERVAL_MIN, Interval, PollTimer};
use crate::observe::{ObserverKind, Observers};
use crate::session::{self, Poller, SessionError};
pub use predict::{DeviceLimit, Prediction, Why, predict};
use rate::RateMeter;
use recorder::AccessRecorder;
pub use summary::{
    AccessSample, FileSummary, InitialResidency, Pattern, ProgramSummary, StreamSummary, WaitBasis,
};
use usage::Usage;
use waits::WaitSampler;

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
    let before = Usage::of_children();
    let make = |observers| Explainer {
        observers,
        recorder: AccessRecorder::new(residency),
        waits: WaitSampler::new(),
        rate: RateMeter::default(),
        timer: PollTimer::new(),
    };
    let (status, mut seen) = session::watch(words, kind, output, make)?;
    let ran = seen.observers.clock.now();
    // Records from before the program's end.
    seen.observers.poll_calls(ran, &mut seen.recorder);
    let used = Usage::of_children().since(before);
    let queued = seen.waits.queued();
    let idle = ran.since(used.processor).since(queued.unwrap_or_default());
    let (waited, sampled) = (seen.waits.waited(idle).min(ran), seen.waits.sampled());
    let [read_from, read_until] = seen.recorder.reading();
    Ok(ProgramSummary {
        status,
        ran,
        processor: used.processor,
        waited,
        basis: seen.waits.basis(),
        queued,
        device_bytes: used.device_bytes,
        bytes_read: seen.recorder.bytes_read(),
        read_from,
        read_until,
        rate: seen.rate.best(),
        processes: seen.observers.tree.seen(),
        processes_skipped: seen.observers.tree.skipped(),
        records_lost: seen.observers.records_lost(),
        polls: seen.observers.polls(),
        polling: clock::process_time(),
        files_left_out: seen.recorder.files_left_out(),
        files: seen.recorder.end(waited, sampled),
    })
}

/// The poller that only observes.
struct Explainer {
    observers: Observers,
    recorder: AccessRecorder,
    waits: WaitSampler,
    rate: RateMeter,
    timer: PollTimer,
}

impl Poller for Explainer {
    fn observers(&self) -> &Observers {
        &self.observers
    }

    fn poll(&mut self, some_ended: bool) -> Nanos {
        let (now, began) = (self.observers.clock.now(), clock::thread_time());
        let recorder = &mut self.recorder;
        let waits = self.waits.poll(now, &self.observers.tree, |pid, time| {
            recorder.waited(pid, time);
        });
        let moved = self.observers.poll(now, some_ended, &mut self.recorder);
        self.rate.poll(now, &self.observers.tree, self.recorder.bytes_read());
        let cost = clock::thread_time().since(began);
        let is_busy = moved || waits;
        let interval =
            if is_busy { Interval::Of(INTERVAL_MIN) } else { Interval::DoubledUpTo(IDLE_MAX) };
        self.timer.pause(now, interval, cost, ONE_IN)
    }

    fn give_up(&mut self) {
        self.observers.tree.clear();
    }
}

const IDLE_MAX: Nanos = Nanos::from_millis(4);
/// The poll budget is one part in so many of a processor.
const ONE_IN: u64 = 20;
