//! What a terminal shows of a command that takes a while.

use std::process::{Command, Stdio};
use std::time::Duration;

use forerun_testkit::{installed, within};

use crate::server::{Illness, Operation, Server};

/// Runs words on a terminal of their own, and interrupts them once a time is told that is left.
/// Prints what the terminal was sent, and the status.
const ON_A_TERMINAL: &str = "
import os, pty, signal, sys
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
shown, is_interrupted = b'', False
while True:
    try:
        more = os.read(terminal, 65536)
    except OSError:
        break
    if not more:
        break
    shown += more
    if b' left' in shown and not is_interrupted:
        os.kill(child, signal.SIGINT)
        is_interrupted = True
sys.stdout.buffer.write(shown)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
";

#[test]
fn warm_tells_the_time_that_is_left_and_interrupted_what_was_fetched() {
    let test = "warm_tells_the_time_that_is_left_and_interrupted_what_was_fetched";
    if !installed(test, "python3") {
        return;
    }
    let Some(server) = Server::mount(test) else { return };
    server.falls_ill(Operation::Read, Illness::Delays(Duration::from_millis(100)));
    within(move || {
        let mut command = Command::new("python3");
        command.args(["-c", ON_A_TERMINAL, env!("CARGO_BIN_EXE_forerun"), "warm"]);
        let output = command.arg(server.path("large")).stdin(Stdio::null()).output();
        let output = output.expect("python3 starts");
        let shown = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(130), "{shown}");
        let line = shown.split('\r').rev().find(|line| line.contains(" left")).expect("a time");
        assert!(line.contains("of 1 files") && line.contains(" of 64 MiB"), "{line}");
        let farewell = shown.split("forerun: interrupted: ").nth(1).expect("a farewell");
        let (fetched, rest) = farewell.split_once(" of 64 MiB ").expect("how much of how much");
        assert!(rest.starts_with("are fetched, and stay in memory"), "{farewell}");
        assert!(fetched.ends_with("iB") && !fetched.starts_with('0'), "{farewell}");
    });
}
