//! The report of a simulated run as text and as JSON.

use std::fmt;

use tidegate_core::observe::{Distribution, ResourceFigures, RunFigures};
use tidegate_core::sim::report::{ProviderAnswers, Report};
use tidegate_core::time::Duration;

use crate::app::error::Error;
use crate::app::render::table::{percent, row, write_table};

/// Returns the report as JSON, with a final newline.
pub(super) fn to_json(report: &Report) -> Result<String, Error> {
    let text = serde_json::to_string_pretty(report).map_err(|error| Error::Internal(error.to_string()))?;
    Ok(text + "\n")
}

/// Displays a report as text.
pub(super) struct TextReport<'a>(pub(super) &'a Report);

impl TextReport<'_> {
    fn write_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = &self.0.run;
        writeln!(f, "  rows in      {:>10}", run.rows_in)?;
        writeln!(f, "  rows out     {:>10}", run.rows_out)?;
        writeln!(f, "  dropped      {:>10}", run.rows_dropped)?;
        for dropped in &run.dropped {
            let column = run.columns.get(dropped.column.index()).map_or("-", |column| &column.name);
            writeln!(f, "               {:>10}   {column}: {}", dropped.rows, dropped.reason)?;
        }
        if run.rows_unmade > 0 {
            writeln!(f, "  unmade       {:>10}   the run stopped before them", run.rows_unmade)?;
        }
        writeln!(f, "  wall time    {:>10}   in virtual time", (run.ended - run.started).to_string())?;
        if self.0.lower_bound_ns > 0 {
            let bound = Duration::from_nanos(self.0.lower_bound_ns).to_string();
            writeln!(f, "  lower bound  {bound:>10}   {}", self.0.lower_bound_set_by)?;
        }
        writeln!(f, "  digest       {}", self.0.digest)?;
        match &self.0.violation {
            None => writeln!(f, "  laws         all kept"),
            Some(violation) => {
                writeln!(f, "  laws         {violation}")?;
                self.0.led_to_it.iter().try_for_each(|seen| writeln!(f, "               {seen}"))
            }
        }
    }

    fn write_resources(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles = ["resource", "limit", "most", "utilisation", "starved", "frontier", "mostly idle because"];
        let mut table = vec![row(titles)];
        let tasks = self.0.figures.tasks.iter().map(|resource| (resource.name.clone(), resource));
        let calls = self.0.providers.iter().zip(&self.0.figures.requests);
        let calls = calls.map(|(provider, resource)| (format!("calls of {}", provider.model), resource));
        table.extend(tasks.chain(calls).map(|(name, resource)| resource_row(name, resource)));
        // `write_table` aligns to the right; the last column contains words and is aligned to the left.
        let width = table.iter().filter_map(|line| line.last()).map(|cell| cell.chars().count()).max().unwrap_or(0);
        for cell in table.iter_mut().filter_map(|line| line.last_mut()) {
            *cell = format!("{cell:<width$}");
        }
        write_table(f, &table, 1)?;
        writeln!(f, "  starved: idle while a queued task demanded it; frontier: idle while no task did")
    }

    fn write_providers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = vec![row(["provider", "accepted", "refused", "limit at the end"])];
        for ProviderAnswers { model, accepted, refused, limit, .. } in &self.0.providers {
            table.push(vec![model.clone(), accepted.to_string(), refused.to_string(), limit.to_string()]);
        }
        write_table(f, &table, 1)
    }

    fn write_waits(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = &self.0.figures;
        let mut table = vec![row(["waiting", "times", "mean", "p50", "p95", "most"])];
        for (what, waits) in [
            ("from the queue to a worker", &figures.queue_age),
            ("from ready to a worker", &figures.downstream_ready_gap),
            ("for a call", &figures.request_wait),
        ] {
            table.push(distribution_row(what, waits));
        }
        write_table(f, &table, 1)?;
        let RunFigures { dispatched, advisory_skips, yields, liveness_overrides, .. } = figures;
        writeln!(
            f,
            "  {dispatched} tasks started, {advisory_skips} skipped for now, {yields} workers yielded, \
             {liveness_overrides} started against the policy"
        )
    }
}

fn resource_row(name: String, resource: &ResourceFigures) -> Vec<String> {
    let whole = (resource.busy_slot_ns + resource.idle_slot_ns) as f64;
    let share = |part: u128| if whole > 0.0 { percent(part as f64 / whole) } else { "-".to_string() };
    let why = resource.why_idle.first().map_or_else(String::new, |cause| match &cause.resource {
        Some(other) => format!("{} ({other})", cause.cause),
        None => cause.cause.to_string(),
    });
    vec![
        name,
        resource.limit.to_string(),
        resource.max_leased.to_string(),
        share(resource.busy_slot_ns),
        share(resource.starved_slot_ns),
        share(resource.frontier_slot_ns),
        why,
    ]
}

fn distribution_row(what: &str, waits: &Distribution) -> Vec<String> {
    let nanos = [waits.mean_ns, waits.p50_ns, waits.p95_ns, waits.max_ns];
    let nanos = nanos.map(|nanos| Duration::from_nanos(nanos).to_string());
    [what.to_string(), waits.count.to_string()].into_iter().chain(nanos).collect()
}

impl fmt::Display for TextReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        writeln!(f, "{} ({}, seed {})", report.title, report.scenario, report.seed)?;
        writeln!(f, "{}", report.description)?;
        match &report.run.stop {
            Some(stop) => writeln!(f, "\nended: {stop}\n")?,
            None => writeln!(f, "\nhas not ended\n")?,
        }
        self.write_rows(f)?;
        writeln!(f)?;
        self.write_resources(f)?;
        if !report.providers.is_empty() {
            writeln!(f)?;
            self.write_providers(f)?;
        }
        writeln!(f)?;
        self.write_waits(f)
    }
}
