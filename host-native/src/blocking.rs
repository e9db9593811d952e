//! Waiting for a permit on a plain thread.
//!
//! The thread is parked until its waker runs: it neither polls nor spins. A thread that drives tasks must not be parked,
//! because the very task that would give the permit back may be its own; there the answer is
//! [`BlockingError::InAsyncContext`], at once.
//!
//! tokio has no question for "may this thread block?" that does not panic, so two things it does tell are put together:
//!
//! | asked from | its scheduler takes charge of a yield | there is a budget |
//! | --- | --- | --- |
//! | a task, in either flavour of runtime | yes | yes |
//! | `block_on` that drives a current-thread runtime | yes | yes |
//! | any other `block_on` | no | yes |
//! | a thread, `spawn_blocking`, `block_in_place` | no | no |
//!
//! A future inside `tokio::task::coop::unconstrained` has no budget, so in the third line it is taken for a thread. That
//! thread drives nothing but the one future, which then waits as it asked to.

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

/// Why a thread got no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockingError {
    /// The caller runs inside a task or `block_on`, where blocking would stall whatever else the thread drives.
    #[error(
        "a blocking acquire was called in an async context, where it would stall the runtime: \
         use `gate.acquire(request).await`, or move the call into `tokio::task::spawn_blocking`"
    )]
    InAsyncContext,
    /// The gate said no.
    #[error(transparent)]
    Denied(#[from] Denial),
}

/// Acquires from threads that may block: plain ones, and those of `spawn_blocking` and `block_in_place`.
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
/// let chat = gate.with(|machine, now| {
///     machine.register(now, "provider", "model", "default", 4).and_then(|model| machine.resource(model, Domain::Chat))
/// })?;
///
/// gate.acquire_blocking(Request::new(chat))?.finish(Outcome::Success);
///
/// let refused = runtime.block_on(async { gate.acquire_blocking(Request::new(chat)).map(drop) });
/// assert_eq!(refused, Err(BlockingError::InAsyncContext));
/// # drop(inside);
/// # Ok(())
/// # }
/// ```
pub trait AcquireBlocking {
    /// Waits for a permit with the thread parked. Denied at once for a resource that was never registered; refused at
    /// once in an async context.
    ///
    /// Deadlines and cooldowns end by the gate's timer, a task of its runtime: on a current-thread runtime that nobody
    /// drives meanwhile they do not.
    fn acquire_blocking(&self, request: Request) -> Result<Permit<'_, TokioHost>, BlockingError>;

    /// The same for a permit that may outlive this handle of the gate.
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

/// Drives `acquire` on this thread, which sleeps whenever there is nothing to do.
fn block_on<T>(acquire: impl Future<Output = Result<T, Denial>>) -> Result<T, BlockingError> {
    if is_async_context() {
        return Err(BlockingError::InAsyncContext);
    }
    let parked = Arc::new(ParkedThread { thread: std::thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&parked));
    let mut context = Context::from_waker(&waker);
    let mut acquire = pin!(acquire);
    loop {
        if let Poll::Ready(answer) = acquire.as_mut().poll(&mut context) {
            return answer.map_err(BlockingError::Denied);
        }
        // A thread may return from `park` without being woken, or be unparked for something else.
        while !parked.is_woken.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

/// A thread, and whether the future it waits for wants to be polled.
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

/// Whether this thread drives tasks just now.
fn is_async_context() -> bool {
    has_scheduler() || has_budget()
}

/// Whether a yield here would be the business of tokio's scheduler: it keeps the waker for its next turn. Anywhere else
/// the waker is run at once.
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

/// Whether what runs here may take only so many steps before it must yield. Leaves the budget as it was.
fn has_budget() -> bool {
    /// More than any budget: tokio counts them in a byte.
    const STEPS: usize = 256;
    let mut context = Context::from_waker(Waker::noop());
    if !has_budget_remaining() {
        return true;
    }
    // When this one is dropped the budget is again what it was before it.
    let Poll::Ready(_restores) = poll_proceed(&mut context) else { return true };
    (1..STEPS).any(|_| match poll_proceed(&mut context) {
        Poll::Ready(step) => {
            step.made_progress();
            !has_budget_remaining()
        }
        Poll::Pending => true,
    })
}
