//! The causes of idle slots that are rare in ordinary runs. Each test is the smallest run with that cause.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::*;
use crate::budget::{BudgetConfig, Dimension};
use crate::id::SlotKey;
use crate::pipeline::Pipeline;
use crate::pipeline::event::SchedulerInterest;
use crate::pipeline::{Column, PipelineConfig, PipelineEffect, PlanBuilder, Strategy, Task, WorkerId};
use crate::request::event::RequestInterest;
use crate::request::{
    AcquireResult, Completion, Domain, Outcome, Request, RequestAdmission, RequestConfig, ResourceId,
};
use crate::task::{
    BoxedPolicy, PolicyDenial, PolicyGrant, PolicyView, StrictFair, TaskDenialReason, TaskGroup, TaskPolicy,
};
use crate::time::Duration;

/// The pipeline and the admission of a run of one column, and an account of it.
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
        pipeline.set_interest(SchedulerInterest::ALL);
        pipeline.set_request_resources(SlotKey::from_bits(0), &[]);
        let mut fixture = Self { pipeline, admission, account: account.clone(), working: Vec::new() };
        fixture.admission.set_interest(at(0), RequestInterest::ALL);
        account.add_all_calls(at(0), &fixture.admission);
        fixture.account = account;
        fixture.pipeline.start(at(0));
        fixture.drain();
        fixture
    }

    fn drain(&mut self) {
        while let Some(effect) = self.pipeline.poll_effect() {
            if let PipelineEffect::Spawn(task) = effect {
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

    /// Ends the first worker, so that an event is emitted at this instant.
    fn end_first(&mut self, now: Instant) {
        let worker: WorkerId = self.working.remove(0).worker;
        let _ = self.pipeline.task_finished(now, worker, TaskOutcome::Success);
        self.drain();
    }

    /// Returns the causes of a resource's idle slots so far, with their slot-milliseconds.
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
fn a_single_slot_stays_free_when_the_next_task_needs_two() {
    let column = Column::new("a", Strategy::Cell).with_demand("gpu", 2);
    let config = PipelineConfig { resources: [("gpu".into(), 3)].into(), ..rows(2, 8) };
    let mut fixture = Fixture::start(column, config);
    fixture.end_first(at(1));
    assert_eq!(fixture.causes("gpu"), [(IdleCause::TooFewSlots, 1)]);
}

/// A policy that starts a worker only while no other worker runs.
#[derive(Debug)]
struct OneAtATime;

impl TaskPolicy for OneAtATime {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<PolicyGrant, PolicyDenial> {
        if view.running() > 0 { Err(TaskDenialReason::Policy.into()) } else { Ok(PolicyGrant::unlimited()) }
    }
}

#[test]
fn a_slot_stays_free_because_a_custom_policy_refuses() {
    let column = Column::new("a", Strategy::Cell);
    let mut fixture = Fixture::under(Box::new(OneAtATime), column, rows(2, 2), calls(1).0);
    fixture.end_first(at(1));
    assert_eq!(fixture.causes("submission"), [(IdleCause::Policy, 1)]);
}

#[test]
fn a_slot_is_kept_for_a_yielded_worker_until_the_host_settles_pipeline_and_admission() {
    let column = Column::new("a", Strategy::Cell).with_group(TaskGroup::model("p", "m", 1.0));
    let (mut admission, [chat, _]) = calls(1);
    let AcquireResult::Granted(_other_lease) = admission.acquire(at(0), &Request::new(chat)) else {
        panic!("a slot is free")
    };
    let mut fixture = Fixture::under(Box::new(StrictFair), column, rows(3, 1), admission);
    let token = fixture.working.remove(0).token.expect("it yields");
    let Fixture { pipeline, admission, .. } = &mut fixture;
    let AcquireResult::Waiting(_) = admission.acquire_yielding(at(0), &Request::new(chat), token, pipeline) else {
        panic!("the only slot is in use")
    };
    pipeline.settle_with(at(0), admission);
    fixture.drain();
    fixture.end_first(at(1));
    assert_eq!(fixture.pipeline.progress().queued, 1, "the host has not settled pipeline and admission yet");
    let Fixture { pipeline, admission, .. } = &mut fixture;
    pipeline.settle_with(at(3), admission);
    fixture.drain();
    assert_eq!(fixture.causes("submission"), [(IdleCause::YieldedFirst, 2)]);
}

#[test]
fn a_slot_of_one_domain_stays_free_because_another_domain_uses_the_cap() {
    let (admission, [chat, embedding]) = calls(1);
    let mut fixture = Fixture::under(Box::new(StrictFair), Column::new("a", Strategy::Cell), rows(1, 1), admission);
    let AcquireResult::Granted(lease) = fixture.admission.acquire(at(0), &Request::new(chat)) else {
        panic!("a slot is free")
    };
    let _ = fixture.admission.acquire(at(0), &Request::new(embedding));
    fixture.drain();
    let _ = fixture.admission.release(at(1), lease, &Completion::from(Outcome::Success));
    fixture.drain();
    assert_eq!(fixture.causes("p/m/embedding"), [(IdleCause::ProviderCap, 1)]);
}

#[test]
fn an_open_slot_stays_free_because_a_budget_is_spent() {
    let (mut admission, [chat, _]) = calls(2);
    let hourly = BudgetConfig::per(Duration::from_secs(3600), Dimension::Requests, 1);
    admission.set_budgets(at(0), chat, &[hourly]).unwrap();
    let mut fixture = Fixture::under(Box::new(StrictFair), Column::new("a", Strategy::Cell), rows(1, 1), admission);
    let AcquireResult::Granted(_lease) = fixture.admission.acquire(at(0), &Request::new(chat)) else {
        panic!("a slot is free")
    };
    let AcquireResult::Waiting(waiter) = fixture.admission.acquire(at(0), &Request::new(chat)) else {
        panic!("the budget is spent")
    };
    fixture.drain();
    fixture.admission.cancel(at(1), waiter);
    fixture.drain();
    assert_eq!(fixture.causes("p/m/chat"), [(IdleCause::RequestTurn, 1)]);
}

#[test]
fn the_adaptive_limit_is_integrated_over_every_change() {
    let (admission, [resource, _]) = calls(8);
    let column = Column::new("a", Strategy::Cell);
    let mut fixture = Fixture::under(Box::new(StrictFair), column, rows(4, 8), admission);
    let (mut since, mut expected, mut limits) = (0, 0, Vec::new());
    for (now, outcome) in [(10, Outcome::RateLimited), (5_000, Outcome::Success)] {
        let limit = |fixture: &Fixture| fixture.admission.snapshot(at(now), resource).unwrap().current_limit;
        expected += u128::from(limit(&fixture)) * u128::from(now - since);
        limits.push(limit(&fixture));
        since = now;
        let lease = fixture.admission.try_acquire(at(now), &Request::new(resource)).unwrap();
        let _ = fixture.admission.release(at(now), lease, &Completion::from(outcome));
        fixture.drain();
    }
    let figures = &fixture.account.figures().requests[0];
    assert_eq!(figures.adaptive_limit_slot_ns, expected * 1_000_000);
    assert!(limits[1] < limits[0], "{limits:?}");
    let mean = expected as f64 / 5_000.0;
    assert!((figures.mean_adaptive_limit() - mean).abs() < 1e-9);
    assert_eq!(figures.mean_busy().to_bits(), 0.0_f64.to_bits());
}
