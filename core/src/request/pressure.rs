//! Whether a call could start at once, for a host that can do other work instead.

/// The reason why a call of a resource would have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum RequestPressure {
    /// The cap of the provider and model is reached, over all domains.
    CapReached,
    /// A cooldown after a rate limit is in force.
    CoolingDown,
    /// Other requests already wait.
    Waiters,
    /// As many calls are in flight as the limit allows.
    LimitReached,
    /// The limit algorithm spaces calls in time, and fewer calls are in flight than the limit allows. The
    /// instant of the next call is not part of this variant, so that the pressure does not change with each
    /// call. [`RequestAdmission::why_next`](super::RequestAdmission::why_next) returns it.
    Paced,
    /// The health of the provider blocks all calls: it is down, unavailable, or suspected to be down.
    Outage,
    /// The provider and model is [paused](super::RequestAdmission::set_paused).
    Paused,
}
