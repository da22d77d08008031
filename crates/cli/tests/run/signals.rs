//! A signal that is sent to forerun alone, or to its processes and not to the program, reaches that
//! once.
//!
//! # Invariants
//! - A signal of a higher number that forerun forwards comes after all that it forwards before:
//!   what the program has told by then is all that there is.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use forerun_testkit::{Scratch, installed};
use rustix::process::{Pid, Signal, kill_process};

use crate::rig::{Reader, explain, observing, run, signal};

/// Tells its number, in a group of its own where it `leaves`, and the name of each signal that it
/// gets.
const PROGRAM: &str = r#"
import os, signal, sys
if sys.argv[1] == 'leaves': os.setpgrp()
counted = [getattr(signal, "SIG" + name) for name in "HUP INT QUIT TERM PWR".split()]
signal.pthread_sigmask(signal.SIG_BLOCK, counted)
print(os.getpid(), flush=True)
while True: print(signal.Signals(signal.sigwait(counted)).name, flush=True)
"#;

/// Which processes a signal is sent to.
#[derive(Clone, Copy, Debug)]
enum To {
    Forerun,
    Program,
    /// Forerun and what observes, which have one name.
    Both,
    /// The same, by another process than the parent.
    BothByAnother,
}

/// A run, and what it is of.
struct Processes {
    forerun: Reader,
    program: u32,
    observing: u32,
}

impl Processes {
    fn start(mut command: Command, stays: &str) -> Self {
        command.args(["python3", "-c", PROGRAM, stays]).process_group(0).stderr(Stdio::null());
        let mut forerun = Reader::start(&mut command);
        let program = forerun.answer().parse().expect("it tells its number");
        let observing = observing(forerun.child.id());
        Self { forerun, program, observing }
    }

    fn send(&self, (number, name): (Signal, &str), to: To) {
        let forerun = self.forerun.child.id();
        let all = match to {
            To::BothByAnother => {
                let numbers = [forerun, self.observing].map(|pid| pid.to_string());
                let sent = Command::new("kill").args(["-s", name]).args(numbers).status();
                assert!(sent.expect("it is installed").success());
                return;
            }
            To::Both => vec![forerun, self.observing],
            To::Forerun => vec![forerun],
            To::Program => vec![self.program],
        };
        for process in all {
            signal(process, number);
        }
    }

    /// The signals that the program has got since.
    fn got(&mut self) -> Vec<String> {
        signal(self.forerun.child.id(), Signal::POWER);
        let mut got = Vec::new();
        loop {
            let name = self.forerun.answer();
            if name == "SIGPWR" {
                return got;
            }
            assert_ne!(name, "", "the program tells of each");
            got.push(name);
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // It may have ended, where the test has failed.
        let program = i32::try_from(self.program).ok().and_then(Pid::from_raw);
        let _ = program.map(|program| kill_process(program, Signal::KILL));
        let _ = self.forerun.child.wait();
    }
}

#[test]
fn a_signal_to_one_or_both_processes_of_forerun_reaches_the_program_once() {
    let test = "a_signal_to_one_or_both_processes_of_forerun_reaches_the_program_once";
    if !installed(test, "python3") || !installed(test, "kill") {
        return;
    }
    let ends = [
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::TERM, "TERM"),
    ];
    let ways = [To::Forerun, To::Program, To::Both, To::BothByAnother];
    let rows = ["stays", "leaves"].into_iter().flat_map(|stays| ways.map(|to| (stays, to)));
    let scratch = Scratch::new("signals");
    for way in ["run", "explain"] {
        for (stays, to) in rows.clone() {
            let mut command = if way == "run" { run("") } else { explain("-o page.html") };
            command.current_dir(&scratch);
            let mut processes = Processes::start(command, stays);
            for _ in 0..ROUNDS {
                for (number, name) in ends {
                    processes.send((number, name), to);
                    assert_eq!(
                        processes.got(),
                        [format!("SIG{name}")],
                        "{way}, {stays}, to {to:?}"
                    );
                }
            }
        }
    }
}

/// Times that each is sent: what is there twice may count once.
const ROUNDS: u32 = 5;
