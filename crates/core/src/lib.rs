//! Every decision of forerun: what is resident, what leaves, what is read ahead, what is written
//! back. Events in, actions out.
//!
//! The crate is `no_std` and forbids `unsafe`: there is no clock, file, thread or randomly seeded
//! map to reach for, so what it computes depends on its arguments alone.

#![no_std]
#![forbid(unsafe_code)]

#[doc(hidden)]
pub extern crate alloc; // For `params!` in crates that do not name it.
#[cfg(test)]
extern crate std;

pub mod cache;
pub mod device;
pub mod drive;
pub mod effort;
pub mod event;
pub mod eviction;
pub mod hash;
pub mod learned;
pub mod observed;
mod page_table;
pub mod params;
pub mod planner;
pub mod prng;
pub mod queue;
pub mod readahead;
pub mod reap;
pub mod sketch;
pub mod units;
pub mod walk;
pub mod windows;
