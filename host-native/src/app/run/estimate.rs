//! What a run would take, estimated from its first rows without a call.
//!
//! The templates of every column are rendered for the first 100 rows. Values that only a call would bring are stood for:
//!
//! - a model's text by so many words as its answer is estimated at: `answer_tokens`, else `max_tokens`, else 256 tokens;
//! - a structured answer by a value of the types of its schema;
//! - a vector by one of its dimensions, a judge's answer by the empty object.
//!
//! Tokens sent are counted at four characters each; the mean over the sample stands for all rows. A condition that can
//! be known without a call is evaluated; any other is taken to hold. Retries are not counted. So the estimate is near
//! what is sent where prompts depend on the dataset, and an upper bound where conditions depend on answers.

use serde_json::{Map, Value};
use tidegate_core::budget::Usage;
use tidegate_core::pipeline::Strategy;

use crate::app::config::pipeline::OutputForm;
use crate::app::data::{DatasetError, Row};
use crate::app::run::columns::embedding::EmbeddingFill;
use crate::app::run::columns::structure::StructureFill;
use crate::app::run::columns::{Fill, Scene, Unfilled};
use crate::app::run::resolve::{GeneratedColumn, Input, Job, TemplateKind};
use crate::app::template::{Serde, TemplateError, TemplateValue};

/// Rows that templates are rendered for.
pub const SAMPLE_ROWS: u64 = 100;

/// Words that stand for an answer, at most: an answer of any length costs the prompts that repeat it.
const MAX_STANDIN_TOKENS: u32 = 8_192;

/// What the tasks of a column would take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnEstimate {
    /// Tasks: one per row or row group.
    pub tasks: u64,
    /// Calls, retries not counted; 0 for a column that calls nobody.
    pub calls: u64,
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens received.
    pub output_tokens: u64,
    /// Whether a condition may make it fewer calls.
    pub is_at_most: bool,
    /// Rows of the sample for which a template could not be rendered with what stands for answers.
    pub unrendered: u64,
    /// Why the first of those rows would fail in the run, too: nothing stands for an answer there.
    pub failure: Option<Failure>,
    /// Whether so would every row of the sample that the column is made for.
    pub fails_always: bool,
}

/// Why there can be no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The template that fails, by its place in [`Job::texts`]; none if they can all be rendered, and what comes out is of no use.
    pub text: Option<usize>,
    /// What is wrong.
    pub error: TemplateError,
}

/// By generated column what it would take, for a run in row groups of `row_group_size`.
pub fn estimate(job: &Job, row_group_size: u32) -> Result<Vec<ColumnEstimate>, DatasetError> {
    let rows = job.rows.end - job.rows.start;
    let sample = job.dataset.read(job.rows.start..job.rows.start + rows.min(SAMPLE_ROWS))?;
    let mut standin = StandIn { job, seeds: &sample, cells: vec![Vec::new(); job.columns.len()] };
    let mut estimates = vec![ColumnEstimate::default(); job.columns.len()];
    for at in in_order(job) {
        let column = &job.columns[at];
        let is_cell = column.strategy == Strategy::Cell;
        let tasks = if is_cell { rows } else { rows.div_ceil(u64::from(row_group_size)) };
        estimates[at] = if is_cell { standin.cells(at, tasks) } else { standin.whole_group(at, tasks, row_group_size) };
    }
    Ok(estimates)
}

/// The generated columns, each after those it reads. The plan has seen to it that there is such an order.
#[must_use]
pub fn in_order(job: &Job) -> Vec<usize> {
    let mut done: Vec<usize> = Vec::new();
    while done.len() < job.columns.len() {
        let is_ready = |at: &usize| {
            let is_done = |input: &Input| !matches!(input, Input::Generated(other) if !done.contains(other));
            !done.contains(at) && job.columns[*at].inputs.iter().all(is_done)
        };
        match (0..job.columns.len()).find(is_ready) {
            Some(at) => done.push(at),
            None => break,
        }
    }
    done
}

/// A value of the sample, and whether it is what the run would have there.
#[derive(Clone, Debug)]
struct Cell {
    value: Value,
    is_known: bool,
    /// Whether it is certain that the column is not made there.
    is_skipped: bool,
}

/// The sample with everything that stands for answers.
struct StandIn<'a> {
    job: &'a Job,
    seeds: &'a [Row],
    /// By generated column, by row.
    cells: Vec<Vec<Cell>>,
}

/// What became of one task.
struct Tried {
    cell: Cell,
    /// The tokens of its call, if it makes one.
    call: Option<Usage>,
    is_at_most: bool,
    is_rendered: bool,
    /// Why it would fail in the run, if that is certain.
    failure: Option<Failure>,
}

impl Tried {
    /// A task that is certain not to be made.
    fn skipped(column: &GeneratedColumn) -> Self {
        let cell = Cell { value: (*column.otherwise).clone(), is_known: true, is_skipped: true };
        Self { cell, call: None, is_at_most: false, is_rendered: true, failure: None }
    }
}

impl StandIn<'_> {
    fn cells(&mut self, at: usize, tasks: u64) -> ColumnEstimate {
        let column = &self.job.columns[at];
        let mut sum = Sum::default();
        for row in 0..self.seeds.len() {
            let values = TemplateValue::from_pairs(self.row_values(column, row));
            let number = self.job.rows.start + row as u64;
            let is_skipped = |at: &usize| self.cells[*at].get(row).is_some_and(|cell| cell.is_skipped);
            let mut tried = if column.skips_with_upstream && column.upstreams.iter().any(is_skipped) {
                Tried::skipped(column)
            } else {
                self.attempt(at, &values, number, |input| self.is_known(input, row))
            };
            sum.add(&mut tried);
            self.cells[at].push(tried.cell);
        }
        sum.over(tasks)
    }

    fn whole_group(&mut self, at: usize, tasks: u64, row_group_size: u32) -> ColumnEstimate {
        let column = &self.job.columns[at];
        let count = self.seeds.len().min(row_group_size as usize);
        let rows: TemplateValue =
            (0..count).map(|row| TemplateValue::from_pairs(self.row_values(column, row))).collect();
        let values = TemplateValue::from_pairs([("rows", rows), ("row_group", TemplateValue::from(0))]);
        // Of other groups nothing is known.
        let mut tried = self.attempt(at, &values, self.job.rows.start, |_| false);
        let mut sum = Sum::default();
        sum.add(&mut tried);
        self.cells[at] = vec![tried.cell; self.seeds.len()];
        sum.over(tasks)
    }

    fn row_values<'a>(
        &'a self,
        column: &'a GeneratedColumn,
        row: usize,
    ) -> impl Iterator<Item = (&'a str, TemplateValue)> {
        column.inputs.iter().filter_map(move |input| match *input {
            Input::RowNumber => {
                Some((self.job.row_key.as_str(), TemplateValue::from(self.job.rows.start + row as u64)))
            }
            Input::Seed(at) => {
                let name = self.job.dataset.columns().get(at)?;
                Some((name.as_str(), TemplateValue::from(Serde(self.seeds.get(row)?.get(at)?))))
            }
            Input::Generated(at) => {
                let name = self.job.columns.get(at)?.name.as_str();
                Some((name, TemplateValue::from(Serde(&self.cells.get(at)?.get(row)?.value))))
            }
        })
    }

    fn is_known(&self, input: Input, row: usize) -> bool {
        match input {
            Input::RowNumber | Input::Seed(_) => true,
            Input::Generated(at) => self.cells[at].get(row).is_some_and(|cell| cell.is_known),
        }
    }

    /// What the task of the column at `at` for `values` would do.
    fn attempt(&self, at: usize, values: &TemplateValue, row: u64, is_known: impl Fn(Input) -> bool) -> Tried {
        let column = &self.job.columns[at];
        let (mut is_at_most, mut is_rendered) = (false, true);
        if let Some(when) = &column.when {
            let reads = self.job.templates.variables(when.template());
            let is_read = |input: &&Input| self.job.input_name(**input).is_none_or(|name| reads.contains(name));
            let is_certain = column.inputs.iter().filter(is_read).all(|input| is_known(*input));
            match self.job.templates.holds(when, values.clone()) {
                Ok(false) if is_certain => {
                    return Tried::skipped(column);
                }
                holds => {
                    is_at_most = !(is_certain && holds.is_ok());
                    is_rendered = holds.is_ok() || !is_certain;
                }
            }
        }
        let is_known = column.inputs.iter().all(|input| is_known(*input));
        let is_whole_group = column.strategy != Strategy::Cell;
        let scene = Scene { column: &column.name, templates: &self.job.templates, values, row, is_whole_group };
        let StoodFor { value, call, complaint } = stand_in(&column.fill, scene);
        is_rendered &= complaint.is_none();
        let calls_nobody = matches!(column.fill, Fill::Expression(_) | Fill::Sampler(_));
        let cell = Cell { value, is_known: is_known && calls_nobody && is_rendered, is_skipped: false };
        let failure = (is_known && !is_rendered).then(|| self.failure(at, values, complaint));
        Tried { cell, call, is_at_most, is_rendered, failure }
    }

    /// Why the column at `at` has no value where its templates read `values`, and what it fills complains about.
    fn failure(&self, at: usize, values: &TemplateValue, complaint: Option<String>) -> Failure {
        let templates = &self.job.templates;
        let error = |kind: &TemplateKind| match kind {
            TemplateKind::Text(template) => templates.render(template, values.clone()).err(),
            TemplateKind::Condition(condition) => templates.holds(condition, values.clone()).err(),
        };
        let mut texts = self.job.texts.iter().enumerate().filter(|(_, text)| text.column == at);
        let broken = texts.find_map(|(place, text)| Some(Failure { text: Some(place), error: error(&text.kind)? }));
        let message = || complaint.unwrap_or_default();
        broken.unwrap_or_else(|| Failure {
            text: None,
            error: TemplateError { message: message(), span: None, line: None },
        })
    }
}

/// What stands for a value.
struct StoodFor {
    value: Value,
    /// The tokens of the call that would bring it.
    call: Option<Usage>,
    /// Why there is nothing that could stand for it.
    complaint: Option<String>,
}

/// The value that stands for that of `fill`.
fn stand_in(fill: &Fill, scene: Scene<'_>) -> StoodFor {
    match fill {
        Fill::Expression(fill) => or_text(fill.fill(scene)),
        Fill::Sampler(fill) => or_text(fill.fill(scene)),
        Fill::Llm(fill) => {
            let conversation = fill.conversation(scene);
            let complaint = conversation.as_ref().err().map(Unfilled::to_string);
            let usage = fill.estimate(&conversation.unwrap_or_default());
            let value = fill.structure.as_ref().map_or_else(|| words(usage.output_tokens), StructureFill::placeholder);
            StoodFor { value, call: Some(usage), complaint }
        }
        Fill::Embedding(fill) => {
            let input = scene.render(&fill.input);
            let usage = EmbeddingFill::estimate(input.as_deref().unwrap_or_default());
            let dimensions = fill.dimensions.unwrap_or(1) as usize;
            let complaint = input.err().map(|why| why.to_string());
            StoodFor { value: vec![Value::from(0.5); dimensions].into(), call: Some(usage), complaint }
        }
        Fill::Judge(fill) => {
            let value = match fill.output {
                OutputForm::Text => words(1),
                OutputForm::Number => Value::from(0),
                OutputForm::Json => Value::Object(Map::new()),
            };
            let complaint = fill.question(scene).err().map(|why| why.to_string());
            StoodFor { value, call: Some(Usage::default()), complaint }
        }
    }
}

fn or_text(filled: Result<Value, Unfilled>) -> StoodFor {
    let complaint = filled.as_ref().err().map(Unfilled::to_string);
    StoodFor { value: filled.unwrap_or_else(|_| words(1)), call: None, complaint }
}

/// A text of about so many tokens.
fn words(tokens: u32) -> Value {
    Value::String("word".repeat(tokens.clamp(1, MAX_STANDIN_TOKENS) as usize))
}

/// The sample of a column, added up.
#[derive(Default)]
struct Sum {
    tried: u64,
    calls: u64,
    rendered_calls: u64,
    tokens: (u64, u64),
    is_at_most: bool,
    unrendered: u64,
    /// Tasks that are sure to fail, and that are sure to be skipped.
    failing: u64,
    skipped: u64,
    failure: Option<Failure>,
}

impl Sum {
    fn add(&mut self, tried: &mut Tried) {
        self.tried += 1;
        self.is_at_most |= tried.is_at_most;
        self.unrendered += u64::from(!tried.is_rendered);
        self.skipped += u64::from(tried.cell.is_skipped);
        self.failing += u64::from(tried.failure.is_some());
        self.failure = self.failure.take().or(tried.failure.take());
        let Some(call) = tried.call else { return };
        self.calls += 1;
        if tried.is_rendered {
            self.rendered_calls += 1;
            self.tokens.0 += u64::from(call.input_tokens);
            self.tokens.1 += u64::from(call.output_tokens);
        }
    }

    /// The estimate for `tasks` tasks of which these are a sample.
    fn over(&self, tasks: u64) -> ColumnEstimate {
        let scaled = |part: u64, whole: u64, times: u64| match whole {
            0 => 0,
            whole => u64::try_from(u128::from(part) * u128::from(times) / u128::from(whole)).unwrap_or(u64::MAX),
        };
        let calls = scaled(self.calls, self.tried, tasks);
        ColumnEstimate {
            tasks,
            calls,
            input_tokens: scaled(self.tokens.0, self.rendered_calls, calls),
            output_tokens: scaled(self.tokens.1, self.rendered_calls, calls),
            is_at_most: self.is_at_most,
            unrendered: self.unrendered,
            failure: self.failure.clone(),
            fails_always: self.failing > 0 && self.failing + self.skipped == self.tried,
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
        estimate(&Job::resolve(&file, dataset).unwrap(), 30).unwrap()
    }

    #[test]
    fn a_prompt_is_counted_at_four_characters_a_token_and_an_answer_at_what_the_file_says() {
        let all = estimates(
            "[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"{{ note }}\"\nanswer_tokens = 50\n\
             [[columns]]\nname = \"b\"\nmodel = \"m\"\nprompt = \"{{ a }}\"\nmax_tokens = 7\n",
        );
        assert_eq!((all[0].calls, all[0].input_tokens, all[0].output_tokens), (1_000, 14_000, 50_000));
        assert_eq!((all[1].calls, all[1].input_tokens, all[1].output_tokens), (1_000, 54_000, 7_000));
        assert!(!all[0].is_at_most);
    }

    #[test]
    fn a_condition_on_the_dataset_is_evaluated_and_one_on_an_answer_is_taken_to_hold() {
        let all = estimates(
            "[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"x\"\nwhen = \"id | int is divisibleby 4\"\n\
             [[columns]]\nname = \"b\"\nmodel = \"m\"\nprompt = \"x\"\nwhen = \"a == 'yes'\"\n\
             [[columns]]\nname = \"c\"\nmodel = \"m\"\nprompt = \"{{ b }}\"\nwhen = \"id | int < 500\"\n",
        );
        assert_eq!((all[0].calls, all[0].is_at_most), (250, false));
        // Where `a` is not made it is null, which is known too.
        assert_eq!((all[1].calls, all[1].is_at_most), (250, true));
        // What the prompt reads does not make the condition uncertain. The sample is the first rows.
        assert_eq!((all[2].calls, all[2].is_at_most), (1_000, false));
    }

    #[test]
    fn structured_answers_can_be_looked_into_and_what_cannot_be_rendered_is_counted() {
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
    fn a_column_that_is_skipped_with_one_it_reads_calls_and_fails_nowhere() {
        let all = estimates(
            "[[columns]]\nname = \"a\"\nkind = \"expression\"\ntemplate = \"{{ id }}\"\nwhen = \"id | int < 4\"\n\
             [[columns]]\nname = \"b\"\nmodel = \"m\"\nprompt = \"{{ 1 // (a | int - 2) }}\"\nskip_with_upstream = true\n",
        );
        assert_eq!((all[1].calls, all[1].unrendered, all[1].fails_always), (40, 1, false));
        let why = all[1].failure.as_ref().map(|failure| failure.error.to_string()).unwrap_or_default();
        assert!(why.contains("1 // 0"), "{why}");
    }

    #[test]
    fn a_column_that_would_fail_for_every_row_says_why_and_one_that_reads_an_answer_does_not() {
        let all = estimates(
            "[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"{{ note | int }}\"\n\
             [[columns]]\nname = \"b\"\nmodel = \"m\"\nprompt = \"{{ a | int }}\"\n\
             [[columns]]\nname = \"c\"\nmodel = \"m\"\nprompt = \"x\"\nwhen = \"note | int\"\n",
        );
        assert_eq!([all[0].fails_always, all[1].fails_always, all[2].fails_always], [true, false, true]);
        let text = |estimate: &ColumnEstimate| estimate.failure.as_ref().and_then(|failure| failure.text);
        assert_eq!(all.iter().map(text).collect::<Vec<_>>(), [Some(0), None, Some(3)]);
    }

    #[test]
    fn a_column_of_whole_row_groups_calls_once_for_each() {
        let all = estimates(
            "[[columns]]\nname = \"a\"\nmodel = \"m\"\nstrategy = \"full_column\"\n\
             prompt = \"{% for r in rows %}{{ r.note }}{% endfor %}\"\n",
        );
        assert_eq!((all[0].tasks, all[0].calls, all[0].input_tokens), (34, 34, 34 * 304));
    }
}
