//! Waiting in tests. The timeout only ends a test that hangs, and is long enough for a slow machine.
#![allow(dead_code, reason = "the unit tests of the host use their own part")]

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// The time without any change after which a wait fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
/// The pause between two checks of the condition.
const PAUSE: Duration = Duration::from_millis(5);

/// A timeout of [`PATIENCE`] that restarts whenever the observed value changes.
struct StallTimer<T> {
    seen: T,
    since: Instant,
}

impl<T: PartialEq + Debug> StallTimer<T> {
    fn new(seen: T) -> Self {
        Self { seen, since: Instant::now() }
    }

    fn observe(&mut self, seen: T) {
        if seen != self.seen {
            *self = Self::new(seen);
        }
        assert!(self.since.elapsed() < PATIENCE, "no change for too long: {:?}", self.seen);
    }
}

/// Waits until `holds` is true for the value that `look` returns.
pub(crate) fn wait_until<T: PartialEq + Debug>(mut look: impl FnMut() -> T, holds: impl Fn(&T) -> bool) {
    let mut timer = StallTimer::new(look());
    loop {
        let seen = look();
        if holds(&seen) {
            return;
        }
        timer.observe(seen);
        std::thread::sleep(PAUSE);
    }
}

/// Like [`wait_until`], with an asynchronous `look`.
pub(crate) async fn until<T: PartialEq + Debug>(mut look: impl AsyncFnMut() -> T, holds: impl Fn(&T) -> bool) {
    let mut timer = StallTimer::new(look().await);
    loop {
        let seen = look().await;
        if holds(&seen) {
            return;
        }
        timer.observe(seen);
        tokio::time::sleep(PAUSE).await;
    }
}
