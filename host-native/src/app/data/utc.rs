//! Dates and times in UTC: read from pipeline files and Parquet files, written as ISO 8601 text.

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime};

/// Parses `2024-05-01`, `2024-05-01T12:00:00` or either with a `Z` at the end; a space may replace the `T`.
/// Returns `None` for any other form and for years outside of 1 to 9999.
#[must_use]
pub fn parse(text: &str) -> Option<DateTime> {
    let text = text.strip_suffix('Z').unwrap_or(text).replacen(' ', "T", 1);
    let datetime: DateTime = text.parse().ok().filter(|datetime: &DateTime| datetime.year() >= 1)?;
    // The parser of the library takes more, and ignores offsets from UTC: only what it would write itself is
    // accepted.
    let is_canonical = text == datetime.to_string() || text == datetime.date().to_string();
    (is_canonical && datetime.subsec_nanosecond() == 0).then_some(datetime)
}

/// Formats a point in time such as `2024-05-01T12:00:00Z`. A fraction of a second gets `fraction_digits`
/// digits.
#[must_use]
pub fn format(datetime: DateTime, fraction_digits: usize) -> String {
    if datetime.subsec_nanosecond() == 0 { format!("{datetime}Z") } else { format!("{datetime:.fraction_digits$}Z") }
}

/// Returns the point in time that is `ticks` after (or, if negative, before) 1970-01-01T00:00:00Z, where one
/// second has `ticks_per_second`, from 1 to 10^9. Returns `None` for years outside of -9999 to 9999.
#[must_use]
pub fn from_unix(ticks: i64, ticks_per_second: i64) -> Option<DateTime> {
    let nanos = ticks.rem_euclid(ticks_per_second) * (1_000_000_000 / ticks_per_second);
    let since_epoch = SignedDuration::new(ticks.div_euclid(ticks_per_second), nanos as i32);
    Date::constant(1970, 1, 1).at(0, 0, 0, 0).checked_add(since_epoch).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parsed_time_is_formatted_as_the_same_text() {
        for text in ["1970-01-01T00:00:00Z", "2000-02-29T23:59:59Z", "0001-01-01T00:00:00Z", "9999-12-31T12:30:00Z"] {
            assert_eq!(format(parse(text).unwrap(), 9), text);
        }
        assert_eq!(format(parse("2024-05-01 06:00:00").unwrap(), 0), "2024-05-01T06:00:00Z");
        assert_eq!(format(parse("2024-05-01").unwrap(), 0), "2024-05-01T00:00:00Z");
    }

    #[test]
    fn text_in_any_other_form_is_rejected() {
        for text in [
            "",
            "2024",
            "2024-2-1",
            "20240201",
            "2023-02-29",
            "2024-13-01",
            "2024-01-01T24:00:00",
            "2024-01-01T23:59:60",
            "2024-01-01t12:00:00",
            "2024-01-01T12:00",
            "2024-01-01T12:00:00.5",
            "0000-01-01",
            "-000001-01-01",
            "2024-01-01+02:00",
            "2024-01-01T12:00:00+02:00",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn times_before_1970_count_backwards_and_years_that_no_calendar_holds_are_rejected() {
        assert_eq!(format(from_unix(-1, 1).unwrap(), 0), "1969-12-31T23:59:59Z");
        assert_eq!(format(from_unix(-1, 1_000).unwrap(), 3), "1969-12-31T23:59:59.999Z");
        assert_eq!(from_unix(i64::MAX, 1_000), None);
        assert_eq!(from_unix(i64::MIN, 1), None);
    }
}
