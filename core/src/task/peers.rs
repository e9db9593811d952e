//! Who else wants a resource and could have it now.

use alloc::vec::Vec;

use super::resources::Resources;
use crate::fair_queue::{ClassId, FairQueue, GroupId};

/// The groups whose head asks for one demand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    demand: u32,
    count: u32,
    weight: f64,
}

/// The heads of the queue by demand, as they stand while one candidate is judged, its own group left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peers<'a> {
    heads: &'a [Heads],
    own_demand: Option<u32>,
    own_weight: f64,
}

/// Counts the heads of every demand into `heads`. O(demands); allocates only past its high-water mark.
pub(super) fn count_heads(queue: &FairQueue, demands: u32, heads: &mut Vec<Heads>) {
    heads.clear();
    heads.extend((0..demands).filter_map(|demand| {
        let class = ClassId(demand);
        let count = queue.heads(class);
        (count > 0).then(|| Heads { demand, count, weight: queue.head_weight(class, None) })
    }));
}

impl<'a> Peers<'a> {
    /// The peers of `group`, whose head, if it has one, asks for `own_demand`.
    pub(super) fn of(heads: &'a [Heads], queue_weight: f64, own_demand: Option<u32>) -> Self {
        Self { heads, own_demand, own_weight: queue_weight }
    }

    /// Demands that want `resource` and could be met now, each with the number and weight of its groups.
    fn competing(self, resources: &'a Resources, resource: u32) -> impl Iterator<Item = (u32, f64)> {
        let wanting = self.heads.iter().filter(move |heads| {
            let mut amounts = resources.amounts(heads.demand).iter();
            amounts.any(|(known, _)| *known == resource) && resources.shortage(heads.demand).is_none()
        });
        wanting.map(move |heads| {
            let is_own = self.own_demand == Some(heads.demand);
            let count = heads.count - u32::from(is_own);
            (
                count,
                if count == 0 {
                    0.0
                } else if is_own {
                    heads.weight - self.own_weight
                } else {
                    heads.weight
                },
            )
        })
    }

    pub(super) fn any(self, resources: &Resources, resource: u32) -> bool {
        self.competing(resources, resource).any(|(count, _)| count > 0)
    }

    pub(super) fn weight(self, resources: &Resources, resource: u32) -> f64 {
        self.competing(resources, resource).map(|(_, weight)| weight).sum()
    }
}

/// What the head of `group` asks for.
pub(super) fn head_demand(queue: &FairQueue, group: GroupId) -> Option<u32> {
    queue.first(group).map(|head| head.class.0)
}
