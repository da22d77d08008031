//! What runs came to, as the record of a page, and the run of each policy in it.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use forerun_core::cache;
use forerun_core::params::{Bytes, Param as _};
use forerun_core::readahead;
use forerun_core::units::Nanos;
use forerun_report::{Run, RunRecord};
use forerun_sim::driver::{self, Setup, rate};
use forerun_sim::host::Order;
use forerun_sim::oracle::PerfectReadahead;

use super::live::Measured;
use super::pattern::{made, shortened};
use super::target::Target;
use crate::specs::PAGE_BYTES;
use crate::{machine, sim};

/// A record of this machine, without runs.
pub(crate) fn empty(device: String, seed: u64, settings: &[(&str, String)]) -> RunRecord {
    let setting = |(key, value): &(&str, String)| ((*key).to_owned(), value.clone());
    RunRecord {
        commit: machine::COMMIT.to_owned(),
        machine: machine::machine(),
        date: machine::date(),
        command: std::env::args().collect(),
        device,
        settings: settings.iter().map(setting).collect(),
        seed,
        repeats: 1,
        ..RunRecord::default()
    }
}

/// The settings of a run, as records tell them.
pub(crate) fn settings(engine: &forerun_engine::Settings) -> Vec<(&'static str, String)> {
    vec![
        ("cache", Bytes(engine.cache_bytes).show()),
        ("page", engine.page_bytes.to_string()),
        ("policy", engine.policy.clone()),
        ("request_max", Bytes(engine.request_bytes_max.into()).show()),
        ("depth", engine.background_depth.to_string()),
    ]
}

/// A live run in a record's form.
pub(crate) fn run(
    target: &Target,
    readahead: &str,
    reads: &str,
    streams: u32,
    limit: Option<f64>,
    measured: Measured,
) -> Result<Run> {
    let (name, params) = policy(readahead)?;
    let mb_per_second = rate(measured.bytes_wanted, measured.elapsed);
    let micros = |time: Nanos| machine::seconds(time) * 1e6;
    let kept = measured.requests.len() as u64;
    Ok(Run {
        readahead: name,
        params,
        device: target.name(),
        emulated: target.device().is_some(),
        drive_cache: target.device().and_then(|device| drive_cache(&device)),
        streams,
        workload: shortened(reads),
        mb_per_second,
        delay_seconds: machine::seconds(measured.stats.waited),
        device_requests: measured.device_requests,
        mean_request_bytes: measured.bytes_read / measured.device_requests.max(1),
        bytes_read: measured.bytes_read,
        bytes_wanted: measured.bytes_wanted,
        limit_mb_per_second: limit,
        ratio_to_limit: limit.filter(|&limit| limit > 0.0).map(|limit| mb_per_second / limit),
        p50_us: micros(measured.stats.latency.p50()),
        p99_us: micros(measured.stats.latency.p99()),
        spread: None,
        requests: measured.requests,
        requests_left_out: measured.device_requests.saturating_sub(kept),
    })
}

/// The name and the parameters that were given.
pub(crate) fn policy(readahead: &str) -> Result<(String, BTreeMap<String, String>)> {
    let made = readahead::make(readahead, PAGE_BYTES).map_err(|error| anyhow!("{error}"))?;
    let params = made.params.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    Ok((made.name.to_owned(), params))
}

/// Whether the drive's own cache is on, where it has one.
pub(crate) fn drive_cache(device: &forerun_core::device::Device) -> Option<bool> {
    let cache = device.params().iter().find(|(key, _)| *key == "cache");
    cache.map(|(_, value)| value == "on")
}

/// What perfect readahead reaches with the same cache on the same model, in virtual time, where a
/// hit costs nothing: the device's limit, on any machine. `None` on a file.
pub(crate) fn limit(target: &Target, known: &str, cache: cache::Settings) -> Result<Option<f64>> {
    let Some(device) = target.device() else { return Ok(None) };
    let mut workload = made(known)?;
    let oracle = PerfectReadahead::new(&workload, &cache);
    let queues = sim::queues_commands(&device);
    let mut setup = Setup::new(cache, Some(device));
    (setup.order, setup.depth) =
        if queues { (Order::DemandFirst, DEPTH) } else { (Order::Elevator, 1) };
    setup.page_cost = Nanos(0);
    setup.oracle = Some(Box::new(oracle));
    let outcome = driver::run(setup, &mut workload)
        .map_err(|error| anyhow!("the limit cannot be computed: {error}"))?;
    Ok(Some(outcome.mb_per_second()))
}

/// Requests that a device with a queue of its own gets at once.
const DEPTH: u32 = 64;
