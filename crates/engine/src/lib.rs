//! A page cache with readahead in a program's own memory, in front of files or of any store.
//!
//! ```
//! use std::io::Read;
//! use forerun_engine::Cache;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = std::env::current_exe()?;
//! let cache = Cache::builder().memory(64 << 20).build()?; // Clones are the same cache.
//! let file = cache.open(path)?; // `Send` and `Sync`; `try_clone` for each further reader.
//! let mut head = [0; 4];
//! file.read_at(&mut head, 0)?; // As `FileExt`: short only at the end of the file.
//! let mut rest = Vec::new();
//! (&file).read_to_end(&mut rest)?; // Also `Seek`; a shared handle has one position.
//! assert_eq!(head, rest[..4]);
//! println!("{} of {} pages hit", cache.stats().hits(), cache.stats().pages());
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//! Threads, locks, real time and bytes around the decisions of `forerun-core`:
//!
//! ```text
//!   Handle::read_at --> Index: found? pin, copy, record          no lock, no system call
//!        | not found
//!        v
//!   State (one lock): core, waiters ------> Serve: copy from Frames
//!        |                    ^        \--> Fetch
//!        |                    | Arrived, Failed    |
//!        |                    +-- reader's own thread <--- demand ---+
//!        |                    +-- reaper of the ring <--- readahead -+
//!        +--- sleeps only for pages that another thread fetches
//! ```
//!
//! The core decides which pages, which frames and when to give up, and says so in actions. This
//! crate carries actions out and reports results as events. What is written stays in the cache, and
//! is written to the store in the background, at the latest by a flush.
//!
//! # Layers
//! A source file imports only files of lines above its own, or earlier ones of its line:
//!
//! ```text
//!   error partitions settings shares stats clock
//!                                   values
//!   guard                           calls of stores that may panic
//!   queues background journal       queues of readers, reapers of the background, recorders
//!   version file hits               one file, its fetches and writes; the hit buffer
//!   files waiters fills ahead       tables: files, requests in flight, frames that writers fill,
//!                                     operations to submit
//!   state                           the lock: the core and these tables
//!   shared                          the state, the index and the hit buffer, for every thread
//!   carry watch flusher cancel      what a waiting thread does, version checks, dirty pages that
//!                                     are due, cancelling
//!   read write alter                a read that took the lock; a write or a flush; a change that
//!                                     the store makes
//!   owner handle cache builder      the objects of a program
//!   futures                         handles for tasks (feature `futures`)
//!   ranges                          byte ranges without frames; beside all of these
//! ```
//!
//! # Invariants
//! - A reader thread that waits for a demand fetches it; readahead never runs on a reader thread
//!   unless the system refuses every other thread.
//! - A frame is copied from only while it is pinned, and filled only while it is checked out, by
//!   a fetch or a writer.
//! - A handle serves one version of its file, or an error (`file.rs` names what escapes notice).
//! - Every reader gets one answer, and [`Settings`] bounds every table.
//! # Locking
//! `state.rs` gives the order. No lock is held over a system call, a copy, or another lock but as
//! given there.

#![forbid(unsafe_code)]

mod ahead;
mod alter;
mod background;
mod builder;
mod cache;
mod cancel;
mod carry;
mod clock;
mod error;
mod file;
mod files;
mod fills;
mod flusher;
#[cfg(feature = "futures")]
mod futures;
mod guard;
mod handle;
mod hits;
pub mod journal;
#[cfg(feature = "shuttle")]
pub mod model;
mod owner;
mod partitions;
mod queues;
pub mod ranges;
mod read;
mod settings;
mod shared;
mod shares;
mod state;
mod stats;
mod version;
mod waiters;
mod watch;
mod write;

pub use forerun_core::cache::{MoveReason, PartitionStats, Rule, SettingsError, Sizing};
pub use forerun_core::device::{DeviceKind, estimate::DeviceProfile, remembered::DeviceRecord};
pub use forerun_core::units::Nanos;
pub use forerun_core::windows::WindowRecord;
pub use forerun_core::{eviction, params, readahead};
pub use forerun_io::devices::{DeviceKey, DeviceStore};
pub use forerun_io::files::{Backend, ChosenBackend, FilesSettings};
pub use forerun_io::store::file::Access;

pub use builder::Builder;
pub use cache::Cache;
pub use cancel::Cancel;
pub use error::{BuildError, OpenError, ReadError, WriteError};
#[cfg(feature = "futures")]
pub use futures::{AsyncHandle, ReadAt, ReaderThreads};
pub use handle::{Handle, Pinned, Zeroing};
pub use journal::{Journal, Record, Recorder};
pub use partitions::{Partition, PartitionState, ShareMove};
pub use settings::Settings;
pub use stats::{Histogram, Stats, Windows};

/// The README's Rust, which is compiled with the doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
