//! The commands, as the wheel carries them.
//!
//! # Invariants
//! - Signals are the commands' own from the first call on: Ctrl-C ends the process with status
//!   130, as it ends the binary. Python's handlers are not asked any more.

use std::ffi::OsString;

use pyo3::Python;
use pyo3::prelude::pyfunction;

/// Runs the command line `words`, the program's name first; the exit status. For a process that
/// ends with it: it takes over the signals, and is called once.
#[pyfunction]
pub(crate) fn cli(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| forerun_cli::run(words))
}
