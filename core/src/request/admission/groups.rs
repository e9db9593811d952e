//! The fairness groups of one request admission, with their names and weights.

use alloc::vec::Vec;

use crate::error::{ConfigError, require};
use crate::fair_queue::check_weight;
use crate::id::Interner;
use crate::request::keys::{GroupId, MAX_IDS};

/// The number of tenants that get a fairness group of their own although
/// [`RequestAdmission::group`](super::RequestAdmission::group) did not register them: 4,096.
pub const MAX_UNREGISTERED_TENANTS: usize = 1 << 12;

/// The name of the overflow group, which further unregistered tenants share.
const OVERFLOW: &str = "(overflow)";

/// The groups by name. Their number is bounded by the registered groups and by [`MAX_UNREGISTERED_TENANTS`].
#[derive(Debug, Default)]
pub(super) struct Groups {
    controller: u32,
    names: Interner,
    /// The weights, by the index of the group.
    weights: Vec<f64>,
    /// The number of unregistered tenants with a group of their own.
    unregistered: usize,
}

impl Groups {
    pub(super) fn new(controller: u32) -> Self {
        Self { controller, ..Self::default() }
    }

    pub(super) fn find(&self, name: &str) -> Option<GroupId> {
        self.names.get(name).map(|index| GroupId::new(self.controller, index))
    }

    /// Adds a group, or sets the weight of the group with this name.
    pub(super) fn set(&mut self, name: &str, weight: f64) -> Result<GroupId, ConfigError> {
        check_weight(weight)?;
        let count = self.weights.len() as u32;
        let is_new = self.names.get(name).is_none();
        require(!is_new || count < MAX_IDS, "group", count, "at most 2^20 groups")?;
        let index = self.names.intern(name);
        if is_new {
            self.weights.push(weight);
        } else {
            self.weights[index as usize] = weight;
        }
        Ok(GroupId::new(self.controller, index))
    }

    /// Returns the name under which to add the group of a new tenant: its own, or that of the overflow group.
    pub(super) fn name_for_tenant<'a>(&mut self, name: &'a str) -> &'a str {
        if self.unregistered < MAX_UNREGISTERED_TENANTS {
            self.unregistered += 1;
            return name;
        }
        OVERFLOW
    }

    pub(super) fn overflow(&self) -> Option<GroupId> {
        self.find(OVERFLOW)
    }

    /// Returns the index, name and weight of every group, in order of registration.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &str, f64)> {
        (0_u32..).zip(self.names.iter().zip(&self.weights)).map(|(index, (name, weight))| (index, name, *weight))
    }

    /// Returns the index and weight of a group, or `None` if this machine did not create it.
    #[inline]
    pub(super) fn get(&self, group: GroupId) -> Option<(u32, f64)> {
        let weight = self.weights.get(group.index()).filter(|_| group.controller() == self.controller)?;
        Some((group.index() as u32, *weight))
    }
}
