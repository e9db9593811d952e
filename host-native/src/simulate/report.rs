//! What a simulated run came to: as text for a person, as JSON for a program.

use std::fmt;

use serde::Serialize;
use tidegate_core::observe::{Distribution, ResourceFigures, RunFigures};
use tidegate_core::pipeline::RunReport;
use tidegate_core::sim::scenario::Scenario;
use tidegate_core::sim::suite::idle::LowerBound;
use tidegate_core::sim::world::{Observation, World};
use tidegate_core::time::Duration;

use crate::error::Error;
use crate::table::{percent, row, write_table};

/// The version of the JSON: raised when a field changes its meaning or goes away.
pub const SCHEMA: u32 = 1;

/// Observations that are shown of what led to a violation.
const SHOWN: usize = 12;

/// What a simulated run came to.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The scenario's name.
    pub scenario: String,
    /// Its headline.
    pub title: String,
    /// What it shows.
    pub description: String,
    /// The seed.
    pub seed: u64,
    /// A hash over every decision, in 16 hexadecimal digits.
    pub digest: String,
    /// The law that was broken first, if one was.
    pub violation: Option<String>,
    /// The last things seen before that, the oldest first.
    pub led_to_it: Vec<String>,
    /// How the run ended.
    pub run: RunReport,
    /// The least time that any scheduler needs for the scenario.
    pub lower_bound_ns: u64,
    /// What that is set by.
    pub lower_bound_set_by: String,
    /// What each provider said.
    pub providers: Vec<ProviderAnswers>,
    /// Where the capacity went.
    pub figures: RunFigures,
}

/// What a provider said.
#[derive(Clone, Debug, Serialize)]
pub struct ProviderAnswers {
    /// The model.
    pub model: String,
    /// Calls it accepted.
    pub accepted: u64,
    /// Calls it refused.
    pub refused: u64,
    /// Its limit at the end.
    pub limit: u32,
}

impl Report {
    /// The report of a world that has come to its end.
    pub fn of(scenario: &Scenario, seed: u64, world: &World) -> Result<Self, Error> {
        let internal = |what: &str| Error::Internal(format!("{}: {what}", scenario.name));
        let bound = LowerBound::of(scenario).map_err(|error| internal(&error.to_string()))?;
        let latest: Vec<String> = world.observations().map(Observation::to_string).collect();
        let violation = world.violation().map(ToString::to_string);
        let led_to_it =
            if violation.is_some() { latest[latest.len().saturating_sub(SHOWN)..].to_vec() } else { Vec::new() };
        let providers = world.sample().providers.into_iter().map(|provider| ProviderAnswers {
            model: provider.name,
            accepted: provider.accepted,
            refused: provider.refused,
            limit: provider.limit,
        });
        Ok(Self {
            schema: SCHEMA,
            scenario: scenario.name.clone(),
            title: scenario.title.clone(),
            description: scenario.description.clone(),
            seed,
            digest: format!("{:016x}", world.digest()),
            violation,
            led_to_it,
            run: world.finished().ok_or_else(|| internal("it stands still and has not ended"))?.clone(),
            lower_bound_ns: bound.at_least.as_nanos(),
            lower_bound_set_by: bound.set_by,
            providers: providers.collect(),
            figures: world.figures().ok_or_else(|| internal("it was not accounted for"))?,
        })
    }

    /// The report as JSON, with a line end.
    pub fn to_json(&self) -> Result<String, Error> {
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::Internal(error.to_string()))?;
        Ok(text + "\n")
    }

    fn write_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = &self.run;
        writeln!(f, "  rows in      {:>10}", run.rows_in)?;
        writeln!(f, "  rows out     {:>10}", run.rows_out)?;
        writeln!(f, "  dropped      {:>10}", run.rows_dropped)?;
        for dropped in &run.dropped {
            let column = dropped.column.and_then(|id| run.columns.get(id.index())).map_or("-", |column| &column.name);
            writeln!(f, "               {:>10}   {column}: {}", dropped.rows, dropped.reason)?;
        }
        writeln!(f, "  wall time    {:>10}   in virtual time", run.elapsed().to_string())?;
        if self.lower_bound_ns > 0 {
            let bound = Duration::from_nanos(self.lower_bound_ns).to_string();
            writeln!(f, "  lower bound  {bound:>10}   {}", self.lower_bound_set_by)?;
        }
        writeln!(f, "  digest       {}", self.digest)?;
        match &self.violation {
            None => writeln!(f, "  laws         all kept"),
            Some(violation) => {
                writeln!(f, "  laws         {violation}")?;
                self.led_to_it.iter().try_for_each(|seen| writeln!(f, "               {seen}"))
            }
        }
    }

    fn write_resources(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles = ["resource", "limit", "most", "utilisation", "starved", "frontier", "mostly idle because"];
        let mut table = vec![row(titles)];
        let tasks = self.figures.tasks.iter().map(|resource| (resource.name.clone(), resource));
        let calls = self.providers.iter().zip(&self.figures.requests);
        let calls = calls.map(|(provider, resource)| (format!("calls of {}", provider.model), resource));
        table.extend(tasks.chain(calls).map(|(name, resource)| line(name, resource)));
        // Words go to the left, and numbers to the right.
        let width = table.iter().filter_map(|line| line.last()).map(|cell| cell.chars().count()).max().unwrap_or(0);
        for cell in table.iter_mut().filter_map(|line| line.last_mut()) {
            *cell = format!("{cell:<width$}");
        }
        write_table(f, &table, 1)?;
        writeln!(f, "  starved: idle while something queued wanted it; frontier: idle while nothing did")
    }

    fn write_providers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = vec![row(["provider", "accepted", "refused", "limit at the end"])];
        for ProviderAnswers { model, accepted, refused, limit } in &self.providers {
            table.push(vec![model.clone(), accepted.to_string(), refused.to_string(), limit.to_string()]);
        }
        write_table(f, &table, 1)
    }

    fn write_waits(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = &self.figures;
        let mut table = vec![row(["waiting", "times", "mean", "p50", "p95", "most"])];
        for (what, waits) in [
            ("from the queue to a worker", &figures.queue_age),
            ("from ready to a worker", &figures.downstream_ready_gap),
            ("for a call", &figures.request_wait),
        ] {
            table.push(distribution(what, waits));
        }
        write_table(f, &table, 1)?;
        let RunFigures { dispatched, advisory_skips, yields, liveness_overrides, .. } = figures;
        writeln!(
            f,
            "  {dispatched} tasks started, {advisory_skips} passed over for now, {yields} workers yielded, \
             {liveness_overrides} started against the policy"
        )
    }
}

fn line(name: String, resource: &ResourceFigures) -> Vec<String> {
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

fn distribution(what: &str, waits: &Distribution) -> Vec<String> {
    let nanos = [waits.mean_ns, waits.p50_ns, waits.p95_ns, waits.max_ns];
    let nanos = nanos.map(|nanos| Duration::from_nanos(nanos).to_string());
    [what.to_string(), waits.count.to_string()].into_iter().chain(nanos).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}, seed {})", self.title, self.scenario, self.seed)?;
        writeln!(f, "{}", self.description)?;
        writeln!(f, "\nended: {}\n", self.run.stop)?;
        self.write_rows(f)?;
        writeln!(f)?;
        self.write_resources(f)?;
        if !self.providers.is_empty() {
            writeln!(f)?;
            self.write_providers(f)?;
        }
        writeln!(f)?;
        self.write_waits(f)
    }
}
