use std::vec::Vec;

use super::*;
use crate::lease::{LeaseId, ReleaseResult};

fn model(name: &str, admitted_limit: u32) -> TaskGroup {
    TaskGroup { admitted_limit: Some(admitted_limit), ..TaskGroup::model("provider", name, 1.0) }
}

fn tasks(submission_limit: u32, resources: &[(&str, u32)]) -> Dispatcher {
    let resources = resources.iter().map(|(name, limit)| ((*name).into(), *limit)).collect();
    Dispatcher::new(TaskConfig { submission_limit, resources, ..TaskConfig::default() }).expect("valid limits")
}

fn drain(tasks: &mut Dispatcher) -> Vec<Dispatched> {
    core::iter::from_fn(|| tasks.dispatch()).collect()
}

fn ids(dispatched: &[Dispatched]) -> Vec<u64> {
    dispatched.iter().map(|one| one.task).collect()
}

#[test]
fn a_group_takes_all_capacity_while_no_other_group_could_start() {
    let mut tasks = tasks(4, &[("llm_wait", 4)]);
    let group = tasks.group(&model("a", 1)).expect("a valid group");
    let demand = tasks.demand(&[("llm_wait", 1)]).expect("a demand that fits");
    for task in 0..9 {
        tasks.enqueue(task, group, demand);
    }
    assert_eq!(ids(&drain(&mut tasks)), [0, 1, 2, 3]);
}

#[test]
fn a_group_at_its_limit_waits_while_another_group_could_start() {
    let mut tasks = tasks(9, &[("llm_wait", 4)]);
    let [hot, late] = ["hot", "late"].map(|name| tasks.group(&model(name, 2)).expect("a valid group"));
    let demand = tasks.demand(&[("llm_wait", 1)]).expect("a demand that fits");
    for task in 0..9 {
        tasks.enqueue(task, hot, demand);
    }
    let mut running = drain(&mut tasks);
    for task in 100..109 {
        tasks.enqueue(task, late, demand);
    }
    for _ in 0..2 {
        let _ = tasks.release(running.remove(0).lease);
    }
    assert_eq!(ids(&drain(&mut tasks)), [100, 101], "the hot group still holds its two");
}

#[test]
fn a_group_that_could_not_start_does_not_compete() {
    let mut tasks = tasks(9, &[("llm_wait", 4), ("gpu", 1)]);
    let [hot, blocked] = ["hot", "blocked"].map(|name| tasks.group(&model(name, 1)).expect("a valid group"));
    let plain = tasks.demand(&[("llm_wait", 1)]).expect("a demand that fits");
    let heavy = tasks.demand(&[("llm_wait", 1), ("gpu", 1)]).expect("a demand that fits");
    tasks.enqueue(1, blocked, heavy);
    tasks.enqueue(2, blocked, heavy);
    let holder = tasks.dispatch().expect("the accelerator is free");
    for task in 10..13 {
        tasks.enqueue(task, hot, plain);
    }
    assert_eq!(ids(&drain(&mut tasks)), [10, 11, 12]);
    let _ = tasks.release(holder.lease);
}

#[test]
fn competition_for_submission_counts_only_for_tasks_that_need_nothing_else() {
    let mut tasks = tasks(9, &[("llm_wait", 4)]);
    let hot = tasks.group(&model("hot", 1)).expect("a valid group");
    let local =
        tasks.group(&TaskGroup { admitted_limit: Some(1), ..TaskGroup::local("local") }).expect("a valid group");
    let wait = tasks.demand(&[("llm_wait", 1)]).expect("a demand that fits");
    let plain = tasks.demand::<&str>(&[]).expect("a demand that fits");
    for task in 0..3 {
        tasks.enqueue(task, hot, wait);
        tasks.enqueue(10 + task, local, plain);
    }
    assert_eq!(
        ids(&drain(&mut tasks)),
        [0, 10, 1, 2, 11, 12],
        "the local group waits until the hot one has no queued task"
    );
}

#[test]
fn a_demand_is_leased_as_a_whole_or_not_at_all() {
    let mut tasks = tasks(9, &[("gpu", 3)]);
    let group = tasks.group(&TaskGroup::local("render")).expect("a valid group");
    let two = tasks.demand(&[("gpu", 2)]).expect("a demand that fits");
    tasks.enqueue(1, group, two);
    tasks.enqueue(2, group, two);
    assert_eq!(ids(&drain(&mut tasks)), [1]);
    assert_eq!(tasks.usage().collect::<Vec<_>>(), [("submission", 1, 9), ("gpu", 2, 3)]);
    assert_eq!(std::format!("{}", tasks.why_blocked()), "1 queued; 1 group(s): a resource is fully leased: `gpu`");
}

#[test]
fn a_demand_that_could_never_be_met_is_rejected_with_the_resource_name() {
    let mut tasks = tasks(2, &[("gpu", 1)]);
    let refused = |error: DemandError| std::format!("{error}");
    let mut ask = |name, amount| tasks.demand(&[(name, amount)]).map_err(refused);
    assert_eq!(ask("gpus", 1), Err("there is no resource `gpus`; known are submission, gpu".into()));
    assert_eq!(ask("gpu", 2), Err("2 of `gpu` is more than its limit of 1".into()));
    assert_eq!(ask("gpu", 0), Err("the amount of `gpu` is 0; expected at least 1".into()));
}

#[test]
fn a_second_release_changes_nothing() {
    let mut tasks = tasks(1, &[]);
    let group = tasks.group(&TaskGroup::local("one")).expect("a valid group");
    let demand = tasks.demand::<&str>(&[]).expect("a demand that fits");
    tasks.enqueue(7, group, demand);
    let lease = tasks.dispatch().expect("there is room").lease;
    let id = lease.id();
    let forged = LeaseId { item: 8, ..id };
    assert_eq!(tasks.release(TaskLease::from_id(forged)), ReleaseResult::Stale);
    assert_eq!(tasks.release(lease), ReleaseResult::Released);
    assert_eq!(tasks.release(TaskLease::from_id(id)), ReleaseResult::Duplicate);
    assert_eq!((tasks.active_leases(), tasks.running_in(group)), (0, 0));
}

#[test]
fn a_thousand_groups_that_wait_for_one_resource_are_served_in_turn_as_it_is_cycled() {
    let mut tasks = tasks(1, &[]);
    let demand = tasks.demand::<&str>(&[]).expect("a demand that fits");
    for at in 0..1_000 {
        let group = tasks.group(&model(&std::format!("{at}"), 1)).expect("a valid group");
        tasks.enqueue(at, group, demand);
    }
    for expected in 0..1_000 {
        let one = tasks.dispatch().expect("one slot is free");
        assert_eq!(one.task, expected);
        assert_eq!(tasks.dispatch(), None);
        let _ = tasks.release(one.lease);
    }
}
