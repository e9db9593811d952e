//! Why not now: what keeps a waiter, and why slots stand empty, read from the same figures that decide.

use alloc::format;
use core::fmt;

use super::{RequestAdmission, Waiter};
use crate::budget::{StatedRate, Usage};
use crate::id::SlotKey;
use crate::request::answer::WaiterId;
use crate::request::keys::ResourceId;
use crate::request::provider::Block;
use crate::request::snapshot::{HealthState, ResourceBaseline, UnavailableCause};
use crate::time::Instant;

/// The one thing that keeps a call from going out, or a slot from being used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum CallWait {
    /// The provider is down.
    Outage {
        /// The first failure of the outage.
        since: Instant,
        /// When the next probe is due; `None` while one is out.
        probe_at: Option<Instant>,
    },
    /// Calls are rejected.
    Unavailable {
        /// Since when.
        since: Instant,
        /// Why.
        cause: UnavailableCause,
        /// When one call goes out to find out whether it can be used again; `None`: not before it is
        /// reopened.
        probe_at: Option<Instant>,
    },
    /// Whether the failure of the call was its own is not known yet: other calls will show it.
    Undecided,
    /// A cooldown is in force.
    Cooldown {
        /// Its end.
        until: Instant,
    },
    /// The provider and model bear no more calls, all domains together.
    ProviderCap {
        /// The lowest cap of all aliases.
        cap: u32,
    },
    /// The adaptive limit is reached: as many calls are out as it allows, or more.
    Limit {
        /// The limit in force.
        limit: u32,
        /// Calls of the resource that are out.
        in_flight: u32,
        /// When time alone changes it, as a ramp does.
        changes_at: Option<Instant>,
    },
    /// The limit algorithm spaces calls in time. Fewer are out than its limit allows.
    Paced {
        /// When the next may go out.
        until: Instant,
    },
    /// A budget is spent.
    Budget {
        /// When it suffices, unless others spend it first.
        until: Instant,
    },
    /// The rate that the provider states in its headers is used up.
    StatedRate {
        /// The rate.
        rate: StatedRate,
        /// When it lets the call out, unless others spend it first or the provider says otherwise.
        until: Instant,
    },
    /// Its worker has yielded, and cannot have its task resources back yet.
    TaskSlots,
    /// Nothing but that it is another's turn.
    Turn,
    /// Nobody asks for a call.
    NobodyAsks,
}

impl fmt::Display for CallWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outage { since, probe_at: Some(at) } => {
                write!(f, "the provider is down since {since}; the next probe is due at {at}")
            }
            Self::Outage { since, probe_at: None } => write!(f, "the provider is down since {since}; a probe is out"),
            Self::Unavailable { since, cause, probe_at } => {
                write!(f, "the provider or model cannot be used since {since}: {cause}")?;
                probe_at.map_or(Ok(()), |at| write!(f, "; it is tried again at {at}"))
            }
            Self::Undecided => f.write_str("it failed, and other calls will show whether the provider is down"),
            Self::Cooldown { until } => write!(f, "a cooldown is in force until {until}"),
            Self::ProviderCap { cap } => write!(f, "all {cap} calls that the provider and model bear are out"),
            Self::Limit { limit, in_flight, changes_at } => {
                write!(f, "the adaptive limit of {limit} is reached with {in_flight} in flight")?;
                changes_at.map_or(Ok(()), |at| write!(f, "; it changes at {at}"))
            }
            Self::Paced { until } => write!(f, "calls are spaced in time, and the next goes out at {until}"),
            Self::Budget { until } => write!(f, "a budget is spent until {until}"),
            Self::StatedRate { rate, until } => write!(f, "the provider's own limit of {rate}: next at {until}"),
            Self::TaskSlots => f.write_str("its worker has yielded and waits for its task resources"),
            Self::Turn => f.write_str("it is another's turn"),
            Self::NobodyAsks => f.write_str("nobody asks for a call"),
        }
    }
}

/// Why not now.
impl RequestAdmission {
    /// What keeps a waiter at `now`; `None` for one that does not wait. Changes nothing. O(budgets of the
    /// resource).
    #[must_use]
    pub fn why_waiting(&self, now: Instant, waiter: WaiterId) -> Option<CallWait> {
        let is_own = waiter.controller == self.shared.config.controller;
        let entry = self.shared.waiters.get(waiter.key()).filter(|_| is_own)?;
        Some(self.why(self.time.peek(now), waiter.key(), entry))
    }

    /// Why a resource has slots that are not used at `now`, measured against its effective maximum; `None` if
    /// it has none, or if this controller never made it. Changes nothing. O(waiters).
    #[must_use]
    pub fn why_idle_now(&self, now: Instant, resource: ResourceId) -> Option<CallWait> {
        let now = self.time.peek(now);
        let (_, entry) = self.entry(resource)?;
        if entry.controller.in_flight() >= entry.controller.effective_max() {
            return None;
        }
        let first = self.first_waiter(resource);
        Some(first.map_or(CallWait::NobodyAsks, |(key, waiter)| self.why(now, key, waiter)))
    }

    /// What keeps the next call of a resource from going out at `now`: of its waiters the first to come, or
    /// one that would come now and use no tokens. `None` if nothing does, or if this controller never made
    /// the resource. Changes nothing. O(waiters).
    #[must_use]
    pub fn why_next(&self, now: Instant, resource: ResourceId) -> Option<CallWait> {
        let now = self.time.peek(now);
        let first = self.first_waiter(resource).map(|(key, waiter)| self.why(now, key, waiter));
        first.or_else(|| self.why_blocked(now, resource, Usage::default()))
    }

    fn first_waiter(&self, resource: ResourceId) -> Option<(SlotKey, &Waiter)> {
        let waiters = self.shared.waiters.iter().filter(|(_, waiter)| waiter.resource == resource);
        waiters.min_by_key(|(_, waiter)| waiter.number)
    }

    fn why(&self, now: Instant, key: SlotKey, waiter: &Waiter) -> CallWait {
        let otherwise = || match waiter {
            Waiter { is_undecided: true, .. } => CallWait::Undecided,
            _ if self.shared.yielding.is_yielded(key) => CallWait::TaskSlots,
            _ => CallWait::Turn,
        };
        self.why_blocked(now, waiter.resource, waiter.estimate).unwrap_or_else(otherwise)
    }

    /// What keeps a call from going out, other calls that wait aside.
    fn why_blocked(&self, now: Instant, resource: ResourceId, estimate: Usage) -> Option<CallWait> {
        let (owner, entry) = self.entry(resource)?;
        let controller = &entry.controller;
        Some(match entry.block(now, owner.common_block(now), estimate)? {
            Block::Outage => outage(owner.health_state(), owner.opens_at()),
            Block::Cooldown => CallWait::Cooldown { until: controller.blocked_until(now).unwrap_or(now) },
            Block::Cap => CallWait::ProviderCap { cap: owner.cap },
            Block::Limit => CallWait::Limit {
                limit: controller.limit(now),
                in_flight: controller.in_flight(),
                changes_at: entry.next_change(now),
            },
            Block::Paced(until) => CallWait::Paced { until },
            Block::Budget(until) => match entry.budgets.holding_rate(now, estimate) {
                Some(rate) => CallWait::StatedRate { rate, until },
                None => CallWait::Budget { until },
            },
        })
    }

    /// How a resource stands at `now`, for a [`RunAccount`](crate::observe::RunAccount); `None` for one that
    /// this controller never made. Changes nothing. O(leases).
    #[must_use]
    pub fn baseline(&self, now: Instant, resource: ResourceId) -> Option<ResourceBaseline> {
        let (state, model) = (self.snapshot(now, resource)?, self.owner(resource)?);
        Some(ResourceBaseline {
            resource,
            model,
            name: format!("{}/{}/{}", state.provider, state.model, state.domain),
            cap: state.provider_cap,
            clamp: self.settings(resource)?.max_limit,
            limit: state.current_limit,
            in_flight: state.in_flight,
            waiters: state.waiters,
            blocked_until: state.blocked_until,
            is_down: !matches!(state.health, HealthState::Healthy | HealthState::Suspected { .. }),
        })
    }
}

/// What keeps calls back at a provider of this health, which opens then.
fn outage(health: HealthState, probe_at: Option<Instant>) -> CallWait {
    match health {
        HealthState::Suspected { since } | HealthState::Down { since, .. } | HealthState::Probing { since } => {
            CallWait::Outage { since, probe_at }
        }
        HealthState::Unavailable { since, cause, probe_at } => CallWait::Unavailable { since, cause, probe_at },
        HealthState::Healthy => CallWait::Turn,
    }
}
