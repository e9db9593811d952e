//! The budgets of the leader: it owns the bucket of each, and grants amounts to the members.
//!
//! What a member may still spend is *outstanding*. It is the amount in its wallet according to its last
//! report, and what was granted since. The bucket pays when an amount is spent, and not when it is granted.
//! So it does not refill for an amount that a member only keeps:
//!
//! ```text
//!   new grants <= amount in the bucket - sum over the members of outstanding
//! ```
//!
//! A budget is named by what it counts and its window ([`BudgetKey`]). The rate and the burst are those of
//! the leader. A member gets grants of the budgets that it has reported.
//!
//! A grant is made for the next call of a member with all its budgets at once: members that each had a part
//! of what their calls need could wait for each other. What is left after the next calls is divided by
//! weighted max-min fairness.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::fairness::{Claim, max_min};
use super::message::{KnownWallet, MAX_NUMBER};
use crate::budget::{Bucket, BudgetConfig, BudgetKey, MAX_LIMIT, WalletReport};
use crate::time::{Duration, Instant};

/// How long amounts are scarce after a member has waited for one.
const SCARCE_FOR: Duration = Duration::from_secs(1);

/// While amounts are not scarce, the wallets of all members together are filled to one part of the bucket
/// in this many, so that a call need not wait for a grant.
const RESERVE_PARTS: u64 = 4;

/// The parts of a nanosecond in which refill times are counted. At least as many as a weight can be, so that
/// also a cheap call costs something.
const COST_UNITS: u128 = 1 << 16;

/// What refills in this time, or in its window if that is longer, is the most by which a bucket can be
/// overdrawn. It bounds the effect of damaged amounts.
const LONGEST_DEBT: Duration = Duration::from_secs(3_600);

/// The budgets of a leader.
#[derive(Debug)]
pub(super) struct SharedBudgets {
    budgets: BTreeMap<BudgetKey, SharedBudget>,
    /// The amounts with which buckets begin. Those that it does not contain begin empty. `None` if all begin
    /// full.
    inherited: Option<BTreeMap<BudgetKey, i64>>,
    /// The start tag of the member that was served last.
    served: u64,
    scarce_until: Instant,
}

#[derive(Debug)]
struct SharedBudget {
    config: BudgetConfig,
    bucket: Bucket,
}

impl SharedBudget {
    fn burst(&self) -> u64 {
        self.config.burst.unwrap_or(self.config.limit)
    }

    fn longest_debt(&self) -> Duration {
        self.config.window.max(LONGEST_DEBT)
    }

    /// Takes an amount that was spent.
    fn charge(&mut self, now: Instant, amount: u64) {
        self.bucket.take(now, amount);
        let lowest = -self.bucket.gain(self.longest_debt());
        self.bucket.clamp_credit(now, lowest, i128::MAX);
    }

    /// Counts what is outstanding of a wallet as spent. The next report has the grants that have arrived.
    /// Until then, decisions contain none: one that is still on its way would be spent as well.
    fn write_off(&mut self, now: Instant, wallet: &mut WalletRecord) {
        let outstanding = wallet.outstanding();
        self.charge(now, outstanding);
        let spent = wallet.reported.spent.saturating_add(outstanding);
        let reported = WalletReport { spent, ..WalletReport::default() };
        *wallet = WalletRecord { granted: 0, reported, is_current: false };
    }

    /// Returns the time in which an amount refills, in units of 1 / [`COST_UNITS`] ns. It is bounded, so that
    /// damaged amounts do not exhaust the clock.
    fn cost(&self, amount: u64) -> u128 {
        let amount = u128::from(amount) * u128::from(self.config.window.as_nanos());
        let cost = amount.saturating_mul(COST_UNITS) / u128::from(self.config.limit.max(1));
        cost.min(u128::from(self.longest_debt().as_nanos()) * COST_UNITS)
    }
}

/// The budgets of one member, as the leader knows them.
#[derive(Debug, Default)]
pub(super) struct MemberBudgets {
    wallets: BTreeMap<BudgetKey, WalletRecord>,
    /// When the member was served last, by the clock of start-time fair queueing: it counts refill time
    /// divided by weight.
    served: u64,
    /// The refill time of what it got then, in units of 1 / [`COST_UNITS`] ns.
    cost: u128,
}

#[derive(Clone, Copy, Debug, Default)]
struct WalletRecord {
    /// The sum of all grants.
    granted: u64,
    /// The last report. Its `granted` are the grants that had arrived by then.
    reported: WalletReport,
    /// Whether `reported` is the last report of the member, and this leader has processed it. If not, what
    /// counts as spent may not be, and does not return to the bucket: as much may have refilled since.
    is_current: bool,
}

impl WalletRecord {
    /// Returns what was granted and had not arrived at the last report.
    fn on_its_way(&self) -> u64 {
        self.granted.saturating_sub(self.reported.granted)
    }

    fn outstanding(&self) -> u64 {
        self.reported.left.saturating_add(self.on_its_way())
    }

    fn need(&self) -> u64 {
        self.reported.need.max(self.reported.call).saturating_sub(self.on_its_way())
    }
}

impl MemberBudgets {
    /// Creates those of a member in a snapshot.
    pub(super) fn new(known: &BTreeMap<BudgetKey, KnownWallet>) -> Self {
        let wallet = |known: &KnownWallet| {
            let (granted, left) = (known.granted.min(MAX_NUMBER), known.outstanding.min(MAX_LIMIT));
            let reported =
                WalletReport { granted, left, spent: known.spent.min(MAX_NUMBER), ..WalletReport::default() };
            WalletRecord { granted, reported, is_current: false }
        };
        Self { wallets: known.iter().map(|(key, known)| (*key, wallet(known))).collect(), ..Self::default() }
    }

    /// Returns the sum of the grants of each budget.
    pub(super) fn granted(&self) -> BTreeMap<BudgetKey, u64> {
        self.wallets.iter().map(|(key, wallet)| (*key, wallet.granted)).collect()
    }

    /// Returns what the next leader has to know.
    pub(super) fn known(&self) -> BTreeMap<BudgetKey, KnownWallet> {
        let known = |wallet: &WalletRecord| KnownWallet {
            granted: wallet.granted,
            outstanding: wallet.outstanding(),
            spent: wallet.reported.spent,
        };
        self.wallets.iter().map(|(key, wallet)| (*key, known(wallet))).collect()
    }

    /// Adds what is outstanding of each budget.
    pub(super) fn add_outstanding(&self, sums: &mut BTreeMap<BudgetKey, u64>) {
        for (key, wallet) in &self.wallets {
            let sum = sums.entry(*key).or_default();
            *sum = sum.saturating_add(wallet.outstanding());
        }
    }

    /// Returns whether the next call needs a grant.
    pub(super) fn has_next_call(&self) -> bool {
        self.wallets.values().any(|wallet| wallet.on_its_way() < wallet.reported.call)
    }

    /// Returns whether a call waits, also if its grant is on the way.
    fn has_waiting_call(&self) -> bool {
        self.wallets.values().any(|wallet| wallet.reported.call > 0)
    }

    /// Returns what the next call needs of each budget, if it needs a grant. A call with a part of it on the
    /// way gets the whole: the member hands back a part before the rest arrives.
    fn next_call(&self) -> Option<Vec<(BudgetKey, u64)>> {
        let needs = || self.wallets.iter().map(|(key, wallet)| (*key, wallet.reported.call)).collect();
        self.has_next_call().then(needs)
    }

    /// Grants an amount of a budget that the member has reported.
    fn grant(&mut self, key: BudgetKey, amount: u64) {
        if let Some(wallet) = self.wallets.get_mut(&key) {
            wallet.granted = wallet.granted.saturating_add(amount);
        }
    }
}

/// A member that may get grants.
pub(super) struct Claimant<'a> {
    pub(super) budgets: &'a mut MemberBudgets,
    /// Its weight. 0 counts as 1.
    pub(super) weight: u32,
}

impl Claimant<'_> {
    /// Returns when the member has used up what it got, by the clock of [`MemberBudgets::served`]. The
    /// present weight counts: that of a member without waiting calls is next to nothing.
    fn served_until(&self) -> u64 {
        let cost = self.budgets.cost / u128::from(self.weight.max(1));
        self.budgets.served.saturating_add(u64::try_from(cost).unwrap_or(u64::MAX))
    }
}

impl SharedBudgets {
    /// Creates a set without budgets. `inherited` are the amounts of the last leader, if there was one.
    pub(super) fn new(inherited: Option<BTreeMap<BudgetKey, i64>>) -> Self {
        Self { budgets: BTreeMap::new(), inherited, served: 0, scarce_until: Instant::ZERO }
    }

    /// Sets the budgets, and returns whether they have changed. Those that change keep their amounts. One
    /// that is added to others begins empty, because it may have been there before.
    pub(super) fn set(&mut self, now: Instant, configs: &[BudgetConfig]) -> bool {
        let with_keys = || BudgetKey::of_each(configs).zip(configs);
        let is_set = |(key, config): (BudgetKey, &BudgetConfig)| {
            self.budgets.get(&key).is_some_and(|budget| budget.config == *config)
        };
        if self.budgets.len() == configs.len() && with_keys().all(is_set) {
            return false;
        }
        self.budgets.retain(|key, _| with_keys().any(|(other, _)| other == *key));
        for (key, config) in with_keys() {
            if let Some(budget) = self.budgets.get_mut(&key) {
                budget.config = *config;
                budget.bucket.set_rate(now, config.limit, config.window);
                budget.bucket.set_burst(now, budget.burst());
                continue;
            }
            let mut budget = SharedBudget { config: *config, bucket: Bucket::new(now, config) };
            if let Some(inherited) = &self.inherited {
                let amount = inherited.get(&key).copied().unwrap_or(0);
                budget.bucket.lower_to(now, u64::try_from(amount).unwrap_or(0));
                budget.charge(now, amount.min(0).unsigned_abs());
            }
            self.budgets.insert(key, budget);
        }
        self.inherited = Some(BTreeMap::new());
        true
    }

    /// Returns the amount in each bucket, rounded down.
    pub(super) fn amounts(&self, now: Instant) -> BTreeMap<BudgetKey, i64> {
        self.budgets.iter().map(|(key, budget)| (*key, budget.bucket.available(now))).collect()
    }

    /// Empties the buckets: another leader has granted amounts that this one does not know.
    pub(super) fn empty(&mut self, now: Instant) {
        self.inherited = Some(BTreeMap::new());
        for budget in self.budgets.values_mut() {
            budget.bucket.lower_to(now, 0);
        }
    }

    /// Processes what a member has spent and needs. Damaged amounts are ignored, and budgets that the leader
    /// does not have.
    pub(super) fn on_report(
        &mut self,
        now: Instant,
        member: &mut MemberBudgets,
        reports: &BTreeMap<BudgetKey, WalletReport>,
    ) {
        for (key, budget) in &mut self.budgets {
            let Some(report) = reports.get(key) else {
                // The process has this budget no more, and may have it again.
                if let Some(wallet) = member.wallets.get_mut(key) {
                    budget.write_off(now, wallet);
                }
                continue;
            };
            if report.granted.max(report.spent) > MAX_NUMBER || report.left > report.granted {
                continue;
            }
            let wallet = member.wallets.entry(*key).or_insert_with(|| {
                // What a new member has spent before is not known here.
                let reported = WalletReport { spent: report.spent, ..WalletReport::default() };
                WalletRecord { reported, ..WalletRecord::default() }
            });
            if wallet.is_current && report.granted > wallet.granted {
                // Decisions that were lost may have granted more. Then the next report says so, too.
                wallet.is_current = false;
                continue;
            }
            let before = wallet.reported.spent;
            if core::mem::replace(&mut wallet.is_current, true) {
                budget.bucket.give(now, before.saturating_sub(report.spent));
            }
            budget.charge(now, report.spent.saturating_sub(before));
            // This leader may not know of grants of another one, or has written them off.
            wallet.granted = wallet.granted.max(report.granted);
            let (call, need) = (report.call.min(MAX_LIMIT), report.need.min(MAX_LIMIT));
            wallet.reported = WalletReport { call, need, ..*report };
        }
    }

    /// Counts what is outstanding at a member as spent: its lease has lapsed, or it is gone.
    pub(super) fn reclaim(&mut self, now: Instant, member: &mut MemberBudgets) {
        for (key, wallet) in &mut member.wallets {
            if let Some(budget) = self.budgets.get_mut(key) {
                budget.write_off(now, wallet);
            }
        }
    }

    /// Grants amounts to the members that may get some. `outstanding` is that of each budget at all members.
    /// Returns whether amounts are scarce. O(m log m) for m members.
    pub(super) fn grant(
        &mut self,
        now: Instant,
        claimants: &mut [Claimant<'_>],
        outstanding: &BTreeMap<BudgetKey, u64>,
    ) -> bool {
        for claimant in &mut *claimants {
            claimant.budgets.wallets.retain(|key, _| self.budgets.contains_key(key));
        }
        let mut left = self.left(now, outstanding);
        let is_met = self.grant_next_calls(claimants, &mut left) && self.grant_needs(claimants, &mut left);
        if !is_met {
            self.scarce_until = now + SCARCE_FOR;
        } else if now >= self.scarce_until {
            self.grant_reserves(claimants, &mut left);
        }
        now < self.scarce_until
    }

    /// Returns the amount of each budget that can be granted.
    fn left(&self, now: Instant, outstanding: &BTreeMap<BudgetKey, u64>) -> BTreeMap<BudgetKey, u64> {
        let left = |(key, budget): (&BudgetKey, &SharedBudget)| {
            let outstanding = outstanding.get(key).copied().unwrap_or(0);
            let left = u64::try_from(budget.bucket.available(now)).unwrap_or(0).saturating_sub(outstanding);
            (*key, left)
        };
        self.budgets.iter().map(left).collect()
    }

    /// Grants the next call of each member that waits, least served first. Returns whether all of them fit.
    /// No member overtakes one whose call does not fit yet. A call larger than the bucket fits if the bucket
    /// is full.
    fn grant_next_calls<'a, 'b>(
        &mut self,
        claimants: &'b mut [Claimant<'a>],
        left: &mut BTreeMap<BudgetKey, u64>,
    ) -> bool {
        let next_call = |claimant: &'b mut Claimant<'a>| Some((claimant.budgets.next_call()?, claimant));
        let mut waiting: Vec<_> = claimants.iter_mut().filter_map(next_call).collect();
        waiting.sort_by_key(|(_, claimant)| claimant.served_until().max(self.served));
        for (calls, claimant) in waiting {
            // A claimant has wallets of the leader's budgets only.
            let fits = |(key, call): &(BudgetKey, u64)| {
                let needed = self.budgets.get(key).map_or(0, |budget| budget.burst().min(*call));
                left.get(key).is_none_or(|left| *left >= needed)
            };
            if !calls.iter().all(fits) {
                return false;
            }
            let mut cost = 0;
            for (key, call) in calls {
                claimant.budgets.grant(key, call);
                if let (Some(left), Some(budget)) = (left.get_mut(&key), self.budgets.get(&key)) {
                    *left = left.saturating_sub(call);
                    cost = cost.max(budget.cost(call));
                }
            }
            self.serve(claimant, cost);
        }
        true
    }

    /// Counts that a member has got amounts with this refill time.
    fn serve(&mut self, claimant: &mut Claimant<'_>, cost: u128) {
        self.served = self.served.max(claimant.served_until());
        claimant.budgets.served = self.served;
        claimant.budgets.cost = cost;
    }

    /// Divides what is left by weighted max-min fairness. The remainder goes to the members that were served
    /// least: one whose next call is on its way got nothing by [`Self::grant_next_calls`]. Returns whether
    /// all needs are met.
    fn grant_needs(&mut self, claimants: &mut [Claimant<'_>], left: &mut BTreeMap<BudgetKey, u64>) -> bool {
        claimants.sort_by_key(|claimant| claimant.served_until().max(self.served));
        let mut is_met = true;
        let mut costs = vec![0; claimants.len()];
        for (key, left) in left {
            let claim = |claimant: &Claimant<'_>| Claim {
                weight: u64::from(claimant.weight.max(1)),
                demand: claimant.budgets.wallets.get(key).map_or(0, WalletRecord::need),
            };
            let claims: Vec<Claim> = claimants.iter().map(claim).collect();
            let amounts = max_min(*left, &claims, 0);
            let budget = self.budgets.get(key);
            for (((claimant, claim), cost), amount) in claimants.iter_mut().zip(&claims).zip(&mut costs).zip(amounts) {
                is_met &= amount == claim.demand;
                claimant.budgets.grant(*key, amount);
                *left -= amount;
                *cost = budget.map_or(0, |budget| budget.cost(amount)).max(*cost);
            }
        }
        for (claimant, cost) in claimants.iter_mut().zip(costs) {
            // One without a waiting call has next to no weight, and would move the clock far ahead.
            if cost > 0 && claimant.budgets.has_waiting_call() {
                self.serve(claimant, cost);
            }
        }
        is_met
    }

    /// Fills the wallets a little, while no member waits.
    fn grant_reserves(&self, claimants: &mut [Claimant<'_>], left: &mut BTreeMap<BudgetKey, u64>) {
        let members = claimants.len() as u64;
        for ((key, budget), left) in self.budgets.iter().zip(left.values_mut()) {
            for claimant in &mut *claimants {
                let Some(wallet) = claimant.budgets.wallets.get(key).filter(|wallet| wallet.is_current) else {
                    continue;
                };
                let reserve = (budget.burst() / RESERVE_PARTS / members).max(u64::from(budget.burst() >= members));
                let amount = reserve.saturating_sub(wallet.outstanding()).min(*left);
                claimant.budgets.grant(*key, amount);
                *left -= amount;
            }
        }
    }
}
