//! A test driver: the test decides how and when each worker ends.

use alloc::string::String;
use alloc::vec::Vec;

use super::*;
use crate::id::SlotKey;
use crate::lease::ReleaseResult;
use crate::pipeline::event::{SchedulerEvent, SchedulerInterest};
use crate::request::ResourceId;
use crate::time::{Duration, Instant};

/// A pipeline with its clock, and the effects so far.
pub(crate) struct Rig {
    pub(crate) pipeline: Pipeline,
    pub(crate) now: Instant,
    /// The workers that have not ended, in the order they were spawned.
    pub(crate) running: Vec<Task>,
    /// All spawned tasks.
    pub(crate) spawned: Vec<Task>,
    /// The row groups with a checkpoint effect, in order.
    pub(crate) finished: Vec<FinishedRowGroup>,
    /// The row groups whose checkpoint is in progress.
    pub(crate) saving: Vec<u32>,
    /// The row groups whose pre-batch hook is in progress.
    pub(crate) pre_batch: Vec<SeededRowGroup>,
    /// The row groups whose post-batch hook is in progress.
    pub(crate) post_batch: Vec<FinishedRowGroup>,
    pub(crate) aborted: Vec<WorkerId>,
    pub(crate) warnings: Vec<ProviderDegraded>,
    /// The number of claims in progress.
    pub(crate) claims: u32,
    pub(crate) ends: u32,
}

impl Rig {
    /// Creates and starts a pipeline over the columns.
    pub(crate) fn start(columns: impl IntoIterator<Item = Column>, config: PipelineConfig) -> Self {
        Self::start_with(columns, config, SchedulerInterest::NONE)
    }

    /// Creates and starts a pipeline whose task resources represent request resources. All events are
    /// enabled.
    pub(crate) fn start_calling(
        columns: impl IntoIterator<Item = Column>,
        config: PipelineConfig,
        calls: &[(&str, ResourceId)],
    ) -> Self {
        let mut rig = Self::new(columns, config);
        rig.pipeline.set_interest(SchedulerInterest::ALL);
        rig.pipeline.set_request_resources(SlotKey::from_bits(0), calls);
        rig.pipeline.start(rig.now);
        rig.drain();
        rig
    }

    /// Creates and starts a pipeline that emits these kinds of events.
    pub(crate) fn start_with(
        columns: impl IntoIterator<Item = Column>,
        config: PipelineConfig,
        interest: SchedulerInterest,
    ) -> Self {
        let mut rig = Self::new(columns, config);
        rig.pipeline.set_interest(interest);
        rig.pipeline.start(rig.now);
        rig.drain();
        rig
    }

    /// Returns the events since the last call.
    pub(crate) fn events(&mut self) -> Vec<SchedulerEvent> {
        core::iter::from_fn(|| self.pipeline.poll_event()).collect()
    }

    pub(crate) fn new(columns: impl IntoIterator<Item = Column>, config: PipelineConfig) -> Self {
        let plan = columns.into_iter().fold(PlanBuilder::new(), PlanBuilder::column).build().unwrap();
        Self {
            pipeline: Pipeline::new(plan, config).unwrap(),
            now: Instant::ZERO,
            running: Vec::new(),
            spawned: Vec::new(),
            finished: Vec::new(),
            saving: Vec::new(),
            pre_batch: Vec::new(),
            post_batch: Vec::new(),
            aborted: Vec::new(),
            warnings: Vec::new(),
            claims: 0,
            ends: 0,
        }
    }

    pub(crate) fn drain(&mut self) {
        while let Some(effect) = self.pipeline.poll_effect() {
            assert_eq!(self.ends, 0, "{effect:?} after the end");
            match effect {
                PipelineEffect::Spawn(task) => {
                    self.running.push(task);
                    self.spawned.push(task);
                }
                PipelineEffect::Checkpoint(group) => {
                    assert!(self.running.iter().all(|task| task.row_group != group.row_group));
                    self.saving.push(group.row_group);
                    self.finished.push(group);
                }
                PipelineEffect::ClaimRowGroup => self.claims += 1,
                PipelineEffect::PreBatch(batch) => self.pre_batch.push(batch),
                PipelineEffect::PostBatch(group) => self.post_batch.push(group),
                PipelineEffect::Abort(worker) => self.aborted.push(worker),
                PipelineEffect::Warn(warning) => self.warnings.push(warning),
                PipelineEffect::Finished => {
                    assert!(self.running.is_empty() && self.saving.is_empty());
                    assert!(self.pre_batch.is_empty() && self.post_batch.is_empty());
                    self.ends += 1;
                }
            }
        }
        let leading = self.running.iter().filter(|task| !task.follows()).count();
        assert_eq!(self.pipeline.active_leases(), leading, "one lease per worker or batch");
    }

    pub(crate) fn name(&self, task: &Task) -> String {
        self.pipeline.plan().columns()[task.column.index()].name.clone()
    }

    /// Returns the labels of the running tasks: `column:row-group` or `column:row-group.row`.
    pub(crate) fn running_names(&self) -> Vec<String> {
        self.running.iter().map(|task| self.label(task)).collect()
    }

    pub(crate) fn label(&self, task: &Task) -> String {
        let name = self.name(task);
        task.row.map_or_else(
            || alloc::format!("{name}:{}", task.row_group),
            |row| alloc::format!("{name}:{}.{row}", task.row_group),
        )
    }

    /// Ends the worker with this label.
    pub(crate) fn end(&mut self, label: &str, outcome: TaskOutcome) {
        self.end_worker_with(label, Ok(outcome));
    }

    /// Reports that the worker with this label met a bug.
    pub(crate) fn panic_worker(&mut self, label: &str, cause: &str) {
        self.end_worker_with(label, Err(cause.into()));
    }

    pub(crate) fn end_worker_with(&mut self, label: &str, ended: Result<TaskOutcome, FatalError>) {
        let task = self.take(label);
        let answer = match ended {
            Ok(outcome) => self.pipeline.task_finished(self.now, task.worker, outcome),
            Err(error) => self.pipeline.task_panicked(self.now, task.worker, error),
        };
        assert_eq!(answer, ReleaseResult::Released);
        self.drain();
    }

    /// Reports that the worker with this label could not be started.
    pub(crate) fn fail_spawn(&mut self, label: &str) {
        let task = self.take(label);
        assert_eq!(self.pipeline.spawn_failed(self.now, task.worker), ReleaseResult::Released);
        self.drain();
    }

    fn take(&mut self, label: &str) -> Task {
        let at = self.running.iter().position(|task| self.label(task) == label);
        self.running.remove(at.unwrap_or_else(|| panic!("{label} is not running: {:?}", self.running_names())))
    }

    pub(crate) fn succeed(&mut self, label: &str) {
        self.end(label, TaskOutcome::Success);
    }

    /// Ends every worker that runs now, in order.
    pub(crate) fn end_all(&mut self, outcome: TaskOutcome) {
        for label in self.running_names() {
            self.end(&label, outcome);
        }
    }

    pub(crate) fn saved(&mut self, row_group: u32) {
        self.finish_checkpoint(row_group, Ok(()));
    }

    pub(crate) fn finish_checkpoint(&mut self, row_group: u32, result: Result<(), SaveError>) {
        self.saving.retain(|group| *group != row_group);
        self.pipeline.checkpoint_finished(self.now, row_group, result);
        self.drain();
    }

    /// Reports the result of the claim in progress.
    pub(crate) fn claim(&mut self, result: Result<Option<u32>, HookError>) {
        self.claim_part(result.map(|row_group| row_group.map(ClaimedRowGroup::from)));
    }

    /// Does the same as [`claim`](Self::claim), also for a part of a row group.
    pub(crate) fn claim_part(&mut self, result: Result<Option<ClaimedRowGroup>, HookError>) {
        self.claims -= 1;
        self.pipeline.row_group_claimed(self.now, result);
        self.drain();
    }

    pub(crate) fn finish_pre_batch(&mut self, row_group: u32, result: Result<Vec<u32>, HookError>) {
        self.pre_batch.retain(|batch| batch.row_group != row_group);
        self.pipeline.pre_batch_finished(self.now, row_group, result);
        self.drain();
    }

    pub(crate) fn finish_post_batch(&mut self, row_group: u32, result: Result<(), HookError>) {
        self.post_batch.retain(|group| group.row_group != row_group);
        self.pipeline.post_batch_finished(self.now, row_group, result);
        self.drain();
    }

    pub(crate) fn advance(&mut self, span: Duration) {
        self.now += span;
        self.pipeline.handle_timeout(self.now);
        self.drain();
    }

    /// Advances the clock until the next task is due.
    pub(crate) fn back_off(&mut self) {
        let due = self.pipeline.poll_timeout().expect("a task is delayed");
        self.advance(due - self.now);
    }

    pub(crate) fn drain_run(&mut self) {
        self.pipeline.drain(self.now);
        self.drain();
    }

    pub(crate) fn wind_down(&mut self) {
        self.pipeline.wind_down(self.now);
        self.drain();
    }

    pub(crate) fn cancel(&mut self) {
        self.pipeline.cancel(self.now);
        self.drain();
    }

    /// Runs to the end. `outcome` returns the outcome of each worker. Every hook and checkpoint succeeds.
    pub(crate) fn run(&mut self, mut outcome: impl FnMut(&Self, &Task) -> TaskOutcome) {
        while self.ends == 0 {
            if let Some(row_group) = self.saving.first().copied() {
                self.saved(row_group);
            } else if let Some(batch) = self.pre_batch.first().copied() {
                self.finish_pre_batch(batch.row_group, Ok(Vec::new()));
            } else if let Some(row_group) = self.post_batch.first().map(|group| group.row_group) {
                self.finish_post_batch(row_group, Ok(()));
            } else if let Some(task) = self.running.first().copied() {
                let outcome = outcome(self, &task);
                self.end(&self.label(&task), outcome);
            } else {
                let due = self.pipeline.poll_timeout().expect("a run that has not ended has work in progress");
                self.advance(due - self.now);
            }
        }
    }

    pub(crate) fn run_well(&mut self) {
        self.run(|_, _| TaskOutcome::Success);
    }

    /// Returns the report of an ended run, after checking its equations.
    pub(crate) fn report(&self) -> &RunReport {
        let report = self.pipeline.report().expect("the run has ended");
        assert_eq!(report.rows_in, report.rows_out + report.rows_dropped + report.rows_unmade, "{report:?}");
        assert_eq!(report.rows, report.rows_resumed + report.rows_in + report.rows_not_started, "{report:?}");
        assert_eq!(report.dropped.iter().map(|count| count.rows).sum::<u64>(), report.rows_dropped);
        for column in &report.columns {
            assert_eq!(column.tasks.spawned, column.tasks.ended(), "{column:?}");
        }
        assert_eq!((self.pipeline.active_leases(), self.pipeline.queued()), (0, 0));
        assert_eq!(self.pipeline.poll_timeout(), None);
        report
    }

    /// Returns `(column, reason, rows)` of each dropped count.
    pub(crate) fn dropped(&self) -> Vec<(String, DropReason, u64)> {
        let columns = self.pipeline.plan().columns();
        let name = |id: ColumnId| columns[id.index()].name.clone();
        self.report().dropped.iter().map(|count| (name(count.column), count.reason, count.rows)).collect()
    }
}

pub(crate) fn cell(name: &str, upstreams: &[&str]) -> Column {
    column(name, Strategy::Cell, upstreams)
}

/// Returns a cell column whose cells start in batches of up to `size`.
pub(crate) fn batched(name: &str, upstreams: &[&str], size: u32) -> Column {
    cell(name, upstreams).batched(size)
}

pub(crate) fn whole(name: &str, upstreams: &[&str]) -> Column {
    column(name, Strategy::FullColumn, upstreams)
}

pub(crate) fn scratch(name: &str) -> Column {
    column(name, Strategy::FromScratch, &[])
}

fn column(name: &str, strategy: Strategy, upstreams: &[&str]) -> Column {
    // All columns share one fairness group, so tasks start in the order in which they became ready.
    let column = Column::new(name, strategy).with_group(crate::task::TaskGroup::local("all"));
    upstreams.iter().fold(column, |column, upstream| column.with_upstream(upstream))
}

pub(crate) fn rows(rows: u64, row_group_size: u32) -> PipelineConfig {
    PipelineConfig { rows, row_group_size, ..PipelineConfig::default() }
}

pub(crate) fn retry(kind: RetryKind) -> TaskOutcome {
    TaskOutcome::Retryable { kind, status: None, retry_after: None }
}

pub(crate) fn rate_limited(retry_after: Duration) -> TaskOutcome {
    TaskOutcome::Retryable { kind: RetryKind::RateLimited, status: None, retry_after: Some(retry_after) }
}

pub(crate) const FAILED: TaskOutcome = TaskOutcome::Failed(FailureKind::Request);
