//! The columns of a run and the order in which they can be made.
//!
//! [`PlanBuilder`] takes columns in any order; [`PlanBuilder::build`] resolves every name once, refuses what
//! cannot work, and fixes one topological order: among the columns whose upstreams are placed, the first
//! defined comes first.

pub(crate) mod key;

use alloc::collections::{BTreeSet, BinaryHeap};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::map::Map;
use crate::task::TaskGroup;

/// The largest number of columns in a plan, and so of fairness groups in a pipeline: a column is in one.
pub const MAX_COLUMNS: usize = 1 << 12;

/// A column of a [`Plan`], by its place in the order of definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct ColumnId(pub(crate) u32);

impl ColumnId {
    /// Index into [`Plan::columns`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a column is made.
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
    /// again together with that: see [`tie`](crate::yielding). A provider that pauses then keeps no worker
    /// slot from others.
    #[must_use]
    pub fn yields(mut self, yields: bool) -> Self {
        self.yields = Some(yields);
        self
    }
}

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

fn index_names(columns: &[Column]) -> Result<Map<String, ColumnId>, PlanError> {
    let mut fillers = Map::default();
    for (id, column) in (0..).map(ColumnId).zip(columns) {
        for name in core::iter::once(&column.name).chain(&column.also_fills) {
            if name.is_empty() {
                return Err(PlanError::EmptyName { position: id.index() + 1 });
            }
            if fillers.insert(name.clone(), id).is_some() {
                return Err(PlanError::DuplicateColumn { name: name.clone() });
            }
        }
    }
    Ok(fillers)
}

fn resolve_upstreams(columns: &[Column], fillers: &Map<String, ColumnId>) -> Result<Vec<Vec<ColumnId>>, PlanError> {
    let mut resolved = Vec::with_capacity(columns.len());
    for column in columns {
        let mut needed = BTreeSet::new();
        for upstream in &column.upstreams {
            let Some(id) = fillers.get(upstream) else {
                return Err(PlanError::UnknownUpstream {
                    column: column.name.clone(),
                    upstream: upstream.clone(),
                    suggestion: nearest_name(columns, column, upstream),
                });
            };
            if column.strategy == Strategy::FromScratch && columns[id.index()].strategy == Strategy::Cell {
                let upstream = upstream.clone();
                return Err(PlanError::CellBeforeFromScratch { column: column.name.clone(), upstream });
            }
            needed.insert(*id);
        }
        resolved.push(needed.into_iter().collect());
    }
    Ok(resolved)
}

/// Kahn's algorithm, the smallest id first; or the columns of one cycle, each an upstream of the next.
fn topological_order(
    upstreams: &[Vec<ColumnId>],
    downstreams: &[Vec<ColumnId>],
) -> Result<Vec<ColumnId>, Vec<ColumnId>> {
    let mut missing: Vec<usize> = upstreams.iter().map(Vec::len).collect();
    let ids = || (0..).map(ColumnId).take(upstreams.len());
    let mut ready: BinaryHeap<Reverse<ColumnId>> = ids().filter(|id| missing[id.index()] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(upstreams.len());
    while let Some(Reverse(next)) = ready.pop() {
        order.push(next);
        for downstream in &downstreams[next.index()] {
            missing[downstream.index()] -= 1;
            if missing[downstream.index()] == 0 {
                ready.push(Reverse(*downstream));
            }
        }
    }
    // A column that was not placed has an upstream that was not placed: following those must come round.
    let blocked_upstream = |id: ColumnId| upstreams[id.index()].iter().copied().find(|up| missing[up.index()] > 0);
    let Some(start) = ids().find(|id| missing[id.index()] > 0) else {
        return Ok(order);
    };
    let mut path = Vec::from([start]);
    let mut place_on_path: Vec<Option<usize>> = alloc::vec![None; upstreams.len()];
    place_on_path[start.index()] = Some(0);
    let mut last = start;
    while let Some(next) = blocked_upstream(last) {
        if let Some(entry) = place_on_path[next.index()] {
            path.drain(..entry);
            break;
        }
        place_on_path[next.index()] = Some(path.len());
        path.push(next);
        last = next;
    }
    path.reverse();
    Err(path)
}

/// The name that differs least from `wanted`, if by no more than a third of its length; the first defined of
/// equals.
fn nearest_name(columns: &[Column], asking: &Column, wanted: &str) -> Option<String> {
    let tolerance = (wanted.chars().count() / 3).max(1);
    columns
        .iter()
        .filter(|column| column.name != asking.name)
        .flat_map(|column| core::iter::once(&column.name).chain(&column.also_fills))
        .map(|name| (edit_distance(name, wanted), name))
        .filter(|(distance, _)| *distance <= tolerance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name.clone())
}

/// Levenshtein distance in characters. O(a * b).
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
