//! The answers of request admission: grants, waiters and denials.

use core::fmt;

use super::keys::ResourceId;
use crate::id::SlotKey;
use crate::lease::LeaseId;
use crate::time::Instant;

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
    /// The caller withdrew, or its run stops.
    Cancelled,
    /// The gate is shut.
    Shutdown,
    /// The resource, or the group, was never registered here.
    Unregistered,
    /// The provider is down: nothing goes out but a probe now and then.
    Outage,
    /// Calls are rejected, most often until a person changes something: see
    /// [`UnavailableCause`](super::UnavailableCause).
    Unavailable,
    /// The call was to be made again, and is not: the provider answers other calls, so the failure was its
    /// own.
    FailureStands,
    /// The limit algorithm spaces calls in time. Fewer are out than its limit allows; [`Denial::changes_at`]
    /// is when the next may go out.
    Paced,
    /// Of its [fallbacks](super::RequestAdmission::fallbacks) another is to be called now: ask again.
    FallBack,
}

/// A refusal, with the instant from which asking again is known to make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Denial {
    /// Why.
    pub reason: DenialReason,
    /// When capacity next changes by time alone, if that is known; for [`DenialReason::FallBack`] the
    /// deadline of the request.
    pub changes_at: Option<Instant>,
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.reason {
            DenialReason::NoCapacity => "the limit of calls in flight is reached",
            DenialReason::Cooldown => "the provider asked for a pause",
            DenialReason::Outage => "the provider is down",
            DenialReason::Unavailable => "the provider or model cannot be used",
            DenialReason::FailureStands => "the provider answers other calls",
            DenialReason::Paced => "calls are spaced in time",
            DenialReason::FallBack => "another model is to be called instead",
            DenialReason::BudgetExhausted => "a rate budget is spent",
            DenialReason::QueuedWaitersAhead => "an earlier waiter goes first",
            DenialReason::QueueTimeout => "the deadline passed while waiting",
            DenialReason::Cancelled => "the request was withdrawn, or its run stops",
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

    /// The resource that may be called with it.
    #[must_use]
    pub const fn resource(&self) -> ResourceId {
        ResourceId::new(self.id.controller, self.id.item)
    }

    /// The lease that `id` names; whether it is live is checked when it is released.
    pub const fn from_id(id: LeaseId) -> Self {
        Self { id }
    }
}

/// Names a waiter: its controller, and slot and generation there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WaiterId {
    pub(super) controller: u32,
    slot: u32,
    generation: u32,
}

impl WaiterId {
    pub(super) const fn new(controller: u32, key: SlotKey) -> Self {
        Self { controller, slot: key.slot, generation: key.generation }
    }

    pub(crate) const fn key(self) -> SlotKey {
        SlotKey { slot: self.slot, generation: self.generation }
    }

    /// Slot and generation as one number, unique among the waiters of one controller.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.key().to_bits()
    }

    #[cfg(test)]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self::new(0, SlotKey::from_bits(bits))
    }
}

/// The answer to [`RequestAdmission::acquire`](super::RequestAdmission::acquire).
///
/// Exhaustive on purpose: a caller must handle every answer.
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

/// What becomes of a call that has ended: the answer to
/// [`RequestAdmission::finish`](super::RequestAdmission::finish).
///
/// Exhaustive on purpose: a caller must handle every answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum AfterCall {
    /// Its outcome is final.
    Final,
    /// It failed in an outage, or in what may become one, and is made again:
    /// [`RequestAdmission::retry`](super::RequestAdmission::retry).
    Retry(Retry),
    /// Its provider or model cannot be used any more. The work is kept for another time, unless the request
    /// has fallbacks: then it is made once more, for one of them.
    Unavailable,
}

/// How a call failed that is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Retry {
    /// The index of the provider and model that it was made for.
    pub(super) provider: u32,
    /// The health epoch of its grant.
    pub(super) epoch: u32,
    /// The streak of failures that it belongs to.
    pub(super) streak: u32,
    pub(super) failed_probes: FailedProbes,
}

/// How often a call has failed as a probe or in an outage of less than a second, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct FailedProbes {
    count: u8,
    /// A bit for each provider and model, by its index; those of far indices are shared.
    places: u32,
}

impl FailedProbes {
    /// After so many a call may be a poison request.
    const MANY: u8 = 3;

    pub(super) fn and_one(self, provider: u32) -> Self {
        Self { count: self.count.saturating_add(1), places: self.places | bit_of(provider) }
    }

    pub(super) fn are_many(self) -> bool {
        self.count >= Self::MANY
    }

    pub(super) fn include(self, provider: u32) -> bool {
        self.places & bit_of(provider) != 0
    }
}

fn bit_of(provider: u32) -> u32 {
    1 << (provider % u32::BITS)
}

/// A decision that the host carries out: the answer to a waiter, or a call to make.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
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
    /// The host makes a health call: the smallest one that shows whether the provider and model answers. Only
    /// a host that [said so](super::RequestAdmission::set_health_calls) gets this.
    HealthCall {
        /// With this lease, of the resource that it named.
        lease: RequestLease,
    },
}
