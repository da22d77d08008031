//! The profile of a device: measured by reads of its own, kept in a file, found again.
//!
//! ```text
//!   measure (rates) and latency (waits, sleeps), of a place --> store (TOML) --> given (--profile)
//! ```

pub mod given;
pub mod latency;
pub mod measure;
pub mod place;
pub mod store;

use forerun_core::device::Kind;

/// A kind in files and tables.
#[must_use]
pub fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Positional => "positional",
        Kind::Parallel => "parallel",
    }
}
