//! The events of request admission: a log of what it decided and observed.
//!
//! Request admission emits only the kinds of events that were enabled with
//! [`RequestAdmission::set_interest`](super::RequestAdmission::set_interest). Every other kind costs one
//! branch. The host reads events with [`RequestAdmission::poll_event`](super::RequestAdmission::poll_event).
//! Reading events is optional, unlike polling effects: at most [`MAX_PENDING`] events are kept, and further
//! ones are dropped and counted.

use super::keys::{ProviderModelId, ResourceId};
use super::result::{Denial, DenialReason, WaiterId};
use super::snapshot::UnavailableCause;
use crate::budget::{Dimension, StatedRate};
use crate::call::Outcome;
use crate::event::{Correlation, event_kinds};
use crate::lease::{LeaseId, ReleaseResult};
use crate::time::{Duration, Instant};

pub use crate::event::MAX_PENDING;

/// One event of request admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RequestEvent {
    /// The number of the event, counted from 0. A gap means that events were dropped.
    pub sequence: u64,
    /// When the event happened.
    pub at: Instant,
    /// The scope of the event: a resource, a provider and model, or all of request admission.
    #[cfg_attr(feature = "serde", serde(rename = "place"))]
    pub scope: EventScope,
    /// The task whose call the event concerns, as in the events of its run. It is `None`, and absent from
    /// JSON, for a call that was made without the [token](crate::pipeline::Task::token) of a task, and for
    /// events that concern no single call.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub correlation: Option<Correlation>,
    /// The kind and the details of the event.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub payload: RequestEventPayload,
}

/// The scope of an event.
///
/// Exhaustive on purpose: a host must handle the scope of every event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum EventScope {
    /// All of request admission.
    Controller,
    /// A provider and model, in all its domains.
    Model(ProviderModelId),
    /// One resource.
    Resource(ResourceId),
}

/// The kind of an event, with its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum RequestEventPayload {
    /// An alias was registered.
    ResourceRegistered {
        /// The cap of the alias.
        cap: u32,
    },
    /// The lowest cap of all aliases changed.
    EffectiveCapChanged {
        /// The cap before; `None` for a new provider and model.
        from: Option<u32>,
        /// The cap in force.
        to: u32,
    },
    /// A waiter joined an empty queue.
    QueueFormed,
    /// The last waiter left the queue.
    QueueDrained,
    /// A request was made. For a request that does not wait, its result follows at the same instant.
    WaitStarted {
        /// The waiter, if the request had to wait.
        waiter: Option<WaiterId>,
    },
    /// A request was granted, at once or after a wait.
    WaitCompleted {
        /// The waiter, if the request had to wait.
        waiter: Option<WaiterId>,
        /// How long it waited. It is zero for a request without a timeout that was made while events were
        /// disabled.
        waited: Duration,
    },
    /// A waiter's deadline passed.
    WaitTimeout {
        /// The waiter, if the request had to wait.
        waiter: Option<WaiterId>,
        /// How long it waited.
        waited: Duration,
    },
    /// A waiter was cancelled, or was denied for another reason than its deadline.
    WaitCancelled {
        /// The waiter.
        waiter: WaiterId,
        /// How long it waited. It is zero for a request without a timeout that was made while events were
        /// disabled.
        waited: Duration,
        /// The reason.
        reason: DenialReason,
    },
    /// A request was denied at once.
    AcquireDenied {
        /// The reason.
        reason: DenialReason,
        /// The next instant at which capacity changes by time alone. It is `None`, and absent from JSON, if
        /// it is not known.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        changes_at: Option<Instant>,
    },
    /// A lease was granted, so its call may start.
    LeaseAcquired {
        /// The lease.
        lease: LeaseId,
        /// The limit at the grant.
        limit: u32,
        /// The calls of the resource in flight, including this one.
        in_flight: u32,
    },
    /// A call started. It is emitted together with the grant of the lease, because request admission does not
    /// observe when the host sends the call.
    CallStarted {
        /// The lease.
        lease: LeaseId,
    },
    /// A call ended, or the host gave it up.
    CallCompleted {
        /// The lease.
        lease: LeaseId,
        /// How the call ended.
        outcome: Outcome,
        /// How long the call took. It is zero if events were disabled when it started.
        took: Duration,
    },
    /// A lease was released.
    LeaseReleased {
        /// The lease.
        lease: LeaseId,
        /// How the call ended.
        outcome: Outcome,
        /// How long the lease was held. It is zero if events were disabled when it was granted.
        held: Duration,
        /// The calls of the resource that are still in flight.
        in_flight: u32,
    },
    /// A release was rejected: the lease was not active.
    ReleaseDiagnostic {
        /// The lease that was passed to the release.
        lease: LeaseId,
        /// Why nothing was released.
        #[cfg_attr(feature = "serde", serde(rename = "answer"))]
        result: ReleaseResult,
    },
    /// The provider refused a call with a rate limit.
    RateLimited {
        /// The end of the cooldown, if one is in force.
        blocked_until: Option<Instant>,
        /// The number of rate limits since
        /// [`ResourceSnapshot::consecutive_rate_limits`](super::ResourceSnapshot::consecutive_rate_limits)
        /// was last reset.
        consecutive: u32,
    },
    /// A cooldown that the provider requested was shortened to the longest that the settings allow.
    CooldownCapped {
        /// The cooldown that the provider requested.
        requested: Duration,
        /// The cooldown that applies.
        applied: Duration,
    },
    /// The limit decreased, because of the end of a call, a lower cap or changed settings.
    LimitDecreased {
        /// The limit before.
        from: u32,
        /// The limit in force.
        to: u32,
    },
    /// The limit increased, because of the end of a call, a higher cap or changed settings.
    LimitIncreased {
        /// The limit before.
        from: u32,
        /// The limit in force.
        to: u32,
    },
    /// The limit rose above the rate-limit ceiling: the limit that the first cut found too high.
    SoftCeilingRecovered {
        /// The limit in force.
        limit: u32,
    },
    /// The limit is at its maximum again, and no cooldown is in force.
    FullyRecovered {
        /// The limit in force.
        limit: u32,
    },
    /// A ramp raised the limit. The event is emitted by the first command after the step; while requests
    /// wait, that is at the instant of the step.
    RampStep {
        /// The limit before.
        from: u32,
        /// The limit in force.
        to: u32,
    },
    /// A rate limit ended a ramp.
    RampAborted {
        /// The limit that the ramp had reached.
        limit: u32,
    },
    /// A correction from the provider changed a budget.
    BudgetCorrected {
        /// The dimension of the budget.
        dimension: Dimension,
        /// The amount that was available before.
        before: i64,
        /// The amount that is available now.
        after: i64,
    },
    /// A response stated a rate of the provider that was not known before. Calls are paced to it from now on.
    RateLearned {
        /// The stated rate.
        rate: StatedRate,
    },
    /// The provider went down, or a probe failed and it stays down.
    ProviderDown {
        /// The first failure of the outage.
        since: Instant,
        /// When the next probe is due.
        probe_at: Instant,
    },
    /// A probe was granted: the single call that tests whether the provider is back.
    ProviderProbed {
        /// The lease of the probe.
        lease: LeaseId,
    },
    /// The provider is back.
    ProviderRecovered {
        /// The first failure of the outage.
        since: Instant,
        /// When limits have climbed to their previous values, unless a failure or a rate limit ends the climb
        /// earlier.
        full_at: Instant,
    },
    /// The provider became unavailable: calls to it are denied.
    ProviderUnavailable {
        /// The reason.
        cause: UnavailableCause,
        /// When the next probe is due. `None` means that no probe is sent until the provider is
        /// [reopened](super::RequestAdmission::reopen).
        probe_at: Option<Instant>,
    },
}

impl From<Denial> for RequestEventPayload {
    fn from(Denial { reason, changes_at }: Denial) -> Self {
        Self::AcquireDenied { reason, changes_at }
    }
}

event_kinds!(
    RequestEventPayload, RequestEventKind:
    ResourceRegistered,
    EffectiveCapChanged,
    QueueFormed,
    QueueDrained,
    WaitStarted,
    WaitCompleted,
    WaitTimeout,
    WaitCancelled,
    AcquireDenied,
    LeaseAcquired,
    CallStarted,
    CallCompleted,
    LeaseReleased,
    ReleaseDiagnostic,
    RateLimited,
    CooldownCapped,
    LimitDecreased,
    LimitIncreased,
    SoftCeilingRecovered,
    FullyRecovered,
    RampStep,
    RampAborted,
    BudgetCorrected,
    RateLearned,
    ProviderDown,
    ProviderProbed,
    ProviderRecovered,
    ProviderUnavailable,
);

/// A set of event kinds to emit.
pub type RequestInterest = crate::event::Interest<RequestEventKind>;

/// The events that were emitted and not polled yet.
pub(super) type EventLog = crate::event::EventLog<RequestEventKind, RequestEvent>;

impl EventLog {
    /// Records an event that concerns no single call.
    #[inline]
    pub(super) fn push(&mut self, at: Instant, scope: EventScope, payload: RequestEventPayload) {
        if self.is_on() {
            self.push_enabled(at, scope, payload);
        }
    }

    /// The slow path of [`Self::push`]. A separate function keeps the correlation argument out of the hot
    /// paths.
    #[cold]
    fn push_enabled(&mut self, at: Instant, scope: EventScope, payload: RequestEventPayload) {
        self.push_correlated(at, scope, None, payload);
    }

    /// Records an event that may concern a call of a task.
    #[cold]
    pub(super) fn push_correlated(
        &mut self,
        at: Instant,
        scope: EventScope,
        correlation: Option<Correlation>,
        payload: RequestEventPayload,
    ) {
        self.record(payload.kind(), |sequence| RequestEvent { sequence, at, scope, correlation, payload });
    }
}
