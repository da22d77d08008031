//! The program is started, waited for and sent signals as by a shell.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};

use forerun_testkit::{Scratch, installed, within};

use crate::rig::{Reader, folder, run, stats};

#[test]
fn the_exit_status_is_that_of_a_shell() {
    let folder = folder("statuses");
    let plain = folder.join("plain");
    fs::write(&plain, "not a program").unwrap();
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    let plain = plain.to_str().unwrap();
    #[rustfmt::skip]
    let rows: [(&str, &[&str], i32); 9] = [
        ("done",              &["true"],                           0),
        ("failed",            &["false"],                          1),
        ("its own",           &["sh", "-c", "exit 77"],            77),
        ("killed",            &["sh", "-c", "kill -KILL $$"],      137),
        ("terminated",        &["sh", "-c", "kill -TERM $$"],      143),
        ("interrupted",       &["sh", "-c", "kill -INT $$"],       130),
        ("not there",         &["no-such-program-here"],           127),
        ("not executable",    &[plain],                            126),
        ("a folder",          &["/"],                              126),
    ];
    for (why, words, status) in rows {
        let output = run("").args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{why}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(errors.is_empty(), !(126..128).contains(&status), "{why}: {errors}");
        assert!(output.stdout.is_empty(), "{why}");
    }
}

#[test]
fn bad_usage_starts_nothing() {
    let folder = folder("usage");
    let made = folder.join("made");
    for flags in ["--limit 0", "--burst x", "--budget 0", "--readahead none", "--stats-json /no/x"]
    {
        let output = run(flags).arg("touch").arg(&made).output().unwrap();
        let expected = if flags.starts_with("--stats-json") { 1 } else { 2 };
        assert_eq!(output.status.code(), Some(expected), "{flags}");
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{flags}");
        assert!(!made.exists(), "{flags}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_forerun")).arg("run").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn words_after_the_program_are_its_own() {
    let output = Command::new(env!("CARGO_BIN_EXE_forerun"))
        .args(["run", "echo", "--stats", "-n", "--limit"])
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"--stats -n --limit\n");
}

#[test]
fn input_output_and_errors_are_the_programs() {
    let mut child = run("")
        .args(["sh", "-c", "tr a-z A-Z; echo wrong >&2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"HELLO\n"[..], &b"wrong\n"[..]));
}

#[test]
fn a_pipe_ends_when_the_program_closes_it() {
    let mut child = run("")
        .args(["sh", "-c", "exec >&-; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    assert!(output.is_empty());
    assert_eq!(child.try_wait().unwrap(), None, "it still reads");
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn signals_reach_the_program_and_do_not_end_the_run() {
    // bash runs traps between reads: a read of it ends in a while, whichever comes first here.
    let script = "for name in TERM USR1 HUP INT QUIT ALRM WINCH RTMIN+3; do
            trap \"echo $name\" $name; done
        echo ready; while read -t .05 line || [ $? -gt 128 ]; do :; done; exit 9";
    let mut child = run("")
        .args(["bash", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "ready");
    let forerun = Pid::from_child(&child);
    // What a process sends; a terminal sends its own to the program as well.
    for (signal, answer) in [
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::ALARM, "ALRM"),
        (Signal::WINCH, "WINCH"),
    ] {
        kill_process(forerun, signal).unwrap();
        assert_eq!(lines.next().unwrap(), answer);
    }
    let mut kill = Command::new("bash");
    kill.args(["-c", "kill -RTMIN+3 $0"]).arg(child.id().to_string());
    assert!(kill.status().unwrap().success());
    assert_eq!(lines.next().unwrap(), "RTMIN+3");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn what_a_program_sends_its_parent_does_not_come_back() {
    let script = "kill -TERM $PPID; kill -USR1 $PPID; echo alive";
    let output = run("").args(["sh", "-c", script]).output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"alive\n"[..]));
}

#[test]
fn a_caller_that_shares_its_working_folder_keeps_it() {
    let test = "a_caller_that_shares_its_working_folder_keeps_it";
    if !installed(test, "python3") {
        return;
    }
    let caller = "
import ctypes, os, signal, sys
CLONE_FS = 0x200
child = ctypes.CDLL(None).syscall(int(sys.argv[1]), CLONE_FS | signal.SIGCHLD, 0, 0, 0, 0)
if child == 0: os.execv(sys.argv[2], sys.argv[2:])
print(os.waitpid(child, 0)[1], os.getcwd())
";
    let folder = folder("shares-folder");
    let mut command = Command::new("python3");
    command.args(["-c", caller, &libc::SYS_clone.to_string()]).current_dir(&*folder);
    command.args([env!("CARGO_BIN_EXE_forerun"), "run", "--learn", "off", "--", "true"]);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(told.trim_end(), format!("0 {}", folder.display()));
}

#[test]
fn a_program_that_asks_to_be_traced_by_its_parent_goes_on() {
    let test = "a_program_that_asks_to_be_traced_by_its_parent_goes_on";
    if !installed(test, "python3") {
        return;
    }
    // As a program does that wants no debugger. Each signal stops it then, alone for good.
    let program = "
import ctypes, os, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: print('taken', flush=True))
assert ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0
os.kill(os.getpid(), signal.SIGUSR1)
os.waitpid(os.fork() or os._exit(0), 0)
print('goes on')
sys.exit(3)
";
    for flags in ["", "--stats"] {
        let output = within(move || run(flags).args(["python3", "-c", program]).output().unwrap());
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"taken\ngoes on\n"[..]));
    }
}

#[test]
fn a_stop_stops_both_and_both_go_on() {
    let test = "a_stop_stops_both_and_both_go_on";
    if !installed(test, "python3") {
        return;
    }
    // As Ctrl-Z does: the signal goes to all of the group.
    let program = "
import sys
for line in sys.stdin: print(line, end='', flush=True)
";
    let mut command = run("");
    let mut reader = Reader::start(command.args(["python3", "-c", program]).process_group(0));
    assert_eq!(reader.say("one"), "one");
    let forerun = Pid::from_child(&reader.child);
    for round in 0..3 {
        kill_process_group(forerun, Signal::TSTP).unwrap();
        let (_, status) = waitpid(Some(forerun), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "round {round}: forerun is stopped");
        kill_process_group(forerun, Signal::CONT).unwrap();
        assert_eq!(reader.say("two"), "two", "round {round}");
    }
    assert_eq!(reader.end(), Some(0));
}

#[test]
fn what_it_leaves_behind_goes_on() {
    let folder = folder("behind");
    let (pipe, result) = (folder.join("pipe"), folder.join("result"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let script = r#"{ cat <"$0" >"$1.part"; mv "$1.part" "$1"; echo over; } & exit 4"#;
    let mut child = run("")
        .args(["sh", "-c", script])
        .args([&pipe, &result])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    assert_eq!(child.wait().unwrap().code(), Some(4), "only the program itself is waited for");
    fs::write(&pipe, "later").unwrap();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!((line.as_str(), fs::read_to_string(&result).unwrap().as_str()), ("over\n", "later"));
}

#[test]
fn a_program_without_files_costs_nothing_but_polls() {
    let folder = folder("nothing");
    let record = folder.join("stats.json");
    let flags = format!("--stats-json {}", record.display());
    let output = run(&flags).args(["sh", "-c", "echo x | cat | wc -c"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "2");
    let stats = stats(&record);
    assert_eq!((&stats["status"], &stats["asks"]), (&0.into(), &0.into()), "{stats}");
    assert_eq!((&stats["bytes_asked"], &stats["files"]), (&0.into(), &0.into()), "{stats}");
}

#[test]
fn statistics_are_printed_on_stderr_by_a_flag() {
    let output = run("--stats").args(["sh", "-c", "echo out; exit 3"]).output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"out\n"[..]));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("requested 0 B in 0 calls"), "{errors}");
    assert!(errors.contains(" of computing, at most ") && errors.contains(" of a processor"));
}

#[test]
fn nothing_is_said_of_a_lost_observer_where_quiet_is_asked_for() {
    // It starts beside the program, sooner or later.
    let kills = "until set -- $(cat /proc/$PPID/task/*/children) && [ $# -gt 1 ]; do :; done
                 for it in \"$@\"; do
                     [ $it = $$ ] || kill -9 $it
                 done
                 echo out";
    let folder = Scratch::new("quiet");
    let record = folder.join("stats.json");
    let words = format!("--stats-json {}", record.display());
    for (flags, told) in [(words.clone(), "was not observed"), (words + " --quiet", "")] {
        let output = run(&flags).args(["sh", "-c", kills]).output().unwrap();
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"out\n"[..]));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(told) && (!told.is_empty() || errors.is_empty()), "{errors}");
    }
}

#[test]
fn short_programs_are_run_too() {
    for _ in 0..20 {
        assert!(run("").arg("true").status().unwrap().success());
    }
}
