//! The raw pipeline file as serde deserializes it, before checks that involve more than one key.
//! The doc comments are the descriptions in the JSON Schema.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde_json::json;
use tidegate_core::fair_queue::{MAX_WEIGHT, MIN_WEIGHT};
use tidegate_core::sim::provider::ProviderSpec;

use super::names::{
    CallMode, DateUnit, Domain, FallbackReason, JsonMode, KindName, Law, Locale, OutputForm, PolicyName, StrategyName,
};
use crate::app::answer_shape::AnswerShape;
use crate::app::config::budgets::RawBudgets;
use crate::app::config::limit::{LimitName, RawAimd};
use crate::app::config::schema::where_key_is;
use crate::app::config::share::RawShare;
use crate::app::config::value::{
    Checked, DurationOrNever, DurationText, Finite, Json, JsonTable, NumberOrTemplate, ShareOrNever, Table, Text,
    Texts, WithSpan,
};
use crate::app::data::DatasetFormat;
#[cfg(feature = "parquet")]
use crate::app::data::row_file::ParquetCompression;
use crate::app::data::row_file::RowFormat;
use crate::app::provider::conversation::{ChatApi, Role};

/// The maximum number of rows without a dataset.
pub(super) const MAX_ROWS: u64 = 1_000_000_000;

/// The input of `tidegate run`. Rules that a schema cannot express, such as references to columns and
/// variables, are checked by the program.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend(
    "required" = ["columns"],
    "oneOf" = [
        { "required": ["seed"], "not": { "properties": { "run": { "required": ["rows"] } }, "required": ["run"] } },
        { "required": ["run"], "properties": { "run": { "required": ["rows"] } }, "not": { "required": ["seed"] } },
        {
            "required": ["seed", "run"],
            "properties": { "run": { "required": ["rows"] }, "columns": { "contains": { "required": ["accept_if"] } } },
        },
    ],
))]
pub(super) struct RawPipeline {
    /// The dataset that rows are read from. Without it, `rows` in `run` is the number of rows
    pub(super) seed: Option<Table<RawSeed>>,
    /// The models that columns call
    #[serde(default)]
    pub(super) models: Vec<WithSpan<Table<RawModel>>>,
    /// The tools that the models of columns may call
    #[serde(default)]
    pub(super) tools: Vec<WithSpan<Table<RawTool>>>,
    /// The columns to fill
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub(super) columns: Vec<WithSpan<Table<RawColumn>>>,
    /// Settings of the run
    #[serde(default)]
    pub(super) run: Table<RawRun>,
    /// Settings of the output
    #[serde(default)]
    pub(super) output: Table<RawOutput>,
    /// The processes with which limits are shared. Default: they are not shared
    pub(super) share: Option<Table<RawShare>>,
}

/// The dataset that rows are read from
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSeed {
    /// The file, a directory of files, or a pattern such as `logs/*.jsonl`, relative to the pipeline file; or
    /// the address of a file, with https
    pub(super) path: WithSpan<Text>,
    /// The format of the files. Default: by the extension
    pub(super) format: Option<DatasetFormat>,
    /// The encoding of CSV and JSONL files without a byte order mark, by its WHATWG label, such as
    /// `windows-1252`. Default: utf-8
    pub(super) encoding: Option<WithSpan<Text>>,
    /// Whether the rows are put into a random order, which depends on `seed` in `[run]`. Default: false
    pub(super) shuffle: Option<bool>,
    /// Whether the file at an address may come unencrypted from another machine. Default: false
    pub(super) allow_plain_http: Option<WithSpan<bool>>,
    /// A PEM file with the certificate authorities to trust for an address, relative to the pipeline file.
    /// Default: those of the system
    pub(super) ca_file: Option<WithSpan<Text>>,
    /// The most bytes of the file at an address. Default: 10 000 000 000
    #[schemars(range(min = 1))]
    pub(super) max_bytes: Option<WithSpan<u64>>,
}

/// A model: its endpoint, limits, budgets and price
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend(
    "anyOf" = [{ "required": ["provider"] }, { "required": ["url"] }, { "required": ["command"] }],
    "not" = { "required": ["limit", "aimd"], "properties": { "limit": { "enum": ["tide", "vegas", "fixed"] } } },
))]
pub(super) struct RawModel {
    /// The name that columns use
    pub(super) name: WithSpan<Text>,
    /// The provider. Limits are per provider, model id and domain. `mock` is served in this process. Default:
    /// `command` or `http` for a judge
    pub(super) provider: Option<Text>,
    /// The model id in requests. Default: the name
    pub(super) model: Option<Text>,
    /// The API of a chat model. Default: openai
    pub(super) api: Option<WithSpan<ChatApi>>,
    /// How requests are sent to a chat model. Default: call
    pub(super) mode: Option<WithSpan<CallMode>>,
    /// The base address of the API, such as `https://host/v1`
    pub(super) base_url: Option<WithSpan<Text>>,
    /// The full address of a judge server, which receives the question as a POST
    pub(super) url: Option<WithSpan<Text>>,
    #[schemars(length(min = 1))]
    /// The program and arguments of a judge, started for each call in the directory of the pipeline file
    pub(super) command: Option<WithSpan<Vec<Text>>>,
    /// Environment variables with keys that the command may read
    pub(super) pass_env: Option<WithSpan<Vec<Text>>>,
    /// The environment variable that holds the API key
    pub(super) api_key_env: Option<WithSpan<Text>>,
    /// Whether the key may be sent to an http address of another machine. Default: false
    pub(super) allow_plain_http: Option<WithSpan<bool>>,
    /// A PEM file with the certificate authorities to trust, relative to the pipeline file. Default: those of
    /// the system
    pub(super) ca_file: Option<WithSpan<Text>>,
    /// Headers of each request besides those that the program sets. A value is a text, or `{ env = "NAME" }`
    /// for the value of an environment variable, as for keys
    pub(super) extra_headers: Option<WithSpan<RawExtras>>,
    /// Query parameters of the address, with values as in `extra_headers`
    pub(super) query: Option<WithSpan<RawExtras>>,
    /// Keys of the body of each request besides those that the program and the columns set
    pub(super) extra_body: Option<WithSpan<JsonTable>>,
    /// The kind of calls. Default: chat; judge with `url` or `command`
    pub(super) domain: Option<WithSpan<Domain>>,
    /// The maximum number of calls in flight; with `mode = "batch"`, of batches
    pub(super) max_parallel: NonZeroU32,
    /// The timeout of one call. Default: 60s
    pub(super) timeout: Option<WithSpan<DurationText>>,
    /// The algorithm that limits the calls in flight, up to `max_parallel`. Default: tide; aimd if there is a
    /// table `aimd`; fixed with `mode = "batch"`
    pub(super) limit: Option<WithSpan<LimitName>>,
    /// Settings of AIMD. The table selects AIMD and cannot be combined with another `limit`
    pub(super) aimd: Option<WithSpan<Table<RawAimd>>>,
    /// The maximum pause after a 429 without a Retry-After; aimd, vegas and fixed always pause this long.
    /// Default: 2s
    pub(super) cooldown: Option<WithSpan<DurationText>>,
    /// The maximum pause after one 429, also with a longer Retry-After. Default: 10m
    pub(super) max_cooldown: Option<WithSpan<DurationText>>,
    /// The time over which the limit rises step by step from 1, for servers that start cold. Default: no ramp
    pub(super) ramp: Option<WithSpan<DurationText>>,
    /// Budgets for calls and tokens in a time window
    pub(super) budgets: Option<WithSpan<Table<RawBudgets>>>,
    /// The price of tokens and images
    pub(super) price: Option<WithSpan<Table<RawPrice>>>,
    /// The estimated input tokens of an image or a recording in a message, for budgets and costs. Default:
    /// 1000
    pub(super) media_tokens: Option<WithSpan<u32>>,
    /// The behaviour of a model of the provider `mock`: the settings of a provider in a scenario file,
    /// `seed`, and the shapes of its `answers`
    #[schemars(with = "Option<RawMock>")]
    pub(super) mock: Option<WithSpan<toml::Table>>,
}

/// A text, or the environment variable that holds it
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a text, or `{ env = \"NAME\" }` for the value of an environment variable")]
pub(super) enum RawExtraValue {
    Text(Text),
    Variable(RawVariable),
}

/// An environment variable
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawVariable {
    /// Its name
    pub(super) env: Text,
}

/// Values by name.
pub(super) type RawExtras = BTreeMap<String, WithSpan<RawExtraValue>>;

/// The schema of the table `mock`. [`endpoint`](super::endpoint) deserializes its two parts separately.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct RawMock {
    /// The seed of its random numbers. Default: 0
    seed: Option<u64>,
    /// The shares of calls that are answered in these shapes. Default: none
    answers: Option<BTreeMap<AnswerShape, f64>>,
    #[schemars(flatten)]
    provider: ProviderSpec,
}

/// The price of tokens, and of images that the model makes
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPrice {
    /// The price of a million input tokens. Required, unless there is `per_image`. Default: 0
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(super) input_per_million: Option<WithSpan<Finite>>,
    /// The price of a million output tokens. Default: 0
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(super) output_per_million: Option<WithSpan<Finite>>,
    /// The price of an image, of a model of the domain `image`. Default: 0
    #[schemars(range(min = 0, max = 1_000))]
    pub(super) per_image: Option<WithSpan<Finite>>,
    /// The currency, the same in the whole file. Default: USD
    pub(super) currency: Option<WithSpan<Text>>,
}

/// A tool that models may call: a command
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTool {
    /// The name, for columns and models: letters, digits, `_` and `-`
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,64}$"))]
    pub(super) name: WithSpan<Text>,
    /// What the tool does, for models
    pub(super) description: Text,
    /// The JSON Schema of its arguments, an object. Default: no arguments
    pub(super) parameters: Option<WithSpan<JsonTable>>,
    #[schemars(length(min = 1))]
    /// The program and arguments, started for each call in the directory of the pipeline file
    pub(super) command: WithSpan<Vec<Text>>,
    /// Environment variables with keys that the command may read
    pub(super) pass_env: Option<Vec<Text>>,
    /// The timeout of one call. Default: 60s
    pub(super) timeout: Option<WithSpan<DurationText>>,
}

/// A column to fill
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = require_keys_of_kind)]
pub(super) struct RawColumn {
    /// The name of the output column
    pub(super) name: WithSpan<Text>,
    /// The source of its values. Default: llm
    #[serde(default)]
    pub(super) kind: KindName,
    /// A task per row; a task per row group, with one value for all its rows; or the latter without
    /// upstreams. Default: cell
    pub(super) strategy: Option<WithSpan<StrategyName>>,
    /// Columns to wait for besides those that the templates read
    pub(super) upstreams: Option<WithSpan<Vec<WithSpan<Text>>>>,
    /// Its weight when columns compete for a model, from 2^-20 to 2^20. Default: 1
    #[schemars(range(min = MIN_WEIGHT, max = MAX_WEIGHT))]
    pub(super) weight: Option<WithSpan<Finite>>,
    /// A condition such as `score > 3`. Rows where it is false are skipped without a call
    pub(super) when: Option<WithSpan<Text>>,
    /// The value of skipped rows. Default: null
    pub(super) otherwise: Option<WithSpan<Json>>,
    /// A condition such as `grade.score > 3`, which may read this column. Rows where it is false are
    /// rejected: the columns after this one are not made for them, and they are not written
    pub(super) accept_if: Option<WithSpan<Text>>,
    /// Whether rows are skipped if a column that this one reads was skipped. Default: false
    pub(super) skip_with_upstream: Option<bool>,
    /// Whether the column is left out of the output. Default: false
    pub(super) drop: Option<bool>,
    /// llm, score, embedding, image, judge: the name of the model. validation: a model with the command that
    /// checks
    pub(super) model: Option<WithSpan<Text>>,
    /// llm, score: models in order of preference, instead of `model`: calls use the first that can be used
    #[schemars(length(min = 1))]
    pub(super) models: Option<WithSpan<Vec<WithSpan<Text>>>>,
    /// llm, score: failures after which the next of `models` is asked. Default: none
    pub(super) fallback_on: Option<WithSpan<Vec<FallbackReason>>>,
    /// llm, score: the template of the user message. image: the template of what the image shows
    pub(super) prompt: Option<WithSpan<Text>>,
    /// llm, score: the template of the system message
    pub(super) system: Option<WithSpan<Text>>,
    /// llm: the whole conversation, instead of `prompt` and `system`
    #[schemars(length(min = 1))]
    pub(super) messages: Option<WithSpan<Vec<WithSpan<Table<RawMessage>>>>>,
    /// llm, score: images of the user message: templates of addresses, data URLs or paths, relative to the
    /// pipeline file
    pub(super) images: Option<WithSpan<Texts>>,
    /// llm, score: recordings of the user message: templates of paths or data URLs
    pub(super) audio: Option<WithSpan<Texts>>,
    /// llm, score: sampling temperature; a number, or a template of one
    pub(super) temperature: Option<WithSpan<Checked<NumberOrTemplate<f64>>>>,
    /// llm, score: the probability mass of nucleus sampling; a number, or a template of one
    pub(super) top_p: Option<WithSpan<Checked<NumberOrTemplate<f64>>>>,
    /// llm, score: the maximum number of output tokens; a number, or a template of one
    pub(super) max_tokens: Option<WithSpan<Checked<NumberOrTemplate<u32>>>>,
    /// llm, score: the maximum number of output tokens of a second call after a truncated answer. Default: no
    /// second call
    #[schemars(range(min = 1))]
    pub(super) retry_max_tokens: Option<WithSpan<u32>>,
    /// llm, score: whether a truncated answer is used like a complete one. Default: false
    pub(super) keep_truncated: Option<bool>,
    /// llm: stop sequences, as templates
    pub(super) stop: Option<WithSpan<Texts>>,
    /// llm, score: the seed sent to the provider; a number, or a template of one
    pub(super) seed: Option<WithSpan<Checked<NumberOrTemplate<u64>>>>,
    /// llm, score, image: further keys of the request body; strings in it are templates
    pub(super) extra: Option<WithSpan<JsonTable>>,
    /// llm, score: the names of the tools that the model may call before it answers
    #[schemars(length(min = 1))]
    pub(super) tools: Option<WithSpan<Vec<WithSpan<Text>>>>,
    /// llm, score: the most answers of the model to one conversation, of which the last must call no tool.
    /// Default: 8
    #[schemars(range(min = 2, max = 100))]
    pub(super) max_turns: Option<WithSpan<u32>>,
    /// llm, score, image: the estimated number of output tokens, for budgets and costs. Default: the token
    /// limit that the file sets, else 256; for an image 0
    pub(super) answer_tokens: Option<u32>,
    /// The type that the text is parsed as. Default: text; json for judge, and with a schema
    pub(super) output: Option<WithSpan<OutputForm>>,
    /// llm: the JSON Schema that the answer must match. validation: the one that the input must match
    pub(super) schema: Option<WithSpan<JsonTable>>,
    /// llm, validation: a file with the JSON Schema, relative to the pipeline file
    pub(super) schema_file: Option<WithSpan<Text>>,
    /// llm, score: how the request asks for the form of the answer. Default: schema with a schema, else
    /// prompt
    pub(super) json_mode: Option<WithSpan<JsonMode>>,
    /// llm, score: the number of retries after an invalid answer. Default: 2
    #[schemars(range(max = 10))]
    pub(super) schema_retries: Option<WithSpan<u32>>,
    /// score: the criteria by name
    #[schemars(extend("minProperties" = 1))]
    pub(super) criteria: Option<WithSpan<BTreeMap<String, WithSpan<Table<RawCriterion>>>>>,
    /// embedding: the template of the text. judge: the template of a text to send. validation: the template
    /// of what is checked
    pub(super) input: Option<WithSpan<Text>>,
    /// embedding: the number of dimensions of the vector. Default: the default of the model
    #[schemars(range(min = 1, max = 1_048_576))]
    pub(super) dimensions: Option<WithSpan<u32>>,
    /// image: the size, such as `1024x1024`; a template. Default: the default of the model
    pub(super) size: Option<WithSpan<Text>>,
    /// validation: the exit codes of the command of the model by which it says that a text is invalid.
    /// Default: 1
    #[schemars(length(min = 1), inner(range(min = 1)))]
    pub(super) invalid_exit_codes: Option<WithSpan<Vec<u8>>>,
    /// embedding: the largest number of rows of a row group in one call, up to 2048. Default: 32. llm, score
    /// with a model with `mode = "batch"`: in one batch. Default: 1000
    #[schemars(range(min = 1, max = 50_000))]
    pub(super) batch_size: Option<WithSpan<u32>>,
    /// expression: the template
    pub(super) template: Option<WithSpan<Text>>,
    /// sampler: the distribution. Values depend only on the seed, the column and the row number
    pub(super) sampler: Option<WithSpan<Table<RawSampler>>>,
    /// reasoning, model: the column of kind llm or score with the answer
    pub(super) of: Option<WithSpan<Text>>,
    /// judge: the columns whose values are sent
    pub(super) inputs: Option<Vec<WithSpan<Text>>>,
}

/// Adds the required keys of each kind.
fn require_keys_of_kind(schema: &mut Schema) {
    let either = |one: &str, other: &str| json!([{ "required": [one] }, { "required": [other] }]);
    let conditions = [
        ("llm", json!({ "oneOf": either("model", "models"), "anyOf": either("prompt", "messages") })),
        ("score", json!({ "oneOf": either("model", "models"), "required": ["prompt", "criteria"] })),
        ("embedding", json!({ "required": ["model", "input"] })),
        ("image", json!({ "required": ["model", "prompt"] })),
        ("expression", json!({ "required": ["template"] })),
        ("sampler", json!({ "required": ["sampler"], "properties": { "strategy": { "const": "cell" } } })),
        ("reasoning", json!({ "required": ["of"] })),
        ("model", json!({ "required": ["of"] })),
        ("judge", json!({ "required": ["model"], "anyOf": either("input", "inputs") })),
        ("validation", json!({ "required": ["input"] })),
    ];
    let conditions = conditions.map(|(kind, then)| where_key_is("kind", kind, kind == "llm", &then));
    schema.insert("allOf".to_string(), conditions.to_vec().into());
}

/// Adds the required keys of each law.
fn require_keys_of_law(schema: &mut Schema) {
    let conditions = [
        ("category", json!(["values"])),
        ("subcategory", json!(["of", "values"])),
        ("uniform", json!(["low", "high"])),
        ("normal", json!(["mean", "sd"])),
        ("bernoulli", json!(["p"])),
        ("poisson", json!(["mean"])),
        ("binomial", json!(["trials", "p"])),
        ("datetime", json!(["from", "to"])),
        ("timedelta", json!(["of", "low", "high"])),
    ];
    let conditions = conditions.map(|(law, keys)| where_key_is("law", law, false, &json!({ "required": keys })));
    schema.insert("allOf".to_string(), conditions.to_vec().into());
}

/// A message of the conversation
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMessage {
    /// The role of the author
    pub(super) role: Role,
    /// The template of the content
    pub(super) content: WithSpan<Text>,
    /// Images of a user message: templates of addresses, data URLs or paths, relative to the pipeline file
    pub(super) images: Option<WithSpan<Texts>>,
    /// Recordings of a user message: templates of paths or data URLs
    pub(super) audio: Option<WithSpan<Texts>>,
}

/// A criterion that a model scores by
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCriterion {
    /// What is scored, for the model
    pub(super) description: WithSpan<Text>,
    /// The scores that the model may give, each with its meaning: whole numbers, or labels
    #[schemars(extend("minProperties" = 2))]
    pub(super) options: WithSpan<BTreeMap<String, WithSpan<Text>>>,
}

/// The distribution of a column of kind sampler
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = require_keys_of_law)]
pub(super) struct RawSampler {
    /// The name of the distribution
    pub(super) law: Law,
    /// category: the values. subcategory: a list of values for each value of the other column
    #[schemars(extend("type" = ["array", "object"], "minItems" = 1, "minProperties" = 1))]
    pub(super) values: Option<WithSpan<Json>>,
    /// category: the relative weight of each value. Default: all equal
    pub(super) weights: Option<WithSpan<Vec<Finite>>>,
    /// subcategory, timedelta: the other column
    pub(super) of: Option<WithSpan<Text>>,
    /// uniform, timedelta: the minimum
    #[schemars(with = "Option<f64>")]
    pub(super) low: Option<WithSpan<Json>>,
    /// uniform, timedelta: the maximum
    #[schemars(with = "Option<f64>")]
    pub(super) high: Option<WithSpan<Json>>,
    /// uniform: whole numbers only. Default: false
    pub(super) integer: Option<bool>,
    /// uniform, normal: the number of decimals kept, up to 9. Default: all
    #[schemars(range(max = 9))]
    pub(super) decimals: Option<WithSpan<u32>>,
    /// normal, poisson: the mean
    pub(super) mean: Option<WithSpan<Finite>>,
    /// normal: the standard deviation
    #[schemars(range(min = 0))]
    pub(super) sd: Option<WithSpan<Finite>>,
    /// bernoulli: the probability of true. binomial: the probability of success in each trial
    #[schemars(range(min = 0, max = 1))]
    pub(super) p: Option<WithSpan<Finite>>,
    /// binomial: the number of trials
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(super) trials: Option<WithSpan<u32>>,
    /// datetime: the earliest time, such as 2024-05-01 or 2024-05-01T12:00:00Z
    #[schemars(with = "Option<Text>")]
    pub(super) from: Option<WithSpan<Json>>,
    /// datetime: the end of the range, exclusive
    #[schemars(with = "Option<Text>")]
    pub(super) to: Option<WithSpan<Json>>,
    /// datetime: the distance between possible times. timedelta: the unit of `low` and `high`. Default:
    /// second
    pub(super) unit: Option<DateUnit>,
    /// person: the language and country of the names. Default: `en_US`
    pub(super) locale: Option<Locale>,
    /// person: the minimum and maximum age in years, up to 130. Default: [18, 90]
    #[schemars(length(min = 2, max = 2), inner(range(max = 130)))]
    pub(super) age: Option<WithSpan<Vec<u32>>>,
    /// Distributions for some of the rows: the first whose condition holds is used instead of this one
    pub(super) cases: Option<Vec<WithSpan<Table<RawSampler>>>>,
    /// In `cases`: the condition, such as `age < 18`
    pub(super) when: Option<WithSpan<Text>>,
}

/// Settings of the run
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRun {
    /// The number of rows in a row group, which is written as one unit. Default: 32, or the largest
    /// `batch_size` of columns whose requests go in batches
    pub(super) row_group_size: Option<NonZeroU32>,
    /// The number of active row groups, or the maximum if it is adaptive. Default: 3
    pub(super) row_groups: Option<NonZeroU32>,
    /// Let a control loop choose the number of active row groups. Default: false
    pub(super) adaptive_row_groups: Option<bool>,
    /// The rule for when a column may start more workers than its share. Default: `bounded_borrow`
    pub(super) policy: Option<PolicyName>,
    /// Start tasks that can call at once before tasks that would wait. Default: true
    pub(super) pressure_advisory: Option<bool>,
    /// Return the worker slot of a task while it waits for its model. Default: true
    pub(super) yield_while_waiting: Option<bool>,
    /// Pace calls to the rates that providers state in headers. Default: true
    pub(super) rate_limit_headers: Option<bool>,
    /// The maximum number of active tasks. Default: 1024
    pub(super) submission_limit: Option<NonZeroU32>,
    /// The number of retries of a failed call; rate limits do not count. Default: 3
    pub(super) retries: Option<u32>,
    /// The number of most recent outcomes that early shutdown considers. Default: 10
    pub(super) shutdown_window: Option<NonZeroU32>,
    /// The fraction of failures among them that stops the run, or never. Default: 0.5
    pub(super) shutdown_rate: Option<Checked<ShareOrNever>>,
    /// The number of most recent answers of a model that the degraded warning considers. Default: 20
    pub(super) degraded_window: Option<NonZeroU32>,
    /// The fraction of transient failures among them at which the run warns, or never. Default: 0.5
    pub(super) degraded_rate: Option<Checked<ShareOrNever>>,
    /// How long a model may return only rate limits before the run stops, or never. Default: 10m, with
    /// batches 24h
    pub(super) rate_limit_patience: Option<Checked<DurationOrNever>>,
    /// How long a model may return only rate limits before calls use the next of a column's `models`.
    /// Default: 30s
    pub(super) fallback_after: Option<DurationText>,
    /// How long a provider may be down before the run stops, or never. Default: 10m
    pub(super) outage_patience: Option<Checked<DurationOrNever>>,
    /// The number of rows to make without a dataset. With `accept_if` in a column, also with a dataset: the
    /// number of accepted rows
    #[schemars(range(min = 1, max = MAX_ROWS))]
    pub(super) rows: Option<WithSpan<u64>>,
    /// The maximum number of rows to make until `rows` are accepted. Default: ten times `rows`; with a
    /// dataset, all of its rows
    #[schemars(range(min = 1, max = MAX_ROWS))]
    pub(super) max_candidates: Option<WithSpan<u64>>,
    /// The seed of all samplers, and of the order of `shuffle`. Default: 0
    pub(super) seed: Option<u64>,
}

/// Settings of the output
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOutput {
    /// The key, and template variable, of the row number. Default: row
    pub(super) row_key: Option<Text>,
    /// The format of row files. Default: jsonl
    #[serde(default)]
    pub(super) format: RowFormat,
    /// The compression of Parquet files, also of those that `--export` writes. Default: snappy
    #[cfg(feature = "parquet")]
    pub(super) compression: Option<ParquetCompression>,
    /// Whether the prompts, answers, models and tokens of the calls for each row are kept, for
    /// `tidegate inspect`. Default: false
    pub(super) calls: Option<bool>,
    /// The columns to write after the row number, in order. Default: those of the dataset, then those of the
    /// file without `drop`
    #[schemars(length(min = 1))]
    pub(super) columns: Option<WithSpan<Vec<Table<RawOutputColumn>>>>,
    /// The object that each line of `--export FILE.jsonl` has. Strings in it are templates, which read the
    /// columns of the output; one that is only `{{ an expression }}` becomes its value. Default: the columns
    #[schemars(extend("minProperties" = 1))]
    pub(super) record: Option<WithSpan<JsonTable>>,
    /// Whether `--export` leaves out rows in which a column is nearly the same as in an earlier row. Default:
    /// all rows are exported
    pub(super) unique: Option<Table<RawUnique>>,
}

/// Which rows `--export` leaves out, because they are nearly the same as an earlier one
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawUnique {
    /// The column of the output whose texts are compared
    pub(super) column: WithSpan<Text>,
    /// The similarity from which on two texts are nearly the same: the share of common word triples. Default:
    /// 0.8
    #[schemars(range(min = 0.1, max = 1))]
    pub(super) similarity: Option<WithSpan<Finite>>,
}

/// A column of the output
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOutputColumn {
    /// Its name in the output
    pub(super) name: WithSpan<Text>,
    /// The column that it is written from, or a field in the values of one, such as `grade.score`. Default:
    /// its name
    pub(super) from: Option<WithSpan<Text>>,
}
