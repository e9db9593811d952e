//! `tidegate run --dry-run`: prints the plan of a run and its estimated tokens and cost. Makes no call and
//! writes nothing. Reports every error that would prevent the run.

use std::io::{self, Write as _};
use std::{fmt, iter};

use serde::{Serialize, Serializer};
use tidegate_core::observe::CapacityPlan;
use tidegate_core::pipeline::{Pipeline, Strategy};

use crate::app::config::pipeline::{ModelSpec, PipelineFile, UniqueSpec};
use crate::app::data::row_file::RowFormat;
use crate::app::error::Error;
use crate::app::output::{EarlierOutput, ExistingOutput, ExportFile, RemainingWork, remaining_work};
use crate::app::provider::cost::{self, Money};
use crate::app::render::table::{row, write_table};
use crate::app::run::columns::{AnswerPart, Fill};
use crate::app::run::estimate::{ColumnEstimate, SAMPLE_ROWS, estimate_rows};
use crate::app::run::manifest::manifest;
use crate::app::run::models::plan_gate;
use crate::app::run::observer::RunObserver;
use crate::app::run::preflight::{Preflight, Ready};
use crate::app::run::request::RunRequest;
use crate::app::run::resolve::{GeneratedColumn, Input, ResolvedPipeline};
use crate::app::run::{output_spec, pipeline_config};
use crate::host::TokioHost;

/// The plan of a run. Serialized for `--json`, and displayed as text otherwise. Amounts are serialized as
/// texts, as in the manifest.
#[derive(Clone, Debug, Serialize)]
pub struct DryRun {
    pipeline: String,
    /// The rows to make, without those that a resumed job has.
    rows: u64,
    dataset_rows: u64,
    row_groups: u64,
    row_group_size: u32,
    /// What a resumed job has.
    #[serde(skip_serializing_if = "Option::is_none")]
    earlier: Option<EarlierOutput>,
    columns: Vec<ColumnPlan>,
    models: Vec<ModelPlan>,
    notes: Vec<String>,
    /// What the estimate leaves out.
    not_included: Vec<String>,
    /// The file that the rows are exported to, and what is in it.
    export: Option<String>,
    /// The estimated cost of all calls, if the file has prices.
    #[serde(serialize_with = "amount")]
    cost: Option<Money>,
    /// The cost of the earlier runs of a resumed job.
    #[serde(serialize_with = "amount")]
    spent: Option<Money>,
    #[serde(serialize_with = "amount")]
    max_cost: Option<Money>,
    currency: String,
    capacity: CapacityPlan,
    /// What is sent beside the prompts, and which columns have batches: a line for each.
    requests: Vec<String>,
}

/// A column in the plan of a run.
#[derive(Clone, Debug, Serialize)]
struct ColumnPlan {
    name: String,
    kind: &'static str,
    /// The names of its models, in order of preference.
    models: Vec<String>,
    /// What it is made for: `row` or `row_group`.
    per: &'static str,
    /// The columns that it reads.
    reads: Vec<String>,
    tasks: u64,
    calls: u64,
    /// Whether the number of calls is an upper bound, because a condition depends on answers.
    is_upper_bound: bool,
    input_tokens: u64,
    output_tokens: u64,
}

/// A model in the plan of a run.
#[derive(Clone, Debug, Serialize)]
struct ModelPlan {
    name: String,
    /// `provider/model`.
    provider: String,
    calls: u64,
    input_tokens: u64,
    output_tokens: u64,
    /// The cost, if the model has a price.
    #[serde(serialize_with = "amount")]
    cost: Option<Money>,
}

#[expect(clippy::ref_option, reason = "serde passes a reference")]
fn amount<S: Serializer>(amount: &Option<Money>, serializer: S) -> Result<S::Ok, S::Error> {
    match amount {
        Some(amount) => cost::text::serialize(amount, serializer),
        None => serializer.serialize_none(),
    }
}

/// Checks the input like a run, and estimates the tokens and cost. Must be called in a tokio runtime, for its
/// clock.
pub async fn dry_run(request: &RunRequest) -> Result<DryRun, Error> {
    let Ready { name, file, resolved, estimates } =
        Preflight::run(request, &mut |line| drop(writeln!(io::stderr(), "{line}"))).await?.ready()?;
    let host = TokioHost::current().map_err(|error| Error::Internal(error.to_string()))?;
    let all_rows = resolved.rows.end - resolved.rows.start;
    let config = pipeline_config(&file, all_rows);
    Pipeline::new(resolved.plan.clone(), config.clone()).map_err(|error| Error::Setting(error.to_string()))?;
    let gate = plan_gate(&file, &host)?;
    let capacity = RunObserver::new(&resolved.plan, &config, &file.run, &gate)
        .with_file(&file, request.max_cost)
        .capacity()
        .clone();
    let size = file.run.row_group_size.get();
    let left = if request.existing == ExistingOutput::Resume {
        let manifest = manifest(&name, &file, &resolved, request.partition)?;
        remaining_work(&request.out, &output_spec(request, manifest, &file, &resolved))?
    } else {
        None
    };
    let RemainingWork { kept, rows, row_groups, spent } = left.unwrap_or_else(|| RemainingWork {
        rows: all_rows,
        row_groups: all_rows.div_ceil(u64::from(size)),
        ..RemainingWork::default()
    });
    let estimates = match left {
        Some(_) => estimate_rows(&resolved, rows, row_groups, size)?,
        None => estimates,
    };
    let models = models(&file, &resolved, &estimates);
    let costs = models.iter().filter_map(|model| model.cost);
    Ok(DryRun {
        pipeline: name,
        rows,
        dataset_rows: resolved.dataset.rows(),
        row_groups,
        row_group_size: size,
        earlier: left.map(|_| kept),
        columns: columns(&file, &resolved, &estimates),
        cost: costs.reduce(Money::saturating_add),
        spent: left.map(|_| spent),
        models,
        notes: notes(&file, &resolved, &estimates, rows, kept),
        not_included: not_included(&file, &resolved),
        export: request.export.as_ref().map(|export| describe_export(export, &file, &resolved)),
        max_cost: request.max_cost,
        capacity,
        requests: (file.describe_extras() + &file.describe_batches()).lines().map(str::to_string).collect(),
        currency: file.currency,
    })
}

/// Returns the columns in topological order.
fn columns(file: &PipelineFile, resolved: &ResolvedPipeline, estimates: &[ColumnEstimate]) -> Vec<ColumnPlan> {
    let column = |at: usize| {
        let (column, spec, estimate) = (&resolved.columns[at], &file.columns[at], &estimates[at]);
        ColumnPlan {
            name: column.name.clone(),
            kind: spec.kind.name(),
            models: spec.kind.models().iter().map(|model| file.models[*model].name.clone()).collect(),
            per: if column.strategy == Strategy::Cell { "row" } else { "row_group" },
            reads: reads(resolved, column),
            tasks: estimate.tasks,
            calls: estimate.calls,
            is_upper_bound: estimate.is_upper_bound,
            input_tokens: estimate.input_tokens,
            output_tokens: estimate.output_tokens,
        }
    };
    resolved.topological_order().into_iter().map(column).collect()
}

/// Returns the names of the columns that `column` reads.
fn reads(resolved: &ResolvedPipeline, column: &GeneratedColumn) -> Vec<String> {
    let inputs = column.inputs.iter().filter(|input| **input != Input::RowNumber);
    inputs.filter_map(|input| resolved.input_name(*input)).map(str::to_string).collect()
}

/// Returns the calls and tokens of each model.
fn models(file: &PipelineFile, resolved: &ResolvedPipeline, estimates: &[ColumnEstimate]) -> Vec<ModelPlan> {
    let model = |(index, model): (usize, &ModelSpec)| {
        let calls_it = |at: &usize| file.columns[*at].kind.model() == Some(index);
        let of_model: Vec<&ColumnEstimate> =
            (0..resolved.columns.len()).filter(calls_it).map(|at| &estimates[at]).collect();
        let sum = |read: fn(&ColumnEstimate) -> u64| of_model.iter().map(|estimate| read(estimate)).sum::<u64>();
        let [calls, input_tokens, output_tokens] = [
            sum(|estimate| estimate.calls),
            sum(|estimate| estimate.input_tokens),
            sum(|estimate| estimate.output_tokens),
        ];
        ModelPlan {
            name: model.name.clone(),
            provider: model.label(),
            calls,
            input_tokens,
            output_tokens,
            // Only models of images have a price for each, and each of their calls makes one.
            cost: model.price.map(|price| price.of_many(input_tokens, output_tokens, calls)),
        }
    };
    file.models.iter().enumerate().map(model).collect()
}

/// Returns the name and content of the file that the rows are exported to.
fn describe_export(export: &ExportFile, file: &PipelineFile, resolved: &ResolvedPipeline) -> String {
    let record = file.output.record.as_ref().filter(|_| export.format == RowFormat::Jsonl);
    let (what, names) = match record {
        Some(record) => ("keys", record.get_ref().keys().cloned().collect()),
        None => ("columns", resolved.output_columns()),
    };
    let unique = resolved.unique.as_ref().map_or_else(String::new, |UniqueSpec { column, similarity }| {
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
            }
            Fill::Image(image) if image.answer_tokens.is_none() => {
                list.push(format!("the tokens of the images that `{name}` makes, since it has no `answer_tokens`"));
            }
            Fill::OfAnswer { of, part: AnswerPart::Reasoning } => {
                let of = &resolved.columns[*of].name;
                list.push(format!("the reasoning for `{of}`, other than by its `answer_tokens`"));
            }
            Fill::Embedding(embedding) if embedding.batch_size > 1 => {
                list.push(format!("calls for parts of the texts of `{name}`, if a model rejects some of them"));
            }
            Fill::Image(_) => {
                list.push(format!("the tokens of the images that `{name}` makes, other than by their `answer_tokens`"));
            }
            _ => {}
        }
    }
    list
}

/// Returns notes on the estimates, which are for `rows` rows beside those that are `kept`.
fn notes(
    file: &PipelineFile,
    resolved: &ResolvedPipeline,
    estimates: &[ColumnEstimate],
    rows: u64,
    kept: EarlierOutput,
) -> Vec<String> {
    let sample = SAMPLE_ROWS.min(resolved.rows.end - resolved.rows.start);
    let mut notes = vec![format!(
        "Tokens are estimated from the templates as rendered for the first {sample} rows, at four characters a token; beyond ASCII every \
         byte counts as one. Answers count as `answer_tokens`, else the token limit that the file sets, else 256."
    )];
    let has_media = |column: &GeneratedColumn| matches!(&column.fill, Fill::Llm(chat) if chat.has_media());
    if resolved.columns.iter().any(has_media) {
        notes
            .push("An image or a recording in a message counts as `media_tokens` of its model, else 1000.".to_string());
    }
    let accepts = resolved.columns.iter().find(|column| column.accept_if.is_some());
    if let Some(column) = accepts {
        let until = match file.rows.wanted.map(|wanted| wanted.saturating_sub(kept.rows_out)) {
            None => String::new(),
            Some(0) => " All rows that are wanted are accepted already.".to_string(),
            Some(wanted) if wanted > rows => format!(" They are fewer than the {wanted} that are to be accepted."),
            Some(wanted) => format!(
                " The run ends once {wanted} are accepted, at the earliest after {:.0} % of this.",
                100.0 * wanted as f64 / rows as f64
            ),
        };
        notes.push(format!(
            "`{}` accepts or rejects rows. Calls, tokens and cost are those of all {rows} candidates, as if none were rejected.{until}",
            column.name
        ));
    }
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

/// Returns the names in a table.
fn listed(names: &[String], separator: &str) -> String {
    if names.is_empty() { "-".to_string() } else { names.join(separator) }
}

impl DryRun {
    fn column_table(&self) -> Vec<Vec<String>> {
        let titles = ["column", "kind", "filled by", "per", "reads", "tasks", "calls", "input tokens", "output tokens"];
        let line = |column: &ColumnPlan| {
            let most = if column.is_upper_bound { "<= " } else { "" };
            vec![
                column.name.clone(),
                column.kind.to_string(),
                listed(&column.models, ", else "),
                column.per.replace('_', " "),
                listed(&column.reads, ", "),
                column.tasks.to_string(),
                format!("{most}{}", column.calls),
                column.input_tokens.to_string(),
                column.output_tokens.to_string(),
            ]
        };
        iter::once(row(titles)).chain(self.columns.iter().map(line)).collect()
    }

    fn model_table(&self) -> Vec<Vec<String>> {
        let titles = ["model", "provider", "calls", "input tokens", "output tokens", "cost"];
        let line = |model: &ModelPlan| {
            vec![
                model.name.clone(),
                model.provider.clone(),
                model.calls.to_string(),
                model.input_tokens.to_string(),
                model.output_tokens.to_string(),
                model.cost.map_or_else(|| "-".to_string(), |cost| cost.to_string()),
            ]
        };
        iter::once(row(titles)).chain(self.models.iter().map(line)).collect()
    }
}

impl fmt::Display for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, dataset_rows, row_groups, row_group_size, currency, .. } = self;
        writeln!(f, "{}: a dry run; nothing is called or written", self.pipeline)?;
        writeln!(f)?;
        if let Some(earlier) = &self.earlier {
            writeln!(f, "  {earlier}")?;
        }
        writeln!(f, "  rows  {rows} of {dataset_rows}, in {row_groups} row groups of at most {row_group_size}")?;
        writeln!(f)?;
        write_table(f, &self.column_table(), 5)?;
        if !self.models.is_empty() {
            writeln!(f)?;
            write_table(f, &self.model_table(), 2)?;
        }
        writeln!(f)?;
        if let Some(cost) = self.cost {
            write!(f, "  cost  about {cost} {currency}")?;
            let spent = self.spent.filter(|spent| *spent > Money::default());
            if let Some(spent) = spent {
                write!(f, ", after {spent} of earlier runs")?;
            }
            match self.max_cost {
                Some(limit) if cost.saturating_add(spent.unwrap_or_default()) > limit => {
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
        write!(f, "{}", self.capacity)?;
        self.requests.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
