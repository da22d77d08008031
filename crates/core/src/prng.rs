//! A seeded generator: the same seed gives the same numbers on every machine, for ever.
//!
//! Core draws nothing by chance. Workloads, device models and tests do, and each holds its own
//! generator: what one draws does not shift what another gets.
//!
//! # Sources
//! `SplitMix64` (Steele, Lea, Flood 2014) fills the state; xoshiro256** (Blackman, Vigna 2018)
//! draws. Not for secrets.

/// See the module.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

impl Prng {
    /// A generator that `seed` alone determines.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut mix = seed;
        let mut next = || {
            mix = mix.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = mix;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Self { state: [next(), next(), next(), next()] }
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        let s = &mut self.state;
        let drawn = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        drawn
    }

    /// A number below `bound`, which is at least 1. The bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        let wide = u128::from(self.draw()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("the high half of a 128-bit product fits 64 bits")
    }

    /// Whether something of `percent` in a hundred happens.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_is_spread_as_splitmix64_does() {
        // The first outputs of the published generator.
        let rows = [
            (0, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]),
            (
                1_234_567,
                [
                    6_457_827_717_110_365_317,
                    3_203_168_211_198_807_973,
                    9_817_491_932_198_370_423_u64,
                ],
            ),
        ];
        for (seed, expected) in rows {
            assert_eq!(Prng::new(seed).state[..3], expected, "seed {seed}");
        }
        assert_eq!(Prng::new(1_234_567).state[3], 4_593_380_528_125_082_431);
    }

    #[test]
    fn the_draws_are_those_of_xoshiro256_starstar() {
        // The first outputs of the published generator from this state.
        let mut prng = Prng { state: [1, 2, 3, 4] };
        let expected = [
            11_520,
            0,
            1_509_978_240,
            1_215_971_899_390_074_240,
            1_216_172_134_540_287_360,
            607_988_272_756_665_600,
            16_172_922_978_634_559_625,
            8_476_171_486_693_032_832,
            10_595_114_339_597_558_777,
            2_904_607_092_377_533_576,
        ];
        assert_eq!(expected.map(|_| prng.draw()), expected);
    }

    #[test]
    fn below_reaches_all_numbers_below_its_bound_and_no_other() {
        let mut prng = Prng::new(1);
        for bound in 1..=20 {
            let mut seen = [0_u32; 20];
            for _ in 0..100 * bound {
                seen[usize::try_from(prng.below(bound)).unwrap()] += 1;
            }
            for (number, &count) in (0..).zip(&seen) {
                let expected = if number < bound { 50..=160 } else { 0..=0 };
                assert!(expected.contains(&count), "{number} below {bound}: {count} times");
            }
        }
        assert!((0..100).any(|_| prng.below(u64::MAX) > u64::MAX / 2));
    }

    #[test]
    fn below_takes_the_high_bits_of_a_draw() {
        let (mut prng, mut draws) = (Prng::new(2), Prng::new(2));
        for _ in 0..100 {
            assert_eq!(prng.below(1 << 20), draws.draw() >> 44);
        }
    }

    #[test]
    fn chance_is_so_many_in_a_hundred() {
        let mut prng = Prng::new(3);
        for percent in [0, 1, 30, 50, 99, 100, 101] {
            let happened = (0..4_000).filter(|_| prng.chance(percent)).count();
            let expected = usize::try_from(percent.min(100) * 40).unwrap();
            assert!(happened.abs_diff(expected) < 120, "{percent} %: {happened}");
            assert!(percent > 0 || happened == 0);
            assert!(percent < 100 || happened == 4_000);
        }
    }
}
