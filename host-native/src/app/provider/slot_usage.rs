//! The utilisation of a provider: exact integrals of its slots over time.
//!
//! Between two changes all values are constant. With `dt` as the time between two changes:
//!
//! ```text
//! busy     = sum of in_flight x dt
//! idle     = sum of max(0, cap - in_flight) x dt
//! starved  = the part of idle while at least one call was waiting for this provider
//! overhang = sum of max(0, in_flight - cap) x dt
//! utilisation = busy / (busy + idle)
//! ```
//!
//! `cap` is the effective maximum, not the adaptive limit, so capacity that the provider does not grant
//! counts as idle. `busy / limit` is the utilisation of the granted part.

use parking_lot::Mutex;
use serde::Serialize;
use tidegate_core::time::{Duration, Instant};

/// The state of the slots of one provider at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotSample {
    /// Calls in flight.
    pub in_flight: u32,
    /// The adaptive limit.
    pub limit: u32,
    /// The effective maximum.
    pub cap: u32,
    /// Calls that wait for a slot.
    pub waiting: u32,
}

/// Integrals of a [`SlotSample`] over time, in slot-nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlotUsage {
    /// The time covered, in nanoseconds.
    pub elapsed_ns: u64,
    /// Slots in use.
    pub busy_slot_ns: u128,
    /// Slots not in use.
    pub idle_slot_ns: u128,
    /// The part of `idle_slot_ns` while a call was waiting.
    pub starved_slot_ns: u128,
    /// Slots in use above the cap, after the cap was lowered.
    pub overhang_slot_ns: u128,
    /// The adaptive limit.
    pub limit_slot_ns: u128,
    /// The maximum number of calls in flight.
    pub in_flight_max: u32,
}

impl SlotUsage {
    /// Returns `busy / (busy + idle)`, from 0 to 1; 0 before any time has passed.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        ratio(self.busy_slot_ns, self.busy_slot_ns + self.idle_slot_ns)
    }

    /// Returns `busy / limit`: the used fraction of the adaptive limit.
    #[must_use]
    pub fn limit_utilisation(&self) -> f64 {
        ratio(self.busy_slot_ns, self.limit_slot_ns)
    }

    /// Returns the mean adaptive limit over the time covered.
    #[must_use]
    pub fn mean_limit(&self) -> f64 {
        ratio(self.limit_slot_ns, u128::from(self.elapsed_ns))
    }

    /// Returns the mean number of calls in flight over the time covered.
    #[must_use]
    pub fn mean_in_flight(&self) -> f64 {
        ratio(self.busy_slot_ns, u128::from(self.elapsed_ns))
    }

    fn add(&mut self, sample: SlotSample, span: Duration) {
        let nanos = u128::from(span.as_nanos());
        let idle = nanos * u128::from(sample.cap.saturating_sub(sample.in_flight));
        self.elapsed_ns = self.elapsed_ns.saturating_add(span.as_nanos());
        self.busy_slot_ns += nanos * u128::from(sample.in_flight);
        self.idle_slot_ns += idle;
        self.starved_slot_ns += if sample.waiting > 0 { idle } else { 0 };
        self.overhang_slot_ns += nanos * u128::from(sample.in_flight.saturating_sub(sample.cap));
        self.limit_slot_ns += nanos * u128::from(sample.limit);
    }
}

fn ratio(part: u128, whole: u128) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Integrates the slot samples of one provider.
#[derive(Debug)]
pub struct SlotUsageMeter(Mutex<Meter>);

#[derive(Debug)]
struct Meter {
    at: Instant,
    sample: SlotSample,
    usage: SlotUsage,
}

impl SlotUsageMeter {
    /// Creates a meter that starts at `at` with `sample`.
    #[must_use]
    pub fn new(at: Instant, sample: SlotSample) -> Self {
        Self(Mutex::new(Meter { at, sample, usage: SlotUsage::default() }))
    }

    /// Takes a sample with `read` and returns the integrals up to its time. Must be called after each change.
    ///
    /// `read` runs under the lock of the meter, so samples are in order of time.
    pub fn observe(&self, read: impl FnOnce() -> (Instant, SlotSample)) -> SlotUsage {
        let mut meter = self.0.lock();
        let (at, sample) = read();
        let (before, span) = (meter.sample, at.saturating_duration_since(meter.at));
        meter.usage.add(before, span);
        meter.usage.in_flight_max = meter.usage.in_flight_max.max(sample.in_flight);
        meter.at = meter.at.max(at);
        meter.sample = sample;
        meter.usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(in_flight: u32, waiting: u32) -> SlotSample {
        SlotSample { in_flight, limit: 3, cap: 4, waiting }
    }

    #[test]
    fn busy_and_idle_add_up_to_cap_times_time_exactly() {
        let meter = SlotUsageMeter::new(Instant::ZERO, sample(0, 0));
        for (at, in_flight, waiting) in [(10, 1, 0), (25, 4, 2), (25, 3, 1), (40, 2, 0)] {
            meter.observe(|| (Instant::from_nanos(at), sample(in_flight, waiting)));
        }
        let usage = meter.observe(|| (Instant::from_nanos(100), sample(0, 0)));
        assert_eq!(usage.busy_slot_ns, 15 + 3 * 15 + 2 * 60);
        assert_eq!(usage.busy_slot_ns + usage.idle_slot_ns, 4 * 100);
        assert_eq!(usage.starved_slot_ns, 15);
        assert_eq!((usage.elapsed_ns, usage.in_flight_max, usage.overhang_slot_ns), (100, 4, 0));
        assert!((usage.utilisation() - 0.45).abs() < 1e-12);
        assert!((usage.limit_utilisation() - 0.6).abs() < 1e-12);
    }

    #[test]
    fn calls_above_a_lowered_cap_are_overhang_and_not_negative_idle() {
        let meter = SlotUsageMeter::new(Instant::ZERO, SlotSample { in_flight: 6, limit: 4, cap: 4, waiting: 0 });
        let usage = meter.observe(|| (Instant::from_nanos(10), sample(0, 0)));
        assert_eq!((usage.busy_slot_ns, usage.idle_slot_ns, usage.overhang_slot_ns), (60, 0, 20));
    }
}
