//! Tests of the shared budgets: what the leader grants, and how a process spends it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString as _;
use alloc::vec::Vec;

use super::*;
use crate::budget::{
    BudgetConfig, BudgetKey, Dimension, RateLimitFeedback, Usage, WalletLease, WalletMode, WalletReport,
};
use crate::request::ResourceId;

/// Ten calls a second, and `burst` at once.
fn calls(burst: u64) -> BudgetConfig {
    BudgetConfig::per(Duration::from_secs(1), Dimension::Requests, 10).with_burst(burst)
}

/// Returns the keys of the budgets of the tests: most use only the first, which is that of [`calls`].
fn keys() -> Vec<BudgetKey> {
    let tokens = BudgetConfig::per_minute(Dimension::TotalTokens, 1);
    BudgetKey::of_each(&[calls(1), tokens, calls(2)]).collect()
}

/// Gives each of `values` the key of a budget.
fn by_key<T>(values: impl IntoIterator<Item = T>) -> BTreeMap<BudgetKey, T> {
    keys().into_iter().zip(values).collect()
}

fn leader_of(budgets: &[BudgetConfig], snapshot: Option<LeaderSnapshot>) -> Coordinator {
    let mut leader = leader(100, snapshot);
    leader.set_budgets(at(0), budgets);
    leader
}

/// Returns the report `seq` of a member that has spent `spent` of what was granted, and needs `need` for
/// calls that take 1 each.
fn needs(member: u64, seq: u64, granted: u64, spent: u64, need: u64) -> MemberReport {
    let wallet = WalletReport { granted, left: granted - spent, spent, call: need.min(1), need };
    MemberReport { budgets: by_key([wallet]), ..report(member, seq, seq - 1, 0) }
}

fn granted(decide: &Decide) -> Vec<u64> {
    decide.decision.shares.values().map(|given| given.granted.get(&keys()[0]).copied().unwrap_or(0)).collect()
}

#[test]
fn the_leader_grants_what_is_in_the_bucket_and_no_more() {
    let mut leader = leader_of(&[calls(4)], None);
    let first = decide(&mut leader, at(0), &[needs(1, 1, 0, 0, 3), needs(2, 1, 0, 0, 3)]);
    assert_eq!(granted(&first), [2, 2]);
    assert!(first.decision.is_scarce);
    // Nothing was spent, so the bucket is full: it does not refill for what the members keep.
    let second = decide(&mut leader, at(1_000), &[needs(1, 2, 2, 0, 3), needs(2, 2, 2, 0, 3)]);
    assert_eq!(granted(&second), [2, 2]);
    let third = decide(&mut leader, at(2_000), &[needs(1, 3, 2, 2, 3), needs(2, 3, 2, 2, 3)]);
    assert_eq!(granted(&third), [2, 2], "all is spent, and counted from now on");
    let fourth = decide(&mut leader, at(2_200), &[needs(1, 4, 2, 2, 3), needs(2, 4, 2, 2, 3)]);
    assert_eq!(granted(&fourth), [3, 3], "two have refilled");
}

#[test]
fn a_repeated_report_and_a_lost_decision_change_no_amount() {
    let mut leader = leader_of(&[calls(3)], None);
    let first = needs(1, 1, 0, 0, 2);
    assert_eq!(granted(&decide(&mut leader, at(0), core::slice::from_ref(&first))), [2]);
    assert_eq!(granted(&decide(&mut leader, at(100), core::slice::from_ref(&first))), [2], "it is on its way");
    let returned = MemberReport {
        budgets: by_key([WalletReport { granted: 2, left: 0, spent: 1, call: 0, need: 0 }]),
        ..report(1, 2, 1, 0)
    };
    for _ in 0..3 {
        decide(&mut leader, at(100), core::slice::from_ref(&returned));
    }
    assert_eq!(
        granted(&decide(&mut leader, at(100), &[needs(2, 1, 0, 0, 9)])),
        [3, 1],
        "one of three is spent, and one is a reserve"
    );
}

#[test]
fn the_next_call_of_each_member_comes_before_the_later_ones_of_others() {
    let mut leader = leader_of(&[calls(10)], None);
    let large = WalletReport { call: 8, need: 8, ..WalletReport::default() };
    let large = MemberReport { budgets: by_key([large]), ..report(2, 1, 0, 0) };
    let decided = decide(&mut leader, at(0), &[needs(1, 1, 0, 0, 50), large]);
    assert_eq!(granted(&decided), [2, 8]);
}

#[test]
fn a_call_that_does_not_fit_yet_is_not_overtaken_and_a_larger_one_than_the_bucket_gets_all_of_it() {
    let mut leader = leader_of(&[calls(10)], None);
    let call = |seq, need| {
        let wallet = WalletReport { call: need, need, ..WalletReport::default() };
        MemberReport { budgets: by_key([wallet]), ..report(1, seq, seq - 1, 0) }
    };
    assert_eq!(granted(&decide(&mut leader, at(0), &[call(1, 25), needs(2, 1, 0, 0, 1)])), [25, 0]);
    let spent = WalletReport { granted: 25, left: 0, spent: 25, call: 0, need: 0 };
    let spent = MemberReport { budgets: by_key([spent]), ..report(1, 2, 1, 0) };
    assert_eq!(granted(&decide(&mut leader, at(100), &[spent, needs(2, 2, 0, 0, 1)])), [25, 0], "15 are overdrawn");
    assert_eq!(granted(&decide(&mut leader, at(1_600), &[])), [25, 0]);
    assert_eq!(granted(&decide(&mut leader, at(1_700), &[])), [25, 1]);
}

#[test]
fn tenants_divide_a_budget_by_weight_whichever_member_they_are_at() {
    let mut leader = leader_of(&[calls(1_000)], None);
    let of = |member, group| {
        let groups = vec![GroupDemand { group, weight: 1, demand: 1_000 }];
        MemberReport { groups, ..needs(member, 1, 0, 0, 1_000) }
    };
    let decided = granted(&decide(&mut leader, at(0), &[of(1, 1), of(2, 1), of(3, 2)]));
    assert!((245..=255).contains(&decided[0]) && (495..=505).contains(&decided[2]), "{decided:?}");
}

#[test]
fn a_member_whose_calls_are_denied_gets_as_many_as_one_whose_calls_wait() {
    // Also if a call costs next to nothing.
    for limit in [10, 1_000_000] {
        let mut leader = leader_of(&[BudgetConfig { limit, ..calls(1) }], None);
        let mut counts = vec![0, 0];
        for beat in 1..=200 {
            let waits = needs(1, beat, counts[0], counts[0], 1);
            let tries = MemberReport { groups: Vec::new(), ..needs(2, beat, counts[1], counts[1], 1) };
            counts = granted(&decide(&mut leader, at(beat * 100), &[waits, tries]));
        }
        assert!(counts[0].abs_diff(counts[1]) <= 2 && counts[0] + counts[1] >= 99, "{counts:?}");
    }
}

#[test]
fn while_nobody_waits_each_member_has_a_small_amount_for_its_next_call() {
    for (burst, members, expected) in [(80, 2, 10), (3, 3, 1), (2, 3, 0)] {
        let mut leader = leader_of(&[calls(burst)], None);
        let reports: Vec<_> = (1..=members).map(|member| needs(member, 1, 0, 0, 0)).collect();
        let decided = decide(&mut leader, at(0), &reports);
        assert_eq!((granted(&decided), decided.decision.is_scarce), (vec![expected; members as usize], false));
    }
}

#[test]
fn what_a_dead_member_had_counts_as_spent_and_a_member_that_leaves_returns_it() {
    let mut leader = leader_of(&[calls(4)], None);
    decide(&mut leader, at(0), &[needs(1, 1, 0, 0, 4)]);
    assert_eq!(granted(&decide(&mut leader, at(5_050), &[needs(2, 1, 0, 0, 9)])), [0], "the lease has just lapsed");
    assert_eq!(granted(&decide(&mut leader, at(5_150), &[])), [1], "the bucket refills from then on");
    let mut leader = leader_of(&[calls(4)], None);
    decide(&mut leader, at(0), &[needs(1, 1, 0, 0, 4)]);
    let left = WalletReport { granted: 4, ..WalletReport::default() };
    let leaving = MemberReport { leaves: true, budgets: by_key([left]), ..report(1, 2, 1, 0) };
    assert_eq!(granted(&decide(&mut leader, at(100), &[leaving, needs(2, 1, 0, 0, 9)])), [4]);
}

#[test]
fn an_amount_that_a_lost_member_had_does_not_return_with_it() {
    // The leader that writes it off has granted it, or another one before or after the loss of the lease.
    for (arrived, successor_at) in
        [0, 6].into_iter().flat_map(|arrived| [None, Some(100), Some(5_050)].map(|at| (arrived, at)))
    {
        let mut leader = leader_of(&[calls(10)], None);
        let busy = |report| MemberReport { started: 1, ..report };
        let mut last = decide(&mut leader, at(0), &[busy(needs(1, 1, 0, 0, 6))]);
        assert_eq!(granted(&last), [6]);
        for now in [100, 5_050] {
            last = decide(&mut leader, at(now), &[]);
            if successor_at == Some(now) {
                leader = leader_of(&[calls(10)], Some(last.snapshot.clone()));
            }
        }
        assert_eq!(granted(&last), [0], "a grant that has not arrived arrives no more");
        // Its six have refilled by now.
        assert_eq!(granted(&decide(&mut leader, at(6_000), &[needs(2, 1, 0, 0, 10)])), [0, 10]);
        // It comes back, and has spent one of them if they have arrived. The other member has spent all of
        // the bucket.
        let returned = WalletReport { granted: arrived, spent: arrived.min(1), ..WalletReport::default() };
        let returned = MemberReport { budgets: by_key([returned]), ..busy(report(1, 2, 1, 0)) };
        let decided = decide(&mut leader, at(6_000), &[needs(2, 2, 10, 10, 10), returned]);
        assert_eq!(granted(&decided), [arrived, 10], "five more would be fifteen at once");
        assert_eq!(granted(&decide(&mut leader, at(6_200), &[])), [arrived, 12]);
    }
}

#[test]
fn a_member_whose_grants_take_a_beat_longer_gets_as_much_as_the_others() {
    let budget = BudgetConfig::per(Duration::from_secs(1), Dimension::Requests, 20).with_burst(30);
    let mut leader = leader_of(&[budget], None);
    let (mut near, mut far, mut on_its_way) = (0, 0, 0);
    let mut half = [0, 0];
    for beat in 1..=1_000 {
        // Each spends at once what has arrived, and has more calls.
        let reports = [needs(1, beat, near, near, 5), needs(2, beat, far, far, 5)];
        let decided = granted(&decide(&mut leader, at(100 * beat), &reports));
        (near, far, on_its_way) = (decided[0], on_its_way, decided[1]);
        if beat == 500 {
            half = [near, far];
        }
    }
    let later = [near - half[0], far - half[1]];
    assert!(later.iter().all(|amount| (480..=520).contains(amount)), "each has a half of 1 000: {later:?}");
}

#[test]
fn budgets_are_the_same_by_what_they_count_and_their_window_and_the_rate_is_that_of_the_leader() {
    let tokens = |limit| BudgetConfig::per_minute(Dimension::TotalTokens, limit);
    let mut leader = leader_of(&[calls(4), tokens(600)], None);
    let faster = BudgetConfig { limit: 1_000, ..calls(1_000) };
    let (mut admission, resource) = admission(&[tokens(90), faster]);
    let _ = admission.acquire(at(0), &Request::new(resource).estimated(Usage::tokens(100, 0)));
    let own = |admission: &mut RequestAdmission, seq| MemberReport {
        budgets: admission.report_budgets(at(0), resource),
        ..report(1, seq, seq - 1, 0)
    };
    let first = decide(&mut leader, at(0), &[own(&mut admission, 1)]).decision;
    let granted = first.shares[&MemberId(1)].granted.clone();
    assert_eq!(granted, by_key([1, 150]), "the call, and at least a quarter of the bucket of the leader");
    admission.lease_budgets(at(0), resource, &WalletLease { granted, mode: WalletMode::Plentiful }).expect("known");
    assert!(matches!(admission.poll_effect(), Some(RequestEffect::Granted { .. })));
}

#[test]
fn a_budget_that_the_leader_does_not_have_is_the_reason_why_a_call_waits_and_begins_empty_when_it_has_it() {
    let tokens = BudgetConfig::per_minute(Dimension::TotalTokens, 600);
    let mut leader = leader_of(&[calls(4)], None);
    let (mut admission, resource) = admission(&[calls(4), tokens]);
    let _ = admission.acquire(at(0), &Request::new(resource).estimated(Usage::tokens(10, 0)));
    let mut beat = |leader: &mut Coordinator, seq, now| {
        let own = MemberReport { budgets: admission.report_budgets(at(now), resource), ..report(1, seq, seq - 1, 0) };
        // Another process has the budgets of the leader.
        let decided = decide(leader, at(now), &[own, needs(2, seq, 0, 0, 0)]).decision;
        let granted = decided.shares[&MemberId(1)].granted.clone();
        let lease = WalletLease { granted, mode: WalletMode::Plentiful };
        admission.lease_budgets(at(now), resource, &lease).expect("known");
        (admission.why_next(at(now), resource), admission.poll_effect().is_some())
    };
    let waits = |is_known| Some(crate::request::CallWait::SharedBudget { is_known });
    assert_eq!(beat(&mut leader, 1, 0), (waits(false), false));
    assert!(waits(false).unwrap().to_string().contains("does not have"));
    leader.set_budgets(at(100), &[calls(4), tokens]);
    assert_eq!(beat(&mut leader, 2, 100), (waits(true), false), "ten tokens a second refill");
    assert_eq!(beat(&mut leader, 3, 1_100), (waits(true), true), "it starts, and another one would wait");
}

#[test]
fn a_process_without_a_budget_of_the_leader_gets_the_others() {
    let tokens = BudgetConfig::per_minute(Dimension::TotalTokens, 600);
    let mut leader = leader_of(&[tokens, calls(4)], None);
    let decided = decide(&mut leader, at(0), &[needs(1, 1, 0, 0, 3)]);
    assert_eq!(granted(&decided), [3]);
    // It has the budget no more, and then again: what was not spent counts as spent.
    decide(&mut leader, at(100), &[report(1, 2, 1, 0)]);
    assert_eq!(granted(&decide(&mut leader, at(100), &[needs(1, 3, 3, 0, 3)])), [3], "it has three, and one is left");
    assert_eq!(granted(&decide(&mut leader, at(100), &[needs(1, 4, 3, 3, 1)])), [3], "three are spent twice");
}

#[test]
fn a_denied_try_asks_for_its_amount_and_finds_it_if_it_is_repeated_within_a_second() {
    let tries: [fn(&mut RequestAdmission, Instant, ResourceId) -> bool; 2] = [
        |admission, now, resource| admission.try_acquire(now, &Request::new(resource)).is_ok(),
        |admission, now, resource| {
            let request = Request::new(resource).within(Duration::ZERO);
            matches!(admission.acquire(now, &request), AcquireResult::Granted(_))
        },
    ];
    for starts in tries {
        let (mut admission, resource) = admission(&[calls(5)]);
        admission.lease_budgets(at(0), resource, &lease(0, WalletMode::Scarce)).expect("known");
        assert!(!starts(&mut admission, at(0), resource));
        let asks = |admission: &mut RequestAdmission, now| {
            let WalletReport { left, call, need, .. } = reported(admission, at(now), resource);
            (left, call, need)
        };
        assert_eq!(asks(&mut admission, 90), (0, 1, 1));
        admission.lease_budgets(at(150), resource, &lease(1, WalletMode::Scarce)).expect("known");
        assert_eq!(asks(&mut admission, 190), (1, 0, 0), "it keeps what was granted");
        assert_eq!(asks(&mut admission, 890), (1, 0, 0));
        assert!(starts(&mut admission, at(900), resource));
        assert!(!starts(&mut admission, at(2_000), resource));
        assert_eq!(asks(&mut admission, 4_000), (0, 1, 1), "the first report has it, whenever it is");
        assert_eq!(asks(&mut admission, 4_100), (0, 0, 0), "a caller that does not try again needs nothing");
    }
}

#[test]
fn a_process_needs_what_its_waiting_calls_need_together() {
    let tokens = BudgetConfig::per_minute(Dimension::TotalTokens, 1_000);
    let (mut admission, resource) = admission(&[tokens]);
    let waiters: Vec<_> = (1..=3)
        .map(|tokens| {
            match admission.acquire(at(0), &Request::new(resource).estimated(Usage::tokens(10 * tokens, 1))) {
                AcquireResult::Waiting(waiter) => waiter,
                other => panic!("nothing is granted yet, but {other:?}"),
            }
        })
        .collect();
    let needs = |admission: &mut RequestAdmission| {
        let report = admission.report_budgets(at(0), resource)[&keys()[1]];
        (report.call, report.need)
    };
    assert_eq!(needs(&mut admission), (11, 63));
    assert!(admission.cancel(at(0), waiters[1]));
    assert_eq!(needs(&mut admission), (11, 42));
    let granted = WalletLease { granted: [(keys()[1], 11)].into(), mode: WalletMode::Plentiful };
    admission.lease_budgets(at(0), resource, &granted).expect("known");
    assert_eq!(needs(&mut admission), (31, 31 + 11), "one has started, and as much may follow");
}

#[test]
fn what_was_granted_for_a_call_larger_than_the_bucket_is_spent_on_one_call() {
    let (mut admission, resource) = admission(&[BudgetConfig::per_minute(Dimension::TotalTokens, 4)]);
    let granted = WalletLease { granted: [(keys()[1], 16)].into(), mode: WalletMode::Plentiful };
    admission.lease_budgets(at(0), resource, &granted).expect("known");
    let large = Request::new(resource).estimated(Usage::tokens(7, 0));
    assert!(matches!(admission.acquire(at(0), &large), AcquireResult::Granted(_)));
    let small = Request::new(resource).estimated(Usage::tokens(1, 0));
    assert!(matches!(admission.acquire(at(0), &small), AcquireResult::Waiting(_)), "the bucket held four");
}

#[test]
fn a_successor_continues_from_the_amounts_and_one_without_a_snapshot_from_empty_buckets() {
    let mut first = leader_of(&[calls(10)], None);
    decide(&mut first, at(0), &[needs(1, 1, 0, 0, 6)]);
    let last = decide(&mut first, at(0), &[needs(1, 2, 6, 5, 0)]);
    assert_eq!(last.snapshot.budgets, by_key([5]));
    let known = last.snapshot.members[&MemberId(1)].budgets.clone();
    assert_eq!(known, by_key([KnownWallet { granted: 7, outstanding: 2, spent: 5 }]), "with one for a later call");
    let mut second = leader_of(&[calls(10)], Some(last.snapshot));
    let decided = decide(&mut second, at(0), &[needs(1, 3, 7, 6, 9)]);
    assert_eq!(granted(&decided), [10], "three are left after the one that it has spent since, and its own");
    let mut third = leader_of(&[calls(10)], None);
    assert_eq!(granted(&decide(&mut third, at(0), &[needs(1, 3, 6, 6, 9)])), [6], "there were other decisions");
    assert_eq!(granted(&decide(&mut third, at(200), &[needs(1, 4, 6, 6, 9)])), [8]);
}

#[test]
fn damaged_amounts_are_no_panic() {
    let most = WalletReport { granted: u64::MAX, left: u64::MAX, spent: u64::MAX, call: u64::MAX, need: u64::MAX };
    let mut leader = leader_of(&[calls(10), calls(1)], None);
    for (seq, budgets) in
        [vec![most; 5], vec![WalletReport { granted: 1, left: 0, spent: 1, ..most }; 2], vec![]].into_iter().enumerate()
    {
        let budgets = by_key(budgets);
        let damaged = MemberReport { budgets, ..report(1, seq as u64 + 1, 0, 0) };
        decide(&mut leader, at(100), &[damaged, needs(2, seq as u64 + 1, 0, 0, u64::MAX)]);
    }
    let mut decided = decide(&mut leader, at(200), &[]);
    for known in decided.snapshot.members.values_mut() {
        known.budgets = by_key([KnownWallet { granted: u64::MAX, outstanding: u64::MAX, spent: u64::MAX }; 3]);
    }
    decided.snapshot.budgets = by_key([i64::MIN, i64::MAX, 0]);
    let mut next = leader_of(&[calls(10), calls(1)], Some(decided.snapshot));
    let mut member = member(OnLoss::Stop);
    let own = next_report(&mut member, at(200));
    // Its call waits for three budgets, of which the leader has two.
    let waiting = by_key([WalletReport { call: 1, need: 1, ..WalletReport::default() }; 3]);
    let waiting = MemberReport { budgets: waiting, ..report(1, 9, 1, 0) };
    let mut decision = decide(&mut next, at(200), &[own, waiting]).decision;
    decision.version = 1_000;
    decision.shares.values_mut().for_each(|given| given.granted = by_key([u64::MAX; 3]));
    assert!(member.on_decision(at(200), &decision));
    let mut admission = admission(&[calls(10)]).0;
    let resource = admission.resources().next().expect("it has one");
    admission.lease_budgets(at(200), resource, &member.wallet_lease(at(200))).expect("known");
    admission.report_budgets(at(200), resource);
}

/// Returns what a member gets that asks for five calls.
fn gets_five(leader: &mut Coordinator, member: u64, now: u64) -> bool {
    granted(&decide(leader, at(now), &[needs(member, 1, 0, 0, 5)])).last() == Some(&5)
}

#[test]
fn a_damaged_report_is_ignored_or_closes_a_budget_for_an_hour_at_most() {
    const MOST: u64 = 1 << 53;
    const HOUR: u64 = 3_600_000;
    let none = WalletReport::default();
    for (damaged, is_ignored) in [
        (WalletReport { left: MOST, ..none }, true),
        (WalletReport { granted: 3, left: 2, spent: 1, ..none }, true),
        (WalletReport { granted: MOST, left: MOST, ..none }, true),
        (WalletReport { granted: 2, spent: MOST, ..none }, false),
    ] {
        let mut leader = leader_of(&[calls(10)], None);
        assert_eq!(granted(&decide(&mut leader, at(0), &[needs(1, 1, 0, 0, 2)])), [2]);
        decide(&mut leader, at(100), &[needs(1, 2, 2, 0, 0)]);
        let damaged = MemberReport { budgets: by_key([damaged]), ..report(1, 3, 2, 0) };
        assert_eq!(granted(&decide(&mut leader, at(100), &[damaged])), [2], "nothing is granted for it");
        assert_eq!(gets_five(&mut leader, 2, 100), is_ignored);
        // The member is lost.
        decide(&mut leader, at(6_000), &[]);
        assert!(gets_five(&mut leader, 3, HOUR + 10_000));
    }
    // A new member is damaged, and lost.
    let mut leader = leader_of(&[calls(10)], None);
    let damaged = WalletReport { granted: MOST, left: MOST, ..none };
    decide(&mut leader, at(0), &[MemberReport { budgets: by_key([damaged]), ..report(1, 1, 0, 0) }]);
    decide(&mut leader, at(6_000), &[]);
    assert!(gets_five(&mut leader, 3, HOUR + 10_000));
    // The snapshot is damaged.
    let wallet = KnownWallet { granted: MOST, outstanding: MOST, spent: MOST };
    let known = KnownMember { seq: 1, ended: 0, in_flight: 0, occupied: 0, budgets: by_key([wallet]) };
    let damaged =
        LeaderSnapshot { members: [(MemberId(1), known)].into(), budgets: by_key([i64::MIN]), ..snapshot(1, 0) };
    let mut leader = leader_of(&[calls(10)], Some(damaged));
    decide(&mut leader, at(6_000), &[]);
    assert!(gets_five(&mut leader, 3, HOUR + 10_000));
}

#[test]
fn grants_of_decisions_that_were_lost_count_from_the_second_report_of_them() {
    let mut leader = leader_of(&[calls(10)], None);
    decide(&mut leader, at(0), &[needs(1, 1, 0, 0, 0)]);
    // Another leader has granted eight in all, of which five are spent.
    for (seq, expected) in [(2, 2), (3, 10)] {
        let last = granted(&decide(&mut leader, at(0), &[needs(1, seq, 8, 5, 2)]));
        assert_eq!(last, [expected]);
    }
    assert!(!gets_five(&mut leader, 2, 0), "none is left");
}

/// Returns a request admission whose budgets are shared.
fn admission(budgets: &[BudgetConfig]) -> (RequestAdmission, ResourceId) {
    let mut admission = RequestAdmission::new(RequestConfig::default()).expect("valid");
    let model = admission.register(at(0), "p", "m", "default", 100).expect("valid");
    let resource = admission.resource(model, Domain::Chat).expect("valid");
    admission.set_budgets(at(0), resource, budgets).expect("valid");
    admission.lease_budgets(at(0), resource, &WalletLease::default()).expect("known");
    (admission, resource)
}

/// Returns a lease of the budget [`calls`].
fn lease(granted: u64, mode: WalletMode) -> WalletLease {
    WalletLease { granted: by_key([granted]), mode }
}

/// Returns the report of a process about the budget [`calls`].
fn reported(admission: &mut RequestAdmission, now: Instant, resource: ResourceId) -> WalletReport {
    admission.report_budgets(now, resource)[&keys()[0]]
}

#[test]
fn a_process_spends_what_was_granted_and_asks_for_what_its_next_call_needs() {
    let tokens = BudgetConfig::per_minute(Dimension::TotalTokens, 1_000);
    let (mut admission, resource) = admission(&[tokens]);
    let request = Request::new(resource).estimated(Usage::tokens(30, 10));
    assert!(matches!(admission.acquire(at(0), &request), AcquireResult::Waiting(_)));
    let waits = Some(crate::request::CallWait::SharedBudget { is_known: true });
    assert_eq!(admission.why_next(at(0), resource), waits);
    assert_eq!(admission.poll_timeout(), None, "only a grant changes this");
    let key = keys()[1];
    let reported = admission.report_budgets(at(0), resource);
    assert_eq!(reported, [(key, WalletReport { granted: 0, left: 0, spent: 0, call: 40, need: 40 })].into());
    let lease = WalletLease { granted: [(key, 60)].into(), mode: WalletMode::Plentiful };
    for _ in 0..2 {
        admission.lease_budgets(at(10), resource, &lease).expect("known");
    }
    let Some(RequestEffect::Granted { lease: granted, .. }) = admission.poll_effect() else { panic!("it is served") };
    let left = |admission: &mut RequestAdmission, now| {
        let report = admission.report_budgets(now, resource).into_values().next().unwrap_or_default();
        (report.granted, report.left, report.spent)
    };
    assert_eq!(left(&mut admission, at(10)), (60, 20, 40));
    // It has used 45: five more than its estimate.
    let done = crate::request::Completion::from(Outcome::Success).used(Usage::tokens(30, 15));
    let _ = admission.release(at(20), granted, &done);
    assert_eq!(left(&mut admission, at(20)), (60, 15, 45));
    // A provider that counts more lowers the wallet. What it says can never raise it.
    let says =
        |remaining| RateLimitFeedback { remaining: Some(remaining), ..RateLimitFeedback::of(Dimension::TotalTokens) };
    admission.correct_budget(at(20), resource, &says(900));
    assert_eq!(left(&mut admission, at(20)), (60, 15, 45));
    admission.correct_budget(at(20), resource, &says(10));
    assert_eq!(left(&mut admission, at(20)), (60, 10, 50));
    // If the budgets are set again without a change, or with another one, nothing is won.
    admission.set_budgets(at(20), resource, &[tokens]).expect("valid");
    assert_eq!(left(&mut admission, at(20)), (60, 10, 50));
    admission.set_budgets(at(20), resource, &[calls(5)]).expect("valid");
    admission.lease_budgets(at(20), resource, &lease).expect("known");
    assert_eq!(left(&mut admission, at(20)), (0, 0, 0), "another one");
    admission.set_budgets(at(20), resource, &[tokens]).expect("valid");
    admission.lease_budgets(at(20), resource, &lease).expect("known");
    assert_eq!(left(&mut admission, at(20)), (60, 0, 50), "what was granted before is not granted again");
}

#[test]
fn a_call_for_which_a_grant_does_nothing_asks_for_none() {
    let tokens = BudgetConfig::per_minute(Dimension::TotalTokens, 600);
    let (mut admission, resource) = admission(&[calls(5), tokens]);
    let request = Request::new(resource).estimated(Usage::tokens(10, 0));
    assert!(matches!(admission.acquire(at(0), &request), AcquireResult::Waiting(_)));
    let mut asks = |mode, granted| {
        admission.lease_budgets(at(0), resource, &WalletLease { granted, mode }).expect("known");
        let asked = admission.report_budgets(at(0), resource).into_values();
        asked.map(|report| (report.call, report.need)).collect::<BTreeSet<_>>()
    };
    // The leader does not have the budget of tokens, and then it does.
    assert_eq!(asks(WalletMode::Plentiful, by_key([0])), [(0, 0)].into());
    assert_eq!(asks(WalletMode::Plentiful, by_key([0, 0])), [(1, 1), (10, 10)].into());
    // The process refills its own part of the budgets.
    let calls_of = |asked: BTreeSet<(u64, u64)>| asked.into_iter().map(|(call, _)| call).max();
    assert_eq!(calls_of(asks(WalletMode::Alone { parts: 1 }, by_key([0, 0]))), Some(0));
}

#[test]
fn a_call_that_waited_until_its_deadline_may_be_tried_again_and_one_that_was_cancelled_is_not() {
    for (is_cancelled, asked) in [(false, 1), (true, 0)] {
        let (mut admission, resource) = admission(&[calls(5)]);
        admission.lease_budgets(at(0), resource, &lease(0, WalletMode::Scarce)).expect("known");
        let request = Request::new(resource).within(Duration::from_millis(50));
        let AcquireResult::Waiting(waiter) = admission.acquire(at(0), &request) else { panic!("nothing is granted") };
        if is_cancelled {
            assert!(admission.cancel(at(10), waiter));
        } else {
            admission.handle_timeout(at(50));
            assert!(matches!(admission.poll_effect(), Some(RequestEffect::Denied { .. })));
        }
        assert_eq!(reported(&mut admission, at(90), resource).call, asked);
    }
}

#[test]
fn a_refused_call_returns_its_estimate_to_the_leader_and_not_to_the_wallet() {
    let (mut admission, resource) = admission(&[calls(5)]);
    admission.lease_budgets(at(0), resource, &lease(2, WalletMode::Plentiful)).expect("known");
    let granted = admission.try_acquire(at(0), &Request::new(resource)).expect("two were granted");
    let _ = admission.release(at(10), granted, &Outcome::RateLimited.into());
    let report = reported(&mut admission, at(10), resource);
    assert_eq!((report.left, report.spent), (1, 0));
}

#[test]
fn amounts_of_a_lapsed_lease_are_handed_back_and_scarce_ones_if_they_are_not_used() {
    let left = |mode| {
        let (mut admission, resource) = admission(&[calls(5)]);
        admission.lease_budgets(at(0), resource, &lease(5, WalletMode::Plentiful)).expect("known");
        admission.lease_budgets(at(10), resource, &lease(7, mode)).expect("known");
        reported(&mut admission, at(10), resource).left
    };
    assert_eq!(left(WalletMode::Plentiful), 7);
    assert_eq!(left(WalletMode::Scarce), 0);
    assert_eq!(left(WalletMode::Closed), 0);
}

#[test]
fn a_process_that_has_lost_the_others_spends_its_part_from_then_on() {
    let (mut admission, resource) = admission(&[calls(10)]);
    admission.lease_budgets(at(0), resource, &lease(8, WalletMode::Plentiful)).expect("known");
    let alone = lease(8, WalletMode::Alone { parts: 2 });
    for _ in 0..2 {
        admission.lease_budgets(at(1_000), resource, &alone).expect("known");
    }
    let mut start = |now| {
        let mut count = 0;
        while let Ok(granted) = admission.try_acquire(at(now), &Request::new(resource)) {
            let _ = admission.release(at(now), granted, &Outcome::Success.into());
            count += 1;
        }
        count
    };
    assert_eq!([1_000, 1_400, 9_000].map(&mut start), [0, 2, 5], "five a second, and five at once");
    admission.lease_budgets(at(20_000), resource, &lease(9, WalletMode::Plentiful)).expect("known");
    let report = reported(&mut admission, at(20_000), resource);
    assert_eq!((report.left, report.spent), (1, 0), "what it spent alone is not counted");
}

#[test]
fn budgets_that_change_while_the_others_are_lost_begin_empty_and_refill_by_their_part() {
    let tokens = BudgetConfig::per_minute(Dimension::TotalTokens, 60_000);
    // The budget is removed and added, or another one is added.
    for steps in [vec![vec![], vec![calls(10)]], vec![vec![calls(10), tokens]]] {
        let (mut admission, resource) = admission(&[calls(10)]);
        let alone = lease(8, WalletMode::Alone { parts: 2 });
        admission.lease_budgets(at(1_000), resource, &alone).expect("known");
        for budgets in steps {
            admission.set_budgets(at(5_000), resource, &budgets).expect("valid");
        }
        let mut starts = |now| {
            let mut count = 0;
            while let Ok(granted) = admission.try_acquire(at(now), &Request::new(resource)) {
                let _ = admission.release(at(now), granted, &Outcome::Success.into());
                count += 1;
            }
            admission.lease_budgets(at(now), resource, &alone).expect("known");
            count
        };
        assert_eq!([5_000, 5_000, 5_400, 9_000].map(&mut starts), [0, 0, 2, 5], "five a second, and five at once");
    }
}

#[test]
fn the_lease_of_a_member_follows_its_state() {
    for (on_loss, lost) in [
        (OnLoss::Share, WalletMode::Alone { parts: 2 }),
        (OnLoss::Alone, WalletMode::Alone { parts: 1 }),
        (OnLoss::Stop, WalletMode::Closed),
    ] {
        let mut member = member(on_loss);
        assert_eq!(member.wallet_lease(at(0)).mode, WalletMode::Closed);
        let own = next_report(&mut member, at(0));
        let mut leader = leader(4, None);
        let decided = decide(&mut leader, at(0), &[own, report(2, 1, 0, 0)]).decision;
        member.on_decision(at(10), &decided);
        assert_eq!(member.wallet_lease(at(10)).mode, WalletMode::Plentiful);
        beat(&mut member, 10, 4_990);
        let modes = [4_999, 5_000, 5_009].map(|now| member.wallet_lease(at(now)).mode);
        assert_eq!(modes, [WalletMode::Plentiful, WalletMode::Closed, WalletMode::Closed], "{on_loss:?}");
        beat(&mut member, 5_010, 5_110);
        assert_eq!(member.wallet_lease(at(5_110)).mode, lost, "{on_loss:?}");
        member.leave(at(5_110));
        assert_eq!(member.wallet_lease(at(5_110)).mode, WalletMode::Closed);
    }
}
