//! The atomics and locks that readers share: those of the standard library and `parking_lot`, or
//! those of a model checker.
//!
//! With the feature `shuttle`, each operation on them is a point where another thread may go on,
//! chosen by a seeded scheduler; so the models in `tests/` run the very code that a cache runs.
//!
//! # Invariants
//! - The feature is for the models alone: under it nothing here works outside of a model.
//! - What is atomic, but decides nothing between threads (a serial number), need not come from
//!   here.

#[cfg(not(feature = "shuttle"))]
pub use parking_lot::{Mutex, MutexGuard};
#[cfg(feature = "shuttle")]
pub use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
#[cfg(not(feature = "shuttle"))]
pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
