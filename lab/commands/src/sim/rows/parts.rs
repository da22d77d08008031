//! What each partition and each trace had of a cache that traces shared.
//!
//! # Invariants
//! - The accesses of the partitions are those of the traces, and of the whole row.

use forerun_console::output;
use forerun_core::cache::PartitionView;
use forerun_sim::partitioned::TraceCounts;
use serde::{Deserialize, Serialize};

use super::percent;

/// See the module.
#[derive(Clone, Deserialize, Serialize)]
pub(super) struct Parts {
    partitions: Vec<Part>,
    traces: Vec<Counted>,
}

/// One partition at the end.
#[derive(Clone, Deserialize, Serialize)]
struct Part {
    name: String,
    rule: String,
    policy: String,
    pages: u32,
    used_pages: u32,
    accesses: u64,
    misses: u64,
    hit_ratio: f64,
    evicted: u64,
}

/// One trace.
#[derive(Clone, Deserialize, Serialize)]
struct Counted {
    name: String,
    accesses: u64,
    misses: u64,
    hit_ratio: f64,
}

impl Parts {
    pub(super) fn new<'c>(
        names: &[String],
        counts: &[TraceCounts],
        partitions: impl Iterator<Item = PartitionView<'c>>,
    ) -> Self {
        let traces = names.iter().zip(counts).map(|(name, &TraceCounts { accesses, misses })| {
            let hit_ratio = hit_ratio(accesses, misses);
            Counted { name: name.clone(), accesses, misses, hit_ratio }
        });
        let partitions = partitions.map(|view| Part {
            name: view.settings.name.clone(),
            rule: view.settings.rule.to_string(),
            policy: view.settings.policy.clone(),
            pages: view.frames,
            used_pages: view.used,
            accesses: view.stats.demanded(),
            misses: view.stats.misses,
            hit_ratio: hit_ratio(view.stats.demanded(), view.stats.misses),
            evicted: view.stats.evicted,
        });
        Self { partitions: partitions.collect(), traces: traces.collect() }
    }

    /// The partitions, then the traces, in columns.
    pub(super) fn table(&self) -> String {
        let partitions = output::columns(
            &self.partitions,
            &[
                ("partition", |part| part.name.clone()),
                ("policy", |part| part.policy.clone()),
                ("rule", |part| part.rule.clone()),
                ("pages", |part| part.pages.to_string()),
                ("accesses", |part| part.accesses.to_string()),
                ("misses", |part| part.misses.to_string()),
                ("hit ratio", |part| percent(part.hit_ratio)),
            ],
            3,
        );
        let traces = output::columns(
            &self.traces,
            &[
                ("trace", |trace| trace.name.clone()),
                ("accesses", |trace| trace.accesses.to_string()),
                ("misses", |trace| trace.misses.to_string()),
                ("hit ratio", |trace| percent(trace.hit_ratio)),
            ],
            1,
        );
        format!("\n{partitions}\n{traces}")
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
fn hit_ratio(accesses: u64, misses: u64) -> f64 {
    (accesses - misses) as f64 / accesses.max(1) as f64
}
