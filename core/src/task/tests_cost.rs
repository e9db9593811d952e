//! What a cycle costs, in questions to the policy: it does not grow with the groups that wait.

use std::cell::Cell;
use std::collections::VecDeque;
use std::format;
use std::rc::Rc;
use std::vec;

use super::*;
use crate::error::ConfigError;

/// A policy that counts how often it is asked.
#[derive(Debug)]
struct Counted<P> {
    policy: P,
    asked: Rc<Cell<u64>>,
}

impl<P: TaskPolicy> TaskPolicy for Counted<P> {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<Allowed, Refusal> {
        self.asked.set(self.asked.get() + 1);
        self.policy.evaluate(view)
    }

    fn repaid(&self, resource: ResourceId, amount: u32) -> u32 {
        self.policy.repaid(resource, amount)
    }

    fn group_registered(
        &mut self,
        id: TaskGroupId,
        group: &TaskGroup,
        find: &dyn Fn(&str) -> Option<ResourceId>,
    ) -> Result<(), ConfigError> {
        self.policy.group_registered(id, group, find)
    }
}

fn bounded(config: BoundedBorrowConfig) -> BoundedBorrow {
    BoundedBorrow::new(config).expect("settings in range")
}

/// Questions for each of 1000 cycles (a release, all that may start, an enqueue), with `count` groups that
/// all wait for the eight slots that are cycled, `amount` at a time.
fn questions_per_cycle(policy: impl TaskPolicy, count: usize, amount: u32) -> u64 {
    const CYCLES: u64 = 1_000;
    let asked = Rc::new(Cell::new(0));
    let policy = Counted { policy, asked: Rc::clone(&asked) };
    let limits = TaskConfig { resources: vec![("slots".into(), 8)], ..TaskConfig::default() };
    let mut tasks = Dispatcher::with_policy(limits, policy).expect("limits above 0");
    let demand = tasks.demand(&[("slots", amount)]).expect("it fits");
    let mut groups = vec![];
    for group in 0..count {
        let id = tasks.group(&TaskGroup::model("provider", &format!("{group}"), 1.0)).expect("a valid group");
        tasks.enqueue(2 * group as u64, id, demand);
        tasks.enqueue(2 * group as u64 + 1, id, demand);
        groups.push(id);
    }
    let mut running = VecDeque::new();
    let dispatch = |tasks: &mut Dispatcher<_>, running: &mut VecDeque<_>| {
        while let Some(started) = tasks.dispatch() {
            running.push_back(started);
        }
    };
    dispatch(&mut tasks, &mut running);
    let before = asked.get();
    for _ in 0..CYCLES {
        let done = running.pop_front().expect("the slots are always taken between two cycles");
        let _ = tasks.release(done.lease);
        dispatch(&mut tasks, &mut running);
        tasks.enqueue(done.task, groups[done.task as usize / 2], demand);
    }
    (asked.get() - before).div_ceil(CYCLES)
}

#[test]
fn a_cycle_asks_the_policy_as_often_for_many_groups_as_for_few() {
    for groups in [16, 10_000] {
        assert!(questions_per_cycle(StrictFair, groups, 1) <= 2);
        assert!(questions_per_cycle(bounded(BoundedBorrowConfig::default()), groups, 1) <= 2);
    }
}

#[test]
fn groups_that_the_policy_holds_back_are_not_asked_again_with_every_cycle() {
    // Five of eight are above every share, so all that runs runs by override, one at a time.
    for groups in [16, 10_000] {
        assert!(questions_per_cycle(bounded(BoundedBorrowConfig::default()), groups, 5) <= 3);
    }
}
