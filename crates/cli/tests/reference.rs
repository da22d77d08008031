//! Miss counts on recorded traces, against those that other simulators counted.
//!
//! `miss-ratios.csv` of the reference folder has a row a trace, policy, parameters and size. The
//! rows of policies that are here, on traces that can be read, must agree in every miss.
mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The policy of a row, as it is called here.
fn policy(name: &str, params: &str) -> Option<&'static str> {
    match (name, params) {
        ("FIFO", _) => Some("fifo"),
        ("LRU", _) => Some("lru"),
        ("CLOCK", _) => Some("clock"),
        ("2Q", params) if params.starts_with("Ain=0.25;Aout=0.5") => Some("2q:kin=0.25,kout=0.5"),
        ("2Q", params) if params.starts_with("Ain=0.1;Aout=1.0") => Some("2q:kin=0.1,kout=1"),
        ("2Q*", _) => Some("2q-star:kin=0.1,kout=1"),
        _ => None,
    }
}

/// The file of a trace, if it is one that can be read.
fn file(trace: &str) -> Option<String> {
    let list =
        trace.strip_prefix("arc_").map(|name| format!("arc_{}.lis.zst", name.to_uppercase()));
    list.or_else(|| trace.starts_with("lirs_").then(|| format!("{trace}.txt.zst")))
}

/// Of each trace: of each policy and size, accesses and misses.
type Expected = BTreeMap<String, BTreeMap<(String, u64), (u64, u64)>>;

fn expected(csv: &str) -> Expected {
    let mut expected = Expected::new();
    for line in csv.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [trace, name, params, size, .., accesses, misses] = fields.as_slice() else {
            panic!("not a row: {line}");
        };
        let Some((file, policy)) = file(trace).zip(policy(name, params)) else { continue };
        let number = |text: &str| text.parse::<u64>().expect(line);
        let counts = (number(accesses), number(misses));
        expected.entry(file).or_default().insert((policy.into(), number(size)), counts);
    }
    expected
}

fn counted(path: &Path, policies: &str, sizes: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_forerun"))
        .arg("sim")
        .arg(path)
        .args(["--json", "--policy", policies, "--size", sizes])
        .output()
        .expect("the command runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn misses_are_those_that_other_simulators_counted() {
    let test = "misses_are_those_that_other_simulators_counted";
    let (Some(reference), Some(traces)) = (support::reference_dir(), support::traces_dir()) else {
        return support::skip(test, "no folder of reference figures and traces");
    };
    let csv = fs::read_to_string(reference.join("miss-ratios.csv")).expect("the figures are there");
    let mut compared = 0;
    let expected = expected(&csv);
    for (file, rows) in &expected {
        let list = |of: &dyn Fn(&(String, u64)) -> String| {
            let mut all: Vec<String> = rows.keys().map(of).collect();
            all.sort_unstable();
            all.dedup();
            all.join(",")
        };
        let (policies, sizes) = (list(&|key| key.0.clone()), list(&|key| key.1.to_string()));
        let value = counted(&traces.join(file), &policies, &sizes);
        for run in value["runs"].as_array().expect("a list") {
            let params = run["params"].as_object().expect("an object");
            let pair = |(key, value): (&String, &Value)| {
                format!("{key}={}", value.as_str().expect("text"))
            };
            let pairs: Vec<String> = params.iter().map(pair).collect();
            let name = run["policy"].as_str().expect("a name");
            let spec = format!("{name}:{}", pairs.join(","));
            let spec = spec.trim_end_matches(':').to_owned();
            let size = run["cache_pages"].as_u64().expect("a count");
            let Some(&counts) = rows.get(&(spec.clone(), size)) else { continue };
            let ours = (run["accesses"].as_u64().unwrap(), run["misses"].as_u64().unwrap());
            assert_eq!(ours, counts, "{file} {spec} {size}: accesses and misses");
            compared += 1;
        }
    }
    let rows: usize = expected.values().map(BTreeMap::len).sum();
    assert!(rows >= 400 && compared == rows, "{compared} of {rows} rows were compared");
}
