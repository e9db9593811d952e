//! Reads the limits of a resource from numbers.
//!
//! | array | numbers, in this order; NaN for the default |
//! | --- | --- |
//! | AIMD | initial limit, max limit, decrease factor, increase step, successes until increase, grow on evidence, cooldown, max cooldown, ramp, ramp after idle |
//! | algorithm | which: 0 AIMD, 1 Vegas, 2 tide, 3 fixed; then its own settings |
//! | Vegas | initial limit, alpha, beta, windows until relearned |
//! | tide | initial limit, probe after, probe after most, what a Retry-After stops, decrease factor, longest pause, latency tolerance |
//! | fixed | limit |
//! | budgets | for each: dimension, limit, window, burst |
//!
//! Durations are in milliseconds. TypeScript has checked that whole numbers are whole and fit in 32 bits; the
//! core checks ranges.

use tidegate_core::budget::{BudgetConfig, Dimension};
use tidegate_core::error::ConfigError;
use tidegate_core::fair_queue::{MAX_WEIGHT, MIN_WEIGHT};
use tidegate_core::gate::GateControl;
use tidegate_core::limit::{LimitChoice, RetryAfterStops, TideConfig, VegasConfig};
use tidegate_core::request::{AimdConfig, Domain, ResourceId};
use tidegate_core::time::{Duration, Instant};
use wasm_bindgen::JsValue;

use super::span;

/// Returns the setting and what was expected, on two lines. The TypeScript package creates the error, with
/// the value and its own name of the setting.
pub(super) fn config_error(error: &ConfigError) -> JsValue {
    JsValue::from_str(&[&error.field, "\n", error.expected].concat())
}

/// The limits of a resource.
pub(super) struct Limits {
    max_parallel: u32,
    weight: f64,
    aimd: AimdConfig,
    algorithm: LimitChoice,
    budgets: Vec<BudgetConfig>,
}

impl Limits {
    /// Reads limits and checks their ranges.
    pub(super) fn read(
        max_parallel: u32,
        weight: f64,
        aimd: &[f64],
        algorithm: &[f64],
        budgets: &[f64],
    ) -> Result<Self, ConfigError> {
        let in_range = |holds, field: &str, expected| {
            if holds { Ok(()) } else { Err(ConfigError { field: field.into(), value: String::new(), expected }) }
        };
        in_range(max_parallel > 0, "max_parallel", "at least 1")?;
        in_range((MIN_WEIGHT..=MAX_WEIGHT).contains(&weight), "weight", "a number from 2^-20 to 2^20")?;
        let aimd = aimd_of(&Numbers(aimd));
        aimd.validate()?;
        let algorithm = algorithm_of(&Numbers(algorithm));
        // Other algorithms have settings of the same names.
        algorithm.make().map_err(|error| ConfigError { field: ["algorithm.", &error.field].concat(), ..error })?;
        let budgets: Vec<_> = budgets.chunks_exact(4).map(|numbers| budget_of(&Numbers(numbers))).collect();
        budgets.iter().try_for_each(BudgetConfig::validate)?;
        Ok(Self { max_parallel, weight, aimd, algorithm, budgets })
    }

    pub(super) fn apply(
        self,
        machine: &mut GateControl<'_>,
        now: Instant,
        provider: &str,
        model: &str,
        domain: Domain,
    ) -> Result<ResourceId, ConfigError> {
        let model = machine.register(now, provider, model, "default", self.max_parallel)?;
        let resource = machine.resource(model, domain)?;
        machine.configure(now, resource, self.aimd)?;
        machine.choose_algorithm(now, resource, self.algorithm)?;
        machine.set_budgets(now, resource, &self.budgets)?;
        machine.set_resource_weight(resource, self.weight)?;
        Ok(resource)
    }
}

/// Numbers by index. A missing number or NaN is not set.
struct Numbers<'a>(&'a [f64]);

impl Numbers<'_> {
    fn said(&self, place: usize) -> Option<f64> {
        self.0.get(place).copied().filter(|value| !value.is_nan())
    }

    fn number(&self, place: usize, default: f64) -> f64 {
        self.said(place).unwrap_or(default)
    }

    fn some_calls(&self, place: usize) -> Option<u32> {
        self.said(place).map(|value| value as u32)
    }

    fn calls(&self, place: usize, default: u32) -> u32 {
        self.some_calls(place).unwrap_or(default)
    }

    fn span(&self, place: usize, default: Duration) -> Duration {
        self.said(place).and_then(span).unwrap_or(default)
    }
}

fn aimd_of(from: &Numbers<'_>) -> AimdConfig {
    let AimdConfig {
        decrease_factor,
        increase_step,
        successes_until_increase,
        cooldown,
        max_cooldown,
        ramp,
        cut_rule,
        cooldown_rule,
        ..
    } = AimdConfig::default();
    AimdConfig {
        initial_limit: from.some_calls(0),
        max_limit: from.some_calls(1),
        decrease_factor: from.number(2, decrease_factor),
        increase_step: from.calls(3, increase_step),
        successes_until_increase: from.calls(4, successes_until_increase),
        grow_on_evidence: from.number(5, 0.0) > 0.0,
        cooldown: from.span(6, cooldown),
        max_cooldown: from.span(7, max_cooldown),
        ramp: from.span(8, ramp),
        ramp_after_idle: from.said(9).and_then(span),
        cut_rule,
        cooldown_rule,
    }
}

fn algorithm_of(numbers: &Numbers<'_>) -> LimitChoice {
    let from = Numbers(numbers.0.get(1..).unwrap_or_default());
    match numbers.calls(0, 0) {
        1 => {
            let default = VegasConfig::default();
            LimitChoice::Vegas(VegasConfig {
                initial_limit: from.calls(0, default.initial_limit),
                alpha: from.number(1, default.alpha),
                beta: from.number(2, default.beta),
                windows_until_relearned: from.calls(3, default.windows_until_relearned),
            })
        }
        2 => {
            let default = TideConfig::default();
            LimitChoice::Tide(TideConfig {
                initial_limit: from.calls(0, default.initial_limit),
                probe_after: from.calls(1, default.probe_after),
                probe_after_most: from.calls(2, default.probe_after_most),
                retry_after: match from.calls(3, 0) {
                    1 => RetryAfterStops::Resource,
                    2 => RetryAfterStops::Call,
                    _ => RetryAfterStops::Learned,
                },
                decrease_factor: from.number(4, default.decrease_factor),
                longest_pause: from.span(5, default.longest_pause),
                latency_tolerance: from.number(6, default.latency_tolerance),
            })
        }
        3 => LimitChoice::Fixed { limit: from.calls(0, 0) },
        _ => LimitChoice::Aimd,
    }
}

fn budget_of(from: &Numbers<'_>) -> BudgetConfig {
    let amount = |place| from.said(place).map(|value| value as u64);
    BudgetConfig {
        dimension: dimension(from.number(0, 0.0)),
        limit: amount(1).unwrap_or(0),
        window: from.span(2, Duration::ZERO),
        burst: amount(3),
    }
}

/// Returns the dimension of a budget by its number.
pub(super) fn dimension(number: f64) -> Dimension {
    match number as u32 {
        0 => Dimension::Requests,
        1 => Dimension::InputTokens,
        2 => Dimension::OutputTokens,
        _ => Dimension::TotalTokens,
    }
}
