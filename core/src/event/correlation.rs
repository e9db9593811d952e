//! The subject of an event. Both event streams use it, so events of a call can be joined with those of its
//! task.
//!
//! The component types of a [`Correlation`] are defined here, below the machines that emit events. The
//! [`pipeline`](crate::pipeline) and [`task`](crate::task) modules export them under their own names.

/// A column of a [`Plan`](crate::pipeline::Plan), identified by its index in definition order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct ColumnId(pub(crate) u32);

impl ColumnId {
    /// Returns the index into [`Plan::columns`](crate::pipeline::Plan::columns).
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How the cells of a column are produced.
///
/// Exhaustive on purpose: a workload must handle every strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Strategy {
    /// One task creates the rows of a row group. It cannot depend on other cells.
    FromScratch,
    /// One task per row group. It starts once its upstream columns are complete for all live rows.
    FullColumn,
    /// One task per row. It starts once its upstream columns are complete for that row.
    Cell,
}

/// What the tasks of a fairness group do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum GroupKind {
    /// Call a model.
    Model,
    /// Call a model through user code.
    CustomModel,
    /// Compute locally.
    #[default]
    Local,
}

/// The subject of an event, as of the time when the event was emitted. Fields that do not apply are `None`,
/// and absent in JSON.
///
/// `run`, `task` and `attempt` together identify one execution of a task. A retried task is another
/// execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Correlation {
    /// The run: [`PipelineConfig::run`](crate::pipeline::PipelineConfig::run).
    pub run: u32,
    /// The row group, counted from 0 over the whole run.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub row_group: Option<u32>,
    /// The column of the task.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub column: Option<ColumnId>,
    /// The row of a cell, counted from 0 within the row group.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub row: Option<u32>,
    /// How the column is produced, which is the type of the task.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub strategy: Option<Strategy>,
    /// What the tasks of the fairness group do.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub group_kind: Option<GroupKind>,
    /// A hash of the kind and identity of the fairness group, equal in every process. Written as 16
    /// hexadecimal digits in JSON, because JSON numbers do not hold 64 bits everywhere.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none", with = "crate::hex::some"))]
    pub group: Option<u64>,
    /// A hash that identifies the task, the same for all its attempts. Written like `group` in JSON.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none", with = "crate::hex::some"))]
    pub task: Option<u64>,
    /// The number of the current or latest attempt: 1 for the first, 0 before it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub attempt: Option<u32>,
}
