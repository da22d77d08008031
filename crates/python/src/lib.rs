//! `forerun._forerun`: what Python's package calls of forerun.
//!
//! ```text
//!   import forerun --> python/forerun/*.py --> _forerun (this crate) --> engine, sim, lab, cli
//! ```
//! A function here takes and gives plain values; the classes, defaults and documents that users
//! meet are Python's, in `python/forerun`. Types of this module are told to checkers by
//! `python/forerun/_forerun.pyi`: a change of one is a change of the other.
//!
//! # Invariants
//! - Nothing is decided here, and no `unsafe` is written here: the macros of `pyo3` have it.
//! - What waits or computes does so detached from the interpreter, so that other threads of
//!   Python go on.
//! - Errors are the classes of `forerun.errors`.

mod commands;
mod errors;
mod hosts;
#[cfg(feature = "lab")]
mod lab;
mod ranges;
#[cfg(feature = "lab")]
mod vectors;

use pyo3::prelude::{pyfunction, pymodule};

/// What `python/forerun` imports.
#[pymodule]
mod _forerun {
    #[pymodule_export]
    use super::commands::cli;
    #[pymodule_export]
    use super::hosts::Host;
    #[cfg(feature = "lab")]
    #[pymodule_export]
    use super::lab::{Pages, commit, info, page, sim};
    #[pymodule_export]
    use super::ranges::{Ranges, clear_frames, keep_spare};
    #[cfg(feature = "lab")]
    #[pymodule_export]
    use super::vectors::{check, decisions, policies};
    #[pymodule_export]
    use super::version;
}

/// The version of forerun, as Cargo has it.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
