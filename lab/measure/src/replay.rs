//! Requests at their times through the live engine, each slot a thread.
//!
//! ```text
//!   slot --next request--> wait until it is due, and its turn --> read_at, write_at --> response,
//!                                                                 from when it was due
//!   all slots have ended --> flush, timed apart
//! ```
//! # Invariants
//! - A response is timed from the moment that its request is due; what a slot comes late counts.
//! - Requests that have times begin in the order of the trace: each waits for the turn of the one
//!   before, and keeps a little of their distance, so that a late thread does not change it.
//! - Nothing but reads and writes is inside the measured time.
//! - What is written is the pattern, so a file of the pattern stays one.
//! - The first failure ends all slots, and is returned; an interrupt ends them, and what was
//!   answered until then counts.

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

use crate::cache::{failed_on, refused};
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
    let mut meter: Option<Meter> = None;
    let mut files = Vec::new();
    for Place { name, store, base, client } in places {
        let metered = match &meter {
            Some(first) => Arc::new(first.beside(store)),
            None => Arc::new(meter.insert(Meter::new(Arc::clone(&store), 0)).beside(store)),
        };
        let opener = client.map_or_else(|| cache.clone(), |client| cache.client(client));
        let handle = opener.open_store_with(metered, access);
        let handle = handle.with_context(|| format!("cannot open {name}"))?;
        files.push(OpenPlace { handle, name, base });
    }
    let meter = meter.expect("there is a place");
    let slots = Slots {
        // All threads are there when the first request is due.
        begun: machine::now() + START,
        files: &files,
        turns: Turns::new(pace),
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

struct OpenPlace {
    handle: Handle,
    name: String,
    base: u64,
}

struct Slots<'a> {
    begun: Nanos,
    files: &'a [OpenPlace],
    turns: Turns,
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
                Some(turn) => self.turns.wait(turn, access.not_before, stopped),
                None => Some(machine::now()),
            };
            let Some(made) = made else { break };
            let due = if self.turns.timed { due } else { made };
            if let Err(error) = self.make((access, due, made), &mut room, &mut own) {
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

/// The order in which requests that have times are made: that of their times.
struct Turns {
    timed: bool,
    /// Turns that were given, and when the latest request with one is due.
    given: Mutex<(u64, Nanos)>,
    /// The next one to be made.
    next: AtomicU64,
    /// When the one before it was made and was due; of the turn's own thread alone, until it hands
    /// `next` on.
    made: AtomicU64,
    due: AtomicU64,
}

impl Turns {
    fn new(pace: Pace) -> Self {
        Self {
            timed: pace != Pace::Closed,
            given: Mutex::default(),
            next: AtomicU64::default(),
            made: AtomicU64::default(),
            due: AtomicU64::default(),
        }
    }

    /// The next request of the list behind `reader`, and its turn; none where it has no time, or
    /// comes behind one that is due later, as in traces that are not quite in the order of theirs.
    fn take(&self, reader: &mut Reader) -> Option<(Access, Option<u64>)> {
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

    /// Waits until those before `turn` were made, and keeps their distance, up to [`APART`]; the
    /// moment, or nothing where `stopped` is so meanwhile.
    fn wait(&self, turn: u64, due: Nanos, stopped: impl Fn() -> bool) -> Option<Nanos> {
        while self.next.load(Ordering::Acquire) != turn {
            if stopped() {
                return None;
            }
            // The one before may need this processor.
            thread::yield_now();
        }
        let distance = due.since(Nanos(self.due.load(Ordering::Relaxed))).min(APART);
        let earliest = Nanos(self.made.load(Ordering::Relaxed)) + distance;
        let mut now = machine::now();
        while now < earliest {
            std::hint::spin_loop();
            now = machine::now();
        }
        self.made.store(now.0, Ordering::Relaxed);
        self.due.store(due.0, Ordering::Relaxed);
        self.next.store(turn + 1, Ordering::Release);
        Some(now)
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

/// Several times what the engine needs from a request to its system call.
const APART: Nanos = Nanos::from_micros(20);
/// A sleep on Linux ends about 50 us late, by the slack of timers.
const SPIN: Nanos = Nanos::from_micros(80);
const LOOKS_EVERY: Nanos = Nanos::from_millis(250);
const START: Nanos = Nanos::from_millis(20);
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use forerun_sim::schedule;
    use forerun_sim::trace::Request;

    use super::*;

    fn access(due: u64) -> Access {
        let request = Request::blocks(1, 0, 4_096).unwrap().unwrap();
        schedule::access(&request, 0, Nanos(due))
    }

    #[test]
    fn requests_are_made_in_the_order_of_their_times() {
        const REQUESTS: u64 = 2_000;
        let turns = Turns::new(Pace::Open { speed_ppm: 1_000_000 });
        let list = (0..REQUESTS).map(|at| access(at * 50));
        let made = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for mut slot in schedule::slots(list, 8) {
                let (turns, made) = (&turns, &made);
                scope.spawn(move || {
                    while let Some((access, turn)) = turns.take(&mut slot) {
                        let turn = turn.unwrap();
                        let at = turns.wait(turn, access.not_before, || false).unwrap();
                        made.lock().push((turn, at));
                    }
                });
            }
        });
        let mut made = made.into_inner();
        made.sort_unstable();
        assert!(made.iter().map(|&(turn, _)| turn).eq(0..REQUESTS), "each once");
        for pair in made.windows(2) {
            assert!(pair[1].1.since(pair[0].1) >= Nanos(50), "{pair:?}: their distance");
        }
    }

    #[test]
    fn what_comes_behind_a_later_request_has_no_turn() {
        let turns = Turns::new(Pace::Open { speed_ppm: 1_000_000 });
        let mut list = Reader::new([5, 9, 7, 9, 12].map(access).into_iter());
        let given: Vec<Option<u64>> =
            std::iter::from_fn(|| turns.take(&mut list)).map(|taken| taken.1).collect();
        assert_eq!(given, [Some(0), Some(1), None, Some(2), Some(3)]);
        let closed = Turns::new(Pace::Closed);
        assert_eq!(closed.take(&mut Reader::new([0, 0].map(access).into_iter())).unwrap().1, None);
    }

    #[test]
    fn a_turn_ends_when_the_replay_is_stopped() {
        let turns = Turns::new(Pace::Open { speed_ppm: 1_000_000 });
        assert_eq!(turns.wait(1, Nanos(0), || true), None, "its predecessor was never made");
        assert!(turns.wait(0, Nanos(0), || true).is_some());
        assert!(turns.wait(1, Nanos(0), || true).is_some());
    }
}
