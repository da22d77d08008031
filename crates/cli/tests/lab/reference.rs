//! Miss counts on traces, against those that other simulators counted.
//!
//! `miss-ratios.csv` has a row a trace, policy, parameters and size: the file in
//! `lab/sim/tests/data` for traces that a rule makes, the one in an optional folder for recorded
//! traces. The rows of policies that are here must agree: in every miss where the algorithm leaves
//! nothing open, else within a tenth of a point. W-TinyLFU's rows are left out: what they count
//! differs from the paper (`docs/decisions/0018-w-tinylfu-counts-every-use.md`).

use forerun_testkit::Scratch;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The policy of a row, as it is called here, and the points by which it may differ.
fn policy(name: &str, params: &str) -> Option<(&'static str, f64)> {
    match (name, params) {
        ("FIFO", _) => Some(("fifo", 0.0)),
        ("LRU", _) => Some(("lru", 0.0)),
        ("LFU", _) => Some(("lfu", 0.0)),
        ("CLOCK", _) => Some(("clock", 0.0)),
        ("SIEVE", _) => Some(("sieve", 0.0)),
        ("Belady", _) => Some(("belady", 0.0)),
        ("2Q", params) if params.starts_with("Ain=0.25;Aout=0.5") => {
            Some(("2q:kin=0.25,kout=0.5", 0.0))
        }
        ("2Q", params) if params.starts_with("Ain=0.1;Aout=1.0") => {
            Some(("2q:kin=0.1,kout=1", 0.0))
        }
        ("2Q*", _) => Some(("2q-star:kin=0.1,kout=1", 0.0)),
        // Theirs holds the target as a float.
        ("ARC", _) => Some(("arc", 0.1)),
        // Theirs does not bound the names.
        ("LIRS", _) => Some(("lirs:ghost=40,hirs=0.01,least=4096", 0.1)),
        ("S3-FIFO", _) => Some(("s3-fifo:ghost=0.9,small=0.1,uses=2", 0.1)),
        _ => None,
    }
}

/// The file of a trace.
fn file(trace: &str) -> Option<String> {
    let name = match trace {
        "adaptsize" => "adaptsize_request.txt",
        "apress_blk" => "apress_book_sample.blkparse.txt",
        "arc_oltp" => "arc_OLTP.lis",
        "arc_p3" => "arc_P3.lis",
        "arc_p6" => "arc_P6.lis",
        "c2k_web07" => "cache2k_web07.u32be",
        "cloudphysics" => "cloudphysics_io.vscsi",
        "corda" => "corda_vaultservice.i64be",
        "fiu_mail_10k" => "fiu_mail_cheetah_10k.blkparse",
        "hplajw" => "hp_ajw_1992week.srt",
        "ms_dtrs100m" => "ms_DTRS_100M.disksim",
        "postmark_fs" => "sandrain_postmark.txt",
        "scarab_recs" => "scarab_recs.i64be",
        "ssdsim_example" => "ssdsim_example.disksim",
        "w106" => "cloudphysics_w106.u32le",
        lirs => return lirs.starts_with("lirs_").then(|| format!("{lirs}.txt.zst")),
    };
    Some(format!("{name}.zst"))
}

/// Of each trace: of each policy and size, accesses and misses, and by how many points the misses
/// may differ.
type Expected = BTreeMap<String, BTreeMap<(String, u64), (u64, u64, f64)>>;

fn expected(csv: &str) -> Expected {
    let mut expected = Expected::new();
    for line in csv.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [trace, name, params, size, .., accesses, misses] = fields.as_slice() else {
            panic!("not a row: {line}");
        };
        let Some((policy, points)) = policy(name, params) else { continue };
        let number = |text: &str| text.parse::<u64>().expect(line);
        let counts = (number(accesses), number(misses), points);
        let Some(file) = file(trace) else { continue };
        expected.entry(file).or_default().insert((policy.into(), number(size)), counts);
    }
    expected
}

/// The runs.
fn counted(path: &Path, policies: &str, sizes: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_forerun"))
        .arg("sim")
        .arg(path)
        .args(["--json", "--policy", policies, "--size", sizes])
        .output()
        .expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Runs the trace at `path` and compares each of its rows.
fn compare(path: &Path, rows: &BTreeMap<(String, u64), (u64, u64, f64)>) {
    let list = |of: &dyn Fn(&(String, u64)) -> String| {
        let mut all: Vec<String> = rows.keys().map(of).collect();
        all.sort_unstable();
        all.dedup();
        all.join(",")
    };
    let (policies, sizes) = (list(&|key| key.0.clone()), list(&|key| key.1.to_string()));
    let value = counted(path, &policies, &sizes);
    let mut compared = 0;
    for run in value["runs"].as_array().expect("a list") {
        let key = (spec(run), run["cache_pages"].as_u64().expect("a count"));
        let Some(&(accesses, misses, points)) = rows.get(&key) else { continue };
        let (spec, size) = key;
        let why = format!("{} {spec} {size}", path.display());
        assert_eq!(run["accesses"].as_u64(), Some(accesses), "{why}: accesses");
        let ours = run["misses"].as_u64().expect("a count");
        #[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
        let apart = 100.0 * ours.abs_diff(misses) as f64 / accesses as f64;
        assert!(apart <= points, "{why}: {ours} misses for {misses}, {apart:.3} points");
        compared += 1;
    }
    assert_eq!(compared, rows.len(), "rows of {} were compared", path.display());
}

/// The page of access `n` of a trace that a rule makes, and how many accesses there are.
fn rule(file: &str) -> (usize, fn(usize) -> usize) {
    fn there_and_back(n: usize, last: usize) -> usize {
        last - last.abs_diff(n % (2 * last))
    }
    match file {
        "lirs_loop.txt.zst" => (500 * 1_011, |n| n % 1_011),
        "lirs_scan.txt.zst" => (25 * 2_001, |n| n % 2_001),
        "lirs_zigzag.txt.zst" => (26 * 2_000 + 1, |n| there_and_back(n, 2_000)),
        // The last page of each way is the first of the next; the first page of all is another's.
        "lirs_backf.txt.zst" => (12 * 750, |n| match (n, n / 750 % 2) {
            (0, _) => 10_000,
            (_, 0) => n % 750,
            (_, _) => 749 - n % 750,
        }),
        other => panic!("no rule makes {other}"),
    }
}

#[test]
fn misses_of_traces_that_a_rule_makes_are_those_that_other_simulators_counted() {
    let csv = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/sim/tests/data/miss-ratios.csv");
    let csv = fs::read_to_string(csv).expect("the figures are in the repository");
    let folder = Scratch::new("reference-rules");
    let mut there = 0;
    for (file, rows) in &expected(&csv) {
        let (count, page) = rule(file);
        let lines: Vec<String> = (0..count).map(|n| page(n).to_string()).collect();
        compare(&folder.file(file.trim_end_matches(".zst"), lines.join("\n")), rows);
        there += rows.len();
    }
    assert_eq!(there, 198, "18 rows a policy");
}

#[test]
fn misses_are_those_that_other_simulators_counted() {
    let test = "misses_are_those_that_other_simulators_counted";
    let Some(traces) = forerun_testkit::traces_dir() else {
        return forerun_testkit::skip(test, "no folder of traces");
    };
    let Ok(csv) = fs::read_to_string(traces.join("../reference/miss-ratios.csv")) else {
        return forerun_testkit::skip(test, "no folder of reference figures beside the traces");
    };
    let mut there = 0;
    for (file, rows) in &expected(&csv) {
        let path = traces.join(file);
        if !path.is_file() {
            forerun_testkit::skip(test, &format!("no trace {file}"));
            continue;
        }
        compare(&path, rows);
        there += rows.len();
    }
    assert!(there >= 700, "{there} rows were compared");
}

/// The policy of a run with its parameters, as it is asked for.
fn spec(run: &Value) -> String {
    let params = run["params"].as_object().expect("an object");
    let pair = |(key, value): (&String, &Value)| format!("{key}={}", value.as_str().expect("text"));
    let pairs: Vec<String> = params.iter().map(pair).collect();
    let name = run["policy"].as_str().expect("a name");
    format!("{name}:{}", pairs.join(",")).trim_end_matches(':').to_owned()
}
