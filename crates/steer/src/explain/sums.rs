//! Parts of times.
//!
//! # Invariants
//! - No part of anything is lost to a number that is too small: products have 128 bits.

use forerun_core::units::Nanos;

/// The part of `total` that corresponds to `one` of `whole`; nothing of nothing.
pub(super) fn share(total: Nanos, one: Nanos, whole: Nanos) -> Nanos {
    let share = u128::from(total.0) * u128::from(one.0) / u128::from(whole.0.max(1));
    Nanos(u64::try_from(share).unwrap_or(u64::MAX))
}
