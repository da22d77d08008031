//! `forerun sim learned`: series of runs, with changes between them.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A recorded program, from the simulator's own data.
fn trace(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../lab/sim/tests/data/walks");
    folder.join(format!("{name}.jsonl.zst")).to_str().expect("a text").to_owned()
}

fn learned(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.args(["sim", "learned"]).args(args).stdin(Stdio::null());
    command.output().expect("the command runs")
}

/// The rows of a series.
fn rows(args: &[&str]) -> Vec<Value> {
    let output = learned(&[args, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut all: Value = serde_json::from_slice(&output.stdout).expect("one object");
    serde_json::from_value(all["runs"].take()).expect("a row a run")
}

fn part(row: &Value, name: &str) -> f64 {
    row[name].as_f64().expect("a number")
}

#[test]
fn a_list_brings_what_the_same_runs_use() {
    let [first, second, third] = &rows(&["--runs", "3", &trace("aside/import")])[..] else {
        panic!("three runs")
    };
    assert_eq!((part(first, "listed"), part(first, "recall")), (0.0, 0.0), "{first}");
    assert!(part(first, "listed_s") >= part(first, "alone_s"), "{first}");
    for row in [second, third] {
        assert!(part(row, "precision") > 0.95 && part(row, "recall") > 0.9, "{row}");
        assert!(part(row, "listed_s") < 1.1 * part(row, "known_s"), "{row}");
        assert_eq!(row["wasted_bytes"], 0, "{row}");
    }
}

#[test]
fn changes_cost_what_is_not_listed_and_are_learned() {
    let (import, other) = (&trace("aside/import")[..], &trace("aside/git-status")[..]);
    #[rustfmt::skip]
    let series: [(&[&str], &[usize], &[usize]); 3] = [ // steps, runs that gain, runs that do not
        // Other versions are fetched as those before.
        (&[import, "upgrade:site", import],                         &[1],    &[0]),
        // What is new is trusted once two of three runs have used it.
        (&[import, import, other, other, other],                    &[1, 4], &[0, 2, 3]),
        (&[import, import, "below:copy/2", import, import, import], &[1, 4], &[0, 2, 3]),
    ];
    for (steps, gains, gains_not) in series {
        let rows = rows(steps);
        assert_eq!(rows.len(), gains.len() + gains_not.len());
        for &at in gains {
            assert!(part(&rows[at], "recall") > 0.9, "{}", rows[at]);
            assert!(part(&rows[at], "listed_s") < 0.7 * part(&rows[at], "alone_s"), "{}", rows[at]);
        }
        for &at in gains_not {
            assert!(part(&rows[at], "recall") < 0.1, "{}", rows[at]);
            let most = 1.05 * part(&rows[at], "alone_s");
            assert!(part(&rows[at], "listed_s") <= most, "{}", rows[at]);
        }
    }
}

#[test]
fn a_table_tells_what_has_changed_and_bad_steps_are_refused() {
    let import = &trace("aside/import")[..];
    let output = learned(&[import, "upgrade:site", import, "--observer", "poll"]);
    let table = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("run  trace"), "{table}");
    assert!(lines[2].starts_with("2    import") && lines[2].ends_with("upgrade site"), "{table}");
    for (steps, why) in [
        (&[import, "upgrade:nothing", import][..], "no such folder in the tree"),
        (&[import, "upgrade:../x"], "below the top of the tree"),
        (&["below:"], "below the top of the tree"),
        (&["no-such-trace"], "cannot open no-such-trace"),
    ] {
        let output = learned(steps);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && errors.contains(why), "{steps:?}: {errors}");
    }
}
