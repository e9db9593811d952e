//! Seeded randomness that is the same everywhere.
//!
//! A caller makes one [`Rng`] from the seed of the whole run and [forks](Rng::fork) one stream per thing that needs
//! chance (a provider, a column, a fault): draws in one stream never move another, so adding a mechanism to a scenario
//! leaves the rest of it as it was. Not for secrets.
//!
//! The generator is xoshiro256++ 1.0 (D. Blackman and S. Vigna, "Scrambled linear pseudorandom number generators",
//! ACM TOMS 47(4), 2021; reference code in the public domain), its state filled by `SplitMix64` (G. Steele, D. Lea and
//! C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014), as its authors advise.
//!
//! Floating point is IEEE `+ - * /` and the pinned `libm` only, so x86-64, wasm32 and thumbv7em agree to the bit.

use core::f64::consts::FRAC_PI_2;

/// The increment of `SplitMix64`: 2^64 divided by the golden ratio, made odd.
const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// 2^-53: the spacing of the values of [`Rng::unit_f64`].
const UNIT_STEP: f64 = 1.0 / 9_007_199_254_740_992.0;

/// A deterministic generator: equal seeds give equal draws, on every target and in every process.
///
/// Period 2^256 - 1. Every draw costs a few nanoseconds and no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    /// Names the stream. Forks derive from it and not from `state`, so that they do not depend on draws made before.
    key: u64,
    state: [u64; 4],
}

impl Rng {
    /// The generator of `seed`. Every seed is as good as any other, 0 included.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let word = |nth: u64| mix(seed.wrapping_add(GOLDEN_GAMMA.wrapping_mul(nth)));
        Self { key: seed, state: [word(1), word(2), word(3), word(4)] }
    }

    /// An independent generator for `stream`. A function of this generator's seed and `stream` alone: the same before
    /// and after any number of draws.
    ///
    /// ```
    /// use tidegate_core::sim::rng::Rng;
    /// let mut run = Rng::new(7);
    /// let before = run.fork(1);
    /// run.next_u64();
    /// assert_eq!(before, run.fork(1));
    /// assert_ne!(before, run.fork(2));
    /// ```
    #[must_use]
    pub fn fork(&self, stream: u64) -> Self {
        // The offset keeps `fork(0)` of seed 0 apart from its parent: `mix(0)` is 0.
        Self::new(mix(self.key ^ mix(stream.wrapping_add(GOLDEN_GAMMA))))
    }

    /// The next 64 bits, each equally likely 0 or 1.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let drawn = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        drawn
    }

    /// A whole number in `0..n`, each equally likely; 0 when `n` is 0.
    ///
    /// D. Lemire, "Fast random integer generation in an interval", ACM TOMACS 29(1), 2019. The chance of a redraw
    /// is below `n` / 2^64, and never above one half.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 {
            return 0;
        }
        // Of the 2^64 draws, the first 2^64 mod n would make low results likelier.
        let surplus = n.wrapping_neg() % n;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(n);
            if product as u64 >= surplus {
                return (product >> 64) as u64;
            }
        }
    }

    /// A double in `[0, 1)`, uniform over the multiples of 2^-53.
    pub fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * UNIT_STEP
    }

    /// A draw from the standard normal distribution, within 8.58 of 0.
    ///
    /// The cosine half of Box and Muller's transform ("A note on the generation of random normal deviates", 1958): two
    /// uniform draws, no rejection and no spare value kept, so that the work of a call and the state after it are fixed.
    pub fn normal(&mut self) -> f64 {
        // 1 - u lies in (0, 1]: its logarithm is finite.
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.unit_f64()));
        radius * cosine_of_turns(self.unit_f64())
    }
}

/// The cosine of an angle from 0 to 1 turn, to within 2^-52.
///
/// The way to the nearest quarter turn is exact, as the angle is one of 2^53; what is left, an eighth at most, goes into
/// the series of Taylor, whose first term that is left out is below 2^-58. Cosines for angles of any size, such as those of `libm`, are
/// 5 KiB of code and tables, most of it for what is never asked here.
fn cosine_of_turns(turns: f64) -> f64 {
    let quarters = (4.0 * turns + 0.5) as u32;
    let rest = (4.0 * turns - f64::from(quarters)) * FRAC_PI_2;
    // Both series from their smallest term up; their n-th term is the one before times -rest^2 over these two factors.
    let series = |first: f64| {
        (0..8).rev().fold(1.0, |sum, n| {
            let factor = first + 2.0 * f64::from(n);
            1.0 - rest * rest / (factor * (factor + 1.0)) * sum
        })
    };
    match quarters % 4 {
        0 => series(1.0),
        1 => -rest * series(2.0),
        2 => -series(1.0),
        _ => rest * series(2.0),
    }
}

/// The output function of `SplitMix64`: a bijection in which every input bit moves every output bit.
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeding_matches_the_published_splitmix64_sequence() {
        assert_eq!(
            Rng::new(1_234_567).state,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431
            ]
        );
    }

    #[test]
    fn the_draws_match_the_published_xoshiro256_plus_plus_sequence() {
        let mut rng = Rng { key: 0, state: [1, 2, 3, 4] };
        for expected in [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
            9_228_616_714_210_784_205,
            9_973_669_472_204_895_162,
            14_011_001_112_246_962_877,
            12_406_186_145_184_390_807,
            15_849_039_046_786_891_736,
            10_450_023_813_501_588_000,
        ] {
            assert_eq!(rng.next_u64(), expected);
        }
    }

    #[test]
    fn cosines_are_those_of_the_standard_library_to_the_last_bits() {
        let mut rng = Rng::new(7);
        let any = (0..100_000).map(|_| rng.unit_f64());
        for turns in any.chain((0..=64).map(|part| f64::from(part) / 64.0)) {
            let theirs = (core::f64::consts::TAU * turns).cos();
            assert!((cosine_of_turns(turns) - theirs).abs() < 1.3e-15, "{turns}: {}", cosine_of_turns(turns) - theirs);
        }
        for (turns, exact) in [(0.0, 1.0), (0.25, 0.0), (0.5, -1.0), (0.75, 0.0), (1.0, 1.0)] {
            assert!((cosine_of_turns(turns) - exact).abs() <= 0.0, "{turns}");
        }
    }

    #[test]
    fn floating_draws_are_the_same_to_the_bit_on_every_target() {
        let mut rng = Rng::new(42);
        let mut bits = [0; 6];
        for pair in bits.chunks_exact_mut(2) {
            pair[0] = rng.unit_f64().to_bits();
            pair[1] = rng.normal().to_bits();
        }
        assert_eq!(bits, KNOWN_BITS);
        let mut digest = 0_u64;
        for _ in 0..100_000 {
            digest = digest.rotate_left(1) ^ rng.normal().to_bits();
        }
        assert_eq!(digest, KNOWN_DIGEST);
    }

    #[test]
    fn forks_depend_on_the_seed_and_the_stream_and_on_nothing_else() {
        let mut rng = Rng::new(0);
        let fork = rng.fork(0);
        assert_ne!(fork, rng);
        assert_ne!(fork, rng.fork(1));
        assert_ne!(fork, Rng::new(1).fork(0));
        for _ in 0..5 {
            rng.next_u64();
        }
        assert_eq!(fork, rng.fork(0));
        assert_ne!(fork.fork(1), rng.fork(1));
    }

    #[test]
    fn whole_numbers_stay_below_their_bound_and_share_it_evenly() {
        let mut rng = Rng::new(3);
        let mut seen = [0_u32; 6];
        for _ in 0..60_000 {
            seen[usize::try_from(rng.below(6)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|&count| (9_700..10_300).contains(&count)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
        for _ in 0..100 {
            assert!(rng.below(u64::MAX) < u64::MAX);
            assert!(rng.below((1 << 63) + 1) <= 1 << 63);
        }
    }

    #[test]
    fn unit_draws_lie_in_the_half_open_interval_around_one_half() {
        let mut rng = Rng::new(9);
        let mut sum = 0.0;
        for _ in 0..100_000 {
            let unit = rng.unit_f64();
            assert!((0.0..1.0).contains(&unit));
            sum += unit;
        }
        assert!((sum / 100_000.0 - 0.5).abs() < 0.005);
    }

    #[test]
    fn normal_draws_have_mean_zero_and_variance_one() {
        let mut rng = Rng::new(11);
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..100_000 {
            let draw = rng.normal();
            assert!(draw.abs() < 8.58);
            sum += draw;
            squares += draw * draw;
        }
        let mean = sum / 100_000.0;
        assert!(mean.abs() < 0.02, "{mean}");
        assert!((squares / 100_000.0 - mean * mean - 1.0).abs() < 0.03);
    }

    /// As an implementation in another language has them, with the logarithm of fdlibm.
    const KNOWN_BITS: [u64; 6] = [
        4_605_509_828_241_559_245,
        4_606_027_637_154_239_485,
        4_604_490_487_582_268_166,
        13_832_855_682_397_830_681,
        4_593_684_317_981_445_400,
        4_600_119_360_996_978_463,
    ];
    const KNOWN_DIGEST: u64 = 10_436_051_620_579_272_237;
}
