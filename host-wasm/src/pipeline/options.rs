//! The settings and columns of a pipeline, as JavaScript gives them.
//!
//! `serde` checks types and names, and the core checks ranges. Each error names the field by its path in
//! JavaScript.

use std::num::NonZeroU32;

use indexmap::IndexMap;
use serde::Deserialize;
use tidegate_core::error::ConfigError;
use tidegate_core::pipeline as core;
use tidegate_core::pipeline::{Column, PipelineConfig, PolicyChoice};
use tidegate_core::task::{BoundedBorrowConfig, TaskGroup};
use tidegate_core::time::Duration;
use tsify::Tsify;

use crate::js_settings::{js_name, millis, millis_or_null};

/// The settings of a run. Each has a default. Spans are in milliseconds, from 0 to 9e12.
#[derive(Deserialize, Tsify)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct PipelineSettings {
    /// The rows per row group, 1 to 16777215; the last group has the remaining rows. A row group is saved as
    /// one. Default 64.
    row_group_size: u32,
    /// The number of row groups in work at once, at least 1. If `adaptive` is set, the maximum. Default 3.
    row_groups: u32,
    /// Lets a control loop choose the number of row groups in work, up to `rowGroups`. Default: off.
    adaptive: Option<AdaptiveRowGroups>,
    /// The largest number of concurrent tasks over all columns, at least 1. Default 1024.
    workers: u32,
    /// When a fairness group may run more tasks than its share. Default `{ kind: "bounded_borrow" }`.
    policy: Policy,
    /// Further named resources and their limits, at least 1, for `holds` of a column.
    #[tsify(type = "Record<string, number>")]
    resources: IndexMap<String, NonZeroU32>,
    /// How often a task with a retryable failure is retried, after 1, 2, 4, ... s, 0 to 255. Default 3.
    retries: u32,
    /// The number of latest final outcomes that are judged together, 1 to 65536. Default 10.
    shutdown_window: u32,
    /// The share of failures in a full window at which the run stops, above 0 and at most 1; `null`: never.
    /// Default 0.5.
    shutdown_rate: Option<f64>,
    /// How long the resource of a column may rate limit every call before its tasks are kept for another run;
    /// `null`: no limit. Default 600000.
    #[serde(deserialize_with = "millis_or_null")]
    #[tsify(type = "number | null")]
    rate_limit_patience_ms: Option<Duration>,
    /// The number of latest responses of one fairness group that are considered for a warning, 1 to 65536.
    /// Default 20.
    degraded_window: u32,
    /// The share of retryable failures at which a provider counts as degraded, above 0 and at most 1; `null`:
    /// never. Default 0.5.
    degraded_rate: Option<f64>,
    /// The shortest pause between two such warnings about one fairness group. Default 60000.
    #[serde(deserialize_with = "millis")]
    #[tsify(type = "number")]
    degraded_pause_ms: Duration,
    /// The shortest pause before a rate-limited task is retried, above 0. Default 50.
    #[serde(deserialize_with = "millis")]
    #[tsify(type = "number")]
    retry_floor_ms: Duration,
    /// The longest such pause, whatever the provider asked for; not below `retryFloorMs`. Default 600000.
    #[serde(deserialize_with = "millis")]
    #[tsify(type = "number")]
    retry_ceiling_ms: Duration,
    /// Whether a task releases its worker slot while it waits for its call. Default true.
    yield_while_waiting: bool,
    /// The row groups that an earlier run has saved, counted from 0: they are skipped and count as done.
    #[tsify(type = "Iterable<number>")]
    done_row_groups: Vec<u32>,
    /// The rows to complete in row groups that an earlier run has saved in part, counted from 0 over the
    /// whole run, ascending. A row group with such a row consists of these rows only.
    #[tsify(type = "Iterable<number>")]
    missing_rows: Vec<u64>,
}

/// The settings of the control loop over row groups.
#[derive(Deserialize, Tsify)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct AdaptiveRowGroups {
    /// The initial number of row groups, from 1 to `rowGroups`. Default 1.
    initial: u32,
    /// The largest number of rows in work, at least 1; `null` is three row groups or 8192 rows, whichever is
    /// more. Default `null`.
    max_admitted_rows: Option<u64>,
    /// The number of consecutive overloaded ticks after which the target falls by one, at least 1. Default
    /// 64.
    shrink_after: u32,
}

/// When a fairness group may run more tasks than its share.
#[derive(Deserialize, Tsify)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Policy {
    /// Only while no other group could start a task.
    StrictFair,
    /// While no other group wants the same, and as a debt.
    BoundedBorrow(BoundedBorrow),
}

/// The settings of bounded borrowing.
#[derive(Deserialize, Tsify)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct BoundedBorrow {
    /// The largest debt of a group in a resource; `null`: what the limit leaves above its share. Default
    /// `null`.
    default_ceiling: Option<u32>,
    /// The fraction of a limit that cannot be borrowed, from 0 to 1. Default 0.
    reserve_fraction: f64,
    /// The most slots that this comes to, at least 1. Default 8.
    max_reserved: u32,
}

/// A column of a plan.
#[derive(Deserialize, Tsify)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ColumnSpec {
    /// The columns that a task fills. The first names it.
    pub(super) fills: Vec<String>,
    #[serde(default)]
    strategy: Strategy,
    #[serde(default)]
    after: Vec<String>,
    #[serde(default)]
    ordered: bool,
    #[serde(default)]
    skip_with_upstream: bool,
    #[serde(default)]
    yields: Option<bool>,
    #[serde(default)]
    #[tsify(type = "Record<string, number>")]
    holds: IndexMap<String, NonZeroU32>,
    #[serde(default)]
    group: Option<ColumnGroup>,
    #[serde(default)]
    pub(super) calls: Option<CallTarget>,
}

#[derive(Default, Deserialize, Tsify)]
#[serde(rename_all = "snake_case")]
enum Strategy {
    #[default]
    Cell,
    RowGroup,
    FromScratch,
}

/// The fairness group of a column.
#[derive(Deserialize, Tsify)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ColumnGroup {
    name: String,
    #[serde(default = "one")]
    weight: f64,
    #[serde(default)]
    #[tsify(type = "number")]
    limit: Option<NonZeroU32>,
}

/// A resource of the pipeline's gate.
#[derive(Deserialize, Tsify)]
#[serde(deny_unknown_fields)]
pub(super) struct CallTarget {
    /// Its number.
    pub(super) resource: u32,
    /// Its key as a text.
    pub(super) name: String,
}

/// The structure of a pipeline, besides its settings.
#[derive(Deserialize, Tsify)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PipelinePlan {
    rows: u64,
    pub(super) columns: Vec<ColumnSpec>,
    /// Whether there is a hook before the batch.
    pre_batch: bool,
    /// Whether there is a hook after it.
    post_batch: bool,
}

impl PipelineSettings {
    /// Returns the configuration of a run of this number.
    pub(super) fn config(self, run: u32, plan: &PipelinePlan) -> PipelineConfig {
        let mut missing_rows = Vec::<std::ops::Range<u64>>::new();
        for row in self.missing_rows {
            match missing_rows.last_mut() {
                Some(last) if last.end == row => last.end += 1,
                _ => missing_rows.push(row..row + 1),
            }
        }
        PipelineConfig {
            run,
            rows: plan.rows,
            row_group_size: self.row_group_size,
            row_groups: self.row_groups,
            adaptive: self.adaptive.map(|from| core::AdaptiveRowGroups {
                initial: from.initial,
                max_admitted_rows: from.max_admitted_rows,
                shrink_after: from.shrink_after,
            }),
            submission_limit: self.workers,
            policy: match self.policy {
                Policy::StrictFair => PolicyChoice::StrictFair,
                Policy::BoundedBorrow(from) => PolicyChoice::BoundedBorrow(BoundedBorrowConfig {
                    default_ceiling: from.default_ceiling,
                    reserve_fraction: from.reserve_fraction,
                    max_reserved: from.max_reserved,
                    ..BoundedBorrowConfig::default()
                }),
            },
            resources: self.resources.into_iter().map(|(name, limit)| (name, limit.get())).collect(),
            retries: self.retries,
            shutdown_window: self.shutdown_window,
            shutdown_rate: self.shutdown_rate,
            rate_limit_patience: self.rate_limit_patience_ms,
            degraded_window: self.degraded_window,
            degraded_rate: self.degraded_rate,
            degraded_pause: self.degraded_pause_ms,
            retry_floor: self.retry_floor_ms,
            retry_ceiling: self.retry_ceiling_ms,
            yield_while_waiting: self.yield_while_waiting,
            pre_batch_hook: plan.pre_batch,
            post_batch_hook: plan.post_batch,
            done_row_groups: self.done_row_groups,
            missing_rows,
            claims_row_groups: false,
        }
    }
}

impl Default for PipelineSettings {
    fn default() -> Self {
        let from = PipelineConfig::default();
        Self {
            row_group_size: from.row_group_size,
            row_groups: from.row_groups,
            adaptive: None,
            workers: from.submission_limit,
            policy: Policy::BoundedBorrow(BoundedBorrow::default()),
            resources: IndexMap::new(),
            retries: from.retries,
            shutdown_window: from.shutdown_window,
            shutdown_rate: from.shutdown_rate,
            rate_limit_patience_ms: from.rate_limit_patience,
            degraded_window: from.degraded_window,
            degraded_rate: from.degraded_rate,
            degraded_pause_ms: from.degraded_pause,
            retry_floor_ms: from.retry_floor,
            retry_ceiling_ms: from.retry_ceiling,
            yield_while_waiting: from.yield_while_waiting,
            done_row_groups: Vec::new(),
            missing_rows: Vec::new(),
        }
    }
}

impl Default for AdaptiveRowGroups {
    fn default() -> Self {
        let core::AdaptiveRowGroups { initial, max_admitted_rows, shrink_after } = core::AdaptiveRowGroups::default();
        Self { initial, max_admitted_rows, shrink_after }
    }
}

impl Default for BoundedBorrow {
    fn default() -> Self {
        let BoundedBorrowConfig { default_ceiling, reserve_fraction, max_reserved, .. } =
            BoundedBorrowConfig::default();
        Self { default_ceiling, reserve_fraction, max_reserved }
    }
}

impl ColumnSpec {
    /// Returns the column, whose calls are still to be declared.
    pub(super) fn column(&self) -> Column {
        let mut names = self.fills.iter();
        let name = names.next().map_or("", String::as_str);
        let strategy = match self.strategy {
            Strategy::Cell => core::Strategy::Cell,
            Strategy::RowGroup => core::Strategy::FullColumn,
            Strategy::FromScratch => core::Strategy::FromScratch,
        };
        let mut column = Column::new(name, strategy);
        column.also_fills = names.cloned().collect();
        column.upstreams.clone_from(&self.after);
        column.ordered = self.ordered;
        column.skips_with_upstream = self.skip_with_upstream;
        column.yields = self.yields;
        column.demand = self.holds.iter().map(|(name, amount)| (name.clone(), amount.get())).collect();
        if let Some(ColumnGroup { name, weight, limit }) = &self.group {
            let admitted_limit = limit.map(NonZeroU32::get);
            column.group = TaskGroup { weight: *weight, admitted_limit, ..TaskGroup::local(name) };
        }
        column
    }
}

/// Returns an error of the core with the name that the setting has in JavaScript.
pub(super) fn renamed(mut error: ConfigError) -> ConfigError {
    error.field = match error.field.as_str() {
        "submission_limit" => "workers".into(),
        "admitted_limit" => "group.limit".into(),
        "weight" => "group.weight".into(),
        field @ ("reserve_fraction" | "max_reserved") => "policy.".to_owned() + &js_name(field),
        field => js_name(field),
    };
    error
}

fn one() -> f64 {
    1.0
}
