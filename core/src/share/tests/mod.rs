//! Tests of the protocol in virtual time.

mod budget_oracle;
mod budgets;
mod cost;
mod cost_session;
mod figures;
mod laws;
mod messages;
mod oracle;
mod primaries;
mod story;
mod wait;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::call::Outcome;
use crate::limit::{CallReport, Fixed, LimitAlgorithm, LimitChoice, LimitConfig};
use crate::request::{AcquireResult, Domain, Request, RequestAdmission, RequestConfig, RequestEffect};
use crate::sim::sharing::SharingConfig;
use crate::time::{Duration, Instant};

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn report(member: u64, seq: u64, version: u64, share: u32) -> MemberReport {
    MemberReport {
        member: MemberId(member),
        seq,
        version,
        share,
        started: 0,
        ended: 0,
        ends: Vec::new(),
        groups: vec![GroupDemand { group: 1, weight: 1, demand: 10 }],
        leaves: false,
        budgets: [].into(),
    }
}

/// Returns the settings of a world with a limit of two and short times, of which many can be run.
fn short_config(on_loss: OnLoss, call_timeout: Duration) -> SharingConfig {
    let share = ShareConfig {
        ttl: Duration::from_millis(300),
        beat: Duration::from_millis(50),
        takeover_after: Duration::from_millis(120),
        takeover_jitter: Duration::from_millis(40),
        call_timeout,
        on_loss,
        ..ShareConfig::default()
    };
    SharingConfig {
        share,
        choice: LimitChoice::Aimd,
        cap: 2,
        capacity: 2,
        delay: Duration::from_millis(4),
        step_timeout: Duration::from_millis(60),
        ..SharingConfig::default()
    }
}

/// Returns a snapshot with a limit of 10 and no members.
fn snapshot(version: u64, cut_version: u64) -> LeaderSnapshot {
    LeaderSnapshot { version, limit: 10, interval_ns: None, cut_version, members: [].into(), budgets: [].into() }
}

const TERM: Term = Term { epoch: 1, nonce: 7 };

fn leader(limit: u32, snapshot: Option<LeaderSnapshot>) -> Coordinator {
    let lead = Lead { term: TERM, snapshot, is_damaged: false };
    let config = ShareConfig::default();
    let choice = LimitChoice::Fixed { limit };
    Coordinator::take_over(at(0), config, choice, &LimitConfig::default(), 100, lead).expect("valid")
}

/// Gives reports to the leader, and returns its decision.
fn decide(leader: &mut Coordinator, now: Instant, reports: &[MemberReport]) -> Decide {
    leader.on_reports(now, reports);
    match leader.poll_effect() {
        Some(CoordinatorEffect::Decide(decide)) => decide,
        other => panic!("a decision follows the reports, not {other:?}"),
    }
}

fn shares(decide: &Decide) -> Vec<u32> {
    decide.decision.shares.values().map(|given| given.share).collect()
}

fn member(on_loss: OnLoss) -> Member {
    member_of(1, on_loss)
}

fn member_of(id: u64, on_loss: OnLoss) -> Member {
    let config = ShareConfig { on_loss, ..ShareConfig::default() };
    Member::new(at(0), MemberId(id), config, Box::new(Fixed::new(3)), 5).expect("valid")
}

/// Returns the report that the member writes at `now`.
fn next_report(member: &mut Member, now: Instant) -> MemberReport {
    member.handle_timeout(now);
    let effects = core::iter::from_fn(|| member.poll_effect());
    let report =
        effects.filter_map(|effect| if let MemberEffect::Report(report) = effect { Some(report) } else { None });
    report.last().expect("it is time for a report")
}

/// Makes the beats of a member that are due from `from` until `until`, of which the store gets nothing.
fn beat(member: &mut Member, from: u64, until: u64) {
    (from..=until).step_by(10).for_each(|now| member.handle_timeout(at(now)));
}

fn end(grant: u64, outcome: Outcome) -> CallReport {
    CallReport {
        outcome,
        grant,
        admitted_limit: 4,
        admitted_in_flight: 1,
        retry_after: None,
        latency: Duration::from_millis(50),
        in_flight: 0,
        is_cooling_down: false,
    }
}

#[test]
fn a_share_rises_only_after_the_other_member_has_acknowledged_that_its_share_fell() {
    let mut leader = leader(10, None);
    assert_eq!(shares(&decide(&mut leader, at(0), &[report(1, 1, 0, 0)])), [10]);
    assert_eq!(shares(&decide(&mut leader, at(100), &[report(2, 1, 0, 0)])), [5, 0]);
    assert_eq!(shares(&decide(&mut leader, at(200), &[report(1, 2, 1, 10)])), [5, 0], "it has not adopted 2");
    assert_eq!(shares(&decide(&mut leader, at(300), &[report(1, 3, 2, 5)])), [5, 5]);
}

#[test]
fn the_beat_is_fast_while_a_share_waits_for_slots_that_another_member_holds_but_no_longer_than_a_second() {
    let mut leader = leader(10, None);
    decide(&mut leader, at(0), &[report(1, 1, 0, 0)]);
    let beat = |decided: Decide| decided.decision.beat_ms;
    assert_eq!(beat(decide(&mut leader, at(100), &[report(2, 1, 0, 0)])), 20);
    for millis in (120..1_100).step_by(20) {
        assert_eq!(beat(decide(&mut leader, at(millis), &[])), 20, "member 1 has not adopted its new share");
    }
    assert_eq!(beat(decide(&mut leader, at(1_100), &[])), 100, "calls of member 1 may last for long");
    assert_eq!(beat(decide(&mut leader, at(1_200), &[report(1, 2, 2, 5)])), 100, "both have what is due");
}

#[test]
fn after_the_first_refusal_the_limit_rises_by_an_eighth_at_most_with_the_answers_of_one_decision() {
    let choice = LimitChoice::Tide(crate::limit::TideConfig::default());
    let lead = Lead { term: TERM, snapshot: None, is_damaged: false };
    let mut leader = Coordinator::take_over(at(0), ShareConfig::default(), choice, &LimitConfig::default(), 500, lead)
        .expect("valid");
    let decided = decide(&mut leader, at(0), &[report(1, 1, 0, 0)]).decision;
    assert_eq!(decided.limit, 10);
    // Calls that were answered at once, one after the other. The last one may be refused.
    let mut started = 0;
    let mut answer = |leader: &mut Coordinator, beat: u64, version, calls: u64, last| {
        let ends = (started..started + calls).map(|call| EndedCall {
            call,
            started: call + 10,
            outcome: if call + 1 == started + calls { last } else { Outcome::Success },
            latency_ms: 5,
            age_ms: 0,
            version,
            retry_after_ms: None,
        });
        let ends = ends.collect();
        started += calls;
        let report = MemberReport { started: started + 10, ended: started, ends, ..report(1, beat + 1, version, 10) };
        decide(leader, at(100 * beat), &[report]).decision
    };
    let grown = answer(&mut leader, 1, decided.version, 60, Outcome::Success);
    assert!(grown.limit > 12, "nothing was refused: {}", grown.limit);
    let mut before = answer(&mut leader, 2, grown.version, 1, Outcome::RateLimited);
    let refused_at = before.limit;
    let mut rises = Vec::new();
    for beat in 3..40 {
        let decided = answer(&mut leader, beat, before.version, 60, Outcome::Success);
        assert!(decided.limit <= before.limit + (before.limit / 8).max(1), "{} to {}", before.limit, decided.limit);
        rises.push(decided.limit.saturating_sub(before.limit));
        before = decided;
    }
    assert!(before.limit > refused_at && rises.iter().any(|rise| *rise > 0), "it rises: {rises:?}");
}

#[test]
fn the_beat_is_fast_for_two_beats_after_the_limit_has_moved_by_one_but_only_once_in_a_second() {
    let mut leader = leader(10, None);
    let beats = |leader: &mut Coordinator, millis| decide(leader, at(millis), &[]).decision.beat_ms;
    assert_eq!(beats(&mut leader, 0), 100);
    for (began, limit) in [(100, 9), (1_200, 8)] {
        assert!(leader.set_cap(at(began), limit));
        assert_eq!([0, 180, 200].map(|later| beats(&mut leader, began + later)), [20, 20, 100]);
        assert!(leader.set_cap(at(began + 300), limit + 1), "it moves again");
        assert_eq!(beats(&mut leader, began + 300), 100);
        assert!(leader.set_cap(at(began + 400), limit));
        assert_eq!(beats(&mut leader, began + 400), 100);
    }
}

#[test]
fn the_beat_of_a_member_is_fast_for_two_beats_after_its_demand_has_moved() {
    let mut member = member(OnLoss::Stop);
    let wants = |demand| [GroupDemand { group: 1, weight: 1, demand }];
    let mut leader = leader(4, None);
    let decided = decide(&mut leader, at(0), &[next_report(&mut member, at(0))]).decision;
    assert!(member.on_decision(at(10), &decided));
    let next_beat = |member: &mut Member, now| {
        member.handle_timeout(at(now));
        member.poll_timeout()
    };
    assert!(!member.set_demand(at(100), &wants(4)), "as many as its share");
    assert_eq!(next_beat(&mut member, 100), Some(at(200)));
    assert!(member.set_demand(at(200), &wants(6)), "calls wait");
    assert_eq!(next_beat(&mut member, 200), Some(at(220)));
    assert!(!member.set_demand(at(220), &wants(9)), "they still do");
    assert_eq!(next_beat(&mut member, 390), Some(at(410)));
    assert_eq!(next_beat(&mut member, 410), Some(at(510)));
    assert!(!member.set_demand(at(1_200), &wants(3)), "one idle slot does not count");
    assert!(member.set_demand(at(1_200), &wants(2)), "slots are idle");
    assert!(!member.set_demand(at(1_300), &wants(6)), "at most once in a second");
    assert!(member.set_demand(at(2_300), &wants(2)));
}

#[test]
fn the_beat_of_members_without_waiting_calls_stays_slow_while_a_slot_goes_round() {
    let mut leader = leader(9, None);
    let idle = |member, seq, version, share| MemberReport { groups: Vec::new(), ..report(member, seq, version, share) };
    let mut held = (0, 0);
    let mut shares_seen = Vec::new();
    for beat in 0..40 {
        let reports = [idle(1, beat + 1, beat, held.0), idle(2, beat + 1, beat, held.1)];
        let decided = decide(&mut leader, at(100 * beat), &reports);
        held = (shares(&decided)[0], shares(&decided)[1]);
        shares_seen.push(held);
        assert_eq!(decided.decision.beat_ms, 100, "at beat {beat}");
    }
    assert!(shares_seen.contains(&(5, 4)) && shares_seen.contains(&(4, 5)), "{shares_seen:?}");
}

#[test]
fn a_refused_call_counts_with_the_calls_of_other_members_that_ended_before_their_reports_were_read() {
    // With 10 calls in flight, the last one of member 1 is refused, and 5 calls of member 2 end. In the order
    // of the reports, the leader would count 5 calls in flight.
    let lead = Lead { term: TERM, snapshot: Some(snapshot(5, 0)), is_damaged: false };
    let choice = LimitChoice::Tide(crate::limit::TideConfig::default());
    let mut leader = Coordinator::take_over(at(0), ShareConfig::default(), choice, &LimitConfig::default(), 100, lead)
        .expect("valid");
    let shared = decide(&mut leader, at(0), &[report(1, 1, 0, 0), report(2, 1, 0, 0)]).decision;
    let version = shared.version;
    let ended = |call, started, outcome| EndedCall {
        call,
        started,
        outcome,
        latency_ms: 5,
        age_ms: 0,
        version,
        retry_after_ms: None,
    };
    let refused = MemberReport {
        started: 5,
        ended: 1,
        ends: vec![ended(4, 5, Outcome::RateLimited)],
        ..report(1, 2, version, 5)
    };
    let ends = (0..5).map(|call| ended(call, 5, Outcome::Success)).collect();
    let answered = MemberReport { started: 5, ended: 5, ends, ..report(2, 2, version, 5) };
    assert_eq!(decide(&mut leader, at(100), &[refused, answered]).decision.limit, 9);
}

#[test]
fn calls_above_a_lowered_share_occupy_room_until_they_end() {
    let mut leader = leader(10, None);
    decide(&mut leader, at(0), &[report(1, 1, 0, 0)]);
    decide(&mut leader, at(100), &[report(2, 1, 0, 0)]);
    let busy = MemberReport { started: 8, ..report(1, 2, 2, 5) };
    assert_eq!(shares(&decide(&mut leader, at(200), &[busy])), [5, 2]);
}

#[test]
fn the_idle_slots_of_a_killed_member_return_within_its_ttl_and_200_ms() {
    let mut leader = leader(10, None);
    decide(&mut leader, at(0), &[report(1, 1, 0, 0), report(2, 1, 0, 0)]);
    for beat in 1..52 {
        let decided = decide(&mut leader, at(100 * beat), &[report(1, beat + 1, beat, 5)]);
        assert_eq!(shares(&decided)[0], if beat < 51 { 5 } else { 10 }, "at beat {beat}");
    }
}

#[test]
fn a_successor_raises_no_share_until_every_member_has_adopted_a_decision_of_it() {
    let mut first = leader(10, None);
    let decided = decide(&mut first, at(0), &[report(1, 1, 0, 0), report(2, 1, 0, 0)]);
    let known =
        |id: u64, occupied| (MemberId(id), KnownMember { occupied, ..decided.snapshot.members[&MemberId(id)].clone() });
    let snapshot = LeaderSnapshot { members: [known(1, 2), known(2, 2)].into(), ..decided.snapshot.clone() };
    let mut leader = leader(10, Some(snapshot));
    assert_eq!(shares(&decide(&mut leader, at(0), &[report(1, 2, 1, 2), report(2, 2, 1, 2)])), [2, 2]);
    assert_eq!(shares(&decide(&mut leader, at(100), &[report(1, 3, 2, 2)])), [2, 2]);
    assert_eq!(shares(&decide(&mut leader, at(200), &[report(2, 3, 3, 2)])), [5, 5]);
}

#[test]
fn a_successor_continues_at_the_rate_that_was_learned() {
    let snapshot = LeaderSnapshot { interval_ns: Some(6_000_000_000), ..snapshot(5, 0) };
    let lead = Lead { term: TERM, snapshot: Some(snapshot), is_damaged: false };
    let choice = LimitChoice::Tide(crate::limit::TideConfig::default());
    let mut leader = Coordinator::take_over(at(0), ShareConfig::default(), choice, &LimitConfig::default(), 100, lead)
        .expect("valid");
    let decided = decide(&mut leader, at(0), &[report(1, 1, 0, 0), report(2, 1, 0, 0)]);
    let paces: Vec<_> = decided.decision.shares.values().map(|given| given.pace_ns).collect();
    assert_eq!(paces, [12_000_000_000; 2]);
    assert_eq!(decided.snapshot.interval_ns, Some(6_000_000_000), "and so does the next one");
}

#[test]
fn a_report_of_an_unknown_version_stops_increases_for_one_ttl() {
    let mut leader = leader(10, None);
    decide(&mut leader, at(0), &[report(1, 1, 0, 0), report(2, 1, 0, 0)]);
    let decided = decide(&mut leader, at(100), &[report(2, 9, 40, 2)]);
    assert_eq!((decided.decision.version, shares(&decided)), (41, vec![5, 2]));
    let reports = |beat: u64| [report(1, beat, 40 + beat - 1, 5), report(2, 9 + beat, 40 + beat - 1, 2)];
    for beat in 2..52 {
        assert_eq!(shares(&decide(&mut leader, at(100 * beat), &reports(beat)))[1], 2, "at beat {beat}");
    }
    assert_eq!(shares(&decide(&mut leader, at(5_200), &reports(52)))[1], 5);
}

#[test]
fn a_member_that_leaves_returns_its_share_at_the_next_beat() {
    let mut leader = leader(10, None);
    decide(&mut leader, at(0), &[report(1, 1, 0, 0), report(2, 1, 0, 0)]);
    let leaving = MemberReport { leaves: true, ..report(2, 2, 1, 5) };
    assert_eq!(shares(&decide(&mut leader, at(100), &[report(1, 2, 1, 5), leaving])), [10]);
}

#[test]
fn damaged_reports_are_bounded_work_and_no_panic() {
    let ended = EndedCall {
        call: u64::MAX,
        started: u64::MAX,
        outcome: Outcome::RateLimited,
        latency_ms: u32::MAX,
        age_ms: u32::MAX,
        version: u64::MAX,
        retry_after_ms: Some(u32::MAX),
    };
    let counts = [(u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX)];
    for ((started, ended_calls), ends) in counts.into_iter().flat_map(|counts| [(counts, 0), (counts, 3)]) {
        let mut leader = leader(10, None);
        for number in [0, 1, 2, u64::MAX >> 12, u64::MAX] {
            let damaged = MemberReport {
                started,
                ended: ended_calls,
                ends: vec![ended; ends],
                groups: vec![GroupDemand { group: 0, weight: 0, demand: u32::MAX }; 3],
                ..report(number, number, number, u32::MAX)
            };
            decide(&mut leader, at(100), &[damaged]);
        }
    }
}

#[test]
fn damaged_decisions_and_snapshots_are_no_panic() {
    let mut member = member(OnLoss::Share);
    let damaged = LeaderSnapshot { limit: 0, interval_ns: Some(u64::MAX), ..snapshot(u64::MAX, u64::MAX) };
    let mut leader = leader(10, Some(damaged));
    let decided = decide(&mut leader, at(0), &[report(1, 1, 0, 0)]).decision;
    let term = Term { epoch: u64::MAX, nonce: u64::MAX };
    let (pause_ms, beat_ms) = (u32::MAX, 0);
    assert!(!member.on_decision(at(0), &Decision { term, version: u64::MAX, pause_ms, beat_ms, ..decided.clone() }));
    assert!(member.on_decision(at(0), &Decision { term, version: 1, limit: 0, pause_ms, beat_ms, ..decided }));
    assert_eq!(next_report(&mut member, at(3_000)).version, 1);
}

#[test]
fn damaged_versions_leave_numbers_for_later_decisions() {
    let most = 1 << 53;
    let damaged = snapshot(most, most);
    let mut leader = leader(10, Some(damaged));
    let mut member = member(OnLoss::Stop);
    let own = next_report(&mut member, at(0));
    let reports = [own, report(2, 1, most, 4), report(3, 1, most - 1, 4)];
    let decided = decide(&mut leader, at(0), &reports).decision;
    assert!(member.on_decision(at(0), &decided));
    let own = next_report(&mut member, at(100));
    let later = decide(&mut leader, at(100), &[own]).decision;
    assert_eq!(later.shares[&MemberId(1)].seen_seq, 2, "its report is not ignored");
    assert!(member.on_decision(at(100), &later));
}

#[test]
fn two_leaders_after_each_other_continue_after_a_damaged_version() {
    let damaged = snapshot(1 << 53, 0);
    let mut member = member(OnLoss::Stop);
    let mut snapshot = damaged;
    for start in [0, 1_000] {
        let mut leader = leader(10, Some(snapshot.clone()));
        for beat in 0..3 {
            let now = at(start + 100 * beat);
            let own = next_report(&mut member, now);
            let seq = own.seq;
            let decided = decide(&mut leader, now, &[own]);
            assert_eq!(decided.decision.shares[&MemberId(1)].seen_seq, seq, "its report is not ignored");
            assert!(member.on_decision(now, &decided.decision), "a decision of the leader from {start} ms");
            snapshot = decided.snapshot;
        }
    }
}

#[test]
fn a_member_that_read_a_damaged_term_asks_for_the_lead_with_a_small_epoch() {
    let mut member = member(OnLoss::Stop);
    member.on_lead(Term { epoch: u64::MAX, nonce: 1 });
    member.handle_timeout(at(0));
    let effects: Vec<_> = core::iter::from_fn(|| member.poll_effect()).collect();
    assert!(matches!(effects.last(), Some(MemberEffect::TakeLead(take)) if take.term.epoch == 1), "{effects:?}");
}

#[test]
fn a_leader_that_cannot_read_the_snapshot_raises_no_share_for_one_ttl_and_continues_the_versions_of_the_store() {
    let config = ShareConfig::default();
    let lead = Lead { term: TERM, snapshot: None, is_damaged: true };
    let choice = LimitChoice::Fixed { limit: 10 };
    let mut leader = Coordinator::take_over(at(0), config, choice, &LimitConfig::default(), 100, lead).expect("valid");
    let first = decide(&mut leader, at(0), &[report(1, 1, 0, 0)]);
    assert_eq!((first.decision.version, shares(&first)), (1, vec![0]));
    assert!(leader.on_decided(Decided { term: TERM, version: 40 }));
    for beat in 1..51 {
        let decided = decide(&mut leader, at(100 * beat), &[report(1, beat + 1, 39 + beat, 0)]);
        assert_eq!((decided.decision.version, shares(&decided)), (40 + beat, vec![0]));
    }
    assert_eq!(shares(&decide(&mut leader, at(5_100), &[report(1, 52, 90, 0)])), [10]);
}

#[test]
fn a_leader_that_leaves_says_so_and_another_member_takes_the_lead_at_once() {
    let mut leader = leader(10, None);
    leader.leave(at(0));
    assert_eq!(leader.poll_effect(), Some(CoordinatorEffect::ReadReports));
    let mut member = member_of(2, OnLoss::Stop);
    let own = next_report(&mut member, at(0));
    let decided = decide(&mut leader, at(0), &[own]).decision;
    assert!(decided.leader_leaves);
    member.on_decision(at(100), &decided);
    member.handle_timeout(at(120));
    let effects: Vec<_> = core::iter::from_fn(|| member.poll_effect()).collect();
    assert!(matches!(effects.last(), Some(MemberEffect::TakeLead(take)) if take.expected == TERM), "{effects:?}");
}

#[test]
fn a_changed_maximum_reaches_the_leader() {
    let mut leader = Coordinator::take_over(
        at(0),
        ShareConfig::default(),
        LimitChoice::Fixed { limit: 50 },
        &LimitConfig::default(),
        8,
        Lead { term: TERM, snapshot: None, is_damaged: false },
    )
    .expect("valid");
    assert_eq!(decide(&mut leader, at(0), &[]).decision.limit, 8);
    leader.set_cap(at(100), 3);
    assert_eq!(decide(&mut leader, at(100), &[]).decision.limit, 3);
    leader.set_cap(at(200), 20);
    assert_eq!(decide(&mut leader, at(200), &[]).decision.limit, 20);
}

#[test]
fn a_member_starts_calls_at_its_pace_and_after_a_pause_the_members_start_one_after_the_other() {
    let mut leader = leader(10, None);
    let mut members = [member_of(1, OnLoss::Stop), member_of(2, OnLoss::Stop)];
    let reports: Vec<_> = members.iter_mut().map(|member| next_report(member, at(1_000))).collect();
    let mut decided = decide(&mut leader, at(1_000), &reports).decision;
    decided.pause_ms = 50;
    for given in decided.shares.values_mut() {
        given.pace_ns = 200_000_000;
    }
    let [first, second] = &mut members;
    first.on_decision(at(1_000), &decided);
    second.on_decision(at(1_000), &decided);
    assert_eq!((first.opens_at(at(1_000)), second.opens_at(at(1_000))), (Some(at(1_050)), Some(at(1_150))));
    // A call that is a little late keeps to the schedule; one that is later begins it anew.
    for (grant, start, next) in [(0, 1_050, 1_250), (1, 1_280, 1_450), (2, 1_600, 1_800)] {
        assert_eq!(first.opens_at(at(start)), None);
        first.on_grant(at(start), grant, 1);
        assert_eq!(first.opens_at(at(start)), Some(at(next)));
    }
}

/// Returns the decision with the pace that `pace_ms` gives for each member.
fn with_paces(mut decision: Decision, pace_ms: impl Fn(MemberId) -> u64) -> Decision {
    for (id, given) in &mut decision.shares {
        given.pace_ns = pace_ms(*id) * 1_000_000;
    }
    decision
}

#[test]
fn calls_without_a_lease_do_not_move_the_schedule_of_the_pace_into_the_future() {
    let mut leader = leader(10, None);
    let mut member = member(OnLoss::Alone);
    let own = next_report(&mut member, at(1_000));
    let decided = decide(&mut leader, at(1_000), &[own]).decision;
    member.on_decision(at(1_000), &with_paces(decided, |_| 60_000));
    beat(&mut member, 1_000, 20_000);
    for (grant, start) in (0..20).map(|call| (call, 20_000 + 10 * call)) {
        assert_eq!(member.opens_at(at(start)), None, "the store is lost");
        member.on_grant(at(start), grant, 1);
        member.on_outcome(at(start + 5), &end(grant, Outcome::Success));
    }
    let own = next_report(&mut member, at(21_000));
    let healed = decide(&mut leader, at(21_000), &[own]).decision;
    member.on_decision(at(21_000), &with_paces(healed, |_| 60_000));
    assert_eq!(member.opens_at(at(21_000)), Some(at(20_190 + 60_000)), "one interval after the last call");
}

#[test]
fn a_member_that_calls_seldom_gets_no_credit_for_the_time_in_which_others_had_the_rate() {
    const INTERVAL_MS: u64 = 6_000;
    let mut leader = leader(100, None);
    let mut members: Vec<_> = (0..10).map(|id| member_of(id, OnLoss::Stop)).collect();
    let mut started = [0; 10];
    // The first member always has a call that waits, each other one makes one call in each minute.
    for beat in 1..6_000 {
        let now = at(100 * beat);
        let waits = |id: usize, started: &[u64; 10]| id == 0 || beat > 600 * started[id] + 60 * id as u64;
        let waiting = (0..10).filter(|id| waits(*id, &started)).count() as u64;
        let reports: Vec<_> = members.iter_mut().map(|member| next_report(member, now)).collect();
        let decided = decide(&mut leader, now, &reports).decision;
        let decided =
            with_paces(decided, |id| INTERVAL_MS * if waits(id.0 as usize, &started) { waiting } else { 1 << 16 });
        for (id, member) in members.iter_mut().enumerate() {
            member.on_decision(now, &decided);
            if waits(id, &started) && member.room(now) > 0 && member.opens_at(now).is_none() {
                member.on_grant(now, started[id], 1);
                member.on_outcome(now, &end(started[id], Outcome::Success));
                started[id] += 1;
            }
        }
    }
    let (all, seldom) = (started.iter().sum::<u64>(), started[1]);
    // One call in an interval, and one more of each member at the begin.
    assert!((90..=110).contains(&all) && seldom >= 5, "{started:?} in 600 s");
}

#[test]
fn the_refused_slots_of_a_member_that_is_lost_for_long_are_bounded() {
    let mut member = member(OnLoss::Alone);
    for grant in 0..5_000 {
        member.on_grant(at(20_000), grant, 1);
        member.on_outcome(at(20_000), &end(grant, Outcome::RateLimited));
    }
    assert_eq!(member.frozen(), 1_024);
}

#[test]
fn the_algorithm_does_not_learn_from_starts_of_a_member_that_did_not_know_of_the_cut() {
    let lead = Lead { term: TERM, snapshot: None, is_damaged: false };
    let limit = LimitConfig { ramp: Duration::ZERO, ..LimitConfig::default() };
    let mut leader =
        Coordinator::take_over(at(0), ShareConfig::default(), LimitChoice::Aimd, &limit, 10, lead).expect("valid");
    decide(&mut leader, at(0), &[report(1, 1, 0, 0)]);
    let refused = EndedCall {
        call: 0,
        started: 4,
        outcome: Outcome::RateLimited,
        latency_ms: 20,
        age_ms: 0,
        version: 1,
        retry_after_ms: None,
    };
    let before = leader.limit(at(100));
    let first = MemberReport { started: 4, ended: 1, ends: vec![refused], ..report(1, 2, 1, 10) };
    let cut = decide(&mut leader, at(100), core::slice::from_ref(&first)).decision;
    assert!(cut.limit < before);
    assert_eq!(leader.grants(), 4);
    decide(&mut leader, at(200), &[MemberReport { seq: 3, started: 6, ..first.clone() }]);
    assert_eq!(leader.grants(), 4, "it reports version 1");
    decide(&mut leader, at(300), &[MemberReport { seq: 4, started: 7, version: cut.version, ..first }]);
    assert_eq!(leader.grants(), 5);
}

#[test]
fn the_end_of_a_call_has_its_age() {
    let mut member = member(OnLoss::Stop);
    member.on_grant(at(10), 0, 1);
    member.on_outcome(at(60), &end(0, Outcome::Success));
    let ages = |report: MemberReport| report.ends.iter().map(|end| end.age_ms).collect::<Vec<_>>();
    assert_eq!(ages(next_report(&mut member, at(100))), [40]);
    assert_eq!(ages(next_report(&mut member, at(200))), [140], "it is repeated until it is acknowledged");
}

#[test]
fn a_lease_runs_from_the_report_that_the_decision_acknowledges() {
    let mut member = member(OnLoss::Stop);
    let seq = next_report(&mut member, at(0)).seq;
    let mut leader = leader(4, None);
    let decided = decide(&mut leader, at(0), &[MemberReport { seq, ..report(1, 1, 0, 0) }]);
    assert_eq!(member.room(at(2_999)), 0);
    assert!(member.on_decision(at(3_000), &decided.decision));
    assert_eq!((member.room(at(4_999)), member.room(at(5_000))), (4, 0), "and not from its arrival");
    assert!(member.may_send(at(4_999)));
}

#[test]
fn a_member_alone_has_its_own_limit_and_a_sharing_one_its_part() {
    for (on_loss, room) in [(OnLoss::Alone, 3), (OnLoss::Share, 1), (OnLoss::Stop, 0)] {
        let mut member = member(on_loss);
        let own = next_report(&mut member, at(0));
        let mut leader = leader(2, None);
        let decided = decide(&mut leader, at(0), &[own, report(2, 1, 0, 0)]);
        member.on_decision(at(10), &decided.decision);
        beat(&mut member, 10, 5_000);
        assert_eq!(member.room(at(5_005)), 0, "the lease has lapsed, but decisions may still come");
        beat(&mut member, 5_010, 5_110);
        assert_eq!(member.room(at(5_110)), room, "{on_loss:?}");
    }
}

#[test]
fn a_process_that_was_suspended_waits_for_a_ttl_for_its_next_share() {
    // It is suspended under its lease, or after it has lost the others.
    for (on_loss, beats_until) in [(OnLoss::Alone, 1_000), (OnLoss::Share, 1_000), (OnLoss::Alone, 6_000)] {
        let mut member = member(on_loss);
        let own = next_report(&mut member, at(0));
        let decided = decide(&mut leader(2, None), at(0), &[own, report(2, 1, 0, 0)]);
        member.on_decision(at(10), &decided.decision);
        beat(&mut member, 10, beats_until);
        assert_eq!(member.room(at(20_000)), 0, "{on_loss:?}: it has not beaten since it was resumed");
        beat(&mut member, 20_000, 24_990);
        assert_eq!(member.room(at(24_990)), 0, "{on_loss:?}: its next share may arrive");
        beat(&mut member, 25_000, 25_110);
        assert!(member.room(at(25_110)) > 0, "{on_loss:?}: no share has arrived");
    }
}

#[test]
fn a_process_that_was_suspended_for_less_than_a_ttl_starts_no_call_before_its_next_beat() {
    let mut member = member(OnLoss::Alone);
    let own = next_report(&mut member, at(0));
    member.on_decision(at(10), &decide(&mut leader(2, None), at(0), &[own]).decision);
    beat(&mut member, 10, 4_000);
    assert_eq!(member.room(at(8_000)), 0);
    member.handle_timeout(at(8_000));
    assert_eq!(member.room(at(8_000)), 3);
}

#[test]
fn a_refused_slot_is_frozen_until_a_decision_acknowledges_the_refusal() {
    let mut member = member(OnLoss::Stop);
    let mut leader = leader(4, None);
    let first = next_report(&mut member, at(0));
    member.on_decision(at(0), &decide(&mut leader, at(0), &[first]).decision);
    member.on_grant(at(10), 0, 1);
    let second = next_report(&mut member, at(100));
    member.on_outcome(at(110), &end(0, Outcome::RateLimited));
    member.on_decision(at(120), &decide(&mut leader, at(120), &[second]).decision);
    assert_eq!(member.room(at(120)), 3, "the decision is newer, but its report is older than the refusal");
    let third = next_report(&mut member, at(200));
    assert_eq!((third.started, third.ended, third.ends.len()), (1, 1, 1));
    member.on_decision(at(210), &decide(&mut leader, at(210), &[third]).decision);
    assert_eq!(member.room(at(210)), 4);
    assert_eq!(next_report(&mut member, at(300)).ends, [], "an acknowledged end is not repeated");
}

#[test]
fn a_share_of_zero_opens_at_the_next_beat_and_request_admission_never_reads_a_limit_of_zero() {
    let member = member(OnLoss::Stop);
    assert_eq!(member.limit(at(50)), 0);
    assert!(member.opens_at(at(50)).is_some_and(|opens| opens > at(50) && opens <= at(150)));
}

#[test]
fn the_first_process_takes_the_lead_at_once_and_another_one_after_the_decisions_stop() {
    let takes_lead = |member: &mut Member, now| {
        member.handle_timeout(now);
        core::iter::from_fn(|| member.poll_effect()).find_map(|effect| match effect {
            MemberEffect::TakeLead(request) => Some(request),
            _ => None,
        })
    };
    let mut store = MemoryStore::default();
    let mut first = member(OnLoss::Stop);
    let request = takes_lead(&mut first, at(0)).expect("it is the first");
    assert!(first.on_lead(store.take_lead(request).term));
    let mut second = member_of(2, OnLoss::Stop);
    let request = takes_lead(&mut second, at(0)).expect("it does not know the first");
    assert!(!second.on_lead(store.take_lead(request).term));
    assert_eq!(takes_lead(&mut second, at(1_499)), None);
    let request = takes_lead(&mut second, at(2_000)).expect("no decision came");
    assert!(second.on_lead(store.take_lead(request).term));
}

#[test]
fn a_report_with_hundreds_of_groups_names_the_32_largest_and_the_sum_of_the_others() {
    let mut member = member(OnLoss::Stop);
    let groups: Vec<GroupDemand> =
        (1..=100).map(|group| GroupDemand { group, weight: 1, demand: group as u32 }).collect();
    member.set_demand(at(0), &groups);
    let reported = next_report(&mut member, at(0)).groups;
    assert_eq!((reported.len(), reported[0].group), (33, 100));
    assert_eq!(reported[32], GroupDemand { group: 0, weight: 68, demand: (1..=68).sum() });
}

#[test]
fn the_store_rejects_old_terms_and_old_versions_and_repeats_are_harmless() {
    let mut store = MemoryStore::default();
    let mut leader = leader(4, None);
    let (one, two) = (decide(&mut leader, at(0), &[]), decide(&mut leader, at(100), &[]));
    assert_eq!(store.decide(two.clone(), 0).term, TERM);
    store.decide(one, 0);
    assert_eq!(store.decisions_since(Term::default(), 0), Some(two.decision.clone()));
    assert_eq!(store.decisions_since(TERM, 2), None, "it is known");
    let request = TakeLead { expected: TERM, term: Term { epoch: 2, nonce: 8 } };
    assert_eq!(store.take_lead(request), store.take_lead(request));
    assert_eq!(store.decide(decide(&mut leader, at(200), &[]), 0).term, request.term);
    assert_eq!(store.decisions_since(Term::default(), 0), Some(two.decision), "the old leader is fenced off");
    store.report(report(1, 2, 0, 0));
    store.report(report(1, 1, 0, 0));
    let read = store.reports_since(0);
    assert_eq!((read.reports[0].seq, read.next), (2, 1));
    assert!(store.reports_since(1).reports.is_empty());
}

#[test]
fn request_admission_starts_calls_within_the_share() {
    let handle = MemberHandle::<parking_lot::RawMutex>::new(member(OnLoss::Stop));
    let mut admission = RequestAdmission::new(RequestConfig::default()).expect("valid");
    let model = admission.register(at(0), "p", "m", "default", 100).expect("valid");
    let resource = admission.resource(model, Domain::Chat).expect("valid");
    admission.set_algorithm(at(0), resource, Box::new(handle.clone())).expect("known");
    let request = Request::new(resource);
    assert!(admission.try_acquire(at(0), &request).is_err(), "it has no share");
    assert!(matches!(admission.acquire(at(0), &request), AcquireResult::Waiting(_)));
    assert_eq!(admission.demand(resource), [GroupDemand::new("", 1.0, 1)]);

    let report = handle.with(|member| next_report(member, at(0)));
    let decision = decide(&mut leader(2, None), at(0), &[report]).decision;
    assert!(handle.with(|member| member.on_decision(at(50), &decision)));
    admission.refresh_limit(at(50), resource).expect("known");
    assert!(matches!(admission.poll_effect(), Some(RequestEffect::Granted { .. })), "the waiter is served");
    let _second = admission.try_acquire(at(60), &request).expect("its share is 2");
    assert!(admission.try_acquire(at(60), &request).is_err());
    let state = handle.with(|member| member.state(at(60)));
    assert_eq!((state.members, state.limit, state.share, state.room), (1, 2, 2, 2));
    assert!(state.has_lease && !state.is_leader && state.age == Some(Duration::from_millis(10)));

    // The lease runs from the time of the report, also while the machine is suspended.
    assert!(admission.may_send(at(4_999), resource) && !admission.may_send(at(5_000), resource));
    admission.set_suspended(Duration::from_millis(5_000));
    assert!(!admission.may_send(at(60), resource));
    admission.set_suspended(Duration::from_millis(1));
    assert!(!admission.may_send(at(60), resource), "the time does not fall");
    assert_eq!(handle.to_host(handle.to_member(at(60))), at(60));
}
