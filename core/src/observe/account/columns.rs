//! The tasks of each column, as counts.

use alloc::string::String;
use alloc::vec::Vec;

use super::slots::Slots;

/// The counts of one column.
#[derive(Clone, Debug)]
pub(super) struct ColumnCounts {
    /// The index and amount of each resource that a task of the column needs.
    pub(super) demand: Vec<(usize, u32)>,
    pub(super) queued: u32,
    /// Workers that hold their task resources.
    pub(super) running: u32,
    pub(super) yielded: u32,
    /// The number of its fairness group. Groups are numbered from 0 in the order of their first columns.
    pub(super) group: usize,
}

impl ColumnCounts {
    /// Creates the counts of a column without tasks. As in task admission, amounts of equal names are summed
    /// and the amount of `submission` is at least 1.
    pub(super) fn new(resources: &[Slots], amounts: &[(String, u32)], group: usize) -> Self {
        let amount_of = |(place, slots): (usize, &Slots)| {
            let amount = amounts
                .iter()
                .filter(|(name, _)| *name == slots.name)
                .fold(0_u32, |sum, (_, amount)| sum.saturating_add(*amount));
            (place, if place == 0 { amount.max(1) } else { amount })
        };
        let demand = resources.iter().enumerate().map(amount_of).filter(|(_, amount)| *amount > 0).collect();
        Self { demand, queued: 0, running: 0, yielded: 0, group }
    }
}
