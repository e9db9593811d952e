//! Request admission: may this concrete call go out now?
//!
//! One [`RequestAdmission`] controls every outbound call at the moment it is made. A *resource* is a
//! provider, a model and a [`Domain`]; each has an adaptive limit, and all domains of one model share the
//! model's cap. Calls that may not go out wait in the [fair queue](crate::fair_queue), by group and weight.
//!
//! ```
//! use tidegate_core::request::{Acquire, Domain, Effect, Outcome, Request, RequestAdmission, RequestConfig};
//! use tidegate_core::time::{Duration, Instant};
//!
//! let mut now = Instant::ZERO;
//! let mut gate = RequestAdmission::new(RequestConfig::default())?;
//! let model = gate.register(now, "provider", "model", "default", 1)?;
//! let chat = Request::new(gate.resource(model, Domain::Chat)?);
//!
//! let Acquire::Granted(first) = gate.acquire(now, &chat) else { panic!("one call may go out") };
//! let Acquire::Waiting(second) = gate.acquire(now, &chat) else { panic!("and no more") };
//!
//! now += Duration::from_millis(30);
//! let _ = gate.release(now, first, &Outcome::Success.into());
//! let Some(Effect::Granted { waiter, lease }) = gate.poll_effect() else { panic!("a waiter was woken") };
//! assert_eq!(waiter, second);
//! let _ = gate.release(now, lease, &Outcome::Success.into());
//! # Ok::<(), tidegate_core::error::ConfigError>(())
//! ```
//!
//! No waiter polls. One wakes because a lease came back, a limit or cap rose, a cooldown or ramp step fell
//! due, its deadline passed, or shutdown came; [`RequestAdmission::poll_timeout`] tells the host the one next
//! instant.

mod admission;
mod answer;
mod command;
mod config;
mod correlations;
pub mod event;
mod fallbacks;
mod keys;
mod pressure;
mod provider;
pub mod response;
mod shared;
mod snapshot;
mod timers;
mod yielding;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_event;
#[cfg(test)]
mod tests_fallback;
#[cfg(test)]
mod tests_health;
#[cfg(test)]
mod tests_health_calls;
#[cfg(test)]
mod tests_ramp;
#[cfg(test)]
mod tests_why;

pub use crate::call::{Completion, Outcome};
pub use crate::limit::{AimdConfig, CooldownRule, CutRule};
pub use admission::{CallWait, MAX_UNREGISTERED_TENANTS, RequestAdmission};
pub use answer::{Acquire, AfterCall, Denial, DenialReason, Effect, RequestLease, Retry, WaiterId};
pub use command::RequestCommand;
pub use config::{HealthConfig, RequestConfig};
pub use keys::{Domain, FallbackId, GroupId, MAX_IDS, ProviderModelId, Request, ResourceId};
pub use pressure::RequestPressure;
pub use snapshot::{
    HealthState, ProviderModelSnapshot, ResourceBaseline, ResourceSnapshot, ResourceStats, UnavailableCause,
};
