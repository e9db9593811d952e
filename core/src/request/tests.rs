use std::boxed::Box;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use super::testing::{Bench, CHAT};
use super::*;
use crate::lease::{LeaseId, ReleaseResult};
use crate::time::{Duration, Instant};
use crate::{budget, limit};

fn rate_limited(retry_after: Duration) -> Completion {
    Completion::rate_limited(Some(retry_after))
}

#[test]
fn a_burst_of_rate_limits_cuts_the_limit_once() {
    let mut bench = Bench::new(8, LimitConfig::default());
    for lease in bench.take(8) {
        bench.end(lease, Outcome::RateLimited);
    }
    assert_eq!(bench.limit(), 6);
    assert_eq!(bench.state().consecutive_rate_limits, 8);
}

#[test]
fn a_late_rate_limit_of_an_old_burst_does_not_cut_the_limit_again_after_recovery() {
    let limit = LimitConfig { successes_until_increase: 1, ..LimitConfig::default() };
    let mut bench = Bench::new(4, limit);
    let mut leases = bench.take(2);
    bench.end(leases.remove(0), Outcome::RateLimited);
    assert_eq!(bench.limit(), 3);
    bench.after(Duration::from_secs(2));
    bench.succeed(1);
    assert_eq!(bench.limit(), 4);
    bench.end(leases.remove(0), Outcome::RateLimited);
    assert_eq!(bench.limit(), 4, "it was granted before the cut");
}

#[test]
fn a_long_cooldown_is_not_shortened_by_a_later_rate_limit() {
    let mut bench = Bench::new(4, LimitConfig::default());
    let mut leases = bench.take(2);
    bench.end(leases.remove(0), rate_limited(Duration::from_secs(30)));
    bench.end(leases.remove(0), rate_limited(Duration::from_secs(1)));
    let end = Instant::ZERO + Duration::from_secs(30);
    assert_eq!(bench.state().blocked_until, Some(end));
    let denial = bench.machine.try_acquire(bench.now, &Request::new(CHAT)).expect_err("cooling down");
    assert_eq!(denial, Denial { reason: DenialReason::Cooldown, changes_at: Some(end) });
}

#[test]
fn no_cooldown_is_longer_than_the_configured_maximum() {
    let mut bench = Bench::new(4, LimitConfig::default());
    let lease = bench.take(1).remove(0);
    bench.end(lease, rate_limited(Duration::from_secs(86_400)));
    let end = Instant::ZERO + Duration::from_secs(600);
    assert_eq!(bench.state().blocked_until, Some(end));
}

#[test]
fn a_waiter_is_granted_at_the_exact_end_of_a_cooldown() {
    let mut bench = Bench::new(2, LimitConfig::default());
    let lease = bench.take(1).remove(0);
    bench.end(lease, rate_limited(Duration::from_secs(5)));
    let waiter = bench.wait(Request::new(CHAT));
    let end = Instant::ZERO + Duration::from_secs(5);
    assert_eq!(bench.machine.poll_timeout(), Some(end));
    bench.now = Instant::from_nanos(end.as_nanos() - 1);
    bench.machine.handle_timeout(bench.now);
    assert!(bench.granted().is_empty(), "an early call is harmless");
    bench.now = end;
    bench.machine.handle_timeout(bench.now);
    assert_eq!(bench.granted().remove(0).0, waiter);
    assert_eq!(bench.machine.poll_timeout(), None);
}

#[test]
fn waiters_are_granted_at_the_exact_instants_of_ramp_steps() {
    let mut bench = Bench::new(5, LimitConfig { ramp: Duration::from_secs(8), ..LimitConfig::default() });
    bench.after(Duration::from_secs(100));
    let first = bench.take(1).remove(0);
    let _waiters: Vec<_> = (0..4).map(|_| bench.wait(Request::new(CHAT))).collect();
    let mut opened = vec![];
    while let Some(at) = bench.machine.poll_timeout() {
        bench.now = at;
        bench.machine.handle_timeout(at);
        opened.extend(bench.granted().iter().map(|_| at.as_nanos() / 1_000_000_000));
    }
    assert_eq!(opened, [102, 104, 106, 108], "the ramp counts from the first attempt, not from registration");
    bench.end(first, Outcome::Success);
}

#[test]
fn a_rate_limit_early_in_a_ramp_does_not_keep_the_limit_low() {
    let limit = LimitConfig { ramp: Duration::from_secs(10), successes_until_increase: 1, ..LimitConfig::default() };
    let mut bench = Bench::new(8, limit);
    let lease = bench.take(1).remove(0);
    bench.end(lease, Outcome::RateLimited);
    assert_eq!(bench.state().ramp, None);
    bench.after(Duration::from_secs(3));
    bench.succeed(7);
    assert_eq!(bench.limit(), 8);
}

#[test]
fn a_provider_failure_does_not_affect_a_ramp() {
    let mut bench = Bench::new(5, LimitConfig { ramp: Duration::from_secs(8), ..LimitConfig::default() });
    let lease = bench.take(1).remove(0);
    bench.after(Duration::from_secs(4));
    bench.end(lease, Outcome::ProviderFailure);
    assert_eq!(bench.limit(), 3);
    bench.after(Duration::from_secs(4));
    assert_eq!(bench.limit(), 5);
}

#[test]
fn successes_during_a_cooldown_do_not_raise_the_limit() {
    let limit = LimitConfig { successes_until_increase: 1, ..LimitConfig::default() };
    let mut bench = Bench::new(8, limit);
    let mut leases = bench.take(3);
    bench.end(leases.remove(0), Outcome::RateLimited);
    for lease in leases {
        bench.end(lease, Outcome::Success);
    }
    assert_eq!(bench.limit(), 6);
}

#[test]
fn a_waiter_at_its_deadline_is_rejected_even_if_a_slot_is_released_at_that_instant() {
    let mut bench = Bench::new(1, LimitConfig::default());
    let lease = bench.take(1).remove(0);
    let late = bench.wait(Request::new(CHAT).within(Duration::from_secs(1)));
    bench.after(Duration::from_secs(1));
    bench.end(lease, Outcome::Success);
    let Some(RequestEffect::Denied { waiter, denial }) = bench.machine.poll_effect() else {
        panic!("expected a denial")
    };
    assert_eq!((waiter, denial.reason), (late, DenialReason::QueueTimeout));
    assert_eq!(bench.machine.poll_effect(), None);
}

#[test]
fn a_request_with_a_timeout_of_zero_is_granted_at_once_or_rejected() {
    let mut bench = Bench::new(1, LimitConfig::default());
    let now_or_never = Request::new(CHAT).within(Duration::ZERO);
    let AcquireResult::Granted(lease) = bench.machine.acquire(bench.now, &now_or_never) else {
        panic!("there is room")
    };
    let AcquireResult::Denied(denial) = bench.machine.acquire(bench.now, &now_or_never) else {
        panic!("there is none")
    };
    assert_eq!(denial.reason, DenialReason::QueueTimeout);
    assert_eq!(bench.machine.waiting(), 0);
    bench.end(lease, Outcome::Success);
}

#[test]
fn a_cancelled_waiter_leaves_the_queue_and_leaks_nothing() {
    let mut bench = Bench::new(1, LimitConfig::default());
    let lease = bench.take(1).remove(0);
    let first = bench.wait(Request::new(CHAT));
    let second = bench.wait(Request::new(CHAT));
    assert!(bench.machine.cancel(bench.now, first));
    assert!(!bench.machine.cancel(bench.now, first), "only once");
    bench.end(lease, Outcome::Success);
    let (waiter, lease) = bench.granted().remove(0);
    assert_eq!(waiter, second);
    assert!(!bench.machine.cancel(bench.now, second), "a granted waiter owns a lease");
    bench.end(lease, Outcome::LocalCancelled);
    assert_eq!((bench.machine.active_leases(), bench.machine.waiting()), (0, 0));
}

#[test]
fn shutdown_rejects_waiters_and_leaves_leases_valid() {
    let mut bench = Bench::new(1, LimitConfig::default());
    let lease = bench.take(1).remove(0);
    bench.wait(Request::new(CHAT).within(Duration::from_secs(9)));
    bench.machine.shutdown(bench.now);
    let Some(RequestEffect::Denied { denial, .. }) = bench.machine.poll_effect() else { panic!("expected a denial") };
    assert_eq!(denial.reason, DenialReason::Shutdown);
    let later = bench.machine.try_acquire(bench.now, &Request::new(CHAT)).expect_err("shut down");
    assert_eq!((later.reason, bench.machine.poll_timeout()), (DenialReason::Shutdown, None));
    bench.end(lease, Outcome::Success);
}

#[test]
fn a_request_for_an_unregistered_resource_is_rejected_at_once() {
    let mut bench = Bench::new(1, LimitConfig::default());
    let unregistered = Request::new(ResourceId::new(0, 9));
    assert_eq!(
        bench.machine.try_acquire(bench.now, &unregistered).expect_err("denied").reason,
        DenialReason::Unregistered
    );
    assert!(matches!(bench.machine.acquire(bench.now, &unregistered), AcquireResult::Denied(_)));
}

#[test]
fn the_lowest_cap_of_all_aliases_applies_and_a_raised_cap_raises_an_uncut_limit() {
    let mut bench = Bench::new(4, LimitConfig::default());
    let set_cap = |bench: &mut Bench, alias, cap| {
        bench.machine.register(bench.now, "provider", "model", alias, cap).expect("a valid cap")
    };
    let id = set_cap(&mut bench, "second", 2);
    assert_eq!(bench.limit(), 2);
    set_cap(&mut bench, "second", 6);
    assert_eq!(bench.limit(), 4, "the cap of the first alias is still 4");
    set_cap(&mut bench, "default", 6);
    assert_eq!(
        (bench.limit(), bench.machine.provider_model(bench.now, id).expect("it was registered").static_cap),
        (6, 6)
    );
    let lease = bench.take(1).remove(0);
    bench.end(lease, Outcome::RateLimited);
    set_cap(&mut bench, "default", 9);
    set_cap(&mut bench, "second", 9);
    assert_eq!(bench.limit(), 4, "a limit that was cut only rises with successes");
}

#[test]
fn domains_share_the_cap_and_a_blocked_one_does_not_block_another() {
    let mut bench = Bench::new(2, LimitConfig::default());
    let embedding = bench.machine.resource(ProviderModelId::new(0, 0), Domain::Embedding).expect("a known model");
    let lease = bench.take(1).remove(0);
    bench.end(lease, rate_limited(Duration::from_secs(60)));
    let chat = bench.wait(Request::new(CHAT));
    let AcquireResult::Granted(open) = bench.machine.acquire(bench.now, &Request::new(embedding)) else {
        panic!("the other domain is open");
    };
    bench.end(open, Outcome::Success);
    assert!(bench.machine.cancel(bench.now, chat));
}

#[test]
fn try_acquire_does_not_overtake_a_waiter_that_could_be_granted() {
    let mut bench = Bench::new(2, LimitConfig::default());
    let lease = bench.take(1).remove(0);
    bench.end(lease, rate_limited(Duration::from_secs(1)));
    let waiter = bench.wait(Request::new(CHAT));
    bench.after(Duration::from_secs(1));
    let denial = bench.machine.try_acquire(bench.now, &Request::new(CHAT)).expect_err("behind the waiter");
    assert_eq!(denial.reason, DenialReason::QueuedWaitersAhead);
    bench.machine.handle_timeout(bench.now);
    let (served, lease) = bench.granted().remove(0);
    assert_eq!(served, waiter);
    bench.end(lease, Outcome::Success);
}

#[test]
fn rejected_releases_are_distinguished_and_counted_and_change_nothing_else() {
    let mut bench = Bench::new(2, LimitConfig::default());
    let lease = bench.take(1).remove(0);
    let id = lease.id();
    let mut answer = |id| bench.machine.release(bench.now, RequestLease::from_id(id), &Outcome::Success.into());
    assert_eq!(answer(LeaseId { item: 7, ..id }), ReleaseResult::Stale);
    assert_eq!(answer(LeaseId { controller: 7, ..id }), ReleaseResult::WrongController);
    assert_eq!(answer(id), ReleaseResult::Released);
    assert_eq!(answer(id), ReleaseResult::Duplicate);
    let counted = bench.machine.release_diagnostics();
    assert_eq!((counted.duplicate, counted.stale, counted.wrong_controller), (1, 1, 1));
    // The stale lease has the index of a resource that does not exist. The third has that of another
    // machine.
    let of_resource = bench.state().irregular_releases;
    assert_eq!((of_resource.duplicate, of_resource.stale, of_resource.wrong_controller), (1, 0, 0));
    assert_eq!(bench.machine.active_leases(), 0);
}

#[test]
fn reading_a_snapshot_changes_nothing() {
    let mut bench = Bench::new(9, LimitConfig { ramp: Duration::from_secs(8), ..LimitConfig::default() });
    let leases = bench.take(1);
    bench.after(Duration::from_secs(4));
    let before = bench.state();
    let far = bench.machine.snapshot(bench.now + Duration::from_secs(60), CHAT).expect("it was registered");
    assert_eq!((before.current_limit, far.current_limit), (5, 9));
    assert_eq!(bench.state(), before);
    for lease in leases {
        bench.end(lease, Outcome::Success);
    }
}

#[test]
fn an_idle_resource_ramps_again_from_half_its_limit_if_configured() {
    let limit = LimitConfig {
        ramp: Duration::from_secs(4),
        ramp_after_idle: Some(Duration::from_secs(60)),
        ..LimitConfig::default()
    };
    let mut bench = Bench::new(8, limit);
    bench.succeed(1);
    bench.after(Duration::from_secs(30));
    bench.succeed(1);
    assert_eq!(bench.limit(), 8);
    bench.after(Duration::from_secs(61));
    bench.succeed(1);
    assert_eq!(bench.limit(), 4);
    bench.after(Duration::from_secs(2));
    assert_eq!(bench.limit(), 6);
}

#[test]
fn settings_out_of_range_are_rejected_with_the_name_of_the_field() {
    let limit = LimitConfig { decrease_factor: 1.0, ..LimitConfig::default() };
    let error = RequestAdmission::new(RequestConfig { limit, ..RequestConfig::default() }).expect_err("out of range");
    assert_eq!(error.field, "decrease_factor");
}

#[test]
fn state_machines_are_send() {
    fn assert_send<T: Send>() {}
    assert_send::<RequestAdmission>();
    assert_send::<crate::task::Dispatcher>();
    assert_send::<crate::pipeline::Pipeline>();
}

#[test]
fn a_wake_up_is_armed_again_for_a_new_waiter_after_its_only_waiter_left() {
    let mut bench = Bench::new(2, LimitConfig::default());
    let lease = bench.take(1).remove(0);
    bench.end(lease, rate_limited(Duration::from_secs(5)));
    let denied = bench.machine.acquire(bench.now, &Request::new(CHAT).within(Duration::ZERO));
    assert!(matches!(denied, AcquireResult::Denied(_)));
    assert_eq!(bench.machine.poll_timeout(), None);
    let first = bench.wait(Request::new(CHAT));
    assert!(bench.machine.cancel(bench.now, first));
    bench.wait(Request::new(CHAT));
    assert_eq!(bench.machine.poll_timeout(), Some(Instant::ZERO + Duration::from_secs(5)));
}

#[test]
fn a_limit_that_is_not_fully_used_does_not_grow_with_grow_on_evidence() {
    let limit = LimitConfig {
        initial_limit: Some(4),
        successes_until_increase: 2,
        grow_on_evidence: true,
        ..LimitConfig::default()
    };
    let mut bench = Bench::new(8, limit);
    bench.succeed(10);
    assert_eq!(bench.limit(), 4, "one call at a time is no evidence for a limit of 5");
    for lease in bench.take(4) {
        bench.end(lease, Outcome::Success);
    }
    assert_eq!(bench.limit(), 5);
}

#[test]
fn a_fixed_limit_does_not_change_but_cooldowns_still_apply() {
    let mut bench = Bench::new(8, LimitConfig::default());
    bench.machine.set_algorithm(bench.now, CHAT, Box::new(limit::Fixed::new(3))).expect("a known resource");
    let mut leases = bench.take(3);
    bench.end(leases.remove(0), rate_limited(Duration::from_secs(1)));
    assert_eq!(bench.limit(), 3);
    let denial = bench.machine.try_acquire(bench.now, &Request::new(CHAT)).expect_err("cooling down");
    assert_eq!(denial.reason, DenialReason::Cooldown);
    for lease in leases {
        bench.end(lease, Outcome::Success);
    }
}

/// Keeps a provider busy whose calls take `base x max(1, in flight / knee)`. Returns the highest limit during
/// the last tenth of `calls`, because the algorithm may halve the limit for a moment to measure the latency
/// without queueing.
fn limit_behind_a_knee(bench: &mut Bench, knee: u32, calls: u32) -> u32 {
    let base = 20_000_000_u64;
    let mut out: Vec<(Instant, RequestLease)> = vec![];
    let mut highest = 0;
    for call in 0..calls {
        while let Ok(lease) = bench.machine.try_acquire(bench.now, &Request::new(CHAT)) {
            let slow_down = (out.len() as u64 + 1).max(u64::from(knee));
            out.push((bench.now + Duration::from_nanos(base * slow_down / u64::from(knee)), lease));
        }
        let first = (0..out.len()).min_by_key(|at| out[*at].0).expect("the limit is at least 1");
        let (at, lease) = out.remove(first);
        bench.now = bench.now.max(at);
        bench.end(lease, Outcome::Success);
        if call >= calls - calls / 10 {
            highest = highest.max(bench.limit());
        }
    }
    for (_, lease) in out {
        bench.end(lease, Outcome::Success);
    }
    highest
}

#[test]
fn vegas_settles_slightly_above_the_knee_of_a_queueing_provider_and_follows_it() {
    let mut bench = Bench::new(256, LimitConfig::default());
    let vegas = limit::Vegas::new(limit::VegasConfig::default()).expect("valid settings");
    bench.machine.set_algorithm(bench.now, CHAT, Box::new(vegas)).expect("a known resource");
    for knee in [24, 8, 40] {
        let limit = limit_behind_a_knee(&mut bench, knee, 60_000);
        assert!((knee..=knee + 8).contains(&limit), "limit {limit} at a knee of {knee}");
    }
}

#[test]
fn vegas_cuts_once_for_a_burst_of_rate_limits() {
    let mut bench = Bench::new(64, LimitConfig::default());
    let config = limit::VegasConfig { initial_limit: 16, ..limit::VegasConfig::default() };
    bench
        .machine
        .set_algorithm(bench.now, CHAT, Box::new(limit::Vegas::new(config).expect("valid settings")))
        .expect("a known resource");
    for lease in bench.take(16) {
        bench.end(lease, Outcome::RateLimited);
    }
    assert_eq!(bench.limit(), 12);
}

#[test]
fn try_acquire_after_a_clock_jump_leaves_the_wake_up_of_the_waiter_due() {
    let mut bench = Bench::new(2, LimitConfig::default());
    let lease = bench.take(1).remove(0);
    bench.end(lease, rate_limited(Duration::from_secs(5)));
    let waiter = bench.wait(Request::new(CHAT));
    bench.after(Duration::from_secs(9));
    assert!(bench.machine.try_acquire(bench.now, &Request::new(CHAT)).is_err());
    assert!(bench.machine.poll_timeout().is_some_and(|at| at <= bench.now), "the timeout is due at once");
    bench.machine.handle_timeout(bench.now);
    assert_eq!(bench.granted().remove(0).0, waiter);
}

#[test]
fn ids_of_another_controller_are_rejected_without_a_panic() {
    let mut bench = Bench::new(1, LimitConfig::default());
    let config = RequestConfig { controller: 1, ..RequestConfig::default() };
    let mut other = RequestAdmission::new(config).expect("valid settings");
    let foreign_model = other.register(bench.now, "provider", "model", "default", 1).expect("a valid cap");
    let foreign = other.resource(foreign_model, Domain::Chat).expect("a known model");
    assert_eq!(foreign.index(), CHAT.index(), "only the controller differs");
    let error = bench.machine.resource(foreign_model, Domain::Chat).expect_err("another controller made it");
    assert_eq!(error.field, "owner");
    let unregistered = Denial { reason: DenialReason::Unregistered, changes_at: None };
    assert_eq!(bench.machine.try_acquire(bench.now, &Request::new(foreign)), Err(unregistered));
    assert_eq!(bench.machine.acquire(bench.now, &Request::new(foreign)), AcquireResult::Denied(unregistered));
    let _ = bench.machine.group("group", 1.0).expect("a valid weight");
    let in_foreign_group = Request::new(CHAT).in_group(other.group("group", 1.0).expect("a valid weight"));
    let AcquireResult::Granted(held) = other.acquire(bench.now, &Request::new(foreign)) else {
        panic!("there is room")
    };
    let AcquireResult::Waiting(waiter) = other.acquire(bench.now, &Request::new(foreign)) else {
        panic!("the limit is 1")
    };
    assert!(!bench.machine.cancel(bench.now, waiter));
    assert_eq!(bench.machine.release(bench.now, held, &Outcome::Success.into()), ReleaseResult::WrongController);
    assert_eq!(bench.machine.acquire(bench.now, &in_foreign_group), AcquireResult::Denied(unregistered));
    assert!(bench.machine.snapshot(bench.now, foreign).is_none() && bench.machine.stats(bench.now, foreign).is_none());
    assert!(bench.machine.provider_model(bench.now, foreign_model).is_none());
    assert!(bench.machine.settings(foreign).is_none());
    let error = bench.machine.configure(bench.now, foreign, LimitConfig::default()).expect_err("unknown");
    assert_eq!(error.field, "resource");
    assert!(bench.machine.set_algorithm(bench.now, foreign, Box::new(limit::Fixed::new(3))).is_err());
    assert!(bench.machine.set_budgets(bench.now, foreign, &[]).is_err());
    assert!(bench.machine.set_resource_weight(foreign, 1.0).is_err());
    let correction = budget::RateLimitFeedback::of(budget::Dimension::Requests);
    assert!(!bench.machine.correct_budget(bench.now, foreign, &correction));
}

#[test]
fn a_snapshot_shows_leases_that_may_have_leaked() {
    let ramp = Duration::from_secs(1);
    let mut bench = Bench::new(4, LimitConfig { ramp, initial_limit: Some(4), ..LimitConfig::default() });
    let lost = bench.take(1).remove(0);
    bench.after(ramp);
    let id = bench.take(1).remove(0);
    let known = id.id();
    bench.end(id, Outcome::Success);
    let _ = bench.machine.release(bench.now, RequestLease::from_id(known), &Outcome::Success.into());
    let state = bench.state();
    assert_eq!((state.in_flight, state.active_leases, state.oldest_lease), (1, 1, Some(Instant::ZERO)));
    assert_eq!(state.irregular_releases.duplicate, 1);
    bench.end(lost, Outcome::LocalCancelled);
    assert_eq!((bench.state().active_leases, bench.state().oldest_lease), (0, None));
}

#[test]
fn unregistered_tenants_have_a_group_each_up_to_a_limit_and_then_share_one() {
    let mut admission = RequestAdmission::new(RequestConfig::default()).unwrap();
    let named = admission.group("named", 4.0).unwrap();
    let first = admission.group_of_tenant("0").unwrap();
    let mut groups: Vec<GroupId> =
        (1..MAX_UNREGISTERED_TENANTS).map(|n| admission.group_of_tenant(&n.to_string()).unwrap()).collect();
    assert!(!groups.iter().any(|group| admission.is_shared_group(*group)));
    let last = admission.group_of_tenant("one more").unwrap();
    assert!(admission.is_shared_group(last) && !admission.is_shared_group(first));
    assert_eq!(admission.group_of_tenant("and another").unwrap(), last);
    assert_eq!(admission.group_of_tenant("0").unwrap(), first);
    assert_eq!(admission.group_of_tenant("named").unwrap(), named);
    // A group that is registered with a weight is never the overflow group.
    assert_ne!(admission.group("late", 2.0).unwrap(), last);
    groups.extend([named, first, last]);
    let count = groups.len();
    groups.sort_unstable();
    groups.dedup();
    assert_eq!(groups.len(), count);
}
