//! How ready tasks are queued, and whose turn it is in an ordered column.

pub(in crate::pipeline) mod route;
pub(in crate::pipeline) mod turns;
