//! A provider with slots.

use super::{MS, SharingConfig};
use crate::call::Outcome;
use crate::sim::rng::Rng;
use crate::time::{Duration, Instant};

/// How many calls the bucket of a rate holds.
pub const BURST: u32 = 8;

/// How a call at the provider ends, and when.
#[derive(Clone, Copy, Debug)]
pub struct CallEnd {
    /// Whether it was answered or refused.
    pub outcome: Outcome,
    /// The Retry-After of a refusal.
    pub retry_after: Option<Duration>,
    /// When it ends.
    pub at: Instant,
}

/// A provider with a number of slots, and perhaps a limit of the rate.
#[derive(Clone, Debug, Default)]
pub struct SlotProvider {
    /// The calls in flight, those that are refused included.
    pub in_flight: u32,
    /// When the bucket of the rate is full.
    full_at: Instant,
    /// The number of calls that it has answered.
    pub answered: u64,
    /// The number of calls that it has refused.
    pub refused: u64,
}

impl SlotProvider {
    /// Starts a call, and returns how it ends. The caller counts it as ended at the instant that this
    /// returns.
    pub fn start(&mut self, now: Instant, config: &SharingConfig, rng: &mut Rng) -> CallEnd {
        self.in_flight += 1;
        let wait = config.interval.map(|interval| {
            let bucket = Duration::from_nanos(interval.as_nanos() * u64::from(BURST - 1));
            (self.full_at - now, self.full_at - (now + bucket), interval)
        });
        let retry_after = wait.map(|(_, wait, _)| wait).filter(|wait| !wait.is_zero());
        let is_refused = self.in_flight > config.capacity || retry_after.is_some();
        if let Some((until_full, _, interval)) = wait.filter(|_| !is_refused) {
            self.full_at = now + until_full + interval;
        }
        self.refused += u64::from(is_refused);
        self.answered += u64::from(!is_refused);
        let most = if is_refused { 20 * MS } else { config.longest_call.as_nanos() };
        let outcome = if is_refused { Outcome::RateLimited } else { Outcome::Success };
        CallEnd { outcome, retry_after, at: now + Duration::from_nanos(5 * MS + rng.below(most)) }
    }
}
