//! What can be asked for: the commands, and which module does each.
//!
//! # Invariants
//! - Every command has an example in its help.
//! - What the parser refuses is told in one line, as every other bad usage is.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use forerun_console::{failure, interrupt};

use crate::{explain, profile, report, run as program, warm};

#[derive(Parser)]
#[command(
    name = "forerun",
    about = "A page cache with readahead in user space, and the lab it is built in",
    version,
    after_help = "Example:\n  forerun sim workload:streams,n=10 --device t7k250",
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program, and read ahead of it
    Run(program::Args),
    /// Run a program, and say what it reads, where it waits, and what reading ahead would gain
    Explain(explain::Args),
    #[command(flatten)]
    Own(Own),
}

/// The commands that run no program of others: signals end them.
#[derive(Subcommand)]
enum Own {
    /// Measure what a device can do: how long it takes, how much it delivers, how many at a time
    Profile(profile::Args),
    /// Draw recorded runs on one static page
    Report(report::Args),
    /// Bring files into the kernel's page cache before they are wanted
    Warm(warm::Args),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(forerun_lab::Command),
}

impl Own {
    fn run(self) -> Result<()> {
        match self {
            Self::Profile(args) => profile::run(&args),
            Self::Report(args) => report::run(&args),
            Self::Warm(args) => warm::run(&args),
            #[cfg(feature = "lab")]
            Self::Lab(command) => command.run(),
        }
    }
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    ExitCode::from(run(std::env::args_os()))
}

/// Runs the command line `words`, the program's name first, and gives the exit status. It takes
/// over the signals that end a process, and is therefore called once in it.
#[must_use]
pub fn run(words: impl IntoIterator<Item = OsString>) -> u8 {
    let parsed = match Cli::try_parse_from(words) {
        Ok(parsed) => parsed,
        Err(error) => return refused(&error),
    };
    let result = match parsed.command {
        Command::Run(args) => program::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Own(command) => {
            interrupt::install().and_then(|()| command.run()).map(|()| failure::DONE)
        }
    };
    result.unwrap_or_else(|error| failure::tell(&error))
}

/// Help and the version go where they were asked to; all else is bad usage, in one line.
fn refused(error: &clap::Error) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let printed = error.print().context("cannot write to stdout");
            printed.map_or_else(|error| failure::tell(&error), |()| 0)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            failure::USAGE
        }
        _ => {
            let text = error.render().to_string();
            let what: Vec<&str> =
                text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
            let what = what.join(" ");
            let what = what.strip_prefix("error: ").unwrap_or(&what);
            let line = failure::plain(&format!("forerun: {what}: see --help"));
            let _ = writeln!(std::io::stderr(), "{line}");
            failure::USAGE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_sound_and_every_command_has_an_example() {
        fn walk(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("forerun "), "{} has no example", command.get_name());
            command.get_subcommands().for_each(walk);
        }
        Cli::command().debug_assert();
        walk(&Cli::command());
    }
}
