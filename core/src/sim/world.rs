//! A whole run in virtual time: the machines, the mock providers, and an event heap between them.
//!
//! A [`World`] is what a host is, without any waiting: it carries out the effects of the
//! [pipeline](crate::pipeline::Pipeline) and of [request admission](crate::request::RequestAdmission) and jumps to the
//! next instant at which something happens. It makes no scheduling decision. Events of one instant are carried out in
//! the order in which they were scheduled, so a run is a function of the scenario and the seed.

use alloc::collections::BinaryHeap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::hash::Hasher;

use serde::Serialize;

use super::provider::{Answer, MockProvider};
use super::rng::Rng;
use super::scenario::{Scenario, ScenarioError};
use crate::handle::{FixedHasher, FixedMap, SlotKey, Slots};
use crate::observe::{IdleAccount, IdleFigures};
use crate::pipeline::{Effect as RunEffect, Pipeline, RetryKind, RunReport, Task, TaskOutcome, WorkerId};
use crate::request::{
    Acquire, Completion, Domain, Effect, Outcome, Request, RequestAdmission, RequestConfig, RequestLease, ResourceId,
    WaiterId,
};
use crate::time::{Duration, Instant};

/// How long the answer to a refused call travels.
const REFUSAL_LATENCY: Duration = Duration::from_millis(5);
/// How long a call waits for a provider that does not answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The figures of one instant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Virtual time.
    pub at: Instant,
    /// By model, in the scenario's order.
    pub providers: Vec<ProviderSample>,
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
pub struct ProviderSample {
    /// The model's name.
    pub name: String,
    /// The adaptive limit.
    pub limit: u32,
    /// Calls out.
    pub in_flight: u32,
    /// Calls that wait for admission.
    pub waiting: u32,
    /// What the provider would truly bear.
    pub capacity: u32,
    /// Calls it accepted so far.
    pub accepted: u64,
    /// Calls it refused so far.
    pub refused: u64,
    /// The end of the cooldown in force.
    pub cooldown_until: Option<Instant>,
    /// Slot-time so far.
    pub idle: IdleFigures,
}

struct Provider {
    name: String,
    machine: MockProvider,
    resource: ResourceId,
    idle: IdleAccount,
}

/// What a column does.
#[derive(Clone, Copy)]
enum Kind {
    Local(Duration),
    Calls { provider: usize, tokens: u32 },
}

/// Something that is under way and ends at a scheduled instant.
struct Activity {
    worker: WorkerId,
    outcome: TaskOutcome,
    call: Option<Call>,
}

struct Call {
    provider: usize,
    lease: RequestLease,
    completion: Completion,
    holds_slot: bool,
}

#[derive(Clone, Copy)]
enum Worker {
    Waiting(WaiterId),
    Busy(SlotKey),
}

/// A simulated run. See the [module documentation](self).
pub struct World {
    now: Instant,
    pipeline: Pipeline,
    admission: RequestAdmission,
    providers: Vec<Provider>,
    kinds: Vec<Kind>,
    activities: Slots<Activity>,
    workers: FixedMap<u64, Worker>,
    waiting: FixedMap<u64, Task>,
    events: BinaryHeap<Reverse<(Instant, u64, SlotKey)>>,
    scheduled: u64,
    digest: FixedHasher,
    finished: Option<RunReport>,
}

impl World {
    /// The world of a scenario at virtual time zero, with its first work under way.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<Self, ScenarioError> {
        let plan = scenario.plan()?;
        let mut admission = RequestAdmission::new(RequestConfig::default())?;
        let seeds = Rng::new(seed);
        let mut providers = Vec::new();
        for (stream, model) in (0..).zip(&scenario.models) {
            let name = || model.name.clone();
            let machine = MockProvider::new(&model.provider, seeds.fork(stream).next_u64())
                .map_err(|error| ScenarioError::Provider { model: name(), error })?;
            let id = admission.register(Instant::ZERO, &model.name, &model.name, "default", model.max_parallel);
            let resource = id.map(|id| admission.resource(id, Domain::Chat)).and_then(|resource| {
                admission.configure(Instant::ZERO, resource, model.request.clone()).map(|()| resource)
            });
            let resource = resource.map_err(|error| ScenarioError::Model { model: name(), error })?;
            providers.push(Provider { name: name(), machine, resource, idle: IdleAccount::default() });
        }
        let kinds = scenario.columns.iter().map(|column| {
            let called = scenario.models.iter().position(|model| Some(&model.name) == column.model.as_ref());
            called.map_or(Kind::Local(column.local), |provider| Kind::Calls { provider, tokens: column.tokens })
        });
        let mut world = Self {
            now: Instant::ZERO,
            pipeline: Pipeline::new(plan, scenario.pipeline_config())?,
            admission,
            providers,
            kinds: kinds.collect(),
            activities: Slots::default(),
            workers: FixedMap::default(),
            waiting: FixedMap::default(),
            events: BinaryHeap::new(),
            scheduled: 0,
            digest: FixedHasher::default(),
            finished: None,
        };
        world.pipeline.start(Instant::ZERO);
        world.settle();
        Ok(world)
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// When something happens next; `None` when nothing will.
    #[must_use]
    pub fn next_event_at(&self) -> Option<Instant> {
        if self.finished.is_some() {
            return None;
        }
        let activity = self.events.peek().map(|Reverse((at, _, _))| *at);
        let next = [activity, self.admission.poll_timeout(), self.pipeline.poll_timeout()].into_iter().flatten().min();
        next.map(|at| at.max(self.now))
    }

    /// Jumps to the next instant and carries out one event; answers whether there was one.
    pub fn step(&mut self) -> bool {
        let Some(at) = self.next_event_at() else { return false };
        self.now = at;
        match self.events.peek() {
            Some(Reverse((due, _, activity))) if *due <= at => {
                let activity = *activity;
                self.events.pop();
                self.complete(activity);
            }
            _ if self.admission.poll_timeout().is_some_and(|due| due <= at) => self.admission.handle_timeout(at),
            _ => self.pipeline.handle_timeout(at),
        }
        self.settle();
        true
    }

    /// Carries out every event up to and including `until`, and moves virtual time there.
    pub fn advance_to(&mut self, until: Instant) {
        while self.next_event_at().is_some_and(|at| at <= until) {
            self.step();
        }
        if self.finished.is_none() {
            self.now = self.now.max(until);
        }
    }

    /// Puts a provider's true capacity at `slots` from now on; `None` gives it back to the scenario.
    pub fn set_capacity(&mut self, provider: usize, slots: Option<u32>) {
        let Some(provider) = self.providers.get_mut(provider) else { return };
        match slots {
            Some(slots) => provider.machine.set_capacity(self.now, slots),
            None => provider.machine.clear_override(self.now),
        }
    }

    /// Cancels the run: what is under way is given up and its leases come back.
    pub fn cancel(&mut self) {
        self.pipeline.cancel(self.now);
        self.settle();
    }

    /// The figures of this instant. Changes nothing.
    #[must_use]
    pub fn sample(&self) -> Sample {
        let progress = self.pipeline.progress();
        let providers = self.providers.iter().filter_map(|provider| {
            let state = self.admission.snapshot(self.now, provider.resource)?;
            let counters = provider.machine.counters();
            Some(ProviderSample {
                name: provider.name.clone(),
                limit: state.current_limit,
                in_flight: state.in_flight,
                waiting: state.waiters,
                capacity: provider.machine.capacity(self.now),
                accepted: counters.accepted,
                refused: counters.refused,
                cooldown_until: state.blocked_until,
                idle: provider.idle.read(self.now),
            })
        });
        Sample {
            at: self.now,
            providers: providers.collect(),
            queue_depth: progress.queued,
            running: progress.running,
            rows_done: progress.rows_done,
            rows_dropped: progress.rows_dropped,
            rows_total: progress.rows_total,
            finished: self.finished.is_some(),
        }
    }

    /// A hash over every decision so far, with its instant. Equal on every target for equal scenario and seed.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// How the run ended, once it has.
    #[must_use]
    pub fn finished(&self) -> Option<&RunReport> {
        self.finished.as_ref()
    }

    /// Leases and waiters of both machines; all zero at the end of every run.
    #[must_use]
    pub fn outstanding(&self) -> [usize; 3] {
        [self.pipeline.active_leases(), self.admission.active_leases(), self.admission.waiting()]
    }
}

/// Carrying out what the machines decided.
impl World {
    /// Drains the effects of both machines until neither has any.
    fn settle(&mut self) {
        loop {
            if let Some(effect) = self.pipeline.poll_effect() {
                self.carry_out(effect);
            } else if let Some(effect) = self.admission.poll_effect() {
                self.deliver(effect);
            } else {
                break;
            }
        }
        for provider in &mut self.providers {
            let Some(state) = self.admission.load(self.now, provider.resource) else { continue };
            provider.idle.update(self.now, state.limit, state.in_flight, u64::from(state.waiters));
        }
    }

    fn carry_out(&mut self, effect: RunEffect) {
        match effect {
            RunEffect::Spawn(task) => self.spawn(&task),
            RunEffect::Checkpoint(group) => {
                self.note(2, u64::from(group.row_group));
                self.pipeline.checkpoint_finished(self.now, group.row_group, Ok(()));
            }
            RunEffect::PreBatch(batch) => self.pipeline.pre_batch_finished(self.now, batch.row_group, Ok(Vec::new())),
            RunEffect::PostBatch(group) => self.pipeline.post_batch_finished(self.now, group.row_group, Ok(())),
            RunEffect::Abort(worker) => self.abort(worker),
            // The page and the tests read the figures instead.
            RunEffect::Warn(_) => {}
            RunEffect::Finished => self.finished = self.pipeline.report().cloned(),
        }
    }

    fn spawn(&mut self, task: &Task) {
        self.note(1, task.worker.to_bits());
        match self.kinds[task.column.index()] {
            Kind::Local(span) => {
                let done = Activity { worker: task.worker, outcome: TaskOutcome::Success, call: None };
                self.schedule(self.now + span, done);
            }
            Kind::Calls { provider, .. } => {
                let request = Request::new(self.providers[provider].resource);
                match self.admission.acquire(self.now, &request) {
                    Acquire::Granted(lease) => self.call(task, lease),
                    Acquire::Waiting(waiter) => {
                        self.workers.insert(task.worker.to_bits(), Worker::Waiting(waiter));
                        self.waiting.insert(waiter.to_bits(), *task);
                    }
                    Acquire::Denied(_) => self.finish(task.worker, not_admitted()),
                }
            }
        }
    }

    fn deliver(&mut self, effect: Effect) {
        match effect {
            Effect::Granted { waiter, lease } => match self.waiting.remove(&waiter.to_bits()) {
                Some(task) => self.call(&task, lease),
                None => {
                    let _ = self.admission.release(self.now, lease, &Outcome::LocalCancelled.into());
                }
            },
            Effect::Refused { waiter, .. } => {
                if let Some(task) = self.waiting.remove(&waiter.to_bits()) {
                    self.finish(task.worker, not_admitted());
                }
            }
        }
    }

    fn call(&mut self, task: &Task, lease: RequestLease) {
        let Kind::Calls { provider, tokens } = self.kinds[task.column.index()] else { return };
        self.note(3, task.worker.to_bits());
        let retryable = |kind, retry_after| TaskOutcome::Retryable { kind, retry_after };
        let (at, holds_slot, completion, outcome) = match self.providers[provider].machine.arrive(self.now, tokens) {
            Answer::Accept { finish_at } => (finish_at, true, Outcome::Success.into(), TaskOutcome::Success),
            Answer::Refuse { retry_after, .. } => (
                self.now + REFUSAL_LATENCY,
                false,
                Completion::rate_limited(retry_after),
                retryable(RetryKind::RateLimited, retry_after),
            ),
            Answer::Fail { at, .. } => {
                (at, false, Outcome::ProviderFailure.into(), retryable(RetryKind::ServerError, None))
            }
            Answer::Hang { until } => (
                until.min(self.now + CALL_TIMEOUT),
                false,
                Outcome::ProviderTimeout.into(),
                retryable(RetryKind::Timeout, None),
            ),
        };
        let call = Some(Call { provider, lease, completion, holds_slot });
        self.schedule(at, Activity { worker: task.worker, outcome, call });
    }

    fn schedule(&mut self, at: Instant, activity: Activity) {
        let worker = activity.worker;
        let key = self.activities.insert(activity);
        self.workers.insert(worker.to_bits(), Worker::Busy(key));
        self.events.push(Reverse((at, self.scheduled, key)));
        self.scheduled += 1;
    }

    fn complete(&mut self, key: SlotKey) {
        // An activity that was aborted is gone; its event is not.
        let Some(activity) = self.activities.remove(key) else { return };
        if let Some(call) = activity.call {
            self.hang_up(call.provider, call.holds_slot);
            let _ = self.admission.release(self.now, call.lease, &call.completion);
        }
        self.finish(activity.worker, activity.outcome);
    }

    fn abort(&mut self, worker: WorkerId) {
        match self.workers.get(&worker.to_bits()).copied() {
            Some(Worker::Waiting(waiter)) => {
                self.admission.cancel(self.now, waiter);
                self.waiting.remove(&waiter.to_bits());
            }
            Some(Worker::Busy(key)) => {
                if let Some(Activity { call: Some(call), .. }) = self.activities.remove(key) {
                    self.hang_up(call.provider, call.holds_slot);
                    let _ = self.admission.release(self.now, call.lease, &Outcome::LocalCancelled.into());
                }
            }
            None => return,
        }
        self.finish(worker, TaskOutcome::Cancelled);
    }

    fn hang_up(&mut self, provider: usize, holds_slot: bool) {
        if holds_slot {
            self.providers[provider].machine.finish(self.now);
        }
    }

    fn finish(&mut self, worker: WorkerId, outcome: TaskOutcome) {
        self.workers.remove(&worker.to_bits());
        self.note(4, worker.to_bits());
        let _ = self.pipeline.task_finished(self.now, worker, outcome);
    }

    fn note(&mut self, kind: u64, what: u64) {
        for word in [kind, self.now.as_nanos(), what] {
            self.digest.write_u64(word);
        }
    }
}

fn not_admitted() -> TaskOutcome {
    TaskOutcome::Retryable { kind: RetryKind::AdmissionTimeout, retry_after: None }
}
