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
use POSIX ':sys_wait_h';
sub see {
    waitpid($child, WUNTRACED) == $child or print 'lost ';
    my $is = ${^CHILD_STATUS_NATIVE};
    if (WIFSTOPPED($is)) { print 'stopped ', WSTOPSIG($is), ' ' }
    else { print 'ended ', WIFSIGNALED($is) ? 128 + WTERMSIG($is) : WEXITSTATUS($is), ' ' }
}
sub up { select undef, undef, undef, .001 until -s 'up'; }
$child = fork;
if (!$child) { POSIX::setpgid(0, 0); exec @ARGV or exit 99 }
$| = 1; $SIG{ALRM} = sub { print 'nothing more'; kill KILL => -$child; exit 98 }; alarm 60;
";

/// Programs of a starter that follows them.
#[rustfmt::skip]
const FOLLOWED: &[(&str, &str, &str)] = &[ // what, the rest of the starter, the program
    ("a stop of its own",  "see; kill CONT => $child; see", "kill -STOP $$; exit 3"),
    ("two of them",        "see; kill CONT => $child; see; kill CONT => $child; see",
        "kill -TSTP $$; kill -STOP $$; exit 3"),
    ("CONT to the group",  "see; kill CONT => -$child; see", "kill -TSTP $$; exit 3"),
    ("CONT to itself",     "see; see", "(sleep 0.2; kill -CONT $$) & kill -STOP $$; exit 3"),
    ("TSTP",               "up; kill TSTP => $child; see; kill TERM => $child;
                            kill CONT => $child; see", "echo > up; exec sleep 60"),
    ("TTIN",               "up; kill TTIN => $child; see; kill TERM => $child;
                            kill CONT => $child; see", "echo > up; exec sleep 60"),
    ("TSTP to the group",  "up; kill TSTP => -$child; see; kill CONT => -$child; see",
        "exec perl -e 'open F, q(>up); print F 1; close F; sleep 1; exit 3'"),
    ("TSTP, ignored",      "up; kill TSTP => $child; kill USR1 => $child; see",
        "trap '' TSTP; echo > up; exec sleep 60"),
    ("SEGV",               "up; kill SEGV => $child; see", "echo > up; exec sleep 60"),
    ("BUS",                "up; kill BUS => $child; see", "echo > up; exec sleep 60"),
    ("ILL",                "up; kill ILL => $child; see", "echo > up; exec sleep 60"),
    ("FPE",                "up; kill FPE => $child; see", "echo > up; exec sleep 60"),
    ("TRAP",               "up; kill TRAP => $child; see", "echo > up; exec sleep 60"),
    ("SYS",                "up; kill SYS => $child; see", "echo > up; exec sleep 60"),
];

/// Programs that begin in a state that a starter has made, with which it becomes the program.
#[rustfmt::skip]
const LEFT: &[(&str, &str, &[&str], &[&str])] = &[ // what, package, starter, program
    ("a pid namespace", "util-linux", &["timeout", "-s", "KILL", "60", "unshare", "-p"],
        &["sh", "-c", "echo one; sh -c 'echo two'; exit 3"]),
    ("a namespace with orphans", "util-linux",
        &["timeout", "-s", "KILL", "60", "unshare", "-p", "-f", "--mount-proc"],
        &["perl", "-e", "if (!fork) { exit 1 if fork; select undef, undef, undef, .2; exit 4 }
            print wait > 0 ? $? >> 8 : 'none', ' ' for 1 .. 3"]),
    ("a POSIX lock", "perl", &["perl", "-e", "use Fcntl; open A, '>lock'; $^F = 99;
        open B, '>lock'; $l = pack 's s l! l! i', F_WRLCK, 0, 0, 0, 0;
        fcntl B, F_SETLK, $l or exit 9;
        exec @ARGV, fileno B"],
        &["perl", "-e", "sleep 1; print system('perl', '-e', q(use Fcntl; open A, '+<lock';
            $l = pack 's s l! l! i', F_WRLCK, 0, 0, 0, 0;
            print fcntl(A, F_SETLK, $l) ? 'free' : 'held'))"]),
    ("a lock's file", "util-linux", &["sh", "-c", "exec 9> lock; exec \"$@\"", "sh"],
        &["sh", "-c", "flock 9; exec 9>&-; flock -w 10 lock echo free"]),
    ("a file to write", "dash", &["sh", "-c", "exec 9> copy; exec \"$@\"", "sh"],
        &["sh", "-c", "cat /bin/true >&9; exec 9>&-; chmod +x copy; n=0
            until ./copy 2> /dev/null || [ $((n += 1)) = 500 ]; do sleep 0.01; done; ./copy"]),
    ("a folder", "util-linux", &["unshare", "-m", "sh", "-c",
        "mkdir m && mount -t tmpfs none m && cd m && exec \"$@\"", "sh"],
        &["sh", "-c", "m=$PWD; cd /; n=0
            until umount $m 2> /dev/null || [ $((n += 1)) = 500 ]; do sleep 0.01; done
            mountpoint -q $m; echo $?"]),
    ("an owner of signals", "perl", &["perl", "-e", "
        use Socket; use Fcntl; $^F = 99; socketpair A, B, AF_UNIX, SOCK_STREAM, 0;
        fcntl A, F_SETOWN, $$; fcntl A, F_SETFL, O_ASYNC | O_NONBLOCK; exec @ARGV, fileno B"],
        &["perl", "-e", "$SIG{IO} = sub { print 'io'; exit 5 };
            open B, '>&=', $ARGV[0]; syswrite B, 'x'; sleep 10"]),
];

#[test]
fn a_starter_sees_of_its_child_what_it_sees_of_the_program() {
    let test = "a_starter_sees_of_its_child_what_it_sees_of_the_program";
    if !installed(test, "perl") {
        return;
    }
    let rows = FOLLOWED.iter().map(|(name, rest, program)| {
        let before = ["perl", "-e", &format!("{FOLLOWS}{rest}")].map(str::to_owned).to_vec();
        (*name, before, ["sh", "-c", program].map(str::to_owned).to_vec())
    });
    compare(rows);
}

#[test]
fn a_program_does_with_what_is_left_to_it_what_it_does_alone() {
    let rows = LEFT.iter().filter(|(name, package, before, _)| {
        let (mut starter, folder) = (Command::new(before[0]), Scratch::new("can"));
        let can = starter.args(&before[1..]).arg("true").current_dir(&*folder).output();
        let can = can.is_ok_and(|output| output.status.success());
        if !can {
            println!("{name:20} left out: not permitted, or apt-get install {package}");
        }
        can
    });
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    compare(rows.map(|(name, _, before, program)| (*name, words(before), words(program))));
}

/// Runs each row, a starter and a program, alone and in every way.
fn compare<'a>(rows: impl Iterator<Item = (&'a str, Vec<String>, Vec<String>)>) {
    let (scratch, mut differences) = (Scratch::new("starters"), Vec::new());
    for (name, before, words) in rows {
        let alone = run(&scratch, Way::Alone, &before, &words);
        for way in &WAYS[1..] {
            let found = run(&scratch, *way, &before, &words).differences(&alone);
            let table = if found.is_empty() { "equal" } else { "DIFFERS" };
            println!("{name:20} {:12} {table}", format!("{way:?}").to_lowercase());
            differences.extend(found.into_iter().map(|what| format!("{name}, {way:?}: {what}")));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
