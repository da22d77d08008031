//! Files by path: pages outlive handles as long as the file is unchanged and keeps its row.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use forerun_engine::{Cache, Handle, OpenError, ReadError, Settings};
use forerun_io::store::pattern;
use forerun_testkit::{Scratch, until, until_tick, within};

use crate::rig::{PAGE, read, settings};

/// A file of the pattern in a folder of its own.
struct Temp {
    path: PathBuf,
    _scratch: Scratch,
}

impl Temp {
    fn new(bytes: usize) -> Self {
        let scratch = Scratch::new("reopen");
        Self { path: scratch.file("data", contents(bytes)), _scratch: scratch }
    }
}

fn contents(bytes: usize) -> Vec<u8> {
    let mut contents = vec![0; bytes];
    pattern::fill(0, &mut contents);
    contents
}

fn watched(interval: Duration) -> Settings {
    Settings { version_interval: interval, ..settings(64, "off") }
}

fn read_all(file: &Handle) -> Result<usize, ReadError> {
    read(file, 0, usize::try_from(file.len()).unwrap())
}

/// Opens, reads all, closes; returns the number of requests.
fn visit(cache: &Cache, path: &Path) -> u64 {
    let before = cache.stats().store_requests;
    let file = cache.open(path).unwrap();
    read_all(&file).unwrap();
    cache.stats().store_requests - before
}

#[test]
fn the_frame_of_a_page_that_left_its_file_is_free_once_its_pin_is_dropped() {
    let temp = Temp::new(5_000);
    let cache = Cache::new(watched(HOUR)).unwrap();
    let frames = cache.frames().0;
    let file = cache.open(&temp.path).unwrap();
    let (served, found) = (file.pin(600).unwrap(), file.pin(600).unwrap());
    fs::write(&temp.path, contents(6_000)).unwrap();
    let anew = cache.open(&temp.path).unwrap();
    assert_eq!(cache.frames(), (frames, frames - 1));
    drop(served);
    assert_eq!(cache.frames(), (frames, frames - 1), "it is pinned still");
    drop(found);
    assert_eq!(cache.frames(), (frames, frames));
    assert_eq!(read_all(&anew), Ok(6_000));
}

#[test]
fn the_pages_of_an_unchanged_file_are_fetched_once_however_often_it_is_opened() {
    let temp = Temp::new(5_000);
    let cache = Cache::new(watched(HOUR)).unwrap();
    assert!(visit(&cache, &temp.path) > 0);
    for _ in 0..3 {
        assert_eq!(visit(&cache, &temp.path), 0);
    }
    let two = [cache.open(&temp.path).unwrap(), cache.open(&temp.path).unwrap()];
    drop(cache.open(&temp.path).unwrap());
    for file in &two {
        assert_eq!(read_all(file), Ok(5_000));
    }
    drop(two);
    assert_eq!(visit(&cache, &temp.path), 0, "several handles at once are no different");
    assert_eq!(cache.stats().files_changed, 0);
}

#[test]
fn the_pages_of_a_file_that_changed_while_it_was_closed_go() {
    type Change = fn(&Path);
    #[rustfmt::skip]
    let rows: [(&str, Change, usize, u64); 6] = [
        ("written again", |path| fs::write(path, contents(5_000)).unwrap(), 5_000, 1),
        ("longer", |path| fs::write(path, contents(7_000)).unwrap(), 7_000, 1),
        ("shorter", |path| fs::write(path, contents(999)).unwrap(), 999, 1),
        ("empty", |path| fs::write(path, []).unwrap(), 0, 1),
        ("touched", |path| touch(path), 5_000, 1),
        ("another file", |path| replace(path, 6_000), 6_000, 0),
    ];
    for (why, change, bytes, changed) in rows {
        let temp = Temp::new(5_000);
        let cache = Cache::new(watched(HOUR)).unwrap();
        visit(&cache, &temp.path);
        until_tick(&temp.path);
        change(&temp.path);
        let requests = visit(&cache, &temp.path);
        assert_eq!(requests > 0, bytes > 0, "{why}");
        assert_eq!(cache.stats().files_changed, changed, "{why}");
        let file = cache.open(&temp.path).unwrap();
        assert_eq!(read_all(&file), Ok(bytes), "{why}");
        assert!(cache.stats().core.balanced(), "{why}");
    }
}

/// Sets the time of modification to what it is.
fn touch(path: &Path) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_modified(file.metadata().unwrap().modified().unwrap()).unwrap();
}

fn replace(path: &Path, bytes: usize) {
    let next = path.with_extension("next");
    fs::write(&next, contents(bytes)).unwrap();
    fs::rename(next, path).unwrap();
}

#[test]
fn where_places_for_files_are_few_the_one_closed_longest_ago_goes() {
    let temps: Vec<_> = (0..3).map(|_| Temp::new(3_000)).collect();
    let [a, b, c] = [&temps[0].path, &temps[1].path, &temps[2].path];
    let cache = Cache::new(Settings { files_max: 2, ..watched(HOUR) }).unwrap();
    visit(&cache, a);
    visit(&cache, b);
    assert_eq!(visit(&cache, a), 0, "both have a place; b was closed longest ago");
    assert!(visit(&cache, c) > 0);
    assert_eq!(cache.frames(), (64, 64 - 12), "the pages of b have gone");
    assert_eq!((visit(&cache, a), visit(&cache, c)), (0, 0));
    assert!(visit(&cache, b) > 0, "in the place of a");
    let open = (cache.open(b).unwrap(), cache.open(c).unwrap());
    assert_eq!(cache.open(a).err(), Some(OpenError::Files { bound: 2 }), "none is closed");
    drop(open);
    assert!(visit(&cache, a) > 0);
}

#[test]
fn a_change_that_only_hits_would_not_notice_is_noticed_by_the_watch() {
    within(|| {
        let temp = Temp::new(5_000);
        let cache = Cache::new(watched(Duration::from_millis(2))).unwrap();
        let file = cache.open(&temp.path).unwrap();
        read_all(&file).unwrap();
        let before = cache.stats().store_requests;
        until_tick(&temp.path);
        touch(&temp.path);
        // No reads meanwhile: a page that a reader pins would leave later.
        until(|| cache.stats().files_changed > 0);
        assert_eq!(read_all(&file).err(), Some(ReadError::Changed));
        let stats = cache.stats();
        assert_eq!((stats.store_requests, stats.files_changed), (before, 1), "nothing was fetched");
        assert_eq!(cache.frames(), (64, 64), "its pages are gone");
        assert_eq!(file.pin(0).err(), Some(ReadError::Changed));
        assert_eq!(file.prefetch(0..9).err(), Some(ReadError::Changed));
        assert_eq!(read_all(&file.try_clone().unwrap()).err(), Some(ReadError::Changed));
        assert_eq!(read_all(&cache.open(&temp.path).unwrap()), Ok(5_000));
    });
}

#[test]
fn between_two_checks_of_the_watch_hits_serve_and_the_first_fetch_notices() {
    let temp = Temp::new(5_000);
    let cache = Cache::new(watched(HOUR)).unwrap();
    let file = cache.open(&temp.path).unwrap();
    read(&file, 0, 1_000).unwrap();
    fs::write(&temp.path, contents(2_000)).unwrap();
    assert_eq!(read(&file, 0, 1_000), Ok(1_000), "of the version that it was opened on");
    let shrunk = Err(ReadError::Shrunk { file_bytes: 5_000 });
    assert_eq!(read(&file, 2 * PAGE, 10), shrunk);
    assert_eq!(read(&file, 0, 1_000), shrunk, "nothing of it is served any more");
    assert_eq!(cache.stats().files_changed, 1);
}

#[test]
fn a_file_that_was_deleted_is_changed_and_cannot_be_opened() {
    let temp = Temp::new(5_000);
    let cache = Cache::new(watched(HOUR)).unwrap();
    let file = cache.open(&temp.path).unwrap();
    fs::remove_file(&temp.path).unwrap();
    assert_eq!(read(&file, 0, 10), Err(ReadError::Changed));
    assert_eq!(cache.open(&temp.path).err().map(|error| error.errno()), Some(ENOENT));
}

/// No test takes as long.
const HOUR: Duration = Duration::from_secs(3_600);
const ENOENT: i32 = 2;
