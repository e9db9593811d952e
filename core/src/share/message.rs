//! The messages between members, the leader and the store.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use crate::call::Outcome;

/// The highest version and report number. A message with a higher one is damaged and ignored, so that it
/// cannot exhaust the numbers.
pub(super) const MAX_NUMBER: u64 = 1 << 53;

/// Names one process. A process draws a new one at random each time it starts.
///
/// A number of at most 2^53, so that every JSON reader keeps it exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct MemberId(pub u64);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One leadership. Two terms with the same epoch can exist only if the store has lost writes. Their nonces
/// differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Term {
    /// One more than the epoch before.
    pub epoch: u64,
    /// A number drawn at random by the leader, at most 2^53.
    pub nonce: u64,
}

/// The demand of one group (tenant) at one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Group {
    /// The group's name as a number that is the same in every process, such as a hash. 0 is the group of all
    /// groups beyond the largest.
    pub group: u64,
    /// Its weight; 0 counts as 1.
    pub weight: u32,
    /// Its calls in flight or waiting.
    pub wanted: u32,
}

/// A call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct EndedCall {
    /// How the call ended.
    pub outcome: Outcome,
    /// The time from its start to its end, in milliseconds.
    pub latency_ms: u32,
    /// The version that the member had adopted when the call started. 0 for a call that started without a
    /// lease.
    pub version: u64,
    /// The provider's Retry-After, in milliseconds.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub retry_after_ms: Option<u32>,
}

/// The state of a member. Each report replaces the ones before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Report {
    /// The member.
    pub member: MemberId,
    /// The number of the report, from 1.
    pub seq: u64,
    /// The highest version that the member has adopted, or 0.
    pub version: u64,
    /// The share that it uses: that of the version, or 0 without a lease. After the store lost writes, the
    /// leader may not know the version.
    pub share: u32,
    /// The calls started so far.
    pub started: u64,
    /// The calls ended so far.
    pub ended: u64,
    /// The last of the ended calls, in order: those that no decision has acknowledged.
    pub ends: Vec<EndedCall>,
    /// The demand. At most 32 groups and the group 0.
    pub groups: Vec<Group>,
    /// Whether the member stops and starts no more calls.
    pub leaves: bool,
}

impl Report {
    /// Returns the calls in flight.
    pub(super) fn in_flight(&self) -> u32 {
        u32::try_from(self.started.saturating_sub(self.ended)).unwrap_or(u32::MAX)
    }
}

/// What a decision gives to one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemberShare {
    /// How many calls the member may have in flight.
    pub share: u32,
    /// The newest report of the member that the leader has processed.
    pub seen_seq: u64,
}

/// The state that the leader gives to all members.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Decision {
    /// The term of the leader.
    pub term: Term,
    /// The number of the decision. It rises with each decision, also from one leader to the next.
    pub version: u64,
    /// The limit over all members.
    pub limit: u32,
    /// How long no call may start, from the arrival of the decision.
    pub pause_ms: u32,
    /// The time to the next report of a member.
    pub beat_ms: u32,
    /// The shares.
    pub shares: BTreeMap<MemberId, MemberShare>,
}

/// What the leader knows of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct KnownMember {
    /// The newest report that the leader has processed.
    pub seq: u64,
    /// The ended calls in it.
    pub ended: u64,
    /// The calls in flight in it.
    pub in_flight: u32,
    /// The highest of its calls in flight and of the shares that it has or may still adopt.
    pub occupied: u32,
}

/// The state that a leader leaves to its successor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Snapshot {
    /// The version of the decision with which the snapshot was written.
    pub version: u64,
    /// The learned limit.
    pub limit: u32,
    /// The version of the decision that followed the last cut of the limit, or 0.
    pub cut_version: u64,
    /// The members.
    pub members: BTreeMap<MemberId, KnownMember>,
}

/// A decision and the snapshot to store with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Decide {
    /// The decision.
    pub decision: Decision,
    /// The snapshot.
    pub snapshot: Snapshot,
}

/// The store's answer to a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Decided {
    /// The present term. The decision was rejected if it is another one.
    pub term: Term,
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

/// The store's answer to [`TakeLead`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Lead {
    /// The present term: that of the request if the request succeeded, now or earlier.
    pub term: Term,
    /// The last snapshot, if there is one.
    pub snapshot: Option<Snapshot>,
}
