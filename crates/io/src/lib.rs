//! Stores that move bytes, wrappers around them, and the frames they move bytes into.
//!
//! An operation owns its frames from [`store::Queue::submit`] until its [`store::Completion`] gives
//! them back, so no page is read while a device, a thread or the kernel writes to it.
//!
//! ```text
//!   Frames --check out--> Op --submit--> Queue of a Store ... --reap--> Completion --check in-->
//!   Frames |
//!                            wrap: stores around a store
//!   Index --find--> Pin: the bytes of a page in its frame
//! ```
//!
//! # Invariants
//! - Every operation that was submitted comes back exactly once, as long as a thread reaps; a
//!   closed queue gives back what it holds and nothing hangs.
//! - Nothing here decides what to read, when and into which frame: the caller does. What is
//!   submitted is ordered and bounded by one scheduler (`scheduler.rs`).
//! - Real time is read in `wrap/latency.rs` and `reaper/clock.rs` only.
//! - `unsafe` stands where memory is shared with the kernel and around calls that no crate wraps,
//!   behind interfaces that are safe.

#![deny(unsafe_code)]

pub mod devices;
pub mod files;
#[expect(unsafe_code, reason = "one mapping, whose frames have one owner or many readers each")]
pub mod frames;
pub mod index;
#[expect(unsafe_code, reason = "a call that no crate wraps")]
pub mod lock;
pub mod passed;
pub mod process;
mod queue;
pub mod reaper;
mod scheduler;
pub mod state;
pub mod store;
pub mod sync;
pub mod wrap;
