use std::format;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use super::*;

fn tasks(resources: &[(&str, u32)], config: BoundedBorrowConfig) -> Dispatcher<BoundedBorrow> {
    let resources = resources.iter().map(|(name, limit)| ((*name).to_string(), *limit)).collect();
    let limits = TaskConfig { submission_limit: 100, resources, ..TaskConfig::default() };
    Dispatcher::with_policy(limits, BoundedBorrow::new(config).expect("settings in range")).expect("limits above 0")
}

fn groups<P: TaskPolicy, const N: usize>(tasks: &mut Dispatcher<P>, names: [&str; N]) -> [TaskGroupId; N] {
    names.map(|name| {
        let spec = TaskGroup { admitted_limit: Some(100), ..TaskGroup::local(name) };
        tasks.group(&spec).expect("a valid group")
    })
}

fn ids<P: TaskPolicy>(tasks: &mut Dispatcher<P>, most: usize) -> (Vec<u64>, Vec<TaskLease>) {
    let started: Vec<Dispatched> = core::iter::from_fn(|| tasks.dispatch()).take(most).collect();
    started.into_iter().map(|one| (one.task, one.lease)).unzip()
}

fn debt_on<P: TaskPolicy>(tasks: &Dispatcher<P>, group: TaskGroupId, resource: &str) -> u32 {
    tasks.debts_of(group).find(|(name, _)| *name == resource).map_or(0, |(_, debt)| debt)
}

#[test]
fn a_group_without_competitors_borrows_up_to_its_ceiling_and_every_release_repays() {
    let mut tasks = tasks(&[("llm", 8)], BoundedBorrowConfig { default_ceiling: Some(2), ..Default::default() });
    let [hot] = groups(&mut tasks, ["hot"]);
    let demand = tasks.demand(&[("llm", 1)]).expect("a demand that fits");
    for task in 0..10 {
        tasks.enqueue(task, hot, demand);
    }
    let (started, mut leases) = ids(&mut tasks, 99);
    assert_eq!((started.len(), debt_on(&tasks, hot, "llm")), (6, 2), "half is its own, two are borrowed");
    let why = "4 queued; 1 group(s): the group may borrow no more: `llm` (holds 6, requests 1, share 4, debt 2, debt at most 2)";
    assert_eq!(tasks.why_blocked().to_string(), why);
    let _ = tasks.release(leases.remove(0));
    assert_eq!(debt_on(&tasks, hot, "llm"), 1);
    assert_eq!(ids(&mut tasks, 99).0, [6]);
}

#[test]
fn the_release_of_a_lease_that_did_not_borrow_repays_the_debt_of_its_group() {
    let mut tasks = tasks(&[("llm", 4)], BoundedBorrowConfig::default());
    let [hot] = groups(&mut tasks, ["hot"]);
    let demand = tasks.demand(&[("llm", 1)]).expect("a demand that fits");
    for task in 0..3 {
        tasks.enqueue(task, hot, demand);
    }
    let (_, mut leases) = ids(&mut tasks, 99);
    assert_eq!(debt_on(&tasks, hot, "llm"), 1, "the third borrowed");
    let _ = tasks.release(leases.remove(0));
    assert_eq!(debt_on(&tasks, hot, "llm"), 0, "and the release of the first, which did not, repays it");
    let _ = tasks.release(leases.remove(0));
    assert_eq!(debt_on(&tasks, hot, "llm"), 0, "never below 0");
}

#[test]
fn a_group_in_debt_waits_while_a_peer_could_start() {
    let mut tasks = tasks(&[("llm", 8)], BoundedBorrowConfig::default());
    let [hot, late] = groups(&mut tasks, ["hot", "late"]);
    let demand = tasks.demand(&[("llm", 1)]).expect("a demand that fits");
    for task in 0..9 {
        tasks.enqueue(task, hot, demand);
    }
    let (_, mut leases) = ids(&mut tasks, 99);
    assert_eq!(leases.len(), 8);
    for task in 100..103 {
        tasks.enqueue(task, late, demand);
    }
    let _ = tasks.release(leases.remove(0));
    let denial = tasks.evaluate(hot, demand).expect_err("its debt is three");
    assert_eq!((denial.reason, denial.figures.map(|figures| figures.debt)), (TaskDenialReason::BorrowDebt, Some(3)));
    let text = "the group has to repay a debt while another group could start: `llm` \
                (holds 7, requests 1, share 4, debt 3)";
    assert_eq!(denial.to_string(), text);
    assert_eq!(ids(&mut tasks, 99).0, [100]);
}

#[test]
fn two_groups_that_each_need_more_than_their_share_do_not_block_each_other_for_ever() {
    let five_each = |compatibility| {
        let limits = TaskConfig { resources: vec![("gpu".into(), 8)], compatibility, ..TaskConfig::default() };
        let policy = BoundedBorrow::new(BoundedBorrowConfig::default()).expect("the defaults are valid");
        let mut tasks = Dispatcher::with_policy(limits, policy).expect("limits above 0");
        let five = tasks.demand(&[("gpu", 5)]).expect("a demand that fits");
        for (task, group) in (0..).zip(groups(&mut tasks, ["a", "b"])) {
            tasks.enqueue(task, group, five);
        }
        tasks
    };
    let mut tasks = five_each(false);
    let first = tasks.dispatch().expect("nothing runs, so one task may start");
    assert_eq!((first.task, tasks.liveness_overrides()), (0, 1));
    assert_eq!(tasks.dispatch(), None, "something runs");
    let _ = tasks.release(first.lease);
    let second = tasks.dispatch().expect("no other group competes now: a share of 4 and one borrowed");
    assert_eq!((second.task, tasks.liveness_overrides()), (1, 1));

    let mut recorded = five_each(true);
    assert_eq!(recorded.dispatch(), None);
    let text = "2 queued; 2 group(s): the group is at its limit while another group could start: `gpu` \
                (holds 0, requests 5, share 4, debt 0)";
    assert_eq!(recorded.why_blocked().to_string(), text);
}

#[test]
fn groups_in_debt_that_cannot_repay_do_not_block_each_other_for_ever() {
    let mut tasks = tasks(&[("llm", 4)], BoundedBorrowConfig { repays_on_release: false, ..Default::default() });
    let [a, b] = groups(&mut tasks, ["a", "b"]);
    let demand = tasks.demand(&[("llm", 1)]).expect("a demand that fits");
    for group in [a, b] {
        for task in 0..3 {
            tasks.enqueue(task, group, demand);
        }
        for lease in ids(&mut tasks, 3).1 {
            let _ = tasks.release(lease);
        }
        assert_eq!(debt_on(&tasks, group, "llm"), 1);
    }
    for task in 0..3 {
        tasks.enqueue(10 + task, a, demand);
        tasks.enqueue(20 + task, b, demand);
    }
    for (expected, overrides) in [(10, 1), (20, 2), (11, 3), (21, 4), (12, 5)] {
        let one = tasks.dispatch().expect("nothing runs, so one task may start");
        assert_eq!((one.task, tasks.liveness_overrides()), (expected, overrides));
        let _ = tasks.release(one.lease);
    }
    assert_eq!(ids(&mut tasks, 9).0, [22]);
    assert_eq!(tasks.liveness_overrides(), 5, "the last task has no competitor, so its debt does not matter");
}

#[test]
fn a_group_is_woken_when_its_share_grows_because_others_left() {
    let mut tasks = tasks(&[("gpu", 12)], BoundedBorrowConfig::default());
    let [big, b, c] = groups(&mut tasks, ["big", "b", "c"]);
    let four = tasks.demand(&[("gpu", 4)]).expect("a demand that fits");
    let three = tasks.demand(&[("gpu", 3)]).expect("a demand that fits");
    let five = tasks.demand(&[("gpu", 5)]).expect("a demand that fits");
    tasks.enqueue(1, big, five);
    tasks.enqueue(2, b, five);
    tasks.enqueue(3, c, three);
    tasks.enqueue(4, c, four);
    assert_eq!(ids(&mut tasks, 1).0, [3], "five are above a third of twelve");
    assert_eq!(tasks.dispatch(), None);
    assert!(tasks.discard(4));
    assert_eq!(ids(&mut tasks, 1).0, [1], "and below a half");
}

#[test]
fn a_group_in_debt_is_woken_when_its_share_falls_and_its_ceiling_rises() {
    let limits = TaskConfig { submission_limit: 12, resources: vec![("gpu".into(), 100)], ..TaskConfig::default() };
    let settings = BoundedBorrowConfig { repays_on_release: false, ..Default::default() };
    let mut tasks = Dispatcher::with_policy(limits, BoundedBorrow::new(settings).expect("valid")).expect("valid");
    let [a, b, c] = groups(&mut tasks, ["a", "b", "c"]);
    let gpu = tasks.demand(&[("gpu", 1)]).expect("a demand that fits");
    let plain = tasks.demand::<&str>(&[]).expect("a demand that fits");
    for task in 0..30 {
        tasks.enqueue(task, a, gpu);
    }
    let (started, leases) = ids(&mut tasks, 99);
    assert_eq!((started.len(), debt_on(&tasks, a, "submission")), (12, 6));
    for lease in leases {
        let _ = tasks.release(lease);
    }
    let (started, _leases) = ids(&mut tasks, 99);
    assert_eq!(
        started,
        [12, 13, 14, 15, 16, 17],
        "a seventh would be a debt of seven, and above its half only six are possible"
    );
    for task in 0..5 {
        tasks.enqueue(100 + task, b, plain);
        tasks.enqueue(200 + task, c, plain);
    }
    assert_eq!(ids(&mut tasks, 3).0, [100, 200, 18], "above a third of twelve, a debt of eight is possible");
}

#[test]
fn weights_below_one_are_not_rounded() {
    let mut tasks = tasks(&[("llm", 8)], BoundedBorrowConfig::default());
    let demand = tasks.demand(&[("llm", 1)]).expect("a demand that fits");
    let shares = [("light", 0.25), ("heavy", 0.75)].map(|(name, weight)| {
        let spec = TaskGroup { weight, admitted_limit: Some(8), ..TaskGroup::local(name) };
        tasks.group(&spec).expect("a valid group")
    });
    for task in 0..20 {
        tasks.enqueue(task, shares[0], demand);
        tasks.enqueue(100 + task, shares[1], demand);
    }
    let _running = ids(&mut tasks, 99);
    assert_eq!(shares.map(|group| tasks.running_in(group)), [2, 6]);
}

#[test]
fn a_group_without_an_admitted_limit_is_never_refused_and_never_has_debt() {
    let mut tasks = tasks(&[("llm", 4)], BoundedBorrowConfig { default_ceiling: Some(0), ..Default::default() });
    let [peer] = groups(&mut tasks, ["peer"]);
    let free = tasks.group(&TaskGroup::local("free")).expect("a valid group");
    let demand = tasks.demand(&[("llm", 1)]).expect("a demand that fits");
    for task in 0..4 {
        tasks.enqueue(task, free, demand);
    }
    tasks.enqueue(9, peer, demand);
    assert_eq!(ids(&mut tasks, 9).0.len(), 4);
    assert_eq!(tasks.debts_of(free).count(), 0);
}

#[test]
fn the_ceiling_of_a_group_and_resource_overrides_the_default_ceiling() {
    let ceiling = BorrowCeiling {
        kind: GroupKind::Local,
        identity: vec!["trusted".to_string()],
        resource: "llm".to_string(),
        ceiling: 3,
    };
    let settings = BoundedBorrowConfig { ceilings: vec![ceiling], default_ceiling: Some(0), ..Default::default() };
    let mut tasks = tasks(&[("llm", 8)], settings);
    let [trusted, other] = groups(&mut tasks, ["trusted", "other"]);
    let demand = tasks.demand(&[("llm", 1)]).expect("a demand that fits");
    for (group, expected) in [(other, 4), (trusted, 7)] {
        for task in 0..9 {
            tasks.enqueue(task, group, demand);
        }
        let (started, leases) = ids(&mut tasks, 99);
        assert_eq!(started.len(), expected);
        tasks.discard_where(|_| true);
        for lease in leases {
            let _ = tasks.release(lease);
        }
    }
}

#[test]
fn settings_of_bounded_borrowing_out_of_range_are_rejected_with_the_field_name() {
    let refused = |config| BoundedBorrow::new(config).map(|_| ()).expect_err("out of range").to_string();
    let defaults = BoundedBorrowConfig::default;
    let fraction = |reserve_fraction| BoundedBorrowConfig { reserve_fraction, ..defaults() };
    assert_eq!(refused(fraction(1.5)), "`reserve_fraction` is 1.5; expected a number from 0 to 1");
    assert_eq!(refused(fraction(f64::NAN)), "`reserve_fraction` is NaN; expected a number from 0 to 1");
    let none = BoundedBorrowConfig { max_reserved: 0, ..defaults() };
    assert_eq!(refused(none), "`max_reserved` is 0; expected at least 1");
    let ceiling = BorrowCeiling {
        kind: GroupKind::Local,
        identity: vec!["a".to_string()],
        resource: "lmm".to_string(),
        ceiling: 1,
    };
    let twice = BoundedBorrowConfig { ceilings: vec![ceiling.clone(), ceiling.clone()], ..defaults() };
    assert_eq!(refused(twice), "`ceilings` is lmm; expected each resource of a group once");

    let mut tasks = tasks(&[("llm", 8)], BoundedBorrowConfig { ceilings: vec![ceiling], ..defaults() });
    let error = tasks.group(&TaskGroup::local("a")).expect_err("its ceiling is for an unknown resource");
    assert_eq!(error.to_string(), "`ceilings` is lmm; expected a resource that exists");
    assert!(tasks.group(&TaskGroup::local("b")).is_ok());
}

#[test]
fn the_tasks_of_an_unchecked_demand_that_can_never_be_met_wait_for_capacity() {
    let mut tasks = tasks(&[("gpu", 2)], BoundedBorrowConfig::default());
    let [group] = groups(&mut tasks, ["group"]);
    let above = tasks.demand_unchecked(&[("gpu", 3)]).expect("an amount above 0");
    let unknown = tasks.demand_unchecked(&[("tpu", 1)]).expect("an amount above 0");
    assert!(tasks.demand_unchecked(&[("gpu", 0)]).is_err());
    tasks.enqueue(1, group, above);
    assert_eq!(tasks.dispatch(), None, "not even while nothing runs");
    assert_eq!(tasks.why_blocked().to_string(), "1 queued; 1 group(s): a resource is fully leased: `gpu`");
    let denial = tasks.evaluate(group, unknown).expect_err("the resource has a limit of 0");
    assert_eq!((denial.reason, denial.resource.as_deref()), (TaskDenialReason::NoCapacity, Some("tpu")));
    assert_eq!(tasks.usage().last(), Some(("tpu", 0, 0)));
}

#[test]
fn a_group_with_a_raised_limit_is_evaluated_again() {
    let mut tasks = Dispatcher::new(TaskConfig::default()).expect("the defaults are valid");
    let spec = |limit| TaskGroup { admitted_limit: Some(limit), ..TaskGroup::local("hot") };
    let hot = tasks.group(&spec(1)).expect("a valid group");
    let [peer] = groups(&mut tasks, ["peer"]);
    let demand = tasks.demand::<&str>(&[]).expect("a demand that fits");
    let all_slots = tasks.demand(&[("submission", 1024)]).expect("a demand that fits");
    tasks.enqueue(1, hot, demand);
    tasks.enqueue(2, hot, demand);
    let _running = tasks.dispatch();
    tasks.enqueue(3, peer, demand);
    tasks.enqueue(4, peer, all_slots);
    assert_eq!(tasks.evaluate(hot, demand).map_err(|denial| denial.reason), Err(TaskDenialReason::GroupCap));
    assert_eq!(tasks.group(&spec(2)), Ok(hot));
    assert_eq!(tasks.evaluate(hot, demand), Ok(()));
    assert_eq!(ids(&mut tasks, 9).0, [3, 2]);
}

/// A policy that starts a task only while no task runs.
#[derive(Debug)]
struct OneAtATime;

impl TaskPolicy for OneAtATime {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<PolicyGrant, PolicyDenial> {
        let is_idle = view.demands().all(|(resource, _)| view.leased(resource) == 0);
        if is_idle { Ok(PolicyGrant::unlimited()) } else { Err(TaskDenialReason::Policy.into()) }
    }
}

#[test]
fn a_custom_policy_is_evaluated_again_after_every_change() {
    let mut tasks = Dispatcher::with_policy(TaskConfig::default(), OneAtATime).expect("the defaults are valid");
    let demand = tasks.demand::<&str>(&[]).expect("a demand that fits");
    for (task, group) in (0..).zip(groups(&mut tasks, ["a", "b", "c"])) {
        tasks.enqueue(task, group, demand);
    }
    for expected in 0..3 {
        let (started, mut leases) = ids(&mut tasks, 9);
        assert_eq!(started, [expected]);
        let _ = tasks.release(leases.remove(0));
    }
    assert_eq!(tasks.liveness_overrides(), 0);
}

#[test]
fn nothing_starts_after_a_shutdown_and_the_denial_is_shutdown() {
    let mut tasks = tasks(&[], BoundedBorrowConfig::default());
    let [group] = groups(&mut tasks, ["group"]);
    let demand = tasks.demand::<&str>(&[]).expect("a demand that fits");
    tasks.enqueue(1, group, demand);
    tasks.shutdown();
    assert_eq!(tasks.dispatch(), None);
    assert_eq!(format!("{}", tasks.why_blocked()), "1 queued; 1 group(s): task admission is shut down");
}
