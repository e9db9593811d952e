//! The table `budgets` of a model, shared by the pipeline file and the configuration of the proxy.

use schemars::JsonSchema;
use serde::Deserialize;
use tidegate_core::budget::{BudgetConfig, Dimension};

use super::document::Document;
use super::source::FileError;
use super::value::WithSpan;

/// Budgets for calls and tokens in a time window
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawBudgets {
    /// Calls per minute
    #[schemars(range(min = 1, max = 1_000_000_000_000_000_u64))]
    requests_per_minute: Option<WithSpan<u64>>,
    /// Calls per day
    #[schemars(range(min = 1, max = 1_000_000_000_000_000_u64))]
    requests_per_day: Option<WithSpan<u64>>,
    /// Input and output tokens per minute
    #[schemars(range(min = 1, max = 1_000_000_000_000_000_u64))]
    tokens_per_minute: Option<WithSpan<u64>>,
    /// Input and output tokens per day
    #[schemars(range(min = 1, max = 1_000_000_000_000_000_u64))]
    tokens_per_day: Option<WithSpan<u64>>,
    /// Input tokens per minute
    #[schemars(range(min = 1, max = 1_000_000_000_000_000_u64))]
    input_tokens_per_minute: Option<WithSpan<u64>>,
    /// Output tokens per minute
    #[schemars(range(min = 1, max = 1_000_000_000_000_000_u64))]
    output_tokens_per_minute: Option<WithSpan<u64>>,
    /// Input tokens per day
    #[schemars(range(min = 1, max = 1_000_000_000_000_000_u64))]
    input_tokens_per_day: Option<WithSpan<u64>>,
}

type MakeBudget = fn(Dimension, u64) -> BudgetConfig;
type Limit = fn(&RawBudgets) -> Option<&WithSpan<u64>>;

/// The budgets with their keys in files.
const BUDGETS: [(&str, MakeBudget, Dimension, Limit); 7] = [
    ("requests_per_minute", BudgetConfig::per_minute, Dimension::Requests, |raw| raw.requests_per_minute.as_ref()),
    ("requests_per_day", BudgetConfig::per_day, Dimension::Requests, |raw| raw.requests_per_day.as_ref()),
    ("tokens_per_minute", BudgetConfig::per_minute, Dimension::TotalTokens, |raw| raw.tokens_per_minute.as_ref()),
    ("tokens_per_day", BudgetConfig::per_day, Dimension::TotalTokens, |raw| raw.tokens_per_day.as_ref()),
    ("input_tokens_per_minute", BudgetConfig::per_minute, Dimension::InputTokens, |raw| {
        raw.input_tokens_per_minute.as_ref()
    }),
    ("output_tokens_per_minute", BudgetConfig::per_minute, Dimension::OutputTokens, |raw| {
        raw.output_tokens_per_minute.as_ref()
    }),
    ("input_tokens_per_day", BudgetConfig::per_day, Dimension::InputTokens, |raw| raw.input_tokens_per_day.as_ref()),
];

/// Returns the key of a budget in files.
#[must_use]
pub fn budget_name(budget: &BudgetConfig) -> &'static str {
    let is_match = |(_, make, dimension, _): &&(&str, MakeBudget, Dimension, Limit)| {
        let other = make(*dimension, budget.limit);
        (other.dimension, other.window) == (budget.dimension, budget.window)
    };
    BUDGETS.iter().find(is_match).map_or("budget", |(key, ..)| key)
}

impl RawBudgets {
    /// Returns the budgets, or an error if one is out of range.
    pub(crate) fn check(&self, file: &Document<'_>) -> Result<Vec<BudgetConfig>, FileError> {
        let mut budgets = Vec::new();
        for (_, make, dimension, limit) in BUDGETS {
            let Some(limit) = limit(self) else { continue };
            let budget = make(dimension, *limit.get());
            budget.validate().map_err(|_| file.wrong(limit.span(), "a whole number from 1 to 10^15"))?;
            budgets.push(budget);
        }
        Ok(budgets)
    }
}
