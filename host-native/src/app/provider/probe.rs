//! The smallest call that shows whether a model answers: one word in, one token out.

use tidegate_core::budget::Usage;
use tidegate_core::request::response::Refusal;

use super::chat::{Conversation, Message, Role};
use super::{Answer, CallError, Client};

/// What the smallest call takes: one word in, one token out.
pub const SMALLEST_CALL: Usage = Usage::tokens(1, 1);

/// What the model is asked. Any answer will do.
const WORD: &str = "Hi";

/// Makes the smallest call through `client`, once, within its own timeout: an answer of one token of a chat model, the vector of one word
/// of an embedding model. A judge is not asked, since it may cost: of an address it is found out whether a server is there and takes the
/// key, of a command whether there is one.
///
/// An answer without a text, and a complaint about the limit of one token, are answers: the model is there, and the key is taken.
pub async fn smallest_call(client: &Client) -> Result<Answer<()>, CallError> {
    let answered = |usage| Ok(Answer { value: (), usage });
    let called = match client {
        Client::Chat(chat) => {
            let message = Message { role: Role::User, content: WORD.to_string() };
            let conversation = Conversation { messages: vec![message], max_tokens: Some(1), ..Conversation::default() };
            chat.chat(&conversation).await.map(|answer| answer.usage)
        }
        Client::Embedding(embedding) => embedding.embed(WORD, None).await.map(|answer| answer.usage),
        Client::Http(http) => http.reach().await.map(|()| None),
        Client::Command(command) => match command.find() {
            Ok(_) => Ok(None),
            Err(why) => Err(CallError::Command { detail: format!("the program, {why}") }),
        },
    };
    match called {
        Ok(usage) | Err(CallError::Malformed { usage, .. }) => answered(usage),
        Err(error) if is_about_the_limit(&error) => answered(None),
        Err(error) => Err(error),
    }
}

/// Whether `error` only says that one token is not enough, or that the limit goes by another name: so do models that reason first.
fn is_about_the_limit(error: &CallError) -> bool {
    match error {
        CallError::Rejected { refusal: Refusal::UnsupportedParameter, .. } => true,
        CallError::Rejected { status: 400, detail, .. } => detail.contains("max_tokens"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(refusal: Refusal, detail: &str) -> CallError {
        CallError::Rejected { status: 400, refusal, detail: detail.to_string() }
    }

    #[test]
    fn a_complaint_about_the_limit_is_no_refusal_of_the_model() {
        assert!(is_about_the_limit(&rejected(Refusal::UnsupportedParameter, "Use 'max_completion_tokens' instead.")));
        assert!(is_about_the_limit(&rejected(Refusal::Other, "max_tokens or model output limit was reached")));
        assert!(!is_about_the_limit(&rejected(Refusal::Other, "this is no chat model")));
    }
}
