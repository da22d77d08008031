//! The built command, as a user meets it: what it prints, what it refuses, how it ends.
//!
//! # Invariants
//! - Every refusal is one line on stderr that begins with `forerun: `, and the right status.
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use forerun_testkit::Scratch;

use crate::signals::interrupted;

fn forerun(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.args(args).stdin(Stdio::null());
    command
}

struct Ended {
    status: Option<i32>,
    out: String,
    err: String,
}

fn ended(output: Output) -> Ended {
    let text = |bytes| String::from_utf8(bytes).expect("the command prints text");
    let (out, err) = (text(output.stdout), text(output.stderr));
    Ended { status: output.status.code(), out, err }
}

fn run(args: &[&str]) -> Ended {
    ended(forerun(args).output().expect("the command runs"))
}

fn done(args: &[&str]) -> String {
    let Ended { status, out, err } = run(args);
    assert_eq!(status, Some(0), "{args:?}: {err}");
    out
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&done(args)).expect("stdout is one JSON object")
}

/// A folder of one test, whose paths are text.
struct Folder(Scratch);

impl Folder {
    fn new(test: &str) -> Self {
        Self(Scratch::new(&format!("cli-{test}")))
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.0.join(name), bytes).expect("the folder takes a file");
        self.path(name)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("temporary names are text").to_owned()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the folder is there");
        entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }
}

const QUICK: &str = "workload:streams,n=2,each=1M";

#[test]
fn a_device_run_has_every_field_and_its_counts_add_up() {
    let value = json(&["sim", QUICK, "--device", "t7k250", "--json"]);
    let runs = value["runs"].as_array().expect("a list");
    let [run] = runs.as_slice() else { panic!("{runs:?}") };
    assert_eq!(run["trace"], QUICK);
    assert_eq!(run["policy"], "lru");
    assert!(run["params"].as_object().expect("an object").is_empty());
    assert_eq!((&run["cache_pages"], &run["accesses"]), (&524_288.into(), &512.into()));
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value}: {run}"));
    assert!(number(&run["seconds"]) > 0.0 && number(&run["accesses_per_second"]) > 0.0);
    let (ahead, device) = (&run["readahead"], &run["device"]);
    assert_eq!((&ahead["name"], &ahead["params"]["max"]), (&"streams".into(), &"0".into()));
    let parts = number(&ahead["used"]) + number(&ahead["wasted"]);
    assert!(number(&ahead["fetched"]) >= parts && parts > 400.0, "{ahead}");
    let resident = number(&run["misses"]) + number(&ahead["late"]);
    assert!((number(&run["hit_ratio"]) - (512.0 - resident) / 512.0).abs() < 1e-9, "{run}");
    let seconds = number(&device["seconds"]);
    assert!((number(&device["mb_per_second"]) - 512.0 * 4096.0 / seconds / 1e6).abs() < 1e-6);
    assert!(number(&device["requests"]) * number(&device["mean_request_bytes"]) > 2e6);
    let delay = number(&device["delay_seconds"]);
    assert!(0.0 < delay && delay <= number(&device["delay_total_seconds"]) && delay < seconds);
    assert_eq!(device["bytes_wanted"], 2 << 20);
    assert!(number(&device["bytes_read"]) >= number(&device["bytes_wanted"]));
    assert!(number(&device["p50_us"]) <= number(&device["p99_us"]));
    assert_eq!((number(&device["reads_late"]), number(&device["late_max_us"])), (0.0, 0.0));
    assert!(device.get("limit_mb_per_second").is_none(), "it was not asked for");
}

#[test]
fn what_perfect_readahead_reaches_is_told_where_streams_are_known() {
    let words = ["sim", QUICK, "--device", "t7k250", "--readahead", "off,linux-6"];
    let limited = [&words[..], &["--online-limit"]].concat();
    let both = json(&[&limited[..], &["--json"]].concat());
    let plain = json(&[&words[..], &["--json"]].concat());
    for index in 0..2 {
        let (device, without) = (&both["runs"][index]["device"], &plain["runs"][index]["device"]);
        assert_eq!(device["mb_per_second"], without["mb_per_second"]);
        let number = |name: &str| device[name].as_f64().expect(name);
        let ratio = number("mb_per_second") / number("limit_mb_per_second");
        assert!(ratio > 0.0 && ratio <= 1.0 && (ratio - number("ratio_to_limit")).abs() < 1e-9);
        assert_eq!(device["limit_mb_per_second"], both["runs"][0]["device"]["limit_mb_per_second"]);
    }
    let lasts = |out: &str| out.lines().next().expect("a header").ends_with("limit");
    assert!(lasts(&done(&limited)) && !lasts(&done(&words)));
    let random = "workload:random,file=16M,bytes=64K";
    let unknown = json(&["sim", random, "--device", "hdd", "--online-limit", "--json"]);
    assert!(unknown["runs"][0]["device"].get("limit_mb_per_second").is_none(), "{unknown}");
    assert_eq!(run(&["sim", QUICK, "--online-limit"]).status, Some(2), "without a device");
}

#[test]
fn the_drive_cache_and_the_host_change_a_run_and_their_defaults_do_not() {
    let seconds = |more: &[&str]| {
        let args = [&["sim", QUICK, "--device", "t7k250", "--json"], more].concat();
        json(&args)["runs"][0]["device"]["seconds"].as_f64().expect("a number")
    };
    let plain = seconds(&[]);
    let same = [
        &["--drive-cache", "off"][..],
        &["--host", "elevator"],
        &["--depth", "1"],
        &["--page-cost", "1us"],
        &["--readahead", "streams"],
        &["--size", "2G"],
        &["--policy", "lru"],
        &["--limit", "512"],
    ];
    for more in same {
        assert!((seconds(more) - plain).abs() < 1e-12, "{more:?}");
    }
    for more in [
        &["--drive-cache", "on"][..],
        &["--readahead", "off"],
        &["--limit", "300"],
        &["--page-cost", "1ms"],
    ] {
        assert!((seconds(more) - plain).abs() > 1e-6, "{more:?}");
    }
}

#[test]
fn every_combination_is_run_in_order() {
    let value = json(&[
        "sim",
        QUICK,
        "--device",
        "ssd",
        "--json",
        "--policy",
        "lru,2q:kin=0.5,kout=0.5",
        "--size",
        "600,4M",
        "--readahead",
        "fixed:size=64K,linux-6:max=1M,io=1M",
    ]);
    let shown: Vec<String> = value["runs"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|run| format!("{} {} {}", run["readahead"]["name"], run["policy"], run["cache_pages"]))
        .collect();
    let expected = ["fixed", "linux-6"].map(|readahead| {
        ["lru", "2q"].map(|policy| [600, 1024].map(|n| format!("\"{readahead}\" \"{policy}\" {n}")))
    });
    assert_eq!(shown, expected.as_flattened().as_flattened());
    assert_eq!(value["runs"][2]["params"]["kin"], "0.5");
}

#[test]
fn traces_are_files_stdin_or_workloads_packed_or_not() {
    let folder = Folder::new("traces");
    let keys: Vec<String> = (0..3_000).map(|i| (i * i % 97).to_string()).collect();
    let text = keys.join("\n");
    let plain = folder.file("keys.txt", &text);
    let packed = folder.file("packed", zstd::encode_all(text.as_bytes(), 3).unwrap());
    let args = ["--policy", "lru,fifo", "--size", "7,50", "--json"];
    let misses = |value: &Value| -> Vec<u64> {
        let runs = value["runs"].as_array().expect("a list").iter();
        runs.map(|run| run["misses"].as_u64().expect("a count")).collect()
    };
    let file = json(&[&["sim", &plain][..], &args].concat());
    assert_eq!(file["runs"][0]["accesses"], 3_000);
    assert!(file["runs"][0].get("device").is_none() && file["runs"][0].get("readahead").is_none());
    let expected = misses(&file);
    assert_eq!(expected.len(), 4);
    assert!(expected[0] > expected[1] && expected[1] >= 49, "{expected:?}");
    assert_eq!(
        misses(&json(&[&["sim", &packed][..], &args, &["--threads", "1"]].concat())),
        expected
    );

    let mut child = forerun(&[&["sim", "-"][..], &args].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it is read");
    let Ended { out, err, .. } = ended(child.wait_with_output().expect("it ends"));
    assert_eq!(misses(&serde_json::from_str(&out).expect("JSON")), expected);
    assert_eq!(err, "forerun: -: read as keys (--format names another)\n");

    let replayed = json(&["sim", QUICK, "--size", "10%", "--json"]);
    assert_eq!(replayed["runs"][0]["cache_pages"], 51);
    assert_eq!(replayed["runs"][0]["misses"], 512);
    let on_device = json(&["sim", &plain, "--device", "ssd", "--size", "2M", "--json"]);
    assert_eq!(on_device["runs"][0]["accesses"], 3_000);
    let ahead = json(&["sim", QUICK, "--readahead", "linux-6", "--json"]);
    assert!(ahead["runs"][0].get("device").is_none());
    assert!(ahead["runs"][0]["readahead"]["fetched"].as_u64() > Some(400));
}

#[test]
fn tables_are_aligned() {
    let out = done(&["sim", QUICK, "--policy", "all", "--size", "10,100"]);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("trace") && lines[0].ends_with("M/s"), "{out}");
    assert!(lines.len() > 10 && lines.iter().all(|line| line.len() == lines[0].len()), "{out}");
}

#[test]
fn lists_name_what_there_is() {
    for (list, names) in [
        ("--list-policies", &["lru", "2q", "2q-star", "linux-2.6.22", "linux-6", "adaptive"][..]),
        ("--list-formats", &["keys", "lis"]),
        ("--list-workloads", &["streams", "disturb", "thrash", "compute"]),
        ("--list-devices", &["t7k250", "hdd", "cloud", "object", "ssd", "optane"]),
    ] {
        let out = done(&["sim", list]);
        for name in names {
            let listed = out.lines().any(|line| line.split(' ').next() == Some(name));
            assert!(listed, "{list}: {name} is not in\n{out}");
        }
    }
}

#[test]
fn help_shows_examples_and_the_version_is_told() {
    for command in [
        &["--help"][..],
        &["sim", "--help"],
        &["sim", "check", "--help"],
        &["vectors", "--help"],
        &["report", "--help"],
    ] {
        let out = done(command);
        assert!(out.contains("Example") && out.contains("\n  forerun "), "{command:?}: {out}");
    }
    assert_eq!(done(&["--version"]), format!("forerun {}\n", env!("CARGO_PKG_VERSION")));
}

/// Arguments, the status that they end with, and what the line of their refusal has.
type Refusal = (Vec<String>, i32, &'static str);

fn words(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|&word| word.to_owned()).collect()
}

fn with(more: &[&str]) -> Vec<String> {
    words(&[&["sim", QUICK, "--device", "t7k250"], more].concat())
}

#[test]
fn refusals_are_one_line_and_the_right_status() {
    #[rustfmt::skip]
    let rows = [ // arguments, status, the line has
        (words(&["simm"]), 2, "simm"),
        (words(&["sim"]), 2, "<TRACE>"),
        (words(&["sim", "--colour", QUICK]), 2, "--colour"),
        (words(&["sim", QUICK, "--policy", "lur"]), 2, "no `lur`; there are: fifo lru"),
        (words(&["sim", QUICK, "--policy", "lru:x=1"]), 2, "no parameter `x`"),
        (words(&["sim", QUICK, "--policy", "2q:kin=lots"]), 2, "`kin=lots`"),
        (words(&["sim", QUICK, "--policy", ""]), 2, "--policy"),
        (words(&["sim", QUICK, "--size", "0"]), 2, "--size 0"),
        (words(&["sim", QUICK, "--size", "0%"]), 2, "--size 0%"),
        (words(&["sim", QUICK, "--size", "-1"]), 2, "-1"),
        (words(&["sim", QUICK, "--size", "12Q"]), 2, "--size 12Q"),
        (words(&["sim", QUICK, "--size", "99999999999999999999"]),2, "--size 9"),
        (words(&["sim", QUICK, "--limit", "0"]), 2, "--limit"),
        (words(&["sim", QUICK, "--limit", "x"]), 2, "--limit"),
        (words(&["sim", QUICK, "--threads", "0"]), 2, "--threads"),
        (words(&["sim", "workload:stream"]), 2, "no `stream`; there are: streams"),
        (words(&["sim", "workload:streams,n=0"]), 2, "`n=0`"),
        (words(&["sim", "workload:streams,m=1"]), 2, "no parameter `m`"),
        (words(&["sim", QUICK, "--format", "lisp"]), 2, "no `lisp`; there are: keys csv lis"),
        (words(&["sim", QUICK, "--format", "lis:unit=5"]), 2, "unit=5"),
        (words(&["sim", QUICK, "--device", "t7k251"]), 2, "no `t7k251`"),
        (words(&["sim", QUICK, "--device", "t7k250:rpm=x"]), 2, "`rpm=x`"),
        (words(&["sim", QUICK, "--device", "ssd", "--drive-cache", "on"]), 2, "parameter `cache`"),
        (words(&["sim", QUICK, "--device", "cloud:max=4095"]), 2, "less than a page"),
        (words(&["sim", QUICK, "--drive-cache", "on"]), 2, "--device"),
        (words(&["sim", QUICK, "-o", "run.pdf"]), 2, ".ndjson"),
        (with(&["--readahead", "linux-3"]), 2, "no `linux-3`"),
        (with(&["--readahead", "linux-6:max=0x"]), 2, "`max=0x`"),
        (with(&["--drive-cache", "maybe"]), 2, "maybe"),
        (with(&["--depth", "0"]), 2, "--depth"),
        (with(&["--page-cost", "5"]), 2, "a duration such as"),
        (with(&["--page-cost", "2s"]), 2, "at most 1s"),
        (with(&["--host", "fast"]), 2, "fast"),
        (with(&["--size", "10", "--readahead", "linux-6"]), 2, "smaller than one readahead window"),
        (words(&["sim", "-", "--device", "ssd"]), 2, "give a file"),
        (words(&["sim", "-"]), 2, "--size in pages or bytes"),
        (words(&["sim", "-", "-", "--size", "9"]), 2, "given twice"),
        (words(&["sim", "check", "--seeds", "0"]), 2, "--seeds"),
        (words(&["sim", "check", "--seed", "18446744073709551615"]), 2, "--seed"),
        (words(&["sim", "workload:streams,each=900G", "--device", "hdd"]), 1, "the device holds"),
    ];
    rows.into_iter().for_each(refuses);
}

#[test]
fn refusals_of_files_are_one_line_and_the_right_status() {
    let folder = Folder::new("refusals");
    let keys = folder.file("keys.txt", "1\n2\n3\n");
    let broken = folder.file("broken.txt", "1\n2\nthree\n4\n");
    let other = folder.file("trace.txt", "hello world\n");
    let nothing = folder.file("nothing.json", "{}");
    let huge = folder.file("huge.txt", "18446744073709551615\n");
    let missing = folder.path("missing");
    #[rustfmt::skip]
    let rows = [ // arguments, status, the line has
        (words(&["sim", &missing]), 1, "missing: No such file"),
        (words(&["sim", folder.0.to_str().unwrap()]), 1, "Is a directory"),
        (words(&["sim", &other]), 1, "the first lines are of no format"),
        (words(&["sim", &broken]), 1, "broken.txt: record 3 at byte 4 is broken: `three`"),
        (words(&["sim", &broken, "--readahead", "off"]), 1, "record 3 at byte 4"),
        (words(&["sim", &huge, "--device", "ssd"]), 1, "`forerun replay TRACE --device"),
        (words(&["vectors"]), 2, "<FILE>"),
        (words(&["vectors", &missing]), 1, "missing: No such file"),
        (words(&["vectors", &keys]), 1, "not readahead vectors"),
        (words(&["vectors", &nothing]), 1, "not readahead vectors"),
        (words(&["vectors", "/dev/zero"]), 1, "longer than"),
        (words(&["vectors", &vectors(&folder, 4), "--policy", "lru"]), 2, "linux-2.6.24"),
        (words(&["vectors", &vectors(&folder, 4), "--policy", "linux-6"]), 1, "nothing was run"),
        (words(&["vectors", &vectors(&folder, 5)]), 1, "1 of 1 differ"),
        (with(&["-o", &folder.path("no/run.json")]), 1, "no such folder"),
        (with(&["-o", folder.0.to_str().unwrap()]), 1, "it is a folder"),
        (words(&["report", &keys, "-o", &folder.path("no/page")]), 1, "no such folder"),
        (words(&["report", &missing, "-o", &folder.path("page.pdf")]), 2, "ends with .html"),
        (words(&["report", &missing]), 2, "--output"),
        (words(&["sim", &keys, "--device", "ssd", "--explain-readahead"]), 2, "--output"),
        (words(&["report", &keys, "-o", &keys]), 2, "one of the records"),
        (words(&["report", &missing, "-o", &folder.path("page")]), 1, "missing"),
        (words(&["report", &keys, "-o", &folder.path("page")]), 1, "run record"),
    ];
    rows.into_iter().for_each(refuses);
    assert!(!Path::new(&folder.path("page")).exists());
}

fn refuses((args, status, says): Refusal) {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ended = run(&args);
    // What a format was taken for is told before.
    let err: Vec<&str> = ended.err.lines().filter(|l| !l.contains(": read as ")).collect();
    assert_eq!(ended.status, Some(status), "{args:?}: {err:?}");
    let [line] = err.as_slice() else { panic!("{args:?}: {err:?}") };
    assert!(line.starts_with("forerun: ") && line.contains(says), "{args:?}: {line}");
    let shown = args[0] == "vectors";
    assert!(shown || ended.out.is_empty(), "{args:?}: {}", ended.out);
}

/// Vectors of one scenario, right when the first window has `size` pages.
fn vectors(folder: &Folder, size: u32) -> String {
    let text = format!(
        r#"{{"schema": "forerun-readahead-vectors/1", "scenarios": [{{"id": "head",
        "file_pages": 1000, "ra_pages": 32, "ops": [["read", 0, 1]],
        "expect": {{"linux-2.6.24": [[0, "sync", 0, 0, {size}, 3, [[0, 3]]]]}}}}]}}"#
    );
    folder.file(&format!("vectors-{size}.json"), text)
}

#[test]
fn vectors_are_counted_and_failures_are_shown() {
    let folder = Folder::new("vectors");
    assert_eq!(done(&["vectors", &vectors(&folder, 4)]), "1 passed, 0 failed\n");
    let failed = run(&["vectors", &vectors(&folder, 5), "--policy", "linux-2.6.24"]);
    assert_eq!(failed.status, Some(1));
    let lines: Vec<&str> = failed.out.lines().collect();
    assert!(lines[0].starts_with("head linux-2.6.24 row 0: expected") && lines[0].contains("got"));
    assert_eq!(lines[1..], ["0 passed, 1 failed"]);
    let value = json(&["vectors", &vectors(&folder, 4), "--json"]);
    assert_eq!((&value["passed"], &value["failed"]), (&1.into(), &0.into()));
}

#[test]
fn the_historic_policies_decide_as_their_kernels() {
    let file =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/sim/tests/data/readahead-vectors.json");
    assert_eq!(done(&["vectors", file]), "160 passed, 0 failed\n");
    let one = done(&["vectors", file, "--policy", "linux-6"]);
    assert_eq!(one, "40 passed, 0 failed\n");
}

#[test]
fn seeds_are_checked_and_counted() {
    assert_eq!(done(&["sim", "check", "--seeds", "6"]), "6 passed, 0 failed\n");
    assert_eq!(done(&["sim", "check", "--seed", "3"]), "1 passed, 0 failed\n");
    let other = run(&["sim", "check", "--seed", "3", "--commit", "abc"]);
    assert_eq!((other.status, other.out.as_str()), (Some(0), "1 passed, 0 failed\n"));
    assert!(other.err.contains("abc"), "{}", other.err);
    let value = json(&["sim", "check", "--seeds", "2", "--seed", "9", "--json"]);
    assert_eq!((&value["passed"], &value["failed"]), (&2.into(), &0.into()));
}

#[test]
fn broken_records_are_passed_over_when_asked() {
    let folder = Folder::new("skip");
    let broken = folder.file("broken.txt", "1\nx\n2\ny\n1\n");
    let ended = run(&["sim", &broken, "--skip-bad", "2", "--size", "5", "--json"]);
    let value: Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!(
        (&value["runs"][0]["accesses"], &value["runs"][0]["misses"]),
        (&3.into(), &2.into())
    );
    assert!(ended.err.contains("2 broken records passed over"), "{}", ended.err);
    let ended = run(&["sim", &broken, "--skip-bad", "1", "--size", "5"]);
    assert_eq!(ended.status, Some(1));
    assert!(ended.err.contains("record 4 at byte 6"), "{}", ended.err);
}

#[test]
fn a_record_becomes_a_page() {
    let folder = Folder::new("record");
    let (record, page) = (folder.path("run.json"), folder.path("page.html"));
    let readaheads = "linux-2.6.22,linux-2.6.24:max=1M";
    done(&["sim", QUICK, "--device", "t7k250", "--readahead", readaheads, "-o", &record]);
    let value: Value = serde_json::from_str(&fs::read_to_string(&record).unwrap()).expect("JSON");
    assert_eq!(value["schema"], "forerun-run/1");
    let run = &value["runs"][1];
    assert_eq!((&run["streams"], &run["drive_cache"]), (&2.into(), &false.into()));
    let requests = run["requests"].as_array().expect("a list").len() as u64;
    assert_eq!(run["device_requests"].as_u64(), Some(requests));
    assert_eq!(done(&["report", &record, "-o", &page]), "");
    let html = fs::read_to_string(&page).expect("the page is there");
    assert!(html.contains("linux-2.6.22") && html.trim_end().ends_with("</html>"));
    assert_eq!(folder.names().len(), 2, "{:?}", folder.names());
}

#[test]
fn explained_windows_are_in_the_record_and_add_up_and_change_no_figure() {
    let folder = Folder::new("explain");
    let plain = ["sim", "workload:streams,n=3,each=2M", "--device", "hdd", "--size", "4M"];
    let policies = ["--readahead", "linux-2.6.22:max=512K,linux-6,fixed:size=64K,off"];
    let args = [&plain[..], &policies].concat();
    let (without, with) = (folder.path("without.json"), folder.path("with.json"));
    let told = json(&[&args[..], &["--json", "-o", &without]].concat());
    done(&[&args[..], &["-o", &with, "--explain-readahead"]].concat());
    let record = |path: &str| -> Value {
        serde_json::from_slice(&fs::read(path).expect("there is a record")).expect("JSON")
    };
    let (without, with) = (record(&without), record(&with));
    for (number, ahead) in told["runs"].as_array().expect("runs").iter().enumerate() {
        let (plain, run) = (&without["runs"][number], &with["runs"][number]);
        assert!(plain.get("windows").is_none(), "{plain}");
        for figure in ["mb_per_second", "device_requests", "bytes_read", "requests"] {
            assert_eq!(plain[figure], run[figure], "{figure}");
        }
        let windows = run["windows"].as_array().map_or(&[][..], Vec::as_slice);
        let sum = |names: &[&str]| -> u64 {
            let of = |window: &Value| names.iter().filter_map(|name| window[*name].as_u64()).sum();
            windows.iter().map(of).collect::<Vec<u64>>().iter().sum()
        };
        let ahead = &ahead["readahead"];
        for (name, outcomes) in [
            ("used", &["used_bytes", "late_bytes"][..]),
            ("wasted", &["wasted_bytes"]),
            ("fetched", &["used_bytes", "late_bytes", "wasted_bytes", "unread_bytes"]),
        ] {
            assert_eq!(
                ahead[name].as_u64().map(|pages| pages * 4_096),
                Some(sum(outcomes)),
                "{ahead}"
            );
        }
        assert!(!windows.is_empty(), "{ahead}");
        for window in windows {
            assert!(ahead["name"] != "off" || window["cause"] == "random", "{window}");
            assert!(window["at_us"].as_u64() <= window["last_use_us"].as_u64(), "{window}");
            assert!(window["cause"].is_string() && window["handle"] == 0, "{window}");
        }
    }
}

#[test]
fn a_full_stdout_is_a_failure() {
    for args in [&["sim", "--list-policies"][..], &["sim", QUICK, "--json"], &["--help"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
        let Ended { status, err, .. } =
            ended(forerun(args).stdout(full).output().expect("it runs"));
        assert_eq!(status, Some(1), "{args:?}: {err}");
        assert!(err.lines().count() == 1 && err.contains("cannot write to stdout"), "{err}");
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    for args in [&["sim", "--list-policies"][..], &["sim", QUICK, "--json"], &["--help"]] {
        let (reader, writer) = std::io::pipe().expect("pipes are to be had");
        drop(reader);
        let output = forerun(args).stdout(writer).stderr(Stdio::piped()).output();
        let Ended { status, err, .. } = ended(output.expect("the command runs"));
        assert_eq!(status, Some(0), "{args:?}: {err}");
        assert!(err.is_empty(), "{args:?}: {err}");
    }
}

#[test]
fn an_interrupt_ends_a_long_run_and_leaves_nothing() {
    let folder = Folder::new("interrupt");
    let long = "workload:streams,n=10,each=100G";
    let record = folder.path("run.json");
    let runs: [&[&str]; 3] = [
        &["sim", long, "--device", "hdd", "-o", &record],
        &["sim", long, "--policy", "all", "--size", "9"],
        &["sim", "check", "--seeds", "1000000000"],
    ];
    for args in runs {
        let mut child = forerun(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command runs");
        // The handler is there when SIGINT is among the signals caught: bit 1 of the mask.
        let status = format!("/proc/{}/status", child.id());
        let caught = || {
            let text = fs::read_to_string(&status).unwrap_or_default();
            let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            mask.is_some_and(|mask| mask & 2 != 0)
        };
        while !caught() {
            thread::yield_now();
        }
        let status = interrupted(&mut child);
        let mut line = String::new();
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        stderr.read_line(&mut line).expect("stderr is text");
        assert_eq!(
            (status.code(), line.as_str()),
            (Some(130), "forerun: interrupted\n"),
            "{args:?}"
        );
        assert!(folder.names().is_empty(), "{args:?} left {:?}", folder.names());
    }
}

#[test]
fn an_unknown_name_of_anything_is_answered_with_the_nearest_and_its_list() {
    let folder = Folder::new("nearest");
    let vectors = vectors(&folder, 4);
    #[rustfmt::skip]
    let rows: &[(&[&str], &str, &str)] = &[ // arguments, the nearest name, where they are listed
        (&["simm"],                                         "sim",          "--help"),
        (&["sim", QUICK, "--polisy", "lru"],                "--policy",     "sim --help"),
        (&["sim", QUICK, "--host", "elevater"],             "elevator",     "sim --help"),
        (&["sim", QUICK, "--policy", "lur"],                "lru",          "sim --list-policies"),
        (&["sim", QUICK, "--readahead", "stream"],          "streams",      "sim --list-policies"),
        (&["sim", QUICK, "--device", "t7k251"],             "t7k250",       "sim --list-devices"),
        (&["sim", QUICK, "--device", "ssd", "--prefetch", "papper"],
                                                            "paper",        "sim --list-policies"),
        (&["sim", "workload:stream"],                       "streams",      "sim --list-workloads"),
        (&["sim", QUICK, "--format", "lisp"],               "lis",          "sim --list-formats"),
        (&["sim", "reap", "--device", "optain"],            "optane",       "sim reap --help"),
        (&["trace", "convert", QUICK, "x", "--to", "keyz"], "keys",         "sim --list-formats"),
        (&["vectors", &vectors, "--policy", "linux-2.6.23"], "linux-2.6.22", "sim --list-policies"),
        (&["sim", "chek"],                                  "check",        "sim --help"),
        (&["serve", "clt"],                                 "ctl",          "serve --help"),
        (&["bench", "straems"],                             "streams",      "bench --help"),
        (&["bench", "streams", "--device", "cluod"],        "cloud",        "sim --list-devices"),
        (&["bench", "streams", "--pattern", "disturbe:4"],  "disturb",      "bench streams --help"),
    ];
    for (args, nearest, lister) in rows {
        let Ended { status, err, .. } = run(args);
        assert_eq!(status, Some(2), "{args:?}: {err}");
        let says = format!("; the nearest is `{nearest}`; `forerun {lister}` lists them\n");
        assert!(err.ends_with(&says) && err.lines().count() == 1, "{args:?}: {err}");
    }
}
