//! `forerun run` and `explain`, end to end: programs run as they would without it, and their files
//! are read ahead, or it is told how they are read.
//!
//! Nothing here waits for a time: readers read when they are told to, and what is asserted holds
//! after any number of looks.

#[path = "../support/mod.rs"]
mod support;

mod awkward;
mod explain;
mod limits;
mod mappings;
mod programs;
mod reading;
mod rig;
mod users;
