//! Accounts for the use of the capacity of a run.
//!
//! The only input of a [`RunAccount`] is the two event streams of a run, with all kinds of events. It
//! integrates exactly, in integers. An account that is fed during the run and one that is fed the recorded
//! events later are therefore equal byte for byte. Its memory is bounded by the live tasks and by the row
//! groups in progress, not by the length of the run.
//!
//! ```
//! use tidegate_core::observe::RunAccount;
//! use tidegate_core::pipeline::event::SchedulerInterest;
//! use tidegate_core::pipeline::{Column, PipelineEffect, Pipeline, PipelineConfig};
//! use tidegate_core::pipeline::{PlanBuilder, Strategy, TaskOutcome};
//! use tidegate_core::time::Instant;
//!
//! let plan = PlanBuilder::new().column(Column::new("answer", Strategy::Cell)).build()?;
//! let config = PipelineConfig { rows: 1, submission_limit: 4, ..PipelineConfig::default() };
//! let mut account = RunAccount::new(&plan, &config);
//! let mut pipeline = Pipeline::new(plan, config)?;
//! pipeline.set_interest(SchedulerInterest::ALL);
//!
//! pipeline.start(Instant::ZERO);
//! let Some(PipelineEffect::Spawn(task)) = pipeline.poll_effect() else { panic!("one task is ready") };
//! let _ = pipeline.task_finished(Instant::from_nanos(10), task.worker, TaskOutcome::Success);
//! while let Some(event) = pipeline.poll_event() {
//!     account.on_scheduler(&event);
//! }
//!
//! let submission = &account.figures().tasks[0];
//! assert_eq!((submission.busy_slot_ns, submission.idle_slot_ns), (10, 30));
//! assert_eq!(submission.frontier_slot_ns, 30, "nothing was queued");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The cause of each idle slot
//!
//! At every instant every free slot has exactly one [`IdleCause`]. The times of all causes sum to the idle
//! time.
//!
//! For a task resource that no queued task needs, the first of these that applies is the cause:
//!
//! 1. The run is stopping.
//! 2. No worker runs, and a hook or checkpoint is in progress.
//! 3. No worker runs, and failed tasks are delayed.
//! 4. Further row groups are not admitted.
//! 5. The next tasks wait for running ones. If no worker runs, the run is ending.
//!
//! For a task resource that a queued task needs: if all resources of such a task are available, the cause is
//! the policy's denial of its group, or else that yielded workers resume first. If every such task is short
//! of a resource, that shortage is the cause.
//!
//! For a request resource without waiters, the cause is [`IdleCause::TaskAdmission`] if tasks are queued,
//! because they might call. Otherwise it is the same as for a task resource that no queued task needs. With
//! waiters, the cause of all free slots is an outage or else a cooldown, if there is one. Otherwise the
//! slots above the adaptive limit have that limit as their cause, the slots that other domains use up have
//! the provider's cap, and the rest waits for a budget, for a turn, or for the task resources of yielded
//! workers.

mod calls;
mod cause;
mod columns;
mod figures;
mod gaps;
mod service;
mod slots;
#[cfg(test)]
mod tests_cause;
mod work;

use self::calls::Calls;
use self::gaps::Gaps;
use self::work::TaskResources;
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload, StopKind};
use crate::pipeline::{ColumnId, PipelineConfig, Plan, TaskOutcome};
use crate::request::event::RequestEvent;
use crate::request::{RequestAdmission, ResourceBaseline, ResourceId};
use crate::task::GroupKind;
use crate::time::Instant;

pub use cause::{CauseShare, IdleCause};
pub use figures::{Distribution, Maxima, ResourceFigures, RunFigures};
pub use service::{GroupService, ServiceFigures};

/// The account of one run. See the [module documentation](self).
///
/// Feed it every event of both streams: each stream in its own order, and the two interleaved as they
/// happened. An event that is earlier than a previous one counts as of the time of that one. The cost is
/// O(1) per event, and O(columns x resources) whenever time has passed.
#[derive(Clone, Debug)]
pub struct RunAccount {
    tasks: TaskResources,
    calls: Calls,
    gaps: Gaps,
    started: Option<Instant>,
    at: Instant,
    stop: Option<StopKind>,
    /// The next expected sequence number of each stream.
    next: [Option<u64>; 2],
    missing: u64,
    wait_while_leased: u128,
    first_model: Option<(Instant, ColumnId)>,
    dispatched: u64,
    skips: u64,
    overrides: u64,
    yields: u64,
}

impl RunAccount {
    /// Creates an account of a run of `plan` under `config` that has not started.
    #[must_use]
    pub fn new(plan: &Plan, config: &PipelineConfig) -> Self {
        Self {
            tasks: TaskResources::new(plan, config),
            calls: Calls::default(),
            gaps: Gaps::new(plan),
            started: None,
            at: Instant::ZERO,
            stop: None,
            next: [None; 2],
            missing: 0,
            wait_while_leased: 0,
            first_model: None,
            dispatched: 0,
            skips: 0,
            overrides: 0,
            yields: 0,
        }
    }

    /// Creates an account that also measures the service of each fairness group, for
    /// [`RunAccount::service`].
    ///
    /// Whenever time has passed, this costs O(groups x resources) more, and up to as many times that as
    /// there are groups.
    #[must_use]
    pub fn with_service(plan: &Plan, config: &PipelineConfig) -> Self {
        let mut account = Self::new(plan, config);
        account.tasks.account_for_service(plan);
        account
    }

    /// Sets the weight of a column's fairness group from `now` on. No event reports such a change.
    pub fn set_weight(&mut self, now: Instant, column: ColumnId, weight: f64) {
        if self.stop.is_none() {
            self.advance(now);
            self.tasks.set_weight(column.index(), weight);
        }
    }

    /// Returns the service of each fairness group up to the latest event, or `None` if the account was not
    /// created by [`RunAccount::with_service`].
    #[must_use]
    pub fn service(&self) -> Option<ServiceFigures> {
        self.tasks.service()
    }

    /// Adds a request resource in its present state. Events of resources that were not added are ignored.
    /// Adding a resource again changes nothing.
    pub fn add_calls(&mut self, baseline: &ResourceBaseline) {
        self.calls.add(self.at, baseline);
    }

    /// Adds every request resource of `admission` in its state at `now`. Call it before the run starts, at
    /// the point at which the stream of request events begins.
    pub fn add_all_calls(&mut self, now: Instant, admission: &RequestAdmission) {
        let baselines = admission.resources().filter_map(|resource| admission.baseline(now, resource));
        baselines.for_each(|baseline| self.add_calls(&baseline));
    }

    /// Sets the most calls that the settings of a request resource allow from `now` on. `None` means that
    /// only the cap applies. No event reports such a change.
    pub fn clamp_calls(&mut self, now: Instant, resource: ResourceId, clamp: Option<u32>) {
        if self.stop.is_none() {
            self.advance(now);
            self.calls.clamp(resource, clamp);
        }
    }

    /// Processes the next event of the scheduler.
    pub fn on_scheduler(&mut self, event: &SchedulerEvent) {
        if self.stop.is_some() {
            return;
        }
        self.count_missing(0, event.sequence);
        self.advance(event.at);
        let (at, correlation) = (self.at, &event.correlation);
        match event.payload {
            SchedulerEventPayload::JobStarted { .. } => self.begin(),
            SchedulerEventPayload::JobCompleted { stop, .. } => {
                self.stop = Some(stop);
                self.gaps.clear();
            }
            SchedulerEventPayload::RowGroupCheckpointed { .. } | SchedulerEventPayload::RowGroupDiscarded { .. } => {
                correlation.row_group.into_iter().for_each(|row_group| self.gaps.remove_row_group(row_group));
            }
            SchedulerEventPayload::TaskLeaseAcquired { .. } => self.on_dispatch(event),
            SchedulerEventPayload::TaskCompleted {
                outcome: Some(TaskOutcome::Success | TaskOutcome::Skipped), ..
            } => {
                self.gaps.completed(at, correlation);
            }
            SchedulerEventPayload::PressureAdvisorySkipped { .. } => self.skips += 1,
            SchedulerEventPayload::LivenessOverride => self.overrides += 1,
            SchedulerEventPayload::TaskYielded { .. } => self.yields += 1,
            _ => {}
        }
        self.tasks.on_run(correlation, &event.payload);
        self.tasks.on_task(at, correlation, &event.payload);
    }

    /// Processes the next event of request admission.
    pub fn on_request(&mut self, event: &RequestEvent) {
        if self.stop.is_some() {
            return;
        }
        self.count_missing(1, event.sequence);
        self.advance(event.at);
        self.calls.on_event(event);
    }

    /// Returns the figures up to the latest event. Changes nothing. O(resources x causes).
    #[must_use]
    pub fn figures(&self) -> RunFigures {
        let name_of = |resource| self.tasks.name_of(resource);
        let started = self.started.unwrap_or(self.at);
        let [row_groups, queued, workers, yielded] = self.tasks.maxima;
        RunFigures {
            span_ns: (self.at - started).as_nanos(),
            stop: self.stop,
            tasks: self.tasks.resources.iter().map(|slots| slots.figures(self.at, name_of)).collect(),
            requests: self.calls.slots().map(|slots| slots.figures(self.at, name_of)).collect(),
            queue_age: (&self.tasks.queue_age).into(),
            downstream_ready_gap: (&self.gaps.gap).into(),
            request_wait: (&self.calls.waits).into(),
            request_wait_while_leased_ns: self.wait_while_leased,
            first_model_dispatch_ns: self.first_model.map(|(at, _)| (at - started).as_nanos()),
            first_model_column: self.first_model.map(|(_, column)| column),
            dispatched: self.dispatched,
            advisory_skips: self.skips,
            liveness_overrides: self.overrides,
            yields: self.yields,
            hidden_waiters: self.tasks.hidden_waiters,
            maxima: Maxima {
                row_groups,
                queued,
                workers,
                yielded,
                in_flight: self.calls.max_in_flight,
                waiters: self.calls.max_waiters,
            },
            missing_events: self.missing,
        }
    }

    fn begin(&mut self) {
        self.started = Some(self.at);
        self.tasks.resources.iter_mut().for_each(|slots| slots.begin(self.at));
        self.calls.begin(self.at);
    }

    fn on_dispatch(&mut self, event: &SchedulerEvent) {
        let correlation = &event.correlation;
        self.dispatched += 1;
        if correlation.attempt == Some(1) {
            self.gaps.started(self.at, correlation);
        }
        if let (None, Some(column), Some(GroupKind::Model | GroupKind::CustomModel)) =
            (self.first_model, correlation.column, correlation.group_kind)
        {
            self.first_model = Some((self.at, column));
        }
    }

    /// Accounts for the time up to `to` in the present state. Time before the start of the run does not
    /// count.
    fn advance(&mut self, to: Instant) {
        let from = self.at;
        if to <= from {
            return;
        }
        self.at = to;
        if self.started.is_none() {
            return;
        }
        let without_waiters = match self.tasks.queued {
            0 => self.tasks.cause_beyond_frontier(),
            _ => IdleCause::TaskAdmission,
        };
        self.tasks.pass(from, to);
        self.calls.pass(from, to, without_waiters, self.tasks.yielded);
        let holding = self.calls.waiters.saturating_sub(self.tasks.yielded);
        self.wait_while_leased += u128::from(holding) * u128::from((to - from).as_nanos());
    }

    fn count_missing(&mut self, stream: usize, sequence: u64) {
        let expected = self.next[stream].unwrap_or(sequence);
        self.missing += sequence.saturating_sub(expected);
        self.next[stream] = Some(sequence + 1);
    }
}
