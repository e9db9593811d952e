//! The timer of a driver: a single sleep that is replaced only when its instant changes.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::runtime::Timer;
use crate::time::Instant;

pin_project! {
    pub(crate) struct Alarm<T>
    where
        T: Timer,
    {
        #[pin]
        sleep: Option<T::Sleep>,
        // The instant of `sleep`. `None` if there is no sleep.
        armed: Option<Instant>,
    }
}

impl<T: Timer> Alarm<T> {
    pub(crate) const fn new() -> Self {
        Self { sleep: None, armed: None }
    }

    /// Becomes ready at `at`, or never if `at` is `None`. A different `at` replaces the previous one.
    pub(crate) fn poll_until(
        self: Pin<&mut Self>,
        timer: &T,
        at: Option<Instant>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let mut this = self.project();
        if *this.armed != at {
            this.sleep.set(at.map(|at| timer.sleep_until(at)));
            *this.armed = at;
        }
        let Some(sleep) = this.sleep.as_mut().as_pin_mut() else { return Poll::Pending };
        if sleep.poll(context).is_pending() {
            return Poll::Pending;
        }
        this.sleep.set(None);
        *this.armed = None;
        Poll::Ready(())
    }
}
