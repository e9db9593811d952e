use std::vec;

use super::*;

/// The Unix time of Sun, 06 Nov 1994 08:49:00 GMT.
const MINUTE: u64 = 784_111_740;

/// Headers, with a host clock at Sun, 06 Nov 1994 08:49:37 GMT, the example date of the HTTP specification.
pub(super) struct TestHeaders<'a>(pub(super) &'a [(&'a str, &'a str)]);

impl Headers for TestHeaders<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        assert!(NAMES.contains(&name), "{name} is not in the list");
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    fn unix_time(&self, date: &str) -> Option<Duration> {
        let after = match date {
            "Sun, 06 Nov 1994 08:49:07 GMT" => 7,
            "Sun, 06 Nov 1994 08:49:47 GMT" | "1994-11-06T08:49:47Z" => 47,
            "Sun, 06 Nov 1994 08:49:40 GMT" => 40,
            _ => return None,
        };
        Some(Duration::from_secs(MINUTE + after))
    }

    fn now(&self) -> Duration {
        Duration::from_secs(MINUTE + 37)
    }
}

fn read(status: u16, headers: &[(&str, &str)]) -> Completion {
    ResponseInfo::read(status, &TestHeaders(headers)).completion
}

fn wait_for(headers: &[(&str, &str)]) -> Option<Duration> {
    retry_after(&TestHeaders(headers))
}

#[test]
fn a_rate_limit_is_recognised_by_its_status() {
    let limited = |secs| Completion::rate_limited(Some(Duration::from_secs(secs)));
    assert_eq!(read(429, &[]), Completion::rate_limited(None));
    for status in [429, 503, 529] {
        assert_eq!(read(status, &[("retry-after", "7")]), limited(7));
    }
    assert_eq!(read(503, &[]), Outcome::ProviderFailure.into());
    assert_eq!(read(503, &[("retry-after", "soon")]), Outcome::ProviderFailure.into());
}

#[test]
fn a_rate_limit_without_retry_after_waits_for_the_reset_of_exhausted_rates() {
    let headers = [
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "1m30s"),
        ("x-ratelimit-reset-requests", "5m"),
    ];
    assert_eq!(read(429, &headers), Completion::rate_limited(Some(Duration::from_secs(90))));
    assert_eq!(read(429, &headers[1..]), Completion::rate_limited(None));
}

#[test]
fn every_other_status_has_its_outcome() {
    for (status, outcome) in [
        (200, Outcome::Success),
        (304, Outcome::Success),
        (400, Outcome::RequestRejected),
        (401, Outcome::KeyRejected),
        (402, Outcome::QuotaExhausted),
        (403, Outcome::RequestRejected),
        (404, Outcome::RequestRejected),
        (408, Outcome::ProviderTimeout),
        (422, Outcome::RequestRejected),
        (500, Outcome::ProviderFailure),
        (504, Outcome::ProviderTimeout),
    ] {
        assert_eq!(read(status, &[]), outcome.into(), "{status}");
    }
}

#[test]
fn a_grpc_status_takes_precedence_over_the_http_status() {
    let exhausted = [("grpc-status", "8"), ("grpc-retry-pushback-ms", "250")];
    assert_eq!(read(200, &exhausted), Completion::rate_limited(Some(Duration::from_millis(250))));
    assert_eq!(read(200, &[("grpc-status", "8"), ("grpc-retry-pushback-ms", "-1")]), Completion::rate_limited(None));
    assert_eq!(read(503, &[("grpc-status", "0")]), Outcome::Success.into());
    assert_eq!(read(200, &[("grpc-status", "4")]), Outcome::ProviderTimeout.into());
    assert_eq!(read(200, &[("grpc-status", "1")]), Outcome::LocalCancelled.into());
    assert_eq!(read(200, &[("grpc-status", "3")]), Outcome::RequestRejected.into());
    assert_eq!(read(200, &[("grpc-status", "14")]), Outcome::ProviderFailure.into());
    assert_eq!(read(200, &[("grpc-status", "16")]), Outcome::KeyRejected.into());
    assert_eq!(read(200, &[("grpc-status", "eight")]), Outcome::Success.into());
}

#[test]
fn retry_after_is_read_as_seconds_a_fraction_a_date_or_milliseconds() {
    assert_eq!(wait_for(&[("retry-after", " 3 ")]), Some(Duration::from_secs(3)));
    assert_eq!(wait_for(&[("retry-after", "0.25")]), Some(Duration::from_millis(250)));
    assert_eq!(wait_for(&[("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT")]), Some(Duration::from_secs(10)));
    assert_eq!(wait_for(&[("retry-after", "Sun, 06 Nov 1994 08:49:07 GMT")]), Some(Duration::ZERO));
    assert_eq!(wait_for(&[("retry-after", "1"), ("retry-after-ms", "120")]), Some(Duration::from_millis(120)));
    assert_eq!(wait_for(&[("retry-after", "1"), ("retry-after-ms", "soon")]), Some(Duration::from_secs(1)));
}

#[test]
fn an_invalid_retry_after_is_ignored() {
    for value in ["", ".", "later", "-5", "NaN", "inf", "1e300", "1.2.3", "1.x", "99999999999999999999", "18446744074"]
    {
        assert_eq!(wait_for(&[("retry-after", value)]), None, "{value}");
    }
    assert_eq!(wait_for(&[]), None);
}

#[test]
fn rates_of_requests_and_tokens_are_read_separately() {
    let corrections = rate_limits(&TestHeaders(&[
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-limit-tokens", "150000"),
        ("x-ratelimit-remaining-tokens", "149984"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ]));
    let of = |dimension, limit, remaining, secs| RateLimitFeedback {
        limit: Some(limit),
        remaining: Some(remaining),
        reset_after: Some(Duration::from_secs(secs)),
        ..RateLimitFeedback::of(dimension)
    };
    assert_eq!(corrections, [of(Dimension::Requests, 60, 59, 1), of(Dimension::TotalTokens, 150_000, 149_984, 360)]);
}

/// Dimension, limit, remaining amount, seconds until the reset.
type Rate = (Dimension, Option<u64>, Option<u64>, Option<u64>);

/// Returns the rates in the headers.
fn rates(headers: &[(&str, &str)]) -> Vec<Rate> {
    let one = |corrections: &RateLimitFeedback| {
        let secs = corrections.reset_after.map(|wait| wait.as_nanos() / 1_000_000_000);
        (corrections.dimension, corrections.limit, corrections.remaining, secs)
    };
    rate_limits(&TestHeaders(headers)).iter().map(one).collect()
}

#[test]
fn the_header_names_of_each_provider_are_known() {
    let mistral = [
        ("x-ratelimit-limit-req-minute", "720"),
        ("x-ratelimit-remaining-req-minute", "717"),
        ("x-ratelimit-limit-tokens-minute", "5000000"),
        ("x-ratelimit-remaining-tokens-minute", "4999911"),
    ];
    let requests = (Dimension::Requests, Some(720), Some(717), None);
    assert_eq!(rates(&mistral), [requests, (Dimension::TotalTokens, Some(5_000_000), Some(4_999_911), None)]);
    let anthropic = [
        ("anthropic-ratelimit-requests-limit", "50"),
        ("anthropic-ratelimit-requests-remaining", "49"),
        ("anthropic-ratelimit-requests-reset", "1994-11-06T08:49:47Z"),
        ("anthropic-ratelimit-tokens-remaining", "0"),
    ];
    let requests = (Dimension::Requests, Some(50), Some(49), Some(10));
    assert_eq!(rates(&anthropic), [requests, (Dimension::TotalTokens, None, Some(0), None)]);
    let openrouter =
        [("x-ratelimit-limit", "50"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "784111797000")];
    assert_eq!(rates(&openrouter), [(Dimension::Requests, Some(50), Some(0), Some(20))]);
    let azure = [("x-ratelimit-remaining-requests", "19"), ("x-ratelimit-remaining-tokens", "19913")];
    let requests = (Dimension::Requests, None, Some(19), None);
    assert_eq!(rates(&azure), [requests, (Dimension::TotalTokens, None, Some(19_913), None)]);
}

/// Returns the windows in the headers, each with its dimension.
fn windows(headers: &[(&str, &str)]) -> Vec<(Dimension, Option<u64>)> {
    let secs = |window: Duration| window.as_nanos() / 1_000_000_000;
    rate_limits(&TestHeaders(headers))
        .iter()
        .map(|corrections| (corrections.dimension, corrections.window.map(secs)))
        .collect()
}

#[test]
fn windows_are_read_from_the_header_names() {
    let cerebras = [
        ("x-ratelimit-limit-requests-day", "14400"),
        ("x-ratelimit-remaining-requests-day", "14399"),
        ("x-ratelimit-reset-requests-day", "33011.382867"),
        ("x-ratelimit-limit-tokens-minute", "60000"),
        ("x-ratelimit-remaining-tokens-minute", "59996"),
        ("x-ratelimit-reset-tokens-minute", "11.38"),
    ];
    let requests = (Dimension::Requests, Some(14_400), Some(14_399), Some(33_011));
    assert_eq!(rates(&cerebras), [requests, (Dimension::TotalTokens, Some(60_000), Some(59_996), Some(11))]);
    assert_eq!(windows(&cerebras), [(Dimension::Requests, Some(86_400)), (Dimension::TotalTokens, Some(60))]);
    assert_eq!(windows(&[("x-ratelimit-limit-req-minute", "720")]), [(Dimension::Requests, Some(60))]);
    let hours = [("x-ratelimit-limit-requests-hour", "1"), ("x-ratelimit-limit-tokens-hour", "2")];
    assert_eq!(windows(&hours), [(Dimension::Requests, Some(3_600)), (Dimension::TotalTokens, Some(3_600))]);
}

#[test]
fn input_and_output_tokens_of_anthropic_are_read_separately() {
    let corrections = rates(&[
        ("anthropic-ratelimit-input-tokens-limit", "40000"),
        ("anthropic-ratelimit-input-tokens-remaining", "39000"),
        ("anthropic-ratelimit-input-tokens-reset", "1994-11-06T08:49:47Z"),
        ("anthropic-ratelimit-output-tokens-limit", "8000"),
        ("anthropic-ratelimit-output-tokens-remaining", "8000"),
    ]);
    let input = (Dimension::InputTokens, Some(40_000), Some(39_000), Some(10));
    assert_eq!(corrections, [input, (Dimension::OutputTokens, Some(8_000), Some(8_000), None)]);
}

#[test]
fn the_ietf_fields_are_read_in_the_form_of_every_draft() {
    let newest = [
        ("ratelimit-policy", "\"burst\";q=100;w=60, \"daily\";q=1000;w=86400, \"bytes\";q=9;w=1;qu=\"content-bytes\""),
        ("ratelimit", "\"burst\";r=50;t=30, \"daily\";r=900;t=40000, \"bytes\";r=1;t=1"),
    ];
    let burst = (Dimension::Requests, Some(100), Some(50), Some(30));
    assert_eq!(rates(&newest), [burst, (Dimension::Requests, Some(1_000), Some(900), Some(40_000))]);
    assert_eq!(windows(&newest), [(Dimension::Requests, Some(60)), (Dimension::Requests, Some(86_400))]);
    let seventh = [("ratelimit-policy", "100;w=60"), ("ratelimit", "limit=100, remaining=50, reset=30")];
    assert_eq!((rates(&seventh), windows(&seventh)), (vec![burst], vec![(Dimension::Requests, Some(60))]));
    let sixth = [("ratelimit-limit", "100, 100;w=60"), ("ratelimit-remaining", "50"), ("ratelimit-reset", "30")];
    assert_eq!((rates(&sixth), windows(&sixth)), (vec![burst], vec![(Dimension::Requests, Some(60))]));
    for invalid in ["", ";", "\"a\"", "\"a\";r=", "r=5", "remaining=-1", ",,,", "\"a\";r=1e9"] {
        assert_eq!(rates(&[("ratelimit", invalid)]), [], "{invalid}");
    }
}

#[test]
fn invalid_numbers_are_treated_as_absent() {
    for value in ["-1", "", "many", "1e9", "NaN", "99999999999999999999999", "0x10"] {
        let headers = [("x-ratelimit-limit-requests", value), ("x-ratelimit-remaining-requests", "5")];
        assert_eq!(rates(&headers), [(Dimension::Requests, None, Some(5), None)], "{value}");
    }
}

#[test]
fn a_header_without_a_suffix_counts_requests() {
    let corrections = rate_limits(&TestHeaders(&[("x-ratelimit-remaining", "3")]));
    assert_eq!(corrections, [RateLimitFeedback { remaining: Some(3), ..RateLimitFeedback::of(Dimension::Requests) }]);
    assert_eq!(
        rate_limits(&TestHeaders(&[("x-ratelimit-remaining-requests", "many"), ("x-ratelimit-reset", "soon")])),
        []
    );
}

#[test]
fn a_reset_is_a_wait_a_date_or_a_unix_time_and_zero_if_it_is_past() {
    for (text, secs) in [
        ("12", 12),
        ("1m", 60),
        ("1994-11-06T08:49:47Z", 10),
        ("Sun, 06 Nov 1994 08:49:07 GMT", 0),
        ("784111797", 20),
        ("784111797000", 20),
        ("784111700", 0),
    ] {
        assert_eq!(reset_after(&TestHeaders(&[]), text), Some(Duration::from_secs(secs)), "{text}");
    }
    for invalid in ["", "soon", "99999999999999999999", "1994-11-06", "-784111797"] {
        assert_eq!(reset_after(&TestHeaders(&[]), invalid), None, "{invalid}");
    }
}

#[test]
fn a_point_in_time_counts_from_the_date_of_the_same_response() {
    let headers = [("date", "Sun, 06 Nov 1994 08:49:40 GMT"), ("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT")];
    assert_eq!(wait_for(&headers), Some(Duration::from_secs(7)));
    assert_eq!(reset_after(&TestHeaders(&headers), "784111797"), Some(Duration::from_secs(17)));
    let unreadable = [("date", "today"), headers[1]];
    assert_eq!(wait_for(&unreadable), Some(Duration::from_secs(10)), "relative to the host's clock");
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
        ("0.0000000000009s", 0),
        (".5s", 500),
    ] {
        assert_eq!(wait::span(text), Some(Duration::from_millis(millis)), "{text}");
    }
    for invalid in ["", "s", "1x", "-3s", "1m-2s", "NaN", "1e400", "later", "1s2", "99999999999d"] {
        assert_eq!(wait::span(invalid), None, "{invalid}");
    }
}
