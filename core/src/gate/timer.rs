//! The future that tells a gate's machine about time.

use alloc::sync::Weak;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::alarm::Alarm;
use super::shared::Shared;
use crate::runtime::Host;

/// How often one poll fires before it lets others run. A sleep that ends early, or a machine with much to do
/// at one instant, then costs turns of the executor and never the executor itself.
const ROUNDS: usize = 16;

pin_project! {
    /// The one timer of a [`Gate`](super::Gate), spawned by [`Gate::new`](super::Gate::new).
    ///
    /// It keeps one sleep, armed for the gate's next deadline, however many waiters there are. It does not
    /// keep the gate alive: it ends when the last handle, permit and acquire of the gate is gone. A host that
    /// drops it earlier shuts the gate down.
    #[must_use = "a gate without its timer refuses everybody"]
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
            // Without a timer no deadline would be kept and no cooldown would end: refused is better than
            // stuck.
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

impl<H: Host> Future for GateTimer<H> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        for _ in 0..ROUNDS {
            // Held only while ticking: if it turns out to be the last handle, dropping it wakes this future
            // to its end.
            let Some(shared) = this.shared.upgrade() else { return Poll::Ready(()) };
            let next = shared.tick(context.waker());
            drop(shared);
            core::task::ready!(this.alarm.as_mut().poll_until(this.host, next, context));
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
