//! `forerun explain`: what a program reads, where it waits, and what prefetching would gain.
//!
//! ```text
//!   program --steer::explain--> ProgramSummary --predict (profile or run)--> Explanation
//!                                                           text on stderr | JSON | a page
//! ```
//! # Invariants
//! - The exit status is the program's, as of `run`.
//! - stdout is the program's. With `--json` it holds one object, and the program writes to stderr.
//! - Bad usage is refused before the program is started.

mod text;
mod trees;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use forerun_console::failure::{is_closed, note};
use forerun_console::form::{Form, Kind};
use forerun_console::profile::flag;
use forerun_console::profile::place::Place;
use forerun_console::{machine, output};
use forerun_core::device::DeviceKind;
use forerun_core::units::Nanos;
use forerun_report::quantity::{float, ratio, seconds};
use forerun_report::{
    ExplainedFile, ExplainedStream, Explanation, Forecast, PRELOAD, ReadMoment, page, remove_parts,
};
use forerun_steer::explain::{
    self, Cause, DeviceFacts, FileSummary, InitialResidency, Pattern, Prediction, ProgramSummary,
    SmallReads, StreamSummary, WaitBasis,
};
use forerun_steer::{SessionError, end_as, end_late, within};
use rustix::fs::{major, minor};

use crate::run::{ObserveFlag, given_up};

/// The flags.
#[derive(Clone, clap::Args)]
#[command(after_help = "Examples:\n  forerun explain -- gzip -3k backup.tar\n  \
                  forerun explain --json -o page.html -- python3 load_model.py")]
pub(crate) struct Args {
    /// In all but text, what the program writes on stdout goes to stderr
    #[command(flatten)]
    form: Form,
    /// A page that shows what was read when; .json, .ndjson or .csv: the same as data
    #[arg(short, long, value_name = "PAGE.html")]
    output: Option<PathBuf>,
    /// How the program's reads are observed: by /proc, or also by a shim that it loads
    #[arg(long, value_name = "HOW", default_value = "auto")]
    observe: ObserveFlag,
    /// The device's profile, from a file of `forerun profile`
    /// [default: ~/.config/forerun/devices.toml, if it is there]
    #[arg(long, value_name = "FILE.toml")]
    profile: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    words: Vec<OsString>,
}

/// Runs the program, reports what it did, and returns its exit status.
pub(crate) fn run(args: &Args) -> Result<u8> {
    let kind = args.observe.kind()?;
    if let Some(path) = &args.output {
        if Kind::of(path).is_none() {
            output::require_page_name(path)?;
        }
        output::require_lasting(path)?;
    }
    if let Some(path) = &args.profile {
        flag::require(path)?;
    }
    // This process leaves its folder to the program.
    let args = &Args {
        output: args.output.as_deref().map(output::absolute),
        profile: args.profile.as_deref().map(output::absolute),
        ..args.clone()
    };
    let is_data = !args.form.is_text();
    let errors = is_data.then(|| io::stderr().as_fd().try_clone_to_owned()).transpose()?;
    let mut summary = match explain::explain(&kind, &args.words, errors) {
        Ok(summary) => summary,
        Err(SessionError::Start(error)) => {
            note(&error.to_string());
            return Ok(error.status());
        }
        Err(error) => return Err(error.into()),
    };
    end_late(remove_parts);
    for line in summary.bug.iter().cloned().chain(given_up(summary.calls_given_up)) {
        note(&line);
    }
    let profile = args.limit(&summary);
    summary.look_for_walks(profile);
    let [prediction, learned] =
        [explain::predict(&summary, profile), explain::predict_learned(&summary, profile)];
    let explanation = args.explanation(&summary, &prediction, &learned);
    // The exit status is the program's, whatever becomes of the report.
    if let Err(error) = args.report(&explanation)
        && !is_closed(&error)
    {
        note(&format!("{error:#}"));
    }
    Ok(end_as(summary.status, summary.key))
}

/// The device with the files and directories that the program waited for most, and a path on it.
fn waited_most(summary: &ProgramSummary) -> Option<(u64, &Path)> {
    let mut waits: BTreeMap<u64, (Nanos, u64, &Path)> = BTreeMap::new();
    for file in &summary.files {
        let of = waits.entry(file.device).or_insert((Nanos(0), 0, &file.path));
        (of.0, of.1) = (of.0 + file.waited, of.1 + file.bytes_read);
    }
    if let Some((device, path)) = &summary.entries_on {
        let calls = [Cause::Open, Cause::Stat, Cause::List].map(|it| summary.causes.of(it).0);
        waits.entry(*device).or_insert((Nanos(0), 0, path)).0 += Nanos(calls.iter().sum());
    }
    let most = waits.into_iter().max_by_key(|&(_, (waited, bytes, _))| (waited, bytes));
    most.map(|(device, (_, _, path))| (device, path))
}

impl Args {
    /// The profile of the device that the program waited for most.
    fn limit(&self, summary: &ProgramSummary) -> Option<DeviceFacts> {
        let (_, path) = waited_most(summary)?;
        // A file system that does not answer keeps no report waiting.
        let answer = within(PLACE_WITHIN, || match self.profiled(path) {
            Ok(facts) => facts.map_or_else(String::new, |facts| as_text(&facts)).into_bytes(),
            Err(error) => format!("{error:#}").into_bytes(),
        });
        let answer = String::from_utf8(answer?).ok()?;
        let facts = of_text(&answer);
        if facts.is_none() && !answer.is_empty() {
            note(&answer);
        }
        facts
    }

    /// The profile of the device that the file `path` lies on.
    fn profiled(&self, path: &Path) -> Result<Option<DeviceFacts>> {
        // The file may be gone by now.
        let Ok(place) = Place::of(path) else { return Ok(None) };
        let known = flag::known(self.profile.as_deref(), &place)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate")]
        let small = |rates: [f64; 2]| rates.map(|rate| rate as u64);
        Ok(known.map(|known| DeviceFacts {
            bytes_per_second: known.facts.bytes_per_second,
            small: known.small.map(small).map(|[best, alone]| {
                let seeks = known.facts.kind == DeviceKind::SeekBound;
                SmallReads { best, alone, seeks }
            }),
        }))
    }

    /// Prints the explanation, whatever becomes of the file.
    fn report(&self, explanation: &Explanation) -> Result<()> {
        let written = self.write(explanation);
        if !self.form.is_text() {
            return written.and(self.form.print(explanation, ROWS, String::new));
        }
        for line in text::lines(explanation) {
            note(&line);
        }
        written
    }

    /// Writes the file that `-o` names.
    fn write(&self, explanation: &Explanation) -> Result<()> {
        let Some(path) = &self.output else { return Ok(()) };
        let shown = match Kind::of(path) {
            Some(kind) => kind.show(explanation, ROWS, || text::lines(explanation).join("\n"))?,
            None => page::explained(explanation, &machine::machine(), machine::date()),
        };
        output::file(path, shown.as_bytes())
    }

    fn explanation(
        &self,
        summary: &ProgramSummary,
        prediction: &Prediction,
        learned: &Prediction,
    ) -> Explanation {
        let observer = match self.observe {
            ObserveFlag::Auto | ObserveFlag::Proc => "proc",
            ObserveFlag::Preload => PRELOAD,
        };
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        let tables = summary.trees.clone().unwrap_or_default();
        let mut explanation = Explanation {
            command: self.words.iter().map(text).collect(),
            status: summary.status,
            seconds: seconds(summary.ran),
            processor_seconds: seconds(summary.processor),
            storage_seconds: seconds(summary.waited),
            storage_basis: match summary.basis {
                WaitBasis::DelayAccounting => "the kernel's delay accounting".to_owned(),
                WaitBasis::SampledState => {
                    format!("sampled: the state of its threads (D) at {} polls", summary.polls)
                }
            },
            queue_seconds: summary.queued.map(seconds),
            bytes_read: summary.bytes_read,
            device_bytes: summary.device_bytes,
            observer: observer.to_owned(),
            processes: summary.processes,
            processes_skipped: summary.processes_skipped,
            records_lost: summary.records_lost,
            polls: summary.polls,
            polling_seconds: seconds(summary.polling),
            calls_refused: summary.calls_refused,
            calls_foreign: summary.calls_foreign,
            causes: trees::causes(&summary.causes),
            entries_met: summary.entries_met,
            entries_left_out: summary.entries_left_out,
            walks: summary.trees.as_ref().map(|it| trees::walks(summary, it, prediction)),
            walks_left_out: tables.walks_left_out,
            directories: tables.directories.iter().map(trees::directory).collect(),
            directories_left_out: tables.directories_left_out,
            traps: tables.traps.iter().map(trees::trap).collect(),
            prediction: forecast(summary, prediction, learned, observer == PRELOAD),
            notes: Vec::new(),
            files: summary.files.iter().map(file).collect(),
            files_left_out: summary.files_left_out,
        };
        explanation.notes = text::notes(&explanation);
        explanation
    }
}

/// `facts` from one process to another: four numbers, the last three of which may be missing.
fn as_text(facts: &DeviceFacts) -> String {
    let small = facts
        .small
        .map(|SmallReads { best, alone, seeks }| format!("{best} {alone} {}", u8::from(seeks)));
    format!("{} {}", facts.bytes_per_second, small.unwrap_or_default())
}

/// See [`as_text`]; `None` of anything else.
fn of_text(text: &str) -> Option<DeviceFacts> {
    let numbers: Option<Vec<u64>> =
        text.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
    match numbers?[..] {
        [bytes_per_second] => Some(DeviceFacts { bytes_per_second, small: None }),
        [bytes_per_second, best, alone, seeks] => {
            let small = Some(SmallReads { best, alone, seeks: seeks != 0 });
            Some(DeviceFacts { bytes_per_second, small })
        }
        _ => None,
    }
}

fn forecast(
    summary: &ProgramSummary,
    prediction: &Prediction,
    learned: &Prediction,
    is_preload: bool,
) -> Forecast {
    let (gain, ran) = (seconds(prediction.gain), seconds(summary.ran));
    Forecast {
        verdict: match prediction.why.gains() {
            Some(true) => "gain",
            Some(false) => "nothing",
            None => "unknown",
        },
        reason: prediction.why.name(),
        why: text::why(summary, prediction, is_preload),
        seconds: seconds(prediction.run),
        gain_seconds: gain,
        gain_share: gain / ran.max(f64::MIN_POSITIVE),
        gain_is_lower_bound: prediction.is_bound(),
        gain_seconds_max: seconds(prediction.gain_max),
        answer_seconds: summary.answers.map(|answers| seconds(answers.latency)),
        profile_path: text::to_profile(summary).map(|path| path.display().to_string()),
        learned_seconds: seconds(learned.run),
        learned_gain_seconds: seconds(learned.gain),
        learned_gain_seconds_max: seconds(learned.gain_max),
        limit_mb_per_second: prediction.limit.map(|limit| float(limit.bytes_per_second) / 1e6),
        limit_basis: prediction.limit.map(|l| if l.is_profile { "profile" } else { "run" }),
    }
}

fn file(summary: &FileSummary) -> ExplainedFile {
    let micros = |time: Nanos| time.0 / 1000;
    let moments = summary.samples.iter().map(|sample| ReadMoment {
        from_us: micros(sample.from),
        to_us: micros(sample.to),
        offset: sample.offset,
        bytes: sample.bytes,
        waited_us: micros(sample.waited),
    });
    ExplainedFile {
        path: summary.path.to_string_lossy().into_owned(),
        device: format!("{}:{}", major(summary.device), minor(summary.device)),
        bytes: summary.bytes,
        bytes_read: summary.bytes_read,
        pattern: summary.pattern().name(),
        mapped: summary.is_mapped,
        sequential_share: ratio(summary.bytes_of(Pattern::Sequential), summary.bytes_read),
        storage_seconds: seconds(summary.waited),
        start: summary.residency.map_or("unknown", warmth),
        start_share: summary.residency.map(|start| ratio(start.pages, start.pages_all)),
        start_basis: summary
            .residency
            .map(|start| if start.is_before { "before" } else { "opening" }),
        streams: summary.streams.iter().map(stream).collect(),
        streams_left_out: summary.streams_left_out,
        moments: moments.collect(),
        moments_left_out: summary.samples_left_out,
    }
}

fn stream(summary: &StreamSummary) -> ExplainedStream {
    ExplainedStream {
        pattern: summary.pattern.name(),
        bytes: summary.bytes,
        offset: summary.range.start,
        end: summary.range.end,
        from_seconds: seconds(summary.from),
        to_seconds: seconds(summary.to),
        storage_seconds: seconds(summary.waited),
    }
}

/// The residency of a file, as a word.
fn warmth(start: InitialResidency) -> &'static str {
    let twentieth = start.pages_all / 20;
    match start.pages {
        pages if pages <= twentieth => "cold",
        pages if pages + twentieth >= start.pages_all => "warm",
        _ => "part",
    }
}

/// The rows of an explanation: a file each.
const ROWS: &[&str] = &["files"];
const PLACE_WITHIN: Nanos = Nanos::from_millis(1_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_warm_or_cold_but_for_a_twentieth() {
        for (pages, expected) in
            [(0, "cold"), (5, "cold"), (6, "part"), (94, "part"), (95, "warm"), (100, "warm")]
        {
            assert_eq!(
                warmth(InitialResidency { pages, pages_all: 100, is_before: true }),
                expected
            );
        }
    }
}
