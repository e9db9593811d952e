//! The dispatch transaction: select, acquire, commit.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::admission::{Denial, DenialReason, TaskGroup, TaskGroupId, TaskLease};
use super::policy::strict_fair::StrictFair;
use super::policy::{GroupView, TaskPolicy};
use super::resources::{DemandError, DemandId, Resources, TaskConfig};
use crate::error::{ConfigError, require};
use crate::fair_queue::{Candidate, ClassId, FairQueue, GroupId, LotId, Verdict};
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
    key: (super::GroupKind, Vec<String>),
    admitted_limit: Option<u32>,
    running: u32,
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
    /// The queue's class of each demand.
    classes: Vec<ClassId>,
    /// By resource: the lots of what waits for it, by ascending amount.
    lots: Vec<Vec<ResourceLot>>,
    ledger: Ledger<Held>,
    is_shut: bool,
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
            classes: Vec::new(),
            lots,
            ledger: Ledger::new(u32::MAX),
            is_shut: false,
        })
    }

    /// The group of this kind and identity; a known one takes the weight and limit given here.
    pub fn group(&mut self, spec: &TaskGroup) -> Result<TaskGroupId, ConfigError> {
        require(spec.admitted_limit != Some(0), "admitted_limit", 0, "at least 1")?;
        let known = self.groups.iter().position(|group| group.key.0 == spec.kind && group.key.1 == spec.identity);
        if let Some(at) = known {
            let id = GroupId(at as u32);
            self.queue.set_weight(id, spec.weight)?;
            self.groups[at].admitted_limit = spec.admitted_limit;
            self.queue.unpark_all();
            return Ok(TaskGroupId(id));
        }
        let id = self.queue.add_group(spec.weight)?;
        self.groups.push(GroupState {
            key: (spec.kind, spec.identity.clone()),
            admitted_limit: spec.admitted_limit,
            running: 0,
        });
        Ok(TaskGroupId(id))
    }

    /// Interns a vector of resource amounts. One of `submission` is added where it is absent.
    ///
    /// # Errors
    /// A resource that does not exist, or an amount that is zero or above the limit: such a task would wait for ever.
    pub fn demand<S: AsRef<str>>(&mut self, amounts: &[(S, u32)]) -> Result<DemandId, DemandError> {
        let id = self.resources.demand(amounts)?;
        while self.classes.len() < self.resources.demands() as usize {
            self.classes.push(self.queue.add_class());
        }
        for (resource, amount) in self.resources.amounts(id.0) {
            let lots = &mut self.lots[*resource as usize];
            if let Err(at) = lots.binary_search_by_key(amount, |lot| lot.amount) {
                lots.insert(at, ResourceLot { amount: *amount, lot: self.queue.add_lot() });
            }
        }
        Ok(id)
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
        let Self { policy, queue, resources, groups, lots, .. } = self;
        let heads = Heads::of(queue, resources);
        let selection = queue.select(|candidate| judge(policy, &heads, resources, groups, lots, candidate))?;
        let Candidate { item, group, class, .. } = selection.candidate;
        let demand = class.0;
        self.queue.commit(&selection).ok()?;
        self.resources.take(demand);
        self.groups[group.index()].running += 1;
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
        self.groups[held.group.0.index()].running -= 1;
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

    /// Counts of irregular releases.
    #[must_use]
    pub fn release_diagnostics(&self) -> ReleaseDiagnostics {
        self.ledger.diagnostics()
    }

    /// Why each group's head is not dispatched. Changes nothing. O(groups x classes).
    #[must_use]
    pub fn explain(&self) -> Blocked {
        let heads = Heads::of(&self.queue, &self.resources);
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
        self.judge_alone(&Heads::of(&self.queue, &self.resources), &candidate)
    }

    fn judge_alone(&self, heads: &Heads, head: &Candidate) -> Result<(), Denial> {
        if self.is_shut {
            return Err(Denial { reason: DenialReason::Shutdown, resource: None });
        }
        if let Some((resource, _)) = self.resources.shortage(head.class.0) {
            let resource = Some(self.resources.name(resource).to_string());
            return Err(Denial { reason: DenialReason::NoCapacity, resource });
        }
        ask(&self.policy, heads, &self.resources, &self.groups, head)
            .map_err(|reason| Denial { reason, resource: None })
    }
}

/// Demands with the number of groups whose head asks for them, as they stand while one selection runs.
struct Heads(Vec<(u32, u32)>);

impl Heads {
    fn of(queue: &FairQueue, resources: &Resources) -> Self {
        let counted = (0..resources.demands()).map(|demand| (demand, queue.heads(ClassId(demand))));
        Self(counted.filter(|(_, heads)| *heads > 0).collect())
    }

    /// Whether another group's head wants a resource of `candidate` and could be admitted now.
    ///
    /// `submission` counts only for a candidate that asks for nothing else. O(classes x resources).
    fn press(&self, resources: &Resources, candidate: &Candidate) -> bool {
        let own = resources.amounts(candidate.class.0);
        let wants =
            |resource: u32| (resource != 0 || own.len() == 1) && own.iter().any(|(known, _)| *known == resource);
        self.0.iter().any(|(demand, heads)| {
            let peers = heads - u32::from(*demand == candidate.class.0);
            peers > 0
                && resources.amounts(*demand).iter().any(|(resource, _)| wants(*resource))
                && resources.shortage(*demand).is_none()
        })
    }
}

fn judge(
    policy: &impl TaskPolicy,
    heads: &Heads,
    resources: &Resources,
    groups: &[GroupState],
    lots: &[Vec<ResourceLot>],
    candidate: &Candidate,
) -> Verdict {
    if let Some((resource, amount)) = resources.shortage(candidate.class.0) {
        let lots = &lots[resource as usize];
        // Every amount of a known demand has its lot; a missing one would only cost a repeated offer.
        return match lots.binary_search_by_key(&amount, |lot| lot.amount) {
            Ok(at) => Verdict::ClassBlocked(lots[at].lot),
            Err(_) => Verdict::Skip,
        };
    }
    match ask(policy, heads, resources, groups, candidate) {
        Ok(()) => Verdict::Accept,
        Err(_) => Verdict::GroupBlocked,
    }
}

fn ask(
    policy: &impl TaskPolicy,
    heads: &Heads,
    resources: &Resources,
    groups: &[GroupState],
    candidate: &Candidate,
) -> Result<(), DenialReason> {
    let group = &groups[candidate.group.index()];
    let view = GroupView { admitted_limit: group.admitted_limit, running: group.running };
    policy.evaluate(&view, &mut || heads.press(resources, candidate))
}

/// The ledger's item is a fingerprint of the task: it tells a forged lease from a live one.
fn item_of(task: u64) -> u32 {
    (task ^ (task >> 32)) as u32
}
