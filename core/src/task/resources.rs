//! Named counters with limits, and the vectors of amounts that tasks ask for.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::error::{ConfigError, require};
use crate::id::Interner;
use crate::map::Map;

/// The resource that every task takes one of.
pub(crate) const SUBMISSION: &str = "submission";

/// The resources of a task admission.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct TaskConfig {
    /// Workers that may run at once, whatever they do. At least 1; 1024.
    pub submission_limit: u32,
    /// Further resources by name, each with a limit of at least 1.
    pub resources: Vec<(String, u32)>,
    /// As in the recorded traces, nothing is ever started against the policy, even if nothing runs. Off: see
    /// [`Dispatcher::liveness_overrides`](super::Dispatcher::liveness_overrides).
    pub compatibility: bool,
}

impl Default for TaskConfig {
    fn default() -> Self {
        Self { submission_limit: 1024, resources: Vec::new(), compatibility: false }
    }
}

/// A resource of one task admission. `submission` is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub(crate) u32);

/// A vector of resource amounts, interned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DemandId(pub(crate) u32);

/// A demand that could never be met, refused before anything queues for it for ever.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DemandError {
    /// No such resource was configured.
    #[error("there is no resource `{resource}`; known are {known}")]
    UnknownResource {
        /// The name.
        resource: String,
        /// Those that exist.
        known: String,
    },
    /// More is asked for than there will ever be.
    #[error("{amount} of `{resource}` is more than its limit of {limit}")]
    AboveLimit {
        /// The name.
        resource: String,
        /// What was asked for.
        amount: u32,
        /// What there is.
        limit: u32,
    },
    /// Nothing is asked for.
    #[error("the amount of `{resource}` is 0; expected at least 1")]
    Zero {
        /// The name.
        resource: String,
    },
}

/// Amounts by resource number, ascending.
pub(super) type Amounts = SmallVec<[(u32, u32); 4]>;

/// The counters. Resource 0 is `submission`.
#[derive(Clone, Debug, Default)]
pub(super) struct Resources {
    names: Interner,
    limits: Vec<u32>,
    leased: Vec<u32>,
    demands: Vec<Amounts>,
    known: Map<Amounts, u32>,
}

impl Resources {
    pub(super) fn new(config: &TaskConfig) -> Result<Self, ConfigError> {
        let mut resources = Self::default();
        resources.add(SUBMISSION, config.submission_limit)?;
        for (name, limit) in &config.resources {
            require(resources.names.get(name).is_none(), "resources", name, "each name once")?;
            resources.add(name, *limit)?;
        }
        Ok(resources)
    }

    fn add(&mut self, name: &str, limit: u32) -> Result<(), ConfigError> {
        require(limit > 0, name, limit, "a limit of at least 1")?;
        self.names.intern(name);
        self.limits.push(limit);
        self.leased.push(0);
        Ok(())
    }

    /// Interns a vector of what exists in the amounts asked for; `submission` is added with amount 1 where it
    /// is absent. Equal names are summed.
    pub(super) fn demand<S: AsRef<str>>(&mut self, asked: &[(S, u32)]) -> Result<DemandId, DemandError> {
        for (name, _) in asked {
            let name = name.as_ref();
            if self.find(name).is_none() {
                let known = self.names.iter().collect::<Vec<_>>().join(", ");
                return Err(DemandError::UnknownResource { resource: name.to_string(), known });
            }
        }
        let amounts = self.amounts_of(asked)?;
        for (resource, amount) in &amounts {
            let limit = self.limits[*resource as usize];
            if *amount > limit {
                let resource = self.names.name(*resource).to_string();
                return Err(DemandError::AboveLimit { resource, amount: *amount, limit });
            }
        }
        Ok(self.intern(amounts))
    }

    /// The same for a vector that may never be available; a resource that does not exist gets a limit of 0.
    pub(super) fn unmeetable<S: AsRef<str>>(&mut self, asked: &[(S, u32)]) -> Result<DemandId, DemandError> {
        for (name, _) in asked {
            if self.find(name.as_ref()).is_none() {
                self.names.intern(name.as_ref());
                self.limits.push(0);
                self.leased.push(0);
            }
        }
        let amounts = self.amounts_of(asked)?;
        Ok(self.intern(amounts))
    }

    /// The vector by resource number, of resources that exist.
    fn amounts_of<S: AsRef<str>>(&self, asked: &[(S, u32)]) -> Result<Amounts, DemandError> {
        let mut amounts = Amounts::new();
        for (name, amount) in asked {
            let name = name.as_ref();
            if *amount == 0 {
                return Err(DemandError::Zero { resource: name.to_string() });
            }
            let Some(ResourceId(resource)) = self.find(name) else { continue };
            match amounts.binary_search_by(|(known, _)| known.cmp(&resource)) {
                Ok(place) => amounts[place].1 = amounts[place].1.saturating_add(*amount),
                Err(place) => amounts.insert(place, (resource, *amount)),
            }
        }
        if amounts.first().is_none_or(|(resource, _)| *resource != 0) {
            amounts.insert(0, (0, 1));
        }
        Ok(amounts)
    }

    fn intern(&mut self, amounts: Amounts) -> DemandId {
        let next = self.demands.len() as u32;
        let known = *self.known.entry(amounts.clone()).or_insert(next);
        if known == next {
            self.demands.push(amounts);
        }
        DemandId(known)
    }

    pub(super) fn find(&self, name: &str) -> Option<ResourceId> {
        self.names.get(name).map(ResourceId)
    }

    pub(super) fn amounts(&self, demand: u32) -> &Amounts {
        &self.demands[demand as usize]
    }

    pub(super) fn demands(&self) -> u32 {
        self.demands.len() as u32
    }

    pub(super) fn limit(&self, resource: u32) -> u32 {
        self.limits[resource as usize]
    }

    pub(super) fn leased(&self, resource: u32) -> u32 {
        self.leased[resource as usize]
    }

    pub(super) fn available(&self, resource: u32) -> u32 {
        self.limits[resource as usize] - self.leased[resource as usize]
    }

    /// The first resource that a demand would have to wait for, with the amount it needs.
    pub(super) fn shortage(&self, demand: u32) -> Option<(u32, u32)> {
        self.amounts(demand).iter().copied().find(|(resource, amount)| self.available(*resource) < *amount)
    }

    pub(super) fn asks_for(&self, demand: u32, resource: u32) -> bool {
        self.amounts(demand).iter().any(|(asked, _)| *asked == resource)
    }

    pub(super) fn take(&mut self, resource: u32, amount: u32) {
        self.leased[resource as usize] += amount;
        debug_assert!(self.leased[resource as usize] <= self.limits[resource as usize]);
    }

    pub(super) fn give_back(&mut self, resource: u32, amount: u32) {
        self.leased[resource as usize] -= amount;
    }

    pub(super) fn name(&self, resource: u32) -> &str {
        self.names.name(resource)
    }

    pub(super) fn count(&self) -> u32 {
        self.limits.len() as u32
    }

    pub(super) fn usage(&self) -> impl Iterator<Item = (&str, u32, u32)> {
        self.names.iter().zip(&self.leased).zip(&self.limits).map(|((name, leased), limit)| (name, *leased, *limit))
    }
}
