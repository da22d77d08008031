//! Programs that change, delete or close what they read, that read no files, or hardly live: each
//! observed from outside, and by the shim.
//!
//! # Invariants
//! - What a program sees is what it sees alone: the same output, the same status.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::thread;

use forerun_testkit::{compile_c, installed, skip, within};

use crate::rig::{Data, Reader, folder, observing, run, shim, stats};

const BYTES: u64 = 8 << 20;

/// Both kinds of observers.
const OBSERVERS: [&str; 2] = ["--observe proc", "--observe preload"];

/// `forerun run` with `flags`, and the shim where it is built.
fn run_with(flags: &str) -> Command {
    let mut command = run(flags);
    command.env("FORERUN_PRELOAD", shim());
    command
}

#[test]
fn files_may_be_cut_and_deleted_while_they_are_read() {
    let test = "files_may_be_cut_and_deleted_while_they_are_read";
    let folder = folder("cut");
    if !installed(test, "python3") {
        return;
    }
    let program = "
import os, sys
path = sys.argv[1]
fd = os.open(path, os.O_RDWR)
def read(count):
    return sum(len(os.read(fd, 65536)) for _ in range(count))
steps = [lambda: read(32), lambda: os.ftruncate(fd, 1 << 20), lambda: read(4),
         lambda: os.ftruncate(fd, 16 << 20), lambda: os.lseek(fd, 0, 0), lambda: read(64),
         lambda: os.unlink(path), lambda: read(64), lambda: os.close(fd)]
for step, line in zip(steps, sys.stdin):
    print(step(), flush=True)
sys.stdin.read()
";
    for observer in OBSERVERS {
        // The program has changed it.
        let Some(data) = Data::new(test, &folder, BYTES) else { return };
        let mut command = run_with(&format!("--limit 2M {observer}"));
        let mut reader = Reader::start(command.args(["python3", "-c", program]).arg(&data.path));
        let answers: Vec<String> = (0..9).map(|_| reader.say("")).collect();
        let whole = (4 << 20).to_string();
        let half = (2 << 20).to_string();
        let expected = [&half, "None", "0", "None", "0", &whole, "None", &whole, "None"];
        assert_eq!(answers, expected, "{observer}");
        // A deleted file that the program has closed is not held open.
        let observing = format!("/proc/{}/fd", observing(reader.child.id()));
        let is_held = || {
            let links = fs::read_dir(&observing).unwrap().flatten();
            links
                .filter_map(|link| fs::read_link(link.path()).ok())
                .any(|to| to.starts_with(&folder) && to.to_string_lossy().contains("data"))
        };
        let let_go = (0..200_000).any(|_| {
            thread::yield_now();
            !is_held()
        });
        assert!(let_go, "{observer}: the file is still held");
        assert_eq!(reader.end(), Some(0), "{observer}");
    }
}

#[test]
fn a_program_may_close_all_descriptors_and_open_others() {
    let test = "a_program_may_close_all_descriptors_and_open_others";
    let folder = folder("closing");
    let Some(data) = Data::new(test, &folder, BYTES).filter(|_| installed(test, "python3")) else {
        return;
    };
    let program = "
import os, sys
for line in sys.stdin:
    os.closerange(3, 256)
    fds = [os.open(sys.argv[1], os.O_RDONLY) for _ in range(8)]
    for fd in fds:
        os.read(fd, 300000)
    print(fds[0], flush=True)
";
    for flags in OBSERVERS {
        let mut command = run_with(flags);
        command.args(["python3", "-c", program]).arg(&data.path);
        let mut reader = Reader::start(&mut command);
        for _ in 0..100 {
            assert_eq!(reader.say(""), "3", "{flags}");
        }
        assert_eq!(reader.end(), Some(0), "{flags}");
    }
}

#[test]
fn a_program_may_vfork() {
    let test = "a_program_may_vfork";
    let folder = folder("vfork");
    if !installed(test, "cc") {
        return;
    }
    let source = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void)
{
    int status, failed = 0;
    for (int i = 0; i < 50; i++) {
        pid_t child = vfork();
        if (child == 0) {
            execlp("true", "true", (char *)0);
            _exit(1);
        }
        failed += child < 0 || waitpid(child, &status, 0) != child || status != 0;
    }
    printf("%d failed\n", failed);
    return failed;
}
"#;
    let (listing, program) = (folder.join("vfork.c"), folder.join("vfork"));
    fs::write(&listing, source).unwrap();
    let made = Command::new("cc").args(["-o"]).arg(&program).arg(&listing).status().unwrap();
    assert!(made.success());
    for flags in OBSERVERS {
        let output = run_with(flags).arg(&program).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "0 failed\n", "{flags}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{flags}");
    }
}

#[test]
fn locks_end_with_the_descriptor_that_has_them() {
    let test = "locks_end_with_the_descriptor_that_has_them";
    let folder = folder("locks");
    let Some(data) = Data::new(test, &folder, BYTES).filter(|_| installed(test, "python3")) else {
        return;
    };
    // Each lock is taken as the one before it goes: it must not live on in a duplicate. The kernel
    // itself holds a file while it reports on its descriptor, some microseconds.
    let program = "
import fcntl, os, sys
def lock(fd, tries):
    try: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if tries == 0: raise
        os.sched_yield()
        lock(fd, tries - 1)
for line in sys.stdin:
    fd = os.open(sys.argv[1], os.O_RDONLY)
    lock(fd, 100)
    os.read(fd, 1 << 20)
    os.close(fd)
    print('taken', flush=True)
";
    for observer in OBSERVERS {
        let mut command = run_with(observer);
        let mut reader = Reader::start(command.args(["python3", "-c", program]).arg(&data.path));
        for _ in 0..300 {
            assert_eq!(reader.say(""), "taken", "{observer}");
        }
        assert_eq!(reader.end(), Some(0), "{observer}");
    }
}

#[test]
fn a_reader_of_pipes_is_left_alone() {
    let folder = folder("pipes");
    let record = folder.join("stats.json");
    let sent: Vec<u8> = (0..4_u32 << 20).map(|at| (at % 251).to_le_bytes()[0]).collect();
    for observer in OBSERVERS {
        let flags = format!("{observer} --stats-json {}", record.display());
        let mut command = run_with(&flags);
        command
            .args(["sh", "-c", "cat | cat"])
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut input, mut got) = (child.stdin.take().unwrap(), Vec::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                input.write_all(&sent).unwrap();
                drop(input);
            });
            child.stdout.take().unwrap().read_to_end(&mut got).unwrap();
        });
        assert!(child.wait().unwrap().success(), "{observer}");
        assert!(got == sent, "{observer}: what came is not what was sent");
        let stats = stats(&record);
        assert_eq!((&stats["asks"], &stats["bytes_asked"]), (&0.into(), &0.into()), "{stats}");
    }
}

#[test]
fn a_program_of_some_milliseconds_reads_what_it_reads_alone() {
    let test = "a_program_of_some_milliseconds_reads_what_it_reads_alone";
    let folder = folder("short");
    let Some(data) = Data::new(test, &folder, 1 << 20) else { return };
    let contents = fs::read(&data.path).unwrap();
    for observer in OBSERVERS {
        for _ in 0..20 {
            data.drop_from_cache();
            let output = run_with(observer).arg("cat").arg(&data.path).output().unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{observer}: {output:?}");
            assert!(output.stdout == contents, "{observer}: not what is in the file");
        }
    }
}

/// Has every exec of a file wait for good, and tells how a starter of it ends that is sent TERM
/// meanwhile. 77: not permitted.
const GATE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/fanotify.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words) {
    struct fanotify_event_metadata event;
    int gate = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY), status;
    if (count < 3 || gate < 0) return 77;
    if (fanotify_mark(gate, FAN_MARK_ADD, FAN_OPEN_EXEC_PERM, AT_FDCWD, words[1])) return 77;
    pid_t child = fork();
    if (child == 0) {
        execvp(words[2], words + 2);
        _exit(99);
    }
    if (read(gate, &event, sizeof event) != sizeof event) return 98;
    kill(child, SIGTERM);
    if (waitpid(child, &status, 0) != child) return 97;
    printf("%d\n", WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}
"#;

#[test]
fn a_signal_ends_a_program_whose_exec_waits() {
    let test = "a_signal_ends_a_program_whose_exec_waits";
    let folder = folder("gate");
    let (source, gate) = (folder.file("gate.c", GATE), folder.join("gate"));
    let Some(()) = compile_c(test, &source, &[], &gate) else { return };
    let program = folder.join("program");
    fs::copy("/bin/true", &program).expect("the folder takes a program");
    let program = program.to_str().expect("ASCII").to_owned();
    let forerun = env!("CARGO_BIN_EXE_forerun");
    let ways: [&[&str]; 3] =
        [&[], &[forerun, "run", "--"], &[forerun, "run", "--observe", "preload", "--"]];
    for way in ways {
        let mut command = Command::new(&gate);
        command.arg(&program).args(way).arg(&program).env("FORERUN_PRELOAD", shim());
        let output = within(move || command.output().expect("it starts"));
        if output.status.code() == Some(77) {
            return skip(test, "permission events of fanotify need root");
        }
        assert_eq!(String::from_utf8_lossy(&output.stdout), "143\n", "{way:?}: {output:?}");
    }
}

/// Closes descriptor 9, and does at once what can be done where nothing else has it.
const ALONE: &str = r"
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
int main(int count, char **words) {
    char byte;
    if (count < 3) return 0;
    close(9);
    switch (*words[1]) {
    case 'l': return flock(open(words[2], O_RDWR), LOCK_EX | LOCK_NB) != 0;
    case 'e': execl(words[2], words[2], (char *)0); return 1;
    default:
        fcntl(0, F_SETFL, O_NONBLOCK);
        return read(0, &byte, 1) != 0;
    }
}
";

#[test]
fn what_a_program_inherits_and_closes_is_free_at_once() {
    let test = "what_a_program_inherits_and_closes_is_free_at_once";
    let folder = folder("alone");
    let (source, program) = (folder.file("alone.c", ALONE), folder.join("alone"));
    let Some(()) = compile_c(test, &source, &["-static"], &program) else { return };
    if !installed(test, "flock") {
        return;
    }
    let program = program.to_str().unwrap();
    let script = format!(
        "cd {} && cp -f {program} copy && rm -f pipe && mkfifo pipe || exit 90
         case $1 in
             lock) exec 9>lock; flock 9; file=lock ;;
             exec) exec 9>>copy; file=$PWD/copy ;;
             pipe) exec 9<>pipe 0<pipe; file=pipe ;;
         esac
         kind=$1; shift; exec \"$@\" {program} $kind $file",
        folder.display()
    );
    for kind in ["lock", "exec", "pipe"] {
        for flags in ["--observe proc", "--stats-json /dev/null"] {
            for _ in 0..10 {
                let mut shell = Command::new("sh");
                shell.args(["-c", &script, "sh", kind, env!("CARGO_BIN_EXE_forerun"), "run"]);
                shell.args(flags.split_whitespace()).arg("--").env("FORERUN_LEARN", "off");
                let status = shell.stderr(Stdio::null()).status().unwrap();
                assert_eq!(status.code(), Some(0), "{kind}, {flags}");
            }
        }
    }
}
