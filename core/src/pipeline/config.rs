//! The settings of a run, and the checks that reject invalid settings.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use crate::error::{ConfigError, require};
use crate::pipeline::plan::Plan;
use crate::pipeline::row_group::AdaptiveRowGroups;
use crate::pipeline::row_group::{MAX_ROW_GROUP_SIZE, MAX_ROW_GROUP_TASKS, MAX_ROW_GROUPS, row_groups_of};
use crate::task::{BoundedBorrow, BoundedBorrowConfig, BoxedPolicy, DemandError, StrictFair};
use crate::time::Duration;

/// The largest number of outcomes in a sliding window.
const MAX_SHUTDOWN_WINDOW: u32 = 1 << 16;

/// The choice of the task policy, which decides when a fairness group may hold more than its share.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum PolicyChoice {
    /// A group may exceed its share only while no other group could start:
    /// [`StrictFair`](crate::task::StrictFair).
    StrictFair,
    /// A group may borrow beyond its share while no other group needs the resource, up to a limit. The excess
    /// is counted as debt: [`BoundedBorrow`].
    BoundedBorrow(BoundedBorrowConfig),
}

impl Default for PolicyChoice {
    fn default() -> Self {
        Self::BoundedBorrow(BoundedBorrowConfig::default())
    }
}

impl PolicyChoice {
    /// Rejects settings that are out of range, and settings for a resource for which `is_known` returns
    /// false.
    #[cfg(feature = "sim")]
    pub(crate) fn validate(&self, is_known: &dyn Fn(&str) -> bool) -> Result<(), ConfigError> {
        let Self::BoundedBorrow(config) = self else { return Ok(()) };
        let unknown = config.ceilings.iter().find(|ceiling| !is_known(&ceiling.resource));
        let unknown = unknown.map(|ceiling| ConfigError::new("ceilings", &ceiling.resource, "a resource that exists"));
        unknown.map_or_else(|| BoundedBorrow::new(config.clone()).map(drop), Err)
    }

    pub(crate) fn make(self) -> Result<BoxedPolicy, ConfigError> {
        Ok(match self {
            Self::StrictFair => Box::new(StrictFair),
            Self::BoundedBorrow(config) => Box::new(BoundedBorrow::new(config)?),
        })
    }
}

/// The settings of a run.
///
/// Use `..PipelineConfig::default()` for the fields that are not set. Only `rows` has no useful default.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct PipelineConfig {
    /// The number of the run in its [events](crate::pipeline::event), among the runs of one host. Default: 0.
    pub run: u32,
    /// The number of rows of the whole run, including those of `done_row_groups`. A run of `0` rows completes
    /// at once.
    pub rows: u64,
    /// The rows per row group, 1 to [`MAX_ROW_GROUP_SIZE`]. The last group has the remaining rows. Default:
    /// 64.
    pub row_group_size: u32,
    /// The number of row groups admitted at the same time, at least 1. If `adaptive` is set, this is the
    /// maximum. Default: 3.
    pub row_groups: u32,
    /// Lets a control loop choose the number of admitted row groups, up to `row_groups`. Default: `None`.
    pub adaptive: Option<AdaptiveRowGroups>,
    /// The largest number of concurrent workers, where those of one [batch](crate::pipeline::TaskBatch) count
    /// as one. This is the limit of the resource `submission`. Default: 1024.
    pub submission_limit: u32,
    /// Decides when a fairness group may hold more than its share. Default: bounded borrowing.
    pub policy: PolicyChoice,
    /// Further named resources and their limits, for [`Column::demand`](crate::pipeline::Column::demand).
    pub resources: Vec<(String, u32)>,
    /// The number of times a task with a retryable failure is retried, 0 to 255.
    ///
    /// Retries start after about 1, 2, 4, ... s, up to a minute, and after the fresh work of the row group.
    /// Rate limits and admission timeouts do not count as retries. Default: 3.
    pub retries: u32,
    /// The number of latest final outcomes that the early-shutdown check judges, 1 to 65536. Default: 10.
    pub shutdown_window: u32,
    /// The share of failures in a full window at which the run stops, above 0 and at most 1. `None` disables
    /// the check. Default: 0.5.
    pub shutdown_rate: Option<f64>,
    /// The longest time that a call target may respond with rate limits only. After it, the tasks that call
    /// the target are left for a resumed run. `None` means no limit. Default: 10 minutes.
    ///
    /// This setting is for calls that no gate with
    /// [`RequestConfig::health`](crate::request::RequestConfig::health) admits. Such a gate has its own time
    /// limit, and applies it at the exact instant. The limit here is checked only when a response arrives.
    pub rate_limit_patience: Option<Duration>,
    /// The number of latest responses of one call target that the degraded check judges, 1 to 65536. A call
    /// target is a request resource, or a fairness group if no request resource is known. Default: 20.
    pub degraded_window: u32,
    /// The share of retryable failures in a full window at which a provider counts as degraded, above 0 and
    /// at most 1. `None` disables the check. Default: 0.5.
    pub degraded_rate: Option<f64>,
    /// The shortest time between two such warnings about one call target. Default: 60 s.
    pub degraded_pause: Duration,
    /// The shortest delay before a task is retried after a rate limit or an admission timeout, above 0.
    /// Default: 50 ms.
    pub retry_floor: Duration,
    /// The longest delay that a provider can request for a retry. It must not be below `retry_floor`.
    /// Default: 10 minutes.
    pub retry_ceiling: Duration,
    /// Whether workers of columns that [yield](crate::pipeline::Column::yields) release their task resources
    /// while they wait for a request lease. Default: true.
    pub yield_while_waiting: bool,
    /// Whether a pre-batch hook is called for each row group. The hook is called after the seed columns,
    /// which are computed for whole row groups and depend on no cell, and before all other columns. See
    /// [`PipelineEffect::PreBatch`](crate::pipeline::PipelineEffect::PreBatch). Default: false.
    pub pre_batch_hook: bool,
    /// Whether a post-batch hook is called for each row group, before its checkpoint. See
    /// [`PipelineEffect::PostBatch`](crate::pipeline::PipelineEffect::PostBatch). Default: false.
    pub post_batch_hook: bool,
    /// Whether the host claims each row group before it is admitted, because several runs share the row
    /// groups of one dataset: see
    /// [`PipelineEffect::ClaimRowGroup`](crate::pipeline::PipelineEffect::ClaimRowGroup). Otherwise all row
    /// groups are admitted in order. Only for a plan without [ordered](crate::pipeline::Column::ordered)
    /// columns. Default: false.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "core::ops::Not::not"))]
    pub claims_row_groups: bool,
    /// The row groups that an earlier run has saved completely, in any order. They are not run again, and
    /// count as done.
    pub done_row_groups: Vec<u32>,
    /// The rows still to compute of row groups that an earlier run has saved in part.
    ///
    /// Rows are numbered over the whole run. The ranges must be ascending, not empty, and not overlap. In a
    /// row group that contains a row of one of the ranges, only these rows are computed. Its other rows count
    /// as done. Only for a plan that [keeps parts](Plan::keeps_parts), and not with
    /// [`claims_row_groups`](Self::claims_row_groups): a run that claims its row groups learns of them with
    /// each [claim](crate::pipeline::ClaimedRowGroup).
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub missing_rows: Vec<Range<u64>>,
}

impl Default for PipelineConfig {
    fn default() -> Self {
        Self {
            run: 0,
            rows: 0,
            row_group_size: 64,
            row_groups: 3,
            adaptive: None,
            submission_limit: 1024,
            policy: PolicyChoice::default(),
            resources: Vec::new(),
            retries: 3,
            shutdown_window: 10,
            shutdown_rate: Some(0.5),
            rate_limit_patience: Some(Duration::from_secs(600)),
            degraded_window: 20,
            degraded_rate: Some(0.5),
            degraded_pause: Duration::from_secs(60),
            retry_floor: Duration::from_millis(50),
            retry_ceiling: Duration::from_secs(600),
            yield_while_waiting: true,
            pre_batch_hook: false,
            post_batch_hook: false,
            claims_row_groups: false,
            done_row_groups: Vec::new(),
            missing_rows: Vec::new(),
        }
    }
}

impl PipelineConfig {
    /// Checks the fields that [`TaskConfig`](crate::task::TaskConfig) does not check itself.
    pub(crate) fn validate(&self, plan: &Plan) -> Result<(), ConfigError> {
        let size = self.row_group_size;
        require((1..=MAX_ROW_GROUP_SIZE).contains(&size), "row_group_size", size, "1 to 16777215")?;
        let groups = self.rows.div_ceil(u64::from(size));
        require(groups <= u64::from(MAX_ROW_GROUPS), "rows", self.rows, "at most 268435456 row groups of them")?;
        let largest = u64::from(size).min(self.rows);
        let tasks = plan.whole_columns().len() as u64 + plan.cell_columns().len() as u64 * largest;
        require(
            tasks <= MAX_ROW_GROUP_TASKS,
            "row_group_size",
            size,
            "at most 67108864 tasks (rows times cell columns) per row group",
        )?;
        require(self.submission_limit >= 1, "submission_limit", self.submission_limit, "at least 1")?;
        require(self.row_groups >= 1, "row_groups", self.row_groups, "at least 1")?;
        self.adaptive.map_or(Ok(()), |adaptive| adaptive.validate(self.row_groups))?;
        require(self.retries <= 255, "retries", self.retries, "0 to 255")?;
        let window = self.shutdown_window;
        require((1..=MAX_SHUTDOWN_WINDOW).contains(&window), "shutdown_window", window, "1 to 65536")?;
        let window = self.degraded_window;
        require((1..=MAX_SHUTDOWN_WINDOW).contains(&window), "degraded_window", window, "1 to 65536")?;
        for (field, rate) in [("shutdown_rate", self.shutdown_rate), ("degraded_rate", self.degraded_rate)] {
            let rate = rate.unwrap_or(1.0);
            require(rate > 0.0 && rate <= 1.0, field, rate, "above 0 and at most 1")?;
        }
        require(!self.retry_floor.is_zero(), "retry_floor", self.retry_floor, "above 0")?;
        let ceiling = self.retry_ceiling;
        require(ceiling >= self.retry_floor, "retry_ceiling", ceiling, "not below `retry_floor`")?;
        let is_ordered = plan.order().iter().any(|column| plan.is_ordered(*column));
        let expected = "false, since the plan has columns that are made in order";
        require(!(self.claims_row_groups && is_ordered), "claims_row_groups", self.claims_row_groups, expected)?;
        let missing_rows = self.missing_rows.len();
        let expected = "none, since a run that claims its row groups learns of them with each claim";
        require(!self.claims_row_groups || missing_rows == 0, "missing_rows", missing_rows, expected)?;
        let unknown = self.done_row_groups.iter().find(|group| u64::from(**group) >= groups);
        unknown.map_or(Ok(()), |group| {
            Err(ConfigError::new("done_row_groups", group, "row groups of this run, counted from 0"))
        })?;
        self.validate_missing(plan)
    }

    fn validate_missing(&self, plan: &Plan) -> Result<(), ConfigError> {
        let Some(first) = self.missing_rows.first() else { return Ok(()) };
        let reject = |rows: &Range<u64>, expected| {
            Err(ConfigError::new("missing_rows", format_args!("{}..{}", rows.start, rows.end), expected))
        };
        if !plan.keeps_parts() {
            return reject(first, "none, since the plan has columns that are made for whole row groups");
        }
        let done: BTreeSet<u32> = self.done_row_groups.iter().copied().collect();
        let mut free = 0;
        for rows in &self.missing_rows {
            if rows.start < free || rows.is_empty() || rows.end > self.rows {
                return reject(rows, "ascending ranges of rows of this run, not empty and without overlap");
            }
            free = rows.end;
            let groups = row_groups_of(rows, self.row_group_size);
            if done.range(groups).next().is_some() {
                return reject(rows, "rows of row groups that are not in `done_row_groups`");
            }
        }
        Ok(())
    }
}

/// The error when a pipeline cannot be created from a plan and a configuration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// A setting is outside its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The fairness group of a column is invalid.
    #[error("column `{column}`: {source}")]
    Group {
        /// The name of the column.
        column: String,
        /// The error in the group.
        source: ConfigError,
    },
    /// A column demands more than any worker can hold.
    #[error("column `{column}`: {source}")]
    Demand {
        /// The name of the column.
        column: String,
        /// The error in the demand.
        source: DemandError,
    },
}
