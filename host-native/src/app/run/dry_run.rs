//! `tidegate run --dry-run`: prints the plan of a run and its estimated tokens and cost. Makes no call and
//! writes nothing. Reports every error that would prevent the run.

use std::fmt;
use std::io::{self, Write as _};

use tidegate_core::pipeline::{Pipeline, Strategy};

use crate::app::config::pipeline::{ColumnSpec, PipelineFile, UniqueSpec};
use crate::app::data::row_file::RowFormat;
use crate::app::error::Error;
use crate::app::output::ExportFile;
use crate::app::provider::cost::Money;
use crate::app::render::table::{row, write_table};
use crate::app::run::columns::Fill;
use crate::app::run::estimate::{ColumnEstimate, SAMPLE_ROWS};
use crate::app::run::models::plan_gate;
use crate::app::run::observer::RunObserver;
use crate::app::run::pipeline_config;
use crate::app::run::preflight::{Preflight, Ready};
use crate::app::run::request::RunRequest;
use crate::app::run::resolve::{GeneratedColumn, Input, ResolvedPipeline};
use crate::host::TokioHost;

/// The plan of a run, for display.
#[derive(Clone, Debug)]
pub struct DryRun {
    name: String,
    /// Rows of the run and of the dataset, row groups, and rows per row group.
    rows: (u64, u64, u64, u32),
    columns: Vec<Vec<String>>,
    models: Vec<Vec<String>>,
    notes: Vec<String>,
    /// What the estimate leaves out.
    not_included: Vec<String>,
    /// The file that the rows are exported to, and what is in it.
    export: Option<String>,
    /// The estimated cost of all calls with its currency, if the file has prices.
    cost: Option<(Money, String)>,
    max_cost: Option<Money>,
    capacity: String,
}

/// Checks the input like a run, and estimates the tokens and cost. Must be called in a tokio runtime, for its
/// clock.
pub async fn dry_run(request: &RunRequest) -> Result<DryRun, Error> {
    let Ready { name, file, resolved, estimates } =
        Preflight::run(request, &mut |line| drop(writeln!(io::stderr(), "{line}"))).await?.ready()?;
    let host = TokioHost::current().map_err(|error| Error::Internal(error.to_string()))?;
    let rows = resolved.rows.end - resolved.rows.start;
    let config = pipeline_config(&file, rows);
    Pipeline::new(resolved.plan.clone(), config.clone()).map_err(|error| Error::Setting(error.to_string()))?;
    let gate = plan_gate(&file, &host)?;
    let capacity = RunObserver::new(&resolved.plan, &config, &file.run, &gate)
        .with_file(&file, request.max_cost)
        .capacity()
        .to_string();
    let size = file.run.row_group_size.get();
    let (models, cost) = models(&file, &resolved, &estimates);
    Ok(DryRun {
        name,
        rows: (rows, resolved.dataset.rows(), rows.div_ceil(u64::from(size)), size),
        columns: columns(&file, &resolved, &estimates),
        models,
        notes: notes(&file, &resolved, &estimates),
        not_included: not_included(&file, &resolved),
        export: request.export.as_ref().map(|export| describe_export(export, &file, &resolved)),
        cost,
        max_cost: request.max_cost,
        capacity: capacity + &file.describe_extras() + &file.describe_batches(),
    })
}

/// Returns the columns as a table, in topological order.
fn columns(file: &PipelineFile, resolved: &ResolvedPipeline, estimates: &[ColumnEstimate]) -> Vec<Vec<String>> {
    let titles = ["column", "kind", "filled by", "per", "reads", "tasks", "calls", "input tokens", "output tokens"];
    let mut table = vec![row(titles)];
    for at in resolved.topological_order() {
        let (column, spec, estimate) = (&resolved.columns[at], &file.columns[at], &estimates[at]);
        let calls = if estimate.is_upper_bound { format!("<= {}", estimate.calls) } else { estimate.calls.to_string() };
        table.push(vec![
            column.name.clone(),
            spec.kind.name().to_string(),
            filled_by(file, spec),
            if column.strategy == Strategy::Cell { "row" } else { "row group" }.to_string(),
            reads(resolved, column),
            estimate.tasks.to_string(),
            calls,
            estimate.input_tokens.to_string(),
            estimate.output_tokens.to_string(),
        ]);
    }
    table
}

/// Returns the names of the models that fill the column, in order of preference.
fn filled_by(file: &PipelineFile, spec: &ColumnSpec) -> String {
    let models = spec.kind.models();
    let names: Vec<&str> = models.iter().map(|model| file.models[*model].name.as_str()).collect();
    if names.is_empty() { "-".to_string() } else { names.join(", else ") }
}

/// Returns the names of the columns that `column` reads.
fn reads(resolved: &ResolvedPipeline, column: &GeneratedColumn) -> String {
    let is_column = |input: &&Input| **input != Input::RowNumber;
    let names: Vec<&str> =
        column.inputs.iter().filter(is_column).filter_map(|input| resolved.input_name(*input)).collect();
    if names.is_empty() { "-".to_string() } else { names.join(", ") }
}

/// Returns a table of the calls and tokens of each model, and the cost of all of them.
fn models(
    file: &PipelineFile,
    resolved: &ResolvedPipeline,
    estimates: &[ColumnEstimate],
) -> (Vec<Vec<String>>, Option<(Money, String)>) {
    let mut table = vec![row(["model", "provider", "calls", "input tokens", "output tokens", "cost"])];
    let mut total = None;
    for (index, model) in file.models.iter().enumerate() {
        let calls_it = |at: &usize| file.columns[*at].kind.model() == Some(index);
        let of_model: Vec<&ColumnEstimate> =
            (0..resolved.columns.len()).filter(calls_it).map(|at| &estimates[at]).collect();
        let sum = |read: fn(&ColumnEstimate) -> u64| of_model.iter().map(|estimate| read(estimate)).sum::<u64>();
        let (input, output) = (sum(|estimate| estimate.input_tokens), sum(|estimate| estimate.output_tokens));
        let cost = model.price.map(|price| price.of_many(input, output));
        if let Some(cost) = cost {
            total = Some(total.unwrap_or_else(Money::default).saturating_add(cost));
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

/// Returns the name and content of the file that the rows are exported to.
fn describe_export(export: &ExportFile, file: &PipelineFile, resolved: &ResolvedPipeline) -> String {
    let record = file.output.record.as_ref().filter(|_| export.format == RowFormat::Jsonl);
    let (what, names) = match record {
        Some(record) => ("keys", record.get_ref().keys().cloned().collect()),
        None => ("columns", resolved.output_columns()),
    };
    let unique = file.output.unique.as_ref().map_or_else(String::new, |UniqueSpec { column, similarity }| {
        format!(", without rows whose `{}` has a similarity of {similarity} with an earlier one", column.get_ref())
    });
    format!("{}, with the {what} {}{unique}", export.path.display(), names.join(", "))
}

/// Returns what the estimate leaves out, one entry for each part of the pipeline.
fn not_included(file: &PipelineFile, resolved: &ResolvedPipeline) -> Vec<String> {
    let mut list = Vec::new();
    let makes_calls = file.columns.iter().any(|column| !column.kind.models().is_empty());
    if makes_calls && file.run.retries > 0 {
        list.push(format!("retries of failed calls, at most {} for each task", file.run.retries));
    }
    for (column, spec) in resolved.columns.iter().zip(&file.columns) {
        let name = &column.name;
        match &column.fill {
            Fill::Llm(chat) => {
                if let Some(retries) =
                    chat.structure.as_ref().map(|structure| structure.retries).filter(|most| *most > 0)
                {
                    list.push(format!(
                        "calls after answers of `{name}` that do not fit, at most {retries} for each conversation"
                    ));
                }
                if chat.retry_max_tokens.is_some() {
                    list.push(format!("second calls after truncated answers of `{name}`"));
                }
                if spec.kind.models().len() > 1 {
                    list.push(format!("calls of `{name}` to its second model and later ones"));
                }
                if !chat.tools.is_empty() {
                    let turns = chat.tools.max_turns() - 1;
                    list.push(format!("calls of `{name}` after those of tools, at most {turns} for each conversation"));
                }
                if chat.has_media() {
                    list.push(format!("tokens of images and audio in `{name}`"));
                }
            }
            Fill::Image(image) if image.answer_tokens.is_none() => {
                list.push(format!("the images that `{name}` makes, since it has no `answer_tokens`"));
            }
            Fill::Image(_) => {
                list.push(format!("the images that `{name}` makes, other than by their `answer_tokens`"));
            }
            _ => {}
        }
    }
    list
}

fn notes(file: &PipelineFile, resolved: &ResolvedPipeline, estimates: &[ColumnEstimate]) -> Vec<String> {
    let sample = SAMPLE_ROWS.min(resolved.rows.end - resolved.rows.start);
    let mut notes = vec![format!(
        "Tokens are estimated from the templates as rendered for the first {sample} rows, at four characters a token; beyond ASCII every \
         byte counts as one. Answers count as `answer_tokens`, else `max_tokens`, else 256."
    )];
    let accepts = resolved.columns.iter().find(|column| column.accept_if.is_some());
    if let Some(column) = accepts {
        let most = resolved.rows.end - resolved.rows.start;
        let until = match file.rows.wanted {
            None => String::new(),
            Some(wanted) if wanted > most => format!(" They are fewer than the {wanted} that are to be accepted."),
            Some(wanted) => format!(
                " The run ends once {wanted} are accepted, at the earliest after {:.0} % of this.",
                100.0 * wanted as f64 / most as f64
            ),
        };
        notes.push(format!(
            "`{}` accepts or rejects rows. Calls, tokens and cost are those of all {most} candidates, as if none were rejected.{until}",
            column.name
        ));
    }
    let has_media = |column: &GeneratedColumn| matches!(&column.fill, Fill::Llm(chat) if chat.has_media());
    for (column, estimate) in resolved.columns.iter().zip(estimates).filter(|(_, estimate)| estimate.unrendered > 0) {
        let why = match &estimate.failure {
            Some(failure) => format!("such as {}. The run would drop them", failure.error),
            None if has_media(column) => {
                "it reads fields of answers, which a dry run does not have, or names files that cannot be sent"
                    .to_string()
            }
            None => "it reads fields of answers, which a dry run does not have".to_string(),
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
        if let Some(export) = &self.export {
            writeln!(f, "  export  {export}")?;
            writeln!(f)?;
        }
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        for left_out in &self.not_included {
            writeln!(f, "  not included: {left_out}")?;
        }
        writeln!(f)?;
        write!(f, "{}", self.capacity)
    }
}
