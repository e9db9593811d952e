//! The control suite: how well a limit algorithm finds the capacity of a provider.
//!
//! ```
//! use tidegate_core::sim::suite::control::{ControlCase, Contender, Oracle, measure};
//!
//! let case = ControlCase::all().remove(0).lasting_secs(5);
//! let oracle = Oracle::of(&case, 1)?;
//! let figures = measure(&case, &Contender::aimd(), &oracle)?;
//! assert!(figures.goodput_permille < 1_000, "the limit has to be learned, which costs goodput");
//! # Ok::<(), tidegate_core::error::ConfigError>(())
//! ```
//!
//! - A [`ControlCase`] is a [mock provider](crate::sim::provider) under a closed loop: callers start a new
//!   call as soon as one ends, so that there are always more calls than the limit lets through. The provider
//!   serves as many calls at once as it has *slots*. Its *rates* limit the calls and tokens per minute.
//! - A [`Contender`] is a limit algorithm, inside a real
//!   [`RequestAdmission`](crate::request::RequestAdmission). The *limit* is the number of calls that it
//!   allows in flight.
//! - The [`Oracle`] is the reference. It knows the provider's whole schedule, and sends a call exactly when a
//!   slot is free and the rates allow the call.
//!
//! Runs are in virtual time. Their results are a function of case, contender and seed.
//!
//! | figure | meaning |
//! | --- | --- |
//! | goodput | answered calls, relative to those of the oracle |
//! | refused | calls answered with 429, relative to all calls sent |
//! | failed | calls with any other end (5xx, no answer, unusable answer), relative to all calls sent |
//! | start | time from the first call until nine tenths of the oracle's goodput are reached |
//! | step | the same time from a sudden change of capacity. The slowest of all changes counts |
//! | in time | whether start and step meet their goals: see [`Score::is_in_time`] |
//! | p95 | the 95th percentile of the latencies of answered calls, relative to the oracle's |
//! | Jain | Jain's index of the goodput of two tenants of equal weight: see [`Figures::jain_permille`] |
//!
//! Every figure is an integer, in permille (thousandths) or milliseconds. Goodput can exceed 1000 permille,
//! mostly at a provider that slows down instead of refusing calls: the oracle stays within its capacity.
//!
//! Start and step are measured in windows of a second, or of one call's median latency if that is longer.
//! Several windows count as one if the oracle has fewer than ten answers in a window.
//!
//! | item | what it is |
//! | --- | --- |
//! | [`ControlCase`] | a provider and how it is called: a named case, or one drawn at random |
//! | [`Contender`], [`Oracle`] | a limit algorithm, and the reference that knows the schedule |
//! | [`measure`] gives [`Figures`], [`score`] a [`Score`] | the results of a run, in full and in short |
//! | [`call_times`] gives [`CallTimes`] | when each call of a run was sent and ended |
//! | [`Table`] | all contenders on all named cases, as Markdown |
//! | [`trace()`] gives a [`ControlTrace`] with a [`Series`] | a run over time |
//! | [`Example`] | the cases to show as charts |
//! | [`Survey`] | the scores on many drawn cases |

mod case;
mod contender;
mod describe;
mod drawn;
mod drive;
mod figures;
mod oracle;
mod series;
mod survey;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_headers;
#[cfg(test)]
mod tests_pushback;
mod trace;

pub use case::{ControlCase, Tokens};
pub use contender::Contender;
pub use figures::{CallTimes, Figures, Score};
pub use oracle::Oracle;
pub use series::Series;
pub use survey::{GoalCount, KindFigures, KindSummary, ProviderScores, Spread, Survey};
pub use table::Table;
pub use trace::{ControlTrace, Example, trace};

use alloc::vec::Vec;

use crate::error::ConfigError;

/// Runs a contender on a case, once with one tenant and once with two, and compares it with the oracle of the
/// same case.
///
/// Returns an error if the case or the contender's settings are invalid. A run costs O(log(calls in flight))
/// for each call.
pub fn measure(case: &ControlCase, contender: &Contender, oracle: &Oracle) -> Result<Figures, ConfigError> {
    let alone = drive::run(case, contender, oracle.seed(), 1)?;
    let shared = drive::run(case, contender, oracle.seed(), 2)?;
    Ok(Figures::of(case, &alone, &shared, oracle.run()))
}

/// Returns the calls of a contender on a case with one tenant, in the order in which they were sent.
///
/// `seed` is that of the provider. Returns an error if the case or the contender's settings are invalid.
pub fn call_times(case: &ControlCase, contender: &Contender, seed: u64) -> Result<Vec<CallTimes>, ConfigError> {
    drive::times(case, contender, seed)
}

/// Runs a contender on a case with one tenant, and compares the run with the oracle's.
///
/// This is cheaper than [`measure`], which makes a second run with two tenants. Returns an error if the case
/// or the contender's settings are invalid.
pub fn score(case: &ControlCase, contender: &Contender, oracle: &Oracle) -> Result<Score, ConfigError> {
    let run = drive::run(case, contender, oracle.seed(), 1)?;
    Ok(Score::of(case, &run, oracle.run()))
}
