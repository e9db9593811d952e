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
//! A [`Case`] is a [mock provider](crate::sim::provider) under a closed loop: there are always more calls than could go
//! out. A [`Contender`] is a limit algorithm, at work inside a real
//! [`RequestAdmission`](crate::request::RequestAdmission). The [`Oracle`] knows the provider's whole schedule: it sends a
//! call whenever there is a slot and the rates allow it, and never another. All of it is virtual time, and a function of
//! case, contender and seed.
//!
//! | figure | what it says |
//! | --- | --- |
//! | goodput | answered calls, of those of the oracle |
//! | refused | calls the provider answered with 429, of all that were sent |
//! | failed | calls it answered with 5xx or not at all, of all that were sent |
//! | start | until a whole second brings 90 % of the oracle's answers, from the first call |
//! | step | the same from a sudden change; the slowest of them |
//! | p95 | the 95th percentile of the latencies of answered calls, against the oracle's |
//! | Jain | Jain's index of the goodput of two equal tenants in two fairness groups: 1 is equal, 1/2 is all to one |
//!
//! Every figure is an integer, in permille or milliseconds.
//!
//! | file | what it is |
//! | --- | --- |
//! | `case` | the providers |
//! | `drawn` | random ones |
//! | `contender` | who competes |
//! | `drive` | the closed loop |
//! | `oracle` | the same with foresight |
//! | `figures` | what is read off a run |
//! | `table` | the figures as a page |

mod case;
mod contender;
mod drawn;
mod drive;
mod figures;
mod oracle;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_headers;

pub use case::{Case, Tokens};
pub use contender::Contender;
pub use figures::Figures;
pub use oracle::Oracle;
pub use table::Table;

use crate::error::ConfigError;

/// Runs a contender on a case, once alone and once as two tenants, and compares it with the oracle of the same case.
pub fn measure(case: &Case, contender: &Contender, oracle: &Oracle) -> Result<Figures, ConfigError> {
    let alone = drive::run(case, contender, oracle.seed(), 1)?;
    let shared = drive::run(case, contender, oracle.seed(), 2)?;
    Ok(Figures::of(case, &alone, &shared, oracle.run()))
}

/// The goodput alone, in permille of the oracle's, and the refused share, in permille: a quarter of the work of [`measure`].
pub fn goodput(case: &Case, contender: &Contender, oracle: &Oracle) -> Result<(u64, u64), ConfigError> {
    let run = drive::run(case, contender, oracle.seed(), 1)?;
    Ok((figures::permille(run.answered(), oracle.run().answered()), figures::permille(run.refused, run.sent)))
}
