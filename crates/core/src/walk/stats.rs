//! What walks count, and what a report shows of one.
//!
//! # Invariants
//! - `requested = used + passed + unused + failed + in_flight + waiting`.

use super::DirectoryId;
#[cfg(doc)]
use super::ORDERS;

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkStats {
    /// Walks that were recognised.
    pub walks: u64,
    /// Entries that were requested.
    pub requested: u64,
    /// Those that were used.
    pub used: u64,
    /// Of these, those that were in flight when they were used.
    pub late: u64,
    /// Those that were there when the walk went past them, where a use of them is not seen.
    pub passed: u64,
    /// Those that were passed by unused, or whose walk or directory was dropped.
    pub unused: u64,
    /// Those that did not come.
    pub failed: u64,
    /// Those in flight.
    pub in_flight: u64,
    /// Those that are there and wait to be used.
    pub waiting: u64,
    /// Bytes of files among the unused.
    pub unused_bytes: u64,
    /// Predictions that were right.
    pub hits: u64,
    /// Predictions that were wrong.
    pub misses: u64,
    /// Listings that were requested for themselves, before a walk was recognised.
    pub listings: u64,
    /// Entries of listings beyond the bounds.
    pub refused: u64,
    /// Uses of names that a listing does not have.
    pub unknown: u64,
    /// Entries that were looked at to find the walks that uses belong to.
    pub examined: u64,
}

/// A walk, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkView {
    /// Its number: no other walk has it.
    pub number: u64,
    /// The highest directory that it was seen in.
    pub top: DirectoryId,
    /// The order that it is followed in, of [`ORDERS`].
    pub order: &'static str,
}
