//! Columns of kind `sampler`: values drawn by a law, as a pure function of the file's seed, the column's name and the row
//! number. They are the same on every machine, in any order, and whichever rows of the dataset a run is for.

use crate::app::config::pipeline::sampler::{grid, scale};
use serde_json::{Number, Value};
use tidegate_core::pipeline::FailureKind;
use tidegate_core::sim::rng::Rng;

use super::{Scene, Unfilled};
use crate::app::config::pipeline::SamplerSpec;

/// A law, and the stream that its draws come from.
#[derive(Debug)]
pub struct SamplerFill {
    law: SamplerSpec,
    stream: Rng,
}

impl SamplerFill {
    /// Draws by `law` for the column called `column`, in a file of this `seed`.
    #[must_use]
    pub fn new(law: SamplerSpec, seed: u64, column: &str) -> Self {
        Self { law, stream: Rng::new(seed).fork(fnv1a(column.as_bytes())) }
    }

    /// The value for `scene`.
    pub fn fill(&self, scene: Scene<'_>) -> Result<Value, Unfilled> {
        let mut rng = self.stream.fork(scene.row);
        Ok(match &self.law {
            SamplerSpec::Category { values, weights } => weighted(values, weights, &mut rng),
            SamplerSpec::Subcategory { of, values } => {
                let key = match scene.value(of.get_ref()) {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                let Some(Value::Array(values)) = values.get(&key) else {
                    let why = format!("`sampler.values` has no list for {key:?}, the value of `{}`", of.get_ref());
                    return Err(Unfilled::failed(FailureKind::Template, why));
                };
                values[usize::try_from(rng.below(values.len() as u64)).unwrap_or(0)].clone()
            }
            SamplerSpec::Integer { low, high } => integer(*low, *high, &mut rng),
            SamplerSpec::Uniform { low, high, decimals } => uniform(*low, *high, *decimals, &mut rng),
            SamplerSpec::Normal { mean, sd, decimals } => number(mean + sd * rng.normal(), *decimals),
            SamplerSpec::Bernoulli { p } => Value::Bool(rng.unit_f64() < *p),
            SamplerSpec::Datetime { from, to, step_s } => {
                let steps = to.seconds_since(*from).div_ceil(*step_s);
                let moment = from.plus_seconds(rng.below(steps).saturating_mul(*step_s));
                let is_whole_days = *step_s == 86_400 && from.is_midnight();
                Value::String(if is_whole_days { moment.date() } else { moment.to_string() })
            }
            SamplerSpec::Uuid => Value::String(uuid(&mut rng)),
        })
    }
}

/// One of `values`: the first whose weight, added to those before it, is more than a draw from their sum.
fn weighted(values: &[Value], weights: &[f64], rng: &mut Rng) -> Value {
    let total: f64 = weights.iter().sum();
    let mut left = rng.unit_f64() * total;
    for (value, weight) in values.iter().zip(weights) {
        if left < *weight {
            return value.clone();
        }
        left -= weight;
    }
    // The sum of the weights may round to a little less than their sum: the last that can be drawn at all.
    let last = values.iter().zip(weights).rev().find(|(_, weight)| **weight > 0.0);
    last.map(|(value, _)| value.clone()).unwrap_or_default()
}

fn integer(low: i64, high: i64, rng: &mut Rng) -> Value {
    let span = high.wrapping_sub(low).cast_unsigned();
    // A span of 2^64 values has no number of 64 bits.
    let offset = match span.checked_add(1) {
        Some(count) => rng.below(count),
        None => rng.next_u64(),
    };
    Value::from(low.wrapping_add(offset.cast_signed()))
}

/// A number from `low` to `high`; with so many decimals, each of those in the range is equally likely.
fn uniform(low: f64, high: f64, decimals: Option<u32>, rng: &mut Rng) -> Value {
    match decimals.and_then(|decimals| Some((grid(low, high, decimals)?, decimals))) {
        Some(((first, last), decimals)) => {
            let step = integer(first, last, rng).as_i64().unwrap_or(first);
            number(step as f64 / scale(decimals), None)
        }
        // Numbers of this size have no more decimals than they may have.
        None => number((low + (high - low) * rng.unit_f64()).clamp(low, high), None),
    }
}

/// `number` with so many decimals; null if it is too large to be a number.
fn number(number: f64, decimals: Option<u32>) -> Value {
    let rounded = decimals.map_or(number, |decimals| {
        let scale = scale(decimals);
        let scaled = (number * scale).round() / scale;
        if scaled.is_finite() { scaled } else { number }
    });
    Number::from_f64(rounded).map_or(Value::Null, Value::Number)
}

/// RFC 9562, version 4: 122 random bits.
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

/// The 64-bit FNV-1a hash. Fowler, Noll, Vo: "The FNV Non-Cryptographic Hash Algorithm".
fn fnv1a(bytes: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::data::calendar::Moment;
    use crate::app::template::{TemplateValue, Templates};
    use serde_json::json;
    use toml::Spanned;

    fn draw_with(law: &SamplerSpec, row: u64, values: &TemplateValue) -> Value {
        let templates = Templates::new();
        let scene = Scene { column: "c", templates: &templates, values, row, is_whole_group: false };
        SamplerFill::new(law.clone(), 7, "c").fill(scene).expect("the law has a value for every row")
    }

    fn draws(law: &SamplerSpec, rows: u64) -> Vec<Value> {
        (0..rows).map(|row| draw_with(law, row, &TemplateValue::default())).collect()
    }

    #[test]
    fn draws_are_pinned_so_that_every_machine_gives_the_same() {
        let moment = |text| Moment::parse(text).unwrap();
        let (from, to) = (moment("2024-01-01"), moment("2025-01-01"));
        let laws = [
            SamplerSpec::Category { values: vec![json!("a"), json!("b")], weights: vec![1.0, 2.0] },
            SamplerSpec::Integer { low: 1, high: 6 },
            SamplerSpec::Uniform { low: 0.0, high: 1.0, decimals: None },
            SamplerSpec::Normal { mean: 10.0, sd: 2.0, decimals: Some(3) },
            SamplerSpec::Bernoulli { p: 0.5 },
            SamplerSpec::Datetime { from, to, step_s: 86_400 },
            SamplerSpec::Datetime { from, to, step_s: 60 },
            SamplerSpec::Uuid,
        ];
        let drawn: Vec<Value> = laws.iter().map(|law| draws(law, 1).remove(0)).collect();
        let pinned = json!([
            "b",
            6,
            0.977_761_341_724_425,
            10.411,
            false,
            "2024-12-23",
            "2024-12-23T20:39:00Z",
            "fa4e9139-ffde-4a64-b0c2-7f5ffa9073d8",
        ]);
        assert_eq!(Value::Array(drawn), pinned);
    }

    #[test]
    fn weights_are_kept_and_a_weight_of_zero_is_never_drawn() {
        let values = vec![json!("rare"), json!("often"), json!("never")];
        let drawn = draws(&SamplerSpec::Category { values, weights: vec![1.0, 3.0, 0.0] }, 4_000);
        let count = |name: &str| drawn.iter().filter(|value| *value == name).count();
        assert_eq!(count("never"), 0);
        assert!((900..1_100).contains(&count("rare")), "{}", count("rare"));
    }

    #[test]
    fn numbers_stay_in_their_range_and_around_their_mean() {
        let drawn = draws(&SamplerSpec::Integer { low: -2, high: 2 }, 500);
        let seen: std::collections::BTreeSet<i64> = drawn.iter().filter_map(Value::as_i64).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [-2, -1, 0, 1, 2]);
        let drawn = draws(&SamplerSpec::Normal { mean: 5.0, sd: 1.0, decimals: None }, 4_000);
        let mean = drawn.iter().filter_map(Value::as_f64).sum::<f64>() / 4_000.0;
        assert!((mean - 5.0).abs() < 0.1, "{mean}");
        assert!(draws(&SamplerSpec::Integer { low: i64::MIN, high: i64::MAX }, 9).iter().all(Value::is_i64));
        let drawn = draws(&SamplerSpec::Uniform { low: 1.0, high: 2.0, decimals: Some(1) }, 99);
        assert!(drawn.iter().filter_map(Value::as_f64).all(|drawn| (1.0..=2.0).contains(&drawn)));
    }

    #[test]
    fn uniform_decimals_are_those_inside_the_range_and_each_is_as_likely() {
        let seen = |low: f64, high: f64, decimals: u32| {
            let drawn = draws(&SamplerSpec::Uniform { low, high, decimals: Some(decimals) }, 400);
            drawn.iter().map(ToString::to_string).collect::<std::collections::BTreeSet<_>>()
        };
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        assert_eq!(seen(0.5, 0.96, 1), texts(&["0.5", "0.6", "0.7", "0.8", "0.9"]));
        assert_eq!(seen(0.07, 0.09, 2), texts(&["0.07", "0.08", "0.09"]), "the ends are in the range");
        assert_eq!(seen(-1.5, 0.5, 0), texts(&["-1.0", "0.0"]));
        assert_eq!(seen(1e300, 1e300, 9), texts(&["1e+300"]));
        assert_eq!(grid(0.91, 0.99, 1), Some((10, 9)));
        let drawn = draws(&SamplerSpec::Uniform { low: 0.0, high: 1.0, decimals: Some(0) }, 2_000);
        let ones = drawn.iter().filter(|value| **value == 1.0).count();
        assert!((900..1_100).contains(&ones), "{ones}");
    }

    #[test]
    fn a_subcategory_belongs_to_the_value_of_its_column() {
        let values = json!({"fruit": ["apple", "pear"], "3": ["three"]}).as_object().unwrap().clone();
        let law = SamplerSpec::Subcategory { of: Spanned::new(0..0, "kind".to_string()), values };
        let of = |kind: Value| TemplateValue::from(crate::app::template::Serde(json!({ "kind": kind })));
        assert!(["apple", "pear"].contains(&draw_with(&law, 3, &of(json!("fruit"))).as_str().unwrap()));
        assert_eq!(draw_with(&law, 3, &of(json!(3))), "three");
        let templates = Templates::new();
        let values = of(json!("tool"));
        let scene = Scene { column: "c", templates: &templates, values: &values, row: 0, is_whole_group: false };
        let Err(Unfilled::Ended(_, why)) = SamplerFill::new(law, 0, "c").fill(scene) else { panic!("no such list") };
        assert_eq!(why, "`sampler.values` has no list for \"tool\", the value of `kind`");
    }

    #[test]
    fn a_uuid_has_its_version_and_variant() {
        let drawn = draws(&SamplerSpec::Uuid, 50);
        for id in drawn.iter().filter_map(Value::as_str) {
            assert_eq!((id.len(), &id[14..15], "89ab".contains(&id[19..20])), (36, "4", true), "{id}");
        }
    }

    #[test]
    fn another_column_row_or_seed_gives_another_draw() {
        let of = |seed, column, row| {
            let templates = Templates::new();
            let values = TemplateValue::default();
            let scene = Scene { column, templates: &templates, values: &values, row, is_whole_group: false };
            SamplerFill::new(SamplerSpec::Uuid, seed, column).fill(scene).unwrap()
        };
        let all = [of(0, "a", 0), of(1, "a", 0), of(0, "b", 0), of(0, "a", 1)];
        assert!((1..4).all(|other| all[other] != all[0]));
        assert_eq!(of(0, "a", 0), all[0]);
    }
}
