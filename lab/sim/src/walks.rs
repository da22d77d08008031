//! Walks in virtual time: a recorded program goes over a tree on a device model, alone, with what
//! `core::walk` or a learned list requests ahead of it, and with all known before.
//!
//! ```text
//!   trace --program--> calls --observer--> core::walk, core::learned --requests--> workers
//!                        \--demand--> page cache --> device <----------------------/
//! ```
//! # Invariants
//! - The same trace and setup give the same outcome.
//! - A call needs what it needs in the trace: nothing is faster but what was fetched before.

mod accesses;
mod changes;
mod driver;
mod listed;
pub mod names;
mod program;
mod storage;
mod strace;
mod tree;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forerun_core::device::{Device, DeviceKind};
use forerun_core::learned::{LearnedList, Observed};
use forerun_core::units::Nanos;
pub use forerun_core::walk::{WalkSettings, WalkStats};

pub use accesses::{AccessError, AccessTrace, Call, CallKind};
pub use strace::calls as strace_calls;
pub use tree::{Node, Tree};

use driver::{Fetch, WalkDriver};
use listed::ListDriver;
use program::Program;
use storage::{Stages, Storage};

/// How a trace is run.
#[derive(Clone, Debug)]
pub struct WalkSetup {
    /// The device.
    pub device: Device,
    /// The bounds of the walks.
    pub settings: WalkSettings,
    /// Requests that are carried out at a time.
    pub workers: usize,
    /// Time between two polls; `None`: every call is seen.
    pub poll: Option<Nanos>,
    /// What the recorder added to each call.
    pub tracing: Nanos,
}

/// What is fetched ahead of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// Nothing.
    Nothing,
    /// What the walks request.
    Walks,
    /// What a learned list has.
    Listed,
    /// All that the program will need, in its order: the bound.
    Known,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkRun {
    /// When the last call ended.
    pub elapsed: Nanos,
    /// Requests of the device.
    pub requests: u64,
    /// Bytes of files that were fetched.
    pub data_bytes: u64,
    /// Those among them that the program never read.
    pub unused_bytes: u64,
    /// Distinct entries that the program used.
    pub entries: u64,
    /// Distinct entries that were requested by a walk or of a list.
    pub requested: u64,
    /// Those among them that the program used, sooner or later.
    pub useful: u64,
    /// Those that were requested before their first use.
    pub in_time: u64,
    /// What core counted.
    pub stats: WalkStats,
}

/// What is to be fetched, and its cause.
struct Task {
    stages: Stages,
    /// Objects of the first stage that have not come.
    missing: usize,
    of: Of,
}

#[derive(Clone, Copy)]
enum Of {
    Call(usize),
    Walk(Fetch),
    /// A place of the list, and when it was requested.
    Listed(u32, Nanos),
    Known,
}

struct Run<'a> {
    trace: &'a AccessTrace,
    setup: &'a WalkSetup,
    ahead: Ahead,
    now: Nanos,
    storage: Storage,
    program: Program,
    driver: WalkDriver,
    list: ListDriver,
    tasks: Vec<Task>,
    /// Calls that begin later.
    begins: BTreeSet<(Nanos, usize)>,
    /// Calls that wait.
    blocked: BTreeSet<usize>,
    busy: usize,
    /// What is fetched next, where all is known.
    known: VecDeque<Stages>,
    next_poll: Nanos,
    entries: BTreeSet<usize>,
    requested: BTreeSet<usize>,
    in_time: u64,
    ended: usize,
    finished: Nanos,
}

/// Runs `trace`.
#[must_use]
pub fn run(trace: &AccessTrace, setup: &WalkSetup, ahead: Ahead) -> WalkRun {
    to_end(trace, setup, ahead, &LearnedList::default()).outcome()
}

/// Runs `trace` with what `list` has: the outcome, how much of the list was used in percent of what
/// could be judged, and what was learned of it.
#[must_use]
pub fn run_listed(
    trace: &AccessTrace,
    setup: &WalkSetup,
    list: &LearnedList,
) -> (WalkRun, Option<u32>, Vec<Observed>) {
    let run = to_end(trace, setup, Ahead::Listed, list);
    (run.outcome(), run.list.precision(), run.list.learned(&trace.tree))
}

fn to_end<'a>(
    trace: &'a AccessTrace,
    setup: &'a WalkSetup,
    ahead: Ahead,
    list: &LearnedList,
) -> Run<'a> {
    let settings = WalkSettings { sees_all: setup.poll.is_none(), ..setup.settings.clone() };
    let mut run = Run {
        trace,
        setup,
        ahead,
        now: Nanos(0),
        storage: Storage::new(&trace.tree, setup.device.clone()),
        program: Program::new(&trace.calls, setup.tracing),
        driver: WalkDriver::new(settings),
        list: ListDriver::new(&trace.tree, list, setup.settings.budget_bytes),
        tasks: Vec::new(),
        begins: BTreeSet::new(),
        blocked: BTreeSet::new(),
        busy: 0,
        known: VecDeque::new(),
        next_poll: setup.poll.unwrap_or_default(),
        entries: BTreeSet::new(),
        requested: BTreeSet::new(),
        in_time: 0,
        ended: 0,
        finished: Nanos(0),
    };
    if ahead == Ahead::Known {
        run.known = run.all_needs();
    }
    run.begins.extend(run.program.first().into_iter().map(|call| (Nanos(0), call)));
    while run.ended < trace.calls.len() {
        run.step();
    }
    run.list.finish();
    run
}

impl Run<'_> {
    fn outcome(&self) -> WalkRun {
        let (data_bytes, unused_bytes) = self.storage.data_bytes();
        WalkRun {
            elapsed: self.finished,
            requests: self.storage.requests,
            data_bytes,
            unused_bytes,
            entries: self.entries.len() as u64,
            requested: self.requested.len() as u64,
            useful: self.requested.intersection(&self.entries).count() as u64,
            in_time: self.in_time,
            stats: self.driver.stats(),
        }
    }

    /// What happens next: objects come, a poll, a call begins; then the workers go on.
    fn step(&mut self) {
        let begin = self.begins.first().map(|&(at, _)| at);
        let poll = self.setup.poll.map(|_| self.next_poll).filter(|_| !self.blocked.is_empty());
        let next = [self.storage.next(), begin, poll].into_iter().flatten().min();
        self.now = next.expect("a program that has not ended has calls").max(self.now);
        while let Some(waiting) = self.storage.complete(self.now) {
            for task in waiting {
                self.tasks[task].missing -= 1;
                self.advance(task);
            }
        }
        if let Some(every) = self.setup.poll
            && self.next_poll <= self.now
        {
            self.next_poll = Nanos(self.now.0 - self.now.0 % every.0) + every;
            for call in self.blocked.clone() {
                self.observe(call);
            }
        }
        while let Some(&(at, call)) = self.begins.first().filter(|&&(at, _)| at <= self.now) {
            self.begins.remove(&(at, call));
            self.begin(call);
        }
        self.work();
    }

    fn begin(&mut self, number: usize) {
        let call = &self.trace.calls[number];
        if let Some(node) = self.trace.tree.find(&call.path).filter(|_| call.error.is_none()) {
            let is_first = self.entries.insert(node);
            self.in_time += u64::from(is_first && self.requested.contains(&node));
        }
        if self.setup.poll.is_none() {
            self.observe(number);
        } else if self.ahead == Ahead::Listed {
            self.list.read(self.now, call);
        }
        self.blocked.insert(number);
        let stages = self.needs(number, false);
        self.start(stages, Of::Call(number));
    }

    fn observe(&mut self, number: usize) {
        let call = &self.trace.calls[number];
        if self.ahead == Ahead::Listed {
            self.list.observe(self.now, &self.trace.tree, call);
        } else if let Some(node) = self.trace.tree.find(&call.path) {
            self.driver.observe(&self.trace.tree, call, node);
        }
    }

    /// What all calls need, by the first call on each entry, its data side by side.
    fn all_needs(&self) -> VecDeque<Stages> {
        let mut needs: Vec<Stages> = Vec::new();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for (number, call) in self.trace.calls.iter().enumerate() {
            let stages = self.needs(number, true);
            let place = *places.entry(&call.path).or_insert(needs.len());
            if place == needs.len() {
                needs.push(Stages::new());
            }
            let (lookups, data): (Vec<_>, Vec<_>) = stages
                .into_iter()
                .flatten()
                .partition(|object| !matches!(object, storage::Object::Data(..)));
            let own = &mut needs[place];
            for object in lookups {
                if !own.iter().any(|stage| stage.contains(&object)) {
                    own.push_back(vec![object]);
                }
            }
            own.extend((!data.is_empty()).then_some(data));
        }
        needs.into()
    }

    /// What a call needs; `from_path`: with what leads to an open file.
    fn needs(&self, number: usize, from_path: bool) -> Stages {
        let (tree, call) = (&self.trace.tree, &self.trace.calls[number]);
        let Some(node) = tree.find(&call.path).filter(|_| call.error.is_none()) else {
            return storage::entries(tree, tree.deepest(&call.path));
        };
        let (offset, bytes) = match call.call {
            CallKind::List => return storage::entries(tree, node),
            CallKind::Stat | CallKind::Open => return storage::inode(tree, node),
            CallKind::Read | CallKind::Map => (call.offset, call.bytes),
            CallKind::Exec => (0, u64::MAX),
        };
        let is_open = matches!(call.call, CallKind::Read | CallKind::Map) && !from_path;
        let mut stages = if is_open { Stages::new() } else { storage::inode(tree, node) };
        stages.extend(storage::data(tree, node, offset, bytes).into_iter().map(|it| vec![it]));
        stages
    }

    fn start(&mut self, stages: Stages, of: Of) {
        self.tasks.push(Task { stages, missing: 0, of });
        self.enter(self.tasks.len() - 1);
    }

    /// Goes on with a task, if all of its stage has come.
    fn advance(&mut self, task: usize) {
        if self.tasks[task].missing == 0 {
            self.tasks[task].stages.pop_front();
            self.enter(task);
        }
    }

    /// Requests the first stage that is not there, or ends the task.
    fn enter(&mut self, task: usize) {
        while let Some(stage) = self.tasks[task].stages.front().cloned() {
            let demanded = matches!(self.tasks[task].of, Of::Call(_));
            let tree = &self.trace.tree;
            let absent = |object: &&storage::Object| {
                !self.storage.need(self.now, tree, **object, task, demanded)
            };
            self.tasks[task].missing = stage.iter().filter(absent).count();
            if self.tasks[task].missing > 0 {
                return;
            }
            self.tasks[task].stages.pop_front();
        }
        match self.tasks[task].of {
            Of::Call(call) => self.end(call),
            Of::Walk(fetch) => {
                self.busy -= 1;
                self.driver.complete(&self.trace.tree, fetch);
            }
            Of::Listed(place, since) => {
                self.busy -= 1;
                self.list.complete(&self.trace.tree, place, self.now.since(since));
            }
            Of::Known => self.busy -= 1,
        }
    }

    fn end(&mut self, call: usize) {
        self.blocked.remove(&call);
        self.ended += 1;
        self.finished = self.now;
        let free = self.program.ended(call);
        self.begins.extend(free.into_iter().map(|(next, gap)| (self.now + gap, next)));
    }

    /// Gives the workers that are free something to do.
    fn work(&mut self) {
        match self.ahead {
            Ahead::Nothing => {}
            Ahead::Walks => loop {
                let room = self.setup.workers - self.busy;
                let fetches = self.driver.issue(&self.trace.tree, room);
                if fetches.is_empty() {
                    return;
                }
                for (fetch, stages) in fetches {
                    self.busy += 1;
                    self.requested.extend(fetch.entry());
                    self.start(stages, Of::Walk(fetch));
                }
            },
            Ahead::Listed => loop {
                let room = self.setup.workers - self.busy;
                let seeks = self.setup.device.kind() == DeviceKind::SeekBound;
                let fetches = self.list.issue(&self.trace.tree, room, seeks);
                if fetches.is_empty() {
                    return;
                }
                for (place, node, stages) in fetches {
                    self.busy += 1;
                    self.requested.extend(node);
                    self.start(stages, Of::Listed(place, self.now));
                }
            },
            Ahead::Known => {
                while self.busy < self.setup.workers
                    && let Some(stages) = self.known.pop_front()
                {
                    self.busy += 1;
                    self.start(stages, Of::Known);
                }
            }
        }
    }
}

/// The share of what was requested that was used, and of what was used that was requested.
#[must_use]
pub fn precision_and_recall(run: &WalkRun) -> (f64, f64) {
    let share = |part: u64, whole: u64| {
        if whole == 0 { 1.0 } else { float(part) / float(whole) }
    };
    (share(run.useful, run.requested), share(run.in_time, run.entries))
}

#[expect(clippy::cast_precision_loss, reason = "counts of entries")]
const fn float(count: u64) -> f64 {
    count as f64
}
