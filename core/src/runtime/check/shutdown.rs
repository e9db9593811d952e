//! Checks that a runtime drops its spawned futures when it shuts down.

use alloc::sync::Arc;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll};

use super::{HostError, HostRule, panic_is_error};
use crate::runtime::Spawn;

/// Spawns a future that never ends, for a host whose runtime can shut down.
///
/// A driver reacts when its future is dropped: a gate denies its waiters, and a run ends. A driver whose
/// future is merely never polled again waits forever. A runtime that shuts down must therefore drop its
/// spawned futures. [`ShutdownWatch::check`] checks that it did.
///
/// ```
/// # #[cfg(feature = "sim")] {
/// use tidegate_core::runtime::watch_shutdown;
/// use tidegate_core::sim::executor::Executor;
///
/// let executor = Executor::new();
/// let watch = watch_shutdown(&executor.host())?;
/// executor.run_ready();
/// drop(executor);
/// watch.check()?;
/// # }
/// # Ok::<(), tidegate_core::runtime::HostError>(())
/// ```
pub fn watch_shutdown<H: Spawn<ShutdownProbe>>(host: &H) -> Result<ShutdownWatch, HostError> {
    let is_dropped = Arc::new(AtomicBool::new(false));
    let probe = ShutdownProbe(Arc::clone(&is_dropped));
    panic_is_error("a future that never ends is spawned", || host.spawn(probe))?;
    Ok(ShutdownWatch(is_dropped))
}

/// Observes a future that [`watch_shutdown`] spawned.
#[derive(Debug)]
#[must_use = "call `check` once the runtime has shut down"]
pub struct ShutdownWatch(Arc<AtomicBool>);

impl ShutdownWatch {
    /// Returns an error if the future was not dropped. Call it after the runtime has shut down.
    pub fn check(&self) -> Result<(), HostError> {
        if self.0.load(Ordering::Acquire) {
            return Ok(());
        }
        let (step, found) = ("the runtime shuts down", "a spawned future was kept");
        Err(HostError::new(HostRule::ShutdownDropsFutures, step, found, "it is dropped"))
    }
}

/// The future that [`watch_shutdown`] spawns. It never ends.
pub struct ShutdownProbe(Arc<AtomicBool>);

impl Future for ShutdownProbe {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl Drop for ShutdownProbe {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl fmt::Debug for ShutdownProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShutdownProbe").finish_non_exhaustive()
    }
}
