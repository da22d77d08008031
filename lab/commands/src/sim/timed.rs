//! The whole cache in virtual time, with readahead, on a device or without one.
//!
//! A disk that takes one command at a time has an elevator in front of it, as on Linux 2.6; a
//! device that queues commands gets up to 32 of them, demands first.
//!
//! # Invariants
//! - The same plan gives the same rows, but for the time that the simulation takes.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use anyhow::{Context as _, Result, anyhow};
use forerun_console::failure::usage;
use forerun_console::{machine, output};
use forerun_core::cache::Settings;
use forerun_core::device::{self, Device};
use forerun_measure::cache::queues_commands;
use forerun_measure::record;
use forerun_sim::driver::{self, RunError, RunOutcome, Setup};
use forerun_sim::host::RequestOrder;
use forerun_sim::workload::Workload;

use super::Plan;
use super::case::{Case, seed};
use super::rows::{KeptRun, Record, Results, RunRow};
use super::source::Source;
use super::untimed;
use crate::kept::Kept;
use crate::specs::{PAGE_BYTES, Size};

/// Runs every combination of the plan on `source`.
pub(super) fn run(
    plan: &Plan,
    source: &Source,
    kept: &mut Kept<KeptRun>,
    results: &mut Results,
) -> Result<()> {
    source.tell_guess(&plan.reading)?;
    let shares = plan.sizes.iter().any(|size| matches!(size, Size::Share(_)));
    let of_trace = !matches!(source, Source::Workload(_));
    let (unique, end) = if shares || of_trace {
        let survey = untimed::surveyed(plan, source)?;
        (survey.unique, survey.end)
    } else {
        (0, 0)
    };
    let cases: Vec<Case<'_>> = cases(plan, unique);
    let progress = plan.reading.shown(output::progress(cases.len() as u64, &source.name()));
    let mut limits = BTreeMap::new();
    for case in &cases {
        let key = plan.key(source, *case);
        let run = if let Some(found) = kept.take(&key) {
            found
        } else {
            let (mut done, workload, device) = run_case(plan, source, *case, end)?;
            let place = (case.device, case.pages);
            if plan.online_limit && !limits.contains_key(&place) {
                limits.insert(place, limit(plan, source, *case, device.as_ref(), &workload)?);
            }
            done.limit(limits.get(&place).copied().flatten());
            let run = Record::run(plan, *case, &workload, device, (&done.outcome, done.limit));
            let run = KeptRun { row: done.row, run };
            kept.add(&key, &run)?;
            run
        };
        results.add(run);
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(())
}

fn cases(plan: &Plan, unique: u64) -> Vec<Case<'_>> {
    let mut cases = Vec::new();
    for device in plan.devices.iter().map(Option::as_deref) {
        for readahead in &plan.readaheads {
            for policy in &plan.policies {
                for size in &plan.sizes {
                    let pages = size.pages(unique);
                    cases.extend(plan.prefetches.iter().map(|prefetch| {
                        let prefetch = prefetch.as_ref();
                        Case { device, readahead, prefetch, policy, pages }
                    }));
                }
            }
        }
    }
    cases
}

/// A case that was run.
struct Done {
    row: RunRow,
    outcome: RunOutcome,
    limit: Option<f64>,
}

impl Done {
    fn limit(&mut self, limit: Option<f64>) {
        self.limit = limit;
        self.row.limited(limit);
    }
}

fn run_case(
    plan: &Plan,
    source: &Source,
    case: Case<'_>,
    end: u64,
) -> Result<(Done, Workload, Option<Device>)> {
    let name = source.name();
    let mut timed = source.workload(&plan.reading, end)?;
    let seed = seed(&timed.workload);
    let make = |spec| device::make(spec, seed).map_err(|error| anyhow!("{error}"));
    let device = case.device.map(make).transpose()?;
    let model = device.clone();
    let mut given = setup(plan, case, device);
    if plan.remembered {
        let before = setup(plan, case, model.clone());
        let mut workload = source.workload(&plan.reading, end)?.workload;
        let before = driver::run(before, &mut workload).map_err(|error| refused(error, &name))?;
        given.cache.remembered = before.device_record;
    }
    let begun = machine::now();
    let outcome = driver::run(given, &mut timed.workload).map_err(|error| refused(error, &name))?;
    let took = machine::now().since(begun);
    let broken = timed.broken.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(error) = broken {
        return Err(error.into());
    }
    let stats = &outcome.stats;
    let row = RunRow::new(&name, case.policy, case.pages, took)
        .context("cannot tell the parameters")?
        .counted(stats.demanded, stats.misses, stats.hits)
        .timed(case, model.as_ref(), &outcome)?;
    Ok((Done { row, outcome, limit: None }, timed.workload, model))
}

/// The result of perfect readahead in as much memory; none where no streams are known.
fn limit(
    plan: &Plan,
    source: &Source,
    case: Case<'_>,
    device: Option<&Device>,
    workload: &Workload,
) -> Result<Option<f64>> {
    let Some(device) = device.filter(|_| !workload.streams.is_empty()) else { return Ok(None) };
    let cache = setup(plan, case, Some(device.clone())).cache;
    let make = || Ok(source.workload(&plan.reading, 0)?.workload);
    record::online_limit(device, &make, &cache).map(Some)
}

fn setup(plan: &Plan, case: Case<'_>, device: Option<Device>) -> Setup {
    let mut cache = Settings::new(case.pages, case.policy, case.readahead);
    let queues = device.as_ref().is_none_or(queues_commands);
    if let Some(device) = &device {
        let pages = device.request_bytes_max() / u64::from(PAGE_BYTES);
        cache.request_pages_max = u32::try_from(pages).unwrap_or(u32::MAX);
    }
    let mut setup = Setup::new(cache, device);
    let (order, depth) =
        if queues { (RequestOrder::DemandFirst, 32) } else { (RequestOrder::Elevator, 1) };
    setup.prefetch = case.prefetch.cloned();
    setup.order = plan.host.unwrap_or(order);
    setup.depth = plan.depth.unwrap_or(depth);
    setup.page_cost = plan.page_cost;
    setup.log_max = plan.log_max;
    setup.windows_max = plan.windows_max as usize;
    setup
}

fn refused(error: RunError, name: &str) -> anyhow::Error {
    match error {
        RunError::Settings(error) => usage(format!("{name}: {error}")),
        RunError::Prefetch => usage(format!("--prefetch: {name}: {error}")),
        RunError::Device { .. } => {
            anyhow!("{name}: {error}; make the workload smaller or the device larger (capacity=)")
        }
        other => anyhow!("{name}: {other}; give the cache more with --size"),
    }
}
