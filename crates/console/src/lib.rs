//! The common parts of the product's and the lab's commands: output, errors, and access to the
//! device that they measure.
//!
//! ```text
//!   cli --------------\                  /--> stdout, files, stderr, the exit status
//!     \                +--> console ----+
//!      lab/commands --/                  \--> a device: its profile, a target to read from
//! ```
//! | module | what |
//! |---|---|
//! | [`failure`] | usage errors, exit statuses, the one line on stderr |
//! | [`mod@object`] | JSON objects with ordered keys |
//! | [`form`] | the forms of a result: text, JSON, lines of JSON, CSV; `-o` |
//! | [`output`] | stdout: text, tables, JSON; files; progress |
//! | [`interrupt`] | SIGINT: ends at once, or soon, never in the middle of a file |
//! | [`machine`] | the time, the commit and the machine, for records |
//! | [`specs`] | lists of `NAME:key=value,...`, as every command reads them |
//! | [`ranges`] | `kin=0.1..0.5/5`: a spec for each value |
//! | [`names`] | the nearest known name of an unknown one |
//! | [`target`] | a device model or a file, to read from through a store |
//! | [`reap_target`], [`reap_reads`] | the same through a reaper, and reads at random places |
//! | [`noise`] | the machine's other load during a measurement |
//! | [`profile`] | the profile of a device: measured, kept in a file, found again |
//! | [`python`] | commands whose work is the Python package's |
//!
//! # Invariants
//! - stdout carries results alone; with `--json`, one object. Everything else goes to stderr.
//! - Exit status 0: done; 1: failed; 2: bad usage; 130: interrupted.
#![forbid(unsafe_code)]
#![expect(
    clippy::missing_errors_doc,
    reason = "an error here is the line that a command ends with: it says what went wrong"
)]

pub mod failure;
pub mod form;
pub mod interrupt;
pub mod machine;
pub mod names;
pub mod noise;
pub mod object;
pub mod output;
pub mod profile;
pub mod python;
pub mod ranges;
pub mod reap_reads;
pub mod reap_target;
mod rows;
pub mod specs;
pub mod target;
