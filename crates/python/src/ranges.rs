//! `Ranges`: the engine's cache of byte ranges, behind one lock.
//!
//! ```text
//!   _session.py                        here
//!   read(start, end)  -------------->  bytes                  all here
//!                     <--------------  a number: it waits     claim_for, take
//!   threads: claim, fetch, arrived
//! ```
//! `wake(woken)` is called without the lock, where a read that had its bytes led to fetches that
//! wait for a thread, or where other reads ended.
//!
//! # Invariants
//! - The lock is held with the GIL and never over a call of Python: a fork cannot meet it taken.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forerun_engine::ranges::{
    self, FetchId, RangeFetch, RangesSettings, ReadEnd, ReadId, ReadStart,
};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict};

use crate::errors;

/// Keeps at most `bytes` of the memory of caches that are gone, for those to come.
#[pyfunction]
pub(crate) fn keep_spare(bytes: usize) {
    ranges::spare_bytes_max(bytes);
}

/// A cache of the byte ranges of one object; all numbers are bytes.
#[pyclass(frozen, module = "forerun._forerun")]
pub(crate) struct Ranges {
    inner: Mutex<ranges::Ranges>,
    wake: Py<PyAny>,
}

/// The number of a fetch, its first byte, and the byte after its last.
type Claimed = (u64, u64, u64);

#[pymethods]
impl Ranges {
    #[new]
    fn new(
        size: u64,
        memory: u64,
        request: u32,
        connections: u32,
        readahead: String,
        wake: Py<PyAny>,
    ) -> PyResult<Self> {
        let settings = RangesSettings {
            memory_bytes: memory,
            request_bytes_max: request,
            connections,
            readahead,
            ..RangesSettings::default()
        };
        let inner = ranges::Ranges::new(&settings, size).map_err(errors::option)?;
        Ok(Self { inner: Mutex::new(inner), wake })
    }

    /// The most bytes that one read may ask for.
    #[getter]
    fn read_max(&self) -> u64 {
        self.lock().read_bytes_max()
    }

    /// The bytes of `start..end`, or the number of a read that has to wait.
    fn read<'py>(&self, py: Python<'py>, start: u64, end: u64) -> PyResult<Bound<'py, PyAny>> {
        let mut inner = self.lock();
        let begun = inner.read(start, end);
        self.begun(py, inner, begun, end - start)
    }

    /// As `read`, for one that is to be read again.
    fn again<'py>(&self, py: Python<'py>, start: u64, end: u64) -> PyResult<Bound<'py, PyAny>> {
        let mut inner = self.lock();
        let begun = inner.again(start, end);
        self.begun(py, inner, begun, end - start)
    }

    /// The next fetch for a thread.
    fn claim(&self) -> Option<Claimed> {
        self.lock().claim().map(claimed)
    }

    /// A fetch for the thread in which `read` waits, if there is one.
    fn claim_for(&self, read: u64) -> Option<Claimed> {
        self.lock().claim_for(ReadId(read)).map(claimed)
    }

    /// The fetch `job` gave `data`; the reads that are to be woken.
    fn arrived(&self, job: u64, data: &[u8]) -> Vec<u64> {
        let mut inner = self.lock();
        inner.arrived(FetchId(job), data);
        numbers(inner.woken())
    }

    /// The fetch `job` failed; the reads that are to be woken.
    fn failed(&self, job: u64) -> Vec<u64> {
        let mut inner = self.lock();
        inner.failed(FetchId(job));
        numbers(inner.woken())
    }

    /// How `read` ended: its bytes, none if its own last fetch has them, `False` if it failed,
    /// `True` if it is to be read again; `None` while it waits.
    fn take<'py>(&self, py: Python<'py>, read: u64) -> Option<Bound<'py, PyAny>> {
        let truth = |yes| PyBool::new(py, yes).to_owned().into_any();
        Some(match self.lock().take(ReadId(read))? {
            ReadEnd::Bytes(bytes) => PyBytes::new(py, &bytes).into_any(),
            ReadEnd::Fetched => PyBytes::new(py, &[]).into_any(),
            ReadEnd::Failed => truth(false),
            ReadEnd::Again => truth(true),
        })
    }

    /// No reader waits for `read` any more.
    fn cancel(&self, read: u64) {
        self.lock().cancel(ReadId(read));
    }

    /// Fetches that wait for a thread.
    fn waiting(&self) -> u32 {
        self.lock().waiting()
    }

    /// What was counted: bytes, counts and seconds.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.lock().stats();
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
    fn begun<'py>(
        &self,
        py: Python<'py>,
        mut inner: MutexGuard<'_, ranges::Ranges>,
        begun: ReadStart,
        bytes: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let ReadStart::Waits(read) = begun {
            return Ok(read.0.into_pyobject(py)?.into_any());
        }
        let bytes = match inner.ready() {
            Some(bytes) => PyBytes::new(py, bytes),
            None => PyBytes::new_with(py, usize::try_from(bytes)?, |out| {
                inner.copy_ready(out);
                Ok(())
            })?,
        };
        let woken = numbers(inner.woken());
        if inner.waiting() > 0 || !woken.is_empty() {
            drop(inner);
            self.wake.call1(py, (woken,))?;
        }
        Ok(bytes.into_any())
    }

    fn lock(&self) -> MutexGuard<'_, ranges::Ranges> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn claimed(job: RangeFetch) -> Claimed {
    (job.id.0, job.start, job.end)
}

fn numbers(reads: Vec<ReadId>) -> Vec<u64> {
    reads.into_iter().map(|read| read.0).collect()
}
