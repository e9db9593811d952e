//! A limit that never changes.

use super::{CallReport, LimitAlgorithm};
use crate::time::Instant;

/// Always the same limit, up to the provider's cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    wanted: u32,
    max: u32,
}

impl Fixed {
    /// Allows `limit` calls; 0 is read as 1.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self { wanted: limit.max(1), max: u32::MAX }
    }
}

impl LimitAlgorithm for Fixed {
    fn limit(&self, _now: Instant) -> u32 {
        self.wanted.min(self.max)
    }

    fn on_outcome(&mut self, _now: Instant, _call: &CallReport) {}

    fn set_max(&mut self, _now: Instant, max: u32, _lifts: bool) {
        self.max = max;
    }

    fn uses_time(&self) -> bool {
        false
    }
}
