//! The readers of a run, a thread each, and a checker behind each of them.
//!
//! ```text
//!   run ----> reader -- slabs --> checker
//!       ----> reader -- slabs --> checker
//!    ^           | when it ended
//!    +-----------+  and between: is it time to stop?
//! ```
//!
//! # Invariants
//! - The first failure stops all readers, and `run` returns it.
//! - All threads have ended when `run` returns.
//! - Every read is timed here, around its call: the caller's wait, whether a hit or a miss.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use forerun_console::machine;
use forerun_core::params::{Bytes, Param as _};
use forerun_core::units::Nanos;
use forerun_engine::Histogram;
use forerun_sim::workload::{Access, Reader, Workload};
use parking_lot::Mutex;

use crate::verify::{self, Against, Checker, Slabs};

/// See the module.
pub(crate) struct ReaderThreads {
    begun: Nanos,
    against: Against,
    stop: AtomicBool,
    failed: Mutex<Option<anyhow::Error>>,
    times: Mutex<ReadTimes>,
}

/// The latencies of reads, each timed around its call.
#[derive(Default)]
pub(crate) struct ReadTimes {
    pub(crate) latency: Histogram,
    /// All of them together.
    pub(crate) sum: Nanos,
    /// The fastest read; `None` without any.
    pub(crate) least: Option<Nanos>,
}

impl ReadTimes {
    fn add(&mut self, time: Nanos) {
        self.latency.add(time);
        self.sum = Nanos(self.sum.0 + time.0);
        self.least = Some(self.least.map_or(time, |least| least.min(time)));
    }

    fn merge(&mut self, other: &Self) {
        self.latency.merge(&other.latency);
        self.sum = Nanos(self.sum.0 + other.sum.0);
        self.least = self.least.into_iter().chain(other.least).min();
    }

    /// The total time of reads beyond the fastest one, a hit.
    #[must_use]
    pub(crate) fn waited(&self) -> Nanos {
        let cached = self.least.unwrap_or_default().0.saturating_mul(self.latency.count());
        Nanos(self.sum.0.saturating_sub(cached))
    }
}

/// The end of the last reader, the latencies of reads, and the digests of each reader's bytes.
pub(crate) struct ReadOutcome {
    pub(crate) at: Nanos,
    pub(crate) times: ReadTimes,
    pub(crate) digests: Vec<Vec<u64>>,
}

impl ReaderThreads {
    /// Readers with a clock that starts at `begun`.
    #[must_use]
    pub(crate) fn new(begun: Nanos, against: Against) -> Self {
        let (stop, failed) = (AtomicBool::new(false), Mutex::new(None));
        Self { begun, against, stop, failed, times: Mutex::default() }
    }

    /// Executes all reads of `workload` by `read`. `stop` receives the elapsed time now and then,
    /// and returns whether to end early.
    pub(crate) fn run(
        &self,
        workload: Workload,
        read: impl Fn(Access, &mut [u8]) -> Result<()> + Sync,
        stop: impl FnMut(Nanos) -> bool,
    ) -> Result<ReadOutcome> {
        let (request_max, readers) = (request_max(&workload), workload.readers.len());
        let (sender, ends) = channel();
        let (at, checked) = thread::scope(|scope| {
            let mut checking = Vec::with_capacity(workload.readers.len());
            for reader in workload.readers {
                let (slabs, checker) = verify::ends(request_max, readers, self.against);
                let (read, sender) = (&read, sender.clone());
                let body = move || {
                    self.read_all(reader, slabs, read);
                    // The receiver is gone after a failure.
                    let _ = sender.send(machine::now());
                };
                let check = move || self.check(checker);
                let started = spawn(scope, "forerun-check", check).and_then(|check| {
                    checking.push(check);
                    spawn(scope, "forerun-read", body)
                });
                if let Err(error) = started {
                    self.fail(error);
                    break;
                }
            }
            drop(sender);
            let at = self.watch(&ends, stop);
            let joined = checking
                .into_iter()
                .map(|check| check.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            (at, joined.collect())
        });
        let failed = self.failed.lock().take();
        let times = mem::take(&mut *self.times.lock());
        failed.map_or(Ok(ReadOutcome { at, times, digests: checked }), Err)
    }

    /// The end of the last reader.
    fn watch(&self, ends: &Receiver<Nanos>, mut stop: impl FnMut(Nanos) -> bool) -> Nanos {
        let mut at = self.begun;
        loop {
            match ends.recv_timeout(LOOKS_EVERY) {
                Ok(end) => at = at.max(end),
                Err(RecvTimeoutError::Disconnected) => return at,
                Err(RecvTimeoutError::Timeout) => {
                    if stop(machine::now().since(self.begun)) {
                        self.stop.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    fn read_all(
        &self,
        reader: Reader,
        mut slabs: Slabs,
        read: &impl Fn(Access, &mut [u8]) -> Result<()>,
    ) {
        let mut times = ReadTimes::default();
        for access in reader {
            if !self.wait_until(access.not_before) {
                break;
            }
            let Some(room) = slabs.room(access.offset, access.bytes as usize) else { return };
            let asked = machine::now();
            let answer = read(access, room);
            times.add(machine::now().since(asked));
            if let Err(error) = answer {
                slabs.take_back();
                self.fail(error);
                break;
            }
        }
        slabs.finish();
        self.times.lock().merge(&times);
    }

    /// Whether to continue, at the due time of a read.
    fn wait_until(&self, due: Nanos) -> bool {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            if due == Nanos(0) {
                return true;
            }
            let left = Duration::from_nanos(due.since(machine::now().since(self.begun)).0);
            if left.is_zero() {
                return true;
            }
            thread::sleep(left.min(LOOKS_EVERY));
        }
    }

    fn check(&self, checker: Checker) -> Vec<u64> {
        checker.run().unwrap_or_else(|error| {
            self.fail(error);
            Vec::new()
        })
    }

    fn fail(&self, error: anyhow::Error) {
        self.stop.store(true, Ordering::Relaxed);
        self.failed.lock().get_or_insert(error);
    }
}

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<thread::ScopedJoinHandle<'scope, T>> {
    let spawned = thread::Builder::new().name(name.into()).spawn_scoped(scope, body);
    spawned.context("cannot start a thread: give fewer --readers")
}

/// Bytes of the largest read.
fn request_max(workload: &Workload) -> usize {
    let request = workload.params.iter().find(|(key, _)| *key == "request");
    let bytes = request.and_then(|(_, value)| Bytes::parse(value));
    bytes.map_or(1 << 20, |bytes| usize::try_from(bytes.0).expect("bounded by the workload"))
}

/// The poll interval of a waiting thread.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;
    use forerun_io::store::pattern;
    use forerun_sim::workload;

    fn readers() -> ReaderThreads {
        ReaderThreads::new(machine::now(), Against::Pattern)
    }

    #[expect(clippy::unnecessary_wraps, reason = "the form of a read that may fail")]
    fn fill(access: Access, room: &mut [u8]) -> Result<()> {
        pattern::fill(access.offset, room);
        Ok(())
    }

    #[test]
    fn all_reads_of_all_readers_are_made() {
        let made = || workload::make("streams,n=7,each=1M,readers=3").unwrap();
        let ended = readers().run(made(), fill, |_| false).unwrap();
        assert_eq!(ended.digests, [[0; 0]; 3]);
        let readers = ReaderThreads::new(machine::now(), Against::Later);
        let ended = readers.run(made(), fill, |_| false).unwrap();
        let slabs: Vec<_> = ended.digests.iter().map(Vec::len).collect();
        assert_eq!(slabs, [12, 8, 8], "1 MiB is 4 slabs");
    }

    #[test]
    fn the_first_failure_stops_all_and_is_told() {
        let made = workload::make("streams,n=4,each=4T,readers=4").unwrap();
        let read = |access: Access, room: &mut [u8]| match access.offset >> 20 {
            5 => Err(anyhow!("five")),
            _ => fill(access, room),
        };
        let error = readers().run(made, read, |_| false).err().expect("it fails");
        assert_eq!(error.to_string(), "five");
        let made = workload::make("streams,n=2,each=4T,readers=2").unwrap();
        let wrong = |_: Access, room: &mut [u8]| {
            room.fill(1);
            Ok(())
        };
        let error = readers().run(made, wrong, |_| false).err().expect("wrong bytes").to_string();
        assert!(error.contains("wrong byte"), "{error}");
    }

    #[test]
    fn what_the_fastest_read_took_is_no_waiting() {
        let of = |all: &[u64]| {
            let mut times = ReadTimes::default();
            for &time in all {
                times.add(Nanos(time));
            }
            times
        };
        let mut times = of(&[30, 10]);
        times.merge(&of(&[10, 500]));
        times.merge(&of(&[]));
        assert_eq!((times.latency.count(), times.waited()), (4, Nanos(510)));
        assert_eq!(of(&[]).waited(), Nanos(0));
    }

    #[test]
    fn a_reader_that_waits_for_its_time_stops_too() {
        let made = workload::make("streams,n=1,each=1G,rate=1K").unwrap();
        let ended = readers().run(made, fill, |passed| passed > Nanos::from_millis(60)).unwrap();
        assert!(ended.at > Nanos(0));
    }
}
