//! The future that advances the time of a gate's machine.

use alloc::sync::Weak;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::alarm::Alarm;
use super::shared::Shared;
use crate::runtime::Host;

/// The number of ticks in one poll before it yields to other tasks. Without this limit, a sleep that ends
/// early or a machine with much work at one instant could block the executor.
const ROUNDS: usize = 16;

pin_project! {
    /// The one timer of a [`Gate`](super::Gate), spawned by [`Gate::new`](super::Gate::new).
    ///
    /// It keeps one sleep, armed for the gate's next deadline, regardless of the number of waiters. It does
    /// not keep the gate alive: it ends when the last handle, permit and acquire of the gate is dropped. A
    /// host that drops the timer earlier shuts the gate down.
    #[must_use = "a gate without its timer denies every request"]
    pub struct GateTimer<H>
    where
        H: Host,
    {
        shared: Weak<Shared<H>>,
        host: H,
        #[pin]
        alarm: Alarm<H>,
    }

    impl<H: Host> PinnedDrop for GateTimer<H> {
        fn drop(this: Pin<&mut Self>) {
            // Without a timer no deadline would be met and no cooldown would end. Denied waiters are better
            // than stuck ones.
            if let Some(shared) = this.shared.upgrade() {
                shared.command(|state, now| state.machine.shutdown(now));
            }
        }
    }
}

impl<H: Host> GateTimer<H> {
    pub(super) fn new(host: H, shared: Weak<Shared<H>>) -> Self {
        Self { shared, host, alarm: Alarm::new() }
    }
}

impl<H: Host> fmt::Debug for GateTimer<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateTimer").finish_non_exhaustive()
    }
}

impl<H: Host> Future for GateTimer<H> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        for _ in 0..ROUNDS {
            // Held only during the tick. If this is the last handle, dropping it wakes this future, which
            // then ends.
            let Some(shared) = this.shared.upgrade() else { return Poll::Ready(()) };
            let next = shared.tick(context.waker());
            drop(shared);
            core::task::ready!(this.alarm.as_mut().poll_until(this.host, next, context));
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
