//! The results of a replay: as JSON, and as a table.
//!
//! # Invariants
//! - What is not known is null in JSON, and empty in the table.

use anyhow::{Result, anyhow};
use forerun_console::output::{self, Column};
use forerun_core::units::Nanos;
use forerun_report::quantity;
use forerun_sim::replay;
use serde::Serialize;

use super::{Case, Plan, Replayed};
use crate::specs::PAGE_BYTES;

/// One row.
#[derive(Serialize)]
pub(super) struct Row {
    trace: String,
    policy: String,
    readahead: String,
    cache_pages: u32,
    /// Requests that were answered.
    requests: u64,
    mean_response_us: f64,
    /// Of requests that read, and of those that write.
    mean_read_us: f64,
    mean_write_us: f64,
    p50_us: f64,
    p99_us: f64,
    seconds: f64,
    ops_per_second: f64,
    /// The share of the time in which the device had requests, on average over its members.
    device_busy_share: Option<f64>,
    hit_ratio: f64,
    device_requests: u64,
    bytes_read: u64,
    bytes_written: u64,
    /// Of a readahead window, on average.
    mean_window_bytes: Option<f64>,
    /// How late requests were made, in real time.
    late_p99_us: Option<f64>,
}

impl Row {
    /// The row of one case.
    #[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
    pub(super) fn new(plan: &Plan, case: Case<'_>, replayed: &Replayed) -> Result<Self> {
        replay::show(case.policy).map_err(|error| anyhow!("{error}"))?;
        let seconds = quantity::seconds(replayed.elapsed);
        let requests = replayed.responses.count();
        let responses = &replayed.responses;
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
            mean_window_bytes: replayed.window_pages.map(|pages| pages * f64::from(PAGE_BYTES)),
            late_p99_us: replayed.late_p99.map(quantity::micros),
        })
    }
}

/// The rows as a table, and what was left out.
pub(super) fn text(rows: &[Row], left_out: u64) -> String {
    #[rustfmt::skip]
    let columns: [Column<Row>; 11] = [
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
    let table = output::columns(rows, &columns, 2);
    if left_out == 0 {
        return table;
    }
    format!("{table}{} requests that write were left out\n", quantity::count(left_out))
}
