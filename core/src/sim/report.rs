//! What a simulated run came to, as data: the JSON of `tidegate simulate --json`, and of every other host.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Serialize;

use super::scenario::{Scenario, ScenarioError};
use super::suite::idle::LowerBound;
use super::world::{Observation, World};
use crate::observe::RunFigures;
use crate::pipeline::{ColumnReport, DroppedCount, RunReport, StopReason};
use crate::time::Instant;

/// The version of the JSON: raised when a field changes its meaning or goes away.
pub const SCHEMA: u32 = 1;

/// Observations that are shown of what led to a violation.
const SHOWN: usize = 12;

/// What a simulated run came to.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The scenario's name.
    pub scenario: String,
    /// Its headline.
    pub title: String,
    /// What it shows.
    pub description: String,
    /// The seed.
    pub seed: u64,
    /// A hash over every decision, in 16 hexadecimal digits.
    pub digest: String,
    /// The law that was broken first, if one was.
    pub violation: Option<String>,
    /// The last things seen before that, the oldest first.
    pub led_to_it: Vec<String>,
    /// What the run did.
    pub run: RunSoFar,
    /// The least time that any scheduler needs for the scenario.
    pub lower_bound_ns: u64,
    /// What that is set by.
    pub lower_bound_set_by: String,
    /// What each provider said.
    pub providers: Vec<ProviderAnswers>,
    /// Where the capacity went; empty for a world that is not [accounted](World::accounted).
    pub figures: RunFigures,
}

/// What a run did, up to its end or up to now.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunSoFar {
    /// Why it ended; `None`: it goes on.
    pub stop: Option<StopReason>,
    /// Rows of the whole run.
    pub rows: u64,
    /// Rows that earlier runs saw to.
    pub rows_resumed: u64,
    /// Rows of the row groups this run admitted.
    pub rows_in: u64,
    /// Complete rows this run saved.
    pub rows_out: u64,
    /// Rows this run admitted and gave up.
    pub rows_dropped: u64,
    /// Rows this run admitted, and neither saved nor gave up, because it stopped.
    pub rows_unmade: u64,
    /// Rows of row groups that were not admitted.
    pub rows_not_started: u64,
    /// `rows_dropped` by column and reason, ascending.
    pub dropped: Vec<DroppedCount>,
    /// Row groups of the whole run.
    pub row_groups: u32,
    /// Row groups saved, by earlier runs too.
    pub row_groups_done: u32,
    /// The columns in the order of definition.
    pub columns: Vec<ColumnReport>,
    /// When the run began.
    pub started: Instant,
    /// When it ended; of one that goes on, now.
    pub ended: Instant,
}

/// What a provider said.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ProviderAnswers {
    /// The model.
    pub model: String,
    /// Calls it accepted.
    pub accepted: u64,
    /// Calls it refused.
    pub refused: u64,
    /// Its limit at the end.
    pub limit: u32,
}

impl Report {
    /// The report of a world, whether it has come to its end or not.
    ///
    /// # Errors
    /// A scenario that is not the world's, and could not run.
    pub fn of(scenario: &Scenario, seed: u64, world: &World) -> Result<Self, ScenarioError> {
        let bound = LowerBound::of(scenario)?;
        let violation = world.violation().map(ToString::to_string);
        let latest: Vec<&Observation> = world.observations().collect();
        let shown = if violation.is_some() { SHOWN.min(latest.len()) } else { 0 };
        let providers = world.sample().providers.into_iter().map(|provider| ProviderAnswers {
            model: provider.name,
            accepted: provider.accepted,
            refused: provider.refused,
            limit: provider.limit,
        });
        Ok(Self {
            schema: SCHEMA,
            scenario: scenario.name.clone(),
            title: scenario.title.clone(),
            description: scenario.description.clone(),
            seed,
            digest: format!("{:016x}", world.digest()),
            violation,
            led_to_it: latest[latest.len() - shown..].iter().map(ToString::to_string).collect(),
            run: world.run_so_far(),
            lower_bound_ns: bound.at_least.as_nanos(),
            lower_bound_set_by: bound.set_by,
            providers: providers.collect(),
            figures: world.figures().unwrap_or_default(),
        })
    }
}

impl RunSoFar {
    pub(super) fn of(report: RunReport, is_over: bool) -> Self {
        Self {
            stop: is_over.then_some(report.stop),
            rows: report.rows,
            rows_resumed: report.rows_resumed,
            rows_in: report.rows_in,
            rows_out: report.rows_out,
            rows_dropped: report.rows_dropped,
            rows_unmade: report.rows_unmade,
            rows_not_started: report.rows_not_started,
            dropped: report.dropped,
            row_groups: report.row_groups,
            row_groups_done: report.row_groups_done,
            columns: report.columns,
            started: report.started,
            ended: report.ended,
        }
    }
}
