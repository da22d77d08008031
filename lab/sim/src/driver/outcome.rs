//! The results of a run in virtual time: times, bytes, waits, logs of requests and windows.
//!
//! # Invariants
//! - Logs hold the first entries, up to the bounds of the setup; the others are counted.

use forerun_core::cache::{PartitionView, Stats};
use forerun_core::device::{Completion, remembered::DeviceRecord};
use forerun_core::event::FetchKind;
use forerun_core::units::Nanos;
use forerun_core::windows::WindowRecord;

use crate::trace::Op;
use crate::waits::Waits;
use crate::window_sizes::WindowSizes;

/// One request of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedRequest {
    /// Its times, offset and length.
    pub completion: Completion,
    /// Whether a request waited for it.
    pub kind: FetchKind,
}

/// One readahead window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedWindow {
    /// Where its file begins on the device, in bytes.
    pub base: u64,
    /// Its time, cause and outcome.
    pub opened: WindowRecord,
}

/// The counts of a run as the last request that was due in its warm-up was answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Warm {
    /// [`RunOutcome::elapsed`].
    pub elapsed: Nanos,
    /// [`RunOutcome::busy`].
    pub busy: Nanos,
    /// The core's counts.
    pub stats: Stats,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct RunOutcome {
    /// From the first read to the end of the last.
    pub elapsed: Nanos,
    /// Bytes that readers requested.
    pub bytes_wanted: u64,
    /// Bytes that the device moved.
    pub bytes_read: u64,
    /// Bytes that were written to the device.
    pub bytes_written: u64,
    /// How long the devices had requests, on average, until the last read or write was answered.
    pub busy: Nanos,
    /// What of this belongs to the warm-up.
    pub warm: Warm,
    /// Requests of the device.
    pub requests: u64,
    /// The total delay of reads beyond reads of cached pages.
    pub delay: Nanos,
    /// The same over the first 100 MB that were read.
    pub delay_first: Nanos,
    /// Paced reads whose bytes arrived more than 100 ms after they were due.
    pub reads_late: u64,
    /// The largest delay between the due time of a paced read and the arrival of its bytes.
    pub late_max: Nanos,
    /// The due time of the last paced read whose bytes arrived more than a second late.
    pub late_until: Nanos,
    /// The waiting times of all reads, as a histogram.
    pub waits: Waits,
    /// The response times of all requests.
    pub responses: Responses,
    /// The core's counts.
    pub stats: Stats,
    /// The first requests of the device.
    pub log: Vec<LoggedRequest>,
    /// The first windows, where they are explained.
    pub windows: Vec<LoggedWindow>,
    /// Windows that were opened after those.
    pub windows_left_out: u64,
    /// The sizes of all windows, where they are explained.
    pub window_sizes: WindowSizes,
    /// The partitions at the end.
    pub partitions: Vec<PartitionCounts>,
    /// What the next run remembers of the device.
    pub device_record: Option<DeviceRecord>,
}

/// A partition at the end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionCounts {
    /// Its name.
    pub name: String,
    /// Its rule, as text.
    pub rule: String,
    /// Its replacement policy.
    pub policy: String,
    /// Pages that it may hold, and that it holds.
    pub pages: (u32, u32),
    /// Pages that requests demanded of it, and how many of them were resident.
    pub demanded: (u64, u64),
}

impl From<PartitionView<'_>> for PartitionCounts {
    fn from(view: PartitionView<'_>) -> Self {
        Self {
            name: view.settings.name.clone(),
            rule: view.settings.rule.to_string(),
            policy: view.settings.policy.clone(),
            pages: (view.frames, view.used),
            demanded: (view.stats.demanded(), view.stats.hits),
        }
    }
}

/// Response times: from the moment that a request is due, or comes where it has none, to the end
/// of its copy. What waits for a slot is late, and counts.
#[derive(Clone, Debug, Default)]
pub struct Responses {
    /// Of all requests.
    pub all: Waits,
    total: Nanos,
    count: u64,
    /// Of writes alone: their sum and number.
    writes: (Nanos, u64),
}

impl Responses {
    /// Adds one.
    pub fn note(&mut self, response: Nanos, op: Op) {
        self.all.note(response);
        self.total += response;
        self.count += 1;
        if op == Op::Write {
            self.writes = (self.writes.0 + response, self.writes.1 + 1);
        }
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.all.merge(&other.all);
        self.total += other.total;
        self.count += other.count;
        self.writes = (self.writes.0 + other.writes.0, self.writes.1 + other.writes.1);
    }

    /// Requests.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean of all; 0 without one.
    #[must_use]
    pub fn mean(&self) -> Nanos {
        Nanos(self.total.0 / self.count.max(1))
    }

    /// The mean of reads; 0 without one.
    #[must_use]
    pub fn mean_of_reads(&self) -> Nanos {
        Nanos(self.total.since(self.writes.0).0 / (self.count - self.writes.1).max(1))
    }

    /// The mean of writes; 0 without one.
    #[must_use]
    pub fn mean_of_writes(&self) -> Nanos {
        Nanos(self.writes.0.0 / self.writes.1.max(1))
    }
}

impl RunOutcome {
    /// Megabytes (10^6) that readers wanted, a second.
    #[must_use]
    pub fn mb_per_second(&self) -> f64 {
        rate(self.bytes_wanted, self.elapsed)
    }

    /// Bytes of a device request, on average.
    #[must_use]
    pub fn mean_request_bytes(&self) -> u64 {
        self.bytes_read / self.requests.max(1)
    }
}

/// Megabytes (10^6) a second; 0 when no time passed.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub fn rate(bytes: u64, time: Nanos) -> f64 {
    if time.0 == 0 { 0.0 } else { bytes as f64 * 1e3 / time.0 as f64 }
}
