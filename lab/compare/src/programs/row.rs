//! The record and the line of a program's runs in one way.
//!
//! # Invariants
//! - A ratio is of figures of the same round, or of the last one before with the program alone.

use forerun_report::Summary;
use forerun_report::quantity::float;
use serde_json::{Value, json};

use super::ProgramRun;
use super::cases::Program;
use super::floors;
use crate::device::Device;

/// Of a program alone and in one way under `run`.
pub(super) fn record(
    device: &Device,
    program: &Program,
    way: &[&str],
    [alone, ours]: [&[ProgramRun]; 2],
    [cached, limit, wanted]: [f64; 3],
) -> Value {
    let floor = floors::of(device.name, program.name);
    let seconds = |taken: &[ProgramRun]| taken.iter().map(|it| it.seconds).collect::<Vec<f64>>();
    let bytes =
        |taken: &[ProgramRun]| taken.iter().map(|it| float(it.bytes_read)).collect::<Vec<f64>>();
    let requests =
        |taken: &[ProgramRun]| taken.iter().map(|it| float(it.requests)).collect::<Vec<f64>>();
    let spread = |samples: &[f64]| json!(Summary::of(samples.iter().copied()));
    let (theirs, mine) = (seconds(alone), seconds(ours));
    let to_limit: Vec<f64> = mine.iter().map(|seconds| seconds / limit).collect();
    let gain = Summary::of_ratios(&as_many(&theirs, mine.len()), &mine);
    let more = Summary::of_ratios(&bytes(ours), &as_many(&bytes(alone), ours.len()));
    let middle = |samples: &[f64]| Summary::of(samples.iter().copied()).median;
    let floor = floor.map(|floor| floor.ratio(middle(&theirs), limit));
    let processor: Vec<f64> = ours
        .iter()
        .map(|it| it.stats["processor_seconds"].as_f64().unwrap_or(f64::NAN) / it.seconds)
        .collect();
    let lead = ours.iter().filter_map(|it| it.stats["distance_bytes_max"].as_u64()).max();
    json!({
        "device": device.name, "program": program.name, "flags": way.join(" "),
        "wanted_bytes": wanted, "cached_seconds": cached, "limit_seconds": limit,
        "alone_seconds": spread(&theirs), "run_seconds": spread(&mine),
        "gain": gain, "floor": floor, "bytes_ratio": more,
        "to_limit": spread(&to_limit),
        "alone_bytes": spread(&bytes(alone)), "run_bytes": spread(&bytes(ours)),
        "alone_requests": spread(&requests(alone)), "run_requests": spread(&requests(ours)),
        "processor_share": spread(&processor), "distance_bytes_max": lead,
        "status": ours[0].status,
    })
}

/// `samples`, the last of them again until there are `count`.
fn as_many(samples: &[f64], count: usize) -> Vec<f64> {
    let last = samples.last().copied().unwrap_or(f64::NAN);
    samples.iter().copied().chain(std::iter::repeat(last)).take(count).collect()
}

/// The line of a table.
pub(super) fn row(run: &Value) -> String {
    let float = |name: &str, part: &str| run[name][part].as_f64().unwrap_or(f64::NAN);
    let spread = |name: &str| {
        let [median, min, max] = ["median", "min", "max"].map(|part| float(name, part));
        format!("{median:.2} ({min:.2} to {max:.2})")
    };
    let plain = |name: &str| run[name].as_f64().unwrap_or(f64::NAN);
    let explained = &run["explained"];
    let measured = float("alone_seconds", "median") - float("run_seconds", "median");
    let gain = explained["gain_seconds"].as_f64();
    let gain = gain.map_or_else(|| "-".to_owned(), |gain| format!("{gain:.2}, {measured:.2}"));
    let floor = run["floor"].as_f64().map_or_else(|| "-".to_owned(), |it| format!("{it:.2}"));
    let flags = run["flags"].as_str().filter(|flags| !flags.is_empty());
    format!(
        "| {} | {}{} | {:.2} | {} | {} | {} | {floor} | {:.2} | {:.3} | {:.3} | {:.3} \
         | {:.0}, {:.0} | {:.1} % | {:.1} | {gain}{} |",
        run["device"].as_str().unwrap_or("?"),
        run["program"].as_str().unwrap_or("?"),
        flags.map(|flags| format!(" `{flags}`")).unwrap_or_default(),
        plain("limit_seconds"),
        spread("alone_seconds"),
        spread("run_seconds"),
        spread("gain"),
        float("to_limit", "median"),
        float("bytes_ratio", "median"),
        float("alone_bytes", "median") / plain("wanted_bytes"),
        float("run_bytes", "median") / plain("wanted_bytes"),
        float("alone_requests", "median"),
        float("run_requests", "median"),
        100.0 * float("processor_share", "median"),
        plain("distance_bytes_max") / f64::from(1 << 20),
        explained["reason"].as_str().map(|reason| format!(" ({reason})")).unwrap_or_default(),
    )
}

pub(super) const HEADER: &str = "\
| device | program | limit s | alone s | run s | alone / run | at least | run / limit \
| bytes: run / alone | alone: read / wanted | run: read / wanted | requests: alone, run \
| processor | lead MiB | gain s: explained, measured |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DEVICES;
    use crate::programs::cases::PROGRAMS;

    #[test]
    fn a_row_tells_the_gain_and_what_is_left_to_gain() {
        let taken = |seconds: f64, bytes_read| ProgramRun {
            seconds,
            bytes_read,
            requests: bytes_read / 10,
            printed: Vec::new(),
            status: Some(0),
            stats: json!({ "processor_seconds": 0.1, "distance_bytes_max": 3 << 20 }),
        };
        let (alone, ours) =
            ([taken(4.0, 1_000), taken(6.0, 1_000)], [taken(2.0, 1_050), taken(2.0, 1_050)]);
        let seconds_bytes = [1.0, 1.6, 1_000.0];
        let mut run = record(&DEVICES[2], &PROGRAMS[0], &[], [&alone, &ours], seconds_bytes);
        run["explained"] = json!({ "gain_seconds": 2.5, "reason": "waits" });
        let text = "| cloud | gzip | 1.60 | 5.00 (4.00 to 6.00) | 2.00 (2.00 to 2.00) \
                    | 2.50 (2.00 to 3.00) | - | 1.25 | 1.050 | 1.000 | 1.050 | 100, 105 | 5.0 % \
                    | 3.0 | 2.50, 3.00 (waits) |";
        assert_eq!(row(&run), text);
        let [once, ours] = [&alone[..1], &ours[..]];
        let run = record(&DEVICES[2], &PROGRAMS[0], &[], [once, ours], seconds_bytes);
        assert_eq!(run["gain"]["max"], 2.0, "both rounds beside the only one alone");
    }
}
