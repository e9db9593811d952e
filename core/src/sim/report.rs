//! The results of a simulated run, as data. `tidegate simulate --json` and every other host write them as
//! JSON.

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

/// The version of the JSON. It is increased when a field is removed or changes its meaning.
pub const SCHEMA: u32 = 1;

/// The number of observations that are shown before a violation.
const SHOWN: usize = 12;

/// The results of a simulated run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Report {
    /// The schema version: [`SCHEMA`].
    pub schema: u32,
    /// The name of the scenario.
    pub scenario: String,
    /// The title of the scenario.
    pub title: String,
    /// The description of the scenario.
    pub description: String,
    /// The seed.
    pub seed: u64,
    /// A hash over every decision, in 16 hexadecimal digits.
    pub digest: String,
    /// The first [law](super::check::Law) that was broken, in words, if any.
    pub violation: Option<String>,
    /// The latest observations up to the violation, at most 12, the oldest first. Empty without a violation.
    pub led_to_it: Vec<String>,
    /// The counts of the run.
    pub run: RunProgress,
    /// The least time that any scheduler needs for the scenario: see [`LowerBound`].
    pub lower_bound_ns: u64,
    /// The constraint that sets the lower bound, in words.
    pub lower_bound_set_by: String,
    /// The responses of each provider.
    pub providers: Vec<ProviderAnswers>,
    /// How the capacity was used. Empty for a world without an [account](World::accounted).
    pub figures: RunFigures,
}

/// The counts of a run, up to its end or up to now.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RunProgress {
    /// Why the run ended, or `None` if it has not ended.
    pub stop: Option<StopReason>,
    /// Rows of the whole run.
    pub rows: u64,
    /// Rows that earlier runs completed or dropped.
    pub rows_resumed: u64,
    /// Rows of the row groups that this run admitted.
    pub rows_in: u64,
    /// Complete rows that this run saved.
    pub rows_out: u64,
    /// Rows that this run admitted and dropped.
    pub rows_dropped: u64,
    /// Rows that this run admitted, and neither saved nor dropped because it stopped.
    pub rows_unmade: u64,
    /// Rows of row groups that were not admitted.
    pub rows_not_started: u64,
    /// `rows_dropped` by column and reason, ascending.
    pub dropped: Vec<DroppedCount>,
    /// Row groups of the whole run.
    pub row_groups: u32,
    /// Saved row groups, including those of earlier runs.
    pub row_groups_done: u32,
    /// The columns in the order of definition.
    pub columns: Vec<ColumnReport>,
    /// When the run started.
    pub started: Instant,
    /// When the run ended, or the present instant if it has not ended.
    pub ended: Instant,
}

/// The counts of a provider's responses.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ProviderAnswers {
    /// The name of the model.
    pub model: String,
    /// The number of calls that it accepted. The answers of some may have been unusable.
    pub accepted: u64,
    /// The number of calls that it refused with 429.
    pub refused: u64,
    /// The limit on concurrent calls in force now.
    pub limit: u32,
}

impl Report {
    /// Creates the report of a world, whether or not its run has ended.
    ///
    /// # Errors
    /// Fails if the scenario cannot run. The world's own scenario never fails.
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

impl RunProgress {
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
