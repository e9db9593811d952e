//! What is read off a run.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::case::Case;
use crate::time::{Duration, Instant};

/// A second, in which answers are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// What happened in one run.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    pub(super) sent: u64,
    pub(super) refused: u64,
    /// The part of them that a rate caused.
    pub(super) refused_by_rate: u64,
    pub(super) failed: u64,
    /// Answers by tenant.
    pub(super) by_tenant: [u64; 2],
    /// Answers by window.
    windows: Vec<u64>,
    latencies: Vec<u64>,
}

impl Run {
    pub(super) fn answer(&mut self, now: Instant, latency: Duration, tenant: usize) {
        let window = (now.as_nanos() / WINDOW.as_nanos()) as usize;
        if self.windows.len() <= window {
            self.windows.resize(window + 1, 0);
        }
        self.windows[window] += 1;
        self.by_tenant[tenant % 2] += 1;
        self.latencies.push(latency.as_nanos());
    }

    pub(super) fn answered(&self) -> u64 {
        self.by_tenant.iter().sum()
    }

    fn p95(&self) -> u64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() * 95 / 100).copied().unwrap_or(0)
    }

    /// How long after `event` a whole window has brought nine tenths of the answers of `oracle`.
    fn reached(&self, oracle: &Self, event: Duration) -> Option<u64> {
        let first = event.as_nanos().div_ceil(WINDOW.as_nanos()) as usize;
        let windows = oracle.windows.len().min(self.windows.len());
        let found =
            (first..windows).find(|&at| oracle.windows[at] > 0 && self.windows[at] * 10 >= oracle.windows[at] * 9)?;
        Some(((found + 1) as u64 * WINDOW.as_nanos() - event.as_nanos()) / 1_000_000)
    }
}

/// How a contender did on a case. See the [module](super) for what each figure says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Answers, in permille of the oracle's.
    pub goodput_permille: u64,
    /// Refusals, in permille of the calls sent.
    pub refused_permille: u64,
    /// Failures, in permille of the calls sent.
    pub failed_permille: u64,
    /// From the start to nine tenths of the oracle's goodput; `None`: never.
    pub start_ms: Option<u64>,
    /// From the worst step to nine tenths of it; `None`: never, or there is no step.
    pub step_ms: Option<u64>,
    /// The 95th percentile of latencies, in permille of the oracle's.
    pub p95_permille: u64,
    /// Jain's index of two tenants, in permille.
    pub jain_permille: u64,
}

impl Figures {
    pub(super) fn of(case: &Case, alone: &Run, shared: &Run, oracle: &Run) -> Self {
        let steps: Option<Vec<u64>> = case.steps().map(|at| alone.reached(oracle, at)).collect();
        let [one, other] = shared.by_tenant;
        let (sum, squares) = (one + other, one * one + other * other);
        Self {
            goodput_permille: permille(alone.answered(), oracle.answered()),
            refused_permille: permille(alone.refused, alone.sent),
            failed_permille: permille(alone.failed, alone.sent),
            start_ms: alone.reached(oracle, Duration::ZERO),
            step_ms: steps.and_then(|steps| steps.into_iter().max()),
            p95_permille: permille(alone.p95(), oracle.p95()),
            jain_permille: permille(sum * sum, 2 * squares),
        }
    }
}

/// `part / whole` in permille, to the nearest.
pub(super) fn permille(part: u64, whole: u64) -> u64 {
    (part * 1_000 + whole / 2).checked_div(whole).unwrap_or(0)
}
