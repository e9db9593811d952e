use alloc::vec::Vec;

use super::*;

const CONFIG: HealthConfig = HealthConfig {
    failures: 3,
    quiet: Duration::from_secs(1),
    first_pause: Duration::from_millis(500),
    longest_pause: Duration::from_secs(4),
    recovery: Duration::from_secs(1),
    calm: 4,
    patience: None,
    rate_limit_patience: Some(Duration::from_secs(60)),
    fallback_after: Duration::from_secs(30),
    recheck: None,
    seed: 7,
};

const MODEL: ProviderModelId = ProviderModelId::new(0, 0);

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn health() -> Health {
    Health::new(CONFIG, MODEL, ["p", "m"])
}

fn end_call(
    health: &mut Health,
    now: Instant,
    health_at_grant: GrantHealth,
    outcome: Outcome,
    retry_after: Option<Duration>,
) -> CallEnd {
    if health.end(now, health_at_grant, outcome, retry_after) { health.last_end() } else { CallEnd::PLAIN }
}

/// Grants and ends a call at `now`.
fn call(health: &mut Health, now: Instant, outcome: Outcome) -> HealthChange {
    assert!(!health.is_closed(now));
    let health_at_grant = health.grant(now, Attempt::default());
    end_call(health, now, health_at_grant, outcome, None).change
}

/// Ends a call that was granted before the provider was closed.
fn call_late(health: &mut Health, now: Instant, outcome: Outcome) {
    end_call(health, now, GrantHealth::default(), outcome, None);
}

/// Takes the provider down at `now` and returns its pause.
fn take_down(health: &mut Health, now: Instant) -> Duration {
    for _ in 0..CONFIG.failures {
        if let HealthChange::Down { probe_at, .. } = call(health, now, Outcome::ConnectionFailed) {
            return probe_at - now;
        }
    }
    panic!("it is not down");
}

fn is_back(change: HealthChange) -> bool {
    matches!(change, HealthChange::Recovered { .. })
}

/// Returns the change to unavailable until the provider is reopened.
fn closed_until_reopened(cause: UnavailableCause) -> HealthChange {
    HealthChange::Unavailable { cause, probe_at: None }
}

fn is_about(pause: Duration, millis: u64) -> bool {
    let (least, most) = (Duration::from_millis(millis * 4 / 5), Duration::from_millis(millis * 6 / 5));
    (least..=most).contains(&pause)
}

#[test]
fn the_configured_number_of_counted_failures_in_a_row_takes_a_provider_down() {
    let mut health = health();
    assert!(is_about(take_down(&mut health, at(0)), 500));
    assert!(health.is_closed(at(399)) && !health.is_closed(at(601)));
    assert!(matches!(health.state(), HealthState::Down { since, .. } if since == at(0)));
}

#[test]
fn an_answer_restarts_the_count_of_failures() {
    for answer in [Outcome::Success, Outcome::RateLimited, Outcome::RequestRejected] {
        let mut health = health();
        for outcome in [Outcome::ProviderFailure, Outcome::ProviderTimeout, answer, Outcome::ConnectionFailed] {
            let change = call(&mut health, at(5_000), outcome);
            assert!(matches!(change, HealthChange::None | HealthChange::StreakEnded), "{answer:?}");
        }
    }
}

#[test]
fn calls_that_end_on_the_callers_side_do_not_count() {
    let mut health = health();
    for outcome in [Outcome::ProviderFailure, Outcome::LocalCancelled, Outcome::ProviderFailure, Outcome::Unexpected] {
        assert_eq!(call(&mut health, at(0), outcome), HealthChange::None);
    }
    assert!(matches!(call(&mut health, at(0), Outcome::ProviderFailure), HealthChange::Down { .. }));
}

#[test]
fn a_provider_with_a_recent_success_is_suspected_before_it_is_down() {
    let mut health = health();
    call(&mut health, at(0), Outcome::Success);
    for millis in [100, 200, 300, 400, 1_099] {
        assert_eq!(call(&mut health, at(millis), Outcome::ProviderFailure), HealthChange::None, "{millis}");
    }
    assert!(matches!(health.state(), HealthState::Suspected { since } if since == at(100)));
    assert!(matches!(call(&mut health, at(1_199), Outcome::ProviderFailure), HealthChange::Down { .. }));
}

#[test]
fn calls_of_a_suspected_provider_are_a_tenth_of_quiet_apart() {
    let mut health = health();
    call(&mut health, at(0), Outcome::Success);
    for _ in 0..CONFIG.failures {
        call(&mut health, at(50), Outcome::ConnectionFailed);
    }
    assert!(health.is_closed(at(149)) && !health.is_closed(at(150)));
    let _ = health.grant(at(150), Attempt::default());
    assert_eq!(health.opens_at(), Some(at(250)));
    assert_eq!(call(&mut health, at(250), Outcome::RateLimited), HealthChange::Cleared);
    assert!(health.is_healthy());
}

#[test]
fn only_one_probe_is_in_flight_and_each_failed_probe_doubles_the_pause() {
    let mut health = health();
    let mut now = at(0) + take_down(&mut health, at(0));
    for expected in [1_000, 2_000, 4_000, 4_000] {
        let probe = health.grant(at(0), Attempt::default());
        assert!(health.is_closed(now + Duration::from_secs(3_600)), "a second probe could start");
        let HealthChange::Down { probe_at, .. } =
            end_call(&mut health, now, probe, Outcome::ProviderTimeout, None).change
        else {
            panic!()
        };
        assert!(is_about(probe_at - now, expected), "{} is not about {expected} ms", probe_at - now);
        now = probe_at;
    }
}

#[test]
fn any_answer_to_a_probe_means_that_the_provider_is_up() {
    for answer in [Outcome::Success, Outcome::RateLimited, Outcome::RequestRejected] {
        let mut health = health();
        let due = at(0) + take_down(&mut health, at(0));
        assert!(is_back(call(&mut health, due, answer)), "{answer:?}");
        assert_eq!(health.state(), HealthState::Healthy);
    }
}

#[test]
fn a_cancelled_probe_is_due_again_at_once() {
    let mut health = health();
    let due = at(0) + take_down(&mut health, at(0));
    assert_eq!(call(&mut health, due, Outcome::LocalCancelled), HealthChange::ProbeDue);
    assert!(!health.is_closed(due));
    assert!(is_back(call(&mut health, due, Outcome::Success)));
}

#[test]
fn a_failure_from_before_the_outage_is_ignored_and_a_success_makes_the_probe_due() {
    let mut health = health();
    let (early, late) = (health.grant(at(0), Attempt::default()), health.grant(at(0), Attempt::default()));
    take_down(&mut health, at(0));
    assert_eq!(end_call(&mut health, at(10), early, Outcome::ProviderFailure, None).change, HealthChange::None);
    assert_eq!(end_call(&mut health, at(20), late, Outcome::Success, None).change, HealthChange::ProbeDue);
    assert_eq!(health.opens_at(), Some(at(20)));
    let straggler = GrantHealth::default();
    call(&mut health, at(20), Outcome::Success);
    for _ in 0..9 {
        assert_eq!(
            end_call(&mut health, at(5_000), straggler, Outcome::ProviderFailure, None).change,
            HealthChange::None
        );
    }
}

#[test]
fn a_success_from_before_the_outage_does_not_end_the_probe_in_flight() {
    let mut health = health();
    let late = health.grant(at(0), Attempt::default());
    let due = at(0) + take_down(&mut health, at(0));
    let probe = health.grant(at(0), Attempt::default());
    assert_eq!(end_call(&mut health, due, late, Outcome::Success, None).change, HealthChange::None);
    assert!(health.is_closed(due));
    assert!(is_back(end_call(&mut health, due, probe, Outcome::Success, None).change));
}

#[test]
fn only_calm_resets_the_pauses() {
    let mut health = health();
    let mut now = at(0);
    for (successes, expected) in [(1, 500), (3, 1_000), (4, 2_000), (1, 500)] {
        now += Duration::from_secs(20);
        call(&mut health, now, Outcome::ProviderFailure);
        now += CONFIG.quiet;
        let pause = take_down(&mut health, now);
        assert!(is_about(pause, expected), "{pause} is not about {expected} ms");
        now += pause;
        for _ in 0..successes {
            call(&mut health, now, Outcome::Success);
        }
    }
}

#[test]
fn an_old_outage_does_not_affect_the_next() {
    for (apart, pause, since_first) in [(39_999, 1_000, true), (40_000, 500, false)] {
        let mut health = health();
        take_down(&mut health, at(0));
        assert!(is_back(call(&mut health, at(1_000), Outcome::RateLimited)));
        let next = at(apart);
        assert!(is_about(take_down(&mut health, next), pause), "{apart}");
        let HealthState::Down { since, .. } = health.state() else { panic!("it is down") };
        assert_eq!(since, if since_first { at(0) } else { next }, "{apart}");
    }
}

#[test]
fn repeated_outages_keep_the_first_failure_of_the_first_outage() {
    let mut health = health();
    let due = at(0) + take_down(&mut health, at(0));
    call(&mut health, due, Outcome::Success);
    call(&mut health, at(9_000), Outcome::ProviderFailure);
    take_down(&mut health, at(10_000));
    assert!(matches!(health.state(), HealthState::Down { since, .. } if since == at(0)));
}

#[test]
fn a_provider_may_ask_for_a_longer_pause_up_to_the_longest_pause() {
    let pause = |requested_secs| {
        let mut health = health();
        for _ in 1..CONFIG.failures {
            call(&mut health, at(0), Outcome::ProviderFailure);
        }
        let health_at_grant = health.grant(at(0), Attempt::default());
        end_call(
            &mut health,
            at(0),
            health_at_grant,
            Outcome::ProviderFailure,
            Some(Duration::from_secs(requested_secs)),
        );
        health.opens_at().expect("it is down") - at(0)
    };
    assert_eq!(pause(3), Duration::from_secs(3));
    assert_eq!(pause(86_400), CONFIG.longest_pause);
}

#[test]
fn pauses_differ_between_processes_and_providers_and_not_between_replays() {
    let pause = |seed, model: &str| {
        let mut health = Health::new(HealthConfig { seed, ..CONFIG }, MODEL, ["p", model]);
        take_down(&mut health, at(0))
    };
    assert_eq!(pause(1, "a"), pause(1, "a"));
    assert_ne!(pause(1, "a"), pause(2, "a"));
    assert_ne!(pause(1, "a"), pause(1, "b"));
}

/// Returns `count` failed probes of the tested provider.
fn probes(count: u8) -> FailedProbes {
    (0..count).fold(FailedProbes::default(), |probes, _| probes.plus_one(MODEL.index() as u32))
}

/// Grants and fails a call at `now`, and returns its retry.
fn fail(health: &mut Health, now: Instant, failed_probes: u8) -> Retry {
    let health_at_grant = health.grant(now, Attempt { failed_probes: probes(failed_probes), ..Attempt::default() });
    match end_call(health, now, health_at_grant, Outcome::ConnectionFailed, None).after {
        AfterCall::Retry(retry) => retry,
        other => panic!("expected a retry, got {other:?}"),
    }
}

#[test]
fn failures_of_a_streak_that_takes_a_provider_down_are_preserved() {
    let mut health = health();
    let failed: Vec<Retry> = (0..CONFIG.failures).map(|_| fail(&mut health, at(0), 0)).collect();
    assert!(matches!(health.state(), HealthState::Down { .. }));
    assert!(failed.into_iter().all(|retry| health.retry_status(retry) == RetryStatus::Preserved));
}

#[test]
fn failures_of_a_streak_that_an_answer_ends_stand() {
    for answer in [Outcome::Success, Outcome::RateLimited, Outcome::RequestRejected] {
        let mut health = health();
        let failed = fail(&mut health, at(0), 0);
        assert_eq!(health.retry_status(failed), RetryStatus::Undecided);
        assert_eq!(call(&mut health, at(1), answer), HealthChange::StreakEnded);
        assert_eq!(health.retry_status(failed), RetryStatus::RequestAtFault, "{answer:?}");
        let again = fail(&mut health, at(2), 0);
        assert_eq!(health.retry_status(failed), RetryStatus::RequestAtFault, "the next streak is another");
        assert_eq!(health.retry_status(again), RetryStatus::Undecided);
    }
}

#[test]
fn a_failure_also_stands_if_an_answer_arrives_while_its_call_is_in_flight_again() {
    for answer in [Outcome::Success, Outcome::RateLimited] {
        let mut health = health();
        fail(&mut health, at(0), 0);
        let again = health.grant(at(1_000), Attempt { is_undecided: true, ..Attempt::default() });
        assert_eq!(call(&mut health, at(1_005), answer), HealthChange::StreakEnded);
        let end = end_call(&mut health, at(1_100), again, Outcome::ConnectionFailed, None);
        assert_eq!(end.after, AfterCall::Final, "{answer:?}");
        assert_eq!(health.streak, 1, "it counts like any other");
    }
    let mut health = health();
    fail(&mut health, at(0), 0);
    let again = health.grant(at(1_000), Attempt { is_undecided: true, ..Attempt::default() });
    let end = end_call(&mut health, at(1_100), again, Outcome::ConnectionFailed, None);
    assert!(matches!(end.after, AfterCall::Retry(_)), "there was no answer");
}

#[test]
fn failures_of_a_short_outage_are_preserved() {
    let mut health = health();
    call(&mut health, at(0), Outcome::Success);
    let failed: Vec<Retry> = (0..CONFIG.failures).map(|_| fail(&mut health, at(50), 0)).collect();
    assert!(failed.iter().all(|retry| health.retry_status(*retry) == RetryStatus::Undecided));
    let early = health.grant(at(0), Attempt::default());
    assert_eq!(call(&mut health, at(150), Outcome::Success), HealthChange::Cleared);
    assert!(failed.into_iter().all(|retry| health.retry_status(retry) == RetryStatus::Preserved));
    let AfterCall::Retry(early) = end_call(&mut health, at(160), early, Outcome::ConnectionFailed, None).after else {
        panic!()
    };
    assert_eq!(health.retry_status(early), RetryStatus::Preserved, "it was granted before");
}

#[test]
fn a_call_that_ends_on_the_callers_side_decides_no_streak() {
    let mut health = health();
    let failed = fail(&mut health, at(0), 0);
    call(&mut health, at(1), Outcome::LocalCancelled);
    assert_eq!(health.retry_status(failed), RetryStatus::Undecided);
}

#[test]
fn undecided_calls_are_retried_after_a_doubling_backoff_if_no_other_call_is_in_flight() {
    let mut health = health();
    for (failures, expected) in [(1, 1_000), (2, 2_000)] {
        fail(&mut health, at(0), 0);
        let opens_at = health.undecided_open_at(0).expect("no call is in flight");
        assert!(is_about(opens_at - at(0), expected), "{failures}: {opens_at}");
        let before = Instant::from_nanos(opens_at.as_nanos() - 1);
        assert!(health.holds_undecided(before, 0) && !health.holds_undecided(opens_at, 0));
        assert!(health.holds_undecided(opens_at, 1), "the call in flight will decide it");
        assert!(health.holds_undecided(at(59_999), 1) && !health.holds_undecided(at(60_000), 1), "the wait is bounded");
    }
}

#[test]
fn a_short_patience_with_an_outage_ends_although_only_one_undecided_call_is_made_again() {
    let patience = Duration::from_millis(600);
    let mut health = Health::new(HealthConfig { patience: Some(patience), ..CONFIG }, MODEL, ["p", "m"]);
    let mut now = at(0);
    for _ in 1..CONFIG.failures {
        assert_eq!(call(&mut health, now, Outcome::ConnectionFailed), HealthChange::None);
        let next = health.undecided_open_at(0).expect("its failure is undecided");
        assert!(is_about(next - now, 200), "a third of the patience: {}", next - now);
        now = next;
    }
    assert!(matches!(call(&mut health, now, Outcome::ConnectionFailed), HealthChange::Down { .. }));
    assert_eq!(health.patience_ends(0), Some(at(0) + patience), "it counts from the first failure");
    let ended = health.end_patience(at(600), 0);
    assert_eq!(ended, closed_until_reopened(UnavailableCause::Outage));
}

#[test]
fn a_fatal_outcome_of_a_call_from_before_the_outage_is_preserved_and_closes_nothing() {
    let fatal = [Outcome::KeyRejected, Outcome::QuotaExhausted, Outcome::ModelNotFound, Outcome::TlsFailed];
    for outcome in fatal {
        let mut health = health();
        let early = health.grant(at(0), Attempt::default());
        let due = at(0) + take_down(&mut health, at(0));
        assert!(is_back(call(&mut health, due, Outcome::Success)));
        let end = end_call(&mut health, due, early, outcome, None);
        let AfterCall::Retry(retry) = end.after else { panic!("{outcome:?}: {end:?}") };
        assert_eq!(
            (end.change, health.retry_status(retry)),
            (HealthChange::None, RetryStatus::Preserved),
            "{outcome:?}"
        );
        assert_eq!(
            call(&mut health, due, outcome),
            closed_until_reopened(UnavailableCause::of(outcome).expect("it is fatal"))
        );
    }
}

#[test]
fn a_rate_limit_from_before_the_outage_starts_no_patience_and_closes_nothing() {
    let mut health = health();
    let early = health.grant(at(0), Attempt::default());
    let due = at(0) + take_down(&mut health, at(0));
    call(&mut health, due, Outcome::Success);
    let end = end_call(&mut health, due, early, Outcome::RateLimited, Some(Duration::from_secs(3_600)));
    assert_eq!((end.change, end.after), (HealthChange::None, AfterCall::Final));
    assert_eq!(health.patience_ends(0), None);
}

#[test]
fn a_failed_probe_and_a_failure_from_before_the_outage_are_preserved() {
    let mut health = health();
    let early = health.grant(at(0), Attempt::default());
    let due = at(0) + take_down(&mut health, at(0));
    let AfterCall::Retry(early) = end_call(&mut health, at(1), early, Outcome::ProviderTimeout, None).after else {
        panic!()
    };
    let probe = fail(&mut health, due, 0);
    assert_eq!((early.failed_probes, probe.failed_probes), (probes(0), probes(1)));
    assert_eq!(
        (health.retry_status(early), health.retry_status(probe)),
        (RetryStatus::Preserved, RetryStatus::Preserved)
    );
}

#[test]
fn a_failure_of_a_call_that_was_three_probes_stands_once_another_call_succeeds() {
    for (answer, expected) in
        [(Outcome::Success, RetryStatus::RequestAtFault), (Outcome::RateLimited, RetryStatus::Preserved)]
    {
        let mut health = health();
        let mut due = at(0) + take_down(&mut health, at(0));
        for poison in 0..3 {
            let retry = fail(&mut health, due, poison);
            assert_eq!(health.retry_status(retry), RetryStatus::Preserved);
            assert_eq!(retry.failed_probes, probes(poison + 1));
            due = health.opens_at().expect("it is down");
        }
        let retry = Retry { failed_probes: probes(3), ..fail(&mut health, due, 2) };
        due = health.opens_at().expect("it is down");
        call(&mut health, due, answer);
        assert_eq!(health.retry_status(retry), expected, "{answer:?}");
        let probed_twice = Retry { failed_probes: probes(2), ..retry };
        assert_eq!(health.retry_status(probed_twice), RetryStatus::Preserved);
        let mostly_elsewhere = Retry { provider: 1, failed_probes: probes(1).plus_one(1).plus_one(1), ..retry };
        assert_eq!(health.retry_status(mostly_elsewhere), expected, "{answer:?}");
        let elsewhere_only = probes(0).plus_one(1).plus_one(1).plus_one(1);
        let elsewhere = Retry { provider: 1, failed_probes: elsewhere_only, ..retry };
        assert_eq!(health.retry_status(elsewhere), RetryStatus::Preserved);
    }
}

#[test]
fn a_refused_key_an_exhausted_quota_a_missing_model_and_an_error_of_tls_close_a_provider() {
    for (outcome, cause) in [
        (Outcome::KeyRejected, UnavailableCause::KeyRejected),
        (Outcome::QuotaExhausted, UnavailableCause::QuotaExhausted),
        (Outcome::ModelNotFound, UnavailableCause::ModelNotFound),
        (Outcome::TlsFailed, UnavailableCause::TlsFailed),
    ] {
        let mut health = health();
        let (early, health_at_grant) =
            (health.grant(at(0), Attempt::default()), health.grant(at(0), Attempt::default()));
        let end = end_call(&mut health, at(7), health_at_grant, outcome, None);
        assert_eq!((end.change, end.after), (closed_until_reopened(cause), AfterCall::Unavailable));
        assert_eq!(health.state(), HealthState::Unavailable { since: at(7), cause, probe_at: None });
        assert!(health.is_closed(at(86_400_000)));
        assert_eq!(
            end_call(&mut health, at(8), early, Outcome::Success, None).change,
            HealthChange::None,
            "it was granted before"
        );
        assert!(health.is_unavailable(at(8)));
        assert!(is_back(health.reopen()) && health.is_healthy());
    }
}

#[test]
fn a_provider_that_only_answers_with_rate_limits_is_closed_when_the_patience_ends() {
    let mut health = health();
    for (millis, outcome) in [(5, Outcome::RateLimited), (9, Outcome::RequestRejected), (20, Outcome::RateLimited)] {
        assert_eq!(call(&mut health, at(millis), outcome), HealthChange::None);
    }
    // Neither a local timeout nor a failure is an answer.
    for outcome in [Outcome::RateLimited, Outcome::LocalTimeout, Outcome::ProviderTimeout] {
        call(&mut health, at(30_000), outcome);
    }
    assert_eq!(health.patience_ends(0), Some(at(60_020)));
    let closed_until_reopened = closed_until_reopened(UnavailableCause::RateLimited);
    assert_eq!(health.clone().end_patience(at(60_019), 0), HealthChange::None);
    assert_eq!(health.clone().end_patience(at(60_020), 0), closed_until_reopened);
    assert_eq!(health.clone().end_patience(at(60_020), 1), HealthChange::None, "the call in flight may succeed");
    assert_eq!(
        call(&mut health.clone(), at(70_000), Outcome::RateLimited),
        closed_until_reopened,
        "no timer ended the patience"
    );
    let mut reopened = health.clone();
    reopened.end_patience(at(60_020), 0);
    call_late(&mut reopened, at(60_021), Outcome::RateLimited);
    assert!(is_back(reopened.reopen()));
    assert_eq!(call(&mut reopened, at(9_000_000), Outcome::RateLimited), HealthChange::None, "the patience restarts");
    assert_eq!(call(&mut health, at(70_000), Outcome::Success), HealthChange::StreakEnded);
    assert_eq!(health.patience_ends(0), None);
}

#[test]
fn a_provider_that_asks_for_a_pause_of_the_length_of_the_patience_is_closed_at_once() {
    for (pause, is_closed) in [(59, false), (60, true)] {
        let mut health = health();
        let health_at_grant = health.grant(at(0), Attempt::default());
        let end = end_call(&mut health, at(7), health_at_grant, Outcome::RateLimited, Some(Duration::from_secs(pause)));
        let is_unavailable = health.is_unavailable(at(7));
        assert_eq!((is_unavailable, end.after == AfterCall::Unavailable), (is_closed, is_closed), "{pause} s");
    }
}

#[test]
fn the_patience_with_an_outage_counts_from_its_first_failure() {
    let config = HealthConfig { patience: Some(Duration::from_secs(10)), ..CONFIG };
    let mut health = Health::new(config, MODEL, ["p", "m"]);
    take_down(&mut health, at(0));
    assert_eq!(health.patience_ends(0), Some(at(10_000)));
    assert_eq!(health.end_patience(at(9_999), 0), HealthChange::None);
    let cause = UnavailableCause::Outage;
    assert_eq!(health.clone().end_patience(at(10_000), 0), closed_until_reopened(cause));
    let probe = health.grant(at(0), Attempt::default());
    assert_eq!(health.end_patience(at(10_000), 0), HealthChange::None, "the probe in flight may still succeed");
    let end = end_call(&mut health, at(10_001), probe, Outcome::ProviderTimeout, None);
    assert_eq!((end.change, end.after), (closed_until_reopened(cause), AfterCall::Unavailable));
}

/// Returns the health of a provider with a recheck of 20 s.
fn health_with_recheck() -> Health {
    Health::new(HealthConfig { recheck: Some(Duration::from_secs(20)), ..CONFIG }, MODEL, ["p", "m"])
}

#[test]
fn an_unavailable_provider_is_probed_with_one_call_after_each_recheck() {
    let mut health = health_with_recheck();
    let cause = UnavailableCause::QuotaExhausted;
    let change = call(&mut health, at(0), Outcome::QuotaExhausted);
    assert_eq!(change, HealthChange::Unavailable { cause, probe_at: Some(at(20_000)) });
    assert!(health.is_unavailable(at(19_999)) && !health.is_unavailable(at(20_000)));
    let probe = health.grant(at(25_000), Attempt::default());
    assert!(health.is_closed(at(25_000)) && health.is_probed(), "one at a time");
    assert_eq!(health.state(), HealthState::Probing { since: at(25_000) });
    let end = end_call(&mut health, at(25_100), probe, Outcome::QuotaExhausted, None);
    assert_eq!(end.change, HealthChange::Unavailable { cause, probe_at: Some(at(45_100)) });
    assert!(is_back(call(&mut health, at(45_100), Outcome::Success)) && health.is_healthy());
}

#[test]
fn the_pause_that_a_closed_provider_asked_for_replaces_the_recheck() {
    for (mut health, pause) in [(health_with_recheck(), 3_600), (health(), 60)] {
        let health_at_grant = health.grant(at(0), Attempt::default());
        let _ = end_call(&mut health, at(0), health_at_grant, Outcome::RateLimited, Some(Duration::from_secs(pause)));
        assert_eq!(health.opens_at(), Some(at(pause * 1_000)));
    }
}

#[test]
fn an_outage_that_a_recheck_finds_has_its_own_patience() {
    let patience = Some(Duration::from_secs(10));
    let recheck = Some(Duration::from_secs(20));
    let mut health = Health::new(HealthConfig { patience, recheck, ..CONFIG }, MODEL, ["p", "m"]);
    call(&mut health, at(0), Outcome::KeyRejected);
    assert!(matches!(call(&mut health, at(20_000), Outcome::ConnectionFailed), HealthChange::Down { .. }));
    assert_eq!(health.patience_ends(0), Some(at(30_000)));
    health.end_patience(at(30_000), 0);
    // After the patience with an outage has ended, a failed recheck continues the same outage.
    let change = call(&mut health, at(50_000), Outcome::ConnectionFailed);
    let probe_at = Some(at(70_000));
    assert_eq!(change, HealthChange::Unavailable { cause: UnavailableCause::Outage, probe_at });
}

#[test]
fn a_cancelled_recheck_is_due_again_at_once() {
    let mut health = health_with_recheck();
    call(&mut health, at(0), Outcome::ModelNotFound);
    assert_eq!(call(&mut health, at(20_000), Outcome::LocalCancelled), HealthChange::ProbeDue);
    assert!(!health.is_closed(at(20_000)));
}
