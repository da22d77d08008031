//! What the tests of all crates share: scratch folders, skips, waiting, and programs to run.
//!
//! A dev-dependency only. It knows no other crate of this repository, so that every crate may use
//! it, from tests beside the code and from integration tests alike.
//!
//! | need | here |
//! |---|---|
//! | a folder or file that is gone at the end | [`Scratch`], [`ScratchFile`] |
//! | a program, device or data that a machine may lack | [`skip`], [`installed`], [`shared_dir`] |
//! | a state that another thread or process brings about | [`until`], [`within`] |
//! | the command under test, a C program | [`forerun`], [`compile_c`] |
//! | what the kernel tells of a process | [`stat_fields`] |
//!
//! # Invariants
//! - A skip is never silent, and never a pass by another name where `FORERUN_SKIPPED` is read.
//! - No test has a deadline of its own: the one deadline is the runner's ([`within`]).
//! - No name is fixed: two runs of a test at the same time do not meet.

#![forbid(unsafe_code)]

mod programs;
mod scratch;
mod skip;
mod wait;

pub use programs::{Sandbox, compile_c, forerun, forerun_path, stat_fields, target_dir};
pub use scratch::{Scratch, ScratchFile, drop_from_cache, until_tick};
pub use skip::{browser, first_installed, installed, shared_dir, skip, traces_dir};
pub use wait::{on_threads, seconds_max, until, within};
