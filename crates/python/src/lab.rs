//! The laboratory's commands as functions: `forerun.sim`, `forerun.trace`.
//!
//! ```text
//!   Python's thread                      a thread of its own
//!   call() ---------------------------->  forerun_lab::call
//!     every tenth of a second: signals,       reads a trace of the caller's by `Opened`,
//!     and how far it is                       attached to the interpreter for each read
//!   rows as JSON <----------------------  ends, or stops
//! ```
//! Plain values alone: `python/forerun/_sim.py` makes tables of them.
//!
//! # Invariants
//! - Python's thread is detached while it waits. A signal's handler that raises stops the call,
//!   which has ended when the exception reaches the caller.
//! - What fails is `OptionError` where the words cannot be, else `RunError`; an exception of the
//!   caller's file is its cause.

use std::io::{self, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use forerun_lab::call::{self, Columns, Control, Input, Opener};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::errors;

/// The commit that was built; the version where the build names none.
#[pyfunction]
pub(crate) fn commit() -> &'static str {
    forerun_cli::commit()
}

/// The rows of `forerun sim` with the flags `words` on `traces`, a JSON array. `show` is called
/// with what is done now, how much of it is, and of how much (0: unknown).
#[pyfunction]
#[pyo3(signature = (words, traces, show=None))]
pub(crate) fn sim(
    py: Python<'_>,
    words: Vec<String>,
    traces: Vec<TraceInput>,
    show: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let inputs: Vec<Input> = traces.into_iter().map(input).collect();
    run(py, show, move |control| call::sim(&words, inputs, control))
}

/// What `forerun trace info` prints of `trace` with `--json` and the flags `words`.
#[pyfunction]
#[pyo3(signature = (words, trace, show=None))]
pub(crate) fn info(
    py: Python<'_>,
    words: Vec<String>,
    trace: TraceInput,
    show: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let input = input(trace);
    run(py, show, move |control| call::info(&words, input, control))
}

/// The page, as HTML, of a sheet of charts in JSON.
#[pyfunction]
pub(crate) fn page(py: Python<'_>, sheet: &str) -> PyResult<String> {
    py.detach(|| call::page(sheet)).map_err(|error| raised(py, &error))
}

/// The pages of a trace, a batch at a time.
#[pyclass(frozen, module = "forerun._forerun")]
pub(crate) struct Pages(Mutex<call::Pages>);

/// Keys, bytes, times and writes of pages: 64-bit words of this machine, and of writes a byte
/// each; empty where the trace lacks them.
type Columned<'py> =
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

#[pymethods]
impl Pages {
    #[new]
    fn new(py: Python<'_>, words: Vec<String>, trace: TraceInput) -> PyResult<Self> {
        let input = input(trace);
        let open = move || call::Pages::open(&words, input, &Control::default());
        py.detach(open).map(|pages| Self(Mutex::new(pages))).map_err(|error| raised(py, &error))
    }

    /// The next pages, at most `count`; `None` at the end.
    fn next<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Option<Columned<'py>>> {
        let next = || self.0.lock().unwrap_or_else(PoisonError::into_inner).next(count);
        let Some(next) = py.detach(next).map_err(|error| raised(py, &error))? else {
            return Ok(None);
        };
        let words = |words: &[u64]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            PyBytes::new(py, &bytes)
        };
        let (pages, bytes, times) = (words(&next.pages), words(&next.bytes), words(&next.times));
        Ok(Some((pages, bytes, times, PyBytes::new(py, &next.writes))))
    }
}

/// A trace as Python gives it.
#[derive(FromPyObject)]
pub(crate) enum TraceInput {
    /// A path or a workload.
    Named(String),
    /// A name, and a function that opens a file of bytes.
    Opened(String, Py<PyAny>),
    /// A name, and keys, bytes, times and writes as [`Columned`].
    Columns(String, PyBackedBytes, PyBackedBytes, PyBackedBytes, PyBackedBytes),
}

fn input(given: TraceInput) -> Input {
    match given {
        TraceInput::Named(text) => Input::Named(text),
        TraceInput::Opened(name, open) => {
            let open: Opener = Arc::new(move || {
                let file = Python::attach(|py| open.call0(py)).map_err(io::Error::other)?;
                Ok(Box::new(BufReader::with_capacity(READ_BYTES, File(file))))
            });
            Input::Opened { name, open }
        }
        TraceInput::Columns(name, pages, bytes, times, writes) => {
            let [pages, bytes, times] = [pages, bytes, times].map(words);
            let columns = Columns { pages, bytes, times, writes: writes.to_vec() };
            Input::Columns { name, columns: Arc::new(columns) }
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "an item of an array")]
fn words(bytes: PyBackedBytes) -> Vec<u64> {
    let (words, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty(), "Python gives whole words");
    words.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

/// A file of Python's.
struct File(Py<PyAny>);

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = |py: Python<'_>| {
            let bytes = self.0.bind(py).call_method1("read", (buffer.len(),))?;
            let bytes = bytes.cast::<PyBytes>()?.as_bytes();
            // A file that returns more than it was asked for is broken.
            let count = bytes.len().min(buffer.len());
            buffer[..count].copy_from_slice(&bytes[..count]);
            Ok(count)
        };
        Python::attach(read).map_err(|error: PyErr| io::Error::other(error))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // A file that does not close was read all the same.
        let _ = Python::attach(|py| self.0.call_method0(py, "close"));
    }
}

/// Runs `work` on a thread of its own.
fn run(
    py: Python<'_>,
    show: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Control) -> anyhow::Result<String> + Send,
) -> PyResult<String> {
    let control = Control::default();
    let (tell, mut told) = mpsc::channel();
    let mut refused = Ok(());
    let ended = thread::scope(|scope| {
        let for_work = control.clone();
        scope.spawn(move || {
            // Without a receiver the caller's thread has panicked.
            let _ = tell.send(work(&for_work));
        });
        loop {
            // A receiver is of one thread at a time.
            let (received, back) = py.detach(move || (told.recv_timeout(POLL), told));
            told = back;
            match received {
                Ok(ended) => return Some(ended),
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if refused.is_ok() {
                let asked = py.check_signals();
                refused = asked.and_then(|()| shown(show, &control));
                if refused.is_err() {
                    control.stop();
                }
            }
        }
    });
    refused?;
    let ended = ended.expect("a panic of the thread was passed on by its scope");
    ended.map_err(|error| raised(py, &error))
}

fn shown(show: Option<&Bound<'_, PyAny>>, control: &Control) -> PyResult<()> {
    if let (Some(show), Some(progress)) = (show, control.progress()) {
        show.call1((progress.what, progress.done, progress.all.unwrap_or(0)))?;
    }
    Ok(())
}

/// `error` as an exception, with that of the caller's file as its cause.
fn raised(py: Python<'_>, error: &anyhow::Error) -> PyErr {
    let text = call::message(error);
    let raised = if call::is_usage(error) { errors::option(text) } else { errors::run(text) };
    let cause = error.chain().find_map(|cause| {
        let cause = cause.downcast_ref::<io::Error>()?.get_ref()?;
        cause.downcast_ref::<PyErr>().map(|cause| cause.clone_ref(py))
    });
    raised.set_cause(py, cause);
    raised
}

/// How often signals are looked for, and progress is shown.
const POLL: Duration = Duration::from_millis(100);
/// What is read of a file of Python's at once: each read takes the interpreter's lock.
const READ_BYTES: usize = 1 << 20;
