//! Never a storm: how many refusals may be provoked, and when nothing is sent at all.
//!
//! Most refusals come from tries: one call more than is known to be borne, a quicker pace. They are paid from
//! a budget that holds ten refusals and gains two a second; while it is empty, nothing is tried. Refusals
//! that are [usual](super::share) cost nothing.
//!
//! ```text
//! left      += 2 a second, up to 10;    -= 1 with each refusal, down to -2
//! surplus   += 1 with each refusal;     -= 1 with each answer, down to 0
//! ```
//!
//! Where capacity falls far below the limit, each call that ends makes room for one that is refused, and each
//! refusal for another. A surplus of 8 refusals, and of a tenth of the limit, stops all calls until every
//! refusal that is under way has come back. Those that are still out then have been let through.

use crate::time::{Duration, Instant};

/// The time in which the budget gains a refusal: no more than two a second may be provoked.
const GAIN: Duration = Duration::from_millis(500);
/// The most and the least that the budget holds.
const MOST: f64 = 10.0;
const LEAST: f64 = -2.0;
/// The surplus that stops all calls, and what part of the limit is added to it.
const SURPLUS: u32 = 8;
const SURPLUS_PART: u32 = 10;

#[derive(Clone, Copy, Debug)]
pub(super) struct Storm {
    left: f64,
    since: Instant,
    surplus: u32,
}

impl Default for Storm {
    fn default() -> Self {
        Self { left: MOST, since: Instant::ZERO, surplus: 0 }
    }
}

impl Storm {
    fn left(&self, now: Instant) -> f64 {
        (self.left + (now - self.since).as_nanos() as f64 / GAIN.as_nanos() as f64).min(MOST)
    }

    /// Whether something may be tried that may be refused.
    pub(super) fn may_risk(&self, now: Instant) -> bool {
        self.left(now) > 0.0
    }

    /// Whether so much more is refused than answered that nothing is to go out.
    pub(super) fn stops_all(&self, limit: u32) -> bool {
        self.surplus >= SURPLUS.saturating_add(limit / SURPLUS_PART)
    }

    pub(super) fn on_success(&mut self) {
        self.surplus = self.surplus.saturating_sub(1);
    }

    /// A call was refused, not for a share that is refused at any load.
    pub(super) fn on_refused(&mut self, now: Instant) {
        self.left = (self.left(now) - 1.0).max(LEAST);
        self.since = now;
        self.surplus = self.surplus.saturating_add(1);
    }

    /// There is a pause.
    pub(super) fn on_pause(&mut self) {
        self.surplus = 0;
    }
}
