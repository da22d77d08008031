//! `forerun trace`: the contents of a trace, its conversion to another format, and the recording of
//! one.
//!
//! # Invariants
//! - A trace is read as a stream in bounded memory.

mod convert;
pub(crate) mod info;
mod record;
pub(crate) mod strace;

use anyhow::Result;

use crate::given::Control;
use crate::sim::source::{Reading, Source};

use crate::specs;

/// What `trace` takes.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  forerun trace info OLTP.lis.zst")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Counts, sizes, sequences, and how pages are used again
    Info(info::Args),
    /// Write a trace in another format
    Convert(convert::Args),
    /// Run a program, and write which files and directories it uses, by which calls and when
    Record(record::Args),
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Info(args) => info::run(args),
        Command::Convert(args) => convert::run(args),
        Command::Record(args) => record::run(args).map(drop),
    }
}

impl Args {
    /// Whether a program of the caller's is run.
    pub(crate) fn runs_program(&self) -> bool {
        matches!(self.command, Command::Record(_))
    }
}

/// Runs the command, and gives the exit status of the program that it runs.
pub(crate) fn run_program(args: &Args) -> Result<u8> {
    match &args.command {
        Command::Record(args) => record::run(args),
        Command::Info(_) | Command::Convert(_) => run(args).map(|()| 0),
    }
}

/// The common arguments of those that read a trace.
#[derive(clap::Args)]
struct Input {
    /// A file (zstd, gzip, xz are seen by content), `-` for stdin, or workload:NAME[,key=value...]
    #[arg(value_name = "TRACE")]
    trace: String,
    #[command(flatten)]
    reading: Reading,
    /// Memory for what is known of each distinct page
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = specs::memory)]
    memory: u64,
}

impl Input {
    /// The trace, and how it is read.
    fn open(&self) -> Result<(Source, Reading)> {
        self.reading.check()?;
        let source = Source::new(&self.trace)?;
        source.tell_guess(&self.reading)?;
        Ok((source, self.reading.clone()))
    }

    /// How another trace is read in its place, under `control`.
    fn reading(&self, control: &Control) -> Result<Reading> {
        self.reading.check()?;
        Ok(self.reading.controlled(control))
    }
}
