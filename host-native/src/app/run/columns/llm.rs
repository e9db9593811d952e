//! Columns of kind `llm`: a conversation that templates make, and the model's answer to it.
//!
//! An answer that must have a form and has it not is asked for again, a bounded number of times, in a call of its own
//! that waits for its turn: the model is shown what it said and what is wrong with that.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tidegate_core::budget::Usage;
use tidegate_core::pipeline::FailureKind;

use super::structure::{StructureFill, parse_number};
use super::{Calls, Scene, Unfilled, estimate_tokens};
use crate::app::provider::Client;
use crate::app::provider::chat::{Conversation, Message, Role};
use crate::app::template::TemplateId;

/// Tokens of an answer about which nothing is said.
const USUAL_ANSWER: u32 = 256;

/// Tokens that a message takes besides its text.
const MESSAGE_FRAME: u32 = 4;

/// A conversation as templates.
#[derive(Debug)]
pub struct LlmFill {
    /// The model, by its place in the pipeline file.
    pub model: usize,
    /// The messages.
    pub messages: Vec<(Role, TemplateId)>,
    /// Sampling temperature.
    pub temperature: Option<CallOption<f64>>,
    /// The share of likelihood that is sampled from.
    pub top_p: Option<CallOption<f64>>,
    /// The most tokens of an answer.
    pub max_tokens: Option<CallOption<u32>>,
    /// The provider's seed.
    pub seed: Option<CallOption<u64>>,
    /// Texts that end an answer.
    pub stop: Vec<TemplateId>,
    /// What else goes into the request.
    pub extra: Map<String, Value>,
    /// The texts in `extra` that are templates, by their JSON pointers.
    pub extra_texts: Vec<(String, TemplateId)>,
    /// The tokens that an answer is estimated at, if the file says so.
    pub answer_tokens: Option<u32>,
    /// The form of the answer; none: any text.
    pub structure: Option<StructureFill>,
}

/// An option of a call: a number, or the template of one.
#[derive(Clone, Debug)]
pub enum CallOption<T> {
    /// The same for all.
    Fixed(T),
    /// What the template's text says.
    Template(TemplateId),
}

impl LlmFill {
    /// The conversation for `scene`.
    pub fn conversation(&self, scene: Scene<'_>) -> Result<Conversation, Unfilled> {
        let message =
            |(role, content): &(Role, TemplateId)| Ok(Message { role: *role, content: scene.render(content)? });
        let mut messages = self.messages.iter().map(message).collect::<Result<Vec<_>, Unfilled>>()?;
        if let Some(instruction) = self.structure.as_ref().and_then(StructureFill::instruction) {
            // At the end of the last message: many models take a system message only at the start, or none.
            if let Some(last) = messages.last_mut() {
                last.content = format!("{}\n\n{instruction}", last.content);
            }
        }
        let mut extra = Value::Object(self.extra.clone());
        for (pointer, template) in &self.extra_texts {
            if let Some(text) = extra.pointer_mut(pointer) {
                *text = Value::String(scene.render(template)?);
            }
        }
        let positive = "a whole number from 0 to 4294967295";
        Ok(Conversation {
            messages,
            temperature: number(scene, "temperature", self.temperature.as_ref(), "a finite number")?,
            top_p: number(scene, "top_p", self.top_p.as_ref(), "a finite number")?,
            max_tokens: number(scene, "max_tokens", self.max_tokens.as_ref(), positive)?,
            seed: number(scene, "seed", self.seed.as_ref(), "a whole number, 0 or more")?,
            stop: self.stop.iter().map(|stop| scene.render(stop)).collect::<Result<_, _>>()?,
            response_format: self.structure.as_ref().and_then(|structure| structure.response_format(scene.column)),
            extra: match extra {
                Value::Object(extra) => extra,
                _ => Map::new(),
            },
        })
    }

    /// The tokens that `conversation` is estimated at: a token for every four characters sent, and for the answer what
    /// the file says, else the most it may have, else 256.
    #[must_use]
    pub fn estimate(&self, conversation: &Conversation) -> Usage {
        let tokens = |message: &Message| estimate_tokens(&message.content).saturating_add(MESSAGE_FRAME);
        let input = conversation.messages.iter().map(tokens).fold(0, u32::saturating_add);
        Usage::tokens(input, self.answer_tokens.or(conversation.max_tokens).unwrap_or(USUAL_ANSWER))
    }

    pub(super) async fn fill(&self, scene: Scene<'_>, calls: Calls<'_>) -> Result<Value, Unfilled> {
        let Some(Client::Chat(client)) = calls.client() else { return Err(Unfilled::wrong_client(scene.column)) };
        let mut conversation = self.conversation(scene)?;
        let asked = conversation.messages.len();
        let mut retries = self.structure.as_ref().map_or(0, |structure| structure.retries);
        loop {
            let attempt = || client.chat(&conversation);
            let text = calls.call(scene.column, self.estimate(&conversation), attempt).await?;
            let Some(structure) = &self.structure else { return Ok(Value::String(text)) };
            let complaint = match structure.read(&text) {
                Ok(value) => return Ok(value),
                Err(complaint) => complaint,
            };
            if retries == 0 {
                let why = format!("the answer does not fit: {complaint}");
                return Err(Unfilled::failed(FailureKind::MalformedAnswer, why));
            }
            retries -= 1;
            // Only the latest attempt: what was wrong with an earlier one is of no use any more.
            conversation.messages.truncate(asked);
            conversation.messages.push(Message { role: Role::Assistant, content: text });
            let content = format!("That does not fit: {complaint}. Answer again, with the corrected JSON alone.");
            conversation.messages.push(Message { role: Role::User, content });
        }
    }
}

fn number<T: Copy + DeserializeOwned>(
    scene: Scene<'_>,
    key: &str,
    option: Option<&CallOption<T>>,
    expected: &str,
) -> Result<Option<T>, Unfilled> {
    match option {
        None => Ok(None),
        Some(CallOption::Fixed(number)) => Ok(Some(*number)),
        Some(CallOption::Template(template)) => {
            let text = scene.render(template)?;
            parse_number(key, &text, expected).map(Some).map_err(|why| Unfilled::failed(FailureKind::Template, why))
        }
    }
}
