//! Checks the keys of each kind of column, except [samplers](super::sampler).

use std::ops::Range;
use std::path::Path;

use serde_json::{Map, Value};
use tidegate_core::pipeline::FailureKind;
use toml::Spanned;

use super::{batches, criteria, sampler, structure, tools};
use crate::app::config::document::Document;
use crate::app::config::pipeline::names::{Domain, FallbackReason, KindName, OutputForm};
use crate::app::config::pipeline::raw::{RawColumn, RawMessage};
use crate::app::config::pipeline::spec::{
    ColumnKind, EmbeddingCall, Endpoint, Expression, ImageCall, JudgeCall, LlmCall, MessageSpec, ModelSpec, ToolSpec,
    Validation, ValidationCheck,
};
use crate::app::config::source::FileError;
use crate::app::config::value::{JsonTable, NumberOrTemplate, Table, Text, Texts, WithSpan};
use crate::app::provider::command::TEMPORARY_EXIT_CODE;
use crate::app::provider::conversation::{ChatApi, Role};

/// Request keys that have their own key in `[[columns]]`, or must not be changed.
pub(super) const RESERVED: [&str; 10] =
    ["model", "messages", "temperature", "top_p", "max_tokens", "stop", "seed", "response_format", "stream", "n"];

/// Request keys of images that have their own key in `[[columns]]`, or must not be changed.
pub(super) const RESERVED_FOR_IMAGES: [&str; 5] = ["model", "prompt", "size", "n", "stream"];

/// The maximum number of dimensions of a vector.
const MAX_DIMENSIONS: u32 = 1 << 20;

/// Validates the keys of the column in `table` that depend on its kind.
pub(super) fn check(
    file: &Document<'_>,
    table: &Range<usize>,
    raw: RawColumn,
    models: &[ModelSpec],
    tools: &[ToolSpec],
    directory: &Path,
) -> Result<ColumnKind, FileError> {
    let column = Column { file, table, models, tools, kind: raw.kind };
    Ok(match raw.kind {
        KindName::Llm => ColumnKind::Llm(Box::new(column.llm(raw, directory)?)),
        KindName::Score => ColumnKind::Score(Box::new(column.score(raw, directory)?)),
        KindName::Embedding => ColumnKind::Embedding(column.embedding(raw)?),
        KindName::Image => ColumnKind::Image(ImageCall {
            model: column.model(raw.model, Domain::Image)?,
            prompt: column.required("prompt", "a template", raw.prompt)?,
            size: raw.size.map(WithSpan::spanned),
            answer_tokens: raw.answer_tokens,
            extra: column.extra(raw.extra, &RESERVED_FOR_IMAGES)?,
        }),
        KindName::Expression => ColumnKind::Expression(Expression {
            template: column.required("template", "a template", raw.template)?,
            output: raw.output.map_or(OutputForm::Text, WithSpan::into_inner),
        }),
        KindName::Sampler => ColumnKind::Sampler(sampler::check(file, table, raw.sampler)?),
        KindName::Judge => ColumnKind::Judge(column.judge(raw)?),
        KindName::Validation => ColumnKind::Validation(column.validation(raw, directory)?),
        KindName::Reasoning => ColumnKind::Reasoning(column.answer_column(raw.of)?),
        KindName::Model => ColumnKind::Model(column.answer_column(raw.of)?),
    })
}

/// Returns the span of the first key with recordings.
fn audio_span(raw: &RawColumn) -> Option<Range<usize>> {
    let mut messages = raw.messages.iter().flat_map(WithSpan::get);
    let audio = raw.audio.as_ref().or_else(|| messages.find_map(|message| message.get().audio.as_ref()));
    audio.map(WithSpan::span)
}

/// The context for validating a column.
struct Column<'a, 't> {
    file: &'a Document<'t>,
    /// The span of the table.
    table: &'a Range<usize>,
    models: &'a [ModelSpec],
    tools: &'a [ToolSpec],
    kind: KindName,
}

impl Column<'_, '_> {
    fn required(&self, key: &str, what: &str, value: Option<WithSpan<Text>>) -> Result<Spanned<String>, FileError> {
        let missing = || self.file.missing(self.table.clone(), key, format!("`{key} = ` {what}"));
        value.map(WithSpan::spanned).ok_or_else(missing)
    }

    fn answer_column(&self, of: Option<WithSpan<Text>>) -> Result<Spanned<String>, FileError> {
        self.required("of", "the name of a column of kind `llm` or `score`", of)
    }

    /// Returns the preferred model and its fallbacks, from `model` or `models`.
    fn chat_models(
        &self,
        model: Option<WithSpan<Text>>,
        models: Option<WithSpan<Vec<WithSpan<Text>>>>,
    ) -> Result<(usize, Vec<usize>), FileError> {
        let Some(models) = models else { return Ok((self.model(model, Domain::Chat)?, Vec::new())) };
        if let Some(model) = model {
            let message = "`model` in [[columns]] is given beside `models`, which lists all models";
            return Err(self.file.error(model.span(), message).expected("`model` or `models`"));
        }
        let span = models.span();
        let mut found: Vec<usize> = Vec::new();
        for name in models.into_inner() {
            let at = self.model(Some(name.clone()), Domain::Chat)?;
            let label = self.models[at].label();
            if let Some(same) = found.iter().find(|known| self.models[**known].label() == label) {
                let message = format!("`models` in [[columns]] has `{}`, which is {label}", name.get().0);
                let expected = format!("another provider or model id than that of `{}`", self.models[*same].name);
                return Err(self.file.error(name.span(), message).expected(expected));
            }
            found.push(at);
        }
        match found.split_first() {
            Some((first, fallbacks)) => Ok((*first, fallbacks.to_vec())),
            None => Err(self.file.wrong(span, "at least one model")),
        }
    }

    fn fallback_on(
        &self,
        reasons: Option<WithSpan<Vec<FallbackReason>>>,
        fallbacks: &[usize],
    ) -> Result<Vec<FailureKind>, FileError> {
        match reasons {
            Some(reasons) if fallbacks.is_empty() => Err(self
                .file
                .error(reasons.span(), "`fallback_on` in [[columns]] has no effect with one model")
                .expected("`models = ` at least two beside it")),
            reasons => Ok(reasons.into_iter().flat_map(WithSpan::into_inner).map(FailureKind::from).collect()),
        }
    }

    fn llm(&self, mut raw: RawColumn, directory: &Path) -> Result<LlmCall, FileError> {
        let models_span = raw.models.as_ref().map(WithSpan::span);
        let (model, fallbacks) = self.chat_models(raw.model.take(), raw.models.take())?;
        let called: Vec<&ModelSpec> = [model].iter().chain(&fallbacks).map(|at| &self.models[*at]).collect();
        let several = models_span.filter(|_| !fallbacks.is_empty());
        let batch_size = batches::chat_size(self.file, &raw, &called, several)?;
        let lacks = [
            ("seed", raw.seed.as_ref().map(WithSpan::span), &[ChatApi::Anthropic, ChatApi::Responses][..]),
            ("stop", raw.stop.as_ref().map(WithSpan::span), &[ChatApi::Responses]),
            ("audio", audio_span(&raw), &[ChatApi::Anthropic, ChatApi::Responses]),
        ];
        for (key, span, apis) in lacks {
            if let (Some(span), Some(other)) = (span, called.iter().find(|model| apis.contains(&model.api))) {
                let message =
                    format!("`{key}` in [[columns]] is given, but the API of the model `{}` has none", other.name);
                return Err(self
                    .file
                    .error(span, message)
                    .expected(format!("no `{key}`, or a model with another `api`")));
            }
        }
        let tools = tools::of_column(self.file, &raw, self.tools, &called)?;
        Ok(LlmCall {
            model,
            tools,
            max_turns: tools::max_turns(&raw),
            fallback_on: self.fallback_on(raw.fallback_on.take(), &fallbacks)?,
            fallbacks,
            structure: structure::check(self.file, &mut raw, directory)?,
            temperature: raw.temperature.take().map(WithSpan::setting),
            top_p: raw.top_p.take().map(WithSpan::setting),
            retry_max_tokens: self.retry_max_tokens(&raw)?,
            keep_truncated: raw.keep_truncated.unwrap_or(false),
            max_tokens: raw.max_tokens.take().map(WithSpan::setting),
            seed: raw.seed.take().map(WithSpan::setting),
            stop: raw.stop.take().map_or_else(Vec::new, WithSpan::into_texts),
            extra: self.extra(raw.extra.take(), &RESERVED)?,
            answer_tokens: raw.answer_tokens,
            instruction: None,
            batch_size,
            messages: self.messages(raw)?,
            directory: directory.to_path_buf(),
        })
    }

    fn score(&self, mut raw: RawColumn, directory: &Path) -> Result<LlmCall, FileError> {
        let criteria = criteria::check(self.file, self.table, raw.criteria.take())?;
        raw.schema = Some(criteria.schema());
        Ok(LlmCall { instruction: Some(criteria.instruction()), ..self.llm(raw, directory)? })
    }

    /// Returns the token limit of a second call, which must be higher than that of the first.
    fn retry_max_tokens(&self, raw: &RawColumn) -> Result<Option<u32>, FileError> {
        let Some(raised) = &raw.retry_max_tokens else { return Ok(None) };
        let first = match raw.max_tokens.as_ref().map(|limit| &limit.get().0) {
            Some(NumberOrTemplate::Number(limit)) => *limit,
            Some(NumberOrTemplate::Template(_)) | None => 0,
        };
        if *raised.get() > first {
            return Ok(Some(*raised.get()));
        }
        let expected = format!("a whole number from {} to {}: more than `max_tokens`", u64::from(first) + 1, u32::MAX);
        Err(self.file.wrong(raised.span(), expected))
    }

    /// Returns the messages from `prompt` and `system`, or from `messages`.
    fn messages(&self, raw: RawColumn) -> Result<Vec<MessageSpec>, FileError> {
        let texts = |texts: Option<WithSpan<Texts>>| texts.map_or_else(Vec::new, WithSpan::into_texts);
        let Some(list) = raw.messages else {
            let named = |role, key: &str, content, (images, audio)| MessageSpec {
                role,
                content,
                images,
                audio,
                title: key.to_string(),
            };
            let no_media = (Vec::new(), Vec::new());
            let system = raw.system.map(|content| named(Role::System, "system", content.spanned(), no_media));
            let or_messages = if self.kind == KindName::Llm { ", or `messages`" } else { "" };
            let prompt = self.required("prompt", &format!("a template{or_messages}"), raw.prompt)?;
            let media = (texts(raw.images), texts(raw.audio));
            return Ok(system.into_iter().chain([named(Role::User, "prompt", prompt, media)]).collect());
        };
        let span = |text: &Option<WithSpan<Text>>| text.as_ref().map(WithSpan::span);
        let media_span = |texts: &Option<WithSpan<Texts>>| texts.as_ref().map(WithSpan::span);
        for (key, span) in [
            ("prompt", span(&raw.prompt)),
            ("system", span(&raw.system)),
            ("images", media_span(&raw.images)),
            ("audio", media_span(&raw.audio)),
        ] {
            if let Some(span) = span {
                let message = format!("`{key}` is given beside `messages`, which are the whole conversation");
                let expected = "`messages` alone, or the other keys alone";
                let help = "a message of the list can have `images` and `audio`";
                let error = self.file.error(span, message).expected(expected);
                return Err(if matches!(key, "images" | "audio") { error.help(help) } else { error });
            }
        }
        if list.get().is_empty() {
            return Err(self.file.wrong(list.span(), "at least one message"));
        }
        let message = |(index, message): (usize, WithSpan<Table<RawMessage>>)| {
            let Table(RawMessage { role, content, images, audio }) = message.into_inner();
            for (key, span) in [("images", media_span(&images)), ("audio", media_span(&audio))] {
                if let (Some(span), true) = (span, role != Role::User) {
                    let message =
                        format!("`{key}` in [[columns.messages]] is given for a message that is not the user's");
                    return Err(self.file.error(span, message).expected("`role = \"user\"` beside it"));
                }
            }
            let (images, audio) = (texts(images), texts(audio));
            Ok(MessageSpec { role, content: content.spanned(), images, audio, title: format!("messages[{index}]") })
        };
        list.into_inner().into_iter().enumerate().map(message).collect()
    }

    fn extra(
        &self,
        extra: Option<WithSpan<JsonTable>>,
        reserved: &[&str],
    ) -> Result<Spanned<Map<String, Value>>, FileError> {
        let Some(extra) = extra else { return Ok(Spanned::new(0..0, Map::new())) };
        let extra = extra.map(|JsonTable(table)| table);
        match reserved.iter().find(|key| extra.get_ref().contains_key(**key)) {
            Some(key) => Err(self
                .file
                .error(extra.span(), format!("`extra` in [[columns]] has `{key}`, which it cannot set"))
                .expected("request keys that [[columns]] has no own key for")),
            None => Ok(extra),
        }
    }

    fn embedding(&self, raw: RawColumn) -> Result<EmbeddingCall, FileError> {
        let is_out_of_range = |dimensions: &&WithSpan<u32>| !(1..=MAX_DIMENSIONS).contains(dimensions.get());
        if let Some(dimensions) = raw.dimensions.as_ref().filter(is_out_of_range) {
            return Err(self.file.wrong(dimensions.span(), "a whole number from 1 to 1048576"));
        }
        let batch_size = batches::embedding_size(self.file, &raw)?;
        Ok(EmbeddingCall {
            model: self.model(raw.model, Domain::Embedding)?,
            input: self.required("input", "a template", raw.input)?,
            dimensions: raw.dimensions.map(WithSpan::into_inner),
            batch_size,
        })
    }

    fn judge(&self, raw: RawColumn) -> Result<JudgeCall, FileError> {
        let inputs: Vec<_> = raw.inputs.into_iter().flatten().map(WithSpan::spanned).collect();
        if raw.input.is_none() && inputs.is_empty() {
            return Err(self
                .file
                .error(self.table.clone(), "[[columns]] of kind `judge` has nothing to judge")
                .expected("`input = ` a template, or `inputs = ` the columns to send, or both"));
        }
        Ok(JudgeCall {
            model: self.model(raw.model, Domain::Judge)?,
            input: raw.input.map(WithSpan::spanned),
            inputs,
            output: raw.output.map_or(OutputForm::Json, WithSpan::into_inner),
        })
    }

    fn validation(&self, mut raw: RawColumn, directory: &Path) -> Result<Validation, FileError> {
        let input = self.required("input", "a template of what is checked", raw.input.take())?;
        let given = [
            ("schema", raw.schema.as_ref().map(WithSpan::span)),
            ("schema_file", raw.schema_file.as_ref().map(WithSpan::span)),
        ];
        let schema = given.into_iter().find_map(|(key, span)| Some((key, span?)));
        let codes = raw.invalid_exit_codes.take();
        let Some(name) = raw.model.take() else {
            if let Some(codes) = codes {
                let message = "`invalid_exit_codes` in [[columns]] has no effect without a command";
                return Err(self.file.error(codes.span(), message).expected("`model = ` a model with a `command`"));
            }
            let schema = structure::check_schema(self.file, &mut raw, directory)?;
            return Ok(Validation { input, check: ValidationCheck::Json(schema) });
        };
        if let Some((key, span)) = schema {
            let message = format!("`{key}` is given beside `model`, whose command checks the text");
            return Err(self.file.error(span, message).expected("`model`, or `schema` or `schema_file`"));
        }
        let model = self.model(Some(name.clone()), Domain::Judge)?;
        if !matches!(self.models[model].endpoint, Endpoint::Command { .. }) {
            let message =
                format!("the model `{}` is a server; a column of kind `validation` runs a command", name.get().0);
            let help = "the answer of a server is a column of kind `judge`";
            return Err(self.file.error(name.span(), message).expected("a model with a `command`").help(help));
        }
        let is_other = |code: &u8| *code == 0 || *code == TEMPORARY_EXIT_CODE;
        if let Some(codes) = codes.as_ref().filter(|codes| codes.get().is_empty() || codes.get().iter().any(is_other)) {
            let expected = "exit codes from 1 to 255, but 75: 0 is a valid text, and 75 a temporary failure";
            return Err(self.file.wrong(codes.span(), expected));
        }
        let invalid_exit_codes = codes.map_or_else(|| vec![1], WithSpan::into_inner);
        Ok(Validation { input, check: ValidationCheck::Command { model, invalid_exit_codes } })
    }

    /// Returns the index of the column's model, which must have the domain that the kind calls.
    fn model(&self, name: Option<WithSpan<Text>>, domain: Domain) -> Result<usize, FileError> {
        let name = self.required("model", "the name of a model", name)?;
        let suitable = || self.models.iter().filter(|model| model.domain == domain).map(|model| model.name.as_str());
        let model_error = |message: String| {
            self.file
                .error(name.span(), message)
                .expected(match suitable().collect::<Vec<_>>().as_slice() {
                    [] => format!("a [[models]] table with this name {}", domain.requirement()),
                    names => format!("one of: {}", names.join(", ")),
                })
                .suggest(name.get_ref(), suitable())
        };
        let at = self.models.iter().position(|model| model.name == *name.get_ref());
        let at = at.ok_or_else(|| model_error(format!("there is no model `{}`", name.get_ref())))?;
        if self.models[at].domain == domain {
            return Ok(at);
        }
        Err(model_error(format!(
            "the model `{}` has the domain `{}`; a column of kind `{}` calls one of the domain `{}`",
            name.get_ref(),
            self.models[at].domain.name(),
            self.kind.name(),
            domain.name()
        )))
    }
}
