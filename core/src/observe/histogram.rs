//! A histogram of durations in constant memory. Every [`Distribution`](super::Distribution) is read from it.
//!
//! Buckets are logarithmic with 32 steps per octave. A value below 64 has its own bucket. Any other value
//! shares a bucket with values that are at most 1/32 larger, and is read back as the middle of the bucket.
//! **A quantile therefore differs from the exact value by at most 1/64 (1.6 %).** Count, sum, smallest and
//! largest value are exact. All figures are integers, so two accounts of the same run are equal byte for
//! byte.

use alloc::boxed::Box;
use alloc::vec;

use crate::time::Duration;

/// The base-2 logarithm of the number of steps per octave.
const STEP_BITS: u32 = 5;
const STEPS: u64 = 1 << STEP_BITS;
const BUCKETS: usize = ((64 - STEP_BITS as usize) + 1) << STEP_BITS;

/// Counts durations by size.
///
/// Recording is O(1) and reading a quantile is O(buckets). The buckets take 15 KiB, allocated with the first
/// value.
///
/// ```
/// use tidegate_core::observe::Histogram;
/// use tidegate_core::time::Duration;
///
/// let mut waits = Histogram::default();
/// (1..=1000).for_each(|ms| waits.record(Duration::from_millis(ms)));
/// let p95 = waits.quantile(950).as_nanos() as f64;
/// assert!((p95 / 950e6 - 1.0).abs() <= 1.0 / 64.0);
/// assert_eq!(waits.mean(), Duration::from_nanos(500_500_000));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Option<Box<[u64]>>,
    count: u64,
    sum: u128,
    least: u64,
    most: u64,
}

impl Histogram {
    /// The largest relative error of a quantile.
    pub const RELATIVE_ERROR: f64 = 1.0 / (2 * STEPS) as f64;

    /// Records one value.
    pub fn record(&mut self, value: Duration) {
        let value = value.as_nanos();
        let counts = self.counts.get_or_insert_with(|| vec![0; BUCKETS].into_boxed_slice());
        counts[bucket_of(value)] += 1;
        self.least = if self.count == 0 { value } else { self.least.min(value) };
        self.most = self.most.max(value);
        self.count += 1;
        self.sum += u128::from(value);
    }

    /// Returns the number of recorded values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of all values in nanoseconds.
    #[must_use]
    pub fn sum_ns(&self) -> u128 {
        self.sum
    }

    /// Returns the mean, rounded down to the nanosecond, or zero if no value was recorded.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum.checked_div(u128::from(self.count)).unwrap_or(0) as u64)
    }

    /// Returns the largest value, or zero if no value was recorded.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.most)
    }

    /// Returns the smallest value that at least `per_mille` of 1000 values do not exceed, within
    /// [`Histogram::RELATIVE_ERROR`].
    ///
    /// `per_mille` is from 0 to 1000; a larger one counts as 1000. Returns zero if no value was recorded.
    #[must_use]
    pub fn quantile(&self, per_mille: u32) -> Duration {
        let Some(counts) = &self.counts else { return Duration::ZERO };
        let rank = (u128::from(self.count) * u128::from(per_mille.min(1000))).div_ceil(1000).max(1);
        let mut counted = 0;
        for (bucket, count) in counts.iter().enumerate() {
            counted += u128::from(*count);
            if counted >= rank {
                return Duration::from_nanos(middle_of(bucket).clamp(self.least, self.most));
            }
        }
        self.max()
    }
}

/// Returns the bucket of a value: its octave, and the `STEP_BITS` bits below its leading bit.
fn bucket_of(value: u64) -> usize {
    let octave = (value | STEPS).ilog2();
    let shift = octave - STEP_BITS;
    ((u64::from(shift) << STEP_BITS) + (value >> shift)) as usize
}

/// Returns the middle value of a bucket.
fn middle_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * STEPS {
        return bucket;
    }
    let shift = (bucket >> STEP_BITS) - 1;
    let least = ((bucket & (STEPS - 1)) + STEPS) << shift;
    least + (1 << shift >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_value_is_read_back_within_the_stated_error() {
        let mut value: u64 = 1;
        while value < u64::MAX / 3 {
            for near in [value - 1, value, value + 1, value + value / 2, value + value / 3] {
                let read = middle_of(bucket_of(near));
                assert!(read.abs_diff(near) * 64 <= near, "{near} is read as {read}");
            }
            value *= 2;
        }
        assert!(bucket_of(u64::MAX) < BUCKETS && bucket_of(0) == 0);
    }

    #[test]
    fn buckets_grow_with_the_values_in_them() {
        let buckets: Vec<_> = (0..BUCKETS).map(middle_of).collect();
        assert!(buckets.is_sorted());
        assert!((0..BUCKETS).all(|bucket| bucket_of(middle_of(bucket)) == bucket));
    }

    #[test]
    fn quantiles_lie_between_the_smallest_and_the_largest_value() {
        let mut one = Histogram::default();
        assert_eq!((one.quantile(500), one.mean(), one.max()), (Duration::ZERO, Duration::ZERO, Duration::ZERO));
        one.record(Duration::from_nanos(1_000_003));
        assert_eq!([0, 500, 1000].map(|at| one.quantile(at).as_nanos()), [1_000_003; 3]);
    }
}
