//! The page cache of this machine: what is asked for comes, and what is told of it is true.

mod support;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use forerun_steer::kernel::{self, Probe, Residency};

use forerun_testkit::{ScratchFile, skip};
use support::cold;

const COLD: &str = "pages cannot be dropped from the cache here";

#[test]
fn what_is_asked_for_arrives_and_nothing_else() {
    const TEST: &str = "what_is_asked_for_arrives_and_nothing_else";
    let Some((_scratch, file)) = cold("asked", (6 << 20) + 123) else {
        return skip(TEST, COLD);
    };
    let len = file.metadata().unwrap().len();
    let (all, first, asked, rest) = (0..len, 0..4096, 4096..5 << 20, 5 << 20..len);
    assert_eq!(kernel::absent(&file, &all).unwrap(), Some(vec![all.clone()]));
    let chunk = kernel::chunk_bytes(file.metadata().unwrap().dev());
    kernel::prefetch(&file, &asked, chunk).unwrap();
    assert_eq!(kernel::cached(&file, &asked).unwrap(), Residency::Pages(kernel::pages(&asked)));
    // A read of a page waits for it.
    for page in asked.clone().step_by(4096) {
        file.read_exact_at(&mut [0], page).unwrap();
    }
    assert_eq!(kernel::absent(&file, &asked).unwrap(), Some(vec![]));
    assert_eq!(kernel::absent(&file, &all).unwrap(), Some(vec![first, rest.clone()]));
    assert_eq!(kernel::cached(&file, &rest).unwrap(), Residency::Pages(0));
    assert_eq!(kernel::cached(&file, &(0..0)).unwrap(), Residency::Pages(0));
}

/// A page that lies right behind cached ones is where the kernel takes up a stream again.
#[test]
fn a_probe_behind_cached_pages_fetches_one_page_at_most() {
    const TEST: &str = "a_probe_behind_cached_pages_fetches_one_page_at_most";
    let Some((_scratch, file)) = cold("probe", 32 << 20) else { return skip(TEST, COLD) };
    let (all, asked) = (0..32 << 20, 0..4 << 20);
    kernel::prefetch(&file, &asked, 128 << 10).unwrap();
    file.read_exact_at(&mut [0], asked.end - 1).unwrap();
    let Residency::Pages(before) = kernel::cached(&file, &all).unwrap() else { panic!("told") };
    let probe = Probe::new(&file).unwrap();
    assert_eq!(probe.is_ready(asked.end), Some(true), "what was read is there");
    assert_eq!(kernel::cached(&file, &all).unwrap(), Residency::Pages(before));
    let _ = probe.is_ready(asked.end + 1);
    let Residency::Pages(after) = kernel::cached(&file, &all).unwrap() else { panic!("told") };
    assert!(after <= before + 1, "{} pages came of one probe", after - before);
}

#[test]
fn a_range_within_pages_is_told_to_the_byte() {
    const TEST: &str = "a_range_within_pages_is_told_to_the_byte";
    let Some((_scratch, file)) = cold("bytes", 100_000) else { return skip(TEST, COLD) };
    file.read_exact_at(&mut [0], 40_960).unwrap();
    let absent = kernel::absent(&file, &(100..90_001)).unwrap();
    assert_eq!(absent, Some(vec![100..40_960, 45_056..90_001]));
    assert_eq!(kernel::cached(&file, &(100..90_001)).unwrap(), Residency::Pages(1));
    assert_eq!(kernel::absent(&file, &(41_000..41_001)).unwrap(), Some(vec![]));
    assert_eq!(kernel::absent(&file, &(9..9)).unwrap(), Some(vec![]));
}

#[test]
fn beyond_its_end_a_file_has_no_pages() {
    let Some((_scratch, file)) = cold("end", 5000) else {
        return skip("beyond_its_end_a_file_has_no_pages", COLD);
    };
    let beyond = 1 << 20..2 << 20;
    kernel::prefetch(&file, &beyond, 128 << 10).unwrap();
    assert_eq!(kernel::cached(&file, &beyond).unwrap(), Residency::Pages(0));
    assert_eq!(kernel::absent(&file, &beyond).unwrap(), Some(vec![beyond]));
    assert!(kernel::absent(&file, &(u64::MAX - 9..u64::MAX)).is_err(), "no file is so long");
}

#[test]
fn what_keeps_no_pages_is_an_error() {
    let (read, _write) = std::io::pipe().unwrap();
    let pipe = File::from(std::os::fd::OwnedFd::from(read));
    assert!(kernel::prefetch(&pipe, &(0..4096), 4096).is_err(), "a pipe");
    assert!(kernel::absent(&pipe, &(0..4096)).is_err(), "a pipe");
    let null = OpenOptions::new().write(true).open("/dev/null").unwrap();
    assert!(kernel::prefetch(&null, &(0..4096), 4096).is_err(), "not for reading");
    assert_eq!(kernel::place(&pipe), None);
}

/// Run by root, the test is a parent that runs itself as `nobody`.
#[test]
fn a_file_of_another_is_unknown_never_resident() {
    const TEST: &str = "a_file_of_another_is_unknown_never_resident";
    const THEIRS: &str = "FORERUN_TEST_FILE";
    if let Some(path) = std::env::var_os(THEIRS) {
        return unknown(&File::open(path).expect("all may read it"));
    }
    let me = rustix::process::geteuid();
    if !me.is_root() {
        let path = "/etc/passwd";
        return match fs::metadata(path) {
            Ok(there) if there.uid() != me.as_raw() => unknown(&File::open(path).unwrap()),
            Ok(_) | Err(_) => skip(TEST, "no file that is another's"),
        };
    }
    let file = ScratchFile::holding("theirs", vec![7; 1 << 20]);
    let ended = Command::new("/proc/self/exe")
        .args(["--exact", TEST, "--nocapture"])
        .env(THEIRS, &file)
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .expect("a process may run as nobody");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains("1 passed"), "{ended:?}");
}

/// What is told of a file that this process may read and no more.
fn unknown(file: &File) {
    let all = 0..file.metadata().unwrap().len();
    assert_eq!(kernel::cached(file, &all).unwrap(), Residency::Unknown);
    assert_eq!(kernel::absent(file, &all).unwrap(), None);
    kernel::prefetch(file, &all, 128 << 10).expect("it may be asked for all the same");
}

const NOBODY: u32 = 65_534;
