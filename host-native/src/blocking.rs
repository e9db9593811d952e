//! Acquiring permits on plain threads, without `await`.
//!
//! [`AcquireBlocking`] parks the thread until its permit is granted: no polling and no spinning. A thread
//! that drives asynchronous tasks must not be parked, because the task that would release the permit may be
//! one of its own. There the methods return [`BlockingError::InAsyncContext`] at once.
//!
//! tokio has no way to ask whether the current thread may block that does not panic, so two observations are
//! combined:
//!
//! | caller | its scheduler keeps the waker of a yield | there is a cooperative budget |
//! | --- | --- | --- |
//! | a task, in either flavour of runtime | yes | yes |
//! | `block_on` that drives a current-thread runtime | yes | yes |
//! | any other `block_on` | no | yes |
//! | a plain thread, `spawn_blocking`, `block_in_place` | no | no |
//!
//! A future inside `tokio::task::coop::unconstrained` has no budget, so in the third row it counts as a plain
//! thread. Blocking is harmless there: the thread drives nothing but that one future.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use tidegate_core::gate::{Gate, OwnedPermit, Permit};
use tidegate_core::request::{Denial, Request};
use tokio::task::coop::{has_budget_remaining, poll_proceed};
use tokio::task::yield_now;

use crate::host::TokioHost;

/// The reason why a blocking acquire returned no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockingError {
    /// The caller runs inside a task or `block_on`, where blocking would stall everything else on the thread.
    #[error(
        "a blocking acquire was called in an async context, where it would stall the runtime: \
         use `gate.acquire(request).await`, or move the call into `tokio::task::spawn_blocking`"
    )]
    InAsyncContext,
    /// The gate denied the request.
    #[error(transparent)]
    Denied(#[from] Denial),
}

/// Acquires permits on threads that may block: plain threads, and those of `spawn_blocking` and
/// `block_in_place`.
///
/// ```
/// use tidegate_core::gate::Gate;
/// use tidegate_core::request::{Domain, Outcome, Request, RequestAdmission, RequestConfig};
/// use tidegate_native::blocking::{AcquireBlocking, BlockingError};
/// use tidegate_native::host::TokioHost;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
/// let inside = runtime.enter();
/// let gate = Gate::new(TokioHost::current()?, RequestAdmission::new(RequestConfig::default())?);
/// let chat = gate.with(|control, now| {
///     let model = control.register(now, "acme", "large", "default", 4)?;
///     control.resource(model, Domain::Chat)
/// })?;
///
/// gate.acquire_blocking(Request::new(chat))?.finish(Outcome::Success);
///
/// // Inside the runtime it returns an error instead of blocking.
/// let result = runtime.block_on(async { gate.acquire_blocking(Request::new(chat)).map(drop) });
/// assert_eq!(result, Err(BlockingError::InAsyncContext));
/// # drop(inside);
/// # Ok(())
/// # }
/// ```
pub trait AcquireBlocking {
    /// Parks the thread until a permit for `request` is granted, and returns the permit.
    ///
    /// Deadlines and cooldowns are timed by a task of the gate's runtime. On a current-thread runtime that no
    /// thread drives meanwhile, they do not pass.
    ///
    /// # Errors
    ///
    /// [`BlockingError::InAsyncContext`] at once inside a task or `block_on`; [`BlockingError::Denied`] if
    /// the gate denies the request.
    fn acquire_blocking(&self, request: Request) -> Result<Permit<'_, TokioHost>, BlockingError>;

    /// Returns a permit that keeps the gate alive. Otherwise it acts as
    /// [`acquire_blocking`](Self::acquire_blocking).
    ///
    /// # Errors
    ///
    /// Those of [`acquire_blocking`](Self::acquire_blocking).
    fn acquire_owned_blocking(&self, request: Request) -> Result<OwnedPermit<TokioHost>, BlockingError>;
}

impl AcquireBlocking for Gate<TokioHost> {
    fn acquire_blocking(&self, request: Request) -> Result<Permit<'_, TokioHost>, BlockingError> {
        block_on(self.acquire(request))
    }

    fn acquire_owned_blocking(&self, request: Request) -> Result<OwnedPermit<TokioHost>, BlockingError> {
        block_on(self.acquire_owned(request))
    }
}

/// Drives `acquire` on this thread, which is parked while the future is pending.
fn block_on<T>(acquire: impl Future<Output = Result<T, Denial>>) -> Result<T, BlockingError> {
    if is_async_context() {
        return Err(BlockingError::InAsyncContext);
    }
    let parked = Arc::new(ParkedThread { thread: std::thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&parked));
    let mut context = Context::from_waker(&waker);
    let mut acquire = pin!(acquire);
    loop {
        if let Poll::Ready(result) = acquire.as_mut().poll(&mut context) {
            return result.map_err(BlockingError::Denied);
        }
        // `park` may return spuriously, or because other code unparked the thread.
        while !parked.is_woken.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

/// A parked thread, and whether its future was woken.
struct ParkedThread {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for ParkedThread {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Returns whether the current thread drives asynchronous tasks.
fn is_async_context() -> bool {
    has_scheduler() || has_budget()
}

/// Returns whether a tokio scheduler handles a yield on this thread. It keeps the waker until its next turn;
/// without a scheduler the waker is called at once.
fn has_scheduler() -> bool {
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let flag = Arc::new(Flag(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&flag));
    let polled = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
    polled.is_pending() && !flag.0.load(Ordering::Relaxed)
}

/// Returns whether tokio's cooperative budget applies on this thread. Leaves the budget unchanged.
fn has_budget() -> bool {
    /// More than any budget: tokio stores it in a byte.
    const STEPS: usize = 256;
    let mut context = Context::from_waker(Waker::noop());
    if !has_budget_remaining() {
        return true;
    }
    // Dropping the first step restores the budget from before it.
    let Poll::Ready(_restore_on_drop) = poll_proceed(&mut context) else { return true };
    (1..STEPS).any(|_| match poll_proceed(&mut context) {
        Poll::Ready(step) => {
            step.made_progress();
            !has_budget_remaining()
        }
        Poll::Pending => true,
    })
}
