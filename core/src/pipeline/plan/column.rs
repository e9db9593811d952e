//! The definition of one column.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::event::Strategy;
use crate::task::TaskGroup;

/// One column of a plan, and the generator that fills it.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Column {
    /// The name, unique in the plan.
    pub name: String,
    /// Further columns that the same generator fills. Downstream columns may name them as upstreams.
    pub also_fills: Vec<String>,
    /// Whether one task computes the column for a single row or for a whole row group.
    pub strategy: Strategy,
    /// The names of the columns that must be complete before this one. Duplicates have no effect.
    pub upstreams: Vec<String>,
    /// The fairness group in which the tasks of this column are queued.
    pub group: TaskGroup,
    /// The resources that one task holds while it runs, as `(resource, amount)`.
    pub demand: Vec<(String, u32)>,
    /// Whether the tasks run one at a time, in row order. See [`Column::ordered`]. Default: false.
    pub ordered: bool,
    /// Whether the column is skipped where an upstream is. See [`Column::skip_with_upstream`]. Default:
    /// false.
    pub skips_with_upstream: bool,
    /// Whether workers release their task resources while they wait for a request lease. See
    /// [`Column::yields`]. Default: `None`, which means true unless the group is local.
    #[cfg_attr(feature = "serde", serde(default))]
    pub yields: Option<bool>,
    /// The largest number of cells that start together. See [`Column::batched`]. Default: 1.
    #[cfg_attr(feature = "serde", serde(default = "one", skip_serializing_if = "is_one"))]
    pub batch_size: u32,
    /// Whether cells that are retried start in smaller batches. See [`Column::splits_retries`]. Default:
    /// false.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "core::ops::Not::not"))]
    pub splits_retries: bool,
}

#[cfg(feature = "serde")]
const fn one() -> u32 {
    1
}

#[cfg(feature = "serde")]
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
const fn is_one(size: &u32) -> bool {
    *size == 1
}

impl Column {
    /// Creates a column with no upstreams and no demand, in a local fairness group of its own.
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
            batch_size: 1,
            splits_retries: false,
        }
    }

    /// Adds an upstream column.
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

    /// Makes the tasks of this column run one at a time, in the order of row groups and of rows within each.
    ///
    /// A task that is retried keeps its turn. A dropped task passes its turn to the next one.
    #[must_use]
    pub fn ordered(mut self) -> Self {
        self.ordered = true;
        self
    }

    /// Sets whether the column is skipped where an upstream is
    /// [skipped](crate::pipeline::TaskOutcome::Skipped).
    ///
    /// If `skip` is true, a task of this column is skipped without a worker once all its upstreams are
    /// complete. If it is false (the default), the task runs as if the skipped upstream had been computed.
    ///
    /// A column for whole row groups is skipped only with an upstream for whole row groups, never with single
    /// cells.
    #[must_use]
    pub fn skip_with_upstream(mut self, skip: bool) -> Self {
        self.skips_with_upstream = skip;
        self
    }

    /// Sets whether workers of this column release their task resources while they wait for a request lease.
    ///
    /// The resources are acquired again together with the request lease: see [`yielding`](crate::yielding). A
    /// paused provider then occupies no worker slot that other tasks could use.
    #[must_use]
    pub fn yields(mut self, yields: bool) -> Self {
        self.yields = Some(yields);
        self
    }

    /// Makes up to `size` ready cells of one row group start together, for one call that computes all of
    /// them. 0 counts as 1.
    ///
    /// A batch starts when it is full, or when no further cell of the column can become ready before others
    /// of the row group have ended. Its cells are separate tasks with one outcome each, so a cell can fail or
    /// be retried without the others. One of them *leads*: only its worker holds the demand of the column,
    /// and it makes the call. The others receive their results from it: see
    /// [`Task::batch`](crate::pipeline::Task::batch).
    ///
    /// This has no effect on an [ordered](Column::ordered) column, nor on one that is computed for whole row
    /// groups.
    #[must_use]
    pub fn batched(mut self, size: u32) -> Self {
        self.batch_size = size;
        self
    }

    /// Makes the cells of a [batched](Column::batched) column start in smaller batches with each retry, and
    /// alone in the last one.
    ///
    /// For calls that fail as a whole: if one cell makes every call fail that it is part of, the others
    /// succeed without it. If the run has `n` retries, each divides the size of a batch by the same power of
    /// two, so that it is 1 in the `n`-th. Rate limits and admission timeouts are no retries.
    #[must_use]
    pub fn splits_retries(mut self) -> Self {
        self.splits_retries = true;
        self
    }
}
