//! Frames: where they come from, and which pages leave.
//!
//! ```text
//!   reserve: free frames within the partition's share, then victims of its policy
//!   victim:  Retract ---- Settled ---> the page that it was claimed for, or the free pool
//!               \-------- Pinned ----> stays as it was; another victim takes its place
//! ```
//!
//! # Invariants
//! - A frame is given to another page only after its retraction was settled.
//! - A frame that was found pinned is no victim again before the next event that is no answer to
//!   a retraction.
//! # Sources
//! Meng et al. 2009 (FlexiCache): partitions, eviction apart from the miss, shares that change.

use alloc::vec::Vec;

use super::hits::USES_MAX;
use super::{
    Cache, Frame, FrameId, NIL, PageId, PartitionSettings, PartitionStats, Rule, SettingsError,
    State,
};
use crate::event::Action;
use crate::eviction::AnyEviction;
use crate::readahead::{StreamFeedback, StreamId};

/// A share of the frames, and the policy that orders them.
pub(super) struct Partition {
    pub(super) policy: AnyEviction,
    pub(super) capacity: u32,
    pub(super) used: u32,
    /// Of its frames, those of pages that are not durable.
    pub(super) dirty: u32,
    /// Whether a rule of names puts handles into it.
    pub(super) by_name: bool,
    pub(super) counts: PartitionStats,
    /// The event before which its pool is not filled again, as too few pages may leave.
    pub(super) pool_from: u64,
    /// The event at which the policy was last asked and had too few victims.
    dry: u64,
    /// Frames that hits of the event found, in their order; empty between events.
    pub(super) uses: Vec<FrameId>,
}

impl Partition {
    pub(super) fn new(settings: &PartitionSettings) -> Result<Self, SettingsError> {
        let policy = AnyEviction::make(&settings.policy, settings.frames.max(1))?;
        Ok(Self {
            policy,
            capacity: settings.frames,
            used: 0,
            dirty: 0,
            by_name: matches!(settings.rule, Rule::File(_) | Rule::Client(_)),
            counts: PartitionStats::default(),
            pool_from: 0,
            dry: 0,
            uses: Vec::with_capacity(USES_MAX),
        })
    }

    /// Pages that may be dirty: the others can leave, for reads and for the writers of other files.
    pub(super) fn dirty_max(&self) -> u32 {
        self.capacity - self.capacity / CLEAN_ONE_IN
    }
}

/// One frame in so many of a partition holds no dirty page.
const CLEAN_ONE_IN: u32 = 4;

/// A retraction that the driver has not settled yet.
pub(super) struct OpenRetraction {
    frame: FrameId,
    reason: RetractReason,
}

enum RetractReason {
    /// A victim, claimed for another page already.
    Reuse(Victim),
    /// A victim for the free pool.
    Pool(Victim),
    /// Its page is gone; no operation on the frame is in flight.
    Drop,
    /// Its page is gone; an operation on the frame has yet to end.
    Doomed,
}

/// What a frame held that is to leave.
#[derive(Clone, Copy)]
struct Victim {
    page: PageId,
    /// It was read ahead and not used.
    prefetched: bool,
    /// Its use would have triggered a readahead.
    marker: bool,
    /// The window that fetched it.
    window: u32,
    /// The stream that fetched it.
    stream: Option<StreamId>,
    /// Its partition.
    partition: u32,
}

impl Cache {
    /// Appends up to `count` frames of `partition` to `taken`: free ones, then victims.
    pub(super) fn reserve(&mut self, partition: u32, count: u32, taken: &mut Vec<FrameId>) {
        let at = partition as usize;
        let room = self.partitions[at].capacity.saturating_sub(self.partitions[at].used);
        let free = count.min(room).min(self.free_frames());
        for _ in 0..free {
            let frame = self.frames.take_free().expect("counted");
            self.frames[frame].partition = partition;
            taken.push(frame);
        }
        self.partitions[at].used += free;
        let short = count - free;
        // Nothing that could leave appears in the course of an event.
        if short == 0 || self.partitions[at].dry == self.events {
            return;
        }
        if self.partitions[at].used > self.partitions[at].capacity {
            self.partitions[at].dry = self.events;
            return self.retry_lingering();
        }
        self.evict(partition, short.saturating_add(self.settings.pool_high));
        let victims = core::mem::take(&mut self.victims);
        let asked = short.saturating_add(self.settings.pool_high) as usize;
        assert!(victims.len() <= asked, "{} victims, {asked} asked for", victims.len());
        for (nth, &frame) in (0..).zip(&victims) {
            let victim = self.retract_victim(frame);
            let reason = if nth < short {
                taken.push(frame);
                RetractReason::Reuse(victim)
            } else {
                RetractReason::Pool(victim)
            };
            self.retracting.push(OpenRetraction { frame, reason });
        }
        self.victims = victims;
        if (self.victims.len() as u64) < u64::from(short) {
            self.partitions[at].dry = self.events;
            self.retry_lingering();
        }
    }

    /// Tells the policy of `partition` that `page` was demanded and is not resident.
    pub(super) fn missed(&mut self, partition: u32, page: PageId) {
        self.partitions[partition as usize].policy.missed(page);
    }

    /// The counters of `partition`.
    pub(super) fn counts(&mut self, partition: u32) -> &mut PartitionStats {
        &mut self.partitions[partition as usize].counts
    }

    /// Asks the policy of `partition` for `count` victims.
    pub(super) fn evict(&mut self, partition: u32, count: u32) {
        let Self { partitions, frames, victims, round, .. } = self;
        victims.clear();
        let evictable = |frame: FrameId| frames[frame].evictable(*round);
        partitions[partition as usize].policy.evict(count, &evictable, victims);
    }

    /// Evicts up to `count` pages of `partition` for the free pool. Returns how many may leave.
    pub(super) fn evict_to_pool(&mut self, partition: u32, count: u32) -> u32 {
        self.evict(partition, count);
        let victims = core::mem::take(&mut self.victims);
        for &frame in &victims {
            let reason = RetractReason::Pool(self.retract_victim(frame));
            self.retracting.push(OpenRetraction { frame, reason });
        }
        let named = u32::try_from(victims.len()).expect("at most the frames");
        self.victims = victims;
        named
    }

    /// Frames of `partition` that come free when the open retractions are settled.
    pub(super) fn leaving(&self, partition: u32) -> u32 {
        let leaving = self.retracting.iter().filter(|open| {
            matches!(open.reason, RetractReason::Pool(_) | RetractReason::Drop)
                && self.frames[open.frame].partition == partition
        });
        u32::try_from(leaving.count()).expect("at most all frames")
    }

    /// Evicts a page that was read ahead and not used, for another window.
    pub(super) fn retract_unread(&mut self, frame: FrameId) {
        let row = &self.frames[frame];
        assert!(row.prefetched && row.evictable(self.round), "{frame:?} is in use: {row:?}");
        let partition = row.partition as usize;
        self.partitions[partition].policy.forget(frame);
        let reason = RetractReason::Pool(self.retract_victim(frame));
        self.retracting.push(OpenRetraction { frame, reason });
    }

    fn retract_victim(&mut self, frame: FrameId) -> Victim {
        let row = self.frames[frame];
        let Frame { page, prefetched, marker, window, stream, partition, .. } = row;
        assert!(self.frames.published(frame) && row.waiters == NIL, "{frame:?} is evictable");
        self.frames.retract(frame);
        self.frames[frame].state = State::Free;
        if prefetched {
            self.count_wasted(row.window);
        }
        self.stats.evicted += 1;
        self.frames.unmap(frame);
        self.file_mut(page.file).frames -= 1;
        self.actions.list.push(Action::Retract { frame, gone: false });
        Victim { page, prefetched, marker, window, stream, partition }
    }

    /// A victim is pinned by a reader: it stays, and another takes its place.
    pub(super) fn pinned(&mut self, frame: FrameId) {
        let found = self.retracting.iter().position(|open| open.frame == frame);
        let open = self.retracting.swap_remove(found.expect("its retraction is open"));
        self.stats.pinned += 1;
        match open.reason {
            RetractReason::Reuse(victim) => {
                let claimed = self.frames[frame];
                assert!(claimed.page != victim.page, "a victim's frame is of another page's claim");
                self.frames.unmap(frame);
                self.restore(frame, victim);
                if let Some(other) = self.replacement(claimed.partition) {
                    self.frames[other] = claimed;
                    self.frames.map(other);
                } else {
                    self.unclaim(claimed);
                }
            }
            RetractReason::Pool(victim) => self.restore(frame, victim),
            RetractReason::Drop => {
                self.frames[frame].state = State::Lingering;
                self.frames[frame].pinned_round = self.round;
                self.lingering.push(frame);
            }
            RetractReason::Doomed => self.frames[frame].held = true,
        }
    }

    /// A frame in place of one that is pinned: one on its way to the pool, else a further victim.
    fn replacement(&mut self, partition: u32) -> Option<FrameId> {
        let Partition { used, capacity, .. } = self.partitions[partition as usize];
        if used <= capacity {
            for open in &mut self.retracting {
                if let RetractReason::Pool(victim) = open.reason
                    && self.frames[open.frame].partition == partition
                {
                    open.reason = RetractReason::Reuse(victim);
                    return Some(open.frame);
                }
            }
        }
        let mut taken = Vec::new();
        self.reserve(partition, 1, &mut taken);
        taken.pop()
    }

    /// Whether it is known in the course of this event that `partition` has no frame left.
    pub(super) fn exhausted(&self, partition: u32) -> bool {
        let row = &self.partitions[partition as usize];
        row.dry == self.events && (row.used >= row.capacity || self.free_frames() == 0)
    }

    /// A new round begins: what was pinned in the last one may leave.
    pub(super) fn unpin(&mut self) {
        for frame in self.pinned_now.drain(..) {
            let partition = self.frames[frame].partition as usize;
            self.partitions[partition].policy.may_leave(frame);
        }
    }

    /// Puts a victim back as it was; being pinned, it is in use.
    fn restore(&mut self, frame: FrameId, victim: Victim) {
        let Victim { page: old, prefetched, marker, window, stream, partition } = victim;
        let state = self.frames[frame].state;
        assert!(matches!(state, State::Free | State::Claimed), "{frame:?} is {state:?}");
        self.frames[frame] = Frame {
            page: old,
            state: State::Clean,
            partition,
            marker,
            stream,
            pinned_round: self.round,
            ..Frame::EMPTY
        };
        self.frames.republish(frame);
        let claim = self.frames.find(old);
        if let Some(claim) = claim {
            self.frames.unmap(claim);
        }
        self.frames.map(frame);
        self.file_mut(old.file).frames += 1;
        self.stats.evicted -= 1;
        if prefetched {
            self.stats.ahead_wasted -= 1;
            self.stats.ahead_used += 1;
            self.used_after_all(window);
            if let Some(stream) = stream {
                let feedback = StreamFeedback::Used { late: false };
                self.readahead.note(partition, stream, old.index, feedback);
            }
        }
        self.partitions[partition as usize].policy.insert(frame, old, false);
        self.pinned_now.push(frame);
        if let Some(claim) = claim {
            self.merge(claim, frame);
        }
    }

    /// The page was demanded again before its retraction failed, so it has a claim besides: the
    /// waiters for that are served from `frame` at once.
    fn merge(&mut self, claim: FrameId, frame: FrameId) {
        let row = self.frames[claim];
        assert_eq!(row.state, State::Claimed, "nothing else happens before Settled");
        self.file_mut(row.page.file).frames -= 1;
        if row.prefetched {
            self.stats.ahead_fetched -= 1;
            self.stats.ahead_unread -= 1;
        }
        let stays = self.frames[frame];
        let one_policy = self.readahead.shared(stays.partition, row.partition);
        let is_carried = stays.marker && stays.stream == row.stream && one_policy;
        if let Some(stream) = row.stream.filter(|_| row.marker && !is_carried) {
            self.readahead.note(row.partition, stream, row.page.index, StreamFeedback::MarkerLost);
        }
        self.frames[claim].state = State::Free;
        self.frames[claim].waiters = NIL;
        if let Some(open) = self.retracting.iter_mut().find(|open| open.frame == claim) {
            let RetractReason::Reuse(victim) = open.reason else {
                unreachable!("a claimed frame is to be used again")
            };
            open.reason = RetractReason::Pool(victim);
        } else {
            self.drop_free(claim);
        }
        self.frames[frame].waiters = row.waiters;
        self.wake(frame);
    }

    /// Retractions are over: frames of pages that left are free.
    pub(super) fn settled(&mut self) {
        let retracting = core::mem::take(&mut self.retracting);
        for open in &retracting {
            match open.reason {
                RetractReason::Reuse(victim) => {
                    self.victim_left(victim);
                    self.counts(victim.partition).evicted_by_misses += 1;
                    self.forget_idle_file(victim.page.file);
                }
                RetractReason::Pool(victim) => {
                    self.victim_left(victim);
                    self.drop_free(open.frame);
                    self.forget_idle_file(victim.page.file);
                }
                RetractReason::Drop => self.release(open.frame),
                RetractReason::Doomed => {}
            }
        }
        self.retracting = retracting;
        self.retracting.clear();
    }

    /// The page was not pinned: only now the readahead policy hears what it lost. The page may be
    /// in flight again, with the marker.
    fn victim_left(&mut self, victim: Victim) {
        let Victim { page, prefetched, marker, stream, partition, .. } = victim;
        self.counts(partition).evicted += 1;
        let Some(stream) = stream else { return };
        if prefetched {
            self.readahead.note(partition, stream, page.index, StreamFeedback::Wasted);
        }
        let again = self.frames.find(page).map(|frame| self.frames[frame]);
        let carries = |row: Frame| {
            let own = self.readahead.shared(row.partition, partition);
            own && row.marker && row.stream == Some(stream)
        };
        if marker && !again.is_some_and(carries) {
            self.readahead.note(partition, stream, page.index, StreamFeedback::MarkerLost);
        }
    }

    /// Gives back a frame whose page has left already.
    pub(super) fn drop_free(&mut self, frame: FrameId) {
        let partition = self.frames[frame].partition;
        self.frames.release(frame);
        let partition = &mut self.partitions[partition as usize];
        assert!(partition.used > 0, "{frame:?} was taken from its partition");
        partition.used -= 1;
    }

    /// Gives back a frame together with its page's count.
    pub(super) fn release(&mut self, frame: FrameId) {
        let file = self.frames[frame].page.file;
        self.drop_free(frame);
        self.file_mut(file).frames -= 1;
        self.forget_idle_file(file);
    }

    /// Retracts a page that left its file. `doomed`: an operation on the frame has yet to end.
    pub(super) fn retract_dropped(&mut self, frame: FrameId, doomed: bool) {
        self.frames.retract(frame);
        self.actions.list.push(Action::Retract { frame, gone: true });
        let reason = if doomed { RetractReason::Doomed } else { RetractReason::Drop };
        self.retracting.push(OpenRetraction { frame, reason });
    }

    /// Asks again for frames that readers held when their pages left.
    pub(super) fn retry_lingering(&mut self) {
        let mut lingering = core::mem::take(&mut self.lingering);
        lingering.retain(|&frame| {
            let asked = self.frames[frame].pinned_round == self.round;
            if !asked {
                self.retract_dropped(frame, false);
            }
            asked
        });
        self.lingering = lingering;
    }
}
