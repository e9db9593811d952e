//! The oracle: the reference that knows the provider's schedule. It calls the mock provider directly, without
//! request admission and without a limit algorithm.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use super::case::ControlCase;
use super::drive::{Costs, call_timeout};
use super::figures::{Run, Score};
use crate::error::ConfigError;
use crate::sim::provider::{MockProvider, MockResponse};
use crate::time::{Duration, Instant};

/// The number of consecutive refusals after which the oracle waits for the next event. Only a provider that
/// refuses a share of all calls at any load refuses the oracle, which then tries again at once. The bound
/// ends the loop if the share is 1.
const MAX_REFUSED: u32 = 1_000;

/// The calls in flight at the start of a client that has to climb, and the time in which it doubles them. A
/// client can double them only when a refusal would have arrived, and refusals of real providers take up to
/// about that long.
const CLIMB: (u32, Duration) = (10, Duration::from_millis(250));

/// The run of a client that knows the provider's whole schedule and its rates.
///
/// It is the reference for goodput. It sends each call as soon as a slot is free. It never holds more slots
/// than the capacity, and never has more calls in flight than the cap of the case. The oracle does not know
/// the faults of single calls in advance. A call that fails or hangs takes no slot of the provider, but it
/// counts against the cap until it fails or times out.
#[derive(Clone, Debug)]
pub struct Oracle {
    seed: u64,
    run: Run,
}

impl Oracle {
    /// Runs the oracle on a case. Returns an error if the provider's spec is invalid. Costs O(log(calls in
    /// flight)) for each call.
    pub fn of(case: &ControlCase, seed: u64) -> Result<Self, ConfigError> {
        Self::run_within(case, seed, |_| (case.cap, None))
    }

    /// Runs a client that knows all that the oracle knows, but has to climb: it starts with ten calls in
    /// flight and doubles them each 250 ms.
    ///
    /// It is the bound for a client that starts with ten calls and waits 250 ms for refusals before it
    /// doubles them: no such client reaches the capacity sooner. Returns an error if the provider's spec is
    /// invalid.
    pub fn climbing(case: &ControlCase, seed: u64) -> Result<Self, ConfigError> {
        let (first, step) = CLIMB;
        Self::run_within(case, seed, |now| {
            let steps = now.as_nanos() / step.as_nanos();
            let limit = u64::from(first) << steps.min(32);
            let next = Instant::ZERO + Duration::from_nanos((steps + 1) * step.as_nanos());
            (limit.min(u64::from(case.cap)) as u32, (limit < u64::from(case.cap)).then_some(next))
        })
    }

    /// Runs a client that never has more calls in flight than `limit_at` allows. `limit_at` returns the limit
    /// at an instant, and when it next changes.
    fn run_within(
        case: &ControlCase,
        seed: u64,
        limit_at: impl Fn(Instant) -> (u32, Option<Instant>),
    ) -> Result<Self, ConfigError> {
        let mut provider = MockProvider::new(&case.provider, seed)?;
        let mut costs = Costs::new(case, seed);
        let mut run = Run::default();
        let mut ends: BinaryHeap<Reverse<(Instant, Sent)>> = BinaryHeap::new();
        let end = Instant::ZERO + case.span;
        let mut now = Instant::ZERO;
        while now <= end {
            while let Some(Reverse((_, sent))) = ends.peek().filter(|Reverse((at, _))| *at <= now).copied() {
                ends.pop();
                if sent.holds_slot {
                    provider.finish(now);
                }
                if sent.is_answered {
                    run.answer(now, sent.latency, 0);
                }
            }
            let (limit, limit_changes) = limit_at(now);
            let rate_opens = send(&mut provider, now, limit as usize, call_timeout(case), &mut costs, &mut ends);
            let next_end = ends.peek().map(|Reverse((at, _))| *at);
            match [next_end, provider.next_change(now), rate_opens, limit_changes].into_iter().flatten().min() {
                Some(next) => now = next,
                None => break,
            }
        }
        Ok(Self { seed, run })
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn run(&self) -> &Run {
        &self.run
    }

    /// Compares this run, which may be a [climbing](Oracle::climbing) one, with that of the oracle of the
    /// same case and seed.
    #[must_use]
    pub fn score(&self, case: &ControlCase, oracle: &Self) -> Score {
        Score::of(case, &self.run, &oracle.run)
    }

    /// Returns the number of answered calls.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.run.answered()
    }
}

/// A call in flight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sent {
    /// The time from its start to its end.
    latency: Duration,
    /// Whether it holds a slot of the provider until its end.
    holds_slot: bool,
    /// Whether its end is a usable answer.
    is_answered: bool,
}

/// Sends all calls that the provider accepts at `now`, up to `limit` calls in flight. If a rate delays the
/// next call, returns when the rate lets it through.
fn send(
    provider: &mut MockProvider,
    now: Instant,
    limit: usize,
    timeout: Duration,
    costs: &mut Costs,
    ends: &mut BinaryHeap<Reverse<(Instant, Sent)>>,
) -> Option<Instant> {
    let mut refused = 0;
    while provider.in_flight() < provider.capacity(now) && ends.len() < limit && refused < MAX_REFUSED {
        let tokens = costs.next();
        if let Some(at) = provider.opens_at(now, tokens) {
            return Some(at);
        }
        let (end, holds_slot, is_answered) = match provider.arrive(now, tokens) {
            MockResponse::Accept { finish_at } => (finish_at, true, true),
            MockResponse::Corrupt { at, .. } => (at, true, false),
            MockResponse::Fail { at, .. } => (at, false, false),
            MockResponse::Hang { until } => (until.min(now + timeout), false, false),
            MockResponse::Refuse { .. } => {
                refused += 1;
                continue;
            }
            // A closure rejects every other call at this instant as well.
            MockResponse::Reject { .. } => break,
        };
        refused = 0;
        ends.push(Reverse((end, Sent { latency: end - now, holds_slot, is_answered })));
        if holds_slot {
            costs.accept();
        }
    }
    None
}
