//! Points in time as samplers draw them: whole seconds of the Gregorian calendar in UTC, without a clock.

use std::fmt;

const DAY_S: i64 = 86_400;

/// A second of the years 1 to 9999, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Since 1970-01-01T00:00:00Z.
    seconds: i64,
}

impl Moment {
    /// So many seconds after, or before, the beginning of 1970.
    #[must_use]
    pub fn from_unix(seconds: i64) -> Self {
        Self { seconds }
    }

    /// Reads `2024-05-01`, `2024-05-01T12:00:00` or either with a `Z` at the end; a space may stand for the `T`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix('Z').unwrap_or(text);
        let (date, time) = match text.split_once(['T', ' ']) {
            Some((date, time)) => (date, Some(time)),
            None => (text, None),
        };
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let in_range =
            (1..=9_999).contains(&year) && (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
        let [hour, minute, second] = time.map_or(Some([0; 3]), |time| numbers(time, ':', [2, 2, 2]))?;
        let is_time = hour < 24 && minute < 60 && second < 60;
        let days = days_from_civil(year, month, day);
        (in_range && is_time).then_some(Self { seconds: days * DAY_S + hour * 3_600 + minute * 60 + second })
    }

    /// Seconds from `earlier` to this; 0 if that is not earlier.
    #[must_use]
    pub fn seconds_since(self, earlier: Self) -> u64 {
        u64::try_from(self.seconds.saturating_sub(earlier.seconds)).unwrap_or(0)
    }

    /// So many seconds later.
    #[must_use]
    pub fn plus_seconds(self, seconds: u64) -> Self {
        Self { seconds: self.seconds.saturating_add_unsigned(seconds) }
    }

    /// Whether a day begins here.
    #[must_use]
    pub fn is_midnight(self) -> bool {
        self.seconds.rem_euclid(DAY_S) == 0
    }

    /// The day, such as `2024-05-01`.
    #[must_use]
    pub fn date(self) -> String {
        let (year, month, day) = civil_from_days(self.seconds.div_euclid(DAY_S));
        format!("{year:04}-{month:02}-{day:02}")
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let second = self.seconds.rem_euclid(DAY_S);
        write!(f, "{}T{:02}:{:02}:{:02}Z", self.date(), second / 3_600, second / 60 % 60, second % 60)
    }
}

/// Three numbers of so many digits each.
fn numbers(text: &str, separator: char, digits: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(separator);
    let mut read = |digits| {
        let part = parts.next()?;
        let is_number = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<i64>().ok().filter(|_| is_number)
    };
    let numbers = [read(digits[0])?, read(digits[1])?, read(digits[2])?];
    parts.next().is_none().then_some(numbers)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01. H. Hinnant, "chrono-Compatible Low-Level Date Algorithms".
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_as_it_was_read() {
        for text in ["1970-01-01T00:00:00Z", "2000-02-29T23:59:59Z", "0001-01-01T00:00:00Z", "9999-12-31T12:30:00Z"] {
            assert_eq!(Moment::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Moment::parse("2024-05-01 06:00:00").unwrap().to_string(), "2024-05-01T06:00:00Z");
        assert_eq!(Moment::parse("2024-05-01").unwrap().date(), "2024-05-01");
        assert_eq!(Moment::from_unix(-1).to_string(), "1969-12-31T23:59:59Z");
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for text in [
            "",
            "2024",
            "2024-2-1",
            "2023-02-29",
            "2024-13-01",
            "2024-01-01T24:00:00",
            "0000-01-01",
            "2024-01-01+02:00",
        ] {
            assert_eq!(Moment::parse(text), None, "{text}");
        }
    }

    #[test]
    fn days_go_on_across_months_years_and_centuries() {
        for start in ["1899-12-01", "1999-12-01", "2023-12-01"] {
            let start = Moment::parse(start).unwrap();
            for day in 0..800 {
                let moment = start.plus_seconds(day * 86_400);
                assert_eq!(Moment::parse(&moment.date()), Some(moment));
            }
        }
    }
}
