//! Who holds, owes and wants what: the figures that admission decides by, kept up to date.
//!
//! A head *presses* while its whole demand is available. For each resource three sums are kept over the
//! pressing heads that want it: how many, their weight, and their group numbers (so that the only one is
//! known by name). A change of what is available touches only the demands whose availability flips.

use alloc::vec::Vec;

use smallvec::SmallVec;

use super::resources::Resources;
use super::shares::units;

/// "No head", "no demand".
const NONE: u32 = u32::MAX;

/// The figures of a task admission.
#[derive(Clone, Debug)]
pub(super) struct Accounts {
    pub(super) resources: Resources,
    groups: Vec<GroupAccount>,
    /// By demand.
    demands: Vec<DemandAccount>,
    /// By resource.
    wants: Vec<GroupDemand>,
    /// Resources whose pressing heads changed since [`Accounts::take_touched`].
    touched: Vec<u32>,
}

/// What one group may have, has and owes.
#[derive(Clone, Debug)]
pub(super) struct GroupAccount {
    pub(super) admitted_limit: Option<u32>,
    pub(super) weight: f64,
    pub(super) units: u128,
    pub(super) running: u32,
    /// The demand of its head, or `NONE`.
    head: u32,
    holdings: SmallVec<[Holding; 3]>,
}

#[derive(Clone, Copy, Debug)]
struct Holding {
    resource: u32,
    held: u32,
    debt: u32,
}

/// Sums over heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HeadSums {
    pub(super) count: u32,
    pub(super) weight: u128,
    /// The sum of their group numbers: the number itself where there is one head.
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

    /// The group of the only head.
    pub(super) fn only(&self) -> Option<u32> {
        (self.count == 1).then_some(self.numbers as u32)
    }
}

#[derive(Clone, Debug, Default)]
struct DemandAccount {
    /// Resources that it would have to wait for.
    shortages: u32,
    heads: HeadSums,
}

#[derive(Clone, Debug, Default)]
struct GroupDemand {
    pressing: HeadSums,
    is_touched: bool,
    /// The demands that ask for it, by ascending amount.
    demands: Vec<(u32, u32)>,
}

/// Registration.
impl Accounts {
    pub(super) fn new(resources: Resources) -> Self {
        let wants = (0..resources.count()).map(|_| GroupDemand::default()).collect();
        Self { resources, groups: Vec::new(), demands: Vec::new(), wants, touched: Vec::new() }
    }

    /// A group that holds nothing; its number is the count of those before it.
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

    /// Gives a group another weight and limit.
    pub(super) fn change_group(&mut self, group: u32, weight: f64, admitted_limit: Option<u32>) {
        let head = self.groups[group as usize].head;
        self.set_head(group, None);
        let entry = &mut self.groups[group as usize];
        entry.weight = weight;
        entry.units = units(weight);
        entry.admitted_limit = admitted_limit;
        self.set_head(group, (head != NONE).then_some(head));
    }

    /// Opens the accounts of demands and resources that were interned since the last call.
    pub(super) fn register_demands(&mut self) {
        self.wants.resize_with(self.resources.count() as usize, GroupDemand::default);
        for demand in self.demands.len() as u32..self.resources.demands() {
            let mut shortages = 0;
            for (resource, amount) in self.resources.amounts(demand) {
                shortages += u32::from(self.resources.available(*resource) < *amount);
                let demands = &mut self.wants[*resource as usize].demands;
                let at = demands.partition_point(|known| *known < (*amount, demand));
                demands.insert(at, (*amount, demand));
            }
            self.demands.push(DemandAccount { shortages, heads: HeadSums::default() });
        }
    }
}

/// Changes.
impl Accounts {
    /// Says what a group's head asks for now. O(resources of the two demands).
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
                self.press(before, one, HeadSums::remove);
            }
        }
        if head != NONE {
            let demand = &mut self.demands[head as usize];
            demand.heads.add(one);
            if demand.shortages == 0 {
                self.press(head, one, HeadSums::add);
            }
        }
    }

    /// Leases a demand to a group. O(resources of the demand, and demands that become unavailable by it).
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

    /// Takes a demand back. O(resources of the demand, and demands that become available by it).
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

    /// Adds to what a group owes.
    pub(super) fn borrow(&mut self, group: u32, resource: u32, amount: u32) {
        let holding = self.groups[group as usize].holding(resource);
        holding.debt = holding.debt.saturating_add(amount);
    }

    /// Takes from what a group owes, down to nothing.
    pub(super) fn repay(&mut self, group: u32, resource: u32, amount: u32) {
        let holding = self.groups[group as usize].holding(resource);
        holding.debt = holding.debt.saturating_sub(amount);
    }

    /// A group owes no more than it holds, so that its releases can repay all of it.
    pub(super) fn cap_debt_at_held(&mut self, group: u32) {
        let holdings = self.groups[group as usize].holdings.iter_mut();
        holdings.for_each(|holding| holding.debt = holding.debt.min(holding.held));
    }

    /// The resources whose pressing heads changed since the last call, into `into`.
    pub(super) fn take_touched(&mut self, into: &mut Vec<u32>) {
        into.clear();
        into.append(&mut self.touched);
        for resource in into {
            self.wants[*resource as usize].is_touched = false;
        }
    }

    /// `resource` fell from `before` to `now`: demands of amounts above `now` and up to `before` stop
    /// pressing.
    fn availability_fell(&mut self, resource: u32, now: u32, before: u32) {
        for at in self.flipped(resource, now, before) {
            let (_, demand) = self.wants[resource as usize].demands[at];
            let entry = &mut self.demands[demand as usize];
            entry.shortages += 1;
            if entry.shortages == 1 && entry.heads.count > 0 {
                let heads = entry.heads;
                self.press(demand, heads, HeadSums::remove);
            }
        }
    }

    fn availability_rose(&mut self, resource: u32, before: u32, now: u32) {
        for at in self.flipped(resource, before, now) {
            let (_, demand) = self.wants[resource as usize].demands[at];
            let entry = &mut self.demands[demand as usize];
            entry.shortages -= 1;
            if entry.shortages == 0 && entry.heads.count > 0 {
                let heads = entry.heads;
                self.press(demand, heads, HeadSums::add);
            }
        }
    }

    /// Where the demands lie that ask for more than `low` of a resource and at most `high`.
    fn flipped(&self, resource: u32, low: u32, high: u32) -> core::ops::Range<usize> {
        let demands = &self.wants[resource as usize].demands;
        demands.partition_point(|(amount, _)| *amount <= low)..demands.partition_point(|(amount, _)| *amount <= high)
    }

    fn press(&mut self, demand: u32, heads: HeadSums, change: fn(&mut HeadSums, HeadSums)) {
        for (resource, _) in self.resources.amounts(demand) {
            let wants = &mut self.wants[*resource as usize];
            change(&mut wants.pressing, heads);
            if !core::mem::replace(&mut wants.is_touched, true) {
                self.touched.push(*resource);
            }
        }
    }
}

/// Facts.
impl Accounts {
    pub(super) fn group(&self, group: u32) -> &GroupAccount {
        &self.groups[group as usize]
    }

    /// Whether all of a demand is available.
    pub(super) fn is_available(&self, demand: u32) -> bool {
        self.demands[demand as usize].shortages == 0
    }

    /// The heads that want a resource and could start now.
    pub(super) fn pressing(&self, resource: u32) -> HeadSums {
        self.wants[resource as usize].pressing
    }

    /// The same without `group`'s own.
    pub(super) fn peers(&self, group: u32, resource: u32) -> HeadSums {
        let mut peers = self.pressing(resource);
        let GroupAccount { head, units, .. } = self.groups[group as usize];
        if head != NONE && self.is_available(head) && self.resources.asks_for(head, resource) {
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

    /// What it owes: resources and amounts above 0.
    pub(super) fn debts(&self) -> impl Iterator<Item = (u32, u32)> {
        let owed = self.holdings.iter().filter(|holding| holding.debt > 0);
        owed.map(|holding| (holding.resource, holding.debt))
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
