//! Time finer than a nanosecond, for what goes on inside a device.
//!
//! A turn of a 7200 rpm platter is 8,333,333.33.. ns and a byte at 52 MB/s is 19.23 ns: kept in
//! whole nanoseconds, a device that streams would fall behind by up to one at each command, and
//! a head that is late by a moment loses a whole turn. So a model counts in 2^-32 ns and only
//! what leaves the model is in [`Nanos`], rounded up: no completion comes before its time.
//!
//! # Invariants
//! - Every rounding inside is downwards, by less than 2^-32 ns.

use crate::units::Nanos;

/// A moment or a duration in units of 2^-32 ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fine(pub(super) u128);

impl Fine {
    /// The time that `bytes` take at `rate` bytes a second.
    pub(super) fn of_bytes(bytes: u64, rate: u64) -> Self {
        assert!(bytes <= BYTES_MAX, "{bytes} bytes are more than any device has");
        Self(((u128::from(bytes) * u128::from(SECOND_NS)) << FRACTION_BITS) / u128::from(rate))
    }

    /// The whole bytes that pass in this time at `rate` bytes a second. For short times: the
    /// caller bounds it by the time that the bytes it has room for would take.
    pub(super) fn bytes(self, rate: u64) -> u64 {
        let bytes = self.0 * u128::from(rate) / (u128::from(SECOND_NS) << FRACTION_BITS);
        u64::try_from(bytes).expect("the caller bounds the time by a number of bytes")
    }

    /// Whole nanoseconds, rounded up.
    pub(super) fn nanos(self) -> Nanos {
        let nanos = self.0.div_ceil(1 << FRACTION_BITS);
        Nanos(u64::try_from(nanos).expect("a run lasts less than 2^64 ns"))
    }

    /// Whole nanoseconds, rounded down.
    pub(super) fn whole_nanos(self) -> u128 {
        self.0 >> FRACTION_BITS
    }

    /// The time from `earlier` to here; zero when `earlier` is later.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl From<Nanos> for Fine {
    fn from(nanos: Nanos) -> Self {
        Self(u128::from(nanos.0) << FRACTION_BITS)
    }
}

impl core::ops::Add for Fine {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl core::ops::AddAssign for Fine {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

/// Bits behind the nanosecond.
pub(super) const FRACTION_BITS: u32 = 32;

/// Nanoseconds in a second.
pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// No position or length is above this: it keeps every product below 128 bits.
pub(super) const BYTES_MAX: u64 = 1 << 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_time_are_each_others_inverse_up_to_one_byte() {
        for (bytes, rate, nanos) in [
            (0, 52_000_000, 0),
            (1, 52_000_000, 20),
            (52_000_000, 52_000_000, 1_000_000_000),
            (4_096, 1_000_000_000, 4_096),
            (1 << 60, 1 << 40, 1_048_576_000_000_000),
        ] {
            let time = Fine::of_bytes(bytes, rate);
            assert_eq!(time.nanos(), Nanos(nanos), "{bytes} bytes at {rate}");
            assert!((bytes.saturating_sub(1)..=bytes).contains(&time.bytes(rate)));
        }
    }

    #[test]
    fn nanoseconds_round_up_and_differences_stop_at_zero() {
        let (early, late) = (Fine::from(Nanos(5)), Fine((5 << FRACTION_BITS) + 1));
        assert_eq!((early.nanos(), late.nanos()), (Nanos(5), Nanos(6)));
        assert_eq!((late.since(early), early.since(late)), (Fine(1), Fine(0)));
        assert_eq!(early + Fine(1), late);
    }
}
