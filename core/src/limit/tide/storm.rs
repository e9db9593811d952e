//! Bounds the refusals that the limit provokes, and stops all calls when too many are refused.
//!
//! Most refusals come from probes above the known limit and from quickened paces. They are paid from a budget
//! of ten refusals that gains two a second. While it is empty, nothing is probed. Refusals [within the
//! share](super::share) are free.
//!
//! ```text
//! budget    += 2 a second, up to 10;    -= 1 with each refusal, down to -2
//! surplus   += 1 with each refusal;     -= 1 with each answer, down to 0
//! ```
//!
//! Where capacity falls far below the limit, each call that ends or is refused is replaced by one that is
//! refused. A surplus of 8 refusals plus a tenth of the limit stops all calls until every refusal in flight
//! has arrived. The calls that are still in flight then have been accepted.

use crate::time::{Duration, Instant};

/// The time in which the budget gains one refusal.
const GAIN: Duration = Duration::from_millis(500);
/// The greatest and the least value of the budget.
const MOST: f64 = 10.0;
const LEAST: f64 = -2.0;
/// The surplus that stops all calls, and the part of the limit that is added to it.
const SURPLUS: u32 = 8;
const SURPLUS_PART: u32 = 10;

/// The budget and the surplus. See the [module documentation](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct Storm {
    /// The budget at `since`, when it was last charged.
    budget: f64,
    since: Instant,
    surplus: u32,
}

impl Default for Storm {
    fn default() -> Self {
        Self { budget: MOST, since: Instant::ZERO, surplus: 0 }
    }
}

impl Storm {
    fn budget(&self, now: Instant) -> f64 {
        (self.budget + (now - self.since).as_nanos() as f64 / GAIN.as_nanos() as f64).min(MOST)
    }

    /// Returns whether a refusal may be risked.
    pub(super) fn may_risk(&self, now: Instant) -> bool {
        self.budget(now) > 0.0
    }

    /// Returns whether the surplus of refusals stops all calls.
    pub(super) fn stops_all(&self, limit: u32) -> bool {
        self.surplus >= SURPLUS.saturating_add(limit / SURPLUS_PART)
    }

    pub(super) fn on_success(&mut self) {
        self.surplus = self.surplus.saturating_sub(1);
    }

    /// Records a refusal that is not within the share.
    pub(super) fn on_refused(&mut self, now: Instant) {
        self.budget = (self.budget(now) - 1.0).max(LEAST);
        self.since = now;
        self.surplus = self.surplus.saturating_add(1);
    }

    /// Records that a cooldown begins.
    pub(super) fn on_cooldown(&mut self) {
        self.surplus = 0;
    }
}
