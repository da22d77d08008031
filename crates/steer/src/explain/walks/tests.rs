//! Tests of the replay on real directories, with calls and waits that are made up.

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use forerun_testkit::Scratch;

use super::super::entries::{EntryRecords, ThreadId, Wait};
use super::*;
use crate::observe::access::{EntryAccess, EntryCall, FileRead};
use crate::observe::blocked::BlockedIn;

const TEN: Nanos = Nanos::from_millis(10);

/// A program that is blocked in one call after the other, ten milliseconds in each, and computes a
/// millisecond between two.
struct Calls {
    records: EntryRecords,
    own: File,
    now: Nanos,
}

impl Calls {
    fn new() -> Self {
        let own = File::open("/proc/self").expect("there is one");
        Self { records: EntryRecords::default(), own, now: TEN }
    }

    fn add(&mut self, path: &Path, call: EntryCall) {
        self.meet(7, path, call);
        self.wait(&[(7, call)], TEN, TEN);
    }

    /// The thread `tid`, the first of its process, comes to a call.
    fn meet(&mut self, tid: i32, path: &Path, call: EntryCall) {
        let (pid, thread, process) = (tid, tid, self.own.as_fd());
        let is_read = matches!(call, EntryCall::Read { .. });
        let read = FileRead { file_bytes: 9, offset: 0, bytes: 9, moves: true };
        let (path, read) = (path.as_os_str().as_bytes(), is_read.then_some(read));
        self.records.add(self.now, &EntryAccess { pid, thread, process, path, call, read });
    }

    /// For ten milliseconds threads are blocked in calls, each for `blocked`, and the program loses
    /// so much by each; then it computes.
    fn wait(&mut self, threads: &[(i32, EntryCall)], blocked: Nanos, lost: Nanos) {
        self.now += TEN;
        for &(tid, call) in threads {
            let (thread, met) = (ThreadId { pid: tid, tid }, BlockedIn::Entry(call));
            assert!(self.records.waited(self.now, thread, Wait { lost, blocked, met }));
        }
        self.now += Nanos::from_millis(1);
    }

    fn replayed(&self, rates: Option<[u64; 2]>, stays: bool) -> Replayed {
        let root = Root::of(self.own.as_fd()).expect("this process sees itself");
        let small = rates.map(|[best, alone]| SmallReads { best, alone, seeks: false });
        replay(&self.records.entries(), &root, small, |_| stays)
    }
}

/// A directory of so many files, and their paths in the order of names.
fn files(scratch: &Scratch, count: usize) -> Vec<std::path::PathBuf> {
    let top = fs::canonicalize(scratch).expect("it is there");
    let paths: Vec<_> = (0..count).map(|at| top.join(format!("f{:03}", at * 7))).collect();
    for path in &paths {
        fs::write(path, "some text").expect("there is room");
    }
    paths
}

#[test]
fn a_walk_by_names_is_predicted_as_fast_as_the_device_allows() {
    let scratch = Scratch::new("replay");
    let paths = files(&scratch, 100);
    let mut calls = Calls::new();
    calls.add(paths[0].parent().expect("it has one"), EntryCall::List);
    for path in &paths {
        calls.add(path, EntryCall::Read { to_end: true });
    }
    let millis = |replayed: &Replayed| replayed.spared.0 / 1_000_000;
    let free = calls.replayed(None, false);
    let [walk] = &free.walks[..] else { panic!("{:?}", free.walks) };
    assert_eq!(walk.directory, fs::canonicalize(&scratch).expect("it is there"));
    assert!(["name", "readdir", "inode", "numeric"].contains(&&*walk.order), "{}", walk.order);
    assert!(walk.entries >= 80 && walk.predicted >= 60, "{walk:?}");
    assert!((600..1_010).contains(&millis(&free)), "of 1010 ms: {}", millis(&free));
    // One request at a time: what is fetched ahead is not there any sooner.
    let slow = calls.replayed(Some([100, 100]), false);
    assert!(millis(&slow) <= 150, "computing alone overlaps: {}", millis(&slow));
    let four = calls.replayed(Some([400, 100]), false);
    assert!(slow.spared < four.spared && four.spared <= free.spared, "in between");
    assert_eq!(calls.replayed(None, true).spared, Nanos(0), "each open is asked for");
}

#[test]
fn threads_that_take_files_in_turn_lose_less_and_are_seen_as_long_as_they_wait() {
    let scratch = Scratch::new("replay-threads");
    let paths = files(&scratch, 120);
    let read = EntryCall::Read { to_end: true };
    // Both wait and lose all of the time together, or half of it beside another that computes.
    for (lost, all) in [(5, 600), (2, 240)] {
        let mut calls = Calls::new();
        calls.add(paths[0].parent().expect("it has one"), EntryCall::List);
        for pair in paths.chunks(2) {
            calls.meet(7, &pair[0], read);
            calls.meet(8, &pair[1], read);
            calls.wait(&[(7, read), (8, read)], TEN, Nanos::from_millis(lost));
        }
        let replayed = calls.replayed(Some([1_000, 100]), false);
        let spared = replayed.spared.0 / 1_000_000;
        assert!((all * 3 / 5..=all + 10).contains(&spared), "{spared} of {all} ms");
        let slow = calls.replayed(Some([100, 100]), false);
        assert!(slow.spared < replayed.spared, "the device is busy with what threads wait for");
    }
}

#[test]
fn what_is_in_no_order_is_not_predicted() {
    let scratch = Scratch::new("replay-random");
    let paths = files(&scratch, 211);
    let mut calls = Calls::new();
    for at in 0..100 {
        calls.add(&paths[at * 89 % 211], EntryCall::Open);
    }
    let replayed = calls.replayed(None, false);
    assert!(replayed.spared.0 <= TEN.0 * 10, "{:?}", replayed.spared);
}

#[test]
fn what_is_gone_or_the_kernels_own_has_no_walk() {
    let mut calls = Calls::new();
    for at in 0..50 {
        calls.add(Path::new(&format!("/proc/{at}")), EntryCall::Stat);
        calls.add(Path::new(&format!("/no/such/directory/{at}")), EntryCall::Open);
        calls.add(Path::new("/"), EntryCall::Stat);
    }
    let replayed = calls.replayed(None, false);
    assert_eq!((replayed.walks.len(), replayed.spared), (0, Nanos(0)));
}

#[test]
fn a_walk_goes_on_where_a_directory_is_listed_twice() {
    let scratch = Scratch::new("replay-listed-twice");
    let paths = files(&scratch, 100);
    let top = paths[0].parent().expect("it has one");
    let mut calls = Calls::new();
    calls.add(top, EntryCall::List);
    for path in &paths[..20] {
        calls.add(path, EntryCall::Stat);
    }
    let root = Root::of(calls.own.as_fd()).expect("this process sees itself");
    let entries = calls.records.entries();
    let mut replay = Replay::new(&entries, &root, None);
    for at in 0..entries.rows.len() {
        replay.step(at, false);
    }
    let names: Vec<&[u8]> = top
        .as_os_str()
        .as_bytes()
        .split(|&byte| byte == b'/')
        .filter(|it| !it.is_empty())
        .collect();
    let dir = replay.directory(&names).expect("it is known");
    let before = replay.walks.stats();
    assert!(before.in_flight + before.waiting > 0, "something is ahead: {before:?}");
    replay.list(dir).expect("it is there");
    assert_eq!(replay.walks.stats(), before, "the same listing drops nothing");
    fs::remove_file(&paths[99]).expect("it was there");
    replay.list(dir).expect("it is there");
    assert_ne!(replay.walks.stats(), before, "another one does");
}
