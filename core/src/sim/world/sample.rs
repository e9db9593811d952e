//! The figures of one instant of a world.

use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;

use super::World;
use crate::limit::RampState;
use crate::observe::IdleFigures;
use crate::pipeline::{RowGroupBlock, StopReason};
use crate::sim::report::RunProgress;
use crate::task::GroupKind;
use crate::time::Instant;

/// The figures of one instant.
///
/// Reading them costs O(models + columns + groups + resources x demands), independent of the number of
/// workers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Sample {
    /// The virtual time.
    pub at: Instant,
    /// The number of [steps](World::step) so far.
    pub steps: u64,
    /// By model, in the scenario's order.
    pub providers: Vec<ProviderSample>,
    /// By column, in the scenario's order.
    pub columns: Vec<ColumnSample>,
    /// By fairness group, in the order of their first columns.
    pub groups: Vec<GroupSample>,
    /// The task resources: `submission`, then those of the models, then the scenario's own.
    pub slots: Vec<SlotSample>,
    /// The row groups.
    pub row_groups: RowGroupsSample,
    /// The number of tasks that are ready and wait for a worker.
    pub queue_depth: usize,
    /// The number of workers.
    pub running: usize,
    /// Complete rows, including those of earlier runs and those that are not saved yet.
    pub rows_done: u64,
    /// Dropped rows.
    pub rows_dropped: u64,
    /// Rows of the whole run.
    pub rows_total: u64,
    /// Whether the run has ended.
    pub finished: bool,
}

/// The figures of one provider.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ProviderSample {
    /// The name of the model.
    pub name: String,
    /// The algorithm of the limit: `aimd`, `vegas`, `tide`, `fixed`, or `own` for a custom one.
    pub algorithm: &'static str,
    /// The adaptive limit.
    pub limit: u32,
    /// The largest value that the limit can have.
    pub effective_max: u32,
    /// The limit that the first decrease found too high. 0 before the first decrease.
    pub rate_limit_ceiling: u32,
    /// The start-up ramp that is in progress, if any.
    pub ramp: Option<RampState>,
    /// Calls in flight.
    pub in_flight: u32,
    /// Calls that wait for admission.
    pub waiting: u32,
    /// Those of the waiting calls whose workers have yielded: they hold no task resources meanwhile.
    pub yielded: u32,
    /// The number of calls that the provider can serve at once now. No client can observe it.
    pub capacity: u32,
    /// Whether a change has set the capacity, in place of the scenario's schedule.
    pub changed: bool,
    /// The end of the present [burst of refusals](crate::sim::scenario::Intervention::Refuse).
    pub refusing_until: Option<Instant>,
    /// The end of the present [slow phase](crate::sim::scenario::Intervention::Slow).
    pub slow_until: Option<Instant>,
    /// How many times as long calls take in the present slow phase, or 1 outside of one.
    pub slow_factor: f64,
    /// The number of calls it accepted so far.
    pub accepted: u64,
    /// The number of calls it refused with 429 so far.
    pub refused: u64,
    /// The end of the cooldown in force. No call starts before it.
    pub cooldown_until: Option<Instant>,
    /// The busy and idle slot-time so far.
    pub idle: IdleFigures,
}

/// The tasks of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ColumnSample {
    /// Tasks that are ready and without a worker.
    pub ready: u32,
    /// Tasks whose call is in flight.
    pub calling: u32,
    /// Tasks whose call waits for admission.
    pub waiting: u32,
    /// Those of the waiting tasks whose workers have yielded.
    pub yielded: u32,
    /// Tasks whose worker does local work.
    pub local: u32,
    /// Tasks that succeeded.
    pub done: u64,
    /// Tasks that failed for good, including those that panicked.
    pub failed: u64,
    /// Tasks that were skipped, including those skipped with an upstream.
    pub skipped: u64,
    /// Rows that were dropped because this column failed or was missing.
    pub dropped: u64,
}

/// One fairness group.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GroupSample {
    /// The identity, such as model and column, joined by `/`.
    pub name: String,
    /// The kind of work of its tasks.
    pub kind: GroupKind,
    /// Its weight.
    pub weight: f64,
    /// Tasks that are ready and without a worker.
    pub queued: u32,
    /// Workers that hold task resources.
    pub running: u32,
    /// The number of workers it may have while other groups compete, or `None` for no limit.
    pub limit: Option<u32>,
    /// The group's [debt](crate::task::BoundedBorrow) in the resource in which it is largest.
    pub debt: u32,
}

/// One task resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SlotSample {
    /// The name of the resource.
    pub name: String,
    /// The leased amount.
    pub used: u32,
    /// The limit.
    pub limit: u32,
    /// The amount that queued tasks need.
    pub demand: u64,
}

/// The row groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RowGroupsSample {
    /// Row groups in progress.
    pub open: u32,
    /// The target of row groups in progress.
    pub target: u32,
    /// Row groups saved with every row completed or dropped, including those of earlier runs.
    pub done: u32,
    /// Row groups of the whole run.
    pub total: u32,
    /// Why the target does not grow. `None` unless a control loop sets the target.
    pub block: Option<RowGroupBlock>,
}

impl World {
    /// Returns the figures of this instant. Changes nothing.
    #[must_use]
    pub fn sample(&self) -> Sample {
        let progress = self.pipeline.progress();
        let demand = self.pipeline.usage().zip(self.pipeline.demand());
        let slot = |((name, used, limit), demand): ((&str, u32, u32), u64)| SlotSample {
            name: String::from(name),
            used,
            limit,
            demand,
        };
        Sample {
            at: self.now,
            steps: self.steps,
            providers: self.provider_samples(),
            columns: self.column_samples(),
            groups: self.group_samples(),
            slots: demand.map(slot).collect(),
            row_groups: RowGroupsSample {
                open: progress.row_groups_active,
                target: progress.row_group_target,
                done: progress.row_groups_done,
                total: progress.row_groups_total,
                block: progress.row_group_block,
            },
            queue_depth: progress.queued,
            running: progress.running,
            rows_done: progress.rows_done,
            rows_dropped: progress.rows_dropped,
            rows_total: progress.rows_total,
            finished: self.finished.is_some(),
        }
    }

    /// Returns the counts of the run: its report, or the report that it would have if it ended now.
    pub(in crate::sim) fn run_so_far(&self) -> RunProgress {
        match &self.finished {
            Some(report) => RunProgress::of(report.clone(), true),
            None => RunProgress::of(self.pipeline.report_at(self.now, StopReason::Completed), false),
        }
    }

    fn provider_samples(&self) -> Vec<ProviderSample> {
        let providers = self.providers.iter().filter_map(|provider| {
            let state = self.admission.stats(self.now, provider.resource)?;
            let mock = &provider.mock;
            let (counters, slow) = (mock.counters(), mock.slowed_until(self.now));
            Some(ProviderSample {
                name: provider.name.clone(),
                algorithm: provider.algorithm_name(),
                limit: state.limit,
                effective_max: state.effective_max,
                rate_limit_ceiling: state.rate_limit_ceiling,
                ramp: state.ramp,
                in_flight: state.in_flight,
                waiting: state.waiters,
                yielded: state.yielded,
                capacity: mock.capacity(self.now),
                changed: mock.is_overridden(),
                refusing_until: mock.refusing_until(self.now),
                slow_until: slow.map(|(until, _)| until),
                slow_factor: slow.map_or(1.0, |(_, factor)| factor),
                accepted: counters.accepted,
                refused: counters.refused,
                cooldown_until: state.blocked_until,
                idle: provider.idle.read(self.now),
            })
        });
        providers.collect()
    }

    fn column_samples(&self) -> Vec<ColumnSample> {
        let columns = self.pipeline.columns().zip(&self.column_work).map(|(column, work)| ColumnSample {
            ready: column.queued,
            calling: work.at_work.calling,
            waiting: work.at_work.waiting,
            yielded: column.yielded,
            local: work.at_work.local,
            done: column.tasks.succeeded,
            failed: column.tasks.failed + column.tasks.fatal,
            skipped: column.tasks.skipped + column.tasks.skipped_with_upstream,
            dropped: column.rows_dropped,
        });
        columns.collect()
    }

    fn group_samples(&self) -> Vec<GroupSample> {
        let groups = self.pipeline.groups().filter_map(|group| {
            let spec = &self.pipeline.plan().column(group.column)?.group;
            Some(GroupSample {
                name: spec.identity.join("/"),
                kind: spec.kind,
                weight: group.weight,
                queued: group.queued,
                running: group.running,
                limit: group.admitted_limit,
                debt: group.debt,
            })
        });
        groups.collect()
    }
}
