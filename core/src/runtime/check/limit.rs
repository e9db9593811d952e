//! The time limit of a check.

use core::future::Future;
use core::time::Duration;

/// The time after which a check fails: 10 s by the clock of the standard library. It only ends a check that
/// hangs.
pub const CHECK_LIMIT: Duration = Duration::from_secs(10);

/// Returns a future that is ready after [`CHECK_LIMIT`]. It is never ready where no thread can be started.
#[cfg(feature = "std")]
pub(super) fn watchdog() -> impl Future<Output = ()> {
    watchdog::Watchdog::new(CHECK_LIMIT)
}

/// Returns a future that is never ready.
#[cfg(not(feature = "std"))]
pub(super) fn watchdog() -> impl Future<Output = ()> {
    core::future::pending()
}

#[cfg(feature = "std")]
mod watchdog {
    use core::future::Future;
    use core::pin::Pin;
    use core::task::{Context, Poll, Waker};
    use core::time::Duration;

    use std::sync::mpsc::{self, RecvTimeoutError, Sender};
    use std::sync::{Arc, Mutex, PoisonError};
    use std::thread;

    /// A sleep that needs no timer of a host. It uses a separate thread, which ends with it.
    pub(super) struct Watchdog {
        limit: Duration,
        state: Arc<Mutex<State>>,
        /// The thread waits until this is dropped. `None` before the first poll, and if there is no thread.
        alive: Option<Sender<()>>,
    }

    #[derive(Default)]
    struct State {
        is_over: bool,
        waker: Option<Waker>,
    }

    impl Watchdog {
        pub(super) fn new(limit: Duration) -> Self {
            Self { limit, state: Arc::default(), alive: None }
        }
    }

    impl Future for Watchdog {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.is_over {
                return Poll::Ready(());
            }
            let is_first = state.waker.replace(context.waker().clone()).is_none();
            drop(state);
            if is_first {
                let (alive, is_alive) = mpsc::channel();
                let (limit, state) = (self.limit, Arc::clone(&self.state));
                let wait = move || {
                    if is_alive.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                        state.is_over = true;
                        let waker = state.waker.take();
                        drop(state);
                        waker.into_iter().for_each(Waker::wake);
                    }
                };
                self.alive = thread::Builder::new().spawn(wait).ok().map(|_| alive);
            }
            Poll::Pending
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::task::Wake;
        use std::thread::Thread;

        struct Unpark(Thread);

        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }

        #[test]
        fn a_watchdog_wakes_its_task_when_the_limit_is_over() {
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            let mut watchdog = core::pin::pin!(Watchdog::new(Duration::from_millis(1)));
            while watchdog.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                thread::park();
            }
        }
    }
}
