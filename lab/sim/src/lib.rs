//! The lab: the very core that runs live, in virtual time.
//!
//! ```text
//!   workload   readers, their reads, and when these come: seeded, of any length
//!   driver     a workload through the core on a device model, in virtual time
//!   prefetch   a thread that reads a program's file ahead of it
//!   host       the queue between the core and a device
//!   striped    devices side by side
//!   waits      how long reads waited, as a histogram
//!   oracle     perfect readahead: the limit that others are measured against
//!   trace      recorded accesses, read as a stream
//!   replay     accesses through replacement policies alone
//!   partitioned  traces together through one partitioned cache
//!   schedule   when the requests of a trace are made in a replay in time
//!   queues     the same, and in which queue of 2Q each access falls
//!   decisions  the readahead windows of a policy for a list of reads
//!   vectors    the core's readahead decisions, against those of kernels
//!   walks      programs that go over trees, with what `core::walk` fetches ahead of them
//!   check      the core under a random driver, against a shadow file
//! ```
#![forbid(unsafe_code)]

pub mod check;
pub mod decisions;
pub mod driver;
pub mod host;
pub mod oracle;
pub mod partitioned;
pub mod prefetch;
pub mod queues;
pub mod reap;
pub mod replay;
pub mod schedule;
pub mod striped;
pub mod trace;
pub mod vectors;
pub mod waits;
pub mod walks;
pub mod window_sizes;
pub mod workload;
