//! Traces through one partitioned cache: replacement and shares, no readahead, no device.
//!
//! ```text
//!   trace 0 ---+                    +-- partition `rest`
//!   trace 1 ---+--> core::cache ----+-- partition `mail`
//!   trace 2 ---+   rules, policies  +-- partition `scan`
//! ```
//! Each trace is a file, read by a client; both have its name. A page is fetched as soon as it is
//! missed, so the policies see what they see in [`crate::replay`]: a cache of one partition counts
//! the same there and here.
//!
//! # Invariants
//! - The counts depend on the settings and the accesses alone.

use forerun_core::cache::{Cache, Move, PartitionView, Settings, SettingsError, Stats};
use forerun_core::drive::{Driver, drive};
use forerun_core::event::{Actions, Event, FetchKind};
use forerun_core::units::{FileId, FrameId, HandleId, Nanos, PageId, PageIndex, RequestId};

/// See the module.
pub struct PartitionedCache {
    cache: Cache,
    actions: Actions,
    fetched: Fetched,
    counts: Vec<TraceCounts>,
    now: Nanos,
}

/// The counts of one trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceCounts {
    /// Pages requested.
    pub accesses: u64,
    /// Pages that were not resident.
    pub misses: u64,
}

/// The page that was missed, if it was.
#[derive(Default)]
struct Fetched(Option<FrameId>);

impl Driver for Fetched {
    fn fetch(&mut self, _: FetchKind, _: PageId, frames: &[FrameId]) {
        assert!(frames.len() == 1 && self.0.is_none(), "one page is read at a time");
        self.0 = Some(frames[0]);
    }
}

impl PartitionedCache {
    /// An empty cache for traces of these names.
    ///
    /// # Errors
    /// The settings cannot work.
    pub fn new(settings: Settings, traces: &[String]) -> Result<Self, SettingsError> {
        // One page is read at a time: no partition needs room for more.
        let settings = Settings { request_pages_max: 1, ..settings };
        let (actions, fetched) = (Actions::new(), Fetched::default());
        let counts = vec![TraceCounts::default(); traces.len()];
        let cache = Cache::new(settings)?;
        let mut this = Self { cache, actions, fetched, counts, now: Nanos(0) };
        for (number, name) in (0..).zip(traces) {
            let (handle, file, file_pages) = (HandleId(number), FileId(number), FILE_PAGES);
            let partition = this.cache.settings().partition_of(name, name);
            this.send(Event::Open { handle, file, partition, file_pages });
        }
        Ok(this)
    }

    /// Trace number `trace` uses the page `key`.
    pub fn access(&mut self, trace: usize, key: u64) {
        let handle = HandleId(u32::try_from(trace).expect("a handle each"));
        let first: PageIndex = key % FILE_PAGES;
        let (count, previous_end, congested) = (1, None, false);
        self.now += Nanos(1);
        let request = RequestId(self.now.0);
        self.send(Event::Read { request, handle, first, count, previous_end, congested });
        let missed = self.fetched.0.take();
        if let Some(frame) = missed {
            self.send(Event::Arrived { first: frame, count });
        }
        let counts = &mut self.counts[trace];
        counts.accesses += 1;
        counts.misses += u64::from(missed.is_some());
    }

    /// The counts of each trace.
    #[must_use]
    pub fn counts(&self) -> &[TraceCounts] {
        &self.counts
    }

    /// The counts of the cache.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        self.cache.stats()
    }

    /// What the cache was made of.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        self.cache.settings()
    }

    /// The last moves of sizing, oldest first.
    pub fn moves(&self) -> impl Iterator<Item = &Move> {
        self.cache.moves()
    }

    /// Pages that sizing has moved, and the bytes of its tables.
    #[must_use]
    pub fn sizing(&self) -> (u64, u64) {
        (self.cache.moved(), self.cache.sizing_bytes())
    }

    /// The partitions as they are now.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionView<'_>> {
        self.cache.partitions()
    }

    fn send(&mut self, event: Event<'_>) {
        drive(&mut self.cache, self.now, event, &mut self.actions, &mut self.fetched);
    }
}

/// Pages of a trace's file: keys that are no block numbers are folded into it.
const FILE_PAGES: u64 = 1 << 50;

/// Traces in turn, so that each is as far through its accesses as the others.
pub struct Turns {
    /// Accesses done, and in all.
    progress: Vec<(u64, u64)>,
}

impl Turns {
    /// Traces with so many accesses each.
    #[must_use]
    pub fn new(accesses: &[u64]) -> Self {
        Self { progress: accesses.iter().map(|&all| (0, all)).collect() }
    }
}

/// The trace whose turn it is; of several the first.
impl Iterator for Turns {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let rows = self.progress.iter().enumerate().filter(|(_, (done, all))| done < all);
        let behind = rows.min_by(|(_, (a, of_a)), (_, (b, of_b))| {
            let share = |done: &u64, of: &u64| u128::from(*done + 1) * u128::from(*of);
            share(a, of_b).cmp(&share(b, of_a))
        });
        let at = behind.map(|row| row.0)?;
        self.progress[at].0 += 1;
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use forerun_core::cache::{PartitionSettings, Rule};
    use forerun_core::params::Share;
    use forerun_core::prng::Prng;

    use super::*;
    use crate::replay::{Cell, ReplaySettings, replay};

    /// Pages of which some are used often, in runs.
    fn keys(seed: u64) -> Vec<u64> {
        let mut prng = Prng::new(seed);
        let mut key = move || {
            let page = prng.below(400);
            if prng.chance(60) { page % 50 } else { page }
        };
        (0..6_000).map(|_| key()).collect()
    }

    #[test]
    fn one_partition_counts_as_a_replay_of_every_policy() {
        for policy in forerun_core::eviction::NAMES {
            let keys = keys(3);
            let settings = ReplaySettings {
                threads: 1,
                memory: 1 << 30,
                sample: Share::percent(100),
                clock: &|| Nanos(0),
            };
            let mut given = Some(keys.clone());
            let more = |out: &mut Vec<u64>| -> Result<bool, ()> {
                Ok(given.take().map(|keys| *out = keys).is_some())
            };
            let cell = Cell { policy: (*policy).to_owned(), pages: 100 };
            let counts = replay(more, &[cell], &settings).expect("good settings")[0];
            let mut cache =
                PartitionedCache::new(Settings::new(100, policy, "off"), &["a".to_owned()])
                    .expect("good settings");
            for key in keys {
                cache.access(0, key);
            }
            assert_eq!(cache.counts()[0].misses, counts.misses, "{policy}");
        }
    }

    #[test]
    fn a_partition_counts_as_a_cache_of_its_own() {
        let (mut settings, names) = (Settings::new(150, "lru", "off"), ["a", "b"]);
        settings.partitions[0].frames = 100;
        let rule = Rule::Client("b".into());
        settings
            .partitions
            .push(PartitionSettings { rule, ..PartitionSettings::new("own", 50, "2q-star") });
        let mut both = PartitionedCache::new(settings, &names.map(str::to_owned)).expect("good");
        let streams = [keys(1), keys(2)];
        for turn in Turns::new(&[6_000, 3_000]) {
            let at = usize::try_from(both.counts()[turn].accesses).expect("few");
            both.access(turn, streams[turn][at]);
        }
        for (turn, (frames, policy)) in [(100, "lru"), (50, "2q-star")].into_iter().enumerate() {
            let name = [names[turn].to_owned()];
            let mut alone = PartitionedCache::new(Settings::new(frames, policy, "off"), &name)
                .expect("good settings");
            let count = both.counts()[turn].accesses;
            for &key in streams[turn].iter().take(usize::try_from(count).expect("few")) {
                alone.access(0, key);
            }
            assert_eq!(both.counts()[turn], alone.counts()[0], "{policy}");
        }
        let misses: Vec<u64> = both.partitions().map(|part| part.stats.misses).collect();
        assert_eq!(misses, [both.counts()[0].misses, both.counts()[1].misses]);
    }

    #[test]
    fn traces_take_turns_by_how_far_they_are() {
        let turns: Vec<usize> = Turns::new(&[4, 2, 0]).collect();
        assert_eq!(turns, [0, 0, 1, 0, 0, 1]);
    }
}
