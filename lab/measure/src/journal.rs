//! `--journal`: the events of a command's live runs, kept in a file.
//!
//! # Invariants
//! - A place that takes no file is an error before the first run. A journal that ends early is
//!   noted at the end and fails nothing: the runs and their results are whole.
//! - After any end of the command, the journal is usable up to its last whole block.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use forerun_console::failure::note;
use forerun_console::output;
use forerun_core::params::Bytes;
use forerun_engine::journal::{Bounds, JournalFile, Summary};
use forerun_engine::{BuildError, Cache, Settings};
use forerun_report::quantity::read;

/// The flags.
#[derive(clap::Args)]
pub struct Journal {
    /// Keep the core's events, for `forerun replay-journal`
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// The journal ends when it would be larger
    #[arg(long, value_name = "SIZE", requires = "journal", default_value = "1G",
          value_parser = read::<Bytes>)]
    journal_max: Bytes,
}

impl Journal {
    /// Refuses places that take no file, for the journal and `output`, and one file for two of
    /// these and `input`.
    pub fn require_places(&self, output: Option<&Path>, input: Option<&Path>) -> Result<()> {
        let written = [self.journal.as_deref(), output];
        let mut paths: Vec<&Path> = written.into_iter().flatten().collect();
        paths.iter().try_for_each(|path| output::require_place(path))?;
        paths.extend(input);
        paths.reverse(); // The error names the path to choose anew.
        output::require_apart(&paths)
    }

    /// Runs `body` with the journal of the flags, and prints the journal's summary on stderr.
    pub fn keep<T>(&self, body: impl FnOnce(Option<&JournalFile>) -> Result<T>) -> Result<T> {
        let Some(path) = &self.journal else { return body(None) };
        let bounds = Bounds { file_bytes_max: self.journal_max.0, ..Bounds::default() };
        let journal = JournalFile::create(path, bounds)
            .with_context(|| format!("cannot write {}", path.display()))?;
        let result = body(Some(&journal));
        note(&format!("{}: {}", path.display(), summary_line(&journal.finish())));
        result
    }
}

/// A cache whose events go to `journal`, if there is one.
pub fn cache(settings: Settings, journal: Option<&JournalFile>) -> Result<Cache, BuildError> {
    match journal {
        Some(journal) => {
            let recorder = journal.record(&settings.core()?);
            Cache::recorded(settings, recorder)
        }
        None => Cache::new(settings),
    }
}

/// A journal's summary as one line.
fn summary_line(summary: &Summary) -> String {
    let Summary { runs, events, dropped, bytes, end } = summary;
    let runs = if *runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
    let text = format!("{events} events of {runs} in {bytes} bytes");
    match end {
        Some(end) => format!("{text}; {dropped} events after them are missing: {end}"),
        None if *dropped > 0 => format!("{text}; {dropped} events of a run that broke off"),
        None => text,
    }
}
