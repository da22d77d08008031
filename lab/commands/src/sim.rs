//! `forerun sim`: workloads and traces through the cache.
//!
//! ```text
//!   --device              virtual time: readahead, host queue, device      timed
//!   --readahead alone     the same, but every fetch arrives at once        timed
//!   neither               replacement alone                                untimed
//!   --hits                the same, for the smallest size that has so many smallest
//!   --partition           the same, all traces through one cache           partitioned
//! ```
//! Every trace is run with every combination of policy, size and readahead.

mod case;
mod check;
mod learned;
mod lists;
mod memory;
mod partitioned;
mod plot;
mod prefetch;
mod reap;
pub(crate) mod rows;
mod smallest;
pub(crate) mod source;
mod timed;
mod two_q_star;
mod untimed;
mod walks;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use forerun_console::failure::{self, usage};
use forerun_console::form::{Form, Kind, Output};
use forerun_console::{machine, output};
use forerun_core::cache::Sizing;
use forerun_core::device;
use forerun_core::params::{Param as _, Share};
use forerun_core::units::Nanos;
use forerun_measure::windows::WINDOWS_MAX;
use forerun_sim::host::RequestOrder;
use forerun_sim::prefetch::Prefetch;

use plot::Plot;
use rows::{KeptRun, Record, Results};
use source::{Reading, Source};

use crate::given::Control;
use crate::kept::{self, Kept};
use crate::specs::{self, Size};

/// What `sim` takes.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  \
        forerun sim workload:streams,n=10 --device t7k250 --readahead linux-2.6.22,linux-2.6.24\n  \
        forerun sim workload:streams,n=10 --device t7k250 -o run.json --explain-readahead\n  \
        forerun sim workload:compute,file=1G --device hdd --readahead off \
          --prefetch none,adaptive\n  \
        forerun sim OLTP.lis.zst --policy lru,2q:kin=0.1..0.5/5 --size 1000,10%\n  \
        forerun sim *.csv.gz --policy all --size 64M..1G/5 -o sweep.csv\n  \
        forerun sim hm_0.csv.gz --policy all --size 64M,1G --bytes --json\n  \
        forerun sim workload:streams,n=4 --device hdd,ssd:connections=1..32/4 --csv\n  \
        forerun sim OLTP.lis.zst --policy all --plot OLTP.html\n  \
        forerun sim OLTP.lis.zst --policy all --hits 75%\n  \
        forerun sim OLTP.lis.zst workload:mail --size 1G --partition 'oltp=64M:lru:file=OLTP*'"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// A file (zstd, gzip, xz are seen by content), `-` for stdin, or workload:NAME[,key=value...]
    #[arg(required_unless_present = "list", value_name = "TRACE")]
    traces: Vec<String>,
    #[command(flatten)]
    reading: Reading,
    /// Replacement policies, NAME[:key=value,...], or all; belady is the bound of them
    #[arg(long, value_name = "NAME,...", default_value = DEFAULT_POLICY)]
    policy: String,
    /// Cache sizes: pages, bytes with a suffix, % of unique blocks [default: 2G; without readahead
    /// and device 10%; for --plot 12 shares, doubling up to 100%]
    #[arg(long, value_name = "SIZE,...")]
    size: Option<String>,
    /// In place of sizes, the smallest size of each policy, to within 1 %, from which on it has so
    /// many hits of all accesses, such as 90%
    #[arg(long, value_name = "RATIO", value_parser = specs::hits,
          conflicts_with_all = ["size", "device", "readahead", "partitions", "together", "bytes",
                                "plot"])]
    hits: Option<Share>,
    /// A partition, NAME=SIZE:POLICY:RULE, where a rule is file=PATTERN, client=NAME or
    /// offset=A..B: all traces go together through one cache, each a file and a client of its name.
    /// What partitions leave of --size has --policy
    #[arg(long = "partition", value_name = "NAME=SIZE[,min=SIZE]:POLICY:RULE",
          conflicts_with_all = ["device", "readahead", "sample", "plot"])]
    partitions: Vec<String>,
    /// Whether partitions keep their sizes (manual), or change them to where that brings more hits
    /// (auto)
    #[arg(long, value_name = "auto|manual", requires = "partitions", default_value = "manual",
          value_parser = specs::sizing)]
    sizing: Sizing,
    /// What sizing leaves at least to the rest: to what no partition takes
    #[arg(long, value_name = "SIZE", requires = "partitions", value_parser = specs::size)]
    rest_min: Option<Size>,
    /// All traces together through one cache without partitions, as a measure of those with them
    #[arg(long, conflicts_with_all = ["device", "readahead", "sample", "plot"])]
    together: bool,
    /// Readahead policies, NAME[:key=value,...] [default with a device: streams]
    #[arg(long, value_name = "NAME,...")]
    readahead: Option<String>,
    /// A thread that reads a program's file ahead of it: none, paper or adaptive, then
    /// :burst=SIZE,limit=SIZE,chunk=SIZE,nap=TIME
    #[arg(long, requires = "device", value_name = "NAME,...", default_value = specs::NONE)]
    prefetch: String,
    /// Run in virtual time on these device models, NAME[:key=value,...]
    #[arg(long, value_name = "MODEL,...")]
    device: Option<String>,
    /// The disk's own cache [default: the model's; off for t7k250]
    #[arg(long, requires = "device", value_name = "on|off")]
    drive_cache: Option<Switch>,
    /// Which waiting request goes next [default: elevator where the device queues no commands]
    #[arg(long, requires = "device")]
    host: Option<Host>,
    /// Requests that the device has at once [default: 32; 1 where it queues no commands]
    #[arg(long, requires = "device", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(device::IN_FLIGHT_MAX)))]
    depth: Option<u32>,
    /// Time from a page being there to the reader's next one, such as 32us
    #[arg(long, requires = "device", value_name = "TIME", default_value = "1us",
          value_parser = page_cost)]
    page_cost: Nanos,
    /// Compute what perfect readahead would reach, where a workload's streams are known
    #[arg(long, requires = "device")]
    online_limit: bool,
    /// Run twice, and show the second run, which begins with what the first has learnt of the
    /// device
    #[arg(long, requires = "device")]
    remembered: bool,
    /// Caches that are computed at the same time [default: all processors; no effect on results]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Memory for the distinct pages and the caches [default: half of what is free]
    #[arg(long, value_name = "SIZE", value_parser = specs::memory)]
    memory: Option<u64>,
    /// Estimate from this share of the pages, chosen by hash, in caches of that share of the size
    #[arg(long, value_name = "RATE", default_value = "1", value_parser = specs::sample,
          conflicts_with_all = ["device", "readahead"])]
    sample: Share,
    /// Also count misses by the bytes that were requested, where the trace has sizes
    #[arg(long, conflicts_with_all = ["device", "readahead", "partitions", "together"])]
    bytes: bool,
    /// Also write this file: rows into .csv or .ndjson; into .json with --device a record for
    /// `forerun report`, else one object. A run that was cut goes on where it stopped
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keep in the record why each readahead window was opened, its size and its outcome
    #[arg(long, requires_all = ["output", "device"])]
    explain_readahead: bool,
    /// Draw hit ratios over cache sizes; --policy all has belady then
    #[arg(long, value_name = "FILE.html|.svg")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
    /// List the replacement and readahead policies and prefetching threads with their parameters
    #[arg(long, group = "list")]
    list_policies: bool,
    /// List the trace formats
    #[arg(long, group = "list")]
    list_formats: bool,
    /// List the workloads
    #[arg(long, group = "list")]
    list_workloads: bool,
    /// List the device models
    #[arg(long, group = "list")]
    list_devices: bool,
}

#[derive(clap::Subcommand)]
enum Command {
    /// The core on a faulty device against a shadow file
    Check(check::Args),
    /// The paper on prefetching threads: its Table 3 and Figs 3 to 6
    Prefetch(prefetch::Args),
    /// The paper on 2Q*: its Figs 1, 2, 4 and 5, on the mail workloads or any trace
    Figures(two_q_star::Args),
    /// How to wait for I/O, in virtual time under stated costs
    Reap(reap::Args),
    /// Programs that go over trees of small files, from recorded calls
    Walks(walks::Args),
    /// Programs that start again and again, from recorded calls: what their learned list brings
    Learned(learned::Args),
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, ValueEnum)]
enum Host {
    DemandFirst,
    Elevator,
}

impl From<Host> for RequestOrder {
    fn from(host: Host) -> Self {
        match host {
            Host::DemandFirst => Self::DemandFirst,
            Host::Elevator => Self::Elevator,
        }
    }
}

/// The checked plan of the runs: every name is known.
#[expect(clippy::struct_excessive_bools, reason = "independent choices, not a state")]
struct Plan {
    sources: Vec<Source>,
    reading: Reading,
    policies: Vec<String>,
    sizes: Vec<Size>,
    /// In place of sizes, the hits of the smallest.
    hits: Option<Share>,
    /// Where all traces go through one cache: its partitions beside the rest.
    together: bool,
    partitions: Vec<partitioned::Given>,
    sizing: Sizing,
    rest_min: Option<Size>,
    /// Empty: replacement alone.
    readaheads: Vec<String>,
    /// A case each; `None` is one without a thread.
    prefetches: Vec<Option<Prefetch>>,
    /// A case each; `None` is one without a device.
    devices: Vec<Option<String>>,
    host: Option<RequestOrder>,
    depth: Option<u32>,
    page_cost: Nanos,
    threads: usize,
    memory: u64,
    sample: Share,
    /// Whether misses are counted by bytes as well.
    bytes: bool,
    /// Whether perfect readahead is run, too.
    online_limit: bool,
    /// Whether the device is remembered from a run before.
    remembered: bool,
    plot: Option<Plot>,
    /// Requests of the device to keep.
    log_max: usize,
    /// Readahead windows to keep.
    windows_max: u32,
}

fn page_cost(text: &str) -> Result<Nanos, String> {
    let cost = Nanos::parse(text).filter(|cost| *cost <= PAGE_COST_MAX);
    cost.ok_or_else(|| format!("{}, at most 1s", Nanos::FORM))
}

/// A reader that takes longer for a page does not wait for storage.
const PAGE_COST_MAX: Nanos = Nanos::from_millis(1_000);

impl Plan {
    /// The plan of `args` on what `sources` opens.
    fn new(args: &Args, sources: impl FnOnce() -> Result<Vec<Source>>) -> Result<Self> {
        let devices = match &args.device {
            None => vec![None],
            Some(text) => devices(text, args.drive_cache)?,
        };
        args.reading.check()?;
        let default = args.device.is_some().then(|| DEFAULT_READAHEAD.to_owned());
        let readaheads = match args.readahead.clone().or(default) {
            Some(text) => specs::readaheads(&text)?,
            None => Vec::new(),
        };
        let plot = args.plot.as_deref().map(|path| Plot::new("--plot", path)).transpose()?;
        let size = match &plot {
            Some(_) => plot::SIZES,
            None if readaheads.is_empty() => DEFAULT_SHARE,
            None => DEFAULT_SIZE,
        };
        let apart = args.partitions.is_empty() && !args.together;
        let mut policies = specs::policies(&args.policy, readaheads.is_empty() && apart)?;
        if plot.is_some() && readaheads.is_empty() {
            plot::add_bound(&args.policy, &mut policies);
        }
        let threads = args.threads.map_or_else(machine::cores, usize::from);
        let plan = Self {
            sources: sources()?,
            reading: args.reading.clone(),
            policies,
            together: args.together || !args.partitions.is_empty(),
            partitions: partitioned::parse(&args.partitions)?,
            sizing: args.sizing,
            rest_min: args.rest_min,
            sizes: specs::sizes("--size", args.size.as_deref().unwrap_or(size))?,
            hits: args.hits,
            readaheads,
            prefetches: specs::prefetches(&args.prefetch)?,
            devices,
            host: args.host.map(RequestOrder::from),
            depth: args.depth,
            page_cost: args.page_cost,
            threads,
            memory: args.memory.unwrap_or_else(memory::default),
            sample: args.sample,
            bytes: args.bytes,
            online_limit: args.online_limit,
            remembered: args.remembered,
            plot,
            log_max: if args.record().is_some() { LOG_MAX } else { 0 },
            windows_max: if args.explain_readahead { WINDOWS_MAX } else { 0 },
        };
        plan.check_sources()?;
        Ok(plan)
    }

    /// All that the results of `case` on `source` depend on, as text.
    fn key(&self, source: &Source, case: impl fmt::Debug) -> String {
        format!(
            "{} {} {case:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {} {}",
            kept::build(),
            source.identity(),
            self.reading,
            self.host,
            self.depth,
            self.page_cost,
            self.sample,
            self.online_limit,
            self.remembered,
            self.log_max,
            self.windows_max
        )
    }

    /// A stream of bytes can be read once only: it allows no share of its pages, and no device.
    fn check_sources(&self) -> Result<()> {
        let stdin = self.sources.iter().filter(|source| matches!(source, Source::Stdin)).count();
        if stdin > 1 {
            return Err(usage("stdin (`-`) is given twice; it can be read once"));
        }
        let timed = self.readaheads.len().max(1) * self.prefetches.len() * self.devices.len();
        let combinations = self.policies.len() * self.sizes.len() * timed;
        if combinations > COMBINATIONS_MAX {
            return Err(usage(format!(
                "{combinations} combinations of policies, sizes, readahead, prefetch and devices; \
                 at most {COMBINATIONS_MAX}"
            )));
        }
        let shares = self.sizes.iter().any(|size| matches!(size, Size::Share(_)));
        for source in self.sources.iter().filter(|source| !source.can_be_read_again()) {
            let name = source.name();
            if self.together {
                return Err(usage(format!(
                    "{name} can be read once only, and traces that go together are counted first: \
                     give a file"
                )));
            }
            if self.hits.is_some() {
                return Err(usage(format!(
                    "{name} can be read once only, and --hits goes over it several times: give a \
                     file"
                )));
            }
            if shares {
                return Err(usage(format!(
                    "{name} can be read once only, and a share of its blocks needs it twice: \
                     give --size in pages or bytes, or a file"
                )));
            }
            if !self.readaheads.is_empty() {
                return Err(usage(format!(
                    "{name} can be read once only, and readahead needs its length first: give a \
                     file"
                )));
            }
        }
        Ok(())
    }
}

/// Refuses output files that cannot be written, that are the same, or that are in `sources`.
fn require_places(written: &[&Path], sources: &[Source]) -> Result<()> {
    output::require_apart(written)?;
    for source in sources {
        if let Source::File(read) = source {
            output::require_apart(&[&[read.as_path()], written].concat())?;
        }
    }
    written.iter().try_for_each(|path| output::require_place(path))
}

/// The device models of `text`, each with the drive's cache set, where the flag is given.
fn devices(text: &str, cache: Option<Switch>) -> Result<Vec<Option<String>>> {
    let one = |spec: &String| {
        let spec = device_spec(spec, cache);
        specs::device(&spec, 0).map(|_| Some(spec))
    };
    specs::devices(text)?.iter().map(one).collect()
}

/// `spec` with the drive's cache set, where the flag is given.
pub(crate) fn device_spec(spec: &str, cache: Option<Switch>) -> String {
    let joint = if spec.contains(':') { ',' } else { ':' };
    match cache {
        Some(Switch::On) => format!("{spec}{joint}cache=on"),
        Some(Switch::Off) => format!("{spec}{joint}cache=off"),
        None => spec.to_owned(),
    }
}

/// Runs the plan and prints the rows.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        Some(Command::Check(args)) => return check::run(args),
        Some(Command::Prefetch(args)) => return prefetch::run(args),
        Some(Command::Figures(args)) => return two_q_star::run(args),
        Some(Command::Reap(args)) => return reap::run_all(args),
        Some(Command::Walks(args)) => return walks::run_all(args),
        Some(Command::Learned(args)) => return learned::run_all(args),
        None => {}
    }
    if args.list_policies || args.list_formats || args.list_workloads || args.list_devices {
        return lists::print(args);
    }
    let plan = Plan::new(args, || Source::all(&args.traces))?;
    let written: Vec<&Path> = args.output.iter().chain(&args.plot).map(PathBuf::as_path).collect();
    require_places(&written, &plan.sources)?;
    let files = args.files();
    files.check()?;
    let mut kept = Kept::open(args.output.as_deref())?;
    let (results, failed) = run_plan(&plan, &mut kept)?;
    if results.rows.is_empty() {
        failure::all_done(failed, plan.sources.len())?;
        return kept.end();
    }
    // If one of table, file and plot cannot be written, the others still are.
    let Results { rows, record } = results;
    let runs = rows::Runs { runs: &rows };
    let written = match args.record() {
        Some(path) => record.write(path),
        None => files.write(&runs, &["runs"], || rows::table(&rows)),
    };
    let drawn = plan.plot.as_ref().map_or(Ok(()), |plot| plot.write(&plan, &rows));
    let shown = args.form.print(&runs, &["runs"], || rows::table(&rows));
    written.and(drawn).and(shown)?;
    // What failed is run again by the same command, and what was done is not.
    failure::all_done(failed, plan.sources.len())?;
    kept.end()
}

/// The rows of `args` on `sources`, in place of the traces that they name, as a JSON array.
pub(crate) fn rows_of(args: &Args, sources: Vec<Source>, control: &Control) -> Result<String> {
    let mut plan = Plan::new(args, || Ok(sources))?;
    plan.reading = plan.reading.controlled(control);
    let (results, failed) = run_plan(&plan, &mut Kept::open(None)?)?;
    if let Some((_, error)) = failed.into_iter().next() {
        return Err(error);
    }
    serde_json::to_string(&results.rows).context("cannot write JSON")
}

/// Runs the plan; the results, and the traces that failed.
fn run_plan(
    plan: &Plan,
    kept: &mut Kept<KeptRun>,
) -> Result<(Results, Vec<(String, anyhow::Error)>)> {
    let mut results = Results { rows: Vec::new(), record: Record::new(plan) };
    let mut failed = Vec::new();
    if plan.together {
        partitioned::run(plan, kept, &mut results)?;
    }
    let apart = plan.sources.iter().filter(|_| !plan.together);
    for source in apart {
        let ran = match plan.hits {
            Some(hits) => smallest::run(plan, source, hits, kept, &mut results),
            None if plan.readaheads.is_empty() => untimed::run(plan, source, kept, &mut results),
            None => timed::run(plan, source, kept, &mut results),
        };
        failed.extend(ran.err().map(|error| (source.name(), error)));
    }
    Ok((results, failed))
}

impl Args {
    /// The record that is written.
    fn record(&self) -> Option<&Path> {
        let path = self.output.as_deref().filter(|_| self.device.is_some())?;
        let is_of_rows = Kind::of(path).is_some_and(Kind::is_of_rows);
        (!is_of_rows).then_some(path)
    }

    /// The file that is written where that is no record.
    fn files(&self) -> Output {
        let path = self.output.clone().filter(|_| self.record().is_none());
        Output { path, form: self.form }
    }
}

const DEFAULT_POLICY: &str = "lru";
const DEFAULT_READAHEAD: &str = forerun_core::readahead::DEFAULT;
/// The memory of the machine of Wu, Xi, Xu 2010.
const DEFAULT_SIZE: &str = "2G";
const DEFAULT_SHARE: &str = "10%";
/// Requests that a record keeps of each run.
const LOG_MAX: usize = 20_000;
/// The bound without a device, where each is a thread.
const COMBINATIONS_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drive_cache_is_one_more_parameter() {
        assert_eq!(device_spec("t7k250", None), "t7k250");
        assert_eq!(device_spec("t7k250", Some(Switch::On)), "t7k250:cache=on");
        assert_eq!(device_spec("hdd:rpm=5400", Some(Switch::Off)), "hdd:rpm=5400,cache=off");
    }
}
