//! Serializes durations as a number of milliseconds, such as `250` or `0.3`, in fields whose name ends in
//! `_ms`.
//!
//! Used as `#[serde(rename = "latency_ms", with = "Millis")]`. Whole milliseconds are written as integers
//! and others as the shortest decimal. Reading rounds to the nearest nanosecond. The conversion is exact to
//! the nanosecond below 104 days.

use core::fmt;

use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::ser::Serializer;

use crate::time::Duration;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// A duration in milliseconds, an integer or a decimal of at least 0.
pub(crate) struct Millis;

impl Millis {
    /// Writes `span` in milliseconds.
    // Serde requires this signature.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    pub(crate) fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        let nanos = span.as_nanos();
        if nanos.is_multiple_of(NANOS_PER_MILLI) {
            serializer.serialize_u64(nanos / NANOS_PER_MILLI)
        } else {
            serializer.serialize_f64(nanos as f64 / NANOS_PER_MILLI as f64)
        }
    }

    /// Reads milliseconds.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

/// Milliseconds in an `Option<Duration>` field that may be absent.
pub(crate) struct OptionalMillis;

impl OptionalMillis {
    /// Writes the span in milliseconds, or none.
    #[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref)]
    pub(crate) fn serialize<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => Millis::serialize(span, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads milliseconds or nothing.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        deserializer.deserialize_option(Self)
    }
}

impl<'de> Visitor<'de> for OptionalMillis {
    type Value = Option<Duration>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Millis.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        Millis::deserialize(deserializer).map(Some)
    }
}

impl Visitor<'_> for Millis {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of milliseconds from 0 to 18446744073709")
    }

    fn visit_u64<E: Error>(self, millis: u64) -> Result<Duration, E> {
        let nanos = millis.checked_mul(NANOS_PER_MILLI);
        nanos.map(Duration::from_nanos).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(millis), &self))
    }

    fn visit_i64<E: Error>(self, millis: i64) -> Result<Duration, E> {
        match u64::try_from(millis) {
            Ok(millis) => self.visit_u64(millis),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(millis), &self)),
        }
    }

    fn visit_f64<E: Error>(self, millis: f64) -> Result<Duration, E> {
        let nanos = millis * NANOS_PER_MILLI as f64;
        // The check is on the input, because a tiny negative value would round to zero. 2^64 is exact as a
        // double.
        if millis >= 0.0 && nanos < 18_446_744_073_709_551_616.0 {
            let whole = nanos as u64;
            let is_nearer_to_next = nanos - whole as f64 >= 0.5;
            Ok(Duration::from_nanos(whole + u64::from(is_nearer_to_next)))
        } else {
            Err(E::invalid_value(Unexpected::Float(millis), &self))
        }
    }
}

#[cfg(feature = "schemars")]
mod schema {
    use alloc::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::{Millis, OptionalMillis};

    impl JsonSchema for Millis {
        fn schema_name() -> Cow<'static, str> {
            "Millis".into()
        }

        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            json_schema!({
                "description": "Milliseconds, whole or decimal, from 0.",
                "type": "number",
                "minimum": 0,
                "maximum": 18_446_744_073_709_u64,
            })
        }
    }

    impl JsonSchema for OptionalMillis {
        fn schema_name() -> Cow<'static, str> {
            "OptionalMillis".into()
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            generator.subschema_for::<Option<Millis>>()
        }

        fn inline_schema() -> bool {
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Millis;
    use crate::time::Duration;
    use alloc::string::ToString;
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, F64Deserializer, I64Deserializer, U64Deserializer};

    fn read_f64(millis: f64) -> Result<Duration, Error> {
        let input: F64Deserializer<Error> = millis.into_deserializer();
        Millis::deserialize(input)
    }

    #[test]
    fn whole_and_decimal_milliseconds_are_read_to_the_nanosecond() {
        let whole: U64Deserializer<Error> = 250_u64.into_deserializer();
        assert_eq!(Millis::deserialize(whole).unwrap(), Duration::from_millis(250));
        let signed: I64Deserializer<Error> = 3_i64.into_deserializer();
        assert_eq!(Millis::deserialize(signed).unwrap(), Duration::from_millis(3));
        assert_eq!(read_f64(0.3).unwrap(), Duration::from_micros(300));
        assert_eq!(read_f64(1_234.567_891).unwrap(), Duration::from_nanos(1_234_567_891));
    }

    #[test]
    fn nanosecond_counts_of_up_to_a_day_survive_conversion_to_decimal_milliseconds() {
        for nanos in [1_u64, 999_999, 1_000_001, 86_399_999_999_999, 43_210_987_654_321] {
            assert_eq!(read_f64(nanos as f64 / 1e6).unwrap(), Duration::from_nanos(nanos));
        }
    }

    #[test]
    fn a_negative_infinite_or_too_long_duration_is_rejected_with_its_value() {
        for rejected in [-1.0, -1e-9, f64::NAN, f64::INFINITY, 1e14] {
            assert!(read_f64(rejected).is_err(), "{rejected}");
        }
        let negative: I64Deserializer<Error> = (-5_i64).into_deserializer();
        let message = Millis::deserialize(negative).unwrap_err().to_string();
        assert!(message.contains("`-5`") && message.contains("milliseconds"), "{message}");
        let huge: U64Deserializer<Error> = u64::MAX.into_deserializer();
        assert!(Millis::deserialize(huge).is_err());
    }
}
