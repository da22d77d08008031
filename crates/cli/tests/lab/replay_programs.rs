//! Traces of programs: what `strace` saw of gzip, grep and a reader of a mapping is replayed as the
//! same bytes of the same files, in the same order.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use forerun_testkit::{Scratch, installed};
use serde_json::Value;

/// A read: the file's name, the first byte, how many.
type Read = (String, u64, u64);

fn out(command: &mut Command) -> String {
    let done = command.stdin(Stdio::null()).output().expect("it starts");
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {errors}");
    String::from_utf8(done.stdout).expect("text")
}

fn forerun(words: &[&str], folder: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    out(command.args(words).current_dir(folder))
}

/// The reads and maps of files below `tree` in a text of strace, with offsets of their own count.
fn seen(text: &str, tree: &Path) -> Vec<Read> {
    let inside = format!("<{}/", tree.display());
    let mut positions: BTreeMap<String, u64> = BTreeMap::new();
    let mut reads = Vec::new();
    for line in text.lines() {
        let Some((call, rest)) = line.split_once('(') else { continue };
        let Some((before, rest)) = rest.split_once(&inside) else { continue };
        let Some((name, rest)) = rest.split_once('>') else { continue };
        let Some(result) = rest.rsplit_once(" = ").map(|(_, result)| result) else { continue };
        let key = format!("{before} {name}");
        if call.ends_with(" openat") {
            continue;
        }
        if call.ends_with(" read") {
            let bytes = result.split_whitespace().next().and_then(|count| count.parse().ok());
            let bytes: u64 = bytes.expect("a read ends with a count");
            let at = positions.entry(key).or_default();
            if bytes > 0 {
                reads.push((name.to_owned(), *at, bytes));
            }
            *at += bytes;
        } else if call.ends_with(" mmap") {
            let bytes = before.split(", ").nth(1).and_then(|count| count.parse().ok());
            reads.push((name.to_owned(), 0, bytes.expect("a length")));
        }
    }
    reads
}

/// The requests of a trace, by way of its form as columns, with names in the order of their use.
fn requests(csv: &str, names: &[String]) -> Vec<Read> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |at: usize| cells[at].parse::<u64>().expect("a number");
        let name = names[usize::try_from(number(1)).expect("small")].clone();
        (name, number(2), number(3))
    };
    csv.lines().skip(1).map(row).collect()
}

/// The pages of reads.
fn pages(reads: &[Read]) -> BTreeSet<(String, u64)> {
    let of = |(name, offset, bytes): &Read| {
        let (first, end) = (offset / 4_096, (offset + bytes).div_ceil(4_096));
        let name = name.clone();
        (first..end).map(move |page| (name.clone(), page))
    };
    reads.iter().flat_map(of).collect()
}

/// Names in the order of their first use.
fn order(reads: &[Read]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, ..) in reads {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

#[test]
fn programs_are_replayed_as_strace_saw_them() {
    let test = "programs_are_replayed_as_strace_saw_them";
    if !["strace", "gzip", "grep", "python3"].iter().all(|program| installed(test, program)) {
        return;
    }
    let scratch = Scratch::on_disk("replay-programs");
    let folder = fs::canonicalize(&scratch).expect("it is there");
    let tree = folder.join("tree");
    fs::create_dir(&tree).expect("a folder");
    let mut state = 7_u64;
    let mut bytes = |count: usize| -> Vec<u8> {
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            b'a' + u8::try_from((state >> 33) % 26).expect("a letter")
        };
        (0..count).map(next).collect()
    };
    fs::write(tree.join("big"), bytes(1_500_001)).expect("a file");
    for name in ["f1", "f2", "f3"] {
        fs::write(tree.join(name), bytes(50_000)).expect("a file");
    }
    let mapped = "import mmap, sys\n\
                  file = open(sys.argv[1], 'rb')\n\
                  view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\n\
                  sum(view[at] for at in range(0, len(view), 4096))\n";
    let programs: [&[&str]; 3] = [
        &["gzip", "-c", "tree/big"],
        &["grep", "-r", "-c", "1", "tree"],
        &["python3", "-c", mapped, "tree/big"],
    ];
    for words in programs {
        let mut traced = Command::new("strace");
        traced.args(["-f", "-ttt", "-T", "-y", "-s", "0", "-o", "program.strace"]).args(words);
        // Grep finds nothing, which is a failure to it.
        let done = traced.current_dir(&folder).stdin(Stdio::null()).output().expect("it starts");
        assert!(done.status.code().is_some_and(|code| code < 2), "{words:?}: {done:?}");
        let calls = fs::read_to_string(folder.join("program.strace")).expect("it was written");
        let seen = seen(&calls, &tree);
        assert!(!seen.is_empty(), "{words:?}: {calls}");
        let trace = "program.jsonl";
        forerun(
            &["trace", "convert", "program.strace", trace, "--to", "accesses", "--tree", "tree"],
            &folder,
        );
        let csv = forerun(&["trace", "convert", trace, "-", "--to", "csv"], &folder);
        assert_eq!(requests(&csv, &order(&seen)), seen, "{words:?}: the same bytes in order");
        // Each page is fetched once, into a cache that holds all of them.
        let words = ["replay", trace, "--on", "tree", "--depth", "1", "--cache", "8M", "--json"];
        let row: Value = serde_json::from_str(&forerun(&words, &folder)).expect("one object");
        let row = &row["runs"][0];
        assert_eq!(row["requests"], seen.len(), "{row}");
        let whole = |(name, page): &(String, u64)| {
            let length = fs::metadata(tree.join(name)).expect("a file").len();
            (length - page * 4_096).min(4_096)
        };
        let fetched: u64 = pages(&seen).iter().map(whole).sum();
        let read = row["bytes_read"].as_u64().expect("a count");
        assert!((fetched..fetched + 4 * 4_096).contains(&read), "{read} beside {fetched}");
        for words in [
            &["sim", trace, "--size", "100", "--json"][..],
            &["replay", trace, "--device", "ssd", "--json"],
        ] {
            forerun(words, &folder);
        }
    }
}

#[test]
fn a_trace_with_paths_is_replayed_below_a_folder_alone() {
    let scratch = Scratch::new("replay-paths");
    let (tree, trace) = (scratch.join("tree"), scratch.join("t.jsonl"));
    fs::create_dir(&tree).expect("a folder");
    fs::write(tree.join("a"), [7; 5_000]).expect("a file");
    let replay = |path: &str, bytes: u64, on: &Path| {
        let head = "{\"forerun_accesses\":2,\"program\":\"x\"}\n";
        let call = format!(
            "{{\"t\":1,\"thread\":1,\"call\":\"read\",\"path\":\"{path}\",\"bytes\":{bytes},\
             \"took\":1}}\n"
        );
        fs::write(&trace, head.to_owned() + &call).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
        command.arg("replay").arg(&trace).arg("--on").arg(on).args(["--depth", "1"]);
        let done = command.stdin(Stdio::null()).output().expect("it starts");
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    #[rustfmt::skip]
    let rows: [(&str, u64, &Path, i32, &str); 5] = [
        ("a",        5_000, &tree,    0, ""),
        ("a",        5_001, &tree,    1, "the file ends at 5000"),
        ("b",        5_000, &tree,    1, "cannot open"),
        ("../t.jsonl", 10,  &tree,    1, "does not lie below"),
        ("/etc/passwd", 10, &tree,    1, "does not lie below"),
    ];
    for (path, bytes, on, status, says) in rows {
        let (found, errors) = replay(path, bytes, on);
        assert_eq!(found, Some(status), "{path} {bytes}: {errors}");
        assert!(errors.contains(says), "{path}: {errors}");
    }
}
