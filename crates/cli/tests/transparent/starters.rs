//! What a starter does with the program that it has started, and what it leaves to it.
//!
//! ```text
//!   starter --fork, exec--> [forerun run --] --> the program
//!      |  signals ---------------^                  |
//!      '--- stops, the end ------'  <---------------'
//! ```
//! Starters print what they see of their child, so that what a signal does to it and what they are
//! told of it is part of the output that is compared.

use std::process::Command;

use forerun_testkit::{Scratch, installed};

use crate::table::{WAYS, Way, run};

/// Begins the starters that follow their child: its number, and `see`, which prints how it changed.
const FOLLOWS: &str = "
import os, sys, time
from os import kill, killpg
from signal import *
def see():
    try: _, status = os.waitpid(child, os.WUNTRACED)
    except ChildProcessError: return print('lost', end=' ')
    if os.WIFSTOPPED(status): print('stopped', os.WSTOPSIG(status), end=' ')
    elif os.WIFSIGNALED(status): print('ended', 128 + os.WTERMSIG(status), end=' ')
    else: print('ended', os.WEXITSTATUS(status), end=' ')
def up():
    while not os.path.exists('up') or os.path.getsize('up') == 0: time.sleep(.001)
def go(): open('go', 'w').write('go')
def late(*_):
    print('nothing more', flush=True)
    killpg(child, SIGKILL)
    os._exit(98)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    try: os.execvp(sys.argv[1], sys.argv[1:])
    finally: os._exit(99)
signal(SIGALRM, late)
alarm(60)
";

/// Programs of a starter that follows them.
#[rustfmt::skip]
const FOLLOWED: &[(&str, &str, &str, &str)] = &[ // what, the starter's rest, the program, it sees
    ("a stop of its own",  "see(); kill(child, SIGCONT); see()", "kill -STOP $$; exit 3",
        "stopped 19 ended 3 "),
    ("two of them",        "see(); kill(child, SIGCONT); see(); kill(child, SIGCONT); see()",
        "kill -TSTP $$; kill -STOP $$; exit 3", "stopped 20 stopped 19 ended 3 "),
    ("CONT to the group",  "see(); killpg(child, SIGCONT); see()", "kill -TSTP $$; exit 3",
        "stopped 20 ended 3 "),
    ("CONT to itself",     "see(); go(); see()",
        "(until test -s go; do sleep 0.01; done; kill -CONT $$) & kill -STOP $$; exit 3",
        "stopped 19 ended 3 "),
    ("TSTP",               "up(); kill(child, SIGTSTP); see(); kill(child, SIGTERM)
kill(child, SIGCONT); see()", "echo > up; exec sleep 60", "stopped 20 ended 143 "),
    ("TTIN",               "up(); kill(child, SIGTTIN); see(); kill(child, SIGTERM)
kill(child, SIGCONT); see()", "echo > up; exec sleep 60", "stopped 21 ended 143 "),
    ("TSTP to the group",  "up(); killpg(child, SIGTSTP); see(); go()
killpg(child, SIGCONT); see()",
        "exec perl -e 'open F, q(>up); print F 1; close F;
            select undef, undef, undef, .01 until -s q(go); exit 3'", "stopped 20 ended 3 "),
    ("TSTP, ignored",      "up(); kill(child, SIGTSTP); kill(child, SIGUSR1); see()",
        "trap '' TSTP; echo > up; exec sleep 60", "ended 138 "),
    ("SEGV",               "up(); kill(child, SIGSEGV); see()", "echo > up; exec sleep 60",
        "ended 139 "),
    ("BUS",                "up(); kill(child, SIGBUS); see()", "echo > up; exec sleep 60",
        "ended 135 "),
    ("ILL",                "up(); kill(child, SIGILL); see()", "echo > up; exec sleep 60",
        "ended 132 "),
    ("FPE",                "up(); kill(child, SIGFPE); see()", "echo > up; exec sleep 60",
        "ended 136 "),
    ("TRAP",               "up(); kill(child, SIGTRAP); see()", "echo > up; exec sleep 60",
        "ended 133 "),
    ("SYS",                "up(); kill(child, SIGSYS); see()", "echo > up; exec sleep 60",
        "ended 159 "),
];

/// Begins the starters that are a terminal and its shell, with their child in the foreground: `key`
/// types, `foreground` has a child that was stopped go on, `ended` prints the status of a shell.
const TYPES: &str = "
import fcntl, os, sys, termios
from os import killpg
from signal import *
out, (keys, terminal) = os.dup(1), os.openpty()
if os.fork() > 0: os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
def say(*words): os.write(out, ' '.join(map(str, words + ('',))).encode())
def see():
    _, status = os.waitpid(child, os.WUNTRACED)
    if os.WIFSTOPPED(status): say('stopped', os.WSTOPSIG(status))
    elif os.WIFSIGNALED(status): say('killed', os.WTERMSIG(status))
    else: say('ended', os.WEXITSTATUS(status))
def ended():
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status)
    say('ended', 128 + os.WTERMSIG(status) if killed else os.WEXITSTATUS(status))
def up():
    while not os.path.exists('up') or os.path.getsize('up') == 0: os.sched_yield()
def key(letter): os.write(keys, bytes([ord(letter) - 64]))
def foreground():
    os.tcsetpgrp(0, os.getpgrp())
    os.tcsetpgrp(0, child)
    killpg(child, SIGCONT)
def late(*_):
    say('nothing more')
    killpg(child, SIGKILL)
    os._exit(98)
os.setsid()
fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
for number in range(3): os.dup2(terminal, number)
signal(SIGTTOU, SIG_IGN)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpgrp())
    signal(SIGTTOU, SIG_DFL)
    try: os.execvp(sys.argv[1], sys.argv[1:])
    finally: os._exit(99)
signal(SIGALRM, late)
alarm(60)
";

/// Programs of a terminal, and what its shell sees.
#[rustfmt::skip]
const TYPED: &[(&str, &str, &str, &str)] = &[ // what, the starter's rest, the program, it sees
    ("Ctrl-C",              "up(); key('C'); see()", "echo > up; exec sleep 60", "killed 2 "),
    ("Ctrl-C and Ctrl-\\",  "up(); os.write(keys, b'\\x03\\x1c'); see()",
        "ulimit -c 0; trap '' QUIT; echo > up; exec sleep 60", "killed 2 "),
    ("Ctrl-C, a trap",      "up(); key('C'); see()",
        "trap 'exit 130' INT; echo > up; while :; do sleep 0.01; done", "ended 130 "),
    ("Ctrl-Z, fg, Ctrl-C",  "up(); key('Z'); see(); foreground(); key('C'); see()",
        "echo > up; exec sleep 60", "stopped 20 killed 2 "),
    ("a group: Ctrl-C",     "up(); key('C'); see()",
        "exec perl -e 'setpgrp; open F, q(>up); print F 1; close F; sleep 60'", "killed 2 "),
    ("a group: Ctrl-Z, fg", "up(); key('Z'); see(); foreground(); key('C'); see()",
        "exec perl -e 'setpgrp; open F, q(>up); print F 1; close F; sleep 60'",
        "stopped 20 killed 2 "),
    ("a group: its child",  "up(); key('C'); see()",
        "exec perl -e 'setpgrp; $SIG{INT} = q(IGNORE); if (fork) { wait; exit $? & 127 }
            $SIG{INT} = q(DEFAULT); exec q(sh), q(-c), q(echo > up; exec sleep 60)'", "ended 2 "),
    // It ignores the signal that it sends to its group, and may do so still as it ends by it.
    ("timeout: Ctrl-C",     "up(); key('C'); ended()",
        "exec timeout 50 sh -c 'echo > up; exec sleep 60'", "ended 130 "),
    ("timeout: Ctrl-Z, fg", "up(); key('Z'); see(); foreground(); key('\\\\'); ended()",
        "ulimit -c 0; exec timeout 50 sh -c 'echo > up; exec sleep 60'", "stopped 20 ended 131 "),
];

type Left<'a> = (&'a str, &'a str, &'a [&'a str], &'a [&'a str], Option<&'a str>);

/// Programs that begin in a state that a starter has made, with which it becomes the program.
#[rustfmt::skip]
const LEFT: &[Left] = &[ // what, package, starter, program, it prints
    ("a pid namespace", "util-linux", &["timeout", "-s", "KILL", "60", "unshare", "-p"],
        &["sh", "-c", "echo one; sh -c 'echo two'; exit 3"], Some("one\ntwo\n")),
    ("a namespace with orphans", "util-linux",
        &["timeout", "-s", "KILL", "60", "unshare", "-p", "-f", "--mount-proc"],
        &["perl", "-e", "if (!fork) { exit 1 if fork; select undef, undef, undef, .2; exit 4 }
            print wait > 0 ? $? >> 8 : 'none', ' ' for 1 .. 3"], None),
    ("a POSIX lock", "perl", &["perl", "-e", "use Fcntl; open A, '>lock'; $^F = 99;
        open B, '>lock'; $l = pack 's s l! l! i', F_WRLCK, 0, 0, 0, 0;
        fcntl B, F_SETLK, $l or exit 9;
        exec @ARGV, fileno B"],
        &["perl", "-e", "sleep 1; print system('perl', '-e', q(use Fcntl; open A, '+<lock';
            $l = pack 's s l! l! i', F_WRLCK, 0, 0, 0, 0;
            print fcntl(A, F_SETLK, $l) ? 'free' : 'held'))"], None),
    ("a pipe's lock",       "python3", &["python3", "-c", "
import fcntl, os, sys
os.mkfifo('lock')
fd = os.open('lock', os.O_RDWR)
os.set_inheritable(fd, True)
fcntl.lockf(fd, fcntl.LOCK_EX)
os.execvp(sys.argv[1], sys.argv[1:])"],
        &["python3", "-c", "
import fcntl, os
if os.fork() > 0: os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
pipe = os.open('lock', os.O_RDWR)
os.unlink('lock')
try: fcntl.lockf(pipe, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError: print('held')"], Some("held\n")),
    ("a lock, opened twice", "python3", &["python3", "-c", "
import fcntl, os, sys
fds = [os.open('lock', os.O_RDWR | os.O_CREAT) for _ in range(2)]
for fd in fds: os.set_inheritable(fd, True)
fcntl.lockf(fds[0], fcntl.LOCK_EX)
os.execvp(sys.argv[1], sys.argv[1:])"],
        &["python3", "-c", "
import fcntl, os
if os.fork() > 0: os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
try: fcntl.lockf(open('lock', 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError: print('held')"], Some("held\n")),
    ("a lock's file", "util-linux", &["sh", "-c", "exec 9> lock; exec \"$@\"", "sh"],
        &["sh", "-c", "flock 9; exec 9>&-; flock -w 10 lock echo free"], Some("free\n")),
    ("a file to write", "dash", &["sh", "-c", "exec 9> copy; exec \"$@\"", "sh"],
        &["sh", "-c", "cat /bin/true >&9; exec 9>&-; chmod +x copy; n=0
            until ./copy 2> /dev/null || [ $((n += 1)) = 500 ]; do sleep 0.01; done; ./copy"],
        Some("")),
    ("a folder", "util-linux", &["unshare", "-m", "sh", "-c",
        "mkdir m && mount -t tmpfs none m && cd m && exec \"$@\"", "sh"],
        &["sh", "-c", "m=$PWD; cd /; n=0
            until umount $m 2> /dev/null || [ $((n += 1)) = 500 ]; do sleep 0.01; done
            mountpoint -q $m; echo $?"], None),
    ("an owner of signals", "perl", &["perl", "-e", "
        use Socket; use Fcntl; $^F = 99; socketpair A, B, AF_UNIX, SOCK_STREAM, 0;
        fcntl A, F_SETOWN, $$ + 0; fcntl A, F_SETFL, O_ASYNC | O_NONBLOCK; exec @ARGV, fileno B"],
        &["perl", "-e", "$SIG{IO} = sub { $SIG{IO} = 'IGNORE'; print 'io'; exit 5 };
            open B, '>&=', $ARGV[0]; syswrite B, 'x'; sleep 10"], Some("io")),
];

/// Programs that are named by number: what their starter, which becomes them, sets, and what
/// they print.
#[rustfmt::skip]
const NAMED: &[(&str, &str, &str, &str)] = &[ // what, the starter sets, the program, it prints
    ("its sockets",  "export LISTEN_PID=$$ LISTEN_FDS=1",
        "test $LISTEN_PID = $$ && echo $LISTEN_FDS", "1\n"),
    ("its watchdog", "export WATCHDOG_PID=$$ SYSTEMD_EXEC_PID=$$",
        "test $WATCHDOG_PID,$SYSTEMD_EXEC_PID = $$,$$ && echo both", "both\n"),
    ("others",       "export LISTEN_PID=${$}0 WATCHDOG_PID=$PPID MINE=$$,$PPID",
        "test ${MINE%,*}0,${MINE#*,} = $LISTEN_PID,$WATCHDOG_PID && echo theirs", "theirs\n"),
];

#[test]
fn what_names_the_process_by_number_names_the_program() {
    compare(NAMED.iter().map(|(name, sets, program, prints)| {
        let starter = ["sh", "-c", &format!("{sets}; exec \"$@\""), "sh"].map(str::to_owned);
        let program = ["sh", "-c", program].map(str::to_owned).to_vec();
        (*name, starter.to_vec(), program, Some(*prints))
    }));
}

#[test]
fn a_starter_sees_of_its_child_what_it_sees_of_the_program() {
    let test = "a_starter_sees_of_its_child_what_it_sees_of_the_program";
    if !installed(test, "perl") || !installed(test, "python3") {
        return;
    }
    compare(starters(FOLLOWS, FOLLOWED));
}

#[test]
fn a_terminal_does_with_its_job_what_it_does_with_the_program() {
    let test = "a_terminal_does_with_its_job_what_it_does_with_the_program";
    if installed(test, "perl") && installed(test, "python3") {
        compare(starters(TYPES, TYPED));
    }
}

/// Rows whose starters begin with `begins`.
fn starters<'a>(
    begins: &'a str,
    rows: &'a [(&str, &str, &str, &str)],
) -> impl Iterator<Item = Row<'a>> {
    rows.iter().map(move |(name, rest, program, sees)| {
        let starter = ["python3", "-ISc", &format!("{begins}{rest}")].map(str::to_owned);
        let program = ["sh", "-c", program].map(str::to_owned).to_vec();
        (*name, starter.to_vec(), program, Some(*sees))
    })
}

#[test]
fn a_program_does_with_what_is_left_to_it_what_it_does_alone() {
    let rows = LEFT.iter().filter(|(name, package, before, ..)| {
        let (mut starter, folder) = (Command::new(before[0]), Scratch::new("can"));
        let can = starter.args(&before[1..]).arg("true").current_dir(&*folder).output();
        let can = can.is_ok_and(|output| output.status.success());
        if !can {
            println!("{name:20} left out: not permitted, or apt-get install {package}");
        }
        can
    });
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    compare(
        rows.map(|(name, _, before, program, prints)| {
            (*name, words(before), words(program), *prints)
        }),
    );
}

/// A name, a starter and a program, and where that is known what the starter sees of it alone.
type Row<'a> = (&'a str, Vec<String>, Vec<String>, Option<&'a str>);

/// Runs each row alone and in every way.
fn compare<'a>(rows: impl Iterator<Item = Row<'a>>) {
    let (scratch, mut differences) = (Scratch::new("starters"), Vec::new());
    for (name, before, words, sees) in rows {
        let alone = run(&scratch, Way::Alone, &before, &words);
        assert!(sees.is_none_or(|sees| alone.output == sees), "{name}, alone: {alone:?}");
        for way in &WAYS[1..] {
            let found = run(&scratch, *way, &before, &words).differences(&alone);
            let table = if found.is_empty() { "equal" } else { "DIFFERS" };
            println!("{name:20} {:12} {table}", format!("{way:?}").to_lowercase());
            differences.extend(found.into_iter().map(|what| format!("{name}, {way:?}: {what}")));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
