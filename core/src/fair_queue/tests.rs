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
        self.queue.enqueue(item, QueueGroupId(group), self.class, 1.0)
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
    let mut bench = Bench::new(&[1.0, 1.0, 1.0]);
    for (group, item) in [(0, 1), (0, 2), (0, 3), (1, 11), (1, 12), (2, 21)] {
        assert!(bench.put(group, item));
    }
    assert_eq!(bench.drain(), vec![1, 11, 21, 2, 12, 3]);
}

#[test]
fn an_item_that_is_queued_is_not_enqueued_again() {
    let mut bench = Bench::new(&[1.0]);
    assert!(bench.put(0, 1));
    assert!(!bench.put(0, 1));
    assert_eq!((bench.drain(), bench.queue.len()), (vec![1], 0));
    assert!(bench.put(0, 1), "it may be enqueued again after it was served");
}

#[test]
fn a_stale_selection_is_rejected_and_changes_nothing() {
    let mut bench = Bench::new(&[1.0]);
    bench.put(0, 1);
    let selection = bench.queue.select(|_| Eligibility::Accept).expect("one is queued");
    bench.put(0, 2);
    assert_eq!(bench.queue.commit(&selection), Err(StaleSelection));
    assert_eq!(bench.queue.len(), 2);
}

#[test]
fn a_skipped_group_keeps_its_turn() {
    let mut bench = Bench::new(&[1.0, 1.0]);
    for item in 0..3 {
        bench.put(0, item);
        bench.put(1, 10 + item);
    }
    let only_second = |candidate: &Candidate| {
        if candidate.group == QueueGroupId(0) { Eligibility::Skip } else { Eligibility::Accept }
    };
    for expected in [10, 11] {
        let selection = bench.queue.select(only_second).expect("the second group is eligible");
        assert_eq!(selection.candidate.item, expected);
        bench.queue.commit(&selection).expect("nothing changed");
    }
    // The first group's tag lies in the past. It gets one early turn, and then its tag follows virtual time.
    assert_eq!(bench.drain(), vec![0, 12, 1, 2]);
}

#[test]
fn a_group_that_was_idle_gets_one_early_turn_and_no_more() {
    let mut bench = Bench::new(&[1.0, 1.0]);
    bench.put(0, 0);
    bench.next();
    for item in 100..110 {
        bench.put(1, item);
    }
    for _ in 0..6 {
        bench.next();
    }
    for item in 1..5 {
        bench.put(0, item);
    }
    assert_eq!(bench.drain(), vec![1, 106, 2, 107, 3, 108, 4, 109]);
}

#[test]
fn service_follows_the_weights_within_one_item_each() {
    let weights = [MIN_WEIGHT * 1024.0, 0.3, 1.0, 3.0, 1024.0];
    let mut bench = Bench::new(&weights);
    let mut served = [0_u32; 5];
    let mut fresh = 0;
    for group in 0..5 {
        bench.put(group, fresh);
        fresh += 1;
    }
    for _ in 0..200_000 {
        let selection = bench.queue.select(|_| Eligibility::Accept).expect("every group stays backlogged");
        bench.put(selection.candidate.group.0, fresh);
        fresh += 1;
        let again = bench.queue.select(|_| Eligibility::Accept).expect("every group stays backlogged");
        assert_eq!(again.candidate, selection.candidate, "an arrival behind the head changes no order");
        bench.queue.commit(&again).expect("nothing changed since");
        served[again.candidate.group.index()] += 1;
    }
    for (i, j) in [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)] {
        let share = |at: usize| f64::from(served[at]) / weights[at];
        let bound = 1.0 / weights[i] + 1.0 / weights[j] + 1e-6;
        assert!((share(i) - share(j)).abs() <= bound, "{served:?}");
    }
}

#[test]
fn rebasing_virtual_time_does_not_change_the_order() {
    let mut bench = Bench::new(&[MIN_WEIGHT, 0.5, 1.0]);
    let mut plain = Bench::new(&[MIN_WEIGHT, 0.5, 1.0]);
    for item in 0..6_u64 {
        bench.put((item % 3) as u32, item);
        plain.put((item % 3) as u32, item);
    }
    bench.queue.virtual_time = 0.0;
    bench.queue.rebase();
    assert_eq!(bench.drain(), plain.drain());
    assert!(bench.queue.virtual_time() < 2.0 * REBASE_AT);
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
    assert_eq!(cycle(&mut queue, 0), 1, "a thousand groups of one class are rejected together");
    assert_eq!(cycle(&mut queue, 0), 0, "they are not offered again while nothing changed");
    assert_eq!(cycle(&mut queue, 3), 4, "a release offers the heads it makes room for, and one more");
    assert_eq!(queue.len(), 997);
}

#[test]
fn a_parked_group_waits_until_it_is_unparked() {
    let mut bench = Bench::new(&[1.0, 1.0]);
    bench.put(0, 1);
    bench.put(1, 2);
    let predicate = |candidate: &Candidate| {
        if candidate.group == QueueGroupId(0) { Eligibility::GroupBlocked } else { Eligibility::Accept }
    };
    let selection = bench.queue.select(predicate).expect("the second group is admissible");
    assert_eq!(selection.candidate.item, 2);
    bench.queue.commit(&selection).expect("nothing changed");
    assert_eq!(bench.queue.select(|_| Eligibility::Accept), None);
    assert_eq!(bench.queue.heads(bench.class), 1, "its head still counts");
    bench.queue.unpark(QueueGroupId(0));
    assert_eq!(bench.drain(), vec![1]);
}

#[test]
fn the_first_parked_group_can_be_selected_without_the_predicate() {
    let mut bench = Bench::new(&[1.0, 1.0, 1.0]);
    for (group, item) in [(2, 21), (0, 1), (0, 2), (1, 11)] {
        bench.put(group, item);
    }
    let mut served = vec![];
    for _ in 0..4 {
        assert_eq!(bench.queue.select(|_| Eligibility::GroupBlocked), None);
        let selection = bench.queue.select_parked().expect("something is parked");
        served.push(selection.candidate.item);
        bench.queue.commit(&selection).expect("nothing changed");
    }
    assert_eq!(served, [21, 1, 11, 2]);
    assert_eq!(bench.queue.select_parked(), None);
}

#[test]
fn discarding_a_head_moves_no_tag_and_the_next_item_takes_its_turn() {
    let mut bench = Bench::new(&[1.0, 1.0]);
    for (group, item) in [(0, 1), (0, 2), (1, 11)] {
        bench.put(group, item);
    }
    assert!(bench.queue.discard(1));
    assert!(!bench.queue.discard(1));
    assert_eq!(bench.queue.group_demand(QueueGroupId(0)), &[(bench.class, 1)]);
    assert_eq!(bench.drain(), vec![2, 11]);
}

#[test]
fn a_weight_out_of_range_is_rejected_with_the_range() {
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
fn a_blocked_fifo_does_not_delay_another_fifo_of_its_group() {
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
        "the blocked FIFO waited longest"
    );
    assert_eq!([next(&mut queue, false), next(&mut queue, false), next(&mut queue, false)], [Some(1), Some(2), None]);
}
