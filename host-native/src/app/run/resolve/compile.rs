//! From a column of the file to what fills it: templates compiled, names known, schemas ready.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use tidegate_core::pipeline::Strategy;
use toml::Spanned;

use super::place::{find_word, template_error};
use super::{GeneratedColumn, Input, Names, TemplateKind, TemplateText};
use crate::app::config::pipeline::{ColumnKind, ColumnSpec, FileError, LlmCall, OutputForm, SamplerSpec, Setting};
use crate::app::data::column_type::ValueKind;
use crate::app::run::columns::Fill;
use crate::app::run::columns::embedding::EmbeddingFill;
use crate::app::run::columns::expression::ExpressionFill;
use crate::app::run::columns::judge::JudgeFill;
use crate::app::run::columns::llm::{CallOption, LlmFill};
use crate::app::run::columns::sampler::SamplerFill;
use crate::app::run::columns::structure::StructureFill;
use crate::app::template::{Condition, TemplateError, TemplateId, Templates};

/// What fills the column that `spec` describes, at `place` in the file, and what it reads. The templates go into `found`, what is
/// wrong into `errors`: then the column is of no use.
pub(super) fn column(
    names: &Names<'_>,
    place: usize,
    spec: &ColumnSpec,
    found: (&mut Templates, &mut Vec<TemplateText>),
    errors: &mut Vec<FileError>,
) -> GeneratedColumn {
    let (templates, texts) = found;
    let mut compiler = Compiler { names, place, spec, templates, texts, inputs: BTreeSet::new(), errors };
    let fill = compiler.fill();
    let when = spec.when.as_ref().and_then(|when| compiler.condition(when));
    let mut inputs = compiler.inputs;
    if spec.strategy != Strategy::Cell {
        inputs.extend(names.group_inputs(spec));
    }
    let listed = spec.upstreams.iter().filter_map(|upstream| names.input(upstream.get_ref()));
    let upstreams: BTreeSet<usize> = (inputs.iter().copied().chain(listed))
        .filter_map(|input| match input {
            Input::Generated(at) => Some(at),
            Input::RowNumber | Input::Seed(_) => None,
        })
        .collect();
    GeneratedColumn {
        name: spec.name.get_ref().clone(),
        weight: *spec.weight.get_ref(),
        strategy: spec.strategy,
        fill,
        kind: kind(&spec.kind).or(ValueKind::of(&spec.otherwise)),
        inputs: inputs.into_iter().collect(),
        upstreams: upstreams.into_iter().collect(),
        when,
        otherwise: Arc::new(spec.otherwise.clone()),
        skips_with_upstream: spec.skip_with_upstream,
    }
}

/// What the values of such a column are, as far as the file says.
fn kind(kind: &ColumnKind) -> ValueKind {
    let of_form = |form| match form {
        OutputForm::Text => ValueKind::Text,
        OutputForm::Number => ValueKind::Number,
        OutputForm::Json => ValueKind::Json,
    };
    match kind {
        ColumnKind::Llm(call) => match &call.structure {
            None => ValueKind::Text,
            Some(structure) => match &structure.schema {
                Some(schema) => ValueKind::of_schema(schema.get_ref()),
                None => of_form(structure.output),
            },
        },
        ColumnKind::Embedding(_) => ValueKind::Numbers,
        ColumnKind::Expression(expression) => of_form(expression.output),
        ColumnKind::Judge(call) => of_form(call.output),
        ColumnKind::Sampler(law) => match law {
            SamplerSpec::Category { values, .. } => ValueKind::of_all(values),
            SamplerSpec::Subcategory { values, .. } => {
                ValueKind::of_all(values.values().filter_map(|list| list.as_array()).flatten())
            }
            SamplerSpec::Integer { .. } => ValueKind::Integer,
            SamplerSpec::Uniform { .. } | SamplerSpec::Normal { .. } => ValueKind::Number,
            SamplerSpec::Bernoulli { .. } => ValueKind::Bool,
            SamplerSpec::Datetime { .. } | SamplerSpec::Uuid => ValueKind::Text,
        },
    }
}

/// The texts in `value` that have something to render, by their JSON pointers.
fn texts(value: &Value, pointer: &str) -> Vec<(String, String)> {
    match value {
        Value::String(text) if text.contains("{{") || text.contains("{%") => vec![(pointer.to_string(), text.clone())],
        Value::Array(items) => {
            let item = |(at, item): (usize, &Value)| texts(item, &format!("{pointer}/{at}"));
            items.iter().enumerate().flat_map(item).collect()
        }
        Value::Object(fields) => {
            let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
            let field = |(name, field): (&String, &Value)| texts(field, &format!("{pointer}/{}", escaped(name)));
            fields.iter().flat_map(field).collect()
        }
        _ => Vec::new(),
    }
}

struct Compiler<'a> {
    names: &'a Names<'a>,
    place: usize,
    spec: &'a ColumnSpec,
    templates: &'a mut Templates,
    texts: &'a mut Vec<TemplateText>,
    inputs: BTreeSet<Input>,
    errors: &'a mut Vec<FileError>,
}

impl Compiler<'_> {
    fn fill(&mut self) -> Fill {
        match &self.spec.kind {
            ColumnKind::Expression(expression) => Fill::Expression(ExpressionFill {
                template: self.template("template", &expression.template),
                output: expression.output,
            }),
            ColumnKind::Llm(call) => Fill::Llm(Box::new(self.llm(call))),
            ColumnKind::Embedding(call) => Fill::Embedding(EmbeddingFill {
                model: call.model,
                input: self.template("input", &call.input),
                dimensions: call.dimensions,
            }),
            ColumnKind::Sampler(law) => {
                if let SamplerSpec::Subcategory { of, .. } = law {
                    self.named(of, "`of` in [columns.sampler]");
                }
                let seed = self.names.file.run.seed;
                Fill::Sampler(SamplerFill::new(law.clone(), seed, self.spec.name.get_ref()))
            }
            ColumnKind::Judge(call) => {
                call.inputs.iter().for_each(|input| self.named(input, "`inputs` in [[columns]]"));
                Fill::Judge(JudgeFill {
                    model: call.model,
                    input: call.input.as_ref().map(|input| self.template("input", input)),
                    inputs: call.inputs.iter().map(|input| input.get_ref().clone()).collect(),
                    output: call.output,
                })
            }
        }
    }

    fn llm(&mut self, call: &LlmCall) -> LlmFill {
        let mut messages = Vec::with_capacity(call.messages.len());
        for message in &call.messages {
            messages.push((message.role, self.template(&message.title, &message.content)));
        }
        let mut stop = Vec::with_capacity(call.stop.len());
        for (index, text) in call.stop.iter().enumerate() {
            stop.push(self.template(&format!("stop[{index}]"), text));
        }
        let mut extra_texts = Vec::new();
        for (pointer, text) in texts(&Value::Object(call.extra.get_ref().clone()), "") {
            let text = Spanned::new(call.extra.span(), text);
            extra_texts.push((pointer.clone(), self.template(&format!("extra{pointer}"), &text)));
        }
        let structure = call.structure.as_ref().and_then(|structure| {
            let schema = structure.schema.as_ref();
            let fill =
                StructureFill::new(structure.output, schema.map(Spanned::get_ref), structure.mode, structure.retries);
            let refused = |why| self.names.source().error(schema.map_or(0..0, Spanned::span), why);
            fill.map_err(|why| self.errors.push(refused(why))).ok()
        });
        LlmFill {
            model: call.model,
            messages,
            temperature: self.option("temperature", call.temperature.as_ref()),
            top_p: self.option("top_p", call.top_p.as_ref()),
            max_tokens: self.option("max_tokens", call.max_tokens.as_ref()),
            seed: self.option("seed", call.seed.as_ref()),
            stop,
            extra: call.extra.get_ref().clone(),
            extra_texts,
            answer_tokens: call.answer_tokens,
            structure,
        }
    }

    fn option<T: Copy>(&mut self, key: &str, setting: Option<&Setting<T>>) -> Option<CallOption<T>> {
        match setting? {
            Setting::Fixed(value) => Some(CallOption::Fixed(*value)),
            Setting::Template(text) => Some(CallOption::Template(self.template(key, text))),
        }
    }

    /// Compiles the template under `key`, and takes in what it reads. One that does not compile has an id of no use.
    fn template(&mut self, key: &str, text: &Spanned<String>) -> TemplateId {
        let name = format!("{}.{key}", self.spec.name.get_ref());
        match self.templates.add(name, text.get_ref()) {
            Ok(id) => {
                self.take_in(text, TemplateKind::Text(id.clone()));
                id
            }
            Err(error) => {
                self.broken(text, &error);
                TemplateId::default()
            }
        }
    }

    fn condition(&mut self, text: &Spanned<String>) -> Option<Condition> {
        let name = format!("{}.when", self.spec.name.get_ref());
        match self.templates.add_condition(name, text.get_ref()) {
            Ok(condition) => {
                self.take_in(text, TemplateKind::Condition(condition.clone()));
                Some(condition)
            }
            Err(error) => {
                self.broken(text, &error);
                None
            }
        }
    }

    fn broken(&mut self, text: &Spanned<String>, error: &TemplateError) {
        let message = format!("this template does not parse: {}", error.message);
        self.errors.push(template_error(self.names.source(), text, error, message));
    }

    fn take_in(&mut self, text: &Spanned<String>, kind: TemplateKind) {
        for variable in self.templates.variables(kind.template()) {
            match self.names.variable(self.spec.strategy, text, &variable) {
                Ok(input) => self.inputs.extend(input),
                Err(error) => self.errors.push(error),
            }
        }
        self.texts.push(TemplateText { kind, column: self.place, text: text.clone() });
    }

    /// Takes in a column that is named outside of a template.
    fn named(&mut self, name: &Spanned<String>, place: &str) {
        let source = self.names.source();
        if self.spec.strategy != Strategy::Cell {
            let message = format!("{place} names a column of a row, and this column is made for whole row groups");
            self.errors.push(source.error(name.span(), message).expected("`strategy = \"cell\"`"));
            return;
        }
        let known: Vec<&str> = self.names.row_variables().collect();
        match self.names.input(name.get_ref()) {
            Some(input) => {
                self.inputs.insert(input);
            }
            None => self.errors.push(
                source
                    .error(
                        find_word(source, name, name.get_ref()),
                        format!("{place} names `{}`, which does not exist", name.get_ref()),
                    )
                    .expected(format!("one of: {}", known.join(", ")))
                    .suggest(name.get_ref(), known),
            ),
        }
    }
}
