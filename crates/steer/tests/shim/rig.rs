//! Runs programs with the shim, and collects their records.
//!
//! # Invariants
//! - A program that does not end is killed at the runner's deadline, by `timeout`.

use std::{
    collections::BTreeSet,
    env,
    ffi::{OsStr, OsString},
    fs,
    ops::Range,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
};

use forerun_steer::shim::{self, Kind, Record, Ring};
use forerun_testkit::{Scratch, compile_c, seconds_max};

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// A file of `pages` pages and `more` bytes; each byte is its page's number modulo 251.
pub(crate) fn numbered(scratch: &Scratch, pages: u64, more: u64) -> PathBuf {
    let byte = |at: u64| u8::try_from(at / PAGE % 251).unwrap();
    scratch.file("file", (0..pages * PAGE + more).map(byte).collect::<Vec<_>>())
}

/// What a program printed, and its records.
pub(crate) struct Told {
    pub(crate) output: Output,
    pub(crate) records: Vec<Record>,
    pub(crate) lost: u64,
}

/// Runs `program` with the shim.
pub(crate) fn run<A: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: &[A]) -> Told {
    run_after(None, Path::new("/dev/null"), program, arguments)
}

/// The same with `input`, and after `preloaded`, or what [`before`] gives.
pub(crate) fn run_after<A: AsRef<OsStr>>(
    preloaded: Option<&OsStr>,
    input: &Path,
    program: impl AsRef<OsStr>,
    arguments: &[A],
) -> Told {
    let (mut ring, far_end) = Ring::create().unwrap();
    let before = before();
    let preloaded = preloaded.or(before.as_deref());
    // `timeout` runs without the shim: it is `env` that sets the variables.
    let mut command = Command::new("timeout");
    command.arg(seconds_max().to_string()).arg("env");
    for (name, value) in far_end.variables(library(), preloaded) {
        let mut word = name;
        word.push("=");
        word.push(value);
        command.arg(word);
    }
    let input = fs::File::open(input).unwrap();
    let output = command.arg(program).args(arguments).stdin(Stdio::from(input)).output().unwrap();
    let mut records = Vec::new();
    ring.drain(|record| records.push(record));
    Told { output, records, lost: ring.lost() }
}

impl Told {
    /// The program ended well, said nothing on stderr, and no record was lost.
    pub(crate) fn is_well(&self, what: &str) {
        let said = String::from_utf8_lossy(&self.output.stderr);
        assert!(self.output.status.success() && said.is_empty(), "{what}: {said}");
        assert_eq!(self.lost, 0, "{what}");
    }

    /// The records of the file at `path`.
    pub(crate) fn of(&self, path: &Path) -> Vec<Record> {
        let file = fs::metadata(path).unwrap();
        let is_its = |record: &&Record| (record.dev, record.ino) == (file.dev(), file.ino());
        self.records.iter().filter(is_its).copied().collect()
    }

    /// The bytes of it that were read, or mapped.
    pub(crate) fn bytes(&self, kind: Kind, path: &Path) -> Vec<Range<u64>> {
        let records = self.of(path).into_iter().filter(|record| record.kind == kind);
        merged(records.map(|record| record.offset..record.offset + record.length).collect())
    }

    /// The processes with records of it.
    pub(crate) fn processes(&self, path: &Path) -> usize {
        self.of(path).iter().map(|record| record.pid).collect::<BTreeSet<_>>().len()
    }

    /// What was done to it, in order.
    pub(crate) fn kinds(&self, path: &Path) -> Vec<Kind> {
        self.of(path).iter().map(|record| record.kind).collect()
    }
}

/// Ranges in order, those that touch joined.
pub(crate) fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut out: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

/// The bytes of pages.
pub(crate) fn pages(first: u64, count: u64) -> Range<u64> {
    first * PAGE..(first + count) * PAGE
}

/// The shim: the one that `FORERUN_TEST_SHIM` names, as `cargo xtask sanitize` does, else the one
/// that cargo leaves beside the tests.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let test = env::current_exe().unwrap();
        let named = env::var_os("FORERUN_TEST_SHIM").map(PathBuf::from);
        shim::library(named.as_deref(), &test).expect("cargo builds the shim for the tests")
    })
}

/// What is loaded before the shim, if anything.
pub(crate) fn before() -> Option<OsString> {
    env::var_os("FORERUN_TEST_BEFORE_SHIM")
}

/// `cases.c`, compiled with `flags`; None where there is no compiler, or it does not know them.
pub(crate) fn cases(test: &str, scratch: &Scratch, flags: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shim/cases.c");
    let program = scratch.join("cases");
    compile_c(test, &source, flags, &program).map(|()| program)
}
