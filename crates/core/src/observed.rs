//! What was observed of a program, and what that says: how its reads continue each other, and what
//! prefetching would gain.
//!
//! Nothing is fetched by it: `forerun explain` reports it.
//!
//! # Invariants
//! - What is told of a run depends on its accesses and times alone.

pub mod gain;
pub mod streams;
