//! Mock providers: remote services that push back, as deterministic machines over injected time and a seed.
//!
//! Describe one as a [`ProviderSpec`], make it, and tell it about every call. It answers at once what will
//! become of the call, and when:
//!
//! ```
//! use tidegate_core::sim::provider::{MockResponse, Capacity, MockProvider, ProviderSpec};
//! use tidegate_core::time::Instant;
//!
//! let spec = ProviderSpec { capacity: Capacity::Constant { slots: 1 }, ..ProviderSpec::default() };
//! let mut provider = MockProvider::new(&spec, 7)?;
//!
//! let MockResponse::Accept { finish_at } = provider.arrive(Instant::ZERO, 0) else { panic!("the only slot is free") };
//! assert_eq!(provider.arrive(Instant::ZERO, 0), MockResponse::Refuse { status: 429, retry_after: None });
//! provider.finish(finish_at);
//! assert!(matches!(provider.arrive(finish_at, 0), MockResponse::Accept { .. }));
//! # Ok::<(), tidegate_core::error::ConfigError>(())
//! ```
//!
//! The caller's side of the contract: call [`MockProvider::finish`] once for every [`MockResponse::Accept`] and
//! [`MockResponse::Spoil`] (when the call ends, or when the client hangs up) and for no other answer. The provider
//! arms no timer and reads no clock.
//!
//! A call passes the mechanisms in this order; the first that objects answers it, and costs it nothing
//! elsewhere:
//!
//! ```text
//! outage ──────▶ closure ──▶ capacity ───────────────▶ rates ─────────────▶ faults ──────▶ latency ──▶ accepted
//! 5xx, silence   no key,     schedule less neighbour   requests per minute  5xx, silence   law x slow-down
//!                no funds    429, or slow-down         tokens per minute    bad answers
//!                                                      surges               429
//! ```
//!
//! | a provider of this kind | is this spec |
//! | --- | --- |
//! | fixed concurrency cap | [`Capacity::Constant`] |
//! | cold server | [`Capacity::WarmUp`] |
//! | requests per minute, tokens per minute, also in fixed windows | [`ProviderSpec::requests`], [`ProviderSpec::tokens`] |
//! | traffic that may not rise too fast | [`Surge`] |
//! | latency knee, nothing refused (the vLLM shape) | [`Overload::SlowDown`] |
//! | step change of capacity | [`Capacity::Steps`] |
//! | noisy neighbour | [`Neighbour`] |
//! | outage and recovery | [`Outage`] |
//! | a revoked key, an empty account, a model that is gone | [`Closure`] |
//! | slow drift | [`Capacity::Drift`] |
//! | a share of failures, of silence, of broken or senseless answers, of refusals at any load | [`Faults`] |
//!
//! Every call of every method costs O(1), or O(log n) in the steps and outages of the spec, and allocates
//! nothing. No input panics: a `now` that runs backwards is clamped and counted, and arithmetic saturates.

use serde::{Deserialize, Serialize};

use self::closure::closed;
use self::faults::Fault;
use self::level::Level;
use self::outage::{OutageEffect, phase};
use self::overload::SlotDecision;
use self::rate::Meter;
use self::surge::Guard;
use super::latency::scaled;
use super::rng::Rng;
use crate::budget::{Correction, Dimension};
use crate::time::{Duration, Instant, Monotonic};

mod capacity;
mod closure;
mod faults;
mod level;
mod neighbour;
mod outage;
mod overload;
mod rate;
mod spec;
mod surge;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_faults;
#[cfg(test)]
mod tests_pushback;

pub use self::capacity::{Capacity, Step};
pub use self::closure::{Closure, Rejection};
pub use self::faults::{Faults, Flaw};
pub use self::neighbour::Neighbour;
pub use self::outage::Outage;
pub use self::overload::Overload;
pub use self::rate::{Rate, RateLeft, RetryAfter};
pub use self::spec::ProviderSpec;
pub(in crate::sim) use self::spec::{inside, inside_item, require_slots, with_file_path};
pub use self::surge::Surge;
/// Why a [`ProviderSpec`] was refused: the field's path, its value, and what was expected.
pub use crate::error::ConfigError as SpecError;

/// The status of every refusal.
const TOO_MANY_REQUESTS: u16 = 429;

/// The streams forked from a provider's seed: one per mechanism, so that one never moves another.
const LATENCY_STREAM: u64 = 1;
const NEIGHBOUR_STREAM: u64 = 2;
const FAULT_STREAM: u64 = 3;

/// What becomes of one call.
///
/// Exhaustive on purpose: a mock server must give every answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum MockResponse {
    /// It is served, and holds a slot until [`MockProvider::finish`].
    Accept {
        /// When its answer is complete.
        finish_at: Instant,
    },
    /// It is served like any other, holds a slot until [`MockProvider::finish`], and its answer is no use.
    Spoil {
        /// What is wrong with the answer.
        flaw: Flaw,
        /// When it ends: at the time of a whole answer, or half way there if it is cut.
        at: Instant,
    },
    /// It is refused at once.
    Refuse {
        /// The HTTP status, 429.
        status: u16,
        /// What the answer says about when to come back. As [exact](RetryAfter) as configured for a rate
        /// (exactly, one nanosecond earlier is too early), as configured for want of a slot.
        retry_after: Option<Duration>,
    },
    /// It is refused at once, and so will every other call be for a while.
    Reject {
        /// Why.
        because: Rejection,
    },
    /// It fails on the provider's side.
    Fail {
        /// The HTTP status, 500 to 599.
        status: u16,
        /// When the failure is answered.
        at: Instant,
    },
    /// It is never answered.
    Hang {
        /// When the provider closes the connection, should the client still be there.
        until: Instant,
    },
}

/// What a provider has done since it was made.
///
/// `accepted = finished + in flight`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Calls that got a slot.
    pub accepted: u64,
    /// The part of `accepted` whose answer is no use.
    #[serde(default)]
    pub spoilt: u64,
    /// Calls refused with 429, for whatever reason.
    pub refused: u64,
    /// The part of `refused` that a rate per minute or the guard against surges caused, and not the want of a
    /// slot.
    pub refused_by_rate: u64,
    /// Calls refused because of a [`Closure`].
    #[serde(default)]
    pub closed: u64,
    /// Calls failed with 5xx.
    pub failed: u64,
    /// Calls never answered.
    pub hung: u64,
    /// Accepted calls that ended.
    pub finished: u64,
    /// Calls of `finish` with nothing in flight: mistakes of the caller, without effect.
    pub unmatched_finishes: u64,
    /// How often `now` ran backwards.
    pub clock_regressions: u64,
}

/// One provider at work. See the [module](self) for the contract.
#[derive(Clone, Debug)]
pub struct MockProvider {
    spec: ProviderSpec,
    time: Monotonic,
    /// When the first call came, whatever became of it: a cold server starts to warm then.
    first_request: Option<Instant>,
    /// The capacity that a person set in place of the schedule and the neighbour.
    pinned: Option<u32>,
    /// Until when every call is refused.
    refuses_until: Instant,
    /// Until when calls take longer, and how much.
    slow_until: Instant,
    slowness: f64,
    requests: Option<Meter>,
    tokens: Option<Meter>,
    surges: Guard,
    in_flight: u32,
    latencies: Rng,
    /// Only ever forked, by period.
    neighbour: Rng,
    faults: Rng,
    counters: Counters,
}

impl MockProvider {
    /// The provider that `spec` describes. Equal specs, seeds and calls give equal answers, in every process.
    pub fn new(spec: &ProviderSpec, seed: u64) -> Result<Self, SpecError> {
        spec.validate()?;
        let root = Rng::new(seed);
        Ok(Self {
            spec: spec.clone(),
            time: Monotonic::default(),
            first_request: None,
            pinned: None,
            refuses_until: Instant::ZERO,
            slow_until: Instant::ZERO,
            slowness: 1.0,
            requests: spec.requests.map(Meter::new),
            tokens: spec.tokens.map(Meter::new),
            surges: Guard::default(),
            in_flight: 0,
            latencies: root.fork(LATENCY_STREAM),
            neighbour: root.fork(NEIGHBOUR_STREAM),
            faults: root.fork(FAULT_STREAM),
            counters: Counters::default(),
        })
    }

    // Commands.

    /// A call of `tokens` tokens of text arrives. The answer is final.
    pub fn arrive(&mut self, now: Instant, tokens: u32) -> MockResponse {
        self.answer(now, tokens, None)
    }

    /// The same with latency and faults drawn from `draws`, so that they do not depend on which calls came
    /// before.
    pub fn arrive_drawing(&mut self, now: Instant, tokens: u32, draws: &mut Rng) -> MockResponse {
        self.answer(now, tokens, Some(draws))
    }

    fn answer(&mut self, now: Instant, tokens: u32, draws: Option<&mut Rng>) -> MockResponse {
        let now = self.time.observe(now);
        self.first_request.get_or_insert(now);
        let (phase, _) = phase(&self.spec.outages, now);
        match phase {
            OutageEffect::Errors { status, latency } => self.fail(status, now + latency),
            OutageEffect::Timeouts { hang } => self.hang(now + hang),
            OutageEffect::Up | OutageEffect::Recovering { .. } => match closed(&self.spec.closures, now) {
                (Some(because), _) => self.reject(because),
                (None, _) => self.serve(now, tokens, draws),
            },
        }
    }

    /// An accepted call ended at `now`: it was answered, or the client hung up. Its slot is free at once.
    pub fn finish(&mut self, now: Instant) {
        self.time.observe(now);
        match self.in_flight.checked_sub(1) {
            Some(left) => {
                self.in_flight = left;
                self.counters.finished += 1;
            }
            None => self.counters.unmatched_finishes += 1,
        }
    }

    /// A person drags the tide: from `now` on the capacity is `slots` and nothing else. It replaces the
    /// schedule, the neighbour's share and a recovery; an outage still stops everything. Calls in flight
    /// stay, even above it.
    pub fn set_capacity(&mut self, now: Instant, slots: u32) {
        self.time.observe(now);
        self.pinned = Some(slots);
    }

    /// The schedule and the neighbour rule again from `now` on, as far as they have come meanwhile.
    pub fn clear_override(&mut self, now: Instant) {
        self.time.observe(now);
        self.pinned = None;
    }

    /// A burst of refusals: every call before `until` is refused, as one is for which there is no slot. An
    /// outage still comes first.
    pub fn refuse_until(&mut self, now: Instant, until: Instant) {
        self.time.observe(now);
        self.refuses_until = until;
    }

    /// A slow patch: calls that come before `until` take `factor` times as long. What was promised stays.
    pub fn slow_down_until(&mut self, now: Instant, until: Instant, factor: f64) {
        self.time.observe(now);
        (self.slow_until, self.slowness) = (until, factor);
    }

    // Questions. None of them changes an answer to come.

    /// How many calls at once the provider can truly serve at `now` (or at the latest instant seen, if that
    /// is later): the figure that no client can see. 0 while an outage or a closure lasts; of an
    /// [`Overload::SlowDown`] provider, the knee.
    #[must_use]
    pub fn capacity(&self, now: Instant) -> u32 {
        self.level(self.time.peek(now)).slots
    }

    /// The next instant at which the capacity may change by time alone; it is constant from `now` up to
    /// there. `None`: never, unless somebody calls (a cold server), or sets it.
    #[must_use]
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        self.level(self.time.peek(now)).until
    }

    /// Accepted calls that have not ended. Above the capacity after it fell.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// When the rates and the guard against surges would let a call of `tokens` through, if that is later
    /// than `now` and nobody else came.
    #[must_use]
    pub fn opens_at(&self, now: Instant, tokens: u32) -> Option<Instant> {
        let now = self.time.peek(now);
        let wait = self.waits(now, tokens).into_iter().fold(Duration::ZERO, Duration::max);
        (!wait.is_zero()).then(|| now + wait)
    }

    /// What is left at `now` of the [requests per minute](ProviderSpec::requests), if they are limited.
    #[must_use]
    pub fn requests_left(&self, now: Instant) -> Option<RateLeft> {
        left(self.requests, self.spec.requests, self.time.peek(now))
    }

    /// What is left at `now` of the [tokens per minute](ProviderSpec::tokens), if they are limited.
    #[must_use]
    pub fn tokens_left(&self, now: Instant) -> Option<RateLeft> {
        left(self.tokens, self.spec.tokens, self.time.peek(now))
    }

    /// What an answer to a call that came at `now` states of the rates: nothing, unless the provider [states
    /// them](ProviderSpec::states_rates).
    #[must_use]
    pub fn stated_rates(&self, now: Instant) -> [Option<Correction>; 2] {
        if !self.spec.states_rates {
            return [None, None];
        }
        let requests = self.requests_left(now).map(|left| left.stated(Dimension::Requests));
        [requests, self.tokens_left(now).map(|left| left.stated(Dimension::TotalTokens))]
    }

    /// What the provider has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { clock_regressions: self.time.regressions(), ..self.counters }
    }

    /// The description it was made from.
    #[must_use]
    pub fn spec(&self) -> &ProviderSpec {
        &self.spec
    }

    /// Whether a person has set the capacity.
    #[must_use]
    pub fn is_overridden(&self) -> bool {
        self.pinned.is_some()
    }

    /// The end of the [burst of refusals](MockProvider::refuse_until) that is on at `now`.
    #[must_use]
    pub fn refusing_until(&self, now: Instant) -> Option<Instant> {
        Some(self.refuses_until).filter(|until| *until > self.time.peek(now))
    }

    /// The end of the [slow patch](MockProvider::slow_down_until) that is on at `now`, and its factor.
    #[must_use]
    pub fn slowed_until(&self, now: Instant) -> Option<(Instant, f64)> {
        Some((self.slow_until, self.slowness)).filter(|(until, _)| *until > self.time.peek(now))
    }

    // Mechanisms.

    /// Answers a call that no outage stops.
    fn serve(&mut self, now: Instant, tokens: u32, draws: Option<&mut Rng>) -> MockResponse {
        if now < self.refuses_until {
            return self.refuse(self.spec.overload.retry_after());
        }
        let slowdown = match self.spec.overload.decide(self.in_flight, self.level(now).slots) {
            SlotDecision::Serve { slowdown } if now < self.slow_until => slowdown * self.slowness,
            SlotDecision::Serve { slowdown } => slowdown,
            SlotDecision::Refuse { retry_after } => return self.refuse(retry_after),
        };
        if let SlotDecision::Refuse { retry_after } = self.verdict_of_rates(now, tokens) {
            self.counters.refused_by_rate += 1;
            return self.refuse(retry_after);
        }
        let flaw = match self.fault(draws.as_deref()) {
            Some(Fault::Refusal { retry_after }) => return self.refuse(retry_after),
            Some(Fault::Error { status, latency }) => return self.fail(status, now + latency),
            Some(Fault::Hang { after }) => return self.hang(now + after),
            Some(Fault::Flaw(flaw)) => Some(flaw),
            None => None,
        };
        for (meter, cost) in [(&mut self.requests, 1), (&mut self.tokens, tokens)] {
            if let Some(meter) = meter {
                meter.take(now, cost);
            }
        }
        if let Some(surge) = &self.spec.surge {
            self.surges.take(surge, now);
        }
        let latency = scaled(self.spec.latency.sample(draws.unwrap_or(&mut self.latencies)), slowdown);
        self.in_flight = self.in_flight.saturating_add(1);
        self.counters.accepted += 1;
        self.counters.spoilt += u64::from(flaw.is_some());
        match flaw {
            None => MockResponse::Accept { finish_at: now + latency },
            Some(flaw @ Flaw::Malformed) => MockResponse::Spoil { flaw, at: now + latency },
            Some(flaw @ Flaw::Cut) => {
                MockResponse::Spoil { flaw, at: now + Duration::from_nanos(latency.as_nanos() / 2) }
            }
        }
    }

    /// The fault of a call that is about to be served. Draws of the caller's own are forked, so that the
    /// latency of a call is the same with faults and without.
    fn fault(&mut self, draws: Option<&Rng>) -> Option<Fault> {
        let faults = self.spec.faults?;
        match draws {
            Some(draws) => faults.draw(&mut draws.fork(FAULT_STREAM)),
            None => faults.draw(&mut self.faults),
        }
    }

    fn fail(&mut self, status: u16, at: Instant) -> MockResponse {
        self.counters.failed += 1;
        MockResponse::Fail { status, at }
    }

    fn hang(&mut self, until: Instant) -> MockResponse {
        self.counters.hung += 1;
        MockResponse::Hang { until }
    }

    fn reject(&mut self, because: Rejection) -> MockResponse {
        self.counters.closed += 1;
        MockResponse::Reject { because }
    }

    fn refuse(&mut self, retry_after: Option<Duration>) -> MockResponse {
        self.counters.refused += 1;
        MockResponse::Refuse { status: TOO_MANY_REQUESTS, retry_after }
    }

    /// How long until each rate lets the call through, and the guard against surges. Levels only rise while
    /// nobody takes, so the longest is exact for all together.
    fn waits(&self, now: Instant, tokens: u32) -> [Duration; 3] {
        let wait = |meter: &Option<Meter>, cost| meter.map_or(Duration::ZERO, |meter| meter.wait(now, cost));
        let surge = self.spec.surge.map_or(Duration::ZERO, |surge| self.surges.wait(&surge, now));
        [wait(&self.requests, 1), wait(&self.tokens, tokens), surge]
    }

    /// Whether the rates and the guard against surges let a call through.
    fn verdict_of_rates(&self, now: Instant, tokens: u32) -> SlotDecision {
        let ProviderSpec { requests, tokens: rate, surge, .. } = &self.spec;
        let [by_requests, by_tokens, by_surge] = self.waits(now, tokens);
        let wait = by_requests.max(by_tokens);
        if !wait.is_zero() {
            let longest = if by_requests >= by_tokens { requests } else { rate };
            return SlotDecision::Refuse { retry_after: longest.and_then(|rate| rate.retry_after.stated(wait)) };
        }
        match surge {
            Some(surge) if !by_surge.is_zero() => SlotDecision::Refuse { retry_after: surge.retry_after },
            _ => SlotDecision::Serve { slowdown: 1.0 },
        }
    }

    /// The true capacity at `now`, and until when it holds.
    fn level(&self, now: Instant) -> Level {
        let (phase, phase_end) = phase(&self.spec.outages, now);
        let (is_closed, closure_end) = closed(&self.spec.closures, now);
        let level = match (self.pinned, phase) {
            _ if is_closed.is_some() => Level::forever(0),
            (Some(slots), OutageEffect::Up | OutageEffect::Recovering { .. }) => Level::forever(slots),
            _ => phase.limits(self.scheduled(now), now),
        };
        level.at_most_until(phase_end).at_most_until(closure_end)
    }

    /// What the schedule says and the neighbour leaves.
    fn scheduled(&self, now: Instant) -> Level {
        let level = self.spec.capacity.level(now, self.first_request);
        match &self.spec.neighbour {
            Some(neighbour) => neighbour.leaves(level, now, &self.neighbour),
            None => level,
        }
    }
}

/// What is left of one rate, if there is one.
fn left(meter: Option<Meter>, rate: Option<Rate>, now: Instant) -> Option<RateLeft> {
    Some(meter?.left(rate?, now))
}
