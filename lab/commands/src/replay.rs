//! `forerun replay`: the requests of a trace, at their times, through the cache on a device.
//!
//! ```text
//!   TRACE --layout--> files and their sizes, the first moment
//!         --schedule--> slots --+--> the core on a model, in virtual time     modelled
//!                               +--> the live engine, in real time            live
//!         --> response times, hit ratio, how busy the device was: a row a policy and size
//! ```
//! # Invariants
//! - Nothing is written but to a model: what a trace writes is left out on a path.
//! - Each row has a cache and a device of its own, as cold as possible.
//! - An interrupted replay prints the figures so far.
//! # Sources
//! Meng et al. 2009, section 5: `kernio`, a replayer of block traces that reports the mean response
//! time, operations a second and how busy the disks are.

mod layout;
mod live;
mod modelled;
mod row;

use std::path::PathBuf;

use anyhow::{Result, bail};
use forerun_console::failure::{note, usage};
use forerun_console::form::Output;
use forerun_console::{interrupt, object};
use forerun_core::params::Bytes;
use forerun_core::units::Nanos;
use forerun_report::quantity::read;
use forerun_sim::driver::Responses;
use forerun_sim::schedule::Pace;
use forerun_sim::striped::Striped;

use layout::Layout;
use row::Row;

use crate::sim::source::{Reading, Source};
use crate::specs;

/// What `replay` takes.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("where").required(true).args(["on", "device"])))]
#[command(after_help = "Examples:\n  \
    forerun replay workload:mail,requests=100000 --device t7k250*4 --policy lru,2q-star\n  \
    forerun replay web.spc.gz --device cloud --cache 64M,256M --speed 4 --json\n  \
    forerun replay web.spc.gz --on disk.img --depth 8")]
pub struct Args {
    /// A file (zstd, gzip, xz are seen by content), or workload:NAME[,key=value...]
    #[arg(value_name = "TRACE")]
    trace: String,
    #[command(flatten)]
    reading: Reading,
    /// Read this file or block device, in real time
    #[arg(long, value_name = "PATH")]
    on: Option<PathBuf>,
    /// Run on this device model, NAME[:key=value,...]; NAME*4 is four of them, striped
    #[arg(long, value_name = "MODEL")]
    device: Option<String>,
    /// Run the model in real time, through the live engine; reads only
    #[arg(long, requires = "device")]
    real_time: bool,
    /// Replacement policies, NAME[:key=value,...], or all: a row each
    #[arg(long, value_name = "NAME,...", default_value = "2q-star")]
    policy: String,
    /// Cache sizes: pages, or bytes with a suffix: a row each
    #[arg(long, value_name = "SIZE,...", default_value = "64M")]
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
    #[command(flatten)]
    output: Output,
}

/// The checked plan of the rows: every name is known.
struct Plan {
    source: Source,
    reading: Reading,
    policies: Vec<String>,
    pages: Vec<u32>,
    readaheads: Vec<String>,
    pace: Pace,
    warm_up: Nanos,
    slots: usize,
    layout: Layout,
}

/// One row of the plan.
#[derive(Clone, Copy)]
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
    /// How late requests were made, at the 99th percentile; in real time.
    late_p99: Option<Nanos>,
    /// Pages of a readahead window, on average; none without a window.
    window_pages: Option<f64>,
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
        let pages = specs::sizes(&args.cache)?.into_iter().map(pages_of).collect::<Result<_>>()?;
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
        let reading = args.reading.clone();
        let warm_up = args.warm_up;
        Ok(Self { source, reading, policies, pages, readaheads, pace, warm_up, slots, layout })
    }

    /// Requests that are not made: where bytes are real, those that write.
    fn left_out(&self, args: &Args) -> u64 {
        if args.device.is_some() && !args.real_time { 0 } else { self.layout.writes }
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
    args.output.check()?;
    let plan = Plan::new(args)?;
    interrupt::gently();
    let mut rows = Vec::new();
    for case in plan.cases() {
        let replayed = match (&args.device, &args.on) {
            (Some(spec), _) if !args.real_time => modelled::run(&plan, case, spec)?,
            (device, on) => live::run(&plan, case, device.as_deref(), on.as_deref(), args)?,
        };
        rows.push(Row::new(&plan, case, &replayed)?);
        if interrupt::asked() {
            break;
        }
    }
    let left_out = plan.left_out(args);
    let text = || row::text(&rows, left_out);
    args.output.print(&object! { runs: &rows }, &["runs"], text)?;
    if interrupt::asked() {
        note("the last row is of what was replayed until then");
        interrupt::leave();
    }
    Ok(())
}

fn pages_of(size: specs::Size) -> Result<u32> {
    match size {
        specs::Size::Pages(pages) => Ok(pages),
        specs::Size::Share(_) => Err(usage("--cache: give pages, or bytes with a suffix")),
    }
}

/// Refuses settings of the engine that cannot work.
fn check(settings: &forerun_engine::Settings) -> Result<()> {
    settings.core().map(drop).map_err(|error| usage(format!("--cache: {error}")))
}

/// The mean; none of nothing.
fn mean(counts: impl Iterator<Item = u32>) -> Option<f64> {
    let (sum, count) = counts.fold((0.0, 0.0), |(sum, all), it| (sum + f64::from(it), all + 1.0));
    (count > 0.0).then(|| sum / count)
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
