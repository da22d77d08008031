//! Scarce resources: memory of a group of processes, descriptors, readers that are followed.
//!
//! # Invariants
//! - A group is made for one test and removed at its end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::getpid;

use crate::rig::{Data, Reader, folder, holds, python, run, shim, stats};
use forerun_testkit::{Sandbox, drop_from_cache, installed, skip, stat_fields, until};

#[test]
fn in_a_small_group_nothing_is_read_twice() {
    let test = "in_a_small_group_nothing_is_read_twice";
    let folder = folder("group");
    let Some(group) = Group::new(test, 64 << 20) else { return };
    let Some(data) = Data::new(test, &folder, 256 << 20).filter(|_| installed(test, "python3"))
    else {
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

#[test]
fn a_program_in_a_tight_group_has_it_for_itself() {
    let test = "a_program_in_a_tight_group_has_it_for_itself";
    // The observing process ends there, or polls by a thread of its own.
    for (bytes, is_observed) in [(63 << 20, false), (64 << 20, true)] {
        let Some(group) = Group::new(test, bytes) else { return };
        let mut command = group.enter();
        command.arg(env!("CARGO_BIN_EXE_forerun")).args(["run", "--learn", "off", "--", "cat"]);
        // A file would be closed by a child of a moment.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut forerun = command.spawn().expect("it starts");
        let pid = forerun.id();
        until(|| if is_observed { has_a_child_with_threads(pid) } else { has_lost_a_child(pid) });
        drop(forerun.stdin.take());
        assert!(forerun.wait().expect("it ends").success());
    }
}

#[test]
fn a_tree_larger_than_its_group_gives_what_it_gives_alone_and_is_read_once() {
    let test = "a_tree_larger_than_its_group_gives_what_it_gives_alone_and_is_read_once";
    let folder = folder("group-tree");
    let Some(group) = Group::new(test, 256 << 20) else { return };
    // Files that walks alone fetch ahead: together a quarter more than the group has.
    let (files, bytes) = (1_360_usize, 240 << 10);
    let tree = folder.join("tree");
    for nth in 0..files {
        let at = tree.join(format!("d{:02}", nth % 16));
        fs::create_dir_all(&at).expect("the folder takes folders");
        let path = at.join(format!("f{nth:04}"));
        fs::write(&path, vec![nth.to_le_bytes()[0]; bytes]).expect("there is room");
        drop_from_cache(&File::open(&path).expect("it was written"));
    }
    let command = "cat */* | cksum; du -a --apparent-size . | sort";
    let plain = Command::new("sh").args(["-c", command]).current_dir(&tree).output().unwrap();
    assert!(plain.status.success(), "{plain:?}");
    let record = folder.join("stats.json");
    for path in
        fs::read_dir(&tree).unwrap().flat_map(|at| fs::read_dir(at.unwrap().path()).unwrap())
    {
        drop_from_cache(&File::open(path.unwrap().path()).unwrap());
    }
    let mut ours = group.enter();
    ours.arg(env!("CARGO_BIN_EXE_forerun")).args(["run", "--limit", "1G", "--budget", "1G"]);
    ours.arg("--stats-json").arg(&record).args(["--", "sh", "-c", command]).current_dir(&tree);
    let ours = ours.output().unwrap();
    assert_eq!((ours.status, ours.stdout), (plain.status, plain.stdout), "{:?}", ours.stderr);
    let (stats, all) = (stats(&record), (files * bytes) as u64);
    let of = |key: &str| stats[key].as_u64().expect("it is counted");
    assert!(of("entries_bytes") <= all + all / 20, "read twice, of {all}: {stats}");
    // Half of what was used, or 8 MiB.
    assert!(of("entries_unused_bytes") <= all / 2, "{stats}");
    assert!(of("entries_requested") <= 3 * (files as u64 + 17), "{stats}");
}

#[test]
fn a_small_stack_is_the_programs_alone() {
    let folder = folder("stack");
    let alone = folder.join("alone");
    // What is allowed, what the program gets, and whether forerun may have more.
    for (limits, stack, may_have_more) in
        [("ulimit -S -s 64", "64", true), ("ulimit -s 128", "128", false), ("true", "", true)]
    {
        for command in ["run", "explain"] {
            let mut shell = Command::new("sh");
            let script = format!(r#"{limits}; ulimit -s > "$0"; exec "$@""#);
            shell.args(["-c", &script]).arg(&alone).arg(env!("CARGO_BIN_EXE_forerun"));
            shell.args([command, "--", "sh", "-c", "ulimit -s; exit 4"]);
            let output = shell.output().expect("it starts");
            let errors = String::from_utf8_lossy(&output.stderr);
            let alone = fs::read_to_string(&alone).expect("it was written");
            assert!(stack.is_empty() || alone.trim() == stack, "{limits}: {alone}");
            if output.status.code() == Some(1) && !may_have_more {
                // This user may not raise the hard limit.
                assert!(errors.contains("a stack of 128K"), "{limits} {command}: {errors}");
                continue;
            }
            assert_eq!(output.status.code(), Some(4), "{limits} {command}: {errors}");
            assert_eq!(String::from_utf8_lossy(&output.stdout), alone, "{limits} {command}");
        }
    }
}

#[test]
fn where_a_call_is_refused_the_program_runs_all_the_same() {
    let test = "where_a_call_is_refused_the_program_runs_all_the_same";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let calls = [
        ("clone", libc::SYS_clone),
        ("clone3", libc::SYS_clone3),
        ("socketpair", libc::SYS_socketpair),
        ("ppoll", libc::SYS_ppoll),
        ("signalfd4", libc::SYS_signalfd4),
        ("eventfd2", libc::SYS_eventfd2),
        ("pidfd_open", libc::SYS_pidfd_open),
        ("memfd_create", libc::SYS_memfd_create),
        ("prctl", libc::SYS_prctl),
    ];
    for (call, number) in calls {
        for flags in ["run", "run --observe preload"] {
            let mut command = sandbox.without(number);
            command.arg(env!("CARGO_BIN_EXE_forerun")).args(flags.split(' '));
            command.args(["--", "sh", "-c", "echo out; exit 3"]).env("FORERUN_PRELOAD", shim());
            let output = command.output().expect("it starts");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{call}, {flags}: {errors}");
            assert_eq!(output.stdout, b"out\n", "{call}, {flags}: {errors}");
        }
    }
}

#[test]
fn files_are_seen_beyond_the_descriptors_of_a_program() {
    let test = "files_are_seen_beyond_the_descriptors_of_a_program";
    if !installed(test, "python3") {
        return;
    }
    let program = "
import os, resource, sys
for line in sys.stdin:
    os.read(os.open(line.strip(), os.O_RDONLY), 1 << 20)
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True)
";
    let mut command = Command::new("sh");
    command.args(["-c", r#"ulimit -Sn 48 && exec "$@""#, "sh"]);
    command.args([env!("CARGO_BIN_EXE_forerun"), "run", "--", "python3", "-c", program]);
    let mut reader = Reader::start(&mut command);
    // Each takes a descriptor of the program, and two of its observer.
    for path in files(&folder("descriptors"), 36) {
        assert_eq!(reader.say(path.to_str().unwrap()), "48", "the program's own limit");
        assert!(holds(reader.child.id(), &path), "{} is not seen", path.display());
    }
    assert_eq!(reader.end(), Some(0));
}

#[test]
fn a_reader_is_seen_beside_many_that_read_at_random() {
    let test = "a_reader_is_seen_beside_many_that_read_at_random";
    if !installed(test, "python3") {
        return;
    }
    let folder = folder("many-readers");
    let files = files(&folder, 41);
    let (last, others) = files.split_last().unwrap();
    // Two processes touch some of many files here and there, then one reads another in order.
    let program = "
import mmap, os, sys
ends, end = os.pipe()
other = os.fork() == 0
if other: os.close(end)
held = []
for path in sys.argv[2:]:
    fd = os.open(path, os.O_RDONLY)
    held.append(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
    os.close(fd)
    for at in range(0, 4 << 20, 1 << 18): held[-1][at]
if other:
    os.read(ends, 1)
    os._exit(0)
sys.stdin.readline()
print('touched', flush=True)
sys.stdin.readline()
os.read(os.open(sys.argv[1], os.O_RDONLY), 1 << 20)
print('read', flush=True)
sys.stdin.read()
";
    let mut command = run("");
    let mut reader = Reader::start(command.args(["python3", "-c", program]).arg(last).args(others));
    assert_eq!(reader.say(""), "touched");
    assert!(holds(reader.child.id(), &others[39]), "the last that was touched is not observed");
    assert_eq!(reader.say(""), "read");
    assert!(holds(reader.child.id(), last), "the sequential reader is not observed");
    assert_eq!(reader.end(), Some(0));
}

/// Files of 4 MiB that take no room.
fn files(folder: &Path, count: usize) -> Vec<PathBuf> {
    let file = |at| {
        let path = folder.join(format!("{at}"));
        File::create(&path).unwrap().set_len(4 << 20).unwrap();
        path
    };
    (0..count).map(file).collect()
}

/// A group of processes with little memory.
struct Group {
    folder: PathBuf,
}

impl Group {
    /// `None`, and `test` is skipped by name, where none can be made.
    fn new(test: &str, bytes: u64) -> Option<Self> {
        let name = format!("forerun-{test}-{}", getpid().as_raw_nonzero());
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

/// Whether a child of a process has ended and was waited for: its page faults are counted for the
/// process.
fn has_lost_a_child(pid: u32) -> bool {
    stat_fields(&format!("/proc/{pid}")).get(8).is_some_and(|faults| faults != "0")
}

/// Whether a child of a process has a thread beside its first one.
fn has_a_child_with_threads(pid: u32) -> bool {
    let has_threads =
        |pid| fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| tasks.count() > 1);
    children(pid).into_iter().any(has_threads)
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
