//! The results of a job's rounds: whether they agree, the rows of the summary, the runs of the
//! record.
//!
//! # Invariants
//! - All must agree on the misses to .2 points, or are not compared; to 5 for LIRS, as its rules
//!   differ in libCacheSim; and on the accesses, where a peer prints them.
//! - A ratio is of figures of the same round.

use anyhow::{Context, Result, ensure};
use forerun_report::{Summary, Target};
use serde_json::{Value, json};

use super::Job;
use super::simulator::Replay;
use crate::table::Row;

/// A job's rounds.
pub(super) struct Rounds {
    pub(super) job: Job,
    accesses: f64,
    /// The rounds of each simulator, forerun first.
    pub(super) sides: Vec<(&'static str, Vec<Replay>)>,
}

impl Rounds {
    /// All rounds of `job`, unless they disagree on misses or accesses.
    pub(super) fn new(job: Job, rounds: Vec<(&'static str, Vec<Replay>)>) -> Result<Self> {
        let ours = &rounds[0].1[0];
        let accesses = ours.accesses.context("accesses are not told")?;
        for (name, figures) in
            rounds.iter().flat_map(|(name, all)| all.iter().map(move |it| (name, it)))
        {
            let told = figures.accesses.unwrap_or(accesses);
            let is_all = (told - accesses).abs() < 0.5;
            ensure!(is_all, "{}: {name}: {told} accesses, not {accesses}", job.title);
            let (cells, told) = (job.cells.len(), figures.miss_ratios.len());
            ensure!(told == cells, "{}: {name}: {told} results, not {cells}", job.title);
            let ratios = ours.miss_ratios.iter().zip(&figures.miss_ratios);
            for (cell, (a, b)) in job.cells.iter().zip(ratios) {
                let apart = if cell.0 == "lirs" { LIRS_APART } else { APART };
                let are_near = (a - b).abs() <= apart;
                ensure!(are_near, "{}: {name}: {cell:?}: misses {a} and {b}", job.title);
            }
        }
        Ok(Self { job, accesses, sides: rounds })
    }

    /// Speed and memory against each of the others.
    pub(super) fn rows(&self) -> Vec<Row> {
        let job = &self.job;
        let rate = |rounds: &[Replay]| -> Vec<f64> {
            rounds.iter().map(|it| self.accesses / it.seconds / 1e6).collect()
        };
        let peak = |rounds: &[Replay]| -> Vec<f64> {
            rounds.iter().map(|it| it.peak_bytes / 1e6).collect()
        };
        let has_tables = job.cells.iter().all(|(policy, _)| !matches!(*policy, "lru" | "arc"));
        let share = if has_tables { 0.25 } else { 0.5 };
        let (ours, peers) = self.sides.split_first().expect("ours at least");
        let mut rows = Vec::new();
        for (peer, theirs) in peers {
            let mut row = |what: &str, sides: [&[f64]; 2], target: Target| {
                let what = format!("{}: {what}", job.title);
                rows.push(Row::new(what, peer, sides, Some(target), ""));
            };
            row("M accesses/s", [&rate(&ours.1), &rate(theirs)], Target::AtLeast(job.rate));
            row("peak MB", [&peak(&ours.1), &peak(theirs)], Target::AtMost(share));
        }
        rows
    }

    /// The medians of `rounds`, as a run of a record: misses count as bytes read from a device.
    pub(super) fn run(&self, name: &str, rounds: &[Replay]) -> Value {
        let accesses = self.accesses;
        let of = |value: fn(&Replay) -> f64| Summary::of(rounds.iter().map(value));
        let (seconds, peak) = (of(|it| it.seconds), of(|it| it.peak_bytes));
        let rate = |seconds: f64| accesses * PAGE_BYTES / seconds / 1e6;
        let cells = f64::from(u32::try_from(self.job.cells.len()).expect("a handful"));
        let missed: f64 = rounds[0].miss_ratios.iter().map(|ratio| ratio * accesses / cells).sum();
        json!({
            "readahead": name,
            "params": {
                "policy": self.job.policies,
                "cache_pages": self.job.sizes,
                "seconds": format!("{:.4}", seconds.median),
                "peak_mb": format!("{:.1}", peak.median / 1e6),
            },
            "device": "none",
            "emulated": true,
            "streams": 1,
            "workload": self.job.title,
            "mb_per_second": rate(seconds.median),
            "delay_seconds": 0.0,
            "device_requests": whole(missed),
            "mean_request_bytes": whole(PAGE_BYTES),
            "bytes_read": whole(missed.round() * PAGE_BYTES),
            "bytes_wanted": whole(accesses * PAGE_BYTES),
            "p50_us": 0.0,
            "p99_us": 0.0,
            "spread": { "min": rate(seconds.max), "max": rate(seconds.min) },
        })
    }
}

/// A count, which a record has as an integer.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts fit")]
fn whole(count: f64) -> u64 {
    count.round() as u64
}

/// All count misses alike but for details of ARC, LIRS and S3-FIFO.
const APART: f64 = 0.002;
/// The LIRS of libCacheSim differs from that of the paper's authors, which forerun follows.
const LIRS_APART: f64 = 0.05;
const PAGE_BYTES: f64 = 4096.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::simulator::{LIBRARY, PROGRAM};

    fn figures(seconds: f64, peak_bytes: f64) -> Replay {
        Replay { seconds, peak_bytes, miss_ratios: vec![0.5], accesses: Some(2e6) }
    }

    fn taken(policy: &'static str) -> Rounds {
        let ours = vec![figures(0.5, 1e6), figures(0.4, 1e6), figures(1.0, 3e6)];
        let library = vec![figures(1.0, 4e6), figures(2.0, 4e6), figures(2.0, 4e6)];
        let program = vec![figures(2.0, 8e6), figures(2.0, 8e6), figures(2.0, 8e6)];
        let rounds = vec![("forerun", ours), (LIBRARY, library), (PROGRAM, program)];
        Rounds::new(job(policy), rounds).unwrap()
    }

    fn job(policy: &'static str) -> Job {
        Job {
            title: "t".to_owned(),
            form: "keys",
            file: "f".into(),
            cells: vec![(policy, 9)],
            policies: policy.to_owned(),
            sizes: "9".to_owned(),
            rate: 4.0,
        }
    }

    #[test]
    fn ratios_are_within_a_round_and_memory_has_its_own_target() {
        for (policy, share) in [("lru", 0.5), ("2q", 0.25)] {
            let rows = taken(policy).rows();
            assert_eq!(rows[0].ratio, Summary { median: 2.0, min: 2.0, max: 5.0 });
            assert!((rows[0].ours.median - 4.0).abs() < 1e-9, "million accesses a second");
            assert_eq!(rows[1].ratio, Summary { median: 0.25, min: 0.25, max: 0.75 });
            assert_eq!(rows[1].target, Some(Target::AtMost(share)));
            assert_eq!(rows[3].ratio, Summary { median: 0.125, min: 0.125, max: 0.375 });
            assert_eq!(
                rows.iter().map(|row| &row.peer).collect::<Vec<_>>(),
                [LIBRARY, LIBRARY, PROGRAM, PROGRAM]
            );
        }
        let mut alone = taken("lru");
        alone.sides.truncate(1);
        assert!(alone.rows().is_empty());
    }

    #[test]
    fn other_counts_are_not_compared() {
        let told = |policy, miss_ratio, accesses| {
            let other = Replay { miss_ratios: vec![miss_ratio], accesses, ..figures(1.0, 1.0) };
            let rounds = vec![("forerun", vec![figures(1.0, 1.0)]), (PROGRAM, vec![other])];
            Rounds::new(job(policy), rounds).err().map(|error| error.to_string())
        };
        #[rustfmt::skip]
        let rows = [ // policy, their misses and accesses
            ("lru",  0.501, Some(2e6), true),
            ("lru",  0.501, None,      true),
            ("lru",  0.503, Some(2e6), false),
            ("lirs", 0.503, Some(2e6), true),
            ("lirs", 0.560, Some(2e6), false),
            ("lru",  0.500, Some(1e6), false),
        ];
        for (policy, miss_ratio, accesses, are_compared) in rows {
            let error = told(policy, miss_ratio, accesses);
            assert_eq!(error.is_none(), are_compared, "{error:?}");
            assert!(error.is_none_or(|error| error.contains(PROGRAM)));
        }
    }

    #[test]
    fn a_run_has_the_medians() {
        let taken = taken("lru");
        let run = taken.run(LIBRARY, &taken.sides[1].1);
        assert_eq!(run["params"]["seconds"], "2.0000");
        assert_eq!(run["device_requests"], 1_000_000);
        assert_eq!(run["bytes_read"], 4_096_000_000_u64);
        assert_eq!(run["bytes_wanted"], 8_192_000_000_u64);
        assert_eq!(run["mb_per_second"], 4096.0);
        assert_eq!(run["spread"]["max"], 8192.0);
    }
}
