//! Random counts: the Poisson and the binomial distribution.
//!
//! Only `+ - * /` and functions of the pinned `libm` are used, so that every machine draws the same.

use tidegate_core::sim::rng::Rng;

/// The mean from which on rejection is quicker than counting up, and its constants are valid.
const FEW: f64 = 10.0;

/// Draws the number of events where `mean` are expected. `mean` is from 0 to 10^9. Takes O(1) on average.
///
/// Source: W. Hörmann, "The transformed rejection method for generating Poisson random variables", Insurance:
/// Mathematics and Economics 12(1), 1993 (algorithm PTRS); below a mean of 10, inversion by counting up.
pub(super) fn poisson(mean: f64, rng: &mut Rng) -> i64 {
    if mean < FEW {
        let mut left = rng.unit_f64();
        let mut chance = libm::exp(-mean);
        let mut count = 0;
        // The chances of the counts up to 200 add up to 1 to the last bit: the rest is rounding.
        while left >= chance && count < 200 {
            left -= chance;
            count += 1;
            chance *= mean / f64::from(count);
        }
        return i64::from(count);
    }
    let b = 0.931 + 2.53 * libm::sqrt(mean);
    let a = -0.059 + 0.024_83 * b;
    let inverse_alpha = 1.123_9 + 1.132_8 / (b - 3.4);
    let log_mean = libm::log(mean);
    let squeeze = 0.927_7 - 3.622_4 / (b - 2.0);
    loop {
        let (offset, level) = (rng.unit_f64() - 0.5, rng.unit_f64());
        let edge = 0.5 - libm::fabs(offset);
        let count = libm::floor((2.0 * a / edge + b) * offset + mean + 0.43);
        if edge >= 0.07 && level <= squeeze {
            return count as i64;
        }
        if count < 0.0 || (edge < 0.013 && level > edge) {
            continue;
        }
        let bound = count * log_mean - mean - libm::lgamma(count + 1.0);
        if libm::log(level * inverse_alpha / (a / (edge * edge) + b)) <= bound {
            return count as i64;
        }
    }
}

/// Draws the number of successes in `trials` with probability `p` each. Takes O(1) on average.
///
/// Source: W. Hörmann, "The generation of binomial random variates", Journal of Statistical Computation and
/// Simulation 46, 1993 (algorithm BTRS); where fewer than 10 successes or failures are expected, inversion by
/// counting up.
pub(super) fn binomial(trials: u32, p: f64, rng: &mut Rng) -> i64 {
    if p > 0.5 {
        return i64::from(trials) - binomial(trials, 1.0 - p, rng);
    }
    let total = f64::from(trials);
    let expected = total * p;
    let odds = p / (1.0 - p);
    if expected < FEW {
        let mut left = rng.unit_f64();
        // (1 - p)^trials
        let mut chance = libm::exp(total * libm::log1p(-p));
        let mut count = 0;
        while left >= chance && count < trials.min(200) {
            left -= chance;
            count += 1;
            chance *= odds * f64::from(trials - count + 1) / f64::from(count);
        }
        return i64::from(count);
    }
    let spread = libm::sqrt(expected * (1.0 - p));
    let b = 1.15 + 2.53 * spread;
    let a = -0.087_3 + 0.024_8 * b + 0.01 * p;
    let alpha = (2.83 + 5.1 / b) * spread;
    let squeeze = 0.92 - 4.2 / b;
    let log_odds = libm::log(odds);
    let mode = libm::floor((total + 1.0) * p);
    let height = libm::lgamma(mode + 1.0) + libm::lgamma(total - mode + 1.0);
    loop {
        let (offset, level) = (rng.unit_f64() - 0.5, rng.unit_f64());
        let edge = 0.5 - libm::fabs(offset);
        let count = libm::floor((2.0 * a / edge + b) * offset + expected + 0.5);
        if count < 0.0 || count > total {
            continue;
        }
        if edge >= 0.07 && level <= squeeze {
            return count as i64;
        }
        let bound = height - libm::lgamma(count + 1.0) - libm::lgamma(total - count + 1.0) + (count - mode) * log_odds;
        if libm::log(level * alpha / (a / (edge * edge) + b)) <= bound {
            return count as i64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the mean and the variance of 20 000 draws.
    fn moments(mut draw: impl FnMut(&mut Rng) -> i64) -> (f64, f64) {
        let mut rng = Rng::new(11);
        let drawn: Vec<f64> = (0..20_000).map(|_| draw(&mut rng) as f64).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let variance = drawn.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / drawn.len() as f64;
        (mean, variance)
    }

    /// Fails if `drawn` is more than five standard errors of a mean from the mean, or its variance is off by
    /// more than a tenth.
    fn assert_moments(what: &str, drawn: (f64, f64), (mean, variance): (f64, f64)) {
        let error = (variance / 20_000.0).sqrt();
        assert!((drawn.0 - mean).abs() <= 5.0 * error + 1e-9, "{what}: mean {} instead of {mean}", drawn.0);
        assert!(
            (drawn.1 - variance).abs() <= 0.1 * variance + 1e-9,
            "{what}: variance {} instead of {variance}",
            drawn.1
        );
    }

    #[test]
    fn poisson_counts_have_their_mean_and_variance_on_both_sides_of_the_change_of_method() {
        for mean in [0.0, 0.1, 3.0, 9.999, 10.0, 40.0, 1e5, 1e9] {
            assert_moments(&format!("mean {mean}"), moments(|rng| poisson(mean, rng)), (mean, mean));
        }
    }

    #[test]
    fn binomial_counts_have_their_mean_and_variance_and_never_exceed_the_trials() {
        for (trials, p) in [(1, 0.5), (10, 0.0), (10, 1.0), (20, 0.3), (40, 0.25), (100, 0.97), (1_000_000_000, 0.4)] {
            let drawn = moments(|rng| {
                let count = binomial(trials, p, rng);
                assert!((0..=i64::from(trials)).contains(&count), "{count} of {trials}");
                count
            });
            let n = f64::from(trials);
            assert_moments(&format!("{trials} trials at {p}"), drawn, (n * p, n * p * (1.0 - p)));
        }
    }

    #[test]
    fn the_chances_of_small_counts_are_those_of_the_distribution() {
        let share = |mut draw: Box<dyn FnMut(&mut Rng) -> i64>, count: i64| {
            let mut rng = Rng::new(5);
            (0..50_000).filter(|_| draw(&mut rng) == count).count() as f64 / 50_000.0
        };
        // exp(-2) * 2^3 / 3!, and 12 of 30 at 0.4: the mode, which rejection draws.
        let poisson_3 = share(Box::new(|rng| poisson(2.0, rng)), 3);
        assert!((poisson_3 - 0.180_447).abs() < 0.01, "{poisson_3}");
        let binomial_12 = share(Box::new(|rng| binomial(30, 0.4, rng)), 12);
        assert!((binomial_12 - 0.147_375).abs() < 0.01, "{binomial_12}");
    }
}
