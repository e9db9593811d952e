//! Is the order of service fair? Over *every* interval, not only from the start.

use std::fmt;

/// Watches who is served and compares each pair of groups while both could be.
///
/// For groups `i` and `j` that stay eligible, `D = served_i / w_i - served_j / w_j` may not move by more than the bound
/// between any two instants. Keeping the highest and the lowest `D` so far checks all intervals at once: O(groups) for
/// each service.
#[derive(Clone, Debug)]
pub struct FairnessCheck {
    groups: Vec<Group>,
    /// Pairs `(i, j)` with `i < j`, at `j (j - 1) / 2 + i`.
    pairs: Vec<Pair>,
}

#[derive(Clone, Debug)]
struct Group {
    weight: f64,
    is_eligible: bool,
    largest_cost: f64,
}

/// Two groups, since both became eligible.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    served: [f64; 2],
    services: [f64; 2],
    lowest: f64,
    highest: f64,
}

/// Two groups whose service drifted further apart than the bound allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unfair {
    /// The groups.
    pub groups: [usize; 2],
    /// How far apart, in cost per weight.
    pub gap: f64,
    /// The bound.
    pub bound: f64,
}

impl fmt::Display for Unfair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { groups: [i, j], gap, bound } = self;
        write!(f, "groups {i} and {j} are {gap:e} of cost per weight apart; the bound is {bound:e}")
    }
}

impl FairnessCheck {
    /// Groups of these weights, none of them eligible.
    #[must_use]
    pub fn new(weights: &[f64]) -> Self {
        let groups = weights.iter().map(|weight| Group { weight: *weight, is_eligible: false, largest_cost: 0.0 });
        let pairs = vec![Pair::default(); weights.len() * weights.len().saturating_sub(1) / 2];
        Self { groups: groups.collect(), pairs }
    }

    /// A group has items queued that could go whenever its turn comes, or no longer so.
    pub fn set_eligible(&mut self, group: usize, is_eligible: bool) {
        if std::mem::replace(&mut self.groups[group].is_eligible, is_eligible) == is_eligible {
            return;
        }
        for other in (0..self.groups.len()).filter(|other| *other != group) {
            self.pairs[at(group, other)] = Pair::default();
        }
    }

    /// A group was served.
    ///
    /// # Errors
    /// The first pair for which the bound is broken.
    pub fn on_service(&mut self, group: usize, cost: f64) -> Result<(), Unfair> {
        let served = &mut self.groups[group];
        served.largest_cost = served.largest_cost.max(cost);
        for other in (0..self.groups.len()).filter(|other| *other != group) {
            let (i, j) = (group.min(other), group.max(other));
            if self.groups[i].is_eligible && self.groups[j].is_eligible {
                let side = usize::from(group == j);
                let pair = &mut self.pairs[at(i, j)];
                pair.served[side] += cost;
                pair.services[side] += 1.0;
                pair.check([&self.groups[i], &self.groups[j]]).map_err(|(gap, bound)| Unfair {
                    groups: [i, j],
                    gap,
                    bound,
                })?;
            }
        }
        Ok(())
    }
}

fn at(one: usize, other: usize) -> usize {
    let (i, j) = (one.min(other), one.max(other));
    j * (j - 1) / 2 + i
}

impl Pair {
    fn check(&mut self, groups: [&Group; 2]) -> Result<(), (f64, f64)> {
        let share = [0, 1].map(|side| self.served[side] / groups[side].weight);
        let apart = share[0] - share[1];
        self.lowest = self.lowest.min(apart);
        self.highest = self.highest.max(apart);
        let gap = self.highest - self.lowest;
        // What this checker itself rounds away, and then the stated bound.
        let mut bound = (share[0] + share[1]) * 2_f64.powi(-50);
        for (group, services) in groups.iter().zip(self.services) {
            bound += stated_bound(group.largest_cost / group.weight, services);
        }
        // `lowest` and `highest` may lie in either order of time, and an interval may start and end at any two.
        if gap > bound { Err((gap, bound)) } else { Ok(()) }
    }
}

/// What a group contributes to the bound that the fair queue states: its largest `cost / weight`, and what rounding
/// may add in so many services.
#[must_use]
pub fn stated_bound(largest_cost_per_weight: f64, services: f64) -> f64 {
    let rounding = 2_f64.powi(-33) + largest_cost_per_weight * 2_f64.powi(-51);
    largest_cost_per_weight + (services + 1.0) * rounding
}
