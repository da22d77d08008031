//! `forerun report`: recorded runs, or a sweep, on one static page.
//!
//! The page of a sweep is made by the Python package, which reads its Parquet files.
//!
//! # Invariants
//! - The page is written when all records were read: whole, or not at all.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use forerun_console::failure::usage;
use forerun_console::{output, python};
use forerun_report::{RunRecord, page};
use serde::Serialize;

/// What `report` takes.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  forerun sim workload:streams,n=10 --device t7k250 -o run.json\n  \
                  forerun report run.json -o page.html\n  \
                  forerun report sweep -o page.html"
)]
pub(crate) struct Args {
    /// Records of runs, as `forerun sim -o` writes them; or the folder of a `forerun sweep`
    #[arg(required = true, value_name = "RUN.json")]
    records: Vec<PathBuf>,
    /// The page to write
    #[arg(short, long, value_name = "PAGE.html")]
    output: PathBuf,
    /// The page's title [default: forerun: runs]
    #[arg(long)]
    title: Option<String>,
}

/// The page of a sweep.
#[derive(Serialize)]
struct SweepPage<'a> {
    folder: &'a Path,
    output: &'a Path,
    title: Option<&'a str>,
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
    output::require_page_name(&args.output)?;
    if let Some(folder) = args.records.iter().find(|path| path.is_dir()) {
        if args.records.len() > 1 {
            return Err(usage(format!("{}: a sweep has a page of its own", folder.display())));
        }
        let page = SweepPage { folder, output: &args.output, title: args.title.as_deref() };
        return python::become_command("report", &page);
    }
    let records: Vec<RunRecord> =
        args.records.iter().map(|path| RunRecord::read(path)).collect::<Result<_, _>>()?;
    let html = page::render(&records, args.title.as_deref().unwrap_or("forerun: runs"))
        .context("cannot draw the page")?;
    output::file(&args.output, html.as_bytes())
}
