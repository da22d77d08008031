//! `forerun sim --partition`, as a user runs it: traces together through one partitioned cache.

use serde_json::Value;
use std::process::{Command, Output, Stdio};

use forerun_testkit::Scratch;

fn sim(folder: &Scratch, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.arg("sim").args(args).current_dir(folder.join("")).stdin(Stdio::null());
    command.output().expect("the command runs")
}

fn runs(folder: &Scratch, args: &[&str]) -> Vec<Value> {
    let output = sim(folder, &[args, &["--json"]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    printed["runs"].as_array().expect("rows").clone()
}

const MAIL: &str = "workload:mail,requests=20000";

#[test]
fn a_cache_of_one_partition_counts_what_replacement_alone_does() {
    let folder = Scratch::new("partitions-alone");
    let line = [MAIL, "--policy", "lru,2q,2q-star,arc,lirs", "--size", "500,4000,20000"];
    let (alone, together) =
        (runs(&folder, &line), runs(&folder, &[&line[..], &["--together"]].concat()));
    let counted = |runs: &[Value]| -> Vec<String> {
        let counts = |run: &Value| {
            format!(
                "{} {} {} {}",
                run["policy"], run["cache_pages"], run["accesses"], run["misses"]
            )
        };
        runs.iter().map(counts).collect()
    };
    assert_eq!(alone.len(), 15);
    assert_eq!(counted(&alone), counted(&together));
}

#[test]
fn traces_share_a_cache_by_their_rules() {
    let folder = Scratch::new("partitions-shared");
    // A loop that fits its part, and a scan.
    let lines = |pages: Vec<u32>| pages.iter().map(u32::to_string).collect::<Vec<_>>().join("\n");
    folder.file("loop.txt", lines((0..30).flat_map(|_| 0..100).collect()));
    folder.file("scan.txt", lines((0..6_000).collect()));
    let line = ["loop.txt", "scan.txt", "--format", "keys", "--size", "150", "--policy", "lru"];
    let shared = &runs(&folder, &[&line[..], &["--together"]].concat())[0];
    assert_eq!(
        (&shared["accesses"], &shared["misses"]),
        (&9_000.into(), &9_000.into()),
        "{shared}"
    );
    let own = ["--partition", "own=100:lru:file=loop.*"];
    let apart = &runs(&folder, &[&line[..], &own].concat())[0];
    let part = |at: usize, key: &str| apart["partitions"][at][key].clone();
    assert_eq!((part(0, "name"), part(0, "pages")), ("rest".into(), 50.into()));
    assert_eq!((part(1, "accesses"), part(1, "misses")), (3_000.into(), 100.into()));
    assert_eq!(apart["traces"][1]["misses"], 6_000);
    assert_eq!(apart["misses"], 6_100);
    // Pages of both files from 5000 on: only the scan has some.
    let range = ["--partition", "far=40:fifo:offset=20000K.."];
    let ranged = &runs(&folder, &[&line[..], &range].concat())[0];
    assert_eq!(ranged["partitions"][1]["accesses"], 1_000);
    let table = sim(&folder, &[&line[..], &own].concat());
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    for title in ["partition", "file=loop.*", "scan.txt"] {
        assert!(table.contains(title), "{table}");
    }
}

#[test]
fn sizing_moves_pages_from_a_scan_to_a_loop_and_tells_why() {
    let folder = Scratch::new("partitions-sized");
    let lines = |pages: Vec<u32>| pages.iter().map(u32::to_string).collect::<Vec<_>>().join("\n");
    folder.file("loop.txt", lines((0..60).flat_map(|_| 0..100).collect()));
    folder.file("scan.txt", lines((0..6_000).collect()));
    let line = ["loop.txt", "scan.txt", "--format", "keys", "--size", "150", "--policy", "lru"];
    let own = ["--partition", "scan=100,min=20:lru:file=scan.*"];
    let run = |sizing: &str| {
        let words = [&line[..], &own, &["--sizing", sizing]].concat();
        (runs(&folder, &words).remove(0), sim(&folder, &words))
    };
    let (off, (auto, table)) = (run("manual").0, run("auto"));
    assert_eq!((&off["misses"], &off["sizing"]), (&12_000.into(), &Value::Null));
    let part = |at: usize, key: &str| auto["partitions"][at][key].as_u64().expect(key);
    assert!(part(0, "pages") >= 100 && part(1, "pages") >= 20, "{auto}");
    assert_eq!((part(0, "pages") + part(1, "pages"), part(1, "pages_min")), (150, 20));
    assert!(auto["misses"].as_u64() < Some(9_000), "{auto}");
    let sizing = &auto["sizing"];
    assert_eq!(sizing["pages"].as_u64(), Some(part(0, "pages") - 50));
    let first = &sizing["moves"][0];
    assert_eq!((&first["from"], &first["to"]), (&"scan".into(), &"rest".into()), "{first}");
    assert_eq!(first["reason"], "gain");
    let expected = |key: &str| first[key].as_f64().expect(key);
    let gains = expected("expected_hit_ratio_after") - expected("expected_hit_ratio_before");
    assert!(gains > 0.05, "{first}");
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("its last moves") && table.contains("gain"), "{table}");
    // The scan is what no partition takes.
    let own = ["--partition", "loop=50:lru:file=loop.*", "--sizing", "auto"];
    for (least, kept) in [("10", 10..45), ("45", 45..50)] {
        let words = [&line[..], &own, &["--rest-min", least]].concat();
        let rest = &runs(&folder, &words)[0]["partitions"][0];
        let pages = rest["pages"].as_u64().expect("pages");
        assert!(rest["pages_min"] == kept.start && kept.contains(&pages), "{rest}");
    }
    let alone = sim(&folder, &[&line[..], &["--sizing", "auto"]].concat());
    assert_eq!(alone.status.code(), Some(2), "sizes of one partition cannot change");
}

#[test]
fn what_is_wrong_with_a_partition_is_said_in_one_line() {
    let folder = Scratch::new("partitions-refused");
    folder.file("a.txt", "1\n2\n3\n");
    #[rustfmt::skip]
    let rows: [(&[&str], &str); 11] = [
        (&["own"],                                    "expected NAME=SIZE[,min"),
        (&["own=2:lru"],                              "expected NAME=SIZE[,min"),
        (&["own=2:lru:offset=4K"],                    "expected offset=A..B, file=PATTERN"),
        (&["own=x:lru:file=*"],                       "expected pages (1000)"),
        (&["own=2:lur:file=*"],                       "the nearest is `lru`"),
        (&["own=2:lru+off:file=*"],                   "leave out the readahead"),
        (&["own=2:lru:file=*", "own=2:lru:file=*"],   "two partitions are named `own`"),
        (&["rest=2:lru:file=*"],                      "`rest` is the partition of what"),
        (&["own=2,4:lru:file=*"],                     "expected NAME=SIZE[,min=SIZE]"),
        (&["own=2,min=x:lru:file=*"],                 "expected pages (1000)"),
        (&["own=11:lru:file=*"],                      "the partitions want 11 frames"),
    ];
    for (partitions, says) in rows {
        let flags: Vec<&str> = partitions.iter().flat_map(|text| ["--partition", *text]).collect();
        let line = ["a.txt", "--format", "keys", "--size", "10"];
        let output = sim(&folder, &[&line[..], &flags].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{partitions:?}: {error}");
        assert!(error.contains(says) && error.trim().lines().count() == 1, "{error}");
    }
    let both = sim(&folder, &["a.txt", "--together", "--device", "hdd"]);
    assert_eq!(both.status.code(), Some(2));
}
