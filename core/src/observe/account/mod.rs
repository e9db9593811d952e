//! Where did the capacity of a run go?
//!
//! A [`RunAccount`] is fed the two event streams of a run, with all their kinds, and nothing else. It
//! integrates exactly, in integers, so that an account that is fed while the run goes on and one that is fed
//! its recorded events later agree to the byte. Its memory is bounded by the work that is live and by the row
//! groups in work, never by the length of the run.
//!
//! ```
//! use tidegate_core::observe::RunAccount;
//! use tidegate_core::pipeline::event::Interest;
//! use tidegate_core::pipeline::{Column, Effect, Pipeline, PipelineConfig, PlanBuilder, Strategy, TaskOutcome};
//! use tidegate_core::time::Instant;
//!
//! let plan = PlanBuilder::new().column(Column::new("answer", Strategy::Cell)).build()?;
//! let config = PipelineConfig { rows: 1, submission_limit: 4, ..PipelineConfig::default() };
//! let mut account = RunAccount::new(&plan, &config);
//! let mut pipeline = Pipeline::new(plan, config)?;
//! pipeline.set_interest(Interest::ALL);
//!
//! pipeline.start(Instant::ZERO);
//! let Some(Effect::Spawn(task)) = pipeline.poll_effect() else { panic!("one task is ready") };
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
//! # What each slot is idle for
//!
//! At every instant every free slot has exactly one [`IdleCause`]; their times sum to the idle time. Of the
//! resources of the task stage, a slot that no queued task wants is idle because of the frontier: the run is
//! stopping; else, where no worker runs, a hook or checkpoint is under way or failed tasks are paused; else
//! further row groups are not admitted; else the next tasks wait for running ones. One that is wanted is idle
//! because the policy refuses a task that lacks nothing, or else because every such task is short of
//! something.
//!
//! Of a request resource, slots without a waiter are idle as the frontier is, or because tasks are queued
//! that might call. With waiters: for a cooldown; else those above the adaptive limit for that, those that
//! other domains use up for the provider's cap, and the rest for a budget or a turn.

mod calls;
mod cause;
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

/// Accounts for one run. See the [module documentation](self).
///
/// Feed it every event of both streams, each stream in its order, and the two as they happened. An event that
/// is earlier than one already seen counts as of that instant. O(1) for each event, and O(columns x
/// resources) whenever time has passed.
#[derive(Clone, Debug)]
pub struct RunAccount {
    tasks: TaskResources,
    calls: Calls,
    gaps: Gaps,
    started: Option<Instant>,
    at: Instant,
    stop: Option<StopKind>,
    /// The numbers that come next, by stream.
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
    /// An account of a run of `plan` under `config` that has not started.
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

    /// The same with an account of what each fairness group gets: [`RunAccount::service`]. It costs O(groups
    /// x resources) more, and up to as many times that as there are groups, whenever time has passed.
    #[must_use]
    pub fn with_service(plan: &Plan, config: &PipelineConfig) -> Self {
        let mut account = Self::new(plan, config);
        account.tasks.account_for_service(plan);
        account
    }

    /// The fairness group of a column has another weight from `now` on. No event tells.
    pub fn set_weight(&mut self, now: Instant, column: ColumnId, weight: f64) {
        if self.stop.is_none() {
            self.advance(now);
            self.tasks.set_weight(column.index(), weight);
        }
    }

    /// What each fairness group got, up to the latest event. `None` without
    /// [an account of it](RunAccount::with_service).
    #[must_use]
    pub fn service(&self) -> Option<ServiceFigures> {
        self.tasks.service()
    }

    /// Takes note of a request resource as it stands: events of those it was not told of are ignored. A
    /// second mention of one changes nothing.
    pub fn add_calls(&mut self, baseline: &ResourceBaseline) {
        self.calls.add(self.at, baseline);
    }

    /// The same for every resource of a controller, as it stands at `now`. To be called before the run
    /// starts, at the point from which on its events are told.
    pub fn add_all_calls(&mut self, now: Instant, admission: &RequestAdmission) {
        let baselines = admission.resources().filter_map(|resource| admission.baseline(now, resource));
        baselines.for_each(|baseline| self.add_calls(&baseline));
    }

    /// The settings of a request resource allow at most `clamp` calls from `now` on; `None`: as many as the
    /// cap. No event tells.
    pub fn clamp_calls(&mut self, now: Instant, resource: ResourceId, clamp: Option<u32>) {
        if self.stop.is_none() {
            self.advance(now);
            self.calls.clamp(resource, clamp);
        }
    }

    /// The next event of the run.
    pub fn on_scheduler(&mut self, event: &SchedulerEvent) {
        if self.stop.is_some() {
            return;
        }
        self.count_missing(0, event.sequence);
        self.advance(event.at);
        let (at, about) = (self.at, &event.correlation);
        match event.payload {
            SchedulerEventPayload::JobStarted { .. } => self.begin(),
            SchedulerEventPayload::JobCompleted { stop, .. } => {
                self.stop = Some(stop);
                self.gaps.forget_all();
            }
            SchedulerEventPayload::RowGroupCheckpointed { .. } | SchedulerEventPayload::RowGroupDiscarded { .. } => {
                about.row_group.into_iter().for_each(|row_group| self.gaps.forget(row_group));
            }
            SchedulerEventPayload::TaskLeaseAcquired { .. } => self.on_dispatch(event),
            SchedulerEventPayload::TaskCompleted {
                outcome: Some(TaskOutcome::Success | TaskOutcome::Skipped), ..
            } => {
                self.gaps.completed(at, about);
            }
            SchedulerEventPayload::PressureAdvisorySkipped { .. } => self.skips += 1,
            SchedulerEventPayload::LivenessOverride => self.overrides += 1,
            SchedulerEventPayload::TaskYielded { .. } => self.yields += 1,
            _ => {}
        }
        self.tasks.on_run(about, &event.payload);
        self.tasks.on_task(at, about, &event.payload);
    }

    /// The next event of request admission.
    pub fn on_request(&mut self, event: &RequestEvent) {
        if self.stop.is_some() {
            return;
        }
        self.count_missing(1, event.sequence);
        self.advance(event.at);
        self.calls.on_event(event);
    }

    /// The figures up to the latest event. Changes nothing. O(resources x causes).
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
        let about = &event.correlation;
        self.dispatched += 1;
        if about.attempt == Some(1) {
            self.gaps.started(self.at, about);
        }
        if let (None, Some(column), Some(GroupKind::Model | GroupKind::CustomModel)) =
            (self.first_model, about.column, about.group_kind)
        {
            self.first_model = Some((self.at, column));
        }
    }

    /// Lets time pass over what is. Before the run starts it does not count.
    fn advance(&mut self, to: Instant) {
        let from = self.at;
        if to <= from {
            return;
        }
        self.at = to;
        if self.started.is_none() {
            return;
        }
        let nobody = match self.tasks.queued {
            0 => self.tasks.cause_beyond_frontier(),
            _ => IdleCause::TaskAdmission,
        };
        self.tasks.pass(from, to);
        self.calls.pass(from, to, nobody, self.tasks.yielded);
        let holding = self.calls.waiters.saturating_sub(self.tasks.yielded);
        self.wait_while_leased += u128::from(holding) * u128::from((to - from).as_nanos());
    }

    fn count_missing(&mut self, stream: usize, sequence: u64) {
        let expected = self.next[stream].unwrap_or(sequence);
        self.missing += sequence.saturating_sub(expected);
        self.next[stream] = Some(sequence + 1);
    }
}
