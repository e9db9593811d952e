//! The figures of a run. The [parent module](super) defines them.
//!
//! Answers and refusals are counted per *tick* ([`Series::TICK`]). Goodput is compared with the oracle's in
//! *windows* of several ticks.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::case::ControlCase;
use super::series::Series;
use crate::time::{Duration, Instant};

/// The shortest window in which goodput is compared with the oracle's.
const MIN_WINDOW: Duration = Duration::from_secs(1);
/// The lowest number of oracle answers with which goodput is compared. With fewer, a single call would
/// decide.
const MIN_ANSWERS: u64 = 10;
/// How long after the start of a stationary case nine tenths of the oracle's goodput are due: the longer of a
/// time and a number of median latencies.
const START_GOAL: (Duration, usize) = (Duration::from_secs(2), 3);
/// How long after a step nine tenths are due, as in [`START_GOAL`].
const STEP_GOAL: (Duration, usize) = (Duration::from_secs(5), 5);

/// The start and the end of a call, in the virtual time of the run, which starts at [`Instant::ZERO`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTimes {
    /// When the call was sent.
    pub sent: Instant,
    /// When the call ended, which may be after the end of the run.
    pub ended: Instant,
    /// Whether the call was refused with a 429.
    pub is_refused: bool,
}

/// The counts of one run.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) sent: u64,
    pub(super) refused: u64,
    /// The part of `refused` that a rate or the surge limit caused.
    pub(super) refused_by_rate: u64,
    pub(super) failed: u64,
    /// The number of answers per tenant. A run with one tenant has them all in the first place.
    pub(super) by_tenant: [u64; 2],
    /// The answers and refusals per tick.
    pub(super) ticks: Series,
    /// The latencies of answered calls in nanoseconds.
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

    /// Returns the 95th percentile of the latencies in nanoseconds, or 0 if no call was answered.
    fn p95(&self) -> u64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() * 95 / 100).copied().unwrap_or(0)
    }

    /// Returns after how many ticks from `event` the goodput first reaches nine tenths of the oracle's, or
    /// `None` if it never does.
    ///
    /// The time since the event is divided into windows of the median latency, but at least a second: after
    /// less than one latency, the oracle has no answers to compare with. In each window, the answers of the
    /// run are compared with those of the oracle. If the oracle has fewer than [`MIN_ANSWERS`] answers in the
    /// window, the following windows are added to the comparison until it has that many. The result is the
    /// end of the first window that reaches nine tenths, without the added ones.
    fn reached(&self, case: &ControlCase, oracle: &Self, event: Duration) -> Option<usize> {
        let (first, end, window) = (Series::ticks(event), Series::ticks(case.span), window(case));
        let is_reached = |from: usize| {
            let mut until = from + window;
            while oracle.ticks.answered_in(from, until) < MIN_ANSWERS && until + window <= end {
                until += window;
            }
            let least = oracle.ticks.answered_in(from, until) * 9;
            least > 0 && self.ticks.answered_in(from, until) * 10 >= least
        };
        let mut windows = (1..).map(|nth| nth * window).take_while(|ticks| first + ticks <= end);
        windows.find(|ticks| is_reached(first + ticks - window))
    }

    /// Returns whether the goodput reached nine tenths of the oracle's in time. A stationary case is checked
    /// from its start, any other case from each step that lasts until the goal is due. Returns `None` if
    /// there is no such step.
    fn is_in_time(&self, case: &ControlCase, oracle: &Self) -> Option<bool> {
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

/// Returns the number of ticks in a window in which goodput is compared.
fn window(case: &ControlCase) -> usize {
    Series::ticks(case.median().max(MIN_WINDOW))
}

/// Returns the number of ticks after which a goal is due.
fn due(case: &ControlCase, (time, medians): (Duration, usize)) -> usize {
    Series::ticks(time).max(medians * Series::ticks(case.median()))
}

fn millis(ticks: usize) -> u64 {
    ticks as u64 * (Series::TICK.as_nanos() / 1_000_000)
}

/// The short form of [`Figures`], from a single run with one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Score {
    /// The number of answers, in permille of the oracle's. It can exceed 1000.
    pub goodput_permille: u64,
    /// The number of refusals, in permille of the calls sent, 0 to 1000.
    pub refused_permille: u64,
    /// Whether the goodput reached nine tenths of the oracle's in time.
    ///
    /// For a stationary provider, this means within 2 s or three median latencies of the start, whichever is
    /// later. For a provider whose capacity changes in steps, it means within 5 s or five median latencies of
    /// each step, whichever is later. Steps that do not last that long are ignored. `None` if there is no
    /// such goal.
    pub is_in_time: Option<bool>,
}

impl Score {
    pub(super) fn of(case: &ControlCase, run: &Run, oracle: &Run) -> Self {
        Self {
            goodput_permille: permille(run.answered(), oracle.answered()),
            refused_permille: permille(run.refused, run.sent),
            is_in_time: run.is_in_time(case, oracle),
        }
    }
}

/// The results of a contender on a case. The [module documentation](super) explains each figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Figures {
    /// The number of answers, in permille of the oracle's. It can exceed 1000.
    pub goodput_permille: u64,
    /// The number of refusals, in permille of the calls sent, 0 to 1000.
    pub refused_permille: u64,
    /// The number of failures, in permille of the calls sent, 0 to 1000.
    pub failed_permille: u64,
    /// The time from the start until nine tenths of the oracle's goodput are reached. `None` if they never
    /// are.
    pub start_ms: Option<u64>,
    /// The longest time from a step until nine tenths of the oracle's goodput are reached. `None` if they are
    /// not reached after some step, or if there is no step.
    pub step_ms: Option<u64>,
    /// The 95th percentile of the latencies of answered calls, in permille of the oracle's.
    pub p95_permille: u64,
    /// Jain's index of the answers `a` and `b` of two tenants of equal weight, in permille.
    ///
    /// It is `(a + b)^2 / 2(a^2 + b^2)`: 1000 if they are equal, 500 if one tenant gets every answer, and 0
    /// if there are none.
    ///
    /// Source: R. Jain, D. Chiu, W. Hawe, "A Quantitative Measure of Fairness and Discrimination for Resource
    /// Allocation in Shared Computer Systems", DEC TR-301, 1984.
    pub jain_permille: u64,
}

impl Figures {
    pub(super) fn of(case: &ControlCase, alone: &Run, shared: &Run, oracle: &Run) -> Self {
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

/// Returns `part / whole` in permille, rounded to the nearest integer, or 0 if `whole` is 0.
pub(super) fn permille(part: u64, whole: u64) -> u64 {
    (part * 1_000 + whole / 2).checked_div(whole).unwrap_or(0)
}
