//! `forerun explain`: what a program reads, where it waits, and what reading ahead would gain.
//!
//! ```text
//!   program --steer::explain--> what it did --predict (profile or run)--> Explanation
//!                                                        text on stderr | JSON | a page
//! ```
//! # Invariants
//! - The exit status is the program's, as of `run`.
//! - stdout is the program's. With `--json` it holds one object, and the program writes to stderr.
//! - What is asked for wrongly is refused before the program is started.

mod words;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use forerun_console::failure::note;
use forerun_console::profile::given;
use forerun_console::profile::place::Place;
use forerun_console::{machine, output};
use forerun_core::units::Nanos;
use forerun_report::quantity::{float, ratio, seconds};
use forerun_report::{ExplainedFile, ExplainedStream, Explanation, Forecast, ReadMoment, page};
use forerun_steer::explain::{
    self, Basis, Explained, FileTold, Pattern, Prediction, Start, StreamTold,
};
use forerun_steer::run::RunError;
use rustix::fs::{major, minor};

use crate::run::How;

/// The flags.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  forerun explain -- gzip -3k backup.tar\n  \
                  forerun explain --json -o page.html -- python3 load_model.py")]
pub(crate) struct Args {
    /// One JSON object on stdout; what the program writes there goes to stderr
    #[arg(long)]
    json: bool,
    /// A page with what was read when
    #[arg(short, long, value_name = "PAGE.html")]
    output: Option<PathBuf>,
    /// Where it is seen what the program reads: proc, or preload, a shim that it loads
    #[arg(long, value_name = "HOW", default_value = "auto")]
    observe: How,
    /// What the device can do, from a file of `forerun profile`
    /// [default: ~/.config/forerun/devices.toml, if it is there]
    #[arg(long, value_name = "FILE.toml")]
    profile: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    words: Vec<OsString>,
}

/// Runs the program, tells what it did, and gives its exit status.
pub(crate) fn run(args: &Args) -> Result<u8> {
    let observe = args.observe.observe()?;
    if let Some(path) = &args.output {
        output::require_place(path)?;
    }
    if let Some(path) = &args.profile {
        given::require(path)?;
    }
    let errors = args.json.then(|| io::stderr().as_fd().try_clone_to_owned()).transpose()?;
    let told = match explain::explain(&observe, &args.words, errors) {
        Ok(told) => told,
        Err(RunError::Start(error)) => {
            note(&error.to_string());
            return Ok(error.status());
        }
        Err(error) => return Err(error.into()),
    };
    let profile = args.limit(&told).unwrap_or_else(|error| {
        note(&format!("{error:#}"));
        None
    });
    let explanation = args.explanation(&told, &explain::predict(&told, profile));
    // The program's own status says how it went; this is only about it.
    if let Err(error) = args.tell(&explanation) {
        note(&format!("{error:#}"));
    }
    Ok(told.status)
}

impl Args {
    /// What the device delivers, in bytes a second, on which those files lie that were waited for
    /// most.
    fn limit(&self, told: &Explained) -> Result<Option<u64>> {
        let mut waits: BTreeMap<u64, (Nanos, u64, &FileTold)> = BTreeMap::new();
        for file in &told.files {
            let of = waits.entry(file.device).or_insert((Nanos(0), 0, file));
            (of.0, of.1) = (of.0 + file.waited, of.1 + file.bytes_read);
        }
        let most = waits.into_values().max_by_key(|&(waited, bytes, _)| (waited, bytes));
        let Some((_, _, file)) = most else { return Ok(None) };
        // It may be gone by now, and its profile with it.
        let Ok(place) = Place::of(&file.path) else { return Ok(None) };
        let facts = given::known(self.profile.as_deref(), &place)?;
        Ok(facts.map(|facts| facts.bytes_per_second))
    }

    fn tell(&self, told: &Explanation) -> Result<()> {
        if let Some(path) = &self.output {
            let html = page::explained(told, &machine::machine(), machine::date());
            output::file(path, html.as_bytes())?;
        }
        if self.json {
            return output::json(told).context("cannot tell what was found");
        }
        for line in words::lines(told) {
            note(&line);
        }
        Ok(())
    }

    fn explanation(&self, told: &Explained, prediction: &Prediction) -> Explanation {
        let observed = match self.observe {
            How::Auto | How::Proc => "proc",
            How::Preload => "preload",
        };
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        Explanation {
            command: self.words.iter().map(text).collect(),
            status: told.status,
            seconds: seconds(told.ran),
            processor_seconds: seconds(told.processor),
            storage_seconds: seconds(told.waited),
            storage_basis: match told.basis {
                Basis::DelayAccounting => "the kernel's delay accounting".to_owned(),
                Basis::SampledState => {
                    format!("sampled: the state of its threads (D) at {} looks", told.looks)
                }
            },
            queue_seconds: told.queued.map(seconds),
            bytes_read: told.bytes_read,
            device_bytes: told.device_bytes,
            observed: observed.to_owned(),
            processes: told.processes,
            processes_skipped: told.processes_skipped,
            records_lost: told.records_lost,
            looks: told.looks,
            looking_seconds: seconds(told.looking),
            prediction: forecast(told, prediction),
            files: told.files.iter().map(file).collect(),
            files_left_out: told.files_left_out,
        }
    }
}

fn forecast(told: &Explained, prediction: &Prediction) -> Forecast {
    let (gain, ran) = (seconds(prediction.gain), seconds(told.ran));
    Forecast {
        verdict: match prediction.why.gains() {
            Some(true) => "gain",
            Some(false) => "nothing",
            None => "unknown",
        },
        reason: prediction.why.name(),
        why: words::why(told, prediction),
        seconds: seconds(prediction.run),
        gain_seconds: gain,
        gain_share: gain / ran.max(f64::MIN_POSITIVE),
        gain_seconds_max: seconds(prediction.gain_max),
        limit_mb_per_second: prediction.limit.map(|limit| float(limit.bytes_per_second) / 1e6),
        limit_basis: prediction.limit.map(|l| if l.is_profile { "profile" } else { "run" }),
    }
}

fn file(told: &FileTold) -> ExplainedFile {
    let micros = |time: Nanos| time.0 / 1000;
    let moments = told.moments.iter().map(|moment| ReadMoment {
        from_us: micros(moment.from),
        to_us: micros(moment.to),
        offset: moment.offset,
        bytes: moment.bytes,
        waited: moment.waited,
    });
    ExplainedFile {
        path: told.path.to_string_lossy().into_owned(),
        device: format!("{}:{}", major(told.device), minor(told.device)),
        bytes: told.bytes,
        bytes_read: told.bytes_read,
        pattern: told.pattern().name(),
        mapped: told.is_mapped,
        sequential_share: ratio(told.bytes_of(Pattern::Sequential), told.bytes_read),
        storage_seconds: seconds(told.waited),
        start: told.start.map_or("unknown", warmth),
        start_share: told.start.map(|start| ratio(start.pages, start.pages_all)),
        start_basis: told.start.map(|start| if start.is_before { "before" } else { "opening" }),
        streams: told.streams.iter().map(stream).collect(),
        streams_left_out: told.streams_left_out,
        moments: moments.collect(),
        moments_left_out: told.moments_left_out,
    }
}

fn stream(told: &StreamTold) -> ExplainedStream {
    ExplainedStream {
        pattern: told.pattern.name(),
        bytes: told.bytes,
        offset: told.range.start,
        end: told.range.end,
        from_seconds: seconds(told.from),
        to_seconds: seconds(told.to),
        storage_seconds: seconds(told.waited),
    }
}

/// How much of a file was in memory, in a word.
fn warmth(start: Start) -> &'static str {
    let twentieth = start.pages_all / 20;
    match start.pages {
        pages if pages <= twentieth => "cold",
        pages if pages + twentieth >= start.pages_all => "warm",
        _ => "part",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_warm_or_cold_but_for_a_twentieth() {
        for (pages, expected) in
            [(0, "cold"), (5, "cold"), (6, "part"), (94, "part"), (95, "warm"), (100, "warm")]
        {
            assert_eq!(warmth(Start { pages, pages_all: 100, is_before: true }), expected);
        }
    }
}
