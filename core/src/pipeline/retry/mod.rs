//! When a failed task is tried again, and when the run should stop by itself.

pub(in crate::pipeline) mod backoff;
pub(in crate::pipeline) mod deferral;
pub(in crate::pipeline) mod health;
