//! Readahead policies on a cache reduced to sets of pages: tables of decisions that were worked out
//! by hand, and twins.

#[path = "readahead/alone.rs"]
mod alone;
#[path = "readahead/amp.rs"]
mod amp;
#[path = "readahead/contract.rs"]
mod contract;
#[path = "readahead/streams.rs"]
mod streams;
#[path = "readahead/tables.rs"]
mod tables;
#[path = "readahead/twins.rs"]
mod twins;
#[path = "readahead/walk.rs"]
mod walk;
#[path = "readahead/zfs.rs"]
mod zfs;
