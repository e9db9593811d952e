//! What follows from a failure: when the task is tried again, and when the run warns of it or stops.
//!
//! | file | what it decides |
//! | --- | --- |
//! | `backoff` | whether and when a failed task is tried again |
//! | `deferral` | whether failures keep new row groups from being of use |
//! | `health` | when the run stops by itself |
//! | `retryable` | when a provider counts as degraded; failures that may pass, by kind and HTTP status |
//! | `targets` | what the tasks of a column call, by which the last two and `deferral` judge |

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
