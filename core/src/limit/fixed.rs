//! The fixed limit: it never changes.

use super::{CallReport, LimitAlgorithm};
use crate::time::Instant;

/// A limit that never changes, except that the provider's cap bounds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    limit: u32,
    max: u32,
}

impl Fixed {
    /// Creates a limit of `limit` calls in flight, where 0 counts as 1.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self { limit: limit.max(1), max: u32::MAX }
    }
}

impl LimitAlgorithm for Fixed {
    fn limit(&self, _now: Instant) -> u32 {
        self.limit.min(self.max)
    }

    fn on_outcome(&mut self, _now: Instant, _call: &CallReport) {}

    fn set_max(&mut self, _now: Instant, max: u32, _lifts: bool) {
        self.max = max;
    }

    fn uses_time(&self) -> bool {
        false
    }
}
