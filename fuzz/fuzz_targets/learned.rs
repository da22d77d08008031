//! A learned list of any bytes: read, joined, moved, replayed, and fetched from a scratch folder.
//!
//! ```text
//!   a first byte of '{'    text, read as a list
//!   else 4 bytes a row     which path of the folder, kind, range, history; after a row of zeros,
//!                          2 bytes a call of the replay
//! ```
//! # Invariants
//! - What reads is written and reads as the same, joined with itself and moved as well.
//! - A replay requests each entry once, within its budget, and keeps its counts; of no version of a
//!   file more is fetched than the replay was charged.
//! - No pipe, device, socket or leased file of the folder is opened, whatever a list says.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::{env, process};

use forerun_core::learned::replay::{AHEAD_MAX, Replay, ReplayEntry};
use forerun_core::learned::{LearnedEntry, LearnedKind, LearnedList, Observed, Version, charged};
use forerun_core::units::Nanos;
use forerun_steer::learn::format::LearnedFile;
use forerun_steer::learn::{rebased, warm};
use libfuzzer_sys::fuzz_target;
use rustix::fs::{CWD, FileType, Mode, inotify, makedev, mknodat};
use rustix::io::Errno;

/// Options of the sanitizer: threads of workers end after the call that started them, so that their
/// memory looks lost.
#[unsafe(no_mangle)]
pub extern "C" fn __asan_default_options() -> *const std::ffi::c_char {
    c"detect_leaks=0".as_ptr()
}

fuzz_target!(|bytes: &[u8]| {
    let folder = FOLDER.get_or_init(Folder::make);
    let (list, calls) = if bytes.first() == Some(&b'{') {
        let Ok(file) = LearnedFile::read(bytes) else { return };
        (file.list, [].as_slice())
    } else {
        let rows: Vec<&[u8]> = bytes.chunks_exact(4).take_while(|row| row != &[0; 4]).collect();
        let calls = bytes.get(4 * (rows.len() + 1)..).unwrap_or_default();
        let entries = rows.iter().zip(0..).map(|(row, first)| folder.entry(row, first));
        (LearnedList::new(u64::from(bytes.len() as u8 % 5), entries), calls)
    };
    read_again(&list);
    join(&list);
    replay(&list, calls);
    // Below the folder a `/` is the folder: the paths of any text are taken from there.
    let root = folder.path.as_os_str().as_bytes();
    let is_inside = list.entries().iter().all(|entry| entry.path.starts_with(root));
    let inside = if is_inside { Ok(list) } else { rebased(&list, b"/", root) };
    if let Ok(inside) = inside
        && inside.entries().len() <= FETCHED_MAX
    {
        let report = warm(&inside, BUDGET, &mut |_| {});
        let all = report.fetched + report.cached + report.absent + report.gone + report.failed;
        assert_eq!(all + report.beyond, report.entries, "{report:?}");
        assert!(report.bytes_fetched <= BUDGET, "{report:?}");
        folder.check();
    }
});

/// What is written reads as the same.
fn read_again(list: &LearnedList) {
    let mut bytes = Vec::new();
    let file = LearnedFile { list: list.clone(), ..LearnedFile::default() };
    file.write(&mut bytes).expect("in memory");
    let again = LearnedFile::read(&bytes[..]).expect("what is written reads");
    // Times are written in microseconds.
    let mut twice = Vec::new();
    again.write(&mut twice).expect("in memory");
    assert!(bytes == twice, "it is the same list");
}

/// Lists of several runs and machines are lists.
fn join(list: &LearnedList) {
    let mut joined = list.clone();
    let run = list.entries().iter().zip(0..).map(|(entry, at)| Observed {
        entry: entry.clone(),
        unseen: (0..at % 4).map(|at| at * 4096..at * 8192).collect(),
        is_seen: at % 3 > 0,
    });
    joined.merge(run.collect());
    joined.merge_list(list);
    let paths: BTreeSet<_> = joined.entries().iter().map(|entry| &entry.path).collect();
    assert_eq!(paths.len(), joined.entries().len(), "each path once");
    read_again(&joined);
    for entry in joined.entries() {
        assert!(entry.ranges.is_sorted_by(|a, b| a.end <= b.start), "in order");
        assert!(entry.histories.is_empty() || entry.histories.len() == entry.ranges.len());
    }
    for entry in joined.trusted() {
        assert!(entry.ranges.is_sorted_by(|a, b| a.end < b.start), "apart and in order");
        for bytes in [entry.version.bytes, entry.version.bytes / 2, 4 << 20] {
            let now = Version { bytes, ..entry.version };
            for allowed in [entry.bytes_charged(), entry.bytes_max(), u64::MAX] {
                let ranges = entry.ranges_of(now, allowed);
                assert!(charged(&ranges) <= allowed.min(entry.bytes_max()), "{entry:?} {now:?}");
                assert!(ranges.iter().all(|range| range.end <= bytes));
            }
        }
    }
}

/// Replays `list` as `calls` say, beside a plain account of it.
fn replay(list: &LearnedList, calls: &[u8]) {
    let entries: Vec<ReplayEntry> = list
        .trusted()
        .map(|entry| ReplayEntry {
            first: entry.first,
            bytes: entry.bytes_charged() % (BUDGET * 2),
            bytes_max: entry.bytes_max() % (BUDGET * 2) + BUDGET * 2,
            ranges: entry.ranges.len() as u64,
            place: entry.version.inode,
            is_judged: entry.kind == LearnedKind::Read,
        })
        .collect();
    let mut replay = Replay::new(entries.iter().copied());
    let (mut requested, mut used) = (BTreeSet::new(), BTreeSet::new());
    let (mut in_flight, mut now) = (Vec::new(), Nanos(0));
    // What requests may fetch, and what those that have ended did.
    let mut bytes = BTreeMap::new();
    for call in calls.chunks_exact(2) {
        now = Nanos(now.0 + 1 + u64::from(call[1]) * 100_000);
        let index = (usize::from(call[0] >> 2) + usize::from(call[1]) * 64) as u32;
        match call[0] % 4 {
            0 => {
                let mut out = Vec::new();
                let seeks = [None, Some(true), Some(false)][usize::from(call[0] >> 2) % 3];
                replay.issue(usize::from(call[1]), BUDGET, seeks, &mut out);
                assert!(out.len() <= usize::from(call[1]));
                for index in out {
                    assert!(requested.insert(index), "an entry is requested once");
                    let entry = entries[index as usize];
                    let is_large = entry.ranges > 4 || entry.bytes > 8 << 20;
                    assert!(is_large || !used.contains(&index), "what is used is not requested");
                    bytes.insert(index, replay.allowed_bytes(index));
                    in_flight.push(index);
                }
            }
            1 if !in_flight.is_empty() => {
                let index = in_flight.swap_remove(index as usize % in_flight.len());
                let took = (call[1] % 4 > 0).then_some(Nanos(now.0 / 2));
                let fetched = replay.allowed_bytes(index) >> (call[1] % 5);
                bytes.insert(index, fetched);
                replay.complete(index, took, fetched, call[1] % 3 > 0);
            }
            1 => replay.complete(index, None, 0, true),
            _ if (index as usize) < entries.len() => {
                replay.used(now, index);
                used.insert(index);
            }
            _ => replay.used(now, index),
        }
        let stats = replay.stats();
        let ahead: u64 = requested.difference(&used).map(|index| bytes[index]).sum();
        assert_eq!(replay.ahead_bytes(), ahead);
        assert!(ahead <= BUDGET && replay.distance() <= AHEAD_MAX);
        assert_eq!(replay.in_flight(), in_flight.len());
        assert_eq!((stats.requested, stats.used), (requested.len() as u64, used.len() as u64));
        assert!(stats.used_requested + stats.unused <= stats.requested, "{stats:?}");
    }
    replay.finish();
    assert!(replay.is_over() && replay.distance() == 0);
}

/// A folder with what no list may have opened.
struct Folder {
    path: PathBuf,
    names: Vec<Vec<u8>>,
    /// Tells opens of these.
    watches: OwnedFd,
    _held: (File, UnixListener),
}

static FOLDER: OnceLock<Folder> = OnceLock::new();

impl Folder {
    fn make() -> Self {
        let path = env::temp_dir().join(format!("forerun-fuzz-learned-{}", process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("d/e")).expect("a folder");
        for (name, bytes) in [("file", 9_000), ("d/large", 900_000), ("d/e/empty", 0)] {
            fs::write(path.join(name), vec![7; bytes]).expect("a file");
        }
        let leased = File::create(path.join("leased")).expect("a file");
        // SAFETY: the call takes numbers alone.
        let is_leased =
            unsafe { libc::fcntl(leased.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) } == 0;
        let socket = UnixListener::bind(path.join("socket")).expect("a socket");
        let all = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, path.join("pipe"), FileType::Fifo, all, 0).expect("a pipe");
        let device = mknodat(CWD, path.join("null"), FileType::CharacterDevice, all, makedev(1, 3));
        let watches = inotify::init(inotify::CreateFlags::NONBLOCK).expect("a kernel with inotify");
        let closed =
            [("pipe", true), ("socket", true), ("null", device.is_ok()), ("leased", is_leased)];
        for (name, is_made) in closed {
            if is_made {
                let opens = inotify::WatchFlags::OPEN;
                inotify::add_watch(&watches, path.join(name), opens).expect("a watch");
            }
            symlink(path.join(name), path.join(format!("to-{name}"))).expect("a link");
        }
        symlink("loop", path.join("loop")).expect("a link");
        symlink("d", path.join("to-d")).expect("a link");
        symlink("/proc/self/fd", path.join("to-fd")).expect("a link");
        let names =
            NAMES.iter().map(|name| [path.as_os_str().as_bytes(), name.as_bytes()].concat());
        Self { names: names.collect(), path, watches, _held: (leased, socket) }
    }

    /// The entry that a row of four bytes stands for.
    fn entry(&self, row: &[u8], first: u64) -> LearnedEntry {
        let [name, how, from, to] = row else { unreachable!("four bytes a row") };
        let (_, kind) = LearnedKind::NAMES[usize::from(how % 4)];
        let range = match how >> 4 {
            0 => u64::MAX / 2 - 1..u64::MAX / 2,
            1 => 0..i64::MAX as u64,
            _ => u64::from(*from) << (how >> 4)..u64::from(*to) << (how >> 4),
        };
        let version = Version { inode: u64::from(*to), bytes: u64::from(*from) << 8, modified: 1 };
        LearnedEntry {
            path: self.names[usize::from(*name) % self.names.len()].clone().into(),
            kind,
            first: Nanos(first * 1_000),
            ranges: vec![range.clone(), 0..range.start.min(4096)],
            version,
            history: how >> 1,
            histories: if how & 8 > 0 { vec![*to, *from] } else { vec![] },
        }
    }

    /// Nothing was opened that is closed to lists.
    fn check(&self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.watches, &mut buffer);
        match reader.next() {
            Err(Errno::AGAIN) => {}
            note => panic!("something was opened: {note:?}"),
        }
    }
}

const NAMES: [&str; 25] = [
    "",
    "/",
    "/file",
    "/d",
    "/d/",
    "/d/large",
    "//d//e/empty",
    "/d/./large",
    "/file/x",
    "/none",
    "/d/none/x",
    "/pipe",
    "/socket",
    "/null",
    "/leased",
    "/to-pipe",
    "/to-socket",
    "/to-null",
    "/to-leased",
    "/loop",
    "/loop/x",
    "/to-d/large",
    "/to-fd/0",
    "/to-fd",
    "/pipe/.",
];
const BUDGET: u64 = 1 << 20;
const FETCHED_MAX: usize = 64;
