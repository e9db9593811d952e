//! Explanations of why a call waits and why slots are unused, from the same state that admission decides by.

use alloc::format;
use core::fmt;

use super::RequestAdmission;
use crate::budget::{StatedRate, Usage};
use crate::id::SlotKey;
use crate::limit::MemberState;
use crate::request::keys::ResourceId;
use crate::request::provider::Block;
use crate::request::result::WaiterId;
use crate::request::snapshot::{HealthState, ResourceBaseline, UnavailableCause};
use crate::request::waiter::Waiter;
use crate::time::Instant;

/// The reason why a call cannot start, or why a slot is unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum CallWait {
    /// The provider is down, or suspected to be.
    Outage {
        /// The first failure of the outage.
        since: Instant,
        /// When the next call is due; `None` while a probe is in flight.
        probe_at: Option<Instant>,
    },
    /// The provider or model is unavailable: calls are denied.
    Unavailable {
        /// When it became unavailable.
        since: Instant,
        /// The cause.
        cause: UnavailableCause,
        /// When the next probe is due. `None` means that no probe is sent until it is reopened.
        probe_at: Option<Instant>,
    },
    /// The call failed, and it is undecided whether the call or the provider is the cause. The outcomes of
    /// other calls decide it.
    Undecided,
    /// The provider and model is [paused](RequestAdmission::set_paused).
    Paused,
    /// A cooldown is in force.
    Cooldown {
        /// The end of the cooldown.
        until: Instant,
    },
    /// The cap of the provider and model is reached, over all domains.
    ProviderCap {
        /// The lowest cap of all aliases.
        cap: u32,
    },
    /// The adaptive limit is reached: as many calls are in flight as it allows, or more.
    Limit {
        /// The limit in force.
        limit: u32,
        /// The calls of the resource in flight.
        in_flight: u32,
        /// When the limit next changes by time alone, as in a ramp, if it is known.
        changes_at: Option<Instant>,
    },
    /// The part that this process has of a [shared](crate::share) limit is reached, or it has none now.
    Share {
        /// What it has, who leads, and how old the decision is.
        member: MemberState,
        /// The calls of the resource in flight.
        in_flight: u32,
    },
    /// The limit algorithm spaces calls in time. Fewer calls are in flight than the limit allows.
    Paced {
        /// When the next call may start.
        until: Instant,
    },
    /// A budget is exhausted.
    Budget {
        /// When the budget suffices for this call, unless other calls use it first.
        until: Instant,
    },
    /// The part of a [shared](crate::share) budget that this process has is spent, until the leader grants
    /// more.
    SharedBudget {
        /// Whether the leader has the budget. If not, it grants nothing of it: the processes must have the
        /// same budgets.
        is_known: bool,
    },
    /// The rate that the provider states in its headers is exhausted.
    StatedRate {
        /// The rate.
        rate: StatedRate,
        /// When the rate permits the call, unless other calls use it first or the provider states a new rate.
        until: Instant,
    },
    /// The worker has yielded, and cannot get its task resources back yet.
    TaskSlots,
    /// Other waiters go first. Nothing else blocks the call.
    Turn,
    /// No request waits, so the slots are unused.
    NoRequests,
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
            Self::Paused => f.write_str("it is paused"),
            Self::Cooldown { until } => write!(f, "a cooldown is in force until {until}"),
            Self::ProviderCap { cap } => write!(f, "the provider and model's cap of {cap} concurrent calls is reached"),
            Self::Limit { limit, in_flight, changes_at } => {
                write!(f, "the adaptive limit of {limit} is reached with {in_flight} in flight")?;
                changes_at.map_or(Ok(()), |at| write!(f, "; it changes at {at}"))
            }
            Self::Share { member, in_flight } => write!(f, "{}: {member}", member.describe_block(*in_flight)),
            Self::Paced { until } => write!(f, "calls are spaced in time, and the next goes out at {until}"),
            Self::Budget { until } => write!(f, "a budget is spent until {until}"),
            Self::SharedBudget { is_known: true } => {
                f.write_str("it waits for its part of a budget that other processes share")
            }
            Self::SharedBudget { is_known: false } => {
                f.write_str("it waits for a budget that the leading process does not have: give all the same budgets")
            }
            Self::StatedRate { rate, until } => write!(f, "the provider's own limit of {rate}: next at {until}"),
            Self::TaskSlots => f.write_str("its worker has yielded and waits for its task resources"),
            Self::Turn => f.write_str("other waiters go first"),
            Self::NoRequests => f.write_str("no request waits"),
        }
    }
}

/// Explanations.
impl RequestAdmission {
    /// Returns why a waiter is not granted at `now`, or `None` if it does not wait. Changes nothing.
    /// O(budgets of the resource).
    #[must_use]
    pub fn why_waiting(&self, now: Instant, waiter: WaiterId) -> Option<CallWait> {
        let is_own = waiter.controller == self.shared.config.controller;
        let entry = self.shared.waiters.get(waiter.key()).filter(|_| is_own)?;
        Some(self.why(self.time.peek(now), waiter.key(), entry))
    }

    /// Returns why a resource has unused slots at `now`, measured against its effective maximum. Returns
    /// `None` if all slots are used, or if this machine did not create the resource. Changes nothing.
    /// O(waiters).
    #[must_use]
    pub fn why_idle_now(&self, now: Instant, resource: ResourceId) -> Option<CallWait> {
        let now = self.time.peek(now);
        let (_, entry) = self.entry(resource)?;
        if entry.controller.in_flight() >= entry.controller.effective_max() {
            return None;
        }
        let first = self.first_waiter(resource);
        Some(first.map_or(CallWait::NoRequests, |(key, waiter)| self.why(now, key, waiter)))
    }

    /// Returns why the next call of a resource cannot start at `now`. The next call is that of the waiter
    /// that arrived first, or else a new request that uses no tokens. Returns `None` if it can start, or if
    /// this machine did not create the resource. Changes nothing. O(waiters).
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

    /// Returns what blocks a call, apart from other waiters.
    fn why_blocked(&self, now: Instant, resource: ResourceId, estimate: Usage) -> Option<CallWait> {
        let (owner, entry) = self.entry(resource)?;
        let controller = &entry.controller;
        let share = || {
            let member = controller.member_state(now)?;
            Some(CallWait::Share { member, in_flight: controller.in_flight() })
        };
        let has_no_slots = |wait: &CallWait| matches!(wait, CallWait::Share { member, .. } if member.room == 0);
        Some(match entry.block(now, owner.common_block(now), estimate)? {
            Block::Outage => outage(owner.health_state(), owner.opens_at()),
            Block::Paused => CallWait::Paused,
            Block::Cooldown => CallWait::Cooldown { until: controller.blocked_until(now).unwrap_or(now) },
            Block::Cap => CallWait::ProviderCap { cap: owner.cap },
            Block::Limit => share().unwrap_or_else(|| CallWait::Limit {
                limit: controller.limit(now),
                in_flight: controller.in_flight(),
                changes_at: entry.next_change(now),
            }),
            // A member without slots is closed until its next beat.
            Block::Paced(until) => share().filter(has_no_slots).unwrap_or(CallWait::Paced { until }),
            Block::Budget(until) => match entry.budgets.holding_rate(now, estimate) {
                Some(rate) => CallWait::StatedRate { rate, until },
                None if until == Instant::MAX => {
                    CallWait::SharedBudget { is_known: !entry.budgets.is_unknown_to_leader(estimate) }
                }
                None => CallWait::Budget { until },
            },
        })
    }

    /// Returns the state of a resource at `now` from which a [`RunAccount`](crate::observe::RunAccount)
    /// starts, or `None` if this machine did not create the resource. Changes nothing. O(leases).
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

/// Returns the reason for a provider of this health, whose next call may start at `probe_at`.
fn outage(health: HealthState, probe_at: Option<Instant>) -> CallWait {
    match health {
        HealthState::Suspected { since } | HealthState::Down { since, .. } | HealthState::Probing { since } => {
            CallWait::Outage { since, probe_at }
        }
        HealthState::Unavailable { since, cause, probe_at } => CallWait::Unavailable { since, cause, probe_at },
        HealthState::Healthy => CallWait::Turn,
    }
}
