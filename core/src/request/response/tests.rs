use std::vec;

use super::*;

/// The Unix time of Sun, 06 Nov 1994 08:49:00 GMT.
const MINUTE: u64 = 784_111_740;

/// Headers at Sun, 06 Nov 1994 08:49:37 GMT, the date of the HTTP specification.
pub(super) struct Sent<'a>(pub(super) &'a [(&'a str, &'a str)]);

impl Headers for Sent<'_> {
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
    ResponseInfo::read(status, &Sent(headers)).completion
}

fn wait_for(headers: &[(&str, &str)]) -> Option<Duration> {
    retry_after(&Sent(headers))
}

#[test]
fn a_refusal_for_too_many_calls_is_known_by_its_status() {
    let limited = |secs| Completion::rate_limited(Some(Duration::from_secs(secs)));
    assert_eq!(read(429, &[]), Completion::rate_limited(None));
    for status in [429, 503, 529] {
        assert_eq!(read(status, &[("retry-after", "7")]), limited(7));
    }
    assert_eq!(read(503, &[]), Outcome::ProviderFailure.into());
    assert_eq!(read(503, &[("retry-after", "soon")]), Outcome::ProviderFailure.into());
}

#[test]
fn a_refusal_without_retry_after_waits_for_what_is_used_up() {
    let headers = [
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "1m30s"),
        ("x-ratelimit-reset-requests", "5m"),
    ];
    assert_eq!(read(429, &headers), Completion::rate_limited(Some(Duration::from_secs(90))));
    assert_eq!(read(429, &headers[1..]), Completion::rate_limited(None));
}

#[test]
fn every_other_status_is_a_success_a_refusal_a_timeout_or_a_failure() {
    for (status, outcome) in [
        (200, Outcome::Success),
        (304, Outcome::Success),
        (400, Outcome::RequestRefused),
        (401, Outcome::KeyRefused),
        (402, Outcome::QuotaExhausted),
        (403, Outcome::RequestRefused),
        (404, Outcome::RequestRefused),
        (408, Outcome::ProviderTimeout),
        (422, Outcome::RequestRefused),
        (500, Outcome::ProviderFailure),
        (504, Outcome::ProviderTimeout),
    ] {
        assert_eq!(read(status, &[]), outcome.into(), "{status}");
    }
}

#[test]
fn a_grpc_status_counts_more_than_the_http_status_that_carries_it() {
    let exhausted = [("grpc-status", "8"), ("grpc-retry-pushback-ms", "250")];
    assert_eq!(read(200, &exhausted), Completion::rate_limited(Some(Duration::from_millis(250))));
    assert_eq!(read(200, &[("grpc-status", "8"), ("grpc-retry-pushback-ms", "-1")]), Completion::rate_limited(None));
    assert_eq!(read(503, &[("grpc-status", "0")]), Outcome::Success.into());
    assert_eq!(read(200, &[("grpc-status", "4")]), Outcome::ProviderTimeout.into());
    assert_eq!(read(200, &[("grpc-status", "1")]), Outcome::LocalCancelled.into());
    assert_eq!(read(200, &[("grpc-status", "3")]), Outcome::RequestRefused.into());
    assert_eq!(read(200, &[("grpc-status", "14")]), Outcome::ProviderFailure.into());
    assert_eq!(read(200, &[("grpc-status", "16")]), Outcome::KeyRefused.into());
    assert_eq!(read(200, &[("grpc-status", "eight")]), Outcome::Success.into());
}

#[test]
fn retry_after_is_seconds_a_fraction_a_date_or_milliseconds() {
    assert_eq!(wait_for(&[("retry-after", " 3 ")]), Some(Duration::from_secs(3)));
    assert_eq!(wait_for(&[("retry-after", "0.25")]), Some(Duration::from_millis(250)));
    assert_eq!(wait_for(&[("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT")]), Some(Duration::from_secs(10)));
    assert_eq!(wait_for(&[("retry-after", "Sun, 06 Nov 1994 08:49:07 GMT")]), Some(Duration::ZERO));
    assert_eq!(wait_for(&[("retry-after", "1"), ("retry-after-ms", "120")]), Some(Duration::from_millis(120)));
    assert_eq!(wait_for(&[("retry-after", "1"), ("retry-after-ms", "soon")]), Some(Duration::from_secs(1)));
}

#[test]
fn nonsense_is_no_wait_at_all() {
    for value in ["", ".", "later", "-5", "NaN", "inf", "1e300", "1.2.3", "1.x", "99999999999999999999", "18446744074"]
    {
        assert_eq!(wait_for(&[("retry-after", value)]), None, "{value}");
    }
    assert_eq!(wait_for(&[]), None);
}

#[test]
fn requests_and_tokens_are_read_apart() {
    let corrections = rate_limits(&Sent(&[
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-limit-tokens", "150000"),
        ("x-ratelimit-remaining-tokens", "149984"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ]));
    let of = |dimension, limit, remaining, secs| Correction {
        limit: Some(limit),
        remaining: Some(remaining),
        reset_after: Some(Duration::from_secs(secs)),
        ..Correction::of(dimension)
    };
    assert_eq!(corrections, [of(Dimension::Requests, 60, 59, 1), of(Dimension::TotalTokens, 150_000, 149_984, 360)]);
}

/// Of what: limit, remaining, seconds until all is back.
type Rate = (Dimension, Option<u64>, Option<u64>, Option<u64>);

/// What the headers say of requests and of tokens.
fn rates(headers: &[(&str, &str)]) -> Vec<Rate> {
    let one = |corrections: &Correction| {
        let secs = corrections.reset_after.map(|wait| wait.as_nanos() / 1_000_000_000);
        (corrections.dimension, corrections.limit, corrections.remaining, secs)
    };
    rate_limits(&Sent(headers)).iter().map(one).collect()
}

#[test]
fn each_provider_names_its_rates_in_its_own_way() {
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

/// The windows that the headers name, each with its dimension.
fn windows(headers: &[(&str, &str)]) -> Vec<(Dimension, Option<u64>)> {
    let secs = |window: Duration| window.as_nanos() / 1_000_000_000;
    rate_limits(&Sent(headers))
        .iter()
        .map(|corrections| (corrections.dimension, corrections.window.map(secs)))
        .collect()
}

#[test]
fn a_limit_per_day_is_told_from_one_per_minute_by_its_name() {
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
fn anthropic_counts_input_and_output_tokens_apart() {
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
fn the_fields_of_the_ietf_are_read_in_every_draft() {
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
    for nonsense in ["", ";", "\"a\"", "\"a\";r=", "r=5", "remaining=-1", ",,,", "\"a\";r=1e9"] {
        assert_eq!(rates(&[("ratelimit", nonsense)]), [], "{nonsense}");
    }
}

#[test]
fn numbers_that_are_none_are_as_good_as_absent() {
    for value in ["-1", "", "many", "1e9", "NaN", "99999999999999999999999", "0x10"] {
        let headers = [("x-ratelimit-limit-requests", value), ("x-ratelimit-remaining-requests", "5")];
        assert_eq!(rates(&headers), [(Dimension::Requests, None, Some(5), None)], "{value}");
    }
}

#[test]
fn a_bare_header_is_about_requests() {
    let corrections = rate_limits(&Sent(&[("x-ratelimit-remaining", "3")]));
    assert_eq!(corrections, [Correction { remaining: Some(3), ..Correction::of(Dimension::Requests) }]);
    assert_eq!(rate_limits(&Sent(&[("x-ratelimit-remaining-requests", "many"), ("x-ratelimit-reset", "soon")])), []);
}

#[test]
fn a_reset_is_a_wait_a_date_or_a_unix_time_and_one_that_is_past_is_now() {
    for (text, secs) in [
        ("12", 12),
        ("1m", 60),
        ("1994-11-06T08:49:47Z", 10),
        ("Sun, 06 Nov 1994 08:49:07 GMT", 0),
        ("784111797", 20),
        ("784111797000", 20),
        ("784111700", 0),
    ] {
        assert_eq!(reset_after(&Sent(&[]), text), Some(Duration::from_secs(secs)), "{text}");
    }
    for nonsense in ["", "soon", "99999999999999999999", "1994-11-06", "-784111797"] {
        assert_eq!(reset_after(&Sent(&[]), nonsense), None, "{nonsense}");
    }
}

#[test]
fn a_moment_counts_from_the_date_of_its_own_answer() {
    let headers = [("date", "Sun, 06 Nov 1994 08:49:40 GMT"), ("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT")];
    assert_eq!(wait_for(&headers), Some(Duration::from_secs(7)));
    assert_eq!(reset_after(&Sent(&headers), "784111797"), Some(Duration::from_secs(17)));
    let unreadable = [("date", "today"), headers[1]];
    assert_eq!(wait_for(&unreadable), Some(Duration::from_secs(10)), "the host's clock");
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
    for nonsense in ["", "s", "1x", "-3s", "1m-2s", "NaN", "1e400", "later", "1s2", "99999999999d"] {
        assert_eq!(wait::span(nonsense), None, "{nonsense}");
    }
}
