//! Refunds: the cost of a turn without a result is returned to its group, within a bound. See [the
//! derivation](super#refunds).

use super::{FairQueue, MIN_WEIGHT, QueueGroupId, REBASE_AT};

/// The number of units per weight in which the weight of waiting groups is counted. Integers are used so that
/// groups which come and go leave no rounding errors.
///
/// The smallest weight is 16 units. 2^20 groups of the largest weight overflow. Then only shares are wrong,
/// and only until some of the groups are gone.
pub(super) const WEIGHT_UNITS: f64 = 16_777_216.0;

/// The number of turns that may be refunded for each answered turn, in addition to the share of other
/// refunds. One, because an answered turn is not refunded and adds nothing to that share. One more, because
/// turns are whole.
const PER_ANSWER: f64 = 2.0;

pub(super) fn units(weight: f64) -> u64 {
    (weight * WEIGHT_UNITS) as u64
}

/// The record of a turn, to be [refunded](FairQueue::refund) if the turn has no result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServiceRecord {
    pub(super) group: u32,
    /// The share of the other groups in the weight of all waiting groups, in `0.0..=1.0`. The group's own
    /// weight is part of the total.
    share_of_others: f32,
}

impl ServiceRecord {
    /// A turn of no group, for which nothing can be refunded.
    pub(crate) const NONE: Self = Self { group: u32::MAX, share_of_others: 0.0 };

    /// Returns the record for a group that is [served directly](FairQueue::serve_directly).
    pub(crate) fn direct(group: QueueGroupId) -> Self {
        Self { group: group.0, share_of_others: 0.0 }
    }

    /// Returns the index of the group, or `None` for a turn of no group.
    pub(crate) fn group_index(self) -> Option<usize> {
        (self.group != u32::MAX).then_some(self.group as usize)
    }
}

/// Refunds.
impl FairQueue {
    /// Returns the record of the turn that the next service of a non-empty group takes. Call it before
    /// [`FairQueue::commit`].
    #[must_use]
    pub fn next_service(&self, group: QueueGroupId) -> ServiceRecord {
        let share = units(self.groups[group.index()].weight) as f64 / self.waiting_weight as f64;
        ServiceRecord { group: group.0, share_of_others: (1.0 - share).clamp(0.0, 1.0) as f32 }
    }

    /// Refunds a turn that cost `cost`, at the group's present weight. Returns `false`, and changes nothing,
    /// if the group has already been refunded more than its share by `most` such turns, or was never served.
    ///
    /// Each turn ends at most once, by this method or by [`FairQueue::answered`]. O(log groups) for each FIFO
    /// of the group.
    pub fn refund(&mut self, service: ServiceRecord, cost: f64, most: f64) -> bool {
        let virtual_time = self.virtual_time;
        let Some(group) = self.groups.get_mut(service.group as usize) else { return false };
        let Some(finish) = group.finish else { return false };
        let (charge, share_of_others) = (cost / group.weight, f64::from(service.share_of_others));
        let lead = group.lead_at(self.allowed) + charge * share_of_others;
        if lead > charge * most {
            return false;
        }
        self.version += 1;
        self.allowed += charge * (1.0 - share_of_others);
        group.lead = lead;
        group.allowed_seen = self.allowed;
        group.tag = finish.max(virtual_time - group.lag) - charge;
        group.finish = Some(group.tag);
        group.lag = (virtual_time - group.tag).max(0.0);
        if group.len > 0 {
            self.move_fifos(QueueGroupId(service.group), None);
        }
        if self.allowed >= REBASE_AT {
            self.rebase_refunds();
        }
        true
    }

    /// Reports that a turn that cost `cost` had a result. Two more turns may then be refunded, to all groups
    /// together. O(1).
    #[inline]
    pub fn answered(&mut self, service: ServiceRecord, cost: f64) {
        // Usually nothing was ever refunded.
        if self.allowed > 0.0 {
            self.allow(service, PER_ANSWER * cost);
        }
    }

    fn allow(&mut self, service: ServiceRecord, cost: f64) {
        let Some(group) = self.groups.get(service.group as usize) else { return };
        self.allowed += cost / group.weight * (1.0 - f64::from(service.share_of_others));
        if self.allowed >= REBASE_AT {
            self.rebase_refunds();
        }
    }

    /// Moves the origin of `allowed`, so that it keeps its precision. O(groups).
    #[cold]
    fn rebase_refunds(&mut self) {
        for group in &mut self.groups {
            group.lead = group.lead_at(self.allowed);
            group.allowed_seen = MIN_WEIGHT;
        }
        // Kept above zero, because something was refunded.
        self.allowed = MIN_WEIGHT;
    }
}
