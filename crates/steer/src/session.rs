//! A program from its start to its end: a process that waits for it, and one that observes it.
//!
//! ```text
//!   this process                     aside, the observing process
//!     start the program                 |
//!     fork ---------------------------> control                poller (a thread)
//!     wait: signals, the end            wait: a socket            wait --> poll the observers
//!       |                                 |                         ^            |
//!       +--- the program has ended -----> |---- wake --> last poll  +------------+
//!       |<------------ what was seen ---- |<--- published after each poll
//!     exit                              end, or left behind while a file system blocks it
//! ```
//! The thread that waits makes no call that a file system can block: it knows process descriptors,
//! signals, and a socket to a thread that blocks as little. So the program's end and its signals
//! are handled at once, whatever becomes of the observers.
//!
//! # Invariants
//! - The program starts before anything is polled, and its end ends the run at once.
//! - Whatever goes wrong in a poll, or with the observing process as a whole, the program runs on
//!   and its exit status is returned.
//! - Where the system refuses what this process needs, it becomes the program, unobserved.

mod inherited;
mod observing;
mod program;
mod signals;
mod stops;
mod usage;

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;

use forerun_core::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::aside::Aside;
use crate::clock::{self, Clock};
use crate::observe::poll::Pause;
use crate::observe::shim::{Ring, RingWriter};
use crate::observe::{ObserverKind, Observers};
use crate::wire::{Wire, from_bytes};
use inherited::Inherited;
pub use program::StartError;
use program::{Program, Start};
use signals::Signals;
pub(crate) use signals::accept as accept_signals;
pub(crate) use usage::Usage;

/// Polls the observers of a program, and acts on what they report.
pub(crate) trait Poller {
    fn observers(&self) -> &Observers;
    /// Polls everything once. The pause until the next poll.
    fn poll(&mut self, some_ended: bool) -> Pause;
    /// The program has ended: takes in what came before.
    fn finish(&mut self);
    /// A poll has failed: nothing is polled from now on, and all files are closed.
    fn give_up(&mut self);
}

/// What to run, and what for.
pub(crate) struct Run<'a> {
    /// A program and its arguments.
    pub(crate) words: &'a [OsString],
    pub(crate) kind: &'a ObserverKind,
    /// The program's output goes there, if there is one.
    pub(crate) output: Option<OwnedFd>,
    /// Whether what was seen is wanted at the end, and messages may follow.
    pub(crate) is_reported: bool,
    /// Whether the observing process saves something at the end.
    pub(crate) is_saved: bool,
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    pub(crate) status: u8,
    pub(crate) ran: Nanos,
    /// What it used, with the children that it waited for.
    pub(crate) used: Usage,
    /// `None` where the observing process could not start, was killed, or was not asked.
    pub(crate) report: Option<Report<S>>,
}

/// What the observing process tells at the end.
#[derive(Debug)]
pub(crate) struct Report<S> {
    pub(crate) seen: S,
    /// Processor time of that process.
    pub(crate) processor: Nanos,
    /// Its calls on file systems that had not returned, and were given up.
    pub(crate) calls_given_up: u64,
    /// The message of a panic.
    pub(crate) bug: Option<String>,
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

/// Runs a program, with what `make` returns polling it, in a process of its own; there, `seen`
/// tells what was found out so far, and how many calls of prefetch workers have not returned. It
/// never blocks, whatever the poller does.
pub(crate) fn watch<P: Poller, S: Wire>(
    run: Run<'_>,
    make: impl FnOnce(Observers) -> P + Send + 'static,
    seen: impl Fn() -> (S, u64),
) -> Result<Watched<S>, SessionError> {
    let inherited = Inherited::take();
    let (words, keeps_errors) = (run.words, run.is_reported);
    let mut start = Start {
        words,
        variables: Vec::new(),
        output: run.output,
        keeps_errors,
        inherited,
        writer: None,
    };
    let Ok((mut signals, ring)) = prepare(run.kind, &mut start.variables) else {
        return Err(start.replace().into());
    };
    // The ring's other end is the program's alone once that runs.
    let ring = ring.map(|(ring, writer)| {
        start.writer = Some(writer);
        ring
    });
    let (clock, before) = (Clock::start(), Usage::of_children());
    let mut program = Program::start(start)?;
    let pid = program.pid();
    let mut observing = Aside::start(|socket| observing::run(socket, pid, ring, make, seen)).ok();
    signals.waker = observing.as_ref().map(Aside::pid);
    let status = loop {
        wait(&program, &signals);
        // One at a time: in a storm there is always one more.
        if let Some(signal) = signals.next() {
            signal.send(pid);
        }
        observing.take_if(Aside::has_ended);
        stops::follow(&program, &mut signals, observing.as_mut());
        if let Some(status) = program.ended()? {
            break status;
        }
    };
    let (ran, used) = (clock.now(), Usage::of_children().since(before));
    let report = observing.filter(|_| run.is_reported || run.is_saved).and_then(|mut observing| {
        let within = if run.is_reported { REPORT_WITHIN } else { SAVED_WITHIN };
        observing.send(&[observing::END]).ok()?;
        let report: Report<S> = from_bytes(&observing.answer(within)?)?;
        if report.calls_given_up > 0 {
            observing.is_blocked();
        }
        Some(report)
    });
    Ok(Watched { status, ran, used, report })
}

type Prepared = (Signals, Option<(Ring, RingWriter)>);

fn prepare(kind: &ObserverKind, variables: &mut Vec<(OsString, OsString)>) -> io::Result<Prepared> {
    let signals = Signals::block()?;
    let ring = match kind {
        ObserverKind::Proc => None,
        ObserverKind::Preload(library) => {
            let (ring, writer) = Ring::create()?;
            let before = env::var_os("LD_PRELOAD");
            variables.extend(writer.variables(library, before.as_deref()));
            Some((ring, writer))
        }
    };
    Ok((signals, ring))
}

/// Waits for a signal, or for the program's end.
fn wait(program: &Program, signals: &Signals) {
    let mut awaited = vec![PollFd::new(signals, PollFlags::IN)];
    awaited.extend(program.end().map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN)));
    // Without a descriptor for its end that is asked for again and again.
    let pause = Timespec { tv_sec: 0, tv_nsec: ASKED_AGAIN_NANOS };
    let pause = program.end().is_none().then_some(pause);
    // Interrupted or not, what there is is handled.
    let _ = rustix::event::poll(&mut awaited, pause.as_ref());
}

impl<S: Wire> Report<S> {
    fn new((seen, calls): (S, u64), blocked: bool, bug: Option<String>) -> Self {
        let processor = clock::process_time();
        Self { seen, processor, calls_given_up: calls + u64::from(blocked), bug }
    }
}

impl<S: Wire> Wire for Report<S> {
    fn put(&self, bytes: &mut Vec<u8>) {
        let Self { seen, processor, calls_given_up, bug } = self;
        seen.put(bytes);
        processor.put(bytes);
        calls_given_up.put(bytes);
        bug.put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            seen: S::take(bytes)?,
            processor: Wire::take(bytes)?,
            calls_given_up: Wire::take(bytes)?,
            bug: Wire::take(bytes)?,
        })
    }
}

/// The thread that answers is never blocked, but may have to wait for a processor.
const REPORT_WITHIN: Nanos = Nanos::from_millis(5_000);
/// What is not saved by then is lost: the program's end is what others wait for.
const SAVED_WITHIN: Nanos = Nanos::from_millis(40);
const ASKED_AGAIN_NANOS: i64 = 10_000_000;
