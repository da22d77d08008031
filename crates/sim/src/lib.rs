//! Placeholder header; see DESIGN in ARCHITECTURE.md.
#![forbid(unsafe_code)]

extern crate alloc;

pub mod workload;
