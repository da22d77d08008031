//! The virtual-time part: the paper's own experiments at their sizes, in the simulator.
//!
//! The memory is that of the paper's machine. Its kernel's elevator stood before a disk that took
//! one command at a time.
//!
//! # Sources
//! Wu, Xi, Xu, "File Prefetching Algorithm for Concurrent Streams" (2010), sections 4.2 and 4.3:
//! Linux 2.6.22 against 2.6.24, windows up to 1 MB, 2 GB of memory, the drive's cache off.

use anyhow::{Result, anyhow};
use forerun_core::cache::Settings;
use forerun_core::params::{Bytes, Param as _};
use forerun_measure::pattern::{shortened, workload_of};
use forerun_measure::record;
use forerun_report::{Run, RunRecord};
use forerun_sim::driver::{self, RunOutcome, Setup};
use forerun_sim::host::RequestOrder;

use super::{DEMAND, LEGACY, model};
use crate::parallel;
use crate::sim::rows::run_of;
use crate::specs::PAGE_BYTES;

/// One experiment: a workload's text, its number of streams, and requests to keep.
struct Case {
    reads: String,
    streams: u32,
    log_max: usize,
}

/// The runs of both policies.
pub(super) fn record() -> Result<RunRecord> {
    let cases: Vec<Case> = cases();
    let settings = [
        ("cache", MEMORY.show()),
        ("page", PAGE_BYTES.to_string()),
        ("policy", "lru".to_owned()),
        ("time", "virtual".to_owned()),
    ];
    let mut record = record::empty(model()?.name(), SEED, &settings);
    for runs in parallel::map(&cases, runs) {
        record.runs.extend(runs?);
    }
    Ok(record)
}

/// Figs 11 and 12, then Figs 6, 7 and 10.
fn cases() -> Vec<Case> {
    let streams = (1..=10).map(|n| Case {
        reads: format!("streams,n={n},each=100M,seed={SEED}"),
        streams: n,
        log_max: 0,
    });
    let disturb = Case {
        reads: format!("disturb,percent=1,sequential=100M,seed={SEED}"),
        streams: 1,
        log_max: LOG_MAX,
    };
    streams.chain([disturb]).collect()
}

fn runs(case: &Case) -> Result<Vec<Run>> {
    let frames = MEMORY.pages(PAGE_BYTES);
    let mut settings = Settings::new(frames, "lru", LEGACY);
    let device = model()?.device().ok_or_else(|| anyhow!("a model"))?;
    let pages = device.request_bytes_max() / u64::from(PAGE_BYTES);
    settings.request_pages_max = u32::try_from(pages).unwrap_or(u32::MAX);
    let limit = record::limit(&model()?, &case.reads, &settings)?;
    let run = |readahead: &&str| {
        let mut setup = Setup::new(settings.clone(), Some(device.clone()));
        (*readahead).clone_into(&mut setup.cache.readahead);
        (setup.order, setup.depth, setup.log_max) = (RequestOrder::Elevator, 1, case.log_max);
        let outcome = driver::run(setup, &mut workload_of(&case.reads)?)
            .map_err(|error| anyhow!("{}: {error}", case.reads))?;
        run_of_case(case, readahead, limit, &outcome)
    };
    [LEGACY, DEMAND].iter().map(run).collect()
}

fn run_of_case(
    case: &Case,
    readahead: &str,
    limit: Option<f64>,
    outcome: &RunOutcome,
) -> Result<Run> {
    let model = model()?;
    let (name, params) = record::policy(readahead)?;
    Ok(Run {
        readahead: name,
        params,
        device: model.name(),
        drive_cache: Some(false),
        streams: case.streams,
        workload: format!("{VIRTUAL}{}", shortened(&case.reads)),
        limit_mb_per_second: limit,
        ratio_to_limit: limit.map(|limit| outcome.mb_per_second() / limit),
        ..run_of(outcome)
    })
}

/// The prefix of these workloads on the page.
pub(super) const VIRTUAL: &str = "virtual time: ";
const MEMORY: Bytes = Bytes(2 << 30);
const SEED: u64 = 1;
/// Requests that the page draws of a run.
const LOG_MAX: usize = 2_000;
