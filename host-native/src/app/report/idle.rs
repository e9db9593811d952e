//! Where the idle time of a run went: a table of causes that sums to it.

use std::fmt;

use tidegate_core::observe::{ResourceFigures, RunFigures};

use crate::app::render::table::{percent, row, slot_seconds, write_table};

/// Writes a line for each model and each cause of its idle time, the largest first, under a line with the whole. `calls`
/// names the request resources of `figures`, in their order.
pub(crate) fn write_idle(f: &mut fmt::Formatter<'_>, figures: &RunFigures, calls: &[String]) -> fmt::Result {
    let lines = idle_table(&RunFigures { tasks: Vec::new(), ..figures.clone() }, calls);
    if lines.len() == 1 {
        return Ok(());
    }
    write_table(f, &lines, 2)?;
    writeln!(
        f,
        "  idle slots x time, and its share of what the resource could have done; every idle slot has one cause"
    )
}

/// The same as cells, with a line of titles, for the resources of the task stage too.
pub(crate) fn idle_table(figures: &RunFigures, calls: &[String]) -> Vec<Vec<String>> {
    let mut table = vec![row(["idle", "because", "for", "share"])];
    let tasks = figures.tasks.iter().map(|resource| (resource.name.clone(), resource));
    let requests = figures.requests.iter().zip(calls).map(|(resource, name)| (format!("calls of {name}"), resource));
    for (name, resource) in requests.chain(tasks) {
        lines_of(&name, resource, &mut table);
    }
    table
}

fn lines_of(name: &str, resource: &ResourceFigures, table: &mut Vec<Vec<String>>) {
    let whole = resource.busy_slot_ns + resource.idle_slot_ns;
    if resource.idle_slot_ns == 0 || whole == 0 {
        return;
    }
    let line = |name: &str, why: String, slot_ns: u128| {
        vec![name.to_string(), why, slot_seconds(slot_ns), percent(slot_ns as f64 / whole as f64)]
    };
    table.push(line(name, "in all".to_string(), resource.idle_slot_ns));
    for share in &resource.why_idle {
        let why = match &share.resource {
            Some(other) => format!("{} ({other})", share.cause),
            None => share.cause.to_string(),
        };
        table.push(line("", why, share.slot_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::observe::{CauseShare, IdleCause};

    #[test]
    fn the_causes_of_a_resource_stand_under_their_sum() {
        let share = |cause, slot_ns| CauseShare { cause, resource: None, slot_ns };
        let resource = ResourceFigures {
            busy_slot_ns: 6_000_000_000,
            idle_slot_ns: 4_000_000_000,
            why_idle: vec![share(IdleCause::Cooldown, 3_000_000_000), share(IdleCause::RunEnding, 1_000_000_000)],
            ..ResourceFigures::default()
        };
        let figures = RunFigures { requests: vec![resource], ..RunFigures::default() };
        let table = idle_table(&figures, &["mock/a".to_string()]);
        let lines: Vec<String> = table.iter().map(|line| line.join("|")).collect();
        assert_eq!(
            lines,
            [
                "idle|because|for|share",
                "calls of mock/a|in all|4.0 s|40.0 %",
                "|a cooldown is in force|3.0 s|30.0 %",
                "|the run is ending|1.0 s|10.0 %",
            ]
        );
        assert_eq!(idle_table(&RunFigures::default(), &[]).len(), 1);
    }
}
