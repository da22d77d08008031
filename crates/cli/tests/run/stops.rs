//! A run that is stopped with its program goes on with it, whatever becomes of what wakes it.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use forerun_testkit::{stat_fields, until, within};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::rig::{explain, observing, run, signal};

/// The rest of a program that has stopped itself.
const ENDS: &str = "exit 3";

#[test]
fn a_stopped_run_whose_observing_process_is_killed_goes_on_with_its_program() {
    within(|| {
        for command in [run(""), run("--stats"), explain("")] {
            let (mut forerun, observing, program) = stopped(command, ENDS);
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
            let (mut forerun, _, program) = stopped(run(""), ENDS);
            signal(program, sent);
            assert_eq!(forerun.wait().expect("it was started").code(), Some(status), "{sent:?}");
        }
    });
}

#[test]
fn a_run_whose_observing_process_is_gone_stops_with_its_program_as_ever() {
    within(|| {
        for command in [run(""), explain("")] {
            let (mut forerun, observing, program) = stopped(command, "kill -STOP $$; exit 3");
            signal(observing, Signal::KILL);
            until(|| state(forerun.id()) != Some('T'));
            signal(program, Signal::CONT);
            until(|| state(forerun.id()) == Some('T') && state(program) == Some('T'));
            signal(program, Signal::CONT);
            assert_eq!(forerun.wait().expect("it was started").code(), Some(3));
        }
    });
}

#[test]
fn the_observing_process_goes_on_with_forerun_after_a_stop_of_the_whole_group() {
    within(|| {
        let mut command = run("--stats");
        command.args(["sh", "-c", "read line; exit 3"]).process_group(0);
        let command = command.stdin(Stdio::piped()).stderr(Stdio::null());
        let mut forerun = command.spawn().expect("it starts");
        let observing = observing(forerun.id());
        kill_process_group(Pid::from_child(&forerun), Signal::STOP).expect("it is there");
        until(|| [forerun.id(), observing].iter().all(|&pid| state(pid) == Some('T')));
        signal(forerun.id(), Signal::CONT);
        until(|| state(observing) != Some('T'));
        drop(forerun.stdin.take());
        assert_eq!(forerun.wait().expect("it was started").code(), Some(3));
    });
}

/// A run that is stopped with its program, which goes on with `rest`: the two, and what observes.
fn stopped(mut command: Command, rest: &str) -> (std::process::Child, u32, u32) {
    let program = format!("kill -STOP $$; {rest}");
    let forerun =
        command.args(["sh", "-c", &program]).stderr(Stdio::null()).spawn().expect("it starts");
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
    stat_fields(&format!("/proc/{pid}")).first()?.chars().next()
}
