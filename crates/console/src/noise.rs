//! The machine's other load during a measurement, and whether it was too high.
//!
//! ```text
//!   /proc/loadavg       tasks that wanted to run, over a minute
//!   /proc/stat          steal: the hypervisor ran another machine
//!   /proc/pressure/cpu  some: a task waited for a processor
//! ```
//!
//! # Invariants
//! - A value that the system lacks makes no run noisy, and is shown as unknown.

use std::fs;

use forerun_core::units::Nanos;
use forerun_report::quantity;
use forerun_report::quantity::float;
use serde::Serialize;

use crate::machine;

/// The counters at a moment, or their difference between two.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Noise {
    #[serde(skip)]
    at: Nanos,
    /// The name of the load during the measurement.
    load: &'static str,
    loadavg: Option<f64>,
    /// Ticks of all processors, and of those the stolen ones; then the share.
    #[serde(skip)]
    ticks: Option<(u64, u64)>,
    steal_share: Option<f64>,
    #[serde(skip)]
    waited_us: Option<u64>,
    /// The share of the time in which a task waited for a processor.
    pressure_share: Option<f64>,
    /// The reasons for no verdict.
    noisy: Vec<String>,
}

impl Noise {
    /// The current counters of the system.
    #[must_use]
    pub fn now() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            at: machine::now(),
            loadavg: text("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()),
            ticks: ticks(&text("/proc/stat")),
            waited_us: waited(&text("/proc/pressure/cpu")),
            ..Self::default()
        }
    }

    /// The difference since `before`, while `load` ran. Under a `quiet` load, no task should have
    /// waited for a processor.
    #[must_use]
    pub fn since(mut self, before: &Self, load: &'static str, quiet: bool) -> Self {
        self.load = load;
        let passed = quantity::seconds(self.at.since(before.at));
        self.steal_share = self.ticks.zip(before.ticks).and_then(|(now, before)| {
            let (all, stolen) = (now.0.checked_sub(before.0)?, now.1.checked_sub(before.1)?);
            (all > 0).then(|| float(stolen) / float(all))
        });
        self.pressure_share = self
            .waited_us
            .zip(before.waited_us)
            .map(|(now, before)| float(now.saturating_sub(before)) / 1e6 / passed.max(1e-6));
        let limits = [
            ("stolen", self.steal_share, STEAL_MAX, true),
            ("waited for by other tasks", self.pressure_share, PRESSURE_MAX, quiet),
        ];
        for (what, share, most, counts) in limits {
            if let Some(share) = share.filter(|&share| counts && share > most) {
                self.noisy.push(format!("{:.1} % of the time was {what}", share * 100.0));
            }
        }
        self
    }

    /// Adds how far rounds of the same were apart, at each size: highest to lowest.
    pub fn unsteady(&mut self, apart: &[f64]) {
        if let Some(most) = apart.iter().copied().max_by(f64::total_cmp)
            && most > APART_MAX
        {
            self.noisy.push(format!("rounds of the steadiest policy are {most:.2} apart"));
        }
    }

    /// Adds how often the measuring thread was put aside while it took `samples`.
    pub fn preempted(&mut self, times: u64, samples: u64) {
        if float(times) > float(samples) * PREEMPTED_MAX {
            self.noisy.push(format!("the thread was put aside {times} times in {samples} samples"));
        }
    }

    /// Whether it is of this load.
    #[must_use]
    pub fn is_of(&self, load: &str) -> bool {
        self.load == load
    }

    /// The reasons of a noisy run.
    pub fn noisy(&self) -> impl Iterator<Item = &str> {
        self.noisy.iter().map(String::as_str)
    }

    /// For people.
    #[must_use]
    pub fn describe(&self) -> String {
        let share = |share: Option<f64>| {
            share.map_or("unknown".to_owned(), |share| format!("{:.1} %", share * 100.0))
        };
        let load = self.loadavg.map_or("unknown".to_owned(), |load| format!("{load:.2}"));
        let (steal, pressure) = (share(self.steal_share), share(self.pressure_share));
        let verdict = if self.noisy.is_empty() {
            String::new()
        } else {
            format!("; noisy: {}", self.noisy.join(", "))
        };
        format!(
            "machine, {}: load {load}, steal {steal}, waits for a processor {pressure}{verdict}",
            self.load
        )
    }
}

/// All ticks and the stolen ones, by the first line: `cpu user nice system idle iowait irq softirq
/// steal ..`.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Option<Vec<u64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
    let ticks = ticks.filter(|ticks| ticks.len() >= 8)?;
    Some((ticks[..8].iter().sum(), ticks[7]))
}

/// Microseconds in which some task waited, by the line of `some`.
fn waited(pressure: &str) -> Option<u64> {
    let line = pressure.lines().find(|line| line.starts_with("some "))?;
    line.rsplit_once("total=")?.1.trim().parse().ok()
}

/// The bounds of a noisy run: a hundredth of the time stolen, a
/// twentieth with a task that waits, a quarter between rounds.
const STEAL_MAX: f64 = 0.01;
const PRESSURE_MAX: f64 = 0.05;
const APART_MAX: f64 = 1.25;
/// A hundredth of the samples with another task's time in them.
const PREEMPTED_MAX: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(millis: u64, ticks: Option<(u64, u64)>, waited_us: Option<u64>) -> Noise {
        Noise { at: Nanos::from_millis(millis), ticks, waited_us, ..Noise::default() }
    }

    #[test]
    fn a_run_is_noisy_by_what_others_took() {
        #[rustfmt::skip]
        let rows = [ // ticks at the end, waited, quiet      reasons
            (Some((1_000, 0)),   Some(0),       true,   0),
            (Some((1_000, 10)),  Some(50_000),  true,   0),
            (Some((1_000, 11)),  Some(50_000),  true,   1),
            (Some((1_000, 0)),   Some(60_000),  true,   1),
            (Some((1_000, 0)),   Some(900_000), false,  0),
            (Some((1_000, 900)), Some(900_000), true,   2),
            (None,               None,          true,   0),
        ];
        for (ticks, waited, quiet, reasons) in rows {
            let before = moment(0, Some((0, 0)), Some(0));
            let noise = moment(1_000, ticks, waited).since(&before, "quiet", quiet);
            assert_eq!(noise.noisy().count(), reasons, "{noise:?}");
            assert_eq!(noise.describe().contains("noisy"), reasons > 0, "{noise:?}");
        }
    }

    #[test]
    fn what_the_system_tells_is_read() {
        let stat = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(ticks(stat), Some((36, 8)));
        assert_eq!(ticks("cpu  1 2 3\n"), None);
        assert_eq!(ticks(""), None);
        assert_eq!(
            waited("some avg10=0.00 avg60=0.00 avg300=0.00 total=42\nfull total=7\n"),
            Some(42)
        );
        assert_eq!(waited("full total=7\n"), None);
    }

    #[test]
    fn a_hundredth_of_preempted_samples_is_allowed() {
        for (times, samples, noisy) in [(0, 0, 0), (1, 100, 0), (2, 100, 1), (2, 199, 1), (1, 0, 1)]
        {
            let mut noise = Noise::default();
            noise.preempted(times, samples);
            assert_eq!(noise.noisy().count(), noisy, "{times} of {samples}");
        }
    }

    #[test]
    fn rounds_that_are_far_apart_are_noise() {
        for (apart, noisy) in [(&[1.0, 1.25][..], 0), (&[1.0, 1.3], 1), (&[], 0)] {
            let mut noise = Noise::default();
            noise.unsteady(apart);
            assert_eq!(noise.noisy().count(), noisy, "{apart:?}");
        }
    }
}
