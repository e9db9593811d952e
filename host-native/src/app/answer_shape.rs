//! The shapes of chat answers that a mock can send: as providers send them if an answer is cut off, filtered
//! or refused, with reasoning, or with JSON amid prose.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error as NameError, StrDeserializer};

/// A shape of a chat answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerShape {
    /// The first half of the answer, with `finish_reason` `length`.
    Truncated,
    /// The first half of the answer, with `finish_reason` `content_filter`.
    ContentFilter,
    /// Status 400 with the code `content_filter`, as Azure rejects a prompt.
    PromptFilter,
    /// No text, and a refusal in `message.refusal`.
    Refusal,
    /// Reasoning in `message.reasoning_content`.
    ReasoningContent,
    /// Reasoning in `message.reasoning`.
    Reasoning,
    /// Reasoning in a `<think>` block before the answer.
    ThinkBlock,
    /// A `<think>` block that is not closed, with `finish_reason` `length`.
    OpenThinkBlock,
    /// The answer in a code fence for JSON.
    FencedJson,
    /// Prose before and after the answer.
    JsonInProse,
}

/// The shares of calls that are answered in each shape. Which call it is depends on its prompt only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnswerShapes(Vec<(AnswerShape, f64)>);

/// The value of the flag `--answers`: `refusal=0.01`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AnswersFlag(pub AnswerShape, pub f64);

impl FromStr for AnswersFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, share) = text.split_once('=').ok_or("expected SHAPE=SHARE, such as refusal=0.01")?;
        let name: StrDeserializer<'_, NameError> = name.into_deserializer();
        let kind = AnswerShape::deserialize(name).map_err(|error| error.to_string())?;
        let share = share.parse().map_err(|_| format!("the share is {share:?}; expected a number from 0 to 1"))?;
        AnswerShapes::new([(kind, share)])?;
        Ok(Self(kind, share))
    }
}

impl AnswerShapes {
    /// Creates the shares of calls.
    ///
    /// # Errors
    /// If a share is not from 0 to 1, or all together are more than 1.
    pub fn new(shares: impl IntoIterator<Item = (AnswerShape, f64)>) -> Result<Self, String> {
        let shares: Vec<_> = shares.into_iter().collect();
        let sum: f64 = shares.iter().map(|(_, share)| share).sum();
        let is_share = |(_, share): &(AnswerShape, f64)| (0.0..=1.0).contains(share);
        if shares.iter().all(is_share) && sum <= 1.0 + f64::EPSILON {
            Ok(Self(shares))
        } else {
            Err("expected shares from 0 to 1 that are at most 1 together".to_string())
        }
    }

    /// Returns the shape of the answer to the prompt with this hash; `None` for a plain answer.
    #[must_use]
    pub fn draw(&self, prompt: u64) -> Option<AnswerShape> {
        // The low 32 bits of a hash, as a number from 0 to 1.
        let mut left = (prompt & u64::from(u32::MAX)) as f64 / 2_f64.powi(32);
        self.0.iter().find_map(|(shape, share)| {
            left -= share;
            (left < 0.0).then_some(*shape)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_drawn_as_often_as_its_share() {
        let shapes = AnswerShapes::new([(AnswerShape::Refusal, 0.25), (AnswerShape::ThinkBlock, 0.5)]).unwrap();
        let count = |shape| (0..1000).filter(|n| shapes.draw(n * ((1 << 32) / 1000)) == shape).count();
        assert_eq!(count(Some(AnswerShape::Refusal)), 251);
        assert!((498..=502).contains(&count(Some(AnswerShape::ThinkBlock))));
        assert_eq!(
            AnswerShapes::new([(AnswerShape::Refusal, 1.0)]).unwrap().draw(u64::MAX),
            Some(AnswerShape::Refusal)
        );
        assert_eq!(AnswerShapes::default().draw(0), None);
    }

    #[test]
    fn a_flag_names_a_shape_and_its_share() {
        assert_eq!("think_block=0.5".parse(), Ok(AnswersFlag(AnswerShape::ThinkBlock, 0.5)));
        let error = |text: &str| text.parse::<AnswersFlag>().unwrap_err();
        assert!(error("think=0.5").starts_with("unknown variant `think`, expected one of `truncated`, "));
        assert_eq!(error("refusal=most"), "the share is \"most\"; expected a number from 0 to 1");
        for wrong in ["refusal=2", "refusal=-1", "refusal=NaN"] {
            assert_eq!(error(wrong), "expected shares from 0 to 1 that are at most 1 together");
        }
    }
}
