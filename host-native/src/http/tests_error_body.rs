use std::time::SystemTime;

use http::{HeaderMap, StatusCode};
use tidegate_core::request::Outcome;
use tidegate_core::request::response::RejectionReason::{ContentFiltered, TooLong, UnsupportedParameter};
use tidegate_core::request::response::ResponseInfo;
use tidegate_core::time::Duration;

use super::{ErrorBody, error_in_success, read_error_body, read_head};

fn read(body: &str) -> ErrorBody {
    read_error_body(body.as_bytes(), &HeaderMap::new(), SystemTime::UNIX_EPOCH)
}

fn info(status: u16, body: &str) -> ResponseInfo {
    let status = StatusCode::from_u16(status).unwrap();
    let mut info = read_head(status, &HeaderMap::new(), SystemTime::UNIX_EPOCH);
    read(body).refine(&mut info);
    info
}

/// Error bodies as providers send them. Messages that do not affect the outcome are shortened.
const RECORDED: &[(&str, u16, &str, Outcome)] = &[
    (
        "OpenAI, wrong key",
        401,
        r#"{"error":{"message":"Incorrect API key provided.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#,
        Outcome::KeyRejected,
    ),
    (
        "OpenAI, no funds",
        429,
        r#"{"error":{"message":"You exceeded your current quota.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
        Outcome::QuotaExhausted,
    ),
    (
        "OpenAI, hard limit",
        400,
        r#"{"error":{"code":"billing_hard_limit_reached","message":"Billing hard limit has been reached","param":null,"type":"invalid_request_error"}}"#,
        Outcome::QuotaExhausted,
    ),
    (
        "OpenAI, too many",
        429,
        r#"{"error":{"message":"Rate limit reached.","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#,
        Outcome::RateLimited,
    ),
    (
        "OpenAI, no model",
        404,
        r#"{"error":{"message":"The model `x` does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#,
        Outcome::ModelNotFound,
    ),
    (
        "OpenAI, region",
        403,
        r#"{"error":{"code":"unsupported_country_region_territory","message":"Country, region, or territory not supported","param":null,"type":"request_forbidden"}}"#,
        Outcome::RequestRejected,
    ),
    (
        "Anthropic, wrong key",
        401,
        r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
        Outcome::KeyRejected,
    ),
    (
        "Anthropic, no funds",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}"#,
        Outcome::QuotaExhausted,
    ),
    (
        "Anthropic, no model",
        404,
        r#"{"type":"error","error":{"type":"not_found_error","message":"model: x"}}"#,
        Outcome::ModelNotFound,
    ),
    (
        "Anthropic, overloaded",
        529,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        Outcome::RateLimited,
    ),
    (
        "Anthropic, no permission",
        403,
        r#"{"type":"error","error":{"type":"permission_error","message":"Your key may not use this resource."}}"#,
        Outcome::RequestRejected,
    ),
    (
        "Azure, no deployment",
        404,
        r#"{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}"#,
        Outcome::ModelNotFound,
    ),
    (
        "Azure, wrong key",
        401,
        r#"{"error":{"code":"401","message":"Access denied due to invalid subscription key or wrong API endpoint."}}"#,
        Outcome::KeyRejected,
    ),
    (
        "Azure, call volume",
        403,
        r#"{"error":{"code":"403","message":"Out of call volume quota. Quota will be replenished in 7 days."}}"#,
        Outcome::QuotaExhausted,
    ),
    (
        "Google, wrong key",
        400,
        r#"[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]}}]"#,
        Outcome::KeyRejected,
    ),
    (
        "Google, billing",
        403,
        r#"{"error":{"code":403,"message":"This API method requires billing to be enabled.","status":"PERMISSION_DENIED","details":[{"reason":"BILLING_DISABLED"}]}}"#,
        Outcome::QuotaExhausted,
    ),
    (
        "Google, no model",
        404,
        r#"{"error":{"code":404,"message":"models/x is not found for API version v1beta.","status":"NOT_FOUND"}}"#,
        Outcome::ModelNotFound,
    ),
    (
        "Mistral, no model",
        400,
        r#"{"object":"error","message":"Invalid model: x","type":"invalid_model","param":null,"code":"1500"}"#,
        Outcome::ModelNotFound,
    ),
    ("Mistral, wrong key", 401, r#"{"detail":"Unauthorized"}"#, Outcome::KeyRejected),
    (
        "OpenRouter, no credits",
        402,
        r#"{"error":{"message":"Insufficient credits. Add more credits.","code":402}}"#,
        Outcome::QuotaExhausted,
    ),
    (
        "OpenRouter, no model",
        400,
        r#"{"error":{"message":"x is not a valid model ID","code":400}}"#,
        Outcome::ModelNotFound,
    ),
    (
        "OpenRouter, moderation",
        403,
        r#"{"error":{"message":"Your chosen model requires moderation and your input was flagged.","code":403,"metadata":{"reasons":["violence"]}}}"#,
        Outcome::RequestRejected,
    ),
    (
        "vLLM, no model",
        404,
        r#"{"object":"error","message":"The model `x` does not exist.","type":"NotFoundError","param":null,"code":404}"#,
        Outcome::ModelNotFound,
    ),
    ("vLLM, no such address", 404, r#"{"detail":"Not Found"}"#, Outcome::RequestRejected),
    (
        "Ollama, no model",
        404,
        r#"{"error":{"message":"model \"x\" not found, try pulling it first","type":"api_error","param":null,"code":null}}"#,
        Outcome::ModelNotFound,
    ),
    ("Ollama, crashed", 500, r#"{"error":"llama runner process has terminated"}"#, Outcome::ProviderFailure),
    (
        "llama.cpp, starting",
        503,
        r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
        Outcome::ProviderFailure,
    ),
    (
        "OpenAI, slow down",
        503,
        r#"{"error":{"message":"Slow down","type":"server_error","param":null,"code":"slow_down"}}"#,
        Outcome::RateLimited,
    ),
    (
        "OpenAI, account not active",
        429,
        r#"{"error":{"message":"Your account is not active, please check your billing details on our website.","type":"billing_not_active","param":null,"code":"billing_not_active"}}"#,
        Outcome::QuotaExhausted,
    ),
    (
        "OpenAI, no access to the model",
        403,
        r#"{"error":{"message":"Project `p` does not have access to model `x`","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#,
        Outcome::ModelNotFound,
    ),
    (
        "Anthropic, usage limit",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-04-01 at 00:00 UTC."}}"#,
        Outcome::QuotaExhausted,
    ),
    (
        "Anthropic, too many",
        429,
        r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your account's rate limit."}}"#,
        Outcome::RateLimited,
    ),
    (
        "Azure, too many",
        429,
        r#"{"error":{"code":"429","message":"Requests have exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry after 6 seconds."}}"#,
        Outcome::RateLimited,
    ),
    (
        "Azure, firewall",
        403,
        r#"{"error":{"code":"AccessDenied","message":"Access denied due to Virtual Network/Firewall rules."}}"#,
        Outcome::RequestRejected,
    ),
    (
        "Azure, no such address",
        404,
        r#"{"error":{"code":"404","message":"Resource not found"}}"#,
        Outcome::RequestRejected,
    ),
    (
        "Google, too many",
        429,
        r#"{"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota).","status":"RESOURCE_EXHAUSTED"}}"#,
        Outcome::RateLimited,
    ),
    (
        "Google, API not enabled",
        403,
        r#"{"error":{"code":403,"message":"The API has not been used in project 1 before or it is disabled.","status":"PERMISSION_DENIED","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"SERVICE_DISABLED"}]}}"#,
        Outcome::KeyRejected,
    ),
    (
        "Google, place",
        400,
        r#"{"error":{"code":400,"message":"User location is not supported for the API use.","status":"FAILED_PRECONDITION"}}"#,
        Outcome::RequestRejected,
    ),
    (
        "Google, overloaded",
        503,
        r#"{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}"#,
        Outcome::ProviderFailure,
    ),
    (
        "Mistral, too many",
        429,
        r#"{"object":"error","message":"Rate limit exceeded","type":"rate_limited","param":null,"code":"1300","raw_status_code":429}"#,
        Outcome::RateLimited,
    ),
    (
        "Mistral, no capacity",
        429,
        r#"{"object":"error","message":"Service tier capacity exceeded for this model.","type":"service_tier_capacity_exceeded","param":null,"code":"3505"}"#,
        Outcome::RateLimited,
    ),
    (
        "OpenRouter, more than can be paid",
        402,
        r#"{"error":{"message":"This request requires more credits, or fewer max_tokens.","code":402,"metadata":{"provider_name":null}}}"#,
        Outcome::QuotaExhausted,
    ),
    (
        "OpenRouter, limit of the key",
        403,
        r#"{"error":{"message":"Key limit exceeded (total limit).","code":403}}"#,
        Outcome::QuotaExhausted,
    ),
    (
        "OpenRouter, no provider of the model",
        404,
        r#"{"error":{"message":"No endpoints found for acme/large.","code":404}}"#,
        Outcome::ModelNotFound,
    ),
    (
        "OpenRouter, no provider for what is asked",
        404,
        r#"{"error":{"message":"No endpoints found that support tool use.","code":404}}"#,
        Outcome::RequestRejected,
    ),
    (
        "OpenRouter, free calls of the day",
        429,
        r#"{"error":{"message":"Rate limit exceeded: free-models-per-day.","code":429,"metadata":{"headers":{"X-RateLimit-Remaining":"0"}}}}"#,
        Outcome::RateLimited,
    ),
    (
        "OpenRouter, no key",
        401,
        r#"{"error":{"message":"No auth credentials found","code":401}}"#,
        Outcome::KeyRejected,
    ),
    ("vLLM, wrong key", 401, r#"{"error":"Unauthorized"}"#, Outcome::KeyRejected),
    (
        "Ollama, too many",
        503,
        r#"{"error":"server busy, please try again.  maximum pending requests exceeded"}"#,
        Outcome::RateLimited,
    ),
    (
        "llama.cpp, wrong key",
        401,
        r#"{"error":{"code":401,"message":"Invalid API Key","type":"authentication_error"}}"#,
        Outcome::KeyRejected,
    ),
];

#[test]
fn recorded_error_bodies_give_the_documented_outcome() {
    for (what, status, body, expected) in RECORDED {
        assert_eq!(info(*status, body).completion.outcome, *expected, "{what}");
    }
}

#[test]
fn recorded_rejections_of_a_request_give_their_reason() {
    for (what, status, body, expected) in [
        (
            "OpenAI, context",
            400,
            r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
            TooLong,
        ),
        (
            "OpenAI, more than a minute's tokens",
            429,
            r#"{"error":{"message":"Request too large for m on tokens per min (TPM): Limit 10000, Requested 12000.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#,
            TooLong,
        ),
        (
            "Anthropic, context",
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
            TooLong,
        ),
        (
            "vLLM, context",
            400,
            r#"{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","param":null,"code":400}"#,
            TooLong,
        ),
        (
            "llama.cpp, context",
            400,
            r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_ctx":4096}}"#,
            TooLong,
        ),
        (
            "OpenAI, parameter",
            400,
            r#"{"error":{"message":"Unsupported parameter: 'max_tokens'.","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}"#,
            UnsupportedParameter,
        ),
        (
            "OpenAI, unknown parameter",
            400,
            r#"{"error":{"message":"Unknown parameter: 'n_best'.","type":"invalid_request_error","param":"n_best","code":"unknown_parameter"}}"#,
            UnsupportedParameter,
        ),
        (
            "Anthropic, parameter",
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"n_best: Extra inputs are not permitted"}}"#,
            UnsupportedParameter,
        ),
        (
            "Google, parameter",
            400,
            r#"[{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"n_best\": Cannot find field.","status":"INVALID_ARGUMENT"}}]"#,
            UnsupportedParameter,
        ),
        (
            "Mistral, parameter",
            422,
            r#"{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","n_best"],"msg":"Extra inputs are not permitted","input":1}]},"type":"invalid_request_error","param":null,"code":null}"#,
            UnsupportedParameter,
        ),
        (
            "Mistral, parameter, bare",
            422,
            r#"{"detail":[{"type":"extra_forbidden","loc":["body","n_best"],"msg":"Extra inputs are not permitted"}]}"#,
            UnsupportedParameter,
        ),
        (
            "Mistral, context",
            400,
            r#"{"object":"error","message":"Prompt contains 40000 tokens, too large for model with 32768 maximum context length","type":"invalid_request_error","param":null,"code":"3051"}"#,
            TooLong,
        ),
        (
            "Google, context",
            400,
            r#"{"error":{"code":400,"message":"The input token count (2845475) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}"#,
            TooLong,
        ),
        ("Ollama, context", 400, r#"{"error":"the input length exceeds the context length"}"#, TooLong),
        (
            "vLLM, context, today",
            400,
            r#"{"error":{"message":"This model's maximum context length is 2048 tokens. However, your request has 8 input tokens plus 2045 'max_tokens'.","type":"BadRequestError","param":"input_tokens, max_tokens","code":400}}"#,
            TooLong,
        ),
        (
            "Azure, filter",
            400,
            r#"{"error":{"message":"The response was filtered.","type":null,"param":"prompt","code":"content_filter","status":400}}"#,
            ContentFiltered,
        ),
    ] {
        let info = info(status, body);
        assert_eq!((info.completion.outcome, info.rejection), (Outcome::RequestRejected, Some(expected)), "{what}");
    }
}

#[test]
fn the_retry_delay_in_a_google_error_body_becomes_the_wait() {
    let body = r#"{"error":{"code":429,"message":"You exceeded your current quota.","status":"RESOURCE_EXHAUSTED",
                   "details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]}}"#;
    let completion = info(429, body).completion;
    assert_eq!(
        (completion.outcome, completion.retry_after),
        (Outcome::RateLimited, Some(Duration::from_millis(34_500)))
    );
}

#[test]
fn the_reset_in_an_openrouter_error_body_becomes_the_wait() {
    let body = r#"{"error":{"message":"Rate limit exceeded: free-models-per-min. ","code":429,"metadata":{"headers":
                   {"X-RateLimit-Limit":"20","X-RateLimit-Remaining":"0","X-RateLimit-Reset":"1767225600000"}}}}"#;
    let headers = HeaderMap::from_iter([(http::header::DATE, "Wed, 31 Dec 2025 23:59:30 GMT".parse().unwrap())]);
    let mut info = read_head(StatusCode::TOO_MANY_REQUESTS, &headers, SystemTime::UNIX_EPOCH);
    read_error_body(body.as_bytes(), &headers, SystemTime::UNIX_EPOCH).refine(&mut info);
    let wait = Some(Duration::from_secs(30));
    assert_eq!((info.completion.outcome, info.completion.retry_after), (Outcome::RateLimited, wait));
}

#[test]
fn an_error_in_a_success_response_is_found() {
    let error = error_in_success(br#"{"error":{"code":502,"message":"Provider returned error"}}"#).unwrap();
    assert_eq!(error.message, "Provider returned error");
    let success = r#"{"choices":[],"base_resp":{"status_code":0,"status_msg":""}}"#;
    for body in [r#"{"choices":[]}"#, r#"{"error":null,"choices":[]}"#, success, "", "[]", "not json"] {
        assert_eq!(error_in_success(body.as_bytes()), None, "{body}");
    }
}

#[test]
fn a_body_that_is_not_an_error_gives_an_empty_error() {
    for body in ["", "<html>", "7", "[]", "{}", "null", r#"{"error":7}"#, r#"{"error":{"code":{},"message":[]}}"#] {
        assert_eq!(read(body), ErrorBody::default(), "{body}");
    }
    assert_eq!(read(r#"{"error":{"details":[{"retryDelay":"-1s"}]}}"#), ErrorBody::default());
}
