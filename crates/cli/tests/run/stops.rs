//! A run that is stopped with its program goes on with it, whatever becomes of what wakes it.

use std::fs;
use std::process::{Command, Stdio};

use forerun_testkit::{until, within};
use rustix::process::{Pid, Signal, kill_process};

use crate::rig::{explain, observing, run};

/// Stops itself, and ends with 3.
const STOPS: [&str; 3] = ["sh", "-c", "kill -STOP $$; exit 3"];

#[test]
fn a_stopped_run_whose_observing_process_is_killed_goes_on_with_its_program() {
    within(|| {
        for command in [run(""), run("--stats"), explain("")] {
            let (mut forerun, observing, program) = stopped(command);
            signal(observing, Signal::KILL);
            until(|| state(forerun.id()) != Some('T'));
            signal(program, Signal::CONT);
            assert_eq!(forerun.wait().expect("it was started").code(), Some(3));
        }
    });
}

#[test]
fn a_stopped_run_goes_on_with_its_program_and_ends_with_it() {
    within(|| {
        let rows = [(Signal::CONT, 3), (Signal::KILL, 137)];
        for (sent, status) in rows {
            let (mut forerun, _, program) = stopped(run(""));
            signal(program, sent);
            assert_eq!(forerun.wait().expect("it was started").code(), Some(status), "{sent:?}");
        }
    });
}

/// A run that is stopped with its program: the two, and what observes.
fn stopped(mut command: Command) -> (std::process::Child, u32, u32) {
    let forerun = command.args(STOPS).stderr(Stdio::null()).spawn().expect("it starts");
    until(|| state(forerun.id()) == Some('T'));
    let observing = observing(forerun.id());
    let children = format!("/proc/{0}/task/{0}/children", forerun.id());
    let children = fs::read_to_string(children).expect("it is there");
    let mut children = children.split_whitespace().filter_map(|child| child.parse().ok());
    let program = children.find(|child| *child != observing && state(*child) == Some('T'));
    (forerun, observing, program.expect("it is stopped"))
}

/// The letter of a process's state.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("it is a process's");
    kill_process(pid, signal).expect("it is there");
}
