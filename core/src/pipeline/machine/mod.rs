//! The commands and effects of a run: a thin facade over plan, frontier, row groups, salvage and health.
//!
//! Every command does three things in this order, which keeps the rest simple:
//!
//! 1. *absorb*: record what happened, and which tasks it made ready;
//! 2. *settle* the row group it happened to: hand it out for its checkpoint, or begin a salvage round;
//! 3. *pump*: queue the delayed tasks that are due, admit row groups, dispatch, and see whether the run is over.
//!
//! Work per command is bounded by the size of the row groups it admits or drops from and by the leases it grants;
//! one finished cell costs O(out-degree).

pub(in crate::pipeline) mod explain;
pub(in crate::pipeline) mod hooks;
mod ready;
mod settings;
mod spawn;
pub(in crate::pipeline) mod stats;
pub(in crate::pipeline) mod stop;
pub(in crate::pipeline) mod yielding;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::id::Slots;
use crate::lease::ReleaseAnswer;
use crate::pipeline::config::{PipelineConfig, PipelineError};
use crate::pipeline::dispatch::route::{Route, routes};
use crate::pipeline::dispatch::turns::Turns;
use crate::pipeline::event::SchedulerFact;
use crate::pipeline::event::emitter::{Teller, kept};
use crate::pipeline::machine::hooks::Hooks;
use crate::pipeline::machine::stop::StopMode;
use crate::pipeline::machine::yielding::Yielding;
use crate::pipeline::outcome::{DropReason, Effect, ProviderDegraded, RetryKind, Task, TaskOutcome, WorkerId};
use crate::pipeline::plan::key::TaskKey;
use crate::pipeline::plan::{ColumnId, Plan};
use crate::pipeline::report::{RunReport, StopReason, Tally};
use crate::pipeline::retry::backoff::{Delays, Salvage, Verdict};
use crate::pipeline::retry::deferral::Models;
use crate::pipeline::retry::health::{DegradedWatch, FailureWindow, Patience};
use crate::pipeline::row_group::admitted::Admitted;
use crate::pipeline::row_group::frontier::{Place, Stage};
use crate::pipeline::row_group::target::{RowGroupTarget, Sight};
use crate::pipeline::row_group::{Pending, Phase, RowGroup};
use crate::replay::{Recorder, RunCommand};
use crate::request::RequestPressure;
use crate::task::{BoxedPolicy, Dispatched, Dispatcher, TaskConfig, TaskLease};
use crate::time::{Instant, Monotonic};

/// Runs a [`Plan`] over row groups: a machine for a driver to own.
///
/// Call [`Pipeline::start`] once, then carry out what [`Pipeline::poll_effect`] answers and report back with
/// [`Pipeline::task_finished`] or [`Pipeline::task_broke`] and with [`Pipeline::checkpoint_finished`], and for the hooks that were asked for with
/// [`Pipeline::pre_batch_finished`] and [`Pipeline::post_batch_finished`]; arm one timer for [`Pipeline::poll_timeout`].
/// Spurious, late and foreign calls are harmless. The run is over when [`Effect::Finished`] came.
#[derive(Debug)]
pub struct Pipeline {
    pub(in crate::pipeline) plan: Plan,
    /// How each column's tasks are queued, by column.
    pub(in crate::pipeline) routes: Vec<Route>,
    salvage: Salvage,
    pub(in crate::pipeline) target: RowGroupTarget,
    models: Models,
    rows: u64,
    pub(in crate::pipeline) dispatcher: Dispatcher<BoxedPolicy>,
    pub(in crate::pipeline) pending: Pending,
    /// The admitted row groups. Ordered, since some decisions visit them all.
    pub(in crate::pipeline) groups: Admitted,
    pub(in crate::pipeline) workers: Slots<Worker>,
    pub(in crate::pipeline) yielding: Yielding,
    pub(in crate::pipeline) turns: Turns,
    /// Rows of the admitted row groups.
    pub(in crate::pipeline) rows_in_work: u64,
    worker_cap: u32,
    /// Hooks and checkpoints that are not answered.
    pub(in crate::pipeline) awaited: usize,
    pub(in crate::pipeline) hooks: Hooks,
    pub(in crate::pipeline) delays: Delays,
    window: FailureWindow,
    shutdown_window: u32,
    patience: Patience,
    degraded: DegradedWatch,
    pub(in crate::pipeline) tally: Tally,
    pub(in crate::pipeline) clock: Monotonic,
    pub(in crate::pipeline) started: Instant,
    pub(in crate::pipeline) state: State,
    pub(in crate::pipeline) stop_reason: Option<StopReason>,
    pub(in crate::pipeline) effects: VecDeque<Effect>,
    pub(in crate::pipeline) teller: Teller,
    /// Scratch: tasks found ready during one command.
    pub(in crate::pipeline) ready: Vec<Place>,
    pub(in crate::pipeline) report: Option<RunReport>,
    pub(in crate::pipeline) recorder: Recorder<RunCommand>,
}

/// Where the run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pipeline) enum State {
    Idle,
    Running,
    Stopping(StopMode),
    Finished,
}

/// A worker and what it holds.
#[derive(Debug)]
pub(in crate::pipeline) struct Worker {
    pub(in crate::pipeline) key: TaskKey,
    pub(in crate::pipeline) lease: TaskLease,
    pub(in crate::pipeline) aborted: bool,
}

/// Set-up and what there is to see.
impl Pipeline {
    /// A run that has not started. Cost and memory do not depend on the number of row groups, but for the list of
    /// those that are done.
    pub fn new(plan: Plan, config: PipelineConfig) -> Result<Self, PipelineError> {
        let policy = config.policy.clone().make()?;
        Self::with_policy(plan, config, policy)
    }

    /// The same under a task policy of the caller's own, in place of the one that `config` names.
    pub fn with_policy(plan: Plan, config: PipelineConfig, policy: BoxedPolicy) -> Result<Self, PipelineError> {
        config.validate(&plan)?;
        let (submission_limit, resources) = (config.submission_limit, config.resources);
        let task_config = TaskConfig { submission_limit, resources, ..TaskConfig::default() };
        let mut dispatcher = Dispatcher::with_policy(task_config, policy)?;
        let (routes, groups) = routes(&plan, &mut dispatcher)?;
        Ok(Self {
            yielding: Yielding::of(&plan, &routes, config.yield_while_waiting),
            models: Models::of(&plan, &routes, &dispatcher, groups),
            routes,
            salvage: Salvage {
                rounds: config.salvage_rounds,
                floor: config.retry_floor,
                ceiling: config.retry_ceiling,
            },
            target: RowGroupTarget::new(config.adaptive, config.row_groups, config.row_group_size),
            rows: config.rows,
            dispatcher,
            pending: Pending::new(config.rows, config.row_group_size, config.done_row_groups),
            groups: Admitted::default(),
            rows_in_work: 0,
            worker_cap: config.submission_limit,
            workers: Slots::default(),
            awaited: 0,
            hooks: Hooks { pre_batch: config.pre_batch_hook, post_batch: config.post_batch_hook },
            delays: Delays::default(),
            window: FailureWindow::new(config.shutdown_window, config.shutdown_rate),
            shutdown_window: config.shutdown_window,
            patience: Patience::new(config.rate_limit_patience, groups),
            degraded: DegradedWatch::new(config.degraded_window, config.degraded_rate, config.degraded_pause, groups),
            tally: Tally::new(plan.columns().len()),
            turns: Turns::of(&plan),
            clock: Monotonic::default(),
            started: Instant::ZERO,
            state: State::Idle,
            stop_reason: None,
            effects: VecDeque::new(),
            teller: Teller::new(config.run, &plan),
            ready: Vec::new(),
            report: None,
            recorder: Recorder::default(),
            plan,
        })
    }

    /// The plan it runs.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(in crate::pipeline) fn rows(&self) -> u64 {
        self.rows
    }
}

/// Commands.
impl Pipeline {
    /// Begins the run: admits the first row groups. A second call changes nothing.
    pub fn start(&mut self, now: Instant) {
        self.recorder.note(self.effects.len(), || RunCommand::Start { now });
        let now = self.clock.observe(now);
        if self.state == State::Idle {
            self.started = now;
            self.state = State::Running;
            self.tell_started(now);
        }
        self.pump(now);
    }

    /// The next thing to carry out, in order.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        let effect = self.effects.pop_front()?;
        self.recorder.polled(|digest| digest.run(&effect));
        Some(effect)
    }

    /// When to call [`Pipeline::handle_timeout`]: the first instant at which a delayed task is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.delays.next_due()
    }

    /// Queues the delayed tasks that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.recorder.note(self.effects.len(), || RunCommand::HandleTimeout { now });
        let now = self.clock.observe(now);
        self.pump(now);
    }

    /// A worker ended: its lease is back. A second call, or one for a worker never started, changes nothing and says
    /// so.
    pub fn task_finished(&mut self, now: Instant, worker: WorkerId, outcome: TaskOutcome) -> ReleaseAnswer {
        self.recorder.note(self.effects.len(), || RunCommand::TaskFinished { now, worker, outcome });
        self.end_worker(now, worker, Some(outcome), |pipeline, now, key| pipeline.absorb(now, key, outcome))
    }

    pub(in crate::pipeline) fn end_worker(
        &mut self,
        now: Instant,
        worker: WorkerId,
        outcome: Option<TaskOutcome>,
        absorb: impl FnOnce(&mut Self, Instant, TaskKey),
    ) -> ReleaseAnswer {
        let now = self.clock.observe(now);
        let Some(ended) = self.workers.remove(worker.0) else { return self.refuse(now, worker) };
        let (key, lease) = (ended.key, ended.lease.id());
        let answer = self.release(ended);
        if self.teller.is_on() {
            self.tell_ended(now, key, SchedulerFact::TaskCompleted { worker, outcome }, lease);
        }
        absorb(self, now, key);
        self.settle(now, key.row_group);
        self.pump(now);
        answer
    }

    /// Whether a call of the request resource that `resource` stands for would have to wait, and why: tell it whenever that
    /// changes. Tasks that would only wait are then passed over while others could call at once.
    pub fn set_request_pressure(&mut self, now: Instant, resource: &str, pressure: Option<RequestPressure>) {
        self.recorder.note(self.effects.len(), || {
            let resource = resource.into();
            RunCommand::SetRequestPressure { now, resource, pressure, looked: false }
        });
        let now = self.clock.observe(now);
        if self.dispatcher.set_request_pressure(resource, pressure) {
            self.pump(now);
        }
    }

    /// Winds the run down: no further row group is admitted, and those in work are finished and saved. What is left is for a
    /// resumed run. Nothing changes if there is none, or if the run is stopping already.
    pub fn drain(&mut self, now: Instant) {
        self.recorder.note(self.effects.len(), || RunCommand::Drain { now });
        let now = self.clock.observe(now);
        if matches!(self.state, State::Idle | State::Running) && self.pending.close() {
            self.wind_down();
            if self.state == State::Running {
                self.pump(now);
            }
        }
    }

    /// Stops the run: nothing more is started, every worker is aborted and waited for, row groups that are not
    /// complete are not saved.
    pub fn cancel(&mut self, now: Instant) {
        self.recorder.note(self.effects.len(), || RunCommand::Cancel { now });
        let now = self.clock.observe(now);
        if self.state == State::Idle {
            self.started = now;
            self.tell_started(now);
        }
        self.stop(StopReason::Cancelled, StopMode::Abort);
        self.pump(now);
    }
}

/// Absorbing what happened.
impl Pipeline {
    fn absorb(&mut self, now: Instant, key: TaskKey, outcome: TaskOutcome) {
        let place = (key.column, key.row);
        self.consult_patience(now, key.column, outcome);
        let Some(group) = self.groups.get_mut(key.row_group) else {
            debug_assert!(false, "a row group stays while it has workers");
            return;
        };
        group.running -= 1;
        let entry = group.frontier.entry_mut(&self.plan, place);
        let rounds = entry.rounds;
        let counts = &mut self.tally.columns[key.column.index()];
        if entry.stage == Stage::Dropped {
            counts.ignored += 1;
            return;
        }
        match outcome {
            TaskOutcome::Success => {
                counts.succeeded += 1;
                group.frontier.complete(&self.plan, place, false, &mut self.ready);
                self.observe_final(false);
            }
            TaskOutcome::Skipped => {
                counts.skipped += 1;
                group.frontier.complete(&self.plan, place, true, &mut self.ready);
            }
            TaskOutcome::Failed(kind) => {
                counts.failed += 1;
                self.drop_rows(key, DropReason::Failed(kind));
                self.observe_final(true);
            }
            TaskOutcome::Retryable { kind, retry_after } => {
                counts.retryable += 1;
                let verdict = self.salvage.judge(now, kind, retry_after, rounds);
                self.carry_out(key, verdict, Some(kind));
            }
            TaskOutcome::Cancelled => {
                counts.cancelled += 1;
                let verdict = self.judge_lost(now, rounds);
                self.carry_out(key, verdict, None);
            }
        }
        self.enqueue_ready(key.row_group);
    }

    pub(in crate::pipeline) fn judge_lost(&self, now: Instant, rounds: u8) -> Verdict {
        match self.state {
            // Aborted by the stop: no fault of the row.
            State::Stopping(_) => Verdict::Defer { not_before: now },
            _ => self.salvage.judge_lost(now, rounds),
        }
    }

    /// What an answer says about the provider behind a column's group.
    fn consult_patience(&mut self, now: Instant, column: ColumnId, outcome: TaskOutcome) {
        let group = self.routes[column.index()].patience;
        self.watch_provider(now, column, outcome);
        match outcome {
            TaskOutcome::Retryable { kind: RetryKind::RateLimited, .. } => {
                if let Some(waited) = self.patience.rate_limited(now, group) {
                    let group = self.plan.columns()[column.index()].group.identity.clone();
                    self.stop(StopReason::ProviderExhausted { group, waited }, StopMode::DrainPartial);
                }
            }
            // None of them is an answer of the provider.
            TaskOutcome::Retryable { kind: RetryKind::AdmissionTimeout, .. }
            | TaskOutcome::Cancelled
            | TaskOutcome::Skipped => {}
            _ => self.patience.answered(group),
        }
    }

    /// Warns of a provider that mostly fails. What the caller did itself is no answer of the provider.
    fn watch_provider(&mut self, now: Instant, column: ColumnId, outcome: TaskOutcome) {
        let is_retryable = match outcome {
            TaskOutcome::Retryable { kind: RetryKind::AdmissionTimeout, .. }
            | TaskOutcome::Cancelled
            | TaskOutcome::Skipped => return,
            TaskOutcome::Retryable { .. } => true,
            TaskOutcome::Success | TaskOutcome::Failed(_) => false,
        };
        let group = self.routes[column.index()].patience;
        if let Some(retryable) = self.degraded.observe(now, group, is_retryable) {
            let window = self.degraded.window();
            self.teller.group(now, column, SchedulerFact::ProviderDegraded { retryable, window });
            let group = self.plan.columns()[column.index()].group.identity.clone();
            self.effects.push_back(Effect::Warn(ProviderDegraded { group, retryable, window }));
        }
    }

    fn observe_final(&mut self, failed: bool) {
        if let Some(failures) = self.window.observe(failed) {
            let window = self.shutdown_window;
            self.stop(StopReason::EarlyShutdown { failures, window }, StopMode::DrainPartial);
        }
    }

    /// Drops a task, or keeps it for another try, which it needs because of `failure`, or of a worker that was lost.
    pub(in crate::pipeline) fn carry_out(&mut self, key: TaskKey, verdict: Verdict, failure: Option<RetryKind>) {
        if let Verdict::Drop(reason) = verdict {
            return self.drop_rows(key, reason);
        }
        let Some(group) = self.groups.get_mut(key.row_group) else { return };
        let place = (key.column, key.row);
        let entry = group.frontier.entry_mut(&self.plan, place);
        if entry.stage == Stage::Dropped {
            return;
        }
        // A run that stops tries nothing again: the task only has to be seen as not done.
        entry.stage = Stage::Deferred;
        if self.teller.is_on() {
            let fact = kept(self.state == State::Running, verdict, failure, entry.rounds);
            self.teller.task(self.clock.latest(), key, entry.attempts, fact);
        }
        match verdict {
            _ if self.state != State::Running => {}
            Verdict::Delay { until } => {
                entry.stage = Stage::Delayed;
                self.delays.push(until, key.to_bits());
                self.models.hold_back(self.routes[key.column.index()].patience);
            }
            Verdict::Defer { not_before } => {
                group.deferred.push(crate::pipeline::row_group::Deferred { place, not_before });
                self.models.hold_back(self.routes[key.column.index()].patience);
            }
            Verdict::Drop(_) => {}
        }
    }

    /// Drops the row of a cell, or the rows of a whole group, and takes back what waits for them.
    pub(in crate::pipeline) fn drop_rows(&mut self, key: TaskKey, reason: DropReason) {
        let Some(group) = self.groups.get_mut(key.row_group) else { return };
        let running = self.state == State::Running;
        let (dispatcher, delays, models) = (&mut self.dispatcher, &mut self.delays, &mut self.models);
        let (routes, teller, now) = (&self.routes, &mut self.teller, self.clock.latest());
        let queued = &mut self.tally.queued;
        let mut discarded = 0;
        let place = (key.column, key.row);
        let rows = group.drop_rows(&self.plan, place, reason, &mut self.ready, |(column, row), entry| {
            let gone = TaskKey { column, row, ..key };
            if running {
                teller.dropped(now, gone, entry);
            }
            // A run that stops has emptied queue and timers already.
            match entry.stage {
                Stage::Queued if running => {
                    let found = dispatcher.discard(gone.to_bits());
                    debug_assert!(found, "a queued task is in the queue");
                    discarded += 1;
                    queued[column.index()] -= 1;
                }
                Stage::Delayed if running => {
                    delays.bury();
                    models.let_go(routes[column.index()].patience);
                }
                Stage::Deferred if running => models.let_go(routes[column.index()].patience),
                _ => {}
            }
        });
        group.queued -= discarded;
        self.tally.drop_rows(Some(key.column), reason, u64::from(rows));
        if self.teller.is_on() {
            self.tell_dropped(key, reason, rows, discarded > 0);
        }
    }
}

/// Settling a row group.
impl Pipeline {
    /// Moves a row group on once nothing of it is running or queued.
    pub(in crate::pipeline) fn settle(&mut self, now: Instant, row_group: u32) {
        // A task whose turn has come is one the row group is not done with.
        self.pass_turns();
        self.begin_pre_batch(row_group);
        let Some(group) = self.groups.get(row_group) else { return };
        if group.phase != Phase::Open || !group.is_quiet() {
            return;
        }
        let is_done = group.frontier.open() == 0 && !group.awaits_pre_batch();
        match self.state {
            _ if is_done => self.hand_out(row_group),
            State::Stopping(mode) => self.settle_stopped(row_group, mode),
            _ => self.begin_salvage_round(now, row_group),
        }
    }

    fn begin_salvage_round(&mut self, now: Instant, row_group: u32) {
        let Some(group) = self.groups.get_mut(row_group) else { return };
        for deferred in core::mem::take(&mut group.deferred) {
            let entry = group.frontier.entry_mut(&self.plan, deferred.place);
            if entry.stage != Stage::Deferred {
                continue;
            }
            entry.rounds += 1;
            if deferred.not_before <= now {
                self.ready.push(deferred.place);
                self.models.let_go(self.routes[deferred.place.0.index()].patience);
            } else {
                entry.stage = Stage::Delayed;
                self.delays.push(deferred.not_before, group.key(deferred.place).to_bits());
            }
        }
        self.enqueue_ready(row_group);
    }
}

/// The pump: what every command ends with.
impl Pipeline {
    pub(in crate::pipeline) fn pump(&mut self, now: Instant) {
        if !self.defers_to_suspended() {
            self.pump_on(now);
        }
    }

    pub(in crate::pipeline) fn pump_on(&mut self, now: Instant) {
        if self.state == State::Running {
            self.queue_due(now);
            self.admit();
            self.dispatch();
            if self.target.is_adaptive() && self.look() {
                self.admit();
                self.dispatch();
            }
            if self.teller.is_on() {
                self.tell_row_group_block(now);
            }
            let (plan, groups) = (&self.plan, &self.groups);
            self.delays.sweep(|task| is_delayed(plan, groups, task));
        }
        self.conclude(now);
    }

    fn queue_due(&mut self, now: Instant) {
        loop {
            let (plan, groups) = (&self.plan, &self.groups);
            let Some(task) = self.delays.pop_due(now, |task| is_delayed(plan, groups, task)) else { return };
            let key = TaskKey::from_bits(task);
            self.ready.push((key.column, key.row));
            self.models.let_go(self.routes[key.column.index()].patience);
            self.enqueue_ready(key.row_group);
        }
    }

    fn admit(&mut self) {
        while let Some(next) = self.pending.next_rows()
            && self.target.has_room(self.groups.len() as u32, self.rows_in_work, u64::from(next))
            && let Some(span) = self.pending.take()
        {
            self.rows_in_work += u64::from(span.rows);
            self.tally.rows_in += u64::from(span.rows);
            let group = RowGroup::admit(&self.plan, span, self.hooks.pre_batch, &mut self.ready);
            self.groups.push(group);
            if self.teller.is_on() {
                self.tell_admitted(span);
            }
            self.enqueue_ready(span.row_group);
            self.begin_pre_batch(span.row_group);
        }
    }

    /// One tick of the control loop over row groups; answers whether it wants more of them.
    fn look(&mut self) -> bool {
        let Self { models, dispatcher, .. } = self;
        let sight = Sight {
            active: self.groups.len() as u32,
            rows: self.rows_in_work,
            next_rows: self.pending.next_rows().map(u64::from),
            is_held_back: models.is_held_back(),
            queued: dispatcher.queued(),
            worker_cap: self.worker_cap,
            models: models.loads(dispatcher),
        };
        let from = self.target.get();
        let grew = self.target.tick(&sight);
        self.tell_target(from);
        grew
    }

    fn dispatch(&mut self) {
        self.pass_turns();
        while let Some(Dispatched { task, lease }) = self.dispatcher.dispatch() {
            let key = TaskKey::from_bits(task);
            let Some(group) = self.groups.get_mut(key.row_group) else {
                debug_assert!(false, "a row group stays while it has queued tasks");
                let _ = self.dispatcher.release(lease);
                self.teller.run(self.clock.latest(), SchedulerFact::StaleSelection);
                continue;
            };
            let entry = group.frontier.entry_mut(&self.plan, (key.column, key.row));
            entry.stage = Stage::Running;
            entry.attempts = entry.attempts.saturating_add(1);
            let attempt = entry.attempts;
            group.queued -= 1;
            group.running += 1;
            self.tally.columns[key.column.index()].spawned += 1;
            self.tally.queued[key.column.index()] -= 1;
            let span = group.span;
            let id = lease.id();
            let worker = WorkerId(self.workers.insert(Worker { key, lease, aborted: false }));
            if self.teller.is_on() {
                self.tell_spawned(key, attempt, worker, id);
            }
            let TaskKey { row_group, column, row } = key;
            let (first_row, rows) = (span.first_row, span.rows);
            let yield_token = self.yielding.token(worker, column, &self.routes);
            let task = Task { worker, column, row_group, first_row, rows, row, attempt, yield_token };
            self.effects.push_back(Effect::Spawn(task));
        }
        if self.teller.is_on() {
            self.tell_round();
        }
    }
}

fn is_delayed(plan: &Plan, groups: &Admitted, task: u64) -> bool {
    let key = TaskKey::from_bits(task);
    let group = groups.get(key.row_group);
    group.is_some_and(|group| group.frontier.stage(plan, (key.column, key.row)) == Stage::Delayed)
}
