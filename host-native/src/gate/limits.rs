//! The limits that a model is registered with.

use std::num::NonZeroU32;

use tidegate_core::budget::BudgetConfig;
use tidegate_core::error::ConfigError;
use tidegate_core::limit::{LimitChoice, TideConfig};
use tidegate_core::request::LimitConfig;

/// Returns the limit algorithm that applies where none is chosen: tide.
///
/// It is the default of everything in this crate: gates and middleware, pipeline files and the proxy.
#[must_use]
pub fn default_limit() -> LimitChoice {
    LimitChoice::Tide(TideConfig::default())
}

/// The limits of a model: how many calls may be in flight, how the current limit adapts, and rate budgets.
///
/// ```
/// use tidegate_core::budget::{BudgetConfig, Dimension};
/// use tidegate_native::gate::Limits;
///
/// // At most 32 calls in flight, and 600 requests per minute.
/// let limits = Limits::at_most(32).with_budget(BudgetConfig::per_minute(Dimension::Requests, 600));
/// # assert_eq!(limits.budgets.len(), 1);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// The maximum number of calls in flight, over all domains of the provider and model.
    pub max_parallel: NonZeroU32,
    /// Settings of the limit. The ramp, the cooldowns and `max_limit` apply to every algorithm; the rest only
    /// to AIMD.
    pub limit_config: LimitConfig,
    /// The algorithm that adapts the current limit, from 1 to `max_parallel`.
    pub algorithm: LimitChoice,
    /// Rate budgets, such as requests or tokens per minute. Empty by default.
    pub budgets: Vec<BudgetConfig>,
}

impl Limits {
    /// Creates limits with at most `max_parallel` calls in flight, the [`default_limit`] algorithm and no
    /// budgets. A `max_parallel` of 0 counts as 1.
    #[must_use]
    pub fn at_most(max_parallel: u32) -> Self {
        let max_parallel = NonZeroU32::new(max_parallel).unwrap_or(NonZeroU32::MIN);
        Self { max_parallel, limit_config: LimitConfig::default(), algorithm: default_limit(), budgets: Vec::new() }
    }

    /// Returns the limits with the given algorithm.
    #[must_use]
    pub fn with_algorithm(self, algorithm: LimitChoice) -> Self {
        Self { algorithm, ..self }
    }

    /// Returns the limits with AIMD as the algorithm, and the given settings.
    #[must_use]
    pub fn with_aimd(self, limit_config: LimitConfig) -> Self {
        Self { algorithm: LimitChoice::Aimd, limit_config, ..self }
    }

    /// Returns the limits with `budget` added.
    #[must_use]
    pub fn with_budget(mut self, budget: BudgetConfig) -> Self {
        self.budgets.push(budget);
        self
    }

    /// Returns an error with the field name if a setting is out of range.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        self.limit_config.validate()?;
        self.algorithm.make()?;
        self.budgets.iter().try_for_each(BudgetConfig::validate)
    }
}
