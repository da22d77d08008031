//! The best rate at which bytes came: a lower bound of what the device can do.
//!
//! ```text
//!   bytes   from the device  ...../-----     as the kernel counts them when it requests them
//!           read             ..../------     as accesses were observed
//!                            |<- a quarter of a second ->|     the lesser of both grew by so much
//! ```
//! Readahead is counted before it comes, and what was in memory is read without the device, so a
//! burst on one side alone says nothing.
//!
//! # Invariants
//! - Counts never fall, also where a process ends; at most [`SAMPLES_MAX`] of them are kept.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;

use forerun_core::units::Nanos;

use crate::observe::processes::ProcessTree;
use crate::observe::procfs::{self, text};

/// Measures the best rate.
#[derive(Debug, Default)]
pub(super) struct RateMeter {
    counters: BTreeMap<i32, File>,
    samples: VecDeque<Sample>,
    best: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at: Nanos,
    device_bytes: u64,
    bytes_read: u64,
}

impl RateMeter {
    /// Samples how many bytes came by now, when so many were read.
    pub(super) fn poll(&mut self, now: Nanos, tree: &ProcessTree, bytes_read: u64) {
        if self.samples.back().is_some_and(|last| now.since(last.at) < EVERY) {
            return;
        }
        self.counters.retain(|&pid, _| tree.has(pid));
        let mut device_bytes = 0;
        for (pid, folder) in tree.folders() {
            let io = match self.counters.entry(pid) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let Some(io) = procfs::open_in(folder, "io") else { continue };
                    entry.insert(io)
                }
            };
            device_bytes += procfs::read(io, text::device_bytes).unwrap_or(0);
        }
        self.add(Sample { at: now, device_bytes, bytes_read });
    }

    /// The best, in bytes a second.
    pub(super) fn best(&self) -> Option<u64> {
        self.best
    }

    fn add(&mut self, mut sample: Sample) {
        // What an ended child has read is counted again once its parent has waited for it.
        let before = self.samples.back().map_or(0, |last| last.device_bytes);
        sample.device_bytes = sample.device_bytes.max(before);
        while self.samples.len() == SAMPLES_MAX
            || self.samples.get(1).is_some_and(|next| sample.at.since(next.at) >= OVER)
        {
            self.samples.pop_front();
        }
        if let Some(first) = self.samples.front()
            && sample.at.since(first.at) >= OVER
        {
            let passed = sample.at.since(first.at);
            assert!(passed > Nanos(0) && first.device_bytes <= sample.device_bytes);
            let came = sample.device_bytes - first.device_bytes;
            let bytes = came.min(sample.bytes_read - first.bytes_read);
            let rate = u128::from(bytes) * 1_000_000_000 / u128::from(passed.0);
            self.best = self.best.max(u64::try_from(rate).ok().filter(|&rate| rate > 0));
        }
        self.samples.push_back(sample);
        assert!(self.samples.len() <= SAMPLES_MAX, "more samples than are allowed");
    }
}

const EVERY: Nanos = Nanos::from_millis(10);
const OVER: Nanos = Nanos::from_millis(250);
const SAMPLES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_what_grew_on_both_sides_in_a_quarter_of_a_second() {
        // Bytes a millisecond in each half second: from the device, read.
        #[rustfmt::skip]
        let rows = [ // why                     first         second        best, KB/s
            ("nothing came",                    (0, 9),       (0, 9),       None),
            ("steadily",                        (10, 10),     (10, 10),     Some(10)),
            ("faster, then slower",             (40, 40),     (10, 10),     Some(40)),
            ("from memory at first",            (0, 900),     (10, 10),     Some(10)),
            ("requested, and read later",       (90, 10),     (0, 50),      Some(34)),
        ];
        for (why, first, second, best) in rows {
            let mut rate = RateMeter::default();
            let (mut device_bytes, mut bytes_read) = (0, 0);
            for at in (0..1000).step_by(10) {
                rate.add(Sample { at: Nanos::from_millis(at), device_bytes, bytes_read });
                let (came, read) = if at < 500 { first } else { second };
                (device_bytes, bytes_read) = (device_bytes + came * 10, bytes_read + read * 10);
            }
            assert_eq!(rate.best().map(|rate| rate / 1000), best, "{why}");
            assert!(rate.samples.len() <= SAMPLES_MAX);
        }
    }

    #[test]
    fn a_child_that_ends_is_not_counted_twice() {
        let mut rate = RateMeter::default();
        for (at, device_bytes) in [(0, 0), (100, 1000), (200, 0), (300, 1000), (600, 1000)] {
            let at = Nanos::from_millis(at);
            rate.add(Sample { at, device_bytes, bytes_read: at.0 });
        }
        assert_eq!(rate.best(), Some(3333));
    }
}
