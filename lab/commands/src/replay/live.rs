//! A replay in real time through the live engine: of a file, a folder, or a model over the pattern.
//!
//! ```text
//!   a file or device, a model     devices of the trace, one after the other, each a part of it
//!   a folder                      files of the trace, each the file of that path below it
//! ```
//! # Invariants
//! - Requests that write are scheduled only where `--write` is given.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use forerun_console::failure::usage;
use forerun_console::output;
use forerun_console::target::Target;
use forerun_core::params::{Bytes, Param as _};
use forerun_engine::Settings;
use forerun_io::files::Backend;
use forerun_io::store::Store;
use forerun_io::store::file::Access;
use forerun_measure::cache;
use forerun_measure::part::Part;
use forerun_measure::replay::{self, Place};
use forerun_sim::walks::names;
use forerun_sim::window_sizes::WindowSizes;

use super::{Args, Case, Plan, Replayed, partitions};
use crate::specs::PAGE_BYTES;

/// Replays one case of the plan on the model `device`, or on the file or folder `on`.
pub(super) fn run(
    plan: &Plan,
    case: Case<'_>,
    device: Option<&str>,
    on: Option<&Path>,
    args: &Args,
) -> Result<Replayed> {
    let access = if args.write { Access::ReadWrite } else { Access::Read };
    let (default, stores) = match (device, on) {
        (Some(spec), _) if spec.contains('*') => {
            return Err(usage("--real-time: of one device alone; leave out `*`"));
        }
        (Some(spec), _) => on_target(plan, &Target::model(spec, SEED)?, access, case)?,
        (None, Some(folder)) if folder.is_dir() => in_folder(plan, folder, case)?,
        (None, Some(path)) => {
            let target = Target::file_for(path.to_owned(), Backend::Auto, access)?;
            on_target(plan, &target, access, case)?
        }
        (None, None) => return Err(usage("give --on PATH or --device MODEL")),
    };
    let settings = settings(plan, case, default, args);
    let core = super::core_of(&settings)?;
    let partitions = plan.live_partitions(&core);
    let place = |((name, store, base), client)| Place { name, store, base, client };
    let places = stores.into_iter().zip(partitions).map(place).collect();
    let slots = (plan.pace, plan.until, plan.slots, args.write);
    let mut scheduled = plan.layout.scheduled(&plan.source, &plan.reading, slots)?;
    let workload = std::mem::take(&mut scheduled.workload);
    let progress = output::progress(plan.layout.requests - plan.left_out(args), case.policy);
    let paced = (workload, plan.pace);
    let replayed = replay::run((places, access), paced, settings, &mut |count| {
        progress.set_position(count);
    });
    progress.finish_and_clear();
    let replayed = replayed?;
    scheduled.require_whole()?;
    let mut window_sizes = WindowSizes::default();
    for window in &replayed.windows {
        window_sizes.note(window.at, window.decision.window.size);
    }
    Ok(Replayed {
        hits: replayed.stats.hits(),
        pages: replayed.stats.pages(),
        device_requests: replayed.device_requests,
        bytes_read: replayed.device_bytes.0,
        bytes_written: replayed.device_bytes.1,
        flush: replayed.flush,
        busy: Some(replayed.busy),
        late_p99: Some(replayed.late.percentile(99)),
        responses: replayed.responses,
        elapsed: replayed.elapsed,
        window_sizes,
        partitions: partitions::counts(replayed.partitions, &plan.partitions),
    })
}

/// A file of the trace: its name in errors, its bytes, and where in the pattern these begin.
type TraceFile = (String, Arc<dyn Store>, u64);

/// The devices of the trace, one after the other on `target`.
fn on_target(
    plan: &Plan,
    target: &Target,
    access: Access,
    case: Case<'_>,
) -> Result<(Settings, Vec<TraceFile>)> {
    let layout = &plan.layout;
    let there = target.bytes();
    let (mut base, mut places) = (0, Vec::new());
    for (&bytes, &end) in layout.files.iter().zip(&layout.ends) {
        let wanted = base + end;
        if wanted > there {
            bail!(
                "{}: the trace reaches to byte {} at least, {} ends at {}; replay it on a larger \
                 file, or a part of it (--limit)",
                plan.source.name(),
                Bytes(wanted).show(),
                target.name(),
                Bytes(there).show()
            );
        }
        places.push((base, bytes.min(there - base)));
        base += bytes;
    }
    let store = target.open(base.min(there))?.store;
    let versions = access == Access::Read || places.len() == 1;
    let part = |(base, bytes)| -> TraceFile {
        (target.name(), Arc::new(Part::new(Arc::clone(&store), base, bytes, versions)), base)
    };
    let cache_bytes = u64::from(case.pages) * u64::from(PAGE_BYTES);
    Ok((cache::settings(target, cache_bytes), places.into_iter().map(part).collect()))
}

/// The files of the trace below `folder`.
fn in_folder(plan: &Plan, folder: &Path, case: Case<'_>) -> Result<(Settings, Vec<TraceFile>)> {
    if !plan.layout.named {
        let folder = folder.display();
        return Err(usage(format!(
            "--on {folder}: it is a folder, and the trace has no files with paths, as those of \
             `trace record` have; name a file or a block device"
        )));
    }
    let mut settings = Settings::default();
    let mut files: Vec<TraceFile> = Vec::new();
    for (name, &end) in plan.layout.names.iter().zip(&plan.layout.ends) {
        let path = below(folder, name)?;
        let target = Target::file(path, Backend::Auto)?;
        if end > target.bytes() {
            bail!(
                "{}: the trace reads to byte {end}, the file ends at {}; replay it on the files as \
                 they were",
                target.name(),
                target.bytes()
            );
        }
        let cache_bytes = u64::from(case.pages) * u64::from(PAGE_BYTES);
        settings = cache::settings(&target, cache_bytes);
        files.push((target.name(), target.open(end)?.store, 0));
    }
    Ok((settings, files))
}

/// The path `name`, as traces have it, below `folder`.
fn below(folder: &Path, name: &str) -> Result<PathBuf> {
    let path = names::decoded(name).map(|bytes| PathBuf::from(OsString::from_vec(bytes)));
    let inside = |path: &PathBuf| path.components().all(|one| matches!(one, Component::Normal(_)));
    match path.filter(inside) {
        Some(path) => Ok(folder.join(path)),
        None => bail!("{name}: this path of the trace does not lie below a folder"),
    }
}

impl Plan {
    /// The client that opens each file of the trace, by its partition.
    fn live_partitions(&self, core: &forerun_core::cache::Settings) -> Vec<Option<String>> {
        let mut given = core.clone();
        for (partition, own) in given.partitions[1..].iter_mut().zip(&self.partitions) {
            partition.rule = own.rule.clone();
        }
        let partitions = partitions::of_devices(&given, &self.layout.names);
        partitions.into_iter().map(partitions::client).collect()
    }
}

fn settings(plan: &Plan, case: Case<'_>, default: Settings, args: &Args) -> Settings {
    let largest = args.request_max.map(|Bytes(bytes)| u32::try_from(bytes).unwrap_or(u32::MAX));
    let request_bytes_max = largest.unwrap_or(default.request_bytes_max);
    let partitions = partitions::live(&plan.partitions);
    plan.settings(case, Settings { partitions, request_bytes_max, ..default })
}

/// Of the models' draws.
const SEED: u64 = 1;
