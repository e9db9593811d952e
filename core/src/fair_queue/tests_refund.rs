//! Tests of refunded turns: their effects and their limits.

use std::vec;
use std::vec::Vec;

use super::*;

/// A queue whose groups always have an item queued.
struct Bench {
    queue: FairQueue,
    class: ClassId,
    set: BlockedSetId,
    items: u64,
}

impl Bench {
    fn new(weights: &[f64]) -> Self {
        let mut queue = FairQueue::new();
        let (class, set) = (queue.add_class(), queue.add_blocked_set());
        let groups: Vec<_> = weights.iter().map(|weight| queue.add_group(*weight).expect("a valid weight")).collect();
        let mut bench = Self { queue, class, set, items: 0 };
        for group in groups {
            bench.put(group);
        }
        bench
    }

    fn put(&mut self, group: QueueGroupId) {
        self.items += 1;
        assert!(self.queue.enqueue(self.items, group, self.class, 1.0));
    }

    /// Serves the next item. Its group gets another one at once.
    fn next(&mut self) -> ServiceRecord {
        let selection = self.queue.select(|_| Eligibility::Accept).expect("an item waits");
        let group = selection.candidate.group;
        let service = self.queue.next_service(group);
        self.queue.commit(&selection).expect("nothing changed");
        self.put(group);
        service
    }

    /// Serves `calls` calls, of which the first `answered` are answered and the others are rejected and
    /// refunded. Returns the groups of the answered calls.
    fn burst(&mut self, calls: u32, answered: usize) -> Vec<u32> {
        let turns: Vec<ServiceRecord> = (0..calls).map(|_| self.next()).collect();
        for service in &turns[answered..] {
            self.queue.refund(*service, 1.0, f64::from(calls));
        }
        turns[..answered].iter().map(|service| service.group).collect()
    }
}

#[test]
fn two_equal_groups_alternate_when_one_call_of_each_burst_is_answered() {
    let mut bench = Bench::new(&[1.0, 1.0]);
    let answered: Vec<u32> = (0..60).flat_map(|_| bench.burst(24, 1)).collect();
    assert!(answered.chunks(2).all(|pair| pair[0] != pair[1]), "{answered:?}");
}

#[test]
fn answers_are_in_proportion_to_weights_when_most_calls_are_rejected() {
    for (weights, calls, answered) in [([3.0, 1.0], 24, 1), ([7.0, 2.0], 500, 3), ([0.25, 0.5], 31, 2)] {
        let mut bench = Bench::new(&weights);
        let mut count = [0.0; 2];
        for group in (0..600).flat_map(|_| bench.burst(calls, answered)).collect::<Vec<_>>() {
            count[group as usize] += 1.0;
        }
        let apart: f64 = count[0] / weights[0] - count[1] / weights[1];
        assert!(apart.abs() <= 2.0 / weights[0] + 2.0 / weights[1], "{weights:?}: {count:?}");
    }
}

#[test]
fn a_group_that_is_always_rejected_gains_only_a_fixed_number_of_turns() {
    for rejected_groups in [1, 3] {
        let mut bench = Bench::new(&vec![1.0; rejected_groups + 1]);
        let most = 10.0;
        let mut turns = [0.0; 2];
        for _ in 0..20_000 {
            let service = bench.next();
            let is_rejected = service.group > 0;
            turns[usize::from(is_rejected)] += 1.0;
            if is_rejected {
                bench.queue.refund(service, 1.0, most);
            }
        }
        let lost = 20_000.0 / (rejected_groups as f64 + 1.0) - turns[0];
        assert!(lost >= 1.0, "refunds return turns");
        assert!(lost <= most * rejected_groups as f64 + 1.0, "{rejected_groups}: {lost}");
    }
}

#[test]
fn a_group_that_was_rejected_alone_is_refunded_again_when_others_are_rejected() {
    let mut bench = Bench::new(&[1.0, 1.0]);
    let mut refund = |only: Option<u32>| loop {
        let service = bench.next();
        if only.is_none_or(|group| group == service.group) {
            return bench.queue.refund(service, 1.0, 4.0);
        }
    };
    assert_eq!((0..20).filter(|_| refund(Some(0))).count(), 8, "each refund is half a turn more than its share");
    assert!(refund(Some(1)) && refund(Some(0)), "its share of the other group's refund");
    assert!(!refund(Some(0)));
}

#[test]
fn groups_that_are_always_rejected_get_at_most_about_three_times_their_share_of_turns() {
    for rejected in [1, 3, 9] {
        let mut bench = Bench::new(&vec![1.0; rejected + 1]);
        let mut turns = [0.0; 2];
        for _ in 0..20_000 {
            let service = bench.next();
            turns[usize::from(service.group > 0)] += 1.0;
            if service.group > 0 {
                bench.queue.refund(service, 1.0, 10.0);
            } else {
                bench.queue.answered(service, 1.0);
            }
        }
        let ratio = turns[1] / turns[0] / rejected as f64;
        assert!((2.9..3.3).contains(&ratio), "{rejected}: {turns:?}");
    }
}

#[test]
fn a_refund_is_kept_while_its_group_is_idle_but_idle_time_earns_nothing() {
    let mut queue = FairQueue::new();
    let class = queue.add_class();
    let [away, stays] = [queue.add_unit_group(), queue.add_unit_group()];
    let serve = |queue: &mut FairQueue| {
        let selection = queue.select(|_| Eligibility::Accept).expect("an item waits");
        queue.commit(&selection).expect("nothing changed");
        selection.candidate.group
    };
    for item in 0..3 {
        queue.enqueue(item, away, class, 1.0);
    }
    let turns: Vec<ServiceRecord> = (0..3).map(|_| (queue.next_service(away), serve(&mut queue)).0).collect();
    for item in 10..120 {
        queue.enqueue(item, stays, class, 1.0);
    }
    (0..50).for_each(|_| assert_eq!(serve(&mut queue), stays));
    for service in turns {
        assert!(queue.refund(service, 1.0, 8.0));
    }
    for item in 200..220 {
        queue.enqueue(item, away, class, 1.0);
    }
    let first: Vec<bool> = (0..8).map(|_| serve(&mut queue) == away).collect();
    // Three refunded turns, one turn that starts level with the other group, and then alternating turns.
    assert_eq!(first, [true, true, true, true, false, true, false, true]);
}

#[test]
fn a_refund_moves_all_fifos_of_its_group_blocked_or_not() {
    let mut bench = Bench::new(&[1.0, 1.0]);
    let [one, other] = [QueueGroupId(0), QueueGroupId(1)];
    let second = bench.queue.add_fifo(one);
    bench.queue.append(1_000, second, bench.class, 1.0);
    let turns: Vec<ServiceRecord> = (0..2).map(|_| bench.next()).collect();
    let set = bench.set;
    assert_eq!(bench.queue.select(|_| Eligibility::ClassBlocked(set)), None);
    let of_one = turns.iter().find(|service| service.group == one.0).expect("both had a turn");
    assert!(bench.queue.refund(*of_one, 1.0, 8.0));
    bench.queue.unblock(set);
    let mut offered = Vec::new();
    let none = bench.queue.select(|head| {
        offered.push(head.group);
        Eligibility::Skip
    });
    assert_eq!((none, offered), (None, vec![one, one, other]));
}

#[test]
fn a_selection_made_before_a_refund_is_stale() {
    let mut bench = Bench::new(&[1.0, 1.0]);
    let service = bench.next();
    let selection = bench.queue.select(|_| Eligibility::Accept).expect("an item waits");
    assert!(bench.queue.refund(service, 1.0, 8.0));
    assert_eq!(bench.queue.commit(&selection), Err(StaleSelection));
}

#[test]
fn a_turn_of_no_group_cannot_be_refunded() {
    let mut bench = Bench::new(&[1.0]);
    assert!(!bench.queue.refund(ServiceRecord::NONE, 1.0, 8.0));
    assert!(!bench.queue.refund(bench.queue.next_service(QueueGroupId(0)), 1.0, 8.0), "it was never served");
}
