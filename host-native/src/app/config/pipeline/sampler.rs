//! `sampler` of a column of kind `sampler`: which values are drawn, and how often each. Drawing is in
//! [`fill::sampler`](crate::app::run::columns::sampler).

use serde_json::{Map, Value};
use toml::Spanned;

use crate::app::config::reader::{FromToml, TableReader};
use crate::app::config::source::{FileError, SourceText};
use crate::app::data::calendar::Moment;

/// What a sampler draws.
#[derive(Clone, Debug)]
pub enum SamplerSpec {
    /// One of some values.
    Category {
        /// The values; at least one.
        values: Vec<Value>,
        /// How often each, relative to the others; as many as values.
        weights: Vec<f64>,
    },
    /// One of the values that belong to the value of another column.
    Subcategory {
        /// The other column.
        of: Spanned<String>,
        /// The values for each of its values.
        values: Map<String, Value>,
    },
    /// A whole number, each equally likely.
    Integer {
        /// The least.
        low: i64,
        /// The greatest.
        high: i64,
    },
    /// A number, evenly.
    Uniform {
        /// The least.
        low: f64,
        /// The greatest.
        high: f64,
        /// Decimals that are kept.
        decimals: Option<u32>,
    },
    /// A number around a mean.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        sd: f64,
        /// Decimals that are kept.
        decimals: Option<u32>,
    },
    /// True or false.
    Bernoulli {
        /// How likely is true.
        p: f64,
    },
    /// A point in time, as ISO 8601 text.
    Datetime {
        /// The first.
        from: Moment,
        /// After the last.
        to: Moment,
        /// Seconds between two that may be drawn.
        step_s: u64,
    },
    /// A random UUID (version 4).
    Uuid,
}

pub(super) const SAMPLER_TABLE_KEYS: &[&str] =
    &["law", "values", "weights", "of", "low", "high", "integer", "decimals", "mean", "sd", "p", "from", "to", "unit"];

#[derive(Clone, Copy)]
enum Law {
    Category,
    Subcategory,
    Uniform,
    Normal,
    Bernoulli,
    Datetime,
    Uuid,
}

impl Law {
    /// The keys beside `law`.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Category => &["values", "weights"],
            Self::Subcategory => &["of", "values"],
            Self::Uniform => &["low", "high", "integer", "decimals"],
            Self::Normal => &["mean", "sd", "decimals"],
            Self::Bernoulli => &["p"],
            Self::Datetime => &["from", "to", "unit"],
            Self::Uuid => &[],
        }
    }
}

const LAWS: [(&str, Law); 7] = [
    ("category", Law::Category),
    ("subcategory", Law::Subcategory),
    ("uniform", Law::Uniform),
    ("normal", Law::Normal),
    ("bernoulli", Law::Bernoulli),
    ("datetime", Law::Datetime),
    ("uuid", Law::Uuid),
];

pub(super) fn parse(source: &SourceText, column: &TableReader<'_>) -> Result<SamplerSpec, FileError> {
    let Some(table) = column.table("sampler", "[columns.sampler]", SAMPLER_TABLE_KEYS)? else {
        return Err(
            column.refused("sampler", "a table such as `sampler = { law = \"category\", values = [\"a\", \"b\"] }`")
        );
    };
    let law_name = table.required::<String>("law")?;
    let law = table.choice("law", &LAWS, Law::Uuid)?;
    let is_foreign = |key: &&&str| **key != "law" && !law.keys().contains(key);
    if let Some((key, value)) =
        SAMPLER_TABLE_KEYS.iter().filter(is_foreign).find_map(|key| Some((key, table.raw(key)?)))
    {
        let message = format!("`{key}` in [columns.sampler] means nothing to the law `{}`", law_name.get_ref());
        return Err(source.error(value.span(), message).expected(match law.keys() {
            [] => "no other key".to_string(),
            keys => format!("one of: {}", keys.join(", ")),
        }));
    }
    match law {
        Law::Category => parse_category(&table),
        Law::Subcategory => parse_subcategory(source, &table),
        Law::Uniform => parse_uniform(&table),
        Law::Normal => {
            let sd = table.required::<f64>("sd")?.into_inner();
            if sd < 0.0 {
                return Err(table.refused("sd", "a finite number, 0 or more"));
            }
            Ok(SamplerSpec::Normal { mean: table.required("mean")?.into_inner(), sd, decimals: decimals(&table)? })
        }
        Law::Bernoulli => {
            let p = table.required::<f64>("p")?.into_inner();
            let is_share = (0.0..=1.0).contains(&p);
            is_share.then_some(SamplerSpec::Bernoulli { p }).ok_or_else(|| table.refused("p", "a number from 0 to 1"))
        }
        Law::Datetime => parse_datetime(&table),
        Law::Uuid => Ok(SamplerSpec::Uuid),
    }
}

fn parse_category(table: &TableReader<'_>) -> Result<SamplerSpec, FileError> {
    let values: Vec<Value> = table.required("values")?.into_inner();
    let weights = match table.optional::<Vec<f64>>("weights")? {
        Some(weights) => weights.into_inner(),
        None => vec![1.0; values.len()],
    };
    let total: f64 = weights.iter().sum();
    let are_good = weights.len() == values.len() && weights.iter().all(|weight| *weight >= 0.0);
    if !are_good || !total.is_finite() || total <= 0.0 {
        let expected = format!("{} numbers, one for each value, none below 0 and not all 0", values.len());
        return Err(table.refused("weights", &expected));
    }
    Ok(SamplerSpec::Category { values, weights })
}

fn parse_subcategory(source: &SourceText, table: &TableReader<'_>) -> Result<SamplerSpec, FileError> {
    let values = table.required::<Map<String, Value>>("values")?;
    let is_list = |value: &Value| value.as_array().is_some_and(|items| !items.is_empty());
    if let Some((name, _)) = values.get_ref().iter().find(|(_, value)| !is_list(value)) {
        let message = format!("`values.{name}` in [columns.sampler] is not a list of values");
        return Err(source.error(values.span(), message).expected(<Vec<Value>>::EXPECTED));
    }
    if values.get_ref().is_empty() {
        return Err(table.refused("values", "a list of values for each value of the other column"));
    }
    Ok(SamplerSpec::Subcategory { of: table.required("of")?, values: values.into_inner() })
}

fn parse_uniform(table: &TableReader<'_>) -> Result<SamplerSpec, FileError> {
    if table.or("integer", false)? {
        let (low, high) = (table.required::<i64>("low")?.into_inner(), table.required::<i64>("high")?.into_inner());
        if low > high {
            return Err(table.refused("high", "a number that is not below `low`"));
        }
        if table.raw("decimals").is_some() {
            return Err(table.refused("decimals", "no `decimals` of a whole number"));
        }
        return Ok(SamplerSpec::Integer { low, high });
    }
    let (low, high) = (table.required::<f64>("low")?.into_inner(), table.required::<f64>("high")?.into_inner());
    if low > high || !(high - low).is_finite() {
        return Err(
            table.refused("high", "a number that is not below `low`, nor further from it than a number can say")
        );
    }
    let decimals = decimals(table)?;
    if let Some(count) = decimals.filter(|count| grid(low, high, *count).is_some_and(|(first, last)| first > last)) {
        let expected = format!("more decimals: no number of {count} is from {low} to {high}");
        return Err(table.refused("decimals", &expected));
    }
    Ok(SamplerSpec::Uniform { low, high, decimals })
}

fn decimals(table: &TableReader<'_>) -> Result<Option<u32>, FileError> {
    table.optional_within("decimals", 0..=9, "a whole number from 0 to 9")
}

fn parse_datetime(table: &TableReader<'_>) -> Result<SamplerSpec, FileError> {
    const UNITS: [(&str, u64); 4] = [("second", 1), ("minute", 60), ("hour", 3_600), ("day", 86_400)];
    const EXPECTED: &str =
        "a date or a date and time in UTC, such as 2024-05-01 or 2024-05-01T12:00:00Z, from year 1 to 9999";
    let moment = |key: &'static str| {
        let value = table.required::<Value>(key)?;
        let parsed = value.get_ref().as_str().and_then(Moment::parse);
        parsed.ok_or_else(|| table.refused(key, EXPECTED))
    };
    let (from, to) = (moment("from")?, moment("to")?);
    let step_s = table.choice("unit", &UNITS, 1)?;
    if to <= from {
        return Err(table.refused("to", "a time after `from`"));
    }
    Ok(SamplerSpec::Datetime { from, to, step_s })
}

/// The first and the last number from `low` to `high` of so many decimals, in units of the last decimal; the first is
/// above the last if there is none. `None` if they are too large to be counted exactly.
pub(crate) fn grid(low: f64, high: f64, decimals: u32) -> Option<(i64, i64)> {
    const EXACT: f64 = (1_u64 << 53) as f64;
    let scale = scale(decimals);
    let nearest = |bound: f64| Some((bound * scale).round()).filter(|steps| steps.abs() < EXACT);
    let (first, last) = (nearest(low)?, nearest(high)?);
    // Compared as the numbers that come out, so that a bound such as 0.07 counts as in its own range.
    let first = if first / scale < low { first + 1.0 } else { first };
    let last = if last / scale > high { last - 1.0 } else { last };
    Some((first as i64, last as i64))
}

pub(crate) fn scale(decimals: u32) -> f64 {
    f64::from(10_u32.pow(decimals))
}
