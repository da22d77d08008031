//! `forerun profile`: what a device can do, by reads of its own.
//!
//! ```text
//!   classes (random 4K, in order, random 1M; 1 to 64 in flight) --> measure --> rates
//!                                                                     |
//!                            the estimator that the cache learns with +-----> facts
//!   lone reads of 4K to 128K by polling and by interrupt, sleeps --> latency --> latencies
//!   device, file system, kernel (place) + all of these --> store (TOML) --> stdout or -o
//! ```
//!
//! # Invariants
//! - It only reads, and it ends when its time is over and what is under way has come.
//! - What the estimator did not see is marked as assumed, in the table and in the file.
//! - Latencies of a busy machine are shown, with the reason, and not saved.
//! - Without `-o`, that of a file or device is kept where commands look for it; that of a model
//!   goes to stdout as TOML, the table in comments.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use forerun_console::failure::{note, usage};
use forerun_console::form::{Form, Kind, Output};
use forerun_console::profile::latency::LatencyHalf;
use forerun_console::profile::place::Place;
use forerun_console::target::Target;
use forerun_console::{output, specs};
use forerun_core::device::DeviceKind;
use forerun_core::device::estimate::{DeviceProfile, Estimate, Estimator};
use forerun_core::params::{Bytes, Param};
use forerun_core::units::Nanos;
use forerun_io::files::Backend;
use forerun_report::quantity::{self, thousandths};
use serde_json::json;

use forerun_console::profile::measure::{Class, ClassRates, Order, RateTarget};
use forerun_console::profile::store::{Profile, Profiles};
use forerun_console::profile::{flag, kind};

/// What `profile` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
        forerun profile /dev/nvme0n1\n  \
        forerun profile big.img --table -o devices.toml\n  \
        forerun profile --device object --time 30s")]
pub(crate) struct Args {
    /// Read this file or block device; a file stands for the device that it lies on
    #[arg(value_name = "PATH", required_unless_present = "device", conflicts_with = "device")]
    path: Option<PathBuf>,
    /// Read from this device model, NAME[:key=value,...], in real time
    #[arg(long, value_name = "MODEL")]
    device: Option<String>,
    /// How long to measure the rates; latencies take as long again, and 1s at most
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    time: Nanos,
    /// Write the profile into this file, beside those of other devices [default: the one that
    /// commands look into, ~/.config/forerun/devices.toml; that of a model: stdout]; or all that
    /// was measured into .json, .ndjson, .csv or .txt
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print all that was measured, as tables
    #[arg(long, conflicts_with_all = ["json", "ndjson", "csv"])]
    table: bool,
    #[command(flatten)]
    form: Form,
    /// Decides where is read
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Measures, prints, and writes the profile where it was asked for.
pub(crate) fn run(args: &Args) -> Result<()> {
    let target = target(args)?;
    let results = args.results();
    results.check()?;
    let saved = saved(args)?;
    let place = place(&target)?;
    let profiles = saved.as_deref().map(Profiles::to_add_to).transpose()?.unwrap_or_default();
    let before = profiles.facts(&place).transpose()?;

    let request_bytes_max = target.request_bytes_max() / PAGE_BYTES * PAGE_BYTES;
    let mut estimator = Estimator::new(request_bytes_max);
    let rates = measure(&target, args, &classes(request_bytes_max), &mut estimator)?;
    let estimate = estimator.estimate();
    let time = args.time.min(LATENCY_TIME_MAX);
    let (device, path) = (args.device.as_deref(), args.path.as_deref());
    let half = LatencyHalf::measure(device, path, place.is_direct, time, args.seed);
    let profile = Profile::new(&place, estimate.profile, estimate.known, &rates, half.kept());

    let object = json!({ "device": place.key(), "saved": &saved, "profile": &profile });
    let mut alone = Profiles::default();
    let insert = |profiles: &mut Profiles| profiles.insert(&place, profile);
    let written = match &saved {
        Some(path) => Profiles::update(path, insert),
        None => Ok(insert(&mut alone)),
    };
    let kept_before = written.as_ref().is_ok_and(|&kept| kept);
    let tables = || table(&estimate, before, &rates) + "\n" + &half.describe(kept_before);
    // The results are printed, whatever becomes of the files.
    let printed = match &saved {
        _ if !args.form.is_text() => args.form.print(&object, ROWS, String::new),
        Some(_) if args.table => output::print(&tables()),
        Some(path) => {
            let saved = written.is_ok().then(|| saved_line(path, args.is_usual()));
            output::print(&(brief(&place, &estimate) + &saved.unwrap_or_default()))
        }
        None => output::print(&(commented(&tables()) + "\n" + &alone.text()?)),
    };
    written.and(results.write(&object, ROWS, tables)).and(printed)
}

impl Args {
    /// Where what was measured is written, if `-o` names such a file.
    fn results(&self) -> Output {
        let path = self.output.clone().filter(|path| Kind::of(path).is_some());
        Output { path, form: self.form }
    }

    /// Whether the profile is kept where commands look for it.
    fn is_usual(&self) -> bool {
        self.output.as_deref().is_none_or(|path| Kind::of(path).is_some())
    }
}

/// The file that the profile is added to; none for a device model without a `-o` of profiles.
fn saved(args: &Args) -> Result<Option<PathBuf>> {
    if let Some(path) = &args.output {
        let both: Vec<_> = args.path.iter().chain([path]).map(PathBuf::as_path).collect();
        output::require_apart(&both)?;
    }
    let profiles = args.output.as_ref().filter(|_| !args.is_usual());
    let path = match (profiles, &args.path) {
        (Some(path), _) => {
            output::require_place(path)?;
            path.clone()
        }
        (None, Some(_)) => flag::usual_place_to_write()?,
        (None, None) => return Ok(None),
    };
    Ok(Some(path))
}

/// `text` as lines of comments of TOML.
fn commented(text: &str) -> String {
    text.lines().map(|line| format!("# {line}").trim_end().to_owned() + "\n").collect()
}

/// The facts in four lines: what was measured, its value, its use. Labels are the keys of `--json`,
/// without their units.
fn brief(place: &Place, estimate: &Estimate) -> String {
    let Estimate { profile: facts, known } = *estimate;
    let basis = |is_known: bool| if is_known { "" } else { " (assumed)" };
    let serves = match facts.kind {
        DeviceKind::SeekBound => "goes from place to place, one request after the other",
        DeviceKind::Parallel => "serves many requests at the same time",
    };
    let requests = if facts.depth == 1 { "request" } else { "requests" };
    format!(
        "device  {}\n\
         kind    {}{}: {serves}; decides how readahead is sized\n\
         access  {}{} for a lone request without its transfer; readahead has to be that far ahead\n\
         MB/s    {}{} at most, with {} {requests} of {} in flight; bounds what can be gained\n",
        place.key(),
        kind(facts.kind),
        basis(known.kind),
        quantity::time(quantity::seconds(facts.access)),
        basis(known.access),
        thousandths(facts.bytes_per_second / 1_000),
        basis(known.rate),
        facts.depth,
        quantity::bytes(facts.request_bytes.into()),
    )
}

/// Where the profile is kept, in words.
fn saved_line(path: &Path, is_usual: bool) -> String {
    let path = path.display();
    let option = if is_usual { String::new() } else { format!("--profile {path} ") };
    format!("saved   {path}; `forerun explain {option}-- PROGRAM` predicts by it\n")
}

/// Reads in each of `classes` in turn, an equal time each.
fn measure(
    target: &Target,
    args: &Args,
    classes: &[Class],
    estimator: &mut Estimator,
) -> Result<Vec<ClassRates>> {
    let (name, bytes) = (target.name(), target.bytes().min(BYTES_MAX));
    if bytes < BYTES_MIN {
        let min = Bytes(BYTES_MIN).show();
        return Err(usage(format!("{name} is too small to measure: name a file of {min} or more")));
    }
    let count = classes.len() as u64;
    let mut reader = RateTarget::new(target.open(bytes)?.store, bytes, args.seed);
    let bar = output::progress(count, "profile");
    let measured = classes.iter().map(|class| {
        let rates = reader.measure(class, Nanos(args.time.0 / count), estimator);
        bar.inc(1);
        rates.with_context(|| format!("cannot measure {name}"))
    });
    let rates = measured.collect();
    bar.finish_and_clear();
    rates
}

/// What is measured.
fn target(args: &Args) -> Result<Target> {
    if let Some(spec) = &args.device {
        return Target::model(spec, args.seed);
    }
    Target::file(args.path.clone().expect("required without --device"), Backend::Auto)
}

/// Where it is.
fn place(target: &Target) -> Result<Place> {
    let place = target.place()?;
    if !place.is_direct {
        let name = target.name();
        note(&format!("{name} cannot be read directly: what the kernel holds is measured, too"));
    }
    Ok(place)
}

/// Everything that is measured.
fn classes(request_bytes_max: u32) -> Vec<Class> {
    let random = |bytes: u32| {
        DEPTHS.into_iter().map(move |depth| Class { order: Order::Random, bytes, depth })
    };
    let in_order = Class { order: Order::Sequential, bytes: request_bytes_max, depth: 1 };
    random(PAGE_BYTES).chain([in_order]).chain(random(request_bytes_max)).collect()
}

/// The facts and the rates of the classes, as tables.
fn table(estimate: &Estimate, before: Option<DeviceProfile>, rates: &[ClassRates]) -> String {
    let Estimate { profile: facts, known } = *estimate;
    let row = |what: &str, value: fn(DeviceProfile) -> String, is_known: bool, unit: &str| {
        let basis = if is_known { "measured" } else { "assumed" };
        let before = before.map_or_else(|| "-".to_owned(), value);
        [what, &value(facts), unit, basis, &before].map(str::to_owned).to_vec()
    };
    let rows = [
        row("kind", |facts| kind(facts.kind).to_owned(), known.kind, ""),
        row("access", |facts| thousandths(facts.access.0), known.access, "us"),
        row("rate", |facts| thousandths(facts.bytes_per_second / 1_000), known.rate, "MB/s"),
        row("depth", |facts| facts.depth.to_string(), known.rate, "requests"),
        row("request", |facts| (facts.request_bytes >> 10).to_string(), known.rate, "KiB"),
    ];
    let facts = output::table(&["fact", "value", "unit", "basis", "before"], &rows, 1);
    let header =
        ["reads", "KiB", "in flight", "requests", "MB/s", "latency us", "its deviation us"];
    let rows: Vec<_> = rates.iter().map(figures_row).collect();
    facts + "\n" + &output::table(&header, &rows, 1)
}

fn figures_row(rates: &ClassRates) -> Vec<String> {
    let class = rates.class;
    vec![
        class.order.name().to_owned(),
        (class.bytes >> 10).to_string(),
        class.depth.to_string(),
        rates.requests.to_string(),
        thousandths(rates.bytes_per_second / 1_000),
        thousandths(rates.latency_mean.0),
        thousandths(rates.latency_stdev.0),
    ]
}

/// A time to measure, for the command line.
fn time(text: &str) -> Result<Nanos, String> {
    let time = Nanos::parse(text).filter(|time| (TIME_MIN..=TIME_MAX).contains(time));
    time.ok_or_else(|| "expected a duration such as 10s or 500ms, from 100ms to 3600s".to_owned())
}

/// The rows of the result.
const ROWS: &[&str] = &["profile.classes"];
const PAGE_BYTES: u32 = specs::PAGE_BYTES;
const DEPTHS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Less would be read again and again, out of the drive's own memory.
pub(crate) const BYTES_MIN: u64 = 16 << 20;
/// Models may have no end.
const BYTES_MAX: u64 = 1 << 44;
/// A small addition to the time of the rest.
const LATENCY_TIME_MAX: Nanos = Nanos::from_millis(1_000);
const TIME_MIN: Nanos = Nanos::from_millis(100);
const TIME_MAX: Nanos = Nanos::from_millis(3_600_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_and_bounds() {
        for (text, expected) in [
            ("10s", Some(10_000)),
            ("100ms", Some(100)),
            ("3600s", Some(3_600_000)),
            ("99ms", None),
            ("3601s", None),
            ("10", None),
            ("", None),
        ] {
            assert_eq!(time(text).ok(), expected.map(Nanos::from_millis), "{text}");
        }
    }
}
