//! `forerun trace record`: the accesses of a program that runs, as a trace with paths.
//!
//! ```text
//!   program --steer::record--> calls --+
//!   directories of these calls, after its end --> tree --> trace --> FILE
//! ```
//! # Invariants
//! - The program runs as it is, with the caller's input and output; the exit status is its own.
//! - FILE is the whole new trace or as it was; bad usage is refused before the program starts.
//! - At most [`ENTRIES_MAX`] entries of directories are written; what is beyond is told.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context as _, Result, bail};
use forerun_console::failure::note;
use forerun_console::output;
use forerun_core::walk::EntryKind;
use forerun_report::quantity::{calls_not_observed, counted_lines};
use forerun_report::remove_parts;
use forerun_sim::walks::{AccessTrace, Call, CallKind, Tree, names};
use forerun_steer::record::{self, RecordedCall, RecordedKind, Recording};
use forerun_steer::{ObserverKind, SessionError, end_as, end_late};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

/// What `trace record` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forerun trace record -o tar.jsonl.zst -- tar cf /dev/shm/x.tar tree\n  \
    forerun trace record --tree /srv/www -- rsync -a /srv/www/ /backup/\n  \
    forerun sim walks tar.jsonl.zst --device object\n\n\
    Reads of what was in memory already, and took less than a millisecond, are hardly in it: for \
    cache sizes use strace (`forerun trace convert --help`).")]
pub(crate) struct Args {
    /// The trace, packed by zstd if its name ends in .zst
    #[arg(short, long, value_name = "FILE", default_value = "forerun-trace.jsonl")]
    output: PathBuf,
    /// Keep what lies below this directory alone [default: /]
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    words: Vec<OsString>,
}

/// Runs the program, writes what it used, and returns its exit status.
pub(crate) fn run(args: &Args) -> Result<u8> {
    output::require_place(&args.output)?;
    let top = match &args.tree {
        Some(tree) => {
            let top =
                fs::canonicalize(tree).with_context(|| format!("--tree {}", tree.display()))?;
            if !top.is_dir() {
                bail!("--tree {}: it is no directory", tree.display());
            }
            top
        }
        None => PathBuf::from("/"),
    };
    // This process leaves its folder to the program.
    let file = output::absolute(&args.output);
    let recording = match record::record(&ObserverKind::Proc, &args.words) {
        Ok(recording) => recording,
        Err(SessionError::Start(error)) => {
            note(&error.to_string());
            return Ok(error.status());
        }
        Err(error) => return Err(error.into()),
    };
    end_late(remove_parts);
    for line in not_observed(&recording) {
        note(&line);
    }
    let trace = args.trace(&top, &recording);
    let mut bytes = Vec::new();
    trace.write(&mut bytes).context("cannot write the trace")?;
    if args.output.extension() == Some(OsStr::new("zst")) {
        bytes = zstd::encode_all(&bytes[..], ZSTD_LEVEL).context("cannot pack the trace")?;
    }
    output::file(&file, &bytes)?;
    let (calls, entries) = (trace.calls.len(), trace.tree.count() - 1);
    note(&format!("{}: {calls} calls; {entries} entries of directories", args.output.display()));
    for line in next(&args.output, calls) {
        note(&line);
    }
    Ok(end_as(recording.status, recording.key))
}

/// What can be done with a trace of so many calls, as lines.
fn next(path: &Path, calls: usize) -> Vec<String> {
    let path = path.display();
    if calls == 0 {
        return vec![
            "a call is recorded where a poll meets the program in it: one whose files are in \
             memory is hardly met"
                .to_owned(),
        ];
    }
    vec![
        format!("next: `forerun sim walks {path} --device cloud`: what walks would fetch ahead"),
        format!("next: `forerun replay {path} --device cloud`: response times"),
        "for cache sizes (`forerun sim --size`) record with strace: reads of what was in memory \
         are not in this trace, so it has hardly any hits; `forerun trace convert --help` has how"
            .to_owned(),
    ]
}

/// What is missing in the trace, as lines.
fn not_observed(recording: &Recording) -> Vec<String> {
    let given_up = "given up: a file system did not answer";
    let mut lines = counted_lines([
        (recording.calls_left_out, "call was", "calls were", "too many"),
        (recording.processes_skipped, "process", "processes", "could not be looked into"),
        (recording.calls_given_up, "call was", "calls were", given_up),
    ]);
    lines.extend(counted_lines(calls_not_observed(
        recording.calls_refused,
        recording.calls_foreign,
    )));
    lines.extend(recording.bug.clone());
    if !recording.is_observed {
        lines.push("the program was not observed: its trace is empty".to_owned());
    }
    lines
}

impl Args {
    fn trace(&self, top: &Path, recording: &Recording) -> AccessTrace {
        let words: Vec<_> = self.words.iter().map(|word| word.to_string_lossy()).collect();
        let calls = recording.calls.iter().filter_map(|call| Some((below(top, &call.path)?, call)));
        let calls: Vec<(Vec<&[u8]>, &RecordedCall)> = calls.collect();
        let first = calls.first().map_or(0, |(_, call)| call.begin.0);
        let tree = tree(top, &calls);
        let of = |(path, call): &(Vec<&[u8]>, &RecordedCall)| Call {
            begin: call.begin.0 - first,
            thread: u32::try_from(call.thread).unwrap_or(u32::MAX),
            call: kind(call.kind),
            path: text(path),
            offset: call.offset,
            bytes: call.bytes,
            error: None,
            took: call.end.since(call.begin).0,
        };
        AccessTrace { program: words.join(" "), tree, calls: calls.iter().map(of).collect() }
    }
}

/// The names of `path` below `top`; `None` where it lies elsewhere, or is the kernel's own.
fn below<'a>(top: &Path, path: &'a [u8]) -> Option<Vec<&'a [u8]>> {
    if KERNELS_OWN.iter().any(|own| path.starts_with(own)) {
        return None;
    }
    let rest = Path::new(OsStr::from_bytes(path)).strip_prefix(top).ok()?;
    let names = rest.as_os_str().as_bytes().split(|&byte| byte == b'/');
    Some(names.filter(|name| !name.is_empty()).collect())
}

/// A path of names, as a trace has it.
fn text(names: &[&[u8]]) -> String {
    names::encoded(&names.join(&b'/'))
}

const fn kind(kind: RecordedKind) -> CallKind {
    match kind {
        RecordedKind::Stat => CallKind::Stat,
        RecordedKind::Open => CallKind::Open,
        RecordedKind::List => CallKind::List,
        RecordedKind::Read => CallKind::Read,
        RecordedKind::Map => CallKind::Map,
        RecordedKind::Exec => CallKind::Exec,
    }
}

/// The directories of `calls` with their entries, as they are now: of those that the program itself
/// might list.
fn tree(top: &Path, calls: &[(Vec<&[u8]>, &RecordedCall)]) -> Tree {
    let mut directories: BTreeSet<&[&[u8]]> = BTreeSet::new();
    for (path, _) in calls.iter().filter(|(_, call)| call.is_ours) {
        directories.extend((0..=path.len()).map(|count| &path[..count]));
    }
    let (mut tree, mut left_out) = (Tree::new(), 0_u64);
    for names in directories {
        let Some(node) = tree.find(&text(names)) else { continue };
        if tree.node(node).kind != EntryKind::Directory {
            continue;
        }
        let path = top.join(OsStr::from_bytes(&names.join(&b'/')));
        // It may be gone, closed to this user, or a link by now: its entries are not known then.
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let found = openat2(CWD, &path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
        let list = |found: OwnedFd| fs::read_dir(format!("/proc/self/fd/{}", found.as_raw_fd()));
        let Ok(entries) = found.map_err(io::Error::from).and_then(list) else { continue };
        for entry in entries.flatten() {
            if tree.count() > ENTRIES_MAX {
                left_out += 1;
                continue;
            }
            let Ok(facts) = entry.metadata() else { continue };
            let kind = match facts.file_type() {
                kind if kind.is_dir() => EntryKind::Directory,
                kind if kind.is_file() => EntryKind::File,
                _ => EntryKind::Other,
            };
            let name = names::encoded(entry.file_name().as_bytes());
            tree.add(node, name, kind, facts.ino(), facts.size());
        }
    }
    if left_out > 0 {
        note(&format!("{left_out} entries of directories were too many"));
    }
    tree
}

const ENTRIES_MAX: usize = 1 << 20;
const ZSTD_LEVEL: i32 = 15;
/// What lies there is on no device.
const KERNELS_OWN: [&[u8]; 3] = [b"/proc/", b"/sys/", b"/dev/"];
