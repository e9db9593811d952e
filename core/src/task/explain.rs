//! Why not now: what keeps each head, read from the same figures that decide.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;

use super::admission::{Denial, DenialReason, TaskGroupId};
use super::denials::Denied;
use super::dispatch::Dispatcher;
use super::policy::{PolicyView, Refusal, TaskPolicy, Until};
use super::resources::{DemandId, ResourceId};
use crate::map::Map;

/// Why nothing more is dispatched: one entry for each reason and resource among the heads of the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Blocked {
    /// Tasks queued.
    pub queued: usize,
    /// Heads by what keeps them, in order of first mention; the figures are those of the first head.
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

/// Facts.
impl<P: TaskPolicy> Dispatcher<P> {
    /// Why each group's head is not dispatched. Changes nothing. O(groups).
    #[must_use]
    pub fn explain(&self) -> Blocked {
        let mut blocked = Blocked { queued: self.queue.len(), heads: Vec::new() };
        let mut known: Map<(DenialReason, Option<ResourceId>), usize> = Map::default();
        for head in self.queue.groups().filter_map(|group| self.queue.first(group)) {
            let Err(refusal) = self.judge(head.group.0, head.class.0) else { continue };
            let at = *known.entry((refusal.reason, refusal.resource)).or_insert(blocked.heads.len());
            if at == blocked.heads.len() {
                blocked.heads.push((self.denial(&refusal), 0));
            }
            blocked.heads[at].1 += 1;
        }
        blocked
    }

    /// What keeps the head of the first group that has one which may not start. O(groups).
    pub(crate) fn first_denial(&self) -> Option<Denied> {
        let mut heads = self.queue.groups().filter_map(|group| self.queue.first(group));
        heads.find_map(|head| {
            let Refusal { reason, resource, .. } = self.judge(head.group.0, head.class.0).err()?;
            Some(Denied { task: head.item, reason, resource })
        })
    }

    /// Whether a task of this group and demand could start now, or why not. Changes nothing. O(resources of
    /// the demand).
    pub fn evaluate(&self, group: TaskGroupId, demand: DemandId) -> Result<(), Denial> {
        self.judge(group.0.0, self.classes[demand.0 as usize].0).map_err(|refusal| self.denial(&refusal))
    }

    /// What keeps the first group's head that wants a resource, or that nothing does; `None` if no head wants
    /// it. Changes nothing. O(groups).
    #[must_use]
    pub fn explain_resource(&self, resource: &str) -> Option<Result<(), Denial>> {
        let wanted = self.accounts.resources.find(resource)?;
        let mut heads = self.queue.groups().filter_map(|group| self.queue.first(group));
        let head = heads.find(|head| self.accounts.resources.asks_for(head.class.0, wanted.0))?;
        Some(self.judge(head.group.0, head.class.0).map_err(|refusal| self.denial(&refusal)))
    }

    /// What keeps the head of a group, or that nothing does; `None` if nothing of it is queued. Changes
    /// nothing.
    #[must_use]
    pub fn explain_group(&self, group: TaskGroupId) -> Option<Result<(), Denial>> {
        let head = self.queue.first(group.0)?;
        Some(self.judge(group.0.0, head.class.0).map_err(|refusal| self.denial(&refusal)))
    }

    /// The first task of a group in the queue.
    pub(crate) fn head_of(&self, group: TaskGroupId) -> Option<u64> {
        self.queue.first(group.0).map(|head| head.item)
    }

    fn judge(&self, group: u32, demand: u32) -> Result<(), Refusal> {
        if self.is_shut {
            return Err(DenialReason::Shutdown.into());
        }
        if let Some((resource, _)) = self.accounts.resources.shortage(demand) {
            let resource = Some(ResourceId(resource));
            return Err(Refusal { reason: DenialReason::NoCapacity, resource, figures: None, until: Until::AnyChange });
        }
        self.policy.evaluate(&PolicyView::new(&self.accounts, group, demand)).map(|_| ())
    }

    fn denial(&self, refusal: &Refusal) -> Denial {
        let resource = refusal.resource.map(|resource| self.accounts.resources.name(resource.0).to_string());
        Denial { reason: refusal.reason, resource, figures: refusal.figures }
    }
}
