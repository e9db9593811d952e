//! The law of shared budgets: in every interval, the amounts that all processes take from a budget, less
//! those that calls return, are at most the burst plus the refill of the interval.
//!
//! A reference bucket in true time checks it, with a refill that is faster by one percent, as the clock of a
//! leader may be. An amount that a call returns counts once a leader has learned of it. What a call uses
//! beyond its estimate is not counted, and a call larger than the bucket overdraws it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::super::MemberId;
use crate::budget::BudgetConfig;
use crate::time::{Duration, Instant};

const SECOND: i128 = 1_000_000_000;

/// For how long a member without a lease has taken amounts, and how much of each budget.
#[derive(Debug, Default)]
struct Alone {
    since: Instant,
    taken: Vec<u64>,
}

#[derive(Debug, Default)]
struct MemberBudgets {
    /// The amounts of calls in flight, and whether they were taken without a lease.
    calls: BTreeMap<u64, (Vec<u64>, bool)>,
    /// What calls under a lease have returned.
    returned: Vec<u64>,
    /// This at the time of each report.
    reported: BTreeMap<u64, Vec<u64>>,
    /// What the reference bucket has got back of it.
    credited: Vec<u64>,
    alone: Alone,
}

#[derive(Debug)]
struct Reference {
    config: BudgetConfig,
    /// In billionths of an amount.
    credit: i128,
    at: Instant,
    /// What lost decisions may have granted in addition.
    lost: i128,
}

impl Reference {
    fn cap(&self) -> i128 {
        i128::from(self.config.burst.unwrap_or(self.config.limit)) * SECOND
    }

    /// Returns the refill of a span.
    fn refill(&self, span: Duration) -> i128 {
        let window = i128::from(self.config.window.as_nanos());
        i128::from(self.config.limit) * i128::from(span.as_nanos()) * SECOND / window * 101 / 100
    }

    fn advance(&mut self, now: Instant) {
        self.credit = (self.credit + self.refill(now - self.at)).min(self.cap());
        self.at = now;
    }
}

/// The checker of the law.
#[derive(Debug, Default)]
pub(super) struct BudgetOracle {
    budgets: Vec<Reference>,
    members: BTreeMap<MemberId, MemberBudgets>,
    /// How many calls have taken amounts under a lease, and without one.
    pub(super) taken: [u64; 2],
}

impl BudgetOracle {
    pub(super) fn new(configs: &[BudgetConfig]) -> Self {
        let full = |config: &BudgetConfig| {
            let mut budget = Reference { config: *config, credit: 0, at: Instant::ZERO, lost: 0 };
            budget.credit = budget.cap();
            budget
        };
        Self { budgets: configs.iter().map(full).collect(), ..Self::default() }
    }

    /// A call takes its estimate. Returns whether an exemption was needed: the store has lost decisions.
    pub(super) fn on_reserved(&mut self, id: MemberId, now: Instant, call: u64, amounts: &[u64]) -> bool {
        let member = self.members.entry(id).or_default();
        member.calls.insert(call, (amounts.to_vec(), false));
        self.taken[0] += u64::from(!amounts.is_empty());
        let mut is_exempt = false;
        for (budget, amount) in self.budgets.iter_mut().zip(amounts) {
            budget.advance(now);
            let amount = i128::from(*amount) * SECOND;
            let missing = amount.min(budget.cap()) - budget.credit;
            if missing > 0 {
                assert!(
                    missing <= budget.lost,
                    "at {now}, {id} overspends a budget by {}/{SECOND}: {budget:?}",
                    missing - budget.lost
                );
                budget.lost -= missing;
                budget.credit += missing;
                is_exempt = true;
            }
            budget.credit -= amount;
        }
        is_exempt
    }

    /// A call of a member that has lost the others takes its estimate. `since` is when the member lost them,
    /// and `parts` into how many parts the budgets are then divided. `local` is by its clock.
    pub(super) fn on_reserved_alone(
        &mut self,
        id: MemberId,
        (local, since, parts): (Instant, Instant, u32),
        call: u64,
        amounts: &[u64],
    ) {
        let member = self.members.entry(id).or_default();
        member.calls.insert(call, (amounts.to_vec(), true));
        self.taken[1] += u64::from(!amounts.is_empty());
        if member.alone.since != since {
            member.alone = Alone { since, taken: alloc::vec![0; amounts.len()] };
        }
        for ((budget, amount), taken) in self.budgets.iter().zip(amounts).zip(&mut member.alone.taken) {
            let most = budget.refill(local - since) / i128::from(parts);
            assert!(i128::from(*taken) * SECOND <= most, "E1 and E2: at most the refill of the part, and one call");
            *taken += amount;
        }
    }

    /// A call returns amounts.
    pub(super) fn on_returned(&mut self, id: MemberId, call: u64, amounts: &[u64]) {
        let member = self.members.entry(id).or_default();
        let Some((_, is_alone)) = member.calls.remove(&call) else { return };
        let sums = if is_alone { &mut member.alone.taken } else { &mut member.returned };
        sums.resize(amounts.len(), 0);
        for (sum, amount) in sums.iter_mut().zip(amounts) {
            *sum = if is_alone { sum.saturating_sub(*amount) } else { *sum + amount };
        }
    }

    /// A member sends a report.
    pub(super) fn on_report_sent(&mut self, id: MemberId, seq: u64) {
        let member = self.members.entry(id).or_default();
        member.reported.insert(seq, member.returned.clone());
    }

    /// A leader processes a report.
    pub(super) fn on_report(&mut self, now: Instant, id: MemberId, seq: u64) {
        let member = self.members.entry(id).or_default();
        let Some(returned) = member.reported.get(&seq) else { return };
        member.credited.resize(returned.len(), 0);
        for ((budget, returned), credited) in self.budgets.iter_mut().zip(returned).zip(&mut member.credited) {
            budget.advance(now);
            let new = returned.saturating_sub(*credited);
            *credited += new;
            budget.credit = (budget.credit + i128::from(new) * SECOND).min(budget.cap());
        }
    }

    /// Decisions were lost together with their leader (E3): the amounts in the buckets may be granted once
    /// more, with the refill of the time that was lost.
    pub(super) fn on_lost_decisions(&mut self, span: Duration) {
        for budget in &mut self.budgets {
            budget.lost += budget.cap() + budget.refill(span);
        }
    }
}
