//! A signal while an output is being made durable, which may take as long as the device likes.
//!
//! `fsync` is replaced by one that sends the signal and never returns.
//!
//! # Invariants
//! - Without a compiler for C nothing is tested, and that is said.

use std::fs;
use std::process::{Child, Command, ExitStatus, Stdio};

use forerun_testkit::{stat_fields, until, within};

/// Never done, and interrupted meanwhile.
const FSYNC: &str = "
#include <signal.h>
#include <unistd.h>
int fsync(int file)
{
    (void)file;
    kill(getpid(), SIGNAL);
    for (;;)
        pause();
}
";

/// The status of `child` after SIGINT. It takes no more than a second of processor time until
/// then: on a busy machine it may wait for the processor as long as it likes.
pub(crate) fn interrupted(child: &mut Child) -> ExitStatus {
    let folder = format!("/proc/{}", child.id());
    // Whether it has ended, and the processor time in ticks of a hundredth of a second.
    let now = move || {
        let fields = stat_fields(&folder);
        assert!(!fields.is_empty(), "it is not waited for yet");
        let ticks = |at: usize| fields[at].parse::<u64>().expect("a number of ticks");
        (fields[0] == "Z", ticks(11) + ticks(12))
    };
    let (_, before) = now();
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill is there").success());
    let took = within(move || {
        until(|| now().0);
        now().1 - before
    });
    assert!(took <= 100, "{took} hundredths of a second");
    child.wait().expect("it is a child")
}

#[test]
fn a_signal_in_a_slow_fsync_ends_it_and_leaves_no_part() {
    let folder = forerun_testkit::Scratch::on_disk("signals");
    fs::create_dir(folder.join("out")).expect("the build's folder takes a folder");
    let (listing, library) = (folder.join("fsync.c"), folder.join("fsync.so"));
    fs::write(&listing, FSYNC).expect("it can be written");
    let few = "workload:mail,model=m1,requests=10000";
    let timed = "sim workload:streams,n=2,each=1M --device ssd";
    #[rustfmt::skip]
    let rows = [ // what        signal     words before the file
        ("a plot",              "SIGINT",  format!("sim {few} --policy lru --plot")),
        ("a record",            "SIGINT",  format!("{timed} -o")),
        ("a record, by init",   "SIGTERM", format!("{timed} -o")),
        ("a trace",             "SIGINT",  format!("trace convert --to keys {few}")),
    ];
    for (what, signal, words) in rows {
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", &format!("-DSIGNAL={signal}"), "-o"]);
        let Ok(made) = compiler.arg(&library).arg(&listing).status() else {
            let test = "a_signal_in_a_slow_fsync_ends_it_and_leaves_no_part";
            return forerun_testkit::skip(test, "there is no cc");
        };
        assert!(made.success(), "{what}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
        command.args(words.split_whitespace()).arg(folder.join("out/new.svg"));
        command.env("LD_PRELOAD", &library).stdin(Stdio::null());
        let output = command.output().expect("it starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{what}: {errors}");
        // Results of runs are kept beside the record, for the same command.
        let keeps = what.starts_with("a record");
        let says = if keeps { ": 1 results are kept: the same command goes on" } else { "" };
        let says = format!("forerun: interrupted{says}\n");
        assert!(errors.ends_with(&says), "{what}: {errors}");
        let entries = fs::read_dir(folder.join("out")).expect("it is there");
        let left: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
        let kept = if keeps { vec!["new.svg.partial"] } else { Vec::new() };
        assert_eq!(left, kept, "{what}");
        for name in kept {
            fs::remove_file(folder.join("out").join(name)).expect("it is there");
        }
    }
}
