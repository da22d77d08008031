//! Every store and wrapper, through the traits that callers see.
//!
//! `contract.rs` holds what is true of all of them; the other files what is true of one.

mod contract;
mod fault;
mod files;
mod latency;
mod memory;
mod nested;
mod pattern;
mod record;
mod rig;
mod threads;
mod volatile;
