//! Gives chat answers the [shapes](AnswerShape) of providers.

use super::answer::hash_text;
use super::chat::{Choice, CompletionCall};
use super::protocol::Protocol;
use crate::app::answer_shape::{AnswerShape, AnswerShapes};

const REASONING: &str = "The prompt asks one thing. The answer is known, so it can be short.";
const REFUSAL: &str = "I cannot help with that.";

impl CompletionCall {
    /// Gives the answer of a chat completion one of `shapes`. Returns false if the prompt is rejected by a
    /// content filter.
    pub(super) fn give_shape(&mut self, shapes: &AnswerShapes) -> bool {
        let Some(shape) = shapes.draw(hash_text(&format!("shape\0{}", self.prompt_hash))) else { return true };
        if self.protocol != Protocol::Text {
            self.choices.iter_mut().filter(|choice| choice.tool.is_none()).for_each(|choice| choice.give_shape(shape));
            self.count_tokens();
        }
        self.protocol == Protocol::Text || shape != AnswerShape::PromptFilter
    }
}

impl Choice {
    fn give_shape(&mut self, shape: AnswerShape) {
        let half = |text: &str| text.chars().take(text.chars().count() / 2).collect::<String>();
        match shape {
            AnswerShape::Truncated => (self.text, self.finish_reason) = (half(&self.text), "length"),
            AnswerShape::ContentFilter => (self.text, self.finish_reason) = (half(&self.text), "content_filter"),
            AnswerShape::PromptFilter => {}
            AnswerShape::Refusal => (self.text, self.refusal) = (String::new(), Some(REFUSAL)),
            AnswerShape::ReasoningContent => self.reasoning = Some(("reasoning_content", REASONING)),
            AnswerShape::Reasoning => self.reasoning = Some(("reasoning", REASONING)),
            AnswerShape::ThinkBlock => self.text = format!("<think>\n{REASONING}\n</think>\n\n{}", self.text),
            AnswerShape::OpenThinkBlock => {
                (self.text, self.finish_reason) = (format!("<think>\n{REASONING}"), "length");
            }
            AnswerShape::FencedJson => self.text = format!("```json\n{}\n```", self.text),
            AnswerShape::JsonInProse => self.text = format!("Here it is: {} Is there more {{to do}}?", self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns the body of an answer in this shape, or `None` if the prompt is rejected.
    fn answer(shape: AnswerShape) -> Option<Value> {
        let body = json!({ "model": "m", "messages": [{ "content": "a buoy adrift" }] }).to_string();
        let mut call = CompletionCall::parse(Protocol::Chat, body.as_bytes()).unwrap();
        call.give_shape(&AnswerShapes::new([(shape, 1.0)]).unwrap()).then(|| call.whole(1, 0))
    }

    #[test]
    fn an_answer_has_the_fields_of_its_shape() {
        let message = |shape| answer(shape).unwrap()["choices"][0]["message"].clone();
        let reason = |shape| answer(shape).unwrap()["choices"][0]["finish_reason"].clone();
        let content = |shape| message(shape)["content"].as_str().unwrap().to_string();
        assert_eq!(reason(AnswerShape::Truncated), "length");
        assert_eq!(reason(AnswerShape::ContentFilter), "content_filter");
        assert_eq!(answer(AnswerShape::PromptFilter), None);
        let refused = message(AnswerShape::Refusal);
        assert_eq!((&refused["content"], &refused["refusal"]), (&Value::Null, &json!(REFUSAL)));
        for (shape, field) in
            [(AnswerShape::ReasoningContent, "reasoning_content"), (AnswerShape::Reasoning, "reasoning")]
        {
            assert_eq!(message(shape)[field], REASONING);
            let usage = &answer(shape).unwrap()["usage"];
            let tokens = |value: &Value| value.as_u64().unwrap();
            let reasoning = tokens(&usage["completion_tokens_details"]["reasoning_tokens"]);
            assert!(reasoning > 0 && tokens(&usage["completion_tokens"]) > reasoning, "{usage}");
        }
        assert!(content(AnswerShape::ThinkBlock).starts_with("<think>\n"));
        assert!(!content(AnswerShape::OpenThinkBlock).contains("</think>"));
        assert!(content(AnswerShape::FencedJson).starts_with("```json\n"));
        assert!(content(AnswerShape::JsonInProse).starts_with("Here it is: "));
    }
}
