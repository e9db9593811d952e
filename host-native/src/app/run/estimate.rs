//! Estimates the calls and tokens of a run from its first rows, without a call.
//!
//! The templates of every column are rendered for the first 100 rows. Values that would need a call are
//! replaced by placeholders:
//!
//! - the text of a model by as many words as its answer has estimated tokens: `answer_tokens`, else the token
//!   limit that the file sets, else 256;
//! - a structured answer by a value with the types of its schema;
//! - a vector by one with the same dimensions;
//! - the answer of a judge by a word, a zero or an empty object, depending on its output form;
//! - the result of a command that checks a text by that for a valid one.
//!
//! Input tokens are estimated at four characters of ASCII each and at a byte each in other scripts, and the
//! mean over the sample is used for all rows. A condition that depends only on known values is evaluated; any
//! other is assumed to hold. An image or a recording of a message counts `media_tokens` of the model, and an
//! image that is made `answer_tokens`. Neither retries nor calls after those of tools are counted. So the
//! estimate is close where prompts depend on the dataset, and an upper bound where conditions depend on
//! answers.

use std::ops::Range;

use serde_json::{Map, Value};
use tidegate_core::budget::Usage;
use tidegate_core::pipeline::Strategy;

use crate::app::config::pipeline::OutputForm;
use crate::app::data::{DatasetError, Row};
use crate::app::provider::image::ImageRequest;
use crate::app::provider::media::MediaReference;
use crate::app::run::columns::embedding::EmbeddingFill;
use crate::app::run::columns::error::FillError;
use crate::app::run::columns::structure::AnswerFormat;
use crate::app::run::columns::validation::ValidationFill;
use crate::app::run::columns::{Fill, FillContext};
use crate::app::run::resolve::{GeneratedColumn, Input, ResolvedPipeline, TemplateKind};
use crate::app::template::{Serde, TemplateError, TemplateValue, object_in_any_form};

/// Rows in the sample.
pub const SAMPLE_ROWS: u64 = 100;

/// The maximum length of a placeholder text, so that prompts that repeat an answer stay small.
const MAX_PLACEHOLDER_TOKENS: u32 = 8_192;

/// The estimated work of a column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnEstimate {
    /// Tasks: one per row or row group.
    pub tasks: u64,
    /// Calls without retries; 0 for a column without a model.
    pub calls: u64,
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens received.
    pub output_tokens: u64,
    /// Whether the number of calls is an upper bound, because a condition depends on answers.
    pub is_upper_bound: bool,
    /// Rows of the sample for which a template could not be rendered.
    pub unrendered: u64,
    /// The first failure that the run would have, too, because it does not depend on an answer.
    pub failure: Option<SampleFailure>,
    /// Whether the column fails in this way for all rows of the sample that are not skipped.
    pub fails_always: bool,
}

/// A failure to fill a cell of the sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleFailure {
    /// The index in [`ResolvedPipeline::template_sources`] of the template that fails; `None` if all
    /// templates render and their text is not a valid value.
    pub source: Option<usize>,
    /// The error.
    pub error: TemplateError,
}

/// Returns the estimates of all generated columns, for a run in row groups of `row_group_size`.
///
/// # Errors
/// If the dataset cannot be read.
pub fn estimate(resolved: &ResolvedPipeline, row_group_size: u32) -> Result<Vec<ColumnEstimate>, DatasetError> {
    let rows = resolved.rows.end - resolved.rows.start;
    estimate_rows(resolved, rows, rows.div_ceil(u64::from(row_group_size)), row_group_size)
}

/// Returns the estimates for `rows` of the rows, in `row_groups` of the row groups. The sample is the same.
///
/// # Errors
/// If the dataset cannot be read.
pub fn estimate_rows(
    resolved: &ResolvedPipeline,
    rows: u64,
    row_groups: u64,
    row_group_size: u32,
) -> Result<Vec<ColumnEstimate>, DatasetError> {
    let Range { start, end } = resolved.rows;
    let seeds = resolved.dataset.read(start..end.min(start + SAMPLE_ROWS))?;
    let mut sample = Sample { resolved, seeds: &seeds, cells: vec![Vec::new(); resolved.columns.len()] };
    let mut estimates = vec![ColumnEstimate::default(); resolved.columns.len()];
    for at in resolved.topological_order() {
        let column = &resolved.columns[at];
        let is_cell = column.strategy == Strategy::Cell;
        let tasks = if is_cell { rows } else { row_groups };
        let mut estimate =
            if is_cell { sample.sample_cells(at, tasks) } else { sample.sample_row_group(at, tasks, row_group_size) };
        estimate.calls = batched_calls(estimate.calls, tasks, row_group_size, column.fill.batch_size());
        estimates[at] = estimate;
    }
    Ok(estimates)
}

/// Returns the calls for `cells` cells of `tasks`, with up to `batch_size` cells of a row group in each. The
/// cells are taken to be spread evenly over the row groups.
fn batched_calls(cells: u64, tasks: u64, row_group_size: u32, batch_size: u32) -> u64 {
    if batch_size <= 1 || cells == 0 {
        return cells;
    }
    let of_group = |rows: u64| {
        let made = (u128::from(rows) * u128::from(cells)).div_ceil(u128::from(tasks.max(1)));
        u64::try_from(made.div_ceil(u128::from(batch_size))).unwrap_or(u64::MAX)
    };
    let size = u64::from(row_group_size);
    let all = (tasks / size).saturating_mul(of_group(size)).saturating_add(of_group(tasks % size));
    all.min(cells)
}

/// A value of the sample.
#[derive(Clone, Debug)]
struct SampleCell {
    value: Value,
    /// Whether the run will have the same value, because it depends on no answer.
    is_known: bool,
    /// Whether it is certain that the column is skipped there.
    is_skipped: bool,
}

/// The first rows of the dataset, with known and placeholder values for the generated columns.
struct Sample<'a> {
    resolved: &'a ResolvedPipeline,
    seeds: &'a [Row],
    /// By generated column and row.
    cells: Vec<Vec<SampleCell>>,
}

/// The result of one task of the sample.
struct SampleResult {
    cell: SampleCell,
    /// The estimated tokens of its call, if it makes one.
    call: Option<Usage>,
    is_upper_bound: bool,
    is_rendered: bool,
    /// The failure that the run would have, too.
    failure: Option<SampleFailure>,
}

impl SampleResult {
    /// Returns the result of a task that is certain to be skipped.
    fn skipped(column: &GeneratedColumn) -> Self {
        let cell = SampleCell { value: (*column.otherwise).clone(), is_known: true, is_skipped: true };
        Self { cell, call: None, is_upper_bound: false, is_rendered: true, failure: None }
    }
}

impl Sample<'_> {
    fn sample_cells(&mut self, at: usize, tasks: u64) -> ColumnEstimate {
        let column = &self.resolved.columns[at];
        let mut totals = SampleTotals::default();
        for row in 0..self.seeds.len() {
            let values = TemplateValue::from_pairs(self.row_values(column, row));
            let number = self.resolved.rows.start + row as u64;
            let is_skipped = |at: &usize| self.cells[*at].get(row).is_some_and(|cell| cell.is_skipped);
            let mut result = if column.skips_with_upstream && column.upstreams.iter().any(is_skipped) {
                SampleResult::skipped(column)
            } else {
                self.evaluate(at, &values, number, |input| self.is_known(input, row))
            };
            totals.add(&mut result);
            self.cells[at].push(result.cell);
        }
        totals.scale_to(tasks)
    }

    fn sample_row_group(&mut self, at: usize, tasks: u64, row_group_size: u32) -> ColumnEstimate {
        let column = &self.resolved.columns[at];
        let count = self.seeds.len().min(row_group_size as usize);
        let rows: TemplateValue = (0..count).map(|row| object_in_any_form(self.row_values(column, row))).collect();
        let values = TemplateValue::from_pairs([("rows", rows), ("row_group", TemplateValue::from(0))]);
        // The sample has the first row group only, so the values of others are unknown.
        let mut result = self.evaluate(at, &values, self.resolved.rows.start, |_| false);
        let mut totals = SampleTotals::default();
        totals.add(&mut result);
        self.cells[at] = vec![result.cell; self.seeds.len()];
        totals.scale_to(tasks)
    }

    fn row_values<'a>(
        &'a self,
        column: &'a GeneratedColumn,
        row: usize,
    ) -> impl Iterator<Item = (&'a str, TemplateValue)> {
        let keyed = column.inputs.iter().filter_map(move |input| {
            let value = match *input {
                Input::RowNumber => TemplateValue::from(self.resolved.rows.start + row as u64),
                Input::Seed(at) => TemplateValue::from(Serde(self.seeds.get(row)?.get(at)?)),
                Input::Generated(at) => TemplateValue::from(Serde(&self.cells.get(at)?.get(row)?.value)),
            };
            Some(self.resolved.keyed(column, *input, value))
        });
        keyed.flatten()
    }

    fn is_known(&self, input: Input, row: usize) -> bool {
        match input {
            Input::RowNumber | Input::Seed(_) => true,
            Input::Generated(at) => self.cells[at].get(row).is_some_and(|cell| cell.is_known),
        }
    }

    /// Evaluates the task of the column at `at` whose templates read `values`. `is_known` returns whether an
    /// input is no placeholder.
    fn evaluate(&self, at: usize, values: &TemplateValue, row: u64, is_known: impl Fn(Input) -> bool) -> SampleResult {
        let column = &self.resolved.columns[at];
        let (mut is_upper_bound, mut is_rendered) = (false, true);
        if let Some(when) = &column.when {
            let reads = self.resolved.templates.condition_variables(when);
            let is_read = |input: &&Input| self.resolved.variable(**input).is_none_or(|name| reads.contains(name));
            let is_certain = column.inputs.iter().filter(is_read).all(|input| is_known(*input));
            match self.resolved.templates.holds(when, values.clone()) {
                Ok(false) if is_certain => {
                    return SampleResult::skipped(column);
                }
                holds => {
                    is_upper_bound = !(is_certain && holds.is_ok());
                    is_rendered = holds.is_ok() || !is_certain;
                }
            }
        }
        let is_known = column.inputs.iter().all(|input| is_known(*input));
        let is_whole_group = column.strategy != Strategy::Cell;
        let context =
            FillContext { column: &column.name, templates: &self.resolved.templates, values, row, is_whole_group };
        let Placeholder { value, call, error } = placeholder(&column.fill, context);
        is_rendered &= error.is_none();
        let is_local =
            matches!(column.fill, Fill::Expression(_) | Fill::Sampler(_) | Fill::Validation(_)) && call.is_none();
        let cell = SampleCell { value, is_known: is_known && is_local && is_rendered, is_skipped: false };
        let failure = (is_known && !is_rendered).then(|| self.failure(at, values, error));
        SampleResult { cell, call, is_upper_bound, is_rendered, failure }
    }

    /// Returns the failure of the column at `at` for `values`; `message` is the error of its fill.
    fn failure(&self, at: usize, values: &TemplateValue, message: Option<String>) -> SampleFailure {
        let templates = &self.resolved.templates;
        let error = |kind: &TemplateKind| match kind {
            TemplateKind::Text(template) => templates.render(template, values.clone()).err(),
            TemplateKind::Value(expression) => templates.value(expression, values.clone()).err(),
            TemplateKind::Condition(condition) => templates.holds(condition, values.clone()).err(),
            // It reads the value of its column, which a dry run does not have.
            TemplateKind::Acceptance(_) => None,
        };
        let mut sources = self.resolved.template_sources.iter().enumerate().filter(|(_, source)| source.column == at);
        let broken = sources
            .find_map(|(index, source)| Some(SampleFailure { source: Some(index), error: error(&source.kind)? }));
        broken.unwrap_or_else(|| SampleFailure {
            source: None,
            error: TemplateError { message: message.unwrap_or_default(), span: None, line: None },
        })
    }
}

/// A known value or placeholder for a cell.
struct Placeholder {
    value: Value,
    /// The estimated tokens of the call that the value needs.
    call: Option<Usage>,
    /// The error that prevents the value.
    error: Option<String>,
}

/// Returns the value of `fill`, or a placeholder if it needs a call.
fn placeholder(fill: &Fill, context: FillContext<'_>) -> Placeholder {
    match fill {
        Fill::Expression(fill) => or_placeholder(fill.fill(context)),
        Fill::Sampler(fill) => or_placeholder(fill.fill(context)),
        Fill::Llm(fill) => {
            let conversation = fill.conversation(context);
            let media = fill.media(context);
            let error = conversation.as_ref().err().map(FillError::to_string).or_else(|| media_error(&media));
            // Of the first model: whether another one is called is not known.
            let estimates = fill.estimates(&conversation.unwrap_or_default(), media.map_or(0, |media| media.len()));
            let usage = estimates.first().copied().unwrap_or_default();
            let value = fill
                .structure
                .as_ref()
                .map_or_else(|| placeholder_text(usage.output_tokens), AnswerFormat::placeholder);
            Placeholder { value, call: Some(usage), error }
        }
        Fill::OfAnswer { .. } => Placeholder { value: placeholder_text(1), call: None, error: None },
        Fill::Embedding(fill) => {
            let input = context.render(&fill.input);
            let usage = EmbeddingFill::estimate(input.as_deref().unwrap_or_default());
            let dimensions = fill.dimensions.unwrap_or(1) as usize;
            let error = input.err().map(|why| why.to_string());
            Placeholder { value: vec![Value::from(0.5); dimensions].into(), call: Some(usage), error }
        }
        Fill::Image(fill) => {
            let request = fill.request(context);
            let usage = fill.estimate(request.as_ref().unwrap_or(&ImageRequest::default()));
            let error = request.err().map(|why| why.to_string());
            Placeholder { value: placeholder_text(1), call: Some(usage), error }
        }
        Fill::Validation(fill) => {
            let checked = fill.check_here(context);
            let call = matches!(checked, Ok(None)).then(Usage::default);
            let error = checked.as_ref().err().map(FillError::to_string);
            let value = checked.ok().flatten().unwrap_or_else(ValidationFill::placeholder);
            Placeholder { value, call, error }
        }
        Fill::Judge(fill) => {
            let value = match fill.output {
                OutputForm::Text => placeholder_text(1),
                OutputForm::Number => Value::from(0),
                OutputForm::Json => Value::Object(Map::new()),
            };
            let error = fill.request(context).err().map(|why| why.to_string());
            Placeholder { value, call: Some(Usage::default()), error }
        }
    }
}

/// Returns why an image or a recording cannot be sent, as far as this is known without reading it.
fn media_error(media: &Result<Vec<(usize, MediaReference)>, FillError>) -> Option<String> {
    match media {
        Ok(media) => media.iter().find_map(|(_, media)| media.check().err()),
        Err(error) => Some(error.to_string()),
    }
}

fn or_placeholder(filled: Result<Value, FillError>) -> Placeholder {
    let error = filled.as_ref().err().map(FillError::to_string);
    Placeholder { value: filled.unwrap_or_else(|_| placeholder_text(1)), call: None, error }
}

/// Returns a text of about `tokens` tokens.
fn placeholder_text(tokens: u32) -> Value {
    Value::String("word".repeat(tokens.clamp(1, MAX_PLACEHOLDER_TOKENS) as usize))
}

/// Sums over the sample of one column.
#[derive(Default)]
struct SampleTotals {
    /// Tasks.
    attempted: u64,
    calls: u64,
    /// Calls whose templates could be rendered, and the input and output tokens of these calls.
    rendered_calls: u64,
    tokens: (u64, u64),
    is_upper_bound: bool,
    unrendered: u64,
    /// Tasks that are certain to fail, and tasks that are certain to be skipped.
    failing: u64,
    skipped: u64,
    failure: Option<SampleFailure>,
}

impl SampleTotals {
    fn add(&mut self, result: &mut SampleResult) {
        self.attempted += 1;
        self.is_upper_bound |= result.is_upper_bound;
        self.unrendered += u64::from(!result.is_rendered);
        self.skipped += u64::from(result.cell.is_skipped);
        self.failing += u64::from(result.failure.is_some());
        self.failure = self.failure.take().or(result.failure.take());
        let Some(call) = result.call else { return };
        self.calls += 1;
        if result.is_rendered {
            self.rendered_calls += 1;
            self.tokens.0 += u64::from(call.input_tokens);
            self.tokens.1 += u64::from(call.output_tokens);
        }
    }

    /// Scales the sums to `tasks` tasks.
    fn scale_to(&self, tasks: u64) -> ColumnEstimate {
        let scaled = |part: u64, whole: u64, times: u64| match whole {
            0 => 0,
            whole => u64::try_from(u128::from(part) * u128::from(times) / u128::from(whole)).unwrap_or(u64::MAX),
        };
        let calls = scaled(self.calls, self.attempted, tasks);
        ColumnEstimate {
            tasks,
            calls,
            input_tokens: scaled(self.tokens.0, self.rendered_calls, calls),
            output_tokens: scaled(self.tokens.1, self.rendered_calls, calls),
            is_upper_bound: self.is_upper_bound,
            unrendered: self.unrendered,
            failure: self.failure.clone(),
            fails_always: self.failing > 0 && self.failing + self.skipped == self.attempted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::config::pipeline::{PipelineFile, SourceText};
    use crate::app::data::{Dataset, DatasetFormat};
    use std::path::Path;

    const MODEL: &str = "[seed]\npath = \"d.csv\"\n[[models]]\nname = \"m\"\nprovider = \"mock\"\nmax_parallel = 2\n\
                         mock = {}\n";

    fn estimates(columns: &str) -> Vec<ColumnEstimate> {
        let text = format!("{MODEL}{columns}");
        let file = PipelineFile::parse(SourceText::new("p.toml", text), Path::new("")).unwrap();
        let rows: Vec<String> = (0..1_000).map(|row| format!("{row},{}\n", "x".repeat(40))).collect();
        let data = format!("id,note\n{}", rows.concat());
        let dataset = Dataset::parse(Path::new("d.csv"), data.as_bytes(), DatasetFormat::Csv).unwrap();
        estimate(&ResolvedPipeline::resolve(&file, dataset).unwrap(), 30).unwrap()
    }

    #[test]
    fn a_prompt_has_a_token_per_four_characters_and_an_answer_the_tokens_that_the_file_gives() {
        let all = estimates(
            "[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"{{ note }}\"\nanswer_tokens = 50\n\
             [[columns]]\nname = \"b\"\nmodel = \"m\"\nprompt = \"{{ a }}\"\nmax_tokens = 7\n",
        );
        assert_eq!((all[0].calls, all[0].input_tokens, all[0].output_tokens), (1_000, 14_000, 50_000));
        assert_eq!((all[1].calls, all[1].input_tokens, all[1].output_tokens), (1_000, 54_000, 7_000));
        assert!(!all[0].is_upper_bound);
    }

    #[test]
    fn a_schema_in_the_request_and_a_token_limit_of_the_model_count() {
        let schema = r#"{ type = "object", properties = { score = { type = "integer" } } }"#;
        let all = estimates(&format!(
            "extra_body = {{ max_completion_tokens = 900 }}\n\
             [[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"x\"\n\
             [[columns]]\nname = \"b\"\nmodel = \"m\"\nprompt = \"x\"\nschema = {schema}\n\
             [[columns]]\nname = \"c\"\nmodel = \"m\"\nprompt = \"x\"\nextra = {{ max_completion_tokens = 70 }}\n"
        ));
        assert_eq!(all.iter().map(|it| it.output_tokens).collect::<Vec<_>>(), [900_000, 900_000, 70_000]);
        let text = r#"{"properties":{"score":{"type":"integer"}},"type":"object"}"#;
        assert_eq!(all[1].input_tokens - all[0].input_tokens, 1_000 * text.len().div_ceil(4) as u64);
    }

    #[test]
    fn a_limit_of_answers_counts_by_its_name_in_each_api_and_one_that_an_api_requires_does_not() {
        let column = "[[columns]]\nname = \"a\"\nmodel = \"other\"\nprompt = \"x\"\n";
        let tokens = |api: &str, keys: &str| {
            let model = "[[models]]\nname = \"other\"\nprovider = \"acme\"\nmax_parallel = 2\n\
                         base_url = \"https://api.acme.test/v1\"\n";
            estimates(&format!("{model}api = \"{api}\"\n{column}{keys}"))[0].output_tokens / 1_000
        };
        assert_eq!(["openai", "responses", "anthropic"].map(|api| tokens(api, "")), [256; 3]);
        assert_eq!(["openai", "responses", "anthropic"].map(|api| tokens(api, "max_tokens = 40\n")), [40; 3]);
        assert_eq!(tokens("responses", "extra = { max_output_tokens = 70 }\n"), 70);
        assert_eq!(tokens("openai", "extra = { max_completion_tokens = 70 }\n"), 70);
    }

    #[test]
    fn a_condition_on_the_dataset_is_evaluated_and_one_on_an_answer_is_assumed_to_hold() {
        let all = estimates(
            "[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"x\"\nwhen = \"id | int is divisibleby 4\"\n\
             [[columns]]\nname = \"b\"\nmodel = \"m\"\nprompt = \"x\"\nwhen = \"a == 'yes'\"\n\
             [[columns]]\nname = \"c\"\nmodel = \"m\"\nprompt = \"{{ b }}\"\nwhen = \"id | int < 500\"\n",
        );
        assert_eq!((all[0].calls, all[0].is_upper_bound), (250, false));
        // Where `a` is skipped it is null, so the condition has a known value there.
        assert_eq!((all[1].calls, all[1].is_upper_bound), (250, true));
        // The sample has rows below 500 only, and what the prompt reads does not matter to the condition.
        assert_eq!((all[2].calls, all[2].is_upper_bound), (1_000, false));
    }

    #[test]
    fn fields_of_structured_answers_can_be_rendered_and_missing_fields_are_counted() {
        let all = estimates(
            "[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"x\"\n\
             schema = { type = \"object\", properties = { score = { type = \"integer\" } } }\n\
             [[columns]]\nname = \"b\"\nmodel = \"m\"\nprompt = \"{{ a.score + 1 }}\"\n\
             [[columns]]\nname = \"c\"\nmodel = \"m\"\nprompt = \"{{ a.missing }}\"\n",
        );
        assert_eq!((all[1].unrendered, all[1].calls), (0, 1_000));
        assert_eq!((all[2].unrendered, all[2].calls, all[2].input_tokens), (100, 1_000, 0));
    }

    #[test]
    fn a_column_that_is_skipped_with_its_upstream_makes_no_call_and_does_not_fail() {
        let all = estimates(
            "[[columns]]\nname = \"a\"\nkind = \"expression\"\ntemplate = \"{{ id }}\"\nwhen = \"id | int < 4\"\n\
             [[columns]]\nname = \"b\"\nmodel = \"m\"\nprompt = \"{{ 1 // (a | int - 2) }}\"\nskip_with_upstream = true\n",
        );
        assert_eq!((all[1].calls, all[1].unrendered, all[1].fails_always), (40, 1, false));
        let why = all[1].failure.as_ref().map(|failure| failure.error.to_string()).unwrap_or_default();
        assert!(why.contains("1 // 0"), "{why}");
    }

    #[test]
    fn a_column_is_skipped_with_a_listed_upstream_that_the_file_has_below_it() {
        let all = estimates(
            "[[columns]]\nname = \"b\"\nmodel = \"m\"\nprompt = \"x\"\nupstreams = [\"a\"]\nskip_with_upstream = true\n\
             [[columns]]\nname = \"a\"\nkind = \"expression\"\ntemplate = \"x\"\nwhen = \"id | int < 4\"\n",
        );
        assert_eq!((all[0].calls, all[0].is_upper_bound), (40, false));
    }

    #[test]
    fn a_column_that_fails_for_every_row_has_the_failure_unless_it_reads_an_answer() {
        let all = estimates(
            "[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"{{ note | int }}\"\n\
             [[columns]]\nname = \"b\"\nmodel = \"m\"\nprompt = \"{{ a | int }}\"\n\
             [[columns]]\nname = \"c\"\nmodel = \"m\"\nprompt = \"x\"\nwhen = \"note | int\"\n",
        );
        assert_eq!([all[0].fails_always, all[1].fails_always, all[2].fails_always], [true, false, true]);
        let text = |estimate: &ColumnEstimate| estimate.failure.as_ref().and_then(|failure| failure.source);
        assert_eq!(all.iter().map(text).collect::<Vec<_>>(), [Some(0), None, Some(3)]);
    }

    #[test]
    fn an_embedding_column_makes_one_call_for_each_batch_of_a_row_group() {
        let embedder =
            "[[models]]\nname = \"e\"\nprovider = \"mock\"\nmax_parallel = 2\nmock = {}\ndomain = \"embedding\"\n";
        let column = "[[columns]]\nname = \"v\"\nkind = \"embedding\"\nmodel = \"e\"\ninput = \"{{ note }}\"\n";
        let calls = |keys: &str| {
            let all = estimates(&format!("{embedder}{column}{keys}"));
            (all[0].tasks, all[0].calls, all[0].input_tokens)
        };
        // 33 row groups of 30 rows, and one of 10.
        assert_eq!(calls(""), (1_000, 34, 10_000));
        assert_eq!(calls("batch_size = 8\n"), (1_000, 33 * 4 + 2, 10_000));
        assert_eq!(calls("batch_size = 1\n"), (1_000, 1_000, 10_000));
        assert_eq!(calls("when = \"id | int is divisibleby 4\"\nbatch_size = 8\n"), (1_000, 34, 2_500));
    }

    #[test]
    fn a_column_for_whole_row_groups_makes_one_call_per_row_group() {
        let all = estimates(
            "[[columns]]\nname = \"a\"\nmodel = \"m\"\nstrategy = \"full_column\"\n\
             prompt = \"{% for r in rows %}{{ r.note }}{% endfor %}\"\n",
        );
        assert_eq!((all[0].tasks, all[0].calls, all[0].input_tokens), (34, 34, 34 * 304));
    }
}
