//! The folder of lists: names, owners, bounds, many at once.

use std::fs::File;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::thread;

use forerun_core::learned::{LearnedEntry, LearnedKind, Observed, Version};
use forerun_core::units::Nanos;
use forerun_testkit::Scratch;

use super::*;
use crate::learn::format::Program;

fn with(path: &str) -> impl FnOnce(Option<LearnedFile>) -> LearnedFile {
    let entry = LearnedEntry {
        path: path.as_bytes().into(),
        kind: LearnedKind::Read,
        first: Nanos(0),
        ranges: std::iter::once(0..4096).collect(),
        version: Version::default(),
        history: 0,
        histories: Vec::new(),
    };
    move |before| {
        let mut file = before.unwrap_or_default();
        file.list.merge(vec![Observed { entry, unseen: Vec::new(), is_seen: true }]);
        LearnedFile { program: Program::default(), ..file }
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_list_is_kept_changed_and_forgotten() {
    let scratch = Scratch::new("learned-store");
    let store = Store::at(&scratch.join("a/b")).unwrap();
    assert!(store.load("x").unwrap().is_none());
    store.update("x", PATIENCE, with("/1")).unwrap();
    store.update("x", PATIENCE, with("/2")).unwrap();
    let list = store.load("x").unwrap().unwrap().list;
    assert_eq!((list.runs(), list.entries().len()), (2, 2));
    assert_eq!(fs::metadata(store.path("x")).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(scratch.join("a/b")).unwrap().mode() & 0o777, 0o700);
    assert_eq!(store.lists().unwrap().len(), 1);
    assert!(store.forget("x", PATIENCE).unwrap());
    assert!(!store.forget("x", PATIENCE).unwrap());
    assert!(store.load("x").unwrap().is_none());
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let scratch = Scratch::new("learned-names");
    let store = Store::at(&scratch.join("l")).unwrap();
    for name in ["", ".", "..", "../x", "a/b", ".hidden", "a b", "\u{e9}", &"n".repeat(129)] {
        assert!(store.load(name).is_err(), "{name}");
        assert!(store.update(name, PATIENCE, with("/1")).is_err(), "{name}");
        assert!(store.forget(name, PATIENCE).is_err(), "{name}");
    }
}

#[test]
fn a_list_that_is_too_large_is_refused_for_that() {
    let scratch = Scratch::new("learned-large");
    let store = Store::at(&scratch.join("l")).unwrap();
    store.update("x", PATIENCE, with("/1")).unwrap();
    fs::File::options().write(true).open(store.path("x")).unwrap().set_len(1 << 40).unwrap();
    let why = store.load("x").unwrap_err().to_string();
    assert!(why.contains("1099511627776 bytes") && why.contains("at most"), "{why}");
}

#[test]
fn what_others_could_have_written_is_refused() {
    let scratch = Scratch::new("learned-others");
    let store = Store::at(&scratch.join("l")).unwrap();
    store.update("x", PATIENCE, with("/1")).unwrap();
    fs::set_permissions(store.path("x"), fs::Permissions::from_mode(0o620)).unwrap();
    assert!(matches!(store.load("x"), Err(StoreError::OfOthers(_))));
    fs::rename(store.path("x"), scratch.join("elsewhere")).unwrap();
    symlink(scratch.join("elsewhere"), store.path("x")).unwrap();
    assert!(store.load("x").is_err(), "a link");
    store.update("x", PATIENCE, with("/2")).unwrap();
    assert_eq!(store.load("x").unwrap().unwrap().list.runs(), 1, "replaced, not followed");
    fs::set_permissions(scratch.join("l"), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(Store::at(&scratch.join("l")), Err(StoreError::OfOthers(_))));
}

#[test]
fn lists_that_were_saved_longest_ago_go() {
    let scratch = Scratch::new("learned-prune");
    let store = Store::at(&scratch.join("l")).unwrap();
    store.update("new", PATIENCE, with("/1")).unwrap();
    let old = fs::metadata(store.path("new")).unwrap().modified().unwrap();
    let old = old - Duration::from_secs(3_600);
    for count in 0..LISTS_MAX + 5 {
        let path = store.path(&format!("old{count}"));
        fs::copy(store.path("new"), &path).unwrap();
        let age = Duration::from_secs(count as u64);
        File::options().write(true).open(&path).unwrap().set_modified(old - age).unwrap();
    }
    let stale = scratch.join("l/.gone.1.tmp");
    fs::write(&stale, "{").unwrap();
    File::options().write(true).open(&stale).unwrap().set_modified(old).unwrap();
    store.update("new", PATIENCE, with("/1")).unwrap();
    let names: Vec<String> = store.lists().unwrap().into_iter().map(|list| list.name).collect();
    assert_eq!(names.len(), LISTS_MAX);
    assert_eq!(names[..2], ["new", "old0"]);
    assert!(!stale.exists());
}

#[test]
fn a_damaged_list_is_told_and_begun_anew() {
    let scratch = Scratch::new("learned-damaged");
    let store = Store::at(&scratch.join("l")).unwrap();
    fs::write(store.path("x"), "not a list").unwrap();
    fs::set_permissions(store.path("x"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(store.load("x"), Err(StoreError::Format(..))));
    store.update("x", PATIENCE, with("/1")).unwrap();
    assert_eq!(store.load("x").unwrap().unwrap().list.runs(), 1);
}

#[test]
fn many_at_once_lose_no_run() {
    let scratch = Scratch::new("learned-many");
    let store = Store::at(&scratch.join("l")).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    store.update("x", PATIENCE, with("/1")).unwrap();
                }
            });
        }
    });
    assert_eq!(store.load("x").unwrap().unwrap().list.runs(), 40);
}

/// A list whose file has some `bytes`.
fn large(bytes: u64) -> LearnedFile {
    let path = |at: u64| format!("/{at:09}{}", "p".repeat(3_900)).into_bytes().into();
    let entry = |at| LearnedEntry {
        path: path(at),
        kind: LearnedKind::Stat,
        first: Nanos(0),
        ranges: Vec::new(),
        version: Version::default(),
        history: 1,
        histories: Vec::new(),
    };
    let list = forerun_core::learned::LearnedList::new(1, (0..bytes / 4_000).map(entry));
    LearnedFile { program: Program::default(), list }
}

#[test]
fn a_list_that_is_too_large_to_save_takes_no_others_place() {
    let scratch = Scratch::new("learned-too-large");
    let store = Store::at(&scratch.join("l")).unwrap();
    for name in ["a", "b", "x"] {
        store.update(name, PATIENCE, with("/1")).unwrap();
    }
    let too_large = large(BYTES_MAX + (4 << 20));
    let why = store.update("x", PATIENCE, |_| too_large.clone()).unwrap_err();
    assert!(matches!(why, StoreError::TooLarge), "{why}");
    assert!(matches!(store.put("y", PATIENCE, &too_large), Err(StoreError::TooLarge)));
    let mut names: Vec<_> = store.lists().unwrap().into_iter().map(|list| list.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "b", "x"]);
    assert_eq!(store.load("x").unwrap().unwrap().list.entries().len(), 1, "as it was");
    let left = fs::read_dir(scratch.join("l")).unwrap().count();
    assert_eq!(left, 3 + 1, "three lists and the lock");
    // The largest that is saved leaves room for others.
    store.put("y", PATIENCE, &large(LIST_BYTES_MAX - (4 << 20))).unwrap();
    assert_eq!(store.lists().unwrap().len(), 4);
    let old = fs::metadata(store.path("y")).unwrap().modified().unwrap() - Duration::from_secs(99);
    File::options().write(true).open(store.path("y")).unwrap().set_modified(old).unwrap();
    for name in ["z", "w"] {
        let size = LIST_BYTES_MAX - (4 << 20);
        store.put(name, PATIENCE, &large(size)).unwrap();
    }
    let mut names: Vec<_> = store.lists().unwrap().into_iter().map(|list| list.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "b", "w", "x", "z"], "the one that was saved longest ago goes");
}

#[test]
fn a_list_of_a_later_version_is_left_alone() {
    let scratch = Scratch::new("learned-later");
    let store = Store::at(&scratch.join("l")).unwrap();
    let later = [
        r#"{"format":"forerun-learned","version":2,"runs":9,"program":{}}"#,
        r#"{"format":"forerun-learned","version":3}"#,
    ];
    for text in later {
        fs::write(store.path("x"), text).unwrap();
        fs::set_permissions(store.path("x"), fs::Permissions::from_mode(0o600)).unwrap();
        let why = store.update("x", PATIENCE, with("/1")).unwrap_err().to_string();
        assert!(why.contains("left as it is") && why.contains("version"), "{why}");
        assert_eq!(fs::read_to_string(store.path("x")).unwrap(), text);
    }
    store.put("x", PATIENCE, &large(4_000)).unwrap();
    assert_eq!(store.load("x").unwrap().unwrap().list.runs(), 1, "it was asked for");
}

#[test]
fn what_cannot_be_read_for_now_is_no_damage() {
    let path = || PathBuf::from("/l/x.jsonl");
    let io = |error: Errno| io::Error::from_raw_os_error(error.raw_os_error());
    #[rustfmt::skip]
    let rows = [
        (StoreError::Io(path(), io(Errno::IO)),                                false),
        (StoreError::Io(path(), io(Errno::MFILE)),                             false),
        (StoreError::Io(path(), io(Errno::ACCESS)),                            false),
        (StoreError::Format(path(), FormatError::Io(io(Errno::IO))),           false),
        (StoreError::Format(path(), FormatError::Version(2)),                  false),
        (StoreError::Io(path(), io(Errno::LOOP)),                              true),
        (StoreError::Io(path(), io::Error::other("too long")),                 true),
        (StoreError::OfOthers(path()),                                         true),
        (StoreError::Format(path(), FormatError::Other),                       true),
        (StoreError::Format(path(), FormatError::TooLong),                     true),
        (StoreError::Format(path(), FormatError::Line(7, String::new())),      true),
    ];
    for (why, is_damage) in rows {
        assert_eq!(why.is_damage(), is_damage, "{why}");
    }
}

#[test]
fn a_list_is_removed_under_the_lock() {
    let scratch = Scratch::new("learned-forget");
    let store = Store::at(&scratch.join("l")).unwrap();
    store.update("x", PATIENCE, with("/1")).unwrap();
    let lock = store.0.lock(PATIENCE).unwrap();
    let refused = store.forget("x", Duration::ZERO);
    assert!(matches!(refused, Err(StoreError::Busy(_))), "{refused:?}");
    assert!(store.load("x").unwrap().is_some());
    drop(lock);
    assert!(store.forget("x", Duration::ZERO).unwrap());
}
