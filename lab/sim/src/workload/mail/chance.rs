//! Draws from distributions, the same on every machine.
//!
//! The logarithm and the exponential of a machine's library may differ in the last bit from
//! another's, and then an order of events would. These are made of additions, multiplications,
//! divisions and square roots alone, which IEEE 754 defines to the bit.
//!
//! # Sources
//! Marsaglia's polar method (1964) for normal deviates; the series of the inverse hyperbolic
//! tangent and of the exponential.

use forerun_core::prng::Prng;

/// See the module.
pub(super) struct Chance {
    prng: Prng,
    /// The polar method gives two at a time.
    spare: Option<f64>,
}

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self { prng: Prng::new(seed), spare: None }
    }

    /// A number from 0 up to 1, which it is not.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub(super) fn uniform(&mut self) -> f64 {
        (self.prng.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number above 0, up to 1.
    fn above_zero(&mut self) -> f64 {
        1.0 - self.uniform()
    }

    /// Which of `weights` is drawn.
    pub(super) fn choose(&mut self, weights: &[f64]) -> usize {
        let mut left = self.uniform() * weights.iter().sum::<f64>();
        let passed = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        passed.unwrap_or(weights.len() - 1)
    }

    /// Trials up to the first success, where one in two succeeds.
    pub(super) fn trials(&mut self) -> u32 {
        self.prng.draw().trailing_zeros() + 1
    }

    /// A normal deviate of mean 0 and variance 1.
    pub(super) fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (x, y) = (2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let scale = (-2.0 * ln(square) / square).sqrt();
                self.spare = Some(y * scale);
                return x * scale;
            }
        }
    }

    /// A deviate of Pareto's distribution from 1 on.
    pub(super) fn pareto(&mut self, alpha: f64) -> f64 {
        exp(-ln(self.above_zero()) / alpha)
    }

    /// The generator, for what needs whole numbers.
    pub(super) fn prng(&mut self) -> &mut Prng {
        &mut self.prng
    }
}

/// The natural logarithm of a positive, normal number.
pub(super) fn ln(x: f64) -> f64 {
    assert!(x.is_normal() && x > 0.0);
    let bits = x.to_bits();
    let exponent = i32::try_from(bits >> 52).expect("11 bits") - 1023;
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    // Nearer to 1, the series ends sooner.
    let (mantissa, exponent) =
        if mantissa > 1.5 { (mantissa / 2.0, exponent + 1) } else { (mantissa, exponent) };
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let series = (0..16_u32).rev().fold(0.0, |sum, n| sum * square + 1.0 / f64::from(2 * n + 1));
    f64::from(exponent) * std::f64::consts::LN_2 + 2.0 * s * series
}

/// The exponential of a number between -700 and 700.
pub(super) fn exp(x: f64) -> f64 {
    assert!(x.abs() < 700.0);
    let mut whole = 0_i32;
    let mut rest = x;
    // Halves of a doubling on either side; a few steps for every deviate that is drawn.
    while rest > 0.5 * std::f64::consts::LN_2 {
        rest -= std::f64::consts::LN_2;
        whole += 1;
    }
    while rest < -0.5 * std::f64::consts::LN_2 {
        rest += std::f64::consts::LN_2;
        whole -= 1;
    }
    let series = (1..18_u32).rev().fold(1.0, |sum, n| 1.0 + sum * rest / f64::from(n));
    let scale = u64::try_from(1023 + whole).expect("bounded by the argument");
    series * f64::from_bits(scale << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_and_exponential_agree_with_the_library() {
        for step in 1..4_000 {
            let x = f64::from(step) * 0.013;
            assert!((ln(x) - x.ln()).abs() <= 1e-14 * x.ln().abs().max(1.0), "ln {x}");
            for x in [x, -x] {
                assert!((exp(x) / x.exp() - 1.0).abs() < 1e-13, "exp {x}");
            }
        }
    }

    #[test]
    fn deviates_have_the_moments_of_their_distributions() {
        let mut chance = Chance::new(3);
        let mut moments = |draw: &mut dyn FnMut(&mut Chance) -> f64| {
            let drawn: Vec<f64> = (0..200_000).map(|_| draw(&mut chance)).collect();
            let mean = drawn.iter().sum::<f64>() / 200_000.0;
            let variance = drawn.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 200_000.0;
            (mean, variance)
        };
        let near = |found: (f64, f64), mean: f64, variance: f64| {
            assert!(
                (found.0 - mean).abs() < 0.01 && (found.1 - variance).abs() < 0.05,
                "{found:?}"
            );
        };
        near(moments(&mut |chance| chance.uniform()), 0.5, 1.0 / 12.0);
        near(moments(&mut Chance::normal), 0.0, 1.0);
        near(moments(&mut |chance| f64::from(chance.trials())), 2.0, 2.0);
        near(moments(&mut |chance| chance.pareto(5.0)), 1.25, 5.0 / 48.0);
    }
}
