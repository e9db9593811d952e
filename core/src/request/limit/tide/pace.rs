//! Calls spaced in time, for providers that count calls per minute.
//!
//! A bucket is empty whenever it refuses, so between two pauses that it asked for, exactly what flowed in was let through:
//!
//! ```text
//! interval = (end of this pause - end of the last) / calls let through between them
//! ```
//!
//! The figure is believed once a call was refused with nothing beside it, or once two of them in a row agree although as
//! many calls at once had been let through meanwhile. Under a limit of concurrency it comes to no more than the throughput
//! that there was, so believing it wrongly costs little; and a pace that keeps nobody is forgotten.

use crate::time::{Duration, Instant};

/// Grants in a row that the pace did not hold up, after which it is forgotten.
const UNBOUND: u32 = 64;
/// Successes after which a pace is quickened; each failure doubles it, up to four times.
const PATIENCE: u32 = 64;

/// What was let through since the last pause ended.
#[derive(Clone, Copy, Debug)]
struct Window {
    start: Instant,
    granted: u64,
    refused: u64,
    /// The most calls at once that were answered.
    level: u32,
    /// The lowest number at once of which one was refused.
    refused_at: u32,
    /// When the pause ends that closes it.
    end: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    window: Option<Window>,
    /// The last measurement that is not believed yet.
    rumour: Option<u64>,
    /// Nanoseconds from one call to the next, while there is a pace.
    interval: Option<u64>,
    next: Instant,
    unbound: u32,
    successes: u32,
    failures: u32,
    /// What to quicken by: one part in so many.
    share: u64,
}

impl Pace {
    /// When the next call may go.
    pub(super) fn opens_at(&self) -> Option<Instant> {
        self.interval.map(|_| self.next)
    }

    pub(super) fn on_grant(&mut self, now: Instant, grant: u64) {
        if let Some(Window { end: Some(end), .. }) = self.window
            && now >= end
        {
            self.close(end, grant);
        }
        let Some(interval) = self.interval else { return };
        self.unbound = if now > self.next { self.unbound + 1 } else { 0 };
        self.next = self.next.max(now) + Duration::from_nanos(interval);
        if self.unbound >= UNBOUND {
            self.interval = None;
        }
    }

    pub(super) fn on_success(&mut self, grant: u64, at_once: u32) {
        if let Some(window) = &mut self.window
            && grant >= window.granted
        {
            window.level = window.level.max(at_once);
        }
        let Some(interval) = self.interval else { return };
        self.successes += 1;
        if self.successes >= PATIENCE << self.failures.min(2) {
            self.successes = PATIENCE / 2;
            self.interval = Some((interval - interval / self.share).max(1));
            self.share = (self.share / 2).max(4);
        }
    }

    /// A call was refused with a Retry-After that ends at `end`. Answers whether the pace is to blame, and not the limit.
    pub(super) fn on_refused(&mut self, end: Instant, grant: u64, at_once: u32, granted: u64) -> bool {
        let Some(window) = &mut self.window else {
            self.window = Some(Window::new(end, granted));
            return false;
        };
        if grant < window.granted {
            window.start = window.start.max(end);
            return self.interval.is_some();
        }
        window.refused += 1;
        window.refused_at = window.refused_at.min(at_once);
        window.end = Some(window.end.map_or(end, |known| known.max(end)));
        self.interval.is_some() && at_once <= window.level.max(1)
    }

    /// Draws the conclusion of a window whose pause ended at `end`; `grant` is the first grant of the next one.
    fn close(&mut self, end: Instant, grant: u64) {
        let Some(window) = self.window.replace(Window::new(end, grant)) else { return };
        let passed = (grant - window.granted).saturating_sub(window.refused);
        let Some(measured) = (end - window.start).as_nanos().checked_div(passed) else { return };
        let rumour = self.rumour.replace(measured);
        let agrees = |known: u64| known.abs_diff(measured) <= measured / 8;
        let is_contradiction = window.refused_at <= window.level;
        let is_believed = window.refused_at == 1 || (is_contradiction && rumour.is_some_and(agrees));
        if let Some(interval) = self.interval {
            self.failures = if agrees(interval) { self.failures + 1 } else { 0 };
        } else if is_believed {
            self.failures = 0;
            self.next = end;
        } else {
            return;
        }
        self.interval = Some((measured + measured / 64).max(1));
        self.unbound = 0;
        self.successes = 0;
        self.share = 16;
    }
}

impl Window {
    fn new(start: Instant, granted: u64) -> Self {
        Self { start, granted, refused: 0, level: 0, refused_at: u32::MAX, end: None }
    }
}
