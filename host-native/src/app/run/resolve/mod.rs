//! Resolves a pipeline file against its dataset: resolves every name, compiles every template, and builds the
//! plan of the scheduler.

mod compile;
pub(crate) mod location;
mod names;
pub(crate) mod output;
mod record;

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value;
use tidegate_core::pipeline::{Plan, PlanBuilder, Strategy};
use toml::Spanned;

use crate::app::config::pipeline::{FileError, PipelineFile, SourceText, UniqueSpec};
use crate::app::data::Dataset;
use crate::app::data::column_type::ColumnType;
use crate::app::data::row_file::{Layout, ParquetCompression, RowFormat};
use crate::app::run::columns::Fill;
use crate::app::run::request::Partition;
use crate::app::template::shape::{Field, Shape};
use crate::app::template::{Condition, TemplateId, TemplateValue, Templates, is_same_name, variables_of};

use names::Names;
use output::{OutputColumn, OutputSource};
use record::Record;

/// A pipeline file resolved against its dataset.
#[derive(Debug)]
pub struct ResolvedPipeline {
    /// The plan of the scheduler: the columns as a DAG.
    pub plan: Plan,
    /// The dataset.
    pub dataset: Dataset,
    /// The selected rows of the dataset, as a range of row numbers.
    pub rows: Range<u64>,
    /// The generated columns, in file order.
    pub columns: Vec<GeneratedColumn>,
    /// The columns of the output after the row number, in order.
    pub output: Vec<OutputColumn>,
    /// What a line of an export to JSONL has, if the file says.
    pub record: Option<Record>,
    /// Which rows an export leaves out; `None` for no row. Its column has the name in the output.
    pub unique: Option<UniqueSpec>,
    /// The compiled templates of all columns.
    pub templates: Templates,
    /// The templates and conditions with their spans in the file.
    pub template_sources: Vec<TemplateSource>,
    /// The output key of the row number.
    pub row_key: String,
    /// The variables of templates of a row: the columns of the dataset, the generated columns, the row
    /// number.
    variables: Vec<String>,
}

/// A column that the run generates.
#[derive(Debug)]
pub struct GeneratedColumn {
    /// Its name in the output.
    pub name: String,
    /// Its weight in the fair queue of its model.
    pub weight: f64,
    /// Whether it has one task per row or per row group.
    pub strategy: Strategy,
    /// What fills it.
    pub fill: Fill,
    /// The type of its values.
    pub column_type: ColumnType,
    /// The values of a row that its templates may read.
    pub inputs: Vec<Input>,
    /// Its upstreams among the generated columns, read or listed, by index.
    pub upstreams: Vec<usize>,
    /// The condition under which it is made.
    pub when: Option<Condition>,
    /// The condition on a row with its value that decides whether the row is accepted.
    pub accept_if: Option<Condition>,
    /// Its value where it is skipped.
    pub otherwise: Arc<Value>,
    /// Whether it is skipped, without a task, where one of its upstreams is skipped.
    pub skips_with_upstream: bool,
}

/// A template or condition with its span in the pipeline file.
#[derive(Clone, Debug)]
pub struct TemplateSource {
    /// The compiled template or condition.
    pub kind: TemplateKind,
    /// The index of its column.
    pub column: usize,
    /// The text and its span.
    pub text: Spanned<String>,
}

impl TemplateSource {
    /// Returns its static errors, with their places in the file. `shape` returns the shape of a variable.
    pub(crate) fn static_errors<'s>(
        &self,
        source: &SourceText,
        templates: &Templates,
        shape: impl Fn(&str) -> Option<Shape<'s>>,
    ) -> Vec<FileError> {
        let errors = match &self.kind {
            TemplateKind::Text(template) => templates.static_errors(template, shape),
            TemplateKind::Condition(condition)
            | TemplateKind::Acceptance(condition)
            | TemplateKind::Value(condition) => templates.condition_static_errors(condition, shape),
        };
        errors.into_iter().map(|error| location::static_error(source, &self.text, error)).collect()
    }
}

/// A compiled template or condition.
#[derive(Clone, Debug)]
pub enum TemplateKind {
    /// A template that renders a text.
    Text(TemplateId),
    /// An expression whose value is used, not its text.
    Value(Condition),
    /// A condition that decides whether a column is made.
    Condition(Condition),
    /// A condition that decides whether a row is accepted. It may read its own column.
    Acceptance(Condition),
}

impl TemplateKind {
    /// Returns the variables that it reads from outside, without built-in functions.
    #[must_use]
    pub fn variables(&self, templates: &Templates) -> BTreeSet<String> {
        match self {
            Self::Text(template) => templates.variables(template),
            Self::Condition(condition) | Self::Acceptance(condition) | Self::Value(condition) => {
                templates.condition_variables(condition)
            }
        }
    }
}

/// A value of a row that a template may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Input {
    /// The row number.
    RowNumber,
    /// A column of the dataset, by index.
    Seed(usize),
    /// A generated column, by index.
    Generated(usize),
}

impl ResolvedPipeline {
    /// Resolves `file` against `dataset`, with all rows selected.
    ///
    /// # Errors
    /// All errors that were found, in file order, each with its place in the pipeline file.
    pub fn resolve(file: &PipelineFile, dataset: Dataset) -> Result<Self, Vec<FileError>> {
        let names = Names::new(file, dataset.columns());
        let mut errors: Vec<FileError> = names.check_row_key().err().into_iter().chain(names.check_forms()).collect();
        let (mut templates, mut sources) = (Templates::new(), Vec::new());
        let mut columns = Vec::with_capacity(file.columns.len());
        let mut builder = PlanBuilder::new().column(names.root_column());
        for (index, spec) in file.columns.iter().enumerate() {
            let column = compile::compile_column(&names, index, spec, (&mut templates, &mut sources), &mut errors);
            columns.push(column);
        }
        wait_for_acceptance(&mut columns);
        for (spec, column) in file.columns.iter().zip(&columns) {
            builder = builder.column(names.plan_column(spec, column));
        }
        let output = output::output_columns(&names, &dataset, &columns, &mut errors);
        // Of the file, where it lists columns: some of them may have errors.
        let written: Vec<&str> = match &file.output.columns {
            Some(listed) => listed.iter().map(|column| column.name.get_ref().as_str()).collect(),
            None => output.iter().map(|column| column.name.as_str()).collect(),
        };
        let mut unique = file.output.unique.clone();
        if let Some(UniqueSpec { column, .. }) = &mut unique {
            if let Some(own) = written.iter().find(|own| is_same_name(own, column.get_ref())) {
                *column.get_mut() = (*own).to_string();
            } else {
                let message = format!("`column` in [output.unique] is no column of the output: `{}`", column.get_ref());
                let expected = format!("one of: {}", written.join(", "));
                let error = file.source.error(column.span(), message).expected(expected);
                errors.push(error.suggest(column.get_ref(), written.iter().copied()));
            }
        }
        let record = file.output.record.as_ref().map(|record| {
            let columns: Vec<&str> = written.iter().copied().chain([file.output.row_key.as_str()]).collect();
            Record::compile(&file.source, record, &columns, &mut templates, &mut errors)
        });
        if !errors.is_empty() {
            // Without resolved names the shapes of variables are unknown.
            let any = |_: &str| Some(Shape::Any);
            errors.extend(sources.iter().flat_map(|text| text.static_errors(&file.source, &templates, any)));
            errors.extend(record.iter().flat_map(|record| record.static_errors(&file.source, &templates, any)));
            errors.sort_by_key(|error| error.place().map(|place| (place.line, place.column)));
            return Err(errors);
        }
        let plan = builder.build().map_err(|error| vec![names.plan_error(&error)])?;
        let (rows, variables) = (0..dataset.rows(), names.variables);
        Ok(Self {
            plan,
            dataset,
            rows,
            columns,
            output,
            record,
            unique,
            templates,
            template_sources: sources,
            row_key: file.output.row_key.clone(),
            variables,
        })
    }

    /// Selects the rows in `rows` that are in `partition`, and of these the first `limit`.
    ///
    /// # Errors
    /// If no row is selected.
    pub fn select_rows(
        &mut self,
        rows: Option<Range<u64>>,
        partition: Option<Partition>,
        limit: u64,
    ) -> Result<(), String> {
        let (rows, all) = (rows.unwrap_or(0..u64::MAX), self.dataset.rows());
        let part = partition.map_or(0..all, |partition| partition.of(all));
        let rows = rows.start.max(part.start)..rows.end.min(part.end);
        let end = rows.end.min(rows.start.saturating_add(limit));
        if rows.start >= end {
            let which = partition.map_or_else(String::new, |partition| {
                format!("; the partition {partition} is the rows {}..{}", part.start, part.end)
            });
            return Err(format!("there are no such rows: the dataset has {all}, counted from 0{which}"));
        }
        self.rows = rows.start..end;
        self.dataset.skip_rows(0..rows.start);
        Ok(())
    }

    /// Skips row groups that are done, by index, with `row_group_size` rows each: a dataset that is read from
    /// front to back does not buffer their rows.
    ///
    /// Must be called after [`select_rows`](Self::select_rows). Takes O(row groups).
    pub fn skip_row_groups(&mut self, row_groups: impl IntoIterator<Item = u32>, row_group_size: u32) {
        let (start, end) = (self.rows.start, self.rows.end);
        let size = u64::from(row_group_size);
        for row_group in row_groups {
            let first = start.saturating_add(u64::from(row_group) * size).min(end);
            self.dataset.skip_rows(first..first.saturating_add(size).min(end));
        }
    }

    /// Returns the indices of the generated columns that the one at `at` depends on, directly or indirectly,
    /// in topological order. Takes O(columns and their upstreams).
    #[must_use]
    pub fn ancestors(&self, at: usize) -> Vec<usize> {
        let mut order = Vec::new();
        self.visit(at, &mut vec![false; self.columns.len()], &mut order);
        order.pop();
        order
    }

    /// Returns the indices of all generated columns in topological order, and otherwise in file order. Takes
    /// O(columns and their upstreams).
    #[must_use]
    pub fn topological_order(&self) -> Vec<usize> {
        let (mut order, mut is_known) = (Vec::new(), vec![false; self.columns.len()]);
        (0..self.columns.len()).for_each(|at| self.visit(at, &mut is_known, &mut order));
        order
    }

    /// Appends the column at `at` to `order`, after all that it depends on, except those that are known.
    fn visit(&self, at: usize, is_known: &mut [bool], order: &mut Vec<usize>) {
        if std::mem::replace(&mut is_known[at], true) {
            return;
        }
        // A depth-first search. Each entry has the number of its upstreams that were visited.
        let mut path = vec![(at, 0)];
        while let Some((column, next)) = path.last_mut() {
            if let Some(&upstream) = self.columns[*column].upstreams.get(*next) {
                *next += 1;
                if !std::mem::replace(&mut is_known[upstream], true) {
                    path.push((upstream, 0));
                }
            } else {
                order.push(*column);
                path.pop();
            }
        }
    }

    /// Returns the columns of the output in order, with their types.
    #[must_use]
    pub fn layout(&self, format: RowFormat, compression: ParquetCompression) -> Layout {
        let others = self.output.iter().map(|column| (column.name.clone(), column.column_type));
        let columns = [(self.row_key.clone(), ColumnType::Integer)].into_iter().chain(others);
        Layout { format, compression, columns: columns.collect() }
    }

    /// Returns the shape of the variable `name` in templates of the column at `at`; `None` if there is no
    /// such variable.
    #[must_use]
    pub fn variable_shape(&self, at: usize, name: &str) -> Option<Shape<'_>> {
        let column = self.columns.get(at)?;
        let named = |input: &&Input| self.variable(**input) == Some(name);
        match (column.strategy, name) {
            (Strategy::Cell, _) if column.accept_if.is_some() && self.variable(Input::Generated(at)) == Some(name) => {
                Some(self.input_shape(Input::Generated(at)))
            }
            (Strategy::Cell, _) => column.inputs.iter().find(named).map(|input| self.input_shape(*input)),
            (Strategy::FullColumn | Strategy::FromScratch, "rows") => {
                let field = |input: &Input| Some((self.input_name(*input)?, self.input_shape(*input)));
                let row: Rc<[_]> = column.inputs.iter().filter_map(field).collect();
                Some(Shape::List(Rc::new(Shape::Object(row))))
            }
            (Strategy::FullColumn | Strategy::FromScratch, _) => {
                (name == "row_group").then_some(Shape::Scalar("a number"))
            }
        }
    }

    /// Returns the errors in `columns` and `record` of `[output]` that name fields which no value can have.
    #[must_use]
    pub fn output_errors(&self, file: &PipelineFile) -> Vec<FileError> {
        let shapes: Vec<_> = self.output.iter().map(|column| self.output_shape(column)).collect();
        let mut errors = Vec::new();
        for (column, shape) in file.output.columns.iter().flatten().zip(&shapes) {
            if let Err((field, value, known)) = shape {
                let message = format!("there is no field `{field}`: `{}` names one in {value}", column.from.get_ref());
                let error = file.source.error(location::find_word(&file.source, &column.from, field), message);
                let expected = match known.as_slice() {
                    [] => "the column itself".to_string(),
                    known => format!("one of: {}", known.join(", ")),
                };
                errors.push(error.expected(expected).suggest(field, known.iter().map(String::as_str)));
            }
        }
        if let Some(record) = &self.record {
            let names = self.output.iter().map(|column| column.name.as_str()).chain([self.row_key.as_str()]);
            let variables = variables_of(names);
            let shape = |name: &str| {
                let at = variables.iter().position(|variable| variable == name)?;
                // Any other name was found to be a column before, and the last one is the row number.
                Some(match shapes.get(at) {
                    Some(Ok(shape)) => shape.clone(),
                    Some(Err(_)) => Shape::Any,
                    None => self.input_shape(Input::RowNumber),
                })
            };
            errors.extend(record.static_errors(&file.source, &self.templates, shape));
        }
        errors
    }

    /// Returns the shape of the values of an output column, or the first field of its path that cannot exist,
    /// with the type of the value and the fields that it may have.
    fn output_shape<'a>(&'a self, column: &'a OutputColumn) -> Result<Shape<'a>, (&'a str, &'static str, Vec<String>)> {
        let input = match column.source {
            OutputSource::Seed(at) => Input::Seed(at),
            OutputSource::Generated(at) => Input::Generated(at),
        };
        column.path.iter().try_fold(self.input_shape(input), |shape, key| match shape.field(key) {
            Field::Possible(shape) => Ok(shape),
            Field::Impossible { value, known } => Err((key.as_str(), value, known)),
        })
    }

    /// Returns the shape of the values of `input`.
    fn input_shape(&self, input: Input) -> Shape<'_> {
        let (kind, column) = match input {
            Input::RowNumber => (ColumnType::Integer, None),
            Input::Seed(at) => (self.dataset.column_types().get(at).copied().unwrap_or_default(), None),
            Input::Generated(at) => {
                self.columns.get(at).map_or((ColumnType::Json, None), |column| (column.column_type, Some(column)))
            }
        };
        match kind {
            ColumnType::Bool => Shape::Scalar("true or false"),
            ColumnType::Integer | ColumnType::Number => Shape::Scalar("a number"),
            ColumnType::Text => Shape::Scalar("a text"),
            ColumnType::Numbers => Shape::List(Rc::new(Shape::Scalar("a number"))),
            ColumnType::Null | ColumnType::Json => match column {
                // The value of a skipped cell need not fit the schema, unless it is null.
                Some(GeneratedColumn { fill, otherwise, .. }) if otherwise.is_null() => {
                    fill.schema().map_or(Shape::Any, |schema| Shape::Schema { root: schema, schema })
                }
                _ => Shape::Any,
            },
        }
    }

    /// Returns the variable of an input in templates of a row.
    #[must_use]
    pub fn variable(&self, input: Input) -> Option<&str> {
        let seeds = self.dataset.columns().len();
        let at = match input {
            Input::Seed(at) => at,
            Input::Generated(at) => seeds + at,
            Input::RowNumber => seeds + self.columns.len(),
        };
        self.variables.get(at).map(String::as_str)
    }

    /// Returns the value of an input under each key that `column` reads it by: its name, and for a column of
    /// cells also its variable.
    pub fn keyed<'a>(
        &'a self,
        column: &GeneratedColumn,
        input: Input,
        value: TemplateValue,
    ) -> impl Iterator<Item = (&'a str, TemplateValue)> + use<'a> {
        let (name, is_cell) = (self.input_name(input), column.strategy == Strategy::Cell);
        let variable = self.variable(input).filter(|variable| is_cell && name != Some(*variable));
        let by_variable = variable.map(|variable| (variable, value.clone()));
        by_variable.into_iter().chain(name.map(|name| (name, value)))
    }

    /// Returns the name of an input.
    #[must_use]
    pub fn input_name(&self, input: Input) -> Option<&str> {
        match input {
            Input::RowNumber => Some(&self.row_key),
            Input::Seed(at) => self.dataset.columns().get(at).map(String::as_str),
            Input::Generated(at) => self.columns.get(at).map(|column| column.name.as_str()),
        }
    }

    /// Returns the types of the output columns after the row number, in order.
    #[must_use]
    pub fn output_types(&self) -> Vec<ColumnType> {
        self.output.iter().map(|column| column.column_type).collect()
    }

    /// Returns the names of the output columns after the row number, in order.
    #[must_use]
    pub fn output_columns(&self) -> Vec<String> {
        self.output.iter().map(|column| column.name.clone()).collect()
    }
}

/// Makes the columns after one that accepts rows wait for it, so that they are not made for rejected rows:
/// unless it waits for them, or they are skipped with what they wait for.
fn wait_for_acceptance(columns: &mut [GeneratedColumn]) {
    for accepting in 0..columns.len() {
        for at in accepting + 1..columns.len() {
            let column = &columns[at];
            let may_wait = column.strategy != Strategy::FromScratch && !column.skips_with_upstream;
            let waits = column.upstreams.contains(&accepting);
            if columns[accepting].accept_if.is_some() && may_wait && !waits && !leads_to(columns, at, accepting) {
                columns[at].upstreams.push(accepting);
            }
        }
    }
}

/// Returns whether the column at `to` waits for the one at `from`, directly or indirectly.
fn leads_to(columns: &[GeneratedColumn], from: usize, to: usize) -> bool {
    let (mut is_known, mut open) = (vec![false; columns.len()], vec![to]);
    while let Some(at) = open.pop() {
        if !std::mem::replace(&mut is_known[at], true) {
            open.extend(&columns[at].upstreams);
        }
    }
    is_known[from]
}

/// Returns the name of the task resource that stands for calls to the provider and model `label`.
#[must_use]
pub fn request_resource(label: &str) -> String {
    format!("{REQUEST_RESOURCE}{label}")
}

/// The prefix of the names of task resources that stand for calls.
pub(crate) const REQUEST_RESOURCE: &str = "request:";

#[cfg(test)]
mod tests;
