//! Latencies in a profile: of each size and way of waiting a table, of each length of sleep one.
//!
//! ```text
//!   ["259:0, ...".latency]
//!   io = "io_uring"
//!   [["259:0, ...".latency.waits]]
//!   by = "interrupt"
//!   latency_mean_us = 47.2
//!   wake_us = 6.2                               beyond polling; less than 0 where that is slower
//! ```
//!
//! # Invariants
//! - Times are in microseconds and say so in their names.

use serde::{Deserialize, Serialize};

use super::super::latency::{Latencies, Sleeps, WaitTimes, Waits};
use super::scaled;

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Latency {
    /// The interface that was waited on.
    io: String,
    waits: Vec<Wait>,
    sleeps: Vec<Sleep>,
}

/// Lone reads of a size, waited for in one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Wait {
    /// `polling` or `interrupt`.
    by: String,
    bytes: u64,
    samples: u64,
    latency_mean_us: f64,
    latency_stdev_us: f64,
    cpu_us: f64,
    /// Of the interrupt: by how much it is slower than polling.
    #[serde(skip_serializing_if = "Option::is_none")]
    wake_us: Option<f64>,
}

/// Sleeps of a length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Sleep {
    asked_us: f64,
    samples: u64,
    over_p50_us: f64,
    over_p90_us: f64,
    cpu_us: f64,
}

impl Latency {
    pub(super) fn new(latencies: &Latencies) -> Self {
        Self {
            io: latencies.io.to_owned(),
            waits: latencies.reads.iter().flat_map(Wait::both).collect(),
            sleeps: latencies.sleeps.iter().map(Sleep::new).collect(),
        }
    }
}

impl Wait {
    /// Polling, where there is any, and the interrupt.
    fn both(waits: &Waits) -> impl Iterator<Item = Self> {
        let polling = waits.polling.map(|took| Self::new("polling", waits.bytes, took, None));
        let interrupt = Self::new("interrupt", waits.bytes, waits.interrupt, waits.wake());
        polling.into_iter().chain([interrupt])
    }

    fn new(by: &str, bytes: u64, took: WaitTimes, wake: Option<i64>) -> Self {
        let micros = |wake: i64| {
            let size = scaled(wake.unsigned_abs(), 1e3);
            if wake < 0 { -size } else { size }
        };
        Self {
            by: by.to_owned(),
            bytes,
            samples: took.samples,
            latency_mean_us: scaled(took.latency.mean.0, 1e3),
            latency_stdev_us: scaled(took.latency.stdev.0, 1e3),
            cpu_us: scaled(took.cpu.0, 1e3),
            wake_us: wake.map(micros),
        }
    }
}

impl Sleep {
    fn new(sleeps: &Sleeps) -> Self {
        Self {
            asked_us: scaled(sleeps.asked.0, 1e3),
            samples: sleeps.samples,
            over_p50_us: scaled(sleeps.over_p50.0, 1e3),
            over_p90_us: scaled(sleeps.over_p90.0, 1e3),
            cpu_us: scaled(sleeps.cpu.0, 1e3),
        }
    }
}
