//! The charts of the paper on 2Q*, each beside the paper's statement.
//!
//! # Invariants
//! - The paper's statements are from its text; its curves are not known.
//! - A claim on a size that was not run is left out.

use crate::curves::{Chart, Claim, Section, Series, Sheet, Unit, X, Y};
use forerun_console::output;
use forerun_report::quantity::{count, ratio};
use forerun_sim::queues::QueueCounts;
use forerun_sim::trace::survey::TraceSummary;
use serde::Serialize;

use super::{OTHERS, TraceCounts};
use crate::specs::PAGE_BYTES;

/// All of one trace. The paper's statements and the numbers of its figures stand beside its own
/// workload only.
pub(super) fn charts(counted: &TraceCounts, of_the_paper: bool) -> Vec<Chart> {
    let mut charts =
        vec![uses(&counted.survey), gaps_by_use(&counted.survey), gaps(&counted.survey)];
    charts.extend([against_lru(counted), queues_of_2q(counted), all_policies(counted)]);
    charts.extend(each_queue(counted));
    if !of_the_paper {
        charts.iter_mut().for_each(without_the_paper);
    }
    charts
}

fn without_the_paper(chart: &mut Chart) {
    if let Some((_, title)) = chart.title.split_once(": ") {
        chart.title = title.to_owned();
    }
    chart.series.retain(|series| series.name != PAPER);
    chart.claims.iter_mut().for_each(|claim| claim.source = None);
}

/// What requests are like.
pub(super) fn requests(found: &TraceSummary) -> String {
    let percent = |part| format!("{:.1} %", 100.0 * ratio(part, found.requests));
    let reads = match found.reads + found.writes {
        0 => String::new(),
        with_op => format!(", {:.1} % reads", 100.0 * ratio(found.reads, with_op)),
    };
    format!(
        "; {} requests of {:.1} KiB on average{reads}; {} follow the one before, {} one of the \
         64 before",
        count(found.requests),
        ratio(found.bytes, found.requests) / 1024.0,
        percent(found.sequential),
        percent(found.nearly_sequential),
    )
}

/// The paper's statements and the results, a line each.
pub(super) fn text(sheet: &Sheet) -> String {
    let row = |chart: &Chart, claim: &Claim| {
        let figure = chart.title.split(':').next().unwrap_or_default().to_owned();
        let sides = claim.source.iter().chain([&claim.here]).cloned();
        [figure, claim.what.clone()].into_iter().chain(sides).collect()
    };
    let block = |section: &Section| {
        let rows: Vec<Vec<String>> = section
            .charts
            .iter()
            .flat_map(|chart| chart.claims.iter().map(move |claim| row(chart, claim)))
            .collect();
        let beside_paper = rows.iter().any(|row| row.len() == 4);
        let heads: &[&str] = if beside_paper {
            &["figure", "what", "paper", "here"]
        } else {
            &["chart", "what", "here"]
        };
        let table = output::table(heads, &rows, heads.len());
        format!("{}: {}\n{table}", section.title, section.facts)
    };
    sheet.sections.iter().map(block).collect::<Vec<String>>().join("\n")
}

/// A value of a line.
#[derive(Serialize)]
pub(super) struct Point {
    trace: String,
    chart: String,
    series: String,
    /// A class, or a size in pages.
    x: String,
    y: Option<f64>,
}

/// Every value of every line.
pub(super) fn values(sheet: &Sheet) -> Vec<Point> {
    let mut points = Vec::new();
    for section in &sheet.sections {
        for chart in &section.charts {
            let places: Vec<String> = match &chart.x {
                X::Pages { pages, .. } => pages.iter().map(ToString::to_string).collect(),
                X::Times { seconds, .. } => seconds.iter().map(ToString::to_string).collect(),
                X::Classes { names, .. } | X::Steps { names, .. } => names.clone(),
            };
            for series in &chart.series {
                points.extend(places.iter().zip(&series.y).map(|(x, &y)| Point {
                    trace: section.title.clone(),
                    chart: chart.title.clone(),
                    series: series.name.clone(),
                    x: x.clone(),
                    y,
                }));
            }
        }
    }
    points
}

fn uses(found: &TraceSummary) -> Chart {
    let (few, more) = found.uses.split_at(PAPER_USES.len() - 1);
    let here = few.iter().copied().chain([more.iter().sum()]);
    let names = ["1", "2", "3", "4", "5", "more"].map(str::to_owned).to_vec();
    let here: Vec<f64> = here.collect();
    Chart {
        claims: vec![claim("pages used more than five times", "35 %", &percent(here[5]))],
        series: vec![line(PAPER, PAPER_USES.to_vec()), line("here", here)],
        ..bars("Fig. 1a: pages by their uses", "uses of a page", names, "pages", Unit::Share)
    }
}

fn gaps_by_use(found: &TraceSummary) -> Chart {
    let (mut names, mut means) = (Vec::new(), Vec::new());
    for (number, &(count, mean)) in (2..).zip(&found.gaps_by_use) {
        if count > 0 {
            let later = if number == found.gaps_by_use.len() + 1 { "+" } else { "" };
            names.push(format!("{number}{later}"));
            means.push(mean);
        }
    }
    let ends = means.first().zip(means.last());
    let here = ends.map(|(&first, &last)| format!("{} to {}", whole(first), whole(last)));
    Chart {
        claims: here
            .iter()
            .map(|it| claim("from the second use to the last", "falls", it))
            .collect(),
        series: vec![line("here", means)],
        ..bars(
            "Fig. 1b: mean gap before a use",
            "use of a page",
            names,
            "accesses since the last use",
            Unit::Count,
        )
    }
}

fn gaps(found: &TraceSummary) -> Chart {
    let all: u64 = found.gaps.iter().sum();
    let first = found.gaps.iter().position(|&count| count > 0).unwrap_or(0);
    let end = found.gaps.iter().rposition(|&count| count > 0).map_or(0, |at| at + 1);
    let shown = found.gaps.get(first..end).unwrap_or_default();
    let middle: u64 = found.gaps.iter().take(17).skip(10).sum();
    Chart {
        claims: vec![claim(
            "accesses with a gap of 1,024 to 131,071",
            "very few",
            &percent(ratio(middle, all)),
        )],
        series: vec![line("here", shown.iter().map(|&count| ratio(count, all)).collect())],
        ..bars(
            "Fig. 1c: accesses by their gap",
            "gap in accesses, from this to twice it",
            (first..end).map(power_of_two).collect(),
            "accesses",
            Unit::Share,
        )
    }
}

/// 2 to the power of `exponent`, short.
fn power_of_two(exponent: usize) -> String {
    let units = ["", "K", "M", "G", "T", "P", "E"];
    format!("{}{}", 1_u64 << (exponent % 10), units[exponent / 10])
}

fn against_lru(counted: &TraceCounts) -> Chart {
    let (lru, two_q) = (&counted.others[0], hits(counted, 0));
    let mut claims = Vec::new();
    for (pages, name, paper) in [(HALF, "0.5 GB", "+10"), (LARGE, "1.75 GB", "-4")] {
        if let Some(at) = counted.at(pages) {
            let here = points(two_q[at] - lru[at]);
            claims.push(claim(&format!("2Q against LRU at {name}, points"), paper, &here));
        }
    }
    let up_to = counted.pages.iter().take_while(|&&pages| pages <= MIDDLE).count();
    if let Some(least) = (0..up_to).map(|at| two_q[at] - lru[at]).reduce(f64::min) {
        let what = "least lead of 2Q up to 1.25 GB, points";
        claims.push(claim(what, "above 0", &points(least)));
    }
    let series = vec![line("lru", lru.clone()), line("2q", two_q)];
    Chart { series, claims, ..curves("Fig. 2a: LRU and 2Q", "hit ratio", counted) }
}

fn queues_of_2q(counted: &TraceCounts) -> Chart {
    let mut claims = Vec::new();
    let sizes = [HALF, MIDDLE, LARGE].map(|pages| counted.at(pages));
    if let [Some(half), Some(middle), Some(large)] = sizes {
        let steps = |queue: Queue| {
            let of = |at: usize| percent(queue.share(&counted.queues[at][0]));
            [half, middle, large].map(of).join(", ")
        };
        for (queue, paper) in QUEUES.into_iter().zip(PAPER_QUEUES) {
            let what = format!("{} at 0.5, 1.25, 1.75 GB", queue.name());
            claims.push(claim(&what, paper, &steps(queue)));
        }
    }
    let series = QUEUES.iter().map(|queue| line(queue.name(), queue.shares(counted, 0))).collect();
    Chart {
        series,
        claims,
        ..curves("Fig. 2b: where accesses fall under 2Q", "share of accesses", counted)
    }
}

fn all_policies(counted: &TraceCounts) -> Chart {
    let (lru, two_q, star) = (&counted.others[0], hits(counted, 0), hits(counted, 1));
    let mut claims = Vec::new();
    let gain = |at: usize| star[at] / lru[at] - 1.0;
    let most =
        (0..star.len()).filter(|&at| lru[at] > 0.0).max_by(|&a, &b| gain(a).total_cmp(&gain(b)));
    if let Some(most) = most {
        let mib = (u64::from(counted.pages[most]) * u64::from(PAGE_BYTES)) >> 20;
        let here = format!("{} at {mib} MiB", percent(gain(most)));
        claims.push(claim("most hits of 2Q* above LRU's", "30 % at 768 MiB", &here));
    }
    if let Some(at) = counted.at(LARGE) {
        let here = points(star[at] - two_q[at]);
        claims.push(claim("2Q* against 2Q at 1.75 GB, points", "about +5", &here));
    }
    if let Some(at) = counted.at(THREE_QUARTERS) {
        let all = OTHERS.iter().zip(&counted.others).map(|(&name, ratios)| (name, ratios[at]));
        let best = all.max_by(|a, b| a.1.total_cmp(&b.1));
        let here = best.map(|(name, best)| format!("{} on {name}", points(star[at] - best)));
        let what = "2Q* against the best other at 768 MiB, points";
        claims.extend(here.iter().map(|here| claim(what, "above 0", here)));
    }
    let mut series: Vec<Series> =
        OTHERS.iter().zip(&counted.others).map(|(name, y)| line(name, y.clone())).collect();
    series.extend([line("2q", two_q), line("2q-star", star)]);
    Chart { series, claims, ..curves("Fig. 4: six policies", "hit ratio", counted) }
}

fn each_queue(counted: &TraceCounts) -> impl Iterator<Item = Chart> + '_ {
    let parts = ["5a", "5b", "5c"].into_iter().zip(["higher", "lower", "lower"]);
    QUEUES.into_iter().zip(parts).map(|(queue, (figure, paper))| {
        let [old, new] = [0, 1].map(|policy| queue.shares(counted, policy));
        let here = counted.at(LARGE).map(|at| points(new[at] - old[at]));
        let what = "2Q* against 2Q at 1.75 GB, points";
        Chart {
            claims: here.iter().map(|here| claim(what, paper, here)).collect(),
            series: vec![line("2q", old), line("2q-star", new)],
            ..curves(&format!("Fig. {figure}: {}", queue.name()), "share of accesses", counted)
        }
    })
}

/// A queue of 2Q.
#[derive(Clone, Copy)]
enum Queue {
    A1in,
    A1out,
    Am,
}

impl Queue {
    fn name(self) -> &'static str {
        match self {
            Self::A1in => "hits in A1in",
            Self::A1out => "misses named in A1out",
            Self::Am => "hits in Am",
        }
    }

    fn share(self, found: &QueueCounts) -> f64 {
        let count = match self {
            Self::A1in => found.a1in,
            Self::A1out => found.a1out,
            Self::Am => found.am,
        };
        ratio(count, found.accesses())
    }

    /// By size, under 2Q (0) or 2Q* (1).
    fn shares(self, counted: &TraceCounts, policy: usize) -> Vec<f64> {
        counted.queues.iter().map(|of| self.share(&of[policy])).collect()
    }
}

impl TraceCounts {
    /// Which size has so many pages.
    fn at(&self, pages: u32) -> Option<usize> {
        self.pages.iter().position(|&size| size == pages)
    }
}

/// Hit ratios by size of 2Q (0) or 2Q* (1).
fn hits(counted: &TraceCounts, policy: usize) -> Vec<f64> {
    let hits =
        |of: &[QueueCounts; 2]| ratio(of[policy].a1in + of[policy].am, of[policy].accesses());
    counted.queues.iter().map(hits).collect()
}

fn curves(title: &str, label: &str, counted: &TraceCounts) -> Chart {
    let x = X::Pages { pages: counted.pages.clone(), page_bytes: PAGE_BYTES };
    chart(title, x, label, Unit::Share)
}

fn bars(title: &str, classes: &str, names: Vec<String>, label: &str, unit: Unit) -> Chart {
    chart(title, X::Classes { label: classes.to_owned(), names }, label, unit)
}

fn chart(title: &str, x: X, label: &str, unit: Unit) -> Chart {
    Chart {
        title: title.to_owned(),
        note: String::new(),
        x,
        y: Y { label: label.to_owned(), unit },
        series: Vec::new(),
        better: None,
        baseline: None,
        claims: Vec::new(),
    }
}

fn line(name: &str, y: Vec<f64>) -> Series {
    Series { name: name.to_owned(), bound: false, y: y.into_iter().map(Some).collect() }
}

fn claim(what: &str, source: &str, here: &str) -> Claim {
    Claim { what: what.to_owned(), source: Some(source.to_owned()), here: here.to_owned() }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of counts")]
fn whole(mean: f64) -> String {
    count(mean as u64)
}

fn points(difference: f64) -> String {
    format!("{:+.1}", difference * 100.0)
}

/// The series of the paper's own values.
const PAPER: &str = "paper";
const QUEUES: [Queue; 3] = [Queue::A1in, Queue::A1out, Queue::Am];
/// As the paper describes its Fig. 2b: up to 1.25 GB, then beyond.
const PAPER_QUEUES: [&str; 3] = ["falls, then rises", "rises, then falls", "rises, then falls"];
/// Shares of pages used once, twice... and more than five times, as the paper rounds them.
const PAPER_USES: [f64; 6] = [0.15, 0.21, 0.10, 0.13, 0.08, 0.35];
/// Sizes that the paper names, in pages.
const HALF: u32 = 131_072;
const THREE_QUARTERS: u32 = 196_608;
const MIDDLE: u32 = 327_680;
const LARGE: u32 = 458_752;
