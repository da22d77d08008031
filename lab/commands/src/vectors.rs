//! `forerun vectors`: the historic policies against the decisions of real kernels.
//!
//! # Invariants
//! - The last line is the count. A check that runs no scenario fails.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use forerun_console::failure::usage;
use forerun_console::form::Output;
use forerun_console::names;
use forerun_core::readahead;
use forerun_sim::vectors::{self, VectorError};
use serde_json::json;

/// What `vectors` takes.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  forerun vectors readahead-vectors.json --policy linux-2.6.24")]
pub struct Args {
    /// The vectors: JSON of the schema forerun-readahead-vectors/1
    file: PathBuf,
    /// Check this policy alone
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// Checks the vectors: a line for each row that differs, then the counts.
pub(crate) fn run(args: &Args) -> Result<()> {
    args.output.check()?;
    let name = args.file.display();
    let text = read(&args.file).with_context(|| format!("cannot read {name}"))?;
    let verdict = vectors::run(&text, args.policy.as_deref()).map_err(|error| match error {
        VectorError::Policy(ref name) => {
            let nearest = names::hint(name, readahead::NAMES, names::POLICIES);
            usage(format!("--policy: {error}{nearest}"))
        }
        other => anyhow::Error::from(other).context(format!("cannot run {name}")),
    })?;
    let (passed, failed) = (verdict.passed, verdict.failed);
    let json = json!({ "passed": passed, "failed": failed, "lines": &verdict.lines });
    args.output.print(&json, &[""], || {
        let lines: String = verdict.lines.iter().map(|line| line.clone() + "\n").collect();
        format!("{lines}{passed} passed, {failed} failed\n")
    })?;
    if failed > 0 {
        bail!("{failed} of {} differ from {name}: each row is printed above", passed + failed);
    }
    if passed == 0 {
        bail!("nothing was run: {name} has no rows for the policies asked for");
    }
    Ok(())
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > BYTES_MAX {
        let why = format!("it is longer than {BYTES_MAX} bytes: split the scenarios");
        return Err(io::Error::other(why));
    }
    String::from_utf8(text).map_err(|_| io::Error::other("it is no text in UTF-8"))
}

/// The longest file that is read: some hundred thousand scenarios.
const BYTES_MAX: u64 = 64 << 20;
