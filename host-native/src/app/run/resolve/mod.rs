//! A pipeline file and its dataset, resolved against each other: every name is known, every template compiled, and the
//! plan is a DAG.

mod compile;
pub(crate) mod place;

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value;
use tidegate_core::pipeline::{Column, Plan, PlanBuilder, PlanError, Strategy};
use tidegate_core::task::{GroupKind, TaskGroup};
use toml::Spanned;

use crate::app::config::pipeline::{ColumnSpec, FileError, PipelineFile, SourceText};
use crate::app::data::Dataset;
use crate::app::data::column_type::ValueKind;
use crate::app::data::row_file::{Layout, RowFormat};
use crate::app::run::columns::Fill;
use crate::app::run::columns::structure::StructureFill;
use crate::app::template::shape::Shape;
use crate::app::template::{Condition, TemplateId, Templates};

use place::find_word;

/// The functions of templates.
const FUNCTIONS: [&str; 3] = ["dict", "namespace", "range"];

/// What a group template sees: the rows with their values, and the number of the row group.
pub const GROUP_VARIABLES: [&str; 2] = ["rows", "row_group"];

/// Everything a run needs to know about its work, checked.
#[derive(Debug)]
pub struct Job {
    /// The DAG that the scheduler runs.
    pub plan: Plan,
    /// The rows it starts from.
    pub dataset: Dataset,
    /// Which of them the run is for.
    pub rows: Range<u64>,
    /// The generated columns, in file order.
    pub columns: Vec<GeneratedColumn>,
    /// The templates of all columns.
    pub templates: Templates,
    /// The same where they stand in the file.
    pub texts: Vec<TemplateText>,
    /// The key and template variable of the row number.
    pub row_key: String,
}

/// A column that is not in the dataset.
#[derive(Debug)]
pub struct GeneratedColumn {
    /// Its name in the output.
    pub name: String,
    /// Its share of a contended model.
    pub weight: f64,
    /// How many tasks it takes.
    pub strategy: Strategy,
    /// What fills it.
    pub fill: Fill,
    /// What its values are.
    pub kind: ValueKind,
    /// The values that its templates may read from a row.
    pub inputs: Vec<Input>,
    /// The generated columns that it waits for, read or listed, by their places in the file.
    pub upstreams: Vec<usize>,
    /// The condition under which it is made.
    pub when: Option<Condition>,
    /// Its value where it is skipped.
    pub otherwise: Arc<Value>,
    /// Whether it is skipped, without a task, where a column it reads was.
    pub skips_with_upstream: bool,
}

/// A template of a [`Job`] where it stands in the pipeline file.
#[derive(Clone, Debug)]
pub struct TemplateText {
    /// What it is for.
    pub kind: TemplateKind,
    /// Its column, by its place in the file.
    pub column: usize,
    /// What is written there.
    pub text: Spanned<String>,
}

impl TemplateText {
    /// What is wrong with it whatever the values are, if they are of the shapes that `shape` gives.
    pub(crate) fn faults<'s>(
        &self,
        source: &SourceText,
        templates: &Templates,
        shape: impl Fn(&str) -> Option<Shape<'s>>,
    ) -> Vec<FileError> {
        let faults = match &self.kind {
            TemplateKind::Text(template) => templates.faults(template, shape),
            TemplateKind::Condition(condition) => templates.faults_of_condition(condition, shape),
        };
        faults.into_iter().map(|fault| place::fault_error(source, &self.text, fault)).collect()
    }
}

/// What a template is for.
#[derive(Clone, Debug)]
pub enum TemplateKind {
    /// To make a text.
    Text(TemplateId),
    /// To decide whether a column is made.
    Condition(Condition),
}

impl TemplateKind {
    /// The template.
    #[must_use]
    pub fn template(&self) -> &TemplateId {
        match self {
            Self::Text(template) => template,
            Self::Condition(condition) => condition.template(),
        }
    }
}

/// A value of a row, as a template reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Input {
    /// The row number.
    RowNumber,
    /// A column of the dataset, by its place there.
    Seed(usize),
    /// A generated column, by its place in the file.
    Generated(usize),
}

impl Job {
    /// Resolves `file` against `dataset`, for all its rows. Errors point into the pipeline file, and are all that there are.
    pub fn resolve(file: &PipelineFile, dataset: Dataset) -> Result<Self, Vec<FileError>> {
        let names = Names { file, seeds: dataset.columns() };
        let mut errors: Vec<FileError> = names.check_row_key().err().into_iter().collect();
        let (mut templates, mut texts) = (Templates::new(), Vec::new());
        let mut columns = Vec::with_capacity(file.columns.len());
        let mut builder = PlanBuilder::new().column(seed_column(dataset.columns()));
        for (place, spec) in file.columns.iter().enumerate() {
            let column = compile::column(&names, place, spec, (&mut templates, &mut texts), &mut errors);
            builder = builder.column(names.plan_column(spec, &column));
            columns.push(column);
        }
        if !errors.is_empty() {
            // As long as a name means nothing, nothing is known of values.
            let any = |_: &str| Some(Shape::Any);
            errors.extend(texts.iter().flat_map(|text| text.faults(&file.source, &templates, any)));
            errors.sort_by_key(|error| error.place().map(|place| (place.line, place.column)));
            return Err(errors);
        }
        let plan = builder.build().map_err(|error| vec![names.plan_error(&error)])?;
        let rows = 0..dataset.rows();
        Ok(Self { plan, dataset, rows, columns, templates, texts, row_key: file.output.row_key.clone() })
    }

    /// Limits the run to some rows of the dataset: to those of `rows`, of which at most `limit`, the first ones.
    pub fn select(&mut self, rows: Option<Range<u64>>, limit: Option<u64>) -> Result<(), String> {
        let rows = rows.unwrap_or(0..u64::MAX);
        let end = rows.end.min(self.dataset.rows()).min(rows.start.saturating_add(limit.unwrap_or(u64::MAX)));
        if rows.start >= end {
            return Err(format!("there are no such rows: the dataset has {}, counted from 0", self.dataset.rows()));
        }
        self.rows = rows.start..end;
        self.dataset.pass_over(0..rows.start);
        Ok(())
    }

    /// Says that these row groups of the run, of `row_group_size` rows each, are done and their rows not asked for again:
    /// a dataset that is read from front to back then keeps none of them. After [`select`](Self::select). O(row groups).
    pub fn pass_over(&mut self, row_groups: impl IntoIterator<Item = u32>, row_group_size: u32) {
        let (start, end) = (self.rows.start, self.rows.end);
        let size = u64::from(row_group_size);
        for row_group in row_groups {
            let first = start.saturating_add(u64::from(row_group) * size).min(end);
            self.dataset.pass_over(first..first.saturating_add(size).min(end));
        }
    }

    /// The generated columns that the one at `at` depends on, near or far, each after those that it depends on itself.
    /// O(columns and their upstreams).
    #[must_use]
    pub fn above(&self, at: usize) -> Vec<usize> {
        let upstreams = |at: usize| self.columns.get(at).map_or(&[][..], |column| &column.upstreams);
        let mut above = Vec::new();
        let mut is_known = vec![false; self.columns.len()];
        // Each with how many of its upstreams were looked at.
        let mut path = vec![(at, 0)];
        while let Some((column, next)) = path.last_mut() {
            if let Some(&upstream) = upstreams(*column).get(*next) {
                *next += 1;
                if !std::mem::replace(&mut is_known[upstream], true) {
                    path.push((upstream, 0));
                }
            } else {
                above.push(*column);
                path.pop();
            }
        }
        above.pop();
        above
    }

    /// How finished rows are written in `format`.
    #[must_use]
    pub fn layout(&self, format: RowFormat) -> Layout {
        let seeds = self.dataset.columns().iter().cloned().zip(self.dataset.kinds().iter().copied());
        let generated = self.columns.iter().map(|column| (column.name.clone(), column.kind));
        let columns = [(self.row_key.clone(), ValueKind::Integer)].into_iter().chain(seeds).chain(generated);
        Layout { format, columns: columns.collect() }
    }

    /// What is known of the value that a template of the column at `at` calls `name`; nothing if it is none.
    #[must_use]
    pub fn shape(&self, at: usize, name: &str) -> Option<Shape<'_>> {
        let column = self.columns.get(at)?;
        let named = |input: &&Input| self.input_name(**input) == Some(name);
        match (column.strategy, name) {
            (Strategy::Cell, _) => column.inputs.iter().find(named).map(|input| self.shape_of(*input)),
            (Strategy::FullColumn | Strategy::FromScratch, "rows") => {
                let field = |input: &Input| Some((self.input_name(*input)?, self.shape_of(*input)));
                let row: Rc<[_]> = column.inputs.iter().filter_map(field).collect();
                Some(Shape::List(Rc::new(Shape::Record(row))))
            }
            (Strategy::FullColumn | Strategy::FromScratch, _) => {
                (name == "row_group").then_some(Shape::Plain("a number"))
            }
        }
    }

    /// What is known of the values of `input`.
    fn shape_of(&self, input: Input) -> Shape<'_> {
        let (kind, column) = match input {
            Input::RowNumber => (ValueKind::Integer, None),
            Input::Seed(at) => (self.dataset.kinds().get(at).copied().unwrap_or_default(), None),
            Input::Generated(at) => {
                self.columns.get(at).map_or((ValueKind::Json, None), |column| (column.kind, Some(column)))
            }
        };
        match kind {
            ValueKind::Bool => Shape::Plain("true or false"),
            ValueKind::Integer | ValueKind::Number => Shape::Plain("a number"),
            ValueKind::Text => Shape::Plain("a text"),
            ValueKind::Numbers => Shape::List(Rc::new(Shape::Plain("a number"))),
            ValueKind::Null | ValueKind::Json => match column {
                // What stands where it is skipped has a form of its own.
                Some(GeneratedColumn { fill: Fill::Llm(fill), otherwise, .. }) if otherwise.is_null() => {
                    let schema = fill.structure.as_ref().and_then(StructureFill::schema);
                    schema.map_or(Shape::Any, |schema| Shape::Schema { root: schema, part: schema })
                }
                _ => Shape::Any,
            },
        }
    }

    /// What templates call an input.
    #[must_use]
    pub fn input_name(&self, input: Input) -> Option<&str> {
        match input {
            Input::RowNumber => Some(&self.row_key),
            Input::Seed(at) => self.dataset.columns().get(at).map(String::as_str),
            Input::Generated(at) => self.columns.get(at).map(|column| column.name.as_str()),
        }
    }

    /// What the values of the output columns after the row number are, in order.
    #[must_use]
    pub fn output_types(&self) -> Vec<ValueKind> {
        let generated = self.columns.iter().map(|column| column.kind);
        self.dataset.kinds().iter().copied().chain(generated).collect()
    }

    /// The output columns after the row number, in order.
    #[must_use]
    pub fn output_columns(&self) -> Vec<String> {
        let generated = self.columns.iter().map(|column| column.name.clone());
        self.dataset.columns().iter().cloned().chain(generated).collect()
    }
}

/// The root of the plan: one task per row group that takes its rows out of the dataset.
fn seed_column(seeds: &[String]) -> Column {
    let (first, others) =
        seeds.split_first().map_or((String::new(), Vec::new()), |(first, others)| (first.clone(), others.to_vec()));
    Column {
        also_fills: others,
        group: TaskGroup {
            kind: GroupKind::Local,
            identity: vec!["seed".to_string()],
            weight: 1.0,
            admitted_limit: None,
        },
        ..Column::new(&first, Strategy::FromScratch)
    }
}

/// The task-stage resource that stands for calls to the provider and model called `label`.
#[must_use]
pub fn request_resource(label: &str) -> String {
    format!("{REQUEST_RESOURCE}{label}")
}

/// What the names of these resources begin with.
pub(crate) const REQUEST_RESOURCE: &str = "request:";

/// What the names in a pipeline file may mean.
struct Names<'a> {
    file: &'a PipelineFile,
    seeds: &'a [String],
}

impl Names<'_> {
    fn source(&self) -> &SourceText {
        &self.file.source
    }

    fn check_row_key(&self) -> Result<(), FileError> {
        let key = &self.file.output.row_key;
        let generated = self.file.columns.iter().find(|column| column.name.get_ref() == key);
        let (span, whose) = match generated {
            Some(column) => (column.span(), "this column"),
            None if self.seeds.contains(key) => (0..0, "a column of the dataset"),
            None => return Ok(()),
        };
        Err(self
            .source()
            .error(span, format!("`{key}` is the key of the row number, and also the name of {whose}"))
            .expected("another `row_key` in [output], such as `row_key = \"row_number\"`"))
    }

    fn input(&self, name: &str) -> Option<Input> {
        if name == self.file.output.row_key {
            return Some(Input::RowNumber);
        }
        let generated = self.file.columns.iter().position(|column| column.name.get_ref() == name);
        let seed = || self.seeds.iter().position(|seed| seed == name);
        generated.map(Input::Generated).or_else(|| seed().map(Input::Seed))
    }

    /// Every name that a row's template may read.
    fn row_variables(&self) -> impl Iterator<Item = &str> {
        let generated = self.file.columns.iter().map(|column| column.name.get_ref().as_str());
        self.seeds.iter().map(String::as_str).chain(generated).chain([self.file.output.row_key.as_str()])
    }

    /// What `variable` of a template means: an input of the row, or nothing that has to be looked up there.
    fn variable(&self, strategy: Strategy, text: &Spanned<String>, variable: &str) -> Result<Option<Input>, FileError> {
        let unknown = |known: Vec<&str>| {
            let span = find_word(self.source(), text, variable);
            let is_called = self.source().text()[span.end..].trim_start().starts_with('(');
            let (what, known) = if is_called { ("function", FUNCTIONS.to_vec()) } else { ("template variable", known) };
            self.source()
                .error(span, format!("unknown {what} `{variable}`"))
                .expected(format!("one of: {}", known.join(", ")))
                .suggest(variable, known)
        };
        match strategy {
            Strategy::Cell => match self.input(variable) {
                Some(input) => Ok(Some(input)),
                None => Err(unknown(self.row_variables().collect())),
            },
            Strategy::FullColumn | Strategy::FromScratch if GROUP_VARIABLES.contains(&variable) => Ok(None),
            Strategy::FullColumn | Strategy::FromScratch => Err(unknown(GROUP_VARIABLES.to_vec())),
        }
    }

    /// What the rows of a group template hold: the row number and, downstream of the dataset, the seed values and the
    /// upstreams that the column lists.
    fn group_inputs(&self, spec: &ColumnSpec) -> Vec<Input> {
        let mut inputs = vec![Input::RowNumber];
        if spec.strategy == Strategy::FullColumn {
            inputs.extend((0..self.seeds.len()).map(Input::Seed));
            inputs.extend(spec.upstreams.iter().filter_map(|upstream| self.input(upstream.get_ref())));
        }
        inputs
    }

    fn plan_column(&self, spec: &ColumnSpec, column: &GeneratedColumn) -> Column {
        let mut upstreams: Vec<String> = Vec::new();
        let derived = column.inputs.iter().filter_map(|input| match input {
            Input::RowNumber => None,
            Input::Seed(seed) => self.seeds.get(*seed).map(String::as_str),
            Input::Generated(generated) => Some(self.file.columns[*generated].name.get_ref().as_str()),
        });
        let listed = spec.upstreams.iter().map(|upstream| upstream.get_ref().as_str());
        for upstream in derived.chain(listed) {
            if !upstreams.iter().any(|known| known == upstream) {
                upstreams.push(upstream.to_string());
            }
        }
        if upstreams.is_empty() && spec.strategy != Strategy::FromScratch {
            // Rows exist once the dataset has given them.
            upstreams.extend(self.seeds.first().cloned());
        }
        let (kind, mut identity, demand, admitted_limit) = match spec.kind.model() {
            Some(model) => {
                let model = &self.file.models[model];
                let resource = request_resource(&model.label());
                let limit = model.max_parallel.get().saturating_mul(2);
                let identity = vec![model.provider.clone(), model.model.clone()];
                (GroupKind::Model, identity, vec![(resource, 1)], Some(limit))
            }
            None => (GroupKind::Local, Vec::new(), Vec::new(), None),
        };
        identity.push(column.name.clone());
        Column {
            upstreams,
            group: TaskGroup { kind, identity, weight: column.weight, admitted_limit },
            demand,
            ..Column::new(&column.name, spec.strategy).skip_with_upstream(column.skips_with_upstream)
        }
    }

    /// The columns called `name`; more than one only in a file that is refused.
    fn named(&self, name: &str) -> impl DoubleEndedIterator<Item = &ColumnSpec> {
        self.file.columns.iter().filter(move |column| column.name.get_ref() == name)
    }

    /// A plan that the core refused, at the column it is about.
    fn plan_error(&self, error: &PlanError) -> FileError {
        let source = self.source();
        let at = |name: &str| self.named(name).next_back().map_or(0..0, ColumnSpec::span);
        match error {
            PlanError::UnknownUpstream { column, upstream, .. } => {
                let listed =
                    self.named(column).flat_map(|spec| &spec.upstreams).find(|name| name.get_ref() == upstream);
                let known: Vec<&str> = self.row_variables().filter(|name| *name != self.file.output.row_key).collect();
                source
                    .error(
                        listed.map_or_else(|| at(column), Spanned::span),
                        format!("the column `{column}` has the upstream `{upstream}`, which does not exist"),
                    )
                    .expected(format!("one of: {}", known.join(", ")))
                    .suggest(upstream, known)
            }
            PlanError::DuplicateColumn { name } => {
                let other = if self.seeds.contains(name) { "the dataset" } else { "an earlier [[columns]]" };
                source
                    .error(at(name), format!("the column `{name}` is there already, from {other}"))
                    .expected("a name that no other column has")
            }
            PlanError::Cycle { names } => {
                let first = names.first().map_or("", String::as_str);
                let ring: Vec<&str> = names.iter().map(String::as_str).chain([first]).collect();
                source
                    .error(at(first), format!("these columns wait for each other: {}", ring.join(" -> ")))
                    .expected("no way from a column back to itself, by upstreams or by template variables")
            }
            other => source.error(0..0, other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
