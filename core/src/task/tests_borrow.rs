use std::vec::Vec;

use super::*;

/// Groups of equal weight over one resource `calls`, beside a roomy `submission`.
struct Bank {
    tasks: Dispatcher<BoundedBorrow>,
    groups: Vec<TaskGroupId>,
    /// Leases by group, the oldest first.
    leases: Vec<Vec<TaskLease>>,
    next: u64,
}

impl Bank {
    fn new(limit: u32, weights: &[f64], config: BoundedBorrowConfig) -> Self {
        Self::with(limit, weights, config, true)
    }

    fn with(limit: u32, weights: &[f64], config: BoundedBorrowConfig, liveness: bool) -> Self {
        let resources = [("calls".into(), limit)].into();
        let policy = BoundedBorrow::new(config).expect("valid settings");
        let settings = TaskConfig { resources, liveness, ..TaskConfig::default() };
        let mut tasks = Dispatcher::with_policy(settings, policy).expect("valid limits");
        let groups = weights.iter().zip(0..).map(|(weight, at)| {
            let identity = [std::format!("g{at}")].into();
            let spec = TaskGroup { kind: GroupKind::Model, identity, weight: *weight, admitted_limit: Some(1_000) };
            tasks.group(&spec).expect("a valid group")
        });
        let groups: Vec<_> = groups.collect();
        let leases = groups.iter().map(|_| Vec::new()).collect();
        Self { tasks, groups, leases, next: 0 }
    }

    /// Queues `count` tasks of group `at`, each for `amount` of the resource.
    fn queue(&mut self, at: usize, count: u64, amount: u32) {
        let demand = self.tasks.demand(&[("calls", amount)]).expect("a demand that fits");
        for _ in 0..count {
            self.tasks.enqueue(self.next * 10 + at as u64, self.groups[at], demand);
            self.next += 1;
        }
    }

    /// Starts all that may start; answers how many of each group.
    fn dispatch(&mut self) -> Vec<usize> {
        let mut started: Vec<usize> = self.groups.iter().map(|_| 0).collect();
        while let Some(one) = self.tasks.dispatch() {
            let at = (one.task % 10) as usize;
            started[at] += 1;
            self.leases[at].push(one.lease);
        }
        started
    }

    fn release(&mut self, at: usize, count: usize) {
        for lease in self.leases[at].drain(..count) {
            let _ = self.tasks.release(lease);
        }
    }

    fn debt(&self, at: usize) -> u32 {
        let mut debts = self.tasks.debts_of(self.groups[at]);
        debts.find(|(resource, _)| *resource == "calls").map_or(0, |(_, debt)| debt)
    }

    fn reason(&self, at: usize) -> Option<DenialReason> {
        let demand = DemandId(0);
        self.tasks.evaluate(self.groups[at], demand).err().map(|denial| denial.reason)
    }
}

fn ceiling(ceiling: u32) -> BoundedBorrowConfig {
    BoundedBorrowConfig { default_ceiling: Some(ceiling), ..BoundedBorrowConfig::default() }
}

#[test]
fn alone_a_group_has_half_for_free_and_borrows_the_rest() {
    let mut bank = Bank::new(8, &[1.0, 1.0], BoundedBorrowConfig::default());
    bank.queue(0, 20, 1);
    assert_eq!((bank.dispatch(), bank.debt(0)), ([8, 0].into(), 4));
}

#[test]
fn a_group_in_debt_waits_until_it_has_repaid_while_a_peer_wants_the_same() {
    let mut bank = Bank::new(8, &[1.0, 1.0], BoundedBorrowConfig::default());
    bank.queue(0, 20, 1);
    bank.dispatch();
    bank.queue(1, 20, 1);
    bank.release(0, 3);
    assert_eq!((bank.reason(0), bank.debt(0)), (Some(DenialReason::BorrowDebt), 1));
    assert_eq!(bank.dispatch(), [0, 3]);
    bank.release(0, 1);
    assert_eq!((bank.debt(0), bank.reason(0)), (0, Some(DenialReason::GroupCap)), "four of eight are its share");
    assert_eq!(bank.dispatch(), [0, 1]);
}

#[test]
fn shares_follow_the_weights_of_those_who_compete() {
    let mut bank = Bank::new(12, &[1.0, 2.0, 3.0], BoundedBorrowConfig::default());
    (0..3).for_each(|at| bank.queue(at, 20, 1));
    assert_eq!(bank.dispatch(), [2, 4, 6]);
}

#[test]
fn shares_are_rounded_as_configured_and_never_below_one() {
    let down = BoundedBorrowConfig { rounding: ShareRounding::Down, ..ceiling(0) };
    for (config, expected) in [(ceiling(0), 4), (down, 3)] {
        let mut bank = Bank::new(7, &[1.0], config);
        bank.queue(0, 9, 1);
        assert_eq!(bank.dispatch(), [expected]);
    }
    let down = BoundedBorrowConfig { rounding: ShareRounding::Down, ..ceiling(0) };
    let mut bank = Bank::new(4, &[1.0, 1_000.0], down);
    (0..2).for_each(|at| bank.queue(at, 9, 1));
    assert_eq!(bank.dispatch(), [1, 3]);
}

#[test]
fn a_resource_of_one_is_shared_by_turns() {
    let mut bank = Bank::new(1, &[1.0, 1.0], BoundedBorrowConfig::default());
    (0..2).for_each(|at| bank.queue(at, 3, 1));
    assert_eq!(bank.dispatch(), [1, 0]);
    bank.release(0, 1);
    assert_eq!(bank.dispatch(), [0, 1]);
}

#[test]
fn the_ceiling_is_the_group_s_own_or_the_default_or_follows_the_share() {
    let own = BorrowCeiling { group: ["g1".into()].into(), resource: "calls".into(), ceiling: 1 };
    let config = BoundedBorrowConfig { ceilings: [own].into(), ..ceiling(2) };
    for (at, expected) in [(0, 4 + 2), (1, 4 + 1)] {
        let mut bank = Bank::new(8, &[1.0, 1.0], config.clone());
        bank.queue(at, 20, 1);
        assert_eq!(bank.dispatch()[at], expected);
        assert_eq!(bank.reason(at), Some(DenialReason::BorrowDebt));
    }
    let reserve = BoundedBorrowConfig { reserve_fraction: 0.1, max_reserved: 3, ..BoundedBorrowConfig::default() };
    let mut bank = Bank::new(40, &[1.0], reserve);
    bank.queue(0, 60, 1);
    assert_eq!(bank.dispatch(), [37], "three of forty are never lent");
}

#[test]
fn repayment_of_debt_by_a_lease_that_never_borrowed_is_allowed() {
    let mut bank = Bank::new(8, &[1.0], BoundedBorrowConfig::default());
    bank.queue(0, 6, 1);
    bank.dispatch();
    assert_eq!(bank.debt(0), 2);
    // The oldest leases were taken within the share.
    bank.release(0, 1);
    assert_eq!(bank.debt(0), 1);
    bank.release(0, 3);
    assert_eq!(bank.debt(0), 0, "never below zero");
}

#[test]
fn with_repayment_off_a_debt_stays() {
    let config = BoundedBorrowConfig { repay_on_release: false, ..BoundedBorrowConfig::default() };
    let mut bank = Bank::new(8, &[1.0], config);
    bank.queue(0, 8, 1);
    bank.dispatch();
    bank.release(0, 8);
    assert_eq!(bank.debt(0), 4);
}

#[test]
fn two_groups_that_ask_for_more_than_their_shares_do_not_wait_for_each_other_for_ever() {
    for liveness in [false, true] {
        let mut bank = Bank::with(8, &[1.0, 1.0], BoundedBorrowConfig::default(), liveness);
        (0..2).for_each(|at| bank.queue(at, 1, 5));
        let started = bank.dispatch();
        assert_eq!(started, if liveness { [1, 0] } else { [0, 0] });
        assert_eq!(bank.tasks.liveness_overrides(), u64::from(liveness));
    }
}

#[test]
fn mutual_debt_with_repayment_off_does_not_stop_the_run() {
    let config = BoundedBorrowConfig { repay_on_release: false, ..BoundedBorrowConfig::default() };
    let mut bank = Bank::new(4, &[1.0, 1.0], config);
    for at in 0..2 {
        bank.queue(at, 4, 1);
        bank.dispatch();
        bank.release(at, 4);
    }
    assert_eq!((bank.debt(0), bank.debt(1)), (2, 2));
    (0..2).for_each(|at| bank.queue(at, 3, 1));
    let mut served = [0, 0];
    while let [first, second] = bank.dispatch()[..]
        && first + second > 0
    {
        served = [served[0] + first, served[1] + second];
        bank.release(0, first);
        bank.release(1, second);
    }
    assert_eq!((served, bank.tasks.queued()), ([3, 3], 0));
    assert!(bank.tasks.liveness_overrides() > 0);
}

#[test]
fn a_group_without_an_admitted_limit_is_always_allowed() {
    let mut bank = Bank::new(8, &[1.0, 1.0], BoundedBorrowConfig::default());
    let free = TaskGroup { admitted_limit: None, ..TaskGroup::model("provider", "free", 1.0) };
    bank.groups[0] = bank.tasks.group(&free).expect("a valid group");
    (0..2).for_each(|at| bank.queue(at, 9, 1));
    assert_eq!(bank.dispatch(), [4, 4]);
    bank.release(1, 4);
    assert_eq!(bank.debt(0), 0);
}

#[test]
fn a_reserve_out_of_range_is_refused() {
    let config = BoundedBorrowConfig { reserve_fraction: 1.5, ..BoundedBorrowConfig::default() };
    let error = BoundedBorrow::new(config).expect_err("more than everything");
    assert_eq!(std::format!("{error}"), "`reserve_fraction` is 1.5; expected a number from 0 to 1");
}
