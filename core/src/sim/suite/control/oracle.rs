//! The contender with foresight.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use super::case::Case;
use super::drive::Costs;
use super::figures::Run;
use crate::error::ConfigError;
use crate::sim::provider::{Answer, MockProvider};
use crate::time::{Duration, Instant};

/// What could be had from a case, by one who knows the provider's whole schedule.
#[derive(Clone, Debug)]
pub struct Oracle {
    seed: u64,
    run: Run,
}

impl Oracle {
    /// Runs it.
    pub fn of(case: &Case, seed: u64) -> Result<Self, ConfigError> {
        let mut provider = MockProvider::new(&case.provider, seed)?;
        let mut costs = Costs::new(case, seed);
        let mut run = Run::default();
        let mut ends: BinaryHeap<Reverse<(Instant, Duration)>> = BinaryHeap::new();
        let end = Instant::ZERO + case.span;
        let mut now = Instant::ZERO;
        while now <= end {
            while let Some(Reverse((_, latency))) = ends.peek().filter(|Reverse((at, _))| *at <= now).copied() {
                ends.pop();
                provider.finish(now);
                run.answer(now, latency, 0);
            }
            let opens = send(&mut provider, now, case.cap, &mut costs, &mut |finish_at| {
                run.sent += 1;
                ends.push(Reverse((finish_at, finish_at - now)));
            });
            let next_end = ends.peek().map(|Reverse((at, _))| *at);
            match [next_end, provider.next_change(now), opens].into_iter().flatten().min() {
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

    /// Answers, in calls.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.run.answered()
    }
}

/// Sends what would be accepted; answers when a rate allows the next call, if that is what it waits for.
fn send(
    provider: &mut MockProvider,
    now: Instant,
    cap: u32,
    costs: &mut Costs,
    sent: &mut dyn FnMut(Instant),
) -> Option<Instant> {
    while provider.in_flight() < provider.capacity(now).min(cap) {
        match provider.clone().arrive(now, costs.next()) {
            Answer::Accept { finish_at: at } | Answer::Spoil { at, .. } => {
                let _ = provider.arrive(now, costs.next());
                costs.accept();
                sent(at);
            }
            Answer::Refuse { retry_after, .. } => return retry_after.map(|wait| now + wait),
            Answer::Reject { .. } | Answer::Fail { .. } | Answer::Hang { .. } => break,
        }
    }
    None
}
