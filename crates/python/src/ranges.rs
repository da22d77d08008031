//! `Ranges`: the engine's cache of byte ranges, behind one lock.
//!
//! ```text
//!   _session.py                        here
//!   read(start, end)  -------------->  bytes                  all here
//!                     <--------------  a number: it waits     claim_for, take
//!   threads: claim, fetch, arrived
//! ```
//! `wake()` is called without the lock, where a read that had its bytes led to fetches that wait
//! for a thread, or where other reads ended. A reader thread waits at a gate, a taken lock of
//! Python in `gates`; waking the read releases it.
//!
//! # Invariants
//! - The lock is held with the GIL and never over a call of Python: a fork cannot meet it taken.
//! - `close` runs no bytecode: a signal's handler, which may raise, runs before it or after it, so
//!   the memory is freed and every waiting thread is woken, or nothing has changed.
//! - After `close` no method has an effect: a read returns `None`, a waiting read is to be read
//!   again. The store alone is told of fetches that end then.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forerun_engine::ranges::{
    self, FetchId, InFlight, RangeFetch, RangesSettings, RangesStats, ReadEnd, ReadId, ReadStart,
};
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict};

use crate::errors;
use crate::hosts::Host;

/// Keeps at most `bytes` of the memory of caches that are gone, for those to come.
#[pyfunction]
pub(crate) fn keep_spare(bytes: usize) {
    ranges::spare_bytes_max(bytes);
}

/// Clears the frames of this package in the traceback of `error`, of calls that have ended: their
/// variables are fetched bytes. Frames of the caller and of the fetcher stay as they are.
#[pyfunction]
pub(crate) fn clear_frames(error: &Bound<'_, PyBaseException>) -> PyResult<()> {
    let mut link = error.as_any().getattr("__traceback__")?;
    let mut is_running = true;
    while !link.is_none() {
        let frame = link.getattr("tb_frame")?;
        let module = frame.getattr("f_globals")?.get_item("__name__");
        let module = module.and_then(|name| name.extract::<String>()).unwrap_or_default();
        // The first frame is the one that has caught the error.
        if !is_running && module.starts_with("forerun.") {
            frame.call_method0("clear")?;
        }
        is_running = false;
        link = link.getattr("tb_next")?;
    }
    Ok(())
}

/// A cache of the byte ranges of one object; all numbers are bytes.
#[pyclass(frozen, module = "forerun._forerun")]
pub(crate) struct Ranges {
    inner: Mutex<Inner>,
    wake: Py<PyAny>,
    /// Of waiting reads, by their number; each is taken.
    gates: Py<PyDict>,
    read_bytes_max: u64,
}

enum Inner {
    Open(Box<ranges::Ranges>),
    Closed(Box<(RangesStats, InFlight)>),
}

impl Inner {
    /// Frees the memory. Idempotent.
    fn close(&mut self) {
        if let Self::Open(open) = self {
            let stats = last_stats(open.stats());
            *self = Self::Closed(Box::new((stats, open.take_in_flight())));
        }
    }
}

/// The number of a fetch, its first byte, and the byte after its last.
type Claimed = (u64, u64, u64);

#[pymethods]
impl Ranges {
    #[new]
    #[pyo3(signature = (size, memory, request, connections, readahead, wake, host = None))]
    #[expect(clippy::too_many_arguments, reason = "a call of Python")]
    fn new(
        py: Python<'_>,
        size: u64,
        memory: u64,
        request: u32,
        connections: u32,
        readahead: String,
        wake: Py<PyAny>,
        host: Option<&Bound<'_, Host>>,
    ) -> PyResult<Self> {
        let settings = RangesSettings {
            memory_bytes: memory,
            request_bytes_max: request,
            connections,
            readahead,
            ..RangesSettings::default()
        };
        let made = match host {
            None => ranges::Ranges::new(&settings, size),
            Some(host) => ranges::Ranges::of_store(&settings, size, &host.get().store),
        };
        let inner = made.map_err(errors::option)?;
        let read_bytes_max = inner.read_bytes_max();
        assert!(read_bytes_max > 0, "a read of some length is possible");
        let inner = Mutex::new(Inner::Open(Box::new(inner)));
        Ok(Self { inner, wake, gates: PyDict::new(py).unbind(), read_bytes_max })
    }

    /// The most bytes that one read may ask for.
    #[getter]
    fn read_max(&self) -> u64 {
        self.read_bytes_max
    }

    /// The gates of waiting reads, by their number.
    #[getter]
    fn gates(&self, py: Python<'_>) -> Py<PyDict> {
        self.gates.clone_ref(py)
    }

    /// Whether the memory is freed.
    #[getter]
    fn closed(&self) -> bool {
        matches!(*self.lock(), Inner::Closed(_))
    }

    /// Frees the memory, wakes every waiting thread, and clears the frames of `error`, as
    /// [`clear_frames`] does.
    #[pyo3(signature = (error = None))]
    fn close(&self, py: Python<'_>, error: Option<&Bound<'_, PyBaseException>>) -> PyResult<()> {
        let mut inner = self.lock();
        inner.close();
        drop(inner);
        for gate in self.gates.bind(py).values() {
            release(&gate);
        }
        error.map_or(Ok(()), clear_frames)
    }

    /// The bytes of `start..end`, or the number of a read that has to wait; `None` once closed.
    fn read<'py>(
        &self,
        py: Python<'py>,
        start: u64,
        end: u64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let begin = |open: &mut ranges::Ranges| open.read(start, end);
        self.begin(py, begin, end - start)
    }

    /// As `read`, for one that is to be read again.
    fn again<'py>(
        &self,
        py: Python<'py>,
        start: u64,
        end: u64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let begin = |open: &mut ranges::Ranges| open.again(start, end);
        self.begin(py, begin, end - start)
    }

    /// `start..end` will be read: whether that was noted.
    fn will_need(&self, start: u64, end: u64) -> bool {
        self.with(|open| open.will_need(start, end)).unwrap_or(false)
    }

    /// The next fetch for a thread.
    fn claim(&self) -> Option<Claimed> {
        self.with(ranges::Ranges::claim).flatten().map(claimed)
    }

    /// A fetch for the thread in which `read` waits, if there is one.
    fn claim_for(&self, read: u64) -> Option<Claimed> {
        self.with(|open| open.claim_for(ReadId(read))).flatten().map(claimed)
    }

    /// The fetch `job` gave `data`.
    fn arrived(&self, py: Python<'_>, job: u64, data: &[u8]) -> PyResult<()> {
        let woken = self.ended(job, true, |open, id| open.arrived(id, data));
        self.open_gates(py, &woken)
    }

    /// The fetch `job` failed; the reads for which `open_gates` is to be called.
    fn failed(&self, job: u64) -> Vec<u64> {
        self.ended(job, false, ranges::Ranges::failed)
    }

    /// The fetch `job` is made again.
    fn retried(&self, job: u64) {
        match &mut *self.lock() {
            Inner::Open(open) => open.retried(FetchId(job)),
            Inner::Closed(closed) => closed.1.retried(FetchId(job)),
        }
    }

    /// Wakes the threads of `reads`: they ended, or have a fetch to claim.
    #[expect(clippy::needless_pass_by_value, reason = "a list of Python")]
    fn wake(&self, py: Python<'_>, reads: Vec<u64>) -> PyResult<()> {
        self.open_gates(py, &reads)
    }

    /// How `read` ended: its bytes, none if its own last fetch has them, `False` if it failed,
    /// `True` if it is to be read again; `None` while it waits.
    fn take<'py>(&self, py: Python<'py>, read: u64) -> Option<Bound<'py, PyAny>> {
        let truth = |yes| PyBool::new(py, yes).to_owned().into_any();
        let Some(ended) = self.with(|open| open.take(ReadId(read))) else {
            return Some(truth(true));
        };
        Some(match ended? {
            ReadEnd::Bytes(bytes) => PyBytes::new(py, &bytes).into_any(),
            ReadEnd::Fetched => PyBytes::new(py, &[]).into_any(),
            ReadEnd::Failed => truth(false),
            ReadEnd::Again => truth(true),
        })
    }

    /// No reader waits for `read` any more.
    fn cancel(&self, read: u64) {
        self.with(|open| open.cancel(ReadId(read)));
    }

    /// Fetches that wait for a thread.
    fn waiting(&self) -> u32 {
        self.with(|open| open.waiting()).unwrap_or(0)
    }

    /// What was counted: bytes, counts and seconds.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = match &*self.lock() {
            Inner::Open(open) => open.stats(),
            Inner::Closed(closed) => closed.0,
        };
        let pages = |pages: u64| pages * u64::from(ranges::PAGE_BYTES);
        let dict = PyDict::new(py);
        dict.set_item("reads", stats.reads)?;
        dict.set_item("stalls", stats.stalls)?;
        dict.set_item("stalled_seconds", Duration::from_nanos(stats.stalled.0).as_secs_f64())?;
        dict.set_item("streams", stats.streams)?;
        dict.set_item("bytes_wanted", stats.bytes_wanted)?;
        dict.set_item("bytes_fetched", stats.bytes_fetched)?;
        dict.set_item("bytes_ahead", pages(stats.core.ahead_fetched))?;
        dict.set_item("bytes_wasted", pages(stats.core.ahead_wasted))?;
        dict.set_item("bytes_unread", pages(stats.core.ahead_unread))?;
        dict.set_item("requests", stats.fetches)?;
        dict.set_item("failures", stats.failures)?;
        dict.set_item("memory", stats.memory_bytes)?;
        Ok(dict)
    }
}

impl Ranges {
    /// What `read` and `again` return for a read of `bytes`.
    fn begin<'py>(
        &self,
        py: Python<'py>,
        begin: impl FnOnce(&mut ranges::Ranges) -> ReadStart,
        bytes: u64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut inner = self.lock();
        let Inner::Open(open) = &mut *inner else { return Ok(None) };
        if let ReadStart::Waits(read) = begin(open) {
            return Ok(Some(read.0.into_pyobject(py)?.into_any()));
        }
        let bytes = match open.ready() {
            Some(bytes) => PyBytes::new(py, bytes),
            None => PyBytes::new_with(py, usize::try_from(bytes)?, |out| {
                open.copy_ready(out);
                Ok(())
            })?,
        };
        let (woken, waiting) = (numbers(open.woken()), open.waiting());
        drop(inner);
        if waiting > 0 || !woken.is_empty() {
            self.open_gates(py, &woken)?;
            self.wake.call0(py)?;
        }
        Ok(Some(bytes.into_any()))
    }

    /// Wakes the threads of `reads`; one that waits no more has taken its gate away.
    fn open_gates(&self, py: Python<'_>, reads: &[u64]) -> PyResult<()> {
        let gates = self.gates.bind(py);
        for read in reads {
            if let Some(gate) = gates.get_item(read)? {
                release(&gate);
            }
        }
        Ok(())
    }

    /// What `act` gives; `None` once closed.
    fn with<T>(&self, act: impl FnOnce(&mut ranges::Ranges) -> T) -> Option<T> {
        match &mut *self.lock() {
            Inner::Open(open) => Some(act(open)),
            Inner::Closed(_) => None,
        }
    }

    /// The fetch `job` ended, which `end` takes in; after the close the store alone does. The reads
    /// to be woken.
    fn ended(
        &self,
        job: u64,
        whole: bool,
        end: impl FnOnce(&mut ranges::Ranges, FetchId),
    ) -> Vec<u64> {
        match &mut *self.lock() {
            Inner::Open(open) => {
                end(open, FetchId(job));
                numbers(open.woken())
            }
            Inner::Closed(closed) => {
                closed.1.ended(FetchId(job), whole);
                Vec::new()
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a gate, which may be open already: releasing it once more is an error of no effect.
fn release(gate: &Bound<'_, PyAny>) {
    let _ = gate.call_method0("release");
}

/// The counters of a cache whose pages are dropped: unread ones are wasted.
fn last_stats(mut stats: RangesStats) -> RangesStats {
    stats.core.ahead_wasted += stats.core.ahead_unread;
    stats.core.ahead_unread = 0;
    stats.memory_bytes = 0;
    stats
}

fn claimed(job: RangeFetch) -> Claimed {
    (job.id.0, job.start, job.end)
}

fn numbers(reads: Vec<ReadId>) -> Vec<u64> {
    reads.into_iter().map(|read| read.0).collect()
}
