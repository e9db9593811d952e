//! How well a provider was used: exact integrals over the run of what its slots did.
//!
//! Between two changes every figure is constant, so with `dt` the time between them
//!
//! ```text
//! busy     = sum of in_flight x dt
//! idle     = sum of max(0, cap - in_flight) x dt
//! starved  = the part of idle during which a call was waiting for this provider
//! overhang = sum of max(0, in_flight - cap) x dt
//! utilisation = busy / (busy + idle)
//! ```
//!
//! `cap` is the effective maximum, not the adaptive limit: capacity that a provider refuses to give counts as idle, and
//! `busy / limit` beside it says how well the part was used that it did give.

use parking_lot::Mutex;
use serde::Serialize;
use tidegate_core::time::{Duration, Instant};

/// What holds of one provider from an instant on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Calls out.
    pub in_flight: u32,
    /// The adaptive limit.
    pub limit: u32,
    /// The effective maximum.
    pub cap: u32,
    /// Calls that wait to go out.
    pub waiting: u32,
}

/// Integrals of a [`Level`] over time, in slot-nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Time covered.
    pub elapsed_ns: u64,
    /// Slots in use.
    pub busy_slot_ns: u128,
    /// Slots not in use.
    pub idle_slot_ns: u128,
    /// The part of `idle_slot_ns` while a call was waiting.
    pub starved_slot_ns: u128,
    /// Calls out above a cap that fell.
    pub overhang_slot_ns: u128,
    /// The adaptive limit.
    pub limit_slot_ns: u128,
    /// The most calls out at once.
    pub in_flight_max: u32,
}

impl Usage {
    /// `busy / (busy + idle)`; 0 before any time has passed.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        share(self.busy_slot_ns, self.busy_slot_ns + self.idle_slot_ns)
    }

    /// How much of what the adaptive limit allowed was used.
    #[must_use]
    pub fn limit_utilisation(&self) -> f64 {
        share(self.busy_slot_ns, self.limit_slot_ns)
    }

    /// The mean adaptive limit over the time covered.
    #[must_use]
    pub fn mean_limit(&self) -> f64 {
        share(self.limit_slot_ns, u128::from(self.elapsed_ns))
    }

    /// The mean number of calls out.
    #[must_use]
    pub fn mean_in_flight(&self) -> f64 {
        share(self.busy_slot_ns, u128::from(self.elapsed_ns))
    }

    fn add(&mut self, level: Level, span: Duration) {
        let nanos = u128::from(span.as_nanos());
        let idle = nanos * u128::from(level.cap.saturating_sub(level.in_flight));
        self.elapsed_ns = self.elapsed_ns.saturating_add(span.as_nanos());
        self.busy_slot_ns += nanos * u128::from(level.in_flight);
        self.idle_slot_ns += idle;
        self.starved_slot_ns += if level.waiting > 0 { idle } else { 0 };
        self.overhang_slot_ns += nanos * u128::from(level.in_flight.saturating_sub(level.cap));
        self.limit_slot_ns += nanos * u128::from(level.limit);
    }
}

fn share(part: u128, whole: u128) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Integrates the levels of one provider as they change.
#[derive(Debug)]
pub struct UsageMeter(Mutex<Meter>);

#[derive(Debug)]
struct Meter {
    at: Instant,
    level: Level,
    usage: Usage,
}

impl UsageMeter {
    /// A meter that starts at `at` with `level`.
    #[must_use]
    pub fn new(at: Instant, level: Level) -> Self {
        Self(Mutex::new(Meter { at, level, usage: Usage::default() }))
    }

    /// Takes in that something may have changed. `read` is asked for the present under the meter's lock, so that
    /// readings are taken in order of time.
    pub fn observe(&self, read: impl FnOnce() -> (Instant, Level)) -> Usage {
        let mut meter = self.0.lock();
        let (at, level) = read();
        let (before, span) = (meter.level, at.saturating_duration_since(meter.at));
        meter.usage.add(before, span);
        meter.usage.in_flight_max = meter.usage.in_flight_max.max(level.in_flight);
        meter.at = meter.at.max(at);
        meter.level = level;
        meter.usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(in_flight: u32, waiting: u32) -> Level {
        Level { in_flight, limit: 3, cap: 4, waiting }
    }

    #[test]
    fn busy_and_idle_add_up_to_cap_times_time_to_the_nanosecond() {
        let meter = UsageMeter::new(Instant::ZERO, level(0, 0));
        for (at, in_flight, waiting) in [(10, 1, 0), (25, 4, 2), (25, 3, 1), (40, 2, 0)] {
            meter.observe(|| (Instant::from_nanos(at), level(in_flight, waiting)));
        }
        let usage = meter.observe(|| (Instant::from_nanos(100), level(0, 0)));
        assert_eq!(usage.busy_slot_ns, 15 + 3 * 15 + 2 * 60);
        assert_eq!(usage.busy_slot_ns + usage.idle_slot_ns, 4 * 100);
        assert_eq!(usage.starved_slot_ns, 15);
        assert_eq!((usage.elapsed_ns, usage.in_flight_max, usage.overhang_slot_ns), (100, 4, 0));
        assert!((usage.utilisation() - 0.45).abs() < 1e-12);
        assert!((usage.limit_utilisation() - 0.6).abs() < 1e-12);
    }

    #[test]
    fn calls_above_a_fallen_cap_are_overhang_and_not_negative_idle() {
        let meter = UsageMeter::new(Instant::ZERO, Level { in_flight: 6, limit: 4, cap: 4, waiting: 0 });
        let usage = meter.observe(|| (Instant::from_nanos(10), level(0, 0)));
        assert_eq!((usage.busy_slot_ns, usage.idle_slot_ns, usage.overhang_slot_ns), (60, 0, 20));
    }
}
