//! The sample of mutants, and what became of them.

use super::{Tally, configuration, files_of, sample, written_out};

#[test]
fn a_sample_depends_on_its_seed_alone_and_keeps_the_order() {
    let all: Vec<String> = (100..200).map(|n| n.to_string()).collect();
    let first = sample(&all, 30, 1);
    assert_eq!(first, sample(&all, 30, 1));
    assert_ne!(first, sample(&all, 30, 2));
    assert_eq!(first.len(), 30);
    assert!(first.is_sorted_by(|a, b| a < b), "no mutant twice: {first:?}");
    assert_eq!(sample(&all, 1_000, 1).len(), 100);
    assert!(sample(&[], 5, 1).is_empty());
}

#[test]
fn every_mutant_is_drawn_about_equally_often() {
    let all: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    let mut drawn = [0; 10];
    for seed in 0..1_000 {
        for name in sample(&all, 3, seed) {
            drawn[name.parse::<usize>().unwrap()] += 1;
        }
    }
    assert!(drawn.iter().all(|times| (250..=350).contains(times)), "{drawn:?}");
}

#[test]
fn files_of_a_sample_are_named_once() {
    let names = ["b.rs:1:2: x", "a.rs:3:4: y", "b.rs:9:9: z"];
    assert!(files_of(&names).into_iter().eq(["a.rs", "b.rs"]));
}

#[test]
fn a_configuration_names_its_mutants_exactly() {
    let config = configuration(&["a.rs:1:5: replace f -> Vec<(u8)> with [\"x\"]"]);
    let line = r#"    "^a\\.rs:1:5: replace f \\-> Vec<\\(u8\\)> with \\[\"x\"\\]$""#;
    assert_eq!(config, format!("examine_re = [\n{line}\n]\n"));
}

#[test]
fn modules_of_a_list_are_written_out() {
    let text = "macro_rules! policies {\n $(pub mod $module;)+\n}\n\n\
                policies! {\n    fifo::Fifo,\n    two_q::TwoQ,\n}\n";
    let out = written_out(text).unwrap();
    assert!(out.ends_with("pub mod fifo;\npub mod two_q;\n"), "{out}");
    assert!(!out.contains("$(pub mod"));
    assert!(written_out("no macro here").is_err());
}

#[test]
fn timeouts_count_as_caught_and_unviable_ones_not_at_all() {
    let outcome = |name: &str, summary: &str| {
        let scenario = serde_json::json!({ "Mutant": { "name": name } });
        serde_json::json!({ "scenario": scenario, "summary": summary })
    };
    let mut outcomes = vec![serde_json::json!({ "scenario": "Baseline", "summary": "Success" })];
    outcomes.extend((0..17).map(|_| outcome("c", "CaughtMutant")));
    outcomes.push(outcome("t", "Timeout"));
    outcomes.push(outcome("u", "Unviable"));
    outcomes.push(outcome("z", "MissedMutant"));
    outcomes.push(outcome("a", "MissedMutant"));
    outcomes.push(outcome("not drawn", "MissedMutant"));
    let tally = Tally::of(&serde_json::json!({ "outcomes": outcomes }), &["a", "c", "t", "u", "z"])
        .unwrap();
    assert_eq!(tally.total(), 21);
    assert_eq!(tally.ratio(), (18, 20));
    assert!(tally.passes());
    assert_eq!(tally.missed, ["a", "z"]);
    let text = tally.to_string();
    assert!(text.contains("18 of 20 caught: 90.0 %"), "{text}");
    assert!(!Tally { caught: 16, ..tally }.passes());
    assert!(!Tally::default().passes(), "nothing was judged");
    let strange = serde_json::json!({ "outcomes": [outcome("x", "Failure")] });
    assert!(Tally::of(&strange, &["x"]).is_err());
}
