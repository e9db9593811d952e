//! How long a test waits. A limit here only ends a test that hangs: a slow machine reaches all of them.
#![allow(dead_code, reason = "the unit tests of the host use their own part")]

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// How long nothing at all may move before a wait has failed.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Counts down from [`PATIENCE`], and starts over whenever what it is shown has changed.
struct Watch<T> {
    seen: T,
    since: Instant,
}

impl<T: PartialEq + Debug> Watch<T> {
    fn new(seen: T) -> Self {
        Self { seen, since: Instant::now() }
    }

    fn look(&mut self, seen: T) {
        if seen != self.seen {
            *self = Self::new(seen);
        }
        assert!(self.since.elapsed() < PATIENCE, "nothing moves any more: {:?}", self.seen);
    }
}

/// Waits until `holds` says so of what `look` returns.
pub(crate) fn wait_until<T: PartialEq + Debug>(mut look: impl FnMut() -> T, holds: impl Fn(&T) -> bool) {
    let mut watch = Watch::new(look());
    loop {
        let seen = look();
        if holds(&seen) {
            return;
        }
        watch.look(seen);
        std::thread::sleep(PAUSE);
    }
}

/// [`wait_until`] for what has to be awaited.
pub(crate) async fn until<T: PartialEq + Debug>(mut look: impl AsyncFnMut() -> T, holds: impl Fn(&T) -> bool) {
    let mut watch = Watch::new(look().await);
    loop {
        let seen = look().await;
        if holds(&seen) {
            return;
        }
        watch.look(seen);
        tokio::time::sleep(PAUSE).await;
    }
}
