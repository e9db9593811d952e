//! A limit that knows a provider but not what chance decides: what is refused of its calls is due to chance.
//!
//! It knows the slots and the rates. It does not know what the next call costs, nor which calls a pool refuses.
//! So it keeps as many calls in flight as there are slots, and sends them at the mean rate:
//!
//! ```text
//! interval = the longest of: a minute / calls per minute, a minute x mean cost / tokens per minute
//! ```
//!
//! A bucket is emptied by calls that cost more than the mean. After a refusal, no call is sent until half of
//! the bucket has been refilled. So the next refusal is half a bucket away, and no refill is lost.

use tidegate_core::limit::{CallReport, LimitAlgorithm};
use tidegate_core::request::Outcome;
use tidegate_core::sim::provider::{Capacity, Rate};
use tidegate_core::sim::suite::control::{Contender, ControlCase, Tokens};
use tidegate_core::time::{Duration, Instant};

/// Returns the contender that knows `case`, or `None` if the case changes over time or refuses no call.
#[must_use]
pub fn informed(case: &ControlCase) -> Option<Contender> {
    let Capacity::Constant { slots } = case.provider.capacity else { return None };
    if !case.is_stationary {
        return None;
    }
    let mean = match case.tokens {
        Tokens::Between(low, high) => f64::from(low + high) / 2.0,
        // The mean of a Pareto distribution of index 1.5 that is cut off at `most`.
        Tokens::HeavyTailed { usual, most } => {
            f64::from(usual) * (3.0 - 2.0 * (f64::from(usual) / f64::from(most)).sqrt())
        }
        _ => return None,
    };
    let rates = [(case.provider.requests, 1.0), (case.provider.tokens, mean)];
    let rates = rates.map(|(rate, cost)| rate.map(|rate| (interval(rate, cost), refill(rate)))).into_iter().flatten();
    let (interval, refill) = rates.max().unwrap_or_default();
    let limit = Informed { slots, interval, reserve: Duration::from_nanos(refill.as_nanos() / 2), next: Instant::ZERO };
    Some(Contender::new("informed", move |_| Ok(Box::new(limit))))
}

/// Returns the time in which a rate allows one call of this cost.
fn interval(rate: Rate, cost: f64) -> Duration {
    Duration::from_nanos((60e9 * cost / f64::from(rate.per_minute)).ceil() as u64)
}

/// Returns the time in which an empty bucket is full again.
fn refill(rate: Rate) -> Duration {
    rate.burst.map_or(Duration::ZERO, |burst| interval(rate, f64::from(burst)))
}

#[derive(Clone, Copy, Debug)]
struct Informed {
    slots: u32,
    interval: Duration,
    /// The time in which half of the bucket is refilled.
    reserve: Duration,
    next: Instant,
}

impl LimitAlgorithm for Informed {
    fn limit(&self, _now: Instant) -> u32 {
        self.slots
    }

    fn next_change(&self, now: Instant) -> Option<Instant> {
        self.opens_at(now)
    }

    fn opens_at(&self, now: Instant) -> Option<Instant> {
        Some(self.next).filter(|next| *next > now)
    }

    fn on_grant(&mut self, now: Instant, _grant: u64, _in_flight: u32) {
        self.next = self.next.max(now) + self.interval;
    }

    fn on_outcome(&mut self, now: Instant, call: &CallReport) {
        if call.outcome == Outcome::RateLimited {
            self.next = self.next.max(now + self.reserve);
        }
    }

    /// A Retry-After says nothing new: the rate is known.
    fn cooldown(&self, _now: Instant, _call: &CallReport) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    fn set_max(&mut self, _now: Instant, _max: u32, _lifts: bool) {}
}
