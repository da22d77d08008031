//! A directory of a million entries: programs over it give what they give alone.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use forerun_testkit::{Scratch, skip, within};
use serde_json::Value;

const ENTRIES: usize = 1_000_000;
/// Of a directory 65,536 entries are followed: the inode, the head and all of each are requested
/// once, at most.
const REQUESTS_MAX: u64 = 3 << 16;
/// Where files take no device; no right is needed.
const MEMORY: &str = "/dev/shm";

/// Shell commands in the folder that has the directory.
const COMMANDS: [&str; 4] = [
    "ls -U all | cksum",
    "find all -type f -links +1 | wc -l",
    "cd all && ls -U | head -n 3000 | xargs cat | cksum",
    "cd all && ls -U | tail -n 3000 | xargs -n 100 -P 4 cat | cksum",
];

#[test]
fn a_million_entries_in_one_directory_are_walked_within_bounds() {
    let Some(folder) = million("a_million_entries_in_one_directory_are_walked_within_bounds")
    else {
        return;
    };
    within(move || {
        for command in COMMANDS {
            let record = folder.join("stats.json");
            let alone = output(Command::new("sh").args(["-c", command]), &folder);
            let mut run = Command::new(env!("CARGO_BIN_EXE_forerun"));
            run.args(["run", "--stats-json"]).arg(&record).args(["--", "sh", "-c", command]);
            assert_eq!(output(&mut run, &folder), alone, "{command}");
            let stats: Value = fs::read(&record)
                .ok()
                .and_then(|text| serde_json::from_slice(&text).ok())
                .expect("statistics are written");
            let of = |key: &str| stats[key].as_u64().expect("it is counted");
            println!("{command}: {} entries ahead", of("entries_requested"));
            assert_eq!(of("entries_failed"), 0, "{command}: {stats}");
            assert!(of("entries_requested") <= REQUESTS_MAX, "{command}: {stats}");
        }
    });
}

/// Status and output of a command in `folder`.
fn output(command: &mut Command, folder: &Path) -> (Option<i32>, Vec<u8>) {
    let command = command.current_dir(folder).env("FORERUN_LEARN", "off");
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    (output.status.code(), output.stdout)
}

/// A folder with the directory: names of few files, as a million files take more memory.
fn million(test: &str) -> Option<Scratch> {
    if !fs::metadata(MEMORY).is_ok_and(|memory| memory.is_dir()) {
        skip(test, MEMORY);
        return None;
    }
    let folder = Scratch::within(Path::new(MEMORY), "million");
    let all = folder.join("all");
    fs::create_dir(&all).expect("the folder takes folders");
    let file = folder.file("file", "a line\n");
    for number in 0..ENTRIES {
        if let Err(error) = fs::hard_link(&file, all.join(number.to_string())) {
            skip(test, &format!("a file system in memory for a million names: {error}"));
            return None;
        }
    }
    let links = File::open(&file).and_then(|file| file.metadata()).expect("it is there").nlink();
    assert_eq!(links, ENTRIES as u64 + 1);
    Some(folder)
}
