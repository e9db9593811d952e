//! Seeded random numbers that are the same on every target.
//!
//! A caller creates one [`Rng`] from the seed of the whole run and [forks](Rng::fork) one stream for each
//! thing that needs random numbers (a provider, a column, a fault). Draws in one stream never change another
//! stream, so a new mechanism in a scenario leaves all other draws as they were. Not for secrets.
//!
//! The generator is xoshiro256++ 1.0 of `rand_xoshiro` (D. Blackman and S. Vigna, "Scrambled linear
//! pseudorandom number generators", ACM TOMS 47(4), 2021). Its state is filled by `SplitMix64`, as its
//! authors recommend. Only its 64-bit words are used: the conversion to an integer in a range or to a double
//! is defined here and does not change with a library.
//!
//! Floating-point code uses only IEEE `+ - * /` and the pinned `libm`, so x86-64, wasm32 and thumbv7em agree
//! to the bit.

use core::f64::consts::TAU;

use rand_xoshiro::rand_core::{Rng as _, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

/// The increment of `SplitMix64`: 2^64 divided by the golden ratio, made odd.
const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// 2^-53: the spacing of the values of [`Rng::unit_f64`].
const UNIT_STEP: f64 = 1.0 / 9_007_199_254_740_992.0;

/// A deterministic generator: equal seeds give equal draws, on every target and in every process.
///
/// Period 2^256 - 1. Every draw costs a few nanoseconds and no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    /// Identifies the stream. Forks derive from it and not from `state`, so they do not depend on earlier
    /// draws.
    key: u64,
    state: Xoshiro256PlusPlus,
}

impl Rng {
    /// Creates the generator of `seed`. Every seed is equally good, including 0.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { key: seed, state: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }

    /// Returns an independent generator for `stream`. It depends only on this generator's seed and `stream`,
    /// not on earlier draws.
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
        // The offset makes `fork(0)` of seed 0 differ from its parent: `mix(0)` is 0.
        Self::new(mix(self.key ^ mix(stream.wrapping_add(GOLDEN_GAMMA))))
    }

    /// Returns the next 64 bits. Each bit is 0 or 1 with equal probability.
    pub fn next_u64(&mut self) -> u64 {
        self.state.next_u64()
    }

    /// Returns an integer in `0..n`, each equally likely, or 0 if `n` is 0.
    ///
    /// Source: D. Lemire, "Fast random integer generation in an interval", ACM TOMACS 29(1), 2019. The
    /// probability of a redraw is below `n` / 2^64, and never above one half.
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

    /// Returns a double in `[0, 1)`, uniform over the multiples of 2^-53.
    pub fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * UNIT_STEP
    }

    /// Returns a draw from the standard normal distribution, within 8.58 of 0.
    ///
    /// It is the cosine half of the Box-Muller transform ("A note on the generation of random normal
    /// deviates", 1958). It uses two uniform draws, no rejection and no stored second value, so the work of
    /// a call and the state after it are fixed.
    pub fn normal(&mut self) -> f64 {
        // `1 - u` is in (0, 1], so its logarithm is finite.
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.unit_f64()));
        radius * libm::cos(TAU * self.unit_f64())
    }
}

/// The output function of `SplitMix64`: a bijection in which every input bit affects every output bit.
fn mix(word: u64) -> u64 {
    // A generator adds the increment before each of its outputs.
    SplitMix64::seed_from_u64(word.wrapping_sub(GOLDEN_GAMMA)).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_draws_of_a_seed_never_change() {
        let mut rng = Rng::new(1_234_567);
        assert_eq!([rng.next_u64(), rng.next_u64(), rng.next_u64()], KNOWN_WORDS);
        assert_eq!(rng.fork(1).next_u64(), KNOWN_FORK);
    }

    #[test]
    fn floating_point_draws_are_the_same_to_the_bit_on_every_target() {
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
    fn forks_depend_only_on_the_seed_and_the_stream() {
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
    fn integers_stay_below_their_bound_and_are_uniform() {
        let mut rng = Rng::new(3);
        let mut counts = [0_u32; 6];
        for _ in 0..60_000 {
            counts[usize::try_from(rng.below(6)).unwrap()] += 1;
        }
        assert!(counts.iter().all(|&count| (9_700..10_300).contains(&count)), "{counts:?}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
        for _ in 0..100 {
            assert!(rng.below(u64::MAX) < u64::MAX);
            assert!(rng.below((1 << 63) + 1) <= 1 << 63);
        }
    }

    #[test]
    fn unit_draws_are_in_the_half_open_interval_with_mean_one_half() {
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

    const KNOWN_BITS: [u64; 6] = [
        4_605_509_828_241_559_245,
        4_606_027_637_154_239_484,
        4_604_490_487_582_268_166,
        13_832_855_682_397_830_682,
        4_593_684_317_981_445_400,
        4_600_119_360_996_978_464,
    ];
    const KNOWN_WORDS: [u64; 3] = [437_095_814_655_224_680, 8_127_161_015_984_454_572, 18_128_670_339_019_551_454];
    const KNOWN_FORK: u64 = 387_423_330_627_217_344;
    const KNOWN_DIGEST: u64 = 261_980_268_431_631_619;
}
