//! Signals that a process sends to some or all of a run reach the program once.
//!
//! # Invariants
//! - A signal of a higher number that forerun forwards comes after all that it forwards before:
//!   what the program has told by then is all that there is.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use forerun_testkit::{Scratch, installed};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::rig::{Reader, explain, observing, run};

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
    /// The group of forerun, at once.
    Group,
    /// Forerun, the program, what observes it.
    Each,
    /// The same, the program first.
    EachBackwards,
    Forerun,
    Program,
    /// Forerun and what observes, by another process than the parent, which finds them by name.
    ByName,
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

    fn send(&self, signal: (Signal, &str), to: To) {
        let forerun = self.forerun.child.id();
        let all = match to {
            To::Group => {
                kill_process_group(pid(forerun), signal.0).expect("it is there");
                return;
            }
            To::ByName => {
                let numbers = [forerun, self.observing].map(|pid| pid.to_string());
                let sent = Command::new("kill").args(["-s", signal.1]).args(numbers).status();
                assert!(sent.expect("it is installed").success());
                return;
            }
            To::Each => vec![forerun, self.program, self.observing],
            To::EachBackwards => vec![self.program, self.observing, forerun],
            To::Forerun => vec![forerun],
            To::Program => vec![self.program],
        };
        for process in all {
            kill_process(pid(process), signal.0).expect("it is there");
        }
    }

    /// The signals that the program has got since.
    fn got(&mut self) -> Vec<String> {
        kill_process(pid(self.forerun.child.id()), Signal::POWER).expect("it is there");
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
        let _ = kill_process(pid(self.program), Signal::KILL);
        let _ = self.forerun.child.wait();
    }
}

#[test]
fn a_signal_to_all_or_some_of_a_run_reaches_the_program_once() {
    let test = "a_signal_to_all_or_some_of_a_run_reaches_the_program_once";
    if !installed(test, "python3") || !installed(test, "kill") {
        return;
    }
    let ends = [
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::TERM, "TERM"),
    ];
    let rows = [
        ("stays", To::Group),
        ("stays", To::Each),
        ("stays", To::EachBackwards),
        ("stays", To::Forerun),
        ("stays", To::Program),
        ("stays", To::ByName),
        ("leaves", To::Group),
        ("leaves", To::Forerun),
        ("leaves", To::ByName),
    ];
    let scratch = Scratch::new("groups");
    for way in ["run", "explain"] {
        for (stays, to) in rows {
            let mut command = if way == "run" { run("") } else { explain("-o page.html") };
            command.current_dir(&scratch);
            let mut processes = Processes::start(command, stays);
            for _ in 0..ROUNDS {
                for signal in ends {
                    processes.send(signal, to);
                    let name = format!("SIG{}", signal.1);
                    assert_eq!(processes.got(), [name], "{way}, {stays}, to {to:?}");
                }
            }
        }
    }
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.try_into().expect("it is positive")).expect("it is not 0")
}

/// Times that each is sent: what is there twice may count once.
const ROUNDS: u32 = 5;
