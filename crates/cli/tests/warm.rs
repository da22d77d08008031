//! `forerun warm`, end to end: its report, its refusals, its end.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use forerun_testkit::Scratch;
use rustix::process::geteuid;
use serde_json::Value;

/// A folder of one test, whose paths are text.
struct Folder(Scratch);

impl Folder {
    fn new(test: &str) -> Self {
        Self(Scratch::on_disk(&format!("warm-{test}")))
    }

    /// A file of this many bytes.
    fn file(&self, name: &str, bytes: usize) -> String {
        fs::write(self.0.join(name), vec![7; bytes]).expect("the folder takes a file");
        self.path(name)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("the build's folder is text").to_owned()
    }
}

struct Ended {
    status: Option<i32>,
    out: String,
    err: String,
}

fn warm(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.arg("warm").args(words).stdin(Stdio::null());
    command
}

fn ended(command: &mut Command) -> Ended {
    let output = command.output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("the command prints text");
    let (out, err) = (text(output.stdout), text(output.stderr));
    Ended { status: output.status.code(), out, err }
}

#[test]
fn the_report_comes_as_text_and_as_json() {
    let folder = Folder::new("report");
    let (file, _) = (folder.file("a", 2 << 20), folder.file("b", 5000));
    let Ended { status, out, err } = ended(&mut warm(&[&file]));
    assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
    let firsts: Vec<_> = out.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(firsts, ["budget", "files", "before", "fetched"], "{out}");

    let Ended { status, out, err } =
        ended(&mut warm(&["--json", "--budget", "1G", &folder.path("")]));
    assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
    let report: Value = serde_json::from_str(&out).expect("stdout is one JSON object");
    assert_eq!(
        (&report["files"], &report["bytes"]),
        (&2.into(), &((2 << 20) + 5000).into()),
        "{out}"
    );
    let number = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name}: {out}"));
    assert_eq!(number("bytes_before") + number("bytes_fetched"), number("bytes"), "{out}");
    assert!(number("budget_bytes") <= number("free_bytes").min(1 << 30), "{out}");
    assert!(report["seconds"].is_f64() && report["skipped"] == Value::Array(vec![]), "{out}");
}

#[test]
fn what_is_not_in_memory_is_named_and_the_status_is_1() {
    let folder = Folder::new("left");
    let (file, none) = (folder.file("a", 5000), folder.path("none"));
    let Ended { status, out, err } = ended(&mut warm(&[&none, &file, "--json"]));
    let report: Value = serde_json::from_str(&out).expect("stdout is one JSON object");
    assert_eq!((status, &report["files"]), (Some(1), &1.into()), "{out}");
    assert_eq!(report["skipped"][0]["path"], none.as_str(), "{out}");
    assert_eq!(
        report["bytes_before"].as_u64().zip(report["bytes_fetched"].as_u64()).map(|(a, b)| a + b),
        Some(5000)
    );
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(
        err.starts_with("forerun: ") && err.contains("none is not in memory: No such"),
        "{err}"
    );

    let Ended { status, out, err } = ended(&mut warm(&[&none, "/dev/null", &file]));
    assert_eq!(status, Some(1), "{out}");
    assert!(
        out.contains("/none ") && out.contains("/dev/null ") && !out.contains(" 0 B\n"),
        "{out}"
    );
    assert!(err.lines().count() == 1 && err.contains("2 paths are not in memory"), "{err}");
}

#[test]
fn twenty_of_many_that_are_not_in_memory_are_named_as_text_and_all_as_data() {
    let folder = Folder::new("many-left");
    let none: Vec<String> = (0..33).map(|number| folder.path(&format!("none-{number}"))).collect();
    let words: Vec<&str> = none.iter().map(String::as_str).collect();
    let Ended { status, out, err } = ended(&mut warm(&words));
    let named = out.lines().filter(|line| line.contains("none-")).count();
    assert_eq!((status, named), (Some(1), 20), "{out}");
    assert!(out.ends_with("and 13 more: --csv and --json name them\n"), "{out}");
    assert!(err.contains("33 paths are not in memory"), "{err}");
    let Ended { out, .. } = ended(&mut warm(&[&words[..], &["--csv"]].concat()));
    assert_eq!(out.lines().filter(|line| line.contains("none-")).count(), 33, "{out}");
}

/// As of a file server: 8,000 locks are half a megabyte of the kernel's list.
#[test]
fn many_locks_of_others_keep_no_file_from_being_fetched() {
    let test = "many_locks_of_others_keep_no_file_from_being_fetched";
    if !forerun_testkit::installed(test, "python3") {
        return;
    }
    let folder = Folder::new("locks");
    let (locked, file) = (folder.file("locked", 1), folder.file("file", 100_000));
    let locks = "
import fcntl, sys
file = open(sys.argv[1], 'r+b')
for at in range(0, 16000, 2): fcntl.lockf(file, fcntl.LOCK_EX, 1, at)
print('locked', flush=True)
sys.stdin.read()
";
    let mut command = Command::new("python3");
    command.args(["-c", locks, &locked]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = command.spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(holder.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    let ended = ended(&mut warm(&["--json", &file]));
    assert_eq!((ended.status, ended.err.as_str()), (Some(0), ""), "{}", ended.out);
    drop(holder.stdin.take());
    assert!(holder.wait().expect("it was started").success());
}

#[test]
fn what_makes_no_sense_is_bad_usage() {
    #[rustfmt::skip]
    let rows: &[(&[&str], &str)] = &[ // words  said
        (&[],                                   "<PATH>"),
        (&["--budget", "1G"],                   "<PATH>"),
        (&["--budget", "lots", "/"],            "--budget"),
        (&["--budget", "101%", "/"],            "such as 10%"),
        (&["--budget", "-1", "/"],              "'-1'"),
        (&["--limit", "1M", "/"],               "--limit"),
    ];
    for (words, said) in rows {
        let Ended { status, out, err } = ended(&mut warm(words));
        assert_eq!((status, out.as_str()), (Some(2), ""), "{words:?}: {err}");
        assert!(err.lines().count() == 1 && err.contains(said), "{words:?}: {err}");
    }
}

/// Run by root, the user `nobody` warms; else the user of the tests, on files of their own.
#[test]
fn a_user_warms_what_he_may_read() {
    let folder = Folder(Scratch::new("warm-user"));
    fs::create_dir_all(folder.0.join("files/folder")).expect("it takes a folder");
    let allow = |path: &str, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is our own");
    };
    let (open, closed) = (folder.file("files/open", 3 << 20), folder.file("files/closed", 3 << 20));
    let (files, inner) = (folder.path("files"), folder.path("files/folder"));
    // All may go there, as they may not where this was built.
    let forerun = folder.path("forerun");
    fs::copy(env!("CARGO_BIN_EXE_forerun"), &forerun).expect("there is room");
    for (path, mode) in [
        (&folder.path(""), 0o755),
        (&forerun, 0o755),
        (&files, 0o755),
        (&open, 0o444),
        (&closed, 0),
        (&inner, 0),
    ] {
        allow(path, mode);
    }
    let mut command = Command::new(&forerun);
    command.args(["warm", "--json", &files]).stdin(Stdio::null()).current_dir("/");
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = match command.output() {
        Err(error) if geteuid().is_root() => {
            let why = format!("no other user for root, which no rights bind: {error}");
            return forerun_testkit::skip("a_user_warms_what_he_may_read", &why);
        }
        output => output.expect("it starts"),
    };
    // So that it can be removed.
    allow(&inner, 0o755);
    let report: Value = serde_json::from_slice(&output.stdout).expect("stdout is one JSON object");
    assert_eq!(output.status.code(), Some(1), "{report}");
    let number = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"));
    // The kernel hides the residency of root's file from the user `nobody`, so it is read whole.
    let fetched = if geteuid().is_root() { 3 << 20 } else { (3 << 20) - number("bytes_before") };
    assert_eq!((number("files"), number("bytes_fetched")), (1, fetched), "{report}");
    let mut left: Vec<_> = report["skipped"].as_array().expect("a list").iter().collect();
    left.sort_by_key(|left| left["path"].as_str());
    assert_eq!(left.len(), 2, "{report}");
    assert_eq!((&left[0]["path"], &left[1]["path"]), (&closed.into(), &inner.into()));
    assert!(left.iter().all(|l| l["why"].as_str().is_some_and(|why| why.contains("denied"))));
}

const NOBODY: u32 = 65_534;

/// More than is requested at once, in more pieces than there are threads.
#[test]
fn a_large_file_is_fetched_to_its_end() {
    let folder = Folder::new("large");
    let bytes = 160 << 20;
    let file = folder.file("large", bytes);
    for _ in 0..3 {
        let opened = fs::File::open(&file).expect("it was written");
        opened.sync_all().expect("the disk takes it");
        forerun_testkit::drop_from_cache(&opened);
        let Ended { status, out, err } = ended(&mut warm(&["--json", &file]));
        assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
        let report: Value = serde_json::from_str(&out).expect("stdout is one JSON object");
        assert_eq!(report["bytes"], bytes, "{out}");
    }
}
