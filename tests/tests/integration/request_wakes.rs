//! A waiter that could go has an answer or a wake-up due, however that came about.

use tidegate_core::budget::{BudgetConfig, Dimension, Usage};
use tidegate_core::request::{
    AcquireResult, Completion, DenialReason, Domain, Outcome, ProviderModelId, Request, RequestAdmission,
    RequestConfig, RequestEffect, ResourceId, WaiterId,
};
use tidegate_core::time::{Duration, Instant};

/// The resource of a domain.
fn resource(machine: &mut RequestAdmission, owner: ProviderModelId, domain: Domain) -> ResourceId {
    machine.resource(owner, domain).expect("a known model")
}

fn new_machine() -> RequestAdmission {
    RequestAdmission::new(RequestConfig::default()).expect("valid settings")
}

fn chat(machine: &mut RequestAdmission, name: &str, cap: u32) -> Request {
    let owner = machine.register(Instant::ZERO, name, "model", "default", cap).expect("a valid cap");
    Request::new(resource(machine, owner, Domain::Chat))
}

fn waits(machine: &mut RequestAdmission, now: Instant, request: &Request) -> WaiterId {
    match machine.acquire(now, request) {
        AcquireResult::Waiting(waiter) => waiter,
        other => panic!("it has to wait, and the answer is {other:?}"),
    }
}

/// The waiters that were answered, and whether they were granted.
fn answered(machine: &mut RequestAdmission) -> Vec<(WaiterId, bool)> {
    let effects = std::iter::from_fn(|| machine.poll_effect());
    let answer = |effect| match effect {
        RequestEffect::Granted { waiter, .. } => (waiter, true),
        RequestEffect::Denied { waiter, .. } => (waiter, false),
        other => panic!("{other:?} is for no waiter"),
    };
    effects.map(answer).collect()
}

/// Does what is due at `now`, which the machine has to have asked for.
fn wake_up_that_is_due(machine: &mut RequestAdmission, now: Instant) {
    let due = machine.poll_timeout();
    assert!(due.is_some_and(|due| due <= now), "the wake-up is due at {due:?}");
    machine.handle_timeout(now);
}

/// Sixty tokens a minute, all spent; two calls of one group wait, the first for more tokens than the second.
fn two_waiters_for_tokens(machine: &mut RequestAdmission, timeout: Duration) -> (Request, [WaiterId; 2]) {
    let call = chat(machine, "provider", 9);
    let group = machine.group("group", 1.0).expect("a valid weight");
    let budget = BudgetConfig::per_minute(Dimension::TotalTokens, 60);
    machine.set_budgets(Instant::ZERO, call.resource, &[budget]).expect("valid budgets");
    let call = call.in_group(group);
    let AcquireResult::Granted(_) = machine.acquire(Instant::ZERO, &call.estimated(Usage::tokens(55, 0))) else {
        panic!("the bucket is full")
    };
    let first = waits(machine, Instant::ZERO, &call.estimated(Usage::tokens(50, 0)).within(timeout));
    let second = waits(machine, Instant::ZERO, &call.estimated(Usage::tokens(5, 0)));
    (call, [first, second])
}

/// Within one group and resource the first goes first, also when the next would need less. A try serves no
/// waiter, so that a wake-up must be due once the deadline of the first has passed: nothing else may come.
#[test]
fn a_waiter_whose_forerunner_is_past_its_deadline_has_a_wake_up_due_after_a_try() {
    let mut machine = new_machine();
    let span = Duration::from_millis(1);
    let (call, [first, second]) = two_waiters_for_tokens(&mut machine, span);
    assert_eq!(machine.poll_timeout(), Some(Instant::ZERO + span), "the first deadline");
    let now = Instant::ZERO + span;
    let tried = machine.try_acquire(now, &call.estimated(Usage::tokens(1, 0)));
    assert_eq!(tried.map_err(|denial| denial.reason), Err(DenialReason::QueuedWaitersAhead));
    wake_up_that_is_due(&mut machine, now);
    assert_eq!(answered(&mut machine), [(first, false), (second, true)]);
}

#[test]
fn a_waiter_whose_forerunner_is_cancelled_is_granted_or_has_a_wake_up_due() {
    let mut machine = new_machine();
    let (_, [first, second]) = two_waiters_for_tokens(&mut machine, Duration::from_secs(60));
    assert!(machine.cancel(Instant::ZERO, first));
    let mut came = answered(&mut machine);
    if came.is_empty() {
        wake_up_that_is_due(&mut machine, Instant::ZERO);
        came = answered(&mut machine);
    }
    assert_eq!(came, [(second, true)]);
}

/// Pauses of two models end while the host does not look. A command at one of them may leave the other's
/// waiter to the wake-up, and not to chance.
#[test]
fn a_command_at_one_model_leaves_a_wake_up_due_for_the_waiters_of_another() {
    let mut machine = new_machine();
    let calls = [chat(&mut machine, "a", 2), chat(&mut machine, "b", 2)];
    let group = machine.group("group", 1.0).expect("a valid weight");
    for (call, seconds) in calls.iter().zip([1, 2]) {
        let AcquireResult::Granted(lease) = machine.acquire(Instant::ZERO, call) else { panic!("it is free") };
        let mut refused = Completion::from(Outcome::RateLimited);
        refused.retry_after = Some(Duration::from_secs(seconds));
        let _ = machine.release(Instant::ZERO, lease, &refused);
    }
    let waiters = calls.map(|call| waits(&mut machine, Instant::ZERO, &call.in_group(group)));
    assert_eq!(machine.poll_timeout(), Some(Instant::ZERO + Duration::from_secs(1)), "the first pause ends");

    let now = Instant::ZERO + Duration::from_secs(3);
    let mut came = Vec::new();
    for call in &calls {
        let newcomer = waits(&mut machine, now, call);
        came.extend(answered(&mut machine));
        assert!(machine.cancel(now, newcomer));
    }
    assert_eq!(came, waiters.map(|waiter| (waiter, true)), "each waits for its own model, which has one slot");
    assert_eq!(machine.poll_timeout(), None);
}

/// The end of one pause is the next wake-up, whichever model it belongs to.
#[test]
fn the_next_wake_up_is_the_earliest_of_all_models() {
    let mut machine = new_machine();
    let calls = [chat(&mut machine, "a", 2), chat(&mut machine, "b", 2), chat(&mut machine, "c", 2)];
    let group = machine.group("group", 1.0).expect("a valid weight");
    let mut waiters = Vec::new();
    for (call, seconds) in calls.iter().zip([9, 3, 6]) {
        let AcquireResult::Granted(lease) = machine.acquire(Instant::ZERO, call) else { panic!("it is free") };
        let mut refused = Completion::from(Outcome::RateLimited);
        refused.retry_after = Some(Duration::from_secs(seconds));
        let _ = machine.release(Instant::ZERO, lease, &refused);
        waiters.push(waits(&mut machine, Instant::ZERO, &call.in_group(group)));
    }
    for (seconds, which) in [(3, 1), (6, 2), (9, 0)] {
        let now = Instant::ZERO + Duration::from_secs(seconds);
        assert_eq!(machine.poll_timeout(), Some(now));
        machine.handle_timeout(now);
        assert_eq!(answered(&mut machine), [(waiters[which], true)]);
    }
    assert_eq!(machine.poll_timeout(), None);
}
