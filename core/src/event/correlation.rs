//! What an event is about: the same for both streams, so that the events of a call join those of its task.
//!
//! The types that a [`Correlation`] is made of stand here, below the machines that make events. The pipeline
//! and the task stage export them under their own names.

/// A column of a [`Plan`](crate::pipeline::Plan), by its place in the order of definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct ColumnId(pub(crate) u32);

impl ColumnId {
    /// Index into [`Plan::columns`](crate::pipeline::Plan::columns).
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a column is made.
///
/// Exhaustive on purpose: a workload must know what to make for every strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Strategy {
    /// One task makes the rows of a row group. It cannot depend on cells.
    FromScratch,
    /// One task per row group, once its upstreams are complete for all rows that are still alive.
    FullColumn,
    /// One task per row, once its upstreams are complete for that row.
    Cell,
}

/// What a group's tasks do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum GroupKind {
    /// Call a model.
    Model,
    /// Call a model through code of the user's own.
    CustomModel,
    /// Compute here.
    #[default]
    Local,
}

/// What an event is about, as it was when the event was made. What does not apply is `None`, and left out of
/// JSON.
///
/// `run`, `task` and `attempt` together name one execution of a task: a task that is tried again is another
/// execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Correlation {
    /// The run: [`PipelineConfig::run`](crate::pipeline::PipelineConfig::run).
    pub run: u32,
    /// The row group, counted from 0 over the whole run.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub row_group: Option<u32>,
    /// The column.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub column: Option<ColumnId>,
    /// The row of a cell, counted from 0 within the row group.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub row: Option<u32>,
    /// How the column is made: the type of the task.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub strategy: Option<Strategy>,
    /// What the tasks of its fairness group do.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub group_kind: Option<GroupKind>,
    /// A hash of the fairness group's kind and identity, equal in every process. 16 hexadecimal digits in
    /// JSON, whose numbers do not hold 64 bits everywhere.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none", with = "crate::hex::some"))]
    pub group: Option<u64>,
    /// The task, the same for all its tries. In JSON as `group`.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none", with = "crate::hex::some"))]
    pub task: Option<u64>,
    /// The try that is under way, or was last; 1 for the first, 0 before it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub attempt: Option<u32>,
}
