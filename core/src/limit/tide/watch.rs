//! Which calls have been let through, before they are answered.
//!
//! A refusal comes back at once, an answer perhaps after half a minute. A call that has been out for
//! [three times](WAYS) as long as refusals take has not been refused. One call is watched at a time: that is
//! enough to know how many were let through at once.

use crate::time::{Duration, Instant};

/// How many times a refusal's way a call must have been out to count as let through.
const WAYS: f64 = 3.0;

/// The same while nothing has been refused: most refusals come sooner than this. A later one finds twice as
/// many calls out, or four times.
pub(super) const SILENCE: Duration = Duration::from_millis(250);

/// A call that is out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    pub(super) grant: u64,
    /// Calls that were out with it, itself included.
    pub(super) at_once: u32,
    pub(super) since: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watch {
    watched: Option<Watched>,
    /// How long refusals take, in nanoseconds; 0 while it is unknown.
    refusal: f64,
}

impl Watch {
    /// How long refusals take, in nanoseconds; 0 while it is unknown.
    pub(super) fn refusal(&self) -> f64 {
        self.refusal
    }

    /// After how long a call counts as let through.
    pub(super) fn way(&self) -> Duration {
        if self.refusal > 0.0 { Duration::from_nanos((WAYS * self.refusal) as u64) } else { SILENCE }
    }

    pub(super) fn on_grant(&mut self, now: Instant, grant: u64, at_once: u32) {
        self.watched.get_or_insert(Watched { grant, at_once, since: now });
    }

    pub(super) fn on_refused(&mut self, grant: u64, latency: Duration) {
        super::follow(&mut self.refusal, latency);
        self.watched = self.watched.filter(|watched| watched.grant != grant);
        if let Some(watched) = &mut self.watched
            && grant < watched.grant
        {
            // It was out with it, but not with the provider.
            watched.at_once = watched.at_once.saturating_sub(1).max(1);
        }
    }

    /// Watches the next call, and not one that went out before.
    pub(super) fn start_over(&mut self) {
        self.watched = None;
    }

    /// When the watched call counts as let through.
    pub(super) fn passes_at(&self) -> Option<Instant> {
        Some(self.watched?.since + self.way())
    }

    /// A call was answered: the watched one, perhaps.
    pub(super) fn on_success(&mut self, grant: u64) -> Option<Watched> {
        self.watched.take_if(|watched| watched.grant == grant)
    }

    /// The watched call, if it has been let through by `now`.
    pub(super) fn take(&mut self, now: Instant) -> Option<Watched> {
        self.passes_at().filter(|at| *at <= now)?;
        self.watched.take()
    }
}
