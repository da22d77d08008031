//! The columns of the table, and what is compared.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use forerun_testkit::Scratch;

/// A way to run a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Alone,
    Run,
    Shim,
    Statistics,
    Explain,
    /// With the list of a run before it, to which it adds.
    Learned,
}

/// All ways; the first is what the others are compared with.
pub(crate) const WAYS: [Way; 6] =
    [Way::Alone, Way::Run, Way::Shim, Way::Statistics, Way::Explain, Way::Learned];

impl Way {
    /// The words before a program. What is written besides goes into `folder`.
    pub(crate) fn words(self, folder: &Path) -> Vec<String> {
        let json = folder.join("stats.json").display().to_string();
        let page = folder.join("page.html").display().to_string();
        let flags: &[&str] = match self {
            Self::Alone => return Vec::new(),
            Self::Run => &["run"],
            Self::Shim => &["run", "--observe", "preload"],
            Self::Statistics => &["run", "--stats-json", &json],
            Self::Explain => &["explain", "-o", &page],
            Self::Learned => &["run", "--learn", "auto"],
        };
        let words = [env!("CARGO_BIN_EXE_forerun")].into_iter().chain(flags.iter().copied());
        words.chain(["--"]).map(str::to_owned).collect()
    }
}

/// What a program did, and what it saw.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) status: Option<i32>,
    pub(crate) output: String,
    pub(crate) errors: String,
    /// Files that it left in its folder.
    pub(crate) files: BTreeMap<PathBuf, String>,
}

impl Seen {
    /// What differs from `alone`, line by line.
    pub(crate) fn differences(&self, alone: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if self.status != alone.status {
            found.push(format!("status {:?}, alone {:?}", self.status, alone.status));
        }
        let mut compare = |what: &str, here: &str, there: &str| {
            let (here, there) =
                (here.lines().collect::<Vec<_>>(), there.lines().collect::<Vec<_>>());
            let more = here.iter().filter(|line| !there.contains(line));
            found.extend(more.map(|line| format!("{what}: {line}")));
            let less = there.iter().filter(|line| !here.contains(line));
            found.extend(less.map(|line| format!("{what}, alone: {line}")));
            if here != there && here.len() == there.len() {
                found.push(format!("{what}: in another order"));
            }
        };
        compare("output", &self.output, &alone.output);
        compare("errors", &self.errors, &alone.errors);
        let names = self.files.keys().chain(alone.files.keys());
        for name in names.collect::<std::collections::BTreeSet<_>>() {
            let text = |seen: &Self| seen.files.get(name).cloned().unwrap_or_default();
            compare(&name.display().to_string(), &text(self), &text(alone));
        }
        if found.is_empty() && self != alone {
            found.push("the same lines, but not the same bytes".to_owned());
        }
        found
    }
}

/// Runs `words` in a new folder of `scratch`, always the same, after those of `way`, with `before`
/// in front of all.
pub(crate) fn run(scratch: &Scratch, way: Way, before: &[String], words: &[String]) -> Seen {
    let seen = once(scratch, way, before, words);
    if way == Way::Learned { once(scratch, way, before, words) } else { seen }
}

fn once(scratch: &Scratch, way: Way, before: &[String], words: &[String]) -> Seen {
    let (folder, aside) = (scratch.join("row"), Scratch::new("aside"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).expect("there is room for a folder");
    let way_words = way.words(&aside);
    let mut all = before.iter().chain(&way_words).chain(words);
    let mut command = Command::new(all.next().expect("there is a program"));
    command.args(all).current_dir(&folder).stdin(Stdio::null());
    // In all ways: an environment to which something was added is in another order.
    command.env("FORERUN_PRELOAD", shim()).env("XDG_STATE_HOME", scratch.join("state"));
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let errors = text(stderr);
    Seen {
        // The manual names the difference between a signal and this status, which a shell gives.
        status: status.code().or_else(|| status.signal().map(|signal| 128 + signal)),
        output: text(stdout),
        // What `explain` says comes after the program's errors.
        errors: errors
            .lines()
            .filter(|line| !line.starts_with("forerun: "))
            .fold(String::new(), |all, line| all + line + "\n"),
        files: files(&folder),
    }
}

/// The files in `folder`.
fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let entries = fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("readable"));
    let read = |entry: fs::DirEntry| {
        let bytes = fs::read(entry.path()).unwrap_or_default();
        (PathBuf::from(entry.file_name()), String::from_utf8_lossy(&bytes).into_owned())
    };
    entries.map(read).collect()
}

/// The shim, which cargo leaves beside the tests.
fn shim() -> PathBuf {
    std::env::current_exe().expect("a test has a path").with_file_name("libforerun_preload.so")
}
