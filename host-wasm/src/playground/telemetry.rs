//! What the charts show: every provider's levels over the whole run, in a bounded number of buckets.
//!
//! A run may take seconds or days of virtual time and millions of events, and a chart is some hundred pixels
//! wide. So time is cut into buckets of one width. When all [`MAX_BUCKETS`] are used, neighbours are folded
//! in pairs and the width doubles: nothing is thrown away, only made coarser. For a bucket that covers the
//! time `t`:
//!
//! ```text
//! in flight  = integral of calls in flight over t / t        cooling = time within t spent in cooldown / t
//! in service = integral of calls in service over t / t
//! ```
//!
//! Integrals and counts add up when buckets fold, peaks take the larger, and of a level the later value
//! stands.

use serde::Serialize;
pub(crate) use tidegate_core::sim::world::ProviderLevel;
use tidegate_core::time::{Duration, Instant};
use tsify::Tsify;

/// How many buckets a run is cut into at most. Even, so that pairs fold without a remainder.
pub(crate) const MAX_BUCKETS: usize = 1024;

/// The width of the first buckets.
const FIRST_WIDTH: Duration = Duration::from_millis(1);

/// A measure kept per provider and bucket. Its name in JavaScript is that of its array in the telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Tsify)]
#[serde(rename_all = "camelCase")]
#[tsify(rename = "TelemetryField")]
pub(crate) enum Field {
    /// The last limit.
    Limit,
    /// The mean number of calls in flight.
    InFlight,
    /// The mean number of calls that the provider has accepted and not yet answered. A call that it will refuse is in
    /// flight, and not in service.
    InService,
    /// The most calls in flight at once.
    Peak,
    /// The last true capacity.
    Capacity,
    /// Responses with status 429 within the bucket.
    Refused,
    /// The share of the bucket spent in cooldown, 0 to 1.
    Cooling,
}

impl Field {
    /// All fields, in the order in which they are exported.
    pub(crate) const ALL: [Self; 7] =
        [Self::Limit, Self::InFlight, Self::InService, Self::Peak, Self::Capacity, Self::Refused, Self::Cooling];

    /// Whether buckets hold an integral over time, which reading divides by the bucket's width.
    fn is_integral(self) -> bool {
        matches!(self, Self::InFlight | Self::InService | Self::Cooling)
    }

    /// One value for two neighbouring buckets.
    fn fold(self, earlier: f64, later: f64) -> f64 {
        match self {
            Self::Limit | Self::Capacity => later,
            Self::InFlight | Self::InService | Self::Refused | Self::Cooling => earlier + later,
            Self::Peak => earlier.max(later),
        }
    }

    /// Returns the initial value of a bucket at this level.
    fn opening(self, level: ProviderLevel) -> f64 {
        match self {
            Self::Limit => f64::from(level.limit),
            Self::Peak => f64::from(level.in_flight),
            Self::Capacity => f64::from(level.capacity),
            Self::InFlight | Self::InService | Self::Refused | Self::Cooling => 0.0,
        }
    }

    /// Returns the value of an integral at one instant.
    fn instantaneous(self, level: ProviderLevel, now: Instant) -> f64 {
        match self {
            Self::InFlight => f64::from(level.in_flight),
            Self::InService => f64::from(level.in_service),
            _ => f64::from(u8::from(level.cooldown_until.is_some_and(|end| end > now))),
        }
    }
}

/// One provider's buckets, a vector per field, and its present level.
#[derive(Clone, Debug, Default)]
struct Series {
    level: ProviderLevel,
    columns: [Vec<f64>; Field::ALL.len()],
}

/// The level history of all providers.
#[derive(Clone, Debug)]
pub(crate) struct Telemetry {
    /// The width of every bucket.
    width: Duration,
    /// How many buckets are open or done; the last one is open.
    buckets: usize,
    /// The instant up to which levels have been integrated.
    now: Instant,
    series: Vec<Series>,
}

impl Telemetry {
    /// A history that starts at zero with these levels, one per provider.
    pub(crate) fn new(levels: impl IntoIterator<Item = ProviderLevel>) -> Self {
        let levels: Vec<_> = levels.into_iter().collect();
        let series = vec![Series::default(); levels.len()];
        let mut telemetry = Self { width: FIRST_WIDTH, buckets: 0, now: Instant::ZERO, series };
        telemetry.open_bucket();
        // Set, not assumed: a rejection at the very start belongs to the first bucket.
        for (index, level) in levels.into_iter().enumerate() {
            telemetry.set(index, level);
        }
        telemetry
    }

    /// How many buckets hold something: 1 to [`MAX_BUCKETS`].
    pub(crate) fn buckets(&self) -> usize {
        self.buckets
    }

    /// How many providers there are.
    pub(crate) fn providers(&self) -> usize {
        self.series.len()
    }

    /// Integrates the present levels up to `now`. Call it before setting a level that applies from `now` on.
    pub(crate) fn advance(&mut self, now: Instant) {
        while self.now < now {
            let end = self.start_of_last() + self.width;
            let until = end.min(now);
            self.integrate(until);
            self.now = until;
            if until == end {
                self.open_bucket();
            }
        }
    }

    /// Sets what provider `index` shows from now on. Unknown indices are ignored.
    pub(crate) fn set(&mut self, index: usize, level: ProviderLevel) {
        let Some(series) = self.series.get_mut(index) else { return };
        let newly_refused = level.refused.saturating_sub(series.level.refused);
        *series.last_mut(Field::Limit) = f64::from(level.limit);
        *series.last_mut(Field::Capacity) = f64::from(level.capacity);
        *series.last_mut(Field::Refused) += newly_refused as f64;
        let peak = series.last_mut(Field::Peak);
        *peak = peak.max(f64::from(level.in_flight));
        series.level = level;
    }

    /// Writes each bucket's time in milliseconds: its start, and for the open one the present.
    pub(crate) fn write_times(&self, into: &mut Vec<f64>) {
        let width_ms = self.width.as_secs_f64() * 1e3;
        into.clear();
        into.extend((0..self.buckets - 1).map(|bucket| bucket as f64 * width_ms));
        into.push(self.now.as_nanos() as f64 / 1e6);
    }

    /// Writes one column of one provider; nothing for an unknown one.
    pub(crate) fn write_column(&self, provider: usize, field: Field, into: &mut Vec<f64>) {
        into.clear();
        let Some(series) = self.series.get(provider) else { return };
        into.extend_from_slice(&series.columns[field as usize]);
        if !field.is_integral() {
            return;
        }
        let open_for = (self.now - self.start_of_last()).as_nanos() as f64;
        let open = into.pop().filter(|_| open_for > 0.0).map(|integral| integral / open_for);
        let width = self.width.as_nanos() as f64;
        for value in into.iter_mut() {
            *value /= width;
        }
        into.push(open.unwrap_or_else(|| field.instantaneous(series.level, self.now)));
    }

    fn start_of_last(&self) -> Instant {
        Instant::from_nanos(self.width.as_nanos().saturating_mul(self.buckets as u64 - 1))
    }

    fn integrate(&mut self, until: Instant) {
        let from = self.now;
        let span = (until - from).as_nanos() as f64;
        for series in &mut self.series {
            let cooled = series.level.cooldown_until.map_or(Duration::ZERO, |end| end.min(until) - from);
            *series.last_mut(Field::InFlight) += f64::from(series.level.in_flight) * span;
            *series.last_mut(Field::InService) += f64::from(series.level.in_service) * span;
            *series.last_mut(Field::Cooling) += cooled.as_nanos() as f64;
        }
    }

    fn open_bucket(&mut self) {
        if self.buckets == MAX_BUCKETS {
            self.series.iter_mut().for_each(Series::fold);
            self.buckets /= 2;
            self.width = self.width + self.width;
        }
        for series in &mut self.series {
            for (field, column) in Field::ALL.into_iter().zip(&mut series.columns) {
                column.push(field.opening(series.level));
            }
        }
        self.buckets += 1;
    }
}

impl Series {
    fn last_mut(&mut self, field: Field) -> &mut f64 {
        self.columns[field as usize].last_mut().expect("a history always has an open bucket")
    }

    fn fold(&mut self) {
        for (field, column) in Field::ALL.into_iter().zip(&mut self.columns) {
            for pair in 0..column.len() / 2 {
                column[pair] = field.fold(column[2 * pair], column[2 * pair + 1]);
            }
            column.truncate(column.len() / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn column(telemetry: &Telemetry, field: Field) -> Vec<f64> {
        let mut values = Vec::new();
        telemetry.write_column(0, field, &mut values);
        values
    }

    fn times(telemetry: &Telemetry) -> Vec<f64> {
        let mut values = Vec::new();
        telemetry.write_times(&mut values);
        values
    }

    #[test]
    fn in_flight_is_the_mean_over_each_bucket_and_the_peak_its_maximum() {
        let mut telemetry = Telemetry::new([ProviderLevel { in_flight: 4, ..ProviderLevel::default() }]);
        telemetry.advance(Instant::from_nanos(750_000));
        telemetry.set(0, ProviderLevel { in_flight: 8, ..ProviderLevel::default() });
        telemetry.advance(ms(1));
        telemetry.set(0, ProviderLevel { in_flight: 2, ..ProviderLevel::default() });
        telemetry.advance(Instant::from_nanos(1_500_000));
        assert_eq!(column(&telemetry, Field::InFlight), [5.0, 2.0]);
        assert_eq!(column(&telemetry, Field::Peak), [8.0, 8.0]);
        assert_eq!(times(&telemetry), [0.0, 1.5]);
    }

    #[test]
    fn calls_in_service_are_the_mean_over_each_bucket_apart_from_those_in_flight() {
        let level = |in_flight, in_service| ProviderLevel { in_flight, in_service, ..ProviderLevel::default() };
        let mut telemetry = Telemetry::new([level(8, 4)]);
        telemetry.advance(Instant::from_nanos(500_000));
        telemetry.set(0, level(2, 2));
        telemetry.advance(ms(1));
        assert_eq!(column(&telemetry, Field::InFlight), [5.0, 2.0]);
        assert_eq!(column(&telemetry, Field::InService), [3.0, 2.0]);
    }

    #[test]
    fn cooling_is_the_share_of_the_bucket_before_the_cooldown_ends() {
        let until = Some(Instant::from_nanos(1_250_000));
        let mut telemetry = Telemetry::new([ProviderLevel { cooldown_until: until, ..ProviderLevel::default() }]);
        telemetry.advance(ms(3));
        assert_eq!(column(&telemetry, Field::Cooling), [1.0, 0.25, 0.0, 0.0]);
    }

    #[test]
    fn folding_keeps_every_integral_count_and_peak() {
        let mut telemetry = Telemetry::new([ProviderLevel::default()]);
        for step in 0..5_000u64 {
            telemetry.advance(ms(step));
            let in_flight = (step % 7) as u32;
            telemetry.set(
                0,
                ProviderLevel {
                    limit: step as u32,
                    in_flight,
                    in_service: in_flight,
                    capacity: 9,
                    refused: step,
                    cooldown_until: None,
                },
            );
        }
        telemetry.advance(ms(5_000));
        let (times, means) = (times(&telemetry), column(&telemetry, Field::InFlight));
        let ends = times.iter().skip(1).chain([&5_000.0]);
        let slot_ms: f64 = times.iter().zip(ends).zip(&means).map(|((start, end), mean)| (end - start) * mean).sum();
        let expected: u64 = (0..5_000u64).map(|step| step % 7).sum();
        assert_eq!(column(&telemetry, Field::InService), means, "every call was in service");
        assert!((slot_ms - expected as f64).abs() < 1.0, "{slot_ms} slot-ms on the chart, {expected} in truth");
        assert!(telemetry.buckets() <= MAX_BUCKETS);
        let counted: f64 = column(&telemetry, Field::Refused).iter().sum();
        let highest = column(&telemetry, Field::Peak).into_iter().fold(0.0, f64::max);
        assert_eq!((counted as u64, highest as u64), (4_999, 6));
        assert_eq!(column(&telemetry, Field::Limit).last(), Some(&4_999.0));
    }

    #[test]
    fn a_long_jump_of_time_costs_a_bounded_number_of_buckets() {
        let mut telemetry = Telemetry::new([ProviderLevel { in_flight: 3, ..ProviderLevel::default() }]);
        telemetry.advance(Instant::ZERO + Duration::from_secs(365 * 24 * 3_600));
        assert!(telemetry.buckets() <= MAX_BUCKETS);
        assert!(column(&telemetry, Field::InFlight).iter().all(|mean| (mean - 3.0).abs() < 1e-9));
    }

    #[test]
    fn a_bucket_that_no_time_has_entered_shows_the_present_level() {
        let mut telemetry = Telemetry::new([ProviderLevel::default()]);
        telemetry.set(0, ProviderLevel { in_flight: 5, cooldown_until: Some(ms(1)), ..ProviderLevel::default() });
        assert_eq!(column(&telemetry, Field::InFlight), [5.0]);
        assert_eq!(column(&telemetry, Field::Cooling), [1.0]);
    }
}
