//! An API key that cannot be printed.

use std::fmt;

use reqwest::header::HeaderValue;

/// A key for the `Authorization` header. It comes from the environment and is shown nowhere: `Debug` hides it, the
/// header is marked sensitive, and [`ApiKey::redact`] removes it from text that a server sent back.
#[derive(Clone)]
pub struct ApiKey {
    key: String,
    header: HeaderValue,
}

impl ApiKey {
    /// A key; `None` when it is empty or no header can carry it (control characters, line breaks).
    #[must_use]
    pub fn new(key: &str) -> Option<Self> {
        let key = key.trim();
        if key.is_empty() {
            return None;
        }
        let mut header = HeaderValue::from_str(&format!("Bearer {key}")).ok()?;
        header.set_sensitive(true);
        Some(Self { key: key.to_string(), header })
    }

    /// The value of the `Authorization` header, marked sensitive.
    pub(crate) fn header(&self) -> HeaderValue {
        self.header.clone()
    }

    /// `text` without the key.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        text.replace(&self.key, "[key]")
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey([key])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_shows_in_no_debug_output_and_is_cut_from_text() {
        let key = ApiKey::new(" sk-secret \n").unwrap();
        assert_eq!(format!("{key:?} {:?}", key.header()), "ApiKey([key]) Sensitive");
        assert_eq!(key.redact("bad key sk-secret!"), "bad key [key]!");
    }

    #[test]
    fn a_key_that_no_header_can_carry_is_refused() {
        assert!(ApiKey::new("  ").is_none());
        assert!(ApiKey::new("a\nb").is_none());
    }
}
