//! Reads response heads and error bodies with the core.

use tidegate_core::budget::{Dimension, RateLimitFeedback};
use tidegate_core::request::response::{ErrorBody, Headers, JsonValue, NAMES, ResponseInfo, reset_after};
use tidegate_core::time::Duration;
use wasm_bindgen::prelude::*;

use super::{millis, outcome_number, settings, span};

/// Numbers for each rate.
const NOTE: usize = 5;

/// Headers as lines `name:value`.
struct Lines<'a>(&'a str);

impl Headers for Lines<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.split('\n').find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    }

    fn unix_time(&self, date: &str) -> Option<Duration> {
        let date = date.trim();
        // JavaScript accepts many other texts as dates. RFC 3339 dates start with the year, HTTP dates with
        // the day.
        let is_named = date.starts_with(|c: char| c.is_ascii_uppercase()) && date.contains(':');
        let is_rfc3339 = date.as_bytes().get(4) == Some(&b'-') && date.contains('T');
        // The oldest HTTP date format does not state that it is GMT.
        let millis = match () {
            () if is_rfc3339 || is_named && date.ends_with("GMT") => js_sys::Date::parse(date),
            () if is_named => js_sys::Date::parse(&format!("{date} GMT")),
            () => f64::NAN,
        };
        unix_time(millis)
    }

    fn now(&self) -> Duration {
        unix_time(js_sys::Date::now()).unwrap_or_default()
    }
}

/// JavaScript counts whole milliseconds; NaN is none.
fn unix_time(millis: f64) -> Option<Duration> {
    (millis >= 0.0).then(|| Duration::from_millis(millis as u64))
}

/// Returns the names of the headers that [`read_head`] uses, one on each line.
#[wasm_bindgen(js_name = headNames)]
#[must_use]
pub fn head_names() -> String {
    NAMES.join("\n")
}

/// Reads the head of a response. `headers` has a line `name:value` for each of [`head_names`] that is
/// present.
///
/// Returns the outcome, the Retry-After in milliseconds or NaN, and for each stated rate its dimension,
/// limit, remaining amount, milliseconds until reset, and the window that the header names; NaN for a missing
/// value.
#[wasm_bindgen(js_name = readHead)]
#[must_use]
pub fn read_head(status: u32, headers: &str) -> Vec<f64> {
    in_numbers(&ResponseInfo::read(status as u16, &Lines(headers)))
}

/// Reads an error response with this body. A body that is not JSON is ignored.
#[wasm_bindgen(js_name = readRefusal)]
#[must_use]
pub fn read_refusal(status: u32, headers: &str, body: &str) -> Vec<f64> {
    let headers = Lines(headers);
    let mut info = ResponseInfo::read(status as u16, &headers);
    if let Ok(root) = js_sys::JSON::parse(body) {
        ErrorBody::read(Json(root), |moment| reset_after(&headers, moment)).refine(&mut info);
    }
    in_numbers(&info)
}

fn in_numbers(head: &ResponseInfo) -> Vec<f64> {
    let mut numbers =
        vec![outcome_number(head.completion.outcome), head.completion.retry_after.map_or(f64::NAN, millis)];
    for said in &head.corrections {
        let number = |value: Option<u64>| value.map_or(f64::NAN, |value| value as f64);
        numbers.extend([
            dimension_number(said.dimension),
            number(said.limit),
            number(said.remaining),
            said.reset_after.map_or(f64::NAN, millis),
            said.window.map_or(f64::NAN, millis),
        ]);
    }
    numbers
}

/// Converts the numbers after the outcome and the wait back.
pub(super) fn stated(notes: &[f64]) -> Vec<RateLimitFeedback> {
    let number = |value: f64| (!value.is_nan()).then_some(value as u64);
    let read = |note: &[f64; NOTE]| {
        let [dimension, limit, remaining, reset_ms, window_ms] = *note;
        RateLimitFeedback {
            window: span(window_ms),
            limit: number(limit),
            remaining: number(remaining),
            reset_after: span(reset_ms),
            ..RateLimitFeedback::of(settings::dimension(dimension))
        }
    };
    notes.as_chunks().0.iter().map(read).collect()
}

/// A value that `JSON.parse` returned.
struct Json(JsValue);

impl JsonValue for Json {
    fn field(&self, name: &str) -> Option<Self> {
        // Own properties only: inherited ones are not part of the response.
        let object = self.0.dyn_ref::<js_sys::Object>()?;
        let is_own = js_sys::Object::has_own(object, &name.into());
        is_own.then(|| js_sys::Reflect::get(object, &name.into()).ok()).flatten().map(Self)
    }

    fn item(&self, index: usize) -> Option<Self> {
        let list = self.0.dyn_ref::<js_sys::Array>()?;
        (index < list.length() as usize).then(|| Self(list.get(index as u32)))
    }

    fn text(&self) -> Option<String> {
        self.0.as_string().or_else(|| Some(self.0.as_f64()?.to_string()))
    }

    fn is_string(&self) -> bool {
        self.0.is_string()
    }
}

pub(super) fn dimension_number(dimension: Dimension) -> f64 {
    f64::from(dimension as u32)
}
