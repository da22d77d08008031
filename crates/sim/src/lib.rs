//! The lab: the very core that runs live, in virtual time.
//!
//! ```text
//!   check      the core under a random driver, against a shadow file
//!   vectors    the core's readahead decisions, against those of kernels
//! ```
#![forbid(unsafe_code)]

pub mod check;
pub mod vectors;
