//! One combination of a plan: what runs in virtual time and what its row names.
//!
//! # Invariants
//! - A case holds no results: `timed` runs it, and `rows` has the results.

use forerun_sim::prefetch::Prefetch;
use forerun_sim::workload::Workload;

/// One combination of a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case<'a> {
    pub(super) device: Option<&'a str>,
    pub(super) readahead: &'a str,
    pub(super) prefetch: Option<&'a Prefetch>,
    pub(super) policy: &'a str,
    pub(super) pages: u32,
}

/// The workload's seed, which is the device's too.
pub(super) fn seed(workload: &Workload) -> u64 {
    let seed = workload.params.iter().find(|(key, _)| *key == "seed");
    seed.and_then(|(_, value)| value.parse().ok()).unwrap_or(1)
}
