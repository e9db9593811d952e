//! Spans of time as providers write them. Read in integers: a fraction of a second is exact to the
//! nanosecond.

use crate::time::Duration;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Seconds from here on are a Unix time and no wait.
const LEAST_UNIX_TIME: Duration = Duration::from_secs(100_000_000);

/// A wait written as `12` or `12.5` seconds; `None` for anything else.
#[must_use]
pub fn seconds(text: &str) -> Option<Duration> {
    times(text, NANOS_PER_SEC)
}

/// The same in milliseconds.
pub(super) fn millis(text: &str) -> Option<Duration> {
    times(text, 1_000_000)
}

/// A Unix time, in seconds or milliseconds.
pub(super) fn unix_time(text: &str) -> Option<Duration> {
    match seconds(text) {
        Some(time) => (time >= LEAST_UNIX_TIME).then_some(time),
        // More seconds than fit: they are milliseconds.
        None => millis(text),
    }
}

/// A wait such as `1h2m3.5s`, `20ms` or `12.5` (seconds).
pub(super) fn span(text: &str) -> Option<Duration> {
    if let Some(wait) = seconds(text) {
        return (wait < LEAST_UNIX_TIME).then_some(wait);
    }
    let (mut rest, mut nanos) = (text, 0_u64);
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, with_unit) = rest.split_at(unit_at);
        let unit_len = with_unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(with_unit.len());
        let (unit, left) = with_unit.split_at(unit_len);
        nanos = nanos.checked_add(times(number, nanos_of(unit)?)?.as_nanos())?;
        rest = left;
    }
    if text.is_empty() { None } else { Some(Duration::from_nanos(nanos)) }
}

fn nanos_of(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => NANOS_PER_SEC,
        "m" => 60 * NANOS_PER_SEC,
        "h" => 3_600 * NANOS_PER_SEC,
        "d" => 86_400 * NANOS_PER_SEC,
        _ => return None,
    })
}

/// An unsigned decimal times `unit` nanoseconds, rounded down; `None` for what is none or does not fit.
fn times(text: &str, unit: u64) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digit = |byte: u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
    let mut nanos = 0_u64;
    for byte in whole.bytes() {
        nanos = nanos.checked_mul(10)?.checked_add(digit(byte)?)?;
    }
    nanos = nanos.checked_mul(unit)?;
    // What later digits are worth is lost in the rounding, but they have to be digits.
    let (mut parts, mut scale) = (0_u64, 1_u64);
    for byte in fraction.bytes() {
        let digit = digit(byte)?;
        if scale < NANOS_PER_SEC {
            (parts, scale) = (parts * 10 + digit, scale * 10);
        }
    }
    let part = u128::from(parts) * u128::from(unit) / u128::from(scale);
    nanos.checked_add(part as u64).map(Duration::from_nanos)
}
