//! What a process inherits, in every state that a caller may leave it in.

use std::fs;
use std::path::Path;

use forerun_testkit::{Scratch, compile_c};

use crate::table::{WAYS, Way, run};

/// The states of `probe.c`.
const STATES: &[&str] = &[
    "plain",
    "closed-0",
    "closed-1",
    "closed-2",
    "closed-01",
    "closed-02",
    "closed-12",
    "closed-012",
    "pipe-ignored",
    "children-ignored",
    "all-ignored",
    "all-handled",
    "all-blocked",
    "few-descriptors",
    "fewest-descriptors",
    "many-descriptors",
    "small-stack",
    "no-core",
    "no-locks",
    "nice",
    "batch",
    "one-processor",
    "slack",
    "io-priority",
    "umask",
    "no-new-privileges",
    "parent-death",
    "subreaper",
    "no-huge-pages",
    "persona",
    "oom",
    "alarm",
    "session",
    "group",
    "descriptors",
    "no-variables",
    "odd-variables",
    "no-folder",
    "small-files",
    "pending-alarm",
    "pending-child",
    "pending-user",
    "batch-of-one",
    "real-time-of-one",
];

#[test]
fn a_program_inherits_what_it_inherits_alone() {
    let test = "a_program_inherits_what_it_inherits_alone";
    let scratch = Scratch::new("probe");
    let source = scratch.file("probe.c", include_str!("probe.c"));
    let probe = scratch.join("probe");
    let Some(()) = compile_c(test, &source, &[], &probe) else { return };
    let probe = probe.display().to_string();
    let mut differences = Vec::new();
    for state in STATES {
        // The folder of `no-folder` is gone, so the probe writes to a fixed place.
        let seen = scratch.join("seen");
        let words: Vec<String> =
            [&probe, "show", seen.to_str().expect("ASCII")].map(str::to_owned).to_vec();
        let before: Vec<String> = [&probe, "as", state].map(str::to_owned).to_vec();
        let run_as = |way: Way| {
            let mut done = run(&scratch, way, &before, &words);
            let shown = fs::read(&seen).unwrap_or_default();
            let _ = fs::remove_file(&seen);
            done.files.insert("seen".into(), String::from_utf8_lossy(&shown).into_owned());
            done
        };
        let alone = run_as(Way::Alone);
        let is_whole =
            alone.status == Some(7) && alone.files[Path::new("seen")].contains("children:");
        assert!(is_whole, "{state}: the probe works alone: {alone:?}");
        for way in &WAYS[1..] {
            let found = run_as(*way).differences(&alone);
            let table = if found.is_empty() { "equal" } else { "DIFFERS" };
            println!("{state:20} {:12} {table}", format!("{way:?}").to_lowercase());
            differences.extend(found.into_iter().map(|what| format!("{state}, {way:?}: {what}")));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
