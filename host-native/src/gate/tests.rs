use std::time::Duration as StdDuration;

use super::*;
use tidegate_core::budget::{BudgetConfig, Dimension, RateLimitFeedback};
use tidegate_core::limit::{LimitChoice, TideConfig};
use tidegate_core::request::{LimitConfig, MAX_UNREGISTERED_TENANTS, Outcome};
use tidegate_core::time::{Clock as _, Duration};

fn gate() -> RequestGate {
    RequestGate::new().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_permit_counts_as_in_flight_until_it_is_finished_or_dropped() {
    let gate = gate();
    let key = ResourceKey::chat("p", "m");
    gate.register(&key, &Limits::at_most(1)).unwrap();
    let permit = gate.acquire(&Call::new(key.clone())).await.unwrap();
    assert_eq!(gate.snapshot(&key).map(|state| state.in_flight), Some(1));
    assert_eq!(gate.try_acquire(&Call::new(key.clone())).unwrap_err().reason, DenialReason::NoCapacity);
    permit.finish(Outcome::Success);
    assert_eq!(gate.snapshot(&key).map(|state| state.in_flight), Some(0));
    drop(gate.acquire(&Call::new(key.clone())).await.unwrap());
    assert_eq!(gate.snapshot(&key).map(|state| state.in_flight), Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_paced_try_acquire_is_denied_with_the_instant_of_the_next_start() {
    let gate = gate();
    let call = Call::new(ResourceKey::chat("p", "m"));
    // Tide starts calls 1 ms apart until it has measured their latency.
    gate.register(&call.key, &Limits::at_most(8)).unwrap();
    let first = gate.try_acquire(&call).unwrap();
    let denial = gate.try_acquire(&call).unwrap_err();
    let opens_at = gate.core().host().now() + Duration::from_millis(1);
    assert_eq!(denial, Denial { reason: DenialReason::Paced, changes_at: Some(opens_at) });
    tokio::time::advance(std::time::Duration::from_millis(1)).await;
    gate.try_acquire(&call).unwrap().finish(Outcome::Success);
    first.finish(Outcome::Success);
}

#[tokio::test(start_paused = true)]
async fn an_unregistered_model_is_denied_unless_unregistered_models_are_admitted() {
    let gate = gate();
    let call = |model| Call::new(ResourceKey::chat("p", model));
    assert_eq!(gate.try_acquire(&call("a")).unwrap_err().reason, DenialReason::Unregistered);
    gate.admit_unregistered(Limits::at_most(2).with_algorithm(LimitChoice::Aimd), 1);
    let _permit = gate.try_acquire(&call("a")).unwrap();
    assert_eq!(gate.snapshot(&ResourceKey::chat("p", "a")).map(|state| state.effective_max), Some(2));
    assert_eq!(gate.try_acquire(&call("b")).unwrap_err().reason, DenialReason::Unregistered);
    let _second_permit = gate.try_acquire(&call("a")).unwrap();
}

#[tokio::test(start_paused = true)]
async fn limits_that_are_out_of_range_change_nothing_and_use_up_no_place() {
    let gate = gate();
    let bad = [
        Limits::at_most(9).with_algorithm(LimitChoice::Fixed { limit: 0 }),
        Limits::at_most(9).with_aimd(LimitConfig { initial_limit: Some(0), ..LimitConfig::default() }),
        Limits::at_most(9).with_budget(BudgetConfig::per_minute(Dimension::Requests, 0)),
    ];
    let key = ResourceKey::chat("p", "m");
    gate.register(&key, &Limits::at_most(2).with_algorithm(LimitChoice::Fixed { limit: 2 })).unwrap();
    let before = gate.snapshot(&key);
    for limits in bad {
        assert!(gate.register(&key, &limits).is_err(), "{limits:?}");
        assert_eq!(gate.snapshot(&key), before, "{limits:?}");
        gate.admit_unregistered(limits, 1);
        let other = Call::new(ResourceKey::chat("p", "other"));
        assert_eq!(gate.try_acquire(&other).unwrap_err().reason, DenialReason::Unregistered);
        assert_eq!(gate.registry.read().unregistered.as_ref().map(|(_, left)| *left), Some(1));
    }
    assert_eq!(gate.resources().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn tide_is_the_default_algorithm() {
    let gate = gate();
    let choice_of = |model, limits: Limits| {
        let resource = gate.register(&ResourceKey::chat("p", model), &limits).unwrap();
        gate.core().with(|machine, _| machine.limit_choice(resource)).unwrap()
    };
    assert_eq!(choice_of("a", Limits::at_most(4)), LimitChoice::Tide(TideConfig::default()));
    assert_eq!(choice_of("b", Limits::at_most(4).with_algorithm(LimitChoice::Aimd)), LimitChoice::Aimd);
    let aimd = LimitConfig { initial_limit: Some(3), ..LimitConfig::default() };
    assert_eq!(choice_of("c", Limits::at_most(4).with_aimd(aimd)), LimitChoice::Aimd);
    assert_eq!(gate.snapshot(&ResourceKey::chat("p", "c")).map(|state| state.current_limit), Some(3));
}

#[tokio::test(start_paused = true)]
async fn a_call_is_denied_when_its_timeout_ends() {
    let gate = gate();
    let key = ResourceKey::chat("p", "m");
    gate.register(&key, &Limits::at_most(1)).unwrap();
    let _permit = gate.acquire(&Call::new(key.clone())).await.unwrap();
    let began = tokio::time::Instant::now();
    let denial = gate.acquire(&Call::new(key).within(StdDuration::from_millis(250))).await.unwrap_err();
    assert_eq!((denial.reason, began.elapsed().as_millis()), (DenialReason::QueueTimeout, 250));
}

#[tokio::test(start_paused = true)]
async fn tenants_share_a_model_by_weight() {
    let gate = gate();
    let key = ResourceKey::chat("p", "m");
    gate.register(&key, &Limits::at_most(1)).unwrap();
    gate.register_tenant("heavy", 3.0).unwrap();
    gate.register_tenant("light", 1.0).unwrap();
    let first = gate.acquire(&Call::new(key.clone())).await.unwrap();
    let served = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut waiting = tokio::task::JoinSet::new();
    for turn in 0..80 {
        let tenant = if turn % 2 == 0 { "heavy" } else { "light" };
        let (gate, served, call) = (gate.clone(), Arc::clone(&served), Call::new(key.clone()).for_tenant(tenant));
        waiting.spawn(async move {
            let permit = gate.acquire(&call).await.unwrap();
            served.lock().push(tenant);
            permit.finish(Outcome::Success);
        });
    }
    tokio::task::yield_now().await;
    first.finish(Outcome::Success);
    waiting.join_all().await;
    let heavy = served.lock().iter().take(40).filter(|tenant| **tenant == "heavy").count();
    assert_eq!(heavy, 30);
}

#[tokio::test(start_paused = true)]
async fn unregistered_tenants_beyond_the_bound_share_the_overflow_group() {
    let gate = gate();
    let key = ResourceKey::chat("p", "m");
    gate.register(&key, &Limits::at_most(1)).unwrap();
    let group = |name: &str| gate.request(&Call::new(key.clone()).for_tenant(name)).unwrap().group.unwrap();
    let first = group("0");
    for name in 1..MAX_UNREGISTERED_TENANTS {
        group(&name.to_string());
    }
    assert_eq!(group("one more"), group("and another"));
    assert_eq!(group("0"), first);
    assert_ne!(group("one more"), first);
    // A registered tenant has a group of its own, also beyond the bound.
    let known = gate.register_tenant("known", 2.0).unwrap();
    assert_eq!(group("known"), known);
}

#[tokio::test(start_paused = true)]
async fn calls_of_overflow_tenants_do_not_lock_out_other_calls() {
    let gate = gate();
    let key = ResourceKey::chat("p", "m");
    gate.register(&key, &Limits::at_most(1)).unwrap();
    for name in 0..MAX_UNREGISTERED_TENANTS {
        gate.request(&Call::new(key.clone()).for_tenant(&name.to_string())).unwrap();
    }
    // A call that needed the registry for itself would wait for this reader.
    let reader = gate.registry.read();
    let (sender, receiver) = std::sync::mpsc::channel();
    let other = gate.clone();
    std::thread::spawn(move || sender.send(other.request(&Call::new(key).for_tenant("one more")).is_ok()));
    assert_eq!(receiver.recv_timeout(StdDuration::from_mins(1)), Ok(true));
    drop(reader);
}

#[tokio::test(start_paused = true)]
async fn a_remaining_amount_stated_by_the_provider_limits_the_budget() {
    let gate = gate();
    let key = ResourceKey::chat("p", "m");
    let budget = BudgetConfig::per_minute(Dimension::Requests, 100);
    gate.register(&key, &Limits::at_most(8).with_algorithm(LimitChoice::Aimd).with_budget(budget)).unwrap();
    let permit = gate.acquire(&Call::new(key.clone())).await.unwrap();
    permit
        .rate_limit_feedback(&[RateLimitFeedback { remaining: Some(0), ..RateLimitFeedback::of(Dimension::Requests) }]);
    permit.finish(Outcome::Success);
    assert_eq!(gate.try_acquire(&Call::new(key.clone())).unwrap_err().reason, DenialReason::BudgetExhausted);
    assert!(matches!(gate.why_idle(&key), Some(CallWait::NoRequests)));
}

#[test]
fn creating_a_gate_outside_a_runtime_fails() {
    assert!(matches!(RequestGate::new(), Err(GateError::NoRuntime(_))));
}
