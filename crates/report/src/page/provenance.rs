//! How to repeat what the page shows: commit, machine, command line, settings, seed, repeats.
//!
//! # Invariants
//! - Every record has its own list; what a record does not say is left out, not made up.

use crate::html::escape;
use crate::quantity::{bytes, date};
use crate::record::RunRecord;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What is needed to run it again.
pub(super) fn provenance(records: &[RunRecord]) -> String {
    let mut text = String::from("<section>\n<h2>How to repeat it</h2>\n");
    for (number, record) in (1..).zip(records) {
        if records.len() > 1 {
            let _ = writeln!(text, "<h3>Record {number}</h3>");
        }
        text += "<dl>\n";
        let machine = &record.machine;
        let cores = if machine.cores == 1 { "core" } else { "cores" };
        let machine_in_words = format!(
            "{}, {} {cores}, {} of memory, {}",
            machine.cpu,
            machine.cores,
            bytes(machine.memory_bytes),
            machine.kernel
        );
        let counted = format!("{} counted after {} to warm up", record.repeats, record.warm_up);
        for (term, value, code) in [
            ("Command", record.command.join(" "), true),
            ("Commit", record.commit.clone(), true),
            ("Date", date(record.date), false),
            ("Machine", machine_in_words, false),
            ("Device", record.device.clone(), true),
            ("Repeats", counted, false),
            ("Seed", record.seed.to_string(), false),
            ("Settings", pairs(&record.settings), true),
            ("Parameters", params(record), true),
        ] {
            if value.is_empty() {
                continue;
            }
            let value = escape(&value);
            let value = if code { format!("<code>{value}</code>") } else { value };
            let _ = writeln!(text, "<dt>{term}</dt><dd>{value}</dd>");
        }
        text += "</dl>\n";
    }
    text + "</section>\n"
}

/// Each policy of the record that has parameters, with them.
fn params(record: &RunRecord) -> String {
    let mut all: Vec<String> = Vec::new();
    for run in record.runs.iter().filter(|run| !run.params.is_empty()) {
        let text = format!("{}: {}", run.readahead, pairs(&run.params));
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all.join("; ")
}

fn pairs(map: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = map.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(", ")
}
