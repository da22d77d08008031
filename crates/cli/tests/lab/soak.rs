//! `forerun soak`, in short: the live engine at full speed, with everything checked.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

fn soak(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forerun"));
    command.arg("soak").args(words.split_whitespace()).stdin(Stdio::null());
    command
}

#[test]
fn five_seconds_of_everything_find_nothing_wrong() {
    let output = soak("--minutes 0.09").output().expect("it starts");
    let (text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}{errors}");
    let closing = text.lines().last().expect("there is a closing line");
    assert!(closing.starts_with("soak: ok: "), "{text}");
}

#[test]
fn a_goal_in_reads_is_reached_by_reads_alone() {
    let output = soak("--reads 1K --threads 2 --seed 7").output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let reads = text.strip_prefix("soak: ok: ").and_then(|rest| rest.split(' ').next());
    let reads: u64 = reads.expect("a line that begins with the reads").parse().expect("a count");
    assert!(output.status.success() && reads >= 1_000, "{text}");
}

#[test]
fn an_interrupt_ends_it_with_the_figures_so_far() {
    let mut child = soak("--minutes 10 --threads 2")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut text = String::new();
    output.read_line(&mut text).expect("it prints while it runs");
    assert!(text.contains(" reads ") && text.contains("  rss "), "{text}");
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill is there").success());
    output.read_to_string(&mut text).expect("text");
    let status = child.wait().expect("it ends");
    let closing = text.lines().last().expect("there is a closing line");
    assert!(closing.starts_with("soak: interrupted, ok so far: "), "{text}");
    assert_eq!(status.code(), Some(130));
}

#[test]
fn what_cannot_be_asked_for_is_bad_usage() {
    for words in ["--minutes x", "--minutes -1", "--reads 1.5M", "--threads 0"] {
        assert_eq!(soak(words).output().expect("it starts").status.code(), Some(2), "{words}");
    }
}
