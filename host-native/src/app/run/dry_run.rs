//! `tidegate run --dry-run`: what would be run and what it would take. Nobody is called and nothing is written. What would keep the run
//! from starting is an error here, too.

use std::fmt;

use tidegate_core::pipeline::{Pipeline, Strategy};

use crate::app::config::pipeline::PipelineFile;
use crate::app::error::Error;
use crate::app::provider::cost::Money;
use crate::app::render::table::{row, write_table};
use crate::app::run::estimate::{ColumnEstimate, SAMPLE_ROWS, in_order};
use crate::app::run::events::Watch;
use crate::app::run::models::plan_gate;
use crate::app::run::pipeline_config;
use crate::app::run::preflight::{Preflight, Ready};
use crate::app::run::request::RunRequest;
use crate::app::run::resolve::{GeneratedColumn, Input, Job};
use crate::host::TokioHost;

/// What a run would be, to be printed.
#[derive(Clone, Debug)]
pub struct DryRun {
    name: String,
    /// Rows of the run and of the dataset, row groups, rows of each.
    rows: (u64, u64, u64, u32),
    columns: Vec<Vec<String>>,
    models: Vec<Vec<String>>,
    notes: Vec<String>,
    /// What all calls would cost, if the file has prices, and the limit.
    cost: Option<(Money, String)>,
    max_cost: Option<Money>,
    capacity: String,
}

/// Resolves everything that a run would, and estimates what it would take. Needs a tokio runtime, for its clock.
pub fn dry_run(request: &RunRequest) -> Result<DryRun, Error> {
    let Ready { name, file, job, estimates } = Preflight::of(request)?.ready()?;
    let host = TokioHost::current().map_err(|error| Error::Internal(error.to_string()))?;
    let rows = job.rows.end - job.rows.start;
    let config = pipeline_config(&file, rows);
    Pipeline::new(job.plan.clone(), config.clone()).map_err(|error| Error::Setting(error.to_string()))?;
    let gate = plan_gate(&file, &host)?;
    let capacity =
        Watch::new(&job.plan, &config, &file.run, &gate).with_file(&file, request.max_cost).capacity().to_string();
    let size = file.run.row_group_size.get();
    let (models, cost) = models(&file, &job, &estimates);
    Ok(DryRun {
        name,
        rows: (rows, job.dataset.rows(), rows.div_ceil(u64::from(size)), size),
        columns: columns(&file, &job, &estimates),
        models,
        notes: notes(&job, &estimates),
        cost,
        max_cost: request.max_cost,
        capacity,
    })
}

/// The DAG as a table: each column after those it reads.
fn columns(file: &PipelineFile, job: &Job, estimates: &[ColumnEstimate]) -> Vec<Vec<String>> {
    let titles = ["column", "kind", "filled by", "per", "reads", "tasks", "calls", "input tokens", "output tokens"];
    let mut table = vec![row(titles)];
    for at in in_order(job) {
        let (column, spec, estimate) = (&job.columns[at], &file.columns[at], &estimates[at]);
        let calls = if estimate.is_at_most { format!("<= {}", estimate.calls) } else { estimate.calls.to_string() };
        table.push(vec![
            column.name.clone(),
            spec.kind.name().to_string(),
            spec.kind.model().map_or_else(|| "-".to_string(), |model| file.models[model].name.clone()),
            if column.strategy == Strategy::Cell { "row" } else { "row group" }.to_string(),
            reads(job, column),
            estimate.tasks.to_string(),
            calls,
            estimate.input_tokens.to_string(),
            estimate.output_tokens.to_string(),
        ]);
    }
    table
}

/// The columns that `column` reads, by name.
fn reads(job: &Job, column: &GeneratedColumn) -> String {
    let is_column = |input: &&Input| **input != Input::RowNumber;
    let names: Vec<&str> = column.inputs.iter().filter(is_column).filter_map(|input| job.input_name(*input)).collect();
    if names.is_empty() { "-".to_string() } else { names.join(", ") }
}

/// What each model would be asked for, and what all of them would cost.
fn models(file: &PipelineFile, job: &Job, estimates: &[ColumnEstimate]) -> (Vec<Vec<String>>, Option<(Money, String)>) {
    let mut table = vec![row(["model", "provider", "calls", "input tokens", "output tokens", "cost"])];
    let mut total = None;
    for (index, model) in file.models.iter().enumerate() {
        let calls_it = |at: &usize| file.columns[*at].kind.model() == Some(index);
        let of_model: Vec<&ColumnEstimate> = (0..job.columns.len()).filter(calls_it).map(|at| &estimates[at]).collect();
        let sum = |read: fn(&ColumnEstimate) -> u64| of_model.iter().map(|estimate| read(estimate)).sum::<u64>();
        let (input, output) = (sum(|estimate| estimate.input_tokens), sum(|estimate| estimate.output_tokens));
        let cost = model.price.map(|price| price.of_many(input, output));
        if let Some(cost) = cost {
            total = Some(total.unwrap_or_else(Money::default).plus(cost));
        }
        table.push(vec![
            model.name.clone(),
            model.label(),
            sum(|estimate| estimate.calls).to_string(),
            input.to_string(),
            output.to_string(),
            cost.map_or_else(|| "-".to_string(), |cost| cost.to_string()),
        ]);
    }
    (table, total.map(|total| (total, file.currency.clone())))
}

fn notes(job: &Job, estimates: &[ColumnEstimate]) -> Vec<String> {
    let sample = SAMPLE_ROWS.min(job.rows.end - job.rows.start);
    let mut notes = vec![format!(
        "Tokens are estimated from the templates as rendered for the first {sample} rows, at four characters a token; answers \
         count as `answer_tokens`, else `max_tokens`, else 256. Retries are not counted."
    )];
    for (column, estimate) in job.columns.iter().zip(estimates).filter(|(_, estimate)| estimate.unrendered > 0) {
        let why = match &estimate.failure {
            Some(failure) => format!("such as {}. The run would drop them", failure.error),
            None => "it looks into values that only a run brings".to_string(),
        };
        notes
            .push(format!("`{}` could not be rendered for {} of these rows: {why}.", column.name, estimate.unrendered));
    }
    notes
}

impl fmt::Display for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, of, groups, size) = self.rows;
        writeln!(f, "{}: a dry run; nothing is called or written", self.name)?;
        writeln!(f)?;
        writeln!(f, "  rows  {rows} of {of}, in {groups} row groups of at most {size}")?;
        writeln!(f)?;
        write_table(f, &self.columns, 5)?;
        if self.models.len() > 1 {
            writeln!(f)?;
            write_table(f, &self.models, 2)?;
        }
        writeln!(f)?;
        if let Some((cost, currency)) = &self.cost {
            write!(f, "  cost  about {cost} {currency}")?;
            match self.max_cost {
                Some(limit) if *cost > limit => {
                    writeln!(f, ", more than the limit of {limit}: the run would stop before its end")?;
                }
                Some(limit) => writeln!(f, ", within the limit of {limit}")?,
                None => writeln!(f)?,
            }
            writeln!(f)?;
        }
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        writeln!(f)?;
        write!(f, "{}", self.capacity)
    }
}
