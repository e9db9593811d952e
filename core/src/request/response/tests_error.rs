use super::tests::TestHeaders;
use super::*;
use crate::call::Outcome;
use crate::time::Duration;

fn refined(status: u16, codes: &[&str], message: &str) -> ResponseInfo {
    let mut info = ResponseInfo::read(status, &TestHeaders(&[]));
    info.refine(&ErrorDetails { codes, message, retry_delay: None });
    info
}

fn outcome(status: u16, codes: &[&str], message: &str) -> Outcome {
    refined(status, codes, message).completion.outcome
}

#[test]
fn a_quota_code_turns_a_rate_limit_into_an_exhausted_quota() {
    assert_eq!(outcome(429, &["insufficient_quota"], ""), Outcome::QuotaExhausted);
    assert_eq!(outcome(429, &["rate_limit_exceeded", "tokens"], "Rate limit reached"), Outcome::RateLimited);
    assert_eq!(outcome(403, &["BILLING_DISABLED"], ""), Outcome::QuotaExhausted);
    // A rate limit stays a rate limit if only its message mentions credits.
    assert_eq!(outcome(429, &[], "your credit balance is too low for a higher limit"), Outcome::RateLimited);
}

#[test]
fn a_403_is_a_rejected_key_only_with_a_key_code() {
    assert_eq!(outcome(403, &["API_KEY_INVALID"], ""), Outcome::KeyRejected);
    let info = refined(403, &["unsupported_country_region_territory"], "Country not supported");
    assert_eq!((info.completion.outcome, info.rejection), (Outcome::RequestRejected, Some(RejectionReason::Forbidden)));
}

#[test]
fn a_404_is_a_missing_model_only_if_it_mentions_a_model() {
    assert_eq!(outcome(404, &["404"], "The model `x` does not exist."), Outcome::ModelNotFound);
    assert_eq!(outcome(404, &[], "Invalid URL (POST /v1/chat)"), Outcome::RequestRejected);
    assert_eq!(refined(404, &[], "").rejection, Some(RejectionReason::NotFound));
    assert_eq!(outcome(400, &[], "the model does not take images"), Outcome::RequestRejected);
}

#[test]
fn the_body_of_a_server_error_does_not_make_it_a_rejection() {
    assert_eq!(outcome(500, &["api_error"], "model not found in cache"), Outcome::ProviderFailure);
    assert_eq!(outcome(503, &["unavailable_error"], "Loading model"), Outcome::ProviderFailure);
}

#[test]
fn a_request_that_is_too_long_is_recognised_for_any_status() {
    for (status, codes, message) in [
        (400, &["context_length_exceeded"][..], ""),
        (400, &[], "This model's maximum context length is 4096 tokens."),
        (413, &[], ""),
        (
            429,
            &["rate_limit_exceeded"],
            "Request too large for m on tokens per min (TPM): Limit 10000, Requested 12000.",
        ),
    ] {
        let info = refined(status, codes, message);
        assert_eq!(
            (info.completion.outcome, info.rejection),
            (Outcome::RequestRejected, Some(RejectionReason::TooLong)),
            "{status}"
        );
    }
}

#[test]
fn a_delay_in_the_body_is_used_if_the_headers_have_none() {
    let wait = |headers: &dyn Headers, status| {
        let mut info = ResponseInfo::read(status, headers);
        let retry_delay = Some(Duration::from_secs(34));
        info.refine(&ErrorDetails { codes: &["RESOURCE_EXHAUSTED"], message: "", retry_delay });
        info.completion
    };
    assert_eq!(wait(&TestHeaders(&[]), 429), Completion::rate_limited(Some(Duration::from_secs(34))));
    assert_eq!(wait(&TestHeaders(&[]), 503), Completion::rate_limited(Some(Duration::from_secs(34))));
    assert_eq!(wait(&TestHeaders(&[]), 500), Outcome::ProviderFailure.into());

    assert_eq!(wait(&TestHeaders(&[(RETRY_AFTER, "2")]), 429), Completion::rate_limited(Some(Duration::from_secs(2))));
}

#[test]
fn an_error_with_a_success_status_is_classified_by_its_body() {
    let info = refined(200, &["502"], "Provider returned error");
    assert_eq!((info.status, info.completion.outcome), (502, Outcome::ProviderFailure));
    assert_eq!(outcome(200, &["429"], "slow down"), Outcome::RateLimited);
    assert_eq!(outcome(200, &["server_error"], "oh no"), Outcome::ProviderFailure);
    for (code, status) in [("overloaded_error", 529), ("rate_limit_exceeded", 429)] {
        let info = refined(200, &[code], "later");
        assert_eq!((info.status, info.completion.outcome), (status, Outcome::RateLimited));
    }
}

#[test]
fn a_503_with_a_busy_message_is_a_rate_limit_and_any_other_is_a_failure() {
    assert_eq!(outcome(503, &["slow_down"], "Slow down"), Outcome::RateLimited);
    assert_eq!(outcome(503, &[], "server busy, please try again"), Outcome::RateLimited);
    assert_eq!(outcome(503, &[], "no healthy upstream"), Outcome::ProviderFailure);
    assert_eq!(outcome(500, &[], "slow down"), Outcome::ProviderFailure);
}

#[test]
fn unsupported_parameters_and_forbidden_content_are_rejected_requests() {
    for (status, codes, message, why) in [
        (400, &["unknown_parameter"][..], "", RejectionReason::UnsupportedParameter),
        (422, &["extra_forbidden"], "", RejectionReason::UnsupportedParameter),
        (400, &[], "Unrecognized request argument supplied: n", RejectionReason::UnsupportedParameter),
        (400, &["content_filter"], "", RejectionReason::ContentFiltered),
    ] {
        assert_eq!(refined(status, codes, message).rejection, Some(why), "{codes:?} {message}");
    }
}

#[test]
fn an_empty_body_changes_nothing() {
    for status in [200, 400, 401, 404, 429, 503] {
        assert_eq!(refined(status, &[], ""), ResponseInfo::read(status, &TestHeaders(&[])));
    }
}
