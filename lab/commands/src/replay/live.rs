//! A replay in real time through the live engine: of a file, or of a model over the pattern.
//!
//! # Invariants
//! - Nothing is written: requests that write are not scheduled.

use std::path::Path;

use anyhow::{Result, bail};
use forerun_console::failure::usage;
use forerun_console::output;
use forerun_console::target::Target;
use forerun_core::params::{Bytes, Param as _};
use forerun_engine::Settings;
use forerun_io::files::Backend;
use forerun_measure::windows::WINDOWS_MAX;
use forerun_measure::{cache, replay};

use super::{Args, Case, Plan, Replayed};
use crate::specs::PAGE_BYTES;

/// Replays one case of the plan on the model `device`, or on the file `on`.
pub(super) fn run(
    plan: &Plan,
    case: Case<'_>,
    device: Option<&str>,
    on: Option<&Path>,
    args: &Args,
) -> Result<Replayed> {
    let target = match (device, on) {
        (Some(spec), _) if spec.contains('*') => {
            return Err(usage("--real-time: of one device alone; leave out `*`"));
        }
        (Some(spec), _) => Target::model(spec, SEED)?,
        (None, Some(path)) => Target::file(path.to_owned(), Backend::Auto)?,
        (None, None) => return Err(usage("give --on PATH or --device MODEL")),
    };
    let (wanted, there) = (plan.layout.bytes(), target.bytes());
    if wanted > there {
        bail!(
            "{}: the trace reaches to byte {}, {} ends at {}; replay it on a larger file, or a \
             part of it (--limit)",
            plan.source.name(),
            Bytes(wanted).show(),
            target.name(),
            Bytes(there).show()
        );
    }
    let settings = settings(&target, case, args);
    super::check(&settings)?;
    let slots = (plan.pace, plan.slots, false);
    let mut scheduled = plan.layout.scheduled(&plan.source, &plan.reading, slots)?;
    let workload = std::mem::take(&mut scheduled.workload);
    let requests = plan.layout.requests - plan.layout.writes;
    let progress = output::progress(requests, case.policy);
    let replayed = replay::run(&target, workload, &plan.layout.bases(), settings, &mut |count| {
        progress.set_position(count);
    });
    progress.finish_and_clear();
    let replayed = replayed?;
    scheduled.require_whole()?;
    let windows = replayed.windows.iter().map(|window| window.decision.window.size);
    Ok(Replayed {
        window_pages: super::mean(windows),
        hits: replayed.stats.hits(),
        pages: replayed.stats.pages(),
        device_requests: replayed.device.0,
        bytes_read: replayed.device.1,
        bytes_written: 0,
        busy: Some(replayed.busy),
        late_p99: Some(replayed.late.percentile(99)),
        responses: replayed.responses,
        elapsed: replayed.elapsed,
    })
}

fn settings(target: &Target, case: Case<'_>, args: &Args) -> Settings {
    let bytes = u64::from(case.pages) * u64::from(PAGE_BYTES);
    let default = cache::settings(target, bytes);
    let largest = args.request_max.map(|Bytes(bytes)| u32::try_from(bytes).unwrap_or(u32::MAX));
    Settings {
        policy: case.policy.to_owned(),
        readahead: case.readahead.to_owned(),
        windows_max: WINDOWS_MAX,
        request_bytes_max: largest.unwrap_or(default.request_bytes_max),
        ..default
    }
}

/// Of the models' draws.
const SEED: u64 = 1;
