//! The observers of an unchanged program: where its readers are, from outside.
//!
//! ```text
//!   processes --> open_files   positions of descriptors                    \
//!             --> mappings     pages that became present                    >-> access::AccessSink
//!             --> blocked      calls that threads wait in                  |
//!   calls                      reads that the shim in the program records  /
//! ```
//! | module | what |
//! |---|---|
//! | `access` | what observers report, and the trait that receives it |
//! | `processes` | the program's processes |
//! | `open_files`, `mappings`, `blocked`, `calls` | the observers |
//! | `counts` | bytes that a process read and wrote: what has moved a position |
//! | `cursors` | stream cursors of one file |
//! | `moves` | calls that move bytes from file to file, while they last |
//! | `poll` | poll interval and poll budget |
//! | `procfs`, `pagemap` | what `/proc` says of a process and of its memory |
//! | `shim` | the ring that the shim writes to |
//!
//! # Invariants
//! - Where no process has run since the last poll, none has read, and none is polled.
//! - What is open here for a process is closed at its end, whatever pause there is between polls.
//! - A poll ends soon after its allowance: processes, files, mappings and records that are left are
//!   polled with the next one, each in its turn, but for records, which are lost and counted.
//! - Discovery of new files and processes uses one part in [`DISCOVERY_ONE_IN`] of a processor, and
//!   the pause after it has a bound.

pub(crate) mod access;
pub(crate) mod blocked;
mod calls;
mod copies;
mod counts;
mod cursors;
mod mappings;
mod moves;
mod open_files;
mod pagemap;
pub(crate) mod poll;
pub(crate) mod processes;
pub(crate) mod procfs;
#[expect(unsafe_code, reason = "memory that is shared with the programs that run")]
pub mod shim;

use std::path::PathBuf;

use forerun_core::units::Nanos;

use crate::clock::{self, Clock};
use access::AccessSink;
use blocked::BlockedCounts;
pub(crate) use blocked::may_attach;
use calls::CallObserver;
pub(crate) use pagemap::scans_pages;
use poll::{Allowance, PollBudget, SCAN_PAUSE_MAX};
use processes::ProcessTree;
use shim::Ring;

/// The observers that a program is watched with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ObserverKind {
    /// Those of open files and mappings, by `/proc`.
    #[default]
    Proc,
    /// Besides these, that of system calls, by the shim at this path, which the program loads.
    Preload(PathBuf),
}

/// The observers of one program.
pub(crate) struct Observers {
    pub(crate) clock: Clock,
    pub(crate) tree: ProcessTree,
    calls: Option<CallObserver>,
    polls: u64,
    /// When new files and processes are looked for again, and whether there can be any.
    discover_at: Nanos,
    is_stale: bool,
    budget: PollBudget,
}

impl Observers {
    /// Observers of the processes in `tree`, and of the calls that come through `ring`.
    pub(crate) fn new(tree: ProcessTree, ring: Option<Ring>) -> Self {
        Self {
            clock: Clock::start(),
            tree,
            calls: ring.map(CallObserver::new),
            polls: 0,
            discover_at: Nanos(0),
            is_stale: true,
            budget: PollBudget::full(),
        }
    }

    /// Polls everything that may have changed, as far as `allowance` goes, and reports to `sink`.
    /// Whether anything was read.
    pub(crate) fn poll(
        &mut self,
        now: Nanos,
        some_ended: bool,
        allowance: Allowance,
        sink: &mut dyn AccessSink,
    ) -> bool {
        self.polls += 1;
        sink.polled(now);
        let has_run = self.tree.has_run();
        self.is_stale |= has_run || some_ended;
        if some_ended && self.calls.is_none() {
            // What a process has left may be unmounted by the next one.
            self.tree.reap(&self.tree.ended(), now, sink);
        }
        let discovers = self.is_stale && now >= self.discover_at;
        if discovers {
            let began = clock::thread_time();
            self.is_stale = self.tree.discover(now, allowance.share(2), sink);
            let cost = clock::thread_time().since(began);
            let pause = self.budget.pause(now, DISCOVERY_PAUSES, cost, DISCOVERY_ONE_IN);
            self.discover_at = now + pause;
        }
        let mut moved = false;
        // The last records of those are there now, and are taken before they are forgotten.
        let ended = if some_ended || discovers { self.tree.ended() } else { Vec::new() };
        if self.calls.is_some() && (has_run || some_ended || !ended.is_empty()) {
            moved = self.poll_calls(now, allowance.share(RECORDS_ONE_IN), sink);
        }
        if !ended.is_empty() {
            self.forget(&ended, now, sink);
        }
        if has_run {
            // What the program waits for is fetched first.
            moved |= self.tree.poll_blocked(now, allowance.share(BLOCKED_ONE_IN), sink);
        }
        if has_run || discovers {
            moved |= self.tree.poll(now, allowance, sink);
        }
        moved
    }

    /// Forgets the processes that have ended, between two polls. What they had open is closed.
    pub(crate) fn reap(&mut self, now: Nanos, allowance: Allowance, sink: &mut dyn AccessSink) {
        let ended = self.tree.ended();
        if !ended.is_empty() {
            self.poll_calls(now, allowance, sink);
            self.forget(&ended, now, sink);
            assert!(!ended.iter().any(|&pid| self.tree.has(pid)), "what has ended is forgotten");
            self.is_stale = true;
        }
    }

    /// Forgets the processes `ended`, whose last reads are reported.
    fn forget(&mut self, ended: &[i32], now: Nanos, sink: &mut dyn AccessSink) {
        self.tree.reap(ended, now, sink);
        if let Some(calls) = &mut self.calls {
            calls.close_left(&self.tree, now, sink);
        }
    }

    /// Polls the shim's records alone. Whether anything was read.
    pub(crate) fn poll_calls(
        &mut self,
        now: Nanos,
        allowance: Allowance,
        sink: &mut dyn AccessSink,
    ) -> bool {
        self.calls.as_mut().is_some_and(|calls| calls.poll(now, &mut self.tree, allowance, sink))
    }

    /// Polls so far.
    pub(crate) fn polls(&self) -> u64 {
        self.polls
    }

    /// What was met in blocked calls.
    pub(crate) fn blocked_counts(&self) -> BlockedCounts {
        self.tree.blocked_counts()
    }

    /// Records of the shim that were lost.
    pub(crate) fn records_lost(&self) -> u64 {
        self.calls.as_ref().map_or(0, CallObserver::lost)
    }
}

const DISCOVERY_PAUSES: (Nanos, Nanos) = (Nanos::from_millis(5), SCAN_PAUSE_MAX);
const DISCOVERY_ONE_IN: u64 = 50;
/// The part of a poll that records have for themselves: a start of many processes, each of which
/// discovery looks into, is when a program reads most.
const RECORDS_ONE_IN: u64 = 4;
/// The part of a poll that blocked calls have for themselves.
const BLOCKED_ONE_IN: u64 = 4;
