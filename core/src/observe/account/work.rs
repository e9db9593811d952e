//! The task resources of a run, computed from the events of the scheduler.

use alloc::string::String;
use alloc::vec::Vec;

use super::cause::IdleCause;
use super::columns::ColumnCounts;
use super::service::{Service, ServiceFigures};
use super::slots::{AttributedCause, Slots};
use crate::map::Map;
use crate::observe::Histogram;
use crate::pipeline::event::{Correlation, SchedulerEventPayload, StopKind};
use crate::pipeline::{PipelineConfig, Plan};
use crate::task::TaskDenialReason;
use crate::time::Instant;

/// The state of a task from its readiness to its end.
#[derive(Clone, Copy, Debug)]
enum LiveTaskState {
    /// Ready, but not queued yet.
    Ready,
    Queued(Instant),
    Running {
        yielded: bool,
        /// Since when the task has been running, or has been yielded.
        since: Instant,
    },
    /// Paused until its next attempt.
    Deferred,
}

#[derive(Clone, Copy, Debug)]
struct LiveTask {
    column: usize,
    row_group: u32,
    state: LiveTaskState,
}

/// The resources, the queue and the workers.
#[derive(Clone, Debug)]
pub(super) struct TaskResources {
    pub(super) resources: Vec<Slots>,
    /// By column.
    columns: Vec<ColumnCounts>,
    /// By resource: the columns that need it.
    wanted_by: Vec<Vec<usize>>,
    /// By fairness group: the latest denial by the policy. It stays valid, because a denied group is
    /// evaluated again only after a change.
    denials: Vec<Option<IdleCause>>,
    live: Map<u64, LiveTask>,
    /// By row group in progress: the number of its live tasks.
    row_groups: Map<u32, u32>,
    /// The number of row groups in progress without live tasks.
    idle_row_groups: u32,
    pending_row_groups: u32,
    deferred: u32,
    stopping: bool,
    pub(super) queued: u32,
    pub(super) workers: u32,
    pub(super) yielded: u32,
    pub(super) queue_age: Histogram,
    pub(super) hidden_waiters: u64,
    pub(super) maxima: [u32; 4],
    /// The service of each group, if it is accounted for.
    service: Option<Service>,
    at: Instant,
}

impl TaskResources {
    pub(super) fn new(plan: &Plan, config: &PipelineConfig) -> Self {
        let named = config.resources.iter().map(|(name, limit)| (name.as_str(), *limit));
        let resources: Vec<Slots> = core::iter::once(("submission", config.submission_limit))
            .chain(named)
            .map(|(name, limit)| Slots::new(name, limit))
            .collect();
        let mut groups: Vec<_> = Vec::new();
        let columns = plan.columns().iter().map(|column| {
            let name = (column.group.kind, &column.group.identity);
            let group = groups.iter().position(|known| *known == name).unwrap_or_else(|| {
                groups.push(name);
                groups.len() - 1
            });
            ColumnCounts::new(&resources, &column.demand, group)
        });
        let columns: Vec<ColumnCounts> = columns.collect();
        let wanted = |resource| {
            let needs = |column: &ColumnCounts| column.demand.iter().any(|(place, _)| *place == resource);
            (0..columns.len()).filter(|column| needs(&columns[*column])).collect()
        };
        Self {
            wanted_by: (0..resources.len()).map(wanted).collect(),
            denials: alloc::vec![None; groups.len()],
            resources,
            columns,
            live: Map::default(),
            row_groups: Map::default(),
            idle_row_groups: 0,
            pending_row_groups: 0,
            deferred: 0,
            stopping: false,
            queued: 0,
            workers: 0,
            yielded: 0,
            queue_age: Histogram::default(),
            hidden_waiters: 0,
            maxima: [0; 4],
            service: None,
            at: Instant::ZERO,
        }
    }

    /// Accounts for the service of each group too.
    pub(super) fn account_for_service(&mut self, plan: &Plan) {
        self.service = Some(Service::new(plan, &self.columns, self.resources.len()));
    }

    /// Sets the weight of a column's group.
    pub(super) fn set_weight(&mut self, column: usize, weight: f64) {
        if let (Some(service), Some(counts)) = (&mut self.service, self.columns.get(column)) {
            service.set_weight(counts.group, weight);
        }
    }

    pub(super) fn service(&self) -> Option<ServiceFigures> {
        self.service.as_ref().map(|service| service.figures(|resource| self.name_of(resource)))
    }

    pub(super) fn name_of(&self, resource: u32) -> String {
        self.resources.get(resource as usize).map_or_else(String::new, |slots| slots.name.clone())
    }

    /// Accounts for the time from `from` to `to`, in which no event happened. O(columns) for each resource.
    pub(super) fn pass(&mut self, from: Instant, to: Instant) {
        self.at = to;
        if let Some(service) = &mut self.service {
            service.pass((to - from).as_nanos(), &self.columns, &self.resources);
        }
        let beyond = self.cause_beyond_frontier();
        let mut causes: Vec<AttributedCause> = Vec::with_capacity(self.resources.len());
        causes.extend((0..self.resources.len()).map(|resource| match self.resources[resource].demand {
            0 => (beyond, None),
            _ => self.starved_by(resource),
        }));
        for (slots, cause) in self.resources.iter_mut().zip(causes) {
            slots.pass(from, to, slots.limit, |slots| [(cause, slots.free()), (cause, 0), (cause, 0)]);
        }
    }

    /// Returns why nothing is queued.
    pub(super) fn cause_beyond_frontier(&self) -> IdleCause {
        if self.stopping {
            IdleCause::RunEnding
        } else if self.workers == 0 && self.idle_row_groups > 0 {
            IdleCause::HookOrCheckpoint
        } else if self.workers == 0 && self.deferred > 0 {
            IdleCause::RetryDelay
        } else if self.pending_row_groups > 0 {
            IdleCause::RowGroupTarget
        } else if self.workers > 0 {
            IdleCause::DependencyHorizon
        } else {
            IdleCause::RunEnding
        }
    }

    /// Returns why no queued task takes the free slots of a resource. A task with all its resources
    /// available decides before one that is short of a resource.
    fn starved_by(&self, resource: usize) -> AttributedCause {
        let waiting =
            || self.wanted_by[resource].iter().map(|column| &self.columns[*column]).filter(|at| at.queued > 0);
        let shortage = |column: &ColumnCounts| {
            let short = column.demand.iter().find(|(place, amount)| self.resources[*place].free() < *amount);
            short.map(|(place, _)| *place)
        };
        if let Some(column) = waiting().find(|column| shortage(column).is_none()) {
            let default = if self.yielded > 0 { IdleCause::YieldedFirst } else { IdleCause::Unexplained };
            return (self.denials[column.group].unwrap_or(default), None);
        }
        match waiting().find_map(shortage) {
            Some(short) if short == resource => (IdleCause::TooFewSlots, None),
            Some(short) => (IdleCause::OtherResource, Some(short as u32)),
            None => (IdleCause::Unexplained, None),
        }
    }

    /// Processes an event of the run as a whole or of a row group.
    pub(super) fn on_run(&mut self, correlation: &Correlation, payload: &SchedulerEventPayload) {
        match *payload {
            SchedulerEventPayload::JobStarted { row_groups, resumed, .. } => {
                self.pending_row_groups = row_groups.saturating_sub(resumed);
            }
            SchedulerEventPayload::RowGroupAdmitted { active, .. } => {
                self.pending_row_groups = self.pending_row_groups.saturating_sub(1);
                if correlation.row_group.is_some_and(|row_group| self.row_groups.insert(row_group, 0).is_none()) {
                    self.idle_row_groups += 1;
                }
                self.maxima[0] = self.maxima[0].max(active);
            }
            SchedulerEventPayload::RowGroupCheckpointed { .. } | SchedulerEventPayload::RowGroupDiscarded { .. } => {
                correlation.row_group.into_iter().for_each(|row_group| self.remove_row_group(row_group));
            }
            SchedulerEventPayload::QueueDrained { discarded: 1.. } => self.discard_queue(),
            SchedulerEventPayload::JobStopping { stop: StopKind::WoundDown, .. } => {}
            SchedulerEventPayload::JobStopping { .. } | SchedulerEventPayload::JobCompleted { .. } => {
                self.stopping = true;
            }
            _ => {}
        }
    }

    /// Removes a row group that has ended, with its remaining tasks.
    fn remove_row_group(&mut self, row_group: u32) {
        if self.row_groups.get(&row_group).is_some_and(|tasks| *tasks > 0) {
            self.remove_where(|live| live.row_group == row_group);
        }
        if self.row_groups.remove(&row_group).is_some() {
            self.idle_row_groups -= 1;
        }
    }

    /// Removes all queued tasks, after a stop discarded them.
    fn discard_queue(&mut self) {
        self.remove_where(|live| matches!(live.state, LiveTaskState::Queued(_)));
    }

    /// Removes every task for which `is_removed` returns true.
    fn remove_where(&mut self, is_removed: impl Fn(&LiveTask) -> bool) {
        #[expect(clippy::disallowed_methods, reason = "sorted below")]
        let live = self.live.iter();
        let mut tasks: Vec<u64> = live.filter(|(_, live)| is_removed(live)).map(|(task, _)| *task).collect();
        tasks.sort_unstable();
        for task in tasks {
            self.remove(task);
        }
    }

    /// Processes an event of a task.
    pub(super) fn on_task(&mut self, at: Instant, correlation: &Correlation, payload: &SchedulerEventPayload) {
        let (Some(task), Some(column), Some(row_group)) = (correlation.task, correlation.column, correlation.row_group)
        else {
            return;
        };
        let column = column.index();
        if column >= self.columns.len() {
            return;
        }
        let live = |state| LiveTask { column, row_group, state };
        match *payload {
            SchedulerEventPayload::DependencyReady => self.enter(task, live(LiveTaskState::Ready)),
            SchedulerEventPayload::ReadyEnqueued { .. } => self.enter(task, live(LiveTaskState::Queued(at))),
            SchedulerEventPayload::RetryDeferred { .. } => self.enter(task, live(LiveTaskState::Deferred)),
            SchedulerEventPayload::TaskLeaseAcquired { .. } => {
                if let Some(LiveTask { state: LiveTaskState::Queued(since), .. }) = self.live.get(&task) {
                    self.queue_age.record(at - *since);
                }
                self.enter(task, live(LiveTaskState::Running { yielded: false, since: at }));
            }
            SchedulerEventPayload::WorkerSpawned { .. } => {
                let holds = self.live.get(&task).map(|live| live.state);
                if let Some(LiveTaskState::Ready | LiveTaskState::Deferred) = holds {
                    // It was not queued: it follows the lead of its batch, which holds the resources for all.
                    return self.remove(task);
                }
                self.hidden_waiters += u64::from(!matches!(holds, Some(LiveTaskState::Running { yielded: false, .. })));
            }
            SchedulerEventPayload::TaskYielded { .. } => {
                self.enter(task, live(LiveTaskState::Running { yielded: true, since: at }));
            }
            SchedulerEventPayload::TaskResumed { .. } => {
                self.enter(task, live(LiveTaskState::Running { yielded: false, since: at }));
            }
            SchedulerEventPayload::TaskLeaseReleased { .. } => self.remove(task),
            SchedulerEventPayload::Cancelled { queued } => {
                // A worker whose row was dropped is still running.
                let state = self.live.get(&task).map(|live| live.state);
                if queued || !matches!(state, Some(LiveTaskState::Running { .. })) {
                    self.remove(task);
                }
            }
            SchedulerEventPayload::GroupCapped { .. } => self.record_denial(column, TaskDenialReason::GroupCap),
            SchedulerEventPayload::AdmissionDenied { reason, .. }
            | SchedulerEventPayload::AdmissionBlocked { reason, .. } => {
                self.record_denial(column, reason);
            }
            _ => {}
        }
    }

    /// Records that the policy denied a task of a column. `NoCapacity` is not recorded: the counts show it.
    fn record_denial(&mut self, column: usize, reason: TaskDenialReason) {
        self.denials[self.columns[column].group] = match reason {
            TaskDenialReason::GroupCap => Some(IdleCause::GroupCap),
            TaskDenialReason::BorrowDebt => Some(IdleCause::BorrowDebt),
            TaskDenialReason::Policy => Some(IdleCause::Policy),
            TaskDenialReason::Shutdown => Some(IdleCause::RunEnding),
            TaskDenialReason::NoCapacity => return,
        };
    }

    /// Puts a task into a state, replacing its previous one.
    fn enter(&mut self, task: u64, live: LiveTask) {
        self.remove(task);
        self.count(&live, true);
        self.live.insert(task, live);
        if let Some(tasks) = self.row_groups.get_mut(&live.row_group) {
            self.idle_row_groups -= u32::from(*tasks == 0);
            *tasks += 1;
        }
        for (most, now) in self.maxima[1..].iter_mut().zip([self.queued, self.workers, self.yielded]) {
            *most = (*most).max(now);
        }
    }

    fn remove(&mut self, task: u64) {
        let Some(live) = self.live.remove(&task) else { return };
        self.count(&live, false);
        if let Some(tasks) = self.row_groups.get_mut(&live.row_group) {
            *tasks -= 1;
            self.idle_row_groups += u32::from(*tasks == 0);
        }
    }

    /// Adds a task to the counts of its state, or removes it.
    fn count(&mut self, live: &LiveTask, more: bool) {
        let step = |count: &mut u32| *count = if more { *count + 1 } else { *count - 1 };
        let counts = &mut self.columns[live.column];
        match live.state {
            LiveTaskState::Ready => {}
            LiveTaskState::Deferred => step(&mut self.deferred),
            LiveTaskState::Queued(_) => {
                step(&mut self.queued);
                step(&mut counts.queued);
                counts.demand.iter().for_each(|(place, _)| self.resources[*place].change_demand(more));
            }
            LiveTaskState::Running { yielded, since } => {
                step(&mut self.workers);
                if yielded {
                    step(&mut self.yielded);
                    step(&mut counts.yielded);
                } else {
                    step(&mut counts.running);
                    if let Some(service) = self.service.as_mut().filter(|_| !more) {
                        service.record_hold((self.at - since).as_nanos(), &counts.demand);
                    }
                    for (place, amount) in &counts.demand {
                        let slots = &mut self.resources[*place];
                        if more { slots.lease(*amount) } else { slots.give_back(*amount) }
                    }
                }
            }
        }
    }
}
