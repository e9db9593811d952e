//! API keys.

use std::{env, fmt};

use reqwest::header::HeaderValue;

/// An API key for the `Authorization` header.
///
/// The key is never printed: `Debug` hides it, the header value is marked as sensitive, and the client of a
/// provider removes it from texts that a server returned.
#[derive(Clone)]
pub struct ApiKey {
    key: String,
    header: HeaderValue,
}

impl ApiKey {
    /// Creates a key from text, without the white space around it. Returns `None` if the text is empty or is
    /// not valid in a header (control characters, line breaks).
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

    /// Returns the value of the `Authorization` header, marked as sensitive.
    pub(crate) fn header(&self) -> HeaderValue {
        self.header.clone()
    }

    /// Returns the key as the value of a header of its own, marked as sensitive.
    pub(crate) fn plain_header(&self) -> Option<HeaderValue> {
        let mut header = HeaderValue::from_str(&self.key).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    /// Returns the key itself, to search for it in the texts of providers.
    pub(crate) fn secret(&self) -> &str {
        &self.key
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey([key])")
    }
}

/// Returns whether a variable, header or parameter has the name of a credential, such as `ACME_API_KEY`,
/// `x-api-key`, `clientSecret` or `HF_TOKEN`. The words of a name are separated by anything but letters and
/// digits, and compared in any case.
#[must_use]
pub fn is_name_of_key(name: &str) -> bool {
    const WORDS: [&str; 10] =
        ["authorization", "authentication", "bearer", "cookie2", "cred", "creds", "pass", "pat", "pwd", "sig"];
    const ENDS: [&str; 15] = [
        "key",
        "keys",
        "token",
        "secret",
        "secrets",
        "password",
        "passwd",
        "passphrase",
        "credential",
        "credentials",
        "auth",
        "cookie",
        "jwt",
        "assertion",
        "signature",
    ];
    // They name a request or a part of a list, and give no access.
    const OTHERS: [&str; 7] =
        ["idempotencykey", "pagetoken", "nextpagetoken", "continuationtoken", "nexttoken", "skiptoken", "synctoken"];
    let name = name.to_ascii_lowercase();
    let words = || name.split(|c: char| !c.is_ascii_alphanumeric());
    let is_word = |word: &str| WORDS.contains(&word) || ENDS.iter().any(|end| word.ends_with(end));
    words().any(is_word) && !OTHERS.contains(&words().collect::<String>().as_str())
}

/// Returns whether an environment variable has the name of a credential, or of an address that may hold one,
/// such as `SENTRY_DSN`, `SLACK_WEBHOOK_URL` or `SQL_CONNSTR`. `PWD` is the working directory.
#[must_use]
pub fn is_variable_of_key(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric());
    let is_address = |word: &str| word == "dsn" || word.trim_end_matches('s').ends_with("webhook");
    let is_connection = || {
        let joined: String = words.clone().collect();
        joined.contains("connectionstring") || words.clone().any(|word| word.ends_with("connstr"))
    };
    (is_name_of_key(name) && name != "PWD") || words.clone().any(is_address) || is_connection()
}

/// Returns whether a text contains an address with a user and a password: `scheme://user:password@host`. The
/// user may be empty.
#[must_use]
pub fn has_password(text: &str) -> bool {
    let credentials = |rest: &str| {
        // Some clients accept a password with `?` or `#` as it is.
        let end = rest.find(|c: char| c.is_whitespace() || c == '/').unwrap_or(rest.len());
        rest[..end]
            .rsplit_once('@')
            .is_some_and(|(user, _)| user.split_once(':').is_some_and(|(_, pass)| !pass.is_empty()))
    };
    text.split("://").skip(1).any(credentials)
}

/// Returns whether text in the place of a variable's name can be shown. Where no variable of this name is
/// set, any other text may be a key in the wrong place, such as `gsk_abc123` or `AKIA2X...`: by custom, names
/// of variables have no small letters, and long ones have underscores.
#[must_use]
pub fn can_be_shown(name: &str) -> bool {
    let is_like_key = name.contains(|c: char| c.is_ascii_lowercase())
        || name.len() >= 16 && name.contains(|c: char| c.is_ascii_digit()) && !name.contains('_');
    is_variable_name(name) && (!is_like_key || env::var_os(name).is_some())
}

/// Returns whether `name` is a valid name of an environment variable. Any other text may be a key in the
/// wrong place.
#[must_use]
pub fn is_variable_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(is_letter) && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_the_key() {
        let key = ApiKey::new(" sk-secret \n").unwrap();
        assert_eq!(format!("{key:?} {:?}", key.header()), "ApiKey([key]) Sensitive");
    }

    #[test]
    fn names_of_credentials_are_found_in_any_spelling_and_other_names_are_not() {
        for name in [
            "key",
            "ACME_API_KEY",
            "apiKey",
            "x-goog-api-key",
            "api_token",
            "access_key",
            "client[secret]",
            "clientSecret",
            "Password",
            "x-passwd",
            "x-credential",
            "X-Amz-Signature",
            "sig",
            "authorization",
            "Proxy-Authorization",
            "OAuth",
            "cf-access-jwt-assertion",
            "cookie2",
            "GITHUB_PAT",
            "registry-creds",
            "CRED",
        ] {
            assert!(is_name_of_key(name), "{name}");
        }
        for name in [
            "max_tokens",
            "model",
            "limit",
            "idempotency-key",
            "pageToken",
            "next_page_token",
            "nextToken",
            "$skiptoken",
            "author",
            "design",
            "path",
            "pattern",
            "webhook",
            "",
        ] {
            assert!(!is_name_of_key(name), "{name}");
        }
    }

    #[test]
    fn a_command_gets_its_working_directory_and_no_password() {
        assert!(is_variable_of_key("MYSQL_PWD") && is_variable_of_key("SSH_AUTH_SOCK"));
        assert!(!is_variable_of_key("PWD") && !is_variable_of_key("PATH"));
    }

    #[test]
    fn variables_with_addresses_that_hold_credentials_are_found() {
        for name in [
            "SENTRY_DSN",
            "SLACK_WEBHOOK_URL",
            "TEAMS_WEBHOOKS",
            "AZURE_STORAGE_CONNECTION_STRING",
            "ConnectionStrings__Default",
            "SQL_CONNSTR",
        ] {
            assert!(is_variable_of_key(name), "{name}");
        }
        for name in ["WEBROOT", "CONNECTION_LIMIT", "DB_CONN_STRATEGY", "HOME", "DNS_SERVER"] {
            assert!(!is_variable_of_key(name), "{name}");
        }
    }

    #[test]
    fn a_password_in_an_address_is_found() {
        for text in [
            "postgresql://app:tide-7@db.example/notes",
            "redis://:tide-7@localhost:6379/0",
            "jdbc:mysql://app:tide-7@db",
            "url=amqp://app:ti@de@mq/ retries=3",
            "https://a.example http://app:tide-7@b.example",
            "postgresql://app:ti#de?7@db/notes",
        ] {
            assert!(has_password(text), "{text}");
        }
        for text in [
            "https://db.example:5432/notes",
            "ssh://git@host/path",
            "https://host/a:b@c",
            "redis://app:@host",
            "a:b@c",
            "",
        ] {
            assert!(!has_password(text), "{text}");
        }
    }

    #[test]
    fn a_text_that_looks_like_a_key_is_not_shown_as_the_name_of_a_variable() {
        for name in ["AKIAIOSFODNN7EXAMPLE", "gsk_abc123", "sk-abc", "0123456789ABCDEF"] {
            assert!(!can_be_shown(name), "{name}");
        }
        for name in ["ACME_KEY", "MYACCOUNTOPENAIKEY", "AZUREKEY2", "OPENAI_API_KEY_OF_2024", "PATH"] {
            assert!(can_be_shown(name), "{name}");
        }
    }

    #[test]
    fn a_key_that_is_not_valid_in_a_header_is_rejected() {
        assert!(ApiKey::new("  ").is_none());
        assert!(ApiKey::new("a\nb").is_none());
    }
}
