//! The causes of the idle time of a run, as a table.

use std::fmt;

use tidegate_core::observe::{CauseShare, ResourceFigures, RunFigures};

use crate::app::render::table::{percent, row, slot_seconds, write_table};
use crate::app::report::progress_view::IdleView;

/// Writes a table with the idle time of each model: a line with the total, then a line for each cause,
/// largest first.
///
/// `calls` holds the names of the request resources of `figures`, in the same order.
pub(crate) fn write_idle(f: &mut fmt::Formatter<'_>, figures: &RunFigures, calls: &[String]) -> fmt::Result {
    let lines = idle_table(&RunFigures { tasks: Vec::new(), ..figures.clone() }, calls);
    if lines.len() == 1 {
        return Ok(());
    }
    write_table(f, &lines, 2)?;
    writeln!(f, "  idle = idle slots x time; share = idle / (busy + idle); every idle slot has one cause")
}

/// Returns the table of [`write_idle`] as cells, with a line of titles, and also for the task resources.
pub(crate) fn idle_table(figures: &RunFigures, calls: &[String]) -> Vec<Vec<String>> {
    let mut table = vec![row(["idle", "because", "for", "share"])];
    let tasks = figures.tasks.iter().map(|resource| (resource.name.clone(), resource));
    let requests = figures.requests.iter().zip(calls).map(|(resource, name)| (format!("calls of {name}"), resource));
    for (name, resource) in requests.chain(tasks) {
        lines_of(&name, resource, &mut table);
    }
    table
}

/// Appends the lines of one resource; none if it was never idle.
fn lines_of(name: &str, resource: &ResourceFigures, table: &mut Vec<Vec<String>>) {
    let whole = resource.busy_slot_ns + resource.idle_slot_ns;
    if resource.idle_slot_ns == 0 || whole == 0 {
        return;
    }
    let line = |name: &str, why: String, slot_ns: u128| {
        vec![name.to_string(), why, slot_seconds(slot_ns), percent(slot_ns as f64 / whole as f64)]
    };
    table.push(line(name, "total".to_string(), resource.idle_slot_ns));
    for share in &resource.why_idle {
        table.push(line("", cause_text(share), share.slot_ns));
    }
}

/// Returns the idle time of each model that was ever idle. `calls` is as in [`write_idle`].
pub(crate) fn idle_views<'a>(figures: &RunFigures, calls: impl Iterator<Item = &'a str>) -> Vec<IdleView> {
    let view = |(resource, label): (&ResourceFigures, &str)| {
        let whole = (resource.busy_slot_ns + resource.idle_slot_ns) as f64;
        let causes = resource.why_idle.iter().map(|share| (cause_text(share), share.slot_ns as f64 / whole)).collect();
        let share = resource.idle_slot_ns as f64 / whole;
        (resource.idle_slot_ns > 0).then(|| IdleView { label: label.to_string(), share, causes })
    };
    figures.requests.iter().zip(calls).filter_map(view).collect()
}

fn cause_text(share: &CauseShare) -> String {
    match &share.resource {
        Some(other) => format!("{} ({other})", share.cause),
        None => share.cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::observe::IdleCause;

    #[test]
    fn the_causes_of_a_resource_follow_their_total() {
        let share = |cause, slot_ns| CauseShare { cause, resource: None, slot_ns };
        let resource = ResourceFigures {
            busy_slot_ns: 6_000_000_000,
            idle_slot_ns: 4_000_000_000,
            why_idle: vec![share(IdleCause::Cooldown, 3_000_000_000), share(IdleCause::RunEnding, 1_000_000_000)],
            ..ResourceFigures::default()
        };
        let figures = RunFigures { requests: vec![resource], ..RunFigures::default() };
        let causes = vec![("a cooldown is in force".to_string(), 0.3), ("the run is ending".to_string(), 0.1)];
        let view = IdleView { label: "mock/a".to_string(), share: 0.4, causes };
        assert_eq!(idle_views(&figures, ["mock/a"].into_iter()), [view]);
        let table = idle_table(&figures, &["mock/a".to_string()]);
        let lines: Vec<String> = table.iter().map(|line| line.join("|")).collect();
        assert_eq!(
            lines,
            [
                "idle|because|for|share",
                "calls of mock/a|total|4.0 s|40.0 %",
                "|a cooldown is in force|3.0 s|30.0 %",
                "|the run is ending|1.0 s|10.0 %",
            ]
        );
        assert_eq!(idle_table(&RunFigures::default(), &[]).len(), 1);
    }
}
