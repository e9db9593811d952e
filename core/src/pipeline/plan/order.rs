//! Resolves the names of upstreams, and computes the topological order of the columns.

use alloc::collections::{BTreeSet, BinaryHeap};
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Column, ColumnId, PlanError, Strategy};
use crate::map::Map;

/// Maps each name to the column that fills it.
pub(super) fn index_names(columns: &[Column]) -> Result<Map<String, ColumnId>, PlanError> {
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

/// Returns the distinct upstreams of each column as ids, in ascending order.
pub(super) fn resolve_upstreams(
    columns: &[Column],
    fillers: &Map<String, ColumnId>,
) -> Result<Vec<Vec<ColumnId>>, PlanError> {
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

/// Returns the columns in topological order (Kahn's algorithm, smallest id first), or the columns of one
/// cycle as an error. Each column of the cycle is an upstream of the next.
pub(super) fn topological_order(
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
    // A column that was not placed has an upstream that was not placed, so following these upstreams ends in
    // a cycle.
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

/// Returns the name with the smallest edit distance to `wanted`, if the distance is at most a third of its
/// length. Among equal distances, the name defined first is returned.
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

/// Returns the Levenshtein distance in characters. O(a * b).
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
