//! The results of request admission commands: grants, waiters, denials and effects.

use core::fmt;

use super::keys::ResourceId;
use crate::id::SlotKey;
use crate::lease::LeaseId;
use crate::time::Instant;

/// The reason why a call cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum DenialReason {
    /// The limit or the provider's cap is reached.
    NoCapacity,
    /// A cooldown after a rate limit is in force.
    Cooldown,
    /// A rate budget of the resource is exhausted.
    BudgetExhausted,
    /// An earlier waiter of the same provider and model has priority.
    QueuedWaitersAhead,
    /// The deadline of the request passed.
    QueueTimeout,
    /// The caller cancelled the request, or its run is stopping.
    Cancelled,
    /// Request admission is shut down.
    Shutdown,
    /// The resource, the group or the list of fallbacks is not registered with this machine.
    Unregistered,
    /// The provider is down or suspected to be. A provider that is down gets only single probes. Calls to a
    /// suspected one are spaced apart.
    Outage,
    /// The provider or model is unavailable. Most causes need an operator to fix something: see
    /// [`UnavailableCause`](super::UnavailableCause).
    Unavailable,
    /// The retry of a failed call is denied: the provider responds to other calls, so the call itself
    /// caused the failure.
    RequestAtFault,
    /// The limit algorithm spaces calls in time. Fewer calls are in flight than the limit allows;
    /// [`Denial::changes_at`] is the instant at which the next call may start.
    Paced,
    /// The request should now use another of its [fallbacks](super::RequestAdmission::fallbacks). Make the
    /// same request again.
    UseFallback,
    /// The provider and model is [paused](super::RequestAdmission::set_paused).
    Paused,
}

/// The denial of a request, with the instant from which a new attempt makes sense, if it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Denial {
    /// The reason.
    pub reason: DenialReason,
    /// The next instant at which capacity changes by time alone, if it is known. For
    /// [`DenialReason::UseFallback`] it is the deadline of the request.
    pub changes_at: Option<Instant>,
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.reason {
            DenialReason::NoCapacity => "the limit of calls in flight is reached",
            DenialReason::Cooldown => "the resource cools down after a rate limit",
            DenialReason::Outage => "the provider is down",
            DenialReason::Unavailable => "the provider or model cannot be used",
            DenialReason::RequestAtFault => "the provider answers other calls",
            DenialReason::Paced => "calls are spaced in time",
            DenialReason::Paused => "it is paused",
            DenialReason::UseFallback => "another model is to be called instead",
            DenialReason::BudgetExhausted => "a rate budget is spent",
            DenialReason::QueuedWaitersAhead => "an earlier waiter goes first",
            DenialReason::QueueTimeout => "the deadline passed while waiting",
            DenialReason::Cancelled => "the request was withdrawn, or its run stops",
            DenialReason::Shutdown => "admission is shut down",
            DenialReason::Unregistered => "the resource, group or list of fallbacks is not registered",
        })?;
        match self.changes_at {
            Some(at) => write!(f, " (next change at {at})"),
            None => Ok(()),
        }
    }
}

/// The right to have one call in flight. Release it exactly once, with
/// [`RequestAdmission::release`](super::RequestAdmission::release) or
/// [`RequestAdmission::finish`](super::RequestAdmission::finish).
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the capacity of a dropped lease is lost: release the lease"]
pub struct RequestLease {
    pub(super) id: LeaseId,
}

impl RequestLease {
    /// Returns the lease as a plain value that can cross a language boundary.
    #[must_use]
    pub const fn id(&self) -> LeaseId {
        self.id
    }

    /// Returns the resource that this lease permits to call.
    #[must_use]
    pub const fn resource(&self) -> ResourceId {
        ResourceId::new(self.id.controller, self.id.item)
    }

    /// Creates a lease from its id. Whether the lease is active is checked when it is released.
    pub const fn from_id(id: LeaseId) -> Self {
        Self { id }
    }
}

/// The id of a waiter: its machine, and its slot and generation in that machine.
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

    /// Returns slot and generation as one number, which is unique among the waiters of one machine.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.key().to_bits()
    }

    #[cfg(test)]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self::new(0, SlotKey::from_bits(bits))
    }
}

/// The result of [`RequestAdmission::acquire`](super::RequestAdmission::acquire).
///
/// Exhaustive on purpose: a caller must handle every result.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum AcquireResult {
    /// The call may start now.
    Granted(RequestLease),
    /// The request waits. A [`RequestEffect`] grants or denies it later.
    Waiting(WaiterId),
    /// The request is denied.
    Denied(Denial),
}

/// What the caller must do after a call has ended: the result of
/// [`RequestAdmission::finish`](super::RequestAdmission::finish).
///
/// Exhaustive on purpose: a caller must handle every result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum AfterCall {
    /// The outcome is final.
    Final,
    /// The call failed in an outage, or in a streak of failures that may become one. Pass the value to
    /// [`RequestAdmission::retry`](super::RequestAdmission::retry).
    Retry(Retry),
    /// The provider or model is unavailable. A request with fallbacks is made once more, for one of them.
    /// Without fallbacks, the caller keeps the work for later.
    Unavailable,
}

/// The failure of a call that is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Retry {
    /// The index of the provider and model that was called.
    pub(super) provider: u32,
    /// The health epoch in which the call was granted.
    pub(super) epoch: u32,
    /// The streak of failures to which the call belongs.
    pub(super) streak: u32,
    pub(super) failed_probes: FailedProbes,
}

/// Counts how often one call has failed as a probe or in a short outage, and at which providers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct FailedProbes {
    count: u8,
    /// One bit for each provider and model: bit `index % 32`. Indices from 32 up share bits with lower ones.
    providers: u32,
}

impl FailedProbes {
    /// The count from which a call may be a poison request: one that fails whenever it is made.
    const POISON_COUNT: u8 = 3;

    pub(super) fn plus_one(self, provider: u32) -> Self {
        Self { count: self.count.saturating_add(1), providers: self.providers | provider_bit(provider) }
    }

    pub(super) fn reach_poison_count(self) -> bool {
        self.count >= Self::POISON_COUNT
    }

    pub(super) fn includes(self, provider: u32) -> bool {
        self.providers & provider_bit(provider) != 0
    }
}

fn provider_bit(provider: u32) -> u32 {
    1 << (provider % u32::BITS)
}

/// A decision that the host carries out: the result for a waiter, or a call to make.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum RequestEffect {
    /// The call of a waiter may start.
    Granted {
        /// The waiter.
        waiter: WaiterId,
        /// The lease of its call.
        lease: RequestLease,
    },
    /// The request of a waiter is denied.
    Denied {
        /// The waiter.
        waiter: WaiterId,
        /// The reason, and when capacity next changes.
        denial: Denial,
    },
    /// The host must make a health call: the smallest call that shows whether the provider and model
    /// responds. It is sent only to a host that enabled health calls with
    /// [`RequestAdmission::set_health_calls`](super::RequestAdmission::set_health_calls).
    HealthCall {
        /// The lease of the call, for the resource that was passed to
        /// [`RequestAdmission::set_health_calls`](super::RequestAdmission::set_health_calls).
        lease: RequestLease,
    },
}
