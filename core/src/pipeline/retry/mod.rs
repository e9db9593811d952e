//! What follows from a failure: when the task is tried again, and when the run warns of it or stops.
//!
//! | file | what it decides |
//! | --- | --- |
//! | `backoff` | whether and when a failed task is tried again |
//! | `deferral` | whether failures keep new row groups from being of use |
//! | `health` | when a provider counts as degraded, and when the run stops by itself |

mod backoff;
mod deferral;
mod health;

pub(crate) use backoff::{Retries, RetryDecision, RetryPolicy};
pub(crate) use deferral::Deferral;
pub(crate) use health::Health;
