//! Sizing: frames move from partition to partition, to where they bring more hits.
//!
//! ```text
//!   reads, writes --- sampled ---> a curve a partition, and one LRU over all      sizing/curve.rs
//!   a window of reads: plan        the division with the most hits                sizing/plan.rs
//!   then: move                     a few frames an event, from the partition most above its
//!                                  plan to the one most below; each window's moves are listed
//! ```
//! A plan replaces another only where it brings more by a margin, so noise moves nothing back
//! and forth; and the curves do not depend on what partitions have, so a move does not change the
//! reason for it.
//!
//! # Invariants
//! - A partition keeps its minimum; one of no frames gets none.
//! - The sum of the shares does not change.
//! - Moves are made in events that end an operation, in slices of a bounded size: the same events
//!   make the same moves.
//! - The memory is bounded ([`Cache::sizing_bytes`]), and so is the list of moves.
//! # Sources
//! `docs/decisions/0053-sizes-by-miniature-caches.md`.

use alloc::{boxed::Box, collections::VecDeque, vec::Vec};

use super::{Cache, Settings, SettingsError};
use crate::eviction::BASELINE;
use crate::units::{Nanos, PageId, PartitionId};
use curve::{Curve, Miniature, ONE};
use plan::Sharer;

mod curve;
mod plan;

pub(super) use curve::Sample;

crate::choice! {
    /// Whether shares change by themselves.
    pub enum Sizing("manual or auto") {
        /// They stay until a program or a user changes them.
        Manual = "manual",
        /// Frames move to where they bring more hits.
        Auto = "auto",
    }
}

crate::choice! {
    /// Why frames moved.
    pub enum MoveReason("gain or fairness") {
        /// All partitions together have more hits.
        Gain = "gain",
        /// A partition had fewer hits than it would have of one LRU over all.
        Fairness = "fairness",
    }
}

/// Frames that moved from one partition to another, in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// When the last of them moved.
    pub at: Nanos,
    /// Pages that reads had demanded by then.
    pub demanded: u64,
    /// The partition that gave.
    pub from: PartitionId,
    /// The partition that got.
    pub to: PartitionId,
    /// How many.
    pub frames: u32,
    /// Why.
    pub reason: MoveReason,
    /// Expected hits of a million reads with the shares as they were when the plan was made.
    pub hits_before: u32,
    /// The same once the plan is carried out.
    pub hits_after: u32,
}

/// See the module.
pub(super) struct Sizer {
    sample: Sample,
    curves: Vec<Curve>,
    /// One LRU over all partitions, and the hits of each there.
    shared: Miniature,
    shared_hits: Vec<u64>,
    /// Sampled reads of this window, and how many close it.
    seen: u32,
    window: u32,
    windows: u32,
    plan: Option<Plan>,
    /// Frames that may still move in this window.
    budget: u32,
    moves: VecDeque<Move>,
    /// Whether the last of them is of this window, and may grow.
    grows: bool,
    moved: u64,
    bytes: u64,
}

/// The shares that partitions are to have, by their number: together those that they had when it
/// was made, and none for those that had none.
struct Plan {
    parts: Vec<u32>,
    reason: MoveReason,
    hits_before: u32,
    hits_after: u32,
}

impl Sizer {
    pub(super) fn new(settings: &Settings) -> Result<Box<Self>, SettingsError> {
        let partitions = u32::try_from(settings.partitions.len()).expect("a PartitionId each");
        let pages = SAMPLES_MAX / partitions.max(PARTITIONS_FULL) * PARTITIONS_FULL;
        let pages = pages.max(SAMPLES_MIN).min(settings.frames);
        let curve = |policy: &str| Curve::new(policy, pages);
        let policies = || settings.partitions.iter().map(|row| row.policy.as_str());
        let bytes = policies().map(|policy| Curve::bytes(policy, pages)).sum::<Result<u64, _>>()?;
        Ok(Box::new(Self {
            sample: Sample::new(pages, settings.frames),
            curves: policies().map(curve).collect::<Result<_, _>>()?,
            shared: Miniature::new(BASELINE, pages)?,
            shared_hits: alloc::vec![0; partitions as usize],
            seen: 0,
            window: (pages / WINDOWS_OF_PAGES).max(1),
            windows: 0,
            plan: None,
            budget: 0,
            moves: VecDeque::with_capacity(MOVES_MAX),
            grows: false,
            moved: 0,
            bytes: bytes + Miniature::bytes(BASELINE, pages)?,
        }))
    }

    /// A partition has another policy now: its curve begins anew.
    fn follow_policy(&mut self, partition: usize, old: &str, new: &str) {
        let pages = self.shared.capacity();
        let bytes = |policy| Curve::bytes(policy, pages).expect("a policy that is in use");
        self.bytes = self.bytes + bytes(new) - bytes(old);
        self.curves[partition] = Curve::new(new, pages).expect("a policy that is in use");
        self.windows = 0;
        self.plan = None;
    }

    pub(super) fn sample(&self) -> Sample {
        self.sample
    }

    /// A sampled page was used; `counts` if a read did.
    fn touch(&mut self, partition: u32, page: PageId, counts: bool) {
        let partition = partition as usize;
        self.curves[partition].touch(page, counts);
        let hit = self.shared.touch(page) && counts;
        self.shared_hits[partition] += u64::from(hit) * ONE;
        self.seen = self.seen.saturating_add(u32::from(counts));
    }

    /// Lets the past count for less, and opens the next window.
    fn next_window(&mut self, frames: u32) {
        self.curves.iter_mut().for_each(Curve::age);
        self.shared_hits.iter_mut().for_each(curve::age);
        self.seen = 0;
        self.windows = self.windows.saturating_add(1);
        self.budget = frames.div_ceil(WINDOWS_OF_ALL);
        self.grows = false;
    }

    /// The partitions `live`, with their minimums.
    fn sharers(&self, live: &[(usize, u32)]) -> Vec<Sharer<'_>> {
        let sharer = |&(at, frames_min): &(usize, u32)| Sharer {
            curve: &self.curves[at],
            shared_hits: self.shared_hits[at],
            frames_min,
        };
        live.iter().map(sharer).collect()
    }

    fn record(&mut self, new: Move) {
        self.moved += u64::from(new.frames);
        if let Some(last) = self.moves.back_mut().filter(|_| self.grows)
            && (last.from, last.to) == (new.from, new.to)
        {
            *last = Move { frames: last.frames + new.frames, ..new };
            return;
        }
        if self.moves.len() == MOVES_MAX {
            self.moves.pop_front();
        }
        self.moves.push_back(new);
        self.grows = true;
    }
}

impl Cache {
    /// `page` of `partition` was used; `counts` if a read did.
    pub(super) fn sample(&mut self, partition: u32, page: PageId, counts: bool) {
        if let Some(sizer) = &mut self.sizer
            && sizer.sample.takes(page)
        {
            sizer.touch(partition, page, counts);
        }
    }

    /// A read without a lock used `page`, which is sampled.
    pub(super) fn sample_hit(&mut self, partition: u32, page: PageId) {
        let sizer = self.sizer.as_mut().expect("pages are sampled for it alone");
        sizer.touch(partition, page, true);
    }

    /// At the end of a window makes a plan; carries out a slice of it.
    pub(super) fn size_partitions(&mut self) {
        let Some(mut sizer) = self.sizer.take() else { return };
        if sizer.seen >= sizer.window {
            self.plan(&mut sizer);
            sizer.next_window(self.settings.frames);
        }
        if sizer.budget > 0 {
            self.move_slice(&mut sizer);
        }
        self.sizer = Some(sizer);
    }

    /// A caller changed a share: what was planned is of other shares.
    pub(super) fn size_anew(&mut self) {
        if let Some(sizer) = &mut self.sizer {
            sizer.plan = None;
        }
    }

    /// See [`Sizer::follow_policy`].
    pub(super) fn size_by_policy(&mut self, partition: usize, old: &str, new: &str) {
        if let Some(sizer) = &mut self.sizer {
            sizer.follow_policy(partition, old, new);
        }
    }

    fn plan(&self, sizer: &mut Sizer) {
        if sizer.windows < WINDOWS_COLD {
            return;
        }
        let all = self.settings.frames;
        let live = (0..).zip(&self.partitions).filter(|(_, row)| row.capacity > 0);
        let live: Vec<(usize, u32)> =
            live.map(|(at, _)| (at as usize, self.frames_min(at))).collect();
        let now: Vec<u32> = live.iter().map(|&(at, _)| self.partitions[at].capacity).collect();
        let frames = now.iter().sum();
        let planned = sizer.plan.take();
        let sharers = sizer.sharers(&live);
        let Some(best) = plan::best(&sharers, frames, all) else { return };
        let kept: Vec<u32> = match &planned {
            Some(plan) => live.iter().map(|&(at, _)| plan.parts[at]).collect(),
            None => now.clone(),
        };
        let reads: u64 = sharers.iter().map(|sharer| sharer.curve.reads()).sum();
        let margin = reads / MARGIN_PART;
        if plan::value(&sharers, &best, all) <= plan::value(&sharers, &kept, all) + margin {
            sizer.plan = planned;
            return;
        }
        let hits = [&now, &best].map(|parts| plan::hits(&sharers, parts, all));
        let millionths = |hits: u64| u32::try_from(hits * 1_000_000 / reads.max(1)).unwrap_or(0);
        let mut parts = alloc::vec![0; self.partitions.len()];
        for (&(at, _), &part) in live.iter().zip(&best) {
            parts[at] = part;
        }
        let reason = if hits[1] > hits[0] { MoveReason::Gain } else { MoveReason::Fairness };
        let [hits_before, hits_after] = hits.map(millionths);
        sizer.plan = Some(Plan { parts, reason, hits_before, hits_after });
    }

    /// Moves some frames from the partition most above its plan to the one most below.
    fn move_slice(&mut self, sizer: &mut Sizer) {
        let Some(plan) = &sizer.plan else { return };
        let rows = || (0..).zip(self.partitions.iter().zip(&plan.parts));
        let above = rows().map(|(at, (row, &part))| (row.capacity.saturating_sub(part), at));
        let below = rows().map(|(at, (row, &part))| (part.saturating_sub(row.capacity), at));
        let (Some(above), Some(below)) = (above.max(), below.max()) else { return };
        let frames = above.0.min(below.0).min(sizer.budget).min(SLICE_FRAMES);
        let (from, to) = (PartitionId(above.1), PartitionId(below.1));
        let moved = if frames == 0 { None } else { self.check_move(from, to, frames).ok() };
        let Some((left, grown)) = moved else {
            sizer.budget = 0;
            return;
        };
        let Plan { reason, hits_before, hits_after, .. } = *plan;
        let (at, demanded) = (self.now, self.stats.demanded);
        sizer.budget -= frames;
        sizer.record(Move { at, demanded, from, to, frames, reason, hits_before, hits_after });
        self.resize(from.0, left);
        self.resize(to.0, grown);
        self.counts(from.0).gave += u64::from(frames);
        self.counts(to.0).got += u64::from(frames);
    }

    /// The frames that sizing leaves to `partition` at least: those that its settings name, a
    /// window of its readahead, and the largest request as far as it had room for it at first.
    pub(super) fn frames_min(&self, partition: u32) -> u32 {
        let given = &self.settings.partitions[partition as usize];
        let request = self.settings.request_pages_max.min(given.frames);
        let window = self.readahead.of(partition).window_pages_min();
        given.frames_min.max(window).max(request).max(1)
    }

    /// The last moves of sizing, oldest first: [`MOVES_MAX`] at most.
    pub fn moves(&self) -> impl Iterator<Item = &Move> {
        self.sizer.iter().flat_map(|sizer| &sizer.moves)
    }

    /// Frames that sizing has moved so far.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.sizer.as_ref().map_or(0, |sizer| sizer.moved)
    }

    /// Hits of a million reads of all partitions that `partition` would have with `frames` frames,
    /// as far as is known; `None` without sizing.
    #[must_use]
    pub fn expected_hits(&self, partition: PartitionId, frames: u32) -> Option<u32> {
        let sizer = self.sizer.as_ref()?;
        let reads = sizer.curves.iter().map(Curve::reads).sum::<u64>().max(1);
        let hits = sizer.curves[partition.0 as usize].hits(frames, self.settings.frames);
        u32::try_from(hits * 1_000_000 / reads).ok()
    }

    /// Bytes that the tables of sizing take at most; 0 without it.
    #[must_use]
    pub fn sizing_bytes(&self) -> u64 {
        self.sizer.as_ref().map_or(0, |sizer| sizer.bytes)
    }
}

/// Moves that are remembered.
pub const MOVES_MAX: usize = 256;
/// Sampled pages that fit into the cache, of up to `PARTITIONS_FULL` partitions; of more, as many
/// fewer each. SHARDS (section 4) is within a few percent with so many.
const SAMPLES_MAX: u32 = 2_048;
const SAMPLES_MIN: u32 = 64;
const PARTITIONS_FULL: u32 = 4;
/// A window has as many sampled reads as this part of the sample has frames.
const WINDOWS_OF_PAGES: u32 = 4;
/// Windows before the first plan: the cache fills.
const WINDOWS_COLD: u32 = 6;
/// Windows in which all frames may move: a move is a tenth of the cache only after several.
const WINDOWS_OF_ALL: u32 = 32;
/// The part of the reads by which a plan must be better than the last one.
const MARGIN_PART: u64 = 400;
/// Frames that move in one event: as many pages leave at once.
const SLICE_FRAMES: u32 = 64;
