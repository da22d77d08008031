//! `forerun warm`, end to end: what it tells, what it refuses, how it ends.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::geteuid;
use serde_json::Value;

/// A folder for one test, empty, and removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("warm-{test}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("the build's folder takes a folder");
        Self(folder)
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

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
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
fn what_is_asked_for_is_told_as_text_and_as_json() {
    let folder = Folder::new("told");
    let (file, _) = (folder.file("a", 2 << 20), folder.file("b", 5000));
    let Ended { status, out, err } = ended(&mut warm(&[&file]));
    assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
    let firsts: Vec<_> = out.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(firsts, ["budget", "files", "before", "fetched"], "{out}");

    let Ended { status, out, err } =
        ended(&mut warm(&["--json", "--budget", "1G", &folder.path("")]));
    assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
    let told: Value = serde_json::from_str(&out).expect("stdout is one JSON object");
    assert_eq!((&told["files"], &told["bytes"]), (&2.into(), &((2 << 20) + 5000).into()), "{out}");
    let number = |name: &str| told[name].as_u64().unwrap_or_else(|| panic!("{name}: {out}"));
    assert_eq!(number("bytes_before") + number("bytes_fetched"), number("bytes"), "{out}");
    assert!(number("budget_bytes") <= number("free_bytes").min(1 << 30), "{out}");
    assert!(told["seconds"].is_f64() && told["left"] == Value::Array(vec![]), "{out}");
}

#[test]
fn what_is_not_in_memory_is_named_and_the_status_is_1() {
    let folder = Folder::new("left");
    let (file, none) = (folder.file("a", 5000), folder.path("none"));
    let Ended { status, out, err } = ended(&mut warm(&[&none, &file, "--json"]));
    let told: Value = serde_json::from_str(&out).expect("stdout is one JSON object");
    assert_eq!((status, &told["files"]), (Some(1), &1.into()), "{out}");
    assert_eq!(told["left"][0]["path"], none.as_str(), "{out}");
    assert_eq!(
        told["bytes_before"].as_u64().zip(told["bytes_fetched"].as_u64()).map(|(a, b)| a + b),
        Some(5000)
    );
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(
        err.starts_with("forerun: ") && err.contains("none is not in memory: No such"),
        "{err}"
    );

    let Ended { status, out, err } = ended(&mut warm(&[&none, "/dev/null", &file]));
    assert_eq!(status, Some(1), "{out}");
    assert!(out.contains("/none ") && out.contains("/dev/null "), "{out}");
    assert!(err.lines().count() == 1 && err.contains("2 paths are not in memory"), "{err}");
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

#[test]
fn a_user_warms_what_he_may_read() {
    const TEST: &str = "a_user_warms_what_he_may_read";
    if !geteuid().is_root() {
        return support::skip(TEST, "only root can become another user");
    }
    let folder = Folder(std::env::temp_dir().join(format!("forerun-warm-{}", std::process::id())));
    fs::create_dir_all(&folder.0).expect("the temporary folder takes a folder");
    let allow = |path: &str, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is our own");
    };
    let (open, closed) = (folder.file("open", 3 << 20), folder.file("closed", 3 << 20));
    fs::create_dir(folder.0.join("folder")).expect("the folder takes a folder");
    allow(&folder.path(""), 0o755);
    allow(&open, 0o644);
    allow(&closed, 0o600);
    allow(&folder.path("folder"), 0o700);
    let mut command = warm(&["--json", &folder.path("")]);
    let output = command.uid(NOBODY).gid(NOBODY).current_dir("/").output();
    let Ok(output) = output else {
        return support::skip(TEST, "nobody may run what is built here");
    };
    let told: Value = serde_json::from_slice(&output.stdout).expect("stdout is one JSON object");
    assert_eq!(output.status.code(), Some(1), "{told}");
    // Nobody tells what of the file was in memory, so it was read.
    assert_eq!((&told["files"], &told["bytes_fetched"]), (&1.into(), &(3 << 20).into()), "{told}");
    let mut left: Vec<_> = told["left"].as_array().expect("a list").iter().collect();
    left.sort_by_key(|left| left["path"].as_str());
    assert_eq!(left.len(), 2, "{told}");
    assert_eq!(
        (&left[0]["path"], &left[1]["path"]),
        (&closed.into(), &folder.path("folder").into())
    );
    assert!(left.iter().all(|l| l["why"].as_str().is_some_and(|why| why.contains("denied"))));
}

const NOBODY: u32 = 65_534;
