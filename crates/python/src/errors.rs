//! Errors as Python's classes, which `python/forerun/errors.py` defines.
//!
//! Python defines them because a class that is also an `OSError` or a `ValueError` has two bases,
//! which takes one line there.

use std::fmt;

use pyo3::PyErr;

mod imported {
    pyo3::import_exception!(forerun.errors, OptionError);
}

/// `forerun.OptionError`: what was asked for cannot be; `what` says what could.
pub(crate) fn option(what: impl fmt::Display) -> PyErr {
    imported::OptionError::new_err(what.to_string())
}
