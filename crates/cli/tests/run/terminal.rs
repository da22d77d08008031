//! Signals of a terminal reach a program under `run` as often as alone: once.
//!
//! ```text
//!   this test --- keys, sizes ---> terminal ---> the group in the foreground:
//!                                                  forerun ---> the program, which counts
//!   a leader of the session, which ends: the kernel hangs up on the group
//! ```
//! So it is where the program makes a group of its own: alone it leads the one in the foreground,
//! which a leader does not leave.
//!
//! # Invariants
//! - A signal of real time that forerun forwards comes after all that it forwards before: what the
//!   program has counted by then is all that there is.
//! - The program takes its signals as messages: a handler of Python's that is due just before the
//!   program waits would have to wait for the next signal.

use std::fs;
use std::process::Command;

use forerun_testkit::{Scratch, installed};

/// Starts the words as the group in the foreground of a new terminal, with a program that writes
/// the name of each signal that it gets to the file, in a group of its own where it `leaves`.
/// Prints what was written for each.
const TERMINAL: &str = r#"
import fcntl, os, pty, signal, struct, sys, termios, time
log, stays, words = sys.argv[1], sys.argv[2], sys.argv[3:]
counter = """
import os, signal, sys
if sys.argv[2] == 'leaves': os.setpgrp()
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
counted = {getattr(signal, "SIG" + name) for name in "HUP INT QUIT WINCH RTMIN".split()}
signal.pthread_sigmask(signal.SIG_BLOCK, counted)
os.write(log, f"{os.getpid()} {os.getppid()} ".encode())
while True: os.write(log, f"{signal.Signals(signal.sigwait(counted)).name} ".encode())
"""
told = os.pipe()
leader, terminal = pty.fork()
if leader == 0:
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    group = os.fork()
    if group == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpgrp())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        words += [sys.executable, "-c", counter, log, stays]
        os.execvp(words[0], words)
    os.close(told[1])
    os.read(told[0], 1)
    os._exit(0)
def words_of_log():
    return open(log).read().split() if os.path.exists(log) else []
def until(holds, what):
    given_up = time.monotonic() + 300
    while not holds():
        if time.monotonic() > given_up: sys.exit(f"{what} did not come")
        time.sleep(0.001)
until(lambda: len(words_of_log()) >= 2, "the program")
program, first = map(int, words_of_log()[:2])
# Alone, the parent is the leader.
first = program if first == leader else first
def expect(name, send):
    before = len(words_of_log())
    send()
    until(lambda: "SIG" + name in words_of_log()[before:], name)
    os.kill(first, signal.SIGRTMIN)
    until(lambda: "SIGRTMIN" in words_of_log()[before:], f"RTMIN after {name}")
    print(name, words_of_log()[before:].count("SIG" + name))
expect("INT", lambda: os.write(terminal, b"\x03"))
expect("QUIT", lambda: os.write(terminal, b"\x1c"))
expect("WINCH", lambda: fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 9, 9, 0, 0)))
expect("HUP", lambda: os.close(told[1]))
os.kill(program, signal.SIGKILL)
os.waitpid(leader, 0)
"#;

#[test]
fn signals_of_a_terminal_reach_the_program_once() {
    let test = "signals_of_a_terminal_reach_the_program_once";
    if !installed(test, "python3") {
        return;
    }
    let scratch = Scratch::new("terminal");
    let ways: [&[&str]; 3] = [
        &[],
        &[env!("CARGO_BIN_EXE_forerun"), "run", "--"],
        &[env!("CARGO_BIN_EXE_forerun"), "explain", "-o", "page.html", "--"],
    ];
    let rows = ways.into_iter().flat_map(|way| ["stays", "leaves"].map(|stays| (way, stays)));
    for (at, (way, stays)) in rows.enumerate() {
        let log = scratch.join(format!("log-{at}"));
        let mut command = Command::new("python3");
        command.args(["-c", TERMINAL]).arg(&log).arg(stays).args(way).current_dir(&scratch);
        let output = command.output().expect("it starts");
        let (counts, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let log = fs::read_to_string(&log).unwrap_or_default();
        let once = "INT 1\nQUIT 1\nWINCH 1\nHUP 1\n";
        assert_eq!(counts, once, "{way:?}, {stays}: {log}\n{errors}");
    }
}
