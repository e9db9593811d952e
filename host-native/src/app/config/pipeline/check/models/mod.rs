//! Checks the tables `[[models]]`.

mod endpoint;
mod extras;

use std::ops::Range;
use std::path::Path;

use tidegate_core::budget::BudgetConfig;
use tidegate_core::limit::LimitChoice;
use tidegate_core::time::Duration;

use crate::app::config::document::Document;
use crate::app::config::limit::{LimitKeys, LimitName, LimitSettings, read_limit};
use crate::app::config::pipeline::names::{CallMode, Domain};
use crate::app::config::pipeline::raw::{RawModel, RawPrice};
use crate::app::config::pipeline::spec::{COMMAND_PROVIDER, ModelSpec};
use crate::app::config::source::FileError;
use crate::app::config::value::{Checked, Finite, Table, WithSpan};
use crate::app::provider::conversation::ChatApi;
use crate::app::provider::cost::Price;

/// The name of the provider that is served in this process.
const MOCK_PROVIDER: &str = "mock";

/// The estimated input tokens of an image or a recording if the file does not say. One of 1024 x 1024 pixels
/// takes 765 with GPT-4o, 1024 with GPT-4.1, about 1400 with Claude and 1032 with Gemini.
const DEFAULT_MEDIA_TOKENS: u32 = 1_000;

/// The currency of prices if the file names none.
const DEFAULT_CURRENCY: &str = "USD";

/// Validates the models, and returns them with the currency of their prices.
pub(crate) fn check(
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
struct ModelTable<'a, 't> {
    file: &'a Document<'t>,
    raw: &'a RawModel,
    /// The index of the table among the models.
    index: usize,
    span: Range<usize>,
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

impl ModelSpec {
    /// Returns the settings of its limit, for later models that share it.
    fn limit_settings(&self) -> LimitSettings {
        LimitSettings { choice: self.limit, is_given: self.is_limit_given, limit_config: self.limit_config.clone() }
    }
}
