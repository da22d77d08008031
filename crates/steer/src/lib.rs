//! Steers the kernel's page cache: files are prefetched into it before a program reads them.
//!
//! ```text
//!   run    explain       commands: a program with a prefetcher, or with a recorder
//!    |  \  /  |
//!    |  session          a program from its start to its end, polled
//!    |  /     \
//!  prefetch   observe    drives core::planner | watches the program from outside
//!      \       /
//!      kernel  memory  clock     warm: whole files, on kernel and memory alone
//! ```
//! A module imports from layers below it, and nothing imports in a circle.
//!
//! | module | what |
//! |---|---|
//! | `run`, `explain`, `warm` | the commands |
//! | `session` | starts a program, forwards signals, polls until its end |
//! | `observe` | processes, open files, mappings, system calls by the shim; poll budget |
//! | `prefetch` | files, residency and worker threads of the planner |
//! | `kernel` | prefetches a range, and tells what of it is cached |
//! | `memory` | how many bytes may be prefetched |
//! | `clock` | real time |
//!
//! # Invariants
//! - No byte of a file is written, and no page is evicted.
//! - The kernel is believed only where it tells the truth ([`kernel::Residency`]).

#![deny(unsafe_code)]

mod clock;
pub mod explain;
pub mod kernel;
pub mod memory;
mod observe;
mod prefetch;
pub mod run;
mod session;
pub mod warm;

pub use observe::{ObserverKind, shim};
pub use session::{SessionError, StartError};
