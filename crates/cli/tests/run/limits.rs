//! Rights and memory: users who may only read, groups with little memory.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{geteuid, getpid};

use crate::rig::{Data, Reader, folder, has, python, stats};
use crate::support::skip;

#[test]
fn a_user_who_may_only_read_is_led() {
    let test = "a_user_who_may_only_read_is_led";
    if !geteuid().is_root() {
        return skip(test, "it takes root to become another user");
    }
    if !has(test, "setpriv") || !has(test, "python3") {
        return;
    }
    let folder = open_folder("led");
    if let Some(data) = Data::new(test, &folder, 64 << 20) {
        let mut command = run_as_nobody(&folder);
        let interpreter = interpreter();
        command.args(["--limit", "2M", "--"]).arg(interpreter).args(["-c", READER]);
        let mut reader = Reader::start(command.arg(&data.path));
        assert!(reader.is_led(&data, 64 << 10, 3 << 20), "nothing was read ahead");
        assert_eq!(reader.end(), Some(0));
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn who_cannot_be_looked_into_runs_and_is_counted() {
    let test = "who_cannot_be_looked_into_runs_and_is_counted";
    if !geteuid().is_root() {
        return skip(test, "it takes root to become another user");
    }
    if !has(test, "setpriv") || !has(test, "cc") {
        return;
    }
    let folder = open_folder("skipped");
    let (listing, plain, set_uid) = (folder.join("x.c"), folder.join("plain"), folder.join("suid"));
    fs::write(&listing, HIDDEN).unwrap();
    let made = Command::new("cc").arg("-o").arg(&plain).arg(&listing).status().unwrap();
    assert!(made.success());
    fs::copy(&plain, &set_uid).unwrap();
    fs::set_permissions(&set_uid, fs::Permissions::from_mode(0o4755)).unwrap();
    for (why, program, argument) in [
        ("not dumpable", &plain, "hide"),
        ("set-uid", &set_uid, "show"),
        ("neither", &plain, "show"),
    ] {
        let mut command = run_as_nobody(&folder);
        command.args(["--stats", "--"]).arg(program).arg(argument).stderr(Stdio::piped());
        let mut reader = Reader::start(&mut command);
        let is_root = reader.say("");
        if why == "set-uid" && is_root != "0" {
            skip(test, "set-uid programs are not honoured here");
            continue;
        }
        // Each wait of forerun's is followed by a look.
        let (forerun, looks) = (reader.child.id(), 200);
        let until = waits(forerun) + looks;
        while waits(forerun) < until {
            reader.say("");
        }
        let mut errors = reader.child.stderr.take().unwrap();
        assert_eq!(reader.end(), Some(0), "{why}");
        let mut told = String::new();
        errors.read_to_string(&mut told).unwrap();
        let is_told = told.contains("1 processes could not be looked into");
        assert_eq!(is_told, why != "neither", "{why}: {told}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// Answers to lines with its effective user's number, and may be looked into or not.
const HIDDEN: &str = r#"
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    char line[64];
    if (argc > 1 && argv[1][0] == 'h') prctl(PR_SET_DUMPABLE, 0);
    while (fgets(line, sizeof line, stdin)) {
        printf("%d\n", (int)geteuid());
        fflush(stdout);
    }
    return 0;
}
"#;

/// How often a process has waited.
fn waits(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// A folder where anybody may go, with forerun in it.
fn open_folder(name: &str) -> PathBuf {
    let name = format!("forerun-user-{name}-{}", getpid().as_raw_nonzero());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_forerun"), folder.join("forerun")).unwrap();
    folder
}

/// `forerun run` of that folder, as a user who owns nothing.
fn run_as_nobody(folder: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(folder.join("forerun")).arg("run").current_dir("/");
    command
}

/// A Python that others may execute: not one in somebody's home.
fn interpreter() -> PathBuf {
    let system = Path::new("/usr/bin/python3");
    if system.exists() { system.to_owned() } else { "python3".into() }
}

#[test]
fn in_a_small_group_nothing_is_read_twice() {
    let test = "in_a_small_group_nothing_is_read_twice";
    let folder = folder("group");
    let Some(group) = Group::new(test, 64 << 20) else { return };
    let Some(data) = Data::new(test, &folder, 256 << 20).filter(|_| has(test, "python3")) else {
        return;
    };
    let record = folder.join("stats.json");
    let flags = format!("--limit 1G --budget 1G --stats-json {}", record.display());
    let mut command = group.enter();
    command.arg(env!("CARGO_BIN_EXE_forerun")).arg("run").args(flags.split(' ')).arg("--");
    let mut reader = python(&data, &mut command);
    while reader.position < data.bytes {
        reader.read(1 << 20);
    }
    // The reader's own reads of the device, and those on its behalf.
    let forerun = reader.child.id();
    let own = io_bytes(forerun) + children(forerun).into_iter().map(io_bytes).sum::<u64>();
    assert_eq!(reader.end(), Some(0));
    let stats = stats(&record);
    assert!(own <= data.bytes + data.bytes / 20, "{own} bytes of {}: {stats}", data.bytes);
}

/// A group of processes with little memory.
struct Group {
    folder: PathBuf,
}

impl Group {
    /// `None`, and `test` is skipped by name, where none can be made.
    fn new(test: &str, bytes: u64) -> Option<Self> {
        let name = format!("forerun-test-{}", getpid().as_raw_nonzero());
        for (root, limit) in
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        {
            let group = Self { folder: Path::new(root).join(&name) };
            let is_made = fs::create_dir(&group.folder).is_ok();
            if is_made && fs::write(group.folder.join(limit), bytes.to_string()).is_ok() {
                return Some(group);
            }
        }
        skip(test, "no control group with a memory limit can be made");
        None
    }

    /// A command that runs what follows in the group.
    fn enter(&self) -> Command {
        let mut command = Command::new("sh");
        let list = self.folder.join("cgroup.procs");
        command.args(["-c", r#"echo $$ >"$0" && exec "$@""#]).arg(list);
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Bytes that a process had read from devices.
fn io_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

const READER: &str = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
done = 0
for line in sys.stdin:
    done += len(os.read(fd, int(line)))
    print(done, flush=True)
";
