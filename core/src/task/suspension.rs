//! Leases that hold nothing for a while.
//!
//! A worker that waits for something outside, such as its turn at a provider, can give back what its lease
//! holds and keep the lease: it is *suspended*. To the policy that is a release (it repays what was
//! borrowed). It takes the same resources again later, all or nothing, and no policy is asked: it was
//! admitted before. Who resumes goes before who starts anew only if the caller has it so: resume first, then
//! dispatch.

use super::admission::TaskLease;
use super::dispatch::Dispatcher;
use super::policy::TaskPolicy;
use super::resources::DemandId;

impl<P: TaskPolicy> Dispatcher<P> {
    /// Gives back what a lease holds, and keeps the lease. False, and nothing changes, if it is not live or
    /// suspended already.
    pub fn suspend(&mut self, lease: &TaskLease) -> bool {
        let Some(held) = self.ledger.get_mut(lease.id).filter(|held| !held.is_suspended) else { return false };
        held.is_suspended = true;
        let held = *held;
        self.suspended += 1;
        self.take_back(&held);
        true
    }

    /// Takes again all that a suspended lease gave back. False, and nothing changes, if some of it is taken,
    /// or if the lease is not suspended.
    pub fn resume(&mut self, lease: &TaskLease) -> bool {
        let Some(held) = self.ledger.get_mut(lease.id).filter(|held| held.is_suspended) else { return false };
        if self.accounts.resources.shortage(held.demand).is_some() {
            return false;
        }
        held.is_suspended = false;
        self.suspended -= 1;
        let (group, demand) = (held.group, held.demand);
        self.accounts.take(group.0.0, demand);
        self.parking.mark_changed();
        true
    }

    /// Whether a lease holds nothing for the time being. O(1).
    #[must_use]
    pub fn is_suspended(&self, lease: &TaskLease) -> bool {
        self.suspended > 0 && self.ledger.get(lease.id).is_some_and(|held| held.is_suspended)
    }

    /// Leases that hold nothing for the time being.
    #[must_use]
    pub fn suspended_leases(&self) -> usize {
        self.suspended
    }

    /// Whether all of a demand is available. O(1).
    #[must_use]
    pub fn is_available(&self, demand: DemandId) -> bool {
        self.accounts.is_available(demand.0)
    }

    /// Whether `other` asks for some of what is not available for `demand`. O(resources of the two).
    #[must_use]
    pub fn shares_shortage(&self, demand: DemandId, other: DemandId) -> bool {
        let resources = &self.accounts.resources;
        let short = |resource, amount| resources.available(resource) < amount;
        let mut amounts = resources.amounts(demand.0).iter();
        amounts.any(|(resource, amount)| short(*resource, *amount) && resources.asks_for(other.0, *resource))
    }
}
