//! The atomics that frames and the index are made of: those of the standard library, or those of
//! a model checker.
//!
//! With the feature `shuttle`, each operation on them is a point where another thread may go on,
//! chosen by a seeded scheduler; so `tests/models.rs` runs the very code that a cache runs.
//!
//! # Invariants
//! - The feature is for the models alone: under it nothing here works outside of a model.
//! - What is atomic, but decides nothing between threads (a serial number), need not come from
//!   here.

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
