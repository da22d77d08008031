//! `forerun trace info`: the contents of a trace: counts, sizes, reuse.
//!
//! # Invariants
//! - Values that the trace lacks (times, reads, sizes) are left out, never shown as 0.
//! # Sources
//! Meng et al. 2009, Fig. 1: (a) how often blocks are used, (b) the mean gap by use, (c) the
//! distribution of gaps.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use forerun_console::form::Output;
use forerun_console::output::{self, Column};
use forerun_core::params::Share;
use forerun_report::quantity::{bytes, time};
use forerun_sim::trace::survey::{Survey, SurveySettings, TraceSummary};
use forerun_sim::trace::{Addresses, Facts};
use serde::Serialize;

use super::Input;
use crate::given::Control;
use crate::sim::source::{Reading, Requests, Source};
use crate::specs;

/// What `trace info` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forerun trace info OLTP.lis.zst\n  \
    forerun trace info workload:mail,model=m1 --json\n  \
    forerun trace info huge.oracleGeneral.zst --sample 0.01")]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,
    /// Follow this share of the pages only
    #[arg(long, value_name = "RATE", default_value = "1", value_parser = specs::sample)]
    sample: Share,
    #[command(flatten)]
    output: Output,
}

/// Surveys the trace and prints the results.
pub(crate) fn run(args: &Args) -> Result<()> {
    args.output.check()?;
    let (source, reading) = args.input.open()?;
    let info = surveyed(args, &source, reading)?;
    args.output.print(&info, &TABLES, || info.text())
}

/// What `--json` prints of `source`, in place of the trace that `args` name.
pub(crate) fn json(args: &Args, source: &Source, control: &Control) -> Result<String> {
    let info = surveyed(args, source, args.input.reading(control)?)?;
    serde_json::to_string(&info).context("cannot write JSON")
}

/// The requests of `source`, read as `args` say.
pub(crate) fn requests(args: &Args, source: &Source, control: &Control) -> Result<Requests> {
    source.requests(&args.input.reading(control)?)
}

fn surveyed(args: &Args, source: &Source, reading: Reading) -> Result<Info> {
    let mut requests = source.requests(&reading)?;
    let settings = SurveySettings { memory: args.input.memory, sample: args.sample };
    let mut batch = Vec::new();
    let mut more = requests.next_batch(&mut batch)?;
    let facts = requests.facts();
    let mut survey = Survey::new(settings, facts.addresses);
    while more {
        for request in &batch {
            survey.add(request).with_context(|| source.name())?;
        }
        more = requests.next_batch(&mut batch)?;
    }
    let format = match requests.guess() {
        Some(guess) => Some(guess.to_owned()),
        None => (reading.format != forerun_sim::trace::AUTO).then_some(reading.format),
    };
    Ok(Info::new(source.name(), format, requests.skipped(), facts, args, &survey.finish()))
}

/// The output.
#[derive(Serialize)]
struct Info {
    trace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<String>,
    /// `blocks` of a device, or `keys` of objects.
    addresses: &'static str,
    requests: u64,
    /// Pages of 4 KiB of all requests.
    accesses: u64,
    /// Distinct pages.
    unique: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    footprint_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    read_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_bytes: Option<Sizes>,
    /// Requests that begin where the one before ended.
    sequential_share: f64,
    /// Requests that begin where one of the 64 before ended.
    nearly_sequential_share: f64,
    reuse: Reuse,
    /// Broken records that were passed over.
    skipped: u64,
    /// The share of pages that was followed.
    sample: f64,
}

#[derive(Serialize)]
struct Sizes {
    total: u64,
    mean: f64,
    min: u64,
    max: u64,
    histogram: Vec<Class>,
}

/// Things from one bound to another, both included.
#[derive(Serialize)]
struct Class {
    from: u64,
    to: u64,
    count: u64,
    share: f64,
}

/// Fig. 1 of the source.
#[derive(Serialize)]
struct Reuse {
    /// (a) Pages that are used exactly so often; the last row: at least so often.
    uses: Vec<Uses>,
    /// (b) The mean gap before the second use, the third...; the last row: before all later ones.
    gap_by_use: Vec<Gap>,
    /// (c) Accesses by the distance to the previous use of their page.
    gaps: Vec<Class>,
}

#[derive(Serialize)]
struct Uses {
    times: u64,
    or_more: bool,
    share: f64,
}

#[derive(Serialize)]
struct Gap {
    #[serde(rename = "use")]
    number: u64,
    or_later: bool,
    gaps: u64,
    mean: f64,
}

impl Info {
    #[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
    fn new(
        trace: String,
        format: Option<String>,
        skipped: u64,
        facts: Facts,
        args: &Args,
        found: &TraceSummary,
    ) -> Self {
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let is_blocks = facts.addresses == Addresses::Blocks;
        let with_op = found.reads + found.writes;
        let classes = |counts: &[u64], bounds: &dyn Fn(u32) -> (u64, u64)| -> Vec<Class> {
            let total: u64 = counts.iter().sum();
            let class = |(at, &count): (usize, &u64)| {
                let (from, to) = bounds(u32::try_from(at).expect("at most 65 classes"));
                Class { from, to, count, share: share(count, total) }
            };
            let first = counts.iter().position(|&count| count > 0).unwrap_or(0);
            let last = counts.iter().rposition(|&count| count > 0).map_or(0, |at| at + 1);
            counts.iter().enumerate().map(class).skip(first).take(last - first).collect()
        };
        let sizes = |at: u32| match at {
            0 => (0, 1),
            64.. => ((1 << 63) + 1, u64::MAX),
            at => ((1 << (at - 1)) + 1, 1 << at),
        };
        let gaps = |at: u32| (1 << at, (1 << at) + ((1 << at) - 1));
        let uses = found.uses.iter().zip(1..).map(|(&share, times)| Uses {
            times,
            or_more: found.uses.len() as u64 == times,
            share,
        });
        let gap_by_use = found.gaps_by_use.iter().zip(2..).map(|(&(gaps, mean), number)| Gap {
            number,
            or_later: found.gaps_by_use.len() as u64 + 1 == number,
            gaps,
            mean,
        });
        Self {
            trace,
            format,
            addresses: if is_blocks { "blocks" } else { "keys" },
            requests: found.requests,
            accesses: found.accesses,
            unique: found.unique,
            footprint_bytes: is_blocks.then(|| found.footprint()),
            devices: is_blocks.then_some(found.devices),
            read_share: (facts.ops && with_op > 0).then(|| share(found.reads, with_op)),
            seconds: facts.times.then(|| found.ends.since(found.begins).0 as f64 / 1e9),
            request_bytes: facts.sizes.then(|| Sizes {
                total: found.bytes,
                mean: share(found.bytes, found.requests),
                min: found.smallest,
                max: found.largest,
                histogram: classes(&found.sizes, &sizes),
            }),
            sequential_share: share(found.sequential, found.requests),
            nearly_sequential_share: share(found.nearly_sequential, found.requests),
            reuse: Reuse {
                uses: uses.collect(),
                gap_by_use: gap_by_use.filter(|gap| gap.gaps > 0).collect(),
                gaps: classes(&found.gaps, &gaps),
            },
            skipped,
            sample: f64::from(args.sample.ppm) / 1e6,
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: String| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name:<16}{value}");
        };
        let percent = |share: f64| format!("{:.2} %", share * 100.0);
        row("trace", forerun_console::failure::plain(&self.trace));
        if let Some(format) = &self.format {
            row("format", format.clone());
        }
        row("requests", self.requests.to_string());
        row("accesses", format!("{} of 4 KiB pages", self.accesses));
        let about = if self.sample < 1.0 { "about " } else { "" };
        let footprint =
            self.footprint_bytes.map_or_else(String::new, |b| format!(", {}", bytes(b)));
        row("distinct pages", format!("{about}{}{footprint}", self.unique));
        if let Some(devices) = self.devices {
            row("devices", devices.to_string());
        }
        let of_requests = |share| format!("{} of the requests", percent(share));
        row("reads", self.read_share.map_or("not told".into(), of_requests));
        row("time", self.seconds.map_or("not told".into(), time));
        if let Some(sizes) = &self.request_bytes {
            let (min, max) = (bytes(sizes.min), bytes(sizes.max));
            row("request size", format!("mean {:.0} bytes, {min} to {max}", sizes.mean));
        }
        row(
            "sequential",
            format!(
                "{}; {} follow one of the 64 before",
                percent(self.sequential_share),
                percent(self.nearly_sequential_share)
            ),
        );
        if self.skipped > 0 {
            row("passed over", format!("{} broken records", self.skipped));
        }
        if let Some(sizes) = &self.request_bytes {
            text += "\nrequests by size in bytes\n";
            text += &classes(&sizes.histogram);
        }
        text += "\npages by how often they are used\n";
        let uses: [Column<Uses>; 2] = [
            ("uses", |it| format!("{}{}", it.times, if it.or_more { "+" } else { "" })),
            ("share", |it| format!("{:.2} %", it.share * 100.0)),
        ];
        text += &output::columns(&self.reuse.uses, &uses, 0);
        text += "\ngaps by use, in accesses since the page's last one\n";
        let gaps: [Column<Gap>; 3] = [
            ("use", |it| format!("{}{}", it.number, if it.or_later { "+" } else { "" })),
            ("gaps", |it| it.gaps.to_string()),
            ("mean", |it| format!("{:.0}", it.mean)),
        ];
        text += &output::columns(&self.reuse.gap_by_use, &gaps, 0);
        text += "\naccesses by their gap\n";
        text + &classes(&self.reuse.gaps)
    }
}

/// Classes with bars, so that a shape is seen.
fn classes(classes: &[Class]) -> String {
    let cells = |class: &Class| {
        let marks = (0..100).step_by(2).take_while(|&mark| class.share * 100.0 > f64::from(mark));
        vec![
            format!("{}-{}", class.from, class.to),
            class.count.to_string(),
            format!("{:.2} %", class.share * 100.0),
            " ".to_owned() + &"#".repeat(marks.count()),
        ]
    };
    let rows: Vec<Vec<String>> = classes.iter().map(cells).collect();
    let width = rows.iter().map(|row| row[3].len()).max().unwrap_or(0);
    let padded = rows.into_iter().map(|mut row| {
        row[3] = format!("{:<width$}", row[3]);
        row
    });
    output::table(&["from-to", "count", "share", ""], &padded.collect::<Vec<_>>(), 0)
}

/// The tables of the output.
const TABLES: [&str; 4] =
    ["request_bytes.histogram", "reuse.uses", "reuse.gap_by_use", "reuse.gaps"];
