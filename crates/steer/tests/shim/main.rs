//! The shim in real programs: the ring has what they read, and they notice nothing.
//!
//! ```text
//!   program with LD_PRELOAD -> libforerun_preload.so -> ring -> records =? what it read
//! ```
//!
//! `programs` are those of the system; `cases` is a program of ours, `cases.c`, which does what may
//! go wrong.
//!
//! # Invariants
//! - A machine without a compiler, or a program, skips by name.

mod cases;
mod programs;
mod rig;
