//! Explains why the first task of each group is not dispatched, from the state that dispatching uses.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;

use super::admission::{TaskDenial, TaskDenialReason, TaskGroupId};
use super::denials::Denied;
use super::dispatch::Dispatcher;
use super::policy::{PolicyDenial, PolicyView, TaskPolicy, Until};
use super::resources::{DemandId, TaskResourceId};
use crate::map::Map;

/// Why nothing more is dispatched: one entry for each reason and resource among the groups' first tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Blocked {
    /// The number of queued tasks.
    pub queued: usize,
    /// The denials and how many groups' first tasks each of them blocks, in order of first occurrence. The
    /// figures are those of the first such task.
    pub heads: Vec<(TaskDenial, u32)>,
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

/// Recorded denials.
impl<P: TaskPolicy> Dispatcher<P> {
    /// Turns the recording of denials on or off. While it is on, the caller takes them in every round.
    pub(crate) fn watch_denials(&mut self, is_on: bool) {
        self.denials.watch(is_on);
    }

    /// Appends the denials since the last call to `into`.
    pub(crate) fn take_denials(&mut self, into: &mut Vec<Denied>) {
        self.denials.take(into);
    }

    /// Starts the next round. The next denial of each group is recorded again.
    pub(crate) fn end_round(&mut self) {
        self.denials.end_round();
    }
}

/// Queries.
impl<P: TaskPolicy> Dispatcher<P> {
    /// Returns why each group's first task is not dispatched. Changes nothing. O(groups).
    #[must_use]
    pub fn why_blocked(&self) -> Blocked {
        let mut blocked = Blocked { queued: self.queue.len(), heads: Vec::new() };
        let mut known: Map<(TaskDenialReason, Option<TaskResourceId>), usize> = Map::default();
        for head in self.queue.groups().filter_map(|group| self.queue.first(group)) {
            let Err(denial) = self.decide(head.group.0, head.class.0) else { continue };
            let at = *known.entry((denial.reason, denial.resource)).or_insert(blocked.heads.len());
            if at == blocked.heads.len() {
                blocked.heads.push((self.describe(&denial), 0));
            }
            blocked.heads[at].1 += 1;
        }
        blocked
    }

    /// Returns the first task that is blocked, of the groups in order, with the reason. O(groups).
    pub(crate) fn first_denial(&self) -> Option<Denied> {
        let mut heads = self.queue.groups().filter_map(|group| self.queue.first(group));
        heads.find_map(|head| {
            let PolicyDenial { reason, resource, .. } = self.decide(head.group.0, head.class.0).err()?;
            Some(Denied { task: head.item, reason, resource })
        })
    }

    /// Checks whether a task of this group and demand could start now, and returns the reason if it could
    /// not. Changes nothing. O(resources of the demand).
    pub fn evaluate(&self, group: TaskGroupId, demand: DemandId) -> Result<(), TaskDenial> {
        self.decide(group.0.0, self.classes[demand.0 as usize].0).map_err(|denial| self.describe(&denial))
    }

    /// Returns whether the first group's first task that needs a resource could start, or why it could not.
    /// Returns `None` if no group's first task needs the resource, or if there is no such resource. Changes
    /// nothing. O(groups).
    #[must_use]
    pub fn why_resource_blocked(&self, resource: &str) -> Option<Result<(), TaskDenial>> {
        let wanted = self.accounts.resources.find(resource)?;
        let mut heads = self.queue.groups().filter_map(|group| self.queue.first(group));
        let head = heads.find(|head| self.accounts.resources.needs(head.class.0, wanted.0))?;
        Some(self.decide(head.group.0, head.class.0).map_err(|denial| self.describe(&denial)))
    }

    /// Returns whether the first task of a group could start, or why it could not. Returns `None` if no task
    /// of the group is queued. Changes nothing.
    #[must_use]
    pub fn why_group_blocked(&self, group: TaskGroupId) -> Option<Result<(), TaskDenial>> {
        let head = self.queue.first(group.0)?;
        Some(self.decide(group.0.0, head.class.0).map_err(|denial| self.describe(&denial)))
    }

    /// Returns the first queued task of a group.
    pub(crate) fn head_of(&self, group: TaskGroupId) -> Option<u64> {
        self.queue.first(group.0).map(|head| head.item)
    }

    fn decide(&self, group: u32, demand: u32) -> Result<(), PolicyDenial> {
        if self.is_shut {
            return Err(TaskDenialReason::Shutdown.into());
        }
        if let Some((resource, _)) = self.accounts.resources.shortage(demand) {
            let resource = Some(TaskResourceId(resource));
            return Err(PolicyDenial {
                reason: TaskDenialReason::NoCapacity,
                resource,
                figures: None,
                until: Until::AnyChange,
            });
        }
        self.policy.evaluate(&PolicyView::new(&self.accounts, group, demand)).map(|_| ())
    }

    fn describe(&self, denial: &PolicyDenial) -> TaskDenial {
        let resource = denial.resource.map(|resource| self.accounts.resources.name(resource.0).to_string());
        TaskDenial { reason: denial.reason, resource, figures: denial.figures }
    }
}
