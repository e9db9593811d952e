//! Weighted max-min fairness in whole slots.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::message::{Group, MemberId};

/// One claim on a capacity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Above zero.
    pub(super) weight: u64,
    pub(super) wanted: u64,
}

/// The demand of one member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand<'a> {
    pub(super) groups: &'a [Group],
    /// The last turn in which it had a slot, from 1; 0 if there is none.
    pub(super) served: u64,
}

/// The demand of one member in one group.
struct Part {
    served: u64,
    member: MemberId,
    wanted: u64,
}

/// Divides `capacity` between claims: none gets more than it wants, and a claim that gets less than it wants
/// gets at least as much for each unit of weight as any other, up to one slot. The slots that cannot be
/// divided go to the unsatisfied claims in order, starting at number `first`.
pub(super) fn max_min(capacity: u64, claims: &[Claim], first: usize) -> Vec<u64> {
    let mut given = vec![0; claims.len()];
    let mut order: Vec<usize> = (0..claims.len()).collect();
    // By wanted slots for each unit of weight.
    order.sort_by_key(|at| {
        let claim = claims[*at];
        u128::from(claim.wanted) * u128::from(u32::MAX) / u128::from(claim.weight)
    });
    let mut left = capacity;
    let mut weights: u128 = claims.iter().map(|claim| u128::from(claim.weight)).sum();
    let mut unsatisfied = order.as_slice();
    let part = |left: u64, weight: u64, weights: u128| (u128::from(left) * u128::from(weight) / weights) as u64;
    while let [at, rest @ ..] = unsatisfied {
        let claim = claims[*at];
        if claim.wanted > part(left, claim.weight, weights) {
            break;
        }
        given[*at] = claim.wanted;
        left -= claim.wanted;
        weights -= u128::from(claim.weight);
        unsatisfied = rest;
    }
    let mut surplus = left;
    for at in unsatisfied {
        given[*at] = part(left, claims[*at].weight, weights).min(claims[*at].wanted);
        surplus -= given[*at];
    }
    // The surplus is below the number of unsatisfied claims, unless they are satisfied.
    let mut by_number = unsatisfied.to_vec();
    by_number.sort_by_key(|at| (*at + claims.len() - first % claims.len()) % claims.len());
    while surplus > 0 {
        let before = surplus;
        for at in &by_number {
            if surplus > 0 && given[*at] < claims[*at].wanted {
                given[*at] += 1;
                surplus -= 1;
            }
        }
        if before == surplus {
            break;
        }
    }
    given
}

/// Divides a limit between members: first between the groups of all members by weight, then each group's part
/// between its members, and then what is left between all members. `turn` rotates what cannot be divided
/// between groups. Of the members of a group, those come first that were served least recently.
pub(super) fn divide(limit: u32, demands: &BTreeMap<MemberId, Demand<'_>>, turn: usize) -> BTreeMap<MemberId, u32> {
    let mut groups: BTreeMap<u64, (Claim, Vec<Part>)> = BTreeMap::new();
    for (member, demand) in demands {
        for part in demand.groups {
            let none = (Claim { weight: 1, wanted: 0 }, Vec::new());
            let (claim, members) = groups.entry(part.group).or_insert(none);
            claim.weight = claim.weight.max(u64::from(part.weight));
            claim.wanted += u64::from(part.wanted);
            members.push(Part { served: demand.served, member: *member, wanted: u64::from(part.wanted) });
        }
    }
    let mut shares: BTreeMap<MemberId, u64> = demands.keys().map(|member| (*member, 0)).collect();
    let claims: Vec<Claim> = groups.values().map(|(claim, _)| *claim).collect();
    let parts = max_min(u64::from(limit), &claims, turn);
    let left = u64::from(limit) - parts.iter().sum::<u64>();
    for ((_, mut members), part) in groups.into_values().zip(parts) {
        members.sort_by_key(|part| (part.served, part.member));
        let claims: Vec<Claim> = members.iter().map(|part| Claim { weight: 1, wanted: part.wanted }).collect();
        for (Part { member, .. }, slots) in members.into_iter().zip(max_min(part, &claims, 0)) {
            *shares.entry(member).or_default() += slots;
        }
    }
    let claims = vec![Claim { weight: 1, wanted: u64::MAX }; shares.len()];
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
        claims.iter().map(|(weight, wanted)| Claim { weight: *weight, wanted: *wanted }).collect()
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

    fn demands<'a>(groups: &[&'a [Group]]) -> BTreeMap<MemberId, Demand<'a>> {
        (0..).zip(groups).map(|(member, groups)| (MemberId(member), Demand { groups, served: 0 })).collect()
    }

    #[test]
    fn a_group_on_many_members_gets_no_more_than_a_group_on_one() {
        let many = [Group { group: 1, weight: 1, wanted: 100 }];
        let one = [Group { group: 2, weight: 1, wanted: 100 }];
        let shares: Vec<u32> = divide(12, &demands(&[&many, &many, &one]), 0).into_values().collect();
        assert_eq!(shares, [3, 3, 6]);
    }

    #[test]
    fn every_member_has_its_turn_if_there_are_fewer_slots_than_members() {
        let groups = [1, 1, 1, 2, 2].map(|group| [Group { group, weight: 1, wanted: 4 }]);
        let groups: Vec<&[Group]> = groups.iter().map(|groups| &groups[..]).collect();
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
        let busy = [Group { group: 1, weight: 1, wanted: 2 }];
        let shares: Vec<u32> = divide(10, &demands(&[&busy, &[]]), 0).into_values().collect();
        assert_eq!(shares, [6, 4]);
    }
}
