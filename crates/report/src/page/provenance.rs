//! The steps to repeat a record: commit, machine, command line, settings, seed, repeats.
//!
//! # Invariants
//! - Every record has its own list; missing values are left out.

use crate::html::Text;
use crate::plain;
use crate::quantity::{bytes, date};
use crate::record::RunRecord;
use maud::{Markup, html};
use std::collections::BTreeMap;

/// The values to run it again.
pub(super) fn provenance(records: &[RunRecord]) -> Markup {
    html! {
        section {
            h2 { "How to repeat it" }
            @for (number, record) in (1..).zip(records) {
                @if records.len() > 1 { h3 { "Record " (number) } }
                dl { (repeat(record)) }
            }
        }
    }
}

/// One record's list.
fn repeat(record: &RunRecord) -> Markup {
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
    let terms = [
        ("Command", plain::command(&record.command), true),
        ("Commit", record.commit.clone(), true),
        ("Date", date(record.date), false),
        ("Machine", machine_in_words, false),
        ("Device", record.device.clone(), true),
        ("Repeats", counted, false),
        ("Seed", record.seed.to_string(), false),
        ("Settings", pairs(&record.settings), true),
        ("Parameters", params(record), true),
    ];
    html! {
        @for (term, value, code) in terms.iter().filter(|(_, value, _)| !value.is_empty()) {
            dt { (term) }
            dd { @if *code { code { (Text(value)) } } @else { (Text(value)) } }
        }
    }
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
