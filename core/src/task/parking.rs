//! Parked groups: groups that the policy denied, and the changes that end their denials.
//!
//! A denial states [until](Until) when it holds. A parked group is evaluated again when that condition is
//! met. Apart from that, it is evaluated again when it gives back a lease, gets another first task, or is
//! registered again. No other change leads to an evaluation, so the work is proportional to the number of
//! decisions that may have changed.
//!
//! A group's share of a resource depends on the *competing weight*: the sum of the weights of all groups
//! whose first task needs the resource and could start, its own included. A range of shares is converted to a
//! range of competing weights once, when the group is parked. A change then compares one sum with the bounds
//! of the parked groups. Bounds are stored by demand, because the sum includes only groups whose demand is
//! available. A group whose own demand is not available is not woken by the sum.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::accounts::Accounts;
use super::policy::Until;
use super::shares::most_competing;

/// The parked groups.
#[derive(Clone, Debug, Default)]
pub(super) struct Parking {
    /// The state of each group.
    states: Vec<ParkState>,
    /// By resource.
    wait_lists: Vec<WaitList>,
    /// Groups that are evaluated again after every change.
    recheck_always: Vec<u32>,
    /// Whether anything has changed since the last wake-up.
    has_changed: bool,
    // Buffers that are reused between calls.
    touched: Vec<u32>,
    woken: Vec<u32>,
}

/// Until when a group is parked.
#[derive(Clone, Copy, Debug, Default)]
enum ParkState {
    /// It is not parked.
    #[default]
    Free,
    /// Until anything changes. It is at this index of `recheck_always`.
    RecheckAlways(u32),
    /// Until no other group competes for the resource.
    Alone { resource: u32 },
    /// Until no other group competes for the resource, or the competing weight falls to `fallen` or rises to
    /// `risen`.
    Between { resource: u32, demand: u32, fallen: Option<u128>, risen: Option<u128> },
}

/// The groups that wait for a change of one resource's competing weight.
#[derive(Clone, Debug, Default)]
struct WaitList {
    /// Groups that are woken when the competing weight is at most their bound.
    fallen: Bounds,
    /// Groups that are woken when the competing weight is at least their bound.
    risen: Bounds,
}

impl Parking {
    pub(super) fn add_group(&mut self) {
        self.states.push(ParkState::Free);
    }

    /// Records a change that may affect the decision of a policy.
    pub(super) fn mark_changed(&mut self) {
        self.has_changed = true;
    }

    /// Parks a group whose first task has `demand`. O(log groups).
    pub(super) fn park(&mut self, accounts: &Accounts, group: u32, demand: u32, until: &Until) {
        self.remove(group);
        self.states[group as usize] = match until {
            Until::AnyChange => {
                self.recheck_always.push(group);
                ParkState::RecheckAlways(self.recheck_always.len() as u32 - 1)
            }
            Until::NoCompetition(resource) => ParkState::Alone { resource: resource.0 },
            Until::ShareLeaves { resource, shares, rounding } => {
                let resource = resource.0;
                let limit = accounts.resources.limit(resource);
                let account = accounts.group(group);
                let (low, high) = (*shares.start(), *shares.end());
                let most = account.admitted_limit.unwrap_or(limit).min(limit);
                let at = |share| most_competing(limit, account.units, share, *rounding);
                // A share is at least 1 and at most `most`. A bound beyond that is never reached.
                let fallen = (high < most).then(|| at((high + 1).max(2)));
                let risen = (low > 1).then(|| at(low) + 1);
                self.reserve_wait_list(resource);
                let wait_list = &mut self.wait_lists[resource as usize];
                if let Some(bound) = fallen {
                    wait_list.fallen.insert(demand, bound, group);
                }
                if let Some(bound) = risen {
                    wait_list.risen.insert(demand, bound, group);
                }
                ParkState::Between { resource, demand, fallen, risen }
            }
        };
    }

    /// Removes a group, if it is parked. O(log groups).
    pub(super) fn remove(&mut self, group: u32) {
        match core::mem::take(&mut self.states[group as usize]) {
            ParkState::Free | ParkState::Alone { .. } => {}
            ParkState::RecheckAlways(at) => {
                self.recheck_always.swap_remove(at as usize);
                if let Some(moved) = self.recheck_always.get(at as usize) {
                    self.states[*moved as usize] = ParkState::RecheckAlways(at);
                }
            }
            ParkState::Between { resource, demand, fallen, risen } => {
                let wait_list = &mut self.wait_lists[resource as usize];
                if let Some(bound) = fallen {
                    wait_list.fallen.remove(demand, bound, group);
                }
                if let Some(bound) = risen {
                    wait_list.risen.remove(demand, bound, group);
                }
            }
        }
    }

    /// Wakes every group whose denial may have ended. O(log groups) for each of them, plus O(1) for each
    /// changed resource and each demand with parked groups.
    pub(super) fn wake(&mut self, accounts: &mut Accounts, mut unpark: impl FnMut(u32)) {
        let mut woken = core::mem::take(&mut self.woken);
        let mut touched = core::mem::take(&mut self.touched);
        accounts.take_touched(&mut touched);
        for resource in &touched {
            let pressing = accounts.pressing(*resource);
            if let Some(only) = pressing.only() {
                woken.extend(self.waits_at(only, *resource).then_some(only));
            } else if pressing.count > 1
                && let Some(wait_list) = self.wait_lists.get(*resource as usize)
            {
                wait_list.find(accounts, pressing.weight, &mut woken);
            }
        }
        if core::mem::take(&mut self.has_changed) {
            woken.extend_from_slice(&self.recheck_always);
        }
        for group in woken.drain(..) {
            self.remove(group);
            unpark(group);
        }
        self.woken = woken;
        self.touched = touched;
    }

    fn waits_at(&self, group: u32, at: u32) -> bool {
        match self.states[group as usize] {
            ParkState::Alone { resource } | ParkState::Between { resource, .. } => resource == at,
            ParkState::Free | ParkState::RecheckAlways(_) => false,
        }
    }

    fn reserve_wait_list(&mut self, resource: u32) {
        if self.wait_lists.len() <= resource as usize {
            self.wait_lists.resize_with(resource as usize + 1, WaitList::default);
        }
    }
}

impl WaitList {
    /// Adds to `woken` the groups whose bound `competing` has reached. Only groups whose demand is available
    /// are included.
    fn find(&self, accounts: &Accounts, competing: u128, woken: &mut Vec<u32>) {
        for demand in self.fallen.demands().filter(|demand| accounts.is_available(*demand)) {
            woken.extend(self.fallen.groups(demand, competing, u128::MAX));
        }
        for demand in self.risen.demands().filter(|demand| accounts.is_available(*demand)) {
            woken.extend(self.risen.groups(demand, 0, competing));
        }
    }
}

/// The bounds of the parked groups, each as demand, competing weight and group.
#[derive(Clone, Debug, Default)]
struct Bounds(BTreeSet<(u32, u128, u32)>);

impl Bounds {
    fn insert(&mut self, demand: u32, competing: u128, group: u32) {
        self.0.insert((demand, competing, group));
    }

    fn remove(&mut self, demand: u32, competing: u128, group: u32) {
        self.0.remove(&(demand, competing, group));
    }

    /// Returns the demands that have bounds, each once.
    fn demands(&self) -> impl Iterator<Item = u32> {
        let from = |demand| self.0.range((demand, 0, 0)..).next().map(|(demand, ..)| *demand);
        core::iter::successors(from(0), move |demand| from(demand.checked_add(1)?))
    }

    /// Returns the groups of one demand whose bound is from `low` to `high`.
    fn groups(&self, demand: u32, low: u128, high: u128) -> impl Iterator<Item = u32> {
        self.0.range((demand, low, 0)..=(demand, high, u32::MAX)).map(|(.., group)| *group)
    }
}
