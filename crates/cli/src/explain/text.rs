//! An explanation as text: the lines on stderr, the sentence that says what `run` would gain.
//!
//! # Invariants
//! - An inferred figure says from what.
//! - Only a program without any gain has "nothing to gain".

use std::path::Path;

use forerun_console::output;
use forerun_core::device::DeviceKind;
use forerun_core::device::waits::WaitEstimate;
use forerun_core::units::Nanos;
use forerun_report::quantity::{
    bytes, bytes_of, calls_not_observed, counted, counted_lines, percent, seconds, time, time_of,
};
use forerun_report::{
    ExplainedCauses, ExplainedDirectory, ExplainedFile, ExplainedTrap, ExplainedWalk, Explanation,
    Forecast, run_command,
};
use forerun_steer::explain::{Cause, DeviceLimit, FileSummary, Prediction, ProgramSummary, Why};

use crate::run::not_observed;

/// The lines on stderr.
pub(super) fn lines(explanation: &Explanation) -> Vec<String> {
    let queue = explanation
        .queue_seconds
        .map_or_else(String::new, |queue| format!(", {} for a processor", time(queue)));
    let mut lines = vec![
        format!(
            "{}: {} computing, {} waiting for storage{queue}",
            time(explanation.seconds),
            time(explanation.processor_seconds),
            time_of(explanation.storage_seconds, explanation.seconds)
        ),
        format!("waiting for storage is {}", explanation.storage_basis),
        format!(
            "observed to read {}; {} came from devices; {}",
            bytes(explanation.bytes_read),
            bytes(explanation.device_bytes),
            counted(explanation.processes, "process", "processes")
        ),
    ];
    lines.extend(not_observed(explanation.processes_skipped, explanation.records_lost));
    lines.extend(calls_left_out(explanation));
    let waits = explanation.causes.named().into_iter().filter(|&(_, waited)| waited >= SHOWN_MIN);
    let waits: Vec<String> =
        waits.map(|(name, waited)| format!("{name} {}", time(waited))).collect();
    if !waits.is_empty() {
        lines.push(format!("it waited in: {}", waits.join(", ")));
    }
    lines.extend(trees(explanation));
    lines.extend(table(&explanation.files));
    let more = (explanation.files.len() as u64).saturating_sub(FILES_MAX as u64)
        + explanation.files_left_out;
    if more > 0 {
        lines.push(format!("and {}", counted(more, "more file", "more files")));
    }
    lines.push(explanation.prediction.why.clone());
    lines.extend(explanation.notes.iter().cloned());
    lines
}

/// What is to be said beside the verdict.
pub(super) fn notes(explanation: &Explanation) -> Vec<String> {
    [beyond(explanation), busy(explanation), learned(explanation)].into_iter().flatten().collect()
}

/// A program that waits for a processor waits for storage meanwhile, which then costs it nothing.
fn busy(explanation: &Explanation) -> Option<String> {
    let queue = explanation.queue_seconds?;
    let is_told = explanation.device_bytes >= UNSEEN_MIN && queue > explanation.seconds / 4.0;
    is_told.then(|| {
        format!(
            "it waited {} for a processor, which hides waits for storage: on a machine with less \
             to do there may be more to gain",
            time(queue)
        )
    })
}

/// What came from devices beyond the reads that were observed: a verdict is not on it.
fn beyond(explanation: &Explanation) -> Option<String> {
    let &Explanation { device_bytes, bytes_read, .. } = explanation;
    let beyond = device_bytes.saturating_sub(bytes_read);
    let is_told = explanation.prediction.reason == Why::NotSeen.name();
    if is_told || beyond < UNSEEN_MIN || beyond <= bytes_read / 10 {
        return None;
    }
    let (beyond, all) = (bytes_of(beyond, device_bytes), bytes(device_bytes));
    let what = "directories, inodes, programs, the kernel's own readahead, reads at positions";
    let walks = explanation.walks.as_deref().unwrap_or_default();
    // Small files are read by walks, whose waits the verdict has.
    let are_walks = walks.iter().any(|walk| walk.storage_seconds >= SHOWN_MIN);
    let (small, verdict) = if are_walks {
        ("small files, ", ": of these the verdict has what walks come to")
    } else {
        ("", ", and in no verdict")
    };
    let is_told = !explanation.is_preload() && (!are_walks || reads_elsewhere(explanation));
    let preload = "; `--observe preload` sees read calls that are not seen from outside";
    let preload = if is_told { preload } else { "" };
    Some(format!(
        "of {all} from devices, {beyond} are beyond the reads that were observed ({small}{what})\
         {verdict}{preload}"
    ))
}

/// Whether the program waited in reads that are of no walk and no observed file, or may have.
fn reads_elsewhere(explanation: &Explanation) -> bool {
    let ExplainedCauses { read_seconds: read, other_seconds: other, .. } = explanation.causes;
    let unknown = if explanation.calls_refused > 0 { other } else { 0.0 };
    let walks = explanation.walks.iter().flatten();
    let walks = walks.map(|walk| walk.causes.read_seconds).sum::<f64>();
    let files = explanation.files.iter().map(|file| file.storage_seconds).sum::<f64>();
    read + unknown - walks - files >= ELSEWHERE_MIN.max(explanation.seconds / 50.0)
}

/// What a learned list would gain at the next start, where that is more.
fn learned(explanation: &Explanation) -> Option<String> {
    let forecast = &explanation.prediction;
    let ran = explanation.seconds;
    let Forecast { learned_seconds: run, learned_gain_seconds_max: most, .. } = *forecast;
    let command = run_command(explanation.is_preload());
    let words =
        format!("once it has run under `{command}`, which learns what it reads, the next start");
    if forecast.learned_gain_seconds > forecast.gain_seconds + SHOWN_MIN {
        return Some(format!("{words} would take about {} instead of {}", time(run), time(ran)));
    }
    let is_more = most > forecast.gain_seconds_max + SHOWN_MIN;
    is_more.then(|| format!("{words} would gain up to {} of {}", time(most), time(ran)))
}

/// What could not be observed of calls.
fn calls_left_out(explanation: &Explanation) -> Vec<String> {
    let &Explanation { calls_refused, calls_foreign, entries_left_out, .. } = explanation;
    let mut lines = counted_lines(calls_not_observed(calls_refused, calls_foreign));
    let left_out = "too many to look for walks in them";
    lines.extend(counted_lines([(entries_left_out, "call was", "calls were", left_out)]));
    if explanation.walks.is_none() {
        lines.push("no walks were looked for: file systems did not answer in time".to_owned());
    }
    lines
}

/// What a walk would gain: at most, where that is all that is known.
fn gain(walk: &ExplainedWalk) -> String {
    if walk.gain_is_a_bound() {
        return format!("up to {}", time(walk.gain_seconds_max));
    }
    time(walk.gain_seconds)
}

/// Walks, the directories that were waited for most, and traps of file systems.
fn trees(explanation: &Explanation) -> Vec<String> {
    let mut lines = Vec::new();
    let walks = explanation.walks.as_deref().unwrap_or_default();
    let shown = walks.iter().filter(|walk| walk.storage_seconds >= SHOWN_MIN).take(ROWS_MAX);
    let rows: Vec<Vec<String>> = shown
        .map(|walk| {
            vec![
                walk.directory.clone(),
                walk.order.clone(),
                walk.entries.to_string(),
                walk.predicted.to_string(),
                time(walk.storage_seconds),
                most(&walk.causes),
                gain(walk),
            ]
        })
        .collect();
    if !rows.is_empty() {
        let header = ["walk", "order", "entries", "predicted", "waited", "most in", "gain"];
        lines.extend(output::table(&header, &rows, 2).lines().map(str::to_owned));
        let more = walks.len() as u64 - rows.len() as u64 + explanation.walks_left_out;
        let words = || format!("and {}", counted(more, "more walk", "more walks"));
        lines.extend((more > 0).then(words));
    }
    let long = |row: &&ExplainedDirectory| row.storage_seconds >= SHOWN_MIN;
    let rows: Vec<Vec<String>> = explanation
        .directories
        .iter()
        .filter(long)
        .take(DIRECTORIES_MAX)
        .map(|row| {
            let waited = time(row.storage_seconds);
            vec![row.path.clone(), row.calls.to_string(), waited, most(&row.causes)]
        })
        .collect();
    if !rows.is_empty() {
        let header = ["directory", "waits seen", "waited", "most in"];
        lines.extend(output::table(&header, &rows, 1).lines().map(str::to_owned));
    }
    let trap = |trap: &ExplainedTrap| {
        format!("{}: {} ({} waited there)", trap.path, trap.why, time(trap.storage_seconds))
    };
    lines.extend(explanation.traps.iter().map(trap));
    lines
}

/// The cause of most of the time.
fn most(causes: &ExplainedCauses) -> String {
    let most = causes.named().into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
    most.map_or_else(String::new, |(name, _)| name.to_owned())
}

fn table(files: &[ExplainedFile]) -> Vec<String> {
    if files.is_empty() {
        return Vec::new();
    }
    let header = ["file", "pattern", "at first", "read", "in order", "streams", "waited"];
    let rows: Vec<Vec<String>> = files.iter().take(FILES_MAX).map(row).collect();
    output::table(&header, &rows, 3).lines().map(str::to_owned).collect()
}

fn row(file: &ExplainedFile) -> Vec<String> {
    let mapped = if file.mapped { "mapped, " } else { "" };
    vec![
        file.path.clone(),
        format!("{mapped}{}", file.pattern),
        file.start.to_owned(),
        bytes(file.bytes_read),
        percent(file.sequential_share),
        (file.streams.len() as u64 + file.streams_left_out).to_string(),
        time(file.storage_seconds),
    ]
}

/// What `run` would gain, and why.
pub(super) fn why(summary: &ProgramSummary, prediction: &Prediction, is_preload: bool) -> String {
    let ran = seconds(summary.ran);
    let [waited, run, most] =
        [summary.waited, prediction.run, prediction.gain_max].map(|it| time(seconds(it)));
    let share = percent(seconds(prediction.gain) / ran.max(f64::MIN_POSITIVE));
    let limit = device(summary, prediction);
    let command = run_command(is_preload);
    match prediction.why {
        Why::ReadsNothing => {
            "nothing to gain: it was not observed to read a file of 256 KiB or more, nor to wait \
             for others"
                .to_owned()
        }
        Why::InMemory => "nothing to gain: what it read was in memory".to_owned(),
        Why::Computes => {
            format!("nothing to gain: it waited for storage for {waited} of {}", time(ran))
        }
        Why::Unpredictable => {
            format!(
                "nothing to gain by `{command}`: it waited {waited}, for reads that cannot \
                 be predicted; {WARM}"
            )
        }
        Why::NotSeen => not_seen(summary, is_preload),
        Why::TooShort => {
            format!("nothing to gain: {waited} of waiting are about what `run` itself costs")
        }
        Why::DeviceBusy => format!(
            "nothing to gain by `{command}`: {limit}, and {} take it as long as the program ran; \
             {WARM}",
            bytes(summary.device_bytes)
        ),
        Why::Waits if prediction.is_bound() => {
            let least = time(seconds(summary.ran.since(prediction.gain_max)));
            format!(
                "`{command}` would take {run} at most instead of {}, at least {share} less, \
                 and {least} at best, if the device can serve many requests at a time: it waits \
                 for {}; {limit}",
                time(ran),
                what(summary)
            )
        }
        Why::Waits => format!(
            "`{command}` would take about {run} instead of {}, {share} less: it waits for \
             {}, and {limit}",
            time(ran),
            what(summary)
        ),
        Why::Unknown => format!(
            "`{command}` would gain up to {most} of {} if the device can serve many requests at \
             a time, or nothing if it cannot: it waits for {}; {limit}",
            time(ran),
            what(summary)
        ),
    }
}

/// What is known of the device, and how to know more.
fn device(summary: &ProgramSummary, prediction: &Prediction) -> String {
    let limit = prediction.limit.map(|limit| (limit.bytes_per_second / 1_000_000, limit));
    if let Some((mb, DeviceLimit { is_profile: true, .. })) = limit {
        return format!("the device delivers {mb} MB/s (by its profile)");
    }
    let answers = summary.answers.map(|WaitEstimate { latency, kind }| {
        let is_parallel = kind == Some(DeviceKind::Parallel);
        let kind =
            if is_parallel { ", which no disk does: it is likely to serve many" } else { "" };
        format!("took about {} for a request{kind}", time(seconds(latency)))
    });
    // Of lookups the rate says nothing.
    let rate = limit.filter(|&(mb, _)| mb > 0 && !is_of_trees(summary));
    let rate = rate.map(|(mb, _)| format!("delivered {mb} MB/s in its best quarter of a second"));
    let seen: Vec<String> = [answers, rate].into_iter().flatten().collect();
    let seen = match &seen[..] {
        [] => "what the device can do".to_owned(),
        seen => {
            let seen = seen.join(" and ");
            format!("in this run the device {seen}; what it can do beyond that")
        }
    };
    let file = match (to_profile(summary), super::waited_most(summary)) {
        (Some(path), _) => format!("{}`", path.display()),
        (None, Some((_, path))) => {
            let path = path.display();
            format!("FILE`, of any file of 16 MiB or more on the file system of {path},")
        }
        (None, None) => "FILE`, of a file of 16 MiB or more there,".to_owned(),
    };
    format!("{seen} is not known: `forerun profile {file} measures it")
}

/// A file on the device that was waited for most, large enough to be measured by.
pub(super) fn to_profile(summary: &ProgramSummary) -> Option<&Path> {
    let (device, _) = super::waited_most(summary)?;
    let is_fit =
        |file: &&FileSummary| file.device == device && file.bytes >= crate::profile::BYTES_MIN;
    summary.files.iter().find(is_fit).map(|file| &*file.path)
}

/// How much of what a program read was not observed, and what can be done.
fn not_seen(summary: &ProgramSummary, is_preload: bool) -> String {
    let unseen = summary.device_bytes.saturating_sub(summary.bytes_read);
    let [unseen, all] = [unseen, summary.device_bytes].map(bytes);
    let remedy = if summary.causes.of(Cause::Fault) > summary.causes.of(Cause::Read) {
        "they came by page faults, of programs and of files that were not opened to be looked at: \
         `forerun warm PATHS` fetches the files as a whole before, and what `forerun run` learns \
         serves the next start"
    } else if is_preload {
        "no observer sees reads of static programs that move no position, nor io_uring; \
         `forerun warm PATHS` fetches the files as a whole before"
    } else {
        "`forerun explain --observe preload` sees each read call that goes through the C library, \
         `forerun run --observe preload` fetches ahead by them, and `forerun warm PATHS` fetches \
         the files as a whole before"
    };
    format!("no verdict: {unseen} of the {all} that came from devices were not observed: {remedy}")
}

/// What the program waits for that `run` fetches ahead.
fn what(summary: &ProgramSummary) -> &'static str {
    let (trees, streams) = predictable(summary);
    match (is_of_trees(summary), streams.0 / 10 > trees.0) {
        (true, _) => "files and directories that its walks come to",
        (_, true) => "predictable reads",
        _ => "predictable reads and for what its walks come to",
    }
}

/// Whether walks spare nearly all that there is to spare.
fn is_of_trees(summary: &ProgramSummary) -> bool {
    let (trees, streams) = predictable(summary);
    trees.0 / 10 > streams.0
}

/// The waits that walks spare, and those before predictable reads.
fn predictable(summary: &ProgramSummary) -> (Nanos, Nanos) {
    let trees = summary.trees.as_ref().map_or(Nanos(0), |trees| trees.spared);
    let streams = summary.files.iter().flat_map(|file| &file.streams);
    let streams: u64 = streams.filter(|it| it.pattern.is_predictable()).map(|it| it.waited.0).sum();
    (trees, Nanos(streams))
}

/// The remedy for waits that reading ahead does not shorten.
const WARM: &str = "`forerun warm PATHS` fetches the files as a whole before, where there is time";
/// Less of what came from devices needs no word: programs are loaded from them, too.
const UNSEEN_MIN: u64 = 1 << 20;
/// Files in the text; JSON and the page have more.
const FILES_MAX: usize = 20;
/// Walks, and directories.
const ROWS_MAX: usize = 10;
const DIRECTORIES_MAX: usize = 5;
/// Shorter waits are not in the text, in seconds.
const SHOWN_MIN: f64 = 0.001;
/// Shorter waits in reads elsewhere are not looked for.
const ELSEWHERE_MIN: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;
    use forerun_report::PRELOAD;

    /// A program of 6.42 s that waited for nearly all of it, without or with a profile.
    fn sentence(answers: Option<(u64, bool)>, gains: [u64; 2], limit: DeviceLimit) -> String {
        let millis = Nanos::from_millis;
        let mut summary = ProgramSummary::default();
        (summary.ran, summary.waited) = (millis(6_420), millis(6_222));
        summary.answers = answers.map(|(ms, is_parallel)| WaitEstimate {
            latency: millis(ms),
            kind: is_parallel.then_some(DeviceKind::Parallel),
        });
        let [gain, gain_max] = gains.map(millis);
        let run = summary.ran.since(gain);
        let why = if gain == Nanos(0) { Why::Unknown } else { Why::Waits };
        let prediction = Prediction { run, gain, gain_max, limit: Some(limit), why };
        super::why(&summary, &prediction, false)
    }

    #[test]
    fn a_lower_bound_is_called_one_with_the_way_to_know_more() {
        let limit = |is_profile| DeviceLimit { bytes_per_second: 13_000_000, is_profile };
        let measure = "`forerun profile FILE`, of a file of 16 MiB or more there, measures it";
        #[rustfmt::skip]
        let rows = [ // answers in ms, gains, by a profile, what is said, what is not
            (None, [1_284, 6_150], false,
                "5.14 s at most instead of 6.42 s, at least 20 % less, and 270 ms at best",
                "about"),
            (None, [1_284, 6_150], false, "delivered 13 MB/s in its best quarter", "took"),
            (None, [1_284, 6_150], false, measure, "by its profile"),
            (Some((45, true)), [1_284, 6_150], false,
                "took about 45.0 ms for a request, which no disk does", "about 5"),
            (Some((2, false)), [0, 6_150], false,
                "would gain up to 6.15 s of 6.42 s if the device can serve many", "no disk"),
            (Some((2, false)), [0, 6_150], false, measure, "no disk"),
            (Some((45, true)), [6_000, 6_000], true,
                "would take about 420 ms instead of 6.42 s, 93 % less", "at least"),
            (Some((45, true)), [6_000, 6_000], true, "13 MB/s (by its profile)", "forerun profile"),
        ];
        for (answers, gains, is_profile, said, unsaid) in rows {
            let text = sentence(answers, gains, limit(is_profile));
            assert!(text.contains(said), "{said:?} is missing: {text}");
            assert!(!text.contains(unsaid), "{unsaid:?} is said: {text}");
        }
    }

    /// A file of `bytes` that was waited for.
    fn file(path: &str, device: u64, bytes: u64, waited: Nanos) -> FileSummary {
        FileSummary {
            path: path.into(),
            device,
            bytes,
            bytes_read: 0,
            is_mapped: false,
            waited,
            residency: None,
            streams: Vec::new(),
            streams_left_out: 0,
            samples: Vec::new(),
            samples_left_out: 0,
        }
    }

    #[test]
    fn what_is_beyond_the_reads_is_in_the_verdict_where_walks_come_to_it() {
        let walk =
            |seconds: f64| ExplainedWalk { storage_seconds: seconds, ..ExplainedWalk::default() };
        let shim = "`--observe preload` sees read calls";
        #[rustfmt::skip]
        let rows = [ // walks, seconds in reads, told, not told
            (vec![],          0.0, "and in no verdict; `--observe preload`", "walks come to"),
            (vec![walk(0.0)], 0.0, "and in no verdict; `--observe preload`", "walks come to"),
            (vec![walk(1.0)], 0.0, "the verdict has what walks come to",     "preload"),
            (vec![walk(1.0)], 0.5, shim,                                     "in no verdict"),
        ];
        for (walks, read_seconds, told, untold) in rows {
            let explanation = Explanation {
                device_bytes: 7 << 20,
                bytes_read: 1 << 20,
                observer: "proc".to_owned(),
                causes: ExplainedCauses { read_seconds, ..ExplainedCauses::default() },
                walks: Some(walks),
                ..Explanation::default()
            };
            let text = beyond(&explanation).expect("more came from devices");
            assert!(text.contains("6 MiB (86 %)"), "{text}");
            assert!(text.contains(told) && !text.contains(untold), "{text}");
            let seen = Explanation { observer: PRELOAD.to_owned(), ..explanation };
            assert!(!beyond(&seen).expect("the same").contains("preload"));
        }
    }

    #[test]
    fn the_remedy_is_the_command_that_sees_what_was_observed() {
        let millis = Nanos::from_millis;
        let mut summary = ProgramSummary::default();
        summary.ran = millis(900);
        let limit = Some(DeviceLimit { bytes_per_second: 1, is_profile: true });
        for why in [Why::Waits, Why::Unknown, Why::Unpredictable, Why::DeviceBusy] {
            let (gain, gain_max) = (millis(500), millis(500));
            let prediction = Prediction { run: millis(400), gain, gain_max, limit, why };
            let by = |is_preload| super::why(&summary, &prediction, is_preload);
            assert!(by(false).contains("`forerun run`"), "{}", by(false));
            assert!(by(true).contains("`forerun run --observe preload`"), "{}", by(true));
        }
    }

    #[test]
    fn the_file_to_profile_lies_on_the_device_that_was_waited_for() {
        let library = || file("/lib/large.so", 1, 32 << 20, Nanos(0));
        let entries = || Some((2, "/slow/headers".into()));
        let any = "`forerun profile FILE`, of any file of 16 MiB or more on the file system of";
        #[rustfmt::skip]
        let rows = [ // files, where entries were waited for, told
            (vec![library()], None, "`forerun profile /lib/large.so` measures".to_owned()),
            (vec![library()], entries(), format!("{any} /slow/headers, measures")),
            (vec![file("/slow/a", 2, 4_096, Nanos(9)), library()], None,
                format!("{any} /slow/a, measures")),
            (vec![file("/slow/a", 2, 4_096, Nanos(9)), file("/slow/b", 2, 16 << 20, Nanos(0))],
                entries(), "`forerun profile /slow/b` measures".to_owned()),
        ];
        for (files, entries_on, told) in rows {
            let mut summary = ProgramSummary::default();
            (summary.files, summary.entries_on) = (files, entries_on);
            let limit = Some(DeviceLimit { bytes_per_second: 1, is_profile: false });
            let prediction = Prediction {
                run: Nanos(0),
                gain: Nanos(0),
                gain_max: Nanos(0),
                limit,
                why: Why::Unknown,
            };
            let text = device(&summary, &prediction);
            assert!(text.contains(&told), "{told:?} is missing: {text}");
        }
    }
}
