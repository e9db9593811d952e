//! What the headers of an answer tell: the state of the rates, and when to come back.
//!
//! | header | on | says |
//! | --- | --- | --- |
//! | `x-ratelimit-limit-requests`, `-tokens` | answers of a model with that rate | how many a minute |
//! | `x-ratelimit-remaining-requests`, `-tokens` | the same | how many could come at once now |
//! | `x-ratelimit-reset-requests`, `-tokens` | the same | how long until all are back, as `6m0s`, `1.5s`, `20ms` |
//! | `retry-after` | refusals that say when | whole seconds, rounded up |
//! | `retry-after-ms` | the same | milliseconds, rounded up |
//!
//! The first three are in the [dialect](RateHeaders) of one provider or another.

use std::fmt::Write as _;
use std::time::{Duration as StdDuration, SystemTime};

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use clap::ValueEnum;
use tidegate_core::request::response::RETRY_AFTER_MS;
use tidegate_core::sim::provider::RateLeft;
use tidegate_core::time::Duration;

/// How a mock names its rates in headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RateHeaders {
    /// `x-ratelimit-remaining-requests`, resets as spans
    #[default]
    Openai,
    /// `anthropic-ratelimit-requests-remaining`, resets as times of day
    Anthropic,
    /// `x-ratelimit-remaining-requests-minute`, resets as seconds
    Minute,
    /// `ratelimit-policy` and `ratelimit`, of requests only
    Ietf,
    /// None
    None,
}

/// Tells what is left of the rates that a model has.
pub(super) fn tell_rates(
    headers: &mut HeaderMap,
    dialect: RateHeaders,
    requests: Option<RateLeft>,
    tokens: Option<RateLeft>,
) {
    for (what, left) in [("requests", requests), ("tokens", tokens)] {
        let Some(left) = left else { continue };
        for (name, value) in lines(dialect, what, left) {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                headers.insert(name, value);
            }
        }
    }
}

/// What one rate is told by.
fn lines(dialect: RateHeaders, what: &str, left: RateLeft) -> Vec<(String, String)> {
    let RateLeft { per_minute, remaining, full_in } = left;
    let seconds = full_in.as_nanos().div_ceil(1_000_000_000);
    let three = |name: &dyn Fn(&str) -> String, reset: String| {
        vec![
            (name("limit"), per_minute.to_string()),
            (name("remaining"), remaining.to_string()),
            (name("reset"), reset),
        ]
    };
    match dialect {
        RateHeaders::Openai => three(&|kind| format!("x-ratelimit-{kind}-{what}"), reset_text(full_in)),
        RateHeaders::Anthropic => {
            let at = SystemTime::now() + StdDuration::from_secs(seconds);
            let at = jiff::Timestamp::try_from(at).map(|at| format!("{at:.0}")).unwrap_or_default();
            three(&|kind| format!("anthropic-ratelimit-{what}-{kind}"), at)
        }
        RateHeaders::Minute => three(&|kind| format!("x-ratelimit-{kind}-{what}-minute"), seconds.to_string()),
        RateHeaders::Ietf if what == "requests" => vec![
            ("ratelimit-policy".to_string(), format!("\"{what}\";q={per_minute};w=60")),
            ("ratelimit".to_string(), format!("\"{what}\";r={remaining};t={seconds}")),
        ],
        RateHeaders::Ietf | RateHeaders::None => Vec::new(),
    }
}

/// Says when to come back: in whole seconds, as the standard has it, and exactly in milliseconds.
pub(super) fn tell_retry_after(headers: &mut HeaderMap, wait: Option<Duration>) {
    if let Some(wait) = wait {
        let nanos = wait.as_nanos();
        headers.insert(header::RETRY_AFTER, HeaderValue::from(nanos.div_ceil(1_000_000_000)));
        headers.insert(HeaderName::from_static(RETRY_AFTER_MS), HeaderValue::from(nanos.div_ceil(1_000_000)));
    }
}

/// A span in the form of those headers, rounded up to milliseconds: `0s`, `20ms`, `1.5s`, `6m0s`, `2h0m3.25s`.
fn reset_text(span: Duration) -> String {
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
    fn a_reset_is_written_as_openai_does() {
        for (millis, text) in [
            (0, "0s"),
            (20, "20ms"),
            (1_000, "1s"),
            (1_500, "1.5s"),
            (59_999, "59.999s"),
            (360_000, "6m0s"),
            (7_203_250, "2h0m3.25s"),
        ] {
            assert_eq!(reset_text(Duration::from_millis(millis)), text);
        }
        assert_eq!(reset_text(Duration::from_nanos(1)), "1ms");
    }

    #[test]
    fn a_rate_that_is_not_there_is_not_told() {
        let mut headers = HeaderMap::new();
        let left = RateLeft { per_minute: 600, remaining: 19, full_in: Duration::from_millis(100) };
        tell_rates(&mut headers, RateHeaders::Openai, Some(left), None);
        assert_eq!(headers.len(), 3);
        assert_eq!(headers["x-ratelimit-limit-requests"], "600");
        assert_eq!(headers["x-ratelimit-remaining-requests"], "19");
        assert_eq!(headers["x-ratelimit-reset-requests"], "100ms");
    }

    #[test]
    fn every_dialect_is_read_back_as_it_was_meant() {
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
            tell_rates(&mut headers, dialect, Some(requests), Some(tokens));
            let said = read_head(StatusCode::OK, &headers, SystemTime::now()).corrections;
            let found: Vec<_> = said
                .iter()
                .map(|one| (one.dimension, one.limit.unwrap_or_default(), one.remaining.unwrap_or_default()))
                .collect();
            assert_eq!(found, read, "{dialect:?}: {headers:?}");
            let resets = said.iter().map(|one| one.reset_after.expect("a reset").as_nanos().div_ceil(1_000_000_000));
            let expected = [2, 60].into_iter().zip(resets).all(|(meant, read)| (meant - 1..=meant).contains(&read));
            assert!(expected, "{dialect:?}: {said:?}");
        }
    }

    #[test]
    fn a_wait_is_told_in_whole_seconds_and_in_milliseconds_both_rounded_up() {
        let mut headers = HeaderMap::new();
        tell_retry_after(&mut headers, None);
        assert!(headers.is_empty());
        tell_retry_after(&mut headers, Some(Duration::from_nanos(1_000_000_001)));
        assert_eq!(
            (&headers["retry-after"], &headers["retry-after-ms"]),
            (&"2".parse().unwrap(), &"1001".parse().unwrap())
        );
    }
}
