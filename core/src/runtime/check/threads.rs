//! Checks of a host that is used on several threads.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::string::{String, ToString};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration as StdDuration;

use lock_api::Mutex as HostMutex;

use super::limit::watchdog;
use super::watched::Watched;
use super::{Check, HostError, HostRule, panic_is_error};
use crate::runtime::Host;
use crate::time::{Duration, Instant};

/// Checks a host that is used on several threads. A permit may be dropped, and a timer armed, on a thread
/// that does not belong to the executor.
///
/// The check covers these rules: a task that another thread woke is polled; another thread can read the clock
/// and create, poll and drop sleeps; both threads read the same clock; the lock excludes between threads.
/// Limits and panics are handled as in [`check_host`](super::check_host), which should pass first.
pub async fn check_threads<H>(host: H) -> Result<(), HostError>
where
    H: Host<Lock: Send + Sync + 'static, Sleep: Send + 'static> + Send + 'static,
{
    check_threads_within(host, watchdog()).await
}

/// Runs [`check_threads`] with a time limit of the caller: the check fails once `limit` is ready.
pub async fn check_threads_within<H>(host: H, limit: impl Future<Output = ()>) -> Result<(), HostError>
where
    H: Host<Lock: Send + Sync + 'static, Sleep: Send + 'static> + Send + 'static,
{
    let mut check = Check { host, limit: pin!(limit) };

    // The delay is long enough for the executor to park meanwhile.
    let step = "a thread wakes the task that awaits the check after 2ms";
    check.on_other_thread(step, |_| thread::sleep(StdDuration::from_millis(2))).await?;

    let step = "another thread reads the clock, and makes and drops sleeps";
    let before = check.now(step)?;
    let (there, sleep) = check
        .on_other_thread(step, |host| {
            let mut far = std::boxed::Box::pin(host.sleep_until(Instant::MAX));
            let _ = far.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            drop(far);
            let now = host.now();
            (now, host.sleep_until(now + Duration::from_millis(1)))
        })
        .await?;
    let after = check.now(step)?;
    if !(before..=after).contains(&there) {
        let found = std::format!("{}ns there", there.as_nanos());
        let expected = std::format!("{}ns to {}ns, as here before and after", before.as_nanos(), after.as_nanos());
        return Err(HostError::new(HostRule::ClockNeverGoesBack, step, found, expected));
    }
    let at = there + Duration::from_millis(1);
    let mut sleep = Watched::new(sleep, at, "a sleep of 1ms that another thread made");
    check.end_of(&mut sleep).await?;
    sleep.release()?;

    let step = "another thread tries the lock while it is held, and after";
    let lock = Arc::new(HostMutex::<H::Lock, ()>::new(()));
    for (is_held, expected) in [(true, "no guard"), (false, "a guard")] {
        let lock_of_other = Arc::clone(&lock);
        let guard = is_held.then(|| lock.lock());
        // A guard must not be held across an await, so the other thread is joined here.
        let tried = thread::spawn(move || lock_of_other.try_lock().is_some()).join();
        drop(guard);
        if tried.is_ok_and(|is_acquired| is_acquired == is_held) {
            let found = if is_held { "it was acquired twice" } else { "it stayed locked" };
            return Err(HostError::new(HostRule::LockExcludes, step, found, expected));
        }
    }
    Ok(())
}

/// The result of a thread, and the waker of the task that waits for it.
type Handoff<T> = Arc<Mutex<(Option<Result<T, HostError>>, Option<Waker>)>>;

impl<H: Host + Send + 'static, L: Future<Output = ()>> Check<'_, H, L> {
    /// Waits for a thread that runs `code` and then wakes this task.
    async fn on_other_thread<T: Send + 'static>(
        &mut self,
        step: &'static str,
        code: impl FnOnce(&H) -> T + Send + 'static,
    ) -> Result<T, HostError> {
        let handoff: Handoff<T> = Arc::default();
        let mut start = Some((self.host.clone(), Arc::clone(&handoff), code));
        self.wait(step, HostRule::WakesFromOtherThreads, move |context| {
            let mut shared = handoff.lock().unwrap_or_else(PoisonError::into_inner);
            shared.1 = Some(context.waker().clone());
            let result = shared.0.take();
            drop(shared);
            if let Some((host, handoff, code)) = start.take() {
                let run = move || {
                    let result = panic_is_error(step, || code(&host));
                    let mut shared = handoff.lock().unwrap_or_else(PoisonError::into_inner);
                    shared.0 = Some(result);
                    let waker = shared.1.take();
                    drop(shared);
                    waker.into_iter().for_each(Waker::wake);
                };
                thread::Builder::new().spawn(run).map_err(|error| {
                    let found: String = error.to_string();
                    HostError::new(HostRule::WakesFromOtherThreads, step, found, "a thread")
                })?;
            }
            result.transpose().map(|value| value.map_or(Poll::Pending, Poll::Ready))
        })
        .await
    }
}
