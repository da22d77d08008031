//! The table at the end: medians, spreads, ratios, and whether targets are met.
//!
//! # Invariants
//! - A target is judged by the median of the ratios, at its bound too.

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use forerun_report::{Summary, Target, Verdict};
use serde_json::Value;

/// One figure of forerun beside a peer's.
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) peer: String,
    pub(crate) ours: Summary,
    pub(crate) theirs: Summary,
    /// forerun's to the peer's, round by round.
    pub(crate) ratio: Summary,
    pub(crate) target: Option<Target>,
    pub(crate) note: String,
}

impl Row {
    /// The samples of `ours` beside `theirs`, round by round.
    pub(crate) fn new(
        what: String,
        peer: &str,
        [ours, theirs]: [&[f64]; 2],
        target: Option<Target>,
        note: &str,
    ) -> Self {
        Self {
            what,
            peer: peer.to_owned(),
            ours: Summary::of(ours.iter().copied()),
            theirs: Summary::of(theirs.iter().copied()),
            ratio: Summary::of_ratios(ours, theirs),
            target,
            note: note.to_owned(),
        }
    }
}

/// The rows of `forerun bench hit --json`: each way against `pread` of as many threads.
pub(crate) fn of_hits(json: &Value) -> Result<Vec<Row>> {
    let runs = json["runs"].as_array().context("hits without runs")?;
    let field = |run: &Value, name: &str| {
        run[name].as_f64().with_context(|| format!("a hit without {name}"))
    };
    let spread = |run: &Value, names: [&str; 3]| -> Result<Summary> {
        let [median, min, max] = names.map(|name| field(run, name));
        Ok(Summary { median: median?, min: min?, max: max? })
    };
    let mut rows = Vec::new();
    for run in runs.iter().filter(|run| run["path"] != "pread") {
        let is_peer = |peer: &&Value| peer["path"] == "pread" && peer["threads"] == run["threads"];
        let peer = runs.iter().find(is_peer).context("hits without pread")?;
        let time = ["ns_per_hit", "min_ns", "max_ns"];
        let (path, threads) = (run["path"].as_str().unwrap_or("?"), &run["threads"]);
        rows.push(Row {
            what: format!("hit, {path}, {threads} threads: ns"),
            peer: "pread 4 KiB".to_owned(),
            ours: spread(run, time)?,
            theirs: spread(peer, time)?,
            ratio: spread(run, ["ratio_to_pread", "ratio_min", "ratio_max"])?,
            target: run["ratio_target"].as_f64().map(Target::AtMost),
            note: format!("cpu {:.0} ns", field(run, "cpu_ns_per_hit")?),
        });
    }
    ensure!(!rows.is_empty(), "hits of ours are missing");
    Ok(rows)
}

/// The commit that a record is of.
pub(crate) fn commit(record: &Value) -> String {
    format!("commit {}", record["commit"].as_str().unwrap_or("?"))
}

/// The machine that a record is of.
pub(crate) fn machine(record: &Value) -> String {
    let machine = &record["machine"];
    let word = |name: &str| machine[name].as_str().unwrap_or("?");
    format!("{}, {} cores, {}", word("cpu"), machine["cores"], word("kernel"))
}

/// The whole summary, as Markdown, for the machine of `record`.
pub(crate) fn text(
    record: &Value,
    file: &Path,
    file_system: &str,
    rounds: NonZeroUsize,
    rows: &[Row],
) -> String {
    let mut text = String::from("# The engine beside fio and the kernel\n\n");
    let lines = [
        commit(record),
        machine(record),
        format!("{} on {file_system}", file.display()),
        format!("{rounds} rounds, in turns; ratios are within a round: median (min to max)"),
    ];
    for line in lines {
        writeln!(text, "- {line}").expect("a string takes all");
    }
    text.push_str(&table(rows));
    text
}

/// The rows as a table.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    text.push_str("\n| what | forerun | peer | its figure | ratio | target | | |\n");
    text.push_str("|---|---|---|---|---|---|---|---|\n");
    for row in rows {
        let target = row.target.map_or(String::new(), |target| target.to_string());
        let is_met = match row.target.map(|target| target.judge(row.ratio.median)) {
            None => "",
            Some(Verdict::Met) => "met",
            Some(Verdict::Missed | Verdict::Noisy) => "**missed**",
        };
        let [ours, theirs, ratio] = [row.ours.show(1), row.theirs.show(1), row.ratio.show(3)];
        let (what, peer, note) = (&row.what, &row.peer, &row.note);
        writeln!(
            text,
            "| {what} | {ours} | {peer} | {theirs} | {ratio} | {target} | {is_met} | {note} |"
        )
        .expect("a string takes all");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hits_stand_beside_pread_of_as_many_threads() {
        let run = |path: &str, threads: u32, ns: f64| {
            json!({ "path": path, "threads": threads, "ns_per_hit": ns, "min_ns": ns,
                "max_ns": ns, "cpu_ns_per_hit": ns, "ratio_to_pread": ns / 100.0,
                "ratio_min": 0.1, "ratio_max": 2.0,
                "ratio_target": if path == "copy" { json!(1.0) } else { Value::Null } })
        };
        let runs = [
            run("pread", 1, 100.0),
            run("copy", 1, 50.0),
            run("pread", 2, 200.0),
            run("copy", 2, 300.0),
        ];
        let rows = of_hits(&json!({ "runs": runs })).unwrap();
        assert_eq!(rows.len(), 2);
        assert!((rows[1].theirs.median - 200.0).abs() < 1e-9);
        let rounds = NonZeroUsize::MIN;
        let text = text(&json!({}), Path::new("f"), "/dev/x ext4", rounds, &rows);
        assert!(text.contains("| 0.500 (0.100 to 2.000) | <= 1 | met |"), "{text}");
        assert!(text.contains("| **missed** |"), "{text}");
        assert!(of_hits(&json!({ "runs": [run("copy", 1, 1.0)] })).is_err());
    }
}
