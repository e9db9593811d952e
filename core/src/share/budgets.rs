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
//! A grant is made for the next call of a member with all its budgets at once: members that each had a part
//! of what their calls need could wait for each other. What is left after the next calls is divided by
//! weighted max-min fairness.

use alloc::vec::Vec;

use super::fairness::{Claim, max_min};
use super::message::{KnownWallet, MAX_NUMBER};
use crate::budget::{Bucket, BudgetConfig, MAX_LIMIT, WalletReport};
use crate::time::{Duration, Instant};

/// How long amounts are scarce after a member has waited for one.
const SCARCE_FOR: Duration = Duration::from_secs(1);

/// While amounts are not scarce, the wallets of all members together are filled to one part of the bucket
/// in this many, so that a call need not wait for a grant.
const RESERVE_PARTS: u64 = 4;

/// The budgets of a leader.
#[derive(Debug)]
pub(super) struct SharedBudgets {
    budgets: Vec<SharedBudget>,
    /// The amounts with which buckets begin. Others are full.
    inherited: Vec<i64>,
    /// Whether all buckets begin empty.
    begins_empty: bool,
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

    /// Returns the time in which an amount refills, in nanoseconds.
    fn refill_ns(&self, amount: u64) -> u128 {
        u128::from(amount) * u128::from(self.config.window.as_nanos()) / u128::from(self.config.limit.max(1))
    }
}

/// The budgets of one member, as the leader knows them.
#[derive(Debug, Default)]
pub(super) struct MemberBudgets {
    wallets: Vec<WalletRecord>,
    /// When the member was served last, by the clock of start-time fair queueing: it counts refill time
    /// divided by weight.
    served: u64,
    /// The refill time of what it got then, in nanoseconds.
    cost_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct WalletRecord {
    /// The sum of all grants.
    granted: u64,
    /// The last report. Its `granted` are the grants that had arrived by then.
    reported: WalletReport,
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
    pub(super) fn new(known: &[KnownWallet]) -> Self {
        let wallet = |known: &KnownWallet| {
            let (granted, left) = (known.granted.min(MAX_NUMBER), known.outstanding.min(MAX_LIMIT));
            let reported =
                WalletReport { granted, left, spent: known.spent.min(MAX_NUMBER), ..WalletReport::default() };
            WalletRecord { granted, reported }
        };
        Self { wallets: known.iter().map(wallet).collect(), ..Self::default() }
    }

    /// Returns the sum of the grants of each budget.
    pub(super) fn granted(&self) -> Vec<u64> {
        self.wallets.iter().map(|wallet| wallet.granted).collect()
    }

    /// Returns what the next leader has to know.
    pub(super) fn known(&self) -> Vec<KnownWallet> {
        let known = |wallet: &WalletRecord| KnownWallet {
            granted: wallet.granted,
            outstanding: wallet.outstanding(),
            spent: wallet.reported.spent,
        };
        self.wallets.iter().map(known).collect()
    }

    /// Returns what the next call needs of each budget, if it waits. A call with a part of it on the way gets
    /// the whole: the member hands back a part before the rest arrives.
    fn next_call(&self) -> Option<Vec<u64>> {
        let waits = self.wallets.iter().any(|wallet| wallet.on_its_way() < wallet.reported.call);
        waits.then(|| self.wallets.iter().map(|wallet| wallet.reported.call).collect())
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
        self.budgets.served.saturating_add(self.budgets.cost_ns / u64::from(self.weight.max(1)))
    }
}

impl SharedBudgets {
    /// Creates a set without budgets. `inherited` are the amounts of the last leader, if they are known;
    /// `begins_empty` means that there may have been others.
    pub(super) fn new(inherited: Vec<i64>, begins_empty: bool) -> Self {
        Self { budgets: Vec::new(), inherited, begins_empty, served: 0, scarce_until: Instant::ZERO }
    }

    /// Sets the budgets. Those that change keep their amounts.
    pub(super) fn set(&mut self, now: Instant, configs: &[BudgetConfig]) {
        if self.budgets.iter().map(|budget| budget.config).eq(configs.iter().copied()) {
            return;
        }
        self.budgets.truncate(configs.len());
        for (budget, config) in self.budgets.iter_mut().zip(configs) {
            budget.config = *config;
            budget.bucket.set_rate(now, config.limit, config.window);
            budget.bucket.set_burst(now, budget.config.burst.unwrap_or(config.limit));
        }
        for config in &configs[self.budgets.len()..] {
            let mut bucket = Bucket::new(now, config);
            let amount = self.inherited.get(self.budgets.len()).copied();
            if let Some(amount) = amount.or(self.begins_empty.then_some(0)) {
                bucket.lower_to(now, u64::try_from(amount).unwrap_or(0));
                bucket.take(now, amount.min(0).unsigned_abs().min(MAX_LIMIT));
            }
            self.budgets.push(SharedBudget { config: *config, bucket });
        }
        self.inherited.clear();
    }

    /// Returns the amount in each bucket, rounded down.
    pub(super) fn amounts(&self, now: Instant) -> Vec<i64> {
        self.budgets.iter().map(|budget| budget.bucket.available(now)).collect()
    }

    /// Empties the buckets: another leader has granted amounts that this one does not know.
    pub(super) fn empty(&mut self, now: Instant) {
        self.begins_empty = true;
        self.inherited.clear();
        for budget in &mut self.budgets {
            budget.bucket.lower_to(now, 0);
        }
    }

    /// Processes what a member has spent and needs. Damaged amounts are ignored.
    pub(super) fn on_report(&mut self, now: Instant, member: &mut MemberBudgets, reports: &[WalletReport]) {
        for (at, (budget, report)) in self.budgets.iter_mut().zip(reports).enumerate() {
            if report.granted.max(report.spent).max(report.left) > MAX_NUMBER {
                continue;
            }
            if member.wallets.len() == at {
                // What a new member has spent before is not known here.
                let reported = WalletReport { spent: report.spent, ..WalletReport::default() };
                member.wallets.push(WalletRecord { granted: 0, reported });
            }
            let Some(wallet) = member.wallets.get_mut(at) else { continue };
            let before = wallet.reported.spent;
            budget.bucket.give(now, before.saturating_sub(report.spent));
            budget.bucket.take(now, report.spent.saturating_sub(before));
            // A leader whose decisions were lost may have granted more.
            wallet.granted = wallet.granted.max(report.granted);
            let (call, need) = (report.call.min(MAX_LIMIT), report.need.min(MAX_LIMIT));
            wallet.reported = WalletReport { call, need, ..*report };
        }
    }

    /// Counts what is outstanding at a member as spent: its lease has lapsed, or it is gone. If it reports
    /// later what it has spent, the rest returns.
    pub(super) fn reclaim(&mut self, now: Instant, member: &mut MemberBudgets) {
        for (budget, wallet) in self.budgets.iter_mut().zip(&mut member.wallets) {
            let outstanding = wallet.outstanding();
            budget.bucket.take(now, outstanding);
            let (granted, spent) = (wallet.granted, wallet.reported.spent.saturating_add(outstanding));
            wallet.reported = WalletReport { granted, spent, ..WalletReport::default() };
        }
    }

    /// Grants amounts to the members that may get some, all of which have reported. `others` is what is
    /// outstanding of each budget at the other members. Returns whether amounts are scarce. O(m log m) for m
    /// members.
    pub(super) fn grant(&mut self, now: Instant, claimants: &mut [Claimant<'_>], others: &[u64]) -> bool {
        let mut left = self.left(now, claimants, others);
        let is_met = self.grant_next_calls(claimants, &mut left) && Self::grant_needs(claimants, &mut left);
        if !is_met {
            self.scarce_until = now + SCARCE_FOR;
        } else if now >= self.scarce_until {
            self.grant_reserves(claimants, &mut left);
        }
        now < self.scarce_until
    }

    /// Returns the amount of each budget that can be granted.
    fn left(&self, now: Instant, claimants: &[Claimant<'_>], others: &[u64]) -> Vec<u64> {
        let left = |(at, budget): (usize, &SharedBudget)| {
            let outstanding = claimants.iter().map(|claimant| claimant.budgets.wallets[at].outstanding());
            let outstanding = outstanding.chain(others.get(at).copied()).fold(0, u64::saturating_add);
            u64::try_from(budget.bucket.available(now)).unwrap_or(0).saturating_sub(outstanding)
        };
        self.budgets.iter().enumerate().map(left).collect()
    }

    /// Grants the next call of each member that waits, least served first. Returns whether all of them fit.
    /// No member overtakes one whose call does not fit yet. A call larger than the bucket fits if the bucket
    /// is full.
    fn grant_next_calls<'a, 'b>(&mut self, claimants: &'b mut [Claimant<'a>], left: &mut [u64]) -> bool {
        let next_call = |claimant: &'b mut Claimant<'a>| Some((claimant.budgets.next_call()?, claimant));
        let mut waiting: Vec<_> = claimants.iter_mut().filter_map(next_call).collect();
        waiting.sort_by_key(|(_, claimant)| claimant.served_until().max(self.served));
        for (calls, claimant) in waiting {
            let mut amounts = self.budgets.iter().zip(&calls).zip(&*left);
            if !amounts.all(|((budget, call), left)| *left >= (*call).min(budget.burst())) {
                return false;
            }
            let mut refill_ns = 0;
            for (at, call) in calls.into_iter().enumerate() {
                claimant.budgets.wallets[at].granted += call;
                left[at] = left[at].saturating_sub(call);
                refill_ns = refill_ns.max(self.budgets[at].refill_ns(call));
            }
            self.served = self.served.max(claimant.served_until());
            claimant.budgets.served = self.served;
            claimant.budgets.cost_ns = u64::try_from(refill_ns).unwrap_or(u64::MAX);
        }
        true
    }

    /// Divides what is left by weighted max-min fairness. Returns whether all needs are met.
    fn grant_needs(claimants: &mut [Claimant<'_>], left: &mut [u64]) -> bool {
        let mut is_met = true;
        for (at, left) in left.iter_mut().enumerate() {
            let claim = |claimant: &Claimant<'_>| Claim {
                weight: u64::from(claimant.weight.max(1)),
                demand: claimant.budgets.wallets[at].need(),
            };
            let claims: Vec<Claim> = claimants.iter().map(claim).collect();
            for (claimant, amount) in claimants.iter_mut().zip(max_min(*left, &claims, 0)) {
                let wallet = &mut claimant.budgets.wallets[at];
                is_met &= amount == wallet.need();
                wallet.granted += amount;
                *left -= amount;
            }
        }
        is_met
    }

    /// Fills the wallets a little, while no member waits.
    fn grant_reserves(&self, claimants: &mut [Claimant<'_>], left: &mut [u64]) {
        let members = claimants.len() as u64;
        for ((at, left), budget) in left.iter_mut().enumerate().zip(&self.budgets) {
            for claimant in &mut *claimants {
                let wallet = &mut claimant.budgets.wallets[at];
                let reserve = budget.burst() / RESERVE_PARTS / members;
                let amount = reserve.saturating_sub(wallet.outstanding()).min(*left);
                wallet.granted += amount;
                *left -= amount;
            }
        }
    }

    /// Returns whether a member has reported all budgets, so that it can get grants.
    pub(super) fn has_reported(&self, member: &MemberBudgets) -> bool {
        member.wallets.len() >= self.budgets.len()
    }

    /// Adds what is outstanding at a member that may get no grants.
    pub(super) fn add_outstanding(member: &MemberBudgets, sums: &mut Vec<u64>) {
        sums.resize(sums.len().max(member.wallets.len()), 0);
        for (sum, wallet) in sums.iter_mut().zip(&member.wallets) {
            *sum = sum.saturating_add(wallet.outstanding());
        }
    }
}
