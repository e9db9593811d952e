//! The settings of a run, and what is refused at construction.

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

/// The longest window of final outcomes.
const MAX_SHUTDOWN_WINDOW: u32 = 1 << 16;

/// When a fairness group may start more workers than its share.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum PolicyChoice {
    /// Only while nobody else could start: [`StrictFair`](crate::task::StrictFair).
    StrictFair,
    /// While nobody else wants the same, and as a debt: [`BoundedBorrow`].
    BoundedBorrow(BoundedBorrowConfig),
}

impl Default for PolicyChoice {
    fn default() -> Self {
        Self::BoundedBorrow(BoundedBorrowConfig::default())
    }
}

impl PolicyChoice {
    /// Refuses settings that are out of range, and those about a resource that `is_known` does not know.
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

/// The settings of a run. `..PipelineConfig::default()` fills in what is not said; only `rows` has no useful
/// default.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct PipelineConfig {
    /// Names the run in its [events](crate::pipeline::event), among those that share a host. Default 0.
    pub run: u32,
    /// Rows of the whole run, those of `done_row_groups` included. `0` is a run that completes at once.
    pub rows: u64,
    /// Rows per row group, 1 to [`MAX_ROW_GROUP_SIZE`]; the last group takes what is left. Default 64.
    pub row_group_size: u32,
    /// Row groups admitted at once, at least 1: so many, or at most so many if `adaptive`. Default 3.
    pub row_groups: u32,
    /// Lets a control loop choose how many row groups are admitted, up to `row_groups`. Default `None`.
    pub adaptive: Option<AdaptiveRowGroups>,
    /// Workers at once: the limit of the resource `submission`. Default 1024.
    pub submission_limit: u32,
    /// When a fairness group may start more workers than its share. Default bounded borrowing.
    pub policy: PolicyChoice,
    /// Further named resources and their limits, for [`Column::demand`](crate::pipeline::Column::demand).
    pub resources: Vec<(String, u32)>,
    /// How often a task that failed for now is tried again, after 1, 2, 4, ... s and behind the fresh work of
    /// its row group, 0 to 255. Rate limits and admission timeouts never count. Default 3.
    pub retries: u32,
    /// Final outcomes that are judged together, 1 to 65536. Default 10.
    pub shutdown_window: u32,
    /// The share of failures in a full window at which the run stops, above 0 and at most 1; `None`: never.
    /// Default 0.5.
    pub shutdown_rate: Option<f64>,
    /// How long what a column calls may answer nothing but rate limits, before its tasks are kept for another
    /// run; `None`: for ever. Default 10 minutes.
    ///
    /// For calls that no gate with [`RequestConfig::health`](crate::request::RequestConfig::health) lets out.
    /// Such a gate has a patience of its own, which ends at its instant, where this one is looked at with
    /// each answer.
    pub rate_limit_patience: Option<Duration>,
    /// Answers of one fairness group that are judged together for a warning, 1 to 65536. Default 20.
    pub degraded_window: u32,
    /// The share of failures that may pass at which a provider counts as degraded, above 0 and at most 1;
    /// `None`: never. Default 0.5.
    pub degraded_rate: Option<f64>,
    /// The shortest pause between two such warnings about one fairness group. Default 60 s.
    pub degraded_pause: Duration,
    /// The shortest pause before a rate-limited task is tried again, above 0. Default 50 ms.
    pub retry_floor: Duration,
    /// The longest such pause, whatever the provider asked for; not below `retry_floor`. Default 10 minutes.
    pub retry_ceiling: Duration,
    /// Whether workers of columns that [yield](crate::pipeline::Column::yields) give back what they hold
    /// while they wait for a request lease. Default yes.
    pub yield_while_waiting: bool,
    /// Whether a hook is called for each row group after its seeds, which are the columns made for whole row
    /// groups that need no cell, and before all others: see
    /// [`Effect::PreBatch`](crate::pipeline::Effect::PreBatch). Default no.
    pub pre_batch_hook: bool,
    /// Whether a hook is called for each row group before its checkpoint: see
    /// [`Effect::PostBatch`](crate::pipeline::Effect::PostBatch). Default no.
    pub post_batch_hook: bool,
    /// Row groups that an earlier run has saved, in any order: they are skipped and count as done.
    pub done_row_groups: Vec<u32>,
    /// The rows to make of row groups that an earlier run has saved in part, numbered over the whole run:
    /// ascending ranges that are apart and not empty. A row group that one of them touches is of these rows
    /// alone, and all its others count as done. Only for a plan that [keeps parts](Plan::keeps_parts).
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
        let unknown = self.done_row_groups.iter().find(|group| u64::from(**group) >= groups);
        unknown.map_or(Ok(()), |group| {
            Err(ConfigError::new("done_row_groups", group, "row groups of this run, counted from 0"))
        })?;
        self.validate_missing(plan)
    }

    fn validate_missing(&self, plan: &Plan) -> Result<(), ConfigError> {
        let Some(first) = self.missing_rows.first() else { return Ok(()) };
        let refuse = |rows: &Range<u64>, expected| {
            Err(ConfigError::new("missing_rows", format_args!("{}..{}", rows.start, rows.end), expected))
        };
        if !plan.keeps_parts() {
            return refuse(first, "none, since the plan has columns that are made for whole row groups");
        }
        let done: BTreeSet<u32> = self.done_row_groups.iter().copied().collect();
        let mut free = 0;
        for rows in &self.missing_rows {
            if rows.start < free || rows.is_empty() || rows.end > self.rows {
                return refuse(rows, "ascending ranges of rows of this run, apart and not empty");
            }
            free = rows.end + 1;
            let groups = row_groups_of(rows, self.row_group_size);
            if done.range(groups).next().is_some() {
                return refuse(rows, "rows of row groups that are not in `done_row_groups`");
            }
        }
        Ok(())
    }
}

/// Why a pipeline cannot be made of a plan and a configuration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// A setting is outside its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A column's fairness group is refused.
    #[error("column `{column}`: {source}")]
    Group {
        /// The column.
        column: String,
        /// What is wrong with its group.
        source: ConfigError,
    },
    /// A column demands what no worker can ever hold.
    #[error("column `{column}`: {source}")]
    Demand {
        /// The column.
        column: String,
        /// What is wrong with its demand.
        source: DemandError,
    },
}
