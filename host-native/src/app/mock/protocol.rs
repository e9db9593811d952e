//! The protocols in which a completion is requested.

/// The endpoint of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Chat,
    Text,
    /// The Messages API of Anthropic, whose requests are translated by [`messages`](super::messages).
    Messages,
    /// The Responses API of OpenAI, whose requests are translated by [`responses`](super::responses).
    Responses,
}
