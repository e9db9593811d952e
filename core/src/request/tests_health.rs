//! Tests of outages: which calls are sent while a provider is down, and what happens when it is back.

use alloc::vec::Vec;

use super::event::{EventScope, RequestEventPayload};
use super::*;
use crate::lease::ReleaseResult;
use crate::time::{Duration, Instant};

pub(super) const CAP: u32 = 8;

/// A request admission with health tracking. It has two models of one provider, the first of them with two
/// domains, and a model of another provider.
pub(super) struct Bench {
    pub(super) machine: RequestAdmission,
    pub(super) now: Instant,
    pub(super) model: ProviderModelId,
    pub(super) chat: ResourceId,
    pub(super) embedding: ResourceId,
    pub(super) other: ResourceId,
    pub(super) elsewhere: ResourceId,
}

pub(super) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(HealthConfig::default())
    }

    pub(super) fn with(health: HealthConfig) -> Self {
        let config = RequestConfig { health: Some(health), ..RequestConfig::default() };
        let mut machine = RequestAdmission::new(config).expect("valid settings");
        let now = Instant::ZERO + secs(100);
        let model = machine.register(now, "p", "m", "default", CAP).expect("a valid cap");
        let second = machine.register(now, "p", "n", "default", CAP).expect("a valid cap");
        let third = machine.register(now, "q", "m", "default", CAP).expect("a valid cap");
        let mut resource = |model, domain| machine.resource(model, domain).expect("a known model");
        let (chat, embedding) = (resource(model, Domain::Chat), resource(model, Domain::Embedding));
        let (other, elsewhere) = (resource(second, Domain::Chat), resource(third, Domain::Chat));
        Self { machine, now, model, chat, embedding, other, elsewhere }
    }

    pub(super) fn try_one(&mut self, resource: ResourceId) -> Result<RequestLease, Denial> {
        self.machine.try_acquire(self.now, &Request::new(resource))
    }

    pub(super) fn wait(&mut self, resource: ResourceId) -> WaiterId {
        match self.machine.acquire(self.now, &Request::new(resource)) {
            AcquireResult::Waiting(waiter) => waiter,
            answer => panic!("expected to wait, got {answer:?}"),
        }
    }

    /// Ends a call, and makes another request, which must wait.
    pub(super) fn release_and_wait(&mut self, lease: RequestLease, done: &Completion) -> WaiterId {
        assert_eq!(self.machine.release(self.now, lease, done), ReleaseResult::Released);
        self.wait(self.chat)
    }

    pub(super) fn end(&mut self, lease: RequestLease, outcome: Outcome) {
        assert_eq!(self.machine.release(self.now, lease, &outcome.into()), ReleaseResult::Released);
    }

    /// Ends a call that is retried if it failed in an outage.
    pub(super) fn finish(&mut self, lease: RequestLease, outcome: Outcome) -> AfterCall {
        self.machine.finish(self.now, lease, &outcome.into())
    }

    /// Lets a call fail and retries it.
    pub(super) fn fail(&mut self, lease: RequestLease) -> AcquireResult {
        let resource = lease.resource();
        match self.finish(lease, Outcome::ConnectionFailed) {
            AfterCall::Retry(retry) => self.machine.retry(self.now, &Request::new(resource), retry),
            other => panic!("expected a retry, got {other:?}"),
        }
    }

    pub(super) fn fail_and_wait(&mut self, lease: RequestLease) -> WaiterId {
        match self.fail(lease) {
            AcquireResult::Waiting(waiter) => waiter,
            answer => panic!("expected to wait, got {answer:?}"),
        }
    }

    /// Returns the waiters that were denied, with the reasons.
    pub(super) fn denied(&mut self) -> Vec<(WaiterId, DenialReason)> {
        let effects = core::iter::from_fn(|| self.machine.poll_effect());
        effects
            .map(|effect| match effect {
                RequestEffect::Denied { waiter, denial } => (waiter, denial.reason),
                other => panic!("expected a denial, got {other:?}"),
            })
            .collect()
    }

    pub(super) fn granted(&mut self) -> Vec<RequestLease> {
        let effects = core::iter::from_fn(|| self.machine.poll_effect());
        effects
            .filter_map(|effect| if let RequestEffect::Granted { lease, .. } = effect { Some(lease) } else { None })
            .collect()
    }

    pub(super) fn advance_to(&mut self, now: Instant) {
        self.now = now;
        self.machine.handle_timeout(now);
    }

    /// Takes the model down, and returns when its probe is due.
    pub(super) fn take_down(&mut self) -> Instant {
        for _ in 0..5 {
            let lease = self.try_one(self.chat).expect("it is healthy");
            self.end(lease, Outcome::ConnectionFailed);
        }
        let HealthState::Down { probe_at, .. } = self.health() else { panic!("it is down") };
        probe_at
    }

    pub(super) fn health(&self) -> HealthState {
        self.machine.provider_model(self.now, self.model).expect("it was registered").health
    }

    pub(super) fn limit(&self, resource: ResourceId) -> u32 {
        self.machine.stats(self.now, resource).expect("it was registered").limit
    }
}

#[test]
fn while_a_provider_is_down_no_domain_is_called_and_other_models_are_unaffected() {
    let mut bench = Bench::new();
    let probe_at = bench.take_down();
    for resource in [bench.chat, bench.embedding] {
        let denial = bench.try_one(resource).expect_err("the provider is down");
        assert_eq!(denial, Denial { reason: DenialReason::Outage, changes_at: Some(probe_at) });
        bench.wait(resource);
    }
    bench.advance_to(Instant::from_nanos(probe_at.as_nanos() - 1));
    assert!(bench.granted().is_empty());
    assert!(bench.try_one(bench.other).is_ok());
}

#[test]
fn when_the_pause_is_over_exactly_one_waiter_is_granted_as_the_probe() {
    let mut bench = Bench::new();
    let probe_at = bench.take_down();
    for _ in 0..6 {
        bench.wait(bench.chat);
        bench.wait(bench.embedding);
    }
    assert_eq!(bench.machine.poll_timeout(), Some(probe_at));
    bench.advance_to(probe_at);
    let probe = bench.granted();
    assert_eq!(probe.len(), 1);
    bench.advance_to(probe_at + secs(3_600));
    assert!(bench.granted().is_empty());
    assert_eq!(bench.try_one(bench.chat).expect_err("a probe is in flight").reason, DenialReason::Outage);
    let why = bench.machine.why_next(bench.now, bench.chat);
    assert!(matches!(why, Some(CallWait::Outage { probe_at: None, .. })), "{why:?}");
}

#[test]
fn a_failed_probe_keeps_the_provider_down_and_the_next_waiter_is_the_next_probe() {
    let mut bench = Bench::new();
    let mut due = bench.take_down();
    let waiters: Vec<_> = (0..3).map(|_| bench.wait(bench.chat)).collect();
    let mut probed = Vec::new();
    for _ in 0..3 {
        bench.advance_to(due);
        let Some(RequestEffect::Granted { waiter, lease }) = bench.machine.poll_effect() else {
            panic!("a probe is due")
        };
        probed.push(waiter);
        bench.end(lease, Outcome::ProviderTimeout);
        let HealthState::Down { probe_at, .. } = bench.health() else { panic!("it is down") };
        assert!(probe_at > due);
        due = probe_at;
    }
    assert_eq!(probed, waiters);
}

#[test]
fn without_waiters_the_first_request_after_the_pause_is_the_probe() {
    let mut bench = Bench::new();
    let probe_at = bench.take_down();
    assert_eq!(bench.machine.poll_timeout(), None, "no call waits for the end of the pause");
    bench.advance_to(probe_at);
    let probe = bench.try_one(bench.embedding).expect("it is due");
    assert!(matches!(bench.health(), HealthState::Probing { .. }));
    bench.end(probe, Outcome::Success);
    assert_eq!(bench.health(), HealthState::Healthy);
}

#[test]
fn after_an_outage_the_limit_climbs_step_by_step() {
    let mut bench = Bench::new();
    let probe_at = bench.take_down();
    for _ in 0..20 {
        bench.wait(bench.chat);
    }
    bench.advance_to(probe_at);
    let probe = bench.granted().remove(0);
    bench.end(probe, Outcome::Success);
    let mut out = bench.granted().len();
    assert_eq!(out, 1);
    let mut steps = Vec::new();
    while let Some(next) = bench.machine.poll_timeout().filter(|next| *next <= probe_at + secs(1)) {
        bench.advance_to(next);
        out += bench.granted().len();
        steps.push((next - probe_at, out));
    }
    // Seven steps from 1 to 8, evenly over one second.
    assert_eq!(steps.len(), 7);
    for (step, (after, out)) in steps.into_iter().enumerate() {
        assert_eq!(out, step + 2);
        assert_eq!(after, Duration::from_nanos(((step as u64 + 1) * 1_000_000_000).div_ceil(7)));
    }
}

#[test]
fn an_outage_does_not_affect_the_limit() {
    let mut bench = Bench::new();
    let aimd = AimdConfig { initial_limit: Some(5), ..AimdConfig::default() };
    bench.machine.configure(bench.now, bench.chat, aimd).expect("valid settings");
    let vegas = crate::limit::Vegas::new(crate::limit::VegasConfig::default()).expect("valid settings");
    let vegas = alloc::boxed::Box::new(vegas);
    bench.machine.set_algorithm(bench.now, bench.embedding, vegas).expect("a known resource");
    let before = (bench.limit(bench.chat), bench.limit(bench.embedding));
    let probe_at = bench.take_down();
    bench.advance_to(probe_at);
    let probe = bench.try_one(bench.embedding).expect("it is due");
    bench.end(probe, Outcome::ProviderTimeout);
    let HealthState::Down { probe_at, .. } = bench.health() else { panic!("it is down") };
    bench.advance_to(probe_at);
    let probe = bench.try_one(bench.chat).expect("it is due");
    bench.end(probe, Outcome::RequestRejected);
    assert_eq!((bench.limit(bench.chat), bench.limit(bench.embedding)), (1, 1));
    bench.advance_to(probe_at + secs(1));
    assert_eq!((bench.limit(bench.chat), bench.limit(bench.embedding)), before);
}

#[test]
fn a_failure_while_limits_climb_ends_the_climb_at_the_current_limit() {
    let mut bench = Bench::new();
    let probe_at = bench.take_down();
    bench.advance_to(probe_at);
    let probe = bench.try_one(bench.chat).expect("it is due");
    bench.end(probe, Outcome::Success);
    bench.advance_to(probe_at + Duration::from_millis(600));
    assert_eq!(bench.limit(bench.chat), 5);
    let lease = bench.try_one(bench.chat).expect("there is room");
    bench.end(lease, Outcome::ProviderFailure);
    bench.advance_to(probe_at + secs(60));
    assert_eq!(bench.limit(bench.chat), 5, "from there its algorithm decides");
}

#[test]
fn the_deadline_of_a_waiter_applies_during_an_outage() {
    let mut bench = Bench::new();
    bench.take_down();
    let timeout = Some(Duration::from_millis(50));
    let answer = bench.machine.acquire(bench.now, &Request { timeout, ..Request::new(bench.chat) });
    assert!(matches!(answer, AcquireResult::Waiting(_)));
    let end = bench.now + Duration::from_millis(50);
    assert_eq!(bench.machine.poll_timeout(), Some(end));
    bench.advance_to(end);
    let Some(RequestEffect::Denied { denial, .. }) = bench.machine.poll_effect() else {
        panic!("the deadline has passed")
    };
    assert_eq!(denial.reason, DenialReason::QueueTimeout);
}

#[test]
fn a_success_of_a_call_from_before_the_outage_makes_the_probe_due_at_once() {
    let mut bench = Bench::new();
    let early = bench.try_one(bench.embedding).expect("it is healthy");
    bench.take_down();
    bench.wait(bench.chat);
    bench.end(early, Outcome::Success);
    assert_eq!(bench.granted().len(), 1);
}

#[test]
fn a_cancelled_probe_is_followed_by_the_next_probe_at_once() {
    let mut bench = Bench::new();
    let probe_at = bench.take_down();
    bench.wait(bench.chat);
    bench.wait(bench.chat);
    bench.advance_to(probe_at);
    let probe = bench.granted().remove(0);
    bench.end(probe, Outcome::LocalCancelled);
    assert_eq!(bench.granted().len(), 1);
}

#[test]
fn an_outage_emits_events_when_it_starts_when_it_is_probed_and_when_it_ends() {
    let mut bench = Bench::new();
    bench.machine.set_interest(bench.now, event::RequestInterest::ALL);
    let began = bench.now;
    let probe_at = bench.take_down();
    bench.advance_to(probe_at);
    let probe = bench.try_one(bench.chat).expect("it is due");
    let lease = probe.id();
    bench.end(probe, Outcome::Success);
    let events = core::iter::from_fn(|| bench.machine.poll_event());
    let emitted: Vec<_> =
        events.filter(|event| event.place == EventScope::Model(bench.model)).map(|event| event.payload).collect();
    let expected = [
        RequestEventPayload::ProviderDown { since: began, probe_at },
        RequestEventPayload::ProviderProbed { lease },
        RequestEventPayload::ProviderRecovered { since: began, full_at: bench.now + Duration::from_secs(1) },
    ];
    assert_eq!(emitted, expected);
}

#[test]
fn the_clock_is_needed_while_a_provider_is_down_and_while_it_recovers() {
    let mut bench = Bench::new();
    assert!(!bench.machine.needs_clock(bench.chat));
    let probe_at = bench.take_down();
    assert!(bench.machine.needs_clock(bench.chat));
    bench.advance_to(probe_at);
    let probe = bench.try_one(bench.chat).expect("it is due");
    bench.end(probe, Outcome::Success);
    assert!(bench.machine.needs_clock(bench.chat));
    bench.advance_to(probe_at + secs(2));
    let lease = bench.try_one(bench.chat).expect("it is healthy");
    bench.end(lease, Outcome::Success);
    assert!(!bench.machine.needs_clock(bench.chat));
}

#[test]
fn invalid_health_settings_are_rejected_with_the_name_of_the_field() {
    let refused = |health| {
        let config = RequestConfig { health: Some(health), ..RequestConfig::default() };
        RequestAdmission::new(config).expect_err("out of range").field
    };
    assert_eq!(refused(HealthConfig { failures: 0, ..HealthConfig::default() }), "failures");
    assert_eq!(refused(HealthConfig { first_pause: Duration::ZERO, ..HealthConfig::default() }), "first_pause");
    assert_eq!(refused(HealthConfig { longest_pause: Duration::ZERO, ..HealthConfig::default() }), "longest_pause");
    assert_eq!(refused(HealthConfig { calm: 0, ..HealthConfig::default() }), "calm");
}

#[test]
fn calls_that_failed_in_an_outage_are_retried_when_it_is_over_and_none_is_lost() {
    let mut bench = Bench::new();
    let leases: Vec<_> = (0..CAP).map(|_| bench.try_one(bench.chat).expect("there is room")).collect();
    for lease in leases {
        bench.fail_and_wait(lease);
    }
    assert!(bench.granted().is_empty() && bench.denied().is_empty());
    let HealthState::Down { probe_at, .. } = bench.health() else { panic!("it is down") };
    bench.advance_to(probe_at);
    let probe = bench.granted().remove(0);
    assert_eq!(bench.finish(probe, Outcome::Success), AfterCall::Final);
    bench.advance_to(probe_at + secs(1));
    let out = bench.granted();
    assert_eq!(out.len(), CAP as usize - 1);
    for lease in out {
        assert_eq!(bench.finish(lease, Outcome::Success), AfterCall::Final);
    }
    assert_eq!(bench.machine.waiting(), 0);
}

#[test]
fn a_failure_stands_once_another_call_succeeds() {
    let mut bench = Bench::new();
    let [poison, good, late] = [(); 3].map(|()| bench.try_one(bench.chat).expect("there is room"));
    let waiter = bench.fail_and_wait(poison);
    assert_eq!(bench.machine.why_waiting(bench.now, waiter), Some(CallWait::Undecided));
    let AfterCall::Retry(retry) = bench.finish(late, Outcome::ProviderFailure) else { panic!("it is undecided") };
    bench.end(good, Outcome::Success);
    assert_eq!(bench.denied(), [(waiter, DenialReason::RequestAtFault)]);
    let answer = bench.machine.retry(bench.now, &Request::new(bench.chat), retry);
    assert_eq!(answer, AcquireResult::Denied(Denial { reason: DenialReason::RequestAtFault, changes_at: None }));
}

#[test]
fn an_undecided_call_does_not_block_other_calls_of_its_resource() {
    let mut bench = Bench::new();
    let lease = bench.try_one(bench.chat).expect("there is room");
    bench.fail_and_wait(lease);
    for _ in 0..CAP {
        assert!(matches!(bench.machine.acquire(bench.now, &Request::new(bench.chat)), AcquireResult::Granted(_)));
    }
}

#[test]
fn an_undecided_call_waits_at_most_a_minute_for_other_calls_in_flight() {
    let mut bench = Bench::new();
    let [stream, failed] = [(); 2].map(|()| bench.try_one(bench.chat).expect("there is room"));
    bench.fail_and_wait(failed);
    let next = bench.machine.poll_timeout().expect("it is made again");
    assert_eq!(next, bench.now + secs(60));
    bench.advance_to(next);
    assert_eq!(bench.granted().len(), 1);
    bench.end(stream, Outcome::Success);
}

#[test]
fn the_only_call_of_an_idle_provider_is_retried_with_a_doubling_backoff_and_then_as_a_probe() {
    let mut bench = Bench::new();
    let mut lease = bench.try_one(bench.chat).expect("there is room");
    let mut pauses = Vec::new();
    while bench.health() == HealthState::Healthy {
        bench.fail_and_wait(lease);
        let next = bench.machine.poll_timeout().expect("it is made again");
        pauses.push((next - bench.now).as_nanos() / 1_000_000);
        bench.advance_to(next);
        lease = bench.granted().remove(0);
    }
    let about = |millis: u64, expected: u64| (expected * 4 / 5..=expected * 6 / 5).contains(&millis);
    assert!(pauses.len() == 5 && pauses.iter().zip([1_000, 2_000, 4_000, 8_000, 500]).all(|(a, b)| about(*a, b)));
    assert!(matches!(bench.health(), HealthState::Probing { .. }));
    assert_eq!(bench.finish(lease, Outcome::Success), AfterCall::Final);
}

#[test]
fn a_server_that_refuses_connections_at_once_is_called_a_bounded_number_of_times() {
    let mut bench = Bench::new();
    let lease = bench.try_one(bench.chat).expect("there is room");
    bench.end(lease, Outcome::Success);
    let mut out = Vec::new();
    for _ in 0..5_000 {
        if let AcquireResult::Granted(lease) = bench.machine.acquire(bench.now, &Request::new(bench.chat)) {
            out.push(lease);
        }
    }
    let (mut calls, until) = (0, bench.now + secs(60));
    loop {
        for lease in out.drain(..) {
            calls += 1;
            bench.fail_and_wait(lease);
        }
        out = bench.granted();
        if out.is_empty() {
            match bench.machine.poll_timeout().filter(|next| *next < until) {
                Some(next) => bench.advance_to(next),
                None => break,
            }
            out = bench.granted();
        }
    }
    // 8 calls at once, one in each tenth of the first second, and then calls 0.5, 1, 2, 4, 8, 16 and 30 s
    // apart.
    assert!(calls < 30, "{calls} calls");
    assert_eq!(bench.machine.waiting(), 5_000, "all of them wait");
}

#[test]
fn a_poison_request_that_failed_three_probes_is_rejected_once_another_call_succeeds() {
    let mut bench = Bench::new();
    let mut due = bench.take_down();
    bench.advance_to(due);
    let mut poison = bench.try_one(bench.chat).expect("it is due");
    for _ in 0..2 {
        bench.fail_and_wait(poison);
        due = bench.machine.poll_timeout().expect("a probe is due");
        bench.advance_to(due);
        poison = bench.granted().remove(0);
    }
    let poisoned = bench.fail_and_wait(poison);
    let good = bench.wait(bench.embedding);
    loop {
        due = bench.machine.poll_timeout().expect("a probe is due");
        bench.advance_to(due);
        let Some(RequestEffect::Granted { waiter, lease }) = bench.machine.poll_effect() else {
            panic!("a probe is due")
        };
        if waiter == good {
            bench.end(lease, Outcome::Success);
            break;
        }
        bench.fail_and_wait(lease);
    }
    let denied = bench.denied();
    assert!(denied.len() == 1 && denied[0].1 == DenialReason::RequestAtFault, "{denied:?}");
    let _ = poisoned;
    assert_eq!(bench.health(), HealthState::Healthy);
}

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
fn a_missing_model_makes_only_that_model_unavailable() {
    let mut bench = Bench::new();
    let lease = bench.try_one(bench.chat).expect("there is room");
    assert_eq!(bench.finish(lease, Outcome::ModelNotFound), AfterCall::Unavailable);
    assert_eq!(bench.try_one(bench.embedding).expect_err("no such model").reason, DenialReason::Unavailable);
    assert!(bench.try_one(bench.other).is_ok());
    let why = bench.machine.why_next(bench.now, bench.chat);
    assert!(matches!(why, Some(CallWait::Unavailable { cause: UnavailableCause::ModelNotFound, .. })), "{why:?}");
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
