//! `forerun run` and `explain`, end to end: programs run as they would without it, and their files
//! are prefetched, or explained.
//!
//! Nothing here waits for a time: readers read on command, and what is asserted holds after any
//! number of polls.

mod awkward;
mod ends;
mod explain;
mod hostile;
mod illnesses;
mod learning;
mod limits;
mod mappings;
mod opening;
mod programs;
mod progress;
mod reading;
mod record;
mod rig;
mod server;
mod sick;
mod signals;
mod statistics;
mod stops;
mod terminal;
mod users;
