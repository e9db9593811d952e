//! Headers of responses: the state of the rate limits, and Retry-After.
//!
//! | header | responses | value |
//! | --- | --- | --- |
//! | `x-ratelimit-limit-requests`, `-tokens` | of a model with that rate limit | the limit per minute |
//! | `x-ratelimit-remaining-requests`, `-tokens` | the same | how many are permitted at once now |
//! | `x-ratelimit-reset-requests`, `-tokens` | the same | time until it is full: `6m0s`, `1.5s`, `20ms` |
//! | `retry-after` | refusals with a wait time | whole seconds, rounded up |
//! | `retry-after-ms` | the same | milliseconds, rounded up |
//!
//! The names and formats of the first three depend on [`RateHeaders`].

use std::fmt::Write as _;
use std::time::{Duration as StdDuration, SystemTime};

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use clap::ValueEnum;
use tidegate_core::request::response::RETRY_AFTER_MS;
use tidegate_core::sim::provider::RateLeft;
use tidegate_core::time::Duration;

/// The names and formats of rate-limit headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RateHeaders {
    /// `x-ratelimit-remaining-requests`, resets as durations
    #[default]
    Openai,
    /// `anthropic-ratelimit-requests-remaining`, resets as RFC 3339 timestamps
    Anthropic,
    /// `x-ratelimit-remaining-requests-minute`, resets in seconds
    Minute,
    /// `ratelimit-policy` and `ratelimit`, for requests only
    Ietf,
    /// No rate-limit headers
    None,
}

/// Inserts headers for each of the rate limits that is present.
pub(super) fn insert_rate_headers(
    headers: &mut HeaderMap,
    dialect: RateHeaders,
    requests: Option<RateLeft>,
    tokens: Option<RateLeft>,
) {
    for (what, left) in [("requests", requests), ("tokens", tokens)] {
        let Some(left) = left else { continue };
        for (name, value) in rate_headers(dialect, what, left) {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                headers.insert(name, value);
            }
        }
    }
}

/// Returns the headers of a rate limit of `what`, which is `requests` or `tokens`.
fn rate_headers(dialect: RateHeaders, what: &str, left: RateLeft) -> Vec<(String, String)> {
    let RateLeft { per_minute, remaining, full_in } = left;
    let seconds = full_in.as_nanos().div_ceil(1_000_000_000);
    let three_headers = |name: &dyn Fn(&str) -> String, reset: String| {
        vec![
            (name("limit"), per_minute.to_string()),
            (name("remaining"), remaining.to_string()),
            (name("reset"), reset),
        ]
    };
    match dialect {
        RateHeaders::Openai => three_headers(&|kind| format!("x-ratelimit-{kind}-{what}"), format_reset(full_in)),
        RateHeaders::Anthropic => {
            let at = SystemTime::now() + StdDuration::from_secs(seconds);
            let at = jiff::Timestamp::try_from(at).map(|at| format!("{at:.0}")).unwrap_or_default();
            three_headers(&|kind| format!("anthropic-ratelimit-{what}-{kind}"), at)
        }
        RateHeaders::Minute => three_headers(&|kind| format!("x-ratelimit-{kind}-{what}-minute"), seconds.to_string()),
        RateHeaders::Ietf if what == "requests" => vec![
            ("ratelimit-policy".to_string(), format!("\"{what}\";q={per_minute};w=60")),
            ("ratelimit".to_string(), format!("\"{what}\";r={remaining};t={seconds}")),
        ],
        RateHeaders::Ietf | RateHeaders::None => Vec::new(),
    }
}

/// Inserts `retry-after` in whole seconds, as in RFC 9110, and `retry-after-ms` in milliseconds, both rounded
/// up.
pub(super) fn insert_retry_after(headers: &mut HeaderMap, wait: Option<Duration>) {
    if let Some(wait) = wait {
        let nanos = wait.as_nanos();
        headers.insert(header::RETRY_AFTER, HeaderValue::from(nanos.div_ceil(1_000_000_000)));
        headers.insert(HeaderName::from_static(RETRY_AFTER_MS), HeaderValue::from(nanos.div_ceil(1_000_000)));
    }
}

/// Formats a duration as OpenAI does, rounded up to milliseconds: `0s`, `20ms`, `1.5s`, `6m0s`, `2h0m3.25s`.
fn format_reset(span: Duration) -> String {
    let millis = span.as_nanos().div_ceil(1_000_000);
    if (1..1_000).contains(&millis) {
        return format!("{millis}ms");
    }
    let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
    let (seconds, thousandths) = (millis / 1_000 % 60, millis % 1_000);
    let mut text = String::new();
    if hours > 0 {
        let _ = write!(text, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        let _ = write!(text, "{minutes}m");
    }
    let fraction = format!(".{thousandths:03}");
    let _ = write!(text, "{seconds}{}s", fraction.trim_end_matches('0').trim_end_matches('.'));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_is_formatted_as_by_openai() {
        for (millis, text) in [
            (0, "0s"),
            (20, "20ms"),
            (1_000, "1s"),
            (1_500, "1.5s"),
            (59_999, "59.999s"),
            (360_000, "6m0s"),
            (7_203_250, "2h0m3.25s"),
        ] {
            assert_eq!(format_reset(Duration::from_millis(millis)), text);
        }
        assert_eq!(format_reset(Duration::from_nanos(1)), "1ms");
    }

    #[test]
    fn a_missing_rate_limit_has_no_headers() {
        let mut headers = HeaderMap::new();
        let left = RateLeft { per_minute: 600, remaining: 19, full_in: Duration::from_millis(100) };
        insert_rate_headers(&mut headers, RateHeaders::Openai, Some(left), None);
        assert_eq!(headers.len(), 3);
        assert_eq!(headers["x-ratelimit-limit-requests"], "600");
        assert_eq!(headers["x-ratelimit-remaining-requests"], "19");
        assert_eq!(headers["x-ratelimit-reset-requests"], "100ms");
    }

    #[test]
    fn every_dialect_is_parsed_back_to_the_same_rate_limits() {
        use axum::http::StatusCode;
        use tidegate_core::budget::Dimension;

        use crate::http::read_head;

        let requests = RateLeft { per_minute: 600, remaining: 580, full_in: Duration::from_secs(2) };
        let tokens = RateLeft { per_minute: 9_000, remaining: 0, full_in: Duration::from_secs(60) };
        let both = [(Dimension::Requests, 600, 580), (Dimension::TotalTokens, 9_000, 0)];
        for (dialect, read) in [
            (RateHeaders::Openai, &both[..]),
            (RateHeaders::Anthropic, &both),
            (RateHeaders::Minute, &both),
            (RateHeaders::Ietf, &both[..1]),
            (RateHeaders::None, &[]),
        ] {
            let mut headers = HeaderMap::new();
            insert_rate_headers(&mut headers, dialect, Some(requests), Some(tokens));
            let corrections = read_head(StatusCode::OK, &headers, SystemTime::now()).corrections;
            let found: Vec<_> = corrections
                .iter()
                .map(|one| (one.dimension, one.limit.unwrap_or_default(), one.remaining.unwrap_or_default()))
                .collect();
            assert_eq!(found, read, "{dialect:?}: {headers:?}");
            let resets =
                corrections.iter().map(|one| one.reset_after.expect("a reset").as_nanos().div_ceil(1_000_000_000));
            let expected = [2, 60].into_iter().zip(resets).all(|(meant, read)| (meant - 1..=meant).contains(&read));
            assert!(expected, "{dialect:?}: {corrections:?}");
        }
    }

    #[test]
    fn retry_after_is_in_whole_seconds_and_in_milliseconds_both_rounded_up() {
        let mut headers = HeaderMap::new();
        insert_retry_after(&mut headers, None);
        assert!(headers.is_empty());
        insert_retry_after(&mut headers, Some(Duration::from_nanos(1_000_000_001)));
        assert_eq!(
            (&headers["retry-after"], &headers["retry-after-ms"]),
            (&"2".parse().unwrap(), &"1001".parse().unwrap())
        );
    }
}
