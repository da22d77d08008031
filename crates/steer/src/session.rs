//! A program from its start to its end: a process that waits for it, and one that observes it.
//!
//! ```text
//!   this process                     aside, the observing process
//!     start the program                 |
//!     fork, unless it ends at once ---> control                poller (a thread)
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

mod addressed;
mod exec;
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
use std::path::Path;
use std::thread;
use std::time::Duration;

use forerun_core::units::Nanos;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::aside::descriptors::Descriptors;
use crate::aside::{Aside, LEFT_AFTER};
use crate::clock::{self, Clock, thread_time, timespec};
use crate::memory::Memory;
use crate::observe::poll::{Pause, PollBudget};
use crate::observe::shim::{Ring, RingWriter};
use crate::observe::{ObserverKind, Observers};
use crate::wire::{Wire, from_bytes};
use inherited::Inherited;
pub use inherited::{STACK_BYTES_MIN, small_stack};
pub use program::StartError;
use program::{Program, Start};
use signals::{BATCH, Forwarded, Signals};
pub use signals::{end_as, end_late};
pub(crate) use usage::Usage;

/// Polls the observers of a program, and acts on what they report.
pub(crate) trait Poller {
    fn observers(&self) -> &Observers;
    /// Polls everything once. The pause until the next poll.
    fn poll(&mut self, some_ended: bool) -> Pause;
    /// A process has ended whose files are open: they are closed, while polls pause.
    fn reap(&mut self);
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
    /// The signal of a key that has ended it, for [`end_as`].
    pub(crate) key: Option<i32>,
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
    let Started { mut program, mut signals, ring, clock, before } =
        start(run.words, run.kind, run.output, run.is_reported)?;
    let pid = program.pid();
    // Of a program that ends sooner nothing would be seen, unless it is asked for.
    let after = if run.is_reported { Nanos(0) } else { OBSERVED_AFTER };
    let first_pause = OBSERVED_AFTER.since(after);
    let observe = |socket| {
        // What is asked for is observed, whatever it takes.
        let memory = (!run.is_reported).then(Memory::here);
        if memory.as_ref().is_none_or(has_room) {
            observing::run(socket, pid, ring, make, seen, first_pause, memory);
        }
    };
    let (mut observe, mut observing) = (Some(observe), None);
    let mut gathering = Gathering::new(clock);
    let status = loop {
        let left = observe.is_some().then(|| after.since(clock.now()));
        wait(&program, &signals, gathering.pause, left);
        // Some at a time: in a storm there are always more.
        let taken = signals.take();
        Forwarded::send_all(&taken, pid);
        if taken.iter().any(|signal| signal.continues()) {
            // A stop of the whole group has met the observing process too.
            observing.iter().for_each(Aside::go_on);
        }
        gathering.spend(taken.len());
        if let Some(status) = program.ended()? {
            break status;
        }
        let stopped = program.stopped();
        // A process that is stopped is woken by the observing one.
        let is_time = stopped.is_some() || clock.now() >= after;
        if let Some(observe) = observe.take_if(|_| is_time) {
            observing = Aside::start(observe).ok();
            signals.waker = observing.as_ref().map(Aside::pid);
        }
        if observing.take_if(Aside::has_ended).is_some() {
            // Its number may become that of another process.
            signals.waker = None;
        }
        if let Some(signal) = stopped {
            stops::follow(signal, &program, &mut signals, &mut observing);
            observing.iter().for_each(Aside::go_on);
        }
    };
    let (ran, used) = (clock.now(), Usage::of_children().since(before));
    let key = signals.key_of(program.ended_by());
    let left = || LEFT_AFTER.since(clock.now().since(ran));
    let is_asked = run.is_reported || run.is_saved;
    let within = if run.is_reported { REPORT_WITHIN } else { SAVED_WITHIN };
    let report =
        observing.and_then(|observing| end_of(observing, is_asked.then_some(within), left));
    program.leaves_files_after(left());
    Ok(Watched { status, key, ran, used, report })
}

/// A program that runs, and what is followed of it.
struct Started {
    program: Program,
    signals: Signals,
    ring: Option<Ring>,
    clock: Clock,
    /// What children that have ended before used.
    before: Usage,
}

/// Starts the program `words`; or becomes it, where nothing can be observed and nothing is asked
/// for.
fn start(
    words: &[OsString],
    kind: &ObserverKind,
    output: Option<OwnedFd>,
    is_reported: bool,
) -> Result<Started, SessionError> {
    // Before this process opens anything that the program gets.
    let (inherited, descriptors) = (Inherited::take(), Descriptors::find().without_locked());
    let (variables, keeps_errors) = (Vec::new(), is_reported);
    let writer = None;
    let mut start =
        Start { words, variables, output, keeps_errors, inherited, descriptors, writer };
    if !is_reported && !Path::new("/proc/self/fd").exists() {
        return Err(start.replace().into());
    }
    let Ok((mut signals, ring)) = prepare(kind, &mut start.variables) else {
        return Err(start.replace().into());
    };
    // The ring's other end is the program's alone once that runs.
    let ring = ring.map(|(ring, writer)| {
        start.writer = Some(writer);
        ring
    });
    let (clock, before) = (Clock::start(), Usage::of_children());
    let program = Program::start(start, &mut signals)?;
    Ok(Started { program, signals, ring, clock, before })
}

/// Ends an observing process, which has `left` to leave its files; its report, if it is asked for
/// and comes in time.
fn end_of<S: Wire>(
    mut observing: Aside,
    report_within: Option<Nanos>,
    left: impl Fn() -> Nanos,
) -> Option<Report<S>> {
    observing.go_on();
    let within = report_within.filter(|_| observing.send(&[observing::END]).is_ok());
    let answer = within.and_then(|within| observing.answer(within));
    let report: Option<Report<S>> = answer.and_then(|bytes| from_bytes(&bytes));
    let is_blocked = report.as_ref().is_some_and(|report| report.calls_given_up > 0);
    observing.leaves_after(if is_blocked { Nanos(0) } else { left() });
    report
}

/// Whether the program's control groups have room for an observing process beside it.
fn has_room(memory: &Memory) -> bool {
    memory.group_limit_bytes().is_none_or(|bytes| bytes >= GROUP_BYTES_MIN)
}

type Prepared = (Signals, Option<(Ring, RingWriter)>);

fn prepare(kind: &ObserverKind, variables: &mut Vec<(OsString, OsString)>) -> io::Result<Prepared> {
    let signals = Signals::block()?;
    let ring = match kind {
        ObserverKind::Proc => None,
        ObserverKind::Preload(library) => {
            // Without a ring the program runs without the shim.
            let ring = Ring::create().ok();
            if let Some((_, writer)) = &ring {
                let before = env::var_os("LD_PRELOAD");
                variables.extend(writer.variables(library, before.as_deref()));
            }
            ring
        }
    };
    Ok((signals, ring))
}

/// Waits for the program's end, and once signals have gathered for that time for one of them, too;
/// no longer than `time`, if there is one.
fn wait(program: &Program, signals: &Signals, gathered: Nanos, time: Option<Nanos>) {
    let end = program.end().map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN));
    // Interrupted or not, what there is is handled.
    let polls = |awaited: &mut [PollFd<'_>], time: Option<Nanos>| {
        let time = time.map(timespec);
        match rustix::event::poll(awaited, time.as_ref()) {
            Ok(count) => count > 0,
            Err(Errno::INTR) => false,
            Err(_) => {
                // A filter of system calls refuses it.
                thread::sleep(Duration::from_nanos(ASKED_AGAIN_EVERY.0));
                false
            }
        }
    };
    if let Some(end) = &end
        && gathered > Nanos(0)
        && polls(&mut [end.clone()], Some(gathered))
    {
        return;
    }
    // Without a descriptor for its end that is asked for again and again.
    let again = end.is_none().then_some(ASKED_AGAIN_EVERY);
    let mut awaited = vec![PollFd::new(signals, PollFlags::IN)];
    awaited.extend(end);
    polls(&mut awaited, time.into_iter().chain(again).min());
}

/// How long signals gather before they are taken, which bounds what forwarding them takes of a
/// processor.
struct Gathering {
    clock: Clock,
    budget: PollBudget,
    /// The processor time of this thread that is paid for.
    used: Nanos,
    pause: Nanos,
}

impl Gathering {
    fn new(clock: Clock) -> Self {
        Self { clock, budget: PollBudget::full(), used: thread_time(), pause: Nanos(0) }
    }

    /// So many signals were `taken`.
    fn spend(&mut self, taken: usize) {
        let used = thread_time();
        let cost = used.since(std::mem::replace(&mut self.used, used));
        let bounds = (Nanos(0), GATHERED_MAX);
        self.pause = self.budget.pause(self.clock.now(), bounds, cost, SIGNALS_ONE_IN);
        // What the kernel queues is not left to fill its queue.
        if taken == BATCH {
            self.pause = Nanos(0);
        }
    }
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

/// Below this limit of its group a program is not observed, unless statistics are asked for.
const GROUP_BYTES_MIN: u64 = 64 << 20;
/// A program that ends sooner is not polled.
const OBSERVED_AFTER: Nanos = Nanos::from_millis(2);
/// The thread that answers is never blocked, but may have to wait for a processor.
const REPORT_WITHIN: Nanos = Nanos::from_millis(5_000);
/// What is not saved by then is lost: the program's end is what others wait for.
const SAVED_WITHIN: Nanos = Nanos::from_millis(40);
const ASKED_AGAIN_EVERY: Nanos = Nanos::from_millis(10);
/// How late the signals of a storm are forwarded, at most.
const GATHERED_MAX: Nanos = Nanos::from_millis(4);
/// The part of a processor that signals may use.
const SIGNALS_ONE_IN: u64 = 100;
