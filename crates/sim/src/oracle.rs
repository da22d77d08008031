//! Oracles: policies that know what no policy can know, to measure the others against.
//!
//! The *online limit* of a workload on a device is what [`PerfectReadahead`] reaches there in
//! virtual time: it knows every stream's place and end, but only from the stream's second read on
//! (from the first at a file's head, where a guess is free), and it may use the memory that the
//! cache gives to readahead. So it pays one blind read a stream, never reads a page in vain, and
//! gives each stream an equal share of the memory.
//!
//! ```text
//!   stream  |r|======= window =======|======= window =======|==...==| known end
//!            ^ blind: what was asked   ^ marker: fetch the next
//! ```
//!
//! # Invariants
//! - It asks for no page outside the known streams, and for none twice while it stays cached.

use forerun_core::cache::Settings;
use forerun_core::readahead::{Cause, Decision, Demand, Readahead, Trigger, Window};
use forerun_core::units::FileId;

use crate::workload::{Stream, Workload};

/// See the module.
pub struct PerfectReadahead {
    streams: Vec<Known>,
    window_pages: u32,
}

struct Known {
    file: FileId,
    start: u64,
    end: u64,
    /// The first page that was not read ahead yet.
    frontier: u64,
    seen: bool,
}

impl PerfectReadahead {
    /// The oracle for `workload` in a cache of `settings`.
    #[must_use]
    pub fn new(workload: &Workload, settings: &Settings) -> Self {
        let page_bytes = u64::from(settings.page_bytes);
        let known = |stream: &Stream| Known {
            file: FileId(stream.file),
            start: stream.start / page_bytes,
            end: (stream.start + stream.bytes).div_ceil(page_bytes),
            frontier: stream.start / page_bytes,
            seen: false,
        };
        let mut streams: Vec<Known> = workload.streams.iter().map(known).collect();
        streams.sort_by_key(|stream| (stream.file, stream.start));
        let count = u32::try_from(streams.len().max(1)).unwrap_or(u32::MAX);
        // Two windows a stream: the one that is read and the one that is on its way.
        let share = settings.ahead_pages_max / count / 2;
        Self { streams, window_pages: share.clamp(1, WINDOW_PAGES_MAX) }
    }

    fn stream(&mut self, file: FileId, page: u64) -> Option<&mut Known> {
        let after = self.streams.partition_point(|known| (known.file, known.start) <= (file, page));
        let known = self.streams.get_mut(after.checked_sub(1)?)?;
        (known.file == file && page < known.end).then_some(known)
    }
}

impl Readahead for PerfectReadahead {
    fn window_pages_max(&self) -> u32 {
        self.window_pages
    }

    fn decide(&mut self, demand: &Demand) -> Option<Decision> {
        let window_pages = self.window_pages;
        let window = Window { start: demand.first, size: demand.count, async_size: 0 };
        let as_asked = Decision::new(Cause::Random, window);
        let missed = demand.trigger == Trigger::Miss;
        let Some(known) = self.stream(demand.file, demand.first) else {
            return missed.then_some(as_asked);
        };
        let blind = !core::mem::replace(&mut known.seen, true) && demand.first > 0;
        if missed && blind {
            known.frontier = demand.first + u64::from(demand.count);
            return Some(as_asked);
        }
        let start = if missed { demand.first } else { known.frontier };
        let left = u32::try_from(known.end.saturating_sub(start)).unwrap_or(u32::MAX);
        let size = left.min(window_pages);
        if size == 0 {
            return missed.then_some(as_asked);
        }
        known.frontier = start + u64::from(size);
        let more = known.frontier < known.end;
        let cause = if missed { Cause::Sync } else { Cause::Async };
        let window = Window { start, size, async_size: if more { size } else { 0 } };
        Some(Decision::new(cause, window))
    }
}

/// 64 MiB in pages of 4 KiB: beyond that no device model gains.
const WINDOW_PAGES_MAX: u32 = 1 << 14;

#[cfg(test)]
mod tests {
    use super::PerfectReadahead;
    use crate::driver::{Outcome, Setup, run};
    use crate::workload;
    use forerun_core::cache::Settings;
    use forerun_core::device;

    fn outcome(spec: &str, readahead: Option<&str>) -> Outcome {
        let mut workload = workload::make(spec).unwrap();
        let device = device::make("t7k250", 1).unwrap();
        let mut settings = Settings::new(1 << 16, "lru", readahead.unwrap_or("off"));
        settings.request_pages_max = 128;
        let oracle = PerfectReadahead::new(&workload, &settings);
        let mut setup = Setup::new(settings, Some(device));
        setup.depth = 1;
        if readahead.is_none() {
            setup.oracle = Some(Box::new(oracle));
        }
        run(setup, &mut workload).unwrap()
    }

    #[test]
    fn the_oracle_reads_every_page_once_and_nobody_is_faster() {
        for spec in ["streams,n=1,each=20M", "streams,n=7,each=4M,layout=spread,start=mid"] {
            let best = outcome(spec, None);
            assert_eq!(best.bytes_read, best.bytes_wanted, "{spec}");
            for readahead in ["off", "linux-2.6.22", "linux-2.6.24", "linux-6", "fixed"] {
                let other = outcome(spec, Some(readahead));
                assert_eq!(other.bytes_wanted, best.bytes_wanted);
                assert!(other.elapsed >= best.elapsed, "{spec} {readahead}: {:?}", other.elapsed);
            }
        }
    }

    #[test]
    fn random_reads_stay_random() {
        let best = outcome("disturb,percent=10,sequential=4M", None);
        assert!(best.bytes_read <= best.bytes_wanted);
    }
}
