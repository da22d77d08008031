//! The common parts of the lab's live measurements.
//!
//! ```text
//!   pattern (reads) x target (device) x policy    --> live (readers, meter) --> record
//!                                        \> kernel (readers), of a file
//! ```
//! | module | what |
//! |---|---|
//! | [`pattern`] | reads as a workload's text |
//! | [`live`], `readers`, `meter`, [`verify`] | one run through the engine, every byte checked |
//! | [`kernel`] | the same reads through the kernel's page cache |
//! | [`pattern_file`] | files of the pattern: made, and known again |
//! | [`steps`] | threads that begin, or take each step, at the same moment |
//! | [`replay`], `turns` | requests at their times through the engine |
//! | [`part`] | a device of a trace as a store |
//! | [`record`] | run records, and the limit that runs are measured against |
//! | [`windows`] | readahead windows as records hold them |
//! | [`journal`] | `--journal` of the commands that run live |
//! | [`cache`] | the engine's cache in front of a target |
#![forbid(unsafe_code)]
#![expect(
    clippy::missing_errors_doc,
    reason = "an error here is the line that a command ends with: it says what went wrong"
)]

pub mod cache;
pub mod journal;
pub mod kernel;
pub mod live;
mod meter;
pub mod part;
pub mod pattern;
pub mod pattern_file;
mod readers;
pub mod record;
pub mod replay;
pub mod steps;
mod turns;
pub mod verify;
pub mod windows;
