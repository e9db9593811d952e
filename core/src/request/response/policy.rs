//! The rate limit fields of the IETF drafts (draft-ietf-httpapi-ratelimit-headers).
//!
//! ```text
//! RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400      draft 8 and later
//! RateLimit: "burst";r=50;t=30, "daily";r=900;t=40000
//!
//! RateLimit-Policy: 100;w=60                                  draft 7
//! RateLimit: limit=100, remaining=50, reset=30
//!
//! RateLimit-Limit: 100, 100;w=60                              draft 6 and earlier, with -Remaining, -Reset
//! ```
//!
//! A policy whose unit (`qu`) is not `requests` is ignored.

use alloc::vec::Vec;

use crate::budget::{Dimension, RateLimitFeedback};
use crate::time::Duration;

pub(super) const STATE: &str = "ratelimit";
pub(super) const POLICY: &str = "ratelimit-policy";

/// The largest number of items of a list that are read.
const MAX_ITEMS: usize = 8;

/// Returns the number in `text`, or the first number if it is a list.
pub(super) fn first_number(text: &str) -> Option<u64> {
    text.split([',', ';']).next()?.trim().parse().ok()
}

/// Returns the window of the first item that has a `w` parameter.
pub(super) fn window_of(text: &str) -> Option<Duration> {
    items(text).find_map(|item| seconds(parameter(item, "w")?))
}

/// Returns the rates that the two fields state together.
pub(super) fn read(state: Option<&str>, policy: Option<&str>) -> Vec<RateLimitFeedback> {
    let Some(state) = state else { return Vec::new() };
    if parameter_of_list(state, "remaining").is_some() {
        return Vec::from_iter(of_draft_7(state, policy));
    }
    items(state).filter_map(|item| of_item(item, policy)).collect()
}

fn of_draft_7(state: &str, policy: Option<&str>) -> Option<RateLimitFeedback> {
    let number = |name| parameter_of_list(state, name)?.parse().ok();
    Some(RateLimitFeedback {
        window: policy.and_then(window_of),
        limit: number("limit"),
        remaining: Some(number("remaining")?),
        reset_after: parameter_of_list(state, "reset").and_then(seconds),
        ..RateLimitFeedback::of(Dimension::Requests)
    })
}

/// Returns the rate of one item of the `ratelimit` field, with the limit and window of the policy of the same
/// name.
fn of_item(item: &str, policy: Option<&str>) -> Option<RateLimitFeedback> {
    let of_policy = policy.and_then(|policy| items(policy).find(|one| name(one) == name(item)));
    let is_of_requests = of_policy.and_then(|one| parameter(one, "qu")).is_none_or(|unit| unit == "requests");
    if !is_of_requests {
        return None;
    }
    Some(RateLimitFeedback {
        window: of_policy.and_then(|one| seconds(parameter(one, "w")?)),
        limit: of_policy.and_then(|one| parameter(one, "q")?.parse().ok()),
        remaining: Some(parameter(item, "r")?.parse().ok()?),
        reset_after: parameter(item, "t").and_then(seconds),
        ..RateLimitFeedback::of(Dimension::Requests)
    })
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).take(MAX_ITEMS)
}

fn name(item: &str) -> &str {
    item.split(';').next().unwrap_or(item).trim()
}

/// Returns the value of the parameter `;key=value` of an item, without quotes.
fn parameter<'a>(item: &'a str, key: &str) -> Option<&'a str> {
    item.split(';').skip(1).find_map(|part| value(part, key))
}

/// Returns the value of `key=value` in a list.
fn parameter_of_list<'a>(list: &'a str, key: &str) -> Option<&'a str> {
    items(list).find_map(|item| value(item, key))
}

fn value<'a>(part: &'a str, key: &str) -> Option<&'a str> {
    let (name, value) = part.split_once('=')?;
    (name.trim() == key).then(|| value.trim().trim_matches('"'))
}

/// Parses whole seconds. Returns `None` for anything else.
fn seconds(text: &str) -> Option<Duration> {
    let secs: u32 = text.parse().ok()?;
    Some(Duration::from_secs(u64::from(secs)))
}
