//! `forerun report`: recorded runs on one static page.
//!
//! # Invariants
//! - The page is written when all records were read: whole, or not at all.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use forerun_console::failure::usage;
use forerun_console::output;
use forerun_report::{RunRecord, page};

/// What `report` takes.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  forerun sim workload:streams,n=10 --device t7k250 -o run.json\n  \
                  forerun report run.json -o page.html"
)]
pub(crate) struct Args {
    /// Records of runs, as `forerun sim -o` writes them
    #[arg(required = true, value_name = "RUN.json")]
    records: Vec<PathBuf>,
    /// The page to write
    #[arg(short, long, value_name = "PAGE.html")]
    output: PathBuf,
    /// The page's title
    #[arg(long, default_value = "forerun: runs")]
    title: String,
}

/// Reads the records and writes the page.
pub(crate) fn run(args: &Args) -> Result<()> {
    output::require_place(&args.output)?;
    // A path that is not there yet is no record either.
    let same = |path: &PathBuf| path.canonicalize().ok() == args.output.canonicalize().ok();
    if args.output.exists() && args.records.iter().any(same) {
        let page = args.output.display();
        return Err(usage(format!("{page} is one of the records: name another file with -o")));
    }
    let records: Vec<RunRecord> =
        args.records.iter().map(|path| RunRecord::read(path)).collect::<Result<_, _>>()?;
    let html = page::render(&records, &args.title).context("cannot draw the page")?;
    output::file(&args.output, html.as_bytes())
}
