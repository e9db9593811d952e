//! Leases of yielded workers: they are live, but hold no resources for some time.
//!
//! A worker that waits for something outside, such as its turn at a provider, can release the resources of
//! its lease and keep the lease. The worker has then *yielded*. For the policy that is a release, so it
//! repays debt. On resume the lease takes all of its resources again or none. The policy is not evaluated
//! again, because the lease was already admitted. The dispatcher sets no order between resumed and new
//! workers: a caller that prefers resumed workers calls `resume` before `dispatch`.

use super::admission::TaskLease;
use super::dispatch::Dispatcher;
use super::policy::TaskPolicy;
use super::resources::DemandId;

impl<P: TaskPolicy> Dispatcher<P> {
    /// Releases the resources of a lease and keeps the lease. Returns `false` without a change if the lease
    /// is not live or its worker has already yielded. Costs as much as [`Dispatcher::release`].
    pub fn yield_resources(&mut self, lease: &TaskLease) -> bool {
        let Some(held) = self.ledger.get_mut(lease.id).filter(|held| !held.has_yielded) else { return false };
        held.has_yielded = true;
        let held = *held;
        self.yielded += 1;
        self.take_back(&held);
        true
    }

    /// Leases the resources of a yielded worker again. Returns `false` without a change if some of them are
    /// not available, or if the worker has not yielded. O(resources of the demand, and demands that become
    /// unavailable).
    pub fn resume(&mut self, lease: &TaskLease) -> bool {
        let Some(held) = self.ledger.get_mut(lease.id).filter(|held| held.has_yielded) else { return false };
        if self.accounts.resources.shortage(held.demand).is_some() {
            return false;
        }
        held.has_yielded = false;
        self.yielded -= 1;
        let (group, demand) = (held.group, held.demand);
        self.accounts.take(group.0.0, demand);
        self.parking.mark_changed();
        true
    }

    /// Returns whether the worker of a lease has yielded. O(1).
    #[must_use]
    pub fn has_yielded(&self, lease: &TaskLease) -> bool {
        self.yielded > 0 && self.ledger.get(lease.id).is_some_and(|held| held.has_yielded)
    }

    /// Returns the number of leases whose workers have yielded.
    #[must_use]
    pub fn yielded_leases(&self) -> usize {
        self.yielded
    }

    /// Returns whether all resources of a demand are available. O(1).
    #[must_use]
    pub fn is_available(&self, demand: DemandId) -> bool {
        self.accounts.is_available(demand.0)
    }

    /// Returns whether `other` needs a resource of which `demand` is short. O(resources of the two demands).
    #[must_use]
    pub fn shares_shortage(&self, demand: DemandId, other: DemandId) -> bool {
        let resources = &self.accounts.resources;
        let short = |resource, amount| resources.available(resource) < amount;
        let mut amounts = resources.amounts(demand.0).iter();
        amounts.any(|(resource, amount)| short(*resource, *amount) && resources.needs(other.0, *resource))
    }
}
