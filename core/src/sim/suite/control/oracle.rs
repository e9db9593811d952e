//! The contender with foresight.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use super::case::Case;
use super::drive::Costs;
use super::figures::Run;
use crate::error::ConfigError;
use crate::sim::provider::{Answer, MockProvider};
use crate::time::{Duration, Instant};

/// Calls in a row that come to nothing for a fault of their own, after which it waits for the next change.
const MOST_FAULTS: u32 = 1_000;

/// What could be had from a case, by one who knows the provider's whole schedule, its rates and its faults: a call that would come to
/// nothing for a fault of its own costs it no time.
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
        let mut ends: BinaryHeap<Reverse<(Instant, Sent)>> = BinaryHeap::new();
        let end = Instant::ZERO + case.span;
        let mut now = Instant::ZERO;
        while now <= end {
            while let Some(Reverse((_, sent))) = ends.peek().filter(|Reverse((at, _))| *at <= now).copied() {
                ends.pop();
                provider.finish(now);
                if sent.is_answered {
                    run.answer(now, sent.latency, 0);
                }
            }
            let opens = send(&mut provider, now, case.cap, &mut costs, &mut |finish_at, is_answered| {
                run.sent += 1;
                ends.push(Reverse((finish_at, Sent { latency: finish_at - now, is_answered })));
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

/// A call that is out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sent {
    latency: Duration,
    is_answered: bool,
}

/// Sends what would be accepted; answers when a rate allows the next call, if that is what it waits for.
fn send(
    provider: &mut MockProvider,
    now: Instant,
    cap: u32,
    costs: &mut Costs,
    sent: &mut dyn FnMut(Instant, bool),
) -> Option<Instant> {
    let mut faults = 0;
    while provider.in_flight() < provider.capacity(now).min(cap) && faults < MOST_FAULTS {
        let tokens = costs.next();
        if let Some(at) = provider.opens_at(now, tokens) {
            return Some(at);
        }
        match provider.arrive(now, tokens) {
            Answer::Accept { finish_at } => sent(finish_at, true),
            Answer::Spoil { at, .. } => sent(at, false),
            Answer::Refuse { .. } | Answer::Fail { .. } | Answer::Hang { .. } => {
                faults += 1;
                continue;
            }
            Answer::Reject { .. } => break,
        }
        faults = 0;
        costs.accept();
    }
    None
}
