//! What decides how many calls of a model are in flight: the keys `limit` and `aimd`, and those that hold for every limit.
//!
//! | the table has | the limit |
//! | --- | --- |
//! | neither `limit` nor `aimd` | as of the table around it, or [`default_limit`] |
//! | `aimd` alone | AIMD, by these settings |
//! | `limit = "aimd"` | AIMD, by `aimd` if it is there |
//! | another `limit` | that one; `aimd` beside it is refused, since nothing would come of it |

use std::ops::Range;

use tidegate_core::error::ConfigError;
use tidegate_core::limit::{AimdConfig, LimitChoice, TideConfig, VegasConfig};
use toml::Spanned;

use super::reader::TableReader;
use super::source::{FileError, SourceText, config_error};
use crate::gate::default_limit;

/// The keys of a table of AIMD settings.
pub(super) const AIMD_KEYS: &[&str] = &[
    "initial_limit",
    "max_limit",
    "decrease_factor",
    "increase_step",
    "successes_until_increase",
    "cooldown",
    "max_cooldown",
    "ramp",
];

/// The keys beside `limit` that hold for every limit.
pub(super) const COMMON_KEYS: [&str; 3] = ["cooldown", "max_cooldown", "ramp"];

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

/// The settings of `table`, whose own table of AIMD settings is called `aimd_title`; what it leaves out is as in `defaults`.
pub(crate) fn read_limit(
    source: &SourceText,
    table: &TableReader<'_>,
    aimd_title: &'static str,
    defaults: LimitSettings,
) -> Result<LimitSettings, FileError> {
    let LimitSettings { choice: outer, is_given: is_outer_given, aimd } = defaults;
    let given = read_name(source, table)?;
    let aimd_at = table.raw("aimd").map(Spanned::span);
    let choice = match (given, &aimd_at) {
        (Some(other), Some(at)) if !other.is_aimd() => return Err(beside_aimd(source, table, other, at)),
        (Some(choice), _) => choice,
        (None, Some(_)) => LimitChoice::Aimd,
        (None, None) => outer,
    };
    let is_given = is_outer_given || given.is_some() || aimd_at.is_some();
    let aimd = read_common(source, table, aimd)?;
    Ok(LimitSettings { choice, is_given, aimd: read_aimd(source, table, aimd_title, aimd)? })
}

fn beside_aimd(source: &SourceText, table: &TableReader<'_>, other: LimitChoice, aimd: &Range<usize>) -> FileError {
    let message = format!(
        "`aimd` in {} sets the limit \"aimd\", and the table has `limit = \"{}\"`",
        table.title(),
        other.name()
    );
    let common = COMMON_KEYS.map(|key| format!("`{key}`")).join(", ");
    source
        .error(aimd.clone(), message)
        .expected(format!("`limit = \"aimd\"`, or no `aimd`; {common} hold for every limit and stand beside `limit`"))
}

/// The setting `limit` of a table, if it is there.
fn read_name(source: &SourceText, table: &TableReader<'_>) -> Result<Option<LimitChoice>, FileError> {
    const NAMES: [&str; 4] = ["tide", "aimd", "vegas", "fixed"];
    let Some(limit) = table.optional::<String>("limit")? else { return Ok(None) };
    Ok(Some(match limit.get_ref().as_str() {
        "aimd" => LimitChoice::Aimd,
        "vegas" => LimitChoice::Vegas(VegasConfig::default()),
        "tide" => LimitChoice::Tide(TideConfig::default()),
        // Its cap is `max_parallel`, and the limit is no higher.
        "fixed" => LimitChoice::Fixed { limit: u32::MAX },
        other => {
            return Err(source
                .error(limit.span(), format!("`limit` in {} is the string {other:?}", table.title()))
                .expected("\"tide\", \"aimd\", \"vegas\" or \"fixed\"")
                .suggest(other, NAMES));
        }
    }))
}

/// The keys beside `limit` that hold for every limit.
fn read_common(source: &SourceText, table: &TableReader<'_>, mut aimd: AimdConfig) -> Result<AimdConfig, FileError> {
    aimd.cooldown = table.or("cooldown", aimd.cooldown)?;
    aimd.max_cooldown = table.or("max_cooldown", aimd.max_cooldown)?;
    aimd.ramp = table.or("ramp", aimd.ramp)?;
    let Err(ConfigError { field, value, expected }) = aimd.validate() else { return Ok(aimd) };
    // A cooldown above the default of the longest one is refused as that one.
    let place = COMMON_KEYS.into_iter().filter_map(|key| Some((key, table.raw(key)?)));
    let place = place.max_by_key(|(key, _)| *key == field).map_or_else(|| table.span(), |(_, value)| value.span());
    Err(source.error(place, format!("`{field}` in {} is {value}", table.title())).expected(expected))
}

/// The table `aimd` of a table, called `title`; what it leaves out is as in `aimd`.
fn read_aimd(
    source: &SourceText,
    owner: &TableReader<'_>,
    title: &'static str,
    mut aimd: AimdConfig,
) -> Result<AimdConfig, FileError> {
    let Some(table) = owner.table("aimd", title, AIMD_KEYS)? else { return Ok(aimd) };
    aimd.initial_limit = table.optional("initial_limit")?.map(Spanned::into_inner).or(aimd.initial_limit);
    aimd.max_limit = table.optional("max_limit")?.map(Spanned::into_inner).or(aimd.max_limit);
    aimd.decrease_factor = table.or("decrease_factor", aimd.decrease_factor)?;
    aimd.increase_step = table.or("increase_step", aimd.increase_step)?;
    aimd.successes_until_increase = table.or("successes_until_increase", aimd.successes_until_increase)?;
    aimd.cooldown = table.or("cooldown", aimd.cooldown)?;
    aimd.max_cooldown = table.or("max_cooldown", aimd.max_cooldown)?;
    aimd.ramp = table.or("ramp", aimd.ramp)?;
    if let (Err(error), Some(value)) = (aimd.validate(), owner.raw("aimd")) {
        return Err(config_error(source, owner.title(), "aimd", &error, value));
    }
    Ok(aimd)
}
