//! Bounded borrowing: a group may take what nobody else wants, up to a debt, and pays it back before it competes again.
//!
//! ```text
//! strict share = limit x weight / (weights of the peers and of the candidate), rounded, at least 1,
//!                at most the group's admitted limit and the resource's limit
//! with peers     refused while the group owes anything, or would hold more than its strict share
//! without        free up to half (as against one peer of equal weight); beyond it, each unit is debt, up to a ceiling
//! ceiling      = what is configured for the group and resource, or for all; else limit - reserved - strict share
//! ```
//!
//! Every release by the group repays what it released. A group without an admitted limit is always allowed.

use alloc::string::String;
use alloc::vec::Vec;

use smallvec::SmallVec;

use super::{PolicyDenial, PolicyView, TaskPolicy, TaskResource};
use crate::error::{ConfigError, require};
use crate::task::admission::{DenialReason, TaskGroupId};

/// How a strict share that is no whole number is rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum ShareRounding {
    /// To the next larger one.
    #[default]
    Up,
    /// To the next smaller one.
    Down,
}

/// A ceiling for one group and resource.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct BorrowCeiling {
    /// The group's identity.
    pub group: Vec<String>,
    /// The resource's name.
    pub resource: String,
    /// The most it may owe.
    pub ceiling: u32,
}

/// Settings of [`BoundedBorrow`].
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct BoundedBorrowConfig {
    /// The most that any group may owe of any resource; `None` lets the ceiling follow the share. `None`.
    pub default_ceiling: Option<u32>,
    /// Ceilings of single groups and resources. None.
    pub ceilings: Vec<BorrowCeiling>,
    /// The part of a resource's limit that is never lent, in `0.0..=1.0`, rounded up. 0.
    pub reserve_fraction: f64,
    /// The most that is never lent. 8.
    pub max_reserved: u32,
    /// How strict shares are rounded. [`ShareRounding::Up`].
    pub rounding: ShareRounding,
    /// Whether a release repays. On.
    pub repay_on_release: bool,
}

impl Default for BoundedBorrowConfig {
    fn default() -> Self {
        Self {
            default_ceiling: None,
            ceilings: Vec::new(),
            reserve_fraction: 0.0,
            max_reserved: 8,
            rounding: ShareRounding::default(),
            repay_on_release: true,
        }
    }
}

/// The policy. See the [module documentation](self).
#[derive(Clone, Debug, Default)]
pub struct BoundedBorrow {
    config: BoundedBorrowConfig,
    /// By group: what it owes, by resource. Nothing that is zero.
    debts: Vec<SmallVec<[(TaskResource, u32); 2]>>,
    /// By group: its own ceilings, by resource.
    ceilings: Vec<SmallVec<[(TaskResource, u32); 1]>>,
}

/// What a candidate would owe of one resource, and what it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loan {
    added: u32,
    ceiling: u32,
}

impl BoundedBorrow {
    /// The policy with these settings.
    pub fn new(config: BoundedBorrowConfig) -> Result<Self, ConfigError> {
        let fraction = config.reserve_fraction;
        require((0.0..=1.0).contains(&fraction), "reserve_fraction", fraction, "a number from 0 to 1")?;
        Ok(Self { config, debts: Vec::new(), ceilings: Vec::new() })
    }

    fn share(&self, candidate: &PolicyView<'_>, resource: TaskResource, admitted_limit: u32) -> u32 {
        let limit = candidate.limit(resource);
        if limit <= 1 {
            return 1;
        }
        let own = candidate.weight();
        // Against nobody, a group is measured as against one peer of its own weight.
        let peers = if candidate.has_peers(resource) { candidate.peer_weight(resource) } else { own };
        let exact = f64::from(limit) * own / (peers + own);
        let whole = match self.config.rounding {
            ShareRounding::Up => ceil(exact),
            ShareRounding::Down => exact as u32,
        };
        whole.clamp(1, admitted_limit.min(limit).max(1))
    }

    fn ceiling(&self, group: TaskGroupId, resource: TaskResource, limit: u32, share: u32) -> u32 {
        let own = self.ceilings.get(group.0.index()).and_then(|own| own.iter().find(|(known, _)| *known == resource));
        if let Some(ceiling) = own.map(|(_, ceiling)| *ceiling).or(self.config.default_ceiling) {
            return ceiling;
        }
        let reserved = ceil(f64::from(limit) * self.config.reserve_fraction).min(self.config.max_reserved);
        limit.saturating_sub(reserved).saturating_sub(share)
    }

    /// What the candidate would have to borrow where nobody presses.
    fn loan(&self, candidate: &PolicyView<'_>, (resource, amount): (TaskResource, u32), limit: u32) -> Option<Loan> {
        if candidate.has_peers(resource) {
            return None;
        }
        let share = self.share(candidate, resource, limit);
        let beyond = (candidate.held(resource) + amount).saturating_sub(share);
        let ceiling = self.ceiling(candidate.group(), resource, candidate.limit(resource), share);
        Some(Loan { added: beyond.min(amount), ceiling })
    }

    fn judge(&self, candidate: &PolicyView<'_>, asked: (TaskResource, u32), limit: u32) -> Result<(), DenialReason> {
        let (resource, amount) = asked;
        let debt = self.debt(candidate.group(), resource);
        if let Some(Loan { added, ceiling }) = self.loan(candidate, asked, limit) {
            let is_covered = added == 0 || debt.saturating_add(added) <= ceiling;
            return if is_covered { Ok(()) } else { Err(DenialReason::BorrowDebt) };
        }
        if debt > 0 {
            return Err(DenialReason::BorrowDebt);
        }
        let fits = candidate.held(resource) + amount <= self.share(candidate, resource, limit);
        if fits { Ok(()) } else { Err(DenialReason::GroupCap) }
    }
}

impl TaskPolicy for BoundedBorrow {
    fn evaluate(&self, candidate: &PolicyView<'_>) -> Result<(), PolicyDenial> {
        let Some(limit) = candidate.admitted_limit() else { return Ok(()) };
        for asked in candidate.amounts() {
            let denied = |reason| PolicyDenial { reason, resource: Some(asked.0) };
            self.judge(candidate, asked, limit).map_err(denied)?;
        }
        Ok(())
    }

    fn on_group(&mut self, group: TaskGroupId, identity: &[String], resources: &mut dyn Iterator<Item = &str>) {
        let own = self.config.ceilings.iter().filter(|ceiling| ceiling.group == identity);
        let own: Vec<_> = own.map(|ceiling| (ceiling.resource.clone(), ceiling.ceiling)).collect();
        if own.is_empty() {
            return;
        }
        let at = group.0.index();
        self.ceilings.resize_with(self.ceilings.len().max(at + 1), SmallVec::new);
        for (name, place) in resources.zip(0..) {
            let ceiling = own.iter().find(|(known, _)| known == name);
            self.ceilings[at].extend(ceiling.map(|(_, ceiling)| (TaskResource(place), *ceiling)));
        }
    }

    fn on_acquire(&mut self, candidate: &PolicyView<'_>) {
        let Some(limit) = candidate.admitted_limit() else { return };
        let at = candidate.group().0.index();
        for asked in candidate.amounts() {
            let added = self.loan(candidate, asked, limit).map_or(0, |loan| loan.added);
            if added == 0 {
                continue;
            }
            self.debts.resize_with(self.debts.len().max(at + 1), SmallVec::new);
            match self.debts[at].iter_mut().find(|(known, _)| *known == asked.0) {
                Some((_, debt)) => *debt = debt.saturating_add(added),
                None => self.debts[at].push((asked.0, added)),
            }
        }
    }

    /// Any lease repays, one that never borrowed too.
    fn on_release(&mut self, group: TaskGroupId, amounts: &mut dyn Iterator<Item = (TaskResource, u32)>) {
        let Some(debts) = self.debts.get_mut(group.0.index()).filter(|_| self.config.repay_on_release) else { return };
        for (resource, amount) in amounts {
            if let Some((_, debt)) = debts.iter_mut().find(|(known, _)| *known == resource) {
                *debt = debt.saturating_sub(amount);
            }
        }
        debts.retain(|(_, debt)| *debt > 0);
    }

    fn debt(&self, group: TaskGroupId, resource: TaskResource) -> u32 {
        let debts = self.debts.get(group.0.index()).map_or(&[][..], SmallVec::as_slice);
        debts.iter().find(|(known, _)| *known == resource).map_or(0, |(_, debt)| *debt)
    }
}

/// The next whole number, for one that is not negative and below 2^32.
fn ceil(exact: f64) -> u32 {
    let whole = exact as u32;
    whole.saturating_add(u32::from(f64::from(whole) < exact))
}
