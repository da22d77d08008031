//! Errors as Python's classes, which `python/forerun/errors.py` defines.
//!
//! Python defines them because a class that is also an `OSError` or a `ValueError` has two bases,
//! which takes one line there.

use std::fmt;

use pyo3::PyErr;

mod imported {
    pyo3::import_exception!(forerun.errors, OptionError);
    pyo3::import_exception!(forerun.errors, RunError);
}

/// `forerun.OptionError`: what was asked for cannot be; `what` says what could.
pub(crate) fn option(what: impl fmt::Display) -> PyErr {
    imported::OptionError::new_err(what.to_string())
}

/// `forerun.RunError`: a run of the laboratory failed, as `what` says.
#[cfg(feature = "lab")]
pub(crate) fn run(what: impl fmt::Display) -> PyErr {
    imported::RunError::new_err(what.to_string())
}
