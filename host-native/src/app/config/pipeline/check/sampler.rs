//! Checks the table `sampler` of a column of kind `sampler`.

use std::ops::Range;

use serde_json::Value;
use toml::Spanned;

use crate::app::config::document::Document;
use crate::app::config::pipeline::names::{DateUnit, Law};
use crate::app::config::pipeline::raw::RawSampler;
use crate::app::config::pipeline::spec::{LawSpec, SamplerSpec};
use crate::app::config::source::FileError;
use crate::app::config::value::{Checked, Finite, Json, Table, WithSpan};
use crate::app::data::decimals::grid;
use crate::app::data::utc;

impl Law {
    /// Returns the keys allowed beside `law`.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Category => &["values", "weights"],
            Self::Subcategory => &["of", "values"],
            Self::Uniform => &["low", "high", "integer", "decimals"],
            Self::Normal => &["mean", "sd", "decimals"],
            Self::Bernoulli => &["p"],
            Self::Poisson => &["mean"],
            Self::Binomial => &["trials", "p"],
            Self::Datetime => &["from", "to", "unit"],
            Self::Timedelta => &["of", "low", "high", "unit"],
            Self::Person => &["locale", "age"],
            Self::Uuid => &[],
        }
    }
}

/// Validates the sampler of the column at span `column`.
pub(super) fn check(
    file: &Document<'_>,
    column: &Range<usize>,
    raw: Option<WithSpan<Table<RawSampler>>>,
) -> Result<SamplerSpec, FileError> {
    let Some(raw) = raw else {
        let expected = "a table such as `sampler = { law = \"category\", values = [\"a\", \"b\"] }`";
        return Err(file.missing(column.clone(), "sampler", expected));
    };
    let (span, Table(mut raw)) = (raw.span(), raw.into_inner());
    if let Some(when) = &raw.when {
        let message = "`when` in [columns.sampler] belongs into one of its `cases`";
        return Err(file.error(when.span(), message).expected("`cases = [{ when = \"...\", law = ... }]`"));
    }
    let mut cases = Vec::new();
    for case in raw.cases.take().into_iter().flatten() {
        let (span, Table(mut case)) = (case.span(), case.into_inner());
        let Some(when) = case.when.take() else {
            let expected = "a condition such as `when = \"age < 18\"`";
            return Err(file.missing(span, "when", expected));
        };
        if case.cases.is_some() {
            return Err(file.error(span, "a case cannot have `cases` of its own").expected("one list of cases"));
        }
        cases.push((when.spanned(), check_law(file, span, case)?));
    }
    Ok(SamplerSpec { law: check_law(file, span, raw)?, cases })
}

/// Validates the distribution in the table at the span `table`.
fn check_law(file: &Document<'_>, table: Range<usize>, raw: RawSampler) -> Result<LawSpec, FileError> {
    let law = raw.law;
    let is_foreign = |key: &&str| !["law", "when", "cases"].contains(key) && !law.keys().contains(key);
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
        Law::Bernoulli => Ok(LawSpec::Bernoulli { p: sampler.probability(raw.p)? }),
        Law::Poisson => sampler.poisson(raw),
        Law::Binomial => sampler.binomial(raw),
        Law::Datetime => sampler.datetime(raw),
        Law::Timedelta => sampler.timedelta(raw),
        Law::Person => sampler.person(&raw),
        Law::Uuid => Ok(LawSpec::Uuid),
    }
}

/// The context for validating a sampler table.
struct Sampler<'a, 't> {
    file: &'a Document<'t>,
    /// The span of the table.
    table: Range<usize>,
}

impl Sampler<'_, '_> {
    fn required<T>(&self, key: &str, what: &str, value: Option<WithSpan<T>>) -> Result<WithSpan<T>, FileError> {
        value.ok_or_else(|| self.file.missing(self.table.clone(), key, format!("`{key} = ` {what}")))
    }

    fn category(&self, raw: RawSampler) -> Result<LawSpec, FileError> {
        const EXPECTED: &str = "an array of at least one value";
        let given = self.required("values", EXPECTED, raw.values)?;
        let span = given.span();
        let values = match given.into_inner() {
            Json(Value::Array(values)) if !values.is_empty() => values,
            _ => return Err(self.file.wrong(span, EXPECTED)),
        };
        let Some(given) = raw.weights else {
            return Ok(LawSpec::Category { weights: vec![1.0; values.len()], values });
        };
        let weights: Vec<f64> = given.get().iter().map(|Checked(weight)| *weight).collect();
        let total: f64 = weights.iter().sum();
        let are_valid = weights.len() == values.len() && weights.iter().all(|weight| *weight >= 0.0);
        if !are_valid || !total.is_finite() || total <= 0.0 {
            let expected = format!("{} numbers, one for each value, none below 0 and not all 0", values.len());
            return Err(self.file.wrong(given.span(), expected));
        }
        Ok(LawSpec::Category { values, weights })
    }

    fn subcategory(&self, raw: RawSampler) -> Result<LawSpec, FileError> {
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
        Ok(LawSpec::Subcategory { of: self.required("of", "the other column", raw.of)?.map(|Checked(of)| of), values })
    }

    /// Returns `low` and `high` as whole numbers.
    fn whole_range(&self, raw: &RawSampler) -> Result<(i64, i64), FileError> {
        let bound = |key: &str, value: &Option<WithSpan<Json>>| {
            const EXPECTED: &str = "a whole number of 64 bits";
            let value = self.required(key, EXPECTED, value.clone())?;
            value.get().0.as_i64().ok_or_else(|| self.file.wrong(value.span(), EXPECTED))
        };
        let (low, high) = (bound("low", &raw.low)?, bound("high", &raw.high)?);
        match raw.high.as_ref().filter(|_| low > high) {
            Some(given) => Err(self.file.wrong(given.span(), "a number that is not below `low`")),
            None => Ok((low, high)),
        }
    }

    fn integer(&self, raw: &RawSampler) -> Result<LawSpec, FileError> {
        let (low, high) = self.whole_range(raw)?;
        match &raw.decimals {
            Some(decimals) => Err(self.file.wrong(decimals.span(), "no `decimals` beside `integer = true`")),
            None => Ok(LawSpec::Integer { low, high }),
        }
    }

    fn uniform(&self, raw: RawSampler) -> Result<LawSpec, FileError> {
        let bound = |key: &str, value: Option<WithSpan<Json>>| {
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
        Ok(LawSpec::Uniform { low, high, decimals })
    }

    fn normal(&self, raw: RawSampler) -> Result<LawSpec, FileError> {
        let sd = self.required("sd", "a finite number, 0 or more", raw.sd)?;
        if sd.get().0 < 0.0 {
            return Err(self.file.wrong(sd.span(), "a finite number, 0 or more"));
        }
        let Checked(mean) = self.required("mean", "a finite number", raw.mean)?.into_inner();
        Ok(LawSpec::Normal { mean, sd: sd.get().0, decimals: self.decimals(raw.decimals.as_ref())? })
    }

    fn probability(&self, p: Option<WithSpan<Finite>>) -> Result<f64, FileError> {
        let p = self.required("p", "a number from 0 to 1", p)?;
        if !(0.0..=1.0).contains(&p.get().0) {
            return Err(self.file.wrong(p.span(), "a number from 0 to 1"));
        }
        Ok(p.get().0)
    }

    fn poisson(&self, raw: RawSampler) -> Result<LawSpec, FileError> {
        let expected = format!("a number from 0 to {MAX_COUNT}");
        let mean = self.required("mean", &expected, raw.mean)?;
        if !(0.0..=f64::from(MAX_COUNT)).contains(&mean.get().0) {
            return Err(self.file.wrong(mean.span(), expected));
        }
        Ok(LawSpec::Poisson { mean: mean.get().0 })
    }

    fn binomial(&self, raw: RawSampler) -> Result<LawSpec, FileError> {
        let expected = format!("a whole number from 1 to {MAX_COUNT}");
        let trials = self.required("trials", &expected, raw.trials)?;
        if !(1..=MAX_COUNT).contains(trials.get()) {
            return Err(self.file.wrong(trials.span(), expected));
        }
        Ok(LawSpec::Binomial { trials: *trials.get(), p: self.probability(raw.p)? })
    }

    fn decimals(&self, given: Option<&WithSpan<u32>>) -> Result<Option<u32>, FileError> {
        match given {
            Some(given) if *given.get() > 9 => Err(self.file.wrong(given.span(), "a whole number from 0 to 9")),
            given => Ok(given.map(|given| *given.get())),
        }
    }

    fn datetime(&self, raw: RawSampler) -> Result<LawSpec, FileError> {
        const EXPECTED: &str =
            "a date or a date and time in UTC, such as 2024-05-01 or 2024-05-01T12:00:00Z, from year 1 to 9999";
        let moment = |key: &str, value: Option<WithSpan<Json>>| {
            let value = self.required(key, EXPECTED, value)?;
            let parsed = value.get().0.as_str().and_then(utc::parse);
            parsed.map(|moment| (moment, value.span())).ok_or_else(|| self.file.wrong(value.span(), EXPECTED))
        };
        let ((from, _), (to, span)) = (moment("from", raw.from)?, moment("to", raw.to)?);
        if to <= from {
            return Err(self.file.wrong(span, "a time after `from`"));
        }
        Ok(LawSpec::Datetime { from, to, step_s: raw.unit.unwrap_or(DateUnit::Second).seconds() })
    }
    fn timedelta(&self, raw: RawSampler) -> Result<LawSpec, FileError> {
        let (low, high) = self.whole_range(&raw)?;
        let unit_s = raw.unit.unwrap_or(DateUnit::Second).seconds();
        for bound in [raw.low, raw.high].into_iter().flatten() {
            let seconds = bound.get().0.as_i64().and_then(|units| units.checked_mul(unit_s.cast_signed()));
            if seconds.is_none_or(|seconds| seconds.unsigned_abs() > MAX_SPAN_S) {
                return Err(self.file.wrong(bound.span(), "a distance of at most 9999 years"));
            }
        }
        let of = self.required("of", "the column with the other time", raw.of)?.spanned();
        Ok(LawSpec::Timedelta { of, low, high, unit_s })
    }

    fn person(&self, raw: &RawSampler) -> Result<LawSpec, FileError> {
        let (youngest, oldest) = match &raw.age {
            None => (18, 90),
            Some(age) => match *age.get().as_slice() {
                [youngest, oldest] if youngest <= oldest && oldest <= MAX_AGE => (youngest, oldest),
                _ => return Err(self.file.wrong(age.span(), "two whole numbers from 0 to 130, such as [18, 90]")),
            },
        };
        Ok(LawSpec::Person { locale: raw.locale.unwrap_or_default(), youngest, oldest })
    }
}

/// The maximum of `mean` of a Poisson distribution, and of `trials` of a binomial one.
const MAX_COUNT: u32 = 1_000_000_000;

/// The maximum age of a person, in years.
const MAX_AGE: u32 = 130;

/// The maximum distance between two times, in seconds: 9999 years of 366 days.
const MAX_SPAN_S: u64 = 9_999 * 366 * 86_400;
