//! Users that own nothing: files that they may only read are read ahead for them all the same.
//!
//! ```text
//!   run by root         forerun and the program run as the user `nobody`, the file is root's:
//!                       the kernel shows its pages to the test alone
//!   run by a user       forerun and the program are the user's own, as is the file
//! ```
//!
//! # Invariants
//! - What the user `nobody` runs and reads lies in the folder for temporary files.
//! - Each folder is removed at the end of its test.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};
use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::explain::file;
use crate::rig::{Data, MAPPED, PYTHON, Reader, holds, observing, shim, stats, waits};
use forerun_testkit::{Scratch, compile_c, installed, skip, until};

const BYTES: u64 = 64 << 20;
const STEP: u64 = 64 << 10;
/// The year 2020, in seconds since 1970.
const LONG_AGO: i64 = 1_577_836_800;
/// The limit, which is 2 MiB, and a chunk, which is at most 1 MiB.
const MOST: u64 = 3 << 20;

#[test]
fn a_user_who_may_only_read_is_led_within_the_limit() {
    let test = "a_user_who_may_only_read_is_led_within_the_limit";
    let place = Place::new("limit");
    let Some(data) = place.data(test, BYTES).filter(|_| installed(test, "python3")) else { return };
    #[rustfmt::skip]
    let rows = [ // why           observer   reader  pages that the kernel maps around one
        ("read",                  "proc",    PYTHON, 0),
        ("mapped",                "proc",    MAPPED, STEP),
        ("read at an offset",     "preload", OFFSET, 0),
    ];
    for (why, observer, reader, around) in rows {
        data.drop_from_cache();
        let record = place.0.join("output/stats.json");
        let flags = format!("--limit 2M --observe {observer} --stats-json {}", record.display());
        let mut command = place.forerun("run", &flags);
        command.arg(interpreter()).args(["-c", reader]).arg(&data.path);
        let mut reader = Reader::start(&mut command);
        assert!(reader.is_prefetched(&data, STEP, MOST + around), "{why}: nothing was read ahead");
        while reader.position + STEP < BYTES {
            reader.read(STEP);
            let beyond = (reader.position + MOST + around).min(BYTES);
            assert_eq!(data.cached(beyond, BYTES), Some(0), "{why}: at {}", reader.position);
        }
        assert_eq!(reader.end(), Some(0), "{why}");
        let stats = stats(&record);
        assert!(stats["bytes_asked"].as_u64() > Some(0), "{why}: {stats}");
        assert!(stats["distance_bytes_max"].as_u64() <= Some(MOST), "{why}: {stats}");
    }
}

#[test]
fn what_a_user_may_only_read_gives_the_same_output() {
    let test = "what_a_user_may_only_read_gives_the_same_output";
    let place = Place::new("same");
    let Some(data) = place.data(test, BYTES).filter(|_| installed(test, "cksum")) else { return };
    let plain = place.user("cksum").arg(&data.path).output().unwrap();
    assert!(plain.status.success(), "{plain:?}");
    for command in ["run", "explain"] {
        for observer in ["--observe proc", "--observe preload"] {
            data.drop_from_cache();
            let output = place.forerun(command, observer).arg("cksum").arg(&data.path).output();
            let output = output.unwrap();
            assert_eq!(output.status, plain.status, "{command} {observer}");
            assert_eq!(output.stdout, plain.stdout, "{command} {observer}");
            assert_eq!(output.stderr.is_empty(), command == "run", "{command} {observer}");
        }
    }
}

#[test]
fn a_user_who_may_only_read_gets_an_explanation() {
    let test = "a_user_who_may_only_read_gets_an_explanation";
    let place = Place::new("explained");
    let Some(data) = place.data(test, BYTES).filter(|_| installed(test, "python3")) else { return };
    let mut command = place.forerun("explain", "--json");
    let program = PYTHON.replace("print(done,", "print(done, file=sys.stderr,");
    command.arg(interpreter()).args(["-c", &program]).arg(&data.path);
    let (mut reader, output) = Reader::start_with_errors(&mut command);
    while reader.position < BYTES {
        reader.read(8 << 20);
        assert!(holds(reader.child.id(), &data.path), "it is not observed to read");
    }
    assert_eq!(reader.end(), Some(0));
    let explained: Value = serde_json::from_str(&output.join().unwrap()).unwrap();
    let file = file(&explained, &data.path);
    assert_eq!((&file["pattern"], &file["sequential_share"]), (&"sequential".into(), &1.0.into()));
    // The kernel shows the residency of root's file to its owner alone.
    let start = if is_nobody() { "unknown" } else { "cold" };
    assert_eq!(file["start"], start, "{explained}");
}

#[test]
fn what_a_user_may_only_read_is_fetched_without_a_mark_of_access() {
    let test = "what_a_user_may_only_read_is_fetched_without_a_mark_of_access";
    let place = Place::new("marks");
    let Some(data) = place.data(test, 1 << 16) else { return };
    if !is_nobody() {
        skip(test, "another user's files take root");
    }
    let used = place.0.join("used");
    fs::write(&used, "used").unwrap();
    allow(&used, 0o444);
    mark(&used, LONG_AGO);
    mark(&data.path, LONG_AGO);
    let program = json!({ "executable": "/a", "build": "", "called": "a", "folder": "/" });
    let head = json!({ "format": "forerun-learned", "version": 1, "runs": 3, "program": program });
    let entry = json!({ "path": data.path, "kind": "read", "first_us": 1, "inode": 1,
        "ranges": [[0, data.bytes]], "bytes": data.bytes, "modified": 9, "history": 7 });
    let list = place.0.join("list.jsonl");
    fs::write(&list, format!("{head}\n{entry}\n")).unwrap();
    let flags = format!("--learn off --learned-file {}", list.display());
    let mut command = place.forerun("run", &flags);
    // It waits for its input to end.
    command.args(["sh", "-c", "cat \"$0\"; cat"]).arg(&used);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    // Only forerun fetches that one.
    until(|| data.cached(0, data.bytes) == Some(data.bytes));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    if marked(&used) == LONG_AGO {
        return skip(test, "this file system marks no access");
    }
    assert_eq!(marked(&data.path), LONG_AGO);
}

#[test]
fn a_process_that_is_not_permitted_runs_and_is_counted() {
    let test = "a_process_that_is_not_permitted_runs_and_is_counted";
    let place = Place::new("skipped");
    let Some([plain, set_uid]) = place.hiding(test) else { return };
    for (why, program, argument) in [
        ("not dumpable", &plain, "hide"),
        ("set-uid", &set_uid, "show"),
        ("neither", &plain, "show"),
    ] {
        let mut command = place.forerun("run", "--stats");
        command.arg(program).arg(argument);
        let (is_root, report) = observed(&mut command);
        if why == "set-uid" && !(is_nobody() && is_root) {
            skip(test, "no program can be another user's here: it takes root and set-uid files");
            continue;
        }
        let is_counted = report.contains("1 process could not be looked into");
        assert_eq!(is_counted, why != "neither", "{why}: {report}");
    }
}

#[test]
fn a_process_that_the_system_hides_runs_and_is_counted() {
    let test = "a_process_that_the_system_hides_runs_and_is_counted";
    let place = Place::new("hidden");
    let Some([plain, set_uid]) = place.hiding(test) else { return };
    #[rustfmt::skip]
    let rows = [ // why                            option         program              argument
        ("a child that was seen before",           "hidepid=2",   [&plain, &plain],    "hide"),
        ("a child that was never seen",            "hidepid=2",   [&plain, &set_uid],  "show"),
        ("its folder alone is shown",              "hidepid=1",   [&plain, &plain],    "hide"),
        ("neither",                                "hidepid=2",   [&plain, &plain],    "show"),
    ];
    for (why, option, [starter, program], argument) in rows {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", HIDES, option]).arg(place.0.join("forerun"));
        command.args(["run", "--stats", "--"]).arg(starter).arg("start").arg(program).arg(argument);
        command.current_dir("/").env("XDG_CONFIG_HOME", place.0.join("output"));
        if !hides_processes(option) {
            return skip(test, "processes cannot be hidden here: it takes root and Linux 5.8");
        }
        let (is_root, report) = observed(&mut command);
        if program == &set_uid && !is_root {
            skip(test, "no program can be another user's here: it takes set-uid files");
            continue;
        }
        let is_counted = report.contains("1 process could not be looked into");
        assert_eq!(is_counted, why != "neither", "{why}: {report}");
    }
}

/// Whether a `/proc` of its own with `option` can be mounted, for the user `nobody`. Before Linux
/// 5.8 all mounts have the option of the last one.
fn hides_processes(option: &str) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
    let is_new = numbers.next().zip(numbers.next()) >= Some((5, 8));
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", HIDES, option, "sh", "-c", "! test -e /proc/1/status"]);
    is_new && is_nobody() && command.output().is_ok_and(|output| output.status.success())
}

/// Whether the program that `command` starts is root's, and what is reported on stderr, once the
/// process that observes has polled often.
fn observed(command: &mut Command) -> (bool, String) {
    let mut reader = Reader::start(command.stderr(Stdio::piped()));
    let is_root = reader.say("") == "0";
    // A poll follows each wait of the process that observes.
    let (observing, polls) = (observing(reader.child.id()), 200);
    let until = waits(observing) + polls;
    while waits(observing) < until {
        reader.say("");
    }
    let mut errors = reader.child.stderr.take().unwrap();
    assert_eq!(reader.end(), Some(0), "{command:?}");
    let mut report = String::new();
    errors.read_to_string(&mut report).unwrap();
    (is_root, report)
}

/// A folder that all users may enter, with forerun and its shim in it; removed at the end.
struct Place(Scratch);

impl Place {
    fn new(test: &str) -> Self {
        let place = Self(Scratch::new(&format!("user-{test}")));
        fs::create_dir_all(place.0.join("output")).unwrap();
        allow(&place.0, 0o755);
        allow(&place.0.join("output"), 0o777);
        for built in [Path::new(env!("CARGO_BIN_EXE_forerun")), &shim()] {
            let copy = place.0.join(built.file_name().unwrap());
            fs::copy(built, &copy).unwrap();
            allow(&copy, 0o755);
        }
        place
    }

    /// A file that all may read; only root may write it.
    fn data(&self, test: &str, bytes: u64) -> Option<Data> {
        let data = Data::new(test, &self.0, bytes)?;
        allow(&data.path, 0o444);
        Some(data)
    }

    /// A program that hides from observers where it is told to, and one that is set-uid besides.
    fn hiding(&self, test: &str) -> Option<[PathBuf; 2]> {
        let [listing, plain, set_uid] = ["x.c", "plain", "suid"].map(|name| self.0.join(name));
        fs::write(&listing, HIDDEN).unwrap();
        compile_c(test, &listing, &[], &plain)?;
        fs::copy(&plain, &set_uid).unwrap();
        allow(&set_uid, 0o4755);
        Some([plain, set_uid])
    }

    /// `program`, run by a user that owns nothing here, where the test may change users.
    fn user(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/").env("XDG_CONFIG_HOME", self.0.join("output"));
        if is_nobody() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// The same for `forerun COMMAND FLAGS --`.
    fn forerun(&self, command: &str, flags: &str) -> Command {
        let mut forerun = self.user(self.0.join("forerun"));
        forerun.arg(command).args(flags.split_whitespace()).arg("--");
        forerun
    }
}

/// Whether programs run as the user `nobody`: it takes root, and a system that has that user.
fn is_nobody() -> bool {
    let mut command = Command::new("true");
    let ended = command.uid(NOBODY).gid(NOBODY).current_dir("/").status();
    geteuid().is_root() && ended.is_ok_and(|status| status.success())
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Sets the time of the last access to the file, in seconds since 1970.
fn mark(path: &Path, seconds: i64) {
    let then = Timespec { tv_sec: seconds, tv_nsec: 0 };
    let as_it_is = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access: then, last_modification: as_it_is };
    utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
}

fn marked(path: &Path) -> i64 {
    fs::metadata(path).unwrap().atime()
}

/// A Python that other users may execute: not one in a home folder.
fn interpreter() -> PathBuf {
    let system = Path::new("/usr/bin/python3");
    if system.exists() { system.to_owned() } else { "python3".into() }
}

/// Becomes the words after it, as the user `nobody`, where `/proc` is mounted with this option.
const HIDES: &str = "
mount -t proc -o \"$0\" proc /proc || exit 90
exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"";

/// Answers to lines with its effective user's number, and permits observers or not; or starts a
/// program that does.
const HIDDEN: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    char line[64];
    if (argc > 3 && !strcmp(argv[1], "start")) {
        pid_t child = fork();
        if (child == 0) execv(argv[2], argv + 2);
        return waitpid(child, 0, 0) != child;
    }
    if (argc > 1 && argv[1][0] == 'h') prctl(PR_SET_DUMPABLE, 0);
    while (fgets(line, sizeof line, stdin)) {
        printf("%d\n", (int)geteuid());
        fflush(stdout);
    }
    return 0;
}
"#;

const OFFSET: &str = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
done = 0
for line in sys.stdin:
    done += len(os.pread(fd, int(line), done))
    print(done, flush=True)
";

const NOBODY: u32 = 65_534;
