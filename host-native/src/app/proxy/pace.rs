//! How fast calls end, to say when a place in the queue may be free.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long one count goes on.
const WINDOW: Duration = Duration::from_secs(5);

/// The shortest and the longest that anybody is told to stay away.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(1);

/// Calls that ended in the present window and the one before.
#[derive(Debug)]
pub(super) struct Pace(Mutex<Counts>);

#[derive(Debug)]
struct Counts {
    since: Instant,
    before: u32,
    now: u32,
}

impl Counts {
    fn turn(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        if passed >= WINDOW {
            self.before = if passed < WINDOW * 2 { self.now } else { 0 };
            self.now = 0;
            self.since = now;
        }
    }
}

impl Pace {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Counts { since: Instant::now(), before: 0, now: 0 }))
    }

    /// A call ended.
    pub(super) fn one_more(&self) {
        let mut counts = self.0.lock();
        counts.turn(Instant::now());
        counts.now = counts.now.saturating_add(1);
    }

    /// How long `waiting` calls take at this pace; from a second to a minute.
    pub(super) fn wait_for(&self, waiting: u32) -> Duration {
        let now = Instant::now();
        let mut counts = self.0.lock();
        counts.turn(now);
        let ended = counts.before.saturating_add(counts.now);
        let before = if counts.before > 0 { WINDOW } else { Duration::ZERO };
        let span = (before + now.saturating_duration_since(counts.since)).max(SHORTEST);
        if ended == 0 {
            return LONGEST;
        }
        span.saturating_mul(waiting).checked_div(ended).unwrap_or(LONGEST).clamp(SHORTEST, LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_finds_the_queue_full_is_told_when_it_may_have_moved() {
        let pace = Pace::new();
        assert_eq!(pace.wait_for(3), LONGEST);
        for _ in 0..100 {
            tokio::time::advance(Duration::from_millis(50)).await;
            pace.one_more();
        }
        let wait = pace.wait_for(200);
        assert!((9..=11).contains(&wait.as_secs()), "{wait:?}");
        assert_eq!((pace.wait_for(0), pace.wait_for(u32::MAX)), (SHORTEST, LONGEST));
        tokio::time::advance(WINDOW * 3).await;
        assert_eq!(pace.wait_for(1), LONGEST);
    }
}
