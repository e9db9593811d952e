//! Resources, which are named counters with limits, and the demands of tasks for them.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::error::{ConfigError, require};
use crate::id::Interner;
use crate::map::Map;

/// The resource of which every task takes at least one unit. Its limit is the number of workers.
pub(crate) const SUBMISSION: &str = "submission";

/// The configuration of task admission.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct TaskConfig {
    /// The number of workers that may run at the same time, over all groups. At least 1; default 1024.
    pub submission_limit: u32,
    /// Further resources by name. Each limit is at least 1. Default: none.
    pub resources: Vec<(String, u32)>,
    /// Whether to behave like the earlier scheduler whose recorded traces the tests replay. Only those tests
    /// use it: no task is ever started although the policy denies it, even if nothing runs. Default: `false`.
    /// See [`Dispatcher::liveness_overrides`](super::Dispatcher::liveness_overrides).
    pub compatibility: bool,
}

impl Default for TaskConfig {
    fn default() -> Self {
        Self { submission_limit: 1024, resources: Vec::new(), compatibility: false }
    }
}

/// The id of a resource of one [`Dispatcher`](super::Dispatcher). `submission` is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskResourceId(pub(crate) u32);

/// The id of a demand: the amounts of all resources that a task needs. Equal demands have equal ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DemandId(pub(crate) u32);

/// The error for a demand that could never be met, so that its tasks would wait for ever, or that has an
/// amount of zero.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DemandError {
    /// The resource was not configured.
    #[error("there is no resource `{resource}`; known are {known}")]
    UnknownResource {
        /// The name of the resource.
        resource: String,
        /// The names of the resources that exist.
        known: String,
    },
    /// The amount is above the limit of the resource.
    #[error("{amount} of `{resource}` is more than its limit of {limit}")]
    AboveLimit {
        /// The name of the resource.
        resource: String,
        /// The amount of the demand.
        amount: u32,
        /// The limit of the resource.
        limit: u32,
    },
    /// The amount is zero.
    #[error("the amount of `{resource}` is 0; expected at least 1")]
    Zero {
        /// The name of the resource.
        resource: String,
    },
}

/// The amounts of a demand, as resource number and amount, by ascending number.
pub(super) type Amounts = SmallVec<[(u32, u32); 4]>;

/// The counters of all resources, and all demands. Resource 0 is `submission`.
#[derive(Clone, Debug, Default)]
pub(super) struct Resources {
    names: Interner,
    /// By resource.
    limits: Vec<u32>,
    /// By resource.
    leased: Vec<u32>,
    /// By demand.
    demands: Vec<Amounts>,
    /// The number of each demand.
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

    /// Returns the id of a demand. `submission` is added with amount 1 if it is absent, and amounts of equal
    /// names are summed. Fails if a resource does not exist or an amount is zero or above the limit.
    pub(super) fn demand<S: AsRef<str>>(&mut self, amounts: &[(S, u32)]) -> Result<DemandId, DemandError> {
        for (name, _) in amounts {
            let name = name.as_ref();
            if self.find(name).is_none() {
                let known = self.names.iter().collect::<Vec<_>>().join(", ");
                return Err(DemandError::UnknownResource { resource: name.to_string(), known });
            }
        }
        let amounts = self.amounts_of(amounts)?;
        for (resource, amount) in &amounts {
            let limit = self.limits[*resource as usize];
            if *amount > limit {
                let resource = self.names.name(*resource).to_string();
                return Err(DemandError::AboveLimit { resource, amount: *amount, limit });
            }
        }
        Ok(self.intern(amounts))
    }

    /// Returns the id of a demand that may be impossible to meet. A resource that does not exist is added
    /// with a limit of 0. Fails if an amount is zero.
    pub(super) fn demand_unchecked<S: AsRef<str>>(&mut self, amounts: &[(S, u32)]) -> Result<DemandId, DemandError> {
        for (name, _) in amounts {
            if self.find(name.as_ref()).is_none() {
                self.names.intern(name.as_ref());
                self.limits.push(0);
                self.leased.push(0);
            }
        }
        let amounts = self.amounts_of(amounts)?;
        Ok(self.intern(amounts))
    }

    /// Returns the amounts by resource number. Resources that do not exist are skipped.
    fn amounts_of<S: AsRef<str>>(&self, named_amounts: &[(S, u32)]) -> Result<Amounts, DemandError> {
        let mut amounts = Amounts::new();
        for (name, amount) in named_amounts {
            let name = name.as_ref();
            if *amount == 0 {
                return Err(DemandError::Zero { resource: name.to_string() });
            }
            let Some(TaskResourceId(resource)) = self.find(name) else { continue };
            match amounts.binary_search_by(|(known, _)| known.cmp(&resource)) {
                Ok(at) => amounts[at].1 = amounts[at].1.saturating_add(*amount),
                Err(at) => amounts.insert(at, (resource, *amount)),
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

    pub(super) fn find(&self, name: &str) -> Option<TaskResourceId> {
        self.names.get(name).map(TaskResourceId)
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

    /// Returns the first resource of which a demand is short, with the amount that it needs.
    pub(super) fn shortage(&self, demand: u32) -> Option<(u32, u32)> {
        self.amounts(demand).iter().copied().find(|(resource, amount)| self.available(*resource) < *amount)
    }

    pub(super) fn needs(&self, demand: u32, resource: u32) -> bool {
        self.amounts(demand).iter().any(|(known, _)| *known == resource)
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
