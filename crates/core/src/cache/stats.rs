//! What a cache counted. Core never logs: it counts.
//!
//! # Invariants
//! - `demanded == hits + late_hits + misses`, at any time.
//! - Every page read ahead has one outcome: `ahead_fetched == ahead_used + ahead_wasted +
//!   ahead_failed + ahead_unread`, the last of which are resident or in flight.

/// Counters since the cache was built; pages, unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Demanded by reads.
    pub demanded: u64,
    /// Resident at arrival.
    pub hits: u64,
    /// In flight at arrival.
    pub late_hits: u64,
    /// Neither resident nor in flight at arrival.
    pub misses: u64,
    /// Recorded without a lock, but of an older generation; counted in nothing else.
    pub stale_hits: u64,
    /// Fetched because a request demanded them; a second try counts again.
    pub demand_fetched: u64,
    /// Read ahead: fetched before a demand.
    pub ahead_fetched: u64,
    /// Read ahead, then demanded.
    pub ahead_used: u64,
    /// Read ahead, then gone unused.
    pub ahead_wasted: u64,
    /// Read ahead, but the store failed.
    pub ahead_failed: u64,
    /// Read ahead and not demanded yet, resident or in flight.
    pub ahead_unread: u64,
    /// Readahead that a bound or the lack of frames kept from being fetched.
    pub ahead_dropped: u64,
    /// Markers met while the device was congested: no readahead.
    pub markers_deferred: u64,
    /// Fetches, in requests to the store.
    pub fetches: u64,
    /// Of these, those that a request waited for.
    pub demand_fetches: u64,
    /// Evicted for other pages.
    pub evicted: u64,
    /// Victims that a reader had pinned.
    pub pinned: u64,
    /// Dropped because the file changed or shrank.
    pub invalidated: u64,
    /// Written by writers.
    pub written: u64,
    /// Of writes, those that waited for others to become durable.
    pub throttled: u64,
    /// Writes, in requests to the store.
    pub writes: u64,
    /// Of pages that the store did not take.
    pub write_failures: u64,
    /// Syncs sent to the store.
    pub syncs: u64,
    /// Requests that failed.
    pub failures: u64,
}

/// Counters of a partition since the cache was built; pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionStats {
    /// Resident when they were demanded.
    pub hits: u64,
    /// In flight when they were demanded.
    pub late_hits: u64,
    /// Neither.
    pub misses: u64,
    /// Became resident: the policy's insertions.
    pub inserted: u64,
    /// Left for other pages, for the pool or for a smaller share: the policy's evictions.
    pub evicted: u64,
    /// Of these, for a request that found the pool empty.
    pub evicted_by_misses: u64,
    /// Frames that sizing gave it.
    pub got: u64,
    /// Frames that sizing took from it.
    pub gave: u64,
}

impl PartitionStats {
    /// Pages that reads demanded of it.
    #[must_use]
    pub fn demanded(&self) -> u64 {
        self.hits + self.late_hits + self.misses
    }
}

impl Stats {
    /// Whether the counts add up; see the module's invariants.
    #[must_use]
    pub fn balanced(&self) -> bool {
        let ends = self.ahead_used + self.ahead_wasted + self.ahead_failed + self.ahead_unread;
        self.demanded == self.hits + self.late_hits + self.misses && self.ahead_fetched == ends
    }
}
