//! The limit algorithm of a model: the keys `limit` and `aimd`, and the keys that apply to every limit.
//! | keys in the table | limit |
//! | --- | --- |
//! | neither `limit` nor `aimd` | that of the enclosing table, or [`default_limit`] |
//! | only `aimd` | AIMD with these settings |
//! | `limit = "aimd"` | AIMD with the settings in `aimd`, if present |
//! | another `limit` | that limit; `aimd` is rejected, because it would have no effect |

use std::ops::Range;

use schemars::JsonSchema;
use serde::Deserialize;
use tidegate_core::error::ConfigError;
use tidegate_core::limit::{LimitChoice, LimitConfig, TideConfig, VegasConfig};

use super::document::Document;
use super::source::FileError;
use super::value::{Checked, DurationText, Finite, Table, WithSpan};
use crate::gate::default_limit;

/// The name of a limit algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LimitName {
    /// Finds the capacity of the provider: the number of concurrent calls, or the rate of calls
    Tide,
    /// Decreases at a rate-limited response and increases slowly
    Aimd,
    /// Decreases when latency shows that calls queue at the provider
    Vegas,
    /// Always allows `max_parallel` calls
    Fixed,
}

impl From<LimitName> for LimitChoice {
    fn from(name: LimitName) -> Self {
        match name {
            LimitName::Tide => Self::Tide(TideConfig::default()),
            LimitName::Aimd => Self::Aimd,
            LimitName::Vegas => Self::Vegas(VegasConfig::default()),
            LimitName::Fixed => Self::AT_CAP,
        }
    }
}

/// Settings of AIMD
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAimd {
    /// The limit at the start. Default: `max_parallel`
    initial_limit: Option<u32>,
    /// The maximum limit. Default: `max_parallel`
    max_limit: Option<u32>,
    /// The factor by which a 429 multiplies the limit
    decrease_factor: Option<Finite>,
    /// The amount by which the limit increases
    increase_step: Option<u32>,
    /// The number of consecutive successes after which the limit increases
    successes_until_increase: Option<u32>,
    /// Same as `cooldown` of the model, which applies to every limit
    cooldown: Option<DurationText>,
    /// Same as `max_cooldown` of the model, which applies to every limit
    max_cooldown: Option<DurationText>,
    /// Same as `ramp` of the model, which applies to every limit
    ramp: Option<DurationText>,
}

/// The keys of a table that configure its limit.
#[derive(Clone, Copy)]
pub(crate) struct LimitKeys<'a> {
    pub(crate) limit: Option<&'a WithSpan<LimitName>>,
    pub(crate) aimd: Option<&'a WithSpan<Table<RawAimd>>>,
    pub(crate) cooldown: Option<&'a WithSpan<DurationText>>,
    pub(crate) max_cooldown: Option<&'a WithSpan<DurationText>>,
    pub(crate) ramp: Option<&'a WithSpan<DurationText>>,
}

impl LimitKeys<'_> {
    /// Returns the keys that apply to every limit, in the order in which they are checked.
    pub(crate) fn common(&self) -> [(&'static str, Option<&WithSpan<DurationText>>); 3] {
        [("cooldown", self.cooldown), ("max_cooldown", self.max_cooldown), ("ramp", self.ramp)]
    }
}

/// A limit algorithm and its settings.
#[derive(Clone, Debug)]
pub(crate) struct LimitSettings {
    pub(crate) choice: LimitChoice,
    /// Whether the file sets the algorithm.
    pub(crate) is_given: bool,
    pub(crate) limit_config: LimitConfig,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self { choice: default_limit(), is_given: false, limit_config: LimitConfig::default() }
    }
}

/// Returns the limit settings of the table in `table`. Omitted keys have the values in `defaults`.
pub(crate) fn read_limit(
    file: &Document<'_>,
    table: &Range<usize>,
    keys: LimitKeys<'_>,
    defaults: LimitSettings,
) -> Result<LimitSettings, FileError> {
    let LimitSettings { choice: outer, is_given: is_outer_given, limit_config } = defaults;
    let given = keys.limit.map(|limit| LimitChoice::from(*limit.get()));
    let choice = match (given, keys.aimd) {
        (Some(other), Some(aimd)) if !other.is_aimd() => {
            return Err(conflicting_aimd_error(file, table, &keys, other, aimd));
        }
        (Some(choice), _) => choice,
        (None, Some(_)) => LimitChoice::Aimd,
        (None, None) => outer,
    };
    let is_given = is_outer_given || given.is_some() || keys.aimd.is_some();
    let limit_config = read_common(file, table, &keys, limit_config)?;
    Ok(LimitSettings { choice, is_given, limit_config: read_aimd(file, keys.aimd, limit_config)? })
}

fn conflicting_aimd_error(
    file: &Document<'_>,
    table: &Range<usize>,
    keys: &LimitKeys<'_>,
    other: LimitChoice,
    aimd: &WithSpan<Table<RawAimd>>,
) -> FileError {
    let title = file.title(table.clone());
    let other = other.name();
    let message = format!("`aimd` in {title} sets the limit \"aimd\", and the table has `limit = \"{other}\"`");
    let common = keys.common().map(|(key, _)| format!("`{key}`")).join(", ");
    file.error(aimd.span(), message)
        .expected(format!("`limit = \"aimd\"`, or no `aimd`; {common} apply to every limit and belong beside `limit`"))
}

/// Applies the keys beside `limit` that are common to every limit.
fn read_common(
    file: &Document<'_>,
    table: &Range<usize>,
    keys: &LimitKeys<'_>,
    mut limit_config: LimitConfig,
) -> Result<LimitConfig, FileError> {
    let or = |given: Option<&WithSpan<DurationText>>, default| given.map_or(default, |given| given.get().0);
    limit_config.cooldown = or(keys.cooldown, limit_config.cooldown);
    limit_config.max_cooldown = or(keys.max_cooldown, limit_config.max_cooldown);
    limit_config.ramp = or(keys.ramp, limit_config.ramp);
    let Err(ConfigError { field, value, expected }) = limit_config.validate() else { return Ok(limit_config) };
    // A `cooldown` above the default `max_cooldown` is an error in the field `max_cooldown`, which the file
    // may omit.
    let span = keys.common().into_iter().filter_map(|(key, value)| Some((key, value?)));
    let span = span.max_by_key(|(key, _)| *key == field).map_or_else(|| table.clone(), |(_, value)| value.span());
    Err(file.error(span, format!("`{field}` in {} is {value}", file.title(table.clone()))).expected(expected))
}

/// Applies the table `aimd`. Omitted keys keep the values in `aimd`.
fn read_aimd(
    file: &Document<'_>,
    table: Option<&WithSpan<Table<RawAimd>>>,
    mut limit_config: LimitConfig,
) -> Result<LimitConfig, FileError> {
    let Some(table) = table else { return Ok(limit_config) };
    let raw = table.get();
    limit_config.initial_limit = raw.initial_limit.or(limit_config.initial_limit);
    limit_config.max_limit = raw.max_limit.or(limit_config.max_limit);
    limit_config.decrease_factor = raw.decrease_factor.map_or(limit_config.decrease_factor, |Checked(factor)| factor);
    limit_config.increase_step = raw.increase_step.unwrap_or(limit_config.increase_step);
    limit_config.successes_until_increase =
        raw.successes_until_increase.unwrap_or(limit_config.successes_until_increase);
    limit_config.cooldown = raw.cooldown.map_or(limit_config.cooldown, |Checked(span)| span);
    limit_config.max_cooldown = raw.max_cooldown.map_or(limit_config.max_cooldown, |Checked(span)| span);
    limit_config.ramp = raw.ramp.map_or(limit_config.ramp, |Checked(span)| span);
    limit_config.validate().map_err(|error| file.config_error(&table.span(), &error))?;
    Ok(limit_config)
}
