//! Columns of kind `sampler`: random values as a pure function of the file's seed, the column's name and the
//! row number. They do not depend on the machine, the order of tasks, or the selected rows.

mod counts;
mod person;

use jiff::SignedDuration;
use jiff::civil::{DateTime, Time};
use serde_json::{Number, Value};
use tidegate_core::pipeline::FailureKind;
use tidegate_core::sim::rng::Rng;

use super::FillContext;
use super::error::FillError;
use crate::app::config::pipeline::LawSpec;
use crate::app::data::decimals::{grid, scale};
use crate::app::data::utc;
use crate::app::template::Condition;

/// The distributions of a column, and its random stream.
#[derive(Debug)]
pub struct SamplerFill {
    law: LawSpec,
    /// Conditions, each with the distribution for the rows for which it is the first that holds.
    cases: Vec<(Condition, LawSpec)>,
    stream: Rng,
}

impl SamplerFill {
    /// Creates the sampler of the column `column`, in a file with this `seed`.
    #[must_use]
    pub fn new(law: LawSpec, cases: Vec<(Condition, LawSpec)>, seed: u64, column: &str) -> Self {
        Self { law, cases, stream: Rng::new(seed).fork(fnv1a(column.as_bytes())) }
    }

    /// Returns the value for `context`.
    pub fn fill(&self, context: FillContext<'_>) -> Result<Value, FillError> {
        let failed = |why: String| FillError::failed(FailureKind::Template, why);
        for (when, law) in &self.cases {
            let holds = context.templates.holds(when, context.values.clone());
            if holds.map_err(|error| failed(error.to_string()))? {
                return self.draw(law, context).map_err(failed);
            }
        }
        self.draw(&self.law, context).map_err(failed)
    }

    /// Draws from `law`, or returns why the values of the row do not allow it.
    fn draw(&self, law: &LawSpec, context: FillContext<'_>) -> Result<Value, String> {
        let mut rng = self.stream.fork(context.row);
        Ok(match law {
            LawSpec::Category { values, weights } => weighted(values, weights, &mut rng),
            LawSpec::Subcategory { of, values } => {
                let key = subcategory_key(&context.value(of.get_ref()));
                let Some(Value::Array(values)) = values.get(&key) else {
                    let of = of.get_ref();
                    return Err(format!("`sampler.values` has no list for {key:?}, the value of `{of}`"));
                };
                values[usize::try_from(rng.below(values.len() as u64)).unwrap_or(0)].clone()
            }
            LawSpec::Integer { low, high } => Value::from(integer(*low, *high, &mut rng)),
            LawSpec::Uniform { low, high, decimals } => uniform(*low, *high, *decimals, &mut rng),
            LawSpec::Normal { mean, sd, decimals } => number(mean + sd * rng.normal(), *decimals),
            LawSpec::Bernoulli { p } => Value::Bool(rng.unit_f64() < *p),
            LawSpec::Poisson { mean } => Value::from(counts::poisson(*mean, &mut rng)),
            LawSpec::Binomial { trials, p } => Value::from(counts::binomial(*trials, *p, &mut rng)),
            LawSpec::Datetime { from, to, step_s } => {
                let span_s = u64::try_from(to.duration_since(*from).as_secs()).unwrap_or(0);
                let offset_s = rng.below(span_s.div_ceil(*step_s)).saturating_mul(*step_s);
                time(from.saturating_add(SignedDuration::from_secs(offset_s.cast_signed())), *from, *step_s)
            }
            LawSpec::Timedelta { of, low, high, unit_s } => {
                let from = context.value(of.get_ref());
                let Some(from) = from.as_str().and_then(utc::parse) else {
                    return Err(format!("{from}, the value of `{}`, is not a date or a time in UTC", of.get_ref()));
                };
                let offset_s = integer(*low, *high, &mut rng).saturating_mul(unit_s.cast_signed());
                let moved = from.checked_add(SignedDuration::from_secs(offset_s)).ok().filter(|it| it.year() >= 1);
                match moved {
                    Some(moved) => time(moved, from, *unit_s),
                    None => return Err(format!("{from} moved by {offset_s} s is not in the years 1 to 9999")),
                }
            }
            LawSpec::Person { locale, youngest, oldest } => person::person(*locale, (*youngest, *oldest), &mut rng),
            LawSpec::Uuid => Value::String(uuid(&mut rng)),
        })
    }
}

/// Returns the key of the list for a value in the `values` of a subcategory.
#[must_use]
pub fn subcategory_key(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

/// Returns a time as text: a date alone if it is whole days from a date.
fn time(time: DateTime, from: DateTime, step_s: u64) -> Value {
    let is_date = step_s == 86_400 && from.time() == Time::midnight();
    Value::String(if is_date { time.date().to_string() } else { utc::format(time, 0) })
}

/// Draws one of `values` with probabilities proportional to `weights`.
fn weighted(values: &[Value], weights: &[f64], rng: &mut Rng) -> Value {
    let total: f64 = weights.iter().sum();
    let mut left = rng.unit_f64() * total;
    for (value, weight) in values.iter().zip(weights) {
        if left < *weight {
            return value.clone();
        }
        left -= weight;
    }
    // Rounding may leave a rest after the last weight; the last value with a positive weight gets it.
    let last = values.iter().zip(weights).rev().find(|(_, weight)| **weight > 0.0);
    last.map(|(value, _)| value.clone()).unwrap_or_default()
}

/// Draws a whole number from `low` to `high`.
fn integer(low: i64, high: i64, rng: &mut Rng) -> i64 {
    let span = high.wrapping_sub(low).cast_unsigned();
    // The full range has 2^64 values, and this count does not fit in 64 bits.
    let offset = match span.checked_add(1) {
        Some(count) => rng.below(count),
        None => rng.next_u64(),
    };
    low.wrapping_add(offset.cast_signed())
}

/// Draws a number from `low` to `high`. With `decimals`, each number in the range with so many decimals is
/// equally likely.
fn uniform(low: f64, high: f64, decimals: Option<u32>, rng: &mut Rng) -> Value {
    match decimals.and_then(|decimals| Some((grid(low, high, decimals)?, decimals))) {
        Some(((first, last), decimals)) => number(integer(first, last, rng) as f64 / scale(decimals), None),
        // Numbers of this magnitude have no decimals to round.
        None => number((low + (high - low) * rng.unit_f64()).clamp(low, high), None),
    }
}

/// Returns `number` rounded to `decimals`; null if it is not finite.
fn number(number: f64, decimals: Option<u32>) -> Value {
    let rounded = decimals.map_or(number, |decimals| {
        let scale = scale(decimals);
        let scaled = (number * scale).round() / scale;
        if scaled.is_finite() { scaled } else { number }
    });
    Number::from_f64(rounded).map_or(Value::Null, Value::Number)
}

/// Returns a random UUID of version 4 (RFC 9562).
fn uuid(rng: &mut Rng) -> String {
    let high = (rng.next_u64() & !0xf000) | 0x4000;
    let low = (rng.next_u64() >> 2) | (1 << 63);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// The 64-bit FNV-1a hash (Fowler, Noll, Vo: "The FNV Non-Cryptographic Hash Algorithm").
fn fnv1a(bytes: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::template::{TemplateValue, Templates};
    use serde_json::json;
    use toml::Spanned;

    fn draw_with(law: &LawSpec, row: u64, values: &TemplateValue) -> Value {
        let templates = Templates::new();
        let context = FillContext { column: "c", templates: &templates, values, row, is_whole_group: false };
        SamplerFill::new(law.clone(), Vec::new(), 7, "c")
            .fill(context)
            .expect("the distribution has a value for every row")
    }

    fn draws(law: &LawSpec, rows: u64) -> Vec<Value> {
        (0..rows).map(|row| draw_with(law, row, &TemplateValue::default())).collect()
    }

    #[test]
    fn draws_have_pinned_values_on_every_machine() {
        let moment = |text| utc::parse(text).unwrap();
        let (from, to) = (moment("2024-01-01"), moment("2025-01-01"));
        let laws = [
            LawSpec::Category { values: vec![json!("a"), json!("b")], weights: vec![1.0, 2.0] },
            LawSpec::Integer { low: 1, high: 6 },
            LawSpec::Uniform { low: 0.0, high: 1.0, decimals: None },
            LawSpec::Normal { mean: 10.0, sd: 2.0, decimals: Some(3) },
            LawSpec::Bernoulli { p: 0.5 },
            LawSpec::Poisson { mean: 3.5 },
            LawSpec::Poisson { mean: 1e6 },
            LawSpec::Binomial { trials: 20, p: 0.1 },
            LawSpec::Binomial { trials: 1_000, p: 0.9 },
            LawSpec::Datetime { from, to, step_s: 86_400 },
            LawSpec::Datetime { from, to, step_s: 60 },
            LawSpec::Uuid,
        ];
        let drawn: Vec<Value> = laws.iter().map(|law| draws(law, 1).remove(0)).collect();
        let pinned = json!([
            "b",
            6,
            0.977_761_341_724_425,
            10.411,
            false,
            8,
            999_221,
            5,
            919,
            "2024-12-23",
            "2024-12-23T20:39:00Z",
            "fa4e9139-ffde-4a64-b0c2-7f5ffa9073d8",
        ]);
        assert_eq!(Value::Array(drawn), pinned);
    }

    #[test]
    fn values_are_drawn_by_weight_and_never_with_a_weight_of_zero() {
        let values = vec![json!("rare"), json!("often"), json!("never")];
        let drawn = draws(&LawSpec::Category { values, weights: vec![1.0, 3.0, 0.0] }, 4_000);
        let count = |name: &str| drawn.iter().filter(|value| *value == name).count();
        assert_eq!(count("never"), 0);
        assert!((900..1_100).contains(&count("rare")), "{}", count("rare"));
    }

    #[test]
    fn numbers_stay_in_their_range_and_have_their_mean() {
        let drawn = draws(&LawSpec::Integer { low: -2, high: 2 }, 500);
        let seen: std::collections::BTreeSet<i64> = drawn.iter().filter_map(Value::as_i64).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [-2, -1, 0, 1, 2]);
        let drawn = draws(&LawSpec::Normal { mean: 5.0, sd: 1.0, decimals: None }, 4_000);
        let mean = drawn.iter().filter_map(Value::as_f64).sum::<f64>() / 4_000.0;
        assert!((mean - 5.0).abs() < 0.1, "{mean}");
        assert!(draws(&LawSpec::Integer { low: i64::MIN, high: i64::MAX }, 9).iter().all(Value::is_i64));
        let drawn = draws(&LawSpec::Uniform { low: 1.0, high: 2.0, decimals: Some(1) }, 99);
        assert!(drawn.iter().filter_map(Value::as_f64).all(|drawn| (1.0..=2.0).contains(&drawn)));
    }

    #[test]
    fn uniform_draws_with_decimals_are_in_the_range_and_equally_likely() {
        let seen = |low: f64, high: f64, decimals: u32| {
            let drawn = draws(&LawSpec::Uniform { low, high, decimals: Some(decimals) }, 400);
            drawn.iter().map(ToString::to_string).collect::<std::collections::BTreeSet<_>>()
        };
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        assert_eq!(seen(0.5, 0.96, 1), texts(&["0.5", "0.6", "0.7", "0.8", "0.9"]));
        assert_eq!(seen(0.07, 0.09, 2), texts(&["0.07", "0.08", "0.09"]), "the ends are in the range");
        assert_eq!(seen(-1.5, 0.5, 0), texts(&["-1.0", "0.0"]));
        assert_eq!(seen(1e300, 1e300, 9), texts(&["1e+300"]));
        assert_eq!(grid(0.91, 0.99, 1), Some((10, 9)));
        let drawn = draws(&LawSpec::Uniform { low: 0.0, high: 1.0, decimals: Some(0) }, 2_000);
        let ones = drawn.iter().filter(|value| **value == 1.0).count();
        assert!((900..1_100).contains(&ones), "{ones}");
    }

    #[test]
    fn a_subcategory_is_drawn_from_the_list_of_its_category() {
        let values = json!({"fruit": ["apple", "pear"], "3": ["three"]}).as_object().unwrap().clone();
        let law = LawSpec::Subcategory { of: Spanned::new(0..0, "kind".to_string()), values };
        let of = |kind: Value| TemplateValue::from(crate::app::template::Serde(json!({ "kind": kind })));
        assert!(["apple", "pear"].contains(&draw_with(&law, 3, &of(json!("fruit"))).as_str().unwrap()));
        assert_eq!(draw_with(&law, 3, &of(json!(3))), "three");
        let templates = Templates::new();
        let values = of(json!("tool"));
        let context =
            FillContext { column: "c", templates: &templates, values: &values, row: 0, is_whole_group: false };
        let Err(FillError::Outcome(_, why)) = SamplerFill::new(law, Vec::new(), 0, "c").fill(context) else {
            panic!("no such list")
        };
        assert_eq!(why, "`sampler.values` has no list for \"tool\", the value of `kind`");
    }

    #[test]
    fn a_uuid_has_its_version_and_variant() {
        let drawn = draws(&LawSpec::Uuid, 50);
        for id in drawn.iter().filter_map(Value::as_str) {
            assert_eq!((id.len(), &id[14..15], "89ab".contains(&id[19..20])), (36, "4", true), "{id}");
        }
    }

    #[test]
    fn another_column_row_or_seed_gives_another_draw() {
        let of = |seed, column, row| {
            let templates = Templates::new();
            let values = TemplateValue::default();
            let context = FillContext { column, templates: &templates, values: &values, row, is_whole_group: false };
            SamplerFill::new(LawSpec::Uuid, Vec::new(), seed, column).fill(context).unwrap()
        };
        let all = [of(0, "a", 0), of(1, "a", 0), of(0, "b", 0), of(0, "a", 1)];
        assert!((1..4).all(|other| all[other] != all[0]));
        assert_eq!(of(0, "a", 0), all[0]);
    }

    #[test]
    fn a_timedelta_moves_the_time_of_another_column_and_stays_a_date_if_that_is_one() {
        let law = |unit_s| LawSpec::Timedelta { of: Spanned::new(0..0, "at".to_string()), low: -1, high: 1, unit_s };
        let at = |at: &str| TemplateValue::from(crate::app::template::Serde(json!({ "at": at })));
        let seen = |unit_s, from: &str| {
            let drawn = (0..50).map(|row| draw_with(&law(unit_s), row, &at(from)).as_str().unwrap().to_string());
            drawn.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(seen(86_400, "2024-03-01"), ["2024-02-29", "2024-03-01", "2024-03-02"]);
        assert_eq!(seen(3_600, "2024-03-01"), ["2024-02-29T23:00:00Z", "2024-03-01T00:00:00Z", "2024-03-01T01:00:00Z"]);
        let why = |from: &str| {
            let (templates, values) = (Templates::new(), at(from));
            let context =
                FillContext { column: "c", templates: &templates, values: &values, row: 0, is_whole_group: false };
            let fill = SamplerFill::new(
                LawSpec::Timedelta { of: Spanned::new(0..0, "at".to_string()), low: 1, high: 1, unit_s: 86_400 },
                Vec::new(),
                0,
                "c",
            );
            fill.fill(context).expect_err("no such time").to_string()
        };
        assert_eq!(why("soon"), "\"soon\", the value of `at`, is not a date or a time in UTC");
        assert_eq!(why("9999-12-31"), "9999-12-31T00:00:00 moved by 86400 s is not in the years 1 to 9999");
    }

    #[test]
    fn the_first_case_whose_condition_holds_replaces_the_distribution() {
        let templates = Templates::new();
        let of = |value: &str| LawSpec::Category { values: vec![json!(value)], weights: vec![1.0] };
        let case = |when: &str, value| (templates.condition(when).unwrap(), of(value));
        let cases = vec![case("age < 18", "pupil"), case("age < 70", "worker")];
        let fill = SamplerFill::new(of("retired"), cases, 0, "c");
        let drawn = |age: u32| {
            let values = TemplateValue::from(crate::app::template::Serde(json!({ "age": age })));
            let context =
                FillContext { column: "c", templates: &templates, values: &values, row: 0, is_whole_group: false };
            fill.fill(context).unwrap()
        };
        assert_eq!([drawn(17), drawn(18), drawn(70)], ["pupil", "worker", "retired"]);
    }
}
