//! Times that are drawn: a mean and a standard deviation, always positive.
//!
//! Where the deviation is below a third of the mean, a sum of twelve uniform draws (nearly normal,
//! and of the very mean and deviation that are asked for); above, a shifted exponential draw
//! of the same two moments, which has the long tail that slow devices have.
//!
//! # Invariants
//! - Integers alone: the same on each machine.
//! - Seven draws of the generator each time, so two runs stay in step whatever is drawn.

use crate::prng::Prng;
use crate::units::Nanos;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// The mean.
    pub mean: Nanos,
    /// The standard deviation.
    pub stdev: Nanos,
}

impl Spread {
    /// So many nanoseconds, give or take so many.
    #[must_use]
    pub const fn new(mean: u64, stdev: u64) -> Self {
        Self { mean: Nanos(mean), stdev: Nanos(stdev) }
    }

    /// One time.
    pub fn draw(self, prng: &mut Prng) -> Nanos {
        let (mean, stdev) = (self.mean.0, self.stdev.0);
        // The sum of twelve uniform draws of 0..2^32 has a deviation of 2^32 and a mean of six.
        let sum: u64 = (0..6).map(|_| prng.draw()).map(|two| (two >> 32) + two % ONE).sum();
        let tail = prng.draw() % ONE;
        if 3 * stdev <= mean {
            let up = u128::from(stdev) * u128::from(sum.saturating_sub(6 * ONE)) / u128::from(ONE);
            let down = u128::from(stdev) * u128::from((6 * ONE).saturating_sub(sum));
            let (up, down) = (narrow(up), narrow(down / u128::from(ONE)));
            return Nanos((mean + up).saturating_sub(down));
        }
        Nanos(mean.saturating_sub(stdev) + exponential(stdev.min(mean), tail))
    }
}

/// An exponential draw of this mean: as often as a uniform draw halves, ln 2 of the mean; within
/// the last half a straight line stands for the logarithm.
fn exponential(mean: u64, uniform: u64) -> u64 {
    let uniform = uniform.max(1);
    let halvings = u64::from(uniform.leading_zeros()) - u64::from(ONE.leading_zeros()) - 1;
    let within = (uniform << (halvings + 1)) - ONE;
    // Of ONE..2 ONE: the nearer to ONE, the longer.
    let parts = u128::from(halvings) * u128::from(ONE) + u128::from(ONE - within.min(ONE));
    narrow(u128::from(mean) * parts * LN_2 / u128::from(ONE) / 1_000_000)
}

fn narrow(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}

const ONE: u64 = 1 << 32;
/// In millionths.
const LN_2: u128 = 693_147;

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn draws_have_the_mean_and_the_deviation() {
        #[rustfmt::skip]
        let rows = [(10_000, 2_000), (5_000, 700), (80_000, 50_000), (20_000, 4_000), (3_000, 800),
                    (7, 2), (1_000, 1_000)];
        for (mean, stdev) in rows {
            let mut prng = Prng::new(1);
            let spread = Spread::new(mean, stdev);
            let drawn: Vec<i64> =
                (0..200_000).map(|_| i64::try_from(spread.draw(&mut prng).0).unwrap()).collect();
            let count = i64::try_from(drawn.len()).unwrap();
            let seen = drawn.iter().sum::<i64>() / count;
            let variance = drawn.iter().map(|one| (one - seen).pow(2)).sum::<i64>() / count;
            let deviation = i64::try_from(variance.unsigned_abs().isqrt()).unwrap();
            let (mean, stdev) = (i64::try_from(mean).unwrap(), i64::try_from(stdev).unwrap());
            assert!((seen - mean).abs() <= mean / 20 + 1, "{mean}: {seen}");
            assert!((deviation - stdev).abs() <= stdev / 20 + 1, "{mean}, {stdev}: {deviation}");
        }
    }

    #[test]
    fn nothing_spread_is_the_mean_itself() {
        let mut prng = Prng::new(3);
        assert_eq!(Spread::new(42, 0).draw(&mut prng), Nanos(42));
        assert_eq!(Spread::new(0, 0).draw(&mut prng), Nanos(0));
    }
}
