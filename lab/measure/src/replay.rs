//! Requests at their times through the live engine, each slot a thread.
//!
//! ```text
//!   slot --next request--> wait until it is due --> read_at --> response, from when it was due
//! ```
//! # Invariants
//! - A response is timed from the moment that its request is due; what a slot comes late counts.
//! - Nothing but reads is inside the measured time.
//! - The first failure ends all slots, and is returned; an interrupt ends them, and what was
//!   answered until then counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use forerun_console::target::Target;
use forerun_console::{interrupt, machine};
use forerun_core::units::Nanos;
use forerun_engine::{Cache, Handle, Settings, Stats, WindowRecord};
use forerun_sim::driver::Responses;
use forerun_sim::waits::Waits;
use forerun_sim::workload::{Access, Reader, Workload};
use parking_lot::Mutex;

use crate::cache::{failed, refused};
use crate::meter::Meter;

/// The results of a replay.
pub struct ReplayResult {
    /// Response times.
    pub responses: Responses,
    /// How late requests were made.
    pub late: Waits,
    /// From the first request to the end of the last.
    pub elapsed: Nanos,
    /// The counts of the cache.
    pub stats: Stats,
    /// Requests to the store, and their bytes.
    pub device: (u64, u64),
    /// How long the store had requests.
    pub busy: Nanos,
    /// The first windows.
    pub windows: Vec<WindowRecord>,
}

/// Replays the readers of `workload` on `target`, where its files lie from `bases` on; `progress`
/// receives the count of requests that are answered from time to time.
pub fn run(
    target: &Target,
    workload: Workload,
    bases: &[u64],
    settings: Settings,
    progress: &mut dyn FnMut(u64),
) -> Result<ReplayResult> {
    let bytes = workload.files.iter().sum();
    let meter = Arc::new(Meter::new(target.open(bytes)?.store, 0));
    let cache = Cache::new(settings).map_err(refused)?;
    let handle = cache.open_store(Arc::clone(&meter) as _)?;
    let slots = Slots {
        begun: machine::now(),
        bases,
        stop: AtomicBool::new(false),
        answered: AtomicU64::new(0),
        outcome: Mutex::default(),
    };
    let handles: Vec<Handle> =
        workload.readers.iter().map(|_| handle.try_clone()).collect::<Result<_, _>>()?;
    let told = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (reader, handle) in workload.readers.into_iter().zip(&handles) {
            let body = || slots.read_all(reader, handle);
            let named = thread::Builder::new().name("forerun-slot".to_owned());
            match named.spawn_scoped(scope, body) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    slots.stop.store(true, Ordering::Relaxed);
                    return Err(error).context("cannot start a thread; give less --threads");
                }
            }
        }
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            progress(slots.answered.load(Ordering::Relaxed));
            thread::park_timeout(PROGRESS_EVERY);
        }
        Ok(())
    });
    told?;
    let Outcome { responses, late, end, error } = slots.outcome.into_inner();
    if let Some(error) = error {
        return Err(match target {
            Target::File(file) => failed(file, error),
            Target::Model { spec, .. } => anyhow!("{spec}: {error}"),
        });
    }
    let notes = meter.notes();
    Ok(ReplayResult {
        responses,
        late,
        elapsed: end.since(slots.begun),
        stats: cache.stats(),
        device: (notes.reads, notes.read_bytes),
        busy: notes.busy(),
        windows: cache.windows().rows,
    })
}

struct Slots<'a> {
    begun: Nanos,
    bases: &'a [u64],
    stop: AtomicBool,
    answered: AtomicU64,
    outcome: Mutex<Outcome>,
}

#[derive(Default)]
struct Outcome {
    responses: Responses,
    late: Waits,
    end: Nanos,
    error: Option<anyhow::Error>,
}

impl Slots<'_> {
    /// Makes the requests of a slot until there are no more.
    fn read_all(&self, reader: Reader, handle: &Handle) {
        let mut own = Outcome::default();
        let mut room = Vec::new();
        for access in reader {
            let due = self.begun + access.not_before;
            if !wait_until(due, || self.stop.load(Ordering::Relaxed) || interrupt::asked()) {
                break;
            }
            if let Err(error) = self.read((access, due), handle, &mut room, &mut own) {
                self.stop.store(true, Ordering::Relaxed);
                own.error = Some(error);
                break;
            }
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        let mut all = self.outcome.lock();
        all.responses.merge(&own.responses);
        all.late.merge(&own.late);
        all.end = all.end.max(own.end);
        all.error = all.error.take().or(own.error);
    }

    fn read(
        &self,
        (access, due): (Access, Nanos),
        handle: &Handle,
        room: &mut Vec<u8>,
        own: &mut Outcome,
    ) -> Result<()> {
        let made = machine::now();
        let due = if access.not_before > Nanos(0) { due } else { made };
        room.resize(room.len().max(access.bytes as usize), 0);
        let room = &mut room[..access.bytes as usize];
        let count = handle.read_at(room, self.bases[access.file as usize] + access.offset)?;
        if count < room.len() {
            return Err(anyhow!("it ended at byte {}", handle.len()));
        }
        own.end = machine::now();
        own.late.note(made.since(due));
        own.responses.note(own.end.since(due), access.op);
        Ok(())
    }
}

/// Sleeps, and looks at the clock for the last moment; false where `stopped` is so meanwhile.
fn wait_until(due: Nanos, stopped: impl Fn() -> bool) -> bool {
    loop {
        if stopped() {
            return false;
        }
        let now = machine::now();
        if now >= due {
            return true;
        }
        let left = due.since(now);
        if left > SPIN {
            thread::sleep(Duration::from(left.since(SPIN).min(LOOKS_EVERY)));
        } else {
            std::hint::spin_loop();
        }
    }
}

/// A sleep on Linux ends about 50 us late, by the slack of timers.
const SPIN: Nanos = Nanos::from_micros(80);
const LOOKS_EVERY: Nanos = Nanos::from_millis(250);
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
