//! The results of runs, as the record of a page, and the limit that they are measured against.
//!
//! # Invariants
//! - A figure of a model has its limit, computed for the same reads, model and memory; a figure of
//!   a file has none.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, anyhow};
use forerun_console::machine;
use forerun_console::specs::PAGE_BYTES;
use forerun_console::target::Target;
use forerun_core::cache;
use forerun_core::device::Device;
use forerun_core::params::{Bytes, Param as _};
use forerun_core::readahead;
use forerun_core::units::Nanos;
use forerun_report::quantity;
use forerun_report::{Run, RunRecord};
use forerun_sim::driver::{self, Setup, rate};
use forerun_sim::host::RequestOrder;
use forerun_sim::oracle::{Gaps, PerfectReadahead};
use forerun_sim::workload::Workload;

use crate::pattern::{shortened, workload_of};

use crate::cache::queues_commands;
use crate::live::{LiveRun, RunResult};

/// A record of this machine, without runs.
#[must_use]
pub fn empty(device: String, seed: u64, settings: &[(&str, String)]) -> RunRecord {
    let setting = |(key, value): &(&str, String)| ((*key).to_owned(), value.clone());
    RunRecord {
        commit: machine::commit().to_owned(),
        machine: machine::machine(),
        date: machine::date(),
        command: machine::command(),
        device,
        settings: settings.iter().map(setting).collect(),
        seed,
        repeats: 1,
        ..RunRecord::default()
    }
}

/// The settings of a run, as records hold them.
#[must_use]
pub fn settings(engine: &forerun_engine::Settings) -> Vec<(&'static str, String)> {
    vec![
        ("cache", Bytes(engine.cache_bytes).show()),
        ("page", engine.page_bytes.to_string()),
        ("policy", engine.policy.clone()),
        ("request_max", Bytes(engine.request_bytes_max.into()).show()),
        ("depth", depth(engine)),
    ]
}

/// The bounds of a file's readahead requests in flight, where the device decides: from, to.
fn depth(engine: &forerun_engine::Settings) -> String {
    match (engine.background_depth, engine.background_depth_max) {
        (least, most) if least < most => format!("{least} to {most}"),
        (_, most) => most.to_string(),
    }
}

impl LiveRun<'_> {
    /// Runs, and gives the run in a record's form; see [`run`](Self::run) and [`run`](run()).
    pub fn record(
        &self,
        streams: u32,
        limit: Option<f64>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Run> {
        let (measured, policy) = (self.run(progress)?, policy(&self.settings.readahead)?);
        Ok(run(self.target, policy, self.reads, streams, limit, measured))
    }
}

/// A live run in a record's form; `name` and `params` are those of the policy.
#[must_use]
pub fn run(
    target: &Target,
    (name, params): (String, BTreeMap<String, String>),
    reads: &str,
    streams: u32,
    limit: Option<f64>,
    measured: RunResult,
) -> Run {
    let mb_per_second = rate(measured.bytes_wanted, measured.elapsed);
    let micros = |time: Duration| quantity::seconds(time) * 1e6;
    let kept = measured.requests.len() as u64;
    Run {
        readahead: name,
        params,
        device: target.name(),
        emulated: target.device().is_some(),
        drive_cache: target.device().and_then(|device| drive_cache(&device)),
        streams,
        workload: shortened(reads),
        mb_per_second,
        delay_seconds: quantity::seconds(measured.stats.waited),
        device_requests: measured.device_requests,
        mean_request_bytes: measured.bytes_read / measured.device_requests.max(1),
        bytes_read: measured.bytes_read,
        bytes_wanted: measured.bytes_wanted,
        limit_mb_per_second: limit,
        ratio_to_limit: limit.filter(|&limit| limit > 0.0).map(|limit| mb_per_second / limit),
        p50_us: micros(measured.latency.p50()),
        p99_us: micros(measured.latency.p99()),
        late_max_seconds: None,
        waits: None,
        spread: None,
        requests: measured.requests,
        requests_left_out: measured.device_requests.saturating_sub(kept),
        windows: measured.windows,
        windows_left_out: measured.windows_left_out,
    }
}

/// The name and the parameters of a readahead specification.
pub fn policy(readahead: &str) -> Result<(String, BTreeMap<String, String>)> {
    let made = readahead::make(readahead, PAGE_BYTES).map_err(|error| anyhow!("{error}"))?;
    let params = made.params.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    Ok((made.name.to_owned(), params))
}

/// Whether the drive's own cache is on, where it has one.
#[must_use]
pub fn drive_cache(device: &Device) -> Option<bool> {
    let cache = device.params().iter().find(|(key, _)| *key == "cache");
    cache.map(|(_, value)| value == "on")
}

/// The [`online_limit`] of the reads that `known` makes. `None` on a file.
pub fn limit(target: &Target, known: &str, cache: &cache::Settings) -> Result<Option<f64>> {
    let device = target.device();
    device.map(|device| online_limit(&device, &|| workload_of(known), cache)).transpose()
}

/// The throughput of perfect readahead with the same memory on an idle `device`, in virtual time at
/// no cost of hits: the limit of the reads that `make` makes, on any machine.
///
/// The oracle knows what to fetch, but not the device, so the best of several ways counts: long
/// windows or windows of one request (which a disk may like better, as a command that continues
/// the last one can lose a turn), gaps left out or read, an elevator or the device's own queue.
pub fn online_limit(
    device: &Device,
    make: &dyn Fn() -> Result<Workload>,
    cache: &cache::Settings,
) -> Result<f64> {
    let ways = if queues_commands(device) {
        &[(RequestOrder::Elevator, 1), (RequestOrder::DemandFirst, DEPTH)][..]
    } else {
        &[(RequestOrder::Elevator, 1), (RequestOrder::DemandFirst, 1)][..]
    };
    let mut windows = vec![u32::MAX, WINDOW_BYTES / cache.page_bytes, cache.request_pages_max];
    windows.dedup();
    let mut best = 0.0_f64;
    let gaps = [Gaps::Skipped, Gaps::Read];
    let windows = windows.iter().flat_map(|&pages| gaps.map(|gaps| (pages, gaps)));
    for (window_pages, gaps) in windows {
        for &(order, depth) in ways {
            let mut workload = make()?;
            if gaps == Gaps::Read && workload.streams.iter().all(|known| known.piece == known.every)
            {
                continue;
            }
            let oracle = oracle(&workload, cache, window_pages, gaps);
            let mut setup = Setup::new(roomy(cache, &workload), Some(device.clone()));
            (setup.order, setup.depth, setup.page_cost) = (order, depth, Nanos(0));
            setup.oracle = Some(Box::new(oracle));
            let outcome = driver::run(setup, &mut workload)
                .map_err(|error| anyhow!("the limit cannot be computed: {error}"))?;
            best = best.max(outcome.mb_per_second());
        }
    }
    Ok(best)
}

/// An oracle with windows of at most `window_pages`.
fn oracle(
    workload: &Workload,
    cache: &cache::Settings,
    window_pages: u32,
    gaps: Gaps,
) -> PerfectReadahead {
    let streams = u32::try_from(workload.streams.len().max(1)).unwrap_or(u32::MAX);
    let ahead = window_pages.saturating_mul(2).saturating_mul(streams);
    let ahead_pages_max = cache.ahead_pages_max.min(ahead);
    PerfectReadahead::new(workload, &cache::Settings { ahead_pages_max, ..cache.clone() }, gaps)
}

/// The same memory for prefetched pages, and room for pages already read: a good policy evicts no
/// prefetched page before a read one, and here the policy need not evict at all.
fn roomy(cache: &cache::Settings, workload: &Workload) -> cache::Settings {
    let pages = workload.bytes_wanted.div_ceil(cache.page_bytes.into());
    let pages = u32::try_from(pages).unwrap_or(u32::MAX).saturating_add(cache.frames);
    let frames = cache.frames.saturating_mul(ROOM).min(pages).max(cache.frames);
    let partition = cache::PartitionSettings::new(cache::REST, frames, "fifo");
    cache::Settings { frames, partitions: vec![partition], ..cache.clone() }
}

/// Requests that a device with a queue of its own gets at once.
const DEPTH: u32 = 64;
/// A window that most disks and networks like.
const WINDOW_BYTES: u32 = 1 << 20;
/// Times the memory: streams in turn are read at like pace, so less than this is between a page's
/// arrival and its use.
const ROOM: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::settings as settings_of;

    #[test]
    fn nothing_is_faster_than_the_limit_in_its_own_time() {
        #[rustfmt::skip]
        let rows = [ // device   workload                                      cache
            ("t7k250",  "streams,n=1,each=4M",                                64_u64 << 20),
            ("t7k250",  "streams,n=2,each=4M,layout=spread",                  64 << 20),
            ("t7k250",  "streams,n=10,each=4M",                               64 << 20),
            ("hdd",     "streams,n=10,each=4M,order=alternate",               32 << 20),
            ("cloud",   "streams,n=10,each=4M,readers=3",                     64 << 20),
            ("object",  "streams,n=3,each=4M,order=sequential",               64 << 20),
            ("t7k250",  "disturb,percent=1,sequential=8M",                    64 << 20),
            ("t7k250",  "parquet,columns=4",                                  64 << 20),
            ("hdd",     "stride,n=1,each=4M,piece=64K,every=256K",            64 << 20),
            ("cloud",   "stride,n=3,each=1M,piece=16K,every=100K",            64 << 20),
            ("object",  "stride,n=1,each=256K,piece=4K,every=64K",            64 << 20),
        ];
        for (spec, reads, cache_bytes) in rows {
            let target = Target::model(spec, 1).unwrap();
            let core = settings_of(&target, cache_bytes).core().unwrap();
            let limit = limit(&target, reads, &core).unwrap().expect("it is a model");
            for readahead in ["linux-2.6.22", "linux-2.6.24", "linux-6", "streams"] {
                let cache = cache::Settings { readahead: readahead.into(), ..core.clone() };
                let mut setup = Setup::new(cache, target.device());
                (setup.depth, setup.page_cost) = (1, Nanos(0));
                let run = driver::run(setup, &mut workload_of(reads).unwrap()).unwrap();
                let reached = run.mb_per_second();
                assert!(reached <= limit * 1.001, "{spec} {reads} {readahead}: {reached}, {limit}");
            }
        }
    }
}
