//! `forerun bench reap`, end to end: what it prints, records and refuses. No figure is judged.

use std::fs;
use std::process::{Command, Output, Stdio};

use forerun_testkit::Scratch;
use serde_json::Value;

/// A folder for one test, empty.
fn folder(test: &str) -> Scratch {
    Scratch::on_disk(&format!("reap-{test}"))
}

fn forerun(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.args(words.split_whitespace()).stdin(Stdio::null());
    command.output().expect("it starts")
}

fn measured(words: &str) -> Value {
    let output = forerun(&format!("bench reap {words} --json"));
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON object")
}

fn runs(measured: &Value) -> &Vec<Value> {
    measured["runs"].as_array().expect("there are runs")
}

/// Whether the figures of a run can be.
fn check(run: &Value) {
    let figure = |name: &str| run[name].as_f64().unwrap_or_else(|| panic!("{name}: {run}"));
    let (p50, p99) = (figure("p50_us"), figure("p99_us"));
    assert!(0.0 < p50 && p50 <= p99, "{run}");
    assert!(figure("trimmed_mean_us") <= figure("mean_us") * 1.001, "{run}");
    assert!(figure("cpu_us_per_io") > 0.0 && figure("stdev_us") >= 0.0, "{run}");
    assert!((0.0..=1.0).contains(&figure("late_share")), "{run}");
    let count = |name: &str| run["counters"][name].as_u64().expect("a count");
    let reaped = count("reaped_interrupt") + count("reaped_spin") + count("reaped_sleep");
    assert_eq!(run["groups"].as_u64(), Some(reaped), "{run}");
}

#[test]
fn a_model_is_read_by_every_policy_at_every_size() {
    let measured = measured("--device sata --sizes 4K,64K --seconds 0.3 --repeats 2");
    assert_eq!(runs(&measured).len(), 2 * 5);
    for policy in ["interrupt", "spin", "half", "nio-paper", "nio"] {
        for size in [4_096, 65_536] {
            let is_it = |run: &&Value| run["policy"] == policy && run["size"] == size;
            let run = runs(&measured).iter().find(is_it).unwrap_or_else(|| panic!("{policy}"));
            check(run);
            assert_eq!((&run["group"], &run["load"]), (&1.into(), &"quiet".into()));
        }
    }
    assert!(measured["model"]["reads"].as_u64() > Some(0));
    assert!(measured["machine"][0].get("steal_share").is_some());
}

#[test]
fn groups_and_contention_have_their_runs() {
    let flags = "--policy interrupt,nio --seconds 0.2 --repeats 1";
    let grouped = measured(&format!("--device gen4 --sizes 4K,8K --group 64 {flags}"));
    assert_eq!(runs(&grouped).len(), 2);
    for run in runs(&grouped) {
        check(run);
        assert_eq!((&run["size"], &run["group"]), (&0.into(), &64.into()));
    }
    let contended = measured(&format!("--device gen4 --sizes 4K --load contended {flags}"));
    let seen: Vec<_> = runs(&contended).iter().map(|run| (&run["load"], &run["threads"])).collect();
    let hogs = (&Value::from("hogs"), &Value::from(1));
    let threads = (&Value::from("threads"), &Value::from(13));
    assert_eq!(seen, [hogs, hogs, threads, threads]);
    runs(&contended).iter().for_each(check);
}

#[test]
fn a_file_is_read_recorded_and_drawn() {
    let folder = folder("file");
    let (path, record) = (folder.join("data"), folder.join("run.json"));
    let page = folder.join("page.html");
    fs::write(&path, vec![7; 16 << 20]).expect("it can be written");
    let (file, to) = (path.display(), record.display());
    let words = format!("--file {file} --sizes 4K --seconds 0.1 --repeats 1 -o {to}");
    let tried = forerun(&format!("bench reap {words}"));
    if String::from_utf8_lossy(&tried.stderr).contains("past the page cache") {
        println!(
            "skipped: a_file_is_read_recorded_and_drawn: no direct reads in the build's folder"
        );
        return;
    }
    let table = String::from_utf8(tried.stdout).expect("text");
    for words in ["interrupt", "nio-paper", "discarded: the first of 2 rounds", "steal"] {
        assert!(table.contains(words), "{words}: {table}");
    }
    let read: Value = serde_json::from_slice(&fs::read(&record).unwrap()).expect("JSON");
    assert_eq!(read["runs"].as_array().map(Vec::len), Some(5));
    assert_eq!(read["runs"][0]["waits"]["quantiles_us"].as_array().map(Vec::len), Some(13));
    let drawn = forerun(&format!("report {to} -o {}", page.display()));
    assert!(drawn.status.success(), "{}", String::from_utf8_lossy(&drawn.stderr));
    let page = fs::read_to_string(page).expect("a page");
    assert_eq!(page.matches("<polyline").count(), 5);
    let threads = measured(&format!(
        "--file {file} --sizes 4K --io threads --policy interrupt,spin \
                                     --seconds 0.1 --repeats 1"
    ));
    let fallen = runs(&threads)[1]["fallen"].as_str().expect("it says so");
    assert!(fallen.contains("spin waits by interrupt"), "{fallen}");
}

#[test]
fn what_cannot_be_measured_is_refused_in_one_line() {
    let folder = folder("refused");
    let small = folder.join("small");
    fs::write(&small, [7; 8_192]).expect("it can be written");
    let (small, dir) = (small.display(), folder.display());
    #[rustfmt::skip]
    let rows = [ // words                                               status  says
        (String::new(),                                                     2, "--file"),
        ("--device floppy".into(),                                          2, "floppy"),
        (format!("--device gen4 --file {small}"),                           2, "--file"),
        ("--device gen4 --sizes 4K,1000".into(),                            2, "`1000`"),
        ("--device gen4 --sizes 2M".into(),                                 2, "`2M`"),
        ("--device gen4 --group 0".into(),                                  2, "--group"),
        ("--device gen4 --policy nio,never".into(),                         2, "never"),
        ("--device gen4 --policy nio:quantil=1".into(),                     2, "quantil"),
        ("--device gen4 --load heavy".into(),                               2, "heavy"),
        ("--device gen4 --repeats 0".into(),                                2, "--repeats"),
        (format!("--device gen4 -o {dir}/no/where"),                        1, "no such folder"),
        (format!("--file {dir}/missing"),                                   1, "No such file"),
        (format!("--file {dir}"),                                           1, "a directory"),
        (format!("--file {small} -o {small}"),                              2, "named twice"),
    ];
    for (words, status, says) in rows {
        let output = forerun(&format!("bench reap {words}"));
        let errors = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(status), "{words}: {errors}");
        assert!(errors.starts_with("forerun: ") && errors.contains(says), "{words}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{words}: {errors}");
    }
}
