//! A request that waits.

use super::keys::{FallbackId, ResourceId};
use super::provider::health::Attempt;
use super::result::FailedProbes;
use crate::budget::Usage;
use crate::id::SlotKey;
use crate::limit::controller::RecordedInstant;
use crate::time::Instant;

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) resource: ResourceId,
    /// The slot of the resource at its provider and model.
    pub(super) slot: u32,
    /// The number of the command that queued it. Lower numbers arrived earlier.
    pub(super) number: u64,
    /// When it was queued. Known if it has a deadline, or if events were enabled then.
    pub(super) since: RecordedInstant,
    pub(super) deadline: Option<Instant>,
    pub(super) estimate: Usage,
    /// The run whose worker makes the request, if it is known.
    pub(super) run: Option<SlotKey>,
    pub(super) failed_probes: FailedProbes,
    /// Whether it is a retry whose last failure is undecided: see [`Attempt`].
    pub(super) is_undecided: bool,
    /// Whether [`YieldingWaiters`](super::yielding::YieldingWaiters) has an entry for it.
    pub(super) is_yielding: bool,
    /// Its list of fallbacks, if it has one.
    pub(super) fallback: Option<FallbackId>,
    /// Whether the same call was made before.
    pub(super) is_repeated: bool,
    /// Its node in the queue of its provider and model.
    pub(super) node: u32,
}

impl Waiter {
    pub(super) fn slot(&self) -> usize {
        self.slot as usize
    }

    pub(super) fn attempt(&self) -> Attempt {
        Attempt { failed_probes: self.failed_probes, is_undecided: self.is_undecided, is_health_call: false }
    }
}
