//! Twenty programs at once that learn into one folder, and are killed at any moment.
//!
//! ```text
//!   FORERUN_KILLS=200 cargo test -p forerun-cli --test learned_kills
//! ```
//! # Invariants
//! - Every list reads, and has nothing of another.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::thread;

use forerun_testkit::installed;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

use home::{Home, succeeded};

#[expect(dead_code, reason = "nothing is read in turn here")]
#[path = "learned/home.rs"]
mod home;

#[test]
fn lists_stay_whole_whatever_is_killed() {
    let test = "lists_stay_whole_whatever_is_killed";
    if !installed(test, "python3") {
        return;
    }
    let home = Home::new("killed", 20);
    let kills = std::env::var("FORERUN_KILLS").map_or(20, |text| text.parse().unwrap());
    let turns = 2 * u32::div_ceil(kills, 20);
    thread::scope(|scope| {
        for own in 0..20 {
            let home = &home;
            scope.spawn(move || {
                for turn in 0..turns {
                    let name = if own % 2 == 0 { "shared".into() } else { format!("own{own}") };
                    // Where it reports it waits for the list to be saved.
                    let words = ["--stats-json", "/dev/null", "--learn", &name, "--", "python3"];
                    let mut command = home.forerun(&["run"]);
                    command
                        .args(words)
                        .arg(home.0.join("reader.py"))
                        .arg(home.file(own))
                        .process_group(0);
                    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
                    if turn % 2 == 1 {
                        // At any moment of the run, its end included.
                        kill_after(&child, 50 + (7 * own as u64 + 11 * u64::from(turn)) % 300);
                    }
                    child.wait().unwrap();
                }
            });
        }
    });
    let names = home.names();
    assert!(names.len() > 1, "what was not killed is learned: {names:?}");
    for name in names {
        let shown = succeeded(&home.forerun(&["learned", "show", &name]).output().unwrap());
        let own = name.strip_prefix("own").map(|own| own.parse::<usize>().unwrap());
        let foreign = |at: &usize| own.map_or(at % 2 == 1, |own| own != *at);
        let files = home.0.join("files");
        for other in (0..20).filter(foreign) {
            let path = files.join(format!("{other:03}"));
            assert!(!shown.contains(path.to_str().unwrap()), "{name} has {other}:\n{shown}");
        }
    }
}

#[test]
fn a_save_that_is_killed_leaves_the_list_before_or_its_own() {
    let home = Home::new("saves", 0);
    let kills = std::env::var("FORERUN_KILLS").map_or(20, |text| text.parse().unwrap());
    // As long as it takes to be met in the middle of it.
    let lists: Vec<PathBuf> = (0..20).map(|own| home.0.join(format!("{own}.jsonl"))).collect();
    for (own, list) in lists.iter().enumerate() {
        let head = r#"{"format":"forerun-learned","version":1,"runs":1,"program":{}}"#;
        let row = |at: usize| {
            format!(r#"{{"path":"/of{own}/{at}","kind":"stat","first_us":{at},"history":1}}"#)
        };
        let rows: Vec<String> = (0..SAVED_ROWS).map(row).collect();
        fs::write(list, format!("{head}\n{}\n", rows.join("\n"))).unwrap();
    }
    let import = |own: usize, name: &str| {
        home.forerun(&["learned", "import", lists[own].to_str().unwrap(), "--name", name])
    };
    let turns = 2 * u32::div_ceil(kills, 20);
    thread::scope(|scope| {
        for own in 0..20 {
            let import = &import;
            scope.spawn(move || {
                for turn in 0..turns {
                    let name = if own % 2 == 0 { "shared".into() } else { format!("own{own}") };
                    if turn % 2 == 0 {
                        saved(|| import(own, &name).output().unwrap());
                        continue;
                    }
                    let mut child = import(own, &name).spawn().unwrap();
                    kill_after(&child, (own as u64 * 7 + u64::from(turn) * 13) % 80);
                    child.wait().unwrap();
                }
            });
        }
    });
    let names = home.names();
    assert_eq!(names.len(), 11, "{names:?}");
    for name in names {
        let list = home.forerun(&["learned", "show", &name, "--json"]).output().unwrap();
        let list = succeeded(&list);
        let own = name.strip_prefix("own").map(|own| own.parse::<usize>().unwrap());
        let all_of = |own: &usize| {
            let begins = format!(r#"{{"path":"/of{own}/"#);
            list.lines().skip(1).filter(|row| row.starts_with(&begins)).count()
        };
        let is_own = |at: &usize| own.map_or(at.is_multiple_of(2), |own| own == *at);
        let whole: Vec<usize> = (0..20).filter(is_own).filter(|at| all_of(at) > 0).collect();
        let is_one = whole.len() == 1 && all_of(&whole[0]) == SAVED_ROWS;
        assert!(is_one && list.lines().count() == SAVED_ROWS + 1, "{name} has parts of {whole:?}");
    }
}

const SAVED_ROWS: usize = 1_000;

/// Saves again and again while others hold the lock for longer than a command waits.
fn saved(save: impl Fn() -> Output) {
    loop {
        let output = save();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            return;
        }
        assert!(errors.contains("others hold the lock"), "{errors}");
    }
}

/// Kills the process group of `child` after so many milliseconds, if it has not ended.
fn kill_after(child: &Child, millis: u64) {
    let group = Pid::from_child(child);
    let end = pidfd_open(group, PidfdFlags::empty()).unwrap();
    let mut ends = [PollFd::new(&end, PollFlags::IN)];
    let tv_nsec = i64::try_from(millis).unwrap() * 1_000_000;
    poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec })).unwrap();
    // Of those of one process and of a group alike.
    let _ = kill_process(group, Signal::KILL);
    let _ = kill_process_group(group, Signal::KILL);
}
