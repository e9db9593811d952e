//! Serializes 64-bit numbers as 16 hexadecimal digits, because not every JSON reader has 64-bit integers.

/// For a `u64` field: `#[serde(with = "crate::hex::one")]`.
pub(crate) mod one {
    use alloc::string::String;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[cfg_attr(
        target_pointer_width = "64",
        expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that the derive calls")
    )]
    pub(crate) fn serialize<S: Serializer>(bits: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{bits:016x}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let digits = String::deserialize(deserializer)?;
        u64::from_str_radix(&digits, 16).map_err(|_| D::Error::custom("expected up to 16 hexadecimal digits"))
    }
}

/// For an `Option<u64>` field: `#[serde(with = "crate::hex::some")]`. Combine it with
/// `skip_serializing_if`, because `None` would be written as zero.
pub(crate) mod some {
    use serde::{Deserializer, Serializer};

    #[expect(clippy::ref_option, reason = "the signature that the derive calls")]
    pub(crate) fn serialize<S: Serializer>(bits: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        super::one::serialize(&bits.unwrap_or_default(), serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        super::one::deserialize(deserializer).map(Some)
    }
}
