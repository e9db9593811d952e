//! The table `sampler` of a column of kind `sampler`: the distribution of its values.
//!
//! Values are drawn in [`run::columns::sampler`](crate::app::run::columns::sampler).

use std::ops::Range;

use jiff::civil::DateTime;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use toml::Spanned;

use super::raw::RawSampler;
use crate::app::config::document::Document;
use crate::app::config::source::FileError;
use crate::app::config::value::{At, Finite, Is, Json, Table};
use crate::app::data::utc;

/// The distribution that a sampler draws from.
#[derive(Clone, Debug)]
pub enum SamplerSpec {
    /// One of several values.
    Category {
        /// The values. There is at least one.
        values: Vec<Value>,
        /// The relative weight of each value.
        weights: Vec<f64>,
    },
    /// One of the values listed for the value of another column.
    Subcategory {
        /// The other column.
        of: Spanned<String>,
        /// The list of values for each value of the other column.
        values: Map<String, Value>,
    },
    /// A uniformly distributed whole number.
    Integer {
        /// The minimum.
        low: i64,
        /// The maximum.
        high: i64,
    },
    /// A uniformly distributed number.
    Uniform {
        /// The minimum.
        low: f64,
        /// The maximum.
        high: f64,
        /// The number of decimals kept.
        decimals: Option<u32>,
    },
    /// A normally distributed number.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        sd: f64,
        /// The number of decimals kept.
        decimals: Option<u32>,
    },
    /// True or false.
    Bernoulli {
        /// The probability of true.
        p: f64,
    },
    /// A uniformly distributed point in time, as ISO 8601 text.
    Datetime {
        /// The earliest time.
        from: DateTime,
        /// The end of the range, exclusive.
        to: DateTime,
        /// The distance between possible times, in seconds.
        step_s: u64,
    },
    /// A random UUID (version 4).
    Uuid,
}

/// The name of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Law {
    /// One of `values`
    Category,
    /// One of the `values` listed for the value of another column
    Subcategory,
    /// A uniformly distributed number from `low` to `high`
    Uniform,
    /// A normally distributed number with `mean` and `sd`
    Normal,
    /// True with probability `p`
    Bernoulli,
    /// A time from `from` (inclusive) to `to` (exclusive)
    Datetime,
    /// A random UUID
    Uuid,
}

/// The distance between possible times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum DateUnit {
    /// A second
    Second,
    /// A minute
    Minute,
    /// An hour
    Hour,
    /// A day
    Day,
}

impl DateUnit {
    fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
        }
    }
}

impl Law {
    /// Returns the name in files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Category => "category",
            Self::Subcategory => "subcategory",
            Self::Uniform => "uniform",
            Self::Normal => "normal",
            Self::Bernoulli => "bernoulli",
            Self::Datetime => "datetime",
            Self::Uuid => "uuid",
        }
    }

    /// Returns the keys allowed beside `law`.
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

/// Validates the sampler of the column at span `column`.
pub(super) fn check(
    file: &Document<'_>,
    column: &Range<usize>,
    raw: Option<At<Table<RawSampler>>>,
) -> Result<SamplerSpec, FileError> {
    let Some(raw) = raw else {
        let expected = "a table such as `sampler = { law = \"category\", values = [\"a\", \"b\"] }`";
        return Err(file.missing(column.clone(), "sampler", expected));
    };
    let table = raw.span();
    let Table(raw) = raw.into_inner();
    let law = raw.law;
    let is_foreign = |key: &&str| *key != "law" && !law.keys().contains(key);
    if let Some(key) = file.keys(&table).into_iter().find(|key| is_foreign(key.get_ref())) {
        let message = format!("`{}` in [columns.sampler] is not a key of the law `{}`", key.get_ref(), law.name());
        return Err(file.error(key.span(), message).expected(match law.keys() {
            [] => "no other key".to_string(),
            keys => format!("one of: {}", keys.join(", ")),
        }));
    }
    let sampler = Sampler { file, table };
    match law {
        Law::Category => sampler.category(raw),
        Law::Subcategory => sampler.subcategory(raw),
        Law::Uniform if raw.integer == Some(true) => sampler.integer(&raw),
        Law::Uniform => sampler.uniform(raw),
        Law::Normal => sampler.normal(raw),
        Law::Bernoulli => sampler.bernoulli(raw),
        Law::Datetime => sampler.datetime(raw),
        Law::Uuid => Ok(SamplerSpec::Uuid),
    }
}

/// The context for validating a sampler table.
struct Sampler<'a, 't> {
    file: &'a Document<'t>,
    /// The span of the table.
    table: Range<usize>,
}

impl Sampler<'_, '_> {
    fn required<T>(&self, key: &str, what: &str, value: Option<At<T>>) -> Result<At<T>, FileError> {
        value.ok_or_else(|| self.file.missing(self.table.clone(), key, format!("`{key} = ` {what}")))
    }

    fn category(&self, raw: RawSampler) -> Result<SamplerSpec, FileError> {
        const EXPECTED: &str = "an array of at least one value";
        let given = self.required("values", EXPECTED, raw.values)?;
        let span = given.span();
        let values = match given.into_inner() {
            Json(Value::Array(values)) if !values.is_empty() => values,
            _ => return Err(self.file.wrong(span, EXPECTED)),
        };
        let Some(given) = raw.weights else {
            return Ok(SamplerSpec::Category { weights: vec![1.0; values.len()], values });
        };
        let weights: Vec<f64> = given.get().iter().map(|Is(weight)| *weight).collect();
        let total: f64 = weights.iter().sum();
        let are_valid = weights.len() == values.len() && weights.iter().all(|weight| *weight >= 0.0);
        if !are_valid || !total.is_finite() || total <= 0.0 {
            let expected = format!("{} numbers, one for each value, none below 0 and not all 0", values.len());
            return Err(self.file.wrong(given.span(), expected));
        }
        Ok(SamplerSpec::Category { values, weights })
    }

    fn subcategory(&self, raw: RawSampler) -> Result<SamplerSpec, FileError> {
        const EXPECTED: &str = "a list of values for each value of the other column";
        let given = self.required("values", EXPECTED, raw.values)?;
        let span = given.span();
        let values = match given.into_inner() {
            Json(Value::Object(values)) if !values.is_empty() => values,
            _ => return Err(self.file.wrong(span, EXPECTED)),
        };
        let is_list = |value: &Value| value.as_array().is_some_and(|items| !items.is_empty());
        if let Some((name, _)) = values.iter().find(|(_, value)| !is_list(value)) {
            let message = format!("`values.{name}` in [columns.sampler] is not a list of values");
            return Err(self.file.error(span, message).expected("an array of at least one value"));
        }
        Ok(SamplerSpec::Subcategory { of: self.required("of", "the other column", raw.of)?.map(|Is(of)| of), values })
    }

    fn integer(&self, raw: &RawSampler) -> Result<SamplerSpec, FileError> {
        let bound = |key: &str, value: &Option<At<Json>>| {
            const EXPECTED: &str = "a whole number of 64 bits";
            let value = self.required(key, EXPECTED, value.clone())?;
            value.get().0.as_i64().ok_or_else(|| self.file.wrong(value.span(), EXPECTED))
        };
        let (low, high) = (bound("low", &raw.low)?, bound("high", &raw.high)?);
        if let Some(given) = raw.high.as_ref().filter(|_| low > high) {
            return Err(self.file.wrong(given.span(), "a number that is not below `low`"));
        }
        match &raw.decimals {
            Some(decimals) => Err(self.file.wrong(decimals.span(), "no `decimals` beside `integer = true`")),
            None => Ok(SamplerSpec::Integer { low, high }),
        }
    }

    fn uniform(&self, raw: RawSampler) -> Result<SamplerSpec, FileError> {
        let bound = |key: &str, value: Option<At<Json>>| {
            let value = self.required(key, "a finite number", value)?;
            let number = value.get().0.as_f64().ok_or_else(|| self.file.wrong(value.span(), "a finite number"))?;
            Ok(Spanned::new(value.span(), number))
        };
        let (low, high) = (bound("low", raw.low)?.into_inner(), bound("high", raw.high)?);
        let span = high.span();
        let high = high.into_inner();
        if low > high || !(high - low).is_finite() {
            let expected = "a number that is not below `low` and at a finite distance from it";
            return Err(self.file.wrong(span, expected));
        }
        let decimals = self.decimals(raw.decimals.as_ref())?;
        let has_none = |count: u32| grid(low, high, count).is_some_and(|(first, last)| first > last);
        if let Some(given) = raw.decimals.filter(|given| has_none(*given.get())) {
            let expected = format!("more decimals: no number of {} is from {low} to {high}", given.get());
            return Err(self.file.wrong(given.span(), expected));
        }
        Ok(SamplerSpec::Uniform { low, high, decimals })
    }

    fn normal(&self, raw: RawSampler) -> Result<SamplerSpec, FileError> {
        let sd = self.required("sd", "a finite number, 0 or more", raw.sd)?;
        if sd.get().0 < 0.0 {
            return Err(self.file.wrong(sd.span(), "a finite number, 0 or more"));
        }
        let Is(mean) = self.required("mean", "a finite number", raw.mean)?.into_inner();
        Ok(SamplerSpec::Normal { mean, sd: sd.get().0, decimals: self.decimals(raw.decimals.as_ref())? })
    }

    fn bernoulli(&self, raw: RawSampler) -> Result<SamplerSpec, FileError> {
        let p: At<Finite> = self.required("p", "a number from 0 to 1", raw.p)?;
        if !(0.0..=1.0).contains(&p.get().0) {
            return Err(self.file.wrong(p.span(), "a number from 0 to 1"));
        }
        Ok(SamplerSpec::Bernoulli { p: p.get().0 })
    }

    fn decimals(&self, given: Option<&At<u32>>) -> Result<Option<u32>, FileError> {
        match given {
            Some(given) if *given.get() > 9 => Err(self.file.wrong(given.span(), "a whole number from 0 to 9")),
            given => Ok(given.map(|given| *given.get())),
        }
    }

    fn datetime(&self, raw: RawSampler) -> Result<SamplerSpec, FileError> {
        const EXPECTED: &str =
            "a date or a date and time in UTC, such as 2024-05-01 or 2024-05-01T12:00:00Z, from year 1 to 9999";
        let moment = |key: &str, value: Option<At<Json>>| {
            let value = self.required(key, EXPECTED, value)?;
            let parsed = value.get().0.as_str().and_then(utc::parse);
            parsed.map(|moment| (moment, value.span())).ok_or_else(|| self.file.wrong(value.span(), EXPECTED))
        };
        let ((from, _), (to, span)) = (moment("from", raw.from)?, moment("to", raw.to)?);
        if to <= from {
            return Err(self.file.wrong(span, "a time after `from`"));
        }
        Ok(SamplerSpec::Datetime { from, to, step_s: raw.unit.unwrap_or(DateUnit::Second).seconds() })
    }
}

/// Returns the first and the last number from `low` to `high` with this many decimals, in units of the last
/// decimal.
///
/// The first is above the last if there is no such number. Returns `None` if the numbers are too large to be
/// exact.
pub(crate) fn grid(low: f64, high: f64, decimals: u32) -> Option<(i64, i64)> {
    const EXACT: f64 = (1_u64 << 53) as f64;
    let scale = scale(decimals);
    let nearest = |bound: f64| Some((bound * scale).round()).filter(|steps| steps.abs() < EXACT);
    let (first, last) = (nearest(low)?, nearest(high)?);
    // The comparison uses the resulting numbers, so that a bound such as 0.07 is in its own range.
    let first = if first / scale < low { first + 1.0 } else { first };
    let last = if last / scale > high { last - 1.0 } else { last };
    Some((first as i64, last as i64))
}

pub(crate) fn scale(decimals: u32) -> f64 {
    f64::from(10_u32.pow(decimals))
}
