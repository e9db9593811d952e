//! Detects accepted calls before they are answered.
//!
//! A refusal arrives at once, an answer perhaps after half a minute. A call that is in flight for [three
//! times](WAYS) the latency of a refusal has been accepted. One call is watched at a time, which is enough to
//! know how many were accepted concurrently.

use crate::time::{Duration, Instant};

/// After how many latencies of a refusal a call counts as accepted.
const WAYS: f64 = 3.0;

/// After how long a call counts as accepted while nothing has been refused. Most refusals arrive sooner. If
/// one arrives later, the limit has doubled once or twice too often.
pub(super) const SILENCE: Duration = Duration::from_millis(250);

/// A call in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    pub(super) grant: u64,
    /// Calls in flight when it was sent, itself included.
    pub(super) in_flight: u32,
    pub(super) since: Instant,
}

/// The watched call, and the latency of refusals.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watch {
    watched: Option<Watched>,
    /// The mean latency of refusals, in nanoseconds; 0 if unknown.
    refusal: f64,
}

impl Watch {
    /// Returns the mean latency of refusals, in nanoseconds; 0 if unknown.
    pub(super) fn refusal(&self) -> f64 {
        self.refusal
    }

    /// Returns the time after which a call counts as accepted.
    pub(super) fn acceptance_delay(&self) -> Duration {
        if self.refusal > 0.0 { Duration::from_nanos((WAYS * self.refusal) as u64) } else { SILENCE }
    }

    pub(super) fn on_grant(&mut self, now: Instant, grant: u64, in_flight: u32) {
        self.watched.get_or_insert(Watched { grant, in_flight, since: now });
    }

    pub(super) fn on_refused(&mut self, grant: u64, latency: Duration) {
        super::follow(&mut self.refusal, latency);
        self.watched = self.watched.filter(|watched| watched.grant != grant);
        if let Some(watched) = &mut self.watched
            && grant < watched.grant
        {
            // An earlier call was counted as in flight but was refused.
            watched.in_flight = watched.in_flight.saturating_sub(1).max(1);
        }
    }

    /// Drops the watched call, so that the next grant is watched.
    pub(super) fn drop_watched(&mut self) {
        self.watched = None;
    }

    /// Returns when the watched call counts as accepted.
    pub(super) fn accepted_at(&self) -> Option<Instant> {
        Some(self.watched?.since + self.acceptance_delay())
    }

    /// Records an answer. Returns the watched call if it is the one answered.
    pub(super) fn on_success(&mut self, grant: u64) -> Option<Watched> {
        self.watched.take_if(|watched| watched.grant == grant)
    }

    /// Returns the watched call if it counts as accepted by `now`.
    pub(super) fn take(&mut self, now: Instant) -> Option<Watched> {
        self.accepted_at().filter(|at| *at <= now)?;
        self.watched.take()
    }
}
