//! `forerun bench`: measurements in real time, of the live engine.
//!
//! ```text
//!   streams   pattern (what) x target (from where) x policy --> live (readers, meter) --> record
//!                                                  \> kernel (readers), of a file
//!   file      a real file, cold, in order or at random --------> file (reads) ------> record
//!   hit       pages in memory: pread beside the engine's ways -> hit (race) --------> record
//!   overhead  whole files in order, once: policies, the kernel -> overhead ----------> record
//!   reap      ways of waiting for reads ----------------------> reap (workers) -------> record
//! ```

mod file;
mod hit;
mod overhead;
pub(crate) mod reap;
mod streams;

use std::path::Path;

use anyhow::Result;
use forerun_console::failure::usage;
use forerun_core::params::Param as _;
use forerun_core::readahead;
use forerun_core::units::Nanos;
use forerun_engine::Settings;
use forerun_io::files::Backend;
use forerun_measure::journal::Journal;

use crate::specs::{Output, PAGE_BYTES};

pub(crate) use streams::json_row;

/// What `bench` takes.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  forerun bench streams --device t7k250 --readahead linux-2.6.24"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Streams through the engine in real time, every byte verified
    Streams(Box<streams::Args>),
    /// Cold reads of a real file through the engine, in order or at random
    File(Box<file::Args>),
    /// What a hit costs, beside pread of the same bytes from the kernel's cache
    Hit(Box<hit::Args>),
    /// Files read or written in order, once: what a policy costs, beside the kernel's cache
    Overhead(Box<overhead::Args>),
    /// What each way of waiting for reads takes, of time and of processor
    Reap(Box<reap::Args>),
}

/// The record of a measurement, and the form of its output.
#[derive(clap::Args)]
struct Results {
    #[command(flatten)]
    journal: Journal,
    #[command(flatten)]
    output: Output,
}

impl Results {
    /// Refuses places that take no file, or that are the file that is read.
    fn require_places(&self, read: Option<&Path>) -> Result<()> {
        self.journal.require_places(self.output.path.as_deref(), read)
    }
}

/// By which interface of the system a file is read.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Io {
    /// The best that works
    Auto,
    /// `io_uring`
    Uring,
    /// preadv on threads
    Threads,
}

impl Io {
    fn backend(self) -> Backend {
        match self {
            Self::Auto => Backend::Auto,
            Self::Uring => Backend::Uring,
            Self::Threads => Backend::Threads,
        }
    }
}

/// Runs one of the measurements.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Streams(args) => streams::run(args),
        Command::File(args) => file::run(args),
        Command::Hit(args) => hit::run(args),
        Command::Overhead(args) => overhead::run(args),
        Command::Reap(args) => reap::run(args),
    }
}

/// Refuses invalid cache settings before the first measurement.
fn check(settings: &Settings) -> Result<()> {
    let core = settings.core().map_err(|error| usage(format!("--cache: {error}")))?;
    let policy = readahead::make(&settings.readahead, PAGE_BYTES).map_err(usage)?.policy;
    let (window, frames) = (policy.window_pages_min(), core.frames);
    if window > frames {
        let name = &settings.readahead;
        return Err(usage(format!(
            "--cache: {frames} pages are fewer than the {window} of one window of {name}: give \
             more, or the policy a smaller max="
        )));
    }
    Ok(())
}

/// A time, for the command line; a number alone is in seconds.
pub(crate) fn seconds(text: &str) -> Result<Nanos, String> {
    let time = Nanos::parse(text).or_else(|| Nanos::parse(&format!("{text}s")));
    let valid = time.filter(|time| (TIME_MIN..=TIME_MAX).contains(time));
    valid.ok_or_else(|| "expected seconds, or a time such as 500ms, from 1ms to 24h".to_owned())
}

const TIME_MIN: Nanos = Nanos::from_millis(1);
/// A day.
const TIME_MAX: Nanos = Nanos::from_millis(86_400_000);
