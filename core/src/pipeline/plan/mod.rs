//! The columns of a run and the order in which they can be computed.
//!
//! [`PlanBuilder`] accepts columns in any order. [`PlanBuilder::build`] resolves every name once, rejects
//! invalid plans, and computes one topological order. Among the columns whose upstreams are already placed,
//! the column that was defined first comes first.

mod column;
pub(crate) mod key;
mod order;

use alloc::string::String;
use alloc::vec::Vec;

pub use crate::event::{ColumnId, Strategy};
pub use column::Column;

use crate::map::Map;
use order::{index_names, resolve_upstreams, topological_order};

/// The largest number of columns in a plan. Each column is in one fairness group, so it also limits the
/// fairness groups of a pipeline.
pub const MAX_COLUMNS: usize = 1 << 12;

/// The error when a set of columns is not a valid plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// There is no column.
    #[error("a plan needs at least one column")]
    Empty,
    /// There are more than [`MAX_COLUMNS`] columns.
    #[error("{count} columns; a plan has at most {MAX_COLUMNS}")]
    TooManyColumns {
        /// The number of columns.
        count: usize,
    },
    /// A column has an empty name, or also fills a column with an empty name.
    #[error("column number {position} (counted from 1) has an empty name or fills a column with an empty name")]
    EmptyName {
        /// The position of the column in the order of definition, counted from 1.
        position: usize,
    },
    /// A name occurs twice among the names and the `also_fills` lists of all columns.
    #[error("column `{name}` is defined twice")]
    DuplicateColumn {
        /// The duplicate name.
        name: String,
    },
    /// No column fills an upstream.
    #[error("column `{column}` needs `{upstream}`, which no column fills{}", did_you_mean(suggestion.as_deref()))]
    UnknownUpstream {
        /// The column that names the upstream.
        column: String,
        /// The name of the upstream.
        upstream: String,
        /// The most similar known name, if one is similar enough.
        suggestion: Option<String>,
    },
    /// A from-scratch column has a cell column as its upstream. A from-scratch column creates the rows, so no
    /// cell can exist before it.
    #[error("column `{column}` makes rows from scratch and cannot need `{upstream}`, which is made cell by cell")]
    CellBeforeFromScratch {
        /// The from-scratch column.
        column: String,
        /// The name of the cell upstream, as the column gives it.
        upstream: String,
    },
    /// Columns depend on each other in a cycle.
    #[error("columns need each other in a cycle: {}", cycle_text(names))]
    Cycle {
        /// The columns on the cycle. Each one is an upstream of the next, and the last one of the first.
        names: Vec<String>,
    },
}

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |name| alloc::format!("; did you mean `{name}`?"))
}

fn cycle_text(names: &[String]) -> String {
    let closed: Vec<&str> = names.iter().chain(names.first()).map(String::as_str).collect();
    closed.join(" -> ")
}

/// Builds a [`Plan`] from columns.
#[derive(Clone, Debug, Default)]
pub struct PlanBuilder {
    columns: Vec<Column>,
}

impl PlanBuilder {
    /// Creates a builder with no columns.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a column. Its upstreams may be added later.
    #[must_use]
    pub fn column(mut self, column: Column) -> Self {
        self.columns.push(column);
        self
    }

    /// Checks the columns and puts them in topological order. O(columns + edges). An
    /// [`UnknownUpstream`](PlanError::UnknownUpstream) error also costs one comparison with each name.
    pub fn build(self) -> Result<Plan, PlanError> {
        let columns = self.columns;
        if columns.is_empty() {
            return Err(PlanError::Empty);
        }
        if columns.len() > MAX_COLUMNS {
            return Err(PlanError::TooManyColumns { count: columns.len() });
        }
        let fillers = index_names(&columns)?;
        let upstreams = resolve_upstreams(&columns, &fillers)?;
        let mut downstreams: Vec<Vec<ColumnId>> = alloc::vec![Vec::new(); columns.len()];
        for (column, needed) in (0..).map(ColumnId).zip(&upstreams) {
            for upstream in needed {
                downstreams[upstream.index()].push(column);
            }
        }
        let order = topological_order(&upstreams, &downstreams).map_err(|cycle| PlanError::Cycle {
            names: cycle.iter().map(|column| columns[column.index()].name.clone()).collect(),
        })?;
        let mut ranks = alloc::vec![0; columns.len()];
        let (mut whole, mut cells) = (Vec::new(), Vec::new());
        for column in &order {
            let peers = if columns[column.index()].strategy == Strategy::Cell { &mut cells } else { &mut whole };
            ranks[column.index()] = peers.len();
            peers.push(*column);
        }
        let mut seeds = alloc::vec![false; columns.len()];
        for id in &order {
            let mut needed = upstreams[id.index()].iter();
            seeds[id.index()] = columns[id.index()].strategy != Strategy::Cell && needed.all(|up| seeds[up.index()]);
        }
        let mut batch_ranks = alloc::vec![None; columns.len()];
        let mut batched = Vec::new();
        for id in &order {
            let column = &columns[id.index()];
            if column.strategy == Strategy::Cell && !column.ordered && column.batch_size > 1 {
                batch_ranks[id.index()] = Some(batched.len());
                batched.push(*id);
            }
        }
        Ok(Plan { columns, fillers, upstreams, downstreams, order, ranks, whole, cells, batched, batch_ranks, seeds })
    }
}

/// A checked set of columns: it has no cycle, and every name is known and unique.
#[derive(Clone, Debug)]
pub struct Plan {
    columns: Vec<Column>,
    /// Maps each name to the column that fills it.
    fillers: Map<String, ColumnId>,
    upstreams: Vec<Vec<ColumnId>>,
    downstreams: Vec<Vec<ColumnId>>,
    order: Vec<ColumnId>,
    /// The position of each column in `whole` or in `cells`.
    ranks: Vec<usize>,
    /// The columns computed once per row group, in topological order.
    whole: Vec<ColumnId>,
    /// The columns computed cell by cell, in topological order.
    cells: Vec<ColumnId>,
    /// The columns whose cells start in batches, in topological order.
    batched: Vec<ColumnId>,
    /// The position of each column in `batched`.
    batch_ranks: Vec<Option<usize>>,
    seeds: Vec<bool>,
}

impl Plan {
    /// Returns the columns in the order of definition.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns one column, or `None` if the id comes from another plan and has no column here.
    #[must_use]
    pub fn column(&self, id: ColumnId) -> Option<&Column> {
        self.columns.get(id.index())
    }

    /// Returns the column that fills `name`: the column of that name, or the column that also fills it.
    #[must_use]
    pub fn column_id(&self, name: &str) -> Option<ColumnId> {
        self.fillers.get(name).copied()
    }

    /// Returns the columns in topological order: each column comes after all its upstreams.
    #[must_use]
    pub fn order(&self) -> &[ColumnId] {
        &self.order
    }

    /// Returns the distinct upstreams of `id`. The slice is empty if this plan has no column for the id.
    #[must_use]
    pub fn upstreams(&self, id: ColumnId) -> &[ColumnId] {
        self.upstreams.get(id.index()).map_or(&[], Vec::as_slice)
    }

    /// Returns the distinct downstreams of `id`. The slice is empty if this plan has no column for the id.
    #[must_use]
    pub fn downstreams(&self, id: ColumnId) -> &[ColumnId] {
        self.downstreams.get(id.index()).map_or(&[], Vec::as_slice)
    }

    /// Returns whether rows are independent of the other rows of their row group.
    ///
    /// This is true if no column has the strategy [`Strategy::FullColumn`]. A run that stops then saves row
    /// groups in part, and a later run computes only their [missing
    /// rows](crate::pipeline::PipelineConfig::missing_rows).
    #[must_use]
    pub fn keeps_parts(&self) -> bool {
        self.columns.iter().all(|column| column.strategy != Strategy::FullColumn)
    }

    pub(crate) fn is_cell(&self, id: ColumnId) -> bool {
        self.columns[id.index()].strategy == Strategy::Cell
    }

    /// Returns whether the column is a seed: it is computed for whole row groups and depends on no cell,
    /// directly or through other columns. Seeds run before the pre-batch hook.
    pub(crate) fn is_seed(&self, id: ColumnId) -> bool {
        self.seeds[id.index()]
    }

    pub(crate) fn is_ordered(&self, id: ColumnId) -> bool {
        self.columns[id.index()].ordered
    }

    pub(crate) fn skips_with_upstream(&self, id: ColumnId) -> bool {
        self.columns[id.index()].skips_with_upstream
    }

    pub(crate) fn rank(&self, id: ColumnId) -> usize {
        self.ranks[id.index()]
    }

    pub(crate) fn whole_columns(&self) -> &[ColumnId] {
        &self.whole
    }

    pub(crate) fn cell_columns(&self) -> &[ColumnId] {
        &self.cells
    }

    /// Returns the columns whose cells start in batches, in topological order.
    pub(crate) fn batched_columns(&self) -> &[ColumnId] {
        &self.batched
    }

    /// Returns the position of a column among the batched ones, or `None` if it is not batched.
    pub(crate) fn batch_rank(&self, id: ColumnId) -> Option<usize> {
        self.batch_ranks[id.index()]
    }

    /// Returns the largest number of cells of a batched column that start together, and whether it is smaller
    /// for retries.
    pub(crate) fn batch_size(&self, id: ColumnId) -> (u32, bool) {
        let column = &self.columns[id.index()];
        (column.batch_size, column.splits_retries)
    }
}
