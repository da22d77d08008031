//! The lab: the very core that runs live, in virtual time.
//!
//! ```text
//!   check      the core under a random driver, against a shadow file
//! ```
#![forbid(unsafe_code)]

pub mod check;
