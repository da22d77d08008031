//! The readahead policies of a cache: one for all partitions, or also some of their own.
//!
//! ```text
//!   partition   0  1  2  3
//!   policy      0  0  1  2      0: the cache's; a partition that names its own gets its own
//! ```
//!
//! # Invariants
//! - A frame's stream is one of the policy of its partition: no policy hears of another's streams.

use alloc::{boxed::Box, vec::Vec};

use super::{Settings, SettingsError};
use crate::readahead::{self, Bounds, Probes, Readahead, StreamFeedback, StreamId};
use crate::units::{FileId, HandleId, PageIndex};

/// See the module.
pub(super) struct Readaheads {
    policies: Vec<Policy>,
    /// The policy of each partition.
    of: Vec<usize>,
}

struct Policy {
    decides: Box<dyn Readahead + Send>,
    probes: Probes,
}

impl Policy {
    fn new(decides: Box<dyn Readahead + Send>) -> Self {
        Self { probes: decides.probes(), decides }
    }
}

impl Readaheads {
    /// The policies that `settings` name, but `oracle`, if there is one, in place of the cache's.
    pub(super) fn new(
        settings: &Settings,
        oracle: Option<Box<dyn Readahead + Send>>,
    ) -> Result<Self, SettingsError> {
        let make = |spec: &str| readahead::make(spec, settings.page_bytes).map(|made| made.policy);
        let of_all = oracle.map_or_else(|| make(&settings.readahead), Ok)?;
        let mut policies = alloc::vec![Policy::new(of_all)];
        let mut of = Vec::with_capacity(settings.partitions.len());
        for partition in &settings.partitions {
            of.push(match &partition.readahead {
                None => 0,
                Some(spec) => {
                    policies.push(Policy::new(make(spec)?));
                    policies.len() - 1
                }
            });
        }
        Ok(Self { policies, of })
    }

    /// The policy of `partition`.
    pub(super) fn of(&self, partition: u32) -> &dyn Readahead {
        &*self.policies[self.of[partition as usize]].decides
    }

    /// As [`Readaheads::of`].
    pub(super) fn of_mut(&mut self, partition: u32) -> &mut dyn Readahead {
        &mut *self.policies[self.of[partition as usize]].decides
    }

    /// The facts that the policy of `partition` needs.
    pub(super) fn probes(&self, partition: u32) -> Probes {
        self.policies[self.of[partition as usize]].probes
    }

    /// Whether one policy decides for both partitions.
    pub(super) fn shared(&self, one: u32, other: u32) -> bool {
        self.of[one as usize] == self.of[other as usize]
    }

    /// See [`Readahead::note`]; the page is of `partition`.
    pub(super) fn note(
        &mut self,
        partition: u32,
        stream: StreamId,
        page: PageIndex,
        feedback: StreamFeedback,
    ) {
        self.of_mut(partition).note(stream, page, feedback);
    }

    /// See [`Readahead::bounds`].
    pub(super) fn bounds(&mut self, bounds: Bounds) {
        self.policies.iter_mut().for_each(|policy| policy.decides.bounds(bounds));
    }

    /// See [`Readahead::open`].
    pub(super) fn open(&mut self, handle: HandleId, file: FileId) {
        self.policies.iter_mut().for_each(|policy| policy.decides.open(handle, file));
    }

    /// See [`Readahead::close`].
    pub(super) fn close(&mut self, handle: HandleId) {
        self.policies.iter_mut().for_each(|policy| policy.decides.close(handle));
    }

    /// Whether any policy has to see every read: see [`Readahead::sees_requests`].
    pub(super) fn any_sees_requests(&self) -> bool {
        self.policies.iter().any(|policy| policy.decides.sees_requests())
    }

    /// Whether any policy uses what is learnt of the device.
    pub(super) fn any_sees_device(&self) -> bool {
        self.policies.iter().any(|policy| policy.decides.sees_device())
    }
}
