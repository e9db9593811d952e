//! The time for which the machine was suspended, which tokio's clock does not count.

use tidegate_core::time::Duration;

/// Returns for how long the machine was suspended since the first call, in steps of milliseconds.
///
/// Linux counts it as the difference of two clocks. They are not read at the same instant, so less than a
/// second counts as nothing. On other systems it is zero: a lease then lasts for its time in use.
#[cfg(target_os = "linux")]
pub(crate) fn suspended() -> Duration {
    use std::sync::OnceLock;

    use rustix::time::{ClockId, clock_gettime};

    /// The least time that counts, in milliseconds.
    const LEAST_MS: i64 = 1_000;
    static AT_FIRST_MS: OnceLock<i64> = OnceLock::new();

    let read_ms = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec.saturating_mul(1_000).saturating_add(time.tv_nsec / 1_000_000)
    };
    let ahead = read_ms(ClockId::Boottime) - read_ms(ClockId::Monotonic);
    let suspended = ahead - AT_FIRST_MS.get_or_init(|| ahead);
    if suspended < LEAST_MS { Duration::ZERO } else { Duration::from_millis(suspended.unsigned_abs()) }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn suspended() -> Duration {
    Duration::ZERO
}
