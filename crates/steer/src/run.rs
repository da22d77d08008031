//! Runs a program and prefetches for it.
//!
//! ```text
//!   session (the loop) --> observers --> prefetcher: the planner, the kernel --> pause
//! ```
//! # Invariants
//! - While requests are in flight, polling uses at most one part in `BUSY_ONE_IN` of a processor;
//!   else it uses one in `IDLE_ONE_IN`, with the workers, of what control groups leave of one.

mod learning;

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};

use forerun_core::cache::SettingsError;
use forerun_core::device::DeviceKind;
use forerun_core::params::ParamError;
use forerun_core::planner::pace::PaceRule;
use forerun_core::planner::{PlannerSettings, PlannerStats, device::DeviceEstimate};
use forerun_core::units::Nanos;

use crate::clock;
use crate::learn::{LearnSettings, LearnedStats, Learner, Learning, Started};
use crate::memory::Memory;
use crate::observe::poll::{Allowance, INTERVAL_MIN, Interval, Pause, PollTimer};
use crate::observe::{ObserverKind, Observers};
pub use crate::prefetch::EntryStats;
use crate::prefetch::{Prefetcher, RememberedDevices};
use crate::quota::Share;
use crate::session::{self, Poller, SessionError, Watched};
use crate::wire::wire;
use learning::LearningSink;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The prefetch distance of a reader, in bytes, at most.
    pub limit_bytes: u64,
    /// Bytes that are requested at a time, at most.
    pub burst_bytes: u64,
    /// The prefetch distances of all readers together, in bytes, at most.
    pub budget_bytes: u64,
    /// The readahead policy, as `NAME:key=value,...`.
    pub readahead: String,
    /// The observers of the program.
    pub observe: ObserverKind,
    /// Whether entries of directory trees are fetched ahead of a program that walks them.
    pub walks: bool,
    /// Which learned lists are used, and which is added to.
    pub learn: LearnSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limit_bytes: 64 << 20,
            burst_bytes: 16 << 20,
            budget_bytes: 256 << 20,
            readahead: "streams:first=1M,through=4K".into(),
            observe: ObserverKind::Proc,
            walks: true,
            learn: LearnSettings::default(),
        }
    }
}

/// Why a program was not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A setting is out of its bounds.
    #[error("{0}")]
    Settings(SettingsError),
    /// A parameter of the pace is out of its bounds.
    #[error("{0}")]
    Pace(ParamError),
    /// The program did not start, or could not be watched.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// The end of a run.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The program's exit status, as a shell reports it.
    pub status: u8,
    /// For [`end_as`](crate::end_as).
    pub key: Option<i32>,
    /// What the run did, as far as it is known.
    pub stats: Stats,
    /// Whether the observing process told it: that may not have started, or be lost.
    pub is_observed: bool,
    /// The message of a bug of forerun.
    pub bug: Option<String>,
}

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The run time.
    pub ran: Nanos,
    /// Processor time of this process.
    pub processor: Nanos,
    /// Processor time of the program, with the children that it waited for.
    pub computed: Nanos,
    /// Polls of the observers.
    pub polls: u64,
    /// Processes that were followed.
    pub processes: u64,
    /// Of these, those that could not be looked into.
    pub processes_skipped: u64,
    /// Files that were followed.
    pub files: u64,
    /// Files that were not opened: the program's own rights do not allow it, a lease or lock would
    /// notice, or their names stood for something else.
    pub files_refused: u64,
    /// Records of the shim that were lost.
    pub records_lost: u64,
    /// Readers that were not followed, as there were too many.
    pub readers_skipped: u64,
    /// Processes whose blocked calls could not be observed: the system does not allow it.
    pub calls_refused: u64,
    /// How often a blocked call of a 32-bit program was met, which is not decoded.
    pub calls_foreign: u64,
    /// Calls on file systems that had not returned at the program's end, and were given up.
    pub calls_given_up: u64,
    /// What the planner counted.
    pub planner: PlannerStats,
    /// Prefetched pages of 4 KiB that were read.
    pub pages_used: u64,
    /// Pages that were in flight when they were read.
    pub pages_late: u64,
    /// Prefetched pages that were not read.
    pub pages_unused: u64,
    /// What was done for entries of directory trees.
    pub entries: EntryStats,
    /// What became of a learned list, where one is used.
    pub learned: LearnedStats,
}

wire! {
    Stats {
        ran, processor, computed, polls, processes, processes_skipped, files, files_refused,
        records_lost, readers_skipped, calls_refused, calls_foreign, calls_given_up, planner,
        pages_used, pages_late, pages_unused, entries, learned,
    }
    EntryStats { walks, requested, used, late, passed, unused, failed, bytes, unused_bytes }
    PlannerStats {
        streams, bytes_read, requests, bytes_requested, bytes_cached, bytes_dropped,
        distance_bytes_max,
    }
}

/// Runs `words`, a program and its arguments. Where nothing `is_reported` its end is not delayed by
/// what was observed of it, and nothing is written to stderr.
///
/// # Errors
/// A setting is out of its bounds, or the program did not start.
pub fn run(settings: &Settings, words: &[OsString], is_reported: bool) -> Result<Ended, RunError> {
    let prefetcher =
        Prefetcher::new(settings.planner()?, settings.limit_bytes).map_err(RunError::Settings)?;
    let prefetcher = if settings.walks { prefetcher } else { prefetcher.without_walks() };
    let is_learning = settings.learn.learning != Learning::Off;
    let (mut running, published) = (prefetcher.running(), Arc::new(Mutex::new(Stats::default())));
    let counter = running.counter();
    let (for_poller, learn) = (Arc::clone(&published), settings.learn.clone());
    let room = prefetcher.thread_room();
    let started = Started::here(words);
    let make = move |observers: Observers| {
        let learner = Learner::start(&learn, &started, counter, room);
        let devices = is_learning.then(RememberedDevices::of_user).flatten();
        let prefetcher = prefetcher.with_devices(devices);
        Runner::new(prefetcher, learner, observers, for_poller)
    };
    let seen =
        || (published.lock().unwrap_or_else(PoisonError::into_inner).clone(), running.count());
    let kind = &settings.observe;
    let run = session::Run { words, kind, output: None, is_reported, is_saved: is_learning };
    let Watched { status, key, ran, used, report } = session::watch(run, make, seen)?;
    let (is_observed, own) = (report.is_some(), Stats { ran, ..Stats::default() });
    let (seen, bug) = report.map_or((own, None), |report| {
        let processor = report.processor;
        (Stats { processor, calls_given_up: report.calls_given_up, ..report.seen }, report.bug)
    });
    let processor = clock::process_time() + seen.processor;
    let stats = Stats { ran, processor, computed: used.processor, ..seen };
    Ok(Ended { status, key, stats, is_observed, bug })
}

impl Settings {
    fn planner(&self) -> Result<PlannerSettings, RunError> {
        let Self { limit_bytes, burst_bytes, budget_bytes, ref readahead, .. } = *self;
        let spec = format!("adaptive:burst={burst_bytes},limit={limit_bytes}");
        let pace = PaceRule::make(&spec).map_err(RunError::Pace)?;
        let readahead = readahead.clone();
        Ok(PlannerSettings { pace, budget_bytes, readahead, device: DEVICE })
    }
}

/// The poller that prefetches.
struct Runner {
    observers: Observers,
    prefetcher: Prefetcher,
    learner: Option<Learner>,
    memory: Option<Memory>,
    /// When free memory is read again.
    memory_at: Nanos,
    timer: PollTimer,
    /// Processor time of this process, and of the thread that polls, at the last poll.
    processor: Nanos,
    polling: Nanos,
    /// What the run did until the last poll.
    published: Arc<Mutex<Stats>>,
}

impl Poller for Runner {
    fn observers(&self) -> &Observers {
        &self.observers
    }

    fn poll(&mut self, some_ended: bool) -> Pause {
        let (now, began) = (self.observers.clock.now(), clock::thread_time());
        self.poll_memory(now);
        let allowance = self.timer.allowance(now, self.one_in(now));
        if some_ended {
            self.prefetcher.some_ended();
        }
        self.take_told(now, allowance);
        if let Some(learner) = self.learner.as_mut().filter(|_| some_ended) {
            learner.some_ended();
        }
        let moved = self.poll_observers(now, some_ended, allowance);
        self.advance(now, allowance);
        self.publish();
        let one_in = self.one_in(now);
        let (cost, effort) = self.cost(now, began, one_in);
        let replays = self.replays();
        let is_cold = self.prefetcher.take_cold() || self.prefetcher.is_starved() || replays;
        let interval = match (moved || self.goes_ahead(), is_cold) {
            (true, true) => Interval::Of(INTERVAL_MIN),
            // A reader of cached bytes does not come to their end so soon.
            (true, false) => Interval::Of(INTERVAL_WARM),
            (false, _) if now < EARLY => Interval::Of(INTERVAL_EARLY),
            (false, _) => Interval::DoubledUpTo(IDLE_MAX),
        };
        let pause = self.timer.pause(now, interval, cost, one_in);
        if effort > pause.time { Pause { time: effort, is_paying: true } } else { pause }
    }

    fn reap(&mut self) {
        let (now, began) = (self.observers.clock.now(), clock::thread_time());
        let allowance = self.timer.allowance(now, self.one_in(now));
        let Self { observers, prefetcher, learner, .. } = self;
        match learner {
            Some(learner) => {
                observers.reap(now, allowance, &mut LearningSink { prefetcher, learner });
            }
            None => observers.reap(now, allowance, prefetcher),
        }
        self.timer.spend(clock::thread_time().since(began));
    }

    fn finish(&mut self) {
        let (now, allowance) = (self.observers.clock.now(), Allowance::of(LAST_POLL_MAX));
        self.take_told(now, allowance);
        let Self { observers, prefetcher, learner, .. } = self;
        if let Some(learner) = learner {
            // Records from before the program's end.
            observers.poll_calls(now, allowance, &mut LearningSink { prefetcher, learner });
            learner.end(now);
        }
        self.publish();
        if let Some(learner) = &mut self.learner {
            learner.save();
        }
        self.prefetcher.save_devices();
        self.publish();
    }

    fn give_up(&mut self) {
        self.observers.tree.clear();
        self.prefetcher.clear();
        self.learner = None;
    }
}

impl Runner {
    fn new(
        prefetcher: Prefetcher,
        mut learner: Option<Learner>,
        observers: Observers,
        published: Arc<Mutex<Stats>>,
    ) -> Self {
        // What the program needs first is on its way before the first poll.
        if let Some(learner) = &mut learner {
            learner.advance(observers.clock.now(), prefetcher.list_bytes());
        }
        let (memory_at, timer) = (Nanos(0), PollTimer::new());
        let (processor, polling) = (clock::process_time(), clock::thread_time());
        Self {
            observers,
            prefetcher,
            learner,
            memory: None,
            memory_at,
            timer,
            processor,
            polling,
            published,
        }
    }

    /// What was told until now is learned before what is met: it is older.
    fn take_told(&mut self, now: Nanos, allowance: Allowance) {
        let read = self.prefetcher.take_told(now, allowance);
        if let Some(learner) = &mut self.learner {
            learner.take_told(now, &read);
        }
    }

    fn poll_observers(&mut self, now: Nanos, some_ended: bool, allowance: Allowance) -> bool {
        let Self { observers, prefetcher, learner, .. } = self;
        match learner {
            Some(learner) => {
                let mut sink = LearningSink { prefetcher, learner };
                observers.poll(now, some_ended, allowance, &mut sink)
            }
            None => observers.poll(now, some_ended, allowance, prefetcher),
        }
    }

    /// Has what is wanted next fetched, as far as it is paid for.
    fn advance(&mut self, now: Nanos, allowance: Allowance) {
        self.prefetcher.advance(now, allowance);
        let list_bytes = self.list_bytes();
        if let Some(learner) = &mut self.learner {
            for (file, range) in self.prefetcher.requested() {
                learner.requested(*file, range);
            }
            learner.advance(now, list_bytes);
            self.prefetcher.set_list(learner.ahead_bytes(), learner.requests());
        }
    }

    /// Whether something is fetched ahead of a program that goes from file to file.
    fn goes_ahead(&self) -> bool {
        self.prefetcher.is_walking() || self.replays()
    }

    /// Whether entries of a learned list are fetched.
    fn replays(&self) -> bool {
        self.learner.as_ref().is_some_and(Learner::is_busy)
    }

    fn publish(&self) {
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = self.stats();
    }

    /// What the poll at `now` cost that began at this time of its thread, and the pause that all
    /// that was used since the last one takes. Where nothing is fetched from a device, what the
    /// workers did is part of the cost.
    fn cost(&mut self, now: Nanos, began: Nanos, one_in: u64) -> (Nanos, Nanos) {
        let polling = clock::thread_time();
        let own = polling.since(began);
        let polls = polling.since(std::mem::replace(&mut self.polling, polling));
        let before = std::mem::replace(&mut self.processor, clock::process_time());
        let all = self.processor.since(before).max(polls);
        if let Some(learner) = &mut self.learner {
            self.prefetcher.gain(learner.take_gained(), BUSY_ONE_IN);
        }
        let effort = self.prefetcher.spend(now, [polls, all.since(polls)], own, one_in);
        let is_fetching = self.prefetcher.is_busy() || self.replays();
        (if is_fetching { own } else { all.max(own) }, effort)
    }

    /// The bytes that a learned list may have ahead: none where that is not paid for, nor pays.
    fn list_bytes(&self) -> u64 {
        let cost = self.prefetcher.request_cost();
        let pays = || self.learner.as_ref().is_some_and(|learner| learner.pays(cost));
        if self.prefetcher.paid_for() > 0 || pays() { self.prefetcher.list_bytes() } else { 0 }
    }

    /// The part of a processor that polls may use now. A program that waits leaves its share of one
    /// to them; one that computes does not.
    fn one_in(&self, now: Nanos) -> u64 {
        let is_busy = self.prefetcher.is_attentive(now) || self.replays();
        if is_busy { BUSY_ONE_IN } else { Share::own().one_in(IDLE_ONE_IN) }
    }

    /// Reads how much memory is free, where prefetching depends on it.
    fn poll_memory(&mut self, now: Nanos) {
        if now >= self.memory_at && (self.memory.is_none() || self.prefetcher.is_busy()) {
            let room = self.memory.get_or_insert_with(Memory::here).room();
            self.prefetcher.set_memory(room.bytes_to_use());
            self.memory_at = now + MEMORY_EVERY;
        }
    }

    fn stats(&self) -> Stats {
        let [files, files_refused, readers_skipped] = self.prefetcher.counts();
        let core = self.prefetcher.core_stats();
        let blocked = self.observers.blocked_counts();
        Stats {
            polls: self.observers.polls(),
            processes: self.observers.tree.seen(),
            processes_skipped: self.observers.tree.skipped(),
            files,
            files_refused,
            records_lost: self.observers.records_lost(),
            readers_skipped,
            calls_refused: blocked.refused,
            calls_foreign: blocked.foreign,
            planner: self.prefetcher.stats(),
            pages_used: core.ahead_used,
            pages_late: core.late_hits,
            pages_unused: core.ahead_wasted + core.ahead_unread,
            entries: self.prefetcher.entry_stats(),
            learned: self.learner.as_ref().map(Learner::stats).unwrap_or_default(),
            // Known to the process that waits.
            ..Stats::default()
        }
    }
}

/// The estimate of a device before it is measured.
const DEVICE: DeviceEstimate = DeviceEstimate {
    kind: DeviceKind::Parallel,
    latency: Nanos::from_millis(10),
    bytes_per_second: u64::MAX,
    depth: 32,
};
/// Processor time of the last poll, after the program's end.
const LAST_POLL_MAX: Nanos = Nanos::from_millis(10);
const INTERVAL_WARM: Nanos = Nanos::from_millis(4);
/// A program that reads begins soon, and a short one is half over when it is observed late.
const INTERVAL_EARLY: Nanos = Nanos::from_millis(2);
const EARLY: Nanos = Nanos::from_millis(50);
const IDLE_MAX: Nanos = Nanos::from_millis(10);
const MEMORY_EVERY: Nanos = Nanos::from_millis(50);
const BUSY_ONE_IN: u64 = 10;
const IDLE_ONE_IN: u64 = 50;
