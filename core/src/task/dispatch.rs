//! The dispatch transaction: select a task, lease its demand, remove it from the queue.
//!
//! The queue orders the groups and offers their first tasks. Two mechanisms keep a cycle cheap when many
//! groups wait:
//!
//! - The tasks of one demand are a *class* of the queue. When a task is short of a resource, its whole class
//!   is blocked, in the *blocked set* of that resource and amount. A release unblocks the sets whose amounts
//!   are available again.
//! - A group that the policy denies is *parked* until the change that the policy names.

use alloc::vec::Vec;

use super::accounts::Accounts;
use super::admission::{GroupKey, TaskDenialReason, TaskGroup, TaskGroupId, TaskLease};
use super::advisory::{Advice, Adviser, AdvisorySkip};
use super::denials::Denials;
use super::parking::Parking;
use super::policy::strict_fair::StrictFair;
use super::policy::{PolicyGrant, PolicyView, TaskPolicy};
use super::resources::{DemandError, DemandId, Resources, TaskConfig, TaskResourceId};
use crate::error::{ConfigError, require};
use crate::fair_queue::{
    BlockedSetId, Candidate, ClassId, Eligibility, FairQueue, MAX_WEIGHT, MIN_WEIGHT, QueueGroupId, Selection,
};
use crate::lease::{Ledger, ReleaseDiagnostics, ReleaseResult};
use crate::map::IndexSet;
use crate::request::RequestPressure;

/// A task that may start now.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Dispatched {
    /// The id of the task.
    pub task: u64,
    /// The lease that the task holds while it runs.
    pub lease: TaskLease,
}

/// What the ledger stores for a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseRecord {
    pub(super) group: TaskGroupId,
    pub(super) demand: u32,
    /// Whether its worker has yielded: its resources are released for some time.
    pub(super) has_yielded: bool,
}

/// The set of the classes that wait until `amount` of a resource is available.
#[derive(Clone, Copy, Debug)]
struct ResourceBlockedSet {
    amount: u32,
    set: BlockedSetId,
}

/// Dispatches ready tasks in fair order, within the limits of resources and of a policy. It does no I/O and
/// reads no clock.
///
/// A full cycle (dispatch, release, enqueue) costs O(log groups) amortised, however many groups wait for the
/// same resource, and however many the policy denies. In addition, it costs O(1) for each distinct demand
/// that becomes available or unavailable in the cycle. A group that the policy denied is evaluated again only
/// when the figure that decided has changed far enough. A custom policy that cannot state such a condition
/// ([`Until::AnyChange`](super::Until::AnyChange)) costs one evaluation for each such group and change.
#[derive(Debug)]
pub struct Dispatcher<P = StrictFair> {
    pub(super) policy: P,
    pub(super) queue: FairQueue,
    pub(super) accounts: Accounts,
    pub(super) parking: Parking,
    /// The kind and identity of each group. The index is the id of the group.
    known: IndexSet<GroupKey>,
    /// By demand: its class in the queue.
    pub(super) classes: Vec<ClassId>,
    /// By resource: the blocked sets of the classes that wait for it, by ascending amount.
    blocked_sets: Vec<Vec<ResourceBlockedSet>>,
    pub(super) ledger: Ledger<LeaseRecord>,
    /// The number of leases whose workers have yielded.
    pub(super) yielded: usize,
    adviser: Adviser,
    pub(super) denials: Denials,
    /// How often a task was started although the policy denied it.
    overrides: u64,
    /// [`TaskConfig::compatibility`].
    compatibility: bool,
    pub(super) is_shut: bool,
}

/// Registration.
impl Dispatcher<StrictFair> {
    /// Creates an empty dispatcher with the policy [`StrictFair`]. Fails if a limit is 0 or a name is given
    /// twice.
    pub fn new(config: TaskConfig) -> Result<Self, ConfigError> {
        Self::with_policy(config, StrictFair)
    }
}

/// Registration.
impl<P: TaskPolicy> Dispatcher<P> {
    /// Creates an empty dispatcher with a policy. Fails if a limit is 0 or a name is given twice.
    #[expect(clippy::needless_pass_by_value, reason = "the dispatcher takes the configuration")]
    pub fn with_policy(config: TaskConfig, policy: P) -> Result<Self, ConfigError> {
        Ok(Self {
            policy,
            queue: FairQueue::new(),
            accounts: Accounts::new(Resources::new(&config)?),
            parking: Parking::default(),
            known: IndexSet::default(),
            classes: Vec::new(),
            blocked_sets: Vec::new(),
            ledger: Ledger::new(u32::MAX),
            yielded: 0,
            adviser: Adviser::default(),
            denials: Denials::default(),
            overrides: 0,
            compatibility: config.compatibility,
            is_shut: false,
        })
    }

    /// Returns the policy.
    pub(crate) fn policy(&self) -> &P {
        &self.policy
    }

    /// Registers a group, or gives a known group the weight and limit of `spec`. O(log groups).
    ///
    /// # Errors
    /// Fails if the limit is 0, the weight is out of range, or the policy rejects its settings for the
    /// group.
    pub fn group(&mut self, spec: &TaskGroup) -> Result<TaskGroupId, ConfigError> {
        require(spec.admitted_limit != Some(0), "admitted_limit", 0, "at least 1")?;
        let in_range = (MIN_WEIGHT..=MAX_WEIGHT).contains(&spec.weight);
        require(in_range, "weight", spec.weight, "a number from 2^-20 to 2^20")?;
        let next = QueueGroupId(self.known.len() as u32);
        let key = (spec.kind, spec.identity.clone());
        let id = self.known.get_index_of(&key).map_or(next, |known| QueueGroupId(known as u32));
        let resources = &self.accounts.resources;
        self.policy.group_registered(TaskGroupId(id), spec, &|name| resources.find(name))?;
        if id == next {
            self.queue.add_group(spec.weight)?;
            self.accounts.add_group(spec.weight, spec.admitted_limit);
            self.parking.add_group();
            self.known.insert(key);
        } else {
            self.queue.set_weight(id, spec.weight)?;
            self.accounts.change_group(id.0, spec.weight, spec.admitted_limit);
            self.offer_again(id);
        }
        self.parking.mark_changed();
        Ok(TaskGroupId(id))
    }

    /// Returns the id of a demand. Equal demands have equal ids. Amounts of equal names are summed, and one
    /// unit of `submission` is added if it is absent.
    ///
    /// # Errors
    /// Fails if a resource does not exist or an amount is above its limit, because such a task would wait for
    /// ever. Also fails if an amount is zero.
    pub fn demand<S: AsRef<str>>(&mut self, amounts: &[(S, u32)]) -> Result<DemandId, DemandError> {
        let id = self.accounts.resources.demand(amounts)?;
        self.register_demands(id);
        Ok(id)
    }

    /// Returns the id of a demand that may be impossible to meet. Its tasks are queued, and their denial is
    /// [`NoCapacity`](super::TaskDenialReason::NoCapacity). An unknown resource is added with a limit of 0.
    /// This is for a host that checks its demands elsewhere.
    ///
    /// # Errors
    /// Fails if an amount is zero.
    pub fn demand_unchecked<S: AsRef<str>>(&mut self, amounts: &[(S, u32)]) -> Result<DemandId, DemandError> {
        let id = self.accounts.resources.demand_unchecked(amounts)?;
        self.register_demands(id);
        Ok(id)
    }

    fn register_demands(&mut self, id: DemandId) {
        self.accounts.register_demands();
        self.blocked_sets.resize_with(self.accounts.resources.count() as usize, Vec::new);
        while self.classes.len() < self.accounts.resources.demands() as usize {
            self.classes.push(self.queue.add_class());
        }
        for (resource, amount) in self.accounts.resources.amounts(id.0) {
            let blocked_sets = &mut self.blocked_sets[*resource as usize];
            if let Err(at) = blocked_sets.binary_search_by_key(amount, |set| set.amount) {
                blocked_sets.insert(at, ResourceBlockedSet { amount: *amount, set: self.queue.add_blocked_set() });
            }
        }
    }
}

/// Changes while tasks run.
impl<P: TaskPolicy> Dispatcher<P> {
    /// Replaces the policy. The debt of each group stays, but at most as much as the group holds. O(groups).
    ///
    /// # Errors
    /// Fails with the error of the first group that the policy rejects. Nothing is changed then.
    pub fn set_policy(&mut self, mut policy: P) -> Result<(), ConfigError> {
        let resources = &self.accounts.resources;
        for (key, group) in self.known.iter().zip((0..).map(QueueGroupId)) {
            policy.group_registered(TaskGroupId(group), &self.spec(key, group), &|name| resources.find(name))?;
        }
        self.policy = policy;
        for group in self.queue.groups() {
            self.accounts.cap_debt_at_held(group.0);
            self.offer_again(group);
        }
        self.parking.mark_changed();
        Ok(())
    }

    /// Changes the weight of a group from its next turn on. Changes nothing if this dispatcher has no such
    /// group. O(log groups).
    ///
    /// # Errors
    /// Fails if the weight is not from 2^-20 to 2^20, or if the policy rejects the group.
    pub fn set_weight(&mut self, group: TaskGroupId, weight: f64) -> Result<(), ConfigError> {
        let Some(key) = self.known.get_index(group.0.index()) else { return Ok(()) };
        let spec = TaskGroup { weight, ..self.spec(key, group.0) };
        self.group(&spec).map(drop)
    }

    /// Returns a group as it is registered.
    fn spec(&self, (kind, identity): &GroupKey, group: QueueGroupId) -> TaskGroup {
        let account = self.accounts.group(group.0);
        let (weight, admitted_limit) = (account.weight, account.admitted_limit);
        TaskGroup { kind: *kind, identity: identity.clone(), weight, admitted_limit }
    }
}

/// Commands.
impl<P: TaskPolicy> Dispatcher<P> {
    /// Queues a ready task. Returns `false` if a task with this id is already queued.
    pub fn enqueue(&mut self, task: u64, group: TaskGroupId, demand: DemandId) -> bool {
        let is_accepted = self.queue.enqueue(task, group.0, self.classes[demand.0 as usize], 1.0);
        if is_accepted {
            if self.queue.group_len(group.0) == 1 {
                self.update_head(group.0);
            }
            self.parking.mark_changed();
        }
        is_accepted
    }

    /// Removes a queued task. Returns whether it was queued.
    pub fn discard(&mut self, task: u64) -> bool {
        let Some(group) = self.queue.group_of(task) else { return false };
        let head = self.queue.first(group);
        self.queue.discard(task);
        if head.is_some_and(|head| head.item == task) {
            self.update_head(group);
        }
        self.parking.mark_changed();
        true
    }

    /// Removes the queued tasks for which `is_removed` returns true, and returns their number. O(queued +
    /// groups).
    pub fn discard_where(&mut self, is_removed: impl FnMut(u64) -> bool) -> usize {
        let found = self.queue.discard_where(is_removed);
        if found > 0 {
            for group in self.queue.groups() {
                // A new first task must be evaluated. Evaluating the other groups again changes nothing.
                self.offer_again(group);
                self.update_head(group);
            }
            self.parking.mark_changed();
        }
        found
    }

    /// Starts the next task that may start: selects it, leases its whole demand, and removes it from the
    /// queue.
    ///
    /// While no lease holds resources, the first task in order whose demand is available starts even if the
    /// policy denies it, unless [`TaskConfig::compatibility`] is set.
    pub fn dispatch(&mut self) -> Option<Dispatched> {
        if self.is_shut {
            return None;
        }
        let Self { queue, accounts, parking, .. } = self;
        parking.wake(accounts, |group| queue.unpark(QueueGroupId(group)));
        let advised = if self.adviser.is_needed() { self.select_advised() } else { None };
        match advised.or_else(|| self.select(|_, _| true)) {
            Some((selection, allowed)) => self.start(&selection, &allowed),
            None => self.override_policy(),
        }
    }

    /// Ends a worker and releases its resources. A lease that is not live changes nothing, and the result
    /// states why.
    #[expect(clippy::needless_pass_by_value, reason = "a release consumes the lease")]
    pub fn release(&mut self, lease: TaskLease) -> ReleaseResult {
        match self.ledger.release(lease.id) {
            Ok(held) if held.has_yielded => self.yielded -= 1,
            Ok(held) => self.take_back(&held),
            Err(result) => return result,
        }
        ReleaseResult::Released
    }

    /// Sets why a call of the request resource that `resource` stands for would have to wait. `None` means
    /// that it could start at once. A resource for which this was never called stands for no request
    /// resource.
    ///
    /// Returns whether this changed anything. Unknown names change nothing. O(resources).
    pub fn set_request_pressure(&mut self, resource: &str, pressure: Option<RequestPressure>) -> bool {
        let known = self.accounts.resources.find(resource);
        known.is_some_and(|resource| self.adviser.record(resource.0, pressure))
    }

    /// Stops dispatching. Active leases stay valid.
    pub fn shutdown(&mut self) {
        self.is_shut = true;
    }
}

/// The parts of a transaction.
impl<P: TaskPolicy> Dispatcher<P> {
    /// Selects the first task in order whose demand is available, which the policy allows, and for which
    /// `is_wanted` returns true. A task that fails one of these checks excludes later tasks that would fail
    /// it for the same reason.
    fn select(
        &mut self,
        mut is_wanted: impl FnMut(&Candidate, &[(u32, u32)]) -> bool,
    ) -> Option<(Selection, PolicyGrant)> {
        let Self { policy, queue, accounts, parking, blocked_sets, denials, .. } = self;
        let mut allowed = PolicyGrant::default();
        let selection = queue.select(|candidate| {
            let (group, demand) = (candidate.group.0, candidate.class.0);
            if let Some((resource, amount)) = accounts.resources.shortage(demand) {
                denials.record(candidate, TaskDenialReason::NoCapacity, Some(TaskResourceId(resource)));
                return blocked(&blocked_sets[resource as usize], amount);
            }
            match policy.evaluate(&PolicyView::new(accounts, group, demand)) {
                Ok(decision) if is_wanted(candidate, accounts.resources.amounts(demand)) => {
                    allowed = decision;
                    Eligibility::Accept
                }
                Ok(_) => Eligibility::SkipClass,
                Err(denial) => {
                    denials.record(candidate, denial.reason, denial.resource);
                    parking.park(accounts, group, demand, &denial.until);
                    Eligibility::GroupBlocked
                }
            }
        })?;
        Some((selection, allowed))
    }

    /// Selects the first task in order, or, if that one would have to wait for its call, the first task that
    /// could call at once. In the second case the first task is counted as passed over. Returns `None` if the
    /// first task would wait and no other task could call at once.
    fn select_advised(&mut self) -> Option<(Selection, PolicyGrant)> {
        let mut adviser = core::mem::take(&mut self.adviser);
        let mut passed_over: Option<(u64, RequestPressure)> = None;
        let chosen = self.select(|candidate, amounts| match (adviser.advise(amounts), passed_over) {
            (Advice::Open, _) | (Advice::Indifferent, None) => true,
            (Advice::Wait(pressure), None) => {
                passed_over = Some((candidate.item, pressure));
                false
            }
            // Only a task that could call at once justifies passing over another one.
            (Advice::Wait(_) | Advice::Indifferent, Some(_)) => false,
        });
        if let (Some((selection, _)), Some((skipped, pressure))) = (&chosen, passed_over) {
            adviser.skips += 1;
            adviser.last_skip = Some(AdvisorySkip { skipped, pressure, preferred: selection.candidate.item });
        }
        self.adviser = adviser;
        chosen
    }

    /// Starts the first task that the policy denied, if no lease holds resources. It borrows nothing.
    ///
    /// The demand of every parked group is available. It was available when the group was parked, and while
    /// no lease holds resources, everything is.
    fn override_policy(&mut self) -> Option<Dispatched> {
        if self.compatibility || self.ledger.active() > self.yielded {
            return None;
        }
        let selection = self.queue.select_parked()?;
        self.overrides += 1;
        self.start(&selection, &PolicyGrant::unlimited())
    }

    /// Makes the resources of a lease available again.
    pub(super) fn take_back(&mut self, held: &LeaseRecord) {
        let LeaseRecord { group, demand, .. } = *held;
        self.accounts.give_back(group.0.0, demand);
        for at in 0..self.accounts.resources.amounts(demand).len() {
            let (resource, amount) = self.accounts.resources.amounts(demand)[at];
            let repaid = self.policy.repaid(TaskResourceId(resource), amount);
            self.accounts.repay(group.0.0, resource, repaid);
            let available = self.accounts.resources.available(resource);
            for set in self.blocked_sets[resource as usize].iter().take_while(|set| set.amount <= available) {
                self.queue.unblock(set.set);
            }
        }
        self.offer_again(group.0);
        self.parking.mark_changed();
    }

    fn start(&mut self, selection: &Selection, allowed: &PolicyGrant) -> Option<Dispatched> {
        let Candidate { item, group, class, .. } = selection.candidate;
        self.queue.commit(selection).ok()?;
        self.accounts.take(group.0, class.0);
        for (resource, amount) in &allowed.debts {
            self.accounts.borrow(group.0, resource.0, *amount);
        }
        self.update_head(group);
        self.parking.mark_changed();
        let id = self
            .ledger
            .grant(item_of(item), LeaseRecord { group: TaskGroupId(group), demand: class.0, has_yielded: false });
        Some(Dispatched { task: item, lease: TaskLease { id } })
    }

    /// Updates the accounts after a group's first task has changed.
    fn update_head(&mut self, group: QueueGroupId) {
        // The queue offers a new first task by itself, so the group need not be unparked.
        self.parking.remove(group.0);
        let head = self.queue.first(group).map(|head| head.class.0);
        self.accounts.set_head(group.0, head);
    }

    /// Lets the queue offer the group's first task again, so that the policy evaluates it.
    fn offer_again(&mut self, group: QueueGroupId) {
        self.parking.remove(group.0);
        self.queue.unpark(group);
    }
}

/// Queries.
impl<P: TaskPolicy> Dispatcher<P> {
    /// Returns the number of queued tasks.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether a task is queued.
    #[must_use]
    pub fn is_queued(&self, task: u64) -> bool {
        self.queue.contains(task)
    }

    /// Returns the number of queued tasks of a group.
    #[must_use]
    pub fn queued_in(&self, group: TaskGroupId) -> usize {
        self.queue.group_len(group.0)
    }

    /// Returns the number of leases of a group, without those of yielded workers.
    #[must_use]
    pub fn running_in(&self, group: TaskGroupId) -> u32 {
        self.accounts.group(group.0.0).running
    }

    /// Returns a group's weight, and the number of leases it may hold while other groups compete.
    #[must_use]
    pub fn settings_of(&self, group: TaskGroupId) -> (f64, Option<u32>) {
        let account = self.accounts.group(group.0.0);
        (account.weight, account.admitted_limit)
    }

    /// Returns the debts of a group: resources and amounts above 0.
    pub fn debts_of(&self, group: TaskGroupId) -> impl Iterator<Item = (&str, u32)> {
        let account = self.accounts.group(group.0.0);
        let debts = account.debts();
        debts.map(|(resource, debt)| (self.accounts.resources.name(resource), debt))
    }

    /// Returns the number of active leases, including those of yielded workers.
    #[must_use]
    pub fn active_leases(&self) -> usize {
        self.ledger.active()
    }

    /// Returns how often a task was started although the policy denied it, because nothing was running.
    /// Otherwise a policy could block every group for ever: two groups may each be denied because the other
    /// one could start.
    #[must_use]
    pub fn liveness_overrides(&self) -> u64 {
        self.overrides
    }

    /// Returns how often a task was passed over because its call would have had to wait.
    #[must_use]
    pub fn advisory_skips(&self) -> u64 {
        self.adviser.skips
    }

    /// Returns the latest skip that [`Dispatcher::advisory_skips`] counts.
    #[must_use]
    pub fn last_advisory_skip(&self) -> Option<AdvisorySkip> {
        self.adviser.last_skip
    }

    /// Returns every resource: name, leased amount, limit.
    pub fn usage(&self) -> impl Iterator<Item = (&str, u32, u32)> {
        self.accounts.resources.usage()
    }

    /// Returns how much of a resource the queued tasks need. `resource` is its index in
    /// [`Dispatcher::usage`]. O(demands).
    pub(crate) fn queued_demand(&self, resource: usize) -> u64 {
        let wanted = |demand: usize| {
            let amounts = self.accounts.resources.amounts(demand as u32);
            let amount = amounts.iter().find(|(known, _)| *known as usize == resource).map_or(0, |(_, amount)| *amount);
            u64::from(amount) * self.queue.class_len(self.classes[demand])
        };
        (0..self.classes.len()).map(wanted).sum()
    }

    /// Returns the counts of irregular releases.
    #[must_use]
    pub fn release_diagnostics(&self) -> ReleaseDiagnostics {
        self.ledger.diagnostics()
    }
}

/// Returns the eligibility of a task that needs `amount` of a resource when less is available.
fn blocked(blocked_sets: &[ResourceBlockedSet], amount: u32) -> Eligibility {
    // Every amount of a known demand has its set. A missing set would only cost a repeated evaluation.
    match blocked_sets.binary_search_by_key(&amount, |set| set.amount) {
        Ok(at) => Eligibility::ClassBlocked(blocked_sets[at].set),
        Err(_) => Eligibility::Skip,
    }
}

/// Returns the number of a task that the ledger stores, so that a forged lease of another task is recognised.
fn item_of(task: u64) -> u32 {
    (task ^ (task >> 32)) as u32
}
