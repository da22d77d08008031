//! `forerun trace`: the contents of a trace, and its conversion to another format.
//!
//! # Invariants
//! - A trace is read as a stream in bounded memory.

mod convert;
mod info;

use anyhow::Result;

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
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Info(args) => info::run(args),
        Command::Convert(args) => convert::run(args),
    }
}

/// The common arguments of both.
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
}
