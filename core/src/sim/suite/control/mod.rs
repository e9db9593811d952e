//! How well a limit algorithm finds what a provider bears.
//!
//! ```
//! use tidegate_core::sim::suite::control::{Case, Contender, Oracle, measure};
//!
//! let case = Case::all().remove(0).lasting_secs(5);
//! let oracle = Oracle::of(&case, 1)?;
//! let figures = measure(&case, &Contender::aimd(), &oracle)?;
//! assert!(figures.goodput_permille < 1_000, "it had to find out what the oracle knows");
//! # Ok::<(), tidegate_core::error::ConfigError>(())
//! ```
//!
//! A [`Case`] is a [mock provider](crate::sim::provider) under a closed loop: there are always more calls
//! than could go out. A [`Contender`] is a limit algorithm, at work inside a real
//! [`RequestAdmission`](crate::request::RequestAdmission). The [`Oracle`] knows the provider's whole
//! schedule: it sends a call whenever there is a slot and the rates allow it, and never another. All of it is
//! virtual time, and a function of case, contender and seed.
//!
//! | figure | what it says |
//! | --- | --- |
//! | goodput | answered calls, of those of the oracle |
//! | refused | calls the provider answered with 429, of all that were sent |
//! | failed | calls it answered with 5xx or not at all, of all that were sent |
//! | start | until nine tenths of the oracle's answers come, from the first call |
//! | step | the same from a sudden change; the slowest of them |
//! | in time | whether start or step are soon enough: see [`Score::is_in_time`] |
//! | p95 | the 95th percentile of the latencies of answered calls, against the oracle's |
//! | Jain | Jain's index of the goodput of two equal tenants in two fairness groups: 1 is equal, 1/2 is all to one |
//!
//! Every figure is an integer, in permille or milliseconds. Start and step count windows of a second, or of
//! one call's duration where that is longer, and of more of them where the oracle has fewer than ten answers.
//!
//! | file | what it is |
//! | --- | --- |
//! | `case` | the providers |
//! | `drawn` | random ones |
//! | `contender` | who competes |
//! | `drive` | the closed loop |
//! | `oracle` | the same with foresight |
//! | `figures` | what is read off a run |
//! | `series` | answers and refusals over time |
//! | `table` | the figures as a page |
//! | `trace` | one run over time, and the cases to show |
//! | `describe` | a case in words |
//! | `survey` | the scores on many drawn cases |

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

pub use case::{Case, Tokens};
pub use contender::Contender;
pub use figures::{CallTimes, Figures, Score};
pub use oracle::Oracle;
pub use series::Series;
pub use survey::{KindFigures, OfKind, Share, Spread, Survey, Surveyed};
pub use table::Table;
pub use trace::{Example, Trace, trace};

use alloc::vec::Vec;

use crate::error::ConfigError;

/// Runs a contender on a case, once alone and once as two tenants, and compares it with the oracle of the
/// same case.
pub fn measure(case: &Case, contender: &Contender, oracle: &Oracle) -> Result<Figures, ConfigError> {
    let alone = drive::run(case, contender, oracle.seed(), 1)?;
    let shared = drive::run(case, contender, oracle.seed(), 2)?;
    Ok(Figures::of(case, &alone, &shared, oracle.run()))
}

/// The calls of a contender alone on a case, in the order in which they went out.
pub fn call_times(case: &Case, contender: &Contender, seed: u64) -> Result<Vec<CallTimes>, ConfigError> {
    drive::times(case, contender, seed)
}

/// Runs a contender on a case alone, and compares the run with the oracle's: a part of the work of
/// [`measure`].
pub fn score(case: &Case, contender: &Contender, oracle: &Oracle) -> Result<Score, ConfigError> {
    let run = drive::run(case, contender, oracle.seed(), 1)?;
    Ok(Score::of(case, &run, oracle.run()))
}
