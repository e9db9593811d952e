//! tokio as the host: its clock, its timer, its tasks, and the mutex of `parking_lot`.

use std::future::Future;
use std::time::Duration as StdDuration;

use tidegate_core::runtime::{Host, Spawn, Timer};
use tidegate_core::time::{Clock, Instant};
use tokio::runtime::{Handle, TryCurrentError};

/// A tokio runtime as the core sees it. Time starts at 0 when the host is made, and follows tokio's clock, so a test
/// with paused time runs in virtual time.
///
/// It keeps a [`Handle`], because a permit may be dropped, and a timer armed, on a thread outside the runtime.
#[derive(Clone, Debug)]
pub struct TokioHost {
    runtime: Handle,
    origin: tokio::time::Instant,
}

impl TokioHost {
    /// A host on the runtime that the caller runs in.
    ///
    /// Fails outside a runtime.
    pub fn current() -> Result<Self, TryCurrentError> {
        let runtime = Handle::try_current()?;
        Ok(Self { runtime, origin: tokio::time::Instant::now() })
    }
}

impl Clock for TokioHost {
    fn now(&self) -> Instant {
        let elapsed = tokio::time::Instant::now().saturating_duration_since(self.origin);
        Instant::ZERO + elapsed.into()
    }
}

impl Timer for TokioHost {
    type Sleep = tokio::time::Sleep;

    fn sleep_until(&self, at: Instant) -> tokio::time::Sleep {
        /// Later than any process lives, and within what tokio's timer can represent.
        const FAR: StdDuration = StdDuration::from_hours(30 * 365 * 24);
        let _inside = self.runtime.enter();
        let wait = StdDuration::from_nanos(at.as_nanos()).min(FAR);
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
    async fn the_host_keeps_the_rules_in_virtual_time() {
        let host = TokioHost::current().unwrap();
        assert_eq!(check_host(host.clone()).await, Ok(()));
        assert_eq!(check_spawn(host).await, Ok(()));
    }

    #[tokio::test]
    async fn the_host_keeps_the_rules_on_one_thread_and_beside_others() {
        let host = TokioHost::current().unwrap();
        assert_eq!(check_host(host.clone()).await, Ok(()));
        assert_eq!(check_spawn(host.clone()).await, Ok(()));
        assert_eq!(check_threads(host).await, Ok(()));
    }

    #[cfg(feature = "cli")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_host_keeps_the_rules_on_several_threads() {
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
    async fn a_sleep_until_never_is_harmless_also_from_a_foreign_thread() {
        let host = TokioHost::current().unwrap();
        std::thread::spawn(move || drop(host.sleep_until(Instant::MAX))).join().unwrap();
    }

    #[test]
    fn outside_a_runtime_there_is_no_host() {
        assert!(TokioHost::current().is_err());
    }
}
