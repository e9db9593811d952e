//! Tests of the cost of the queue and of its users, in operations. Time on a shared machine proves nothing.

use std::collections::VecDeque;
use std::string::ToString;
use std::vec::Vec;

use super::work::{self, Work};
use super::*;
use crate::request::{
    AcquireResult, Domain, Outcome, Request, RequestAdmission, RequestConfig, RequestEffect, RequestLease,
};
use crate::task::{Dispatcher, TaskConfig, TaskGroup, TaskLease};
use crate::time::{Duration, Instant};

const CYCLES: u64 = 2_000;
const SLOTS: usize = 4;

/// Returns the work of `CYCLES` cycles of `subject`, after as many cycles to warm up.
fn of_cycles(mut subject: impl FnMut()) -> Work {
    (0..CYCLES).for_each(|_| subject());
    work::of(|| (0..CYCLES).for_each(|_| subject()))
}

fn ratio(many: Work, few: Work) -> f64 {
    many.steps as f64 / few.steps as f64
}

/// Groups of different weights that all wait for one resource without a free slot.
struct Cycle {
    queue: FairQueue,
    class: ClassId,
    set: BlockedSetId,
    running: VecDeque<(u64, QueueGroupId)>,
    free: usize,
}

impl Cycle {
    fn new(groups: usize) -> Self {
        let mut queue = FairQueue::new();
        let (class, set) = (queue.add_class(), queue.add_blocked_set());
        let groups: Vec<_> = (0..groups).map(|at| queue.add_group([0.3, 1.0, 7.0][at % 3]).expect("valid")).collect();
        for (item, group) in groups.iter().cycle().take(2 * groups.len()).enumerate() {
            queue.enqueue(item as u64, *group, class, 1.0);
        }
        let mut cycle = Self { queue, class, set, running: VecDeque::new(), free: SLOTS };
        cycle.serve();
        cycle
    }

    fn serve(&mut self) {
        let Self { queue, set, free, running, .. } = self;
        while let Some(selection) =
            queue.select(|_| if *free > 0 { Eligibility::Accept } else { Eligibility::ClassBlocked(*set) })
        {
            *free -= 1;
            queue.commit(&selection).expect("nothing changed");
            running.push_back((selection.candidate.item, selection.candidate.group));
        }
    }

    /// Releases one slot, serves the next item, and enqueues the released item again.
    fn turn(&mut self) {
        let (item, group) = self.running.pop_front().expect("the slots are taken between two cycles");
        self.free += 1;
        self.queue.unblock(self.set);
        self.serve();
        self.queue.enqueue(item, group, self.class, 1.0);
    }
}

#[test]
fn a_cycle_at_ten_thousand_groups_costs_at_most_two_and_a_half_times_that_of_eight() {
    let [few, many] = [8, 10_000].map(|groups| {
        let mut cycle = Cycle::new(groups);
        of_cycles(|| cycle.turn())
    });
    assert!(ratio(many, few) <= 2.5, "{many:?} {few:?}");
    assert_eq!(
        (few.offers, many.offers),
        (2 * CYCLES, 2 * CYCLES),
        "a release of one slot offers one head that is accepted and one that is not"
    );
}

#[test]
fn groups_blocked_by_other_resources_cost_nothing() {
    let mut alone = Cycle::new(8);
    let mut crowded = Cycle::new(8);
    let mut item = 1_000_000;
    for blocked in 0..1_000 {
        let (class, set) = (crowded.queue.add_class(), crowded.queue.add_blocked_set());
        for _ in 0..10 {
            let group = crowded.queue.add_group(1.0).expect("valid");
            crowded.queue.enqueue(item, group, class, 1.0);
            item += 1;
        }
        let selected = crowded
            .queue
            .select(|head| if head.class == class { Eligibility::ClassBlocked(set) } else { Eligibility::Skip });
        assert_eq!(selected, None, "resource {blocked} has no room");
    }
    let few = of_cycles(|| alone.turn());
    let many = of_cycles(|| crowded.turn());
    assert_eq!(many, few, "ten thousand blocked groups cost no work");
}

#[test]
fn a_release_offers_as_many_heads_as_it_makes_room_for_and_one_more() {
    let mut cycle = Cycle::new(10_000);
    for room in [1, 2, 3, 50, 0, 1, 1_000] {
        let offers = work::of(|| {
            cycle.free += room;
            if room > 0 {
                cycle.queue.unblock(cycle.set);
            }
            cycle.serve();
        })
        .offers;
        assert_eq!(offers, if room == 0 { 0 } else { room as u64 + 1 });
    }
}

#[test]
fn enqueueing_costs_the_same_however_many_items_are_queued_or_groups_are_active() {
    let cost =
        |queue: &mut FairQueue, item, group, class| work::of(|| assert!(queue.enqueue(item, group, class, 1.0))).steps;
    let mut queue = FairQueue::new();
    let class = queue.add_class();
    let first = queue.add_group(1.0).expect("valid");
    queue.enqueue(0, first, class, 1.0);
    let mut largest = 0;
    for item in 1..20_000 {
        let appended = cost(&mut queue, 2 * item, first, class);
        assert_eq!(appended, 5, "the item, its index entry, its group, its class, the group's one demand");
        let group = queue.add_group(1.0).expect("valid");
        largest = largest.max(cost(&mut queue, 2 * item + 1, group, class));
    }
    assert!(largest <= 5 + 16 + 4, "an activation adds one path through a heap of 2^15 at most: {largest}");
}

#[test]
fn rebasing_virtual_time_is_linear_in_the_number_of_groups() {
    // With unit costs and weights, one service moves virtual time by at most 1. A rebase therefore happens
    // once per 2^20 services or less often, which is less than a thirtieth of a step per service at 10^4
    // groups.
    let mut cycle = Cycle::new(10_000);
    let rebase = work::of(|| cycle.queue.rebase()).steps;
    assert!(rebase <= 3 * 10_000, "{rebase}");
}

/// Requests of many groups that all wait for the only slot of a resource.
struct Requests {
    machine: RequestAdmission,
    now: Instant,
    chat: Request,
    groups: Vec<crate::request::GroupId>,
    held: Option<RequestLease>,
    turns: usize,
}

impl Requests {
    fn new(groups: usize, waiting: usize) -> Self {
        let mut machine = RequestAdmission::new(RequestConfig::default()).expect("valid");
        let model = machine.register(Instant::ZERO, "provider", "model", "default", 1).expect("valid");
        let chat = Request::new(machine.resource(model, Domain::Chat).expect("valid"));
        let groups: Vec<_> = (0..groups).map(|at| machine.group(&at.to_string(), 1.0).expect("valid")).collect();
        let mut requests = Self { machine, now: Instant::ZERO, chat, groups, held: None, turns: 0 };
        for _ in 0..=waiting {
            requests.acquire();
        }
        requests
    }

    fn acquire(&mut self) {
        let request = self.chat.in_group(self.groups[self.turns % self.groups.len()]);
        self.turns += 1;
        match self.machine.acquire(self.now, &request) {
            AcquireResult::Granted(lease) => self.held = Some(lease),
            AcquireResult::Waiting(_) => {}
            AcquireResult::Denied(denial) => panic!("{denial}"),
        }
    }

    fn release(&mut self) {
        self.now += Duration::from_nanos(1);
        let lease = self.held.take().expect("the slot is taken between two turns");
        let _ = self.machine.release(self.now, lease, &Outcome::Success.into());
        let Some(RequestEffect::Granted { lease, .. }) = self.machine.poll_effect() else {
            panic!("a waiter was woken")
        };
        assert_eq!(self.machine.poll_effect(), None, "only one waiter is woken");
        self.held = Some(lease);
    }
}

#[test]
fn a_release_among_ten_thousand_waiting_groups_costs_at_most_two_and_a_half_times_one_among_eight() {
    let [few, many] = [8, 10_000].map(|groups| {
        let mut requests = Requests::new(groups, groups);
        of_cycles(|| {
            requests.release();
            requests.acquire();
        })
    });
    assert!(ratio(many, few) <= 2.5, "{many:?} {few:?}");
    assert_eq!(few.offers, many.offers, "both offer the same number of heads");
}

#[test]
fn the_cost_of_a_release_does_not_grow_with_the_number_of_waiters() {
    let [few, many] = [80, 50_000].map(|waiting| {
        let mut requests = Requests::new(8, waiting);
        let cycle = of_cycles(|| {
            requests.release();
            requests.acquire();
        });
        (cycle, requests.machine.waiting())
    });
    assert_eq!((few.1, many.1), (80, 50_000));
    assert_eq!(few.0, many.0, "the same work, step by step");
}

/// Tasks of many groups that all wait for the slots of one resource.
struct Tasks {
    dispatcher: Dispatcher,
    groups: Vec<crate::task::TaskGroupId>,
    demand: crate::task::DemandId,
    running: VecDeque<(u64, TaskLease)>,
}

impl Tasks {
    fn new(groups: usize) -> Self {
        let resources = [("calls".to_string(), SLOTS as u32)].into();
        let mut tasks = Dispatcher::new(TaskConfig { resources, ..TaskConfig::default() }).expect("valid");
        let groups: Vec<_> = (0..groups)
            .map(|at| tasks.group(&TaskGroup::model("provider", &at.to_string(), 1.0)).expect("valid"))
            .collect();
        let demand = tasks.demand(&[("calls", 1)]).expect("valid");
        for task in 0..20_000 {
            tasks.enqueue(task, groups[task as usize % groups.len()], demand);
        }
        let mut cycle = Self { dispatcher: tasks, groups, demand, running: VecDeque::new() };
        cycle.dispatch();
        cycle
    }

    fn dispatch(&mut self) {
        while let Some(started) = self.dispatcher.dispatch() {
            self.running.push_back((started.task, started.lease));
        }
    }

    fn turn(&mut self) {
        let (task, lease) = self.running.pop_front().expect("the slots are taken between two cycles");
        let _ = self.dispatcher.release(lease);
        self.dispatch();
        self.dispatcher.enqueue(task, self.groups[task as usize % self.groups.len()], self.demand);
    }
}

#[test]
fn a_dispatch_among_ten_thousand_groups_costs_at_most_two_and_a_half_times_one_among_eight() {
    let [few, some, many] = [8, 256, 10_000].map(|groups| {
        let mut tasks = Tasks::new(groups);
        of_cycles(|| tasks.turn())
    });
    assert!(ratio(many, few) <= 2.5, "{many:?} {few:?}");
    assert!(ratio(some, few) <= 1.5, "{some:?} {few:?}");
}
