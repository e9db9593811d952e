//! Runs a whole scenario in virtual time: the pipeline, request admission, mock providers, and an event
//! heap.
//!
//! A [`World`] does what a host does, without waiting. It performs the effects of the
//! [pipeline](crate::pipeline::Pipeline) and of [request admission](crate::request::RequestAdmission), and
//! jumps to the instant of the next event. It makes no scheduling decision. Events of one instant are
//! processed in the order in which they were scheduled, so a run is a function of the scenario and the seed.
//!
//! ```text
//! step      jump to the next event or timeout, process it, then settle
//! settle    pass commands between the pipeline and admission, and perform the effects, until none is left
//! effects   start a worker, a hook or a checkpoint: each schedules an event for its end
//! ```
//!
//! [`Sample`] has the figures of one instant, [`Why`] explains why something waits, [`ActivityChange`] shows
//! what the workers do, and [`Observation`] is what a checker has observed.

mod activity;
mod activity_changes;
mod change;
mod describe;
mod draws;
mod events;
mod health_calls;
mod holders;
mod hooks;
mod sample;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_builtin;
#[cfg(test)]
mod tests_change;
#[cfg(test)]
mod tests_outage;
#[cfg(test)]
mod tests_sample;
mod watch;
mod why;

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use core::hash::Hasher;

use self::activity::{Activity, ColumnWork, TaskPosition, Work, Worker};
use self::activity_changes::ActivityChanges;
use self::draws::Draws;
use self::health_calls::HealthCall;
use self::holders::Holders;
use self::hooks::CallbackBehaviour;
use self::watch::Watch;
use super::check::LifecycleStep;
use super::provider::MockProvider;
use super::rng::Rng;
use super::scenario::{Change, Model, Scenario, ScenarioError, with_file_field};
use crate::id::{SlotKey, Slots};
use crate::portable_hasher::PortableHasher;

use crate::limit::LimitChoice;
use crate::map::Map;
use crate::observe::IdleAccount;
use crate::pipeline::{Pipeline, PipelineEffect as RunEffect, RunReport};
use crate::replay::{Command, Header, Recorded, Sequence, Stamped, merge};
use crate::request::{Domain, HealthConfig, RequestAdmission, RequestConfig, ResourceId};
use crate::task::BoxedPolicy;
use crate::time::{Duration, Instant};

pub use activity::WorkerActivity;
pub use activity_changes::{ActivityChange, ProviderLevel};
pub use sample::{ColumnSample, GroupSample, ProviderSample, RowGroupsSample, Sample, SlotSample};
pub use watch::Observation;
pub use why::{Why, WhySubject};

/// The number of the first event that is not a change. Changes have the number 0, so that they come before
/// all other events of their instant.
const FIRST_EVENT: u64 = 1;

/// A model of the scenario, with its mock provider.
struct Provider {
    name: String,
    /// The name of the model of which this one is another domain, or its own name.
    owner: String,
    /// The alias under which it is registered.
    alias: String,
    mock: MockProvider,
    resource: ResourceId,
    /// The algorithm of its limit, or `None` for a custom one.
    algorithm: Option<LimitChoice>,
    max_parallel: u32,
    idle: IdleAccount,
}

impl Provider {
    /// Returns the name of the algorithm of its limit.
    fn algorithm_name(&self) -> &'static str {
        self.algorithm.map_or("custom", |choice| choice.name())
    }
}

/// A kind of entry in a [digest](World::digest). Recorded digests contain the numbers.
#[derive(Clone, Copy)]
enum DigestEntry {
    WorkerStarted = 1,
    CheckpointStarted = 2,
    CallStarted = 3,
    WorkerEnded = 4,
    PreBatchStarted = 5,
    PostBatchStarted = 6,
}

/// An event that is scheduled for an instant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// An activity of a worker ends.
    Activity(SlotKey),
    /// The pre-batch hook of a row group ends.
    PreBatch {
        row_group: u32,
        rows: u32,
    },
    /// The post-batch hook of a row group ends.
    PostBatch(u32),
    /// The checkpoint of a row group ends.
    Checkpoint(u32),
    /// A holder requests its slots.
    Hold(usize),
    /// A holder releases its slots.
    ReleaseHolder(usize),
    /// A health call ends.
    HealthCall(SlotKey),
    WindDown,
    Drain,
    Cancel,
    Change,
}

/// A simulated run. See the [module documentation](self).
pub struct World {
    now: Instant,
    pipeline: Recorded<Pipeline>,
    admission: Recorded<RequestAdmission>,
    providers: Vec<Provider>,
    /// By column.
    column_work: Vec<ColumnWork>,
    callbacks: CallbackBehaviour,
    holders: Holders,
    health_calls: Slots<HealthCall>,
    draws: Draws,
    activities: Slots<Activity>,
    /// The state of each worker, by its number.
    workers: Map<u64, Worker>,
    /// The work of the workers whose calls wait, by the number of the waiter.
    waiting: Map<u64, Work>,
    /// By task with several calls: the number of its completed calls, for its next attempt.
    completed_calls: Map<TaskPosition, u32>,
    /// The scheduled events, ordered by instant and then by number.
    events: BinaryHeap<Reverse<(Instant, u64, Due)>>,
    /// The number of the next scheduled event.
    next_event: u64,
    /// All changes, in order of time.
    changes: Vec<Change>,
    /// The number of changes that have been applied.
    changes_applied: usize,
    steps: u64,
    digest: PortableHasher,
    finished: Option<RunReport>,
    watch: Option<Box<Watch>>,
    activity_changes: Option<ActivityChanges>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("now", &self.now).field("steps", &self.steps).finish_non_exhaustive()
    }
}

impl World {
    /// Creates the world of a scenario at virtual time zero, with the first work started.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<Self, ScenarioError> {
        let mut world = Self::unstarted(scenario, seed, None, None)?;
        world.begin(scenario);
        Ok(world)
    }

    /// Creates the world of a scenario and records every command of the pipeline and of request admission.
    /// See [`replay`](crate::replay).
    pub fn recorded(scenario: &Scenario, seed: u64) -> Result<(Header, Self), ScenarioError> {
        let header = Header::new(&scenario.plan()?, &scenario.pipeline_config(), &request_config(scenario));
        let mut world = Self::unstarted(scenario, seed, None, Some(&Sequence::default()))?;
        world.begin(scenario);
        Ok((header, world))
    }

    /// Returns the commands that were recorded since the last call. Empty in a world that is not
    /// [recorded](World::recorded).
    pub fn take_commands(&mut self) -> Vec<Stamped<Command>> {
        merge(self.pipeline.take_commands(), self.admission.take_commands())
    }

    /// Returns hashes over the decisions of the pipeline and of request admission, equal to those of
    /// [`Replay::digest`].
    ///
    /// [`Replay::digest`]: crate::replay::Replay::digest
    #[must_use]
    pub fn decision_digests(&self) -> (u64, u64) {
        (self.pipeline.decision_digest(), self.admission.decision_digest())
    }

    /// Creates a world in which nothing has started. `policy` replaces the task policy of the scenario, and
    /// `record` turns on the recording of commands.
    fn unstarted(
        scenario: &Scenario,
        seed: u64,
        policy: Option<BoxedPolicy>,
        record: Option<&Sequence>,
    ) -> Result<Self, ScenarioError> {
        scenario.validate()?;
        let (plan, config) = (scenario.plan()?, scenario.pipeline_config());
        let mut pipeline = Recorded::new(match policy {
            Some(policy) => Pipeline::with_policy(plan, config, policy)?,
            None => Pipeline::new(plan, config)?,
        });
        let mut admission = Recorded::new(RequestAdmission::new(request_config(scenario))?);
        if let Some(sequence) = record {
            pipeline.start_recording(sequence);
            admission.start_recording(sequence);
        }
        let seeds = Rng::new(seed);
        let providers = providers(scenario, &seeds, &mut admission)?;
        let index_of = |name: &String| scenario.models.iter().position(|model| model.name == *name);
        let mut column_work = Vec::new();
        for column in &scenario.columns {
            let tenant = column.tenant.as_ref().map(|name| admission.group_of_tenant(name)).transpose()?;
            let models = column.model.iter().chain(&column.fallbacks).filter_map(index_of);
            let resources: Vec<ResourceId> = models.map(|index| providers[index].resource).collect();
            let fallback = if column.fallbacks.is_empty() { None } else { Some(admission.fallbacks(&resources)?) };
            column_work.push(ColumnWork::of(column, column.model.as_ref().and_then(index_of), fallback, tenant));
        }
        let holders = scenario.holders.iter().filter_map(|holder| Some((index_of(&holder.model)?, holder.clone())));
        Ok(Self {
            now: Instant::ZERO,
            pipeline,
            admission,
            providers,
            column_work,
            callbacks: CallbackBehaviour {
                pre_batch: scenario.pre_batch.unwrap_or_default(),
                post_batch: scenario.post_batch.unwrap_or_default(),
                checkpoint: scenario.checkpoint,
            },
            holders: Holders::new(holders.collect()),
            health_calls: Slots::default(),
            draws: Draws::of(&seeds),
            activities: Slots::default(),
            workers: Map::default(),
            waiting: Map::default(),
            completed_calls: Map::default(),
            events: BinaryHeap::new(),
            next_event: FIRST_EVENT,
            changes: scenario.changes.clone(),
            changes_applied: 0,
            steps: 0,
            digest: PortableHasher::default(),
            finished: None,
            watch: None,
            activity_changes: None,
        })
    }

    /// Starts the run: applies the changes at time zero, schedules the later ones, and starts the pipeline.
    fn begin(&mut self, scenario: &Scenario) {
        self.begin_changes();
        let spans: Vec<[Duration; 2]> = self.holders.specs().map(|holder| [holder.from, holder.until]).collect();
        for (holder, [from, until]) in spans.into_iter().enumerate() {
            // A holder that holds slots from the beginning gets them before the run starts.
            if from.is_zero() {
                self.hold(holder);
            } else {
                self.schedule_at(Instant::ZERO + from, Due::Hold(holder));
            }
            self.schedule_at(Instant::ZERO + until, Due::ReleaseHolder(holder));
        }
        if let Some(at) = scenario.wind_down_at {
            self.schedule_at(Instant::ZERO + at, Due::WindDown);
        }
        if let Some(at) = scenario.drain_at {
            self.schedule_at(Instant::ZERO + at, Due::Drain);
        }
        if let Some(at) = scenario.cancel_at {
            self.schedule_at(Instant::ZERO + at, Due::Cancel);
        }
        self.connect_admission(scenario);
        if scenario.health_calls {
            self.offer_health_calls();
        }
        self.forward_pressure();
        self.pipeline.start(Instant::ZERO);
        self.settle();
    }

    /// Returns the virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the instant of the next event, or `None` if there is none.
    #[must_use]
    pub fn next_event_at(&self) -> Option<Instant> {
        if self.finished.is_some() {
            return None;
        }
        let activity = self.events.peek().map(|Reverse((at, _, _))| *at);
        let next = [activity, self.admission.poll_timeout(), self.pipeline.poll_timeout()].into_iter().flatten().min();
        next.map(|at| at.max(self.now))
    }

    /// Jumps to the instant of the next event and processes one event. Returns `false` if there is none.
    pub fn step(&mut self) -> bool {
        let Some(at) = self.next_event_at() else { return false };
        if at > self.now {
            self.observe_before(at);
        }
        self.now = at;
        self.steps += 1;
        match self.events.peek() {
            Some(Reverse((due, _, event))) if *due <= at => {
                let event = *event;
                self.events.pop();
                self.process(event);
            }
            _ if self.admission.poll_timeout().is_some_and(|due| due <= at) => self.admission.handle_timeout(at),
            _ => {
                self.forward_pressure();
                self.pipeline.handle_timeout(at);
            }
        }
        self.settle();
        true
    }

    /// Processes every event up to and including `until`, and moves virtual time there.
    pub fn advance_to(&mut self, until: Instant) {
        while self.next_event_at().is_some_and(|at| at <= until) {
            self.step();
        }
        if self.finished.is_none() {
            self.now = self.now.max(until);
        }
    }

    /// Returns the number of steps so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Sets the true capacity of a provider from now on. `None` restores the capacity of the scenario.
    /// `provider` is the index of its model in the scenario; an unknown index changes nothing.
    ///
    /// It takes effect at once and is not recorded. Use [`World::change`] for a change that can be replayed.
    pub fn set_capacity(&mut self, provider: usize, slots: Option<u32>) {
        let Some(provider) = self.providers.get_mut(provider) else { return };
        match slots {
            Some(slots) => provider.mock.set_capacity(self.now, slots),
            None => provider.mock.clear_override(self.now),
        }
    }

    /// Cancels the run. Work in progress is aborted, and its leases are released.
    pub fn cancel(&mut self) {
        self.cancel_run();
        self.settle();
    }

    /// Returns a hash over every decision so far, with its instant. It is equal on every target for equal
    /// scenario and seed.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// Returns the report of the run, once it has ended.
    #[must_use]
    pub fn finished(&self) -> Option<&RunReport> {
        self.finished.as_ref()
    }

    /// Returns the task leases, the call leases and the waiting calls. All are zero at the end of every run.
    #[must_use]
    pub fn outstanding(&self) -> [usize; 3] {
        [self.pipeline.active_leases(), self.admission.active_leases(), self.admission.waiting()]
    }
}

fn request_config(scenario: &Scenario) -> RequestConfig {
    let Scenario { outage_patience: patience, rate_limit_patience, recheck, .. } = *scenario;
    let health = HealthConfig { patience, rate_limit_patience, recheck, ..HealthConfig::default() };
    RequestConfig { health: Some(health), ..RequestConfig::default() }
}

/// Registers the models of a scenario.
fn providers(
    scenario: &Scenario,
    seeds: &Rng,
    admission: &mut Recorded<RequestAdmission>,
) -> Result<Vec<Provider>, ScenarioError> {
    let mut providers = Vec::new();
    for (stream, model) in (0..).zip(&scenario.models) {
        let name = || model.name.clone();
        let mock = MockProvider::new(&model.provider, seeds.fork(stream).next_u64())
            .map_err(|error| ScenarioError::Provider { model: name(), error })?;
        let owner = model.domain_of.as_ref().unwrap_or(&model.name).clone();
        let id = admission.register(Instant::ZERO, &owner, &owner, &alias_of(model), model.max_parallel);
        let domain = if model.domain_of.is_none() { Domain::Chat } else { Domain::Other(name()) };
        let resource = id.and_then(|id| admission.resource(id, domain)).and_then(|resource| {
            admission.configure(Instant::ZERO, resource, model.request.clone())?;
            if !model.algorithm.is_aimd() {
                admission.choose_algorithm(Instant::ZERO, resource, model.algorithm)?;
            }
            Ok(resource)
        });
        let resource =
            resource.map_err(|error| ScenarioError::Model { model: name(), error: with_file_field(error) })?;
        let (algorithm, max_parallel, idle) = (Some(model.algorithm), model.max_parallel, IdleAccount::default());
        let alias = alias_of(model);
        providers.push(Provider { name: name(), owner, alias, mock, resource, algorithm, max_parallel, idle });
    }
    Ok(providers)
}

/// Returns the alias under which a model is registered. Each domain has its own alias, and therefore its own
/// cap.
fn alias_of(model: &Model) -> String {
    model.domain_of.as_ref().map_or_else(|| "default".into(), |_| model.name.clone())
}

/// Effects and events.
impl World {
    /// Performs the effects of the pipeline and of request admission until neither has any.
    fn settle(&mut self) {
        loop {
            self.pipeline.settle_with(self.now, &mut self.admission);
            self.observe();
            if let Some(effect) = self.pipeline.poll_effect() {
                self.observe_effect(&effect);
                self.perform(effect);
            } else if let Some(effect) = self.admission.poll_effect() {
                self.deliver(effect);
            } else {
                break;
            }
        }
        if self.finished.is_some() {
            self.observe_end();
        }
        for provider in &mut self.providers {
            let Some(state) = self.admission.stats(self.now, provider.resource) else { continue };
            provider.idle.update(self.now, state.limit, state.in_flight, u64::from(state.waiters));
        }
    }

    fn perform(&mut self, effect: RunEffect) {
        match effect {
            RunEffect::Spawn(task) => self.spawn(&task),
            RunEffect::Checkpoint(group) => self.begin_checkpoint(&group),
            // A world has one run, which needs no claims.
            RunEffect::ClaimRowGroup => self.pipeline.row_group_claimed(self.now, Ok(None)),
            RunEffect::PreBatch(batch) => self.begin_pre_batch(&batch),
            RunEffect::PostBatch(group) => self.begin_post_batch(&group),
            RunEffect::Abort(worker) => self.abort(worker),
            // A warning needs no reaction. The account has the same figures.
            RunEffect::Warn(_) => {}
            RunEffect::Finished => {
                self.finished = self.pipeline.report().cloned();
                self.release_all_holders();
                self.abandon_health_calls();
            }
        }
    }

    /// Processes an event whose instant has come.
    fn process(&mut self, due: Due) {
        match due {
            Due::Activity(key) => self.complete(key),
            Due::PreBatch { row_group, rows } => self.end_pre_batch(row_group, rows),
            Due::PostBatch(row_group) => self.end_post_batch(row_group),
            Due::Checkpoint(row_group) => self.end_checkpoint(row_group),
            Due::Hold(holder) => self.hold(holder),
            Due::ReleaseHolder(holder) => self.release_holder(holder),
            Due::HealthCall(key) => self.end_health_call(key),
            Due::WindDown => self.pipeline.wind_down(self.now),
            Due::Drain => self.pipeline.drain(self.now),
            Due::Cancel => self.cancel_run(),
            Due::Change => self.apply_next_change(),
        }
    }

    fn cancel_run(&mut self) {
        self.report_step(&LifecycleStep::Cancel);
        self.pipeline.cancel(self.now);
    }

    fn schedule_at(&mut self, at: Instant, due: Due) {
        self.events.push(Reverse((at, self.next_event, due)));
        self.next_event += 1;
    }

    /// Connects the pipeline to request admission: workers yield while their calls wait, and the pipeline
    /// gets advice if the scenario has it on.
    fn connect_admission(&mut self, scenario: &Scenario) {
        let models = scenario.models.iter().zip(&self.providers).filter(|_| scenario.advisory);
        let calls = models.map(|(model, provider)| (model.task_resource(), provider.resource));
        let calls: Vec<(String, ResourceId)> = calls.collect();
        let calls: Vec<_> = calls.iter().map(|(name, resource)| (name.as_str(), *resource)).collect();
        self.pipeline.set_request_resources(SlotKey::from_bits(0), &calls);
    }

    /// Updates the pipeline with the models for which a call would have to wait. Must be called before every
    /// command that may start workers.
    fn forward_pressure(&mut self) {
        self.pipeline.update_pressure(self.now, &self.admission);
    }

    /// Adds an entry about `subject`, a worker or a row group, to the digest.
    fn add_to_digest(&mut self, entry: DigestEntry, subject: u64) {
        for word in [entry as u64, self.now.as_nanos(), subject] {
            self.digest.write_u64(word);
        }
    }
}
