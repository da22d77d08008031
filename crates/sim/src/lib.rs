//! Placeholder header; see DESIGN in ARCHITECTURE.md.
#![forbid(unsafe_code)]
