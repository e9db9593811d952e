//! Columns of kind `llm`: the answer of a chat model to a conversation that is rendered from templates.
//! Columns of kind `score` are such columns whose criteria give an instruction and the structure of the
//! answer.
//!
//! A truncated answer is asked for once more with `retry_max_tokens`, if the column sets it.
//!
//! A column with several models asks the first that can be used. After a failure that `fallback_on` lists, it
//! asks the next one.
//!
//! If an answer does not have the required structure, the model is asked again, a limited number of times:
//! the next call shows it the answer and the error. Every such call waits for a slot of its own.
//!
//! If the requests of the model go in [batches](crate::app::run::batch_jobs), each call is a request of a
//! batch.
//!
//! What a model may call before it answers is in [`tools`](super::tools).

use std::borrow::Cow;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tidegate_core::budget::Usage;
use tidegate_core::pipeline::{FailureKind, TaskOutcome};

use super::error::FillError;
use super::structure::{AnswerFormat, parse_number};
use super::tools::ToolSet;
use super::{FillContext, Filled, ModelCalls, ValueTemplate, render_extra};
use crate::app::config::json_schema::cut;
use crate::app::provider::CallError;
use crate::app::provider::chat::ChatClient;
use crate::app::provider::completion::ChatAnswer;
use crate::app::provider::conversation::{Conversation, Message, Role};
use crate::app::provider::media::{MAX_CALL_BYTES, MAX_CALL_MEDIA, MediaKind, MediaReference};
use crate::app::provider::token_limit::TokenLimit;
use crate::app::template::TemplateId;
use crate::app::tokens;

/// The estimated tokens of an answer if the file sets neither `answer_tokens` nor a token limit, also if the
/// API requires one: that is room for long answers, and not what is likely.
const DEFAULT_ANSWER_TOKENS: u32 = 256;

/// Tokens of a message besides its text.
const MESSAGE_OVERHEAD_TOKENS: u32 = 4;

/// A compiled llm column.
#[derive(Debug)]
pub struct LlmFill {
    /// The index of the model in the pipeline file.
    pub model: usize,
    /// The failures after which the next model is asked.
    pub fallback_on: Vec<FailureKind>,
    /// The messages.
    pub messages: Vec<MessageFill>,
    /// The directory that paths of images and recordings are relative to.
    pub directory: PathBuf,
    /// The sampling temperature.
    pub temperature: Option<CallOption<f64>>,
    /// The nucleus sampling threshold.
    pub top_p: Option<CallOption<f64>>,
    /// The maximum number of tokens of an answer.
    pub max_tokens: Option<CallOption<u32>>,
    /// The models that may be called, in order of preference.
    pub models: Vec<ChatModel>,
    /// The maximum number of tokens of a second call after a truncated answer.
    pub retry_max_tokens: Option<u32>,
    /// Whether a truncated answer is used like a complete one.
    pub keep_truncated: bool,
    /// The provider's sampling seed.
    pub seed: Option<CallOption<u64>>,
    /// Stop sequences.
    pub stop: Vec<TemplateId>,
    /// Additional fields of the request body.
    pub extra: Map<String, Value>,
    /// The strings in `extra` that are templates, by JSON pointer.
    pub extra_templates: Vec<(String, TemplateId)>,
    /// The estimated tokens of an answer, if the file sets it.
    pub answer_tokens: Option<u32>,
    /// What is added to the last message.
    pub instruction: Option<String>,
    /// The required structure of the answer; `None` for any text.
    pub structure: Option<AnswerFormat>,
    /// The largest number of rows in one batch; 1 for a model that is called for each row.
    pub batch_size: u32,
    /// The tools that the model may call.
    pub tools: ToolSet,
}

/// What is known of a model before it is called: what its calls are estimated and limited by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatModel {
    /// The token limit of its answers.
    pub limit: TokenLimit,
    /// The estimated tokens of an image or a recording.
    pub media_tokens: u32,
}

/// A message of a conversation.
#[derive(Debug)]
pub struct MessageFill {
    /// The author.
    pub role: Role,
    /// The template of the text.
    pub content: TemplateId,
    /// Images and recordings.
    pub media: Vec<MediaFill>,
}

/// Images or recordings of a message: those that the value of one template names.
#[derive(Debug)]
pub struct MediaFill {
    /// Whether they are images or recordings.
    pub kind: MediaKind,
    /// The key in error messages, such as `images[0]`.
    pub title: String,
    /// The template of an address or path, or of a list of them.
    pub template: ValueTemplate,
}

/// A numeric option of a call.
#[derive(Clone, Debug)]
pub enum CallOption<T> {
    /// The same number for all rows.
    Fixed(T),
    /// A template whose text is the number.
    Template(TemplateId),
}

impl LlmFill {
    /// Returns the conversation for `context`, without [media](Self::media).
    pub fn conversation(&self, context: FillContext<'_>) -> Result<Conversation, FillError> {
        let message = |message: &MessageFill| Ok(Message::text(message.role, context.render(&message.content)?));
        let mut messages = self.messages.iter().map(message).collect::<Result<Vec<_>, FillError>>()?;
        // In the last message, because many models accept a system message only at the start, or not at all.
        let of_structure = self.structure.as_ref().and_then(AnswerFormat::instruction);
        for instruction in self.instruction.iter().chain(&of_structure) {
            if let Some(last) = messages.last_mut() {
                last.content = format!("{}\n\n{instruction}", last.content);
            }
        }
        let positive = "a whole number from 0 to 4294967295";
        Ok(Conversation {
            messages,
            temperature: number(context, "temperature", self.temperature.as_ref(), "a finite number")?,
            top_p: number(context, "top_p", self.top_p.as_ref(), "a finite number")?,
            max_tokens: number(context, "max_tokens", self.max_tokens.as_ref(), positive)?,
            seed: number(context, "seed", self.seed.as_ref(), "a whole number, 0 or more")?,
            stop: self.stop.iter().map(|stop| context.render(stop)).collect::<Result<_, _>>()?,
            response_format: self.structure.as_ref().and_then(|structure| structure.response_format(context.column)),
            tools: self.tools.offered(),
            extra: render_extra(context, &self.extra, &self.extra_templates)?,
        })
    }

    /// Returns the images and recordings of the conversation for `context`, each with the index of its
    /// message. No file is read.
    pub fn media(&self, context: FillContext<'_>) -> Result<Vec<(usize, MediaReference)>, FillError> {
        let mut media = Vec::new();
        for (index, message) in self.messages.iter().enumerate() {
            for MediaFill { kind, title, template } in &message.media {
                let named = texts_in(context.evaluate(template)?).map_err(|why| media_error(title, &why))?;
                for text in named {
                    let reference = MediaReference::of(*kind, &text, &self.directory);
                    if media.len() == MAX_CALL_MEDIA {
                        let why = format!("it has more than {MAX_CALL_MEDIA} images and recordings");
                        return Err(media_error(title, &why));
                    }
                    media.push((index, reference.map_err(|why| media_error(title, &why))?));
                }
            }
        }
        Ok(media)
    }

    /// Returns whether messages have images or recordings.
    #[must_use]
    pub fn has_media(&self) -> bool {
        self.messages.iter().any(|message| !message.media.is_empty())
    }

    /// Returns the estimated tokens of a call with `media` images and recordings, for each model that may be
    /// called: the likely number for the text, tools and schema that are sent, `media_tokens` for each image
    /// or recording, and for the answer `answer_tokens`, else the token limit that the file sets, else 256.
    #[must_use]
    pub fn estimates(&self, conversation: &Conversation, media: usize) -> Vec<Usage> {
        let message_tokens = |message: &Message| {
            let calls = message.turn.iter().flat_map(|turn| &turn.calls);
            let calls = calls.map(|call| tokens::likely(&call.name).saturating_add(tokens::likely(&call.arguments)));
            calls.fold(tokens::likely(&message.content).saturating_add(MESSAGE_OVERHEAD_TOKENS), u32::saturating_add)
        };
        let of_schema = self.structure.as_ref().map_or(0, |structure| structure.tokens);
        let beside = self.tools.tokens().saturating_add(of_schema);
        let input = conversation.messages.iter().map(message_tokens).fold(beside, u32::saturating_add);
        let of_model = |model: &ChatModel| {
            let of_media = model.media_tokens.saturating_mul(tokens::saturated(media));
            let limit = model.limit.given(conversation).map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
            let answer = self.answer_tokens.or(limit).unwrap_or(DEFAULT_ANSWER_TOKENS);
            Usage::tokens(input.saturating_add(of_media), answer)
        };
        self.models.iter().map(of_model).collect()
    }

    /// Returns why a truncated answer of a model with this limit is an error.
    fn truncation(limit: TokenLimit, conversation: &Conversation) -> String {
        match limit.sent(conversation) {
            Some(limit) => format!("the answer was cut off at {limit} tokens"),
            None => "the answer was cut off at the token limit of the provider".to_string(),
        }
    }

    pub(super) async fn fill(&self, context: FillContext<'_>, calls: ModelCalls<'_>) -> Result<Filled, FillError> {
        let chats = calls.clients().map(|client| client.chat().ok_or_else(|| FillError::no_client(context.column)));
        let clients: Vec<&ChatClient> = chats.collect::<Result<_, _>>()?;
        let (mut from, mut asked) = (0, Vec::new());
        loop {
            match self.ask(context, calls, &clients, from, &mut asked).await {
                Err((at, FillError::Outcome(TaskOutcome::Failed(kind), _)))
                    if self.fallback_on.contains(&kind) && at + 1 < clients.len() =>
                {
                    from = at + 1;
                }
                answer => {
                    if let Err((_, FillError::Outcome(TaskOutcome::Failed(_), _))) = &answer {
                        calls.discard(asked).await;
                    }
                    return answer.map_err(|(_, error)| error);
                }
            }
        }
    }

    /// Asks the first model that can be used among those from the place `from` on. An error has the place of
    /// the model that it is about. Adds the names of requests that go in batches to `asked`.
    async fn ask(
        &self,
        context: FillContext<'_>,
        calls: ModelCalls<'_>,
        clients: &[&ChatClient],
        from: usize,
        asked: &mut Vec<String>,
    ) -> Result<Filled, (usize, FillError)> {
        let mut conversation = self.conversation(context).map_err(|error| (from, error))?;
        let media = self.media(context).map_err(|error| (from, error))?;
        let mut prompt_messages = conversation.messages.len();
        let mut turns = self.tools.turns(calls);
        let mut retries = self.structure.as_ref().map_or(0, |structure| structure.retries);
        loop {
            let attempt = |at: usize| {
                let (client, conversation, media) = (clients[at], &conversation, &media);
                async move {
                    // Only now, so that no row has files in memory while it waits for a slot.
                    let conversation = &*with_media(conversation, media).await?;
                    let answer = client.chat(conversation).await;
                    calls.keep(at, &conversation.messages, &answer);
                    answer
                }
            };
            let estimates = self.estimates(&conversation, media.len());
            let (at, answer) = match calls.batch_client() {
                None => match calls.call_usable(context.column, from, &estimates, attempt).await {
                    // A server that cannot keep to the schema may also send an empty text.
                    Err((_, FillError::Outcome(TaskOutcome::Failed(FailureKind::MalformedAnswer), _)))
                        if retries > 0 =>
                    {
                        retries -= 1;
                        continue;
                    }
                    asked => asked?,
                },
                Some(client) => {
                    let whole = with_media(&conversation, &media).await.map_err(|why| (from, FillError::of(why)))?;
                    let request = client.request(context.column, context.row, &whole, estimates[from]);
                    asked.push(request.id.clone());
                    let result = calls.ask_in_batch(context.column, request).await.map_err(|error| (from, error))?;
                    calls.keep(from, &whole.messages, &result);
                    (from, result.map_err(|error| (from, FillError::of(error)))?.value)
                }
            };
            let failed = |kind, why| Err((at, FillError::failed(kind, why)));
            if answer.is_truncated {
                let limit = self.models[at].limit;
                if self.retry_max_tokens.is_some_and(|raised| limit.raise(&mut conversation, raised)) {
                    continue;
                }
                if !self.keep_truncated {
                    return failed(FailureKind::TruncatedAnswer, Self::truncation(limit, &conversation));
                }
            }
            let ChatAnswer { text, reasoning, turn, .. } = answer;
            if let Some(turn) = turn {
                // On the heap: most conversations have no tools.
                let added = Box::pin(turns.add(&mut conversation, text, reasoning, turn)).await;
                added.map_err(|error| (at, error))?;
                prompt_messages = conversation.messages.len();
                continue;
            }
            let parsed = match &self.structure {
                None => Ok(Value::String(text)),
                Some(structure) => structure.parse(&text).map_err(|violation| (text, violation)),
            };
            let (text, violation) = match parsed {
                Ok(value) => return Ok(Filled { value, reasoning: turns.all_reasoning(reasoning), model: Some(at) }),
                Err(wrong) => wrong,
            };
            if retries == 0 {
                let why = format!("the answer does not fit: {violation}");
                return failed(FailureKind::MalformedAnswer, why);
            }
            retries -= 1;
            // Only the latest attempt is kept: errors of earlier ones do not help the model.
            conversation.messages.truncate(prompt_messages);
            conversation.messages.push(Message::text(Role::Assistant, text));
            let correction = format!("That does not fit: {violation}. Answer again, with the corrected JSON alone.");
            conversation.messages.push(Message::text(Role::User, correction));
        }
    }
}

/// Returns the texts in the value of a template for media: a text or a list of them. Empty texts and null are
/// left out.
fn texts_in(value: Value) -> Result<Vec<String>, String> {
    let values = match value {
        Value::Array(values) => values,
        value => vec![value],
    };
    let text = |value: Value| match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok((!text.trim().is_empty()).then_some(text)),
        other => Err(format!("{} is neither a text nor a list of texts", cut(&other.to_string()))),
    };
    values.into_iter().filter_map(|value| text(value).transpose()).collect()
}

/// Returns the conversation with its images and recordings, which are read from their files.
async fn with_media<'a>(
    conversation: &'a Conversation,
    media: &[(usize, MediaReference)],
) -> Result<Cow<'a, Conversation>, CallError> {
    let mut conversation = Cow::Borrowed(conversation);
    let mut bytes_left = MAX_CALL_BYTES;
    for (index, media) in media {
        let loaded = media.load(&mut bytes_left).await.map_err(|detail| CallError::NotSent { detail })?;
        conversation.to_mut().messages[*index].media.push(loaded);
    }
    Ok(conversation)
}

fn media_error(title: &str, why: &str) -> FillError {
    FillError::failed(FailureKind::Template, format!("`{title}`: {why}"))
}

fn number<T: Copy + DeserializeOwned>(
    context: FillContext<'_>,
    key: &str,
    option: Option<&CallOption<T>>,
    expected: &str,
) -> Result<Option<T>, FillError> {
    match option {
        None => Ok(None),
        Some(CallOption::Fixed(number)) => Ok(Some(*number)),
        Some(CallOption::Template(template)) => {
            let text = context.render(template)?;
            parse_number(key, &text, expected).map(Some).map_err(|why| FillError::failed(FailureKind::Template, why))
        }
    }
}
