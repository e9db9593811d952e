//! A ceiling that moves steadily, for providers whose refusals cost a pause.
//!
//! ```text
//! slope    = (this ceiling - the last) / time between them      followed once two in a row agree
//! expected = this ceiling + slope x time since
//! ```
//!
//! A ceiling that rises is followed up a little more slowly than it rose, so that it is not run into, and one that falls is
//! gone before by half a slot. Either for three times as long as the slope was seen, and down by two slots or a quarter: what
//! fell may have come to its end, and nobody says so.

use crate::time::{Duration, Instant};

/// Slopes that differ by no more than this factor agree.
const ALIKE: f64 = 1.5;
/// What part of a rising slope is followed.
const CAUTION: f64 = 0.9;
/// How far ahead of a falling ceiling the limit keeps, in slots.
const MARGIN: f64 = 0.5;
/// For how many times as long as it was seen a slope is followed.
const REACH: u64 = 3;
/// How far down one is followed: so many slots, or one part in so many.
const MOST_DOWN: (u32, u32) = (2, 4);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trend {
    /// Where the ceiling was last found, and when.
    last: Option<(Instant, u32)>,
    /// Slots a nanosecond, between the last two.
    slope: f64,
    /// What is followed of it; 0 for nothing.
    followed: f64,
    until: Instant,
}

impl Trend {
    /// The ceiling was found.
    pub(super) fn on_ceiling(&mut self, now: Instant, ceiling: u32) {
        let Some((at, was)) = self.last.replace((now, ceiling)) else { return };
        let passed = (now - at).as_nanos();
        if passed == 0 {
            return;
        }
        let slope = (f64::from(ceiling) - f64::from(was)) / passed as f64;
        let (least, most) = (self.slope / ALIKE, self.slope * ALIKE);
        let agrees = (slope > least && slope < most) || (slope < least && slope > most);
        self.followed = if agrees { self.slope + (slope - self.slope) / 2.0 } else { 0.0 };
        self.until = now + Duration::from_nanos(passed.saturating_mul(REACH));
        self.slope = slope;
    }

    /// What the limit should be by now instead of `limit`, while there is a slope to follow.
    pub(super) fn follow(&self, now: Instant, limit: u32) -> Option<u32> {
        let (at, was) = self.last.filter(|_| self.followed != 0.0 && now <= self.until)?;
        let moved = self.followed * (now - at).as_nanos() as f64;
        let from = f64::from(was);
        if moved >= 0.0 {
            return Some(limit.max((from + moved * CAUTION) as u32));
        }
        let (slots, part) = MOST_DOWN;
        (-moved <= f64::from(slots.max(was / part))).then(|| limit.min((from + moved - MARGIN).max(1.0) as u32))
    }
}
