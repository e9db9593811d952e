//! What happened at a controller, for whoever wants to know.
//!
//! A controller makes only the events that
//! [`RequestAdmission::set_interest`](super::RequestAdmission::set_interest) asked for; any other costs one
//! branch. They are drained with [`RequestAdmission::poll_event`](super::RequestAdmission::poll_event), apart
//! from the effects, which must be: at most [`MAX_PENDING`] are kept for a host that does not drain them, and
//! those beyond are counted as dropped.

use super::answer::{Denial, DenialReason, WaiterId};
use super::keys::{ProviderModelId, ResourceId};
use super::snapshot::UnavailableCause;
use crate::budget::{Dimension, StatedRate};
use crate::call::Outcome;
use crate::event::{Correlation, event_kinds};
use crate::lease::{LeaseId, ReleaseAnswer};
use crate::time::{Duration, Instant};

pub use crate::event::MAX_PENDING;

/// One event of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RequestEvent {
    /// Its number among the controller's events, from 0; a gap is an event that was dropped.
    pub sequence: u64,
    /// When it happened.
    pub at: Instant,
    /// Where: a resource, or a provider and model as a whole.
    pub place: EventPlace,
    /// The task whose call it is about, as in the events of its run; `None`, and left out of JSON, for a call
    /// that was made without the [token](crate::pipeline::Task::token) of a task, and for what concerns no
    /// single call.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub correlation: Option<Correlation>,
    /// What happened.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub payload: RequestEventPayload,
}

/// What an event is about.
///
/// Exhaustive on purpose: a host must know of what each event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum EventPlace {
    /// The whole controller.
    Controller,
    /// A provider and model, in all its domains.
    Model(ProviderModelId),
    /// One resource.
    Resource(ResourceId),
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum RequestEventPayload {
    /// An alias was registered.
    ResourceRegistered {
        /// The cap it asked for.
        cap: u32,
    },
    /// The lowest cap of all aliases changed.
    EffectiveCapChanged {
        /// The cap before; `None` for a new provider and model.
        from: Option<u32>,
        /// The cap in force.
        to: u32,
    },
    /// The first waiter came into an empty queue.
    QueueFormed,
    /// The last waiter left the queue.
    QueueDrained,
    /// A request asked. An immediate answer follows at the same instant.
    WaitStarted {
        /// The waiter, if it had to queue.
        waiter: Option<WaiterId>,
    },
    /// A request was granted.
    WaitCompleted {
        /// The waiter, if it had to queue.
        waiter: Option<WaiterId>,
        /// How long it waited; zero if it came without a timeout while nobody wanted events.
        waited: Duration,
    },
    /// A waiter's deadline passed.
    WaitTimeout {
        /// The waiter, if it had queued.
        waiter: Option<WaiterId>,
        /// How long it waited.
        waited: Duration,
    },
    /// A waiter withdrew, or was refused by shutdown.
    WaitCancelled {
        /// The waiter.
        waiter: WaiterId,
        /// How long it waited; zero if it came without a timeout while nobody wanted events.
        waited: Duration,
        /// Why.
        reason: DenialReason,
    },
    /// A request was refused at once.
    AcquireDenied {
        /// Why.
        reason: DenialReason,
        /// When capacity next changes by time alone, if that is known; left out of JSON where it is not.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        changes_at: Option<Instant>,
    },
    /// A call may go out.
    LeaseAcquired {
        /// The lease.
        lease: LeaseId,
        /// The limit it was admitted under.
        limit: u32,
        /// Calls of the resource that are out, this one included.
        in_flight: u32,
    },
    /// A call goes out: its lease is there. Told with the lease, since what the host does with it is not seen
    /// here.
    CallStarted {
        /// The lease.
        lease: LeaseId,
    },
    /// A call came back, or was given up.
    CallCompleted {
        /// The lease.
        lease: LeaseId,
        /// How it ended.
        outcome: Outcome,
        /// How long it took; zero if nobody wanted events when it began.
        took: Duration,
    },
    /// A lease is free again.
    LeaseReleased {
        /// The lease.
        lease: LeaseId,
        /// How it ended.
        outcome: Outcome,
        /// How long it was held; zero if nobody wanted events when it was granted.
        held: Duration,
        /// Calls of the resource that are still out.
        in_flight: u32,
    },
    /// A release that released nothing.
    ReleaseDiagnostic {
        /// The lease that was named.
        lease: LeaseId,
        /// What it was instead.
        answer: ReleaseAnswer,
    },
    /// The provider refused.
    RateLimited {
        /// When the resource may be called again.
        blocked_until: Option<Instant>,
        /// Refusals since the last good news.
        consecutive: u32,
    },
    /// A cooldown that the provider asked for was cut to the longest allowed.
    CooldownCapped {
        /// The pause that the provider asked for.
        requested: Duration,
        /// The pause that applies.
        applied: Duration,
    },
    /// The limit fell after a refusal, or with the cap.
    LimitDecreased {
        /// The limit before.
        from: u32,
        /// The limit in force.
        to: u32,
    },
    /// The limit rose after a success, or with the cap.
    LimitIncreased {
        /// The limit before.
        from: u32,
        /// The limit in force.
        to: u32,
    },
    /// The limit passed the one that the first cut had found too high.
    SoftCeilingRecovered {
        /// The limit in force.
        limit: u32,
    },
    /// The limit is at its maximum again, and no cooldown is in force.
    FullyRecovered {
        /// The limit in force.
        limit: u32,
    },
    /// A ramp opened slots. Told by the first command that sees them, which is the instant itself where
    /// anybody waits.
    RampStep {
        /// The limit before.
        from: u32,
        /// The limit in force.
        to: u32,
    },
    /// A refusal ended a ramp.
    RampAborted {
        /// The limit it had reached.
        limit: u32,
    },
    /// What the provider said about a budget changed it.
    BudgetCorrected {
        /// What the budget counts.
        dimension: Dimension,
        /// What could be spent before.
        before: i64,
        /// What may be spent now.
        after: i64,
    },
    /// An answer stated a rate of the provider that was not known before. Calls are paced to it from now on.
    RateLearned {
        /// The rate.
        rate: StatedRate,
    },
    /// The provider is down, or still: a probe has failed.
    ProviderDown {
        /// The first failure of the outage.
        since: Instant,
        /// When the next probe is due.
        probe_at: Instant,
    },
    /// The one call goes out that finds out whether the provider is back.
    ProviderProbed {
        /// Its lease.
        lease: LeaseId,
    },
    /// The provider is back.
    ProviderRecovered {
        /// The first failure of the outage.
        since: Instant,
        /// When limits have climbed to what they were, unless a failure or a rate limit ends the climb
        /// before.
        full_at: Instant,
    },
    /// Calls to the provider are rejected.
    ProviderUnavailable {
        /// Why.
        cause: UnavailableCause,
        /// When one call goes out to find out whether it can be used again; `None`: not before it is
        /// reopened.
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

/// A set of these kinds.
pub type Interest = crate::event::Interest<RequestEventKind>;

/// The events that wait to be drained.
pub(super) type EventLog = crate::event::EventLog<RequestEventKind, RequestEvent>;

impl EventLog {
    /// Records what concerns no single call.
    #[inline]
    pub(super) fn push(&mut self, at: Instant, place: EventPlace, payload: RequestEventPayload) {
        if self.is_on() {
            self.push_wanted(at, place, payload);
        }
    }

    /// Keeps the correlation out of the hot paths that call [`Self::push`].
    #[cold]
    fn push_wanted(&mut self, at: Instant, place: EventPlace, payload: RequestEventPayload) {
        self.push_about(at, place, None, payload);
    }

    /// Records what concerns a call of a task, if one is known.
    #[cold]
    pub(super) fn push_about(
        &mut self,
        at: Instant,
        place: EventPlace,
        correlation: Option<Correlation>,
        payload: RequestEventPayload,
    ) {
        self.record(payload.kind(), |sequence| RequestEvent { sequence, at, place, correlation, payload });
    }
}
