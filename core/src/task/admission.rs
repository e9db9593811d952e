//! Groups, leases and denials of task admission.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::event::GroupKind;
use crate::fair_queue::GroupId;
use crate::lease::LeaseId;

/// Tasks that share a turn: equal kind and identity are one group.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TaskGroup {
    /// What its tasks do.
    pub kind: GroupKind,
    /// Who it is, such as provider and model.
    pub identity: Vec<String>,
    /// Its share of turns, relative to the others'. In 2^-20..=2^20.
    pub weight: f64,
    /// Leases it may hold while others press; `None` for no bound. At least 1.
    #[cfg_attr(feature = "serde", serde(default))]
    pub admitted_limit: Option<u32>,
}

impl TaskGroup {
    /// A group of local work, of weight 1 and without a bound.
    #[must_use]
    pub fn local(name: &str) -> Self {
        Self { kind: GroupKind::Local, identity: [name.to_string()].into(), weight: 1.0, admitted_limit: None }
    }

    /// A model's group: it may hold twice its weight while others press.
    #[must_use]
    pub fn model(provider: &str, model: &str, weight: f64) -> Self {
        // Weights end at 2^20, so twice one fits.
        let admitted_limit = Some(((2.0 * weight) as u32).max(1));
        let identity = [provider.to_string(), model.to_string()].into();
        Self { kind: GroupKind::Model, identity, weight, admitted_limit }
    }
}

/// What makes a group the same one.
pub(super) type GroupKey = (GroupKind, Vec<String>);

/// A registered group of a [`Dispatcher`](super::Dispatcher).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskGroupId(pub(crate) GroupId);

/// Why a ready task may not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum DenialReason {
    /// A resource it needs is taken.
    NoCapacity,
    /// Its group is at its limit while another could start.
    GroupCap,
    /// Its group owes what it borrowed.
    BorrowDebt,
    /// Admission is shut down.
    Shutdown,
    /// A policy of the user's own says no.
    Policy,
}

/// The figures behind a policy's refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Figures {
    /// What the group holds: of the resource, or leases where its limit on leases decided.
    pub held: u32,
    /// What one more worker would add to it.
    pub asked: u32,
    /// What the group may hold while others press.
    pub share: u32,
    /// What the group owes of the resource.
    pub debt: u32,
    /// The most it may owe, where that decided.
    pub ceiling: Option<u32>,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { held, asked, share, debt, ceiling } = self;
        write!(f, "holds {held}, asks for {asked}, share {share}, owes {debt}")?;
        ceiling.map_or(Ok(()), |ceiling| write!(f, ", may owe {ceiling}"))
    }
}

/// A refusal, with the resource that binds where it is one, and the figures where a policy compared some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Denial {
    /// Why.
    pub reason: DenialReason,
    /// The resource that is short, or that the policy refuses.
    pub resource: Option<String>,
    /// What the policy compared.
    pub figures: Option<Figures>,
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let may_not_borrow = self.figures.is_some_and(|figures| figures.ceiling.is_some());
        let what = match self.reason {
            DenialReason::NoCapacity => "a resource is taken",
            DenialReason::GroupCap => "the group is at its limit while another group could start",
            DenialReason::BorrowDebt if may_not_borrow => "the group may borrow no more",
            DenialReason::BorrowDebt => "the group owes what it borrowed while another group could start",
            DenialReason::Shutdown => "task admission is shut down",
            DenialReason::Policy => "the policy refuses",
        };
        f.write_str(what)?;
        if let Some(resource) = &self.resource {
            write!(f, ": `{resource}`")?;
        }
        self.figures.map_or(Ok(()), |figures| write!(f, " ({figures})"))
    }
}

/// The right to run one worker. Give it back through [`Dispatcher::release`](super::Dispatcher::release),
/// once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a lease that is dropped is capacity lost for ever: release it"]
pub struct TaskLease {
    pub(super) id: LeaseId,
}

impl TaskLease {
    /// The lease as a plain value, to cross a language boundary with.
    #[must_use]
    pub const fn id(&self) -> LeaseId {
        self.id
    }

    /// The lease that `id` names; whether it is live is checked when it is released.
    pub const fn from_id(id: LeaseId) -> Self {
        Self { id }
    }
}
