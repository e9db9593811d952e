//! Resolves the names in a pipeline file: template variables, upstreams, and the columns of the plan.

use std::ops::Range;

use tidegate_core::pipeline::{Column, PlanError, Strategy};
use tidegate_core::task::{GroupKind, TaskGroup};
use toml::Spanned;

use super::location::find_word;
use super::{GeneratedColumn, Input, request_resource};
use crate::app::config::pipeline::{ColumnKind, ColumnSpec, FileError, PipelineFile, SourceText};
use crate::app::template::{is_same_name, names_spelled, normal_form, variables_of};

/// The global functions of templates.
const FUNCTIONS: [&str; 3] = ["dict", "namespace", "range"];

/// The variables of a template of a column that is made for whole row groups.
const ROW_GROUP_VARIABLES: [&str; 2] = ["rows", "row_group"];

/// Returns the error of a template `text` whose `variable` may be several of the columns `names`.
pub(super) fn ambiguity<'a>(
    source: &SourceText,
    text: &Spanned<String>,
    names: impl Iterator<Item = &'a str>,
    variable: &str,
) -> Option<FileError> {
    let spelled = names_spelled(names, variable);
    if spelled.len() < 2 {
        return None;
    }
    let names: Vec<String> = spelled.iter().map(|name| format!("`{name}`")).collect();
    let message = format!("`{variable}` may be any of the columns {}", names.join(" and "));
    let error = source.error(find_word(source, text, variable), message);
    Some(error.expected("columns whose names differ in letters or digits"))
}

/// Resolves the names in a pipeline file.
pub(super) struct Names<'a> {
    pub(super) file: &'a PipelineFile,
    pub(super) seeds: &'a [String],
    /// The variables of templates, in the order of [`row_names`](Self::row_names).
    pub(super) variables: Vec<String>,
}

impl<'a> Names<'a> {
    pub(super) fn new(file: &'a PipelineFile, seeds: &'a [String]) -> Self {
        let mut names = Self { file, seeds, variables: Vec::new() };
        names.variables = variables_of(names.row_names());
        names
    }

    pub(super) fn source(&self) -> &SourceText {
        &self.file.source
    }

    pub(super) fn check_row_key(&self) -> Result<(), FileError> {
        let key = &self.file.output.row_key;
        let generated = self.file.columns.iter().find(|column| is_same_name(column.name.get_ref(), key));
        let (span, owner) = match generated {
            Some(column) => (column.span(), "this column"),
            None if self.seeds.iter().any(|seed| is_same_name(seed, key)) => (0..0, "a column of the dataset"),
            None => return Ok(()),
        };
        Err(self
            .source()
            .error(span, format!("`{key}` is the key of the row number, and also the name of {owner}"))
            .expected("another `row_key` in [output], such as `row_key = \"row_number\"`"))
    }

    /// Returns an error for each generated column with the name of an earlier column in another form of
    /// Unicode: a name in a third form could mean either. One with the very name is an error of the plan.
    pub(super) fn check_forms(&self) -> impl Iterator<Item = FileError> {
        let own_names = self.file.columns.iter().map(|column| (column, self.own_name(column.name.get_ref())));
        own_names.filter(|(column, first)| column.name.get_ref() != first).map(|(column, first)| {
            let error = self.duplicate(column.span(), column.name.get_ref(), first);
            error.help("the two are written in different forms of Unicode, which look the same")
        })
    }

    /// Returns the error for a column `name` that has the name of `first`, an earlier column.
    fn duplicate(&self, span: Range<usize>, name: &str, first: &str) -> FileError {
        let is_seed = self.seeds.iter().any(|seed| seed == first);
        let other = if is_seed { "the dataset" } else { "an earlier [[columns]]" };
        let error = self.source().error(span, format!("the column `{name}` exists already, from {other}"));
        error.expected("a name that no other column has")
    }

    /// Returns the value of a row that is called `name`, in any form of Unicode.
    pub(super) fn resolve_name(&self, name: &str) -> Option<Input> {
        self.row_names().position(|own| is_same_name(own, name)).map(|at| self.input_at(at))
    }

    /// Returns the name of the column or row number that `name` means, in its own form; else `name`.
    pub(super) fn own_name<'n>(&'n self, name: &'n str) -> &'n str {
        self.row_names().find(|own| is_same_name(own, name)).unwrap_or(name)
    }

    /// Returns the names of all values of a row: those of the dataset, the generated ones, and the row
    /// number.
    pub(super) fn row_names(&self) -> impl Iterator<Item = &str> + Clone {
        let generated = self.file.columns.iter().map(|column| column.name.get_ref().as_str());
        self.seeds.iter().map(String::as_str).chain(generated).chain([self.file.output.row_key.as_str()])
    }

    /// Returns the input at a position of [`row_names`](Self::row_names).
    fn input_at(&self, at: usize) -> Input {
        match at.checked_sub(self.seeds.len()) {
            None => Input::Seed(at),
            Some(at) if at < self.file.columns.len() => Input::Generated(at),
            Some(_) => Input::RowNumber,
        }
    }

    /// Returns the variable of the generated column at `at`.
    pub(super) fn variable_of(&self, at: usize) -> &str {
        &self.variables[self.seeds.len() + at]
    }

    /// Resolves `variable` of a template: `Some` for an input of the row, `None` for a variable of the row
    /// group.
    pub(super) fn resolve_variable(
        &self,
        strategy: Strategy,
        text: &Spanned<String>,
        variable: &str,
    ) -> Result<Option<Input>, FileError> {
        let unknown = |known: Vec<&str>| {
            let span = find_word(self.source(), text, variable);
            let is_called = self.source().text()[span.end..].trim_start().starts_with('(');
            let (what, known) = if is_called { ("function", FUNCTIONS.to_vec()) } else { ("template variable", known) };
            let separators = self.unseparated(variable).map_or_else(String::new, |only| {
                format!("; the header has the one field `{only}`: a CSV file has `,`, `;`, `|` or tabs between fields")
            });
            self.source()
                .error(span, format!("unknown {what} `{variable}`"))
                .expected(format!("one of: {}{separators}", known.join(", ")))
                .suggest(variable, known)
        };
        match strategy {
            Strategy::Cell => match self.variables.iter().position(|known| known == variable) {
                Some(at) => Ok(Some(self.input_at(at))),
                None => Err(unknown(self.variables.iter().map(String::as_str).collect())),
            },
            Strategy::FullColumn | Strategy::FromScratch if ROW_GROUP_VARIABLES.contains(&variable) => Ok(None),
            Strategy::FullColumn | Strategy::FromScratch => Err(unknown(ROW_GROUP_VARIABLES.to_vec())),
        }
    }

    /// Returns the only column of the dataset, if `variable` is a word of its name: the fields of the file
    /// may be separated by another character than those that are recognised.
    fn unseparated(&self, variable: &str) -> Option<&str> {
        let is_other = |letter: char| !letter.is_alphanumeric() && letter != '_';
        let [only] = self.seeds else { return None };
        normal_form(only).split(is_other).any(|word| word == variable).then_some(only)
    }

    /// Returns the inputs of a template for whole row groups: the row number and, unless the column is from
    /// scratch, the seed values and the listed upstreams.
    pub(super) fn row_group_inputs(&self, spec: &ColumnSpec) -> Vec<Input> {
        let mut inputs = vec![Input::RowNumber];
        if spec.strategy == Strategy::FullColumn {
            inputs.extend((0..self.seeds.len()).map(Input::Seed));
            inputs.extend(spec.upstreams.iter().filter_map(|upstream| self.resolve_name(upstream.get_ref())));
        }
        inputs
    }

    pub(super) fn plan_column(&self, spec: &ColumnSpec, column: &GeneratedColumn) -> Column {
        let mut upstreams: Vec<String> = Vec::new();
        let derived = column.inputs.iter().filter_map(|input| match input {
            Input::RowNumber => None,
            Input::Seed(seed) => self.seeds.get(*seed).map(String::as_str),
            Input::Generated(generated) => Some(self.file.columns[*generated].name.get_ref().as_str()),
        });
        let listed = spec.upstreams.iter().map(|upstream| self.own_name(upstream.get_ref()));
        let resolved = column.upstreams.iter().map(|at| self.file.columns[*at].name.get_ref().as_str());
        for upstream in derived.chain(listed).chain(resolved) {
            if !upstreams.iter().any(|known| known == upstream) {
                upstreams.push(upstream.to_string());
            }
        }
        if upstreams.is_empty() && spec.strategy != Strategy::FromScratch {
            // Every column but a root needs an upstream: its rows exist once they have been read.
            upstreams.push(self.root_name().to_string());
        }
        let (kind, mut identity, demand, admitted_limit) = match spec.kind.model() {
            Some(model) => {
                let model = &self.file.models[model];
                let resource = request_resource(&model.label());
                // The tasks of all models that may be called.
                let caps = spec.kind.models().into_iter().map(|at| self.file.models[at].max_parallel.get());
                let limit = caps.max().unwrap_or(1).saturating_mul(2);
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
            // A server answers a call with several texts as a whole, also if only one of them is at fault.
            splits_retries: matches!(spec.kind, ColumnKind::Embedding(_)),
            ..Column::new(&column.name, spec.strategy)
                .skip_with_upstream(column.skips_with_upstream)
                .batched(column.fill.batch_size())
        }
    }

    /// Returns the root column of the plan, which has one task per row group: to read its rows from the
    /// dataset.
    pub(super) fn root_column(&self) -> Column {
        Column {
            also_fills: self.seeds.iter().skip(1).cloned().collect(),
            group: TaskGroup {
                kind: GroupKind::Local,
                identity: vec!["seed".to_string()],
                weight: 1.0,
                admitted_limit: None,
            },
            ..Column::new(self.root_name(), Strategy::FromScratch)
        }
    }

    /// Returns the name of the root column: that of the dataset's first column or, without a dataset, of the
    /// row number.
    fn root_name(&self) -> &str {
        self.seeds.first().unwrap_or(&self.file.output.row_key)
    }

    /// Returns the columns called `name`. More than one only in a file with errors.
    fn columns_named(&self, name: &str) -> impl DoubleEndedIterator<Item = &ColumnSpec> {
        self.file.columns.iter().filter(move |column| column.name.get_ref() == name)
    }

    /// Returns an error of the plan at the column that it is about.
    pub(super) fn plan_error(&self, error: &PlanError) -> FileError {
        let source = self.source();
        let at = |name: &str| self.columns_named(name).next_back().map_or(0..0, ColumnSpec::span);
        match error {
            PlanError::UnknownUpstream { column, upstream, .. } => {
                let listed = self
                    .columns_named(column)
                    .flat_map(|spec| &spec.upstreams)
                    .find(|name| is_same_name(name.get_ref(), upstream));
                let known: Vec<&str> = self.row_names().filter(|name| *name != self.file.output.row_key).collect();
                source
                    .error(
                        listed.map_or_else(|| at(column), Spanned::span),
                        format!("the column `{column}` has the upstream `{upstream}`, which does not exist"),
                    )
                    .expected(format!("one of: {}", known.join(", ")))
                    .suggest(upstream, known)
            }
            PlanError::DuplicateColumn { name } => self.duplicate(at(name), name, name),
            PlanError::Cycle { names } => {
                let first = names.first().map_or("", String::as_str);
                let ring: Vec<&str> = names.iter().map(String::as_str).chain([first]).collect();
                source
                    .error(at(first), format!("these columns wait for each other: {}", ring.join(" -> ")))
                    .expected("no cycle of upstreams or template variables")
            }
            other => source.error(0..0, other.to_string()),
        }
    }
}
