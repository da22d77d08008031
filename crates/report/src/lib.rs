//! The results of runs: the record, the terminal's table and the page.
//!
//! ```text
//!   a bench, a demo, a simulation
//!             |  RunRecord
//!     +-------+--------+----------------+
//!     v                v                v
//!   record (JSON)    table (text)     page (one HTML file)
//! ```
//!
//! A [`RunRecord`] holds all that is needed to repeat a run and to judge it: commit, machine,
//! command line, settings, seed, repeats, and a [`Run`] for each thing measured. [`page::render`]
//! draws any number of records on one self-contained page; [`table::render`] prints runs as text.
//! Pages of other data are made of the same parts: [`html`], [`shell`].
//!
//! An [`Explanation`] is the analysis of one program; [`page::explained`] draws it. [`Gains`] are
//! what programs gain; [`page::gains`] draws them beside records.
//!
//! # Invariants
//! - A file that this crate writes is either the old one or the whole new one, never a part.
//! - Nothing from a record reaches a page or a terminal unescaped.
//! - Time is an input: dates are given by the caller.
//! # Sources
//! Charts after Wu, Xi and Xu, "On the design of a new Linux readahead framework", 2008, and Wu et
//! al., 2010, Figs 6, 7, 10 (requests over time), 11 (throughput) and 12 (delay by streams).
#![forbid(unsafe_code)]

mod explanation;
mod file;
mod gain;
pub mod html;
pub mod page;
pub mod plain;
pub mod quantity;
mod record;
pub mod shell;
mod summary;
pub mod table;
mod waits;
mod window;

pub use explanation::{
    ExplainedCauses, ExplainedDirectory, ExplainedFile, ExplainedStream, ExplainedTrap,
    ExplainedWalk, Explanation, Forecast, PRELOAD, ReadMoment, run_command,
};
pub use file::{NewFile, remove_parts, write_whole};
pub use gain::{Gain, Gains, ProgramRun};
pub use record::{
    DeviceRequest, Machine, ReadError, RequestKind, Run, RunRecord, SCHEMA, Schema, Spread,
    WriteError,
};
pub use summary::{Distribution, Summary, Target, Verdict, mean};
pub use waits::Waits;
pub use window::Window;
