//! The record and the line of a program's runs in one way.
//!
//! # Invariants
//! - A ratio is the median of the ratios of rounds; a median stands with its extremes.

use forerun_report::Summary;
use forerun_report::quantity::float;
use serde_json::{Value, json};

/// One run of a program.
pub(super) struct Taken {
    pub(super) seconds: f64,
    pub(super) bytes: u64,
    /// Of the device.
    pub(super) requests: u64,
    pub(super) printed: Vec<u8>,
    /// The statistics of `forerun run`.
    pub(super) stats: Value,
}

/// Of the device, program and way in `names`.
pub(super) fn record(names: [&str; 3], alone: &[Taken], ours: &[Taken]) -> Value {
    let of = |taken: &[Taken], figure: &dyn Fn(&Taken) -> f64| {
        taken.iter().map(figure).collect::<Vec<f64>>()
    };
    let spread = |samples: &[f64]| json!(Summary::of(samples.iter().copied()));
    let seconds = |taken: &[Taken]| of(taken, &|it| it.seconds);
    let bytes = |taken: &[Taken]| of(taken, &|it| float(it.bytes));
    let learned =
        |name: &'static str| of(ours, &|it| it.stats["learned"][name].as_f64().unwrap_or(f64::NAN));
    let more = of(ours, &|it| it.stats["processor_seconds"].as_f64().unwrap_or(f64::NAN));
    let share: Vec<f64> = more.iter().zip(ours).map(|(it, run)| it / run.seconds).collect();
    let [device, program, way] = names;
    json!({
        "device": device, "program": program, "way": way,
        "seconds": spread(&seconds(ours)), "bytes": spread(&bytes(ours)),
        "requests": spread(&of(ours, &|it| float(it.requests))),
        "gain": Summary::of_ratios(&seconds(alone), &seconds(ours)),
        "bytes_ratio": Summary::of_ratios(&bytes(ours), &bytes(alone)),
        "processor_share": spread(&share),
        "requested": spread(&learned("requested")),
        "used": spread(&learned("used")),
        "wasted_bytes": spread(&learned("wasted_bytes")),
        "trouble": ours.iter().find_map(|it| {
            it.stats["learned"]["trouble"].as_str().filter(|why| !why.is_empty())
        }),
    })
}

/// The line of a table.
pub(super) fn row(run: &Value) -> String {
    let part = |name: &str, part: &str| run[name][part].as_f64();
    let median = |name: &str, digits: usize, unit: f64| {
        let value = part(name, "median").filter(|it| it.is_finite());
        value.map_or_else(|| "-".to_owned(), |it| format!("{:.*}", digits, it * unit))
    };
    let [middle, least, most] =
        ["median", "min", "max"].map(|of| part("seconds", of).unwrap_or(f64::NAN));
    let text = |name: &str| run[name].as_str().unwrap_or("?").to_owned();
    format!(
        "| {} | {} | {} | {middle:.3} ({least:.3} to {most:.3}) \
         | {} | {} | {} | {} | {} | {} | {} |{}",
        text("device"),
        text("program"),
        text("way"),
        median("gain", 3, 1.0),
        median("requests", 0, 1.0),
        median("bytes_ratio", 3, 1.0),
        median("processor_share", 1, 100.0),
        median("requested", 0, 1.0),
        median("used", 0, 1.0),
        median("wasted_bytes", 2, 1e-6),
        run["trouble"].as_str().map(|why| format!(" {why} |")).unwrap_or_default(),
    )
}

pub(super) const HEADER: &str = "\
| device | program | way | seconds | alone / way | requests | bytes / alone \
| forerun's processor % | entries requested | used | wasted MB |
|---|---|---|---|---|---|---|---|---|---|---|";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_compares_with_the_program_alone_round_by_round() {
        let taken = |seconds, bytes, stats| {
            let printed = Vec::new();
            Taken { seconds, bytes, requests: 7, printed, stats }
        };
        let stats = json!({
            "processor_seconds": 0.1,
            "learned": { "requested": 9, "used": 8, "wasted_bytes": 2_500_000, "trouble": "" },
        });
        let alone = [taken(4.0, 1_000, Value::Null), taken(6.0, 1_000, Value::Null)];
        let ours = [taken(2.0, 1_050, stats.clone()), taken(2.0, 1_050, stats)];
        assert_eq!(
            row(&record(["cloud", "git", "later"], &alone, &ours)),
            "| cloud | git | later | 2.000 (2.000 to 2.000) \
             | 2.500 | 7 | 1.050 | 5.0 | 9 | 8 | 2.50 |"
        );
        assert_eq!(
            row(&record(["cloud", "git", "alone"], &alone, &alone)),
            "| cloud | git | alone | 5.000 (4.000 to 6.000) | 1.000 | 7 | 1.000 | - | - | - | - |"
        );
    }
}
