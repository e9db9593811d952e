//! The pipeline file as it is written: what serde reads, before anything is checked that needs more than one
//! key.
//!
//! The comments here are the descriptions of the JSON Schema.

use std::num::NonZeroU32;

use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde_json::json;
use tidegate_core::fair_queue::{MAX_WEIGHT, MIN_WEIGHT};

use super::columns::StrategyName;
use super::kinds::OutputForm;
use super::models::Domain;
use super::sampler::{DateUnit, Law};
use super::settings::PolicyName;
use super::structure::JsonMode;
use crate::app::config::budgets::RawBudgets;
use crate::app::config::limit::{LimitName, RawAimd};
use crate::app::config::schema::where_key_is;
use crate::app::config::value::{
    At, Finite, Is, Json, JsonTable, NumberOrTemplate, Patience, Share, Span, Table, Text, Texts,
};
use crate::app::data::DatasetFormat;
use crate::app::data::row_file::RowFormat;
use crate::app::provider::chat::Role;

/// What `tidegate run` is told. What a schema cannot say, such as which columns and variables there are, the
/// program checks.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["seed", "columns"]))]
pub(super) struct RawPipeline {
    /// The dataset that the rows start from
    pub(super) seed: Option<Table<RawSeed>>,
    /// The models that columns call
    #[serde(default)]
    pub(super) models: Vec<At<Table<RawModel>>>,
    /// The columns to fill
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(super) columns: Vec<At<Table<RawColumn>>>,
    /// How to run
    #[serde(default)]
    pub(super) run: Table<RawRun>,
    /// How to write
    #[serde(default)]
    pub(super) output: Table<RawOutput>,
}

/// The dataset that the rows start from
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSeed {
    /// The file, relative to the pipeline file
    pub(super) path: At<Text>,
    /// How it is written. Default: by the file's extension
    pub(super) format: Option<DatasetFormat>,
}

/// Where calls go, how many at once, and what they cost
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend(
    "anyOf" = [{ "required": ["provider"] }, { "required": ["url"] }, { "required": ["command"] }],
    "not" = { "required": ["limit", "aimd"], "properties": { "limit": { "enum": ["tide", "vegas", "fixed"] } } },
))]
pub(super) struct RawModel {
    /// What columns call it
    pub(super) name: At<Text>,
    /// Who serves it. Limits are per provider, model id and domain. `mock` is served in this process. Default: `command` or
    /// `http` for a judge
    pub(super) provider: Option<Text>,
    /// The model id that is sent. Default: the name
    pub(super) model: Option<Text>,
    /// The base address of an OpenAI-compatible API, such as `https://host/v1`
    pub(super) base_url: Option<At<Text>>,
    /// The whole address of a judge of one's own, which takes the question as a POST
    pub(super) url: Option<At<Text>>,
    #[schemars(length(min = 1))]
    /// The program and arguments of a judge, started for each call in the directory of the pipeline file
    pub(super) command: Option<At<Vec<Text>>>,
    /// Environment variables with the names of keys that the command gets
    pub(super) pass_env: Option<At<Vec<Text>>>,
    /// The environment variable that holds the API key
    pub(super) api_key_env: Option<At<Text>>,
    /// What it is asked for. Default: chat; judge with `url` or `command`
    pub(super) domain: Option<At<Domain>>,
    /// Calls in flight at most
    pub(super) max_parallel: NonZeroU32,
    /// The longest that one call may take. Default: 60s
    pub(super) timeout: Option<At<Span>>,
    /// What decides how many calls are in flight, up to `max_parallel`. Default: tide; aimd where there is an
    /// `aimd`
    pub(super) limit: Option<At<LimitName>>,
    /// Settings of AIMD, which they select; not beside another `limit`
    pub(super) aimd: Option<At<Table<RawAimd>>>,
    /// The longest pause after a 429 that does not say how long to wait; aimd, vegas and fixed always pause
    /// that long. Default: 2s
    pub(super) cooldown: Option<At<Span>>,
    /// The longest pause after one 429, whatever it asks for. Default: 10m
    pub(super) max_cooldown: Option<At<Span>>,
    /// How long a cold server is met with fewer calls: the limit is held down to 1 at first, and set free
    /// step by step. Default: no ramp
    pub(super) ramp: Option<At<Span>>,
    /// How much may go out
    pub(super) budgets: Option<At<Table<RawBudgets>>>,
    /// What tokens cost
    pub(super) price: Option<At<Table<RawPrice>>>,
    /// How a model of the provider `mock` behaves: `capacity`, `latency`, `overload` and so on, and its
    /// `seed`
    #[schemars(with = "Option<JsonTable>")]
    pub(super) mock: Option<At<toml::Table>>,
}

/// What tokens cost
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPrice {
    /// Of a million tokens sent
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(super) input_per_million: At<Finite>,
    /// Of a million tokens received. Default: 0
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(super) output_per_million: Option<At<Finite>>,
    /// The same in the whole file. Default: USD
    pub(super) currency: Option<At<Text>>,
}

/// A column to fill
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = by_kind)]
pub(super) struct RawColumn {
    /// The output column
    pub(super) name: At<Text>,
    /// What fills it. Default: llm
    #[serde(default)]
    pub(super) kind: KindName,
    /// A task per row; per row group, with one value for all its rows; or the same with nothing upstream.
    /// Default: cell
    pub(super) strategy: Option<At<StrategyName>>,
    /// Columns to wait for besides those that are read
    pub(super) upstreams: Option<At<Vec<At<Text>>>>,
    /// Its share of a contended model, from 2^-20 to 2^20. Default: 1
    #[schemars(range(min = MIN_WEIGHT, max = MAX_WEIGHT))]
    pub(super) weight: Option<At<Finite>>,
    /// A condition such as `score > 3`. Where it does not hold no call is made
    pub(super) when: Option<At<Text>>,
    /// The value where it is skipped. Default: null
    pub(super) otherwise: Option<At<Json>>,
    /// Whether it is skipped where a column it reads was. Default: false
    pub(super) skip_with_upstream: Option<bool>,
    /// llm, embedding, judge: the name of the model
    pub(super) model: Option<At<Text>>,
    /// llm: the template of the user message
    pub(super) prompt: Option<At<Text>>,
    /// llm: the template of the system message
    pub(super) system: Option<At<Text>>,
    /// llm: the whole conversation, instead of `prompt` and `system`
    #[schemars(length(min = 1))]
    pub(super) messages: Option<At<Vec<At<Table<RawMessage>>>>>,
    /// llm: sampling temperature; a number, or a template of one
    pub(super) temperature: Option<At<Is<NumberOrTemplate<f64>>>>,
    /// llm: the share of likelihood that is sampled from; a number, or a template of one
    pub(super) top_p: Option<At<Is<NumberOrTemplate<f64>>>>,
    /// llm: the most tokens of an answer; a number, or a template of one
    pub(super) max_tokens: Option<At<Is<NumberOrTemplate<u32>>>>,
    /// llm: texts that end an answer, as templates
    pub(super) stop: Option<At<Texts>>,
    /// llm: the provider's seed; a number, or a template of one
    pub(super) seed: Option<At<Is<NumberOrTemplate<u64>>>>,
    /// llm: what else goes into the request; texts in it are templates
    pub(super) extra: Option<At<JsonTable>>,
    /// llm: the tokens that an answer is estimated at, for budgets and costs. Default: `max_tokens`, else 256
    pub(super) answer_tokens: Option<u32>,
    /// What the text becomes as a value. Default: text; json for judge, and with a schema
    pub(super) output: Option<At<OutputForm>>,
    /// llm: the JSON Schema that the answer must fit
    pub(super) schema: Option<At<JsonTable>>,
    /// llm: a file with the JSON Schema, relative to the pipeline file
    pub(super) schema_file: Option<At<Text>>,
    /// llm: how the model is told about the form of its answer. Default: schema with a schema, else prompt
    pub(super) json_mode: Option<At<JsonMode>>,
    /// llm: how often a wrong answer is asked for again. Default: 2
    #[schemars(range(max = 10))]
    pub(super) schema_retries: Option<At<u32>>,
    /// embedding: the template of the text. judge: the template of a text that goes along
    pub(super) input: Option<At<Text>>,
    /// embedding: dimensions of the vector. Default: as many as the model gives
    #[schemars(range(min = 1, max = 1_048_576))]
    pub(super) dimensions: Option<At<u32>>,
    /// expression: the template
    pub(super) template: Option<At<Text>>,
    /// What a column of kind sampler draws: a function of the seed, the column and the row number alone
    pub(super) sampler: Option<At<Table<RawSampler>>>,
    /// judge: the columns whose values go along
    pub(super) inputs: Option<Vec<At<Text>>>,
}

/// What each kind must have.
fn by_kind(schema: &mut Schema) {
    let either = |one: &str, other: &str| json!([{ "required": [one] }, { "required": [other] }]);
    let conditions = [
        ("llm", json!({ "required": ["model"], "anyOf": either("prompt", "messages") })),
        ("embedding", json!({ "required": ["model", "input"] })),
        ("expression", json!({ "required": ["template"] })),
        ("sampler", json!({ "required": ["sampler"], "properties": { "strategy": { "const": "cell" } } })),
        ("judge", json!({ "required": ["model"], "anyOf": either("input", "inputs") })),
    ];
    let conditions = conditions.map(|(kind, then)| where_key_is("kind", kind, kind == "llm", &then));
    schema.insert("allOf".to_string(), conditions.to_vec().into());
}

/// What each law must have.
fn by_law(schema: &mut Schema) {
    let conditions = [
        ("category", json!(["values"])),
        ("subcategory", json!(["of", "values"])),
        ("uniform", json!(["low", "high"])),
        ("normal", json!(["mean", "sd"])),
        ("bernoulli", json!(["p"])),
        ("datetime", json!(["from", "to"])),
    ];
    let conditions = conditions.map(|(law, keys)| where_key_is("law", law, false, &json!({ "required": keys })));
    schema.insert("allOf".to_string(), conditions.to_vec().into());
}

/// What fills a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum KindName {
    /// A chat model's answer
    #[default]
    Llm,
    /// A vector
    Embedding,
    /// A template's text
    Expression,
    /// A seeded draw
    Sampler,
    /// The verdict of a command or a server
    Judge,
}

/// A message of the conversation
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMessage {
    /// Who says it
    pub(super) role: Role,
    /// A template
    pub(super) content: At<Text>,
}

/// What a column of kind sampler draws
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = by_law)]
pub(super) struct RawSampler {
    /// How values are drawn
    pub(super) law: Law,
    /// category: the values. subcategory: a list of values for each value of the other column
    #[schemars(extend("type" = ["array", "object"], "minItems" = 1, "minProperties" = 1))]
    pub(super) values: Option<At<Json>>,
    /// category: how often each value, relative to the others. Default: all alike
    pub(super) weights: Option<At<Vec<Finite>>>,
    /// subcategory: the other column
    pub(super) of: Option<At<Text>>,
    /// uniform: the least
    #[schemars(with = "Option<f64>")]
    pub(super) low: Option<At<Json>>,
    /// uniform: the greatest
    #[schemars(with = "Option<f64>")]
    pub(super) high: Option<At<Json>>,
    /// uniform: whole numbers only. Default: false
    pub(super) integer: Option<bool>,
    /// uniform, normal: decimals that are kept, up to 9. Default: all
    #[schemars(range(max = 9))]
    pub(super) decimals: Option<At<u32>>,
    /// normal: the mean
    pub(super) mean: Option<At<Finite>>,
    /// normal: the standard deviation
    #[schemars(range(min = 0))]
    pub(super) sd: Option<At<Finite>>,
    /// bernoulli: how likely is true
    #[schemars(range(min = 0, max = 1))]
    pub(super) p: Option<At<Finite>>,
    /// datetime: the first, such as 2024-05-01 or 2024-05-01T12:00:00Z
    #[schemars(with = "Option<Text>")]
    pub(super) from: Option<At<Json>>,
    /// datetime: after the last
    #[schemars(with = "Option<Text>")]
    pub(super) to: Option<At<Json>>,
    /// datetime: the distance between two that may be drawn. Default: second
    pub(super) unit: Option<DateUnit>,
}

/// How to run
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRun {
    /// Rows that are written together. Default: 32
    pub(super) row_group_size: Option<NonZeroU32>,
    /// Row groups in work at once, or at most so many. Default: 3
    pub(super) row_groups: Option<NonZeroU32>,
    /// Let a control loop choose how many row groups are in work. Default: false
    pub(super) adaptive_row_groups: Option<bool>,
    /// When a column may start more than its share. Default: `bounded_borrow`
    pub(super) policy: Option<PolicyName>,
    /// Start tasks that could call at once before those that would wait. Default: true
    pub(super) pressure_advisory: Option<bool>,
    /// A task that waits for its model gives its worker slot back. Default: true
    pub(super) yield_while_waiting: Option<bool>,
    /// Keep to the rates that providers state in headers. Default: true
    pub(super) rate_limit_headers: Option<bool>,
    /// Tasks in work at once. Default: 1024
    pub(super) submission_limit: Option<NonZeroU32>,
    /// Retries of a failed call; rate limits never count. Default: 3
    pub(super) retries: Option<u32>,
    /// How many last outcomes early shutdown looks back on. Default: 10
    pub(super) shutdown_window: Option<NonZeroU32>,
    /// The share of failures among them that stops the run, or never. Default: 0.5
    pub(super) shutdown_rate: Option<Is<Share>>,
    /// How many last answers of a model are judged together for a warning. Default: 20
    pub(super) degraded_window: Option<NonZeroU32>,
    /// The share of failures that may pass among them at which the run warns, or never. Default: 0.5
    pub(super) degraded_rate: Option<Is<Share>>,
    /// How long a model may answer nothing but rate limits, or never. Default: 10m
    pub(super) rate_limit_patience: Option<Is<Patience>>,
    /// How long a provider may be down, or never. Default: 10m
    pub(super) outage_patience: Option<Is<Patience>>,
    /// The seed of all samplers. Default: 0
    pub(super) seed: Option<u64>,
}

/// How to write
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOutput {
    /// The key, and template variable, of the row number. Default: row
    pub(super) row_key: Option<Text>,
    /// How rows are written. Default: jsonl
    #[serde(default)]
    pub(super) format: RowFormat,
}
