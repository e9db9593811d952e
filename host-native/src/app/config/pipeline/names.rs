//! The names that a pipeline file has for kinds, modes and other choices. The doc comments are the
//! descriptions in the JSON Schema.

use schemars::JsonSchema;
use serde::Deserialize;
use tidegate_core::pipeline::{FailureKind, PolicyChoice, Strategy};
use tidegate_core::task::BoundedBorrowConfig;

/// The kind of calls to a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Domain {
    /// Chat completions.
    #[default]
    Chat,
    /// Embedding vectors.
    Embedding,
    /// Generated images.
    Image,
    /// Verdicts of a command or a judge server.
    Judge,
}

impl Domain {
    /// Returns the name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Embedding => "embedding",
            Self::Image => "image",
            Self::Judge => "judge",
        }
    }

    /// Returns the keys that a model of this domain needs, for messages.
    pub(super) fn requirement(self) -> &'static str {
        match self {
            Self::Chat => "and a `base_url`",
            Self::Embedding => "and `domain = \"embedding\"`",
            Self::Image => "and `domain = \"image\"`",
            Self::Judge => "and a `command` or a `url`",
        }
    }
}

impl From<Domain> for tidegate_core::request::Domain {
    fn from(domain: Domain) -> Self {
        match domain {
            Domain::Chat => Self::Chat,
            Domain::Embedding => Self::Embedding,
            Domain::Image => Self::Image,
            Domain::Judge => Self::Other(Domain::Judge.name().to_string()),
        }
    }
}

/// How requests are sent to a chat model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallMode {
    /// Each by itself, and the provider answers at once
    #[default]
    Call,
    /// Many in a file, which the provider answers within 24 hours, for a lower price
    Batch,
}

/// The name of a kind of column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum KindName {
    /// The answer of a chat model
    #[default]
    Llm,
    /// The scores that a chat model gives by criteria
    Score,
    /// An embedding vector
    Embedding,
    /// The rendered text of a template
    Expression,
    /// A seeded random value
    Sampler,
    /// A file with an image that a model makes
    Image,
    /// The result of a command or a server
    Judge,
    /// Whether a text is valid, by a JSON Schema or a command
    Validation,
    /// The reasoning of the model for the answer of a column of kind llm or score
    Reasoning,
    /// The model that answered in a column of kind llm or score
    Model,
}

impl KindName {
    /// Returns the name in files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Llm => "llm",
            Self::Score => "score",
            Self::Embedding => "embedding",
            Self::Image => "image",
            Self::Expression => "expression",
            Self::Sampler => "sampler",
            Self::Judge => "judge",
            Self::Validation => "validation",
            Self::Reasoning => "reasoning",
            Self::Model => "model",
        }
    }
}

/// Whether a column has a task per row or per row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum StrategyName {
    /// A task per row
    Cell,
    /// A task per row group, with one value for all its rows
    FullColumn,
    /// A task per row group for a column without upstreams
    FromScratch,
}

impl From<StrategyName> for Strategy {
    fn from(name: StrategyName) -> Self {
        match name {
            StrategyName::Cell => Self::Cell,
            StrategyName::FullColumn => Self::FullColumn,
            StrategyName::FromScratch => Self::FromScratch,
        }
    }
}

/// The type that a text is parsed as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputForm {
    /// The text itself.
    #[default]
    Text,
    /// The text parsed as JSON.
    Json,
    /// The text parsed as a number.
    Number,
}

/// How a request asks a model for JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JsonMode {
    /// The request contains the schema in a `response_format` of type `json_schema`.
    Schema,
    /// The request has a `response_format` of type `json_object`, and a message contains the schema.
    Object,
    /// A message contains the schema, and the request has no `response_format`.
    Prompt,
}

/// A failure after which another model is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum FallbackReason {
    /// The answer does not have the required form
    MalformedAnswer,
    /// The answer was cut off at the token limit
    TruncatedAnswer,
    /// A content filter withheld the answer, or rejected the prompt
    ContentFiltered,
    /// The model refused to answer
    Refused,
    /// The provider rejected the request, such as a prompt that is too long
    Request,
}

impl From<FallbackReason> for FailureKind {
    fn from(reason: FallbackReason) -> Self {
        match reason {
            FallbackReason::MalformedAnswer => Self::MalformedAnswer,
            FallbackReason::TruncatedAnswer => Self::TruncatedAnswer,
            FallbackReason::ContentFiltered => Self::ContentFiltered,
            FallbackReason::Refused => Self::Declined,
            FallbackReason::Request => Self::Request,
        }
    }
}

/// The name of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Law {
    /// One of `values`
    Category,
    /// One of the `values` listed for the value of another column
    Subcategory,
    /// A uniformly distributed number from `low` to `high`
    Uniform,
    /// A normally distributed number with `mean` and `sd`
    Normal,
    /// True with probability `p`
    Bernoulli,
    /// The number of events where `mean` are expected
    Poisson,
    /// The number of successes in `trials` with probability `p`
    Binomial,
    /// A time from `from` (inclusive) to `to` (exclusive)
    Datetime,
    /// The time in the column `of`, moved by `low` to `high` units
    Timedelta,
    /// An invented person: `name`, `first_name`, `last_name`, `age` and `email`
    Person,
    /// A random UUID
    Uuid,
}

impl Law {
    /// Returns the name in files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Category => "category",
            Self::Subcategory => "subcategory",
            Self::Uniform => "uniform",
            Self::Normal => "normal",
            Self::Bernoulli => "bernoulli",
            Self::Poisson => "poisson",
            Self::Binomial => "binomial",
            Self::Datetime => "datetime",
            Self::Timedelta => "timedelta",
            Self::Person => "person",
            Self::Uuid => "uuid",
        }
    }
}

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum DateUnit {
    /// A second
    Second,
    /// A minute
    Minute,
    /// An hour
    Hour,
    /// A day
    Day,
}

impl DateUnit {
    pub(super) fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
        }
    }
}

/// The language and country that the names of people come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum Locale {
    /// Arabic, Saudi Arabia
    #[serde(rename = "ar_SA")]
    ArSa,
    /// Welsh, Great Britain
    #[serde(rename = "cy_GB")]
    CyGb,
    /// German, Germany
    #[serde(rename = "de_DE")]
    DeDe,
    /// English, United States
    #[default]
    #[serde(rename = "en_US")]
    EnUs,
    /// Persian, Iran
    #[serde(rename = "fa_IR")]
    FaIr,
    /// French, France
    #[serde(rename = "fr_FR")]
    FrFr,
    /// Italian, Italy
    #[serde(rename = "it_IT")]
    ItIt,
    /// Japanese, Japan
    #[serde(rename = "ja_JP")]
    JaJp,
    /// Dutch, Netherlands
    #[serde(rename = "nl_NL")]
    NlNl,
    /// Portuguese, Brazil
    #[serde(rename = "pt_BR")]
    PtBr,
    /// Portuguese, Portugal
    #[serde(rename = "pt_PT")]
    PtPt,
    /// Turkish, Turkey
    #[serde(rename = "tr_TR")]
    TrTr,
    /// Chinese, mainland China
    #[serde(rename = "zh_CN")]
    ZhCn,
    /// Chinese, Taiwan
    #[serde(rename = "zh_TW")]
    ZhTw,
}

/// The rule for when a column may start more workers than its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum PolicyName {
    /// While no other column needs the workers, up to a limit
    BoundedBorrow,
    /// Only while no other column could start
    StrictFair,
}

impl From<PolicyName> for PolicyChoice {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::BoundedBorrow => Self::BoundedBorrow(BoundedBorrowConfig::default()),
            PolicyName::StrictFair => Self::StrictFair,
        }
    }
}
