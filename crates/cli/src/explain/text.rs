//! An explanation as text: the lines on stderr, the sentence that says what `run` would gain.
//!
//! # Invariants
//! - An inferred figure says from what.
//! - Only a program without any gain has "nothing to gain".

use forerun_console::output;
use forerun_report::quantity::{bytes_as_option, seconds};
use forerun_report::{ExplainedFile, Explanation};
use forerun_steer::explain::{Prediction, ProgramSummary, Why};

use crate::run::not_observed;

/// The lines on stderr.
pub(super) fn lines(explanation: &Explanation) -> Vec<String> {
    let queue = explanation
        .queue_seconds
        .map_or_else(String::new, |queue| format!(", {queue:.3} s for a processor"));
    let mut lines = vec![
        format!(
            "{:.3} s: {:.3} s computing, {:.3} s waiting for storage{queue}",
            explanation.seconds, explanation.processor_seconds, explanation.storage_seconds
        ),
        format!("waiting for storage is {}", explanation.storage_basis),
        format!(
            "observed to read {}; {} came from devices; {} processes",
            bytes_as_option(explanation.bytes_read),
            bytes_as_option(explanation.device_bytes),
            explanation.processes
        ),
    ];
    lines.extend(not_observed(explanation.processes_skipped, explanation.records_lost));
    lines.extend(table(&explanation.files));
    let more = (explanation.files.len() as u64).saturating_sub(FILES_MAX as u64)
        + explanation.files_left_out;
    if more > 0 {
        lines.push(format!("and {more} more files"));
    }
    lines.push(explanation.prediction.why.clone());
    lines
}

fn table(files: &[ExplainedFile]) -> Vec<String> {
    if files.is_empty() {
        return Vec::new();
    }
    let header = ["file", "pattern", "at first", "read", "in order", "streams", "waited s"];
    let rows: Vec<Vec<String>> = files.iter().take(FILES_MAX).map(row).collect();
    output::table(&header, &rows, 3).lines().map(str::to_owned).collect()
}

fn row(file: &ExplainedFile) -> Vec<String> {
    let mapped = if file.mapped { "mapped, " } else { "" };
    vec![
        file.path.clone(),
        format!("{mapped}{}", file.pattern),
        file.start.to_owned(),
        bytes_as_option(file.bytes_read),
        format!("{:.0} %", 100.0 * file.sequential_share),
        (file.streams.len() as u64 + file.streams_left_out).to_string(),
        format!("{:.3}", file.storage_seconds),
    ]
}

/// What `run` would gain, and why.
pub(super) fn why(summary: &ProgramSummary, prediction: &Prediction) -> String {
    let (ran, waited) = (seconds(summary.ran), seconds(summary.waited));
    let (run, most) = (seconds(prediction.run), seconds(prediction.gain_max));
    let share = 100.0 * seconds(prediction.gain) / ran.max(f64::MIN_POSITIVE);
    let limit = prediction.limit.map_or_else(String::new, |limit| {
        let mb = limit.bytes_per_second / 1_000_000;
        let basis = if limit.is_profile {
            "by its profile"
        } else {
            "at least, the best quarter of a second of this run; `forerun profile` measures it"
        };
        format!("the device delivers {mb} MB/s ({basis})")
    });
    match prediction.why {
        Why::ReadsNothing => {
            "nothing to gain: it was not observed to read a file of 256 KiB or more".to_owned()
        }
        Why::InMemory => "nothing to gain: what it read was in memory".to_owned(),
        Why::Computes => {
            format!("nothing to gain: it waited for storage for {waited:.3} s of {ran:.3} s")
        }
        Why::Unpredictable => {
            format!("nothing to gain: it waited {waited:.3} s, for reads that cannot be predicted")
        }
        Why::TooShort => {
            format!("nothing to gain: {waited:.3} s of waiting are about what `run` itself costs")
        }
        Why::DeviceBusy => format!(
            "nothing to gain: {limit}, and {} take it as long as the program ran",
            bytes_as_option(summary.device_bytes)
        ),
        Why::Waits => {
            let bound = if prediction.gain_max > prediction.gain {
                format!(", up to {most:.3} s less if the device can do more")
            } else {
                String::new()
            };
            format!(
                "`forerun run` would take about {run:.3} s instead of {ran:.3} s, {share:.0} % less\
                 {bound}: it waits for predictable reads, and {limit}"
            )
        }
        Why::Unknown => {
            let limit = if limit.is_empty() {
                "what the device delivers is not known: `forerun profile` measures it".to_owned()
            } else {
                limit
            };
            format!(
                "`forerun run` would gain up to {most:.3} s of {ran:.3} s, or nothing if the \
                 device gave what it can: {limit}"
            )
        }
    }
}

/// Files in the text; JSON and the page have more.
const FILES_MAX: usize = 20;
