//! What the headers of an answer tell: the state of the rates, and when to come back.
//!
//! | header | on | says |
//! | --- | --- | --- |
//! | `x-ratelimit-limit-requests`, `-tokens` | answers of a model with that rate | how many a minute |
//! | `x-ratelimit-remaining-requests`, `-tokens` | the same | how many could come at once now |
//! | `x-ratelimit-reset-requests`, `-tokens` | the same | how long until all are back, as `6m0s`, `1.5s`, `20ms` |
//! | `retry-after` | refusals that say when | whole seconds, rounded up |
//! | `retry-after-ms` | the same | milliseconds, rounded up |

use std::fmt::Write as _;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use tidegate_core::sim::provider::RateLeft;
use tidegate_core::time::Duration;

use tidegate_core::request::response::RETRY_AFTER_MS;

const REQUESTS: [&str; 3] =
    ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"];
const TOKENS: [&str; 3] = ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"];

/// Tells what is left of the rates that a model has.
pub(super) fn tell_rates(headers: &mut HeaderMap, requests: Option<RateLeft>, tokens: Option<RateLeft>) {
    for (names, left) in [(REQUESTS, requests), (TOKENS, tokens)] {
        let Some(RateLeft { per_minute, remaining, full_in }) = left else { continue };
        let [limit, left, reset] = names.map(HeaderName::from_static);
        headers.insert(limit, HeaderValue::from(per_minute));
        headers.insert(left, HeaderValue::from(remaining));
        if let Ok(value) = HeaderValue::try_from(reset_text(full_in)) {
            headers.insert(reset, value);
        }
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
        tell_rates(&mut headers, Some(left), None);
        assert_eq!(headers.len(), 3);
        assert_eq!(headers["x-ratelimit-limit-requests"], "600");
        assert_eq!(headers["x-ratelimit-remaining-requests"], "19");
        assert_eq!(headers["x-ratelimit-reset-requests"], "100ms");
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
