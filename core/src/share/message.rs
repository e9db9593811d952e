//! The messages between members, the leader and the store. The [parent module](super) defines the terms.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::hash::Hasher as _;

use crate::budget::{BudgetKey, WalletReport};
use crate::call::Outcome;
use crate::limit::member_state::describe_processes;
use crate::portable_hasher::PortableHasher;

/// The highest report number. A report with a higher one is damaged and ignored. Epochs and nonces are below
/// it.
pub(super) const MAX_NUMBER: u64 = 1 << 53;

/// The highest version. A report, a decision or a reply of the store with a higher one is damaged and
/// ignored.
pub(super) const MAX_VERSION: u64 = MAX_NUMBER - (1 << 39);

/// The version from which a leader continues if that of the snapshot is damaged. Those above are left for its
/// decisions and those of its successors.
pub(super) const HIGH_VERSION: u64 = MAX_NUMBER - (1 << 40);

/// The id of one member: a number that its process draws at random each time it starts.
///
/// It is at most 2^53, so that every JSON reader keeps it exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct MemberId(#[cfg_attr(feature = "serde", serde(deserialize_with = "crate::number::deserialize"))] pub u64);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One leadership: the time from one [`TakeLead`] that succeeds to the next.
///
/// Two terms with the same epoch can exist only if the store has lost writes. Their nonces differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Term {
    /// One more than the epoch of the term that it replaced.
    pub epoch: u64,
    /// A number drawn at random by the leader, below 2^53.
    pub nonce: u64,
}

impl Term {
    /// Returns the number of the leader, to show. It is the same in all processes.
    ///
    /// The upper 32 of the 53 bits of the nonce are short to compare, and hardly ever equal for two leaders.
    #[must_use]
    pub fn leader_number(self) -> u32 {
        // A damaged nonce may have more bits, which do not count.
        (self.nonce >> 21) as u32
    }

    /// Describes how many processes share a limit, and which one leads in this term: `2 processes, leader
    /// 12ab34cd`.
    #[must_use]
    pub fn describe_processes(self, count: usize) -> String {
        describe_processes(count, self.leader_number())
    }
}

/// The demand of one group (tenant) at one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GroupDemand {
    /// The group's name as a number that is the same in every process, such as a hash. 0 stands for all
    /// groups that the report does not name, because it has room only for the largest.
    pub group: u64,
    /// Its weight in the division of the limit. 0 counts as 1. If members report different weights, the
    /// highest counts.
    pub weight: u32,
    /// Its calls in flight or waiting.
    #[cfg_attr(feature = "serde", serde(rename = "wanted"))]
    pub demand: u32,
}

impl GroupDemand {
    /// Creates the demand of the group with this name.
    ///
    /// `weight` is that of a fairness group: above zero, at most 2^20. It is kept with a precision of 2^-10,
    /// and is at least that.
    #[must_use]
    pub fn new(name: &str, weight: f64, demand: u32) -> Self {
        let mut hasher = PortableHasher::default();
        hasher.write(name.as_bytes());
        // At most 2^53, so that every JSON reader keeps it exactly. 0 is not the number of a name.
        let group = (hasher.finish() >> 11).max(1);
        let weight = (weight * 1_024.0) as u32;
        Self { group, weight: weight.max(1), demand }
    }

    /// Returns how many calls all groups have in flight or waiting.
    pub(super) fn sum(groups: &[Self]) -> u32 {
        groups.iter().fold(0, |sum, group| sum.saturating_add(group.demand))
    }
}

/// A call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct EndedCall {
    /// The number of the call: the number of calls that the member had started before it.
    pub call: u64,
    /// The number of calls that the member had started when this one ended. The leader learns from it how
    /// many were in flight at each start.
    pub started: u64,
    /// How the call ended.
    pub outcome: Outcome,
    /// The time from its start to its end, in milliseconds, rounded down.
    pub latency_ms: u32,
    /// The time from its end to the report, in milliseconds, rounded down.
    pub age_ms: u32,
    /// The version that the member had adopted when the call started. 0 for a call that started without a
    /// lease.
    pub version: u64,
    /// The provider's Retry-After, in milliseconds, rounded down. `None` if there was none.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub retry_after_ms: Option<u32>,
}

/// The state of a member. Each report replaces the ones before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemberReport {
    /// The member.
    pub member: MemberId,
    /// The number of the report, from 1.
    pub seq: u64,
    /// The highest version that the member has adopted, or 0.
    pub version: u64,
    /// The share that it uses: that of the version, or 0 without a lease. The leader needs it if the store
    /// has lost writes, because it then may not know the version.
    pub share: u32,
    /// The number of calls started since the process started.
    pub started: u64,
    /// The number of calls ended since the process started.
    pub ended: u64,
    /// The last of the ended calls, in order of their ends: those that no decision has acknowledged, at most
    /// 1024.
    pub ends: Vec<EndedCall>,
    /// The demand: at most 32 groups and the group 0, each at most once.
    pub groups: Vec<GroupDemand>,
    /// Whether the member stops and starts no more calls.
    pub leaves: bool,
    /// The state of each budget of the member.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "BTreeMap::is_empty"))]
    pub budgets: BTreeMap<BudgetKey, WalletReport>,
}

impl MemberReport {
    /// Returns the number of calls in flight.
    pub(super) fn in_flight(&self) -> u32 {
        u32::try_from(self.started.saturating_sub(self.ended)).unwrap_or(u32::MAX)
    }

    /// Returns the most calls that were in flight at once after the first `ended` had ended.
    pub(super) fn most_in_flight(&self, ended: u64) -> u32 {
        let first = self.ended.saturating_sub(self.ends.len() as u64);
        let before_ends = self.ends.iter().zip(first..).filter(|(_, number)| *number >= ended);
        let most = before_ends.map(|(end, number)| end.started.min(self.started).saturating_sub(number)).max();
        u32::try_from(most.unwrap_or(0)).unwrap_or(u32::MAX).max(self.in_flight())
    }

    /// Returns whether its numbers cannot be those of a member.
    pub(super) fn is_damaged(&self) -> bool {
        self.version > MAX_VERSION || self.seq > MAX_NUMBER
    }
}

/// What a decision gives to one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemberShare {
    /// How many calls the member may have in flight.
    pub share: u32,
    /// The time between the starts of two calls of the member, in nanoseconds. 0 is no bound.
    pub pace_ns: u64,
    /// The number of the newest report of the member that the leader has processed, which the decision
    /// acknowledges.
    pub seen_seq: u64,
    /// For each budget that the leader and the member have, the sum of all amounts that were granted to the
    /// member.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "BTreeMap::is_empty"))]
    pub granted: BTreeMap<BudgetKey, u64>,
}

/// The state that the leader gives to all members. Each decision replaces the ones before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Decision {
    /// The term of the leader.
    pub term: Term,
    /// The number of the decision. It rises with each decision, also from one leader to the next.
    pub version: u64,
    /// The limit over all members, at least 1.
    pub limit: u32,
    /// How long no call may start, in milliseconds from the arrival of the decision. 0 is no pause.
    pub pause_ms: u32,
    /// The time from one report of a member to the next, in milliseconds. A member uses a value between
    /// [`ShareConfig::fast_beat`](super::ShareConfig::fast_beat) and
    /// [`ShareConfig::beat`](super::ShareConfig::beat) in any case.
    pub beat_ms: u32,
    /// Whether the leader stops with this decision. Another member takes the lead at once then.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "core::ops::Not::not"))]
    pub leader_leaves: bool,
    /// Whether a member waits for an amount of a budget. The others hand back what they do not use then.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "core::ops::Not::not"))]
    pub is_scarce: bool,
    /// The share of each member that the leader knows. Others have none.
    pub shares: BTreeMap<MemberId, MemberShare>,
}

impl Decision {
    /// Returns what the member `id` uses of it: the shares of the others are empty.
    pub(super) fn part_of(&self, id: MemberId) -> Self {
        let own =
            |member: MemberId, share: &MemberShare| if member == id { share.clone() } else { MemberShare::default() };
        let shares = self.shares.iter().map(|(member, share)| (*member, own(*member, share))).collect();
        Self { shares, ..*self }
    }
}

/// What the leader knows of one member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct KnownMember {
    /// The number of the newest report that the leader has processed.
    pub seq: u64,
    /// The number of ended calls in this report.
    pub ended: u64,
    /// The number of calls in flight in this report.
    pub in_flight: u32,
    /// What the member occupies: the highest of its calls in flight and of the shares that it has or may
    /// still adopt.
    pub occupied: u32,
    /// What the leader knows of its budgets.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "BTreeMap::is_empty"))]
    pub budgets: BTreeMap<BudgetKey, KnownWallet>,
}

/// What the leader knows of one budget of a member. Each is a sum since the start, except `outstanding`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct KnownWallet {
    /// The amounts that were granted to the member.
    pub granted: u64,
    /// The amount that the member may still spend, as far as the leader knows.
    pub outstanding: u64,
    /// The amounts that the member has spent.
    pub spent: u64,
}

/// The state that a leader leaves to its successor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LeaderSnapshot {
    /// The version of the decision with which the snapshot was written.
    pub version: u64,
    /// The learned limit.
    pub limit: u32,
    /// The time between two calls at the learned rate, in nanoseconds. `None` if no rate is known.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub interval_ns: Option<u64>,
    /// The version of the first decision after the last cut of the limit, or 0 if there was none. Calls that
    /// started under a lower version do not cut the limit again.
    pub cut_version: u64,
    /// The members that the leader knows.
    pub members: BTreeMap<MemberId, KnownMember>,
    /// The amount in the bucket of each budget. Negative while it is overdrawn.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "BTreeMap::is_empty"))]
    pub budgets: BTreeMap<BudgetKey, i64>,
}

/// A decision and the snapshot to store with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Decide {
    /// The decision.
    pub decision: Decision,
    /// The snapshot.
    pub snapshot: LeaderSnapshot,
}

/// The store's reply to a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Decided {
    /// The present term. If it is not that of the decision, the decision was rejected, and its leader has
    /// been replaced.
    pub term: Term,
    /// The version of the newest decision. If it is higher than that of the decision, the decision was
    /// rejected.
    pub version: u64,
}

/// The request of a member to become the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TakeLead {
    /// The term to replace; the default if there was none.
    pub expected: Term,
    /// The term of the new leader.
    pub term: Term,
}

/// The store's reply to [`TakeLead`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Lead {
    /// The present term. It is that of the request if the request succeeded, now or when it was sent before.
    pub term: Term,
    /// The last snapshot, if there is one.
    pub snapshot: Option<LeaderSnapshot>,
    /// Whether there is a snapshot that cannot be read. The shares that the last leader gave are then
    /// unknown.
    #[cfg_attr(feature = "serde", serde(default))]
    pub is_damaged: bool,
}
