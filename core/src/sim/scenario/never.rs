//! Serializes optional settings as a number, or as a word such as `"never"` for `None`.
//!
//! These settings have a default other than `None`. Leaving one out therefore gives the default, and TOML has
//! no null, so `None` needs a word. JSON's null is accepted as well.

use core::fmt;

use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::ser::Serializer;

use crate::millis::Millis;
use crate::time::Duration;

const NEVER: &str = "never";
const SCHEDULE: &str = "schedule";

/// A number, or `"never"` for `None`.
pub(super) struct NumberOrNever;

impl NumberOrNever {
    #[expect(clippy::ref_option, reason = "serde's derive expects this signature")]
    pub(super) fn serialize<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        match number {
            Some(number) => serializer.serialize_f64(*number),
            None => serializer.serialize_str(NEVER),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        deserializer.deserialize_any(OrWord(NumberVisitor, NEVER))
    }
}

/// A duration in milliseconds, or `"never"` for `None`.
pub(super) struct MillisOrNever;

impl MillisOrNever {
    #[expect(clippy::ref_option, reason = "serde's derive expects this signature")]
    pub(super) fn serialize<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => Millis::serialize(span, serializer),
            None => serializer.serialize_str(NEVER),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        deserializer.deserialize_any(OrWord(Millis, NEVER))
    }
}

/// A number of slots, or `"schedule"` for `None`.
pub(super) struct SlotsOrSchedule;

impl SlotsOrSchedule {
    #[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "serde's derive expects this signature")]
    pub(super) fn serialize<S: Serializer>(slots: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
        match slots {
            Some(slots) => serializer.serialize_u32(*slots),
            None => serializer.serialize_str(SCHEDULE),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
        deserializer.deserialize_any(OrWord(IntegerVisitor, SCHEDULE))
    }
}

#[cfg(feature = "schemars")]
mod schema {
    use alloc::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::{MillisOrNever, NEVER, NumberOrNever, SCHEDULE, SlotsOrSchedule};
    use crate::millis::Millis;

    /// Implements the schema of a value of type `$value`, or the word `$word`.
    macro_rules! or_word {
        ($name:ident, $value:ty, $word:expr) => {
            impl JsonSchema for $name {
                fn schema_name() -> Cow<'static, str> {
                    stringify!($name).into()
                }

                fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                    json_schema!({ "anyOf": [generator.subschema_for::<$value>(), { "const": $word }] })
                }

                fn inline_schema() -> bool {
                    true
                }
            }
        };
    }

    or_word!(NumberOrNever, f64, NEVER);
    or_word!(MillisOrNever, Millis, NEVER);
    or_word!(SlotsOrSchedule, u32, SCHEDULE);
}

/// A visitor that accepts what `V` accepts as `Some`, and one word as `None`.
struct OrWord<V>(V, &'static str);

impl<'de, V: Visitor<'de>> Visitor<'de> for OrWord<V> {
    type Value = Option<V::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)?;
        write!(f, ", or \"{}\"", self.1)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        self.0.visit_u64(number).map(Some)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        self.0.visit_i64(number).map(Some)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        self.0.visit_f64(number).map(Some)
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Self::Value, E> {
        if word == self.1 { Ok(None) } else { Err(E::invalid_value(Unexpected::Str(word), &self)) }
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Accepts an integer that fits in 32 bits.
struct IntegerVisitor;

impl Visitor<'_> for IntegerVisitor {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number from 0 to 1000000")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u32, E> {
        u32::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u32, E> {
        u32::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }
}

/// Accepts any number.
struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<f64, E> {
        Ok(number as f64)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<f64, E> {
        Ok(number as f64)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<f64, E> {
        Ok(number)
    }
}
