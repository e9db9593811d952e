//! Calls spaced in time, for providers that count calls per minute.
//!
//! A bucket is empty whenever it refuses, so between two pauses that it asked for, exactly what flowed in was let through:
//!
//! ```text
//! interval = (end of this pause - end of the last) / calls let through between them
//! ```
//!
//! The figure is believed once a call was refused with nothing beside it, or once two in a row agree although as many calls
//! at once had been let through meanwhile and the pause asked for is about the time of one call: a bucket says when the
//! next call fits, a provider without slots says anything. The pace is a 64th slower than the figure, and after so many
//! successes a sixteenth quicker, then an eighth, then a quarter each time, until the next refusal. Where the bucket was full
//! in between, the figure comes out too slow; what went well before it then counts. A pace that holds nobody up is forgotten.

use crate::time::{Duration, Instant};

/// Grants in a row that the pace did not hold up, after which it is forgotten.
const UNBOUND: u32 = 64;
/// Successes after which a pace is quickened; each failure doubles it, so many times at most.
const PATIENCE: u32 = 16;
const DOUBLINGS: u32 = 5;
/// The fewest calls that a pace is measured by, once there is one.
const FEWEST: u64 = 8;

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
    /// The longest pause asked for.
    asked: Duration,
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
    /// The last measurement that was believed.
    measured: u64,
    /// The interval before it was last quickened, if it was since the last refusal.
    slower: Option<u64>,
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
        if self.successes >= PATIENCE << self.failures.min(DOUBLINGS) {
            self.successes /= 2;
            self.slower = Some(interval);
            self.interval = Some((interval - interval / self.share.max(1)).max(1));
            self.share = (self.share / 2).max(4);
        }
    }

    /// A call was refused with a Retry-After that ends at `end`. Answers whether the pace is to blame, and not the limit.
    pub(super) fn on_refused(&mut self, end: Instant, asked: Duration, grant: u64, at_once: u32, granted: u64) -> bool {
        let Some(window) = &mut self.window else {
            self.window = Some(Window::new(end, granted));
            return false;
        };
        if grant < window.granted {
            window.start = window.start.max(end);
            return self.interval.is_some();
        }
        window.refused += 1;
        window.asked = window.asked.max(asked);
        window.refused_at = window.refused_at.min(at_once);
        window.end = Some(window.end.map_or(end, |known| known.max(end)));
        let is_bucket = asked.as_nanos() <= self.measured.saturating_mul(2);
        self.interval.is_some() && (is_bucket || at_once <= window.level.max(1))
    }

    /// Draws the conclusion of a window whose pause ended at `end`; `grant` is the first grant of the next one.
    fn close(&mut self, end: Instant, grant: u64) {
        let Some(window) = self.window.replace(Window::new(end, grant)) else { return };
        let passed = (grant - window.granted).saturating_sub(window.refused);
        let Some(measured) = (end - window.start).as_nanos().checked_div(passed) else { return };
        let rumour = self.rumour.replace(measured);
        let agrees = |known: u64| known.abs_diff(measured) <= measured / 8;
        let is_contradiction = window.refused_at <= window.level;
        // A bucket asks for the time of one call; a provider without slots for any.
        let is_bucket = window.asked.as_nanos() <= measured.saturating_mul(2);
        let is_believed = window.refused_at == 1 || (is_contradiction && is_bucket && rumour.is_some_and(agrees));
        if self.interval.is_some() {
            self.successes = 0;
            self.share = 16;
            let is_by_pace = is_contradiction
                || window.refused_at == 1
                || window.asked.as_nanos() <= self.measured.saturating_mul(2);
            if !is_by_pace || passed < FEWEST {
                let known = self.measured.saturating_add(self.measured / 64);
                self.interval = Some(self.slower.take().unwrap_or(0).max(known.max(1)));
                return;
            }
            self.failures = if agrees(self.measured) { self.failures + 1 } else { 0 };
        } else if is_believed {
            self.failures = 0;
            self.next = end;
        } else {
            return;
        }
        self.measured = measured;
        // Where the bucket was full in between, more would have flowed in: what went well then counts.
        let slower = self.slower.take().filter(|slower| measured > slower.saturating_add(slower / 4));
        self.interval = Some(slower.unwrap_or(measured.saturating_add(measured / 64)).max(1));
        self.unbound = 0;
        self.successes = 0;
        self.share = 16;
    }
}

impl Window {
    fn new(start: Instant, granted: u64) -> Self {
        Self { start, granted, refused: 0, level: 0, refused_at: u32::MAX, asked: Duration::ZERO, end: None }
    }
}
