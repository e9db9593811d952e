//! The part of a sample that a page shows: as many columns and groups as a person can look at. The rest never
//! crosses the boundary, so that a wide table costs the page no more than a narrow one.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};
use tidegate_core::sim::world::Sample;
use tsify::Tsify;

/// Which columns and groups of a sample to return.
#[derive(Deserialize, Tsify)]
pub(super) struct Shown {
    /// The most columns: the first ones.
    columns: usize,
    /// The most groups: those with the most queued tasks, in their order.
    groups: usize,
    /// The groups to return instead, by their index, in order. Ignored if one of them does not exist.
    #[serde(default)]
    #[tsify(type = "readonly number[] | undefined")]
    held: Option<Vec<usize>>,
}

/// The groups of a sample that does not have all of them.
#[derive(Debug, PartialEq, Serialize, Tsify)]
pub(super) struct ShownGroups {
    /// Their indices, in order.
    groups: Vec<usize>,
    /// Those left out.
    others: OtherGroups,
}

/// The groups that a sample leaves out: how many, and their sums.
#[derive(Debug, Default, PartialEq, Serialize, Tsify)]
struct OtherGroups {
    groups: usize,
    queued: u32,
    running: u32,
}

impl Shown {
    /// Removes from the sample what is not shown. Returns which groups are left, unless all are. O(groups).
    pub(super) fn cut(self, sample: &mut Sample) -> Option<ShownGroups> {
        sample.columns.truncate(self.columns);
        let all = sample.groups.len();
        if all <= self.groups {
            return None;
        }
        let held = self.held.filter(|held| held.iter().all(|&index| index < all));
        let groups = held.unwrap_or_else(|| most_queued(sample, self.groups));
        let mut others = OtherGroups { groups: all - groups.len(), ..OtherGroups::default() };
        let mut index = 0;
        sample.groups.retain(|group| {
            let is_shown = groups.binary_search(&index).is_ok();
            index += 1;
            if !is_shown {
                others.queued += group.queued;
                others.running += group.running;
            }
            is_shown
        });
        Some(ShownGroups { groups, others })
    }
}

/// Returns the `most` groups with the most queued tasks, in order. Of equal ones, the first.
fn most_queued(sample: &Sample, most: usize) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..sample.groups.len()).collect();
    indices.select_nth_unstable_by_key(most, |&index| (Reverse(sample.groups[index].queued), index));
    indices.truncate(most);
    indices.sort_unstable();
    indices
}
