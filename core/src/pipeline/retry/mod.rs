//! The consequences of failures: retries, warnings, and the decision to stop the run.
//!
//! | file | what it decides |
//! | --- | --- |
//! | `backoff` | whether and when a failed task is retried |
//! | `deferral` | whether failures block the admission of new row groups |
//! | `health` | when the run stops by itself |
//! | `retryable` | when a provider is degraded; counts retryable failures by kind and HTTP status |
//! | `targets` | the call targets of columns, which `deferral`, `health` and `retryable` judge |

mod backoff;
mod deferral;
mod health;
mod retryable;
mod targets;

pub(crate) use backoff::{Retries, RetryDecision, RetryPolicy};
pub(crate) use deferral::Deferral;
pub(crate) use health::Health;
pub(crate) use retryable::RetryableFailures;
pub(crate) use targets::CallTargets;
