//! A served model: a [`MockProvider`] on the host's clock, the slots that calls hold, and statistics.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use tidegate_core::sim::provider::{Counters, MockProvider, MockResponse, ProviderSpec, RateLeft, SpecError};
use tidegate_core::time::{Clock, Duration, Instant};

use crate::host::TokioHost;

/// A served model.
#[derive(Debug)]
pub(super) struct ServedModel {
    pub(super) id: String,
    host: TokioHost,
    seed: u64,
    state: Mutex<ModelState>,
}

/// The mutable state of a model.
#[derive(Debug)]
struct ModelState {
    provider: MockProvider,
    /// The host's time at which the provider's schedules start.
    origin: Instant,
    /// The number of replacements, so that a slot is returned only to the provider that granted it.
    generation: u64,
    /// The counters of replaced providers.
    replaced: Counters,
    most_in_flight: u32,
    answered: u64,
    answered_tokens: u64,
}

/// The statistics of a model, as returned by `/mock/stats`.
///
/// Invariant: `accepted = finished + in_flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ModelStats {
    /// The outcomes of its calls.
    #[serde(flatten)]
    pub counters: Counters,
    /// Calls that hold a slot now.
    pub in_flight: u32,
    /// The most calls that held a slot at once.
    pub most_in_flight: u32,
    /// Calls that it can serve at once now.
    pub capacity: u32,
    /// Calls with a complete, correct answer. Other finished calls were corrupted, or abandoned by their
    /// client.
    pub answered: u64,
    /// Tokens of those answers.
    pub answered_tokens: u64,
}

/// The provider's decision about a call, in the host's time, with the data of its headers.
#[derive(Debug)]
pub(super) struct CallDecision {
    pub(super) response: MockResponse,
    /// Present if the call is served, whole or corrupted.
    pub(super) slot: Option<Slot>,
    /// What is left of the rate of requests, if the provider has one.
    pub(super) requests_left: Option<RateLeft>,
    /// What is left of the rate of tokens, if the provider has one.
    pub(super) tokens_left: Option<RateLeft>,
    /// Whether a refusal is due to a rate rather than a lack of slots.
    pub(super) is_rate_limited: bool,
}

impl ServedModel {
    /// Creates a model whose provider's schedules start at the start of `host`'s clock.
    pub(super) fn new(id: &str, spec: &ProviderSpec, seed: u64, host: TokioHost) -> Result<Self, SpecError> {
        let state = ModelState {
            provider: MockProvider::new(spec, seed)?,
            origin: Instant::ZERO,
            generation: 0,
            replaced: Counters::default(),
            most_in_flight: 0,
            answered: 0,
            answered_tokens: 0,
        };
        Ok(Self { id: id.to_string(), host, seed, state: Mutex::new(state) })
    }

    /// Decides about a call of `tokens` tokens that arrives now.
    pub(super) fn arrive(self: &Arc<Self>, tokens: u32) -> CallDecision {
        // The clock is read under the lock, so that the provider never sees time go back.
        let mut state = self.state.lock();
        let now = state.provider_time(self.host.now());
        let refused_by_rate = state.provider.counters().refused_by_rate;
        let response = state.provider.arrive(now, tokens);
        state.most_in_flight = state.most_in_flight.max(state.in_flight());
        let holds_slot = matches!(response, MockResponse::Accept { .. } | MockResponse::Corrupt { .. });
        CallDecision {
            response: state.with_host_time(response),
            slot: holds_slot.then(|| Slot { model: Arc::clone(self), generation: state.generation }),
            requests_left: state.provider.requests_left(now),
            tokens_left: state.provider.tokens_left(now),
            is_rate_limited: state.provider.counters().refused_by_rate > refused_by_rate,
        }
    }

    /// Sets the number of calls that are served at once; `None` follows the provider's schedule again.
    pub(super) fn override_slots(&self, slots: Option<u32>) {
        let mut state = self.state.lock();
        let now = state.provider_time(self.host.now());
        match slots {
            Some(slots) => state.provider.set_capacity(now, slots),
            None => state.provider.clear_override(now),
        }
    }

    /// Replaces the provider by one whose schedules start now. Calls in flight end as decided before.
    pub(super) fn replace(&self, spec: &ProviderSpec) -> Result<(), SpecError> {
        let provider = MockProvider::new(spec, self.seed)?;
        let mut state = self.state.lock();
        state.replaced = state.counters();
        state.provider = provider;
        state.generation += 1;
        state.origin = self.host.now();
        Ok(())
    }

    pub(super) fn stats(&self) -> ModelStats {
        let state = self.state.lock();
        ModelStats {
            counters: state.counters(),
            in_flight: state.in_flight(),
            most_in_flight: state.most_in_flight,
            capacity: state.provider.capacity(state.provider_time(self.host.now())),
            answered: state.answered,
            answered_tokens: state.answered_tokens,
        }
    }

    pub(super) fn spec(&self) -> ProviderSpec {
        self.state.lock().provider.spec().clone()
    }
}

impl ModelState {
    /// Converts the host's time to the provider's.
    fn provider_time(&self, now: Instant) -> Instant {
        Instant::ZERO + now.saturating_duration_since(self.origin)
    }

    /// Converts the times in a response from the provider's to the host's.
    fn with_host_time(&self, response: MockResponse) -> MockResponse {
        let shifted = |at: Instant| self.origin + at.saturating_duration_since(Instant::ZERO);
        match response {
            MockResponse::Accept { finish_at } => MockResponse::Accept { finish_at: shifted(finish_at) },
            MockResponse::Corrupt { flaw, at } => MockResponse::Corrupt { flaw, at: shifted(at) },
            MockResponse::Fail { status, at } => MockResponse::Fail { status, at: shifted(at) },
            MockResponse::Hang { until } => MockResponse::Hang { until: shifted(until) },
            MockResponse::Refuse { .. } | MockResponse::Reject { .. } => response,
        }
    }

    fn counters(&self) -> Counters {
        let (replaced, current) = (self.replaced, self.provider.counters());
        Counters {
            accepted: replaced.accepted + current.accepted,
            corrupted: replaced.corrupted + current.corrupted,
            refused: replaced.refused + current.refused,
            refused_by_rate: replaced.refused_by_rate + current.refused_by_rate,
            closed: replaced.closed + current.closed,
            failed: replaced.failed + current.failed,
            hung: replaced.hung + current.hung,
            finished: replaced.finished + current.finished,
            unmatched_finishes: replaced.unmatched_finishes + current.unmatched_finishes,
            clock_regressions: replaced.clock_regressions + current.clock_regressions,
        }
    }

    fn in_flight(&self) -> u32 {
        let outlived = self.replaced.accepted.saturating_sub(self.replaced.finished);
        self.provider.in_flight().saturating_add(u32::try_from(outlived).unwrap_or(u32::MAX))
    }
}

/// A slot of a provider. It is released on drop, which also happens when the client disconnects.
#[derive(Debug)]
pub(super) struct Slot {
    model: Arc<ServedModel>,
    generation: u64,
}

impl Slot {
    /// Counts a complete answer with its tokens, and releases the slot.
    pub(super) fn answered(self, tokens: u32) {
        let mut state = self.model.state.lock();
        state.answered += 1;
        state.answered_tokens += u64::from(tokens);
        // Dropping `self` takes the same lock.
        drop(state);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.model.state.lock();
        if state.generation == self.generation {
            let now = state.provider_time(self.model.host.now());
            state.provider.finish(now);
        } else {
            state.replaced.finished += 1;
        }
    }
}

/// Returns the duration from now to `at`; zero if `at` has passed.
pub(super) fn time_until(host: &TokioHost, at: Instant) -> Duration {
    at.saturating_duration_since(host.now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::sim::latency::Latency;
    use tidegate_core::sim::provider::{Capacity, Outage};

    fn spec(slots: u32) -> ProviderSpec {
        let latency = Latency::Constant { latency: Duration::from_millis(100) };
        ProviderSpec { capacity: Capacity::Constant { slots }, latency, ..ProviderSpec::default() }
    }

    fn served(spec: &ProviderSpec) -> Arc<ServedModel> {
        Arc::new(ServedModel::new("m", spec, 1, TokioHost::current().unwrap()).unwrap())
    }

    fn figures(served: &ServedModel) -> (u64, u64, u32) {
        let stats = served.stats();
        (stats.counters.accepted, stats.counters.finished, stats.in_flight)
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_outlive_their_provider_are_counted_and_hold_no_slot_of_its_replacement() {
        let served = served(&spec(2));
        let (first, second) = (served.arrive(1).slot, served.arrive(1).slot);
        assert!(first.is_some() && second.is_some() && served.arrive(1).slot.is_none());
        served.replace(&spec(1)).unwrap();
        assert_eq!(figures(&served), (2, 0, 2));
        let third = served.arrive(1).slot;
        assert!(third.is_some() && served.arrive(1).slot.is_none());
        drop((first, second));
        assert_eq!(figures(&served), (3, 2, 1));
        assert!(served.arrive(1).slot.is_none(), "slots of a replaced provider do not free slots of the current one");
        drop(third);
        assert_eq!(figures(&served), (3, 3, 0));
        assert_eq!(served.stats().counters.unmatched_finishes, 0);
        assert_eq!((served.stats().most_in_flight, served.stats().counters.refused), (3, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn the_schedule_of_a_replacement_starts_when_it_replaces() {
        let served = served(&spec(2));
        tokio::time::sleep(std::time::Duration::from_mins(1)).await;
        let outage = Outage::of_errors(Duration::from_secs(5), Duration::from_secs(5));
        served.replace(&ProviderSpec { outages: vec![outage], ..spec(2) }).unwrap();
        assert_eq!(served.stats().capacity, 2);
        let finish_at = Instant::ZERO + Duration::from_millis(60_100);
        assert_eq!(served.arrive(1).response, MockResponse::Accept { finish_at });
        tokio::time::sleep(std::time::Duration::from_secs(6)).await;
        assert_eq!(served.stats().capacity, 0);
        assert!(matches!(served.arrive(1).response, MockResponse::Fail { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn an_override_of_slots_is_set_and_removed() {
        let served = served(&spec(2));
        served.override_slots(Some(0));
        assert!(served.arrive(1).slot.is_none());
        served.override_slots(None);
        assert!(served.arrive(1).slot.is_some());
    }
}
