//! A program from its start to its end: the loop that polls its observers.
//!
//! ```text
//!   start --> wait (a signal, an end, the pause) --> poll the observers --> report to the sink
//!               ^                                                              |
//!               +--------------------------------------------------------------+
//! ```
//! # Invariants
//! - The program starts before anything is polled, and its end ends the loop at once.
//! - Whatever goes wrong in a poll, the program runs on and its exit status is returned.

mod program;
mod signals;

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{self, AssertUnwindSafe};

use forerun_core::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::observe::poll::PAUSE_MAX;
use crate::observe::processes::ProcessTree;
use crate::observe::shim::Ring;
use crate::observe::{ObserverKind, Observers};
use program::Program;
pub use program::StartError;
use signals::Signals;

/// Polls the observers of a program, and acts on what they report.
pub(crate) trait Poller {
    fn observers(&self) -> &Observers;
    /// Polls everything once. The pause until the next poll.
    fn poll(&mut self, some_ended: bool) -> Nanos;
    /// A poll has failed: nothing is polled from now on, and all files are closed.
    fn give_up(&mut self);
}

/// Why a program was not watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The program did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The system refused something else.
    #[error("cannot watch a program: {0}")]
    System(#[from] io::Error),
}

/// Runs `words`, a program and its arguments, with what `make` returns polling it; the program's
/// output goes to `output` if there is one. The exit status, and the poller at the end.
pub(crate) fn watch<P: Poller>(
    words: &[OsString],
    kind: &ObserverKind,
    output: Option<OwnedFd>,
    make: impl FnOnce(Observers) -> P,
) -> Result<(u8, P), SessionError> {
    let mut signals = Signals::block()?;
    let (ring, variables) = match kind {
        ObserverKind::Proc => (None, Vec::new()),
        ObserverKind::Preload(library) => {
            let (ring, writer) = Ring::create().map_err(io::Error::from)?;
            let before = env::var_os("LD_PRELOAD");
            let variables = writer.variables(library, before.as_deref()).to_vec();
            (Some((ring, writer)), variables)
        }
    };
    let mut program = Program::start(words, &variables, output, &signals)?;
    raise_limit();
    // The ring's other end is the program's alone from now on.
    let ring = ring.map(|(ring, _)| ring);
    let mut poller = make(Observers::new(ProcessTree::new(program.pid()), ring));
    let mut pause = FIRST_PAUSE;
    let mut has_given_up = false;
    loop {
        let some_ended = wait(&program, &signals, &poller.observers().tree, pause);
        while let Some(signal) = signals.next() {
            program.send(signal);
        }
        if let Some(status) = program.ended()? {
            return Ok((status, poller));
        }
        if has_given_up {
            continue;
        }
        // The panic's message reports a bug of forerun; the program runs on.
        let next = panic::catch_unwind(AssertUnwindSafe(|| poller.poll(some_ended)));
        pause = next.unwrap_or_else(|_| {
            poller.give_up();
            has_given_up = true;
            PAUSE_MAX
        });
        assert!(pause <= PAUSE_MAX, "a pause has a bound");
    }
}

/// Raises the limit of descriptors: each process that is followed takes some, and each file. The
/// program has started with the limit as it was.
fn raise_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where the limit stays as it is, fewer are followed.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Waits for a signal, the end of a process, or until `pause` is over. Whether a process has ended.
fn wait(program: &Program, signals: &Signals, tree: &ProcessTree, pause: Nanos) -> bool {
    let mut awaited = vec![PollFd::new(signals, PollFlags::IN)];
    let ends = program.end().into_iter().chain(tree.ends().take(ENDS_MAX));
    awaited.extend(ends.map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN)));
    let pause = Timespec {
        tv_sec: i64::try_from(pause.0 / SECOND).expect("a pause is short"),
        tv_nsec: i64::try_from(pause.0 % SECOND).expect("below a second"),
    };
    // Interrupted or not, what there is is handled.
    let _ = rustix::event::poll(&mut awaited, Some(&pause));
    awaited[1..].iter().any(|end| !end.revents().is_empty())
}

/// A program that ends sooner is not polled.
const FIRST_PAUSE: Nanos = Nanos::from_millis(2);
/// Processes whose end is noticed at once.
const ENDS_MAX: usize = 64;
const SECOND: u64 = 1_000_000_000;
