//! What decides how many calls of a model are in flight: the keys `limit` and `aimd`, and those that hold for
//! every limit.
//!
//! | the table has | the limit |
//! | --- | --- |
//! | neither `limit` nor `aimd` | as of the table around it, or [`default_limit`] |
//! | `aimd` alone | AIMD, by these settings |
//! | `limit = "aimd"` | AIMD, by `aimd` if it is there |
//! | another `limit` | that one; `aimd` beside it is refused, since nothing would come of it |

use std::ops::Range;

use schemars::JsonSchema;
use serde::Deserialize;
use tidegate_core::error::ConfigError;
use tidegate_core::limit::{AimdConfig, LimitChoice, TideConfig, VegasConfig};

use super::document::Document;
use super::source::FileError;
use super::value::{At, Finite, Is, Span, Table};
use crate::gate::default_limit;

/// What decides a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LimitName {
    /// Finds how many calls at once, or how many a minute, the provider bears
    Tide,
    /// Cuts at a refusal and climbs slowly
    Aimd,
    /// Watches for queues
    Vegas,
    /// Always allows `max_parallel`
    Fixed,
}

impl From<LimitName> for LimitChoice {
    fn from(name: LimitName) -> Self {
        match name {
            LimitName::Tide => Self::Tide(TideConfig::default()),
            LimitName::Aimd => Self::Aimd,
            LimitName::Vegas => Self::Vegas(VegasConfig::default()),
            // Its cap is `max_parallel`, and the limit is no higher.
            LimitName::Fixed => Self::Fixed { limit: u32::MAX },
        }
    }
}

/// Settings of AIMD
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAimd {
    /// Calls in flight at the start. Default: `max_parallel`
    initial_limit: Option<u32>,
    /// The highest the limit may grow. Default: `max_parallel`
    max_limit: Option<u32>,
    /// What is left of the limit after a 429
    decrease_factor: Option<Finite>,
    /// By how much the limit grows
    increase_step: Option<u32>,
    /// After how many successes in a row it grows
    successes_until_increase: Option<u32>,
    /// As `cooldown` of the model, which holds for every limit
    cooldown: Option<Span>,
    /// As `max_cooldown` of the model, which holds for every limit
    max_cooldown: Option<Span>,
    /// As `ramp` of the model, which holds for every limit
    ramp: Option<Span>,
}

/// The keys of a table that say what decides its limit.
#[derive(Clone, Copy)]
pub(crate) struct LimitKeys<'a> {
    pub(crate) limit: Option<&'a At<LimitName>>,
    pub(crate) aimd: Option<&'a At<Table<RawAimd>>>,
    pub(crate) cooldown: Option<&'a At<Span>>,
    pub(crate) max_cooldown: Option<&'a At<Span>>,
    pub(crate) ramp: Option<&'a At<Span>>,
}

impl LimitKeys<'_> {
    /// The keys that hold for every limit, in the order in which they are read.
    pub(crate) fn common(&self) -> [(&'static str, Option<&At<Span>>); 3] {
        [("cooldown", self.cooldown), ("max_cooldown", self.max_cooldown), ("ramp", self.ramp)]
    }
}

/// What decides a limit, and by which settings.
#[derive(Clone, Debug)]
pub(crate) struct LimitSettings {
    pub(crate) choice: LimitChoice,
    /// Whether the file chose it.
    pub(crate) is_given: bool,
    pub(crate) aimd: AimdConfig,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self { choice: default_limit(), is_given: false, aimd: AimdConfig::default() }
    }
}

/// The settings of the table in `table`; what it leaves out is as in `defaults`.
pub(crate) fn read_limit(
    file: &Document<'_>,
    table: &Range<usize>,
    keys: LimitKeys<'_>,
    defaults: LimitSettings,
) -> Result<LimitSettings, FileError> {
    let LimitSettings { choice: outer, is_given: is_outer_given, aimd } = defaults;
    let given = keys.limit.map(|limit| LimitChoice::from(*limit.get()));
    let choice = match (given, keys.aimd) {
        (Some(other), Some(aimd)) if !other.is_aimd() => return Err(beside_aimd(file, table, &keys, other, aimd)),
        (Some(choice), _) => choice,
        (None, Some(_)) => LimitChoice::Aimd,
        (None, None) => outer,
    };
    let is_given = is_outer_given || given.is_some() || keys.aimd.is_some();
    let aimd = read_common(file, table, &keys, aimd)?;
    Ok(LimitSettings { choice, is_given, aimd: read_aimd(file, keys.aimd, aimd)? })
}

fn beside_aimd(
    file: &Document<'_>,
    table: &Range<usize>,
    keys: &LimitKeys<'_>,
    other: LimitChoice,
    aimd: &At<Table<RawAimd>>,
) -> FileError {
    let title = file.title(table.clone());
    let other = other.name();
    let message = format!("`aimd` in {title} sets the limit \"aimd\", and the table has `limit = \"{other}\"`");
    let common = keys.common().map(|(key, _)| format!("`{key}`")).join(", ");
    file.error(aimd.span(), message)
        .expected(format!("`limit = \"aimd\"`, or no `aimd`; {common} hold for every limit and stand beside `limit`"))
}

/// The keys beside `limit` that hold for every limit.
fn read_common(
    file: &Document<'_>,
    table: &Range<usize>,
    keys: &LimitKeys<'_>,
    mut aimd: AimdConfig,
) -> Result<AimdConfig, FileError> {
    let or = |given: Option<&At<Span>>, default| given.map_or(default, |given| given.get().0);
    aimd.cooldown = or(keys.cooldown, aimd.cooldown);
    aimd.max_cooldown = or(keys.max_cooldown, aimd.max_cooldown);
    aimd.ramp = or(keys.ramp, aimd.ramp);
    let Err(ConfigError { field, value, expected }) = aimd.validate() else { return Ok(aimd) };
    // A cooldown above the default of the longest one is refused as that one.
    let place = keys.common().into_iter().filter_map(|(key, value)| Some((key, value?)));
    let place = place.max_by_key(|(key, _)| *key == field).map_or_else(|| table.clone(), |(_, value)| value.span());
    Err(file.error(place, format!("`{field}` in {} is {value}", file.title(table.clone()))).expected(expected))
}

/// The table `aimd`; what it leaves out is as in `aimd`.
fn read_aimd(
    file: &Document<'_>,
    table: Option<&At<Table<RawAimd>>>,
    mut aimd: AimdConfig,
) -> Result<AimdConfig, FileError> {
    let Some(table) = table else { return Ok(aimd) };
    let raw = table.get();
    aimd.initial_limit = raw.initial_limit.or(aimd.initial_limit);
    aimd.max_limit = raw.max_limit.or(aimd.max_limit);
    aimd.decrease_factor = raw.decrease_factor.map_or(aimd.decrease_factor, |Is(factor)| factor);
    aimd.increase_step = raw.increase_step.unwrap_or(aimd.increase_step);
    aimd.successes_until_increase = raw.successes_until_increase.unwrap_or(aimd.successes_until_increase);
    aimd.cooldown = raw.cooldown.map_or(aimd.cooldown, |Is(span)| span);
    aimd.max_cooldown = raw.max_cooldown.map_or(aimd.max_cooldown, |Is(span)| span);
    aimd.ramp = raw.ramp.map_or(aimd.ramp, |Is(span)| span);
    aimd.validate().map_err(|error| file.config_error(&table.span(), &error))?;
    Ok(aimd)
}
