//! Shares: what partitions may hold, how that changes, and the pool of free frames.
//!
//! ```text
//!   |<------------------ share ------------------>|
//!   |=== held ==========================|  free   |     free < low: pages leave until `high`
//!   |                                   low  high |     are free, in no request's event
//! ```
//!
//! A partition that shrinks evicts its surplus at once, but for pages that are pinned or dirty:
//! these leave as they may. Frames that one gave up are free for those that grew.
//!
//! # Invariants
//! - The shares never exceed the frames of the cache; the rest keeps a window of its readahead.
//! - A request evicts pages by itself only where it finds no free frame.
//! # Sources
//! Meng et al. 2009, section 4 (FlexiCache): a pool of free blocks, kept by a reclaim that is apart
//! from the miss; partitions that change their size. Theirs is a thread, ours runs in events
//! that end an operation.

use super::{Cache, PartitionSettings, PartitionStats, SettingsError};
use crate::units::PartitionId;

/// A partition as it is now.
#[derive(Clone, Copy, Debug)]
pub struct PartitionView<'c> {
    /// What it was made of.
    pub settings: &'c PartitionSettings,
    /// Frames that it may hold now.
    pub frames: u32,
    /// Frames that sizing leaves to it at least.
    pub frames_min: u32,
    /// Frames that it holds.
    pub used: u32,
    /// What it counted.
    pub stats: PartitionStats,
}

impl Cache {
    /// The partitions, in their order.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionView<'_>> {
        let rows = self.settings.partitions.iter().zip(&self.partitions);
        (0..).zip(rows).map(|(at, (settings, row))| PartitionView {
            settings,
            frames: row.capacity,
            frames_min: self.frames_min(at),
            used: row.used,
            stats: row.counts,
        })
    }

    /// How often a share has changed.
    #[must_use]
    pub fn resizes(&self) -> u64 {
        self.resizes
    }

    /// Whether `partition` may have `frames` frames from now on.
    ///
    /// # Errors
    /// The shares would exceed the frames, or the partition would be smaller than one window: 0
    /// frames are allowed unless the partition is the rest.
    pub fn check_resize(&self, partition: u32, frames: u32) -> Result<(), SettingsError> {
        let others = self.partitions.iter().enumerate().filter(|at| at.0 != partition as usize);
        let shares = others.map(|at| u64::from(at.1.capacity)).sum::<u64>() + u64::from(frames);
        if shares > u64::from(self.settings.frames) {
            return Err(SettingsError::Shares { shares, frames: self.settings.frames });
        }
        self.check_share(partition, frames)
    }

    /// Whether `from` may give `frames` of its frames to `to`: `Resize` of the one, then of the
    /// other. Returns the two new shares.
    ///
    /// # Errors
    /// `from` has fewer, or one of the two would be smaller than one window, as in
    /// [`Cache::check_resize`].
    pub fn check_move(
        &self,
        from: PartitionId,
        to: PartitionId,
        frames: u32,
    ) -> Result<(u32, u32), SettingsError> {
        let share = |at: PartitionId| self.partitions[at.0 as usize].capacity;
        let (had, wanted) = (share(from), frames);
        let left = had.checked_sub(frames).filter(|_| from != to);
        let left = left.ok_or(SettingsError::Move { frames: had, wanted })?;
        let grown = share(to) + frames;
        self.check_share(from.0, left)?;
        self.check_share(to.0, grown)?;
        Ok((left, grown))
    }

    fn check_share(&self, partition: u32, frames: u32) -> Result<(), SettingsError> {
        let window = self.readahead.of(partition).window_pages_min();
        if frames < window && (frames > 0 || partition == self.ranges.rest()) {
            return Err(SettingsError::Window { frames, window });
        }
        Ok(())
    }

    pub(super) fn resize(&mut self, partition: u32, frames: u32) {
        if let Err(error) = self.check_resize(partition, frames) {
            panic!("Cache::check_resize comes before Resize: {error}");
        }
        let row = &mut self.partitions[partition as usize];
        row.capacity = frames;
        row.policy.resize(frames.max(1));
        self.resizes += 1;
    }

    /// Evicts what partitions hold beyond their shares.
    pub(super) fn shrink(&mut self) {
        for partition in self.partition_numbers() {
            let row = &self.partitions[partition as usize];
            if row.used <= row.capacity {
                continue;
            }
            let surplus = row.used - row.capacity;
            let surplus = surplus.saturating_sub(self.leaving(partition));
            if surplus > 0 {
                self.evict_to_pool(partition, surplus);
            }
        }
    }

    /// Evicts pages of partitions whose free frames are below the low mark.
    pub(super) fn keep_pool(&mut self) {
        let (low, high) = (self.settings.pool_low, self.settings.pool_high);
        if low == 0 {
            return;
        }
        for partition in self.partition_numbers() {
            let row = &self.partitions[partition as usize];
            // Of a small partition the pool takes a part.
            let most = row.capacity / POOL_ONE_IN;
            let free = row.capacity.saturating_sub(row.used) + self.leaving(partition);
            if free >= low.min(most) || self.events < row.pool_from {
                continue;
            }
            let wanted = high.max(low).min(most) - free;
            if self.evict_to_pool(partition, wanted) < wanted {
                // What may not leave now is not looked through again with each event.
                self.partitions[partition as usize].pool_from = self.events + u64::from(wanted);
            }
        }
    }

    fn partition_numbers(&self) -> core::ops::Range<u32> {
        0..u32::try_from(self.partitions.len()).expect("a PartitionId each")
    }
}

/// The pool takes at most this part of a partition.
const POOL_ONE_IN: u32 = 4;
