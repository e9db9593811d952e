//! A column as it is defined.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::event::Strategy;
use crate::task::TaskGroup;

/// One column of a plan, and the generator that fills it.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Column {
    /// Its name, unique in the plan.
    pub name: String,
    /// Further columns that the same generator fills; downstreams may name them.
    pub also_fills: Vec<String>,
    /// How it is made.
    pub strategy: Strategy,
    /// Columns that must be complete before, by name. Naming one twice is the same as naming it once.
    pub upstreams: Vec<String>,
    /// The fairness group its tasks queue in.
    pub group: TaskGroup,
    /// What one task holds while it runs: `(resource, amount)`.
    pub demand: Vec<(String, u32)>,
    /// Whether its tasks depend on each other: see [`Column::ordered`]. Default no.
    pub ordered: bool,
    /// Whether it is skipped where an upstream is: see [`Column::skip_with_upstream`]. Default no.
    pub skips_with_upstream: bool,
    /// Whether its workers give back what they hold while they wait for a request lease: see
    /// [`Column::yields`]. Default `None`: if its group is a model's.
    #[cfg_attr(feature = "serde", serde(default))]
    pub yields: Option<bool>,
}

impl Column {
    /// A column with no upstream, in a local fairness group of its own, that demands nothing in particular.
    #[must_use]
    pub fn new(name: &str, strategy: Strategy) -> Self {
        let group = TaskGroup::local(name);
        let name = name.to_string();
        let (also_fills, upstreams, demand) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            name,
            also_fills,
            strategy,
            upstreams,
            group,
            demand,
            ordered: false,
            skips_with_upstream: false,
            yields: None,
        }
    }

    /// Adds an upstream.
    #[must_use]
    pub fn with_upstream(mut self, name: &str) -> Self {
        self.upstreams.push(name.to_string());
        self
    }

    /// Adds a column that the same generator fills.
    #[must_use]
    pub fn with_also_fills(mut self, name: &str) -> Self {
        self.also_fills.push(name.to_string());
        self
    }

    /// Replaces the fairness group.
    #[must_use]
    pub fn with_group(mut self, group: TaskGroup) -> Self {
        self.group = group;
        self
    }

    /// Adds a resource that each task holds while it runs.
    #[must_use]
    pub fn with_demand(mut self, resource: &str, amount: u32) -> Self {
        self.demand.push((resource.to_string(), amount));
        self
    }

    /// Makes the order of its tasks a promise: they run one at a time, in the order of the row groups, and of
    /// the rows within one. A task that has to be tried again keeps its turn; one that is dropped passes it
    /// on.
    #[must_use]
    pub fn ordered(mut self) -> Self {
        self.ordered = true;
        self
    }

    /// Says what it does where an upstream is [skipped](crate::pipeline::TaskOutcome::Skipped): it is skipped
    /// too, without a worker, once all its upstreams are complete; or (the default) it runs as if the
    /// upstream had been made.
    ///
    /// A column for whole row groups is skipped with an upstream for whole row groups, never with single
    /// cells.
    #[must_use]
    pub fn skip_with_upstream(mut self, skip: bool) -> Self {
        self.skips_with_upstream = skip;
        self
    }

    /// Says whether its workers give back what they hold while they wait for a request lease, and take it
    /// again together with that: see [`yielding`](crate::yielding). A provider that pauses then keeps no
    /// worker slot from others.
    #[must_use]
    pub fn yields(mut self, yields: bool) -> Self {
        self.yields = Some(yields);
        self
    }
}
