//! The figures that a policy decides by: what each group holds, its debt, and the demand of its first task.
//!
//! A group's *debt* in a resource is what it has borrowed beyond its share and not repaid: see
//! [`BoundedBorrow`](super::BoundedBorrow).
//!
//! A group's first task is its *head*. A head is *pressing* while its whole demand is available: the group
//! could start and therefore competes with others. For each resource there are three sums over the pressing
//! heads that need it: their number, their weights, and their group numbers. If there is only one such head,
//! the last sum is the number of its group.
//!
//! The sums are always up to date. When the available amount of a resource changes, only the demands that
//! become available or unavailable are updated. They are found by binary search, because the demands of a
//! resource are sorted by amount.

use alloc::vec::Vec;

use smallvec::SmallVec;

use super::resources::Resources;
use super::shares::units;

/// The head of a group without queued tasks.
const NONE: u32 = u32::MAX;

/// The figures of all groups, demands and resources.
#[derive(Clone, Debug)]
pub(super) struct Accounts {
    pub(super) resources: Resources,
    groups: Vec<GroupAccount>,
    /// By demand.
    demands: Vec<DemandAccount>,
    /// By resource.
    resource_demands: Vec<ResourceDemand>,
    /// Resources whose pressing heads changed since the last [`Accounts::take_touched`].
    touched: Vec<u32>,
}

/// The limit, the holdings and the debts of one group.
#[derive(Clone, Debug)]
pub(super) struct GroupAccount {
    pub(super) admitted_limit: Option<u32>,
    pub(super) weight: f64,
    /// The weight in [units](units).
    pub(super) units: u128,
    /// The number of leases, without those of yielded workers.
    pub(super) running: u32,
    /// The demand of its head, or `NONE`.
    head: u32,
    /// Its holding and debt in each resource of which it ever held some.
    holdings: SmallVec<[Holding; 3]>,
}

/// What a group holds of one resource, and its debt in it.
#[derive(Clone, Copy, Debug)]
struct Holding {
    resource: u32,
    held: u32,
    debt: u32,
}

/// Sums over the heads of several groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HeadSums {
    pub(super) count: u32,
    /// The sum of the weights, in [units](units).
    pub(super) weight: u128,
    /// The sum of the group numbers. With one head, it is the number of that group.
    numbers: u64,
}

impl HeadSums {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.weight += other.weight;
        self.numbers = self.numbers.wrapping_add(other.numbers);
    }

    fn remove(&mut self, other: Self) {
        self.count -= other.count;
        self.weight -= other.weight;
        self.numbers = self.numbers.wrapping_sub(other.numbers);
    }

    /// Returns the group of the head, if there is exactly one.
    pub(super) fn only(&self) -> Option<u32> {
        (self.count == 1).then_some(self.numbers as u32)
    }
}

/// The state of one demand.
#[derive(Clone, Debug, Default)]
struct DemandAccount {
    /// The number of resources of which less is available than the demand needs. 0 means that it is
    /// available.
    shortages: u32,
    /// The heads that have this demand.
    heads: HeadSums,
}

/// The demands that need one resource.
#[derive(Clone, Debug, Default)]
struct ResourceDemand {
    /// The pressing heads that need the resource.
    pressing: HeadSums,
    /// Whether it is in [`Accounts::touched`].
    is_touched: bool,
    /// The amounts and the demands, by ascending amount.
    demands: Vec<(u32, u32)>,
}

/// Registration.
impl Accounts {
    pub(super) fn new(resources: Resources) -> Self {
        let resource_demands = (0..resources.count()).map(|_| ResourceDemand::default()).collect();
        Self { resources, groups: Vec::new(), demands: Vec::new(), resource_demands, touched: Vec::new() }
    }

    /// Adds a group that holds nothing. Its number is the number of groups before it.
    pub(super) fn add_group(&mut self, weight: f64, admitted_limit: Option<u32>) {
        self.groups.push(GroupAccount {
            admitted_limit,
            weight,
            units: units(weight),
            running: 0,
            head: NONE,
            holdings: SmallVec::new(),
        });
    }

    /// Changes the weight and limit of a group.
    pub(super) fn change_group(&mut self, group: u32, weight: f64, admitted_limit: Option<u32>) {
        let head = self.groups[group as usize].head;
        self.set_head(group, None);
        let entry = &mut self.groups[group as usize];
        entry.weight = weight;
        entry.units = units(weight);
        entry.admitted_limit = admitted_limit;
        self.set_head(group, (head != NONE).then_some(head));
    }

    /// Adds the demands and resources that were interned since the last call.
    pub(super) fn register_demands(&mut self) {
        self.resource_demands.resize_with(self.resources.count() as usize, ResourceDemand::default);
        for demand in self.demands.len() as u32..self.resources.demands() {
            let mut shortages = 0;
            for (resource, amount) in self.resources.amounts(demand) {
                shortages += u32::from(self.resources.available(*resource) < *amount);
                let demands = &mut self.resource_demands[*resource as usize].demands;
                let at = demands.partition_point(|known| *known < (*amount, demand));
                demands.insert(at, (*amount, demand));
            }
            self.demands.push(DemandAccount { shortages, heads: HeadSums::default() });
        }
    }
}

/// Changes.
impl Accounts {
    /// Sets the demand of a group's head. O(resources of the two demands).
    pub(super) fn set_head(&mut self, group: u32, head: Option<u32>) {
        let head = head.unwrap_or(NONE);
        let entry = &mut self.groups[group as usize];
        let before = core::mem::replace(&mut entry.head, head);
        if before == head {
            return;
        }
        let one = HeadSums { count: 1, weight: entry.units, numbers: u64::from(group) };
        if before != NONE {
            let demand = &mut self.demands[before as usize];
            demand.heads.remove(one);
            if demand.shortages == 0 {
                self.update_pressing(before, one, HeadSums::remove);
            }
        }
        if head != NONE {
            let demand = &mut self.demands[head as usize];
            demand.heads.add(one);
            if demand.shortages == 0 {
                self.update_pressing(head, one, HeadSums::add);
            }
        }
    }

    /// Leases a demand to a group. O(resources of the demand, and demands that become unavailable).
    pub(super) fn take(&mut self, group: u32, demand: u32) {
        self.groups[group as usize].running += 1;
        for at in 0..self.resources.amounts(demand).len() {
            let (resource, amount) = self.resources.amounts(demand)[at];
            let before = self.resources.available(resource);
            self.resources.take(resource, amount);
            self.groups[group as usize].holding(resource).held += amount;
            self.availability_fell(resource, before - amount, before);
        }
    }

    /// Takes a leased demand back from a group. O(resources of the demand, and demands that become
    /// available).
    pub(super) fn give_back(&mut self, group: u32, demand: u32) {
        self.groups[group as usize].running -= 1;
        for at in 0..self.resources.amounts(demand).len() {
            let (resource, amount) = self.resources.amounts(demand)[at];
            let before = self.resources.available(resource);
            self.resources.give_back(resource, amount);
            self.groups[group as usize].holding(resource).held -= amount;
            self.availability_rose(resource, before, before + amount);
        }
    }

    /// Adds to the debt of a group.
    pub(super) fn borrow(&mut self, group: u32, resource: u32, amount: u32) {
        let holding = self.groups[group as usize].holding(resource);
        holding.debt = holding.debt.saturating_add(amount);
    }

    /// Reduces the debt of a group, at most to 0.
    pub(super) fn repay(&mut self, group: u32, resource: u32, amount: u32) {
        let holding = self.groups[group as usize].holding(resource);
        holding.debt = holding.debt.saturating_sub(amount);
    }

    /// Limits the debt of a group to what it holds. Its releases can then repay all of it.
    pub(super) fn cap_debt_at_held(&mut self, group: u32) {
        let holdings = self.groups[group as usize].holdings.iter_mut();
        holdings.for_each(|holding| holding.debt = holding.debt.min(holding.held));
    }

    /// Replaces `into` with the resources whose pressing heads changed since the last call.
    pub(super) fn take_touched(&mut self, into: &mut Vec<u32>) {
        into.clear();
        into.append(&mut self.touched);
        for resource in into {
            self.resource_demands[*resource as usize].is_touched = false;
        }
    }

    /// Updates the demands after the available amount of a resource fell from `before` to `now`. Demands of
    /// more than `now` and at most `before` are no longer available, and their heads stop pressing.
    fn availability_fell(&mut self, resource: u32, now: u32, before: u32) {
        for at in self.demands_between(resource, now, before) {
            let (_, demand) = self.resource_demands[resource as usize].demands[at];
            let entry = &mut self.demands[demand as usize];
            entry.shortages += 1;
            if entry.shortages == 1 && entry.heads.count > 0 {
                let heads = entry.heads;
                self.update_pressing(demand, heads, HeadSums::remove);
            }
        }
    }

    /// Updates the demands after the available amount of a resource rose from `before` to `now`. Demands of
    /// more than `before` and at most `now` may become available, and their heads then press.
    fn availability_rose(&mut self, resource: u32, before: u32, now: u32) {
        for at in self.demands_between(resource, before, now) {
            let (_, demand) = self.resource_demands[resource as usize].demands[at];
            let entry = &mut self.demands[demand as usize];
            entry.shortages -= 1;
            if entry.shortages == 0 && entry.heads.count > 0 {
                let heads = entry.heads;
                self.update_pressing(demand, heads, HeadSums::add);
            }
        }
    }

    /// Returns the indexes of the demands that need more than `low` of a resource and at most `high`.
    fn demands_between(&self, resource: u32, low: u32, high: u32) -> core::ops::Range<usize> {
        let demands = &self.resource_demands[resource as usize].demands;
        demands.partition_point(|(amount, _)| *amount <= low)..demands.partition_point(|(amount, _)| *amount <= high)
    }

    /// Adds `heads` of a demand to the pressing heads of its resources, or removes them.
    fn update_pressing(&mut self, demand: u32, heads: HeadSums, change: fn(&mut HeadSums, HeadSums)) {
        for (resource, _) in self.resources.amounts(demand) {
            let resource_demands = &mut self.resource_demands[*resource as usize];
            change(&mut resource_demands.pressing, heads);
            if !core::mem::replace(&mut resource_demands.is_touched, true) {
                self.touched.push(*resource);
            }
        }
    }
}

/// Queries.
impl Accounts {
    pub(super) fn group(&self, group: u32) -> &GroupAccount {
        &self.groups[group as usize]
    }

    /// Returns whether all of a demand is available.
    pub(super) fn is_available(&self, demand: u32) -> bool {
        self.demands[demand as usize].shortages == 0
    }

    /// Returns the sums over the heads that need a resource and could start now.
    pub(super) fn pressing(&self, resource: u32) -> HeadSums {
        self.resource_demands[resource as usize].pressing
    }

    /// Returns the sums over the pressing heads of a resource without the head of `group`.
    pub(super) fn peers(&self, group: u32, resource: u32) -> HeadSums {
        let mut peers = self.pressing(resource);
        let GroupAccount { head, units, .. } = self.groups[group as usize];
        if head != NONE && self.is_available(head) && self.resources.needs(head, resource) {
            peers.remove(HeadSums { count: 1, weight: units, numbers: u64::from(group) });
        }
        peers
    }
}

impl GroupAccount {
    pub(super) fn held(&self, resource: u32) -> u32 {
        self.find(resource).map_or(0, |holding| holding.held)
    }

    pub(super) fn debt(&self, resource: u32) -> u32 {
        self.find(resource).map_or(0, |holding| holding.debt)
    }

    /// Returns the debts of the group: resources and amounts above 0.
    pub(super) fn debts(&self) -> impl Iterator<Item = (u32, u32)> {
        let debts = self.holdings.iter().filter(|holding| holding.debt > 0);
        debts.map(|holding| (holding.resource, holding.debt))
    }

    fn find(&self, resource: u32) -> Option<&Holding> {
        self.holdings.iter().find(|holding| holding.resource == resource)
    }

    fn holding(&mut self, resource: u32) -> &mut Holding {
        let known = self.holdings.iter().position(|holding| holding.resource == resource);
        let at = known.unwrap_or_else(|| {
            self.holdings.push(Holding { resource, held: 0, debt: 0 });
            self.holdings.len() - 1
        });
        &mut self.holdings[at]
    }
}
