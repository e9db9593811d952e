//! What a provider says about its rates: the headers `x-ratelimit-*`.
//!
//! | header | meaning |
//! | --- | --- |
//! | `x-ratelimit-limit-requests`, `-tokens` | how much is allowed in a window |
//! | `x-ratelimit-remaining-requests`, `-tokens` | how much of it is left |
//! | `x-ratelimit-reset-requests`, `-tokens` | how long until all of it is back: `20ms`, `1s`, `6m0s`, `1h2m3.5s`, or seconds |
//!
//! The same without a suffix (`x-ratelimit-remaining`) speaks of requests. A value that cannot be read is as good as absent.

use http::HeaderMap;
use tidegate_core::request::budget::{Correction, Dimension};
use tidegate_core::time::Duration;

/// Seconds from here on are a date and no wait: some providers send the epoch second of the reset.
const LONGEST_RESET_SECS: f64 = 1e8;

/// The headers of each dimension, in the order limit, remaining, reset; the first one that is there counts.
const REQUESTS: [[&str; 2]; 3] = [
    ["x-ratelimit-limit-requests", "x-ratelimit-limit"],
    ["x-ratelimit-remaining-requests", "x-ratelimit-remaining"],
    ["x-ratelimit-reset-requests", "x-ratelimit-reset"],
];
const TOKENS: [[&str; 2]; 3] =
    [["x-ratelimit-limit-tokens", ""], ["x-ratelimit-remaining-tokens", ""], ["x-ratelimit-reset-tokens", ""]];

/// What `headers` say about requests and about tokens; nothing for a dimension that no header names.
pub fn rate_limits(headers: &HeaderMap) -> impl Iterator<Item = Correction> {
    let about = |dimension, names: [[&str; 2]; 3]| {
        let [limit, remaining, reset] = names.map(|names| text(headers, names));
        let said = Correction {
            limit: limit.and_then(|text| text.parse().ok()),
            remaining: remaining.and_then(|text| text.parse().ok()),
            reset_after: reset.and_then(wait),
            ..Correction::of(dimension)
        };
        (said != Correction::of(dimension)).then_some(said)
    };
    [about(Dimension::Requests, REQUESTS), about(Dimension::TotalTokens, TOKENS)].into_iter().flatten()
}

/// How long until what is used up is back, of the dimensions that have nothing left: what a refusal without Retry-After asks for.
#[must_use]
pub fn wait_of_exhausted(said: &[Correction]) -> Option<Duration> {
    said.iter().filter(|one| one.remaining == Some(0)).filter_map(|one| one.reset_after).max()
}

fn text<'a>(headers: &'a HeaderMap, names: [&str; 2]) -> Option<&'a str> {
    let present = names.into_iter().filter(|name| !name.is_empty()).find_map(|name| headers.get(name))?;
    present.to_str().ok().map(str::trim)
}

/// Reads a wait such as `1h2m3.5s`, `20ms` or `12.5` (seconds).
fn wait(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<f64>() {
        return if seconds < LONGEST_RESET_SECS { Duration::try_from_secs_f64(seconds) } else { None };
    }
    let (mut rest, mut seconds) = (text, 0.0);
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, with_unit) = rest.split_at(unit_at);
        let unit_len = with_unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(with_unit.len());
        let (unit, left) = with_unit.split_at(unit_len);
        let scale = match unit {
            "ns" => 1e-9,
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        if number.starts_with(['+', '-']) {
            return None;
        }
        seconds += number.parse::<f64>().ok()? * scale;
        rest = left;
    }
    if text.is_empty() { None } else { Duration::try_from_secs_f64(seconds) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn said(headers: &[(&'static str, &'static str)]) -> Vec<Correction> {
        let map = headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        rate_limits(&map.collect()).collect()
    }

    #[test]
    fn requests_and_tokens_are_read_apart() {
        let said = said(&[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-limit-tokens", "150000"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ]);
        let requests = Correction {
            limit: Some(60),
            remaining: Some(59),
            reset_after: Some(Duration::from_secs(1)),
            ..Correction::of(Dimension::Requests)
        };
        let tokens = Correction {
            limit: Some(150_000),
            remaining: Some(149_984),
            reset_after: Some(Duration::from_secs(360)),
            ..Correction::of(Dimension::TotalTokens)
        };
        assert_eq!(said, [requests, tokens]);
    }

    #[test]
    fn no_header_says_nothing_and_an_unreadable_one_neither() {
        assert_eq!(said(&[]), []);
        assert_eq!(said(&[("x-ratelimit-remaining-requests", "many"), ("x-ratelimit-reset-requests", "soon")]), []);
        let unreadable = HeaderValue::from_bytes(b"\xff1").unwrap();
        let map = HeaderMap::from_iter([(HeaderName::from_static("x-ratelimit-remaining-tokens"), unreadable)]);
        assert_eq!(rate_limits(&map).count(), 0);
    }

    #[test]
    fn a_bare_header_is_about_requests_and_a_date_is_no_wait() {
        let said = said(&[("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "1767225600")]);
        assert_eq!(said, [Correction { remaining: Some(3), ..Correction::of(Dimension::Requests) }]);
    }

    #[test]
    fn waits_are_read_in_every_notation() {
        for (text, millis) in [
            ("20ms", 20),
            ("1s", 1_000),
            ("6m0s", 360_000),
            ("1h2m3.5s", 3_723_500),
            ("2.5", 2_500),
            ("1d", 86_400_000),
        ] {
            assert_eq!(wait(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for nonsense in ["", "s", "1x", "-3s", "1m-2s", "NaN", "1e400", "later"] {
            assert_eq!(wait(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn only_what_is_used_up_has_to_be_waited_for() {
        let one = |dimension, remaining, secs| Correction {
            remaining: Some(remaining),
            reset_after: Some(Duration::from_secs(secs)),
            ..Correction::of(dimension)
        };
        let said = [one(Dimension::Requests, 0, 2), one(Dimension::TotalTokens, 5, 9)];
        assert_eq!(wait_of_exhausted(&said), Some(Duration::from_secs(2)));
        assert_eq!(wait_of_exhausted(&said[1..]), None);
    }
}
