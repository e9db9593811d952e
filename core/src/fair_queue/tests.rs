use std::vec;
use std::vec::Vec;

use super::*;

struct Bench {
    queue: FairQueue,
    class: ClassId,
}

impl Bench {
    fn new(weights: &[f64]) -> Self {
        let mut queue = FairQueue::new();
        let class = queue.add_class();
        for weight in weights {
            queue.add_group(*weight).expect("a valid weight");
        }
        Self { queue, class }
    }

    fn put(&mut self, group: u32, item: u64) -> bool {
        self.queue.enqueue(item, GroupId(group), self.class, 1.0)
    }

    fn next(&mut self) -> Option<u64> {
        let selection = self.queue.select(|_| Eligibility::Accept)?;
        self.queue.commit(&selection).expect("nothing changed");
        Some(selection.candidate.item)
    }

    fn drain(&mut self) -> Vec<u64> {
        core::iter::from_fn(|| self.next()).collect()
    }
}

#[test]
fn equal_groups_take_turns_and_keep_their_own_order() {
    let mut world = Bench::new(&[1.0, 1.0, 1.0]);
    for (group, item) in [(0, 1), (0, 2), (0, 3), (1, 11), (1, 12), (2, 21)] {
        assert!(world.put(group, item));
    }
    assert_eq!(world.drain(), vec![1, 11, 21, 2, 12, 3]);
}

#[test]
fn an_item_is_queued_once_however_often_it_is_offered() {
    let mut world = Bench::new(&[1.0]);
    assert!(world.put(0, 1));
    assert!(!world.put(0, 1));
    assert_eq!((world.drain(), world.queue.len()), (vec![1], 0));
    assert!(world.put(0, 1), "it may come again once it was served");
}

#[test]
fn a_selection_is_refused_after_any_change_and_then_changes_nothing() {
    let mut world = Bench::new(&[1.0]);
    world.put(0, 1);
    let selection = world.queue.select(|_| Eligibility::Accept).expect("one is queued");
    world.put(0, 2);
    assert_eq!(world.queue.commit(&selection), Err(StaleSelection));
    assert_eq!(world.queue.len(), 2);
}

#[test]
fn a_refused_group_keeps_its_turn() {
    let mut world = Bench::new(&[1.0, 1.0]);
    for item in 0..3 {
        world.put(0, item);
        world.put(1, 10 + item);
    }
    let only_second =
        |candidate: &Candidate| if candidate.group == GroupId(0) { Eligibility::Skip } else { Eligibility::Accept };
    for expected in [10, 11] {
        let selection = world.queue.select(only_second).expect("the second group is eligible");
        assert_eq!(selection.candidate.item, expected);
        world.queue.commit(&selection).expect("nothing changed");
    }
    // The first group's tag lies in the past: that is one early turn, and then it follows virtual time.
    assert_eq!(world.drain(), vec![0, 12, 1, 2]);
}

#[test]
fn a_group_that_was_idle_gets_one_early_turn_and_no_more() {
    let mut world = Bench::new(&[1.0, 1.0]);
    world.put(0, 0);
    world.next();
    for item in 100..110 {
        world.put(1, item);
    }
    for _ in 0..6 {
        world.next();
    }
    for item in 1..5 {
        world.put(0, item);
    }
    assert_eq!(world.drain(), vec![1, 106, 2, 107, 3, 108, 4, 109]);
}

#[test]
fn service_follows_the_weights_within_one_item_each() {
    let weights = [MIN_WEIGHT * 1024.0, 0.3, 1.0, 3.0, 1024.0];
    let mut world = Bench::new(&weights);
    let mut served = [0_u32; 5];
    let mut fresh = 0;
    for group in 0..5 {
        world.put(group, fresh);
        fresh += 1;
    }
    for _ in 0..200_000 {
        let selection = world.queue.select(|_| Eligibility::Accept).expect("every group stays backlogged");
        world.put(selection.candidate.group.0, fresh);
        fresh += 1;
        let again = world.queue.select(|_| Eligibility::Accept).expect("every group stays backlogged");
        assert_eq!(again.candidate, selection.candidate, "an arrival behind the head changes no turn");
        world.queue.commit(&again).expect("nothing changed since");
        served[again.candidate.group.index()] += 1;
    }
    for (i, j) in [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)] {
        let share = |at: usize| f64::from(served[at]) / weights[at];
        let bound = 1.0 / weights[i] + 1.0 / weights[j] + 1e-6;
        assert!((share(i) - share(j)).abs() <= bound, "{served:?}");
    }
}

#[test]
fn rebasing_virtual_time_changes_no_order() {
    let mut world = Bench::new(&[MIN_WEIGHT, 0.5, 1.0]);
    let mut plain = Bench::new(&[MIN_WEIGHT, 0.5, 1.0]);
    for item in 0..6_u64 {
        world.put((item % 3) as u32, item);
        plain.put((item % 3) as u32, item);
    }
    world.queue.virtual_time = 0.0;
    world.queue.rebase();
    assert_eq!(world.drain(), plain.drain());
    assert!(world.queue.virtual_time() < 2.0 * REBASE_AT);
}

#[test]
fn a_blocked_class_is_offered_once_until_its_set_is_unblocked() {
    let mut queue = FairQueue::new();
    let class = queue.add_class();
    let set = queue.add_blocked_set();
    for item in 0..1_000 {
        let group = queue.add_group(1.0).expect("a valid weight");
        queue.enqueue(item, group, class, 1.0);
    }
    let mut offered = 0;
    let mut free = 0;
    let mut cycle = |queue: &mut FairQueue, room: u32| {
        free += room;
        offered = 0;
        if room > 0 {
            queue.unblock(set);
        }
        while let Some(selection) = queue.select(|_| {
            offered += 1;
            if free > 0 { Eligibility::Accept } else { Eligibility::ClassBlocked(set) }
        }) {
            free -= 1;
            queue.commit(&selection).expect("nothing changed");
        }
        offered
    };
    assert_eq!(cycle(&mut queue, 0), 1, "a thousand groups of one class are refused as one");
    assert_eq!(cycle(&mut queue, 0), 0, "and not again while nothing changed");
    assert_eq!(cycle(&mut queue, 3), 4, "a release re-offers what it makes room for, and one more");
    assert_eq!(queue.len(), 997);
}

#[test]
fn a_parked_group_waits_for_its_own_release() {
    let mut world = Bench::new(&[1.0, 1.0]);
    world.put(0, 1);
    world.put(1, 2);
    let judge = |candidate: &Candidate| {
        if candidate.group == GroupId(0) { Eligibility::GroupBlocked } else { Eligibility::Accept }
    };
    let selection = world.queue.select(judge).expect("the second group may go");
    assert_eq!(selection.candidate.item, 2);
    world.queue.commit(&selection).expect("nothing changed");
    assert_eq!(world.queue.select(|_| Eligibility::Accept), None);
    assert_eq!(world.queue.heads(world.class), 1, "it still counts as a peer that wants something");
    world.queue.unpark(GroupId(0));
    assert_eq!(world.drain(), vec![1]);
}

#[test]
fn the_first_parked_group_in_turn_can_be_selected_over_the_judge() {
    let mut world = Bench::new(&[1.0, 1.0, 1.0]);
    for (group, item) in [(2, 21), (0, 1), (0, 2), (1, 11)] {
        world.put(group, item);
    }
    let mut served = vec![];
    for _ in 0..4 {
        assert_eq!(world.queue.select(|_| Eligibility::GroupBlocked), None);
        let selection = world.queue.select_parked().expect("something is parked");
        served.push(selection.candidate.item);
        world.queue.commit(&selection).expect("nothing changed");
    }
    assert_eq!(served, [21, 1, 11, 2]);
    assert_eq!(world.queue.select_parked(), None);
}

#[test]
fn a_discarded_head_passes_the_turn_on_and_moves_no_tag() {
    let mut world = Bench::new(&[1.0, 1.0]);
    for (group, item) in [(0, 1), (0, 2), (1, 11)] {
        world.put(group, item);
    }
    assert!(world.queue.discard(1));
    assert!(!world.queue.discard(1));
    assert_eq!(world.queue.group_demand(GroupId(0)), &[(world.class, 1)]);
    assert_eq!(world.drain(), vec![2, 11]);
}

#[test]
fn a_weight_out_of_range_is_refused_with_the_range() {
    let mut queue = FairQueue::new();
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY, MIN_WEIGHT / 2.0, MAX_WEIGHT * 2.0] {
        let error = queue.add_group(weight).expect_err("out of range");
        assert_eq!(error.expected, "a number from 2^-20 to 2^20");
    }
}

#[test]
fn the_fifos_of_a_group_share_its_weight_and_take_turns() {
    let mut queue = FairQueue::new();
    let class = queue.add_class();
    let (double, single) = (queue.add_unit_group(), queue.add_unit_group());
    let fifos = [queue.first_fifo(double), queue.add_fifo(double), queue.first_fifo(single)];
    for item in 0..12 {
        queue.append(item, fifos[(item % 3) as usize], class, 1.0);
    }
    let mut served = Vec::new();
    while let Some(selection) = queue.select(|_| Eligibility::Accept) {
        queue.commit(&selection).expect("nothing changed");
        served.push(selection.candidate.item);
    }
    assert_eq!(served, [0, 2, 1, 5, 3, 8, 4, 11, 6, 7, 9, 10], "one item of each group in turn, its FIFOs alternating");
}

#[test]
fn a_blocked_fifo_delays_no_other_fifo_of_its_group() {
    let mut queue = FairQueue::new();
    let (blocked, open, set) = (queue.add_class(), queue.add_class(), queue.add_blocked_set());
    let group = queue.add_unit_group();
    let (first, second) = (queue.first_fifo(group), queue.add_fifo(group));
    for item in 0..3 {
        queue.append(item, first, blocked, 1.0);
        queue.append(10 + item, second, open, 1.0);
    }
    let next = |queue: &mut FairQueue, is_blocked: bool| {
        let selection = queue.select(|head| {
            if is_blocked && head.class == blocked { Eligibility::ClassBlocked(set) } else { Eligibility::Accept }
        })?;
        queue.commit(&selection).expect("nothing changed");
        Some(selection.candidate.item)
    };
    assert_eq!([next(&mut queue, true), next(&mut queue, true)], [Some(10), Some(11)]);
    queue.unblock(set);
    assert_eq!(
        [next(&mut queue, false), next(&mut queue, false)],
        [Some(0), Some(12)],
        "the blocked one waited longest"
    );
    assert_eq!([next(&mut queue, false), next(&mut queue, false), next(&mut queue, false)], [Some(1), Some(2), None]);
}
