//! Steers the kernel's page cache: files are prefetched into it before a program reads them.
//!
//! ```text
//!   run    explain       commands: a program with a prefetcher, or with a recorder (record)
//!    |  \  /  |
//!    |  session          a program from its start to its end, polled
//!    |  /     \
//!  prefetch   observe    drives core::planner | watches the program from outside
//!      \       /
//!      kernel  memory  clock     warm: whole files, on kernel and memory alone
//!              open  watch       a program's files, checked and opened; which are read
//!      aside   wire              another process for work that may block, and what it answers
//! ```
//! A module imports from layers below it, and nothing imports in a circle.
//!
//! | module | what |
//! |---|---|
//! | `run`, `explain`, `record`, `warm` | the commands |
//! | `compare` | the first run of a comparison, eviction, timed runs |
//! | `session` | starts a program, forwards signals, waits; a process that polls until its end |
//! | `observe` | processes, open files, mappings, system calls by the shim; poll budget |
//! | `prefetch` | files, residency and worker threads of the planner; walks and their workers |
//! | `learn` | what a program used in its last runs: lists, their store, their replay |
//! | `pool` | threads for jobs that may wait for a file system |
//! | `open` | a file of a program, by its descriptor or path: a checked descriptor or a refusal |
//! | `kernel` | prefetches a range, and tells what of it is cached |
//! | `watch` | directories whose files are read, as the kernel tells |
//! | `memory` | how many bytes may be prefetched |
//! | `quota` | the share of a processor that control groups leave |
//! | `abilities` | what this machine and this user's rights let forerun see |
//! | `aside` | work that a file system may block, in a process of its own |
//! | `wire` | values as bytes between such processes |
//! | `clock` | real time |
//!
//! # Invariants
//! - No byte of a file is written, and no page is evicted but by `compare`, which is for that.
//! - The kernel is believed only where it tells the truth ([`kernel::Residency`]).

#![deny(unsafe_code)]

pub mod abilities;
mod aside;
mod clock;
pub mod compare;
pub mod explain;
pub mod kernel;
pub mod learn;
pub mod memory;
mod observe;
mod open;
mod pool;
mod prefetch;
mod quota;
pub mod record;
pub mod run;
mod session;
mod tasks;
pub mod warm;
mod watch;
mod wire;

pub use aside::within;
pub use observe::{ObserverKind, shim};
pub use session::{STACK_BYTES_MIN, SessionError, StartError, end_as, end_late, small_stack};
