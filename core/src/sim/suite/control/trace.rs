//! Traces: a contender's run over time, and the example cases to show.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::figures::{Run, Score};
use super::series::Series;
use super::{Contender, ControlCase, Oracle, drive};
use crate::error::ConfigError;
use crate::time::Duration;

/// The number of windows in a trace, unless its windows would be shorter than a call or a second.
const TRACE_WINDOWS: u64 = 100;
/// The lowest cap of an example drawn from a seed. A lower cap leaves little to find.
const MIN_CAP: u32 = 16;
/// The highest cap of an example drawn from a seed. It bounds the number of refusals: an algorithm that never
/// pauses is refused 200 times a second for each call above the capacity, because a refusal takes 5 ms.
const MAX_CAP: u32 = 256;

/// A run of a contender on a case, over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ControlTrace {
    /// The contender's name, or `oracle`.
    pub contender: String,
    /// The result of the run.
    pub score: Score,
    /// The answers and refusals over time.
    pub series: Series,
}

impl ControlTrace {
    fn of(name: &str, case: &ControlCase, run: &Run, oracle: &Run) -> Self {
        let series = run.ticks.coarser(case.window(), case.span);
        Self { contender: name.to_string(), score: Score::of(case, run, oracle), series }
    }
}

/// Runs a contender on a case with one tenant, and returns the run over time in windows of
/// [`ControlCase::window`].
///
/// `oracle` must be that of the case. Returns an error if the case or the contender's settings are invalid.
pub fn trace(case: &ControlCase, contender: &Contender, oracle: &Oracle) -> Result<ControlTrace, ConfigError> {
    let run = drive::run(case, contender, oracle.seed(), 1)?;
    Ok(ControlTrace::of(&contender.name, case, &run, oracle.run()))
}

impl Oracle {
    /// Returns the oracle's own run over time. `case` must be the case that the oracle was created from.
    #[must_use]
    pub fn trace(&self, case: &ControlCase) -> ControlTrace {
        ControlTrace::of("oracle", case, self.run(), self.run())
    }
}

impl ControlCase {
    /// Returns the window length of the case's [traces](ControlTrace), in whole seconds. It is a hundredth of
    /// the case's duration, but at least the median latency of its calls, rounded up.
    #[must_use]
    pub fn window(&self) -> Duration {
        let hundredth = Duration::from_nanos(self.span.as_nanos() / TRACE_WINDOWS);
        Duration::from_secs(hundredth.max(self.median()).as_nanos().div_ceil(1_000_000_000).max(1))
    }

    /// Returns the kind of the case, which is its name up to the first comma.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.name.split(',').next().unwrap_or_default()
    }
}

/// A case to show as a chart, and the seed to run it with.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Example {
    /// The case.
    pub case: ControlCase,
    /// The seed of the oracle and of the provider.
    pub seed: u64,
}

impl Example {
    /// Returns the named cases, in the order of the [`Table`](super::Table), each with seed 1.
    #[must_use]
    pub fn named() -> Vec<Self> {
        ControlCase::all().into_iter().map(|case| Self { case, seed: 1 }).collect()
    }

    /// Returns one drawn case of each kind, sorted by kind. It is the first one whose cap is from 16 to 256,
    /// of the seeds from 0 to 999.
    #[must_use]
    pub fn drawn() -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for seed in 0..1_000 {
            let case = ControlCase::drawn(seed);
            let is_new = || found.iter().all(|known| known.case.kind() != case.kind());
            if (MIN_CAP..=MAX_CAP).contains(&case.cap) && is_new() {
                found.push(Self { case, seed });
            }
        }
        found.sort_by(|one, other| one.case.kind().cmp(other.case.kind()));
        found
    }
}
