//! Partitions of a live cache: clients, shares that change, counters.
//!
//! # Invariants
//! - What one partition gives, another gets: no memory lies idle, and the sum never changes here.
//! # Locking
//! The state's lock alone.

use std::{borrow::Cow, path::Path, sync::Arc};

use forerun_core::{cache::SettingsError, event::Event, units::PartitionId};
use forerun_io::sync::MutexGuard;

use super::Cache;
use crate::{
    Handle, OpenError,
    partitions::{PartitionState, ShareMove},
    state::State,
};

/// Where pages go that no rule takes.
const REST: PartitionId = PartitionId(0);

impl Cache {
    /// The same cache, for what a client of this name opens: a partition may have a rule for it.
    #[must_use]
    pub fn client(&self, name: impl Into<Arc<str>>) -> Self {
        Self { client: name.into(), ..self.clone() }
    }

    /// Another handle on the file of `handle`, which was opened at `path`, as this client's.
    ///
    /// # Errors
    /// As of [`Handle::try_clone`].
    ///
    /// # Panics
    /// `handle` is of another cache.
    pub fn share(&self, handle: &Handle, path: Option<&Path>) -> Result<Handle, OpenError> {
        assert!(Arc::ptr_eq(&self.owner, &handle.owner), "a file of another cache");
        handle.clone_into(self.partition_of(path))
    }

    /// The partitions as they are now: `rest`, then the others in the order of their rules.
    #[must_use]
    pub fn partitions(&self) -> Vec<PartitionState> {
        let shared = &self.owner.shared;
        let mut state = shared.state.lock();
        state.sweep_hits(&shared.hit_buffer);
        let page_bytes = shared.settings.page_bytes;
        let views = state.core.partitions();
        let partitions = views.map(|view| PartitionState::new(&view, page_bytes)).collect();
        shared.settle(state);
        partitions
    }

    /// The last moves of memory that [`Sizing::Auto`](crate::Sizing::Auto) made, oldest first: 256
    /// at most.
    #[must_use]
    pub fn moves(&self) -> Vec<ShareMove> {
        let state = self.owner.shared.state.lock();
        let settings = state.core.settings();
        state.core.moves().map(|one| ShareMove::new(one, settings)).collect()
    }

    /// Gives the partition `name` as much memory, of what `rest` has, or gives `rest` what is more.
    /// With 0 bytes its rule takes nothing until it grows again. Pages beyond a share are evicted;
    /// pinned ones when they are unpinned, and dirty ones when they are durable.
    ///
    /// # Errors
    /// There is no such partition, or one of the two would be smaller than a window of its
    /// readahead; nothing changes then.
    pub fn resize_partition(&self, name: &str, bytes: u64) -> Result<(), SettingsError> {
        let frames = self.pages(bytes);
        let state = self.owner.shared.state.lock();
        let partition = state.core.settings().partition_named(name)?;
        let at = partition.0 as usize;
        let now = state.core.partitions().nth(at).map_or(0, |view| view.frames);
        let (from, to) = if frames < now { (partition, REST) } else { (REST, partition) };
        if frames == now { Ok(()) } else { self.transfer(state, from, to, frames.abs_diff(now)) }
    }

    /// Gives the partition `name` another replacement policy, by name and with its defaults. The
    /// pages stay, in the order in which they would have left.
    ///
    /// # Errors
    /// There is no such partition or policy; nothing changes then.
    pub fn change_policy(&self, name: &str, policy: &str) -> Result<(), SettingsError> {
        let policy = forerun_core::cache::Cache::check_policy(policy)?;
        let mut state = self.owner.shared.state.lock();
        let partition = state.core.settings().partition_named(name)?;
        state.send(None, Event::Policy { partition, policy });
        self.owner.shared.settle(state);
        Ok(())
    }

    /// Moves memory from one partition to another.
    ///
    /// # Errors
    /// There is no such partition, `from` has less, or one of the two would be smaller than a
    /// window of its readahead; nothing changes then.
    pub fn move_share(&self, from: &str, to: &str, bytes: u64) -> Result<(), SettingsError> {
        let frames = self.pages(bytes);
        let state = self.owner.shared.state.lock();
        let named = |name| state.core.settings().partition_named(name);
        let (from, to) = (named(from)?, named(to)?);
        self.transfer(state, from, to, frames)
    }

    /// The partition of what this client opens at `path`, or of a store without one.
    pub(super) fn partition_of(&self, path: Option<&Path>) -> PartitionId {
        let settings = &self.owner.shared.core_settings;
        if settings.partitions.len() == 1 {
            return REST;
        }
        let path = path.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        let path = path.as_ref().map_or(Cow::Borrowed(""), |path| path.to_string_lossy());
        settings.partition_of(&path, &self.client)
    }

    fn transfer(
        &self,
        mut state: MutexGuard<'_, State>,
        from: PartitionId,
        to: PartitionId,
        frames: u32,
    ) -> Result<(), SettingsError> {
        let (left, grown) = state.core.check_move(from, to, frames)?;
        state.send(None, Event::Resize { partition: from, frames: left });
        state.send(None, Event::Resize { partition: to, frames: grown });
        self.owner.shared.settle(state);
        Ok(())
    }

    pub(super) fn pages(&self, bytes: u64) -> u32 {
        let pages = bytes / u64::from(self.owner.shared.settings.page_bytes);
        u32::try_from(pages).unwrap_or(u32::MAX)
    }
}
