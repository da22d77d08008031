//! Steers the kernel's page cache: it is asked for bytes before a program wants them.
//!
//! | module | what |
//! |---|---|
//! | `kernel` | asks for a range, and sees what of it is there |
//! | `memory` | how many bytes may be ahead |
//! | `session`, `program`, `signals` | runs a program: the loop, its start and end, its signals |
//! | `run` | reads ahead of it |
//! | `explain`, `usage` | what it reads, where it waits, what reading ahead would gain |
//! | `watch`, `files`, `maps` | processes, where they are in open files, in mapped ones |
//! | `readers` | what these tell, and who listens |
//! | `proc`, `pagemap` | what `/proc` says of a process and of its memory |
//! | `prefetch` | drives the core's planner: files, residency, worker threads |
//! | `clock` | real time |
//! | `shim`, `told` | what a program tells that runs with the shim of `crates/preload` |
//! | `warm` | whole files, within a budget |
//!
//! # Invariants
//! - No byte of a file is written, and no page is evicted: what is cached was asked for, or stays.
//! - The kernel is believed only where it tells the truth ([`kernel::Residency`]).

#![deny(unsafe_code)]

mod clock;
pub mod explain;
mod files;
pub mod kernel;
mod maps;
pub mod memory;
mod pagemap;
mod prefetch;
mod proc;
mod program;
mod readers;
pub mod run;
mod session;
#[expect(unsafe_code, reason = "memory that is shared with the programs that run")]
pub mod shim;
mod signals;
mod told;
mod usage;
mod watch;

pub use program::StartError;
pub mod warm;
