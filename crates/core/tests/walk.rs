//! Walks: which entries are requested ahead of a program that goes over a tree.
//!
//! # Invariants
//! - The driver here is a tree of names in memory: no files, no time.

#[path = "walk/bounds.rs"]
mod bounds;
#[path = "walk/listings.rs"]
mod listings;
#[path = "walk/orders.rs"]
mod orders;
#[path = "walk/polled.rs"]
mod polled;
#[path = "walk/program.rs"]
mod program;
#[path = "walk/tables.rs"]
mod tables;
