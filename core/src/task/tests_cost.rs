//! The number of evaluations of the policy in one cycle does not grow with the number of waiting groups.

use std::cell::Cell;
use std::collections::VecDeque;
use std::format;
use std::rc::Rc;
use std::vec;

use super::*;
use crate::error::ConfigError;

/// A policy that counts its evaluations.
#[derive(Debug)]
struct Counted<P> {
    policy: P,
    evaluations: Rc<Cell<u64>>,
}

impl<P: TaskPolicy> TaskPolicy for Counted<P> {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<PolicyGrant, PolicyDenial> {
        self.evaluations.set(self.evaluations.get() + 1);
        self.policy.evaluate(view)
    }

    fn repaid(&self, resource: TaskResourceId, amount: u32) -> u32 {
        self.policy.repaid(resource, amount)
    }

    fn group_registered(
        &mut self,
        id: TaskGroupId,
        group: &TaskGroup,
        find: &dyn Fn(&str) -> Option<TaskResourceId>,
    ) -> Result<(), ConfigError> {
        self.policy.group_registered(id, group, find)
    }
}

fn bounded(config: BoundedBorrowConfig) -> BoundedBorrow {
    BoundedBorrow::new(config).expect("settings in range")
}

/// Returns the evaluations per cycle over 1000 cycles. A cycle is a release, all dispatches that are
/// possible, and an enqueue. All of the `count` groups wait for the eight slots that are cycled, `amount`
/// slots per task.
fn evaluations_per_cycle(policy: impl TaskPolicy, count: usize, amount: u32) -> u64 {
    const CYCLES: u64 = 1_000;
    let evaluations = Rc::new(Cell::new(0));
    let policy = Counted { policy, evaluations: Rc::clone(&evaluations) };
    let limits = TaskConfig { resources: vec![("slots".into(), 8)], ..TaskConfig::default() };
    let mut tasks = Dispatcher::with_policy(limits, policy).expect("limits above 0");
    let demand = tasks.demand(&[("slots", amount)]).expect("a demand that fits");
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
    let before = evaluations.get();
    for _ in 0..CYCLES {
        let done = running.pop_front().expect("the slots are always taken between two cycles");
        let _ = tasks.release(done.lease);
        dispatch(&mut tasks, &mut running);
        tasks.enqueue(done.task, groups[done.task as usize / 2], demand);
    }
    (evaluations.get() - before).div_ceil(CYCLES)
}

#[test]
fn a_cycle_needs_as_many_evaluations_for_many_groups_as_for_few() {
    for groups in [16, 10_000] {
        assert!(evaluations_per_cycle(StrictFair, groups, 1) <= 2);
        assert!(evaluations_per_cycle(bounded(BoundedBorrowConfig::default()), groups, 1) <= 2);
    }
}

#[test]
fn groups_that_the_policy_refused_are_not_evaluated_again_in_every_cycle() {
    // Five of eight is above every share, so tasks run only by override, one at a time.
    for groups in [16, 10_000] {
        assert!(evaluations_per_cycle(bounded(BoundedBorrowConfig::default()), groups, 5) <= 3);
    }
}
