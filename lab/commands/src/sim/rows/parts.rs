//! What each partition and each trace had of a cache that traces shared.
//!
//! # Invariants
//! - The accesses of the partitions are those of the traces, and of the whole row.

use forerun_console::output;
use forerun_core::cache::Sizing;
use forerun_core::params::Param as _;
use forerun_sim::partitioned::{PartitionedCache, TraceCounts};
use serde::{Deserialize, Serialize};

use super::percent;

/// See the module.
#[derive(Clone, Deserialize, Serialize)]
pub(super) struct Parts {
    partitions: Vec<Part>,
    traces: Vec<Counted>,
    /// Only where sizing is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sizing: Option<Moved>,
}

/// What sizing did.
#[derive(Clone, Deserialize, Serialize)]
struct Moved {
    pages: u64,
    table_bytes: u64,
    /// The last ones, oldest first.
    moves: Vec<OneMove>,
}

/// One move.
#[derive(Clone, Deserialize, Serialize)]
struct OneMove {
    accesses: u64,
    from: String,
    to: String,
    pages: u32,
    reason: String,
    expected_hit_ratio_before: f64,
    expected_hit_ratio_after: f64,
}

/// One partition at the end.
#[derive(Clone, Deserialize, Serialize)]
struct Part {
    name: String,
    rule: String,
    policy: String,
    pages: u32,
    pages_min: u32,
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
    pub(super) fn new(names: &[String], cache: &PartitionedCache) -> Self {
        let traces =
            names.iter().zip(cache.counts()).map(|(name, &TraceCounts { accesses, misses })| {
                let hit_ratio = hit_ratio(accesses, misses);
                Counted { name: name.clone(), accesses, misses, hit_ratio }
            });
        let partitions = cache.partitions().map(|view| Part {
            name: view.settings.name.clone(),
            rule: view.settings.rule.to_string(),
            policy: view.settings.policy.clone(),
            pages: view.frames,
            pages_min: view.frames_min,
            used_pages: view.used,
            accesses: view.stats.demanded(),
            misses: view.stats.misses,
            hit_ratio: hit_ratio(view.stats.demanded(), view.stats.misses),
            evicted: view.stats.evicted,
        });
        let (partitions, traces) = (partitions.collect(), traces.collect());
        Self { partitions, traces, sizing: Moved::new(cache) }
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
        let moved = self.sizing.as_ref().map_or_else(String::new, Moved::table);
        format!("\n{partitions}\n{traces}{moved}")
    }
}

impl Moved {
    fn new(cache: &PartitionedCache) -> Option<Self> {
        if cache.settings().sizing == Sizing::Manual {
            return None;
        }
        let (pages, table_bytes) = cache.sizing();
        let names = &cache.settings().partitions;
        let moves = cache.moves().map(|one| OneMove {
            accesses: one.demanded,
            from: names[one.from.0 as usize].name.clone(),
            to: names[one.to.0 as usize].name.clone(),
            pages: one.frames,
            reason: one.reason.show(),
            expected_hit_ratio_before: f64::from(one.hits_before) / 1e6,
            expected_hit_ratio_after: f64::from(one.hits_after) / 1e6,
        });
        Some(Self { pages, table_bytes, moves: moves.collect() })
    }

    /// How much moved, and the last moves.
    fn table(&self) -> String {
        let last = self.moves.len().saturating_sub(SHOWN_MOVES);
        let moves = output::columns(
            &self.moves[last..],
            &[
                ("after accesses", |one| one.accesses.to_string()),
                ("from", |one| one.from.clone()),
                ("to", |one| one.to.clone()),
                ("pages", |one| one.pages.to_string()),
                ("reason", |one| one.reason.clone()),
                ("expected", |one| percent(one.expected_hit_ratio_after)),
            ],
            3,
        );
        format!("\nsizing moved {} pages; its last moves:\n{moves}", self.pages)
    }
}

/// Moves that a table shows; JSON has all that are remembered.
const SHOWN_MOVES: usize = 12;

#[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
fn hit_ratio(accesses: u64, misses: u64) -> f64 {
    (accesses - misses) as f64 / accesses.max(1) as f64
}
