//! Walks on trees of their own, without programs: entries are reported as an observer does.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use forerun_testkit::{Scratch, until};
use rustix::fs::{Mode, OFlags, RawDir, open};
use rustix::process::getpid;

use super::*;
use crate::open::entries::{Root, View};
use crate::prefetch::entries::place::Place;

mod views;

const MIB: u64 = 1 << 20;

/// A tree on a disk, and a driver of walks over it.
struct Walk {
    tree: Scratch,
    driver: WalkDriver,
    now: Nanos,
}

impl Walk {
    fn new(test: &str) -> Self {
        let tree = Scratch::on_disk(test);
        Self {
            tree,
            driver: WalkDriver::new(64 * MIB, 128 * MIB, ThreadRoom::here()),
            now: Nanos(0),
        }
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.tree.canonicalize().unwrap().join(name)
    }

    /// This process uses what lies at `path`.
    fn entry(&mut self, path: &Path, call: EntryCall) {
        let process = open("/proc/self", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let (pid, path) = (getpid().as_raw_pid(), path.as_os_str().as_bytes());
        let access =
            EntryAccess { pid, thread: pid, process: process.as_fd(), path, call, read: None };
        self.driver.entry(self.now, &access);
        self.advance();
    }

    /// Polls until nothing is in flight.
    fn advance(&mut self) {
        self.driver.advance(self.now, usize::MAX, Allowance::endless());
        while !self.driver.requests.is_empty() {
            thread::yield_now();
            self.driver.advance(self.now, usize::MAX, Allowance::endless());
        }
        self.now += Nanos::from_millis(1);
    }

    /// The names in `folder` in the order of readdir.
    fn names(&self, folder: &str) -> Vec<PathBuf> {
        let place = self.path(folder);
        let directory = open(&place, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let mut buffer = Vec::with_capacity(1 << 16);
        let (mut entries, mut names) =
            (RawDir::new(directory, buffer.spare_capacity_mut()), Vec::new());
        while let Some(entry) = entries.next() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(place.join(OsStr::from_bytes(name)));
            }
        }
        names
    }

    /// Reads the first `count` entries of `folder` in the order of readdir.
    fn read(&mut self, folder: &str, count: usize) {
        for path in self.names(folder).iter().take(count) {
            self.entry(path, EntryCall::Read { to_end: true });
        }
    }
}

const READ: EntryCall = EntryCall::Read { to_end: true };

#[test]
fn a_program_that_reads_file_after_file_is_led_and_all_requests_are_answered() {
    let mut walk = Walk::new("walk-files");
    for at in 0..200 {
        walk.tree.file(&format!("f{at}"), vec![1; 5_000]);
    }
    walk.read("", 200);
    let stats = walk.driver.stats();
    assert_eq!(stats.walks, 1, "{stats:?}");
    assert!(stats.requested >= 150 && stats.used >= 150, "{stats:?}");
    assert_eq!((stats.failed, stats.unused), (0, 0), "{stats:?}");
}

#[test]
fn names_of_any_bytes_are_led_like_others() {
    let mut walk = Walk::new("walk-bytes");
    for at in 0_u8..40 {
        let name = [b'n', 0x80 | at, 0xff, b'\n', b' '];
        fs::write(walk.path(OsStr::from_bytes(&name)), "bytes").unwrap();
    }
    walk.read("", 40);
    let stats = walk.driver.stats();
    assert!(stats.used >= 30 && stats.failed == 0, "{stats:?}");
}

#[test]
fn links_that_go_in_circles_end_nowhere() {
    let mut walk = Walk::new("walk-links");
    fs::create_dir(walk.path("d")).unwrap();
    symlink(walk.path("d"), walk.path("d/again")).unwrap();
    symlink("own", walk.path("own")).unwrap();
    for at in 0..40 {
        walk.tree.file(&format!("f{at}"), vec![1; 100]);
        fs::write(walk.path(format!("d/f{at}")), "bytes").unwrap();
    }
    walk.entry(&walk.path(""), EntryCall::List);
    for path in walk.names("").into_iter().chain(walk.names("d")) {
        walk.entry(&path, EntryCall::Stat);
    }
    // The path of a program that goes round by the link.
    let mut path = walk.path("d");
    for _ in 0..60 {
        path.push("again");
        walk.entry(&path.join("f1"), READ);
    }
    let stats = walk.driver.stats();
    assert!(stats.requested > 0 && stats.walks > 0, "{stats:?}");
    assert!(walk.driver.directories.count() < 200, "{}", walk.driver.directories.count());
}

#[test]
fn a_directory_of_a_hundred_thousand_entries_is_followed_within_the_bound() {
    let mut walk = Walk::new("walk-many");
    let folder = walk.path("many");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("0"), "").unwrap();
    for at in 1..100_000 {
        fs::hard_link(folder.join((at / 60_000 * 60_000).to_string()), folder.join(at.to_string()))
            .or_else(|_| fs::write(folder.join(at.to_string()), ""))
            .unwrap();
    }
    let names = walk.names("many");
    assert_eq!(names.len(), 100_000);
    walk.entry(&folder, EntryCall::List);
    for path in &names[..50] {
        walk.entry(path, EntryCall::Stat);
    }
    let stats = walk.driver.stats();
    assert!(stats.used >= 40 && stats.failed == 0, "{stats:?}");
    let max = walk.driver.settings.entries_max as usize;
    let top = walk.driver.directories.names();
    assert_eq!(top, max);
}

#[test]
fn a_directory_that_changes_is_listed_again_but_not_for_ever() {
    let mut walk = Walk::new("walk-changes");
    fs::create_dir(walk.path("d")).unwrap();
    for at in 0..300 {
        fs::write(walk.path(format!("d/f{at:03}")), "bytes").unwrap();
    }
    let names = walk.names("d");
    for (at, path) in names.iter().enumerate() {
        walk.entry(path, READ);
        if at % 10 == 9 {
            let new = walk.path(format!("d/new{at:03}"));
            fs::write(&new, "bytes").unwrap();
            fs::remove_file(&names[299 - at / 10]).ok();
        }
    }
    let stats = walk.driver.stats();
    assert!(stats.requested > 0, "{stats:?}");
    // Whatever was requested is settled, or waits to be used.
    assert!(stats.used + stats.unused + stats.failed <= stats.requested, "{stats:?}");
    assert_eq!(walk.driver.directories.changes_max(), 3, "{stats:?}");
}

#[test]
fn a_tree_that_is_taken_away_fails_its_requests_and_is_forgotten() {
    let mut walk = Walk::new("walk-gone");
    fs::create_dir(walk.path("d")).unwrap();
    for at in 0..60 {
        fs::write(walk.path(format!("d/f{at:02}")), vec![1; 9_000]).unwrap();
    }
    let names = walk.names("d");
    for path in &names[..3] {
        walk.entry(path, EntryCall::Stat);
    }
    fs::remove_dir_all(walk.path("d")).unwrap();
    for path in &names[3..40] {
        walk.entry(path, READ);
    }
    assert!(walk.driver.stats().failed > 0, "{:?}", walk.driver.stats());
    walk.now += FORGOTTEN_AFTER;
    walk.advance();
    assert_eq!(walk.driver.directories.count(), 0);
    assert!(!walk.driver.is_busy());
}

#[test]
fn a_device_without_an_answer_gets_nothing_more() {
    let mut walk = Walk::new("walk-stuck");
    for at in 0..100 {
        walk.tree.file(&format!("f{at}"), vec![1; 100]);
    }
    walk.read("", 20);
    let device = *walk.driver.devices.keys().flatten().next().expect("one was read from");
    let requested = walk.driver.stats().requested;
    // As if one call had not returned for the time.
    walk.driver.devices.get_mut(&Some(device)).unwrap().in_flight += 1;
    walk.now += STUCK_AFTER;
    walk.read("", 24);
    let stats = walk.driver.stats();
    assert!(stats.failed > 0 || stats.requested == requested, "{stats:?}");
    walk.driver.devices.get_mut(&Some(device)).unwrap().in_flight -= 1;
}

#[test]
fn a_device_that_rests_gets_nothing_until_it_has_rested() {
    let mut walk = Walk::new("walk-rest");
    for at in 0..1_000 {
        walk.tree.file(&format!("f{at}"), vec![1; 100]);
    }
    walk.read("", 20);
    let device = *walk.driver.devices.keys().flatten().next().expect("one was read from");
    // Two lookups at a time are no faster than one.
    let (mut depth, mut now) = (WalkDepth::of(true), walk.now);
    while !depth.rests(now) {
        now += Nanos::from_millis(2 * u64::from(depth.requests()));
        depth.answered(now, false, true, 0);
    }
    for row in walk.driver.devices.values_mut() {
        row.depth = depth.clone();
    }
    walk.now = now;
    let submitted = walk.driver.submitted;
    walk.read("", 40);
    assert_eq!(walk.driver.submitted, submitted, "it rests");
    assert!(!walk.driver.is_starved() && !walk.driver.is_fetching());
    assert_eq!(walk.driver.devices[&Some(device)].in_flight, 0);
    walk.now += Nanos::from_millis(3_000);
    walk.read("", 500);
    assert!(walk.driver.submitted > submitted, "it has rested: {:?}", walk.driver.stats());
}

#[test]
fn directories_that_the_program_has_not_gone_are_reached_from_their_parents() {
    let walk = Walk::new("walk-places");
    fs::create_dir_all(walk.path("a/b")).unwrap();
    symlink(walk.path("a"), walk.path("link")).unwrap();
    let process = open("/proc/self", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let root = crate::open::entries::Root::of(process.as_fd()).unwrap();
    let mut place = Place::top(Arc::new(root));
    for name in walk.path("").components().skip(1) {
        place = Place::below(&place, name.as_os_str().as_bytes());
        place.enter();
    }
    let handles = crate::prefetch::entries::place::Handles::default();
    let (link, a) = (Place::below(&place, b"link"), Place::below(&place, b"a"));
    let b = Place::below(&a, b"b");
    assert!(handles.get(&link, Nanos(0)).is_err(), "a link that was not gone");
    assert!(handles.get(&b, Nanos(0)).is_ok());
    link.enter();
    assert!(handles.get(&link, Nanos(0)).is_ok(), "a link that the program has gone");
    let proc = Place::below(&Place::top(Arc::clone(place.root())), b"proc");
    assert!(handles.get(&proc, Nanos(0)).is_err(), "another file system");
    proc.enter();
    assert!(handles.get(&proc, Nanos(0)).is_err(), "of the kernel's own");
    handles.expire(Nanos::from_millis(10_000));
    assert_eq!(handles.count(), 0, "none is kept for long");
}

#[test]
fn handles_are_closed_while_workers_wait_for_more() {
    let mut walk = Walk::new("handles");
    // A worker that waits for long ends as well: where that comes first nothing is shown.
    let is_shown = (0..100).any(|nth| {
        let folder = format!("t{nth}");
        (0..20).for_each(|file| drop(walk.tree.file(&format!("{folder}/f{file}"), "text")));
        walk.read(&folder, 8);
        let kept = || walk.driver.workers.as_ref().expect("it was given work").kept();
        let before = kept();
        until(|| kept().0 == 0);
        before.0 > 0 && kept().1 == before.1
    });
    assert!(is_shown, "handles were closed by workers that ended alone");
}

#[test]
fn a_walk_goes_on_by_the_reads_that_are_told() {
    let mut walk = Walk::new("told");
    for at in 0..600 {
        fs::write(walk.path(format!("{at:03}.h")), [7; 100]).unwrap();
    }
    let names = walk.names("");
    walk.read("", 6);
    assert_eq!(walk.driver.stats().walks, 1);
    let before = walk.driver.stats();
    for path in &names[6..500] {
        assert_eq!(fs::read(path).unwrap().len(), 100);
        walk.advance();
    }
    let stats = walk.driver.stats();
    if walk.driver.watches.count() == 0 {
        return forerun_testkit::skip("told", "the system has no watches to give");
    }
    assert!(stats.used >= before.used + 490, "{stats:?}");
    assert_eq!((stats.requested, stats.walks, stats.failed), (594, 1, 0), "{stats:?}");
    // Those that were never read.
    assert_eq!((stats.unused, stats.passed), (100, 0), "{stats:?}");
    walk.driver.clear();
    assert_eq!(walk.driver.watches.count(), 0);
    assert_eq!(walk.driver.stats().unused, 100, "they stay unused");
}

#[test]
fn what_is_read_in_a_directory_of_a_walk_is_told_with_its_process() {
    let test = "what_is_read_in_a_directory_of_a_walk_is_told_with_its_process";
    let mut walk = Walk::new("told-process");
    for at in 0..40 {
        fs::write(walk.path(format!("{at:03}.h")), [7; 100]).unwrap();
    }
    let names = walk.names("");
    walk.read("", 6);
    let told = |walk: &mut Walk| walk.driver.take_read(walk.now, Allowance::endless());
    drop(told(&mut walk));
    fs::read(&names[10]).unwrap();
    let mut other = Command::new("cat").arg(&names[11]).stdout(Stdio::null()).spawn().unwrap();
    other.wait().unwrap();
    let rows = told(&mut walk);
    let Some(own) = rows.first().filter(|row| row.process.is_some()) else {
        return forerun_testkit::skip(test, "marks of fanotify, Linux 5.19");
    };
    assert_eq!(own.path(), Some(names[10].as_os_str().as_encoded_bytes().to_vec()));
    assert_eq!(own.process, Some(getpid().as_raw_pid()), "{own:?}");
    // Of others the system tells root.
    let other = i32::try_from(other.id()).unwrap();
    let is_other = |row: &FileRead| row.process.is_none_or(|pid| pid == other);
    assert!(rows[1..].iter().all(is_other), "{rows:?}");
}

#[test]
fn what_is_told_beyond_what_a_poll_may_use_is_dropped() {
    let mut walk = Walk::new("told-late");
    for at in 0..3_000 {
        fs::write(walk.path(format!("{at:04}.h")), [7; 100]).unwrap();
    }
    let names = walk.names("");
    walk.read("", 6);
    if walk.driver.watches.count() == 0 {
        return forerun_testkit::skip("told-late", "the system has no watches to give");
    }
    let read = |names: &[PathBuf]| names.iter().for_each(|path| drop(fs::read(path).unwrap()));
    let used = |walk: &Walk| walk.driver.stats().used;
    let before = used(&walk);
    read(&names[6..2_900]);
    walk.driver.allowance = Some(Allowance::of(Nanos(0)));
    walk.driver.take_told(walk.now);
    assert_eq!(used(&walk), before);
    // Nothing of it is taken in later.
    walk.driver.allowance = None;
    walk.driver.take_told(walk.now);
    assert_eq!(used(&walk), before);
    read(&names[6..16]);
    walk.advance();
    assert!(used(&walk) > before, "what is told then is taken in");
}

#[test]
fn what_others_do_in_a_directory_that_was_left_is_not_told() {
    let tree = Scratch::on_disk("others");
    for at in 0..300 {
        tree.file(&format!("{at}/file"), "x");
    }
    let root = Root::of(open("/proc/self", OFlags::PATH, Mode::empty()).unwrap().as_fd()).unwrap();
    let top = Place::top(Arc::new(root));
    for queue in [WatchQueue::new(), WatchQueue::of_inotify()] {
        let (mut watches, mut ended) = (Watches::new(queue), Vec::new());
        for at in 0..300 {
            let folder = open(tree.join(format!("{at}")), OFlags::PATH, Mode::empty()).unwrap();
            let Ok(number) = watches.queue().watch(&folder) else {
                return forerun_testkit::skip("others", "the system has no watches to give");
            };
            let place = Place::below(&top, at.to_string().as_bytes());
            ended.extend(watches.add(number, DirectoryId(at), &place));
        }
        assert_eq!((watches.count(), ended.len()), (256, 44), "a bound");
        let told = |watches: &mut Watches, at: u32| {
            fs::read(tree.join(format!("{at}/file"))).unwrap();
            let mut told = Vec::new();
            watches.take(&mut told);
            told.into_iter().map(|read| (read.dir.0, read.name)).collect::<Vec<_>>()
        };
        assert_eq!(told(&mut watches, 299), [(299, b"file".to_vec())]);
        assert_eq!(told(&mut watches, 299), [], "one use");
        assert_eq!(told(&mut watches, ended[0].0.0), []);
        watches.clear();
        assert_eq!(told(&mut watches, 298), []);
    }
}

#[test]
fn a_watch_of_a_directory_that_is_gone_has_ended() {
    let tree = Scratch::on_disk("gone");
    tree.file("d/file", "x");
    tree.file("e/file", "x");
    let root = Root::of(open("/proc/self", OFlags::PATH, Mode::empty()).unwrap().as_fd()).unwrap();
    let top = Place::top(Arc::new(root));
    let mut watches = Watches::new(WatchQueue::of_inotify());
    for (at, name) in [(0, "d"), (1, "e")] {
        let folder = open(tree.join(name), OFlags::PATH, Mode::empty()).unwrap();
        let Ok(number) = watches.queue().watch(&folder) else {
            return forerun_testkit::skip("gone", "the system has no watches to give");
        };
        let place = Place::below(&top, name.as_bytes());
        assert!(watches.add(number, DirectoryId(at), &place).is_none());
    }
    fs::remove_dir_all(tree.join("d")).unwrap();
    watches.take(&mut Vec::new());
    assert_eq!(watches.count(), 1);
}

/// A process that sees another mount as its root, until it is dropped.
struct Below {
    process: Child,
    mount: Scratch,
}

impl Below {
    /// None, and `test` is skipped by name, where there can be none.
    fn new(test: &str) -> Option<Self> {
        let mount = Scratch::new(test);
        let is_done = |mut command: Command| command.output().is_ok_and(|it| it.status.success());
        let mut bind = Command::new("mount");
        bind.args(["--bind", "/"]).arg(&*mount);
        if !is_done(bind) {
            forerun_testkit::skip(test, "a mount: root");
            return None;
        }
        let mut chroot = Command::new("chroot");
        chroot.arg(&*mount).arg("cat").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = chroot.spawn().unwrap();
        // It is there once it answers.
        process.stdin.as_ref().unwrap().write_all(b"?").unwrap();
        process.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Some(Self { process, mount })
    }

    fn end(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn unmount(&self) -> Output {
        Command::new("umount").arg(&*self.mount).output().unwrap()
    }
}

impl Drop for Below {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = Command::new("umount").arg("-l").arg(&*self.mount).output();
    }
}

#[test]
fn the_root_of_processes_that_have_ended_can_be_unmounted_while_others_walk() {
    let mut walk = Walk::new("walk-unmount");
    let Some(mut below) = Below::new("walk-unmount-root") else { return };
    for at in 0..40 {
        walk.tree.file(&format!("f{at:02}"), vec![1; 100]);
    }
    let names = walk.names("");
    let folder = format!("/proc/{}", below.process.id());
    let process = open(&*folder, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    for path in &names[..10] {
        let (pid, path) = (below.process.id().cast_signed(), path.as_os_str().as_bytes());
        let (process, call) = (process.as_fd(), READ);
        let access = EntryAccess { pid, thread: pid, process, path, call, read: None };
        walk.driver.entry(walk.now, &access);
        walk.advance();
    }
    assert!(walk.driver.stats().requested > 0, "{:?}", walk.driver.stats());
    below.end();
    until(|| walk.driver.workers.as_ref().expect("it was given work").kept().0 == 0);
    // Nothing was used there for a tenth of a second; this process goes on in its own root.
    for path in &names {
        walk.now += Nanos::from_millis(5);
        walk.entry(path, EntryCall::Stat);
    }
    until(|| walk.driver.workers.as_ref().expect("it was given work").kept().0 == 0);
    let unmounted = below.unmount();
    assert!(unmounted.status.success(), "{unmounted:?}");
}

#[test]
fn a_root_whose_handle_was_given_up_is_had_anew_from_a_process_that_sees_it() {
    let Some(mut below) = Below::new("walk-root-anew") else { return };
    let folder = format!("/proc/{}", below.process.id());
    let process = open(&*folder, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let root = Root::of(process.as_fd()).unwrap();
    let own = Root::of(open("/proc/self", OFlags::PATH, Mode::empty()).unwrap().as_fd()).unwrap();
    let view = View::of(process.as_fd()).unwrap();
    assert!(root.is_of(&view) && !own.is_of(&view), "another mount");
    let (_, before) = root.directory(b"usr").unwrap();
    root.release();
    let (_, after) = root.directory(b"usr").unwrap();
    assert_eq!((before.st_dev, before.st_ino), (after.st_dev, after.st_ino));
    root.keep();
    below.end();
    assert!(root.directory(b"usr").is_ok(), "a handle is kept");
    root.release();
    assert!(root.directory(b"usr").is_err(), "nothing sees it any more");
    own.release();
    assert!(own.directory(b"usr").is_ok(), "this process sees it");
}
