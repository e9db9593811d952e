//! The checker and the account of a world.
//!
//! Their input is both event streams, in the order in which the events happen. The checker also needs the
//! steps between the pipeline and its host. Neither influences the run.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::World;
use crate::limit::{LimitAlgorithm, LimitChoice};
use crate::observe::{RunAccount, RunFigures, ServiceFigures};
use crate::pipeline::event::{SchedulerEvent, SchedulerEventKind, SchedulerInterest};
use crate::pipeline::{ColumnId, Pipeline, PipelineEffect, RunReport};
use crate::replay::Recorded;
use crate::request::event::{RequestEvent, RequestInterest};
use crate::request::{CallWait, HealthState, RequestAdmission, ResourceId};
use crate::sim::check::{LifecycleStep, ResourceLimits, RunChecker, Violation};
use crate::sim::scenario::{Model, Scenario, ScenarioError};
use crate::task::BoxedPolicy;
use crate::time::Instant;

/// The number of latest observations that are kept, to show what led to a violation.
const MAX_OBSERVATIONS: usize = 64;

/// An input of the checker of a [watched](World::watched) world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Observation {
    /// An event of the scheduler.
    Scheduler(SchedulerEvent),
    /// An event of request admission.
    Request(RequestEvent),
    /// A hook or a checkpoint was requested or ended, or the run was cancelled.
    LifecycleStep {
        /// The instant of the step.
        at: Instant,
        /// A description of the step.
        what: &'static str,
        /// The row group, if the step is about one.
        row_group: Option<u32>,
    },
}

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheduler(SchedulerEvent { at, correlation, payload, .. }) => {
                write!(f, "{at} scheduler")?;
                for (name, value) in [
                    ("row group", correlation.row_group),
                    ("column", correlation.column.map(|column| column.index() as u32)),
                    ("row", correlation.row),
                    ("attempt", correlation.attempt),
                ] {
                    value.map_or(Ok(()), |value| write!(f, ", {name} {value}"))?;
                }
                write!(f, ": {payload:?}")
            }
            Self::Request(RequestEvent { at, scope, payload, .. }) => write!(f, "{at} request, {scope:?}: {payload:?}"),
            Self::LifecycleStep { at, what, row_group } => {
                write!(f, "{at} host")?;
                row_group.map_or(Ok(()), |row_group| write!(f, ", row group {row_group}"))?;
                write!(f, ": {what}")
            }
        }
    }
}

/// The methods of [`RunChecker`], which is the only implementation. Worlds hold it as a trait object, so that
/// a binary that never creates a world with a checker does not contain the checker's code.
trait RunObserver: Send {
    fn set_call_cap(&mut self, resource: ResourceId, cap: u32);
    fn on_event(&mut self, event: &SchedulerEvent) -> Result<(), Violation>;
    fn on_request_event(&mut self, event: &RequestEvent) -> Result<(), Violation>;
    fn on_quiescence(&mut self, at: Instant, all_limits: &[ResourceLimits]) -> Result<(), Violation>;
    fn on_lifecycle_step(&mut self, at: Instant, what: &LifecycleStep<'_>) -> Result<(), Violation>;
    fn finish(&mut self, report: &RunReport) -> Result<(), Violation>;
}

impl RunObserver for RunChecker {
    fn set_call_cap(&mut self, resource: ResourceId, cap: u32) {
        self.set_call_cap(resource, cap);
    }

    fn on_event(&mut self, event: &SchedulerEvent) -> Result<(), Violation> {
        self.on_event(event)
    }

    fn on_request_event(&mut self, event: &RequestEvent) -> Result<(), Violation> {
        self.on_request_event(event)
    }

    fn on_quiescence(&mut self, at: Instant, all_limits: &[ResourceLimits]) -> Result<(), Violation> {
        self.on_quiescence(at, all_limits)
    }

    fn on_lifecycle_step(&mut self, at: Instant, what: &LifecycleStep<'_>) -> Result<(), Violation> {
        self.on_lifecycle_step(at, what)
    }

    fn finish(&mut self, report: &RunReport) -> Result<(), Violation> {
        self.finish(report)
    }
}

/// What the account of a world covers.
#[derive(Clone, Copy)]
enum AccountScope {
    /// There is no account.
    None,
    /// The use of the capacity.
    Capacity,
    /// The use of the capacity, and the service of each fairness group.
    Service,
}

/// The checker of a world.
type Checker = Box<dyn RunObserver>;

/// The checker and the account of a world, with their results.
pub(super) struct Watch {
    checker: Option<Checker>,
    violation: Option<Violation>,
    /// The latest observations, at most [`MAX_OBSERVATIONS`].
    latest: VecDeque<Observation>,
    /// The number of scheduler events of each kind that were checked, ascending by kind.
    event_counts: Vec<(SchedulerEventKind, u64)>,
    account: Option<RunAccount>,
    /// The events that [`World::take_events`] returns, if they are kept.
    kept_events: Option<(Vec<RequestEvent>, Vec<SchedulerEvent>)>,
}

impl Watch {
    fn check_observation(
        &mut self,
        observation: Observation,
        check: impl FnOnce(&mut Checker) -> Result<(), Violation>,
    ) {
        let Some(checker) = &mut self.checker else { return };
        // Results after a violation are meaningless.
        if self.violation.is_some() {
            return;
        }
        if self.latest.len() == MAX_OBSERVATIONS {
            self.latest.pop_front();
        }
        if let Observation::Scheduler(event) = &observation {
            let kind = event.payload.kind();
            match self.event_counts.binary_search_by(|(known, _)| known.cmp(&kind)) {
                Ok(at) => self.event_counts[at].1 += 1,
                Err(at) => self.event_counts.insert(at, (kind, 1)),
            }
        }
        self.latest.push_back(observation);
        self.violation = check(checker).err();
    }

    /// Sets the cap of a model, and the highest limit that its settings allow, from now on.
    pub(super) fn set_call_cap(&mut self, now: Instant, resource: ResourceId, cap: u32, max_limit: Option<u32>) {
        if let Some(checker) = &mut self.checker {
            checker.set_call_cap(resource, max_limit.map_or(cap, |most| most.min(cap)).max(1));
        }
        if let Some(account) = &mut self.account {
            account.clamp_calls(now, resource, max_limit);
        }
    }

    /// Sets the weight of a column's fairness group from now on.
    pub(super) fn set_weight(&mut self, now: Instant, column: ColumnId, weight: f64) {
        if let Some(account) = &mut self.account {
            account.set_weight(now, column, weight);
        }
    }

    pub(super) fn take_events(&mut self) -> (Vec<RequestEvent>, Vec<SchedulerEvent>) {
        self.kept_events.as_mut().map(core::mem::take).unwrap_or_default()
    }

    fn drain(&mut self, pipeline: &mut Recorded<Pipeline>, admission: &mut Recorded<RequestAdmission>) {
        while let Some(event) = admission.poll_event() {
            if let Some(account) = &mut self.account {
                account.on_request(&event);
            }
            if let Some((requests, _)) = &mut self.kept_events {
                requests.push(event);
            }
            self.check_observation(Observation::Request(event), |checker| checker.on_request_event(&event));
        }
        while let Some(event) = pipeline.poll_event() {
            if let Some(account) = &mut self.account {
                account.on_scheduler(&event);
            }
            if let Some((_, scheduler)) = &mut self.kept_events {
                scheduler.push(event);
            }
            self.check_observation(Observation::Scheduler(event), |checker| checker.on_event(&event));
        }
    }

    fn report_step(&mut self, at: Instant, step: &LifecycleStep<'_>) {
        let (what, row_group) = match *step {
            LifecycleStep::PreBatch(batch) => ("pre-batch hook called", Some(batch.row_group)),
            LifecycleStep::PreBatchEnded { row_group, left_out } => {
                let what = if left_out.is_some() { "pre-batch hook passed" } else { "pre-batch hook failed" };
                (what, Some(row_group))
            }
            LifecycleStep::PostBatch(group) => ("post-batch hook called", Some(group.row_group)),
            LifecycleStep::PostBatchEnded { row_group, succeeded } => {
                (if succeeded { "post-batch hook passed" } else { "post-batch hook failed" }, Some(row_group))
            }
            LifecycleStep::Checkpoint(group) => ("checkpoint started", Some(group.row_group)),
            LifecycleStep::CheckpointEnded { row_group, succeeded } => {
                (if succeeded { "checkpoint saved" } else { "checkpoint failed" }, Some(row_group))
            }
            LifecycleStep::Cancel => ("cancelled", None),
        };
        self.check_observation(Observation::LifecycleStep { at, what, row_group }, |checker| {
            checker.on_lifecycle_step(at, step)
        });
    }
}

/// Checking and accounting.
impl World {
    /// Creates the world of a scenario with a [checker](crate::sim::check). The checker decides nothing: the
    /// digest equals that of a world without one.
    pub fn watched(scenario: &Scenario, seed: u64) -> Result<Self, ScenarioError> {
        Self::unstarted(scenario, seed, None, None)?.watched_and_started(scenario, AccountScope::None)
    }

    /// Creates the world of a scenario with an [account](RunAccount) of its capacity and no checker.
    /// [`World::figures`] returns the account's figures. It is for callers that show figures and do not need
    /// a checker.
    pub fn measured(scenario: &Scenario, seed: u64) -> Result<Self, ScenarioError> {
        let mut world =
            Self::unstarted(scenario, seed, None, None)?.observed_unstarted(scenario, AccountScope::Capacity)?;
        world.begin(scenario);
        Ok(world)
    }

    /// Creates a [watched](Self::watched) world that also has an [account](RunAccount) of its capacity.
    /// [`World::figures`] returns the account's figures. The account decides nothing either.
    pub fn accounted(scenario: &Scenario, seed: u64) -> Result<Self, ScenarioError> {
        Self::unstarted(scenario, seed, None, None)?.watched_and_started(scenario, AccountScope::Capacity)
    }

    /// Creates an [accounted](Self::accounted) world whose events can be observed too, with [`World::feed`]
    /// or [`World::take_events`]. The events are kept until then.
    pub fn watched_with_events(scenario: &Scenario, seed: u64) -> Result<Self, ScenarioError> {
        let world = Self::unstarted(scenario, seed, None, None)?;
        let mut world = world.watched_unstarted(scenario, AccountScope::Capacity)?;
        if let Some(watch) = &mut world.watch {
            watch.kept_events = Some(<_>::default());
        }
        world.begin(scenario);
        Ok(world)
    }

    /// Creates an [accounted](Self::accounted) world with a custom task policy in place of the scenario's.
    /// [`World::service`] returns the service of each fairness group.
    ///
    /// The laws do not depend on the policy, so a violation under a custom policy is a bug. A
    /// [`PolicyReport`](crate::sim::policy::PolicyReport) judges whether the policy is good.
    pub fn with_policy(scenario: &Scenario, seed: u64, policy: BoxedPolicy) -> Result<Self, ScenarioError> {
        Self::unstarted(scenario, seed, Some(policy), None)?.watched_and_started(scenario, AccountScope::Service)
    }

    /// Creates an [accounted](Self::accounted) world that also accounts for the service of each fairness
    /// group, for a [`PolicyReport`](crate::sim::policy::PolicyReport) about the scenario's policy.
    pub fn judged(scenario: &Scenario, seed: u64) -> Result<Self, ScenarioError> {
        Self::unstarted(scenario, seed, None, None)?.watched_and_started(scenario, AccountScope::Service)
    }

    /// Creates an [accounted](Self::accounted) world with custom limit algorithms. `limit_of` is called once
    /// for each model, in the order of the scenario, and returns its algorithm. With `None` the model keeps
    /// the [algorithm of the scenario](crate::sim::scenario::Model::algorithm).
    ///
    /// The model's cap, cooldowns and start-up ramp stay in force. The checker tests the algorithm too. An
    /// algorithm may open a slot at an instant that [`next_change`](LimitAlgorithm::next_change) does not
    /// return. It then breaks [`Law::Room`](crate::sim::check::Law::Room) as soon as a call waits although
    /// the slot is open, in a scenario whose workers do not [yield](Scenario::yields).
    ///
    /// ```
    /// use tidegate_core::limit::Fixed;
    /// use tidegate_core::sim::{scenario, world::World};
    ///
    /// let scenario = scenario::builtin().into_iter().next().expect("there are built-in scenarios");
    /// let mut world = World::with_limit(&scenario, 7, |model| Some(Box::new(Fixed::new(model.cap() / 4))))?;
    /// while world.step() {}
    /// assert_eq!(world.violation(), None);
    /// let provider = &world.sample().providers[0];
    /// assert_eq!(provider.refused, 0, "a quarter of the cap is below the provider's capacity");
    /// # Ok::<(), tidegate_core::sim::scenario::ScenarioError>(())
    /// ```
    pub fn with_limit(
        scenario: &Scenario,
        seed: u64,
        mut limit_of: impl FnMut(&Model) -> Option<Box<dyn LimitAlgorithm>>,
    ) -> Result<Self, ScenarioError> {
        let mut world = Self::unstarted(scenario, seed, None, None)?;
        let Self { now, providers, admission, .. } = &mut world;
        for (provider, model) in providers.iter_mut().zip(&scenario.models) {
            let Some(algorithm) = limit_of(model) else { continue };
            admission.set_algorithm(*now, provider.resource, algorithm)?;
            provider.algorithm = None;
        }
        world.watched_and_started(scenario, AccountScope::Capacity)
    }

    fn watched_and_started(self, scenario: &Scenario, scope: AccountScope) -> Result<Self, ScenarioError> {
        let mut world = self.watched_unstarted(scenario, scope)?;
        world.begin(scenario);
        Ok(world)
    }

    fn watched_unstarted(self, scenario: &Scenario, scope: AccountScope) -> Result<Self, ScenarioError> {
        let mut checker = RunChecker::new(&scenario.plan()?, &scenario.pipeline_config());
        for (provider, model) in self.providers.iter().zip(&scenario.models) {
            checker.set_call_cap(provider.resource, model.cap());
            if let Some(owner) = self.admission.owner(provider.resource) {
                checker.set_model(provider.resource, owner);
            }
        }
        let resource_of = |name: &String| {
            let mut pairs = self.providers.iter().zip(&scenario.models);
            pairs.find(|(_, model)| model.name == *name).map(|(provider, _)| provider.resource)
        };
        for (column, spec) in (0..).map(ColumnId).zip(&scenario.columns).filter(|(_, spec)| !spec.fallbacks.is_empty())
        {
            checker.set_fallbacks(column, spec.model.iter().chain(&spec.fallbacks).filter_map(resource_of).collect());
        }
        if scenario.holders.is_empty() && !scenario.health_calls {
            checker.expect_no_other_callers();
        }
        let mut world = self.observed_unstarted(scenario, scope)?;
        if let Some(watch) = &mut world.watch {
            watch.checker = Some(Box::new(checker));
        }
        Ok(world)
    }

    fn observed_unstarted(mut self, scenario: &Scenario, scope: AccountScope) -> Result<Self, ScenarioError> {
        let (plan, config) = (scenario.plan()?, scenario.pipeline_config());
        let mut account = match scope {
            AccountScope::None => None,
            AccountScope::Capacity => Some(RunAccount::new(&plan, &config)),
            AccountScope::Service => Some(RunAccount::with_service(&plan, &config)),
        };
        self.pipeline.set_interest(SchedulerInterest::ALL);
        self.admission.set_interest(self.now, RequestInterest::ALL);
        if let Some(account) = &mut account {
            account.add_all_calls(self.now, &self.admission);
        }
        self.watch = Some(Box::new(Watch {
            checker: None,
            violation: None,
            latest: VecDeque::new(),
            event_counts: Vec::new(),
            account,
            kept_events: None,
        }));
        Ok(self)
    }

    /// Returns the first violation. `None` in a world that is not [watched](World::watched).
    #[must_use]
    pub fn violation(&self) -> Option<&Violation> {
        self.watch.as_ref().and_then(|watch| watch.violation.as_ref())
    }

    /// Returns the latest observations, at most 64, the oldest first. Empty in a world that is not
    /// [watched](World::watched). No observation is added after a violation.
    pub fn observations(&self) -> impl Iterator<Item = &Observation> {
        self.watch.iter().flat_map(|watch| &watch.latest)
    }

    /// Returns the number of scheduler events of each kind that the checker has observed. Empty in a world
    /// that is not [watched](World::watched).
    pub fn event_counts(&self) -> impl Iterator<Item = (SchedulerEventKind, u64)> {
        self.watch.iter().flat_map(|watch| &watch.event_counts).map(|(kind, count)| (*kind, *count))
    }

    /// Returns how the capacity was used so far: busy and idle times by cause, and the times of tasks. `None`
    /// in a world without an [account](World::accounted).
    #[must_use]
    pub fn figures(&self) -> Option<RunFigures> {
        self.watch.as_ref().and_then(|watch| watch.account.as_ref()).map(RunAccount::figures)
    }

    /// Returns the service of each fairness group so far. `None` except in a world with a [custom
    /// policy](World::with_policy) and in a [judged](World::judged) one.
    #[must_use]
    pub fn service(&self) -> Option<ServiceFigures> {
        self.watch.as_ref().and_then(|watch| watch.account.as_ref()).and_then(RunAccount::service)
    }

    /// Feeds the pending events to the checker and the account.
    #[inline]
    pub(super) fn observe(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.drain(&mut self.pipeline, &mut self.admission);
        }
    }

    /// Feeds the checker the state of all request resources at the last instant before `next`, which is the
    /// instant of the next event. Only waiting calls can break the law that needs it.
    #[inline]
    pub(super) fn observe_before(&mut self, next: Instant) {
        let Some(watch) = self.watch.as_mut().filter(|_| self.admission.waiting() > 0) else { return };
        let (Some(checker), None) = (&mut watch.checker, &watch.violation) else { return };
        let at = Instant::from_nanos(next.as_nanos().saturating_sub(1));
        let all_limits = self.providers.iter().filter_map(|provider| {
            let stats = self.admission.stats(at, provider.resource)?;
            let domains = self.providers.iter().filter(|other| other.owner == provider.owner);
            let wait = self.admission.why_next(at, provider.resource);
            let is_spaced = matches!(wait, Some(CallWait::StatedRate { .. } | CallWait::Paced { .. }));
            Some(ResourceLimits {
                resource: provider.resource,
                model: self.admission.owner(provider.resource)?,
                cap: domains.map(|domain| domain.max_parallel).min()?,
                limit: stats.limit,
                blocked_until: stats.blocked_until,
                yielded: stats.yielded,
                is_spaced: is_spaced || matches!(provider.algorithm, Some(LimitChoice::Tide(_))),
                is_up: stats.health == HealthState::Healthy && stats.undecided == 0,
            })
        });
        watch.violation = checker.on_quiescence(at, &all_limits.collect::<Vec<_>>()).err();
    }

    /// Feeds the checker an effect that hands out a row group.
    #[inline]
    pub(super) fn observe_effect(&mut self, effect: &PipelineEffect) {
        if self.watch.is_none() {
            return;
        }
        match effect {
            PipelineEffect::PreBatch(batch) => self.report_step(&LifecycleStep::PreBatch(batch)),
            PipelineEffect::PostBatch(group) => self.report_step(&LifecycleStep::PostBatch(group)),
            PipelineEffect::Checkpoint(group) => self.report_step(&LifecycleStep::Checkpoint(group)),
            _ => {}
        }
    }

    /// Feeds the checker a step between the pipeline and its host.
    pub(super) fn report_step(&mut self, what: &LifecycleStep<'_>) {
        self.observe();
        if let Some(watch) = &mut self.watch {
            watch.report_step(self.now, what);
        }
    }

    /// Feeds the checker the end of the run.
    pub(super) fn observe_end(&mut self) {
        self.observe();
        if let (Some(watch), Some(report)) = (&mut self.watch, &self.finished)
            && watch.violation.is_none()
            && let Some(checker) = &mut watch.checker
        {
            watch.violation = checker.finish(report).err();
        }
    }
}
