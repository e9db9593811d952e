//! The tokio runtime as the host of the core: its clock, timer and tasks, and the mutex of `parking_lot`.

use std::future::Future;
use std::time::Duration as StdDuration;

use tidegate_core::runtime::{Host, Spawn, Timer};
use tidegate_core::time::{Clock, Instant};
use tokio::runtime::{Handle, TryCurrentError};

/// A [`Host`] on a tokio runtime. Clones share one clock.
///
/// Time starts at 0 when the host is created and follows tokio's clock, so a test with paused time runs in
/// virtual time. The host works on any thread: it keeps a [`Handle`] of its runtime, because a permit may be
/// dropped, and a timer armed, outside of it.
///
/// ```
/// use tidegate_core::gate::Gate;
/// use tidegate_core::request::{RequestAdmission, RequestConfig};
/// use tidegate_native::host::TokioHost;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let gate = Gate::new(TokioHost::current()?, RequestAdmission::new(RequestConfig::default())?);
/// # drop(gate);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TokioHost {
    runtime: Handle,
    origin: tokio::time::Instant,
}

impl TokioHost {
    /// Creates a host on the current tokio runtime.
    ///
    /// # Errors
    ///
    /// The caller does not run inside a tokio runtime.
    pub fn current() -> Result<Self, TryCurrentError> {
        let runtime = Handle::try_current()?;
        Ok(Self { runtime, origin: tokio::time::Instant::now() })
    }
}

#[cfg(feature = "share")]
impl TokioHost {
    /// Spawns a task on the runtime of the host, also from outside of it.
    pub(crate) fn spawn_task(&self, task: impl Future<Output = ()> + Send + 'static) -> tokio::task::JoinHandle<()> {
        self.runtime.spawn(task)
    }
}

impl Clock for TokioHost {
    fn now(&self) -> Instant {
        let elapsed = tokio::time::Instant::now().saturating_duration_since(self.origin);
        Instant::ZERO + elapsed.into()
    }

    #[cfg(feature = "share")]
    fn suspended(&self) -> tidegate_core::time::Duration {
        crate::suspend::suspended()
    }
}

impl Timer for TokioHost {
    type Sleep = tokio::time::Sleep;

    fn sleep_until(&self, at: Instant) -> tokio::time::Sleep {
        /// 30 years: beyond the life of any process, and within the range of tokio's timer.
        const MAX_WAIT: StdDuration = StdDuration::from_hours(30 * 365 * 24);
        let _inside = self.runtime.enter();
        let wait = StdDuration::from_nanos(at.as_nanos()).min(MAX_WAIT);
        tokio::time::sleep_until(self.origin + wait)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Spawn<F> for TokioHost {
    fn spawn(&self, future: F) {
        drop(self.runtime.spawn(future));
    }
}

impl Host for TokioHost {
    type Lock = parking_lot::RawMutex;
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::runtime::{check_host, check_spawn, check_threads};
    use tidegate_core::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn the_host_passes_the_core_checks_in_virtual_time() {
        let host = TokioHost::current().unwrap();
        assert_eq!(check_host(host.clone()).await, Ok(()));
        assert_eq!(check_spawn(host).await, Ok(()));
    }

    #[tokio::test]
    async fn the_host_passes_the_core_checks_on_a_current_thread_runtime() {
        let host = TokioHost::current().unwrap();
        assert_eq!(check_host(host.clone()).await, Ok(()));
        assert_eq!(check_spawn(host.clone()).await, Ok(()));
        assert_eq!(check_threads(host).await, Ok(()));
    }

    #[cfg(feature = "cli")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_host_passes_the_core_checks_on_a_multi_thread_runtime() {
        let host = TokioHost::current().unwrap();
        assert_eq!(check_host(host.clone()).await, Ok(()));
        assert_eq!(check_spawn(host.clone()).await, Ok(()));
        assert_eq!(check_threads(host).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleep_ends_at_its_instant_in_virtual_time() {
        let host = TokioHost::current().unwrap();
        host.sleep_until(Instant::ZERO + Duration::from_secs(3_600)).await;
        assert_eq!(host.now(), Instant::ZERO + Duration::from_secs(3_600));
        host.sleep_until(Instant::ZERO).await;
        assert_eq!(host.now(), Instant::ZERO + Duration::from_secs(3_600));
    }

    #[tokio::test]
    async fn a_sleep_until_the_last_instant_can_be_created_outside_the_runtime() {
        let host = TokioHost::current().unwrap();
        std::thread::spawn(move || drop(host.sleep_until(Instant::MAX))).join().unwrap();
    }

    #[test]
    fn creating_a_host_outside_a_runtime_fails() {
        assert!(TokioHost::current().is_err());
    }
}
