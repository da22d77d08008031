//! The atomics, locks, conditions and threads that readers share: those of the standard library
//! and `parking_lot`, or those of a model checker.
//!
//! With the feature `shuttle`, each operation on them is a point where another thread may go on,
//! chosen by a seeded scheduler; so the models in `tests/` run the very code that a cache runs.
//!
//! # Invariants
//! - The feature is for the models alone: under it nothing here works outside of a model.
//! - What is atomic, but decides nothing between threads (a serial number), need not come from
//!   here; nor do the locks of stores, which models bring their own of.
//! - In a model no time passes: a wait with a limit ends when it is notified, and not before. What
//!   relies on its limit is found as a deadlock.

#[cfg(not(feature = "shuttle"))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, WaitTimeoutResult};
#[cfg(feature = "shuttle")]
pub use shuttle::{
    sync::{
        WaitTimeoutResult,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    thread,
};
#[cfg(not(feature = "shuttle"))]
pub use std::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
    thread,
};

#[cfg(feature = "shuttle")]
pub use model::{Condvar, Mutex, MutexGuard};
pub use stripes::Stripes;

#[cfg(feature = "shuttle")]
mod model;
mod stripes;
