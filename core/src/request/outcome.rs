//! How a call ended, and why one was not let out.

use core::fmt;

use super::budget::Usage;
use crate::handle::SlotKey;
use crate::lease::LeaseId;
use crate::time::{Duration, Instant};

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Outcome {
    /// The provider answered.
    Success,
    /// The provider refused for too many calls: 429 and the like.
    RateLimited,
    /// The provider failed: 5xx, a broken connection, a refusal of this one request.
    ProviderFailure,
    /// The provider did not answer in time.
    ProviderTimeout,
    /// The caller gave up. Interruptions are this in every host.
    LocalCancelled,
    /// The caller's own deadline passed.
    LocalTimeout,
    /// Something else went wrong on the caller's side.
    Unexpected,
}

/// An outcome with what the provider said about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Completion {
    /// How the call ended.
    pub outcome: Outcome,
    /// The provider's Retry-After, for a rate-limited answer.
    #[cfg_attr(feature = "serde", serde(default))]
    pub retry_after: Option<Duration>,
    /// What the call used, if that is known: it takes the place of the request's estimate in the resource's budgets.
    #[cfg_attr(feature = "serde", serde(default))]
    pub usage: Option<Usage>,
}

impl Completion {
    /// A call that ended so.
    #[must_use]
    pub const fn new(outcome: Outcome) -> Self {
        Self { outcome, retry_after: None, usage: None }
    }

    /// A refusal for too many calls, with the provider's Retry-After if it gave one.
    #[must_use]
    pub const fn rate_limited(retry_after: Option<Duration>) -> Self {
        Self { retry_after, ..Self::new(Outcome::RateLimited) }
    }

    /// The pause that the provider asked for: its Retry-After, if that is more than zero.
    pub(super) fn asked(&self) -> Option<Duration> {
        self.retry_after.filter(|wait| !wait.is_zero())
    }

    /// The same, having used this much.
    #[must_use]
    pub const fn used(self, usage: Usage) -> Self {
        Self { usage: Some(usage), ..self }
    }
}

impl From<Outcome> for Completion {
    fn from(outcome: Outcome) -> Self {
        Self::new(outcome)
    }
}

/// Why a call may not go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum DenialReason {
    /// The limit or the provider's cap is reached.
    NoCapacity,
    /// The provider asked for a pause.
    Cooldown,
    /// A rate budget of the resource is spent.
    BudgetExhausted,
    /// An earlier waiter of the same provider and model goes first.
    QueuedWaitersAhead,
    /// The deadline passed.
    QueueTimeout,
    /// The caller withdrew.
    Cancelled,
    /// The gate is shut.
    Shutdown,
    /// The resource, or the group, was never registered here.
    Unregistered,
}

/// A refusal, with the instant from which asking again is known to make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Denial {
    /// Why.
    pub reason: DenialReason,
    /// When capacity next changes by time alone, if that is known.
    pub changes_at: Option<Instant>,
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.reason {
            DenialReason::NoCapacity => "the limit of calls in flight is reached",
            DenialReason::Cooldown => "the provider asked for a pause",
            DenialReason::BudgetExhausted => "a rate budget is spent",
            DenialReason::QueuedWaitersAhead => "an earlier waiter goes first",
            DenialReason::QueueTimeout => "the deadline passed while waiting",
            DenialReason::Cancelled => "the request was withdrawn",
            DenialReason::Shutdown => "admission is shut down",
            DenialReason::Unregistered => "the provider and model were never registered",
        })?;
        match self.changes_at {
            Some(at) => write!(f, " (next change at {at})"),
            None => Ok(()),
        }
    }
}

/// The right to have one call in flight. Give it back through
/// [`RequestAdmission::release`](super::RequestAdmission::release), exactly once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a lease that is dropped is capacity lost for ever: release it"]
pub struct RequestLease {
    pub(super) id: LeaseId,
}

impl RequestLease {
    /// The lease as a plain value, to cross a language boundary with.
    #[must_use]
    pub const fn id(&self) -> LeaseId {
        self.id
    }

    /// The lease that `id` names; whether it is live is checked when it is released.
    pub const fn from_id(id: LeaseId) -> Self {
        Self { id }
    }
}

/// Names a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WaiterId(pub(super) SlotKey);

impl WaiterId {
    /// The waiter as one number, unique among the waiters of one controller.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    #[cfg(test)]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(SlotKey::from_bits(bits))
    }

    /// Where the controller keeps it: no other waiter that is not answered is kept there.
    pub(crate) const fn slot(self) -> usize {
        self.0.slot as usize
    }
}

/// The answer to [`RequestAdmission::acquire`](super::RequestAdmission::acquire).
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Acquire {
    /// The call may go out now.
    Granted(RequestLease),
    /// An [`Effect`] will tell.
    Waiting(WaiterId),
    /// The call may not go out.
    Denied(Denial),
}

/// News for a waiter.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Effect {
    /// Its call may go out.
    Granted {
        /// Whose.
        waiter: WaiterId,
        /// With this lease.
        lease: RequestLease,
    },
    /// It waited in vain.
    Refused {
        /// Who.
        waiter: WaiterId,
        /// Why.
        denial: Denial,
    },
}
