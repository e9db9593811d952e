//! Runs to look at: what a contender did over time, and the cases that show it best.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::figures::{Run, Score};
use super::series::Series;
use super::{Case, Contender, Oracle, drive};
use crate::error::ConfigError;
use crate::time::Duration;

/// The least windows of a trace, unless calls last longer.
const LEAST_WINDOWS: u64 = 100;
/// The cap of an example drawn from a seed, at least: with less there is nothing to find.
const LEAST_CAP: u32 = 16;
/// The same at most: an algorithm that never pauses is refused 200 times a second for each call above the
/// capacity.
const MOST_CAP: u32 = 256;

/// One run of a contender on a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Trace {
    /// The contender's name, or `oracle`.
    pub contender: String,
    /// What it came to.
    pub score: Score,
    /// What happened when.
    pub series: Series,
}

impl Trace {
    fn of(name: &str, case: &Case, run: &Run, oracle: &Run) -> Self {
        let series = run.ticks.coarser(case.window(), case.span);
        Self { contender: name.to_string(), score: Score::of(case, run, oracle), series }
    }
}

/// Runs a contender on a case and returns what happened over time, in windows of [`Case::window`].
pub fn trace(case: &Case, contender: &Contender, oracle: &Oracle) -> Result<Trace, ConfigError> {
    let run = drive::run(case, contender, oracle.seed(), 1)?;
    Ok(Trace::of(&contender.name, case, &run, oracle.run()))
}

impl Oracle {
    /// The oracle's own run over time. `case` is the one that the oracle was made of.
    #[must_use]
    pub fn trace(&self, case: &Case) -> Trace {
        Trace::of("oracle", case, self.run(), self.run())
    }
}

impl Case {
    /// How long the windows of its [traces](Trace) are, in whole seconds: a hundredth of the case, and no
    /// shorter than most of its calls.
    #[must_use]
    pub fn window(&self) -> Duration {
        let share = Duration::from_nanos(self.span.as_nanos() / LEAST_WINDOWS);
        Duration::from_secs(share.max(self.median()).as_nanos().div_ceil(1_000_000_000).max(1))
    }

    /// What kind of case it is: its name up to the first comma.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.name.split(',').next().unwrap_or_default()
    }
}

/// A case worth a picture, and the seed to run it with.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Example {
    /// The case.
    pub case: Case,
    /// The seed of the oracle and of the provider.
    pub seed: u64,
}

impl Example {
    /// The cases of the table, in its order.
    #[must_use]
    pub fn named() -> Vec<Self> {
        Case::all().into_iter().map(|case| Self { case, seed: 1 }).collect()
    }

    /// One drawn case of each kind, by kind: of the seeds from 0 to 999, the first whose cap is at least 16
    /// and at most 256.
    #[must_use]
    pub fn drawn() -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for seed in 0..1_000 {
            let case = Case::drawn(seed);
            let is_new = || found.iter().all(|known| known.case.kind() != case.kind());
            if (LEAST_CAP..=MOST_CAP).contains(&case.cap) && is_new() {
                found.push(Self { case, seed });
            }
        }
        found.sort_by(|one, other| one.case.kind().cmp(other.case.kind()));
        found
    }
}
