//! Programs that go from file to file of a tree give what they give alone, also where the tree
//! changes meanwhile: forerun walks ahead of them.
//!
//! ```text
//!   device: each read takes a while --loop, ext4--> tree --overlay--> a tree that can be changed
//!                                                     |                 |
//!                       reads: programs as they are --'                 '-- changes: by themselves
//! ```
//! `large` is a directory of a million entries, in memory; `explained` is what `explain` says of
//! reads on that device.
//!
//! Each row begins with nothing cached, alone and under `run`.
//!
//! # Invariants
//! - What programs print does not depend on time, so that two runs can be compared byte by byte.

mod changes;
mod device;
mod explained;
mod large;
mod reads;
mod tree;
