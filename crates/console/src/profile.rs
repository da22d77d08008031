//! The profile of a device: measured by reads of its own, kept in a file, found again.
//!
//! ```text
//!   measure (rates) and latency (waits, sleeps), of a place --> store (TOML) --> flag (--profile)
//! ```

pub mod flag;
pub mod latency;
pub mod measure;
pub mod place;
pub mod store;

use forerun_core::device::DeviceKind;

/// A kind in files and tables.
#[must_use]
pub fn kind(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::SeekBound => "positional",
        DeviceKind::Parallel => "parallel",
    }
}
