//! The comparisons: reads, peers, and the target of each figure.
//!
//! | job | reads | peer | target |
//! |---|---|---|---|
//! | `sequential` | the file once, 1 MiB at a time | fio, 4 requests in flight | MB/s >= 0.95 |
//! | `random-1` | 4 KiB anywhere, one thread | fio psync | mean latency <= 1.08 |
//! | `random-16` | 4 KiB anywhere, 16 threads | 16 fio jobs | IO/s >= 0.9 |

use forerun_report::{Summary, Target, mean};
use serde_json::{Value, json};

use super::contender::{Contender, Measurement};
use crate::table::Row;

/// One comparison: reads, peers and targets.
pub(super) struct Job {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) order: Order,
    /// Bytes of a read, as both command lines take it.
    pub(super) request: &'static str,
    pub(super) threads: u32,
    /// Requests that fio keeps in flight in each job.
    pub(super) depth: u32,
    /// Memory for the engine's pages: random reads must miss.
    cache: &'static str,
    /// fio's engines; missing ones are left out. The target is against the first.
    engines: &'static [&'static str],
    /// The compared figures; the first has the target.
    compared: &'static [(Figure, Option<Target>)],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Sequential,
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    Throughput,
    Rate,
    Mean,
    P50,
    P99,
}

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Self::Throughput => "MB/s",
            Self::Rate => "IO/s",
            Self::Mean => "mean us",
            Self::P50 => "p50 us",
            Self::P99 => "p99 us",
        }
    }

    fn of(self, figures: &Measurement) -> f64 {
        match self {
            Self::Throughput => figures.mb_per_second,
            Self::Rate => figures.io_per_second,
            Self::Mean => figures.mean_us,
            Self::P50 => figures.p50_us,
            Self::P99 => figures.p99_us,
        }
    }
}

/// Every comparison.
pub(super) const JOBS: [Job; 3] = [
    Job {
        name: "sequential",
        title: "cold sequential read, 1 MiB",
        order: Order::Sequential,
        request: "1M",
        threads: 1,
        depth: 4,
        cache: "64M",
        engines: &["io_uring", "libaio"],
        compared: &[(Figure::Throughput, Some(Target::AtLeast(0.95)))],
    },
    Job {
        name: "random-1",
        title: "random 4 KiB misses, 1 thread",
        order: Order::Random,
        request: "4K",
        threads: 1,
        depth: 1,
        cache: "8M",
        engines: &["psync"],
        compared: &[
            (Figure::Mean, Some(Target::AtMost(1.08))),
            (Figure::P50, None),
            (Figure::P99, None),
        ],
    },
    Job {
        name: "random-16",
        title: "random 4 KiB misses, 16 threads",
        order: Order::Random,
        request: "4K",
        threads: 16,
        depth: 1,
        cache: "8M",
        engines: &["psync"],
        compared: &[(Figure::Rate, Some(Target::AtLeast(0.9))), (Figure::P99, None)],
    },
];

impl Job {
    /// forerun, and fio by each of the engines in `listed`.
    pub(super) fn contenders(&self, listed: &[String]) -> Vec<Contender> {
        let mut contenders = vec![Contender::Forerun];
        for engine in self.engines {
            if listed.iter().any(|name| name == engine) {
                contenders.push(Contender::Fio(engine));
            } else {
                println!("left out: fio {engine}: this fio lacks that engine");
            }
        }
        contenders
    }

    /// forerun's command line for a round, but for the file.
    pub(super) fn forerun(&self, seconds: u32, round: usize) -> Vec<String> {
        let pattern = match self.order {
            Order::Sequential => "seq",
            Order::Random => "rand",
        };
        let Self { request, threads, cache, .. } = self;
        let words = format!(
            "bench file --pattern {pattern} --size {request} --threads {threads} \
             --seconds {seconds} --cache {cache} --seed {} --json",
            round + 1
        );
        words.split_whitespace().map(str::to_owned).collect()
    }

    /// Each figure against each peer. `taken` has the rounds of each contender, forerun first.
    pub(super) fn rows(&self, contenders: &[Contender], taken: &[Vec<Measurement>]) -> Vec<Row> {
        let share =
            |of: fn(&Measurement) -> f64| mean(&taken[0].iter().map(of).collect::<Vec<_>>());
        let (hits, cold) = (share(|ours| ours.hit_ratio), share(Measurement::cold_ratio));
        let note = format!("hits {:.1} %, cold {:.0} %", hits * 100.0, cold * 100.0);
        let mut rows = Vec::new();
        for (at, peer) in contenders.iter().enumerate().skip(1) {
            for &(figure, target) in self.compared {
                let of = |rounds: &[Measurement]| -> Vec<f64> {
                    rounds.iter().map(|round| figure.of(round)).collect()
                };
                let what = format!("{}: {}", self.title, figure.name());
                let sides = [&of(&taken[0])[..], &of(&taken[at])];
                // The first peer has the target.
                let target = target.filter(|_| at == 1);
                rows.push(Row::new(what, &peer.name(), sides, target, &note));
            }
        }
        rows
    }

    /// Turns the record of the last round of forerun into one of all rounds of all contenders.
    pub(super) fn record(
        &self,
        record: &mut Value,
        contenders: &[Contender],
        taken: &[Vec<Measurement>],
    ) {
        let last = record["runs"][0].clone();
        let mut runs = Vec::new();
        for (contender, rounds) in contenders.iter().zip(taken) {
            let spread = |of: fn(&Measurement) -> f64| Summary::of(rounds.iter().map(of));
            let rate = spread(|round| round.mb_per_second);
            let middle = |of: fn(&Measurement) -> u64| {
                let mut counts: Vec<u64> = rounds.iter().map(of).collect();
                counts.sort_unstable();
                counts[counts.len() / 2]
            };
            let (requests, read) =
                (middle(|one| one.device_requests), middle(|one| one.bytes_read));
            let ours = *contender == Contender::Forerun;
            let params = if ours { last["params"].clone() } else { json!({}) };
            runs.push(json!({
                "readahead": contender.name(),
                "params": params,
                "device": last["device"],
                "emulated": false,
                "streams": self.threads,
                "workload": last["workload"],
                "mb_per_second": rate.median,
                "delay_seconds": if ours { last["delay_seconds"].clone() } else { json!(0.0) },
                "device_requests": requests,
                "mean_request_bytes": read / requests.max(1),
                "bytes_read": read,
                "bytes_wanted": middle(|one| one.bytes_wanted),
                "p50_us": spread(|round| round.p50_us).median,
                "p99_us": spread(|round| round.p99_us).median,
                "spread": { "min": rate.min, "max": rate.max },
            }));
            let samples =
                [Figure::Throughput, Figure::Rate, Figure::Mean, Figure::P50, Figure::P99];
            for figure in samples {
                let values: Vec<String> =
                    rounds.iter().map(|one| format!("{:.2}", figure.of(one))).collect();
                let key = format!("samples.{}.{}", contender.name(), figure.name());
                record["settings"][key] = json!(values.join(","));
            }
        }
        record["settings"]["readahead"] = last["readahead"].clone();
        record["runs"] = json!(runs);
        record["repeats"] = json!(taken[0].len());
        record["command"] = json!(std::env::args().collect::<Vec<String>>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(mb_per_second: f64) -> Measurement {
        Measurement {
            mb_per_second,
            io_per_second: 2.0,
            mean_us: 3.0,
            p50_us: 4.0,
            p99_us: 5.0,
            bytes_wanted: 100,
            device_requests: 10,
            bytes_read: 100,
            hit_ratio: 0.02,
            device_bytes: 100,
        }
    }

    #[test]
    fn a_ratio_is_within_its_round_and_the_first_peer_has_the_target() {
        let job = &JOBS[0];
        let contenders = job.contenders(&["io_uring".to_owned(), "libaio".to_owned()]);
        let taken = [[10.0, 40.0, 20.0], [10.0, 20.0, 20.0], [20.0, 40.0, 10.0]]
            .map(|rates| rates.map(figures).to_vec());
        let rows = job.rows(&contenders, &taken);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].ratio, Summary { median: 1.0, min: 1.0, max: 2.0 });
        assert_eq!(rows[0].target, Some(Target::AtLeast(0.95)));
        assert_eq!((rows[1].peer.as_str(), rows[1].target), ("fio libaio", None));
        assert!(rows[0].note.contains("hits 2.0 %"), "{}", rows[0].note);
    }

    #[test]
    fn a_record_has_a_run_a_contender_and_every_sample() {
        let job = &JOBS[1];
        let contenders = job.contenders(&["psync".to_owned()]);
        let taken = [[1.0, 3.0, 2.0], [4.0, 5.0, 6.0]].map(|rates| rates.map(figures).to_vec());
        let mut record = json!({ "settings": {}, "runs": [{ "readahead": "linux-6",
            "params": { "max": "1M" }, "device": "f", "workload": "w", "delay_seconds": 1.5 }] });
        job.record(&mut record, &contenders, &taken);
        assert_eq!(record["repeats"], 3);
        assert_eq!(record["runs"][0]["mb_per_second"], 2.0);
        assert_eq!(record["runs"][1]["readahead"], "fio psync");
        assert_eq!(record["runs"][1]["spread"]["max"], 6.0);
        assert_eq!(record["settings"]["samples.forerun.MB/s"], "1.00,3.00,2.00");
        assert_eq!(record["settings"]["readahead"], "linux-6");
    }
}
