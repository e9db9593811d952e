//! The models: endpoints, limits, budgets, prices and mock providers.

use std::fmt;
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::PathBuf;

use reqwest::{Certificate, Url};
use serde_json::{Map, Value};
use tidegate_core::budget::BudgetConfig;
use tidegate_core::limit::LimitChoice;
use tidegate_core::request::LimitConfig;
use tidegate_core::sim::provider::ProviderSpec;
use tidegate_core::time::Duration;

use crate::app::answer_shape::AnswerShapes;
use crate::app::config::pipeline::names::{CallMode, Domain};
use crate::app::provider::conversation::ChatApi;
use crate::app::provider::cost::Price;

/// The provider of a command that names none.
pub(in crate::app::config::pipeline) const COMMAND_PROVIDER: &str = "command";

/// One `[[models]]` table.
#[derive(Clone, Debug)]
pub struct ModelSpec {
    /// The name that columns use.
    pub name: String,
    /// The provider. Limits are per provider, model id and domain.
    pub provider: String,
    /// The model id in requests.
    pub model: String,
    /// The kind of calls. Limits and budgets are per provider, model id and domain.
    pub domain: Domain,
    /// The API of a chat model \[OpenAI's\].
    pub api: ChatApi,
    /// How requests are sent \[each by itself\].
    pub mode: CallMode,
    /// The destination of calls.
    pub endpoint: Endpoint,
    /// The certificate authorities to trust instead of those of the system.
    pub authorities: Option<Vec<Certificate>>,
    /// What requests have besides what the program sets.
    pub extras: RequestExtras,
    /// The maximum number of calls in flight.
    pub max_parallel: NonZeroU32,
    /// The timeout of one call.
    pub timeout: Duration,
    /// The settings of AIMD. The ramp and the cooldowns apply to every limit.
    pub limit_config: LimitConfig,
    /// The limit algorithm.
    pub limit: LimitChoice,
    /// Whether the file sets the limit algorithm.
    pub is_limit_given: bool,
    /// The budgets per minute or day.
    pub budgets: Vec<BudgetConfig>,
    /// The price of tokens and images, in the currency of the file.
    pub price: Option<Price>,
    /// The estimated input tokens of an image or a recording \[1000\].
    pub media_tokens: u32,
    /// The span of the table.
    pub span: Range<usize>,
}

impl ModelSpec {
    /// Returns the environment variables whose values are sent with requests.
    pub fn secret_variables(&self) -> impl Iterator<Item = &str> {
        self.endpoint.key_variable().into_iter().chain(self.extras.variables())
    }

    /// Returns the label of the resource: `provider/model`, followed by what is called unless it is a chat
    /// model.
    #[must_use]
    pub fn label(&self) -> String {
        let Self { provider, model, domain, .. } = self;
        match (&self.endpoint, domain) {
            // The provider says that it is a command.
            (Endpoint::Command { .. }, _) if provider == COMMAND_PROVIDER => format!("{provider}/{model}"),
            (Endpoint::Command { .. }, _) => format!("{provider}/{model}/command"),
            (_, Domain::Chat) => format!("{provider}/{model}"),
            (_, other) => format!("{provider}/{model}/{}", other.name()),
        }
    }
}

/// The destination of the calls to a model.
#[derive(Clone, Debug, PartialEq)]
pub enum Endpoint {
    /// A remote API.
    Remote {
        /// The base address of the API.
        base_url: Url,
        /// The environment variable that holds the key.
        api_key_env: Option<String>,
    },
    /// A judge server that receives the question as a POST.
    Http {
        /// The full address.
        url: Url,
        /// The environment variable that holds the key.
        api_key_env: Option<String>,
    },
    /// A command that is started for each call.
    Command {
        /// The program and its arguments. There is at least the program.
        argv: Vec<String>,
        /// The working directory: the directory of the pipeline file.
        directory: PathBuf,
        /// Environment variables with keys that the command may read. All other key variables are removed.
        pass_env: Vec<String>,
    },
    /// A mock server in this process.
    Mock(Box<MockSpec>),
    /// The mock of an earlier model with the same model id.
    SameMock,
}

impl Endpoint {
    /// Returns the environment variable that holds the key, if there is one.
    #[must_use]
    pub fn key_variable(&self) -> Option<&str> {
        match self {
            Self::Remote { api_key_env, .. } | Self::Http { api_key_env, .. } => api_key_env.as_deref(),
            Self::Command { .. } | Self::Mock(_) | Self::SameMock => None,
        }
    }
}

/// The behaviour of a mock provider.
#[derive(Clone, Debug, PartialEq)]
pub struct MockSpec {
    /// Its capacity, latency and faults.
    pub provider: ProviderSpec,
    /// The seed of its random numbers \[0\].
    pub seed: u64,
    /// The shares of chat calls whose answer is more than a text.
    pub answers: AnswerShapes,
}

/// What the requests to a model have besides what the program sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestExtras {
    /// Headers, by lower-case name.
    pub headers: Vec<(String, ExtraValue)>,
    /// Query parameters of the URL.
    pub query: Vec<(String, ExtraValue)>,
    /// Keys of the request body.
    pub body: Map<String, Value>,
}

/// The value of a header or query parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtraValue {
    /// A text in the file.
    Text(String),
    /// The value of this environment variable, which is never shown.
    Variable(String),
}

impl RequestExtras {
    /// Returns the environment variables whose values are sent.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.headers.iter().chain(&self.query).filter_map(|(_, value)| match value {
            ExtraValue::Variable(name) => Some(name.as_str()),
            ExtraValue::Text(_) => None,
        })
    }
}

impl fmt::Display for RequestExtras {
    /// Writes one line without the values of environment variables.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers = self.headers.iter().map(|(name, value)| format!("header {name}: {value}"));
        let query = self.query.iter().map(|(name, value)| format!("query {name}={value}"));
        let body = self.body.iter().map(|(name, value)| format!("body {name} = {value}"));
        f.write_str(&headers.chain(query).chain(body).collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for ExtraValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Variable(name) => write!(f, "(from {name})"),
        }
    }
}
