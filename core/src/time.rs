//! Monotonic time in integer nanoseconds.
//!
//! The core never reads a clock: every command takes `now`. [`Instant`] counts nanoseconds since an origin
//! that the clock defines, so equal inputs give equal outputs on every target. Arithmetic saturates, and
//! nothing here panics.

use core::cell::Cell;
use core::fmt;
use core::ops::{Add, AddAssign, Sub};

use alloc::rc::Rc;

/// Nanoseconds in one second.
const NANOS_PER_SEC: u64 = 1_000_000_000;

/// A point in monotonic time: nanoseconds since the clock's origin. Covers 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Instant(u64);

/// A span of time in nanoseconds. Covers 584 years; arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Duration(u64);

impl Instant {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);
    /// An instant that no clock reaches, used for "never".
    pub const MAX: Self = Self(u64::MAX);

    /// Returns the instant `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub for Instant {
    type Output = Duration;
    /// Returns [`Instant::saturating_duration_since`].
    fn sub(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Duration(self.0).fmt(f)
    }
}

impl Duration {
    /// The empty span.
    pub const ZERO: Self = Self(0);
    /// The longest span.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates a span from whole nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Creates a span from whole microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// Creates a span from whole milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Creates a span from whole seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(NANOS_PER_SEC))
    }

    /// Creates a span of `secs` seconds, rounded to the nearest nanosecond. Returns `None` if `secs` is
    /// negative, not finite or too large.
    #[must_use]
    pub fn try_from_secs_f64(secs: f64) -> Option<Self> {
        let nanos = secs * 1e9 + 0.5;
        // 2^64 is exact as a double, and so is the comparison.
        (secs >= 0.0 && nanos < 18_446_744_073_709_551_616.0).then_some(Self(nanos as u64))
    }

    /// Returns the span in nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the span in seconds, rounded to a double.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns whether the span is empty.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl From<core::time::Duration> for Duration {
    fn from(span: core::time::Duration) -> Self {
        Self(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Duration> for core::time::Duration {
    fn from(span: Duration) -> Self {
        Self::from_nanos(span.0)
    }
}

impl fmt::Display for Duration {
    /// Formats the span with three decimal places in the largest fitting unit: `1.500s`, `20.000ms`,
    /// `5.000us`, `17ns`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            NANOS_PER_SEC.. => (NANOS_PER_SEC, "s"),
            1_000_000.. => (1_000_000, "ms"),
            1_000.. => (1_000, "us"),
            _ => return write!(f, "{}ns", self.0),
        };
        // The product is below 10^12.
        let thousandths = self.0 % unit * 1_000 / unit;
        write!(f, "{}.{thousandths:03}{name}", self.0 / unit)
    }
}

/// A source of monotonic time.
///
/// Implementations MUST never go backwards within one process. Every machine of the crate, such as
/// [`RequestAdmission`](crate::request::RequestAdmission), replaces a `now` that goes backwards by the latest
/// instant that it was given, and counts it, for example in
/// [`RequestAdmission::clock_regressions`](crate::request::RequestAdmission::clock_regressions).
///
/// # Clocks that can be set
///
/// A clock that jumps forward and back, such as the time of day, does harm for as long as the jump was. For
/// example, a jump of one day has these effects:
///
/// - The next command with the new time does everything that was due within the day. Waiters whose timeout
///   is within it are denied, cooldowns end, and retries are due. A jump has no effect if the clock has gone
///   back before.
/// - After the clock goes back, the time of the machines stands still until the clock reaches the next day.
///   Everything that waits for an instant is delayed by a day: the end of a cooldown that began after the
///   jump, the refill of a rate, a timeout, a retry.
/// - Everything that waits for no instant continues. A call starts at once if there is room for it, and a
///   released slot goes to the next waiter.
///
/// No lease is lost or duplicated, and all effects end when the clock has caught up. A host should read a
/// clock that cannot be set:
/// [`std::time::Instant`](https://doc.rust-lang.org/std/time/struct.Instant.html), `CLOCK_MONOTONIC`,
/// `performance.now()`, or a tick counter. If there is no such clock, the host adds up the steps of the
/// clock it has and ignores steps that are negative or implausibly long.
pub trait Clock {
    /// Returns the present instant.
    fn now(&self) -> Instant;

    /// Returns for how long the machine was suspended so far, as far as [`Clock::now`] does not count it. It
    /// need not be exact, and should not fall. The default is zero: the clock counts this time, or a machine
    /// is not suspended.
    ///
    /// Only the leases of limits that are [shared](crate::share) use it. See
    /// [`Gate::count_suspended`](crate::gate::Gate::count_suspended).
    fn suspended(&self) -> Duration {
        Duration::ZERO
    }
}

/// A clock that moves only when [`advance`](Self::advance) or [`set`](Self::set) is called. Clones share
/// one time.
///
/// ```
/// use tidegate_core::time::{Clock, Duration, ManualClock};
/// let clock = ManualClock::new();
/// let clock_of_the_machine = clock.clone();
/// clock.advance(Duration::from_secs(2));
/// assert_eq!(clock_of_the_machine.now().as_nanos(), 2_000_000_000);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    now: Rc<Cell<Instant>>,
}

impl ManualClock {
    /// Creates a clock at [`Instant::ZERO`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock forward by `span`.
    pub fn advance(&self, span: Duration) {
        self.now.set(self.now.get() + span);
    }

    /// Sets the clock to `at`, which may be in its past. A test can use this to check how code reacts to a
    /// clock that goes backwards.
    pub fn set(&self, at: Instant) {
        self.now.set(at);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        self.now.get()
    }
}

/// Makes injected time monotonic: a `now` before the latest instant is replaced by the latest and counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Monotonic {
    latest: Instant,
    regressions: u64,
}

impl Monotonic {
    /// Returns the later of `now` and the latest instant given so far.
    #[inline]
    pub(crate) fn observe(&mut self, now: Instant) -> Instant {
        if now < self.latest {
            self.regressions += 1;
        } else {
            self.latest = now;
        }
        self.latest
    }

    /// Returns the result that [`Monotonic::observe`] would have, without counting anything.
    #[inline]
    pub(crate) fn peek(&self, now: Instant) -> Instant {
        self.latest.max(now)
    }

    /// Returns the latest instant given so far.
    #[inline]
    pub(crate) fn latest(&self) -> Instant {
        self.latest
    }

    /// Returns how often time went backwards.
    pub(crate) fn regressions(&self) -> u64 {
        self.regressions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Instant::MAX + Duration::from_secs(1), Instant::MAX);
        assert_eq!(Instant::ZERO - Instant::MAX, Duration::ZERO);
        assert_eq!(Duration::from_secs(u64::MAX), Duration::MAX);
    }

    #[test]
    fn seconds_convert_to_the_nearest_nanosecond_or_not_at_all() {
        assert_eq!(Duration::try_from_secs_f64(1.5), Some(Duration::from_millis(1_500)));
        assert_eq!(Duration::try_from_secs_f64(0.3e-3), Some(Duration::from_micros(300)));
        for rejected in [-1.0, f64::NAN, f64::INFINITY, 1e12] {
            assert_eq!(Duration::try_from_secs_f64(rejected), None);
        }
    }

    #[test]
    fn a_clock_that_runs_backwards_is_clamped_and_counted() {
        let mut time = Monotonic::default();
        let later = Instant::from_nanos(10);
        assert_eq!(time.observe(later), later);
        assert_eq!(time.observe(Instant::from_nanos(3)), later);
        assert_eq!(time.regressions(), 1);
    }

    #[test]
    fn durations_are_displayed_in_their_largest_unit() {
        for (nanos, text) in [(17, "17ns"), (5_000, "5.000us"), (20_000_000, "20.000ms"), (1_500_000_000, "1.500s")] {
            assert_eq!(Duration::from_nanos(nanos).to_string(), text);
        }
    }
}
