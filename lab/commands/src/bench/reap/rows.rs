//! The results of the slices: means, quantiles, ratios within rounds, and the verdict.
//!
//! # Invariants
//! - A ratio compares slices of one round; of several rounds the median counts.
//! - A verdict is of the mean of the ratios over sizes, and none is given of a noisy run.

use forerun_console::noise::Noise;
use forerun_console::output;
use forerun_core::params::{Bytes, Param as _};
use forerun_core::reap::Way;
use forerun_core::units::Nanos;
use forerun_io::reaper::ReapCounts;
use forerun_report::quantity::{float, micros};
use forerun_report::{Distribution, Run, Summary, Target, Waits, mean};
use serde::Serialize;

use super::workers::{Cell, Load, Slice};

/// One policy with one size, under one load.
#[derive(Serialize)]
pub(super) struct Row {
    policy: String,
    /// Bytes of a read; 0 where they are drawn.
    size: u64,
    group: u32,
    mean_us: f64,
    trimmed_mean_us: f64,
    p50_us: f64,
    p99_us: f64,
    stdev_us: f64,
    cpu_us_per_io: f64,
    late_share: f64,
    load: &'static str,
    threads: u32,
    groups: u64,
    /// From one group of a thread to its next, with the time that threads wait for one another.
    wall_us_per_group: f64,
    /// The lowest and the highest trimmed mean of a round.
    spread_us: [f64; 2],
    counters: Counters,
    /// The note that the policy waits by interrupt in place of its own way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fallen: Option<String>,
    #[serde(skip)]
    rounds: Vec<Round>,
    #[serde(skip)]
    quantiles_us: Vec<f64>,
}

/// A round of a row.
#[derive(Clone, Copy)]
struct Round {
    trimmed: f64,
    cpu: f64,
    wall: f64,
}

/// The counts of the reapers.
#[derive(Serialize)]
struct Counters {
    reaped_interrupt: u64,
    reaped_spin: u64,
    reaped_sleep: u64,
    late: u64,
    unsupported: u64,
    no_room: u64,
    disturbed: u64,
    budget_ended: u64,
    overshoot_mean_us: f64,
    spin_us_per_io: f64,
    sleep_us_per_io: f64,
    blocked_us_per_io: f64,
}

/// The rows of `cells`.
pub(super) fn rows(load: &Load, policies: &[String], cells: Vec<Cell>) -> Vec<Row> {
    cells.into_iter().map(|cell| row(load, &policies[cell.policy], cell)).collect()
}

fn row(load: &Load, policy: &str, cell: Cell) -> Row {
    let mut counts = ReapCounts::default();
    let (mut waking, mut wall) = (Nanos(0), Nanos(0));
    for slice in &cell.slices {
        counts.add(&slice.counts);
        waking += slice.waking;
        wall += slice.wall;
    }
    let rounds: Vec<Round> = cell.slices.iter().map(Round::of).collect();
    let all = cell.slices.into_iter().flat_map(|slice| slice.latencies);
    let latencies = distribution(all);
    let operations = counts.operations.max(1);
    let per_io = |time: Nanos| micros(time) / float(operations);
    let spread = Summary::of(rounds.iter().map(|round| round.trimmed));
    Row {
        policy: policy.to_owned(),
        size: if let [size] = load.shapes[cell.shape][..] { size } else { 0 },
        group: load.group,
        mean_us: latencies.mean(),
        trimmed_mean_us: latencies.trimmed_mean(),
        p50_us: latencies.at(500),
        p99_us: latencies.at(990),
        stdev_us: latencies.stdev(),
        cpu_us_per_io: per_io(counts.cpu + waking),
        late_share: float(counts.late) / float(counts.all().max(1)),
        load: load.name,
        threads: load.threads,
        groups: counts.all(),
        wall_us_per_group: micros(wall) / float(counts.all().max(1)),
        spread_us: [spread.min, spread.max],
        counters: Counters {
            reaped_interrupt: counts.by(Way::Interrupt),
            reaped_spin: counts.by(Way::Spin),
            reaped_sleep: counts.by(Way::SleepSpin),
            late: counts.late,
            unsupported: counts.unsupported,
            no_room: counts.spin_refused,
            disturbed: counts.contended,
            budget_ended: counts.budget_ended,
            overshoot_mean_us: micros(counts.overshoot_mean()),
            spin_us_per_io: per_io(counts.spun),
            sleep_us_per_io: per_io(counts.slept),
            blocked_us_per_io: per_io(counts.blocked),
        },
        fallen: cell.fallen,
        rounds,
        quantiles_us: Waits::PERMILLES
            .iter()
            .map(|&permille| latencies.at(permille.into()))
            .collect(),
    }
}

impl Round {
    fn of(slice: &Slice) -> Self {
        let latencies = distribution(slice.latencies.iter().copied());
        let cpu = micros(slice.counts.cpu + slice.waking);
        let operations = float(slice.counts.operations.max(1));
        let wall = micros(slice.wall) / float(slice.counts.all().max(1));
        Self { trimmed: latencies.trimmed_mean(), cpu: cpu / operations, wall }
    }
}

impl Row {
    /// The form of a record.
    pub(super) fn recorded(&self, device: &str, emulated: bool) -> Run {
        let bytes = if self.size == 0 { "sizes drawn".to_owned() } else { Bytes(self.size).show() };
        Run {
            readahead: self.policy.clone(),
            device: device.to_owned(),
            emulated,
            streams: self.threads,
            workload: format!("reap,size={bytes},group={},load={}", self.group, self.load),
            p50_us: self.p50_us,
            p99_us: self.p99_us,
            waits: Some(Waits {
                mean_us: self.mean_us,
                trimmed_mean_us: self.trimmed_mean_us,
                cpu_us_per_io: self.cpu_us_per_io,
                late_share: self.late_share,
                quantiles_us: self.quantiles_us.clone(),
            }),
            ..Run::default()
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        (self.load, self.size, self.group) == (other.load, other.size, other.group)
    }
}

/// A policy against the two plain ones, at one size.
#[derive(Serialize)]
pub(super) struct Ratios {
    policy: String,
    size: u64,
    group: u32,
    load: &'static str,
    to_interrupt: Option<f64>,
    to_spin: Option<f64>,
    cpu_to_interrupt: Option<f64>,
    cpu_to_spin: Option<f64>,
    /// Of the time from one group to the next.
    wall_to_interrupt: Option<f64>,
}

impl Ratios {
    /// Those of all rows.
    pub(super) fn all(rows: &[Row]) -> Vec<Self> {
        rows.iter().map(|row| Self::of(row, rows)).collect()
    }

    fn of(row: &Row, rows: &[Row]) -> Self {
        let plain = |policy| rows.iter().find(|other| other.policy == policy && row.is_like(other));
        let ratio = |policy, figure: fn(&Round) -> f64| {
            let other: &Row = plain(policy)?;
            let each = row.rounds.iter().zip(&other.rounds);
            let ratio = Summary::of(each.map(|(own, other)| figure(own) / figure(other))).median;
            ratio.is_finite().then_some(ratio)
        };
        Self {
            policy: row.policy.clone(),
            size: row.size,
            group: row.group,
            load: row.load,
            to_interrupt: ratio("interrupt", |round| round.trimmed),
            to_spin: ratio("spin", |round| round.trimmed),
            cpu_to_interrupt: ratio("interrupt", |round| round.cpu),
            cpu_to_spin: ratio("spin", |round| round.cpu),
            wall_to_interrupt: ratio("interrupt", |round| round.wall),
        }
    }
}

/// One of the ratios.
type Figure = fn(&Ratios) -> Option<f64>;

/// The targets of `nio`, and whether it meets them.
pub(super) fn verdicts(rows: &[Row], noises: &[Noise]) -> Vec<String> {
    let ratios = Ratios::all(rows);
    let mut verdicts = Vec::new();
    for load in ["quiet", "hogs", "threads"] {
        let own: Vec<&Ratios> =
            ratios.iter().filter(|one| one.policy == "nio" && one.load == load).collect();
        let Some(first) = own.first() else { continue };
        let mut of_load = noises.iter().filter(|noise| noise.is_of(load));
        let is_noisy = of_load.any(|noise| noise.noisy().next().is_some());
        let goals: &[(&str, Figure, f64)] = match (load, first.group) {
            ("quiet", 1) => &[
                ("latency to interrupt", |one| one.to_interrupt, 0.85),
                ("latency to spin", |one| one.to_spin, 1.08),
                ("cpu to spin", |one| one.cpu_to_spin, 0.75),
            ],
            ("quiet", _) => &[
                ("latency to interrupt", |one| one.to_interrupt, 0.96),
                ("cpu to spin", |one| one.cpu_to_spin, 0.35),
            ],
            (_, _) => &[("time a group to interrupt", |one| one.wall_to_interrupt, 1.10)],
        };
        for (what, figure, most) in goals {
            let found: Option<Vec<f64>> = own.iter().map(|one| figure(one)).collect();
            let Some(found) = found else { continue };
            let mean = mean(&found);
            let bound = Target::AtMost(*most);
            let verdict = bound.judge(mean).unless_noisy(is_noisy);
            verdicts.push(format!("nio, {load}: {what} {mean:.3}, aimed at {bound:.2}: {verdict}"));
        }
    }
    verdicts
}

/// How far the rounds of the steadiest policy are apart, at each shape: highest to lowest.
pub(super) fn unsteady(cells: &[Cell]) -> Vec<f64> {
    let spread = |cell: &Cell| {
        Summary::of(cell.slices.iter().map(|slice| Round::of(slice).trimmed)).spread()
    };
    let shapes = cells.iter().map(|cell| cell.shape).max().map_or(0, |last| last + 1);
    let steadiest =
        |shape| cells.iter().filter(|cell| cell.shape == shape).map(spread).min_by(f64::total_cmp);
    (0..shapes).filter_map(steadiest).collect()
}

/// The rows as a table.
pub(super) fn table(rows: &[Row]) -> String {
    let ratio = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
    let cells = |row: &Row| {
        let reads = match (row.size, row.group) {
            (0, group) => format!("x{group}"),
            (size, 1) => Bytes(size).show(),
            (size, group) => format!("{} x{group}", Bytes(size).show()),
        };
        let ([low, high], ratios) = (row.spread_us, Ratios::of(row, rows));
        let mut cells = vec![row.policy.clone(), format!("{} x{}", row.load, row.threads), reads];
        cells.extend([row.mean_us, row.trimmed_mean_us].map(|micros| format!("{micros:.2}")));
        cells.push(format!("{low:.1}..{high:.1}"));
        let times = [row.p50_us, row.p99_us, row.stdev_us, row.wall_us_per_group];
        cells.extend(times.map(|micros| format!("{micros:.2}")));
        cells.push(format!("{:.2}", row.cpu_us_per_io));
        cells.push(format!("{:.1}", row.late_share * 100.0));
        cells.extend([ratios.to_interrupt, ratios.to_spin, ratios.cpu_to_spin].map(ratio));
        cells
    };
    output::table(&HEADER, &rows.iter().map(cells).collect::<Vec<_>>(), 2)
}

/// Latencies in microseconds.
fn distribution(nanos: impl IntoIterator<Item = u64>) -> Distribution {
    Distribution::of(nanos.into_iter().map(|nanos| micros(Nanos(nanos))))
}
#[rustfmt::skip]
const HEADER: [&str; 15] = [
    "policy", "load", "reads", "mean us", "trimmed", "spread", "p50", "p99", "stdev", "wall us",
    "cpu us/IO", "late %", "to irq", "to spin", "cpu to spin",
];

#[cfg(test)]
mod tests;
