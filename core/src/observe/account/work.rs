//! The task stage of a run, from the stream of the scheduler.

use alloc::string::String;
use alloc::vec::Vec;

use super::cause::IdleCause;
use super::service::{Service, ServiceFigures};
use super::slots::{Blame, Slots};
use crate::map::Map;
use crate::observe::Histogram;
use crate::pipeline::event::{Correlation, SchedulerEventPayload, StopKind};
use crate::pipeline::{PipelineConfig, Plan};
use crate::task::DenialReason;
use crate::time::Instant;

/// A task that is somewhere between its readiness and its end.
#[derive(Clone, Copy, Debug)]
enum LiveTaskState {
    /// Ready, and waiting for its turn to be queued.
    Ready,
    Queued(Instant),
    Running {
        yielded: bool,
        /// Since when it holds its task resources, or does not.
        since: Instant,
    },
    /// Paused until it may be tried again.
    Deferred,
}

#[derive(Clone, Copy, Debug)]
struct LiveTask {
    column: usize,
    row_group: u32,
    stage: LiveTaskState,
}

/// What is kept of a column.
#[derive(Clone, Debug)]
pub(super) struct Route {
    /// Resources by place, and how much of each.
    pub(super) demand: Vec<(usize, u32)>,
    pub(super) queued: u32,
    /// Workers that hold what they demand.
    pub(super) running: u32,
    pub(super) yielded: u32,
    /// Its fairness group: an index into [`TaskResources::refusals`].
    pub(super) group: usize,
}

/// The resources, queue and workers of the task stage.
#[derive(Clone, Debug)]
pub(super) struct TaskResources {
    pub(super) resources: Vec<Slots>,
    routes: Vec<Route>,
    /// By resource: the columns that want it.
    wanted_by: Vec<Vec<usize>>,
    /// By fairness group: the policy's last word. A group that was refused is not asked about again before
    /// something changes.
    refusals: Vec<Option<IdleCause>>,
    live: Map<u64, LiveTask>,
    /// Row groups in work: their tasks that are live.
    row_groups: Map<u32, u32>,
    /// Row groups in work without any.
    handed_over: u32,
    pending_row_groups: u32,
    kept: u32,
    stopping: bool,
    pub(super) queued: u32,
    pub(super) workers: u32,
    pub(super) yielded: u32,
    pub(super) queue_age: Histogram,
    pub(super) hidden_waiters: u64,
    pub(super) maxima: [u32; 4],
    /// What each group gets, if that is asked for.
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
        let routes = plan.columns().iter().map(|column| {
            let name = (column.group.kind, &column.group.identity);
            let group = groups.iter().position(|known| *known == name).unwrap_or_else(|| {
                groups.push(name);
                groups.len() - 1
            });
            route(&resources, &column.demand, group)
        });
        let routes: Vec<Route> = routes.collect();
        let wanted = |resource| {
            let wants = |route: &Route| route.demand.iter().any(|(place, _)| *place == resource);
            (0..routes.len()).filter(|column| wants(&routes[*column])).collect()
        };
        Self {
            wanted_by: (0..resources.len()).map(wanted).collect(),
            refusals: alloc::vec![None; groups.len()],
            resources,
            routes,
            live: Map::default(),
            row_groups: Map::default(),
            handed_over: 0,
            pending_row_groups: 0,
            kept: 0,
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

    /// Accounts for what each group gets, too.
    pub(super) fn account_for_service(&mut self, plan: &Plan) {
        self.service = Some(Service::new(plan, &self.routes, self.resources.len()));
    }

    /// The group of a column has another weight from now on.
    pub(super) fn set_weight(&mut self, column: usize, weight: f64) {
        if let (Some(service), Some(route)) = (&mut self.service, self.routes.get(column)) {
            service.set_weight(route.group, weight);
        }
    }

    pub(super) fn service(&self) -> Option<ServiceFigures> {
        self.service.as_ref().map(|service| service.figures(|resource| self.name_of(resource)))
    }

    pub(super) fn name_of(&self, resource: u32) -> String {
        self.resources.get(resource as usize).map_or_else(String::new, |slots| slots.name.clone())
    }

    /// Nothing happened from `from` to `to`. O(columns for each resource).
    pub(super) fn pass(&mut self, from: Instant, to: Instant) {
        self.at = to;
        if let Some(service) = &mut self.service {
            service.pass((to - from).as_nanos(), &self.routes, &self.resources);
        }
        let beyond = self.cause_beyond_frontier();
        let mut blames: Vec<Blame> = Vec::with_capacity(self.resources.len());
        blames.extend((0..self.resources.len()).map(|resource| match self.resources[resource].demand {
            0 => (beyond, None),
            _ => self.starved_by(resource),
        }));
        for (slots, blame) in self.resources.iter_mut().zip(blames) {
            slots.pass(from, to, |slots| [(blame, slots.free()), (blame, 0), (blame, 0)]);
        }
    }

    /// Why nothing is queued.
    pub(super) fn cause_beyond_frontier(&self) -> IdleCause {
        if self.stopping {
            IdleCause::RunEnding
        } else if self.workers == 0 && self.handed_over > 0 {
            IdleCause::HookOrCheckpoint
        } else if self.workers == 0 && self.kept > 0 {
            IdleCause::RetryPause
        } else if self.pending_row_groups > 0 {
            IdleCause::RowGroupTarget
        } else if self.workers > 0 {
            IdleCause::DependencyHorizon
        } else {
            IdleCause::RunEnding
        }
    }

    /// Why no queued task takes the free slots of a resource. A task that lacks nothing comes before one that
    /// does.
    fn starved_by(&self, resource: usize) -> Blame {
        let waiting = || self.wanted_by[resource].iter().map(|column| &self.routes[*column]).filter(|at| at.queued > 0);
        let shortage = |route: &Route| {
            let short = route.demand.iter().find(|(place, amount)| self.resources[*place].free() < *amount);
            short.map(|(place, _)| *place)
        };
        if let Some(route) = waiting().find(|route| shortage(route).is_none()) {
            let untold = if self.yielded > 0 { IdleCause::YieldedFirst } else { IdleCause::Unexplained };
            return (self.refusals[route.group].unwrap_or(untold), None);
        }
        match waiting().find_map(shortage) {
            Some(short) if short == resource => (IdleCause::TooFewSlots, None),
            Some(short) => (IdleCause::OtherResource, Some(short as u32)),
            None => (IdleCause::Unexplained, None),
        }
    }

    /// Something happened to the run as a whole, or to a row group.
    pub(super) fn on_run(&mut self, about: &Correlation, payload: &SchedulerEventPayload) {
        match *payload {
            SchedulerEventPayload::JobStarted { row_groups, resumed, .. } => {
                self.pending_row_groups = row_groups.saturating_sub(resumed);
            }
            SchedulerEventPayload::RowGroupAdmitted { active, .. } => {
                self.pending_row_groups = self.pending_row_groups.saturating_sub(1);
                if about.row_group.is_some_and(|row_group| self.row_groups.insert(row_group, 0).is_none()) {
                    self.handed_over += 1;
                }
                self.maxima[0] = self.maxima[0].max(active);
            }
            SchedulerEventPayload::RowGroupCheckpointed { .. } | SchedulerEventPayload::RowGroupDiscarded { .. } => {
                about.row_group.into_iter().for_each(|row_group| self.forget(row_group));
            }
            SchedulerEventPayload::QueueDrained { discarded: 1.. } => self.discard_queue(),
            SchedulerEventPayload::JobStopping { stop: StopKind::WoundDown, .. } => {}
            SchedulerEventPayload::JobStopping { .. } | SchedulerEventPayload::JobCompleted { .. } => {
                self.stopping = true
            }
            _ => {}
        }
    }

    /// A row group is gone. What its tasks were told to wait for does not come any more.
    fn forget(&mut self, row_group: u32) {
        if self.row_groups.get(&row_group).is_some_and(|tasks| *tasks > 0) {
            self.leave_all(|live| live.row_group == row_group);
        }
        if self.row_groups.remove(&row_group).is_some() {
            self.handed_over -= 1;
        }
    }

    /// A stop threw out what was queued.
    fn discard_queue(&mut self) {
        self.leave_all(|live| matches!(live.stage, LiveTaskState::Queued(_)));
    }

    /// Every task that `leaves` holds of is gone.
    fn leave_all(&mut self, leaves: impl Fn(&LiveTask) -> bool) {
        #[expect(clippy::disallowed_methods, reason = "sorted below")]
        let live = self.live.iter();
        let mut tasks: Vec<u64> = live.filter(|(_, live)| leaves(live)).map(|(task, _)| *task).collect();
        tasks.sort_unstable();
        for task in tasks {
            self.leave(task);
        }
    }

    /// Something happened to a task.
    pub(super) fn on_task(&mut self, at: Instant, about: &Correlation, payload: &SchedulerEventPayload) {
        let (Some(task), Some(column), Some(row_group)) = (about.task, about.column, about.row_group) else { return };
        let column = column.index();
        if column >= self.routes.len() {
            return;
        }
        let enter = |stage| LiveTask { column, row_group, stage };
        match *payload {
            SchedulerEventPayload::DependencyReady => self.enter(task, enter(LiveTaskState::Ready)),
            SchedulerEventPayload::ReadyEnqueued { .. } => self.enter(task, enter(LiveTaskState::Queued(at))),
            SchedulerEventPayload::RetryDeferred { .. } => self.enter(task, enter(LiveTaskState::Deferred)),
            SchedulerEventPayload::TaskLeaseAcquired { .. } => {
                if let Some(LiveTask { stage: LiveTaskState::Queued(since), .. }) = self.live.get(&task) {
                    self.queue_age.record(at - *since);
                }
                self.enter(task, enter(LiveTaskState::Running { yielded: false, since: at }));
            }
            SchedulerEventPayload::WorkerSpawned { .. } => {
                let holds = self.live.get(&task).map(|live| live.stage);
                self.hidden_waiters += u64::from(!matches!(holds, Some(LiveTaskState::Running { yielded: false, .. })));
            }
            SchedulerEventPayload::TaskYielded { .. } => {
                self.enter(task, enter(LiveTaskState::Running { yielded: true, since: at }))
            }
            SchedulerEventPayload::TaskResumed { .. } => {
                self.enter(task, enter(LiveTaskState::Running { yielded: false, since: at }))
            }
            SchedulerEventPayload::TaskLeaseReleased { .. } => self.leave(task),
            SchedulerEventPayload::Cancelled { queued } => {
                // A worker whose row was dropped is still at work.
                let stage = self.live.get(&task).map(|live| live.stage);
                if queued || !matches!(stage, Some(LiveTaskState::Running { .. })) {
                    self.leave(task);
                }
            }
            SchedulerEventPayload::GroupCapped { .. } => self.refuse(column, DenialReason::GroupCap),
            SchedulerEventPayload::AdmissionDenied { reason, .. }
            | SchedulerEventPayload::AdmissionBlocked { reason, .. } => {
                self.refuse(column, reason);
            }
            _ => {}
        }
    }

    /// The policy refuses a task of a column. What is short shows by itself.
    fn refuse(&mut self, column: usize, reason: DenialReason) {
        self.refusals[self.routes[column].group] = match reason {
            DenialReason::GroupCap => Some(IdleCause::GroupCap),
            DenialReason::BorrowDebt => Some(IdleCause::BorrowDebt),
            DenialReason::Policy => Some(IdleCause::Policy),
            DenialReason::Shutdown => Some(IdleCause::RunEnding),
            DenialReason::NoCapacity => return,
        };
    }

    /// A task is at another stage than before.
    fn enter(&mut self, task: u64, live: LiveTask) {
        self.leave(task);
        self.count(&live, true);
        self.live.insert(task, live);
        if let Some(tasks) = self.row_groups.get_mut(&live.row_group) {
            self.handed_over -= u32::from(*tasks == 0);
            *tasks += 1;
        }
        for (most, now) in self.maxima[1..].iter_mut().zip([self.queued, self.workers, self.yielded]) {
            *most = (*most).max(now);
        }
    }

    fn leave(&mut self, task: u64) {
        let Some(live) = self.live.remove(&task) else { return };
        self.count(&live, false);
        if let Some(tasks) = self.row_groups.get_mut(&live.row_group) {
            *tasks -= 1;
            self.handed_over += u32::from(*tasks == 0);
        }
    }

    /// Counts a task in or out of its stage.
    fn count(&mut self, live: &LiveTask, more: bool) {
        let step = |count: &mut u32| *count = if more { *count + 1 } else { *count - 1 };
        let route = &mut self.routes[live.column];
        match live.stage {
            LiveTaskState::Ready => {}
            LiveTaskState::Deferred => step(&mut self.kept),
            LiveTaskState::Queued(_) => {
                step(&mut self.queued);
                step(&mut route.queued);
                route.demand.iter().for_each(|(place, _)| self.resources[*place].want(more));
            }
            LiveTaskState::Running { yielded, since } => {
                step(&mut self.workers);
                if yielded {
                    step(&mut self.yielded);
                    step(&mut route.yielded);
                } else {
                    step(&mut route.running);
                    if let Some(service) = self.service.as_mut().filter(|_| !more) {
                        service.held_for((self.at - since).as_nanos(), &route.demand);
                    }
                    for (place, amount) in &route.demand {
                        let slots = &mut self.resources[*place];
                        if more { slots.lease(*amount) } else { slots.give_back(*amount) }
                    }
                }
            }
        }
    }
}

/// What a column's tasks hold, by place. As the task stage does, equal names are summed and `submission` is
/// at least 1.
fn route(resources: &[Slots], asked: &[(String, u32)], group: usize) -> Route {
    let amount_of = |(place, slots): (usize, &Slots)| {
        let amount = asked
            .iter()
            .filter(|(name, _)| *name == slots.name)
            .fold(0_u32, |sum, (_, amount)| sum.saturating_add(*amount));
        (place, if place == 0 { amount.max(1) } else { amount })
    };
    let demand = resources.iter().enumerate().map(amount_of).filter(|(_, amount)| *amount > 0).collect();
    Route { demand, queued: 0, running: 0, yielded: 0, group }
}
