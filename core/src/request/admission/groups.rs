//! The fairness groups of one controller: names and weights.

use alloc::vec::Vec;

use crate::error::{ConfigError, require};
use crate::fair_queue::check_weight;
use crate::id::Interner;
use crate::request::keys::{GroupId, MAX_IDS};

/// Tenants that get a fairness group of their own without being named by
/// [`RequestAdmission::group`](super::RequestAdmission::group).
pub const MAX_UNREGISTERED_TENANTS: usize = 1 << 12;

/// The name of the overflow group: all tenants beyond those.
const OVERFLOW: &str = "(others)";

/// The groups by name. Bounded by registration and by [`MAX_UNREGISTERED_TENANTS`].
#[derive(Debug, Default)]
pub(super) struct Groups {
    controller: u32,
    names: Interner,
    /// By index.
    weights: Vec<f64>,
    /// Groups of tenants that no registration named.
    unregistered: usize,
}

impl Groups {
    pub(super) fn new(controller: u32) -> Self {
        Self { controller, ..Self::default() }
    }

    pub(super) fn find(&self, name: &str) -> Option<GroupId> {
        self.names.get(name).map(|index| GroupId::new(self.controller, index))
    }

    /// Adds a group, or sets the weight of the one of this name.
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

    /// The name under which a tenant is to be registered: its own, or that of the overflow group.
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

    /// The index and weight of a group; `None` for one of another controller or one that was never made.
    #[inline]
    pub(super) fn get(&self, group: GroupId) -> Option<(u32, f64)> {
        let weight = self.weights.get(group.index()).filter(|_| group.controller() == self.controller)?;
        Some((group.index() as u32, *weight))
    }
}
