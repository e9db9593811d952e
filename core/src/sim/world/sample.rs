//! The figures of one instant of a world.

use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;

use super::World;
use crate::limit::RampState;
use crate::observe::IdleFigures;
use crate::pipeline::{RowGroupBlock, StopReason};
use crate::sim::report::RunSoFar;
use crate::task::GroupKind;
use crate::time::Instant;

/// The figures of one instant. Reading them costs O(models + columns + groups + resources x demands), however
/// many workers there are.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Sample {
    /// Virtual time.
    pub at: Instant,
    /// Events carried out so far.
    pub steps: u64,
    /// By model, in the scenario's order.
    pub providers: Vec<ProviderSample>,
    /// By column, in the scenario's order.
    pub columns: Vec<ColumnSample>,
    /// By fairness group, in the order in which columns mention them.
    pub groups: Vec<GroupSample>,
    /// The resources of the task stage: `submission`, then those of the models, then the scenario's own.
    pub slots: Vec<SlotSample>,
    /// The row groups.
    pub row_groups: RowGroupsSample,
    /// Tasks that are ready and wait for a worker.
    pub queue_depth: usize,
    /// Workers.
    pub running: usize,
    /// Rows in finished row groups.
    pub rows_done: u64,
    /// Rows dropped.
    pub rows_dropped: u64,
    /// Rows of the run.
    pub rows_total: u64,
    /// Whether the run has ended.
    pub finished: bool,
}

/// The figures of one provider.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ProviderSample {
    /// The model's name.
    pub name: String,
    /// What decides the limit: `aimd`, `vegas`, `tide` or `fixed`.
    pub algorithm: &'static str,
    /// The adaptive limit.
    pub limit: u32,
    /// The most the limit can become.
    pub effective_max: u32,
    /// The limit the first cut found too high; 0 before any.
    pub rate_limit_ceiling: u32,
    /// The start-up ramp that runs, if one does.
    pub ramp: Option<RampState>,
    /// Calls out.
    pub in_flight: u32,
    /// Calls that wait for admission.
    pub waiting: u32,
    /// Those of them whose workers hold nothing meanwhile.
    pub yielded: u32,
    /// What the provider would truly bear.
    pub capacity: u32,
    /// Whether a change has set that, in place of the scenario's schedule.
    pub changed: bool,
    /// The end of the burst of refusals that is on.
    pub refusing_until: Option<Instant>,
    /// The end of the slow patch that is on.
    pub slow_until: Option<Instant>,
    /// How many times as long calls take in it; 1 outside of one.
    pub slow_factor: f64,
    /// Calls it accepted so far.
    pub accepted: u64,
    /// Calls it refused so far.
    pub refused: u64,
    /// The end of the cooldown in force.
    pub cooldown_until: Option<Instant>,
    /// Slot-time so far.
    pub idle: IdleFigures,
}

/// The tasks of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ColumnSample {
    /// Ready, and without a worker.
    pub ready: u32,
    /// With a worker whose call is out.
    pub calling: u32,
    /// With a worker that waits for a call.
    pub waiting: u32,
    /// Those of them whose workers hold nothing meanwhile.
    pub yielded: u32,
    /// With a worker that does local work.
    pub local: u32,
    /// Made.
    pub done: u64,
    /// Failed for good, a bug included.
    pub failed: u64,
    /// Skipped, with an upstream too.
    pub skipped: u64,
    /// Rows that were dropped because this column failed or was missing.
    pub dropped: u64,
}

/// One fairness group.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GroupSample {
    /// Who it is, such as model and column.
    pub name: String,
    /// What its tasks do.
    pub kind: GroupKind,
    /// Its weight.
    pub weight: f64,
    /// Tasks that are ready, and without a worker.
    pub queued: u32,
    /// Tasks with a worker that holds something.
    pub running: u32,
    /// How many it may hold while others press; `None`: no bound.
    pub limit: Option<u32>,
    /// What it owes of the resource of which it owes most.
    pub debt: u32,
}

/// One resource of the task stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SlotSample {
    /// Its name.
    pub name: String,
    /// What is held of it.
    pub used: u32,
    /// What there is of it.
    pub limit: u32,
    /// What queued tasks want of it.
    pub demand: u64,
}

/// The row groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RowGroupsSample {
    /// In work.
    pub open: u32,
    /// How many the run wants to have in work.
    pub target: u32,
    /// Saved.
    pub done: u32,
    /// Of the whole run.
    pub total: u32,
    /// Why it does not want more, if a control loop chooses.
    pub block: Option<RowGroupBlock>,
}

impl World {
    /// The figures of this instant. Changes nothing.
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

    /// What the run has done: its report, or what that would be now.
    pub(in crate::sim) fn run_so_far(&self) -> RunSoFar {
        match &self.finished {
            Some(report) => RunSoFar::of(report.clone(), true),
            None => RunSoFar::of(self.pipeline.report_at(self.now, StopReason::Completed), false),
        }
    }

    fn provider_samples(&self) -> Vec<ProviderSample> {
        let providers = self.providers.iter().filter_map(|provider| {
            let state = self.admission.stats(self.now, provider.resource)?;
            let machine = &provider.machine;
            let (counters, slow) = (machine.counters(), machine.slowed_until(self.now));
            Some(ProviderSample {
                name: provider.name.clone(),
                algorithm: provider.algorithm_name(),
                limit: state.limit,
                effective_max: state.effective_max,
                rate_limit_ceiling: state.rate_limit_ceiling,
                ramp: state.ramp,
                in_flight: state.in_flight,
                waiting: state.waiters,
                yielded: state.suspended,
                capacity: machine.capacity(self.now),
                changed: machine.is_overridden(),
                refusing_until: machine.refusing_until(self.now),
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
        let columns = self.pipeline.columns().zip(&self.kinds).map(|(column, kind)| ColumnSample {
            ready: column.queued,
            calling: kind.at_work.calling,
            waiting: kind.at_work.waiting,
            yielded: column.suspended,
            local: kind.at_work.local,
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
