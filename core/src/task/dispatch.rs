//! The dispatch transaction: select, acquire, commit.

use alloc::vec::Vec;

use super::accounts::Accounts;
use super::admission::{DenialReason, GroupKey, TaskGroup, TaskGroupId, TaskLease};
use super::advisory::{Advice, Adviser, AdvisorySkip};
use super::denials::Denials;
use super::parking::Parking;
use super::policy::strict_fair::StrictFair;
use super::policy::{Allowed, PolicyView, TaskPolicy};
use super::resources::{DemandError, DemandId, ResourceId, Resources, TaskConfig};
use crate::error::{ConfigError, require};
use crate::fair_queue::{
    BlockedSetId, Candidate, ClassId, Eligibility, FairQueue, GroupId, MAX_WEIGHT, MIN_WEIGHT, Selection,
};
use crate::lease::{Ledger, ReleaseAnswer, ReleaseDiagnostics};
use crate::map::IndexSet;
use crate::request::RequestPressure;

/// A task that may start now.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Dispatched {
    /// The task's id.
    pub task: u64,
    /// What it holds while it runs.
    pub lease: TaskLease,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseRecord {
    pub(super) group: TaskGroupId,
    pub(super) demand: u32,
    /// It has given its resources back for the time being.
    pub(super) is_suspended: bool,
}

/// Classes that wait for at least `amount` of a resource.
#[derive(Clone, Copy, Debug)]
struct ResourceBlockedSet {
    amount: u32,
    set: BlockedSetId,
}

/// Ready tasks in fair order, resources, and the policy between them. Sans-IO.
///
/// Cost of a full cycle (dispatch, release, enqueue): O(log groups) amortised, however many groups wait for
/// the resource that is cycled, and however many the policy holds back. Added to it, for the resources of the
/// task: the *distinct demands* whose availability the cycle changes. A group that the policy refused is
/// asked again only when the figure that refused it has changed far enough; a policy of one's own that cannot
/// say when that is ([`Until::AnyChange`](super::Until::AnyChange)) costs one evaluation for each such group
/// and change.
#[derive(Debug)]
pub struct Dispatcher<P = StrictFair> {
    pub(super) policy: P,
    pub(super) queue: FairQueue,
    pub(super) accounts: Accounts,
    pub(super) parking: Parking,
    /// The groups by kind and identity, in the order of their numbers.
    known: IndexSet<GroupKey>,
    /// The queue's class of each demand.
    pub(super) classes: Vec<ClassId>,
    /// By resource: the blocked sets of what waits for it, by ascending amount.
    blocked_sets: Vec<Vec<ResourceBlockedSet>>,
    pub(super) ledger: Ledger<LeaseRecord>,
    /// Leases that hold nothing for the time being.
    pub(super) suspended: usize,
    adviser: Adviser,
    pub(super) denials: Denials,
    overrides: u64,
    compatibility: bool,
    pub(super) is_shut: bool,
}

/// Registration.
impl Dispatcher<StrictFair> {
    /// An empty dispatcher with the strict-fair policy.
    pub fn new(config: TaskConfig) -> Result<Self, ConfigError> {
        Self::with_policy(config, StrictFair)
    }
}

/// Registration.
impl<P: TaskPolicy> Dispatcher<P> {
    /// An empty dispatcher.
    #[expect(clippy::needless_pass_by_value, reason = "a configuration is handed over, not lent")]
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
            suspended: 0,
            adviser: Adviser::default(),
            denials: Denials::default(),
            overrides: 0,
            compatibility: config.compatibility,
            is_shut: false,
        })
    }

    /// The policy, to read.
    pub(crate) fn policy(&self) -> &P {
        &self.policy
    }

    /// The group of this kind and identity; a known one takes the weight and limit given here. O(1).
    pub fn group(&mut self, spec: &TaskGroup) -> Result<TaskGroupId, ConfigError> {
        require(spec.admitted_limit != Some(0), "admitted_limit", 0, "at least 1")?;
        let in_range = (MIN_WEIGHT..=MAX_WEIGHT).contains(&spec.weight);
        require(in_range, "weight", spec.weight, "a number from 2^-20 to 2^20")?;
        let next = GroupId(self.known.len() as u32);
        let key = (spec.kind, spec.identity.clone());
        let id = self.known.get_index_of(&key).map_or(next, |known| GroupId(known as u32));
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

    /// Interns a vector of resource amounts. One of `submission` is added where it is absent.
    ///
    /// # Errors
    /// A resource that does not exist, or an amount that is zero or above the limit: such a task would wait
    /// for ever.
    pub fn demand<S: AsRef<str>>(&mut self, amounts: &[(S, u32)]) -> Result<DemandId, DemandError> {
        let id = self.accounts.resources.demand(amounts)?;
        self.register_demands(id);
        Ok(id)
    }

    /// The same, but accepts what can never be leased: its tasks queue, and the answer for them is
    /// [`NoCapacity`](super::DenialReason::NoCapacity). For a host that checks its demands elsewhere.
    ///
    /// # Errors
    /// An amount of zero.
    pub fn demand_unchecked<S: AsRef<str>>(&mut self, amounts: &[(S, u32)]) -> Result<DemandId, DemandError> {
        let id = self.accounts.resources.unmeetable(amounts)?;
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

/// What may be changed while tasks run.
impl<P: TaskPolicy> Dispatcher<P> {
    /// Lets another policy decide from now on. What a group owes stays, as far as it holds as much.
    /// O(groups).
    ///
    /// # Errors
    /// The first group's that the policy refuses; nothing is changed then.
    pub fn set_policy(&mut self, mut policy: P) -> Result<(), ConfigError> {
        let resources = &self.accounts.resources;
        for (key, group) in self.known.iter().zip((0..).map(GroupId)) {
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

    /// Gives a group another weight from its next turn on, 2^-20 to 2^20. O(groups).
    pub fn set_weight(&mut self, group: TaskGroupId, weight: f64) -> Result<(), ConfigError> {
        let Some(key) = self.known.get_index(group.0.index()) else { return Ok(()) };
        let spec = TaskGroup { weight, ..self.spec(key, group.0) };
        self.group(&spec).map(drop)
    }

    /// A group as it is registered.
    fn spec(&self, (kind, identity): &GroupKey, group: GroupId) -> TaskGroup {
        let account = self.accounts.group(group.0);
        let (weight, admitted_limit) = (account.weight, account.admitted_limit);
        TaskGroup { kind: *kind, identity: identity.clone(), weight, admitted_limit }
    }
}

/// Commands.
impl<P: TaskPolicy> Dispatcher<P> {
    /// Queues a ready task, unless one with this id is queued; answers whether it was accepted.
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

    /// Removes a queued task.
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

    /// Removes the queued tasks that `unwanted` names; answers how many. O(queued + groups).
    pub fn discard_where(&mut self, unwanted: impl FnMut(u64) -> bool) -> usize {
        let found = self.queue.discard_where(unwanted);
        if found > 0 {
            for group in self.queue.groups() {
                // A head that is another one now is offered anew; asking the others once more does no harm.
                self.offer_again(group);
                self.update_head(group);
            }
            self.parking.mark_changed();
        }
        found
    }

    /// Starts the next task that may start: selects it, leases its whole demand or nothing, and takes it off
    /// the queue.
    ///
    /// While no lease is out, the first head in order that fits the limits starts whatever the policy says.
    pub fn dispatch(&mut self) -> Option<Dispatched> {
        if self.is_shut {
            return None;
        }
        let Self { queue, accounts, parking, .. } = self;
        parking.wake(accounts, |group| queue.unpark(GroupId(group)));
        let advised = if self.adviser.is_needed() { self.select_advised() } else { None };
        match advised.or_else(|| self.select(|_, _| true)) {
            Some((selection, allowed)) => self.start(&selection, &allowed),
            None => self.override_policy(),
        }
    }

    /// Ends a worker. Never panics; only [`ReleaseAnswer::Released`] changed anything.
    #[expect(clippy::needless_pass_by_value, reason = "a lease is given back, not lent")]
    pub fn release(&mut self, lease: TaskLease) -> ReleaseAnswer {
        match self.ledger.release(lease.id) {
            Ok(held) if held.is_suspended => self.suspended -= 1,
            Ok(held) => self.take_back(&held),
            Err(answer) => return answer,
        }
        ReleaseAnswer::Released
    }

    /// Whether a call of the request resource that `resource` stands for would have to wait, and why. A
    /// resource that was never told of stands for none. Answers whether this is news; unknown names are none.
    /// O(resources).
    pub fn set_request_pressure(&mut self, resource: &str, pressure: Option<RequestPressure>) -> bool {
        let known = self.accounts.resources.find(resource);
        known.is_some_and(|resource| self.adviser.record(resource.0, pressure))
    }

    /// Starts nothing from now on. Leases that are out stay valid.
    pub fn shutdown(&mut self) {
        self.is_shut = true;
    }
}

/// The parts of a transaction.
impl<P: TaskPolicy> Dispatcher<P> {
    /// The first head in turn that is available, that the policy allows and that is wanted. Where one is not,
    /// nothing that asks for the same is.
    fn select(&mut self, mut is_wanted: impl FnMut(&Candidate, &[(u32, u32)]) -> bool) -> Option<(Selection, Allowed)> {
        let Self { policy, queue, accounts, parking, blocked_sets, denials, .. } = self;
        let mut allowed = Allowed::default();
        let selection = queue.select(|candidate| {
            let (group, demand) = (candidate.group.0, candidate.class.0);
            if let Some((resource, amount)) = accounts.resources.shortage(demand) {
                denials.record(candidate, DenialReason::NoCapacity, Some(ResourceId(resource)));
                return blocked(&blocked_sets[resource as usize], amount);
            }
            match policy.evaluate(&PolicyView::new(accounts, group, demand)) {
                Ok(terms) if is_wanted(candidate, accounts.resources.amounts(demand)) => {
                    allowed = terms;
                    Eligibility::Accept
                }
                Ok(_) => Eligibility::SkipClass,
                Err(refusal) => {
                    denials.record(candidate, refusal.reason, refusal.resource);
                    parking.park(accounts, group, demand, &refusal.until);
                    Eligibility::GroupBlocked
                }
            }
        })?;
        Some((selection, allowed))
    }

    /// The first head in turn that could call at once, where the first of all would have to wait; counts it
    /// as passed over. `None` where nobody who could call at once is there to pass it over for.
    fn select_advised(&mut self) -> Option<(Selection, Allowed)> {
        let mut adviser = core::mem::take(&mut self.adviser);
        let mut passed_over: Option<(u64, RequestPressure)> = None;
        let chosen = self.select(|candidate, amounts| match (adviser.advise(amounts), passed_over) {
            (Advice::Open, _) | (Advice::Indifferent, None) => true,
            (Advice::Wait(pressure), None) => {
                passed_over = Some((candidate.item, pressure));
                false
            }
            // Only somebody who could call at once is reason enough to pass anybody over.
            (Advice::Wait(_) | Advice::Indifferent, Some(_)) => false,
        });
        if let (Some((selection, _)), Some((skipped, pressure))) = (&chosen, passed_over) {
            adviser.skips += 1;
            adviser.last_skip = Some(AdvisorySkip { skipped, pressure, preferred: selection.candidate.item });
        }
        self.adviser = adviser;
        chosen
    }

    /// What the policy refused and would run alone. It borrows nothing by it.
    ///
    /// Every parked group fits: it was available when it was parked, and while no lease is out no less is
    /// available.
    fn override_policy(&mut self) -> Option<Dispatched> {
        if self.compatibility || self.ledger.active() > self.suspended {
            return None;
        }
        let selection = self.queue.select_parked()?;
        self.overrides += 1;
        self.start(&selection, &Allowed::unlimited())
    }

    /// Makes what a lease held available again.
    pub(super) fn take_back(&mut self, held: &LeaseRecord) {
        let LeaseRecord { group, demand, .. } = *held;
        self.accounts.give_back(group.0.0, demand);
        for at in 0..self.accounts.resources.amounts(demand).len() {
            let (resource, amount) = self.accounts.resources.amounts(demand)[at];
            let repaid = self.policy.repaid(ResourceId(resource), amount);
            self.accounts.repay(group.0.0, resource, repaid);
            let available = self.accounts.resources.available(resource);
            for set in self.blocked_sets[resource as usize].iter().take_while(|set| set.amount <= available) {
                self.queue.unblock(set.set);
            }
        }
        self.offer_again(group.0);
        self.parking.mark_changed();
    }

    fn start(&mut self, selection: &Selection, allowed: &Allowed) -> Option<Dispatched> {
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
            .grant(item_of(item), LeaseRecord { group: TaskGroupId(group), demand: class.0, is_suspended: false });
        Some(Dispatched { task: item, lease: TaskLease { id } })
    }

    /// Brings the accounts up to date with a group whose head is another one.
    fn update_head(&mut self, group: GroupId) {
        // The queue has put a new head in turn, so nothing is left to wake.
        self.parking.forget(group.0);
        let head = self.queue.first(group).map(|head| head.class.0);
        self.accounts.set_head(group.0, head);
    }

    fn offer_again(&mut self, group: GroupId) {
        self.parking.forget(group.0);
        self.queue.unpark(group);
    }
}

/// Facts.
impl<P: TaskPolicy> Dispatcher<P> {
    /// Tasks that wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Whether a task is queued.
    #[must_use]
    pub fn is_queued(&self, task: u64) -> bool {
        self.queue.contains(task)
    }

    /// Tasks of a group that wait.
    #[must_use]
    pub fn queued_in(&self, group: TaskGroupId) -> usize {
        self.queue.group_len(group.0)
    }

    /// Leases a group holds.
    #[must_use]
    pub fn running_in(&self, group: TaskGroupId) -> u32 {
        self.accounts.group(group.0.0).running
    }

    /// A group's weight, and the leases it may hold while others press.
    #[must_use]
    pub fn settings_of(&self, group: TaskGroupId) -> (f64, Option<u32>) {
        let account = self.accounts.group(group.0.0);
        (account.weight, account.admitted_limit)
    }

    /// What a group owes: resources and amounts above 0.
    pub fn debts_of(&self, group: TaskGroupId) -> impl Iterator<Item = (&str, u32)> {
        let account = self.accounts.group(group.0.0);
        let debts = account.debts();
        debts.map(|(resource, debt)| (self.accounts.resources.name(resource), debt))
    }

    /// Leases that are out.
    #[must_use]
    pub fn active_leases(&self) -> usize {
        self.ledger.active()
    }

    /// How often a task was started against the policy because nothing was running. The policies alone can
    /// come to a stand: each of two groups may be refused because the other could start.
    #[must_use]
    pub fn liveness_overrides(&self) -> u64 {
        self.overrides
    }

    /// How often a task was passed over because its call would have waited.
    #[must_use]
    pub fn advisory_skips(&self) -> u64 {
        self.adviser.skips
    }

    /// The last such skip.
    #[must_use]
    pub fn last_advisory_skip(&self) -> Option<AdvisorySkip> {
        self.adviser.last_skip
    }

    /// Every resource: name, leased, limit.
    pub fn usage(&self) -> impl Iterator<Item = (&str, u32, u32)> {
        self.accounts.resources.usage()
    }

    /// What queued tasks want of a resource, by its place in [`Dispatcher::usage`]. O(demands).
    pub(crate) fn queued_demand(&self, resource: usize) -> u64 {
        let wanted = |demand: usize| {
            let amounts = self.accounts.resources.amounts(demand as u32);
            let amount = amounts.iter().find(|(known, _)| *known as usize == resource).map_or(0, |(_, amount)| *amount);
            u64::from(amount) * self.queue.class_len(self.classes[demand])
        };
        (0..self.classes.len()).map(wanted).sum()
    }

    /// Counts of irregular releases.
    #[must_use]
    pub fn release_diagnostics(&self) -> ReleaseDiagnostics {
        self.ledger.diagnostics()
    }
}

/// The verdict on a demand that is short of `amount`.
fn blocked(blocked_sets: &[ResourceBlockedSet], amount: u32) -> Eligibility {
    // Every amount of a known demand has its set; a missing one would only cost a repeated offer.
    match blocked_sets.binary_search_by_key(&amount, |set| set.amount) {
        Ok(at) => Eligibility::ClassBlocked(blocked_sets[at].set),
        Err(_) => Eligibility::Skip,
    }
}

/// The ledger's item is a fingerprint of the task: it tells a forged lease from a live one.
fn item_of(task: u64) -> u32 {
    (task ^ (task >> 32)) as u32
}
