//! What is read off a run.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::case::Case;
use super::series::Series;
use crate::time::{Duration, Instant};

/// The least time in which goodput is compared with the oracle's.
const LEAST_WINDOW: Duration = Duration::from_secs(1);
/// The least answers of the oracle with which goodput is compared: with fewer, one call more or less decides.
const ENOUGH: u64 = 10;
/// When nine tenths of the oracle's goodput are due: the later of a time and so many durations of a call.
/// After the start where nothing moves.
const START_GOAL: (Duration, usize) = (Duration::from_secs(2), 3);
/// The same after a step.
const STEP_GOAL: (Duration, usize) = (Duration::from_secs(5), 5);

/// When a call went out and when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTimes {
    /// When it went out.
    pub sent: Instant,
    /// When it ended, which may be after the run.
    pub ended: Instant,
    /// Whether it was refused with a 429.
    pub is_refused: bool,
}

/// What happened in one run.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) sent: u64,
    pub(super) refused: u64,
    /// The part of them that a rate caused.
    pub(super) refused_by_rate: u64,
    pub(super) failed: u64,
    /// Answers by tenant.
    pub(super) by_tenant: [u64; 2],
    /// Answers and refusals by tick.
    pub(super) ticks: Series,
    latencies: Vec<u64>,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            sent: 0,
            refused: 0,
            failed: 0,
            refused_by_rate: 0,
            by_tenant: [0; 2],
            ticks: Series::new(),
            latencies: Vec::new(),
        }
    }
}

impl Run {
    pub(super) fn answer(&mut self, now: Instant, latency: Duration, tenant: usize) {
        self.ticks.answer(now);
        self.by_tenant[tenant % 2] += 1;
        self.latencies.push(latency.as_nanos());
    }

    pub(super) fn refuse(&mut self, now: Instant) {
        self.ticks.refuse(now);
        self.refused += 1;
    }

    pub(super) fn answered(&self) -> u64 {
        self.by_tenant.iter().sum()
    }

    fn p95(&self) -> u64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() * 95 / 100).copied().unwrap_or(0)
    }

    /// How many ticks after `event` the goodput is nine tenths of the oracle's for the first time.
    ///
    /// Time since the event is cut into windows of one call's duration, a second at least: sooner, the oracle
    /// has no answers either. A window counts if from its start on nine tenths of the oracle's answers come,
    /// in the window itself or, where the oracle has fewer than [`ENOUGH`] in it, in as many windows as those
    /// take. The figure is the end of that window.
    fn reached(&self, case: &Case, oracle: &Self, event: Duration) -> Option<usize> {
        let (first, end, window) = (Series::ticks(event), Series::ticks(case.span), window(case));
        let is_reached = |from: usize| {
            let mut until = from + window;
            while oracle.ticks.answered_in(from, until) < ENOUGH && until + window <= end {
                until += window;
            }
            let least = oracle.ticks.answered_in(from, until) * 9;
            least > 0 && self.ticks.answered_in(from, until) * 10 >= least
        };
        let mut windows = (1..).map(|nth| nth * window).take_while(|ticks| first + ticks <= end);
        windows.find(|ticks| is_reached(first + ticks - window))
    }

    /// Whether nine tenths of the oracle's goodput came in time: after the start where nothing moves, and
    /// after each step that lasts. `None` where the case has neither.
    fn is_in_time(&self, case: &Case, oracle: &Self) -> Option<bool> {
        let is_met = |event: Duration, goal: usize| self.reached(case, oracle, event).is_some_and(|at| at <= goal);
        if case.is_stationary {
            return Some(is_met(Duration::ZERO, due(case, START_GOAL)));
        }
        let goal = due(case, STEP_GOAL);
        let steps: Vec<Duration> = case.steps().collect();
        let ends = steps.iter().skip(1).copied().chain([case.span]);
        let lasting = steps.iter().zip(ends).filter(|(at, end)| Series::ticks(**at) + goal <= Series::ticks(*end));
        lasting.map(|(at, _)| is_met(*at, goal)).reduce(|all, one| all && one)
    }
}

/// The ticks of a window in which goodput is compared.
fn window(case: &Case) -> usize {
    Series::ticks(case.median().max(LEAST_WINDOW))
}

/// The ticks after which a goal is due.
fn due(case: &Case, (time, durations): (Duration, usize)) -> usize {
    Series::ticks(time).max(durations * Series::ticks(case.median()))
}

fn millis(ticks: usize) -> u64 {
    ticks as u64 * (Series::TICK.as_nanos() / 1_000_000)
}

/// The short form of [`Figures`], from one run: for many cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Score {
    /// Answers, in permille of the oracle's.
    pub goodput_permille: u64,
    /// Refusals, in permille of the calls sent.
    pub refused_permille: u64,
    /// Whether nine tenths of the oracle's goodput came in time: where nothing moves, within the later of 2 s
    /// and three durations of a call from the start; where capacity makes steps, within the later of 5 s and
    /// five durations from each that lasts so long. `None` elsewhere.
    pub is_in_time: Option<bool>,
}

impl Score {
    pub(super) fn of(case: &Case, run: &Run, oracle: &Run) -> Self {
        Self {
            goodput_permille: permille(run.answered(), oracle.answered()),
            refused_permille: permille(run.refused, run.sent),
            is_in_time: run.is_in_time(case, oracle),
        }
    }
}

/// How a contender did on a case. See the [module](super) for what each figure says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
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
        let reached = |event: Duration| alone.reached(case, oracle, event).map(millis);
        let steps: Option<Vec<u64>> = case.steps().map(reached).collect();
        let [one, other] = shared.by_tenant;
        let (sum, squares) = (one + other, one * one + other * other);
        Self {
            goodput_permille: permille(alone.answered(), oracle.answered()),
            refused_permille: permille(alone.refused, alone.sent),
            failed_permille: permille(alone.failed, alone.sent),
            start_ms: reached(Duration::ZERO),
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
