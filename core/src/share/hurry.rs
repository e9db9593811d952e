//! The fast beat because of a small change.

use super::config::ShareConfig;
use crate::time::Instant;

/// Makes the beat the fast one for two beats, but only once in [`ShareConfig::fast_for`]: small changes that
/// follow each other all the time must not keep it fast.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hurry {
    began: Option<Instant>,
}

impl Hurry {
    /// Returns whether it may begin again.
    pub(super) fn may_begin(self, now: Instant, config: &ShareConfig) -> bool {
        self.began.is_none_or(|began| now - began >= config.fast_for)
    }

    pub(super) fn begin(&mut self, now: Instant) {
        self.began = Some(now);
    }

    /// Returns whether the beat is the fast one.
    pub(super) fn lasts(self, now: Instant, config: &ShareConfig) -> bool {
        let span = config.half_beats(4).min(config.fast_for);
        self.began.is_some_and(|began| now - began < span)
    }
}
