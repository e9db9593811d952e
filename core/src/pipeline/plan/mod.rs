//! The columns of a run and the order in which they can be made.
//!
//! [`PlanBuilder`] takes columns in any order; [`PlanBuilder::build`] resolves every name once, refuses what
//! cannot work, and fixes one topological order: among the columns whose upstreams are placed, the first
//! defined comes first.

mod column;
pub(crate) mod key;
mod order;

use alloc::string::String;
use alloc::vec::Vec;

pub use crate::event::{ColumnId, Strategy};
pub use column::Column;

use crate::map::Map;
use order::{index_names, resolve_upstreams, topological_order};

/// The largest number of columns in a plan, and so of fairness groups in a pipeline: a column is in one.
pub const MAX_COLUMNS: usize = 1 << 12;

/// Why a set of columns is not a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// No column at all.
    #[error("a plan needs at least one column")]
    Empty,
    /// More than [`MAX_COLUMNS`].
    #[error("{count} columns; a plan has at most {MAX_COLUMNS}")]
    TooManyColumns {
        /// How many there were.
        count: usize,
    },
    /// A column, or one that it also fills, has an empty name.
    #[error("column number {position} (counted from 1) has an empty name or fills a column with an empty name")]
    EmptyName {
        /// Its place in the order of definition, from 1.
        position: usize,
    },
    /// Two columns, or one and another's `also_fills`, have the same name.
    #[error("column `{name}` is defined twice")]
    DuplicateColumn {
        /// The name.
        name: String,
    },
    /// An upstream that no column fills.
    #[error("column `{column}` needs `{upstream}`, which no column fills{}", did_you_mean(suggestion.as_deref()))]
    UnknownUpstream {
        /// The column that names it.
        column: String,
        /// What it named.
        upstream: String,
        /// The nearest name there is, when one is near.
        suggestion: Option<String>,
    },
    /// A from-scratch column makes the rows, so there are no cells before it.
    #[error("column `{column}` makes rows from scratch and cannot need `{upstream}`, which is made cell by cell")]
    CellBeforeFromScratch {
        /// The from-scratch column.
        column: String,
        /// Its cell upstream, as it was named.
        upstream: String,
    },
    /// Columns that need each other.
    #[error("columns need each other in a cycle: {}", cycle_text(names))]
    Cycle {
        /// The columns on the cycle; each one is an upstream of the next, and the last of the first.
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

/// Collects the columns of a plan.
#[derive(Clone, Debug, Default)]
pub struct PlanBuilder {
    columns: Vec<Column>,
}

impl PlanBuilder {
    /// No columns yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a column. Upstreams may be added later.
    #[must_use]
    pub fn column(mut self, column: Column) -> Self {
        self.columns.push(column);
        self
    }

    /// Checks and orders the columns. O(columns + edges), and once more for an error's suggestion.
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
        Ok(Plan { columns, fillers, upstreams, downstreams, order, ranks, whole, cells, seeds })
    }
}

/// Checked columns: no cycle, every name known and unique.
#[derive(Clone, Debug)]
pub struct Plan {
    columns: Vec<Column>,
    /// Name to the column that fills it.
    fillers: Map<String, ColumnId>,
    upstreams: Vec<Vec<ColumnId>>,
    downstreams: Vec<Vec<ColumnId>>,
    order: Vec<ColumnId>,
    /// Each column's place among `whole` or among `cells`.
    ranks: Vec<usize>,
    /// The columns made once per row group, in topological order.
    whole: Vec<ColumnId>,
    /// The columns made cell by cell, in topological order.
    cells: Vec<ColumnId>,
    seeds: Vec<bool>,
}

impl Plan {
    /// The columns in the order of definition.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// One column; `None` for the id of another plan that this one has no column for.
    #[must_use]
    pub fn column(&self, id: ColumnId) -> Option<&Column> {
        self.columns.get(id.index())
    }

    /// The column that fills `name`: the column of that name, or the one that also fills it.
    #[must_use]
    pub fn column_id(&self, name: &str) -> Option<ColumnId> {
        self.fillers.get(name).copied()
    }

    /// The columns in an order in which each comes after all of its upstreams.
    #[must_use]
    pub fn order(&self) -> &[ColumnId] {
        &self.order
    }

    /// The distinct columns that `id` waits for; empty for an id this plan has no column for.
    #[must_use]
    pub fn upstreams(&self, id: ColumnId) -> &[ColumnId] {
        self.upstreams.get(id.index()).map_or(&[], Vec::as_slice)
    }

    /// The distinct columns that wait for `id`; empty for an id this plan has no column for.
    #[must_use]
    pub fn downstreams(&self, id: ColumnId) -> &[ColumnId] {
        self.downstreams.get(id.index()).map_or(&[], Vec::as_slice)
    }

    /// Whether no row depends on the others of its row group: every column is made from scratch or cell by
    /// cell. A run that stops then saves row groups in part, and a later one makes just their [missing
    /// rows](crate::pipeline::PipelineConfig::missing_rows).
    #[must_use]
    pub fn keeps_parts(&self) -> bool {
        self.columns.iter().all(|column| column.strategy != Strategy::FullColumn)
    }

    pub(crate) fn is_cell(&self, id: ColumnId) -> bool {
        self.columns[id.index()].strategy == Strategy::Cell
    }

    /// Whether the column is made for whole row groups and needs no cell, not even through others: it comes
    /// before the pre-batch hook.
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
}
