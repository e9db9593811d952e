//! Detects refusals that do not depend on load.
//!
//! A pool that others also use refuses a share of all calls, however few are in flight. The share is measured
//! on calls that are alone in flight, because a single call never exceeds a concurrency limit. Once the limit
//! was cut, it is measured on calls with at most three quarters of that limit in flight.
//!
//! ```text
//! within the share   recent <= base + (1 - base) x 1/4      base: refused fraction at low load
//!                                                           recent: refused fraction of the last calls
//!              and   runs   <= base + (1 - base) x 1/2      runs: fraction of refusals that follow a refusal
//! ```
//!
//! While this holds, a refusal does not change the limit. A provider that refuses no single call has no
//! share, and each of its refusals counts. A rate also refuses single calls, but in runs: one after the other
//! while its bucket is empty. A share above three fifths is a provider that answers almost nothing: each of
//! its refusals counts, too.
//!
//! If more is refused, the limit gives up a quarter. It then climbs fast only to seven eighths of the limit
//! that was too high, and higher after a time that doubles with each failure. If more than three fifths are
//! refused at what counts as low load, the load is not low: the limit that counts as too high is halved, and
//! the share is measured again.
//!
//! Google's client-side throttling compares accepted with sent calls in the same way (Site Reliability
//! Engineering, 2016, chapter 21).

/// Calls in the recent fraction, and how many times as many in the base fraction.
const MEMORY: f64 = 64.0;
const LONG: f64 = 4.0;
/// The fewest single calls that give a share, and the least share.
const FEWEST: u32 = 8;
const LEAST: f64 = 0.03;
/// The greatest share.
const MOST: f64 = 0.6;
/// The margin above the share, as a part of the calls that would be accepted: about four times the random
/// deviation in [`MEMORY`] calls.
const MARGIN: f64 = 0.25;
/// Refusals in the measure of runs, and the margin above the share that runs may have.
const RUNS: f64 = 16.0;
const RUNNING: f64 = 0.5;
/// Calls before the limit approaches the one that was too high. Each failure doubles them, this many times at
/// most.
const PATIENCE: u32 = 256;
const DOUBLINGS: u32 = 6;

/// The measured fractions. See the [module documentation](self).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RefusedShare {
    /// The refused fraction at low load, and the calls that it is measured on.
    base: f64,
    seen: u32,
    /// The refused fraction of the last calls.
    recent: f64,
    /// The grant refused last, and the fraction of refusals that directly follow a refusal.
    last: Option<u64>,
    runs: f64,
    /// The limit at which more than the share was refused.
    too_many: u32,
    /// The value before, and the first grant at the present one. A refusal counts by the value at its grant.
    too_many_before: u32,
    changed_at: u64,
    /// Calls since then, and how often in a row that limit was about the same.
    calls: u32,
    found: u32,
}

impl RefusedShare {
    /// Records that a call is sent with `in_flight` calls in flight, itself included.
    pub(super) fn on_grant(&mut self, in_flight: u32) {
        self.recent -= self.recent / memory(in_flight);
        self.calls = self.calls.saturating_add(1);
        if is_low_load(in_flight, self.too_many) {
            self.seen = self.seen.saturating_add(1);
            self.base -= self.base / self.measured_on();
        }
    }

    /// Records a refusal of a call sent with `in_flight` in flight. The measure counts grants, not answers:
    /// answers arrive much later than refusals. `next_grant` is the number of the next grant.
    pub(super) fn on_refused(&mut self, grant: u64, in_flight: u32, next_grant: u64) {
        self.recent += 1.0 / memory(in_flight);
        let follows = grant > 0 && self.last == Some(grant - 1);
        self.runs += (f64::from(u8::from(follows)) - self.runs) / runs_memory(in_flight);
        self.last = Some(grant);
        let too_many = if grant < self.changed_at { self.too_many_before } else { self.too_many };
        if is_low_load(in_flight, too_many) {
            self.base += 1.0 / self.measured_on();
            if self.base > MOST && self.too_many > 1 && self.seen >= 2 * FEWEST {
                self.set_too_many(self.too_many / 2, next_grant);
                self.seen = FEWEST;
            }
        }
    }

    /// Returns the calls that the base fraction is measured on.
    fn measured_on(&self) -> f64 {
        f64::from(self.seen.max(1)).min(LONG * MEMORY)
    }

    /// Sets the share from the refused fraction at any pace, unless it is measured already.
    pub(super) fn learn(&mut self, share: f64) {
        if self.seen < FEWEST {
            (self.base, self.seen) = (share, FEWEST);
            self.recent = share;
            self.runs = share;
        }
    }

    /// Records that more than the share was refused at this limit.
    pub(super) fn on_cut(&mut self, limit: u32, next_grant: u64) {
        let room = self.too_many / 4 + 1;
        self.found = if limit.abs_diff(self.too_many) <= room { self.found + 1 } else { 0 };
        self.set_too_many(limit, next_grant);
        self.calls = 0;
        self.recent = self.base;
        self.runs = self.base;
    }

    fn set_too_many(&mut self, limit: u32, next_grant: u64) {
        self.too_many_before = self.too_many;
        self.too_many = limit;
        self.changed_at = next_grant;
    }

    /// Returns whether the limit may grow fast at this value.
    pub(super) fn is_far(&self, limit: u32) -> bool {
        self.too_many == 0
            || limit < self.too_many - (self.too_many / 8).max(1)
            || self.calls > PATIENCE << self.found.min(DOUBLINGS)
    }

    /// Returns whether the provider refuses a share of all calls.
    pub(super) fn is_known(&self) -> bool {
        self.seen >= FEWEST && (LEAST..=MOST).contains(&self.base)
    }

    /// Returns whether no more than the share is refused.
    pub(super) fn is_within_share(&self) -> bool {
        let most = |margin: f64| self.base + (1.0 - self.base) * margin;
        self.is_known() && self.recent <= most(MARGIN) && self.runs <= most(RUNNING)
    }
}

/// Returns whether so many calls in flight are far below `too_many`.
fn is_low_load(in_flight: u32, too_many: u32) -> bool {
    in_flight <= (too_many / 4 * 3).max(1)
}

/// Returns the calls in the recent fraction: more at a higher load, where refusals vary more.
fn memory(in_flight: u32) -> f64 {
    MEMORY.max(2.0 * f64::from(in_flight))
}

/// Returns the refusals in the measure of runs.
fn runs_memory(in_flight: u32) -> f64 {
    RUNS.max(f64::from(in_flight) / 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_at_low_load_if_the_load_was_low_when_the_call_was_sent() {
        let mut share = RefusedShare::default();
        share.learn(0.5);
        share.on_cut(100, 0);
        (0..40).for_each(|_| share.on_grant(60));
        // Sixty calls are low load below a hundred, but not below sixty.
        share.on_cut(60, 40);
        (0..20).for_each(|nth| share.on_refused(2 * nth, 60, 40));
        assert!((0.45..0.55).contains(&share.base), "half of the calls were refused, not {}", share.base);
    }

    #[test]
    fn a_load_at_which_more_than_any_share_is_refused_is_not_low() {
        let mut share = RefusedShare::default();
        share.learn(0.5);
        share.on_cut(9, 0);
        for grant in 0..40 {
            share.on_grant(6);
            share.on_refused(grant, 6, grant + 1);
        }
        assert!(!share.is_known() || share.too_many < 9);
        // At lower loads every second call is refused.
        for grant in (40..168).step_by(2) {
            (0..2).for_each(|_| share.on_grant(1));
            share.on_refused(grant + 1, 1, grant + 2);
        }
        assert!(share.is_known() && (0.45..0.6).contains(&share.base), "measured again: {}", share.base);
    }
}
