//! `forerun bench`: measurements in real time, of the live engine.
//!
//! ```text
//!   streams   pattern (what) x target (from where) x policy --> live (crew, meter) --> record
//! ```

mod crew;
pub(crate) mod live;
mod meter;
pub(crate) mod pattern;
pub(crate) mod record;
mod streams;
pub(crate) mod target;
mod verify;

use anyhow::Result;
use forerun_core::readahead;
use forerun_engine::Settings;

use crate::failure::usage;
use crate::specs::PAGE_BYTES;

pub(crate) use streams::Figures;

/// What `bench` takes.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  forerun bench streams --device t7k250 --readahead linux-2.6.24"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Streams through the engine in real time, every byte verified
    Streams(Box<streams::Args>),
}

/// Runs one of the measurements.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Streams(args) => streams::run(args),
    }
}

/// Refuses settings that make no cache before anything is measured with others.
fn check(settings: &Settings) -> Result<()> {
    let core = settings.core().map_err(|error| usage(format!("--cache: {error}")))?;
    let policy = readahead::make(&settings.readahead, PAGE_BYTES).map_err(usage)?.policy;
    let (window, frames) = (policy.window_pages_max(), core.frames);
    if window > frames {
        let name = &settings.readahead;
        return Err(usage(format!(
            "--cache: {frames} pages are fewer than the {window} of one window of {name}: give \
             more, or the policy a smaller max="
        )));
    }
    Ok(())
}
