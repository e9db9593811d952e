//! The latency of a call, as a probability distribution.
//!
//! A caller puts a [`Latency`] into a scenario, [validates](Latency::validate) it once, and draws one
//! [sample](Latency::sample) per call from a seeded [`Rng`]:
//!
//! ```
//! use tidegate_core::sim::{latency::Latency, rng::Rng};
//! use tidegate_core::time::Duration;
//!
//! let law = Latency::Uniform { low: Duration::from_millis(80), high: Duration::from_millis(120) };
//! law.validate().expect("80 is at most 120");
//! let latency = law.sample(&mut Rng::new(7));
//! assert!((80_000_000..=120_000_000).contains(&latency.as_nanos()));
//! ```
//!
//! In a file a distribution is one of these. The key `law` names its probability law. Durations are in
//! milliseconds, as integers or decimals:
//!
//! - `{ law = "constant", latency_ms = 40 }`
//! - `{ law = "uniform", low_ms = 80, high_ms = 120 }`
//! - `{ law = "log_normal", median_ms = 400, sigma = 0.35, tail = { probability = 0.01, factor = 8 } }`

use serde::{Deserialize, Serialize};

use super::rng::Rng;
use crate::error::{ConfigError, require};
use crate::millis::Millis;
use crate::time::Duration;

/// The longest duration that a scenario may contain: 365 days.
pub(crate) const LONGEST_SPAN: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A distribution of latencies.
///
/// Exhaustive on purpose: a program that describes a provider must describe every latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(tag = "law", rename_all = "snake_case", deny_unknown_fields)]
pub enum Latency {
    /// Every call has the same latency.
    Constant {
        /// The latency, at most 365 days.
        #[serde(rename = "latency_ms", with = "Millis")]
        latency: Duration,
    },
    /// Every nanosecond from `low` to `high` is equally likely, both included.
    Uniform {
        /// The shortest latency, at most `high`.
        #[serde(rename = "low_ms", with = "Millis")]
        low: Duration,
        /// The longest latency, at most 365 days.
        #[serde(rename = "high_ms", with = "Millis")]
        high: Duration,
    },
    /// `median x exp(sigma x z)` with a standard normal `z`. This is the usual shape for a remote model,
    /// with a long right tail.
    LogNormal {
        /// The median: half of the calls are faster. At most 365 days.
        #[serde(rename = "median_ms", with = "Millis")]
        median: Duration,
        /// The standard deviation of the logarithm, 0 to 5. With 0.35, one call in twenty takes more than
        /// 1.8 medians.
        sigma: f64,
        /// A small share of calls that take many times as long.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tail: Option<Tail>,
    },
}

/// The slow calls of a [`Latency::LogNormal`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Tail {
    /// The share of slow calls, 0 to 1.
    pub probability: f64,
    /// How many times as long a slow call takes, 1 to 1000.
    pub factor: f64,
}

impl Latency {
    /// Checks the values. The error names the field as in a file, such as `low_ms`.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match *self {
            Self::Constant { latency } => require_span("latency_ms", latency),
            Self::Uniform { low, high } => {
                require_span("high_ms", high)?;
                require(low <= high, "low_ms", in_millis(low), "a duration that is at most high_ms")
            }
            Self::LogNormal { median, sigma, tail } => {
                require_span("median_ms", median)?;
                require((0.0..=5.0).contains(&sigma), "sigma", sigma, "a number from 0 to 5")?;
                let Some(Tail { probability, factor }) = tail else { return Ok(()) };
                let is_share = (0.0..=1.0).contains(&probability);
                require(is_share, "tail.probability", probability, "a number from 0 to 1")?;
                require((1.0..=1_000.0).contains(&factor), "tail.factor", factor, "a number from 1 to 1000")
            }
        }
    }

    /// Draws the latency of one call. O(1).
    ///
    /// A constant uses no draw from `rng`, a log-normal distribution a fixed number, and a uniform one the
    /// draws of [`Rng::below`]. A distribution that was not validated is accepted too: swapped
    /// bounds are exchanged, and NaN counts as 0.
    pub fn sample(&self, rng: &mut Rng) -> Duration {
        match *self {
            Self::Constant { latency } => latency,
            Self::Uniform { low, high } => {
                let (low, high) = (low.min(high).as_nanos(), low.max(high).as_nanos());
                Duration::from_nanos(low.saturating_add(rng.below((high - low).saturating_add(1))))
            }
            Self::LogNormal { median, sigma, tail } => {
                let body = scaled(median, libm::exp(sigma * rng.normal()));
                match tail {
                    Some(tail) if rng.unit_f64() < tail.probability => scaled(body, tail.factor),
                    _ => body,
                }
            }
        }
    }
}

/// Returns `span x factor`, rounded to the nearest nanosecond and saturating. A factor that is negative or
/// NaN gives zero.
pub(crate) fn scaled(span: Duration, factor: f64) -> Duration {
    Duration::from_nanos(libm::round(span.as_nanos() as f64 * factor) as u64)
}

/// Fails if a span is above [`LONGEST_SPAN`].
pub(crate) fn require_span(field: &str, span: Duration) -> Result<(), ConfigError> {
    require(span <= LONGEST_SPAN, field, in_millis(span), "from 0 to 31536000000 milliseconds (365 days)")
}

/// Converts a span to milliseconds, as in files and errors.
pub(crate) fn in_millis(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn sorted_samples(law: &Latency, count: usize) -> Vec<Duration> {
        let mut rng = Rng::new(5);
        let mut samples: Vec<_> = (0..count).map(|_| law.sample(&mut rng)).collect();
        samples.sort_unstable();
        samples
    }

    #[test]
    fn a_constant_latency_uses_no_draws() {
        let mut rng = Rng::new(1);
        assert_eq!(Latency::Constant { latency: millis(40) }.sample(&mut rng), millis(40));
        assert_eq!(rng, Rng::new(1));
    }

    #[test]
    fn a_uniform_latency_fills_its_range_and_reaches_both_ends() {
        let samples = sorted_samples(&Latency::Uniform { low: millis(80), high: millis(120) }, 10_000);
        assert!(samples[0] >= millis(80) && samples[9_999] <= millis(120));
        assert!(samples[0] < millis(81) && samples[9_999] > millis(119));
        let narrow = Latency::Uniform { low: Duration::from_nanos(3), high: Duration::from_nanos(4) };
        let ends = sorted_samples(&narrow, 100);
        assert_eq!((ends[0].as_nanos(), ends[99].as_nanos()), (3, 4));
    }

    #[test]
    fn a_log_normal_latency_has_the_median_and_the_95th_percentile_of_the_theory() {
        let law = Latency::LogNormal { median: millis(400), sigma: 0.35, tail: None };
        let samples = sorted_samples(&law, 20_001);
        let share_of_median = |rank: usize| samples[rank].as_secs_f64() / 0.4;
        assert!((share_of_median(10_000) - 1.0).abs() < 0.02);
        // exp(1.645 x 0.35) = 1.778 at the 95th percentile.
        assert!((share_of_median(19_000) - 1.778).abs() < 0.05);
    }

    #[test]
    fn a_tail_makes_the_stated_share_of_calls_slow() {
        let tail = Some(Tail { probability: 0.02, factor: 10.0 });
        let law = Latency::LogNormal { median: millis(100), sigma: 0.0, tail };
        let samples = sorted_samples(&law, 10_000);
        let slow_calls = samples.iter().filter(|&&latency| latency == millis(1_000)).count();
        assert!((150..250).contains(&slow_calls), "{slow_calls}");
        assert_eq!(samples[0], millis(100));
    }

    #[test]
    fn a_value_outside_its_range_is_rejected_with_the_field_name() {
        let swapped = Latency::Uniform { low: millis(3), high: millis(2) };
        let error = swapped.validate().unwrap_err();
        assert_eq!(error.to_string(), "`low_ms` is 3; expected a duration that is at most high_ms");
        let law = |sigma, probability, factor| Latency::LogNormal {
            median: millis(1),
            sigma,
            tail: Some(Tail { probability, factor }),
        };
        assert_eq!(law(5.0, 1.0, 1_000.0).validate(), Ok(()));
        for (refused, field) in [
            (law(f64::NAN, 0.5, 2.0), "sigma"),
            (law(-0.1, 0.5, 2.0), "sigma"),
            (law(1.0, 1.1, 2.0), "tail.probability"),
            (law(1.0, 0.5, 0.5), "tail.factor"),
            (Latency::Constant { latency: Duration::MAX }, "latency_ms"),
        ] {
            assert_eq!(refused.validate().unwrap_err().field, field);
        }
    }

    #[test]
    fn a_latency_that_was_not_validated_can_still_be_sampled() {
        let mut rng = Rng::new(2);
        let widest = Latency::Uniform { low: Duration::MAX, high: Duration::ZERO };
        let _ = widest.sample(&mut rng);
        let nonsense = Latency::LogNormal { median: millis(1), sigma: f64::NAN, tail: None };
        assert_eq!(nonsense.sample(&mut rng), Duration::ZERO);
        let endless = Latency::LogNormal { median: Duration::MAX, sigma: 1e6, tail: None };
        assert!(sorted_samples(&endless, 10).contains(&Duration::MAX));
    }
}
