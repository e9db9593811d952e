//! The oracle: the reference that knows the provider's schedule.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use super::case::ControlCase;
use super::drive::{Costs, call_timeout};
use super::figures::{Run, Score};
use crate::error::ConfigError;
use crate::sim::provider::{MockProvider, MockResponse};
use crate::time::{Duration, Instant};

/// The number of consecutive calls refused at any load after which the oracle waits for the next event.
const MAX_REFUSED: u32 = 1_000;

/// The calls in flight at the start of a client that has to climb, and the time in which it doubles them. A
/// client that has not been refused yet takes silence for acceptance, and refusals of real providers take up
/// to about that long.
const CLIMB: (u32, Duration) = (10, Duration::from_millis(250));

/// The run of a client that knows the provider's whole schedule and its rates.
///
/// It is the reference for goodput. The oracle does not know the faults of single calls in advance. A call
/// that fails or hangs takes no slot of the provider, but it counts against the cap until it fails or times
/// out.
#[derive(Clone, Debug)]
pub struct Oracle {
    seed: u64,
    run: Run,
}

impl Oracle {
    /// Runs the oracle on a case. Returns an error if the provider's spec is invalid.
    pub fn of(case: &ControlCase, seed: u64) -> Result<Self, ConfigError> {
        Self::run_within(case, seed, |_| (case.cap, None))
    }

    /// Runs a client that knows all that the oracle knows, but has to climb: it starts with ten calls in
    /// flight and doubles them each 250 ms.
    ///
    /// No client reaches the capacity sooner that starts with ten calls and waits 250 ms for a refusal before
    /// it doubles them.
    pub fn climbing(case: &ControlCase, seed: u64) -> Result<Self, ConfigError> {
        let (first, step) = CLIMB;
        Self::run_within(case, seed, |now| {
            let steps = now.as_nanos() / step.as_nanos();
            let limit = u64::from(first) << steps.min(32);
            let next = Instant::ZERO + Duration::from_nanos((steps + 1) * step.as_nanos());
            (limit.min(u64::from(case.cap)) as u32, (limit < u64::from(case.cap)).then_some(next))
        })
    }

    /// Runs a client that never has more calls in flight than `limit` allows. `limit` returns the limit, and
    /// when it next changes.
    fn run_within(
        case: &ControlCase,
        seed: u64,
        limit: impl Fn(Instant) -> (u32, Option<Instant>),
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
            let (limit, grows) = limit(now);
            let opens = send(&mut provider, now, limit as usize, call_timeout(case), &mut costs, &mut ends);
            let next_end = ends.peek().map(|Reverse((at, _))| *at);
            match [next_end, provider.next_change(now), opens, grows].into_iter().flatten().min() {
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

    /// Compares this run with the one of the oracle of the same case.
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
    latency: Duration,
    holds_slot: bool,
    is_answered: bool,
}

/// Sends all calls that the provider accepts at `now`. If a rate delays the next call, returns when the rate
/// lets it through.
fn send(
    provider: &mut MockProvider,
    now: Instant,
    cap: usize,
    timeout: Duration,
    costs: &mut Costs,
    ends: &mut BinaryHeap<Reverse<(Instant, Sent)>>,
) -> Option<Instant> {
    let mut refused = 0;
    while provider.in_flight() < provider.capacity(now) && ends.len() < cap && refused < MAX_REFUSED {
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
