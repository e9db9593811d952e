//! Calls that go out one at a time and are refused all the same.
//!
//! A call that is out alone is not one too many. If it is refused, and the next ones are until one is let
//! through, then either a rate binds, or a share of all calls is refused. Under a rate the calls that are let
//! through come at equal distances, whatever is refused between them; where it is chance, they do not. So the
//! interval is believed after [four](AGREE) distances that agree.

use super::pace::is_near;
use crate::time::Instant;

/// Distances in a row that have to agree with the one before. Where one call of two is refused by chance, two
/// agree in about one case of three.
const AGREE: u32 = 4;
/// They agree if they differ by no more than one part in so many.
const EQUALLY: u64 = 4;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alone {
    /// When the last call went out that was let through.
    since: Option<Instant>,
    /// Whether one that was out alone has been refused since.
    is_refused: bool,
    /// The shortest of the last distances, in nanoseconds, and how many agreed with the one before.
    distance: u64,
    agreed: u32,
}

impl Alone {
    /// A call was refused that was out with so many, itself included.
    pub(super) fn on_refused(&mut self, at_once: u32) {
        self.is_refused |= at_once == 1;
    }

    /// A call was let through that went out at `sent`. The interval between calls in nanoseconds, if there is
    /// one.
    pub(super) fn on_let_through(&mut self, sent: Instant) -> Option<u64> {
        let is_refused = core::mem::take(&mut self.is_refused);
        let distance = (sent - self.since.replace(sent)?).as_nanos();
        if !is_refused {
            self.agreed = 0;
            return None;
        }
        let agrees = is_near(distance, self.distance, EQUALLY);
        self.agreed = if agrees { self.agreed + 1 } else { 0 };
        self.distance = if agrees { distance.min(self.distance) } else { distance };
        (self.agreed >= AGREE).then_some(self.distance)
    }
}
