//! Readahead policies on a cache reduced to sets of pages: tables of decisions that were worked out
//! by hand, and twins.

#[path = "readahead/tables.rs"]
mod tables;
#[path = "readahead/twins.rs"]
mod twins;
#[path = "readahead/walk.rs"]
mod walk;
