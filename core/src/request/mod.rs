//! Request admission: decides when each call to a provider may start.
//!
//! One [`RequestAdmission`] controls every outbound call when it is made. A *resource* is the combination of
//! a provider, a model and a [`Domain`]. Each resource has an adaptive limit, and all domains of one model
//! share the model's cap. A call that cannot start yet waits in the [fair queue](crate::fair_queue), by group
//! and weight.
//!
//! ```
//! use tidegate_core::request::{
//!     AcquireResult, Domain, Outcome, Request, RequestAdmission, RequestConfig, RequestEffect,
//! };
//! use tidegate_core::time::{Duration, Instant};
//!
//! let mut now = Instant::ZERO;
//! let mut admission = RequestAdmission::new(RequestConfig::default())?;
//! let model = admission.register(now, "provider", "model", "default", 1)?;
//! let chat = Request::new(admission.resource(model, Domain::Chat)?);
//!
//! let AcquireResult::Granted(first) = admission.acquire(now, &chat) else { panic!("it starts") };
//! let AcquireResult::Waiting(second) = admission.acquire(now, &chat) else { panic!("the limit is 1") };
//!
//! now += Duration::from_millis(30);
//! let _ = admission.release(now, first, &Outcome::Success.into());
//! let Some(RequestEffect::Granted { waiter, lease }) = admission.poll_effect() else {
//!     panic!("the waiter is granted")
//! };
//! assert_eq!(waiter, second);
//! let _ = admission.release(now, lease, &Outcome::Success.into());
//! # Ok::<(), tidegate_core::error::ConfigError>(())
//! ```
//!
//! Waiters do not poll. A waiter is granted when a lease is released, a limit or cap rises, a cooldown ends,
//! or a ramp step is due. It is denied when its deadline passes, on shutdown, when its provider becomes
//! unavailable, and when it should use a fallback: see [`DenialReason`].
//! [`RequestAdmission::poll_timeout`] returns the next instant at which the host must call
//! [`RequestAdmission::handle_timeout`].
//!
//! # Terms
//!
//! | term | meaning |
//! | --- | --- |
//! | *cap* | how many calls of a provider and model may be in flight: the lowest that its aliases register |
//! | *clamp* | how many calls of a resource its settings allow to be in flight: [`LimitConfig::max_limit`] |
//! | *effective maximum* | the lower of cap and clamp, at least 1: the highest value of the limit |
//! | *limit* | how many may be in flight now, from 1 to the effective maximum: see [`limit`](crate::limit) |
//! | *share* | a process's part of a limit that several processes [share](crate::share) |
//! | *cooldown* | the time after a rate limit in which a resource starts no call, until its `blocked_until` |
//! | *pause* | the time in which a provider that is [down](HealthState) gets no call; a probe follows |
//! | *paused* | stopped by the caller: [`RequestAdmission::set_paused`] |
//! | *response* | what a provider sends to a call |
//! | *answer* | a response that does not count as a [failure](HealthState) of the provider |
//! | *delay* | the time before one call or task is tried again: [`Backoff`](crate::backoff::Backoff) |
//!
//! Three words describe a request that does not succeed. Admission *denies* a request ([`Denial`]); it was
//! never sent. A provider *refuses* a call because of load or a rate ([`Outcome::RateLimited`]); it may be
//! sent again. A provider *rejects* a request, a key or an account ([`Outcome::RequestRejected`] and
//! [`Outcome::KeyRejected`]); sending it again cannot succeed.

mod admission;
mod command;
mod config;
mod correlations;
pub mod event;
mod fallbacks;
mod keys;
mod pressure;
mod provider;
pub mod response;
mod result;
mod shared;
mod snapshot;
mod timers;
mod waiter;
mod yielding;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_event;
#[cfg(test)]
mod tests_explain;
#[cfg(test)]
mod tests_fallback;
#[cfg(test)]
mod tests_health;
#[cfg(test)]
mod tests_health_calls;
#[cfg(test)]
mod tests_ramp;

pub use crate::call::{Completion, Outcome};
pub use crate::limit::{CooldownRule, CutRule, LimitConfig};
pub use admission::{CallWait, MAX_UNREGISTERED_TENANTS, RequestAdmission};
pub use command::RequestCommand;
pub use config::{HealthConfig, RequestConfig};
pub use keys::{Domain, FallbackEstimates, FallbackId, GroupId, MAX_IDS, ProviderModelId, Request, ResourceId};
pub use pressure::RequestPressure;
pub use result::{AcquireResult, AfterCall, Denial, DenialReason, RequestEffect, RequestLease, Retry, WaiterId};
pub use snapshot::{
    HealthState, ProviderModelSnapshot, ResourceBaseline, ResourceSnapshot, ResourceStats, UnavailableCause,
};
