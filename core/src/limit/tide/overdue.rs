//! Detects calls that do not end.
//!
//! A call whose connection hangs is in flight until it times out, but the provider may have freed its slot
//! long ago. Where the limit is one call, such a call stops all others. So while a call is in flight for
//! [five times](LONG) the mean latency, the limit allows one call more. If the provider still counts the
//! overdue call, the one more is refused, and the limit is cut as usual.
//!
//! One group of calls is watched at a time: all that are in flight when its last call is sent. The next group
//! begins when all of them have ended. The slowest of many calls often takes long, so an [eighth](PART) of
//! the limit has to be overdue.

use crate::time::{Duration, Instant};

/// Mean latencies after which a call is overdue.
const LONG: f64 = 5.0;
/// The part of the limit that has to be overdue.
const PART: u32 = 8;

/// The watched group. See the [module documentation](self).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overdue {
    /// The grant of its last call, and when that was sent.
    last: u64,
    since: Instant,
    /// At most as many of its calls are still in flight.
    left: u32,
    /// The calls in flight that were granted after it.
    newer: u32,
}

impl Overdue {
    /// Records a grant. `in_flight` includes it.
    pub(super) fn on_grant(&mut self, now: Instant, grant: u64, in_flight: u32) {
        if self.left == 0 {
            *self = Self { last: grant, since: now, left: in_flight, newer: 0 };
        } else {
            self.newer += 1;
        }
    }

    /// Records the end of a call. `in_flight` does not include it.
    pub(super) fn on_end(&mut self, grant: u64, in_flight: u32) {
        // Two counts, of which the lower one holds. Not all ends of calls are reported here: those of another
        // algorithm before are not. And the leader of several processes renumbers calls (`share`).
        let is_newer = grant > self.last;
        self.newer = self.newer.saturating_sub(u32::from(is_newer));
        self.left = self.left.saturating_sub(u32::from(!is_newer)).min(in_flight.saturating_sub(self.newer));
    }

    /// Returns when the calls that are still watched are overdue. `latency` is the mean latency in
    /// nanoseconds, 0 if unknown.
    pub(super) fn due_at(&self, latency: f64) -> Option<Instant> {
        (self.left > 0 && latency > 0.0).then(|| self.since + Duration::from_nanos((LONG * latency) as u64))
    }

    /// Returns how many calls more than `limit` may be in flight: one if enough of them are overdue.
    pub(super) fn extra(&self, now: Instant, latency: f64, limit: u32) -> u32 {
        let is_due = self.due_at(latency).is_some_and(|due| now >= due);
        u32::from(is_due && self.left >= limit.div_ceil(PART))
    }
}
