//! The search for the most calls that a provider accepts at once: its phases, and how long each of them
//! lasts.
//!
//! A *cut* lowers the limit after a refusal. A *probe* raises it by one call. `floor` is the limit below the
//! probe, and `best` the most calls that were accepted at once.
//!
//! ```text
//! wait before a probe = probe_after x 2^failures x limit / best        in successes
//! best                -= (best - floor) / 16                           with each failed probe
//! growth of a climb   = limit before the first refusal; then 1, 2, 4, ..., limit / 8
//! ```

use super::TideConfig;

/// The most successes before a probe, for each call of the limit.
const TRIPS: u32 = 32;
/// The fewest successes before a probe at a limit below `best`. One call in five is then a probe.
const LEAST_PATIENCE: f64 = 4.0;
/// A failed probe lowers `best` by 1/`DECAY` of its distance to `floor`.
const DECAY: f64 = 16.0;
/// The part of the limit that a climb adds at most, after the first refusal.
const STEP: u32 = 8;
/// Growth of a climb that counts as a change of the provider and not as one more step.
const LEAP: u32 = 4;

/// The phase of the search for the ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchPhase {
    /// The limit grows by one with each success, and by [`Ceiling::growth`] when the watched call is
    /// accepted. `from` is the limit at the start of the climb.
    Climb { from: u32 },
    /// The limit stays for a number of successes.
    Hold,
    /// The limit is one more than `floor`, which is known to be accepted.
    Probe { floor: u32 },
}

/// The state of the search. Calls are identified by their grant: the number of calls granted before.
#[derive(Clone, Debug)]
pub(super) struct Ceiling {
    phase: SearchPhase,
    /// The next grant when the phase began.
    phase_start: u64,
    /// The next grant at the last cut. Earlier calls cut nothing.
    last_cut: u64,
    next_grant: u64,
    /// The most calls in flight in this phase.
    peak: u32,
    /// Successes in this phase, while it holds.
    successes: u32,
    /// Failed probes in a row.
    failures: u32,
    /// The most calls that were accepted at once. Failed probes lower it.
    best: f64,
    /// The limit at the first refusal; 0 if nothing has been refused.
    first: u32,
}

impl Default for Ceiling {
    fn default() -> Self {
        Self {
            phase: SearchPhase::Climb { from: 0 },
            phase_start: 0,
            last_cut: 0,
            next_grant: 0,
            peak: 0,
            successes: 0,
            failures: 0,
            best: 1.0,
            first: 0,
        }
    }
}

impl Ceiling {
    pub(super) fn phase(&self) -> SearchPhase {
        self.phase
    }

    /// Returns whether the limit climbs.
    pub(super) fn is_climbing(&self) -> bool {
        matches!(self.phase, SearchPhase::Climb { .. })
    }

    /// Returns whether a call was granted in this phase.
    pub(super) fn is_of_phase(&self, grant: u64) -> bool {
        grant >= self.phase_start
    }

    /// Returns whether a call was granted after the last cut.
    pub(super) fn is_after_cut(&self, grant: u64) -> bool {
        grant >= self.last_cut
    }

    /// Returns the number of the next grant.
    pub(super) fn next_grant(&self) -> u64 {
        self.next_grant
    }

    /// Returns the limit at the first refusal; 0 if nothing has been refused.
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// Returns the successes in this phase, while it holds.
    pub(super) fn successes(&self) -> u32 {
        self.successes
    }

    /// Returns the limit up to which a climb may grow: twice the calls in flight, as in TCP's slow start.
    pub(super) fn most(&self) -> u32 {
        self.peak.saturating_mul(2)
    }

    /// Returns the calls that a climb adds to the limit at once, at most.
    pub(super) fn step(&self, limit: u32) -> u32 {
        if self.first == 0 { u32::MAX } else { (limit / STEP).max(1) }
    }

    /// Returns the calls that a climb adds when the ones before have been accepted: after a refusal one, then
    /// twice as many each time.
    pub(super) fn growth(&self, limit: u32) -> u32 {
        match self.phase {
            _ if self.first == 0 => limit,
            SearchPhase::Climb { from } => limit.saturating_sub(from).clamp(1, self.step(limit)),
            SearchPhase::Hold | SearchPhase::Probe { .. } => 1,
        }
    }

    /// Records a grant.
    pub(super) fn on_grant(&mut self, in_flight: u32) {
        self.peak = self.peak.max(in_flight);
    }

    /// Counts a grant, after the rest of the limit has seen it.
    pub(super) fn set_next_grant(&mut self, grant: u64) {
        self.next_grant = grant;
    }

    /// Begins a phase.
    pub(super) fn enter(&mut self, phase: SearchPhase) {
        self.phase = phase;
        self.phase_start = self.next_grant;
        self.successes = 0;
        self.peak = 0;
    }

    /// Records that a call of this phase was answered with `in_flight` calls in flight.
    pub(super) fn on_success_of_phase(&mut self, in_flight: u32) {
        self.best = self.best.max(f64::from(in_flight));
    }

    /// Records a success while the limit holds. Returns whether a probe is due.
    pub(super) fn on_held_success(&mut self, config: &TideConfig, limit: u32) -> bool {
        self.successes = self.successes.saturating_add(1);
        self.successes >= self.successes_before_probe(config, limit)
    }

    /// Returns the successes before the next probe.
    fn successes_before_probe(&self, config: &TideConfig, limit: u32) -> u32 {
        let doubled = u64::from(config.probe_after.min(limit.saturating_mul(4))) << self.failures.min(32);
        let most = config.probe_after_most.min(limit.saturating_mul(TRIPS)).max(config.probe_after);
        let wait = doubled.min(u64::from(most)) as f64;
        // As frequent in time as at the most that was accepted: a probe costs little compared with what it
        // may gain.
        let part = f64::from(limit) / self.best.max(f64::from(limit));
        (wait * part).max(LEAST_PATIENCE.min(wait)) as u32
    }

    /// Excludes all calls granted so far from cutting the limit.
    pub(super) fn close_cascade(&mut self) {
        self.last_cut = self.next_grant;
    }

    /// Records a cut to `limit` after a refusal of a call granted under `admitted_limit`, and holds.
    /// `is_repeated` states that no call was accepted since the last cut.
    pub(super) fn on_cut(&mut self, limit: u32, admitted_limit: u32, is_repeated: bool) {
        if self.first == 0 {
            self.first = admitted_limit;
        }
        self.failures = match self.phase {
            SearchPhase::Probe { floor } => {
                self.best -= (self.best - f64::from(floor)).max(0.0) / DECAY;
                self.failures + 1
            }
            // After a great change, probe soon. After a small one, somewhat sooner than before.
            SearchPhase::Climb { from } if limit >= from.saturating_add(LEAP) => 0,
            SearchPhase::Hold if is_repeated => self.failures.min(1),
            SearchPhase::Climb { .. } | SearchPhase::Hold => self.failures.saturating_sub(1),
        };
        self.enter(SearchPhase::Hold);
    }
}
