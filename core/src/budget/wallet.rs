//! The wallet of a budget that several processes [share](crate::share): the amount that this process may
//! spend.
//!
//! A leader owns the bucket of the budget and grants amounts from it. A wallet spends what was granted, and
//! nothing else:
//!
//! ```text
//! lease       adds what was granted since the last time
//! reserve     takes the estimate of a call, if the wallet has as much
//! settle      takes what the call used beyond its estimate; an excess goes to the leader's bucket
//! report      hands back what is not needed, and asks for what is
//! ```
//!
//! All amounts that go to the leader and back are sums since the start, or the present state. So a lost,
//! repeated or late message is harmless.

use alloc::collections::BTreeMap;
use core::hash::Hasher as _;

use super::bucket::Bucket;
use super::{BudgetConfig, MAX_LIMIT, Usage};
use crate::call::Dimension;
use crate::portable_hasher::PortableHasher;
use crate::time::{Duration, Instant};

/// A wallet asks in advance for what it has taken in this time, and for up to twice as long.
const RECENT: Duration = Duration::from_millis(200);

/// How long a call that was denied counts as one that waits. A caller that tries again within this time
/// finds what was granted for it.
const DENIED_FOR: Duration = Duration::from_secs(1);

/// Names one budget of a resource by what it counts and its window. The key is the same in every process,
/// also if the limits differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct BudgetKey(#[cfg_attr(feature = "serde", serde(deserialize_with = "crate::number::deserialize"))] u64);

impl BudgetKey {
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// Returns the keys of all budgets of a resource, in their order. Several budgets of one dimension and
    /// window have different keys.
    pub fn of_each(budgets: &[BudgetConfig]) -> impl Iterator<Item = Self> + '_ {
        budgets.iter().enumerate().map(|(at, budget)| {
            let is_like = |other: &&BudgetConfig| (other.dimension, other.window) == (budget.dimension, budget.window);
            let mut hasher = PortableHasher::default();
            let dimension = match budget.dimension {
                Dimension::Requests => "requests",
                Dimension::InputTokens => "input_tokens",
                Dimension::OutputTokens => "output_tokens",
                Dimension::TotalTokens => "total_tokens",
            };
            hasher.write(dimension.as_bytes());
            hasher.write_u64(budget.window.as_nanos());
            hasher.write_u64(budgets[..at].iter().filter(is_like).count() as u64);
            // At most 2^53, so that every JSON reader keeps it exactly.
            Self(hasher.finish() >> 11)
        })
    }
}

/// What the wallets of a resource may spend from now on. [`Member::wallet_lease`](crate::share::Member)
/// returns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WalletLease {
    /// For each budget that the leader has, the sum of all amounts that were granted to this process.
    pub granted: BTreeMap<BudgetKey, u64>,
    /// How the wallets are used.
    pub mode: WalletMode,
}

/// How the wallets of a resource are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum WalletMode {
    /// There is no lease, or the process leaves. Nothing may be spent, and everything is handed back.
    #[default]
    Closed,
    /// Under a lease. What is not used is kept, so that the next call need not wait for a grant.
    Plentiful,
    /// Under a lease, while a call of some process waits for a grant. What is not used is handed back.
    Scarce,
    /// The other processes are lost. In place of the wallet, each budget refills by its part: one in this
    /// many, at least 1.
    Alone {
        /// The number of parts.
        parts: u32,
    },
}

/// The state of one wallet, for the leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WalletReport {
    /// The sum of all amounts that were granted and have arrived.
    pub granted: u64,
    /// The amount in the wallet.
    pub left: u64,
    /// The sum of all amounts that were spent, less those that calls have returned.
    pub spent: u64,
    /// The least amount beyond `left` with which the call starts that waits for the budget, or 0 if none
    /// does.
    pub call: u64,
    /// The amount beyond `left` that can be used now. At least `call`.
    pub need: u64,
}

/// The calls of a resource that wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitingCalls {
    pub(crate) count: u32,
    input_tokens: u64,
    output_tokens: u64,
    /// How many of them the limit on concurrent calls lets start.
    pub(crate) room: u32,
    /// The estimate of the next call, if it waits for a budget.
    pub(crate) next: Option<Usage>,
}

impl WaitingCalls {
    /// Adds one call.
    pub(crate) fn add(&mut self, estimate: Usage) {
        self.count += 1;
        self.input_tokens += u64::from(estimate.input_tokens);
        self.output_tokens += u64::from(estimate.output_tokens);
    }

    /// Removes one call that was added.
    pub(crate) fn remove(&mut self, estimate: Usage) {
        self.count -= 1;
        self.input_tokens -= u64::from(estimate.input_tokens);
        self.output_tokens -= u64::from(estimate.output_tokens);
    }

    /// Returns what those need that can start. A process without a slot must not keep amounts from others.
    fn need(&self, dimension: Dimension) -> u64 {
        let all = match dimension {
            Dimension::Requests => u64::from(self.count),
            Dimension::InputTokens => self.input_tokens,
            Dimension::OutputTokens => self.output_tokens,
            Dimension::TotalTokens => self.input_tokens + self.output_tokens,
        };
        let startable = self.room.min(self.count);
        (u128::from(all) * u128::from(startable)).div_ceil(u128::from(self.count.max(1))).min(u128::from(MAX_LIMIT))
            as u64
    }
}

/// A call that was denied because a shared budget was spent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeniedCall {
    at: Instant,
    pub(crate) estimate: Usage,
}

impl DeniedCall {
    pub(crate) fn new(at: Instant, estimate: Usage) -> Self {
        Self { at, estimate }
    }

    /// Returns whether it counts as a call that waits after a report at `now`. The first report always has
    /// it.
    pub(crate) fn is_recent(&self, now: Instant) -> bool {
        now - self.at < DENIED_FOR
    }
}

/// The wallet of one budget.
#[derive(Clone, Debug, Default)]
pub(super) struct Wallet {
    granted: u64,
    left: u64,
    spent: u64,
    mode: WalletMode,
    /// Whether the leader has this budget.
    is_known: bool,
    /// What was taken since `began`, and in the time before.
    taken: [u64; 2],
    began: Instant,
}

impl Wallet {
    pub(super) fn is_alone(&self) -> bool {
        matches!(self.mode, WalletMode::Alone { .. })
    }

    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Returns whether the leader grants nothing of this budget because it has none like it.
    pub(super) fn is_unknown(&self) -> bool {
        !self.is_known && matches!(self.mode, WalletMode::Plentiful | WalletMode::Scarce)
    }

    /// Returns whether a lease changes nothing.
    pub(super) fn has(&self, key: BudgetKey, lease: &WalletLease) -> bool {
        let granted = lease.granted.get(&key);
        self.is_known == granted.is_some()
            && granted.is_none_or(|granted| *granted <= self.granted)
            && self.mode == lease.mode
    }

    /// Applies a lease. Returns the bucket to use from now on if the process has just lost the others: it
    /// is empty.
    pub(super) fn lease(
        &mut self,
        now: Instant,
        key: BudgetKey,
        lease: &WalletLease,
        config: &BudgetConfig,
    ) -> Option<Bucket> {
        let before = core::mem::replace(&mut self.mode, lease.mode);
        let granted = lease.granted.get(&key);
        self.is_known = granted.is_some();
        // An older leader may have granted more than this one says.
        let granted = granted.copied().unwrap_or(0).max(self.granted);
        let new = granted - self.granted;
        self.granted = granted;
        match lease.mode {
            WalletMode::Plentiful | WalletMode::Scarce => self.left = self.left.saturating_add(new),
            WalletMode::Closed => self.left = 0,
            WalletMode::Alone { parts } => {
                self.left = 0;
                return (before != lease.mode).then(|| part_of(now, config, parts));
            }
        }
        None
    }

    /// Returns whether a call of this amount can start. A call without an estimate may use the budget as
    /// well, so it does not start with an empty wallet.
    pub(super) fn fits(&self, amount: u64) -> bool {
        amount.max(1) <= self.left
    }

    /// Takes the estimate of a call. `burst` is the largest amount that the bucket holds.
    pub(super) fn take(&mut self, amount: u64, burst: u64) {
        // More than the bucket holds was granted for one call, and not for others if that call was withdrawn
        // or is smaller now.
        self.left = self.left.min(burst).saturating_sub(amount);
        self.spend(amount);
    }

    fn spend(&mut self, amount: u64) {
        self.spent = self.spent.saturating_add(amount);
        self.taken[0] = self.taken[0].saturating_add(amount);
    }

    /// Replaces the estimate of a call by what it used.
    pub(super) fn settle(&mut self, estimate: u64, used: u64) {
        if let Some(beyond) = used.checked_sub(estimate) {
            self.left = self.left.saturating_sub(beyond);
            self.spend(beyond);
        } else {
            self.spent = self.spent.saturating_sub(estimate - used);
        }
    }

    /// Lowers the amount in the wallet to `most`. The rest counts as spent.
    pub(super) fn lower_to(&mut self, most: u64) {
        let beyond = self.left.saturating_sub(most);
        self.left -= beyond;
        self.spent = self.spent.saturating_add(beyond);
    }

    /// Hands back the amount in the wallet. The next lease applies as if it were the first one.
    pub(super) fn close(&mut self) {
        self.left = 0;
        self.mode = WalletMode::Closed;
    }

    /// Hands back what is not needed, and returns the state.
    pub(super) fn report(&mut self, now: Instant, waiting: &WaitingCalls, dimension: Dimension) -> WalletReport {
        if now - self.began >= RECENT {
            let is_latest = now - self.began < RECENT + RECENT;
            self.taken = [0, if is_latest { self.taken[0] } else { 0 }];
            self.began = now;
        }
        let call = waiting.next.map_or(0, |estimate| estimate.of(dimension).max(1));
        let uses = waiting.need(dimension).saturating_add(self.taken[0]).saturating_add(self.taken[1]).max(call);
        if self.mode == WalletMode::Scarce {
            // A process that keeps a part of what its next call needs can keep others from theirs, and they
            // it.
            self.left = if waiting.next.is_some() { 0 } else { self.left.min(uses) };
        }
        let Self { granted, left, spent, .. } = *self;
        let missing = |amount: u64| amount.saturating_sub(left).min(MAX_LIMIT);
        WalletReport { granted, left, spent, call: missing(call), need: missing(uses) }
    }
}

/// Returns an empty bucket that refills by one part in `parts` of a budget.
fn part_of(now: Instant, config: &BudgetConfig, parts: u32) -> Bucket {
    let parts = u64::from(parts.max(1));
    let window = Duration::from_nanos(config.window.as_nanos().saturating_mul(parts));
    let burst = (config.burst.unwrap_or(config.limit) / parts).max(1);
    let mut bucket = Bucket::new(now, &BudgetConfig { window, burst: Some(burst), ..*config });
    bucket.lower_to(now, 0);
    bucket
}
