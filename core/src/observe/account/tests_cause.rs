//! Causes of idle slots that runs seldom meet: for each the smallest run in which it is the answer.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::*;
use crate::budget::{BudgetConfig, Dimension};
use crate::id::SlotKey;
use crate::pipeline::Pipeline;
use crate::pipeline::event::Interest;
use crate::pipeline::{Column, Effect, PipelineConfig, PlanBuilder, Strategy, Task, WorkerId};
use crate::request::event::Interest as RequestInterest;
use crate::request::{Acquire, Completion, Domain, Outcome, Request, RequestAdmission, RequestConfig, ResourceId};
use crate::task::{Allowed, BoxedPolicy, DenialReason, PolicyView, Refusal, StrictFair, TaskGroup, TaskPolicy};
use crate::time::Duration;

/// Both machines of a run of one column, and an account of it.
struct Fixture {
    pipeline: Pipeline,
    admission: RequestAdmission,
    account: RunAccount,
    working: Vec<Task>,
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn calls(provider_cap: u32) -> (RequestAdmission, [ResourceId; 2]) {
    let mut admission = RequestAdmission::new(RequestConfig::default()).unwrap();
    let model = admission.register(at(0), "p", "m", "a", provider_cap).unwrap();
    let resources =
        [Domain::Chat, Domain::Embedding].map(|domain| admission.resource(model, domain).expect("a known model"));
    (admission, resources)
}

impl Fixture {
    fn start(column: Column, config: PipelineConfig) -> Self {
        Self::under(Box::new(StrictFair), column, config, calls(1).0)
    }

    fn under(policy: BoxedPolicy, column: Column, config: PipelineConfig, admission: RequestAdmission) -> Self {
        let plan = PlanBuilder::new().column(column).build().unwrap();
        let mut account = RunAccount::new(&plan, &config);
        let mut pipeline = Pipeline::with_policy(plan, config, policy).unwrap();
        pipeline.set_interest(Interest::ALL);
        pipeline.call_through(SlotKey::from_bits(0), &[]);
        let mut scene = Self { pipeline, admission, account: account.clone(), working: Vec::new() };
        scene.admission.set_interest(at(0), RequestInterest::ALL);
        account.add_all_calls(at(0), &scene.admission);
        scene.account = account;
        scene.pipeline.start(at(0));
        scene.drain();
        scene
    }

    fn drain(&mut self) {
        while let Some(effect) = self.pipeline.poll_effect() {
            if let Effect::Spawn(task) = effect {
                self.working.push(task);
            }
        }
        while let Some(event) = self.admission.poll_event() {
            self.account.on_request(&event);
        }
        while let Some(event) = self.pipeline.poll_event() {
            self.account.on_scheduler(&event);
        }
    }

    /// The first worker is done, so that something is told at this instant.
    fn end_first(&mut self, now: Instant) {
        let worker: WorkerId = self.working.remove(0).worker;
        let _ = self.pipeline.task_finished(now, worker, TaskOutcome::Success);
        self.drain();
    }

    /// The causes of a resource's idle slots so far, with their slot-milliseconds.
    fn causes(&self, name: &str) -> Vec<(IdleCause, u128)> {
        let figures = self.account.figures();
        let found = figures.tasks.iter().chain(&figures.requests).find(|resource| resource.name == name);
        found.unwrap().why_idle.iter().map(|share| (share.cause, share.slot_ns / 1_000_000)).collect()
    }
}

fn rows(rows: u64, submission_limit: u32) -> PipelineConfig {
    PipelineConfig { rows, row_group_size: rows as u32, submission_limit, ..PipelineConfig::default() }
}

#[test]
fn a_slot_stays_free_that_is_too_few_for_a_task_of_two() {
    let column = Column::new("a", Strategy::Cell).with_demand("gpu", 2);
    let config = PipelineConfig { resources: [("gpu".into(), 3)].into(), ..rows(2, 8) };
    let mut scene = Fixture::start(column, config);
    scene.end_first(at(1));
    assert_eq!(scene.causes("gpu"), [(IdleCause::TooFewSlots, 1)]);
}

/// Lets a second worker start only when the first has ended.
#[derive(Debug)]
struct OneAtATime;

impl TaskPolicy for OneAtATime {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<Allowed, Refusal> {
        if view.running() > 0 { Err(DenialReason::Policy.into()) } else { Ok(Allowed::unlimited()) }
    }
}

#[test]
fn a_slot_stays_free_because_a_policy_of_ones_own_says_no() {
    let column = Column::new("a", Strategy::Cell);
    let mut scene = Fixture::under(Box::new(OneAtATime), column, rows(2, 2), calls(1).0);
    scene.end_first(at(1));
    assert_eq!(scene.causes("submission"), [(IdleCause::Policy, 1)]);
}

#[test]
fn a_slot_is_kept_for_a_worker_that_yielded_until_the_two_machines_are_settled() {
    let column = Column::new("a", Strategy::Cell).with_group(TaskGroup::model("p", "m", 1.0));
    let (mut admission, [chat, _]) = calls(1);
    let Acquire::Granted(_elsewhere) = admission.acquire(at(0), &Request::new(chat)) else { panic!("it is free") };
    let mut scene = Fixture::under(Box::new(StrictFair), column, rows(3, 1), admission);
    let token = scene.working.remove(0).token.expect("it yields");
    let Fixture { pipeline, admission, .. } = &mut scene;
    let Acquire::Waiting(_) = admission.acquire_yielding(at(0), &Request::new(chat), token, pipeline) else {
        panic!("the call is out elsewhere")
    };
    pipeline.settle_with(at(0), admission);
    scene.drain();
    scene.end_first(at(1));
    assert_eq!(scene.pipeline.progress().queued, 1, "the host has not settled the machines yet");
    let Fixture { pipeline, admission, .. } = &mut scene;
    pipeline.settle_with(at(3), admission);
    scene.drain();
    assert_eq!(scene.causes("submission"), [(IdleCause::YieldedFirst, 2)]);
}

#[test]
fn a_slot_of_one_domain_stays_free_because_another_domain_uses_the_cap() {
    let (admission, [chat, embedding]) = calls(1);
    let mut scene = Fixture::under(Box::new(StrictFair), Column::new("a", Strategy::Cell), rows(1, 1), admission);
    let Acquire::Granted(lease) = scene.admission.acquire(at(0), &Request::new(chat)) else { panic!("it is free") };
    let _ = scene.admission.acquire(at(0), &Request::new(embedding));
    scene.drain();
    let _ = scene.admission.release(at(1), lease, &Completion::from(Outcome::Success));
    scene.drain();
    assert_eq!(scene.causes("p/m/embedding"), [(IdleCause::ProviderCap, 1)]);
}

#[test]
fn an_open_slot_stays_free_because_a_budget_is_spent() {
    let (mut admission, [chat, _]) = calls(2);
    let hourly = BudgetConfig::per(Duration::from_secs(3600), Dimension::Requests, 1);
    admission.set_budgets(at(0), chat, &[hourly]).unwrap();
    let mut scene = Fixture::under(Box::new(StrictFair), Column::new("a", Strategy::Cell), rows(1, 1), admission);
    let Acquire::Granted(_lease) = scene.admission.acquire(at(0), &Request::new(chat)) else { panic!("it is free") };
    let Acquire::Waiting(waiter) = scene.admission.acquire(at(0), &Request::new(chat)) else { panic!("it is spent") };
    scene.drain();
    scene.admission.cancel(at(1), waiter);
    scene.drain();
    assert_eq!(scene.causes("p/m/chat"), [(IdleCause::RequestTurn, 1)]);
}
