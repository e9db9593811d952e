//! Accounting of the busy and idle time of one resource. Its state is constant between two updates.
//!
//! ```text
//! busy         integral of leased
//! idle         integral of max(0, limit - leased)        = starved + frontier, exactly
//! overhang     integral of max(0, leased - limit)        a limit may fall below the slots in use
//! starved      the part of idle during which something waits for the resource
//! frontier     the part of idle during which nothing waits for it
//! utilisation  busy / (busy + idle)
//! ```

use crate::time::Instant;

/// The integrals of one resource, in slot-nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct IdleFigures {
    /// Slots in use, up to the limit and above it.
    pub busy_slot_ns: u128,
    /// Free slots.
    pub idle_slot_ns: u128,
    /// Slots in use above the limit.
    pub overhang_slot_ns: u128,
    /// Slots that were free while something waited.
    pub starved_slot_ns: u128,
}

impl IdleFigures {
    /// Returns the free slots while nothing waited.
    #[must_use]
    pub fn frontier_slot_ns(&self) -> u128 {
        self.idle_slot_ns - self.starved_slot_ns
    }

    /// Returns `busy / (busy + idle)`, from 0 to 1, or 0 if the resource never had a slot.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        let whole = self.busy_slot_ns + self.idle_slot_ns;
        if whole == 0 { 0.0 } else { self.busy_slot_ns as f64 / whole as f64 }
    }
}

/// Integrates the state of one resource as it changes. An update is O(1); memory is constant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleAccount {
    since: Instant,
    limit: u32,
    leased: u32,
    demand: u64,
    figures: IdleFigures,
}

impl IdleAccount {
    /// Creates an account that begins at `now` with no slots.
    #[must_use]
    pub fn starting(now: Instant) -> Self {
        Self { since: now, ..Self::default() }
    }

    /// Sets the state from `now` on: `limit` slots, `leased` of them in use, and `demand` waiting.
    pub fn update(&mut self, now: Instant, limit: u32, leased: u32, demand: u64) {
        self.figures = self.read(now);
        self.since = self.since.max(now);
        (self.limit, self.leased, self.demand) = (limit, leased, demand);
    }

    /// Returns the integrals up to `now`.
    #[must_use]
    pub fn read(&self, now: Instant) -> IdleFigures {
        let span = u128::from((now - self.since).as_nanos());
        let idle = u128::from(self.limit.saturating_sub(self.leased)) * span;
        let mut figures = self.figures;
        figures.busy_slot_ns += u128::from(self.leased) * span;
        figures.idle_slot_ns += idle;
        figures.overhang_slot_ns += u128::from(self.leased.saturating_sub(self.limit)) * span;
        if self.demand > 0 {
            figures.starved_slot_ns += idle;
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_starved_plus_frontier_to_the_nanosecond() {
        let at = Instant::from_nanos;
        let mut account = IdleAccount::starting(at(5));
        account.update(at(5), 4, 1, 0);
        account.update(at(12), 4, 1, 3);
        account.update(at(15), 2, 3, 3);
        let figures = account.read(at(25));
        assert_eq!(figures.busy_slot_ns, 7 + 3 + 30);
        assert_eq!((figures.starved_slot_ns, figures.frontier_slot_ns()), (9, 21));
        assert_eq!((figures.idle_slot_ns, figures.overhang_slot_ns), (30, 10));
        assert!((figures.utilisation() - 40.0 / 70.0).abs() < 1e-12);
    }
}
