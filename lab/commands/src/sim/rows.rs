//! The results of runs: as JSON, as a table, and as a record for the page.
//!
//! # Invariants
//! - `accesses = hits + late hits + misses`; without readahead nothing is late.

mod parts;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, anyhow};
use forerun_console::output::Column;
use forerun_console::{interrupt, names, output};
use forerun_core::device::Device;
use forerun_core::event::FetchKind;
use forerun_core::params::Share;
use forerun_core::units::Nanos;
use forerun_core::{params, readahead};
use forerun_measure::{record, windows};
use forerun_report::quantity;
use forerun_report::{DeviceRequest, RequestKind, Run, RunRecord, Window};
use forerun_sim::driver::{LoggedRequest, LoggedWindow, RunOutcome};
use forerun_sim::partitioned::PartitionedCache;
use forerun_sim::prefetch::Prefetch;
use forerun_sim::replay::{self, SampleCounts};
use forerun_sim::workload::Workload;
use serde::{Deserialize, Serialize};

use super::Plan;
use super::case::{Case, seed};
use crate::specs;
use crate::specs::PAGE_BYTES;
use parts::Parts;

/// All runs, as `--json` prints them.
#[derive(Serialize)]
pub(super) struct Runs<'a> {
    pub(super) runs: &'a [RunRow],
}

/// One run.
#[derive(Clone, Deserialize, Serialize)]
pub(super) struct RunRow {
    pub(super) trace: String,
    /// Its name in tables.
    #[serde(skip)]
    shown: String,
    policy: String,
    params: BTreeMap<String, String>,
    pub(super) cache_pages: u32,
    pub(super) accesses: u64,
    pub(super) misses: u64,
    pub(super) hit_ratio: f64,
    /// The time that the simulation took.
    seconds: f64,
    accesses_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<ByteCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sample: Option<Sample>,
    #[serde(skip_serializing_if = "Option::is_none")]
    readahead: Option<Ahead>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefetch: Option<Thread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<Virtual>,
    /// Where traces went together through one cache.
    #[serde(flatten)]
    parts: Option<Parts>,
}

/// Accesses by the bytes that were requested.
#[derive(Clone, Deserialize, Serialize)]
struct ByteCounts {
    requested: u64,
    missed: u64,
    hit_ratio: f64,
}

/// The sample that a row is estimated from.
#[derive(Clone, Deserialize, Serialize)]
struct Sample {
    /// The share of the pages that was followed.
    rate: f64,
    accesses: u64,
    misses: u64,
    /// The standard error of the hit ratio, by which pages were followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    hit_ratio_error: Option<f64>,
}

/// Prefetched pages, by outcome.
#[derive(Clone, Deserialize, Serialize)]
struct Ahead {
    name: String,
    params: BTreeMap<String, String>,
    fetched: u64,
    used: u64,
    wasted: u64,
    /// In flight at their first use.
    late: u64,
}

/// A thread that reads ahead of the program.
#[derive(Clone, Deserialize, Serialize)]
struct Thread {
    name: String,
    params: BTreeMap<String, String>,
}

/// The device in virtual time.
#[derive(Clone, Deserialize, Serialize)]
struct Virtual {
    name: String,
    /// Those that were given.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    params: BTreeMap<String, String>,
    seconds: f64,
    requests: u64,
    mean_request_bytes: u64,
    mb_per_second: f64,
    /// Over the first 100 MB, as in Wu, Xi, Xu 2010, Fig. 12.
    delay_seconds: f64,
    delay_total_seconds: f64,
    bytes_read: u64,
    bytes_wanted: u64,
    /// The wait of a read, at the median and at the 99th percentile.
    p50_us: f64,
    p99_us: f64,
    /// Paced reads that came more than 100 ms late, and the latest.
    reads_late: u64,
    late_max_us: f64,
    /// The result of perfect readahead, where it was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_mb_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_to_limit: Option<f64>,
    /// What the next run remembers of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    learnt: Option<String>,
}

impl RunRow {
    /// A run of which nothing is counted yet.
    pub(super) fn new(trace: &str, policy: &str, pages: u32, took: Nanos) -> Result<Self> {
        let shown = replay::show(policy).map_err(|error| anyhow!("{error}"))?;
        Ok(Self {
            trace: trace.to_owned(),
            shown: String::new(),
            policy: params::split(policy).0.to_owned(),
            params: map(&shown),
            cache_pages: pages,
            accesses: 0,
            misses: 0,
            hit_ratio: 0.0,
            seconds: quantity::seconds(took),
            accesses_per_second: 0.0,
            bytes: None,
            sample: None,
            readahead: None,
            prefetch: None,
            device: None,
            parts: None,
        })
    }

    /// The counts of replacement.
    #[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
    pub(super) fn counted(mut self, accesses: u64, misses: u64, hits: u64) -> Self {
        (self.accesses, self.misses) = (accesses, misses);
        self.hit_ratio = hits as f64 / accesses.max(1) as f64;
        self.accesses_per_second = accesses as f64 / self.seconds.max(1e-9);
        self
    }

    /// The counts by bytes, where the accesses have sizes.
    pub(super) fn sized(mut self, requested: u64, missed: u64) -> Self {
        let hit_ratio = quantity::ratio(requested.saturating_sub(missed), requested);
        self.bytes = (requested > 0).then_some(ByteCounts { requested, missed, hit_ratio });
        self
    }

    /// The hit ratio by bytes, where there is one.
    pub(super) fn byte_hit_ratio(&self) -> Option<f64> {
        self.bytes.as_ref().map(|bytes| bytes.hit_ratio)
    }

    /// The sample, where the counts are estimated.
    #[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
    pub(super) fn estimated(mut self, from: Option<SampleCounts>, sample: Share) -> Self {
        let all = self.accesses.max(1) as f64;
        self.sample = from.map(|from| Sample {
            rate: f64::from(sample.ppm) / 1e6,
            accesses: from.accesses,
            misses: from.misses,
            hit_ratio_error: from.error(sample).map(|misses| misses / all),
        });
        self
    }

    /// What each partition and trace had.
    pub(super) fn partitioned(mut self, names: &[String], cache: &PartitionedCache) -> Self {
        self.parts = Some(Parts::new(names, cache));
        self
    }

    /// The results of readahead and the device.
    pub(super) fn timed(
        mut self,
        case: Case<'_>,
        device: Option<&Device>,
        outcome: &RunOutcome,
    ) -> Result<Self> {
        let made =
            readahead::make(case.readahead, PAGE_BYTES).map_err(|error| anyhow!("{error}"))?;
        let stats = &outcome.stats;
        self.readahead = Some(Ahead {
            name: made.name.to_owned(),
            params: map(&made.params),
            fetched: stats.ahead_fetched,
            used: stats.ahead_used,
            wasted: stats.ahead_wasted,
            late: stats.late_hits,
        });
        let thread =
            |it: &Prefetch| Thread { name: it.name().to_owned(), params: map(&it.params()) };
        self.prefetch = case.prefetch.map(thread);
        self.device = device.map(|device| Virtual {
            name: device.name().to_owned(),
            params: given(case.device.unwrap_or_default(), device.params()),
            seconds: quantity::seconds(outcome.elapsed),
            requests: outcome.requests,
            mean_request_bytes: outcome.mean_request_bytes(),
            mb_per_second: outcome.mb_per_second(),
            delay_seconds: quantity::seconds(outcome.delay_first),
            delay_total_seconds: quantity::seconds(outcome.delay),
            bytes_read: outcome.bytes_read,
            bytes_wanted: outcome.bytes_wanted,
            p50_us: micros(outcome.waits.percentile(50)),
            p99_us: micros(outcome.waits.percentile(99)),
            reads_late: outcome.reads_late,
            late_max_us: micros(outcome.late_max),
            limit_mb_per_second: None,
            ratio_to_limit: None,
            learnt: outcome.device_record.map(|record| record.to_string()),
        });
        Ok(self)
    }

    /// Beside what perfect readahead reaches.
    pub(super) fn limited(&mut self, limit: Option<f64>) {
        if let Some(device) = &mut self.device {
            device.limit_mb_per_second = limit;
            device.ratio_to_limit = ratio(device.mb_per_second, limit);
        }
    }

    /// The case without the trace and the size: the names alone, and with all parameters.
    pub(super) fn titles(&self) -> (String, String) {
        let policy = std::iter::once((self.policy.as_str(), &self.params));
        let ahead = self.readahead.iter().map(|it| (it.name.as_str(), &it.params));
        let thread = self.prefetch.iter().map(|it| (it.name.as_str(), &it.params));
        let parts = policy.chain(ahead).chain(thread);
        let (names, mut specs): (Vec<&str>, Vec<String>) =
            parts.map(|(name, params)| (name, spec(name, params))).unzip();
        specs.extend(self.device.iter().map(|device| spec(&device.name, &device.params)));
        (names.join(" + "), specs.join(" + "))
    }

    fn device(&self, figure: fn(&Virtual) -> String) -> String {
        self.device.as_ref().map(figure).unwrap_or_default()
    }

    fn ahead(&self, pages: fn(&Ahead) -> u64) -> String {
        self.readahead.as_ref().map(|ahead| pages(ahead).to_string()).unwrap_or_default()
    }
}

/// The runs in columns. All of them are of one kind.
pub(super) fn table(rows: &[RunRow]) -> String {
    let traces: Vec<&str> = rows.iter().map(|run| run.trace.as_str()).collect();
    let named = rows.iter().zip(names::base_names(&traces));
    let rows: Vec<RunRow> = named.map(|(run, shown)| RunRow { shown, ..run.clone() }).collect();
    let rows = rows.as_slice();
    let has = |part: fn(&RunRow) -> bool| rows.iter().any(part);
    let (sampled, ahead) = (has(|run| run.sample.is_some()), has(|run| run.readahead.is_some()));
    let bytes = has(|run| run.bytes.is_some());
    let (thread, device) = (has(|run| run.prefetch.is_some()), has(|run| run.device.is_some()));
    let limit = has(|run| run.device.as_ref().is_some_and(|it| it.ratio_to_limit.is_some()));
    let shown = |run: &RunRow| run.device(|it| spec(&it.name, &it.params));
    let devices = rows.iter().any(|run| shown(run) != shown(&rows[0]));
    #[rustfmt::skip]
    let all: [(bool, Column<RunRow>); 23] = [
        (true,             ("trace",     |run| run.shown.clone())),
        (true,             ("policy",    |run| spec(&run.policy, &run.params))),
        (ahead,            ("readahead", |run| {
            run.readahead.as_ref().map(|it| spec(&it.name, &it.params)).unwrap_or_default()
        })),
        (thread,           ("prefetch",  |run| {
            run.prefetch.as_ref().map_or(specs::NONE.into(), |it| spec(&it.name, &it.params))
        })),
        (devices,          ("device",    |run| run.device(|it| spec(&it.name, &it.params)))),
        (true,             ("pages",     |run| run.cache_pages.to_string())),
        (true,             ("size",      |run| {
            quantity::bytes(u64::from(run.cache_pages) * u64::from(PAGE_BYTES))
        })),
        (true,             ("accesses",  |run| run.accesses.to_string())),
        (true,             ("misses",    |run| run.misses.to_string())),
        (true,             ("hit ratio", |run| percent(run.hit_ratio))),
        (bytes,            ("by bytes",  |run| {
            run.byte_hit_ratio().map(percent).unwrap_or_default()
        })),
        (bytes,            ("missed",    |run| {
            run.bytes.as_ref().map(|it| quantity::bytes(it.missed)).unwrap_or_default()
        })),
        (sampled,          ("std error", |run| {
            run.sample.as_ref().and_then(|it| it.hit_ratio_error).map(percent).unwrap_or_default()
        })),
        (ahead,            ("ahead",     |run| run.ahead(|ahead| ahead.fetched))),
        (ahead,            ("used",      |run| run.ahead(|ahead| ahead.used))),
        (ahead,            ("wasted",    |run| run.ahead(|ahead| ahead.wasted))),
        (device && thread, ("seconds",   |run| run.device(|it| format!("{:.3}", it.seconds)))),
        (device,           ("MB/s",      |run| {
            run.device(|it| format!("{:.2}", it.mb_per_second))
        })),
        (device,           ("requests",  |run| run.device(|it| it.requests.to_string()))),
        (device,           ("mean",      |run| {
            run.device(|it| format!("{} K", it.mean_request_bytes >> 10))
        })),
        (device,           ("delay s",   |run| {
            run.device(|it| format!("{:.3}", it.delay_seconds))
        })),
        (!device,          ("M/s",       |run| format!("{:.1}", run.accesses_per_second / 1e6))),
        (limit,            ("limit",     |run| run.device(|it| {
            it.limit_mb_per_second.map(|limit| format!("{limit:.2}")).unwrap_or_default()
        }))),
    ];
    let columns: Vec<_> = all.into_iter().filter(|(shown, _)| *shown).map(|it| it.1).collect();
    let parts = rows.iter().filter_map(|run| run.parts.as_ref().map(Parts::table));
    let left = 2 + [ahead, thread, devices].into_iter().map(usize::from).sum::<usize>();
    [output::columns(rows, &columns, left)].into_iter().chain(parts).collect()
}

/// A row, and its run where a record is kept.
#[derive(Deserialize, Serialize)]
pub(super) struct KeptRun {
    pub(super) row: RunRow,
    /// With its seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<(u64, Run)>,
}

/// The results so far, in order.
pub(super) struct Results {
    pub(super) rows: Vec<RunRow>,
    pub(super) record: Record,
}

impl Results {
    /// Adds a result.
    pub(super) fn add(&mut self, kept: KeptRun) {
        self.rows.push(kept.row);
        kept.run.into_iter().for_each(|run| self.record.add(run));
    }
}

/// A record in the making.
pub(super) struct Record(RunRecord);

impl Record {
    /// A record of this machine, without runs.
    pub(super) fn new(plan: &Plan) -> Self {
        let mut settings = vec![
            ("page", PAGE_BYTES.to_string()),
            ("policy", plan.policies.join(" ")),
            ("readahead", plan.readaheads.join(" ")),
        ];
        settings.extend(plan.depth.map(|depth| ("depth", depth.to_string())));
        let devices: Vec<&str> = plan.devices.iter().filter_map(Option::as_deref).collect();
        Self(record::empty(devices.join(" "), 0, &settings))
    }

    /// Adds a run.
    pub(super) fn add(&mut self, (seed, run): (u64, Run)) {
        self.0.seed = seed;
        self.0.runs.push(run);
    }

    /// A run with its seed, outcome and the result of perfect readahead; none without a device, or
    /// where no record is kept.
    pub(super) fn run(
        plan: &Plan,
        case: Case<'_>,
        workload: &Workload,
        device: Option<Device>,
        (outcome, limit): (&RunOutcome, Option<f64>),
    ) -> Option<(u64, Run)> {
        let device = device.filter(|_| plan.log_max > 0)?;
        let (name, pairs) = params::split(case.readahead);
        let pairs = pairs.split(',').filter_map(|pair| pair.split_once('='));
        let mut all_params: BTreeMap<String, String> =
            pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        if let Some(thread) = case.prefetch {
            all_params.insert("prefetch".to_owned(), thread.name().to_owned());
            all_params
                .extend(thread.params().into_iter().map(|(key, value)| (key.to_owned(), value)));
        }
        let own = given(case.device.unwrap_or_default(), device.params());
        let own = own.into_iter().filter(|(key, _)| key != "cache");
        all_params.extend(own.map(|(key, value)| (format!("device.{key}"), value)));
        all_params.insert("policy".to_owned(), case.policy.to_owned());
        all_params.insert("cache_pages".to_owned(), case.pages.to_string());
        let cache = device.params().iter().find(|(key, _)| *key == "cache");
        let run = Run {
            readahead: name.to_owned(),
            params: all_params,
            device: device.name().to_owned(),
            drive_cache: cache.map(|(_, value)| value == "on"),
            streams: streams(workload),
            workload: workload.title.clone(),
            limit_mb_per_second: limit,
            ratio_to_limit: ratio(outcome.mb_per_second(), limit),
            ..run_of(outcome)
        };
        Some((seed(workload), run))
    }

    /// Writes it as the whole file `path`.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        Ok(interrupt::unbroken(|| self.0.write(path))?)
    }
}

/// The measurements of `outcome`, as a run without its names.
pub(crate) fn run_of(outcome: &RunOutcome) -> Run {
    let mut requests: Vec<DeviceRequest> = outcome.log.iter().map(request).collect();
    requests.sort_by_key(|request| request.at_us);
    Run {
        emulated: true,
        mb_per_second: outcome.mb_per_second(),
        delay_seconds: quantity::seconds(outcome.delay_first),
        device_requests: outcome.requests,
        mean_request_bytes: outcome.mean_request_bytes(),
        bytes_read: outcome.bytes_read,
        bytes_wanted: outcome.bytes_wanted,
        p50_us: micros(outcome.waits.percentile(50)),
        p99_us: micros(outcome.waits.percentile(99)),
        late_max_seconds: (outcome.late_max > Nanos(0))
            .then(|| quantity::seconds(outcome.late_max)),
        requests_left_out: outcome.requests.saturating_sub(requests.len() as u64),
        requests,
        windows: outcome.windows.iter().map(explained).collect(),
        windows_left_out: outcome.windows_left_out,
        ..Run::default()
    }
}

/// Computed from seconds, as in all earlier records.
fn micros(time: Nanos) -> f64 {
    quantity::seconds(time) * 1e6
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn ratio(reached: f64, limit: Option<f64>) -> Option<f64> {
    limit.filter(|&limit| limit > 0.0).map(|limit| reached / limit)
}

fn explained(logged: &LoggedWindow) -> Window {
    windows::window(&logged.opened, PAGE_BYTES, logged.base, Nanos(0))
}

fn request(logged: &LoggedRequest) -> DeviceRequest {
    let completion = &logged.completion;
    DeviceRequest {
        at_us: completion.arrived.0 / 1_000,
        done_us: completion.done.0 / 1_000,
        offset: completion.request.offset,
        bytes: completion.request.bytes,
        kind: match logged.kind {
            FetchKind::Demand => RequestKind::Demand,
            FetchKind::Readahead => RequestKind::Readahead,
        },
    }
}

/// How many streams a workload says it has; else one a reader.
fn streams(workload: &Workload) -> u32 {
    let said = workload.params.iter().find(|(key, _)| matches!(*key, "n" | "streams"));
    let said = said.and_then(|(_, value)| value.parse().ok());
    said.unwrap_or_else(|| u32::try_from(workload.readers.len()).unwrap_or(u32::MAX))
}

fn spec(name: &str, params: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = params.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if pairs.is_empty() { name.to_owned() } else { format!("{name}:{}", pairs.join(",")) }
}

/// Those of `params` that `spec` gives.
fn given(spec: &str, params: &[(&'static str, String)]) -> BTreeMap<String, String> {
    let pairs = params::split(spec).1.split(',').filter_map(|pair| pair.split_once('='));
    let keys: Vec<&str> = pairs.map(|(key, _)| key).collect();
    let given = params.iter().filter(|(key, _)| keys.contains(key)).cloned();
    map(&given.collect::<Vec<_>>())
}

fn map(pairs: &[(&'static str, String)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}
