//! A replay in virtual time: the core, host queues, and the models of one device or several.
//!
//! # Invariants
//! - The same plan gives the same figures.
//! - The core has the settings that it has in the live engine.

use anyhow::{Result, anyhow};
use forerun_console::failure::usage;
use forerun_engine::Settings;
use forerun_measure::cache::queues_commands;
use forerun_sim::driver::{self, RunError, Setup};
use forerun_sim::host::RequestOrder;
use forerun_sim::striped::Striped;

use super::{Case, Plan, Replayed, partitions};
use crate::specs::PAGE_BYTES;

/// Replays one case of the plan on the model `spec`.
pub(super) fn run(plan: &Plan, case: Case<'_>, spec: &str) -> Result<Replayed> {
    let set = Striped::make(spec, SEED).map_err(|error| anyhow!("{error}"))?;
    let slots = (plan.pace, plan.until, plan.slots, true);
    let mut scheduled = plan.layout.scheduled(&plan.source, &plan.reading, slots)?;
    let setup = setup(plan, case, set)?;
    let name = || plan.source.name();
    let outcome = driver::run(setup, &mut scheduled.workload).map_err(|error| match error {
        RunError::Settings(error) => usage(format!("--cache: {error}")),
        RunError::Device { .. } => {
            anyhow!("{}: {error}; give a larger device (capacity=) or more of them", name())
        }
        other => anyhow!("{}: {other}; give the cache more with --cache", name()),
    })?;
    scheduled.require_whole()?;
    let warm = outcome.warm;
    Ok(Replayed {
        responses: outcome.responses,
        elapsed: outcome.elapsed.since(warm.elapsed),
        hits: outcome.stats.hits - warm.stats.hits,
        pages: outcome.stats.demanded - warm.stats.demanded,
        device_requests: outcome.requests,
        bytes_read: outcome.bytes_read,
        bytes_written: outcome.bytes_written,
        busy: Some(outcome.busy.since(warm.busy)),
        flush: None,
        late_p99: None,
        window_sizes: outcome.window_sizes,
        partitions: outcome.partitions,
    })
}

fn setup(plan: &Plan, case: Case<'_>, set: Striped) -> Result<Setup> {
    let device = &set.members()[0];
    let settings = plan.settings(
        case,
        Settings {
            cache_bytes: u64::from(case.pages) * u64::from(PAGE_BYTES),
            partitions: plan.partitions.clone(),
            request_bytes_max: u32::try_from(device.request_bytes_max()).unwrap_or(u32::MAX),
            ..Settings::default()
        },
    );
    let cache = super::core_of(&settings)?;
    let partitions = partitions::of_devices(&cache, &plan.layout.names);
    let (queues, members) = (queues_commands(device), set.members().len());
    let mut setup = Setup::new(cache, None);
    if !queues {
        (setup.order, setup.depth) = (RequestOrder::Elevator, 1);
    }
    setup.device = Some(set);
    setup.writes = true;
    // The live engine has one device.
    setup.writes_max = settings.background_depth as usize * members;
    setup.warm_up = plan.warm_up;
    setup.partitions = partitions;
    Ok(setup)
}

/// Of the models' draws.
const SEED: u64 = 1;
