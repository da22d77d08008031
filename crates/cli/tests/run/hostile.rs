//! Programs that would keep forerun busy: whatever they do, it uses its part of a processor.
//!
//! `cargo xtask bounds` runs them for longer, and prints the table.
//!
//! # Invariants
//! - What is asserted is processor time by the time that went by, which is longer beside others:
//!   of the median run, as a virtual machine counts pauses of its host as processor time of what
//!   ran.

use std::fs;
use std::path::PathBuf;

use forerun_testkit::{Scratch, installed};
use serde_json::Value;

use crate::rig::{folder, run, shim, stats};

/// Where nothing is gained, and while something is.
const SHARE_MAX: f64 = 0.03;
const SHARE_GAINING_MAX: f64 = 0.10;
/// What its start and its end take.
const START_SECONDS: f64 = 0.08;
/// Of so many runs the one of the median share counts.
const RUNS: usize = 3;

/// Runs `program` with a file of 1 MiB for two seconds of its own time, or as many as
/// `FORERUN_SECONDS` says: forerun uses at most this share of a processor.
fn check(test: &str, observe: &str, share_max: f64, program: &str) {
    if installed(test, "python3") {
        let _ = check_in(&folder(test), test, observe, share_max, program);
    }
}

/// The same with a folder, in which there is what else the program reads. What forerun tells.
fn check_in(folder: &Scratch, test: &str, observe: &str, share_max: f64, program: &str) -> Value {
    let mut runs = [(); RUNS].map(|()| measured(folder, observe, program));
    runs.sort_by(|(_, used, ran), (_, other, others)| (used / ran).total_cmp(&(other / others)));
    let shares = runs.each_ref().map(|(_, used, ran)| format!("{:.1} %", 100.0 * used / ran));
    let [_, (stats, used, ran), _] = runs;
    let (shares, most) = (shares.join(", "), 100.0 * share_max);
    println!("| {test} | {ran:.1} | {used:.3} | {shares} of {most:.0} % |");
    assert!(used <= share_max * ran + START_SECONDS, "{used} s of {ran} s, {shares}: {stats}");
    stats
}

/// What forerun tells, its processor time, and the time in which it used that.
fn measured(folder: &Scratch, observe: &str, program: &str) -> (Value, f64, f64) {
    let (file, record): (PathBuf, PathBuf) = (folder.join("file"), folder.join("stats.json"));
    fs::write(&file, vec![1; 1 << 20]).unwrap();
    let mut command = run(&format!("--observe {observe} --stats-json {}", record.display()));
    command.env("FORERUN_PRELOAD", shim());
    let seconds = std::env::var("FORERUN_SECONDS").unwrap_or_else(|_| "2".into());
    let whole = format!("{COMMON}{program}");
    let output = command.args(["python3", "-c", &whole]).arg(&file).arg(seconds).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stats = stats(&record);
    let [used, ran] = ["processor_seconds", "seconds"].map(|name| stats[name].as_f64().unwrap());
    (stats, used, ran)
}

/// A folder with files of which nothing is cached once a program drops them.
fn folder_with_files(test: &str) -> Scratch {
    let folder = folder(test);
    for nth in 0..16 {
        let path = folder.join(format!("file-{nth}"));
        fs::write(&path, vec![1; 16 << 20]).unwrap();
        fs::File::open(&path).unwrap().sync_all().unwrap();
    }
    folder
}

const COMMON: &str = "
import mmap, os, resource, struct, sys, time
path, seconds = sys.argv[1], float(sys.argv[2])
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
most = min(most, 4000)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
began = time.monotonic()
def goes_on(): return time.process_time() < seconds
def is_early(): return time.monotonic() < began + seconds
def reads_again(fds):
    while is_early():
        for fd in fds:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.lseek(fd, 0, 0)
        for _ in range(256):
            for fd in fds: os.read(fd, 65536)
";

/// A file of which each other page is cached, and a copy that is as long.
const HALF_CACHED: &str = "
half, bytes = path + '-half', 256 << 20
copy = os.open(path + '-copy', os.O_RDWR | os.O_CREAT)
fd = os.open(half, os.O_RDWR | os.O_CREAT)
for number in copy, fd: os.truncate(number, bytes)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
for at in range(0, bytes, 8192): os.pread(fd, 4096, at)
began, seconds = time.monotonic(), seconds + time.process_time()
goes_on.turns = 0
";

#[test]
fn records_of_any_descriptors_cost_no_more() {
    let program = "
fds = [os.open(path, os.O_RDONLY) for _ in range(most - 250)]
ring = mmap.mmap(int(os.environ['FORERUN_RING']), 128 + 64 * 16384)
pid, stat, head = os.getpid(), os.stat(path), 1 << 20
while goes_on():
    for head in range(head, head + 8192):
        turn, fd = 2 * head + 2, fds[head % len(fds)]
        place = head * 7919 * 4096 % (1 << 40)
        struct.pack_into('<7Q', ring, 128 + 64 * (head % 16384), turn, 2 | fd << 32, pid,
                         stat.st_dev, stat.st_ino + head % 2, place, 4096)
    head += 1
    struct.pack_into('<Q', ring, 64, head)
";
    check("records_of_any_descriptors_cost_no_more", "preload", SHARE_MAX, program);
}

#[test]
fn calls_that_have_moved_what_is_not_cached_cost_no_more() {
    // As the shim tells them, in its ring, and as a thread is met that waits for a pipe.
    let told = "
sources = [os.open(half, os.O_RDONLY) for _ in range(1000)]
ring = mmap.mmap(int(os.environ['FORERUN_RING']), 128 + 64 * 16384)
pid, stat, head = os.getpid(), os.stat(half), 1 << 20
while goes_on():
    # Once in a while, so that none is lost for want of time.
    if goes_on.turns % 1000 == 0:
        for fd in sources[goes_on.turns // 50 % 1000:][:20]:
            for kind, length in (2, 4096), (5, bytes):
                struct.pack_into('<8Q', ring, 128 + 64 * (head % 16384), 2 * head + 2,
                                 kind | fd << 32, pid | copy << 32, stat.st_dev, stat.st_ino, 0,
                                 length, 0)
                head += 1
        struct.pack_into('<Q', ring, 64, head)
    goes_on.turns += 1
";
    let met = "
import threading
_, full = os.pipe()
for _ in range(60):
    fd = os.open(half, os.O_RDONLY)
    threading.Thread(target=os.sendfile, args=[full, fd, 0, bytes], daemon=True).start()
while time.process_time() < seconds / 4: pass
os.dup2(copy, full)
while goes_on(): pass
os._exit(0)
";
    for (observe, program) in [("preload", told), ("proc", met)] {
        let test = "calls_that_have_moved_what_is_not_cached_cost_no_more";
        check(test, observe, SHARE_MAX, &format!("{HALF_CACHED}{program}"));
    }
}

#[test]
fn many_open_files_cost_no_more() {
    let program = "
fds = [os.open(path, os.O_RDONLY) for _ in range(most - 250)]
for fd in fds: os.read(fd, 4096)
nth = 0
while goes_on():
    nth += 1
    os.pread(fds[nth % len(fds)], 4096, nth * 7919 * 4096 % (1 << 20))
";
    check("many_open_files_cost_no_more", "preload", SHARE_MAX, program);
}

#[test]
fn calls_that_wait_for_no_device_cost_no_more() {
    let program = "
import threading
fds = [os.open(path, os.O_RDONLY) for _ in range(most - 250)]
for fd in fds: os.read(fd, 4096)
pipes = [f'{path}-pipe-{nth}' for nth in range(64)]
for pipe in pipes:
    if not os.path.exists(pipe): os.mkfifo(pipe)
rounds = []
turn = threading.Barrier(2, lambda: rounds.append(is_early()))
def both_go_on():
    turn.wait()
    return rounds[-1]
def opens(how):
    while both_go_on():
        for pipe in pipes:
            os.close(os.open(pipe, how))
            for fd in fds[:99]: os.lseek(fd, 4096, 0)
other = threading.Thread(target=opens, args=[os.O_WRONLY])
other.start()
opens(os.O_RDONLY)
";
    check("calls_that_wait_for_no_device_cost_no_more", "proc", SHARE_MAX, program);
}

#[test]
fn files_that_are_opened_and_closed_cost_no_more() {
    let program = "
while goes_on():
    fds = [os.open(path, os.O_RDONLY) for _ in range(200)]
    for fd in fds: os.read(fd, 1 << 19)
    for fd in fds: os.close(fd)
";
    check("files_that_are_opened_and_closed_cost_no_more", "proc", SHARE_MAX, program);
}

#[test]
fn many_mappings_cost_no_more() {
    let program = "
held = []
while goes_on():
    kind = mmap.PROT_READ if len(held) % 2 else mmap.PROT_READ | mmap.PROT_WRITE
    if len(held) < 30000: held.append(mmap.mmap(-1, 4096, prot=kind))
    else: held.pop(17).close()
";
    check("many_mappings_cost_no_more", "proc", SHARE_MAX, program);
}

#[test]
fn many_processes_cost_no_more() {
    let program = "
children = []
for _ in range(300):
    child = os.fork()
    if child == 0:
        fd = os.open(path, os.O_RDONLY)
        while is_early():
            os.lseek(fd, 0, 0)
            while os.read(fd, 65536): pass
            time.sleep(.05)
        os._exit(0)
    children.append(child)
while is_early():
    child = os.fork()
    if child == 0: os._exit(0)
    os.waitpid(child, 0)
for child in children: os.waitpid(child, 0)
";
    check("many_processes_cost_no_more", "proc", SHARE_MAX, program);
}

#[test]
fn processes_that_end_one_after_the_other_cost_no_more() {
    let program = "
children = []
while goes_on():
    while len(children) < 250:
        child = os.fork()
        if child == 0:
            time.sleep(.1)
            os._exit(0)
        children.append(child)
    os.waitpid(children.pop(0), 0)
for child in children: os.waitpid(child, 0)
";
    check("processes_that_end_one_after_the_other_cost_no_more", "proc", SHARE_MAX, program);
}

#[test]
fn signals_for_forerun_itself_cost_no_more() {
    let program = "
import signal
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
forerun = os.getppid()
while goes_on(): os.kill(forerun, signal.SIGUSR1)
";
    check("signals_for_forerun_itself_cost_no_more", "proc", SHARE_MAX, program);
}

#[test]
fn files_that_are_read_from_the_device_all_the_time_cost_no_more_than_they_may() {
    let program = "
fds = []
for nth in range(16):
    fds.append(os.open(f'{path}-{nth}', os.O_RDONLY))
idle = [os.open(path, os.O_RDONLY) for _ in range(most - 250)]
held = [mmap.mmap(-1, 4096, prot=mmap.PROT_READ) for _ in range(2000)]
reads_again(fds)
";
    let test = "files_that_are_read_from_the_device_all_the_time_cost_no_more_than_they_may";
    if installed(test, "python3") {
        let folder = folder_with_files(test);
        let _ = check_in(&folder, test, "proc", SHARE_GAINING_MAX, program);
    }
}

#[test]
fn a_hostile_program_that_gains_costs_no_more_than_it_may() {
    let program = "
fds = []
for nth in range(16):
    fds.append(os.open(f'{path}-{nth}', os.O_RDONLY))
    # What is beyond a read was prefetched.
    os.posix_fadvise(fds[-1], 0, 0, os.POSIX_FADV_RANDOM)
idle = [os.open(path, os.O_RDONLY) for _ in range(100)]
held = [mmap.mmap(-1, 4096, prot=mmap.PROT_READ) for _ in range(500)]
reads_again(fds)
";
    let test = "a_hostile_program_that_gains_costs_no_more_than_it_may";
    if !installed(test, "python3") {
        return;
    }
    let folder = folder_with_files(test);
    let stats = check_in(&folder, test, "proc", SHARE_GAINING_MAX, program);
    let [used, unused] = ["pages_used", "pages_unused"].map(|name| stats[name].as_u64());
    println!("| {test} | pages {used:?} used, {unused:?} not |");
    assert!(used > Some(0), "nothing was gained: {stats}");
}
