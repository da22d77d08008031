//! A program from its start to its end, and who watches it: the loop, the observers.
//!
//! ```text
//!   start --> wait (a signal, an end, the pause) --> look --> tell the watcher's readers
//!               ^                                                  |
//!               +--------------------------------------------------+
//! ```
//! # Invariants
//! - The program starts before anything is looked at, and its end ends the loop at once.
//! - Looking takes no more than one part in `one_in` of a processor, over a time in which one dear
//!   look does not count ([`Allowance`]). Where nobody has run since the last look nobody has read,
//!   and nobody is looked at.
//! - Whatever goes wrong in looking, the program runs on and its exit status is given.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{self, AssertUnwindSafe};

use forerun_core::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::clock::{self, Clock};
use crate::program::{Program, StartError};
use crate::readers::Readers;
use crate::run::Observe;
use crate::shim::Ring;
use crate::signals::Signals;
use crate::told::Told;
use crate::watch::Tree;

/// Who watches a program.
pub(crate) trait Watcher {
    /// Its observers.
    fn observers(&self) -> &Observers;
    /// One look at everything. How long to wait until the next.
    fn look(&mut self, some_ended: bool) -> Nanos;
    /// It failed in looking, and does nothing from now on but to wait.
    fn give_up(&mut self);
}

/// Why a program was not watched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Runs `words`, a program and its arguments; its output goes to `output` if there is one. What
/// `make` gives watches it. The exit status, and the watcher at the end.
pub(crate) fn watch<W: Watcher>(
    words: &[OsString],
    observe: &Observe,
    output: Option<OwnedFd>,
    make: impl FnOnce(Observers) -> W,
) -> Result<(u8, W), WatchError> {
    let mut signals = Signals::take()?;
    let (told, variables) = match observe {
        Observe::Proc => (None, Vec::new()),
        Observe::Preload(library) => {
            let (ring, lent) = Ring::create().map_err(io::Error::from)?;
            let before = env::var_os("LD_PRELOAD");
            let variables = lent.variables(library, before.as_deref()).to_vec();
            (Some((Told::new(ring), lent)), variables)
        }
    };
    let mut program = Program::start(words, &variables, output, &signals)?;
    raise_limit();
    // The ring's other end is the program's alone from now on.
    let told = told.map(|(told, _)| told);
    let mut watcher = make(Observers::new(Tree::new(program.pid()), told));
    let mut pause = FIRST_PAUSE;
    let mut has_given_up = false;
    loop {
        let some_ended = wait(&program, &signals, &watcher.observers().tree, pause);
        while let Some(signal) = signals.next() {
            program.send(signal);
        }
        if let Some(status) = program.ended()? {
            return Ok((status, watcher));
        }
        if has_given_up {
            continue;
        }
        // A fault of ours is told by the panic's message, and is none of the program's.
        let looked = panic::catch_unwind(AssertUnwindSafe(|| watcher.look(some_ended)));
        pause = looked.unwrap_or_else(|_| {
            watcher.give_up();
            has_given_up = true;
            PAUSE_LONGEST
        });
    }
}

/// Where is looked: processes, positions, mappings, what the shim tells.
pub(crate) struct Observers {
    pub(crate) clock: Clock,
    pub(crate) tree: Tree,
    told: Option<Told>,
    pub(crate) looks: u64,
    /// When new files and processes are looked for again, and whether there can be any.
    discover_at: Nanos,
    is_stale: bool,
    allowance: Allowance,
}

impl Observers {
    fn new(tree: Tree, told: Option<Told>) -> Self {
        let (clock, discover_at, allowance) = (Clock::start(), Nanos(0), Allowance::full());
        Self { clock, tree, told, looks: 0, discover_at, is_stale: true, allowance }
    }

    /// Looks at everything that may have changed, and tells `readers`. Whether anything was read.
    pub(crate) fn look(&mut self, now: Nanos, some_ended: bool, readers: &mut dyn Readers) -> bool {
        self.looks += 1;
        let has_run = self.tree.has_run();
        self.is_stale |= has_run || some_ended;
        let discovers = self.is_stale && now >= self.discover_at;
        if discovers {
            let began = clock::thread_time();
            self.is_stale = self.tree.discover(now, readers);
            let cost = clock::thread_time().since(began);
            self.discover_at =
                now + self.allowance.pause(now, DISCOVER_BOUNDS, cost, DISCOVER_ONE_IN);
        }
        let mut moved = false;
        if has_run || some_ended {
            moved = self.look_at_told(now, readers);
        }
        if some_ended || discovers {
            self.tree.let_go(now, readers);
        }
        if has_run || discovers {
            moved |= self.tree.look(now, readers);
        }
        moved
    }

    /// Takes in what programs tell by themselves. Whether anything was read.
    pub(crate) fn look_at_told(&mut self, now: Nanos, readers: &mut dyn Readers) -> bool {
        self.told.as_mut().is_some_and(|told| told.look(now, &mut self.tree, readers))
    }

    /// What the shim told and did not come through.
    pub(crate) fn records_lost(&self) -> u64 {
        self.told.as_ref().map_or(0, Told::lost)
    }
}

/// Processor time that looking may take: one part in so many. What is not used is saved, so that
/// a dear look, such as the first at what is not cached, is not followed by a long pause just when
/// the program comes to the end of what was read ahead.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// Nanoseconds that are left; below 0, that are owed.
    left: i64,
    at: Nanos,
}

impl Allowance {
    /// All that can be saved.
    pub(crate) fn full() -> Self {
        Self { left: SAVED_MAX, at: Nanos(0) }
    }

    /// The pause after a look at `now` that took `cost`, where looking may take one part in
    /// `one_in` of a processor: at least `least`, at most `longest`. What that does not pay is
    /// forgiven.
    pub(crate) fn pause(
        &mut self,
        now: Nanos,
        (least, longest): (Nanos, Nanos),
        cost: Nanos,
        one_in: u64,
    ) -> Nanos {
        let signed = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
        let earned = signed(now.since(self.at).0 / one_in);
        self.at = now;
        self.left = self.left.saturating_add(earned).min(SAVED_MAX).saturating_sub(signed(cost.0));
        self.left = self.left.max(-signed(longest.0 / one_in));
        let owed = self.left.min(0).unsigned_abs();
        least.max(Nanos(owed * one_in))
    }
}

/// Each process takes descriptors, and each of its files. The program has started with the limit as
/// it was.
fn raise_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where it stays as it is, fewer are followed.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Waits for a signal, the end of a process, or until `pause` is over. Whether one has ended.
fn wait(program: &Program, signals: &Signals, tree: &Tree, pause: Nanos) -> bool {
    let mut awaited = vec![PollFd::new(signals, PollFlags::IN)];
    let ends = program.end().into_iter().chain(tree.ends().take(ENDS_MAX));
    awaited.extend(ends.map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN)));
    let pause = Timespec {
        tv_sec: i64::try_from(pause.0 / SECOND).expect("a pause is short"),
        tv_nsec: i64::try_from(pause.0 % SECOND).expect("below a second"),
    };
    // Interrupted or not: it is looked at what there is.
    let _ = poll(&mut awaited, Some(&pause));
    awaited[1..].iter().any(|end| !end.revents().is_empty())
}

/// What ends sooner is not looked at.
const FIRST_PAUSE: Nanos = Nanos::from_millis(2);
pub(crate) const PAUSE_MIN: Nanos = Nanos::from_millis(1);
pub(crate) const PAUSE_LONGEST: Nanos = Nanos::from_millis(100);
/// Nanoseconds of a processor that are saved at most.
const SAVED_MAX: i64 = 10_000_000;
/// The longest pause after anything that is done now and then and was expensive. What begins in it
/// is seen that late, and what costs more than its part of this takes more than its part.
pub(crate) const EXPENSIVE_PAUSE_MAX: Nanos = Nanos::from_millis(2_000);
const DISCOVER_BOUNDS: (Nanos, Nanos) = (Nanos::from_millis(5), EXPENSIVE_PAUSE_MAX);
const DISCOVER_ONE_IN: u64 = 50;
/// Processes whose end is noticed at once.
const ENDS_MAX: usize = 64;
const SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_takes_its_part_and_what_it_saved() {
        let millis = Nanos::from_millis;
        let mut allowance = Allowance::full();
        #[rustfmt::skip]
        let rows = [ // at ms, cost ms, pause ms
            (0,     9,   1, "saved"),
            (1,     1,   1, "a little is left"),
            (2,     1,  8, "owed: .8 ms"),
            (10,    1,  10, "the debt is paid, nothing is saved"),
            (1_000, 9,   1, "saved again, no more than at first"),
            (1_001, 99, 100, "never longer"),
            (1_101, 0,   1, "and what that did not pay is forgiven"),
        ];
        for (at, cost, pause, why) in rows {
            let taken = allowance.pause(millis(at), (millis(1), millis(100)), millis(cost), 10);
            assert_eq!(taken, millis(pause), "{why}");
        }
    }

    #[test]
    fn an_expensive_discovery_is_followed_by_a_pause_that_ends() {
        let mut allowance = Allowance::full();
        for cost in [Nanos::from_millis(600_000), Nanos(u64::MAX)] {
            let pause = allowance.pause(Nanos(0), DISCOVER_BOUNDS, cost, DISCOVER_ONE_IN);
            assert_eq!(pause, EXPENSIVE_PAUSE_MAX);
        }
    }
}
