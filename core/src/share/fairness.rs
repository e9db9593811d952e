//! Weighted max-min fairness in whole slots.
//!
//! A division of slots is *max-min fair* if no claim can get more without taking from a claim that has no
//! more slots for each unit of its weight. It is found by progressive filling: the claims are served in
//! ascending order of demand for each unit of weight. A claim gets its demand as long as that is at most its
//! part of what is left, by weight. From the first claim on with a higher demand, each gets its part.
//!
//! Source: D. Bertsekas, R. Gallager, "Data Networks", 2nd edition, 1992, section 6.5.2.
//!
//! Slots are whole, so parts are rounded down. The *remainder*, which is less than one slot for each claim
//! with a higher demand, goes round: see [`max_min`].

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::message::{GroupDemand, MemberId};

/// One claim on a capacity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Above zero.
    pub(super) weight: u64,
    /// The number of slots that it can use.
    pub(super) demand: u64,
}

/// The demand of one member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand<'a> {
    /// The groups that it reports.
    pub(super) groups: &'a [GroupDemand],
    /// The last turn in which the member had a slot, counted from 1, or 0 if there is none. A turn is a
    /// second.
    pub(super) served: u64,
}

/// One member of a group, and its demand in this group.
struct GroupMember {
    served: u64,
    member: MemberId,
    demand: u64,
}

/// Divides `slots` between claims. Returns the slots of each.
///
/// No claim gets more than its demand. A claim that gets less gets at least as much for each unit of weight
/// as any other, up to one slot. The remainder goes to the unsatisfied claims in the order of
/// `claims`, one slot each, starting at number `first` (modulo their number). O(n log n) for n claims.
pub(super) fn max_min(slots: u64, claims: &[Claim], first: usize) -> Vec<u64> {
    let mut given = vec![0; claims.len()];
    let mut order: Vec<usize> = (0..claims.len()).collect();
    // By demand for each unit of weight, as a fixed-point number: floats can differ between machines.
    order.sort_by_key(|at| {
        let claim = claims[*at];
        u128::from(claim.demand) * u128::from(u32::MAX) / u128::from(claim.weight)
    });
    let mut left = slots;
    let mut weights: u128 = claims.iter().map(|claim| u128::from(claim.weight)).sum();
    let mut unsatisfied = order.as_slice();
    let part = |left: u64, weight: u64, weights: u128| (u128::from(left) * u128::from(weight) / weights) as u64;
    while let [at, rest @ ..] = unsatisfied {
        let claim = claims[*at];
        if claim.demand > part(left, claim.weight, weights) {
            break;
        }
        given[*at] = claim.demand;
        left -= claim.demand;
        weights -= u128::from(claim.weight);
        unsatisfied = rest;
    }
    let mut remainder = left;
    for at in unsatisfied {
        given[*at] = part(left, claims[*at].weight, weights).min(claims[*at].demand);
        remainder -= given[*at];
    }
    // Each unsatisfied claim loses less than one slot to rounding, so one round is enough for the remainder.
    // If no claim is unsatisfied, it stays.
    let mut by_number = unsatisfied.to_vec();
    by_number.sort_by_key(|at| (*at + claims.len() - first % claims.len()) % claims.len());
    while remainder > 0 {
        let before = remainder;
        for at in &by_number {
            if remainder > 0 && given[*at] < claims[*at].demand {
                given[*at] += 1;
                remainder -= 1;
            }
        }
        if before == remainder {
            break;
        }
    }
    given
}

/// Divides a limit between members. Returns the share of each. The shares add up to the limit if there is a
/// member.
///
/// The limit is divided first between the groups of all members, by weight: the demand of a group is that of
/// its members together, and its weight is the highest that one of them reports. Then the slots of each group
/// are divided between its members, which have equal weights. What is left is divided equally between all
/// members.
///
/// `turn` is the number of the present second. It decides which groups get the remainder, and which members
/// get that of the last step. Of the members of a group, those get it that were served least recently. O(d
/// log d) for d pairs of member and group.
pub(super) fn divide(limit: u32, demands: &BTreeMap<MemberId, Demand<'_>>, turn: usize) -> BTreeMap<MemberId, u32> {
    let mut groups: BTreeMap<u64, (Claim, Vec<GroupMember>)> = BTreeMap::new();
    for (member, demand) in demands {
        for group in demand.groups {
            let none = (Claim { weight: 1, demand: 0 }, Vec::new());
            let (claim, members) = groups.entry(group.group).or_insert(none);
            claim.weight = claim.weight.max(u64::from(group.weight));
            claim.demand += u64::from(group.demand);
            members.push(GroupMember { served: demand.served, member: *member, demand: u64::from(group.demand) });
        }
    }
    let mut shares: BTreeMap<MemberId, u64> = demands.keys().map(|member| (*member, 0)).collect();
    let claims: Vec<Claim> = groups.values().map(|(claim, _)| *claim).collect();
    let by_group = max_min(u64::from(limit), &claims, turn);
    let left = u64::from(limit) - by_group.iter().sum::<u64>();
    for ((_, mut members), slots) in groups.into_values().zip(by_group) {
        members.sort_by_key(|of_group| (of_group.served, of_group.member));
        let claims = members.iter().map(|of_group| Claim { weight: 1, demand: of_group.demand });
        let by_member = max_min(slots, &claims.collect::<Vec<_>>(), 0);
        for (GroupMember { member, .. }, slots) in members.into_iter().zip(by_member) {
            *shares.entry(member).or_default() += slots;
        }
    }
    let claims = vec![Claim { weight: 1, demand: u64::MAX }; shares.len()];
    for (share, slots) in shares.values_mut().zip(max_min(left, &claims, turn)) {
        *share += slots;
    }
    // No share exceeds the limit.
    shares.into_iter().map(|(member, share)| (member, share as u32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(claims: &[(u64, u64)]) -> Vec<Claim> {
        claims.iter().map(|(weight, demand)| Claim { weight: *weight, demand: *demand }).collect()
    }

    #[test]
    fn small_claims_are_met_and_the_others_share_the_rest_by_weight() {
        assert_eq!(max_min(12, &claims(&[(1, 2), (1, 100), (1, 100)]), 0), [2, 5, 5]);
        assert_eq!(max_min(12, &claims(&[(1, 100), (2, 100)]), 0), [4, 8]);
        assert_eq!(max_min(12, &claims(&[(1, 3), (1, 4)]), 0), [3, 4]);
        assert_eq!(max_min(12, &[], 3), [0; 0]);
    }

    #[test]
    fn slots_that_cannot_be_divided_rotate() {
        let three = claims(&[(1, 9), (1, 9), (1, 9)]);
        assert_eq!(max_min(2, &three, 0), [1, 1, 0]);
        assert_eq!(max_min(2, &three, 1), [0, 1, 1]);
        assert_eq!(max_min(2, &three, 2), [1, 0, 1]);
    }

    fn demands<'a>(groups: &[&'a [GroupDemand]]) -> BTreeMap<MemberId, Demand<'a>> {
        (0..).zip(groups).map(|(member, groups)| (MemberId(member), Demand { groups, served: 0 })).collect()
    }

    #[test]
    fn a_group_on_many_members_gets_no_more_than_a_group_on_one() {
        let many = [GroupDemand { group: 1, weight: 1, demand: 100 }];
        let one = [GroupDemand { group: 2, weight: 1, demand: 100 }];
        let shares: Vec<u32> = divide(12, &demands(&[&many, &many, &one]), 0).into_values().collect();
        assert_eq!(shares, [3, 3, 6]);
    }

    #[test]
    fn every_member_has_its_turn_if_there_are_fewer_slots_than_members() {
        let groups = [1, 1, 1, 2, 2].map(|group| [GroupDemand { group, weight: 1, demand: 4 }]);
        let groups: Vec<&[GroupDemand]> = groups.iter().map(|groups| &groups[..]).collect();
        for limit in 1..5 {
            let mut demands = demands(&groups);
            let mut had = BTreeMap::new();
            for turn in 0..12 {
                for (member, share) in divide(limit, &demands, turn) {
                    *had.entry(member).or_insert(0) += share;
                    if share > 0 {
                        demands.get_mut(&member).expect("it is one").served = turn as u64 + 1;
                    }
                }
            }
            assert!(had.values().all(|slots| *slots >= 2), "limit {limit}: {had:?}");
        }
    }

    #[test]
    fn what_no_member_needs_is_divided_equally() {
        let busy = [GroupDemand { group: 1, weight: 1, demand: 2 }];
        let shares: Vec<u32> = divide(10, &demands(&[&busy, &[]]), 0).into_values().collect();
        assert_eq!(shares, [6, 4]);
    }
}
