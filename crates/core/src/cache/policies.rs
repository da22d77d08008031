//! A partition's replacement policy, which may change while the cache is used.
//!
//! ```text
//!   old policy --- its order of eviction ---> inserted into the new one: what would leave first
//!                                             comes first, and so leaves first there, too
//! ```
//! Ghosts, counts of uses and other tables of the old policy are forgotten.
//!
//! # Invariants
//! - No page leaves by the change.
//! - A policy that comes later has its parameters' defaults: an event has its number alone.

use alloc::vec::Vec;

use super::Cache;
use crate::eviction::{AnyEviction, NAMES};
use crate::params::ParamError;

impl Cache {
    /// The number of the policy `name` in an event.
    ///
    /// # Errors
    /// There is none, or it has parameters.
    ///
    /// # Panics
    /// There are more than 2^32 policies.
    pub fn check_policy(name: &str) -> Result<u32, ParamError> {
        AnyEviction::make(name, 1)?;
        let number = NAMES.iter().position(|known| *known == name);
        let number = number.ok_or_else(|| ParamError::BadValue {
            key: "policy".into(),
            value: name.into(),
            form: "a name without parameters".into(),
        })?;
        Ok(u32::try_from(number).expect("there are a few"))
    }

    pub(super) fn change_policy(&mut self, partition: u32, policy: u32) {
        assert!(self.retracting.is_empty(), "retractions are settled before any other event");
        let (at, name) = (partition as usize, NAMES[policy as usize]);
        let row = &mut self.partitions[at];
        let capacity = row.capacity.max(1);
        let new = AnyEviction::make(name, capacity).expect("a listed name stands for defaults");
        let (mut old, mut order) = (core::mem::replace(&mut row.policy, new), Vec::new());
        for (frame, held) in self.frames.iter() {
            if held.resident() && held.partition == partition {
                old.may_leave(frame);
            }
        }
        old.evict(row.used, &|_| true, &mut order);
        for &frame in &order {
            let held = &self.frames[frame];
            assert!(held.resident() && held.partition == partition, "{frame:?} is in its policy");
            row.policy.insert(frame, held.page, held.prefetched);
        }
        let before = &mut self.settings.partitions[at].policy;
        let before = core::mem::replace(before, name.into());
        self.size_by_policy(at, &before, name);
    }
}
