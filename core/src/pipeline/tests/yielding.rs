//! Workers that hold no task resources while they wait for a request lease: pipeline and request admission
//! together.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::*;
use crate::id::SlotKey;
use crate::pipeline::event::SchedulerEvent;
use crate::pipeline::tests::event_checker::EventTotals;
use crate::pipeline::tests::harness::rows;
use crate::request::{
    AcquireResult, Completion, Domain, Outcome, Request, RequestAdmission, RequestConfig, RequestLease,
};
use crate::request::{RequestEffect, ResourceId, WaiterId};
use crate::task::TaskGroup;
use crate::time::{Duration, Instant};
use crate::yielding::{TaskToken, YIELD_FACTOR};

/// What a worker is state.
#[derive(Debug)]
enum WorkerState {
    /// It runs and has no request.
    Nothing,
    Waiting(WaiterId),
    Calling(RequestLease),
    /// Its request was denied.
    Denied,
}

/// A pipeline, request admission, and workers that the test controls.
pub(super) struct BothMachines {
    pub(super) pipeline: Pipeline,
    pub(super) admission: RequestAdmission,
    /// The request resource that each column calls.
    calls: Vec<Option<ResourceId>>,
    pub(super) now: Instant,
    workers: BTreeMap<String, (Task, WorkerState)>,
    saved: u32,
    ended: bool,
    totals: EventTotals,
    /// The events of the run, from its start.
    pub(super) events: Vec<SchedulerEvent>,
}

/// Returns a cell column that calls `model`, if one is given.
fn calling(name: &str, model: Option<&str>) -> Column {
    let column = Column::new(name, Strategy::Cell);
    match model {
        Some(model) => column.with_group(TaskGroup::model(model, name, 1.0)),
        None => column,
    }
}

impl BothMachines {
    pub(super) fn start(models: &[(&str, u32)], columns: &[(&str, Option<&str>)], config: PipelineConfig) -> Self {
        Self::of(models, columns.iter().map(|(name, model)| (calling(name, *model), *model)), config)
    }

    fn of<'a>(
        models: &[(&str, u32)],
        columns: impl Iterator<Item = (Column, Option<&'a str>)>,
        config: PipelineConfig,
    ) -> Self {
        let now = Instant::ZERO;
        let mut admission = RequestAdmission::new(RequestConfig::default()).unwrap();
        let mut resources = BTreeMap::new();
        for (model, cap) in models {
            let id = admission.register(now, model, model, "default", *cap).unwrap();
            resources.insert(model.to_string(), admission.resource(id, Domain::Chat).expect("a known model"));
        }
        let (columns, calls): (Vec<Column>, Vec<_>) =
            columns.map(|(column, model)| (column, model.map(|model| resources[model]))).unzip();
        let plan = columns.into_iter().fold(PlanBuilder::new(), PlanBuilder::column).build().unwrap();
        let mut pipeline = Pipeline::new(plan, config).unwrap();
        pipeline.set_request_resources(SlotKey::from_bits(0), &[]);
        let mut both = Self {
            pipeline,
            admission,
            calls,
            now,
            workers: BTreeMap::new(),
            saved: 0,
            ended: false,
            totals: EventTotals::default(),
            events: Vec::new(),
        };
        both.pipeline.set_interest(event::SchedulerInterest::ALL);
        both.pipeline.start(now);
        both.settle();
        both
    }

    fn settle(&mut self) {
        loop {
            self.pipeline.settle_with(self.now, &mut self.admission);
            if let Some(effect) = self.pipeline.poll_effect() {
                self.apply_effect(effect);
            } else if let Some(answer) = self.admission.poll_effect() {
                self.apply_request_effect(answer);
            } else {
                break;
            }
        }
        while let Some(event) = self.pipeline.poll_event() {
            self.totals.apply(&event);
            self.events.push(event);
        }
        assert_eq!(self.totals.yielded(), self.yielded(), "the events agree on the number of yielded workers");
        self.check();
    }

    fn apply_effect(&mut self, effect: PipelineEffect) {
        match effect {
            PipelineEffect::Spawn(task) => {
                let name = &self.pipeline.plan().columns()[task.column.index()].name;
                let label = alloc::format!("{name}{}", task.first_row + u64::from(task.row.unwrap_or(0)));
                let before = self.workers.insert(label, (task, WorkerState::Nothing));
                assert!(before.is_none(), "{task:?} runs already");
            }
            PipelineEffect::Checkpoint(group) => {
                self.saved += 1;
                self.pipeline.checkpoint_finished(self.now, group.row_group, Ok(()));
            }
            PipelineEffect::Finished => self.ended = true,
            PipelineEffect::Abort(worker) => {
                let found = self.workers.iter().find(|(_, (task, _))| task.worker == worker);
                let label = found.unwrap().0.clone();
                self.end(&label, TaskOutcome::Cancelled);
            }
            PipelineEffect::Warn(_) => {}
            other => panic!("{other:?}"),
        }
    }

    fn apply_request_effect(&mut self, answer: RequestEffect) {
        let (waiter, state) = match answer {
            RequestEffect::Granted { waiter, lease } => (waiter, WorkerState::Calling(lease)),
            RequestEffect::Denied { waiter, .. } => (waiter, WorkerState::Denied),
            other @ RequestEffect::HealthCall { .. } => panic!("no worker makes such a call: {other:?}"),
        };
        let is_it = |state: &WorkerState| matches!(state, WorkerState::Waiting(other) if *other == waiter);
        let found = self.workers.values_mut().find(|(_, state)| is_it(state));
        found.expect("a worker waits").1 = state;
    }

    /// Lets the worker request a lease for its call.
    pub(super) fn request_call(&mut self, label: &str) {
        self.request_call_within(label, None);
    }

    pub(super) fn request_call_within(&mut self, label: &str, timeout: Option<Duration>) {
        let (task, _) = self.workers[label];
        let mut request = Request::new(self.calls[task.column.index()].expect("the column calls"));
        request.timeout = timeout;
        let answer = match task.token {
            Some(token) => self.admission.acquire_yielding(self.now, &request, token, &mut self.pipeline),
            None => self.admission.acquire(self.now, &request),
        };
        self.workers.get_mut(label).unwrap().1 = match answer {
            AcquireResult::Granted(lease) => WorkerState::Calling(lease),
            AcquireResult::Waiting(waiter) => WorkerState::Waiting(waiter),
            AcquireResult::Denied(_) => WorkerState::Denied,
        };
        self.settle();
    }

    /// Ends the call of a worker. The worker continues.
    pub(super) fn end_call(&mut self, label: &str, outcome: Completion) {
        let (_, state) = self.workers.get_mut(label).unwrap();
        let WorkerState::Calling(lease) = core::mem::replace(state, WorkerState::Nothing) else {
            panic!("{label} is not in a call")
        };
        let _ = self.admission.release(self.now, lease, &outcome);
        self.settle();
    }

    /// Ends the worker, in any state.
    pub(super) fn end(&mut self, label: &str, outcome: TaskOutcome) {
        while let Some(answer) = self.admission.poll_effect() {
            self.apply_request_effect(answer);
        }
        let (task, state) = self.workers.remove(label).unwrap_or_else(|| panic!("{label} of {:?}", self.labels()));
        match state {
            WorkerState::Waiting(waiter) => assert!(self.admission.cancel(self.now, waiter)),
            WorkerState::Calling(lease) => {
                let _ = self.admission.release(self.now, lease, &Outcome::Success.into());
                self.pipeline.settle_with(self.now, &mut self.admission);
            }
            WorkerState::Nothing | WorkerState::Denied => {}
        }
        let _ = self.pipeline.task_finished(self.now, task.worker, outcome);
        self.settle();
    }

    pub(super) fn succeed(&mut self, label: &str) {
        self.end(label, TaskOutcome::Success);
    }

    pub(super) fn advance(&mut self, span: Duration) {
        self.now += span;
        self.admission.handle_timeout(self.now);
        self.pipeline.settle_with(self.now, &mut self.admission);
        self.pipeline.handle_timeout(self.now);
        self.settle();
    }

    fn labels(&self) -> Vec<&str> {
        self.workers.keys().map(String::as_str).collect()
    }

    pub(super) fn calling(&self) -> Vec<&str> {
        let calling = self.workers.iter().filter(|(_, (_, state))| matches!(state, WorkerState::Calling(_)));
        calling.map(|(label, _)| label.as_str()).collect()
    }

    fn yielded(&self) -> usize {
        self.pipeline.progress().yielded
    }

    /// Checks the invariants that hold at any time.
    fn check(&self) {
        for (name, leased, limit) in self.pipeline.usage() {
            assert!(leased <= limit, "{name}: {leased} of {limit}");
        }
        assert_eq!(self.pipeline.active_leases(), self.workers.len(), "one lease per worker");
        assert!(!self.pipeline.is_waiting_for_yielded() && !self.admission.needs_resume());
        for (label, (task, state)) in &self.workers {
            if matches!(state, WorkerState::Calling(_)) {
                assert!(!self.pipeline.has_yielded(task.worker), "{label} is in a call without a worker slot");
            }
        }
        for resource in self.calls.iter().flatten() {
            let state = self.admission.snapshot(self.now, *resource).unwrap();
            assert!(state.in_flight <= state.effective_max);
            // A waiter with a large demand may need the resources of several later waiters, which then yield
            // beyond the limit.
            let is_uniform = self.pipeline.plan().columns().iter().all(|column| column.demand.is_empty());
            assert!(!is_uniform || state.yielded <= YIELD_FACTOR * state.effective_max, "{state:?}");
        }
    }

    /// Checks the invariants that hold at the end.
    fn check_end(&self) {
        assert!(self.ended && self.workers.is_empty());
        assert_eq!((self.pipeline.active_leases(), self.yielded(), self.pipeline.queued()), (0, 0, 0));
        assert_eq!((self.admission.active_leases(), self.admission.waiting()), (0, 0));
    }
}

pub(super) fn slots(submission_limit: u32, row_count: u64) -> PipelineConfig {
    PipelineConfig { submission_limit, ..rows(row_count, 64) }
}

const TWO: &[(&str, u32)] = &[("a", 1), ("b", 1)];

#[test]
fn a_worker_that_waits_releases_its_slot_for_work_on_another_provider() {
    let mut both = BothMachines::start(TWO, &[("a", Some("a")), ("b", Some("b"))], slots(3, 3));
    assert_eq!(both.labels(), ["a0", "a1", "b0"]);
    both.request_call("a0");
    both.request_call("a1");
    assert_eq!(both.labels(), ["a0", "a1", "b0", "b1"], "`a1` waits without a slot");
    assert_eq!((both.yielded(), both.pipeline.yields()), (1, 1));
    both.request_call("b1");
    assert_eq!(both.calling(), ["a0", "b1"]);
}

#[test]
fn a_worker_that_waits_keeps_its_slot_if_yielding_is_disabled() {
    let config = PipelineConfig { yield_while_waiting: false, ..slots(3, 3) };
    let mut both = BothMachines::start(TWO, &[("a", Some("a")), ("b", Some("b"))], config);
    assert_eq!(both.workers["a0"].0.token.and_then(|token| token.demand), None);
    both.request_call("a0");
    both.request_call("a1");
    assert_eq!(both.labels(), ["a0", "a1", "b0"]);
}

#[test]
fn a_column_can_override_whether_its_workers_yield() {
    let columns = [calling("a", Some("a")).yields(false), calling("own", None).yields(true), calling("own2", None)];
    let both = BothMachines::of(TWO, columns.into_iter().map(|column| (column, Some("a"))), slots(8, 1));
    let yields = ["a0", "own0", "own20"].map(|label| both.workers[label].0.token.is_some_and(|it| it.demand.is_some()));
    assert_eq!(yields, [false, true, false]);
}

#[test]
fn a_yielded_worker_resumes_before_any_new_task_starts() {
    let mut both = BothMachines::start(TWO, &[("a", Some("a")), ("b", Some("b"))], slots(3, 3));
    both.request_call("a0");
    both.request_call("a1");
    assert_eq!(both.labels(), ["a0", "a1", "b0", "b1"]);
    both.succeed("a0");
    // The released slot could also have started the next cell of column `a` or `b`.
    assert_eq!((both.calling(), both.yielded()), (["a1"].to_vec(), 0));
    assert_eq!(both.labels(), ["a1", "b0", "b1"]);
}

#[test]
fn a_yielded_worker_gets_the_request_lease_only_together_with_its_slot() {
    let mut both = BothMachines::start(TWO, &[("a", Some("a")), ("b", Some("b"))], slots(3, 3));
    both.request_call("a0");
    both.request_call("a1");
    assert_eq!(both.labels(), ["a0", "a1", "b0", "b1"]);
    // The call ends, but its worker keeps its slot: the provider has capacity, but no slot is free.
    both.end_call("a0", Outcome::Success.into());
    assert_eq!((both.calling(), both.yielded()), (Vec::new(), 1));
    assert_eq!(both.admission.active_leases(), 0, "no request lease is held while the worker waits for a slot");
    both.succeed("b1");
    assert_eq!((both.calling(), both.yielded()), (["a1"].to_vec(), 0));
}

#[test]
fn the_number_of_yielding_workers_is_limited_and_further_waiters_keep_their_slots() {
    let mut both = BothMachines::start(&[("a", 1)], &[("a", Some("a"))], slots(3, 9));
    both.request_call("a0");
    for n in 1..=4 {
        both.request_call(&alloc::format!("a{n}"));
    }
    // One worker calls, two wait without a slot, and two wait with one.
    assert_eq!((both.yielded(), both.workers.len()), (2, 5));
    let state = both.admission.snapshot(both.now, both.calls[0].unwrap()).unwrap();
    assert_eq!((state.waiters, state.yielded), (4, 2));
}

#[test]
fn a_waiter_with_a_slot_yields_it_to_an_earlier_waiter_that_lacks_only_the_slot() {
    let mut both = BothMachines::start(&[("a", 1)], &[("a", Some("a"))], slots(3, 9));
    for n in 0..=4 {
        both.request_call(&alloc::format!("a{n}"));
    }
    // The call ends and its worker continues. It and two later waiters hold all slots.
    both.end_call("a0", Outcome::Success.into());
    assert_eq!((both.calling(), both.yielded()), (["a1"].to_vec(), 2), "`a4` has given its slot to `a1`");
    let yielded = ["a0", "a1", "a2", "a3", "a4"].map(|label| both.pipeline.has_yielded(both.workers[label].0.worker));
    assert_eq!(yielded, [false, false, true, false, true]);
}

#[test]
fn a_repeated_request_while_all_workers_wait_does_not_cause_a_deadlock() {
    let mut both = BothMachines::start(&[("a", 1)], &[("a", Some("a"))], slots(3, 5));
    for n in 0..=4 {
        both.request_call(&alloc::format!("a{n}"));
    }
    both.end_call("a0", Outcome::Success.into());
    both.request_call("a0");
    for expected in ["a1", "a2", "a3", "a4", "a0"] {
        assert_eq!(both.calling(), [expected]);
        both.succeed(expected);
    }
    both.check_end();
}

#[test]
fn a_yielded_worker_that_ends_releases_its_resources_only_once() {
    let mut both = BothMachines::start(&[("a", 1)], &[("a", Some("a"))], slots(2, 3));
    both.request_call("a0");
    both.request_call("a1");
    assert_eq!((both.yielded(), both.labels()), (1, ["a0", "a1", "a2"].to_vec()));
    both.succeed("a1");
    assert_eq!(both.yielded(), 0);
    both.succeed("a0");
    both.succeed("a2");
    both.check_end();
}

#[test]
fn a_yielded_worker_with_a_rejected_request_can_request_again_and_resume() {
    let mut both = BothMachines::start(TWO, &[("a", Some("a")), ("b", Some("b"))], slots(3, 3));
    both.request_call("a0");
    both.request_call_within("a1", Some(Duration::from_millis(10)));
    assert_eq!(both.labels(), ["a0", "a1", "b0", "b1"]);
    both.advance(Duration::from_millis(10));
    assert!(matches!(both.workers["a1"].1, WorkerState::Denied));
    both.end_call("a0", Outcome::Success.into());
    both.request_call("a1");
    assert_eq!((both.calling(), both.yielded()), (Vec::new(), 1), "the provider has capacity, but no slot is free");
    both.succeed("a0");
    assert_eq!((both.calling(), both.yielded()), (["a1"].to_vec(), 0));
}

#[test]
fn cancel_ends_yielded_workers() {
    let mut both = BothMachines::start(&[("a", 1)], &[("a", Some("a"))], slots(2, 9));
    both.request_call("a0");
    both.request_call("a1");
    both.request_call("a2");
    assert_eq!(both.yielded(), 2);
    both.pipeline.cancel(both.now);
    both.settle();
    both.check_end();
}

#[test]
fn a_paused_provider_occupies_no_slot_that_another_provider_needs() {
    let mut both = BothMachines::start(TWO, &[("a", Some("a")), ("b", Some("b"))], slots(2, 6));
    both.request_call("a0");
    both.end_call("a0", Completion::rate_limited(Some(Duration::from_secs(2))));
    both.end(
        "a0",
        TaskOutcome::Retryable {
            kind: RetryKind::RateLimited,
            status: None,
            retry_after: Some(Duration::from_secs(2)),
        },
    );
    // Each started task of column `a` waits without a slot, so column `b` always has one.
    for n in 0..6 {
        let waiting: Vec<String> =
            both.labels().iter().filter(|label| label.starts_with('a')).map(ToString::to_string).collect();
        for label in waiting {
            if matches!(both.workers[&label].1, WorkerState::Nothing) {
                both.request_call(&label);
            }
        }
        let label = alloc::format!("b{n}");
        assert!(both.workers.contains_key(&label), "{label} runs: {:?}", both.labels());
        both.request_call(&label);
        both.succeed(&label);
    }
    assert!(both.now == Instant::ZERO && both.yielded() > 0);
}

#[test]
fn a_drained_run_starts_no_call_with_or_without_yielding() {
    for yields in [true, false] {
        let config = PipelineConfig { yield_while_waiting: yields, ..slots(4, 4) };
        let mut both = BothMachines::start(&[("a", 1)], &[("a", Some("a"))], config);
        both.request_call("a0");
        both.request_call("a1");
        both.request_call("a2");
        assert_eq!((both.calling(), both.yielded()), (alloc::vec!["a0"], if yields { 2 } else { 0 }));
        both.pipeline.drain(both.now);
        both.settle();
        for waited in ["a1", "a2"] {
            assert!(matches!(both.workers[waited].1, WorkerState::Denied), "{waited}");
        }
        // Neither a first request nor a further request of a worker in a call is granted.
        both.request_call("a3");
        assert!(matches!(both.workers["a3"].1, WorkerState::Denied));
        both.end_call("a0", Outcome::Success.into());
        both.request_call("a0");
        assert!(matches!(both.workers["a0"].1, WorkerState::Denied));
        for label in ["a0", "a1", "a2", "a3"] {
            both.end(label, TaskOutcome::Cancelled);
        }
        assert!(both.ended);
    }
}

#[test]
fn an_unknown_token_has_no_effect() {
    let mut both = BothMachines::start(&[("a", 1)], &[("a", Some("a"))], slots(2, 3));
    both.request_call("a0");
    let request = Request::new(both.calls[0].unwrap());
    let unknown = TaskToken { run: SlotKey::from_bits(7), worker: SlotKey::from_bits(u64::MAX), demand: Some(9) };
    let answer = both.admission.acquire_yielding(both.now, &request, unknown, &mut both.pipeline);
    let AcquireResult::Waiting(waiter) = answer else { panic!("{answer:?}") };
    both.pipeline.settle_with(both.now, &mut both.admission);
    assert_eq!(both.yielded(), 0);
    assert!(both.admission.cancel(both.now, waiter));
}

/// Runs a random sequence of worker actions. Returns the number of commands.
#[cfg(feature = "sim")]
fn random_run(seed: u64) -> u64 {
    let mut rng = crate::sim::rng::Rng::new(seed);
    let caps = [1 + rng.below(3) as u32, 1 + rng.below(3) as u32];
    let columns = (0..=rng.below(4)).map(|n| {
        let model = ["a", "b"][rng.below(2) as usize];
        let column = calling(&alloc::format!("c{n}-"), Some(model)).with_demand("gpu", 1 + rng.below(3) as u32);
        (if rng.below(5) == 0 { column.yields(false) } else { column }, Some(model))
    });
    let columns: Vec<_> = columns.collect();
    let resources = [("gpu".to_string(), 3 + rng.below(4) as u32)].into();
    let config = PipelineConfig { resources, ..slots(1 + rng.below(8) as u32, 1 + rng.below(12)) };
    let mut both = BothMachines::of(&[("a", caps[0]), ("b", caps[1])], columns.into_iter(), config);
    let mut commands = 0;
    while !both.ended {
        commands += 1;
        assert!(commands < 20_000, "the run does not end");
        let labels: Vec<String> = both.workers.keys().cloned().collect();
        // A worker that waits can only continue after another event.
        let movable = |label: &&String| !matches!(both.workers[*label].1, WorkerState::Waiting(_));
        let movable: Vec<&String> = labels.iter().filter(movable).collect();
        if movable.is_empty() {
            let next = both.admission.poll_timeout().into_iter().chain(both.pipeline.poll_timeout()).min();
            let next = next.expect("a run that has not ended has a timer or a worker that can continue");
            both.advance(next - both.now);
            continue;
        }
        let label = movable[rng.below(movable.len() as u64) as usize].clone();
        match (&both.workers[&label].1, rng.below(10)) {
            (WorkerState::Nothing | WorkerState::Denied, 0..5) => {
                let timeout = (rng.below(6) == 0).then(|| Duration::from_millis(rng.below(40)));
                both.request_call_within(&label, timeout);
            }
            (WorkerState::Calling(_), 0..5) => {
                let completion = match rng.below(4) {
                    0 => Completion::rate_limited(Some(Duration::from_millis(1 + rng.below(90)))),
                    _ => Outcome::Success.into(),
                };
                both.end_call(&label, completion);
            }
            (_, 5) => both.end(&label, TaskOutcome::Cancelled),
            (_, 6) => both
                .end(&label, TaskOutcome::Retryable { kind: RetryKind::RateLimited, status: None, retry_after: None }),
            (_, 7) => both.advance(Duration::from_millis(rng.below(60))),
            _ if rng.below(400) == 0 => {
                both.pipeline.cancel(both.now);
                both.settle();
            }
            _ => both.succeed(&label),
        }
    }
    both.check_end();
    commands
}

#[test]
#[cfg(feature = "sim")]
fn every_run_ends_for_random_worker_actions() {
    for seed in 0..3_000 {
        let run = std::panic::catch_unwind(|| random_run(seed));
        assert!(run.is_ok(), "seed {seed} failed: random_run({seed}) replays it");
    }
}
