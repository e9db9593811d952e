//! Whether a call could go out at once, for those who could do something else instead.

/// Why a call of a request resource would wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum RequestPressure {
    /// The cap of the provider and model is reached, over all domains.
    CapReached,
    /// The provider asked for a pause.
    CoolingDown,
    /// Others wait already.
    Waiters,
    /// As many calls are out as the limit allows.
    LimitReached,
    /// The limit algorithm spaces calls in time, and fewer are out than its limit allows. When the next may
    /// go out is no part of it: one call after the other would be another pressure.
    /// [`RequestAdmission::why_next`](super::RequestAdmission::why_next) says it.
    Paced,
    /// The provider is down.
    Outage,
}
