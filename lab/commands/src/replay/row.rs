//! The results of a replay: as JSON, and as a table.
//!
//! # Invariants
//! - What is not known is null in JSON, and empty in the table.

use std::fmt::Write as _;

use anyhow::{Result, anyhow};
use forerun_console::output::{self, Column};
use forerun_core::units::Nanos;
use forerun_report::quantity;
use forerun_sim::driver::PartitionCounts;
use forerun_sim::replay;
use serde::{Deserialize, Serialize};

use super::{Case, Plan, Replayed};
use crate::specs::PAGE_BYTES;

/// One row.
#[derive(Serialize, Deserialize)]
pub(super) struct Row {
    trace: String,
    pub(super) policy: String,
    pub(super) readahead: String,
    pub(super) cache_pages: u32,
    /// Requests that were answered.
    pub(super) requests: u64,
    pub(super) mean_response_us: f64,
    /// Of requests that read, and of those that write.
    mean_read_us: f64,
    mean_write_us: f64,
    p50_us: f64,
    pub(super) p99_us: f64,
    seconds: f64,
    ops_per_second: f64,
    /// The share of the time in which the device had requests, on average over its members.
    device_busy_share: Option<f64>,
    pub(super) hit_ratio: f64,
    device_requests: u64,
    bytes_read: u64,
    bytes_written: u64,
    /// Of a readahead window, on average.
    mean_window_bytes: Option<f64>,
    /// From the last answer until all was durable, where something was written on a path.
    flush_seconds: Option<f64>,
    /// How late requests were made, in real time.
    late_p99_us: Option<f64>,
    /// Where the cache has several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    partitions: Vec<Part>,
}

/// One partition at the end.
#[derive(Serialize, Deserialize)]
struct Part {
    name: String,
    rule: String,
    policy: String,
    pages: u32,
    used_pages: u32,
    accesses: u64,
    hit_ratio: f64,
}

impl From<&PartitionCounts> for Part {
    fn from(counts: &PartitionCounts) -> Self {
        let PartitionCounts { name, rule, policy, pages, demanded } = counts.clone();
        let ((pages, used_pages), accesses) = (pages, demanded.0);
        let hit_ratio = quantity::ratio(demanded.1, accesses.max(1));
        Self { name, rule, policy, pages, used_pages, accesses, hit_ratio }
    }
}

impl Row {
    /// The row of one case.
    #[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
    pub(super) fn new(plan: &Plan, case: Case<'_>, replayed: &Replayed) -> Result<Self> {
        replay::show(case.policy).map_err(|error| anyhow!("{error}"))?;
        let seconds = quantity::seconds(replayed.elapsed);
        let requests = replayed.responses.count();
        let responses = &replayed.responses;
        let pages = replayed.window_sizes.mean();
        let several = replayed.partitions.len() > 1;
        let parts = replayed.partitions.iter().filter(|_| several).map(Part::from);
        let share = |busy: Nanos| quantity::ratio(busy.0, replayed.elapsed.0.max(1));
        Ok(Self {
            trace: plan.source.name(),
            policy: case.policy.to_owned(),
            readahead: case.readahead.to_owned(),
            cache_pages: case.pages,
            requests,
            mean_response_us: quantity::micros(responses.mean()),
            mean_read_us: quantity::micros(responses.mean_of_reads()),
            mean_write_us: quantity::micros(responses.mean_of_writes()),
            p50_us: quantity::micros(responses.all.percentile(50)),
            p99_us: quantity::micros(responses.all.percentile(99)),
            seconds,
            ops_per_second: requests as f64 / seconds.max(1e-9),
            device_busy_share: replayed.busy.map(share),
            hit_ratio: quantity::ratio(replayed.hits, replayed.pages.max(1)),
            device_requests: replayed.device_requests,
            bytes_read: replayed.bytes_read,
            bytes_written: replayed.bytes_written,
            mean_window_bytes: pages.map(|pages| pages * f64::from(PAGE_BYTES)),
            flush_seconds: replayed.flush.map(quantity::seconds),
            late_p99_us: replayed.late_p99.map(quantity::micros),
            partitions: parts.collect(),
        })
    }
}

impl Row {
    /// The policy, readahead and size.
    fn title(&self) -> String {
        let bytes = u64::from(self.cache_pages) * u64::from(PAGE_BYTES);
        format!("{}, readahead {}, {}", self.policy, self.readahead, quantity::bytes(bytes))
    }
}

/// The rows as a table, their partitions, and what was left out.
pub(super) fn text(rows: &[&Row], left_out: u64) -> String {
    #[rustfmt::skip]
    let columns: [Column<&Row>; 11] = [
        ("policy",    |row| row.policy.clone()),
        ("readahead", |row| row.readahead.clone()),
        ("cache",     |row| quantity::bytes(u64::from(row.cache_pages) * u64::from(PAGE_BYTES))),
        ("requests",  |row| quantity::count(row.requests)),
        ("mean us",   |row| quantity::figure(row.mean_response_us)),
        ("p99 us",    |row| quantity::figure(row.p99_us)),
        ("ops/s",     |row| quantity::figure(row.ops_per_second)),
        ("busy",      |row| row.device_busy_share.map(quantity::percent).unwrap_or_default()),
        ("hit ratio", |row| format!("{:.2} %", row.hit_ratio * 100.0)),
        ("window",    |row| row.mean_window_bytes.map(|bytes| {
            format!("{} K", quantity::figure(bytes / 1_024.0))
        }).unwrap_or_default()),
        ("late p99",  |row| row.late_p99_us.map(|us| quantity::time(us / 1e6)).unwrap_or_default()),
    ];
    let mut text = output::columns(rows, &columns, 2);
    for row in rows.iter().filter(|row| !row.partitions.is_empty()) {
        let _ = write!(text, "\n{}\n{}", row.title(), parts(&row.partitions));
    }
    if left_out > 0 {
        let _ = writeln!(text, "{} requests that write were left out", quantity::count(left_out));
    }
    text
}

fn parts(parts: &[Part]) -> String {
    #[rustfmt::skip]
    let columns: [Column<Part>; 6] = [
        ("partition", |part| part.name.clone()),
        ("policy",    |part| part.policy.clone()),
        ("rule",      |part| part.rule.clone()),
        ("pages",     |part| quantity::count(part.pages.into())),
        ("accesses",  |part| quantity::count(part.accesses)),
        ("hit ratio", |part| format!("{:.2} %", part.hit_ratio * 100.0)),
    ];
    output::columns(parts, &columns, 3)
}
