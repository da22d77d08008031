//! `forerun replay`: the requests of a trace, at their times, through the cache on a device.
//!
//! ```text
//!   TRACE --layout--> files and their sizes, the first moment
//!         --schedule--> slots --+--> the core on a model, in virtual time     modelled
//!                               +--> the live engine, in real time            live
//!         --> response times, hit ratio, how busy the device was: a row a policy and size    row
//!         --> and over sizes, over time, by their shares: a page                            page
//! ```
//! # Invariants
//! - Nothing is written but to a model, unless `--write` says so: what a trace writes is left out
//!   on a path. What may be written then, `overwrite` decides.
//! - Each row has a cache and a device of its own, as cold as possible.
//! - An interrupted replay prints the figures so far; the same command goes on after the last row
//!   that was whole, where rows are written into a file.
//! # Sources
//! Meng et al. 2009, section 5: `kernio`, a replayer of block traces that reports the mean response
//! time, operations a second and how busy the disks are.

mod layout;
mod live;
mod modelled;
mod overwrite;
mod page;
mod partitions;
mod row;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use forerun_console::failure::{note, usage};
use forerun_console::form::{Form, Output};
use forerun_console::{interrupt, object, output};
use forerun_core::eviction;
use forerun_core::params::{Bytes, Param as _};
use forerun_core::units::Nanos;
use forerun_engine::{Partition, Settings};
use forerun_measure::pattern_file;
use forerun_measure::windows::WINDOWS_MAX;
use forerun_report::quantity::read;
use forerun_sim::driver::{PartitionCounts, Responses};
use forerun_sim::schedule::Pace;
use forerun_sim::striped::Striped;
use forerun_sim::window_sizes::WindowSizes;

use layout::Layout;
use overwrite::Claimed;
use row::Row;

use crate::kept::{self, Kept};
use crate::sim::source::{Reading, Source};
use crate::specs;

/// What `replay` takes.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("where").required(true).args(["on", "device"])))]
#[command(after_help = "Examples:\n  \
    forerun replay workload:mail,requests=100000 --device t7k250*4 --policy lru,2q-star\n  \
    forerun replay web.spc.gz --device cloud --cache 64M,256M --speed 4 --json\n  \
    forerun replay web.spc.gz --on disk.img --depth 8\n  \
    forerun replay web.spc.gz --on /var/tmp/disk.img --make --write\n  \
    forerun replay two.spc --device hdd --partition log=8M:lru:file=1 -o page.html\n  \
    forerun replay gzip.jsonl --on /")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Args {
    /// A file (zstd, gzip, xz are seen by content), or workload:NAME[,key=value...]
    #[arg(value_name = "TRACE")]
    trace: String,
    #[command(flatten)]
    reading: Reading,
    /// Read this file or block device, in real time; of a trace of a program (`trace record`), its
    /// files below this folder
    #[arg(long, value_name = "PATH")]
    on: Option<PathBuf>,
    /// Run on this device model, NAME[:key=value,...]; NAME*4 is four of them, striped
    #[arg(long, value_name = "MODEL")]
    device: Option<String>,
    /// Run the model in real time, through the live engine
    #[arg(long, requires = "device")]
    real_time: bool,
    /// Make PATH first, of the pattern, as long as the trace reaches
    #[arg(long, requires = "on")]
    make: bool,
    /// Write what the trace writes, too; without it a replay in real time only reads. Refuses what
    /// is mounted or in use, and what forerun did not make
    #[arg(long, conflicts_with = "reads")]
    write: bool,
    /// Also write to a block device, or to a file that forerun did not make: its bytes are lost
    #[arg(long, requires_all = ["write", "on"])]
    destroy_data: bool,
    /// Replacement policies, NAME[:key=value,...], or all: a row each
    #[arg(long, value_name = "NAME,...", default_value = eviction::DEFAULT)]
    policy: String,
    /// A share of the cache with policies of its own; may be repeated. A rule is file=PATTERN or
    /// client=NAME, of the device's number in the trace or the path that it has there, or
    /// offset=A..B. What is left has --policy
    #[arg(long = "partition", value_name = "NAME=SIZE:POLICY[+READAHEAD]:RULE")]
    partitions: Vec<String>,
    /// Cache sizes: pages, or bytes with a suffix: a row each
    #[arg(long, visible_alias = "size", value_name = "SIZE,...", default_value = "64M")]
    cache: String,
    /// Readahead policies, NAME[:key=value,...]: a row each
    #[arg(long, value_name = "NAME,...", default_value = "off")]
    readahead: String,
    /// So many times as fast as recorded
    #[arg(long, value_name = "X", default_value = "1", value_parser = speed,
          conflicts_with = "depth")]
    speed: u64,
    /// Count no response of what is due before, in virtual time; the cache fills meanwhile
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = read::<Nanos>,
          conflicts_with_all = ["real_time", "on", "depth"])]
    warm_up: Nanos,
    /// Make no request that is due then, or later; in the replay's own time, as --warm-up
    #[arg(long, value_name = "TIME", value_parser = read::<Nanos>, conflicts_with = "depth")]
    until: Option<Nanos>,
    /// Make requests as they are answered, so many at a time, whatever their times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=SLOTS_MAX))]
    depth: Option<u16>,
    /// Requests that wait at once, in real time: a thread each
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// The largest request to the store, in real time
    #[arg(long, value_name = "SIZE", value_parser = read::<Bytes>)]
    request_max: Option<Bytes>,
    /// Also write this file: .json, .ndjson, .csv or .txt by its name; .html is a page with charts
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
}

impl Args {
    /// The page that is drawn, if one is.
    fn page(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| path.extension() == Some("html".as_ref()))
    }

    /// The file of rows.
    fn rows(&self) -> Output {
        let path = self.output.clone().filter(|_| self.page().is_none());
        Output { path, form: self.form }
    }
}

/// The checked plan of the rows: every name is known.
struct Plan {
    source: Source,
    reading: Reading,
    policies: Vec<String>,
    pages: Vec<u32>,
    readaheads: Vec<String>,
    partitions: Vec<Partition>,
    pace: Pace,
    warm_up: Nanos,
    until: Option<Nanos>,
    slots: usize,
    layout: Layout,
}

/// One row of the plan.
#[derive(Clone, Copy, Debug)]
struct Case<'a> {
    policy: &'a str,
    pages: u32,
    readahead: &'a str,
}

/// The results of a case.
struct Replayed {
    responses: Responses,
    elapsed: Nanos,
    hits: u64,
    pages: u64,
    device_requests: u64,
    bytes_read: u64,
    bytes_written: u64,
    /// How long the device had requests, where that is known.
    busy: Option<Nanos>,
    /// How long it took at the end until all was durable, where something was written on a path.
    flush: Option<Nanos>,
    /// How late requests were made, at the 99th percentile; in real time.
    late_p99: Option<Nanos>,
    window_sizes: WindowSizes,
    /// Those of the cache at the end, where it has more than one.
    partitions: Vec<PartitionCounts>,
}

/// A row, and what its page shows beside it: nothing of a row that an earlier run kept.
struct Done {
    row: Row,
    responses: Responses,
    window_sizes: WindowSizes,
}

impl Plan {
    fn new(args: &Args) -> Result<Self> {
        args.reading.check()?;
        let source = Source::new(&args.trace)?;
        if !source.can_be_read_again() {
            return Err(usage(format!(
                "{} can be read once only, and a replay needs its length first: give a file",
                source.name()
            )));
        }
        let policies = specs::policies(&args.policy, false)?;
        let readaheads = specs::readaheads(&args.readahead)?;
        let pages = specs::sizes("--cache", &args.cache)?
            .into_iter()
            .map(pages_of)
            .collect::<Result<_>>()?;
        if let Some(spec) = &args.device {
            // Its members, as every command takes a device.
            specs::device(spec.rsplit_once('*').map_or(spec.as_str(), |(one, _)| one), 0)?;
            Striped::make(spec, 0).map_err(|error| usage(format!("--device {spec}: {error}")))?;
        }
        source.tell_guess(&args.reading)?;
        let layout = Layout::of(&source, &args.reading)?;
        let pace = args.depth.map_or(Pace::Open { speed_ppm: args.speed }, |_| Pace::Closed);
        if pace != Pace::Closed && !layout.times {
            bail!("{}: its requests have no times: give --depth", source.name());
        }
        let open = if args.device.is_some() && !args.real_time {
            SLOTS_OPEN
        } else {
            usize::from(args.threads)
        };
        let slots = args.depth.map_or(open, usize::from);
        if let Some(until) = args.until.filter(|&until| until <= args.warm_up) {
            let (until, warm_up) = (until.show(), args.warm_up.show());
            return Err(usage(format!("--until {until}: it is not after --warm-up {warm_up}")));
        }
        let partitions = partitions::parse(&args.partitions)?;
        Ok(Self {
            source,
            reading: args.reading.clone(),
            policies,
            pages,
            readaheads,
            partitions,
            pace,
            warm_up: args.warm_up,
            until: args.until,
            slots,
            layout,
        })
    }

    /// Requests that are not made: those that write, unless they may, or a model is what they
    /// write to.
    fn left_out(&self, args: &Args) -> u64 {
        let in_virtual_time = args.device.is_some() && !args.real_time;
        if in_virtual_time || args.write { 0 } else { self.layout.writes }
    }

    /// Makes the target where that is asked for, and claims it where it is to be written.
    fn claim(&self, args: &Args) -> Result<Option<Claimed>> {
        let Some(on) = &args.on else { return Ok(None) };
        if args.make {
            pattern_file::make(on, self.layout.bytes())?;
        }
        args.write.then(|| Claimed::new(on, args.destroy_data)).transpose()
    }

    /// `default` with what the engine has in virtual time and live alike.
    fn settings(&self, case: Case<'_>, default: Settings) -> Settings {
        let files = u32::try_from(self.layout.files.len()).expect("bounded");
        Settings {
            policy: case.policy.to_owned(),
            readahead: case.readahead.to_owned(),
            windows_max: WINDOWS_MAX,
            files_max: default.files_max.max(files),
            ..default
        }
    }

    /// All that the row of `case` depends on, as text.
    fn key(&self, case: Case<'_>, args: &Args) -> String {
        format!(
            "{} {} {case:?} {:?} {:?} {:?} {:?} {:?} {} {:?} {:?} {} {} {:?}",
            kept::build(),
            self.source.identity(),
            self.reading,
            args.partitions,
            self.pace,
            self.warm_up,
            self.until,
            self.slots,
            args.on.as_ref().map(|on| (on, place(on))),
            args.device,
            args.real_time,
            args.write,
            args.request_max
        )
    }

    fn cases(&self) -> impl Iterator<Item = Case<'_>> {
        self.readaheads.iter().flat_map(move |readahead| {
            self.policies.iter().flat_map(move |policy| {
                self.pages.iter().map(move |&pages| Case { policy, pages, readahead })
            })
        })
    }
}

/// Runs the plan and prints the rows.
pub(crate) fn run(args: &Args) -> Result<()> {
    let files = args.rows();
    files.check()?;
    args.page().map_or(Ok(()), output::require_place)?;
    let on = args.on.as_deref().filter(|on| !on.is_dir());
    let others = [Some(Path::new(&args.trace)), args.output.as_deref(), on];
    output::require_apart(&others.into_iter().flatten().collect::<Vec<&Path>>())?;
    let plan = Plan::new(args)?;
    let claimed = plan.claim(args)?;
    let mut kept = Kept::open(files.path.as_deref())?;
    interrupt::gently();
    let mut all = Vec::new();
    for case in plan.cases() {
        let key = plan.key(case, args);
        if let Some(row) = kept.take(&key) {
            all.push(Done {
                row,
                responses: Responses::default(),
                window_sizes: WindowSizes::default(),
            });
            continue;
        }
        let replayed = match (&args.device, &args.on) {
            (Some(spec), _) if !args.real_time => modelled::run(&plan, case, spec)?,
            (device, on) => live::run(&plan, case, device.as_deref(), on.as_deref(), args)?,
        };
        let row = Row::new(&plan, case, &replayed)?;
        let Replayed { responses, window_sizes, .. } = replayed;
        if !interrupt::asked() {
            kept.add(&key, &row)?;
        }
        all.push(Done { row, responses, window_sizes });
        if interrupt::asked() {
            break;
        }
    }
    drop(claimed);
    let left_out = plan.left_out(args);
    let rows: Vec<&Row> = all.iter().map(|done| &done.row).collect();
    let text = || row::text(&rows, left_out);
    // If the page cannot be written, the rows still are.
    let sheet = || page::sheet(&plan, &all, left_out).page();
    let drawn = args.page().map_or(Ok(()), |path| output::file(path, sheet().as_bytes()));
    files.print(&object! { runs: &rows }, &["runs"], text).and(drawn)?;
    if interrupt::asked() {
        note("the last row is of what was replayed until then");
        interrupt::leave();
    }
    kept.end()
}

/// Which file, folder or device is at `path`.
fn place(path: &Path) -> Option<(u64, u64, u64)> {
    path.metadata().ok().map(|it| (it.dev(), it.ino(), it.rdev()))
}

fn pages_of(size: specs::Size) -> Result<u32> {
    match size {
        specs::Size::Pages(pages) => Ok(pages),
        specs::Size::Share(_) => Err(usage("--cache: give pages, or bytes with a suffix")),
    }
}

/// The settings of the core; refuses those that cannot work.
fn core_of(settings: &Settings) -> Result<forerun_core::cache::Settings> {
    settings.core().map_err(|error| usage(format!("--cache: {error}")))
}

/// A factor, in millionths.
fn speed(text: &str) -> Result<u64, String> {
    let form = || "a factor from 0.001 to 1000, such as 0.25".to_owned();
    let factor: f64 = text.parse().map_err(|_| form())?;
    if !(0.001..=1_000.0).contains(&factor) {
        return Err(form());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in its bounds")]
    let ppm = (factor * 1e6).round() as u64;
    Ok(ppm)
}

/// Requests under way at once at most in virtual time, at their own times.
const SLOTS_OPEN: usize = 4_096;
const SLOTS_MAX: i64 = 4_096;
