//! Parses durations and Unix times in the notations of providers. It uses integers only: a fraction of a
//! second is exact to the nanosecond.

use crate::time::Duration;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// From this value on, a number of seconds is a Unix time and not a wait.
const MIN_UNIX_TIME: Duration = Duration::from_secs(100_000_000);

/// Parses a wait in seconds, such as `12` or `12.5`. Returns `None` for anything else.
#[must_use]
pub fn seconds(text: &str) -> Option<Duration> {
    times(text, NANOS_PER_SEC)
}

/// Parses a wait in milliseconds, such as `12` or `12.5`.
pub(super) fn millis(text: &str) -> Option<Duration> {
    times(text, 1_000_000)
}

/// Parses a Unix time in seconds or milliseconds.
pub(super) fn unix_time(text: &str) -> Option<Duration> {
    match seconds(text) {
        Some(time) => (time >= MIN_UNIX_TIME).then_some(time),
        // The number of seconds does not fit, so the unit is milliseconds.
        None => millis(text),
    }
}

/// Parses a wait such as `1h2m3.5s`, `20ms` or `12.5` (seconds).
pub(super) fn span(text: &str) -> Option<Duration> {
    if let Some(wait) = seconds(text) {
        return (wait < MIN_UNIX_TIME).then_some(wait);
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

/// Parses an unsigned decimal and multiplies it by `unit` nanoseconds, rounded down. Returns `None` for other
/// text and for values that do not fit.
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
    // Further digits are lost in the rounding, but they are still checked to be digits.
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
