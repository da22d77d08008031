//! The reaper: submits a group of reads and waits for all of it, as a policy of `core::reap` plans.
//!
//! ```text
//!   group --plan--> submit --> interrupt: block in the kernel
//!           ^                  spin:      poll the completion ring, no system call
//!           |                  sleep:     block until a moment or the completion; then poll
//!         learn <-------------- outcome: time, processor time, late or not
//! ```
//!
//! One reaper is one thread's, with a [`Port`] of its own: a ring, a queue, or a [model]. Spinning
//! is limited to a [`SpinBudget`], a share of the time, and stops while other threads want the
//! processor (`contention.rs`). Where the block layer polls, groups that are polled for go to a
//! second port without interrupts ([`Reaper::with_polled`]).
//!
//! # Invariants
//! - Each operation comes back once, with its own result, whichever way the group was waited for.
//! - A group is demand or readahead, never both: its largest member sets how long all are waited
//!   for. Readahead blocks, and no policy learns from it.
//! - A plan that the port cannot carry out becomes an interrupt, is counted, and is reported
//!   ([`Reaper::fallback`]).
//! - Every wait ends with the interrupt at the latest; without one, in the kernel's polling.
//! # Sources
//! Liao et al. 2022; Linux `io_uring_enter(2)`: `IORING_ENTER_EXT_ARG`, `IORING_SQ_TASKRUN`.

mod clock;
mod contention;
mod counts;
pub mod model;
pub mod port;
mod sleeper;
mod spinner;

use std::{marker::PhantomData, rc::Rc, time::Duration};

use forerun_core::{
    params::{ParamError, Share},
    reap::{self, AnyReap, Calibration, Key, Op as Does, Outcome, Plan, SpinBudget, Way},
    units::Nanos,
};

use self::{
    clock::{Precise, now, sleep_until, thread_cpu},
    contention::ContentionMonitor,
    port::missing,
};
pub use self::{
    contention::involuntary_switches,
    counts::ReapCounts,
    port::Port,
    sleeper::{SleepCost, Sleeper},
    spinner::Spinner,
};
use crate::store::{Completion, Op, OpKind};

/// What a group of reads is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A reader waits for it.
    Demand,
    /// No reader waits for it yet.
    Readahead,
}

/// Reads that are submitted together and waited for together.
#[derive(Debug)]
pub struct Group {
    purpose: Purpose,
    reads: Vec<Op>,
}

impl Group {
    /// A group of `reads`.
    ///
    /// # Panics
    /// There is none, one is no read, or one asks for more bytes than its frames hold.
    #[must_use]
    pub fn new(purpose: Purpose, reads: Vec<Op>) -> Self {
        assert!(!reads.is_empty(), "a group has a member");
        for read in &reads {
            assert!(read.kind == OpKind::Read, "a group is of reads");
            read.check();
        }
        Self { purpose, reads }
    }
}

/// What the wait for a group took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReapOutcome {
    /// From the submission of the first member to the reaping of the last one.
    pub real: Nanos,
    /// Processor time of this thread in between.
    pub cpu: Nanos,
    /// How it was waited for.
    pub way: Way,
    /// Whether a sleeper woke when all was complete.
    pub late: bool,
}

/// The settings of a reaper.
#[derive(Clone, Debug)]
pub struct ReaperSettings {
    /// The policy, `NAME[:key=value,..]`.
    pub policy: String,
    /// What is known of the device.
    pub calibration: Calibration,
    /// The share of one processor that may be spun; policies that always spin do not ask.
    pub spin_share: Share,
}

impl Default for ReaperSettings {
    /// `nio`, with a quarter of a processor to spin.
    fn default() -> Self {
        Self {
            policy: "nio".to_owned(),
            calibration: Calibration::default(),
            spin_share: SPIN_SHARE,
        }
    }
}

/// See the module.
pub struct Reaper {
    port: Box<dyn Port>,
    /// A port without interrupts, for groups that are polled for.
    polled: Option<Box<dyn Port>>,
    policy: Box<dyn AnyReap>,
    name: String,
    budget: SpinBudget,
    contention: ContentionMonitor,
    counts: ReapCounts,
    /// What the policy wanted and the port has not.
    missed: Option<&'static str>,
    _precise: Precise,
    /// Usage and timer slack are those of this thread.
    _bound: PhantomData<Rc<()>>,
}

impl Reaper {
    /// A reaper of this thread on `port`.
    ///
    /// # Errors
    /// There is no such policy, or a parameter of it is wrong.
    pub fn new(port: Box<dyn Port>, settings: &ReaperSettings) -> Result<Self, ParamError> {
        let policy = reap::make(&settings.policy, &settings.calibration)?;
        let now = now();
        Ok(Self {
            port,
            polled: None,
            policy,
            name: settings.policy.clone(),
            budget: SpinBudget::new(settings.spin_share, now),
            contention: ContentionMonitor::new(now),
            counts: ReapCounts::default(),
            missed: None,
            _precise: Precise::new(),
            _bound: PhantomData,
        })
    }

    /// Adds a port without interrupts: groups that are polled for go there, and their sleeps are
    /// ended by the timer alone.
    #[must_use]
    pub fn with_polled(mut self, polled: Option<Box<dyn Port>>) -> Self {
        self.polled = polled;
        self
    }

    /// Operations that a group may have.
    #[must_use]
    pub fn group_max(&self) -> usize {
        self.polled.iter().map(|port| port.capacity()).fold(self.port.capacity(), usize::min)
    }

    /// Submits `group` and appends all of it to `out`, done.
    ///
    /// # Panics
    /// It has more members than [`Reaper::group_max`].
    pub fn reap(&mut self, group: Group, out: &mut Vec<Completion>) -> ReapOutcome {
        let (count, before) = (group.reads.len(), out.len());
        assert!(count <= self.group_max(), "{count} reads in a group of {}", self.group_max());
        let (begun, begun_cpu) = (now(), thread_cpu());
        let key = key(&group.reads);
        let plan = self.plan(group.purpose, key, begun);
        let polls = plan != Plan::Interrupt;
        let (way, late) = match &mut self.polled {
            Some(polled) if polls => {
                polled.submit(group.reads, out);
                let plan = unroused(plan);
                carry_out(plan, &mut **polled, &mut self.budget, &mut self.counts, out)
            }
            Some(_) | None => {
                self.port.submit(group.reads, out);
                carry_out(plan, &mut *self.port, &mut self.budget, &mut self.counts, out)
            }
        };
        assert!(self.port.in_flight() == 0, "a group is reaped as a whole");
        let cpu = thread_cpu().since(begun_cpu);
        let reaped = ReapOutcome { real: now().since(begun), cpu, way, late };
        assert!(out.len() == before + count, "each operation comes back once");
        self.count(group.purpose, &reaped, &out[before..]);
        if group.purpose == Purpose::Demand {
            let ReapOutcome { real, cpu, way, late } = reaped;
            self.policy.learn(key, &Outcome { way, real, late, cpu: Some(cpu) });
        }
        reaped
    }

    /// What the reaper did so far.
    #[must_use]
    pub fn counts(&self) -> &ReapCounts {
        &self.counts
    }

    /// The interface that is waited on.
    #[must_use]
    pub fn port(&self) -> &'static str {
        self.port.name()
    }

    /// Why the policy waits by interrupt where it would do otherwise, if it has come to that.
    #[must_use]
    pub fn fallback(&self) -> Option<String> {
        let (missed, name, port) = (self.missed?, &self.name, self.port.name());
        Some(format!("{name} waits by interrupt on {port}, which has no {missed}"))
    }

    fn plan(&mut self, purpose: Purpose, key: Key, now: Nanos) -> Plan {
        if purpose == Purpose::Readahead {
            return Plan::Interrupt;
        }
        if self.contention.is_contended(now) {
            self.counts.contended += 1;
            self.budget.disturbed(now);
        }
        let room = self.budget.open(now);
        self.counts.spin_refused += u64::from(!room);
        let plan = self.policy.plan(key, now, room);
        if self.polled.is_none()
            && let Some(missed) = missing(plan, self.port.features())
        {
            self.missed = Some(missed);
            self.counts.unsupported += 1;
            return Plan::Interrupt;
        }
        plan
    }

    fn count(&mut self, purpose: Purpose, reaped: &ReapOutcome, done: &[Completion]) {
        let counts = &mut self.counts;
        counts.groups[reaped.way.index()] += 1;
        counts.operations += done.len() as u64;
        counts.failed += done.iter().filter(|done| done.result.is_err()).count() as u64;
        counts.readahead += u64::from(purpose == Purpose::Readahead);
        counts.late += u64::from(reaped.late);
        counts.cpu += reaped.cpu;
        counts.waited += reaped.real;
    }
}

/// What may be spun of one processor, unless told otherwise.
const SPIN_SHARE: Share = Share::percent(25);

/// The kind of a group that is alone in flight.
fn key(reads: &[Op]) -> Key {
    let largest = reads.iter().map(|read| read.bytes as u64).max().unwrap_or(0);
    Key::new(Does::Read, largest, u32::try_from(reads.len()).unwrap_or(u32::MAX))
}

/// The plan where no completion can end a sleep.
fn unroused(plan: Plan) -> Plan {
    match plan {
        Plan::SleepSpin { until, budget, .. } => Plan::SleepSpin { until, roused: false, budget },
        Plan::Interrupt | Plan::Spin { .. } => plan,
    }
}

/// Waits until all on `port` is done; returns how, and whether a sleeper was late.
fn carry_out(
    plan: Plan,
    port: &mut dyn Port,
    room: &mut SpinBudget,
    counts: &mut ReapCounts,
    out: &mut Vec<Completion>,
) -> (Way, bool) {
    let mut late = false;
    let (way, budget) = match plan {
        Plan::Interrupt => (Way::Interrupt, None),
        Plan::Spin { budget } => (Way::Spin, Some(budget)),
        Plan::SleepSpin { until, roused, budget } => {
            if sleep(until, roused, port, counts, out) {
                port.poll(out);
                late = port.in_flight() == 0;
            }
            (Way::SleepSpin, Some(budget))
        }
    };
    if let Some(budget) = budget
        && port.in_flight() > 0
    {
        spin(budget, port, room, counts, out);
    }
    if port.in_flight() > 0 {
        let begun = now();
        while port.in_flight() > 0 {
            port.wait(None, out);
        }
        counts.blocked += now().since(begun);
    }
    (way, late)
}

/// Sleeps until a moment, or until all is done where that may rouse; whether it slept at all.
fn sleep(
    until: Nanos,
    roused: bool,
    port: &mut dyn Port,
    counts: &mut ReapCounts,
    out: &mut Vec<Completion>,
) -> bool {
    let begun = now();
    if until <= begun {
        return false;
    }
    let mut at = begun;
    while port.in_flight() > 0 && at < until {
        if roused {
            port.wait(Some(Duration::from_nanos(until.since(at).0)), out);
        } else {
            sleep_until(until);
        }
        at = now();
    }
    counts.slept += at.since(begun);
    if at >= until {
        counts.timer_ended += 1;
        counts.overshot += at.since(until);
    }
    true
}

/// Polls until all is done, for `budget` at most.
fn spin(
    budget: Nanos,
    port: &mut dyn Port,
    room: &mut SpinBudget,
    counts: &mut ReapCounts,
    out: &mut Vec<Completion>,
) {
    let begun = now();
    let spun = loop {
        port.poll(out);
        let spun = now().since(begun);
        if port.in_flight() == 0 {
            break spun;
        }
        if spun > budget {
            counts.budget_ended += 1;
            break spun;
        }
        std::hint::spin_loop();
    };
    counts.spun += spun;
    room.spent(spun);
}

#[cfg(test)]
mod tests;
