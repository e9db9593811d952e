//! Mock providers: simulated remote services with limited capacity, rate limits, outages and faults.
//!
//! A [`MockProvider`] is a deterministic state machine. Time is passed to each method, and random numbers
//! come from a seed. Describe the provider as a [`ProviderSpec`], create it, and report every call to it. It
//! returns at once how the call will end, and when:
//!
//! ```
//! use tidegate_core::sim::provider::{MockResponse, Capacity, MockProvider, ProviderSpec};
//! use tidegate_core::time::Instant;
//!
//! let spec = ProviderSpec { capacity: Capacity::Constant { slots: 1 }, ..ProviderSpec::default() };
//! let mut provider = MockProvider::new(&spec, 7)?;
//!
//! let MockResponse::Accept { finish_at } = provider.arrive(Instant::ZERO, 0) else {
//!     panic!("the only slot is free")
//! };
//! assert_eq!(provider.arrive(Instant::ZERO, 0), MockResponse::Refuse { status: 429, retry_after: None });
//! provider.finish(finish_at);
//! assert!(matches!(provider.arrive(finish_at, 0), MockResponse::Accept { .. }));
//! # Ok::<(), tidegate_core::error::ConfigError>(())
//! ```
//!
//! The caller must call [`MockProvider::finish`] once for every [`MockResponse::Accept`] and
//! [`MockResponse::Corrupt`], when the call ends or the client disconnects, and for no other response. The
//! provider sets no timer and reads no clock.
//!
//! A provider *serves* a call if it gives it a slot and answers. It *refuses* a call with 429 because of too
//! much load, a rate or a fault. It *rejects* every call during a closure. A call *fails* with a 5xx status,
//! or *hangs* without an answer.
//!
//! A call passes these mechanisms in order. The first one that stops the call decides its response. A call
//! that is stopped before it is accepted takes no slot and uses up no rate:
//!
//! ```text
//! outage ────▶ closure ──▶ capacity ───────────────▶ rates ─────────────▶ faults ──▶ latency ─────▶ accepted
//! 5xx,         bad key,    schedule less neighbour   requests per minute  5xx,       base x slow-down
//! no answer    no funds    429, or slow-down         tokens per minute    no answer,
//!                                                    surges               bad answer,
//!                                                                         429
//! ```
//!
//! | kind of provider | spec |
//! | --- | --- |
//! | fixed concurrency cap | [`Capacity::Constant`] |
//! | cold server | [`Capacity::WarmUp`] |
//! | requests per minute, also in fixed windows | [`ProviderSpec::requests`] |
//! | tokens per minute, also in fixed windows | [`ProviderSpec::tokens`] |
//! | traffic must not grow too fast | [`Surge`] |
//! | latency grows past a knee, nothing is refused (vLLM, for example) | [`Overload::SlowDown`] |
//! | step change of capacity | [`Capacity::Steps`] |
//! | noisy neighbour | [`Neighbour`] |
//! | outage and recovery | [`Outage`] |
//! | a revoked key, an empty account, a removed model | [`Closure`] |
//! | slow drift | [`Capacity::Drift`] |
//! | a share of calls fails, gets no answer or a bad one, or is refused at any load | [`Faults`] |
//!
//! Every method except [`MockProvider::new`] costs O(1), or O(log n) in the steps, outages and closures of
//! the spec, and allocates nothing. No input panics: a `now` that runs backwards is clamped and counted, and
//! arithmetic saturates.

use serde::{Deserialize, Serialize};

use self::closure::rejection_at;
use self::faults::Fault;
use self::level::Level;
use self::outage::{OutageEffect, effect_at};
use self::overload::SlotDecision;
use self::rate::Meter;
use self::surge::SurgeLimit;
use super::latency::scaled;
use super::rng::Rng;
use crate::budget::{Dimension, RateLimitFeedback};
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

pub(in crate::sim) use self::capacity::require_slots;
pub use self::capacity::{Capacity, Step};
pub use self::closure::{Closure, Rejection};
pub use self::faults::{Faults, Flaw};
pub use self::neighbour::Neighbour;
pub use self::outage::Outage;
pub use self::overload::Overload;
pub use self::rate::{Rate, RateLeft, RetryAfter};
pub use self::spec::ProviderSpec;
pub use self::surge::Surge;
/// The error for an invalid [`ProviderSpec`]: the field's path, its value, and what was expected.
pub use crate::error::ConfigError as SpecError;

const TOO_MANY_REQUESTS: u16 = 429;

/// The random streams forked from a provider's seed. Each mechanism has its own, so that the draws of one
/// never change those of another.
const LATENCY_STREAM: u64 = 1;
const NEIGHBOUR_STREAM: u64 = 2;
const FAULT_STREAM: u64 = 3;

/// The response to one call.
///
/// Exhaustive on purpose: a mock server must give every response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum MockResponse {
    /// The call is served. It holds a slot until [`MockProvider::finish`].
    Accept {
        /// When the response is complete.
        finish_at: Instant,
    },
    /// The call is served and holds a slot until [`MockProvider::finish`], but its response is unusable.
    Corrupt {
        /// What is wrong with the response.
        flaw: Flaw,
        /// When the response ends: when a good one would be complete, or halfway there for [`Flaw::Cut`].
        at: Instant,
    },
    /// The call is refused at once, because of too much load, a rate or a fault.
    Refuse {
        /// The HTTP status, 429.
        status: u16,
        /// The Retry-After of the response, if any.
        ///
        /// For a rate it is as exact as [`Rate::retry_after`]. With [`RetryAfter::Exact`], the rate lets
        /// a retry after this time through if no other call arrives before, and refuses one a nanosecond
        /// earlier. For all other causes it is the configured value.
        retry_after: Option<Duration>,
    },
    /// The call is rejected at once because of a [`Closure`], as every other call is until the closure ends.
    Reject {
        /// The reason for the closure.
        because: Rejection,
    },
    /// The call fails on the provider's side.
    Fail {
        /// The HTTP status, 500 to 599.
        status: u16,
        /// When the error response arrives.
        at: Instant,
    },
    /// The call gets no response.
    Hang {
        /// When the provider closes the connection, if the client has not done so before.
        until: Instant,
    },
}

/// The counters of a provider since its creation.
///
/// `accepted = finished + in flight` always holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Calls that got a slot.
    pub accepted: u64,
    /// The part of `accepted` whose answer is unusable.
    #[serde(default)]
    pub corrupted: u64,
    /// Calls refused with 429 for any reason other than a [`Closure`].
    pub refused: u64,
    /// The part of `refused` caused by a rate per minute or by the [`Surge`] limit.
    pub refused_by_rate: u64,
    /// Calls rejected because of a [`Closure`].
    #[serde(default)]
    pub closed: u64,
    /// Calls that failed with 5xx.
    pub failed: u64,
    /// Calls that are never answered.
    pub hung: u64,
    /// Accepted calls that ended.
    pub finished: u64,
    /// Calls of [`MockProvider::finish`] with nothing in flight. They are caller mistakes and have no effect.
    pub unmatched_finishes: u64,
    /// How often `now` ran backwards.
    pub clock_regressions: u64,
}

/// A simulated provider. See the [module documentation](self) for the contract.
#[derive(Clone, Debug)]
pub struct MockProvider {
    spec: ProviderSpec,
    time: Monotonic,
    /// When the first call arrived, whatever its response. A cold server starts to warm up then.
    first_request: Option<Instant>,
    /// A capacity set by [`MockProvider::set_capacity`].
    capacity_override: Option<u32>,
    /// When the latest burst of refusals ends.
    refuses_until: Instant,
    /// When the latest slow phase ends.
    slow_until: Instant,
    /// How many times as long calls take in that phase.
    slow_factor: f64,
    requests: Option<Meter>,
    tokens: Option<Meter>,
    surge_limit: SurgeLimit,
    in_flight: u32,
    latencies: Rng,
    /// Never advanced: each period forks a stream of its own.
    neighbour: Rng,
    faults: Rng,
    counters: Counters,
}

impl MockProvider {
    /// Creates the provider that `spec` describes. Equal specs, seeds and calls give equal responses on every
    /// platform. Returns an error if the spec is invalid.
    pub fn new(spec: &ProviderSpec, seed: u64) -> Result<Self, SpecError> {
        spec.validate()?;
        let root = Rng::new(seed);
        Ok(Self {
            spec: spec.clone(),
            time: Monotonic::default(),
            first_request: None,
            capacity_override: None,
            refuses_until: Instant::ZERO,
            slow_until: Instant::ZERO,
            slow_factor: 1.0,
            requests: spec.requests.map(Meter::new),
            tokens: spec.tokens.map(Meter::new),
            surge_limit: SurgeLimit::default(),
            in_flight: 0,
            latencies: root.fork(LATENCY_STREAM),
            neighbour: root.fork(NEIGHBOUR_STREAM),
            faults: root.fork(FAULT_STREAM),
            counters: Counters::default(),
        })
    }

    // Commands.

    /// Returns the response to a call that arrives at `now` and costs `tokens` tokens.
    pub fn arrive(&mut self, now: Instant, tokens: u32) -> MockResponse {
        self.respond(now, tokens, None)
    }

    /// Returns the response to a call like [`MockProvider::arrive`], but draws the latency and the fault of
    /// the call from `draws`. They then do not depend on earlier calls.
    pub fn arrive_drawing(&mut self, now: Instant, tokens: u32, draws: &mut Rng) -> MockResponse {
        self.respond(now, tokens, Some(draws))
    }

    fn respond(&mut self, now: Instant, tokens: u32, draws: Option<&mut Rng>) -> MockResponse {
        let now = self.time.observe(now);
        self.first_request.get_or_insert(now);
        let (outage, _) = effect_at(&self.spec.outages, now);
        match outage {
            OutageEffect::Errors { status, latency } => self.fail(status, now + latency),
            OutageEffect::Timeouts { hang } => self.hang(now + hang),
            OutageEffect::Up | OutageEffect::Recovering { .. } => match rejection_at(&self.spec.closures, now) {
                (Some(because), _) => self.reject(because),
                (None, _) => self.serve(now, tokens, draws),
            },
        }
    }

    /// Ends an accepted call, because it was answered or the client disconnected. Its slot is free at once.
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

    /// Overrides the capacity from `now` on.
    ///
    /// The override replaces the schedule, the neighbour's share and the recovery after an outage. Outages
    /// and closures still stop all calls. Calls in flight continue, even if there are more of them than
    /// `slots`.
    pub fn set_capacity(&mut self, now: Instant, slots: u32) {
        self.time.observe(now);
        self.capacity_override = Some(slots);
    }

    /// Ends a [capacity override](MockProvider::set_capacity). The schedule and the neighbour apply again, as
    /// they are at `now`.
    pub fn clear_override(&mut self, now: Instant) {
        self.time.observe(now);
        self.capacity_override = None;
    }

    /// Refuses every call that arrives before `until`, as if no slot were free. Outages and closures take
    /// precedence.
    pub fn refuse_until(&mut self, now: Instant, until: Instant) {
        self.time.observe(now);
        self.refuses_until = until;
    }

    /// Multiplies the latency of calls that arrive before `until` by `factor`. Calls in flight keep their
    /// end.
    pub fn slow_down_until(&mut self, now: Instant, until: Instant, factor: f64) {
        self.time.observe(now);
        (self.slow_until, self.slow_factor) = (until, factor);
    }

    // Queries. None of them changes a later response.

    /// Returns the true capacity at `now`, or at the latest instant passed to the provider if that is later.
    ///
    /// This is the number of calls that the provider can serve at once, which no client can observe. It is 0
    /// during an outage (but not its recovery) and during a closure. For [`Overload::SlowDown`] it is the
    /// knee.
    #[must_use]
    pub fn capacity(&self, now: Instant) -> u32 {
        self.level(self.time.peek(now)).slots
    }

    /// Returns the next instant at which the capacity may change by time alone. Until then it stays the same.
    ///
    /// `None` means that it changes only if a call arrives at a cold server, or by
    /// [`MockProvider::set_capacity`] or [`MockProvider::clear_override`].
    #[must_use]
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        self.level(self.time.peek(now)).until
    }

    /// Returns the number of accepted calls that have not ended. It exceeds the capacity if the capacity
    /// fell.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns when the rates and the surge limit would let a call of `tokens` tokens through, if no other
    /// call arrives before. Returns `None` if they let it through at `now`.
    #[must_use]
    pub fn opens_at(&self, now: Instant, tokens: u32) -> Option<Instant> {
        let now = self.time.peek(now);
        let wait = self.waits(now, tokens).into_iter().fold(Duration::ZERO, Duration::max);
        (!wait.is_zero()).then(|| now + wait)
    }

    /// Returns what is left at `now` of the [requests per minute](ProviderSpec::requests), if they are
    /// limited.
    #[must_use]
    pub fn requests_left(&self, now: Instant) -> Option<RateLeft> {
        rate_left(self.requests, self.spec.requests, self.time.peek(now))
    }

    /// Returns what is left at `now` of the [tokens per minute](ProviderSpec::tokens), if they are limited.
    #[must_use]
    pub fn tokens_left(&self, now: Instant) -> Option<RateLeft> {
        rate_left(self.tokens, self.spec.tokens, self.time.peek(now))
    }

    /// Returns the rate-limit headers of a response to a call that arrived at `now`: requests, then tokens.
    ///
    /// Each is `None` unless the provider has that rate and [states its rates](ProviderSpec::states_rates).
    #[must_use]
    pub fn stated_rates(&self, now: Instant) -> [Option<RateLimitFeedback>; 2] {
        if !self.spec.states_rates {
            return [None, None];
        }
        let requests = self.requests_left(now).map(|left| left.stated(Dimension::Requests));
        [requests, self.tokens_left(now).map(|left| left.stated(Dimension::TotalTokens))]
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { clock_regressions: self.time.regressions(), ..self.counters }
    }

    /// Returns the spec that the provider was created from.
    #[must_use]
    pub fn spec(&self) -> &ProviderSpec {
        &self.spec
    }

    /// Returns whether the capacity is [overridden](MockProvider::set_capacity).
    #[must_use]
    pub fn is_overridden(&self) -> bool {
        self.capacity_override.is_some()
    }

    /// Returns the end of the [burst of refusals](MockProvider::refuse_until) in force at `now`, if any.
    #[must_use]
    pub fn refusing_until(&self, now: Instant) -> Option<Instant> {
        Some(self.refuses_until).filter(|until| *until > self.time.peek(now))
    }

    /// Returns the end and the factor of the [slow phase](MockProvider::slow_down_until) in force at `now`,
    /// if any.
    #[must_use]
    pub fn slowed_until(&self, now: Instant) -> Option<(Instant, f64)> {
        Some((self.slow_until, self.slow_factor)).filter(|(until, _)| *until > self.time.peek(now))
    }

    // Mechanisms.

    /// Responds to a call that no outage or closure stops.
    fn serve(&mut self, now: Instant, tokens: u32, draws: Option<&mut Rng>) -> MockResponse {
        if now < self.refuses_until {
            return self.refuse(self.spec.overload.retry_after());
        }
        let slowdown = match self.spec.overload.decide(self.in_flight, self.level(now).slots) {
            SlotDecision::Serve { slowdown } if now < self.slow_until => slowdown * self.slow_factor,
            SlotDecision::Serve { slowdown } => slowdown,
            SlotDecision::Refuse { retry_after } => return self.refuse(retry_after),
        };
        if let SlotDecision::Refuse { retry_after } = self.rate_decision(now, tokens) {
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
                meter.charge(now, cost);
            }
        }
        if let Some(surge) = &self.spec.surge {
            self.surge_limit.admit(surge, now);
        }
        let latency = scaled(self.spec.latency.sample(draws.unwrap_or(&mut self.latencies)), slowdown);
        self.in_flight = self.in_flight.saturating_add(1);
        self.counters.accepted += 1;
        self.counters.corrupted += u64::from(flaw.is_some());
        match flaw {
            None => MockResponse::Accept { finish_at: now + latency },
            Some(flaw @ Flaw::Malformed) => MockResponse::Corrupt { flaw, at: now + latency },
            Some(flaw @ Flaw::Cut) => {
                MockResponse::Corrupt { flaw, at: now + Duration::from_nanos(latency.as_nanos() / 2) }
            }
        }
    }

    /// Draws the fault of a call that is about to be served. Draws supplied by the caller are forked, so that
    /// the latency of a call is the same with and without faults.
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

    /// Returns how long the request rate, the token rate and the surge limit each delay the call. All three
    /// only recover while no call arrives, so after the longest of the three waits none of them delays the
    /// call.
    fn waits(&self, now: Instant, tokens: u32) -> [Duration; 3] {
        let wait = |meter: &Option<Meter>, cost| meter.map_or(Duration::ZERO, |meter| meter.wait(now, cost));
        let surge = self.spec.surge.map_or(Duration::ZERO, |surge| self.surge_limit.wait(&surge, now));
        [wait(&self.requests, 1), wait(&self.tokens, tokens), surge]
    }

    /// Decides whether the rates and the surge limit let a call through. If both do not, the rates decide the
    /// Retry-After.
    fn rate_decision(&self, now: Instant, tokens: u32) -> SlotDecision {
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

    /// Returns the true capacity at `now`, and until when it stays the same.
    fn level(&self, now: Instant) -> Level {
        let (outage, outage_changes) = effect_at(&self.spec.outages, now);
        let (rejection, rejection_changes) = rejection_at(&self.spec.closures, now);
        let level = match (self.capacity_override, outage) {
            _ if rejection.is_some() => Level::forever(0),
            (Some(slots), OutageEffect::Up | OutageEffect::Recovering { .. }) => Level::forever(slots),
            _ => outage.applied_to(self.scheduled(now), now),
        };
        level.at_most_until(outage_changes).at_most_until(rejection_changes)
    }

    /// Returns the scheduled capacity, less the neighbour's share.
    fn scheduled(&self, now: Instant) -> Level {
        let level = self.spec.capacity.level(now, self.first_request);
        match &self.spec.neighbour {
            Some(neighbour) => neighbour.remainder_of(level, now, &self.neighbour),
            None => level,
        }
    }
}

fn rate_left(meter: Option<Meter>, rate: Option<Rate>, now: Instant) -> Option<RateLeft> {
    Some(meter?.left(rate?, now))
}
