//! Checks that a host follows the rules of [`runtime`](super). They are for tests written by the host's
//! author.
//!
//! Errors in a host often show late. A timer that rounds down makes a driver spin. A timer that panics on a
//! far instant does so when a provider first states one. A spawner that drops futures stops a run. Each check
//! is an `async fn` that the author awaits on the host's own executor. It takes a few milliseconds of the
//! host's time.
//!
//! A sleep is polled again only after its own waker was woken, so a lost wake-up is detected. A limit bounds
//! the wait for something that never happens: see [`check_host`].

mod limit;
mod shutdown;
mod spawn;
#[cfg(feature = "std")]
mod threads;
mod watched;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::{Context, Poll};

use lock_api::{Mutex, RawMutex};

pub use limit::CHECK_LIMIT;
use limit::watchdog;
pub use shutdown::{ShutdownProbe, ShutdownWatch, watch_shutdown};
pub use spawn::{SpawnProbe, check_spawn, check_spawn_within};
#[cfg(feature = "std")]
pub use threads::{check_threads, check_threads_within};
use watched::Watched;

use super::Host;
use crate::panics;
use crate::time::{Duration, Instant};

/// A rule of [`runtime`](super) that a check found violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HostRule {
    /// The clock never goes backwards.
    ClockNeverGoesBack,
    /// The lock is held by at most one guard at a time, and is released when its guard is dropped.
    LockExcludes,
    /// A sleep until an instant in the past ends at once.
    PastSleepEndsAtOnce,
    /// A sleep never ends before its instant.
    SleepNeverEndsEarly,
    /// A sleep ends once its instant has come, and wakes the waker of its latest poll.
    SleepEnds,
    /// A sleep until an instant that is centuries away stays pending.
    FarSleepStaysPending,
    /// A dropped sleep does not affect others.
    DroppedSleepIsHarmless,
    /// The code of the host never panics.
    HostNeverPanics,
    /// A spawned future runs to its end, concurrently with others.
    SpawnedFutureRuns,
    /// A spawned future is not dropped before its end while the executor runs.
    SpawnedFutureIsKept,
    /// A runtime that shuts down drops its spawned futures.
    ShutdownDropsFutures,
    /// A task that is woken on another thread is polled.
    WakesFromOtherThreads,
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClockNeverGoesBack => "the clock never goes back",
            Self::LockExcludes => "the lock is held by one guard at a time",
            Self::PastSleepEndsAtOnce => "a sleep until an instant in the past ends at once",
            Self::SleepNeverEndsEarly => "a sleep never ends before its instant",
            Self::SleepEnds => "a sleep ends once its instant has come",
            Self::FarSleepStaysPending => "a sleep until a far instant is pending",
            Self::DroppedSleepIsHarmless => "a sleep that is dropped does not affect others",
            Self::HostNeverPanics => "no code of the host panics",
            Self::SpawnedFutureRuns => "a spawned future runs to its end",
            Self::SpawnedFutureIsKept => "a spawned future is not dropped before its end",
            Self::ShutdownDropsFutures => "a runtime that shuts down drops its spawned futures",
            Self::WakesFromOtherThreads => "a task that is woken on another thread is polled",
        })
    }
}

/// The error of a host that violates a rule of [`runtime`](super).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {found}, expected {expected} (the rule: {rule})")]
#[non_exhaustive]
pub struct HostError {
    /// The violated rule.
    pub rule: HostRule,
    /// The action of the check.
    pub step: String,
    /// The result of the action.
    pub found: String,
    /// The expected result.
    pub expected: String,
}

impl HostError {
    fn new(rule: HostRule, step: &str, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { rule, step: step.into(), found: found.into(), expected: expected.into() }
    }
}

/// Checks the clock, the timer and the lock of `host`. Await it on the executor that the host is made for.
///
/// The check covers these rules:
///
/// - The clock never goes backwards, and the lock excludes.
/// - A sleep never ends early, and a sleep until an instant in the past ends at once.
/// - A sleep wakes the waker of its latest poll, in whatever order sleeps end.
/// - A sleep may be dropped at any time, polled or not, without an effect on others.
/// - A sleep until a far instant, up to `u64::MAX` nanoseconds, neither panics nor ends at once.
///
/// With the feature `std`, a panic of the host is an error of the check, and a check that takes longer than
/// [`CHECK_LIMIT`] ends with an error, so a timer that never fires cannot hang the test. A separate thread
/// enforces the limit. Without threads (without `std`, or in a browser), bound the check with
/// [`check_host_within`]. Neither of them bounds code of the host that blocks its thread.
///
/// [`check_spawn`] checks the spawner, [`watch_shutdown`] checks that spawned futures are dropped when the
/// runtime shuts down, and `check_threads` (feature `std`) checks a host that is used on several threads.
///
/// ```
/// # #[cfg(feature = "sim")] {
/// use tidegate_core::runtime::check_host;
/// use tidegate_core::sim::executor::Executor;
///
/// let executor = Executor::new();
/// let checked = executor.block_on(check_host(executor.host()));
/// assert_eq!(checked, Ok(Ok(())));
/// # }
/// ```
pub async fn check_host<H: Host>(host: H) -> Result<(), HostError> {
    check_host_within(host, watchdog()).await
}

/// Runs [`check_host`] with a time limit of the caller: the check fails once `limit` is ready.
///
/// `limit` may be a sleep of another timer that is known to work, or a future from the executor.
pub async fn check_host_within<H: Host>(host: H, limit: impl Future<Output = ()>) -> Result<(), HostError> {
    let mut check = Check { host, limit: pin!(limit) };
    check.clock()?;
    check_lock::<H::Lock>()?;
    check.past_sleeps().await?;
    check.near_sleeps().await?;
    check.sleeps_together().await?;
    check.latest_waker().await?;
    check.dropped_sleeps().await?;
    check.far_sleeps().await
}

/// A check of one host.
struct Check<'a, H, L> {
    host: H,
    limit: Pin<&'a mut L>,
}

impl<H: Host, L: Future<Output = ()>> Check<'_, H, L> {
    fn clock(&self) -> Result<(), HostError> {
        let step = "the clock is read a thousand times";
        let mut latest = self.now(step)?;
        for _ in 0..1_000 {
            let now = self.now(step)?;
            if now < latest {
                let found = format!("{}ns after {}ns", now.as_nanos(), latest.as_nanos());
                return Err(HostError::new(HostRule::ClockNeverGoesBack, step, found, "no earlier instant"));
            }
            latest = now;
        }
        Ok(())
    }

    async fn past_sleeps(&mut self) -> Result<(), HostError> {
        /// Much later than "at once".
        const LATER: Duration = Duration::from_millis(50);
        let now = self.now("the clock is read")?;
        for at in [Instant::ZERO, now] {
            let step = format!("a sleep until {}ns at {}ns", at.as_nanos(), now.as_nanos());
            let mut sleep = self.sleep(at, &step)?;
            let mut later = self.sleep(now + LATER, "a sleep of 50ms beside it")?;
            let ended = self
                .wait(&step, HostRule::PastSleepEndsAtOnce, |context| {
                    if sleep.poll(context)?.is_ready() {
                        return Ok(Poll::Ready(true));
                    }
                    if later.poll(context)?.is_pending() {
                        return Ok(Poll::Pending);
                    }
                    // On a machine that was suspended meanwhile, both may be due, in any order.
                    sleep.replace_waker();
                    Ok(Poll::Ready(sleep.poll(context)?.is_ready()))
                })
                .await?;
            if !ended {
                let found = "it was pending when a sleep of 50ms had ended";
                return Err(HostError::new(HostRule::PastSleepEndsAtOnce, &step, found, "it ends at once"));
            }
            sleep.release()?;
            later.release()?;
        }
        Ok(())
    }

    /// Checks spans on both sides of whole microseconds and milliseconds, where timers round.
    async fn near_sleeps(&mut self) -> Result<(), HostError> {
        for nanos in [1, 999, 1_001, 999_999, 1_000_000, 1_000_001, 1_500_000, 2_999_999] {
            let step = format!("a sleep of {nanos}ns");
            let mut sleep = self.sleep(self.now(&step)? + Duration::from_nanos(nanos), &step)?;
            self.end_of(&mut sleep).await?;
            sleep.release()?;
        }
        Ok(())
    }

    /// Checks several sleeps together. A timer with one alarm for all sleeps must set it again.
    async fn sleeps_together(&mut self) -> Result<(), HostError> {
        let now = self.now("the clock is read")?;
        let mut sleeps = Vec::new();
        for millis in [3, 1, 2, 2] {
            let step = format!("a sleep of {millis}ms beside sleeps of 3ms, 1ms, 2ms and 2ms");
            sleeps.push(self.sleep(now + Duration::from_millis(millis), &step)?);
        }
        self.end_of_all(sleeps).await
    }

    async fn latest_waker(&mut self) -> Result<(), HostError> {
        let step = "a sleep of 2ms that is polled with one waker, then with another";
        let at = self.now(step)? + Duration::from_millis(2);
        let mut sleep = self.sleep(at, step)?;
        poll_fn(|context| Poll::Ready(sleep.poll(context).map(drop))).await?;
        sleep.replace_waker();
        self.end_of(&mut sleep).await?;
        sleep.release()
    }

    async fn dropped_sleeps(&mut self) -> Result<(), HostError> {
        let step = "a sleep that is dropped before it is polled";
        let at = self.now(step)? + Duration::from_millis(2);
        self.sleep(at, step)?.release()?;

        // The dropped sleep is the first, the middle and the last of three.
        for dropped in 0..3 {
            let step = "a sleep of 1ms beside one that is dropped";
            let at = self.now(step)? + Duration::from_millis(1);
            let mut sleeps = Vec::new();
            for _ in 0..3 {
                sleeps.push(self.sleep(at, step)?.under(HostRule::DroppedSleepIsHarmless));
            }
            poll_fn(|context| Poll::Ready(sleeps.iter_mut().try_for_each(|sleep| sleep.poll(context).map(drop))))
                .await?;
            sleeps.remove(dropped).release()?;
            self.end_of_all(sleeps).await?;
        }
        Ok(())
    }

    /// Checks far instants, including those at which 32-bit milliseconds and signed nanoseconds wrap.
    async fn far_sleeps(&mut self) -> Result<(), HostError> {
        let now = self.now("the clock is read")?;
        let after_millis = |millis| now + Duration::from_millis(millis);
        let instants = [
            after_millis(1 << 31),
            after_millis(1 << 32),
            Instant::from_nanos(i64::MAX as u64),
            Instant::from_nanos(i64::MAX as u64 + 1),
            Instant::from_nanos(u64::MAX - 1),
            Instant::MAX,
        ];
        let mut sleeps = Vec::new();
        for at in instants {
            sleeps.push(self.sleep(at, &format!("a sleep until {}ns", at.as_nanos()))?);
        }
        let step = "a sleep of 2ms beside sleeps until far instants";
        let mut near = self.sleep(now + Duration::from_millis(2), step)?;
        self.wait(step, HostRule::SleepEnds, |context| {
            for sleep in &mut sleeps {
                if sleep.poll(context)?.is_ready() {
                    let (found, expected) = ("it ended within milliseconds", "it is pending");
                    return Err(HostError::new(HostRule::FarSleepStaysPending, sleep.step(), found, expected));
                }
            }
            near.poll(context)
        })
        .await?;
        sleeps.into_iter().try_for_each(Watched::release)?;
        near.release()?;

        // A timer whose thread ended because of the far sleeps fails here.
        let step = "a sleep of 1ms after sleeps until far instants";
        let mut sleep = self.sleep(self.now(step)? + Duration::from_millis(1), step)?;
        self.end_of(&mut sleep).await?;
        sleep.release()
    }
}

fn check_lock<R: RawMutex>() -> Result<(), HostError> {
    let step = "the lock is taken with `try_lock` while it is held, and after";
    let lock = Mutex::<R, u32>::new(0);
    let (while_held, after) = panic_is_error(step, || {
        let guard = lock.lock();
        let while_held = lock.try_lock().is_some();
        drop(guard);
        *lock.lock() += 1;
        (while_held, lock.try_lock().is_some_and(|count| *count == 1))
    })?;
    let broken = |found| Err(HostError::new(HostRule::LockExcludes, step, found, "no guard, then a guard"));
    match (while_held, after) {
        (false, true) => Ok(()),
        (true, _) => broken("it was acquired twice"),
        (false, false) => broken("it stayed locked"),
    }
}

/// The building blocks of the checks.
impl<H: Host, L: Future<Output = ()>> Check<'_, H, L> {
    fn now(&self, step: &str) -> Result<Instant, HostError> {
        panic_is_error(step, || self.host.now())
    }

    fn sleep(&self, at: Instant, step: &str) -> Result<Watched<H::Sleep>, HostError> {
        Ok(Watched::new(panic_is_error(step, || self.host.sleep_until(at))?, at, step))
    }

    async fn end_of_all(&mut self, mut sleeps: Vec<Watched<H::Sleep>>) -> Result<(), HostError> {
        // All sleeps are armed before the first one is awaited.
        poll_fn(|context| Poll::Ready(sleeps.iter_mut().try_for_each(|sleep| sleep.poll(context).map(drop)))).await?;
        for mut sleep in sleeps {
            self.end_of(&mut sleep).await?;
            sleep.release()?;
        }
        Ok(())
    }

    /// Waits until `sleep` has ended, and checks that this was not too early.
    async fn end_of(&mut self, sleep: &mut Watched<H::Sleep>) -> Result<(), HostError> {
        let step = String::from(sleep.step());
        self.wait(&step, sleep.rule(), |context| sleep.poll(context)).await?;
        let now = self.now(&step)?;
        if now < sleep.at() {
            let found = format!("it ended at {}ns", now.as_nanos());
            let expected = format!("no end before {}ns", sleep.at().as_nanos());
            return Err(HostError::new(HostRule::SleepNeverEndsEarly, &step, found, expected));
        }
        Ok(())
    }

    /// Waits until `poll` is ready. `rule` is violated if the limit is over first. The limit is polled first,
    /// because its end may be what woke the task: what is ready by then came without a wake.
    async fn wait<T>(
        &mut self,
        step: &str,
        rule: HostRule,
        mut poll: impl FnMut(&mut Context<'_>) -> Result<Poll<T>, HostError>,
    ) -> Result<T, HostError> {
        poll_fn(|context| match self.limit.as_mut().poll(context) {
            Poll::Ready(()) => {
                let found = "nothing had happened when the limit of the check was over";
                Poll::Ready(Err(HostError::new(rule, step, found, "an end")))
            }
            Poll::Pending => match poll(context) {
                Ok(poll) => poll.map(Ok),
                Err(error) => Poll::Ready(Err(error)),
            },
        })
        .await
    }
}

/// Runs code of the host. With the feature `std`, a panic becomes an error.
fn panic_is_error<T>(step: &str, code: impl FnOnce() -> T) -> Result<T, HostError> {
    panics::catch("it panicked", code)
        .map_err(|found| HostError::new(HostRule::HostNeverPanics, step, found, "no panic"))
}
