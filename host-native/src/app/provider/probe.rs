//! The smallest call that finds out whether a model can be used: one word in, one token out.

use tidegate_core::budget::Usage;
use tidegate_core::request::response::RejectionReason;

use super::conversation::{Conversation, Message, Role};
use super::{CallError, CallOutput, Client};

/// The estimated token usage of [`probe_model`].
pub const PROBE_USAGE: Usage = Usage::tokens(1, 1);

/// The prompt. Any response counts.
const PROMPT: &str = "Hi";

/// Makes one call through `client`, within the timeout of the client: a response of one token from a chat
/// model, or the embedding of one word.
///
/// A model that generates images is not called, since that costs more, and neither is a judge, since that may
/// cost money. For these models and for an HTTP judge, this checks that the server can be reached and accepts
/// the key; for a command, that the program exists. For a model whose requests go in batches, this reads the
/// list of batches.
///
/// A response without text, and an error about the limit of one token, count as success: the model exists and
/// the key is accepted.
pub async fn probe_model(client: &Client) -> Result<CallOutput<()>, CallError> {
    let success = |usage| Ok(CallOutput { value: (), usage });
    let result = match client {
        Client::Chat(chat) => {
            let message = Message::text(Role::User, PROMPT);
            let conversation = Conversation { messages: vec![message], max_tokens: Some(1), ..Conversation::default() };
            chat.chat(&conversation).await.map(|answer| answer.usage)
        }
        Client::Embedding(embedding) => embedding.embed(PROMPT, None).await.map(|answer| answer.usage),
        Client::Batch(batch) => batch.check().await.map(|()| Some(Usage::default())),
        Client::Image(images) => images.check_reachable().await.map(|()| None),
        Client::Http(http) => http.check_reachable().await.map(|()| None),
        Client::Command(command) => match command.find() {
            Ok(_) => Ok(None),
            Err(why) => Err(CallError::Command { detail: format!("the program, {why}") }),
        },
    };
    match result {
        Ok(usage)
        | Err(
            CallError::Malformed { usage, .. }
            | CallError::ContentFiltered { usage, .. }
            | CallError::Refused { usage, .. },
        ) => success(usage),
        Err(error) if is_token_limit_error(&error) => success(None),
        Err(error) => Err(error),
    }
}

/// Returns whether `error` only says that one token is not enough, or that the limit has another parameter
/// name. Reasoning models return both.
fn is_token_limit_error(error: &CallError) -> bool {
    match error {
        CallError::Rejected { rejection: RejectionReason::UnsupportedParameter, .. } => true,
        CallError::Rejected { status: 400, detail, .. } => {
            detail.contains("max_tokens") || detail.contains("max_output_tokens")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(rejection: RejectionReason, detail: &str) -> CallError {
        CallError::Rejected { status: 400, rejection, detail: detail.to_string() }
    }

    #[test]
    fn an_error_about_the_token_limit_does_not_mean_that_the_model_is_unusable() {
        assert!(is_token_limit_error(&rejected(
            RejectionReason::UnsupportedParameter,
            "Use 'max_completion_tokens' instead."
        )));
        assert!(is_token_limit_error(&rejected(
            RejectionReason::Other,
            "max_tokens or model output limit was reached"
        )));
        assert!(!is_token_limit_error(&rejected(RejectionReason::Other, "this is not a chat model")));
    }
}
