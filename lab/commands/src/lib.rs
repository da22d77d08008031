//! The commands of the laboratory, which `forerun` mounts beside those of the product.
//!
//! ```text
//!   sim, trace, vectors --> sim        virtual time
//!   sweep               --> Python     sim of many traces, by executors
//!   bench, demo, soak   --> measure    the live engine in real time
//! ```
//! | module | what |
//! |---|---|
//! | `vectors`, `sim`, `sweep`, `trace`, `demo`, `soak` | a command each |
//! | `replay` | a trace at its times, in virtual or real time |
//! | `bench`, `replay_journal` | commands on real devices and live runs |
//! | `call`, `given` | commands as functions, for the Python package; what these are given |
//! | `curves`, `comparison` | pages: of curves over sizes, of papers' figures beside those here |
//! | `kept` | results of a run that was cut |
//! | `parallel` | the same work for many things, on all processors |
//! | `process` | what the kernel tells of this process |
//! | `specs` | policies, prefetching threads, sizes of caches: what these commands read alike |
//!
//! To add a command: write its module with an `Args` struct and a `run`, and its line in
//! [`Command`].
#![forbid(unsafe_code)]

mod bench;
pub mod call;
mod comparison;
mod curves;
mod demo;
mod given;
mod kept;
mod parallel;
mod process;
mod replay;
mod replay_journal;
mod reproduce;
mod sim;
mod soak;
mod specs;
mod sweep;
mod trace;
mod vectors;

use anyhow::Result;

/// The commands of the laboratory.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Check readahead decisions against those of historic kernels
    Vectors(vectors::Args),
    /// Run workloads and traces through the cache in virtual time, or through replacement alone
    Sim(Box<sim::Args>),
    /// Run policies and sizes on many traces, on this machine or a cluster, into a data set
    Sweep(sweep::Args),
    /// See what a trace holds, turn it into another format, or record one
    Trace(trace::Args),
    /// See what readahead does to a slow disk: half a minute, nothing to set up
    Demo(demo::Args),
    /// Measure the live engine in real time
    Bench(bench::Args),
    /// Make the requests of a trace at their times, on a device model or a file, through the cache
    Replay(Box<replay::Args>),
    /// Make the figures of the papers again, beside what the papers say
    Reproduce(reproduce::Args),
    /// Send the events of a journal to a fresh core, which has to do the same again
    ReplayJournal(replay_journal::Args),
    /// Read through the live engine for a long time, and check everything
    #[command(hide = true)]
    Soak(soak::Args),
}

impl Command {
    /// Whether the command runs a program of the caller's, to which signals are forwarded.
    #[must_use]
    pub fn runs_program(&self) -> bool {
        matches!(self, Self::Trace(args) if args.runs_program())
    }

    /// Runs the command, and gives the exit status: that of the program, where it runs one.
    ///
    /// # Errors
    /// The command failed, or its arguments are invalid.
    pub fn run_program(self) -> Result<u8> {
        match self {
            Self::Trace(args) => trace::run_program(&args),
            other => other.run().map(|()| 0),
        }
    }

    /// Runs the command.
    ///
    /// # Errors
    /// The command failed, or its arguments are invalid.
    pub fn run(self) -> Result<()> {
        match self {
            Self::Vectors(args) => vectors::run(&args),
            Self::Sim(args) => sim::run(&args),
            Self::Sweep(args) => sweep::run(&args),
            Self::Trace(args) => trace::run(&args),
            Self::Demo(args) => demo::run(&args),
            Self::Bench(args) => bench::run(&args),
            Self::Replay(args) => replay::run(&args),
            Self::Reproduce(args) => reproduce::run(&args),
            Self::ReplayJournal(args) => replay_journal::run(&args),
            Self::Soak(args) => soak::run(&args),
        }
    }
}
