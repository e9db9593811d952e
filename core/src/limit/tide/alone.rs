//! Detects a rate from calls that are refused although no other call is in flight.
//!
//! A call that is alone in flight cannot exceed a concurrency limit. If it is refused, either a rate binds or
//! the provider refuses a share of all calls. Under a rate, accepted calls are equally spaced, however many
//! are refused between them. Under a share, the spacing is random. The interval is accepted after
//! [four](AGREE) spacings that agree with the one before.

use super::inflow::is_near;
use crate::time::Instant;

/// Spacings in a row that have to agree with the one before. If half of the calls are refused at random, two
/// agree in about one case of three.
const AGREE: u32 = 4;
/// Two spacings agree if they differ by at most 1/`EQUALLY`.
const EQUALLY: u64 = 4;

/// The last accepted calls. See the [module documentation](self).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alone {
    /// When the last accepted call was sent.
    since: Option<Instant>,
    /// Whether a call that was alone in flight has been refused since.
    is_refused: bool,
    /// The shortest of the last spacings that agree, in nanoseconds, and how many agreed with the one before.
    distance: u64,
    agreed: u32,
}

impl Alone {
    /// Records a refusal. `in_flight` is the number of calls in flight when the call was sent, itself
    /// included.
    pub(super) fn on_refused(&mut self, in_flight: u32) {
        self.is_refused |= in_flight == 1;
    }

    /// Records that a call sent at `sent` was accepted. Returns the interval between calls in nanoseconds
    /// once it is known.
    pub(super) fn on_accepted(&mut self, sent: Instant) -> Option<u64> {
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
