//! Bounded borrowing: a group may hold more than its share, as a debt up to a ceiling, while no other group
//! competes.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::{PolicyDenial, PolicyGrant, PolicyView, TaskPolicy, Until};
use crate::error::{ConfigError, require};
use crate::event::GroupKind;
use crate::map::Map;
use crate::task::admission::{DenialFigures, GroupKey, TaskDenialReason, TaskGroup, TaskGroupId};
use crate::task::resources::TaskResourceId;
use crate::task::shares::ShareRounding;

/// Settings of [`BoundedBorrow`].
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct BoundedBorrowConfig {
    /// The ceilings of single groups and resources. Each pair at most once. Default: none.
    pub ceilings: Vec<BorrowCeiling>,
    /// The ceiling of every other group. `None` means the part of the limit above the reserve and the share.
    /// Default: `None`.
    pub default_ceiling: Option<u32>,
    /// The fraction of a limit that cannot be borrowed, for groups without a ceiling. From 0 to 1. Default:
    /// 0.
    pub reserve_fraction: f64,
    /// The largest amount that `reserve_fraction` reserves of one resource. At least 1. Default: 8.
    pub max_reserved: u32,
    /// How a share that is not an integer is rounded. Default: up.
    pub share_rounding: ShareRounding,
    /// Whether a release repays the group's debt. Default: `true`.
    pub repays_on_release: bool,
}

impl Default for BoundedBorrowConfig {
    fn default() -> Self {
        Self {
            ceilings: Vec::new(),
            default_ceiling: None,
            reserve_fraction: 0.0,
            max_reserved: 8,
            share_rounding: ShareRounding::Up,
            repays_on_release: true,
        }
    }
}

impl BoundedBorrowConfig {
    /// Checks the values. Fails with the name of the first field that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let fraction = self.reserve_fraction;
        require((0.0..=1.0).contains(&fraction), "reserve_fraction", fraction, "a number from 0 to 1")?;
        require(self.max_reserved > 0, "max_reserved", 0, "at least 1")
    }
}

/// The largest debt that one group may have in one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct BorrowCeiling {
    /// The kind of the group.
    pub kind: GroupKind,
    /// The identity of the group.
    pub identity: Vec<String>,
    /// The name of the resource.
    pub resource: String,
    /// The largest debt. 0 means no borrowing.
    pub ceiling: u32,
}

/// Lets a group borrow beyond its [strict share](PolicyView::strict_share), as a debt up to a ceiling, while
/// no other group competes for the resource. A group *competes* while its first task needs the resource and
/// could start now.
///
/// ```text
/// share     the strict share of the resource
/// over      held + amount - share
///
/// another group competes        debt > 0: denied (borrow debt), else over > 0: denied (group cap)
/// no other group, over <= 0     allowed
/// no other group, over > 0      new debt = min(amount, over)
///                               denied (borrow debt) if debt + new debt > ceiling
///
/// ceiling   that of the group and resource, else the default one, else max(0, limit - reserved - share)
/// reserved  min(max reserved, ceil(limit x reserve fraction))
/// ```
///
/// A debt is counted for each group and resource. It belongs to the group, not to a lease. With
/// [`repays_on_release`](BoundedBorrowConfig::repays_on_release), a release by the group reduces its debt by
/// the released amount, at most to 0, whether or not that lease had borrowed. A group without an admitted
/// limit is always allowed and never has debt.
#[derive(Clone, Debug)]
pub struct BoundedBorrow {
    config: BoundedBorrowConfig,
    /// The ceilings of each group by resource name, for groups that have any.
    named: Map<GroupKey, Vec<(String, u32)>>,
    /// The ceilings of each registered group by resource id, for groups that have any.
    ceilings: Map<u32, Vec<(TaskResourceId, u32)>>,
}

impl BoundedBorrow {
    /// Creates the policy. Fails if a value is out of range or a ceiling is given twice.
    pub fn new(config: BoundedBorrowConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let mut named: Map<_, Vec<(String, u32)>> = Map::default();
        for BorrowCeiling { kind, identity, resource, ceiling } in &config.ceilings {
            let of_group = named.entry((*kind, identity.clone())).or_default();
            let is_new = of_group.iter().all(|(known, _)| known != resource);
            require(is_new, "ceilings", resource, "each resource of a group once")?;
            of_group.push((resource.clone(), *ceiling));
        }
        Ok(Self { config, named, ceilings: Map::default() })
    }

    /// Returns how much of one resource the candidate would borrow, or why it may not start.
    fn evaluate_resource(
        &self,
        view: &PolicyView<'_>,
        resource: TaskResourceId,
        amount: u32,
    ) -> Result<u32, PolicyDenial> {
        let share = view.strict_share(resource, self.config.share_rounding);
        let (held, debt) = (view.held(resource), view.debt(resource));
        let wanted = held.saturating_add(amount);
        let mut figures = DenialFigures { held, requested: amount, share, debt, ceiling: None };
        let deny =
            |reason, figures, until| PolicyDenial { reason, resource: Some(resource), figures: Some(figures), until };
        if view.has_competition_for(resource) {
            if debt > 0 {
                return Err(deny(TaskDenialReason::BorrowDebt, figures, Until::NoCompetition(resource)));
            }
            if wanted > share {
                return Err(deny(
                    TaskDenialReason::GroupCap,
                    figures,
                    self.until_share_leaves(resource, 0..=wanted - 1),
                ));
            }
            return Ok(0);
        }
        let new_debt = wanted.saturating_sub(share).min(amount);
        if new_debt == 0 {
            return Ok(0);
        }
        let ceiling = self.ceiling(view, resource);
        let most = ceiling.at(share);
        if debt.saturating_add(new_debt) > most {
            figures.ceiling = Some(most);
            let until =
                self.until_share_leaves(resource, ceiling.denied_shares(wanted, debt.saturating_add(amount), debt));
            return Err(deny(TaskDenialReason::BorrowDebt, figures, until));
        }
        Ok(new_debt)
    }

    fn until_share_leaves(&self, resource: TaskResourceId, shares: RangeInclusive<u32>) -> Until {
        Until::ShareLeaves { resource, shares, rounding: self.config.share_rounding }
    }

    fn ceiling(&self, view: &PolicyView<'_>, resource: TaskResourceId) -> Ceiling {
        let of_group = self.ceilings.get(&view.group().0.0);
        let own = of_group.and_then(|list| list.iter().find(|(known, _)| *known == resource));
        if let Some(fixed) = own.map(|(_, ceiling)| *ceiling).or(self.config.default_ceiling) {
            return Ceiling::Fixed(fixed);
        }
        let limit = view.limit(resource);
        let reserved = rounded_up(f64::from(limit) * self.config.reserve_fraction).min(self.config.max_reserved);
        Ceiling::Above { share_and_debt: limit.saturating_sub(reserved) }
    }
}

impl TaskPolicy for BoundedBorrow {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<PolicyGrant, PolicyDenial> {
        let mut allowed = PolicyGrant::unlimited();
        if view.admitted_limit().is_none() {
            return Ok(allowed);
        }
        for (resource, amount) in view.demands() {
            let debt = self.evaluate_resource(view, resource, amount)?;
            if debt > 0 {
                allowed = allowed.borrowing(resource, debt);
            }
        }
        Ok(allowed)
    }

    fn repaid(&self, _resource: TaskResourceId, amount: u32) -> u32 {
        if self.config.repays_on_release { amount } else { 0 }
    }

    fn group_registered(
        &mut self,
        id: TaskGroupId,
        group: &TaskGroup,
        find: &dyn Fn(&str) -> Option<TaskResourceId>,
    ) -> Result<(), ConfigError> {
        if self.named.is_empty() {
            return Ok(());
        }
        let Some(named) = self.named.get(&(group.kind, group.identity.clone())) else { return Ok(()) };
        let mut ceilings = Vec::with_capacity(named.len());
        for (name, ceiling) in named {
            let resource = find(name).ok_or_else(|| ConfigError::new("ceilings", name, "a resource that exists"))?;
            ceilings.push((resource, *ceiling));
        }
        self.ceilings.insert(id.0.0, ceilings);
        Ok(())
    }
}

/// The largest debt that a group may have in one resource.
#[derive(Clone, Copy, Debug)]
enum Ceiling {
    Fixed(u32),
    /// `share_and_debt - share`, at least 0: share and debt together are limited.
    Above {
        share_and_debt: u32,
    },
}

impl Ceiling {
    fn at(self, share: u32) -> u32 {
        match self {
            Self::Fixed(ceiling) => ceiling,
            Self::Above { share_and_debt } => share_and_debt.saturating_sub(share),
        }
    }

    /// Returns the shares at which a denial without competing groups holds. `wanted` is what the group would
    /// hold, and `debt_after` is the debt with `amount` added.
    ///
    /// The denial holds while `debt + min(amount, wanted - share) > ceiling`, and `share < wanted`.
    ///
    /// - Under a fixed ceiling, a larger share ends the denial, because it makes the new debt smaller. It
    ///   holds while `wanted - share > ceiling - debt`.
    /// - Otherwise the ceiling falls as the share grows. For a share of at most `held`, the denial holds
    ///   while `debt_after > share_and_debt - share`. Between `held` and `wanted`, both sides fall together,
    ///   so it holds throughout. A smaller share ends it, or one of at least `wanted`.
    fn denied_shares(self, wanted: u32, debt_after: u32, debt: u32) -> RangeInclusive<u32> {
        match self {
            Self::Fixed(ceiling) => 0..=(wanted - 1).saturating_sub(ceiling.saturating_sub(debt)),
            Self::Above { share_and_debt } => share_and_debt.saturating_add(1).saturating_sub(debt_after)..=wanted - 1,
        }
    }
}

/// Returns the smallest integer that is not below `value`. `value` is not negative.
fn rounded_up(value: f64) -> u32 {
    let whole = value as u32;
    whole.saturating_add(u32::from(value > f64::from(whole)))
}
