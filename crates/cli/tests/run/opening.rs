//! Files that are not opened for a program, and such that are although its root is another.
//!
//! A program does one thing for each line. What it has read of a file is observed before what it
//! reads then of a marker, so a file that is not held when the marker is has been left alone.
//!
//! # Invariants
//! - A file is held from its first observed read on, as the program keeps it open.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;

use crate::rig::{Reader, holds, run, stats};
use forerun_testkit::{Scratch, installed, skip};

/// A folder that all may enter, with files of 1 MiB that all may read.
fn folder(test: &str, names: &[&str]) -> (Scratch, Vec<PathBuf>) {
    let scratch = Scratch::new(&format!("opening-{test}"));
    fs::set_permissions(&*scratch, fs::Permissions::from_mode(0o755)).unwrap();
    let root = scratch.canonicalize().unwrap();
    let make = |name: &&str| {
        let path = root.join(name);
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        path
    };
    let files = names.iter().map(make).collect();
    (scratch, files)
}

/// Whether the process `pid` has the file `path` open now.
fn has(pid: u32, path: &Path) -> bool {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    links.filter_map(|link| fs::read_link(link.path()).ok()).any(|to| to == path)
}

/// Has the program read `markers` one after the other, each by a descriptor and by a mapping: all
/// that it did before has been observed then.
fn is_observed(reader: &mut Reader, markers: &[PathBuf]) {
    for marker in markers {
        assert_eq!(reader.say(&format!("mark {}", marker.display())), "marked");
        assert!(holds(reader.child.id(), marker), "{} is not observed", marker.display());
    }
}

/// `python3` with the lines that all programs share, then `program`, then the answers.
fn start(flags: &str, program: &str, arguments: &[&PathBuf]) -> Reader {
    let text = format!("{COMMON}{program}{ANSWERS}");
    Reader::start(run(flags).args(["python3", "-c", &text]).args(arguments))
}

const COMMON: &str = "
import fcntl, mmap, os, signal, sys
held = []
def mapped(path):
    fd = os.open(path, os.O_RDONLY)
    held.append(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
    os.close(fd)
    return held[-1]
def touch(m):
    for at in range(0, len(m), 4096): m[at]
def read(fd):
    os.lseek(fd, 0, 0)
    while os.read(fd, 65536): pass
def mark(path):
    fd = os.open(path, os.O_RDONLY)
    held.append(fd)
    read(fd)
    return 'marked'
def mark_mapped(path):
    touch(mapped(path))
    return 'marked'
";

const ANSWERS: &str = "
for line in sys.stdin:
    word, _, rest = line.strip().partition(' ')
    print(answers[word](rest), flush=True)
";

#[test]
fn what_a_program_may_not_open_is_not_opened_for_it() {
    let test = "what_a_program_may_not_open_is_not_opened_for_it";
    if !geteuid().is_root() {
        return skip(test, "not root: this process may open no more than the program");
    }
    if !installed(test, "python3") {
        return;
    }
    let (_scratch, files) = folder("rights", &["read", "mapped", "a", "b", "c", "stats"]);
    for secret in &files[..2] {
        fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).unwrap();
    }
    // What it opened as root it may go on to read, as another user that could not open it.
    let program = "
by_number, by_address = os.open(sys.argv[1], os.O_RDONLY), mapped(sys.argv[2])
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
def both(_):
    read(by_number)
    touch(by_address)
    return 'read'
answers = {'both': both, 'mark': mark, 'mapped': mark_mapped}
";
    let flags = format!("--stats-json {}", files[5].display());
    let mut reader = start(&flags, program, &[&files[0], &files[1]]);
    assert_eq!(reader.say("both"), "read");
    is_observed(&mut reader, &files[2..3]);
    for marker in &files[3..5] {
        assert_eq!(reader.say(&format!("mapped {}", marker.display())), "marked");
        assert!(holds(reader.child.id(), marker), "the mapped marker is not observed");
    }
    for secret in &files[..2] {
        assert!(!has(reader.child.id(), secret), "{} is open", secret.display());
    }
    assert_eq!(reader.end(), Some(0));
    assert_eq!(stats(&files[5])["files_refused"], 2);
}

#[test]
fn what_a_program_maps_in_a_root_of_its_own_is_seen() {
    let test = "what_a_program_maps_in_a_root_of_its_own_is_seen";
    if !geteuid().is_root() {
        return skip(test, "not root: no program may change its root");
    }
    if !installed(test, "python3") {
        return;
    }
    let (scratch, files) = folder("root", &["within"]);
    let program = "
os.chroot(sys.argv[1])
os.chdir('/')
answers = {'mapped': mark_mapped}
";
    let root = scratch.canonicalize().unwrap();
    let mut reader = start("", program, &[&root]);
    assert_eq!(reader.say("mapped /within"), "marked");
    assert!(holds(reader.child.id(), &files[0]), "the mapping is not observed");
    assert_eq!(reader.end(), Some(0));
}

#[test]
fn leases_and_locks_of_descriptions_are_not_noticed() {
    let test = "leases_and_locks_of_descriptions_are_not_noticed";
    if !installed(test, "python3") {
        return;
    }
    let names = ["leased", "leased-mapped", "locked", "a", "b", "c", "stats"];
    let (_scratch, files) = folder("leases", &names);
    let program = "
broken = []
signal.signal(signal.SIGIO, lambda *_: broken.append(1))
F_SETLEASE, F_GETLEASE, F_OFD_SETLK = 1024, 1025, 37
leased = os.open(sys.argv[1], os.O_RDONLY)
touched = os.open(sys.argv[2], os.O_RDONLY)
m = mmap.mmap(touched, 0, prot=mmap.PROT_READ)
locked = os.open(sys.argv[3], os.O_RDWR)
def take(_):
    try: fcntl.fcntl(leased, F_SETLEASE, fcntl.F_WRLCK)
    except OSError: return 'no leases'
    # A lease is of its descriptor, which the mapping counts as another opener's where it has one.
    fcntl.fcntl(touched, F_SETLEASE, fcntl.F_RDLCK)
    lock = bytes([fcntl.F_WRLCK, 0]) + bytes(30)
    fcntl.fcntl(locked, F_OFD_SETLK, lock)
    read(leased); read(locked); touch(m)
    return 'taken'
def state(_):
    return f'{fcntl.fcntl(leased, F_GETLEASE) == fcntl.F_WRLCK} {len(broken)}'
answers = {'take': take, 'state': state, 'mark': mark, 'mapped': mark_mapped}
";
    let flags = format!("--stats-json {}", files[6].display());
    let mut reader = start(&flags, program, &[&files[0], &files[1], &files[2]]);
    if reader.say("take") != "taken" {
        return skip(test, "this file system has no leases");
    }
    is_observed(&mut reader, &files[3..4]);
    for marker in &files[4..6] {
        assert_eq!(reader.say(&format!("mapped {}", marker.display())), "marked");
        assert!(holds(reader.child.id(), marker), "the mapped marker is not observed");
    }
    for left in &files[..3] {
        assert!(!has(reader.child.id(), left), "{} is open", left.display());
    }
    assert_eq!(reader.say("state"), "True 0");
    assert_eq!(reader.end(), Some(0));
    assert_eq!(stats(&files[6])["files_refused"], 3);
}

/// As in a service with `ProcSubset=pid`: the kernel's list of leases is not there.
#[test]
fn without_the_list_of_leases_what_is_mapped_is_left_alone() {
    let test = "without_the_list_of_leases_what_is_mapped_is_left_alone";
    if !geteuid().is_root() {
        return skip(test, "not root: nothing may be mounted");
    }
    if !["python3", "unshare"].iter().all(|program| installed(test, program)) {
        return;
    }
    let (_scratch, files) = folder("subset", &["leased", "a", "b", "c"]);
    let program = "
broken = []
signal.signal(signal.SIGIO, lambda *_: broken.append(1))
F_SETLEASE, F_GETLEASE = 1024, 1025
leased = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(leased, 0, prot=mmap.PROT_READ)
def take(_):
    try: fcntl.fcntl(leased, F_SETLEASE, fcntl.F_WRLCK)
    except OSError: return 'no leases'
    touch(m)
    return 'taken'
def state(_):
    return f'{fcntl.fcntl(leased, F_GETLEASE) == fcntl.F_WRLCK} {len(broken)}'
answers = {'take': take, 'state': state, 'mark': mark}
";
    let script = "mount -t proc -o subset=pid proc /proc && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_forerun"), "run"]);
    let program = format!("{COMMON}{program}{ANSWERS}");
    command.args(["--", "python3", "-c", &program]).arg(&files[0]);
    let mut reader = Reader::start(&mut command);
    if reader.say("take") != "taken" {
        return skip(test, "this file system has no leases");
    }
    is_observed(&mut reader, &files[1..]);
    assert_eq!(reader.say("state"), "True 0");
    assert_eq!(reader.end(), Some(0));
}
