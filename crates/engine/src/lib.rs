//! The live cache: threads, locks, real time and bytes around the decisions of `forerun-core`.
//!
//! ```text
//!   Handle::read_at --> Index: found? pin, copy, note            no lock, no system call
//!        | not found
//!        v
//!   State (one lock): core, who waits ----> Serve: copy from Frames
//!        |                    ^        \--> Fetch
//!        |                    | Arrived, Failed    |
//!        |                    +-- reader's own thread <--- demand ---+
//!        |                    +-- reaper of the ring <--- readahead -+
//!        +--- sleeps only for pages that somebody else fetches
//! ```
//!
//! Nothing is decided here: which pages, which frames, when to give up, all comes from the core
//! as actions. This crate carries them out and reports what happened. Nothing is written yet.
//!
//! # Layers
//! A file imports files of the lines above its own alone, or earlier ones of its line:
//!
//! ```text
//!   settings error stats clock      values
//!   queues background journal       queues of readers, reapers of readahead, recorders
//!   file hits                       one file and its fetches; the hit buffer
//!   files waiters ahead             tables: files, reads in flight, readahead to submit
//!   state                           the lock: the core and these tables
//!   shared                          the state, the index and the hit buffer, for every thread
//!   read watch cancel               a read that took the lock, version checks, cancelling
//!   owner handle cache builder      what programs hold
//!   ranges                          byte ranges without frames; beside all of these
//! ```
//!
//! # Invariants
//! - A demand is fetched on a thread that waits for it; readahead never runs on a reader's thread
//!   unless the system refuses every other thread.
//! - A frame is copied from only while it is pinned, and filled only while it is out of the table.
//! - A handle serves one version of its file, or an error (`file.rs` says what cannot be seen).
//! - Every reader gets one answer, and every table is bounded by [`Settings`].
//! # Locking
//! See `state.rs`. No lock is held over a system call, a copy, or another lock but as said there.

#![forbid(unsafe_code)]

mod ahead;
mod background;
mod builder;
mod cache;
mod cancel;
mod clock;
mod error;
mod file;
mod files;
mod handle;
mod hits;
pub mod journal;
#[cfg(feature = "shuttle")]
pub mod model;
mod owner;
mod queues;
pub mod ranges;
mod read;
mod settings;
mod shared;
mod state;
mod stats;
mod waiters;
mod watch;

pub use forerun_core::device::{DeviceKind, estimate::DeviceProfile};
pub use forerun_core::units::Nanos;
pub use forerun_core::windows::Opened;
pub use forerun_io::files::{Backend, ChosenBackend, FilesSettings};

pub use builder::Builder;
pub use cache::Cache;
pub use cancel::Cancel;
pub use error::{BuildError, OpenError, ReadError};
pub use handle::{Handle, Pinned};
pub use journal::{Journal, Record, Recorder};
pub use settings::{Settings, SettingsError};
pub use stats::{Histogram, Stats, Windows};
