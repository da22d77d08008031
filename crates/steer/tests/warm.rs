//! Whole files on the real page cache: they are there afterwards, or are named.

mod support;

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use forerun_steer::kernel;
use forerun_steer::memory::Memory;
use forerun_steer::warm::{Listing, Report, SkippedFile};
use forerun_testkit::{Scratch, drop_from_cache, skip};
use rustix::fs::{Advice, fadvise};

use support::cold;

const COLD: &str = "pages cannot be dropped from the cache here";
const MIB: u64 = 1 << 20;

/// A folder with cold files of so many bytes; none where pages cannot be dropped.
fn folder(test: &str, files: &[(&str, u64)]) -> Option<(Scratch, Vec<PathBuf>)> {
    drop(cold(&format!("{test}-probe"), 4096)?);
    let scratch = Scratch::on_disk(test);
    let mut paths = Vec::new();
    for (name, bytes) in files {
        let path = scratch.file(name, vec![7; usize::try_from(*bytes).unwrap()]);
        drop_from_cache(&File::open(&path).unwrap());
        paths.push(path);
    }
    Some((scratch, paths))
}

/// What of it is not in memory.
fn missing(path: &Path) -> u64 {
    let file = File::open(path).unwrap();
    let all = 0..file.metadata().unwrap().len();
    let absent = kernel::absent(&file, &all).unwrap().expect("it is our own");
    absent.iter().map(|range| range.end - range.start).sum()
}

fn fetch(listing: Listing, budget: u64) -> Report {
    listing.fetch(budget, &Memory::here(), &mut |_| {})
}

/// The names of what was skipped, with the reason, by name.
fn skipped(report: &Report) -> Vec<String> {
    let line =
        |file: &SkippedFile| format!("{}: {}", file.path.file_name().unwrap().display(), file.why);
    let mut all: Vec<String> = report.skipped.iter().map(line).collect();
    all.sort();
    all
}

#[test]
fn files_are_in_memory_afterwards_and_once_is_enough() {
    let files = [("a", 5 * MIB + 7), ("in/b", 1), ("in/deep/c", 300_000), ("in/empty", 0)];
    let Some((folder, paths)) = folder("all", &files) else {
        return skip("files_are_in_memory_afterwards_and_once_is_enough", COLD);
    };
    let all: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    let listing = Listing::of(&[&folder]);
    assert_eq!(listing.bytes_missing(), all);
    let mut last = None;
    let report = listing.fetch(u64::MAX, &Memory::here(), &mut |progress| last = Some(progress));
    assert_eq!((report.files, report.bytes, report.bytes_before), (3, all, 0));
    assert_eq!((report.bytes_fetched, skipped(&report).len()), (all, 0));
    assert_eq!(last.map(|last| (last.bytes, last.bytes_all)), Some((all, all)));
    assert!(paths.iter().all(|path| missing(path) == 0));

    let again = fetch(Listing::of(&paths), u64::MAX);
    assert_eq!((again.bytes_before, again.bytes_fetched), (all, 0));
}

#[test]
fn only_what_is_missing_is_fetched() {
    let Some((_folder, paths)) = folder("part", &[("a", 8 * MIB)]) else {
        return skip("only_what_is_missing_is_fetched", COLD);
    };
    let file = File::open(&paths[0]).unwrap();
    fadvise(&file, 0, None, Advice::Random).unwrap();
    let mut room = vec![0; usize::try_from(MIB).unwrap()];
    for at in [3 * MIB + 4096, 6 * MIB] {
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut room, at).unwrap();
    }
    let report = fetch(Listing::of(&paths), u64::MAX);
    assert_eq!((report.bytes_before, report.bytes_fetched), (2 * MIB, 6 * MIB));
    assert_eq!(missing(&paths[0]), 0);
}

#[test]
fn what_does_not_fit_is_skipped_as_it_was() {
    let files = [("large", 6 * MIB), ("middle", 3 * MIB), ("small", MIB)];
    let Some((folder, paths)) = folder("fit", &files) else {
        return skip("what_does_not_fit_is_skipped_as_it_was", COLD);
    };
    let report = fetch(Listing::of(&[&folder]), 4 * MIB);
    assert_eq!(skipped(&report), ["large: does not fit the budget"]);
    assert_eq!((report.bytes_fetched, report.skipped[0].bytes), (4 * MIB, 6 * MIB));
    assert_eq!(paths.iter().map(|path| missing(path)).collect::<Vec<_>>(), [6 * MIB, 0, 0]);
    let none = fetch(Listing::of(&[&folder]), 0);
    assert_eq!((skipped(&none), none.bytes_before), (skipped(&report), 4 * MIB));
}

#[test]
fn a_file_that_changed_meanwhile_is_named_and_the_rest_is_done() {
    let files = ["cut", "gone", "grown", "kept", "other", "pipe"].map(|name| (name, MIB));
    let Some((folder, paths)) = folder("changed", &files) else {
        return skip("a_file_that_changed_meanwhile_is_named_and_the_rest_is_done", COLD);
    };
    let listing = Listing::of(&[&folder]);
    let [cut, gone, grown, kept, other, pipe] = &paths[..] else { panic!("six files") };
    File::options().write(true).open(cut).unwrap().set_len(MIB / 2).unwrap();
    fs::remove_file(gone).unwrap();
    File::options().write(true).open(grown).unwrap().set_len(MIB * 2).unwrap();
    fs::write(folder.join("new"), vec![8; 1 << 20]).unwrap();
    fs::rename(folder.join("new"), other).unwrap();
    fs::remove_file(pipe).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let report = fetch(listing, u64::MAX);
    let expected = [
        "cut: changed meanwhile",
        "gone: No such file or directory (os error 2)",
        "other: changed meanwhile",
        "pipe: changed meanwhile",
    ];
    assert_eq!(skipped(&report), expected);
    assert_eq!((missing(kept), report.bytes_fetched), (0, 2 * MIB));
    assert_eq!(missing(grown), MIB, "what it had is there");
}

#[test]
fn a_file_is_found_once_and_nothing_else_is_opened() {
    let Some((folder, paths)) = folder("found", &[("a", MIB), ("in/b", MIB)]) else {
        return skip("a_file_is_found_once_and_nothing_else_is_opened", COLD);
    };
    let within = |name: &str| folder.join(name);
    fs::hard_link(&paths[0], within("in/hard")).unwrap();
    symlink(&folder, within("in/loop")).unwrap();
    symlink("../a", within("in/soft")).unwrap();
    symlink("nowhere", within("in/dangling")).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let pipe = within("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();

    let named = [within("in/soft"), folder.to_path_buf(), within("in/loop"), within("in")];
    let report = fetch(Listing::of(&named), u64::MAX);
    assert_eq!((report.files, report.bytes_fetched), (2, 2 * MIB));
    assert_eq!(skipped(&report), [""; 0]);

    let named = [pipe, within("in/dangling"), within("none"), PathBuf::from("/dev/null")];
    let report = fetch(Listing::of(&named), u64::MAX);
    let expected = [
        "dangling: No such file or directory (os error 2)",
        "none: No such file or directory (os error 2)",
        "null: not a file or a folder",
        "pipe: not a file or a folder",
    ];
    assert_eq!(skipped(&report), expected);
    assert_eq!(report.files, 0);
}

#[test]
fn holes_are_not_wanted() {
    const TEST: &str = "holes_are_not_wanted";
    let Some((_folder, paths)) = folder("holes", &[("a", MIB)]) else { return skip(TEST, COLD) };
    let file = File::options().write(true).open(&paths[0]).unwrap();
    file.set_len(1 << 40).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[1; 5000], 1 << 39).unwrap();
    drop_from_cache(&File::open(&paths[0]).unwrap());
    let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap();
    if hole != MIB {
        return skip(TEST, "the file system does not tell where holes are");
    }
    let report = fetch(Listing::of(&paths), 2 * MIB);
    assert_eq!((report.bytes, report.bytes_fetched), (MIB + 8192, MIB + 8192));
    assert_eq!(skipped(&report), [""; 0]);
}

#[test]
fn what_keeps_nothing_in_memory_is_named() {
    let path = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    if !path.exists() {
        return skip("what_keeps_nothing_in_memory_is_named", "no such file in /sys");
    }
    let report = fetch(Listing::of(&[path]), u64::MAX);
    assert_eq!(skipped(&report), ["enabled: the kernel keeps nothing of it in memory"]);
    assert_eq!(report.bytes_fetched, 0);
}
