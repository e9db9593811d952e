//! The dispatch transaction: select, acquire, commit.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use smallvec::SmallVec;

use super::admission::{Denial, DenialReason, GroupKind, TaskGroup, TaskGroupId, TaskLease};
use super::peers::{Heads, Peers, count_heads, head_demand};
use super::policy::strict_fair::StrictFair;
use super::policy::{PolicyDenial, PolicyView, TaskPolicy, TaskResource};
use super::resources::{DemandError, DemandId, Resources, TaskConfig};
use crate::error::{ConfigError, require};
use crate::fair_queue::{Candidate, ClassId, FairQueue, LotId, Verdict};
use crate::lease::{Ledger, ReleaseAnswer, ReleaseDiagnostics};

/// A task that may start now.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Dispatched {
    /// The task's id.
    pub task: u64,
    /// What it holds while it runs.
    pub lease: TaskLease,
}

/// Why nothing more is dispatched: one entry for each denial reason among the heads of the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocked {
    /// Tasks queued.
    pub queued: usize,
    /// Heads by what keeps them, in order of first mention.
    pub heads: Vec<(Denial, u32)>,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} queued", self.queued)?;
        for (denial, heads) in &self.heads {
            write!(f, "; {heads} group(s): {denial}")?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
struct GroupState {
    admitted_limit: Option<u32>,
    weight: f64,
    running: u32,
    /// What its workers hold, by resource.
    held: SmallVec<[(u32, u32); 4]>,
}

impl GroupState {
    fn take(&mut self, amounts: &[(u32, u32)]) {
        self.running += 1;
        for (resource, amount) in amounts {
            match self.held.iter_mut().find(|(known, _)| known == resource) {
                Some((_, held)) => *held += amount,
                None => self.held.push((*resource, *amount)),
            }
        }
    }

    fn give_back(&mut self, amounts: &[(u32, u32)]) {
        self.running -= 1;
        for (resource, amount) in amounts {
            if let Some((_, held)) = self.held.iter_mut().find(|(known, _)| known == resource) {
                *held -= amount;
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Held {
    group: TaskGroupId,
    demand: u32,
}

/// Classes that wait for at least `amount` of a resource.
#[derive(Clone, Copy, Debug)]
struct ResourceLot {
    amount: u32,
    lot: LotId,
}

/// Ready tasks in fair order, resources, and the policy between them. Sans-IO.
///
/// Cost of a full cycle (dispatch, release): O(log groups), however many groups are blocked by a resource.
#[derive(Debug)]
pub struct Dispatcher<P = StrictFair> {
    policy: P,
    queue: FairQueue,
    resources: Resources,
    groups: Vec<GroupState>,
    known_groups: BTreeMap<(GroupKind, Vec<String>), TaskGroupId>,
    /// The queue's class of each demand.
    classes: Vec<ClassId>,
    /// By resource: the lots of what waits for it, by ascending amount.
    lots: Vec<Vec<ResourceLot>>,
    ledger: Ledger<Held>,
    is_shut: bool,
    liveness: bool,
    liveness_overrides: u64,
    /// Scratch: the heads of the queue while one selection runs.
    heads: Vec<Heads>,
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
        let resources = Resources::new(&config)?;
        let lots = (0..resources.count()).map(|_| Vec::new()).collect();
        Ok(Self {
            policy,
            queue: FairQueue::new(),
            resources,
            groups: Vec::new(),
            known_groups: BTreeMap::new(),
            classes: Vec::new(),
            lots,
            ledger: Ledger::new(u32::MAX),
            is_shut: false,
            liveness: config.liveness,
            liveness_overrides: 0,
            heads: Vec::new(),
        })
    }

    /// The group of this kind and identity; a known one takes the weight and limit given here.
    pub fn group(&mut self, spec: &TaskGroup) -> Result<TaskGroupId, ConfigError> {
        require(spec.admitted_limit != Some(0), "admitted_limit", 0, "at least 1")?;
        let key = (spec.kind, spec.identity.clone());
        let id = match self.known_groups.get(&key) {
            Some(known) => {
                self.queue.set_weight(known.0, spec.weight)?;
                self.groups[known.0.index()].admitted_limit = spec.admitted_limit;
                self.groups[known.0.index()].weight = spec.weight;
                self.queue.unpark_all();
                return Ok(*known);
            }
            None => TaskGroupId(self.queue.add_group(spec.weight)?),
        };
        let (admitted_limit, weight) = (spec.admitted_limit, spec.weight);
        self.groups.push(GroupState { admitted_limit, weight, running: 0, held: SmallVec::new() });
        self.known_groups.insert(key, id);
        self.policy.on_group(id, &spec.identity, &mut self.resources.usage().map(|(name, ..)| name));
        Ok(id)
    }

    /// Interns a vector of resource amounts. One of `submission` is added where it is absent.
    ///
    /// # Errors
    /// A resource that does not exist, or an amount that is zero or above the limit: such a task would wait for ever.
    pub fn demand<S: AsRef<str>>(&mut self, amounts: &[(S, u32)]) -> Result<DemandId, DemandError> {
        let id = self.resources.demand(amounts)?;
        self.make_room_for_demands(id);
        Ok(id)
    }

    /// The same for a vector that may ask for a resource that does not exist, or for more than there will ever be. Its
    /// tasks are answered [`DenialReason::NoCapacity`] and wait until they are discarded.
    ///
    /// # Errors
    /// An amount that is zero.
    pub fn demand_in_vain<S: AsRef<str>>(&mut self, amounts: &[(S, u32)]) -> Result<DemandId, DemandError> {
        let id = self.resources.any_demand(amounts)?;
        self.lots.resize_with(self.resources.count() as usize, Vec::new);
        self.make_room_for_demands(id);
        Ok(id)
    }

    fn make_room_for_demands(&mut self, id: DemandId) {
        while self.classes.len() < self.resources.demands() as usize {
            self.classes.push(self.queue.add_class());
        }
        for (resource, amount) in self.resources.amounts(id.0) {
            let lots = &mut self.lots[*resource as usize];
            if let Err(at) = lots.binary_search_by_key(amount, |lot| lot.amount) {
                lots.insert(at, ResourceLot { amount: *amount, lot: self.queue.add_lot() });
            }
        }
    }
}

/// Commands.
impl<P: TaskPolicy> Dispatcher<P> {
    /// Queues a ready task, unless one with this id is queued; answers whether it was accepted.
    pub fn enqueue(&mut self, task: u64, group: TaskGroupId, demand: DemandId) -> bool {
        let accepted = self.queue.enqueue(task, group.0, self.classes[demand.0 as usize], 1.0);
        if accepted {
            self.queue.unpark_all();
        }
        accepted
    }

    /// Removes a queued task.
    pub fn discard(&mut self, task: u64) -> bool {
        let found = self.queue.discard(task);
        if found {
            self.queue.unpark_all();
        }
        found
    }

    /// Removes the queued tasks that `unwanted` names; answers how many.
    pub fn discard_where(&mut self, unwanted: impl FnMut(u64) -> bool) -> usize {
        let found = self.queue.discard_where(unwanted);
        self.queue.unpark_all();
        found
    }

    /// Starts the next task that may start: selects it, leases its whole demand or nothing, and takes it off the queue.
    pub fn dispatch(&mut self) -> Option<Dispatched> {
        if self.is_shut {
            return None;
        }
        self.select_and_take(false).or_else(|| {
            let is_idle = self.liveness && self.ledger.active() == 0 && !self.queue.is_empty();
            let started = if is_idle { self.override_policy() } else { None };
            self.liveness_overrides += u64::from(started.is_some());
            started
        })
    }

    fn override_policy(&mut self) -> Option<Dispatched> {
        self.queue.unpark_all();
        self.select_and_take(true)
    }

    fn select_and_take(&mut self, whatever_the_policy_says: bool) -> Option<Dispatched> {
        let Self { policy, queue, resources, groups, lots, heads, .. } = self;
        count_heads(queue, resources.demands(), heads);
        let view = |candidate: &Candidate| view(heads, resources, groups, candidate);
        let selection = queue.select(|candidate| {
            if let Some(shortage) = resources.shortage(candidate.class.0) {
                return blocked_by(lots, shortage);
            }
            match policy.evaluate(&view(candidate)) {
                Err(_) if !whatever_the_policy_says => Verdict::GroupBlocked,
                _ => Verdict::Accept,
            }
        })?;
        let Candidate { item, group, class, .. } = selection.candidate;
        policy.on_acquire(&view(&selection.candidate));
        let demand = class.0;
        // Nothing came between, so the selection is not stale.
        self.queue.commit(&selection).ok()?;
        self.resources.take(demand);
        self.groups[group.index()].take(self.resources.amounts(demand));
        // Taking resources can end a peer's pressure, and with it the reason a group was refused.
        self.queue.unpark_all();
        let group = TaskGroupId(group);
        let id = self.ledger.grant(item_of(item), Held { group, demand });
        Some(Dispatched { task: item, lease: TaskLease { id } })
    }

    /// Ends a worker. Never panics; only [`ReleaseAnswer::Released`] changed anything.
    #[expect(clippy::needless_pass_by_value, reason = "a lease is given back, not lent")]
    pub fn release(&mut self, lease: TaskLease) -> ReleaseAnswer {
        let held = match self.ledger.release(lease.id) {
            Ok(held) => held,
            Err(answer) => return answer,
        };
        self.resources.give_back(held.demand);
        let amounts = self.resources.amounts(held.demand);
        self.groups[held.group.0.index()].give_back(amounts);
        let mut returned = amounts.iter().map(|(resource, amount)| (TaskResource(*resource), *amount));
        self.policy.on_release(held.group, &mut returned);
        for (resource, _) in self.resources.amounts(held.demand) {
            let available = self.resources.available(*resource);
            for lot in self.lots[*resource as usize].iter().take_while(|lot| lot.amount <= available) {
                self.queue.open_lot(lot.lot);
            }
        }
        self.queue.unpark_all();
        ReleaseAnswer::Released
    }

    /// Starts nothing from now on. Leases that are out stay valid.
    pub fn shutdown(&mut self) {
        self.is_shut = true;
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
        self.groups[group.0.index()].running
    }

    /// Leases that are out.
    #[must_use]
    pub fn active_leases(&self) -> usize {
        self.ledger.active()
    }

    /// Every resource: name, leased, limit.
    pub fn usage(&self) -> impl Iterator<Item = (&str, u32, u32)> {
        self.resources.usage()
    }

    /// What queued tasks want of a resource, by its place in [`Dispatcher::usage`]. O(demands).
    pub(crate) fn queued_demand(&self, resource: usize) -> u64 {
        let wanted = |demand: usize| {
            let amounts = self.resources.amounts(demand as u32);
            let amount = amounts.iter().find(|(known, _)| *known as usize == resource).map_or(0, |(_, amount)| *amount);
            u64::from(amount) * self.queue.class_len(self.classes[demand])
        };
        (0..self.classes.len()).map(wanted).sum()
    }

    /// How often a task was admitted against the policy, because nothing else would ever have moved.
    #[must_use]
    pub fn liveness_overrides(&self) -> u64 {
        self.liveness_overrides
    }

    /// What a group holds of each resource it ever held.
    pub fn held_by(&self, group: TaskGroupId) -> impl Iterator<Item = (&str, u32)> {
        self.groups[group.0.index()].held.iter().map(|(resource, held)| (self.resources.name(*resource), *held))
    }

    /// What a group owes, by resource; nothing that is zero.
    pub fn debts_of(&self, group: TaskGroupId) -> impl Iterator<Item = (&str, u32)> {
        let debt = move |resource| (self.resources.name(resource), self.policy.debt(group, TaskResource(resource)));
        (0..self.resources.count()).map(debt).filter(|(_, debt)| *debt > 0)
    }

    /// Counts of irregular releases.
    #[must_use]
    pub fn release_diagnostics(&self) -> ReleaseDiagnostics {
        self.ledger.diagnostics()
    }

    /// Why each group's head is not dispatched. Changes nothing. O(groups x classes).
    #[must_use]
    pub fn explain(&self) -> Blocked {
        let heads = self.count_heads();
        let mut blocked = Blocked { queued: self.queue.len(), heads: Vec::new() };
        for head in self.queue.groups().filter_map(|group| self.queue.first(group)) {
            let Err(denial) = self.judge_alone(&heads, &head) else { continue };
            match blocked.heads.iter_mut().find(|(known, _)| *known == denial) {
                Some((_, count)) => *count += 1,
                None => blocked.heads.push((denial, 1)),
            }
        }
        blocked
    }

    /// Whether a task of this group and demand could start now, or why not. Changes nothing. O(classes x resources).
    pub fn evaluate(&self, group: TaskGroupId, demand: DemandId) -> Result<(), Denial> {
        let class = self.classes[demand.0 as usize];
        let candidate = Candidate { item: 0, group: group.0, class, cost: 1.0 };
        self.judge_alone(&self.count_heads(), &candidate)
    }

    fn count_heads(&self) -> Vec<Heads> {
        let mut heads = Vec::new();
        count_heads(&self.queue, self.resources.demands(), &mut heads);
        heads
    }

    fn judge_alone(&self, heads: &[Heads], asked: &Candidate) -> Result<(), Denial> {
        let denied = |reason, resource: Option<u32>| Denial {
            reason,
            resource: resource.map(|resource| self.resources.name(resource).to_string()),
        };
        if self.is_shut {
            return Err(denied(DenialReason::Shutdown, None));
        }
        if let Some((resource, _)) = self.resources.shortage(asked.class.0) {
            return Err(denied(DenialReason::NoCapacity, Some(resource)));
        }
        let mut view = view(heads, &self.resources, &self.groups, asked);
        // The task that is asked about need not be its group's head.
        view.peers = Peers::of(heads, view.weight, head_demand(&self.queue, asked.group));
        let verdict = self.policy.evaluate(&view);
        verdict.map_err(|PolicyDenial { reason, resource }| denied(reason, resource.map(|resource| resource.0)))
    }
}

/// A head as the policy sees it.
fn view<'a>(
    heads: &'a [Heads],
    resources: &'a Resources,
    groups: &'a [GroupState],
    candidate: &Candidate,
) -> PolicyView<'a> {
    let group = &groups[candidate.group.index()];
    PolicyView {
        group: TaskGroupId(candidate.group),
        weight: group.weight,
        admitted_limit: group.admitted_limit,
        running: group.running,
        held: &group.held,
        demand: candidate.class.0,
        resources,
        peers: Peers::of(heads, group.weight, Some(candidate.class.0)),
    }
}

fn blocked_by(lots: &[Vec<ResourceLot>], (resource, amount): (u32, u32)) -> Verdict {
    let lots = &lots[resource as usize];
    // Every amount of a known demand has its lot; a missing one would only cost a repeated offer.
    match lots.binary_search_by_key(&amount, |lot| lot.amount) {
        Ok(at) => Verdict::ClassBlocked(lots[at].lot),
        Err(_) => Verdict::Skip,
    }
}

/// The ledger's item is a fingerprint of the task: it tells a forged lease from a live one.
fn item_of(task: u64) -> u32 {
    (task ^ (task >> 32)) as u32
}
