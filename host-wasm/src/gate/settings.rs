//! The settings of a gate and the limits of a resource, as JavaScript gives them.
//!
//! `serde` checks types and names, and the core checks ranges. Each error names the setting by its path in
//! JavaScript: a `RangeError` for a value out of range, a `TypeError` for anything else.

use js_sys::{RangeError, TypeError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tidegate_core::budget::{BudgetConfig, Dimension};
use tidegate_core::error::ConfigError;
use tidegate_core::fair_queue::{MAX_WEIGHT, MIN_WEIGHT};
use tidegate_core::gate::GateControl;
use tidegate_core::limit::{LimitChoice, RetryAfterStops, TideConfig, VegasConfig};
use tidegate_core::request::{Domain, LimitConfig, ResourceId};
use tidegate_core::time::{Duration, Instant};
use tsify::Tsify;
use wasm_bindgen::JsValue;

use crate::js_settings::{Object, js_name, millis, millis_or_null, text_at};
use crate::json::{self, at_path};

const MINUTE: Duration = Duration::from_secs(60);

/// Declares settings that include those of the adaptive limit and of cooldowns. They are not a struct of their
/// own because `serde(flatten)` loses the path of a setting that is wrong.
macro_rules! with_adaptive_settings {
    ($(#[$attribute:meta])* struct $name:ident { $($own:tt)* }) => {
        $(#[$attribute])*
        #[derive(Deserialize, Tsify)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub(super) struct $name {
            $($own)*
            /// `aimd`: the initial limit of concurrent calls, from 1 up. Default: `maxParallel`.
            #[serde(default)]
            #[tsify(type = "number | undefined")]
            initial_limit: Option<u32>,
            /// The maximum of the limit, if lower than `maxParallel`; from 1 up. Default: none.
            #[serde(default)]
            #[tsify(type = "number | undefined")]
            max_limit: Option<u32>,
            /// `aimd`: the factor applied to the limit after a rate-limited call, 0.01 to 0.99. Default: 0.75.
            #[serde(default)]
            #[tsify(type = "number | undefined")]
            decrease_factor: Option<f64>,
            /// `aimd`: the step by which the limit increases, from 1 up. Default: 1.
            #[serde(default)]
            #[tsify(type = "number | undefined")]
            increase_step: Option<u32>,
            /// `aimd`: successes outside a cooldown after which the limit increases, from 1 up. Default: 25.
            #[serde(default)]
            #[tsify(type = "number | undefined")]
            successes_until_increase: Option<u32>,
            /// `aimd`: whether the limit increases only if it was reached since its last change. Default: false.
            #[serde(default)]
            #[tsify(type = "boolean | undefined")]
            grow_on_evidence: Option<bool>,
            /// The cooldown of a resource after a rate-limited call without Retry-After, above 0 ms. Under
            /// `tide` this is a maximum. Default: 2000.
            #[serde(default, deserialize_with = "millis_or_null")]
            #[tsify(type = "number | undefined")]
            cooldown_ms: Option<Duration>,
            /// The longest cooldown after one rate-limited call, whatever the provider asks for; at least
            /// `cooldownMs`. Default: 600000.
            #[serde(default, deserialize_with = "millis_or_null")]
            #[tsify(type = "number | undefined")]
            max_cooldown_ms: Option<Duration>,
            /// The duration of the ramp in which the limit of a new resource rises from one call, from 0 ms up.
            /// Default: 0, no ramp.
            #[serde(default, deserialize_with = "millis_or_null")]
            #[tsify(type = "number | undefined")]
            ramp_ms: Option<Duration>,
            /// The idle time after which the ramp runs again, from half the limit; from 0 ms up. Default: never.
            #[serde(default, deserialize_with = "millis_or_null")]
            #[tsify(type = "number | undefined")]
            ramp_after_idle_ms: Option<Duration>,
        }

        impl $name {
            fn adaptive(&self) -> Adaptive {
                Adaptive {
                    initial_limit: self.initial_limit,
                    max_limit: self.max_limit,
                    decrease_factor: self.decrease_factor,
                    increase_step: self.increase_step,
                    successes_until_increase: self.successes_until_increase,
                    grow_on_evidence: self.grow_on_evidence,
                    cooldown: self.cooldown_ms,
                    max_cooldown: self.max_cooldown_ms,
                    ramp: self.ramp_ms,
                    ramp_after_idle: self.ramp_after_idle_ms,
                }
            }
        }
    };
}

with_adaptive_settings! {
    /// Settings of a gate: the default timeout of calls, and the defaults of its resources.
    struct GateOptions {
        /// The longest wait of a call without `timeoutMs`, in milliseconds from 0 up. Default: unlimited.
        #[serde(default, deserialize_with = "millis_or_null")]
        #[tsify(type = "number | undefined")]
        pub(super) default_timeout_ms: Option<Duration>,
        /// Whether a provider whose calls all fail counts as down; only single probes are then sent to it. A
        /// rejected key or an exhausted account denies calls to all models of the provider for a minute at a
        /// time. A gate whose calls use keys of different accounts needs `false`, or a provider name for each
        /// account. Default: true.
        #[serde(default = "yes")]
        #[tsify(type = "boolean | undefined")]
        pub(super) health: bool,
        /// Whether calls are paced to the rates that a provider states in response headers (`x-ratelimit-*`,
        /// `anthropic-ratelimit-*`, `RateLimit`), where the resource has no budget of that dimension. Default:
        /// true.
        #[serde(default = "yes")]
        #[tsify(type = "boolean | undefined")]
        pub(super) rate_limit_headers: bool,
    }
}

with_adaptive_settings! {
    /// The limits of a resource: concurrent calls, and rates. `maxLimit`, the cooldowns and the ramp apply to
    /// every algorithm. The other adaptive settings belong to `aimd`, and select it where no algorithm is
    /// named.
    struct Limits {
        /// The maximum of concurrent calls over all domains of the model, from 1 up. Registering again changes
        /// it.
        max_parallel: u32,
        /// The algorithm that sets the limit between 1 and `maxParallel`: a name, for its defaults, or an object
        /// with settings. Default: `tide`; `aimd` where one of its settings is given.
        #[serde(default)]
        #[tsify(type = "AlgorithmSettings[\"name\"] | AlgorithmSettings | undefined")]
        algorithm: Option<Value>,
        /// Rates that apply in addition to the limit of concurrent calls. Default: none.
        #[serde(default)]
        #[tsify(type = "readonly Budget[] | undefined")]
        budgets: Vec<Object<Budget>>,
        /// The weight of calls without a tenant relative to those of tenants, 2^-20 to 2^20. Default: 1.
        #[serde(default)]
        #[tsify(type = "number | undefined")]
        weight: Option<f64>,
    }
}

/// The algorithm that sets a limit, with its settings.
#[derive(Tsify)]
#[serde(tag = "name", rename_all = "lowercase")]
enum AlgorithmSettings {
    /// Additive increase, multiplicative decrease, configured by the limits of the resource. For providers that
    /// answer 429 when they are overloaded.
    Aimd,
    /// Adapts to latency, for providers that queue calls instead of answering 429 (after TCP Vegas).
    Vegas(Vegas),
    /// Finds how many concurrent calls, or calls per minute, the provider accepts, and stays there. This is the
    /// default; its settings rarely need a change.
    Tide(Tide),
    /// A constant limit.
    Fixed(Fixed),
}

/// Settings of `vegas`.
#[derive(Default, Deserialize, Tsify)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Vegas {
    /// The initial limit, from 1 up. Default: 4.
    #[tsify(type = "number | undefined")]
    initial_limit: Option<u32>,
    /// The number of calls queued inside the provider below which the limit increases, above 0. Default: 1.
    #[tsify(type = "number | undefined")]
    alpha: Option<f64>,
    /// The number of queued calls above which the limit decreases, at least `alpha`. Default: 3.
    #[tsify(type = "number | undefined")]
    beta: Option<f64>,
    /// Windows after which the shortest latency is measured again, from 2 up. Default: 60.
    #[tsify(type = "number | undefined")]
    windows_until_relearned: Option<u32>,
}

/// Settings of `tide`.
#[derive(Default, Deserialize, Tsify)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Tide {
    /// The initial limit, from 1 up. Default: 10.
    #[tsify(type = "number | undefined")]
    initial_limit: Option<u32>,
    /// Successes at a limit after which a higher one is tried, from 1 up. Default: 16.
    #[tsify(type = "number | undefined")]
    probe_after: Option<u32>,
    /// The same number after many failed tries, at least `probeAfter`. Default: 240.
    #[tsify(type = "number | undefined")]
    probe_after_most: Option<u32>,
    /// What a Retry-After stops: the whole resource, only the rate-limited call, or (`learned`) whichever of the
    /// two the provider's behaviour shows. Default: `learned`.
    #[tsify(type = "RetryAfterStops | undefined")]
    retry_after: Option<RetryAfterStops>,
    /// The factor applied to the limit when calls are rate limited and none is accepted, 0.01 to 0.99. Default:
    /// 0.7.
    #[tsify(type = "number | undefined")]
    decrease_factor: Option<f64>,
    /// The longest pause after a rate-limited call without Retry-After, above 0 ms. Default: 2000.
    #[serde(deserialize_with = "millis_or_null")]
    #[tsify(type = "number | undefined")]
    longest_pause_ms: Option<Duration>,
    /// The tolerated ratio of latency to the latency of a call alone, where no call is rate limited; 1.05 to
    /// 100. Default: 1.3.
    #[tsify(type = "number | undefined")]
    latency_tolerance: Option<f64>,
}

/// Settings of `fixed`.
#[derive(Default, Deserialize, Tsify)]
#[serde(default, deny_unknown_fields)]
struct Fixed {
    /// Concurrent calls, from 1 up. Default: `maxParallel`, also after it has changed.
    #[tsify(type = "number | undefined")]
    limit: Option<u32>,
}

/// A rate: a bucket that holds `burst` and refills by `limit` in each window, evenly.
#[derive(Deserialize, Tsify)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Budget {
    /// The unit that it counts.
    #[tsify(type = "BudgetDimension")]
    dimension: Dimension,
    /// The amount refilled in each window. A whole number from 1 to 10^15.
    limit: u64,
    /// The window, above 0 ms. Default: 60000, a minute.
    #[serde(default = "minute", deserialize_with = "millis")]
    #[tsify(type = "number | undefined")]
    window_ms: Duration,
    /// The most that can be spent at once after idle time, 1 to 10^15. Default: `limit`. Choose a small burst
    /// for a provider that counts in fixed or sliding windows: a full bucket and its refill together allow
    /// `burst + limit` in one window.
    #[serde(default)]
    #[tsify(type = "number | undefined")]
    burst: Option<u64>,
}

fn yes() -> bool {
    true
}

fn minute() -> Duration {
    MINUTE
}

impl AlgorithmSettings {
    /// Reads a name, or an object with `name`. Apart from the other limits, as `serde` loses the path of what is
    /// wrong beside a tag.
    fn read(given: Value) -> Result<Self, JsValue> {
        let (name, settings) = match given {
            Value::Object(mut settings) => (settings.remove("name").unwrap_or_default(), Value::Object(settings)),
            name => (name, Value::Object(serde_json::Map::new())),
        };
        match name.as_str() {
            Some("aimd") => part::<NoSettings>(settings).map(|NoSettings {}| Self::Aimd),
            Some("vegas") => part(settings).map(Self::Vegas),
            Some("tide") => part(settings).map(Self::Tide),
            Some("fixed") => part(settings).map(Self::Fixed),
            _ => Err(format!("algorithm: no algorithm is called {name}; there are aimd, vegas, tide, fixed")),
        }
        .map_err(|message| rejected(&message))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoSettings {}

fn part<T: DeserializeOwned>(settings: Value) -> Result<T, String> {
    serde_path_to_error::deserialize(settings).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { "algorithm".to_owned() } else { format!("algorithm.{path}") };
        at_path(&path, &error.inner().to_string())
    })
}

/// The settings of the adaptive limit and of cooldowns; `None` for the default.
#[derive(Clone, Copy)]
pub(super) struct Adaptive {
    initial_limit: Option<u32>,
    max_limit: Option<u32>,
    decrease_factor: Option<f64>,
    increase_step: Option<u32>,
    successes_until_increase: Option<u32>,
    grow_on_evidence: Option<bool>,
    cooldown: Option<Duration>,
    max_cooldown: Option<Duration>,
    ramp: Option<Duration>,
    ramp_after_idle: Option<Duration>,
}

impl Adaptive {
    /// Returns these settings, with `defaults` for those that are not given.
    fn or(self, defaults: &Self) -> Self {
        Self {
            initial_limit: self.initial_limit.or(defaults.initial_limit),
            max_limit: self.max_limit.or(defaults.max_limit),
            decrease_factor: self.decrease_factor.or(defaults.decrease_factor),
            increase_step: self.increase_step.or(defaults.increase_step),
            successes_until_increase: self.successes_until_increase.or(defaults.successes_until_increase),
            grow_on_evidence: self.grow_on_evidence.or(defaults.grow_on_evidence),
            cooldown: self.cooldown.or(defaults.cooldown),
            max_cooldown: self.max_cooldown.or(defaults.max_cooldown),
            ramp: self.ramp.or(defaults.ramp),
            ramp_after_idle: self.ramp_after_idle.or(defaults.ramp_after_idle),
        }
    }

    /// Returns the name of the first setting that only `aimd` has.
    fn of_aimd(&self) -> Option<&'static str> {
        let given = [
            ("initialLimit", self.initial_limit.is_some()),
            ("decreaseFactor", self.decrease_factor.is_some()),
            ("increaseStep", self.increase_step.is_some()),
            ("successesUntilIncrease", self.successes_until_increase.is_some()),
            ("growOnEvidence", self.grow_on_evidence.is_some()),
        ];
        given.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
    }

    fn config(self) -> Result<LimitConfig, ConfigError> {
        let default = LimitConfig::default();
        let config = LimitConfig {
            initial_limit: self.initial_limit,
            max_limit: self.max_limit,
            decrease_factor: self.decrease_factor.unwrap_or(default.decrease_factor),
            increase_step: self.increase_step.unwrap_or(default.increase_step),
            successes_until_increase: self.successes_until_increase.unwrap_or(default.successes_until_increase),
            grow_on_evidence: self.grow_on_evidence.unwrap_or(default.grow_on_evidence),
            cooldown: self.cooldown.unwrap_or(default.cooldown),
            max_cooldown: self.max_cooldown.unwrap_or(default.max_cooldown),
            ramp: self.ramp.unwrap_or(default.ramp),
            ramp_after_idle: self.ramp_after_idle,
            ..default
        };
        config.validate().map(|()| config)
    }
}

impl GateOptions {
    /// Reads the settings of a gate. Returns them with the defaults of its resources.
    pub(super) fn read(given: &JsValue) -> Result<(Self, Adaptive), JsValue> {
        let options: Self = read("the options of a gate", given)?;
        let adaptive = options.adaptive();
        adaptive.config().map_err(|error| out_of_range("", &error, given))?;
        Ok((options, adaptive))
    }
}

/// The limits of a resource, in their ranges.
pub(super) struct ValidLimits {
    max_parallel: u32,
    weight: f64,
    pub(super) limit_config: LimitConfig,
    pub(super) algorithm: LimitChoice,
    budgets: Vec<BudgetConfig>,
}

impl Limits {
    /// Reads the limits of a resource. `defaults` are those of the gate.
    pub(super) fn read(given: &JsValue, defaults: &Adaptive) -> Result<ValidLimits, JsValue> {
        let mut limits: Self = read("the limits of a resource", given)?;
        let weight = limits.weight.unwrap_or(1.0);
        in_range(limits.max_parallel > 0, "max_parallel", "at least 1", given)?;
        in_range((MIN_WEIGHT..=MAX_WEIGHT).contains(&weight), "weight", "a number from 2^-20 to 2^20", given)?;
        let own = limits.adaptive();
        let limit_config = own.or(defaults).config().map_err(|error| out_of_range("", &error, given))?;
        let algorithm = limits.algorithm.take().map(AlgorithmSettings::read).transpose()?;
        let algorithm = choice(algorithm, &own, defaults)?;
        algorithm.make().map_err(|error| out_of_range("algorithm.", &error, given))?;
        let budgets: Vec<_> = limits.budgets.iter().map(|Object(budget)| budget.config()).collect();
        for (place, budget) in budgets.iter().enumerate() {
            budget.validate().map_err(|error| out_of_range(&format!("budgets[{place}]."), &error, given))?;
        }
        Ok(ValidLimits { max_parallel: limits.max_parallel, weight, limit_config, algorithm, budgets })
    }
}

/// Returns the named algorithm, else AIMD if one of its settings is given for the resource or the gate.
fn choice(algorithm: Option<AlgorithmSettings>, own: &Adaptive, defaults: &Adaptive) -> Result<LimitChoice, JsValue> {
    let of_aimd = own.of_aimd();
    let (name, choice) = match algorithm {
        None if of_aimd.or(defaults.of_aimd()).is_some() => return Ok(LimitChoice::Aimd),
        None => return Ok(LimitChoice::Tide(TideConfig::default())),
        Some(AlgorithmSettings::Aimd) => return Ok(LimitChoice::Aimd),
        Some(AlgorithmSettings::Vegas(vegas)) => ("vegas", LimitChoice::Vegas(vegas.config())),
        Some(AlgorithmSettings::Tide(tide)) => ("tide", LimitChoice::Tide(tide.config())),
        Some(AlgorithmSettings::Fixed(Fixed { limit: None })) => ("fixed", LimitChoice::AT_CAP),
        Some(AlgorithmSettings::Fixed(Fixed { limit: Some(limit) })) => ("fixed", LimitChoice::Fixed { limit }),
    };
    let Some(setting) = of_aimd else { return Ok(choice) };
    Err(TypeError::new(&format!(
        "{setting} is a setting of the algorithm \"aimd\", and algorithm is \"{name}\"; settings of other \
         algorithms belong in `algorithm`"
    ))
    .into())
}

impl ValidLimits {
    /// Registers a resource with these limits. A limit that is shared keeps its state.
    pub(super) fn apply(
        self,
        machine: &mut GateControl<'_>,
        now: Instant,
        provider: &str,
        model: &str,
        domain: Domain,
        is_shared: bool,
    ) -> Result<ResourceId, ConfigError> {
        let model = machine.register(now, provider, model, "default", self.max_parallel)?;
        let resource = machine.resource(model, domain)?;
        if !is_shared {
            machine.configure(now, resource, self.limit_config)?;
            machine.choose_algorithm(now, resource, self.algorithm)?;
        }
        machine.set_budgets(now, resource, &self.budgets)?;
        machine.set_resource_weight(resource, self.weight)?;
        Ok(resource)
    }
}

impl Vegas {
    fn config(&self) -> VegasConfig {
        let default = VegasConfig::default();
        VegasConfig {
            initial_limit: self.initial_limit.unwrap_or(default.initial_limit),
            alpha: self.alpha.unwrap_or(default.alpha),
            beta: self.beta.unwrap_or(default.beta),
            windows_until_relearned: self.windows_until_relearned.unwrap_or(default.windows_until_relearned),
        }
    }
}

impl Tide {
    fn config(&self) -> TideConfig {
        let default = TideConfig::default();
        TideConfig {
            initial_limit: self.initial_limit.unwrap_or(default.initial_limit),
            probe_after: self.probe_after.unwrap_or(default.probe_after),
            probe_after_most: self.probe_after_most.unwrap_or(default.probe_after_most),
            retry_after: self.retry_after.unwrap_or(default.retry_after),
            decrease_factor: self.decrease_factor.unwrap_or(default.decrease_factor),
            longest_pause: self.longest_pause_ms.unwrap_or(default.longest_pause),
            latency_tolerance: self.latency_tolerance.unwrap_or(default.latency_tolerance),
        }
    }
}

impl Budget {
    fn config(&self) -> BudgetConfig {
        BudgetConfig { dimension: self.dimension, limit: self.limit, window: self.window_ms, burst: self.burst }
    }
}

/// Reads an object with settings.
fn read<T: DeserializeOwned>(what: &str, given: &JsValue) -> Result<T, JsValue> {
    json::read(what, given).map(|Object(settings)| settings).map_err(|message| rejected(&message))
}

/// Returns the error for a value that `serde` rejects.
fn rejected(message: &str) -> JsValue {
    // The text of serde for a value out of range, whose type is right.
    let is_range = message.contains("invalid value: ");
    if is_range { RangeError::new(message).into() } else { TypeError::new(message).into() }
}

fn in_range(holds: bool, field: &str, expected: &'static str, given: &JsValue) -> Result<(), JsValue> {
    let error = || ConfigError { field: field.into(), value: String::new(), expected };
    if holds { Ok(()) } else { Err(out_of_range("", &error(), given)) }
}

/// Returns the error for a value that the core rejects. `given` has the value, `parent` is where in it.
fn out_of_range(parent: &str, error: &ConfigError, given: &JsValue) -> JsValue {
    let name = |core: &str| [parent, &js_name(core)].concat();
    let path = name(error.field.strip_prefix("budget.").unwrap_or(&error.field));
    let words = error.expected.split('`').enumerate();
    let expected: String =
        words.map(|(at, text)| if at % 2 == 0 { text.to_owned() } else { format!("`{}`", name(text)) }).collect();
    let value = text_at(given, &path).unwrap_or_else(|| error.value.clone());
    RangeError::new(&format!("{path} is {value}; expected {expected}")).into()
}

/// Returns the error for a value that was given on its own.
pub(super) fn config_error(error: &ConfigError) -> JsValue {
    out_of_range("", error, &JsValue::UNDEFINED)
}

/// Returns the dimension of a stated rate by its number.
pub(super) fn dimension(number: f64) -> Dimension {
    Dimension::ALL.get(number as usize).copied().unwrap_or(Dimension::Requests)
}
