//! Compiles a column of the file: its templates, condition and schema, and the inputs that they read.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};
use tidegate_core::pipeline::Strategy;
use toml::Spanned;

use super::location::{find_word, template_error};
use super::names::{Names, ambiguity};
use super::{GeneratedColumn, Input, TemplateKind, TemplateSource};
use crate::app::config::json_schema::compile_schema;
use crate::app::config::pipeline::{
    ColumnKind, ColumnSpec, FileError, LawSpec, LlmCall, MessageSpec, ModelSpec, OutputForm, SamplerSpec, Setting,
    ToolSpec, Validation, ValidationCheck,
};
use crate::app::data::column_type::ColumnType;
use crate::app::provider::conversation::OfferedTool;
use crate::app::provider::media::MediaKind;
use crate::app::provider::token_limit::TokenLimit;
use crate::app::run::columns::embedding::EmbeddingFill;
use crate::app::run::columns::expression::ExpressionFill;
use crate::app::run::columns::image::ImageFill;
use crate::app::run::columns::judge::JudgeFill;
use crate::app::run::columns::llm::{CallOption, ChatModel, LlmFill, MediaFill, MessageFill};
use crate::app::run::columns::sampler::{SamplerFill, subcategory_key};
use crate::app::run::columns::structure::AnswerFormat;
use crate::app::run::columns::tools::ToolSet;
use crate::app::run::columns::validation::{Check, ValidationFill};
use crate::app::run::columns::{AnswerPart, Fill, ValueTemplate};
use crate::app::template::{Condition, TemplateId, Templates, is_same_name};

/// Compiles the column at `index` of the file.
///
/// Appends its templates and conditions to `templates` and `sources`, and its errors to `errors`. If there
/// are errors, the returned column must not be used.
pub(super) fn compile_column(
    names: &Names<'_>,
    index: usize,
    spec: &ColumnSpec,
    (templates, sources): (&mut Templates, &mut Vec<TemplateSource>),
    errors: &mut Vec<FileError>,
) -> GeneratedColumn {
    let mut compiler = Compiler { names, index, spec, templates, sources, inputs: BTreeSet::new(), errors };
    let fill = compiler.fill();
    let when = spec.when.as_ref().and_then(|when| compiler.condition(when, TemplateKind::Condition));
    let accept_if = spec.accept_if.as_ref().and_then(|when| compiler.condition(when, TemplateKind::Acceptance));
    let mut inputs = compiler.inputs;
    if spec.strategy != Strategy::Cell {
        inputs.extend(names.row_group_inputs(spec));
    }
    let listed = spec.upstreams.iter().filter_map(|upstream| names.resolve_name(upstream.get_ref()));
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
        column_type: column_type(&spec.kind).unify(ColumnType::of(&spec.otherwise)),
        inputs: inputs.into_iter().collect(),
        upstreams: upstreams.into_iter().collect(),
        when,
        accept_if,
        otherwise: Arc::new(spec.otherwise.clone()),
        skips_with_upstream: spec.skip_with_upstream,
    }
}

/// Returns the type of the values of such a column, as far as the file determines it.
fn column_type(kind: &ColumnKind) -> ColumnType {
    let of_form = |form| match form {
        OutputForm::Text => ColumnType::Text,
        OutputForm::Number => ColumnType::Number,
        OutputForm::Json => ColumnType::Json,
    };
    match kind {
        ColumnKind::Llm(call) | ColumnKind::Score(call) => match &call.structure {
            None => ColumnType::Text,
            Some(structure) => match &structure.schema {
                Some(schema) => ColumnType::from_schema(schema.get_ref()),
                None => of_form(structure.output),
            },
        },
        ColumnKind::Embedding(_) => ColumnType::Numbers,
        ColumnKind::Image(_) | ColumnKind::Reasoning(_) | ColumnKind::Model(_) => ColumnType::Text,
        ColumnKind::Expression(expression) => of_form(expression.output),
        ColumnKind::Judge(call) => of_form(call.output),
        ColumnKind::Validation(_) => ColumnType::Json,
        ColumnKind::Sampler(spec) => spec.laws().map(law_type).fold(ColumnType::Null, ColumnType::unify),
    }
}

/// Returns the type of the values of a distribution.
fn law_type(law: &LawSpec) -> ColumnType {
    match law {
        LawSpec::Category { values, .. } => ColumnType::of_all(values),
        LawSpec::Subcategory { values, .. } => {
            ColumnType::of_all(values.values().filter_map(|list| list.as_array()).flatten())
        }
        LawSpec::Integer { .. } | LawSpec::Poisson { .. } | LawSpec::Binomial { .. } => ColumnType::Integer,
        LawSpec::Uniform { .. } | LawSpec::Normal { .. } => ColumnType::Number,
        LawSpec::Bernoulli { .. } => ColumnType::Bool,
        LawSpec::Datetime { .. } | LawSpec::Timedelta { .. } | LawSpec::Uuid => ColumnType::Text,
        LawSpec::Person { .. } => ColumnType::Json,
    }
}

/// Returns what the estimate of a call of `model` depends on.
fn chat_model(model: &ModelSpec) -> ChatModel {
    ChatModel { limit: TokenLimit::new(model.api, &model.extras.body), media_tokens: model.media_tokens }
}

/// Returns the strings in `value` that are templates, each with its JSON pointer.
pub(super) fn template_strings(value: &Value, pointer: &str) -> Vec<(String, String)> {
    match value {
        Value::String(text) if text.contains("{{") || text.contains("{%") => vec![(pointer.to_string(), text.clone())],
        Value::Array(items) => {
            let item = |(at, item): (usize, &Value)| template_strings(item, &format!("{pointer}/{at}"));
            items.iter().enumerate().flat_map(item).collect()
        }
        Value::Object(fields) => {
            let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
            let field =
                |(name, field): (&String, &Value)| template_strings(field, &format!("{pointer}/{}", escaped(name)));
            fields.iter().flat_map(field).collect()
        }
        _ => Vec::new(),
    }
}

struct Compiler<'a> {
    names: &'a Names<'a>,
    index: usize,
    spec: &'a ColumnSpec,
    templates: &'a mut Templates,
    sources: &'a mut Vec<TemplateSource>,
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
            ColumnKind::Llm(call) | ColumnKind::Score(call) => Fill::Llm(Box::new(self.llm(call))),
            ColumnKind::Embedding(call) => Fill::Embedding(EmbeddingFill {
                model: call.model,
                input: self.template("input", &call.input),
                dimensions: call.dimensions,
                batch_size: call.batch_size,
            }),
            ColumnKind::Image(call) => Fill::Image(Box::new(ImageFill {
                model: call.model,
                prompt: self.template("prompt", &call.prompt),
                size: call.size.as_ref().map(|size| self.template("size", size)),
                answer_tokens: call.answer_tokens,
                extra: call.extra.get_ref().clone(),
                extra_templates: self.extra_templates(&call.extra),
            })),
            ColumnKind::Sampler(spec) => {
                self.check_subcategory(spec);
                let law = self.law(&spec.law);
                let case = |(when, law): &(_, LawSpec)| {
                    let law = self.law(law);
                    Some((self.condition(when, TemplateKind::Condition)?, law))
                };
                let cases = spec.cases.iter().filter_map(case).collect();
                let seed = self.names.file.run.seed;
                Fill::Sampler(SamplerFill::new(law, cases, seed, self.spec.name.get_ref()))
            }
            ColumnKind::Reasoning(of) => Fill::OfAnswer { of: self.answer_column(of), part: AnswerPart::Reasoning },
            ColumnKind::Model(of) => Fill::OfAnswer { of: self.answer_column(of), part: AnswerPart::Model },
            ColumnKind::Validation(validation) => Fill::Validation(self.validation(validation)),
            ColumnKind::Judge(call) => {
                let named = |input| self.add_named_input(input, "`inputs` in [[columns]]");
                Fill::Judge(JudgeFill {
                    model: call.model,
                    inputs: call.inputs.iter().map(named).collect(),
                    input: call.input.as_ref().map(|input| self.template("input", input)),
                    output: call.output,
                })
            }
        }
    }

    /// Adds the column that `law` names to the inputs. Returns the law with the column's own name.
    fn law(&mut self, law: &LawSpec) -> LawSpec {
        let mut law = law.clone();
        if let LawSpec::Subcategory { of, .. } | LawSpec::Timedelta { of, .. } = &mut law {
            *of.get_mut() = self.add_named_input(of, "`of` in [columns.sampler]");
        }
        law
    }

    /// Checks that a subcategory has a list for each value that a category can have in its row.
    fn check_subcategory(&mut self, spec: &SamplerSpec) {
        let LawSpec::Subcategory { of, values } = &spec.law else { return };
        let columns = &self.names.file.columns;
        // Conditions may leave out the rows with other values.
        let is_for_all_rows = spec.cases.is_empty() && self.spec.when.is_none() && !self.spec.skip_with_upstream;
        if !is_for_all_rows || columns.iter().any(|column| column.accept_if.is_some()) {
            return;
        }
        let Some(Input::Generated(at)) = self.names.resolve_name(of.get_ref()) else { return };
        let ColumnKind::Sampler(category) = &columns[at].kind else { return };
        let (LawSpec::Category { values: categories, weights }, []) = (&category.law, &category.cases[..]) else {
            return;
        };
        let drawn = categories.iter().zip(weights).filter(|(_, weight)| **weight > 0.0);
        let missing: Vec<String> = drawn
            .map(|(category, _)| subcategory_key(category))
            .filter(|key| !values.contains_key(key))
            .map(|key| format!("{key:?}"))
            .collect();
        if !missing.is_empty() {
            let (of, source) = (of.get_ref(), self.names.source());
            let message =
                format!("`values` in [columns.sampler] has no list for {}, a value of `{of}`", missing.join(" or "));
            let error = source.error(self.spec.span(), message);
            self.errors.push(error.expected(format!("a list for each value of `{of}`")));
        }
    }

    fn llm(&mut self, call: &LlmCall) -> LlmFill {
        let mut messages = Vec::with_capacity(call.messages.len());
        for message in &call.messages {
            let MessageSpec { role, content, images, audio, title } = message;
            let content = self.template(title, content);
            let mut media = Vec::new();
            for (kind, key, templates) in [(MediaKind::Image, "images", images), (MediaKind::Audio, "audio", audio)] {
                for (index, text) in templates.iter().enumerate() {
                    let title = format!("{key}[{index}]");
                    let template = self.value_template(&format!("{}.{title}", message.title), text);
                    media.push(MediaFill { kind, title, template });
                }
            }
            messages.push(MessageFill { role: *role, content, media });
        }
        let mut stop = Vec::with_capacity(call.stop.len());
        for (index, text) in call.stop.iter().enumerate() {
            stop.push(self.template(&format!("stop[{index}]"), text));
        }
        let structure = call.structure.as_ref().and_then(|structure| {
            let schema = structure.schema.as_ref();
            let fill =
                AnswerFormat::new(structure.output, schema.map(Spanned::get_ref), structure.mode, structure.retries);
            let invalid = |why| self.names.source().error(schema.map_or(0..0, Spanned::span), why);
            fill.map_err(|why| self.errors.push(invalid(why))).ok()
        });
        let models = self.spec.kind.models().into_iter().map(|at| &self.names.file.models[at]);
        LlmFill {
            model: call.model,
            models: models.map(chat_model).collect(),
            fallback_on: call.fallback_on.clone(),
            messages,
            directory: call.directory.clone(),
            temperature: self.option("temperature", call.temperature.as_ref()),
            top_p: self.option("top_p", call.top_p.as_ref()),
            max_tokens: self.option("max_tokens", call.max_tokens.as_ref()),
            retry_max_tokens: call.retry_max_tokens,
            keep_truncated: call.keep_truncated,
            seed: self.option("seed", call.seed.as_ref()),
            stop,
            extra: call.extra.get_ref().clone(),
            extra_templates: self.extra_templates(&call.extra),
            answer_tokens: call.answer_tokens,
            instruction: call.instruction.clone(),
            structure,
            batch_size: call.batch_size,
            tools: self.tools(call),
        }
    }

    /// Compiles the strings in further keys of a request that are templates.
    fn extra_templates(&mut self, extra: &Spanned<Map<String, Value>>) -> Vec<(String, TemplateId)> {
        let strings = template_strings(&Value::Object(extra.get_ref().clone()), "").into_iter();
        let compiled = strings.map(|(pointer, text)| {
            let id = self.template(&format!("extra{pointer}"), &Spanned::new(extra.span(), text));
            (pointer, id)
        });
        compiled.collect()
    }

    fn tools(&mut self, call: &LlmCall) -> ToolSet {
        let mut tools = Vec::with_capacity(call.tools.len());
        for at in &call.tools {
            let Some(ToolSpec { name, description, parameters, .. }) = self.names.file.tools.get(*at) else { continue };
            match compile_schema(parameters.get_ref()) {
                Ok(validator) => {
                    let (name, description) = (name.clone(), description.clone());
                    let parameters = parameters.get_ref().clone();
                    tools.push((OfferedTool { name, description, parameters }, validator));
                }
                Err(why) => self.errors.push(self.names.source().error(parameters.span(), why)),
            }
        }
        ToolSet::new(tools, call.max_turns)
    }

    fn validation(&mut self, validation: &Validation) -> ValidationFill {
        let input = self.value_template("input", &validation.input);
        let check = match &validation.check {
            ValidationCheck::Json(schema) => Check::Json(schema.as_ref().and_then(|schema| {
                let invalid = |why| self.errors.push(self.names.source().error(schema.span(), why));
                compile_schema(schema.get_ref()).map_err(invalid).ok()
            })),
            ValidationCheck::Command { model, invalid_exit_codes } => {
                Check::Command { model: *model, invalid_exit_codes: invalid_exit_codes.clone() }
            }
        };
        ValidationFill { input, check }
    }

    fn option<T: Copy>(&mut self, key: &str, setting: Option<&Setting<T>>) -> Option<CallOption<T>> {
        match setting? {
            Setting::Fixed(value) => Some(CallOption::Fixed(*value)),
            Setting::Template(text) => Some(CallOption::Template(self.template(key, text))),
        }
    }

    /// Compiles the template of the setting `key` and registers its inputs. Returns an id without a template
    /// on an error.
    fn template(&mut self, key: &str, text: &Spanned<String>) -> TemplateId {
        let name = format!("{}.{key}", self.spec.name.get_ref());
        match self.templates.add(name, text.get_ref()) {
            Ok(id) => {
                self.register(text, TemplateKind::Text(id.clone()));
                id
            }
            Err(error) => {
                let message = format!("this template does not parse: {}", error.message);
                self.errors.push(template_error(self.names.source(), text, &error, message));
                TemplateId::default()
            }
        }
    }

    /// Compiles the template of the setting `key` like [`template`](Self::template), to be evaluated to a
    /// value.
    fn value_template(&mut self, key: &str, text: &Spanned<String>) -> ValueTemplate {
        let Ok(expression) = self.templates.braced_expression(text.get_ref()) else {
            return ValueTemplate::Text(self.template(key, text));
        };
        self.register(text, TemplateKind::Value(expression.clone()));
        ValueTemplate::Value(expression)
    }

    fn condition(&mut self, text: &Spanned<String>, kind: fn(Condition) -> TemplateKind) -> Option<Condition> {
        match self.templates.condition(text.get_ref()) {
            Ok(condition) => {
                self.register(text, kind(condition.clone()));
                Some(condition)
            }
            Err(error) => {
                let message = format!("this condition does not parse: {}", error.message);
                let error = template_error(self.names.source(), text, &error, message);
                self.errors.push(error.expected("one expression, such as `score > 3`"));
                None
            }
        }
    }

    /// Registers a compiled template or condition, and resolves its variables to inputs.
    fn register(&mut self, text: &Spanned<String>, kind: TemplateKind) {
        for variable in kind.variables(self.templates) {
            let row_names = self.names.row_names().filter(|_| self.spec.strategy == Strategy::Cell);
            if let Some(error) = ambiguity(self.names.source(), text, row_names, &variable) {
                self.errors.push(error);
                continue;
            }
            if matches!(kind, TemplateKind::Acceptance(_)) && variable == self.names.variable_of(self.index) {
                continue;
            }
            match self.names.resolve_variable(self.spec.strategy, text, &variable) {
                Ok(input) => self.inputs.extend(input),
                Err(error) => self.errors.push(error),
            }
        }
        self.sources.push(TemplateSource { kind, column: self.index, text: text.clone() });
    }

    /// Returns the index of the column with answers of chat models that `of` names, and adds it to the
    /// inputs.
    fn answer_column(&mut self, of: &Spanned<String>) -> usize {
        let is_answer = |spec: &&ColumnSpec| spec.kind.chat().is_some() && spec.strategy == self.spec.strategy;
        let columns = &self.names.file.columns;
        let is_of = |spec: &ColumnSpec| is_answer(&spec) && is_same_name(spec.name.get_ref(), of.get_ref());
        if let Some(at) = columns.iter().position(is_of) {
            self.inputs.insert(Input::Generated(at));
            return at;
        }
        let known: Vec<&str> = columns.iter().filter(is_answer).map(|spec| spec.name.get_ref().as_str()).collect();
        let error = self.names.source().error(
            of.span(),
            format!(
                "`of` in [[columns]] names `{}`, which is no column of kind `llm` or `score` with this strategy",
                of.get_ref()
            ),
        );
        let expected =
            if known.is_empty() { "a column of kind `llm` or `score`".to_string() } else { known.join(", ") };
        self.errors.push(error.expected(format!("one of: {expected}")).suggest(of.get_ref(), known));
        0
    }

    /// Adds an input that is named outside of a template. Returns the name as the column itself has it.
    fn add_named_input(&mut self, name: &Spanned<String>, place: &str) -> String {
        let own_name = self.names.own_name(name.get_ref()).to_string();
        let source = self.names.source();
        if self.spec.strategy != Strategy::Cell {
            let message = format!("{place} names a column of a row, but this column is made for whole row groups");
            self.errors.push(source.error(name.span(), message).expected("`strategy = \"cell\"`"));
            return own_name;
        }
        let known: Vec<&str> = self.names.row_names().collect();
        match self.names.resolve_name(name.get_ref()) {
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
        own_name
    }
}
