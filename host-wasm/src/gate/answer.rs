//! The head of an answer, read by the core.

use tidegate_core::budget::Dimension;
use tidegate_core::request::response::{Headers, NAMES, ResponseInfo};
use tidegate_core::time::Duration;
use wasm_bindgen::prelude::*;

use super::{millis, outcome_number, span};

/// Headers as lines, `name` and value apart by a colon.
struct Lines<'a> {
    text: &'a str,
    /// How long until the date in Retry-After, if it is one.
    until: Option<Duration>,
}

impl Headers for Lines<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.text.split('\n').find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    }

    fn until(&self, _date: &str) -> Option<Duration> {
        self.until
    }
}

/// The headers that [`read_head`] looks at, a line each.
#[wasm_bindgen(js_name = headNames)]
#[must_use]
pub fn head_names() -> String {
    NAMES.join("\n")
}

/// What an answer of this status says. `headers` has a line `name:value` for each of [`head_names`] that is there; `until_ms`
/// says how long it is until the date in Retry-After, NaN if it is none.
///
/// Answers the outcome, the wait in milliseconds or NaN, and for each budget that is spoken of its dimension, limit, what
/// remains, and the milliseconds until it is whole; NaN for what is not said.
#[wasm_bindgen(js_name = readHead)]
#[must_use]
pub fn read_head(status: u32, headers: &str, until_ms: f64) -> Vec<f64> {
    let head = ResponseInfo::read(status as u16, &Lines { text: headers, until: span(until_ms) });
    let mut numbers =
        vec![outcome_number(head.completion.outcome), head.completion.retry_after.map_or(f64::NAN, millis)];
    for said in &head.corrections {
        let number = |value: Option<u64>| value.map_or(f64::NAN, |value| value as f64);
        numbers.extend([
            dimension_number(said.dimension),
            number(said.limit),
            number(said.remaining),
            said.reset_after.map_or(f64::NAN, millis),
        ]);
    }
    numbers
}

pub(super) fn dimension_number(dimension: Dimension) -> f64 {
    f64::from(dimension as u32)
}
