//! The commands of forerun, as a library.
//!
//! ```text
//!   main --> cli (what is asked for) --> one module a command --> console (stdout, stderr, status)
//!                                   \--> the lab's commands, with the feature `lab`
//! ```
//! | module | what |
//! |---|---|
//! | `cli` | the commands and their dispatch |
//! | `run`, `explain` | runs a program and reads ahead of it, or says what that would gain |
//! | `compare` | a program alone and under `run`, cold and timed in turns |
//! | `warm` | the kernel's page cache, filled |
//! | `learned` | what programs used in their last runs |
//! | `serve` | files through the cache, for NBD clients |
//! | `profile` | what a device can do, measured |
//! | `doctor` | what this machine lets forerun do |
//! | `report` | recorded runs on a page |
//! | `shell` | completions and manual pages, of the same definitions as the help |
//!
//! To add a command: write its module with an `Args` struct and a `run`, and its line in
//! `cli::Command`.
//!
//! # Invariants
//! - stdout carries results alone; with `--json`, one object. Everything else goes to stderr.
//! - Exit status 0: done; 1: failed; 2: bad usage; 130: interrupted.
#![forbid(unsafe_code)]

mod cli;
mod compare;
mod doctor;
mod explain;
mod learned;
mod profile;
mod report;
mod run;
mod serve;
mod shell;
mod warm;

pub use cli::{commit, main, run};
