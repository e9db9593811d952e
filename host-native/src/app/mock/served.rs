//! One served model: a [`MockProvider`] on the host's clock, the slots that calls hold of it, and its figures.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use tidegate_core::sim::provider::{Counters, MockProvider, MockResponse, ProviderSpec, RateLeft, SpecError};
use tidegate_core::time::{Clock, Duration, Instant};

use crate::host::TokioHost;

/// A model at work.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) id: String,
    host: TokioHost,
    seed: u64,
    line: Mutex<Line>,
}

/// What changes.
#[derive(Debug)]
struct Line {
    machine: MockProvider,
    /// When the machine's time began: schedules count from there.
    origin: Instant,
    /// Counts the machines, so that a slot is given back to the one it is of.
    generation: u64,
    /// What earlier machines did.
    retired: Counters,
    most_in_flight: u32,
    answered: u64,
    answered_tokens: u64,
}

/// The figures of one model, as `/mock/stats` tells them.
///
/// `accepted = finished + in_flight`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ModelStats {
    /// What became of its calls.
    #[serde(flatten)]
    pub counters: Counters,
    /// Calls that hold a slot now.
    pub in_flight: u32,
    /// The most that ever did at once.
    pub most_in_flight: u32,
    /// Calls it can truly serve at once now.
    pub capacity: u32,
    /// Calls answered whole and well. What else finished was corrupted, or its client went away.
    pub answered: u64,
    /// Tokens of those answers.
    pub answered_tokens: u64,
}

/// What becomes of a call, in the host's time, and what its headers are to say.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) answer: MockResponse,
    /// Held by a call that is served.
    pub(super) slot: Option<Slot>,
    pub(super) requests: Option<RateLeft>,
    pub(super) tokens: Option<RateLeft>,
    /// Whether a refusal is for a rate, and not for want of a slot.
    pub(super) by_rate: bool,
}

impl Served {
    pub(super) fn new(id: &str, spec: &ProviderSpec, seed: u64, host: TokioHost) -> Result<Self, SpecError> {
        let line = Line {
            machine: MockProvider::new(spec, seed)?,
            origin: Instant::ZERO,
            generation: 0,
            retired: Counters::default(),
            most_in_flight: 0,
            answered: 0,
            answered_tokens: 0,
        };
        Ok(Self { id: id.to_string(), host, seed, line: Mutex::new(line) })
    }

    /// A call of `tokens` tokens arrives.
    pub(super) fn arrive(self: &Arc<Self>, tokens: u32) -> Arrival {
        // The clock is read under the lock, so that the machine sees time in order.
        let mut line = self.line.lock();
        let now = line.own(self.host.now());
        let refused_by_rate = line.machine.counters().refused_by_rate;
        let answer = line.machine.arrive(now, tokens);
        line.most_in_flight = line.most_in_flight.max(line.in_flight());
        let holds_slot = matches!(answer, MockResponse::Accept { .. } | MockResponse::Corrupt { .. });
        Arrival {
            answer: line.in_host_time(answer),
            slot: holds_slot.then(|| Slot { of: Arc::clone(self), generation: line.generation }),
            requests: line.machine.requests_left(now),
            tokens: line.machine.tokens_left(now),
            by_rate: line.machine.counters().refused_by_rate > refused_by_rate,
        }
    }

    /// From now on it serves so many calls at once; `None`: what its schedule says.
    pub(super) fn set_slots(&self, slots: Option<u32>) {
        let mut line = self.line.lock();
        let now = line.own(self.host.now());
        match slots {
            Some(slots) => line.machine.set_capacity(now, slots),
            None => line.machine.clear_override(now),
        }
    }

    /// Puts another provider in its place, whose time begins now. Calls in flight end as they were promised.
    pub(super) fn replace(&self, spec: &ProviderSpec) -> Result<(), SpecError> {
        let machine = MockProvider::new(spec, self.seed)?;
        let mut line = self.line.lock();
        line.retired = line.counters();
        line.machine = machine;
        line.generation += 1;
        line.origin = self.host.now();
        Ok(())
    }

    pub(super) fn stats(&self) -> ModelStats {
        let line = self.line.lock();
        ModelStats {
            counters: line.counters(),
            in_flight: line.in_flight(),
            most_in_flight: line.most_in_flight,
            capacity: line.machine.capacity(line.own(self.host.now())),
            answered: line.answered,
            answered_tokens: line.answered_tokens,
        }
    }

    pub(super) fn spec(&self) -> ProviderSpec {
        self.line.lock().machine.spec().clone()
    }
}

impl Line {
    /// The machine's time at the host's `now`.
    fn own(&self, now: Instant) -> Instant {
        Instant::ZERO + now.saturating_duration_since(self.origin)
    }

    fn in_host_time(&self, answer: MockResponse) -> MockResponse {
        let shifted = |at: Instant| self.origin + at.saturating_duration_since(Instant::ZERO);
        match answer {
            MockResponse::Accept { finish_at } => MockResponse::Accept { finish_at: shifted(finish_at) },
            MockResponse::Corrupt { flaw, at } => MockResponse::Corrupt { flaw, at: shifted(at) },
            MockResponse::Fail { status, at } => MockResponse::Fail { status, at: shifted(at) },
            MockResponse::Hang { until } => MockResponse::Hang { until: shifted(until) },
            MockResponse::Refuse { .. } | MockResponse::Reject { .. } => answer,
        }
    }

    fn counters(&self) -> Counters {
        let (past, own) = (self.retired, self.machine.counters());
        Counters {
            accepted: past.accepted + own.accepted,
            corrupted: past.corrupted + own.corrupted,
            refused: past.refused + own.refused,
            refused_by_rate: past.refused_by_rate + own.refused_by_rate,
            closed: past.closed + own.closed,
            failed: past.failed + own.failed,
            hung: past.hung + own.hung,
            finished: past.finished + own.finished,
            unmatched_finishes: past.unmatched_finishes + own.unmatched_finishes,
            clock_regressions: past.clock_regressions + own.clock_regressions,
        }
    }

    fn in_flight(&self) -> u32 {
        let of_the_past = self.retired.accepted.saturating_sub(self.retired.finished);
        self.machine.in_flight().saturating_add(u32::try_from(of_the_past).unwrap_or(u32::MAX))
    }
}

/// A slot of a provider; free again when dropped, also because the client hung up.
#[derive(Debug)]
pub(super) struct Slot {
    of: Arc<Served>,
    generation: u64,
}

impl Slot {
    /// The answer is whole: its tokens count, and the slot is free.
    pub(super) fn answered(self, tokens: u32) {
        let mut line = self.of.line.lock();
        line.answered += 1;
        line.answered_tokens += u64::from(tokens);
        // Giving the slot back takes the same lock.
        drop(line);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut line = self.of.line.lock();
        if line.generation == self.generation {
            let now = line.own(self.of.host.now());
            line.machine.finish(now);
        } else {
            line.retired.finished += 1;
        }
    }
}

/// How long from the host's `now` to `at`.
pub(super) fn span(host: &TokioHost, at: Instant) -> Duration {
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

    fn served(spec: &ProviderSpec) -> Arc<Served> {
        Arc::new(Served::new("m", spec, 1, TokioHost::current().unwrap()).unwrap())
    }

    fn figures(served: &Served) -> (u64, u64, u32) {
        let stats = served.stats();
        (stats.counters.accepted, stats.counters.finished, stats.in_flight)
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_outlive_their_provider_are_counted_and_hold_no_slot_of_the_next() {
        let served = served(&spec(2));
        let (first, second) = (served.arrive(1).slot, served.arrive(1).slot);
        assert!(first.is_some() && second.is_some() && served.arrive(1).slot.is_none());
        served.replace(&spec(1)).unwrap();
        assert_eq!(figures(&served), (2, 0, 2));
        let third = served.arrive(1).slot;
        assert!(third.is_some() && served.arrive(1).slot.is_none());
        drop((first, second));
        assert_eq!(figures(&served), (3, 2, 1));
        assert!(served.arrive(1).slot.is_none(), "the slots of the past are not those of the present");
        drop(third);
        assert_eq!(figures(&served), (3, 3, 0));
        assert_eq!(served.stats().counters.unmatched_finishes, 0);
        assert_eq!((served.stats().most_in_flight, served.stats().counters.refused), (3, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn the_schedule_of_another_provider_begins_when_it_takes_over() {
        let served = served(&spec(2));
        tokio::time::sleep(std::time::Duration::from_mins(1)).await;
        let outage = Outage::of_errors(Duration::from_secs(5), Duration::from_secs(5));
        served.replace(&ProviderSpec { outages: vec![outage], ..spec(2) }).unwrap();
        assert_eq!(served.stats().capacity, 2);
        let finish_at = Instant::ZERO + Duration::from_millis(60_100);
        assert_eq!(served.arrive(1).answer, MockResponse::Accept { finish_at });
        tokio::time::sleep(std::time::Duration::from_secs(6)).await;
        assert_eq!(served.stats().capacity, 0);
        assert!(matches!(served.arrive(1).answer, MockResponse::Fail { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn slots_are_set_and_given_back_to_the_schedule() {
        let served = served(&spec(2));
        served.set_slots(Some(0));
        assert!(served.arrive(1).slot.is_none());
        served.set_slots(None);
        assert!(served.arrive(1).slot.is_some());
    }
}
