//! How long a provider asks its callers to stay away.

use std::time::SystemTime;

use http::header::{HeaderMap, RETRY_AFTER};
use tidegate_core::time::Duration;

/// The milliseconds form, which some providers send beside the standard header because that counts whole seconds only.
pub const RETRY_AFTER_MS: &str = "retry-after-ms";

/// The wait that `headers` ask for at wall-clock time `now`: `retry-after-ms` if it is there and readable, else
/// `Retry-After` as seconds (fractions are accepted although the standard has none) or as an HTTP date.
///
/// A date that is past asks for no wait. An unreadable value counts as none: the caller's own cooldown then applies.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let millis = text(RETRY_AFTER_MS).and_then(|text| text.parse::<f64>().ok());
    if let Some(wait) = millis.and_then(|millis| Duration::try_from_secs_f64(millis / 1e3)) {
        return Some(wait);
    }
    let standard = text(RETRY_AFTER.as_str())?;
    if let Ok(seconds) = standard.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds);
    }
    let until = httpdate::parse_http_date(standard).ok()?;
    Some(until.duration_since(now).map_or(Duration::ZERO, Duration::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::HeaderValue;
    use std::time::{Duration as StdDuration, UNIX_EPOCH};

    fn parse(headers: &[(&'static str, &str)]) -> Option<Duration> {
        let map = headers.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap()));
        // Sun, 06 Nov 1994 08:49:37 GMT, the date of the HTTP specification.
        retry_after(&map.collect(), UNIX_EPOCH + StdDuration::from_secs(784_111_777))
    }

    #[test]
    fn seconds_fractions_and_dates_are_understood() {
        assert_eq!(parse(&[("retry-after", "3")]), Some(Duration::from_secs(3)));
        assert_eq!(parse(&[("retry-after", "0.25")]), Some(Duration::from_millis(250)));
        assert_eq!(parse(&[("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT")]), Some(Duration::from_secs(10)));
        assert_eq!(parse(&[("retry-after", "Sun, 06 Nov 1994 08:49:07 GMT")]), Some(Duration::ZERO));
    }

    #[test]
    fn milliseconds_win_over_whole_seconds() {
        assert_eq!(parse(&[("retry-after", "1"), ("retry-after-ms", "120")]), Some(Duration::from_millis(120)));
        assert_eq!(parse(&[("retry-after", "1"), ("retry-after-ms", "soon")]), Some(Duration::from_secs(1)));
    }

    #[test]
    fn nonsense_is_no_wait_at_all() {
        for value in ["", "later", "-5", "NaN", "inf", "1e300"] {
            assert_eq!(parse(&[("retry-after", value)]), None, "{value}");
        }
        assert_eq!(parse(&[]), None);
    }
}
