//! The tables `[[models]]`: endpoints, limits, budgets, prices and mock providers.

use std::num::NonZeroU32;
use std::ops::Range;
use std::path::{Path, PathBuf};

use reqwest::{Certificate, Url};
use schemars::JsonSchema;
use serde::Deserialize;
use tidegate_core::budget::BudgetConfig;
use tidegate_core::limit::LimitChoice;
use tidegate_core::request::LimitConfig;
use tidegate_core::sim::provider::ProviderSpec;
use tidegate_core::time::Duration;

use super::endpoint;
use super::extras::{self, RequestExtras};
use super::raw::{RawModel, RawPrice};
use crate::app::answer_shape::AnswerShapes;
use crate::app::config::document::Document;
use crate::app::config::limit::{LimitKeys, LimitName, LimitSettings, read_limit};
use crate::app::config::source::FileError;
use crate::app::config::value::{Checked, Finite, Table, WithSpan};
use crate::app::provider::chat::ChatApi;
use crate::app::provider::cost::Price;

/// The name of the provider that is served in this process.
pub(super) const MOCK_PROVIDER: &str = "mock";

/// The provider of a command that names none.
const COMMAND_PROVIDER: &str = "command";

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

    fn limit_settings(&self) -> LimitSettings {
        LimitSettings { choice: self.limit, is_given: self.is_limit_given, limit_config: self.limit_config.clone() }
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

/// The estimated input tokens of an image or a recording if the file does not say. One of 1024 x 1024 pixels
/// takes 765 with GPT-4o, 1024 with GPT-4.1, about 1400 with Claude and 1032 with Gemini.
const DEFAULT_MEDIA_TOKENS: u32 = 1_000;

/// The currency of prices if the file names none.
const DEFAULT_CURRENCY: &str = "USD";

/// Validates the models, and returns them with the currency of their prices.
pub(super) fn check(
    file: &Document<'_>,
    raw: Vec<WithSpan<Table<RawModel>>>,
    directory: &Path,
) -> Result<(Vec<ModelSpec>, String), FileError> {
    let mut models: Vec<ModelSpec> = Vec::new();
    let mut currency = None;
    for (index, raw) in raw.into_iter().enumerate() {
        let span = raw.span();
        let table = ModelTable { file, raw: raw.get(), index, span };
        models.push(table.check(&models, directory, &mut currency)?);
    }
    Ok((models, currency.unwrap_or_else(|| DEFAULT_CURRENCY.to_string())))
}

/// One unvalidated `[[models]]` table and its location.
pub(super) struct ModelTable<'a, 't> {
    pub(super) file: &'a Document<'t>,
    pub(super) raw: &'a RawModel,
    /// The index of the table among the models.
    pub(super) index: usize,
    pub(super) span: Range<usize>,
}

impl ModelTable<'_, '_> {
    fn check(
        &self,
        earlier: &[ModelSpec],
        directory: &Path,
        currency: &mut Option<String>,
    ) -> Result<ModelSpec, FileError> {
        let Self { file, raw, .. } = self;
        let Checked(name) = raw.name.get().clone();
        if earlier.iter().any(|model| model.name == name) {
            let message = format!("there are two models called `{name}`");
            return Err(file.error(raw.name.span(), message).expected("a name that no other model has"));
        }
        let is_judge = raw.command.is_some() || raw.url.is_some();
        let provider = match &raw.provider {
            Some(Checked(provider)) => provider.clone(),
            None if raw.command.is_some() => COMMAND_PROVIDER.to_string(),
            None if raw.url.is_some() => "http".to_string(),
            None => return Err(file.missing(self.span.clone(), "provider", "`provider = ` the name of the provider")),
        };
        let model = raw.model.as_ref().map_or_else(|| name.clone(), |Checked(model)| model.clone());
        let domain = self.domain(is_judge)?;
        let same = earlier.iter().find(|other| other.provider == provider && other.model == model);
        let endpoint = if is_judge {
            endpoint::judge_endpoint(self, directory)?
        } else if provider == MOCK_PROVIDER {
            endpoint::mock_endpoint(self, same)?
        } else {
            endpoint::remote_endpoint(self, same)?
        };
        // A resource of the gate is configured only once, by the first model that uses it.
        let same = same.filter(|same| same.domain == domain);
        let mode = self.mode(same, domain)?;
        let LimitSettings { choice, is_given, limit_config } = self.limit(same, mode)?;
        let extras = extras::check(self, &endpoint, domain)?;
        Ok(ModelSpec {
            authorities: endpoint::check_transport(self, &endpoint, &extras, directory)?,
            extras,
            api: self.api(domain)?,
            mode,
            endpoint,
            max_parallel: raw.max_parallel,
            timeout: file.positive(raw.timeout.as_ref())?.unwrap_or(Duration::from_secs(60)),
            limit_config,
            limit: choice,
            is_limit_given: is_given,
            budgets: self.budgets(same)?,
            price: self.price(domain, same, currency)?,
            media_tokens: self.media_tokens(domain)?,
            span: self.span.clone(),
            name,
            provider,
            model,
            domain,
        })
    }

    fn api(&self, domain: Domain) -> Result<ChatApi, FileError> {
        match &self.raw.api {
            Some(api) if domain != Domain::Chat => {
                let message = format!("`api` is given for a model of the domain `{}`", domain.name());
                Err(self.file.error(api.span(), message).expected("`api` only for chat models"))
            }
            api => Ok(api.as_ref().map(|api| *api.get()).unwrap_or_default()),
        }
    }

    fn media_tokens(&self, domain: Domain) -> Result<u32, FileError> {
        match &self.raw.media_tokens {
            Some(tokens) if domain != Domain::Chat => {
                let message = format!("`media_tokens` is given for a model of the domain `{}`", domain.name());
                Err(self.file.error(tokens.span(), message).expected("`media_tokens` only for chat models"))
            }
            tokens => Ok(tokens.as_ref().map_or(DEFAULT_MEDIA_TOKENS, |tokens| *tokens.get())),
        }
    }

    fn mode(&self, same: Option<&ModelSpec>, domain: Domain) -> Result<CallMode, FileError> {
        let given = self.raw.mode.as_ref();
        let (mode, span) = given.map_or((CallMode::Call, self.span.clone()), |mode| (*mode.get(), mode.span()));
        if let Some(other) = same.filter(|same| same.mode != mode) {
            let message = format!("`{}` is the same provider and model id, and has another `mode`", other.name);
            return Err(self.file.error(span, message).expected("one `mode` for both"));
        }
        if mode == CallMode::Call {
            return Ok(mode);
        }
        let is_openai = self.api(domain)? == ChatApi::Openai;
        if domain != Domain::Chat || !is_openai {
            let of = if is_openai { format!("the domain `{}`", domain.name()) } else { "another API".to_string() };
            let message = format!("`mode = \"batch\"` is given for a model of {of}");
            return Err(self.file.error(span, message).expected("a chat model with `api = \"openai\"`"));
        }
        match &self.raw.budgets {
            Some(budgets) => {
                let message = "`budgets` are for calls, and the requests of this model go in batches";
                Err(self.file.error(budgets.span(), message).expected("no `budgets` beside `mode = \"batch\"`"))
            }
            None => Ok(mode),
        }
    }

    fn domain(&self, is_judge: bool) -> Result<Domain, FileError> {
        let Some(domain) = &self.raw.domain else {
            return Ok(if is_judge { Domain::Judge } else { Domain::Chat });
        };
        match (is_judge, *domain.get() == Domain::Judge) {
            (true, false) => Err(self.file.wrong(domain.span(), "one of: judge")),
            (false, true) => {
                Err(self.file.wrong(domain.span(), "one of: chat, embedding, image; or `command` or `url` beside it"))
            }
            _ => Ok(*domain.get()),
        }
    }

    fn price(
        &self,
        domain: Domain,
        same: Option<&ModelSpec>,
        currency: &mut Option<String>,
    ) -> Result<Option<Price>, FileError> {
        let Some(table) = &self.raw.price else { return Ok(same.and_then(|same| same.price)) };
        if let Some(same) = same {
            let message = format!("`{}` is the same provider and model id, and has one price", same.name);
            return Err(self.file.error(table.span(), message).expected("`price` in the first of them only"));
        }
        let RawPrice { input_per_million: input, output_per_million: output, per_image: image, currency: given } =
            &**table.get();
        let name = given.as_ref().map_or(DEFAULT_CURRENCY, |given| &given.get().0);
        match currency {
            Some(known) if known != name => {
                let at = given.as_ref().map_or(table.span(), WithSpan::span);
                let message = format!("this price is in {name}, and an earlier one in {known}");
                return Err(self.file.error(at, message).expected("one currency for all prices of the file"));
            }
            _ => *currency = Some(name.to_string()),
        }
        if input.is_none() && image.is_none() {
            let expected = "the price of a million input tokens";
            return Err(self.file.missing(table.span(), "input_per_million", expected));
        }
        if let Some(image) = image.as_ref().filter(|_| domain != Domain::Image) {
            let message = format!("`per_image` is given for a model of the domain `{}`", domain.name());
            return Err(self.file.error(image.span(), message).expected("`per_image` only for models of images"));
        }
        let amount = |price: &Option<WithSpan<Finite>>| price.as_ref().map_or(0.0, |price| price.get().0);
        let wrong = |given: &Option<WithSpan<Finite>>, expected| {
            self.file.wrong(given.as_ref().map_or(table.span(), WithSpan::span), expected)
        };
        let expected = "a number from 0 to 1000000: the price of a million tokens";
        Price::per_million(amount(input), 0.0).ok_or_else(|| wrong(input, expected))?;
        let price = Price::per_million(amount(input), amount(output)).ok_or_else(|| wrong(output, expected))?;
        let price = price.per_image(amount(image));
        price.map(Some).ok_or_else(|| wrong(image, "a number from 0 to 1000: the price of an image"))
    }

    fn budgets(&self, same: Option<&ModelSpec>) -> Result<Vec<BudgetConfig>, FileError> {
        match (&self.raw.budgets, same) {
            (Some(table), Some(same)) => {
                let message = format!("`{}` is the same provider and model id, and shares one budget", same.name);
                Err(self.file.error(table.span(), message).expected("`budgets` in the first of them only"))
            }
            (Some(table), None) => table.get().check(self.file),
            (None, same) => Ok(same.map_or_else(Vec::new, |same| same.budgets.clone())),
        }
    }

    /// Returns the limit settings.
    ///
    /// Models with the same provider, model id and domain share one limit, which the first of them
    /// configures.
    fn limit(&self, same: Option<&ModelSpec>, mode: CallMode) -> Result<LimitSettings, FileError> {
        let RawModel { limit, aimd, cooldown, max_cooldown, ramp, .. } = self.raw;
        let keys = LimitKeys {
            limit: limit.as_ref(),
            aimd: aimd.as_ref(),
            cooldown: cooldown.as_ref(),
            max_cooldown: max_cooldown.as_ref(),
            ramp: ramp.as_ref(),
        };
        let Some(same) = same else {
            let defaults = match mode {
                CallMode::Call => LimitSettings::default(),
                // An algorithm that learns from answers learns nothing from a few batches a day.
                CallMode::Batch => LimitSettings { choice: LimitName::Fixed.into(), ..LimitSettings::default() },
            };
            return read_limit(self.file, &self.span, keys, defaults);
        };
        let settings = same.limit_settings();
        let repeated = keys.aimd.map(|aimd| ("aimd", aimd.span()));
        let repeated =
            repeated.or_else(|| keys.common().into_iter().find_map(|(key, value)| Some((key, value?.span()))));
        let other = keys.limit.filter(|limit| LimitChoice::from(*limit.get()) != settings.choice);
        match repeated.or_else(|| other.map(|limit| ("limit", limit.span()))) {
            Some((key, repeated)) => {
                let message =
                    format!("`{}` is the same provider and model id, and one limit holds for both", same.name);
                Err(self.file.error(repeated, message).expected(format!("`{key}` in the first of them only")))
            }
            None => Ok(settings),
        }
    }
}
