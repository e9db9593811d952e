//! The `Display` of a report: the judgement in one line, a table of the groups, and a table of the criteria.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::criteria::{nanos, percent, service_permille, slot_time};
use super::{Criterion, Judgement, PolicyReport};
use crate::observe::GroupService;

impl fmt::Display for PolicyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let result = if self.is_good() { "good" } else { "BAD" };
        writeln!(f, "policy in `{}`: {result}\n", self.scenario)?;
        let heads = ["group", "weight", "resource", "hold", "contended", "service", "starved", "borrowed", "overdrawn"];
        let groups = core::iter::once(heads.map(String::from)).chain(self.groups.iter().map(group_cells));
        write_table(f, &groups.collect::<Vec<_>>())?;
        writeln!(f)?;
        let heads = ["criterion", "judgement", "group", "found", "threshold"];
        let results = self.results.iter().map(|result| {
            [
                result.criterion.to_string(),
                result.judgement.to_string(),
                result.group.clone().unwrap_or_default(),
                result.found.clone(),
                result.threshold.clone(),
            ]
        });
        write_table(f, &core::iter::once(heads.map(String::from)).chain(results).collect::<Vec<_>>())
    }
}

fn group_cells(group: &GroupService) -> [String; 9] {
    let weight = alloc::format!("{}.{:03}", group.weight_permille / 1_000, group.weight_permille % 1_000);
    [
        group.group.clone(),
        weight.trim_end_matches('0').trim_end_matches('.').to_string(),
        group.resource.clone(),
        nanos(group.longest_hold_ns),
        nanos(group.contended_ns),
        service_permille(group).map_or_else(|| "-".to_string(), percent),
        nanos(group.longest_starved_ns),
        alloc::format!("{} of {}", slot_time(group.borrowed_slot_ns), slot_time(group.borrowable_slot_ns)),
        nanos(group.longest_overdrawn_ns),
    ]
}

/// Writes rows with two spaces before each cell. The last cell of a row is not padded.
fn write_table<const CELLS: usize>(f: &mut fmt::Formatter<'_>, rows: &[[String; CELLS]]) -> fmt::Result {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; CELLS] = core::array::from_fn(width);
    for row in rows {
        for (cell, width) in row[..CELLS - 1].iter().zip(widths) {
            write!(f, "  {cell:<width$}")?;
        }
        writeln!(f, "  {}", row[CELLS - 1])?;
    }
    Ok(())
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Run => "run",
            Self::Progress => "progress",
            Self::Service => "service",
            Self::Starvation => "starvation",
            Self::Borrowing => "borrowing",
            Self::Repayment => "repayment",
            Self::WallTime => "wall time",
        })
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Good => "good",
            Self::Bad => "BAD",
            Self::NotShown => "not shown",
        })
    }
}
