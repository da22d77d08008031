//! Requests at their times through the live engine, each slot a thread.
//!
//! ```text
//!   slot --next request--> wait until it is due, and its turn --> read_at, write_at --> response,
//!                                                                 from when it was due
//!   all slots have ended --> flush, timed apart
//! ```
//! # Invariants
//! - A response is timed from the moment that its request is due; what a slot comes late counts.
//! - Requests that have times begin in the order of the trace (`turns`).
//! - Nothing but reads and writes is inside the measured time.
//! - What is written is the pattern, so a file of the pattern stays one.
//! - The first failure ends all slots, and is returned; an interrupt ends them, and what was
//!   answered until then counts.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use forerun_console::{interrupt, machine};
use forerun_core::units::Nanos;
use forerun_engine::{
    Access as Opening, Cache, Handle, PartitionState, Settings, Stats, WindowRecord,
};
use forerun_io::store::{Store, pattern};
use forerun_sim::driver::Responses;
use forerun_sim::schedule::Pace;
use forerun_sim::trace::Op;
use forerun_sim::waits::Waits;
use forerun_sim::workload::{Access, Reader, Workload};
use parking_lot::Mutex;
use rustix::thread::set_current_timer_slack;

use crate::cache::{failed_on, refused};
use crate::meter::Meter;
use crate::turns::Turns;

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
    /// Requests to the store.
    pub device_requests: u64,
    /// Bytes that were read from the store, and written to it.
    pub device_bytes: (u64, u64),
    /// How long the flush at the end took, if anything was written.
    pub flush: Option<Nanos>,
    /// How long the store had requests.
    pub busy: Nanos,
    /// The first windows.
    pub windows: Vec<WindowRecord>,
    /// The partitions at the end.
    pub partitions: Vec<PartitionState>,
}

/// What holds a file of a workload.
pub struct Place {
    /// Its name in errors.
    pub name: String,
    /// Its bytes.
    pub store: Arc<dyn Store>,
    /// Where in the pattern they begin.
    pub base: u64,
    /// The client that opens it, for the partitions of the cache; none: that of the cache.
    pub client: Option<String>,
}

/// Replays the readers of `workload`, slots of one list of requests at `pace`, on `places`, one for
/// each file, with writes where `access` says so. `progress` receives the count of what is answered
/// from time to time.
///
/// # Panics
/// There are no places.
pub fn run(
    (places, access): (Vec<Place>, Opening),
    (workload, pace): (Workload, Pace),
    settings: Settings,
    progress: &mut dyn FnMut(u64),
) -> Result<ReplayResult> {
    assert!(!places.is_empty(), "a workload has files");
    let cache = Cache::new(settings).map_err(refused)?;
    let turns = Arc::new(Turns::new(pace));
    let (files, meter) = open(&cache, places, access, &turns)?;
    let slots = Slots {
        // All threads are there when the first request is due.
        begun: machine::now() + START,
        files: &files,
        turns,
        stop: AtomicBool::new(false),
        answered: AtomicU64::new(0),
        outcome: Mutex::default(),
    };
    let told = thread::scope(|scope| {
        let mut threads = Vec::new();
        for reader in workload.readers {
            let body = || slots.make_all(reader);
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
    let (busy, stats, windows) = (meter.notes().busy(), cache.stats(), cache.windows().rows);
    let partitions = cache.partitions();
    let begun = machine::now();
    let closed = cache.close();
    let flush = (access == Opening::ReadWrite).then(|| machine::now().since(begun));
    if let Some(error) = error.or(closed.err().map(Into::into)) {
        return Err(error);
    }
    let notes = meter.notes();
    Ok(ReplayResult {
        responses,
        late,
        elapsed: end.since(slots.begun),
        stats,
        device_requests: notes.reads + notes.writes,
        device_bytes: (notes.read_bytes, notes.written_bytes),
        flush,
        busy,
        windows,
        partitions,
    })
}

/// Opens what a workload goes to through `cache`, all before one meter, whose calls are passed on
/// in `turns`.
fn open(
    cache: &Cache,
    places: Vec<Place>,
    access: Opening,
    turns: &Arc<Turns>,
) -> Result<(Vec<OpenPlace>, Meter)> {
    let (mut meter, mut files): (Option<Meter>, _) = (None, Vec::new());
    for Place { name, store, base, client } in places {
        let first = meter.get_or_insert_with(|| {
            let turns = Arc::clone(turns);
            Meter::new(Arc::clone(&store), 0).before_calls(move || turns.pass_on())
        });
        let metered = Arc::new(first.beside(store));
        let opener = client.map_or_else(|| cache.clone(), |client| cache.client(client));
        let handle = opener.open_store_with(metered, access);
        let handle = handle.with_context(|| format!("cannot open {name}"))?;
        files.push(OpenPlace { handle, name, base });
    }
    Ok((files, meter.expect("there is a place")))
}

struct OpenPlace {
    handle: Handle,
    name: String,
    base: u64,
}

struct Slots<'a> {
    begun: Nanos,
    files: &'a [OpenPlace],
    turns: Arc<Turns>,
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
    fn make_all(&self, mut reader: Reader) {
        // Or a sleep ends 50 us late: the kernel has timers of others wait for one another.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let mut own = Outcome::default();
        let mut room = Vec::new();
        let stopped = || self.stop.load(Ordering::Relaxed) || interrupt::asked();
        while let Some((access, turn)) = self.turns.take(&mut reader) {
            let due = self.begun + access.not_before;
            room.resize(room.len().max(access.bytes as usize), 0);
            if access.op == Op::Write {
                let base = self.files[access.file as usize].base;
                pattern::fill(base + access.offset, &mut room[..access.bytes as usize]);
            }
            if !wait_until(due, stopped) {
                break;
            }
            let made = match turn {
                Some(turn) => self.turns.wait(turn, stopped),
                None => Some(machine::now()),
            };
            let Some(made) = made else { break };
            let due = if self.turns.timed { due } else { made };
            let answered = self.make((access, due, made), &mut room, &mut own);
            self.turns.pass_on();
            if let Err(error) = answered {
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

    fn make(
        &self,
        (access, due, made): (Access, Nanos, Nanos),
        room: &mut [u8],
        own: &mut Outcome,
    ) -> Result<()> {
        let room = &mut room[..access.bytes as usize];
        let OpenPlace { handle, name, .. } = &self.files[access.file as usize];
        match access.op {
            Op::Read | Op::Unknown => {
                let count = handle.read_at(room, access.offset).map_err(|e| failed_on(name, e))?;
                if count < room.len() {
                    return Err(anyhow!("{name}: it ended at byte {}", handle.len()));
                }
            }
            Op::Write => handle.write_at(room, access.offset).map_err(|e| failed_on(name, e))?,
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

/// Nine of ten sleeps end no later, on a virtual machine whose processors sleep as well.
const SPIN: Nanos = Nanos::from_micros(80);
const LOOKS_EVERY: Nanos = Nanos::from_millis(250);
const START: Nanos = Nanos::from_millis(20);
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
