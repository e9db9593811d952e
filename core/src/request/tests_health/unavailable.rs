//! Tests of unavailable providers: the cause, the denied waiters and the reopening.

use super::*;

#[test]
fn a_refused_key_or_an_exhausted_quota_closes_all_models_of_its_provider_and_no_others() {
    for (outcome, cause) in [
        (Outcome::KeyRejected, UnavailableCause::KeyRejected),
        (Outcome::QuotaExhausted, UnavailableCause::QuotaExhausted),
    ] {
        let mut bench = Bench::new();
        let lease = bench.try_one(bench.chat).expect("there is room");
        for resource in [bench.chat, bench.other, bench.elsewhere] {
            for _ in 0..CAP {
                let _ = bench.try_one(resource).map(|lease| lease.id());
            }
        }
        let waiters = [bench.wait(bench.chat), bench.wait(bench.other)];
        let elsewhere = bench.wait(bench.elsewhere);
        assert_eq!(bench.finish(lease, outcome), AfterCall::Unavailable);
        let expected = waiters.map(|waiter| (waiter, DenialReason::Unavailable));
        assert_eq!(bench.denied(), expected);
        assert!(matches!(bench.health(), HealthState::Unavailable { cause: known, .. } if known == cause));
        let reason = |answer: Result<RequestLease, Denial>| answer.expect_err("it is full or closed").reason;
        assert_eq!(reason(bench.try_one(bench.other)), DenialReason::Unavailable);
        assert_ne!(reason(bench.try_one(bench.elsewhere)), DenialReason::Unavailable);
        assert!(bench.machine.cancel(bench.now, elsewhere), "it waits");
    }
}

#[test]
fn a_model_that_is_registered_while_its_account_is_closed_is_closed_until_the_same_instant() {
    let mut bench = Bench::new();
    let lease = bench.try_one(bench.chat).expect("there is room");
    bench.end(lease, Outcome::KeyRejected);
    bench.advance_to(bench.now + secs(10));
    let late = bench.machine.register(bench.now, "p", "late", "default", CAP).expect("a valid cap");
    let late = bench.machine.resource(late, Domain::Chat).expect("a known model");
    let denial = bench.try_one(late).expect_err("the key is refused");
    assert_eq!((denial.reason, denial.changes_at), (DenialReason::Unavailable, Some(bench.now + secs(50))));
    let elsewhere = bench.machine.register(bench.now, "q", "late", "default", CAP).expect("a valid cap");
    let elsewhere = bench.machine.resource(elsewhere, Domain::Chat).expect("a known model");
    assert!(bench.try_one(elsewhere).is_ok());
}

#[test]
fn a_missing_model_or_an_error_of_tls_makes_only_that_model_unavailable() {
    for (outcome, cause) in
        [(Outcome::ModelNotFound, UnavailableCause::ModelNotFound), (Outcome::TlsFailed, UnavailableCause::TlsFailed)]
    {
        let mut bench = Bench::new();
        let lease = bench.try_one(bench.chat).expect("there is room");
        assert_eq!(bench.finish(lease, outcome), AfterCall::Unavailable);
        assert_eq!(bench.try_one(bench.embedding).expect_err("it is closed").reason, DenialReason::Unavailable);
        assert!(bench.try_one(bench.other).is_ok());
        let why = bench.machine.why_next(bench.now, bench.chat);
        assert!(matches!(why, Some(CallWait::Unavailable { cause: known, .. }) if known == cause), "{why:?}");
        bench.advance_to(bench.now + secs(60));
        let probe = bench.try_one(bench.chat).expect("one call tests it");
        assert!(bench.try_one(bench.chat).is_err());
        bench.end(probe, Outcome::Success);
        assert_eq!(bench.health(), HealthState::Healthy);
    }
}

#[test]
fn all_waiters_are_rejected_at_the_instant_at_which_the_patience_with_an_outage_ends() {
    let patience = Some(secs(10));
    let mut bench = Bench::with(HealthConfig { patience, ..HealthConfig::default() });
    let began = bench.now;
    bench.take_down();
    let waiter = bench.wait(bench.chat);
    let mut leases = Vec::new();
    while bench.now < began + secs(10) {
        let next = bench.machine.poll_timeout().expect("a probe or the end of the patience");
        bench.advance_to(next);
        if bench.now < began + secs(10) {
            leases.extend(bench.granted());
        }
        for lease in leases.drain(..) {
            bench.fail_and_wait(lease);
        }
    }
    assert_eq!(bench.now, began + secs(10));
    let denied = bench.denied();
    assert!(denied.len() == 1 && denied[0].1 == DenialReason::Unavailable, "{denied:?}");
    assert_ne!(denied[0].0, waiter, "it was a probe meanwhile, and waits again under a new id");
    assert_eq!(bench.try_one(bench.embedding).expect_err("it is unavailable").reason, DenialReason::Unavailable);
    assert_eq!(bench.machine.poll_timeout(), None);
}

#[test]
fn all_waiters_are_rejected_when_the_patience_with_rate_limits_ends_during_a_cooldown() {
    let mut bench = Bench::with(HealthConfig { rate_limit_patience: Some(secs(30)), ..HealthConfig::default() });
    let began = bench.now;
    let lease = bench.try_one(bench.chat).expect("it is healthy");
    let limited = Completion::rate_limited(Some(secs(25)));
    assert_eq!(bench.machine.finish(bench.now, lease, &limited), AfterCall::Final);
    let first = bench.wait(bench.chat);
    bench.now += secs(25);
    bench.machine.handle_timeout(bench.now);
    let Some(RequestEffect::Granted { waiter, lease }) = bench.machine.poll_effect() else {
        panic!("the pause is over")
    };
    assert_eq!((waiter, bench.machine.poll_timeout()), (first, None), "the call in flight may succeed");
    let second = bench.release_and_wait(lease, &limited);
    let _elsewhere = bench.try_one(bench.elsewhere).expect("another provider is unaffected");
    assert_eq!(bench.machine.poll_timeout(), Some(began + secs(30)));
    bench.now = began + secs(30);
    bench.machine.handle_timeout(bench.now);
    let Some(RequestEffect::Denied { waiter, denial }) = bench.machine.poll_effect() else {
        panic!("expected a denial")
    };
    assert_eq!((waiter, denial.reason), (second, DenialReason::Unavailable));
    let cause = UnavailableCause::RateLimited;
    let state = bench.machine.snapshot(bench.now, bench.chat).expect("a known resource").health;
    let probe_at = Some(bench.now + secs(60));
    assert_eq!(state, HealthState::Unavailable { since: bench.now, cause, probe_at });
}

#[test]
fn a_denial_states_when_an_unavailable_provider_is_probed_and_later_requests_wait_for_it() {
    let mut bench = Bench::new();
    let began = bench.now;
    let lease = bench.try_one(bench.chat).expect("there is room");
    bench.end(lease, Outcome::QuotaExhausted);
    let denial = bench.try_one(bench.chat).expect_err("it is unavailable");
    assert_eq!((denial.reason, denial.changes_at), (DenialReason::Unavailable, Some(began + secs(60))));
    let denied = bench.machine.acquire(bench.now, &Request::new(bench.other));
    assert_eq!(denied, AcquireResult::Denied(denial), "both models belong to the account");
    bench.advance_to(began + secs(60));
    let probe = bench.try_one(bench.embedding).expect("the probe is due");
    let waiter = bench.wait(bench.chat);
    bench.end(probe, Outcome::QuotaExhausted);
    assert_eq!(bench.denied(), [(waiter, DenialReason::Unavailable)]);
    bench.advance_to(began + secs(120));
    let probe = bench.try_one(bench.chat).expect("the probe is due");
    bench.wait(bench.embedding);
    bench.end(probe, Outcome::Success);
    assert_eq!((bench.granted().len(), bench.health()), (1, HealthState::Healthy));
}

#[test]
fn reopening_a_provider_reopens_all_models_that_its_key_had_closed() {
    let mut bench = Bench::new();
    let lease = bench.try_one(bench.chat).expect("there is room");
    bench.end(lease, Outcome::KeyRejected);
    assert!(bench.machine.reopen(bench.now, bench.model));
    assert!(!bench.machine.reopen(bench.now, bench.model), "it is open already");
    for resource in [bench.chat, bench.other] {
        assert!(bench.try_one(resource).is_ok());
        assert_eq!(bench.try_one(resource).expect_err("limits climb").reason, DenialReason::NoCapacity);
    }
    assert!(!bench.machine.reopen(bench.now, ProviderModelId::new(7, 0)), "it is of another controller");
}

#[test]
fn an_unavailable_provider_emits_an_event_with_the_cause_for_each_model() {
    let mut bench = Bench::new();
    bench.machine.set_interest(bench.now, event::RequestInterest::ALL);
    let lease = bench.try_one(bench.chat).expect("there is room");
    bench.end(lease, Outcome::QuotaExhausted);
    let events = core::iter::from_fn(|| bench.machine.poll_event());
    let probe_at = Some(bench.now + secs(60));
    let payload = RequestEventPayload::ProviderUnavailable { cause: UnavailableCause::QuotaExhausted, probe_at };
    assert_eq!(events.filter(|event| event.payload == payload).count(), 2, "for both models of the account");
}

#[test]
fn without_health_settings_a_provider_is_always_healthy() {
    let config = RequestConfig { health: None, ..RequestConfig::default() };
    let mut machine = RequestAdmission::new(config).expect("valid settings");
    let now = Instant::ZERO;
    let model = machine.register(now, "p", "m", "default", CAP).expect("a valid cap");
    let chat = machine.resource(model, Domain::Chat).expect("a known model");
    for outcome in [Outcome::ConnectionFailed, Outcome::KeyRejected].repeat(50) {
        let lease = machine.try_acquire(now, &Request::new(chat)).expect("there is room");
        assert_eq!(machine.finish(now, lease, &outcome.into()), AfterCall::Final);
    }
    assert_eq!(machine.provider_model(now, model).expect("it was registered").health, HealthState::Healthy);
}
