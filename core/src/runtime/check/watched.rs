//! A sleep of the host under check.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::task::Wake;
use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};

use super::{HostError, HostRule, panic_is_error};
use crate::time::Instant;

/// A sleep that is polled only after its own waker was woken, so a lost wake-up is detected.
///
/// Its drop catches a panic of the host, so that several panics do not abort the test.
pub(super) struct Watched<S> {
    /// `None` once the sleep has ended or was released.
    sleep: Option<Pin<Box<S>>>,
    at: Instant,
    step: String,
    /// The rule that is violated if the sleep never ends.
    rule: HostRule,
    /// The waker of the latest poll. `None` before the first.
    signal: Option<Arc<Signal>>,
}

/// Records that it was woken, and wakes the check.
struct Signal {
    is_woken: AtomicBool,
    check: Waker,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.check.wake_by_ref();
    }
}

impl<S: Future<Output = ()>> Watched<S> {
    pub(super) fn new(sleep: S, at: Instant, step: &str) -> Self {
        let rule = HostRule::SleepEnds;
        Self { sleep: Some(Box::pin(sleep)), at, step: step.into(), rule, signal: None }
    }

    /// Sets the rule that is violated if the sleep never ends.
    pub(super) fn under(mut self, rule: HostRule) -> Self {
        self.rule = rule;
        self
    }

    pub(super) fn at(&self) -> Instant {
        self.at
    }

    pub(super) fn step(&self) -> &str {
        &self.step
    }

    pub(super) fn rule(&self) -> HostRule {
        self.rule
    }

    /// Makes the next poll use another waker.
    pub(super) fn replace_waker(&mut self) {
        self.signal = None;
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, HostError> {
        let Some(sleep) = &mut self.sleep else { return Ok(Poll::Ready(())) };
        let known = self.signal.take().filter(|signal| signal.check.will_wake(context.waker()));
        let signal = known
            .unwrap_or_else(|| Arc::new(Signal { is_woken: AtomicBool::new(true), check: context.waker().clone() }));
        let is_woken = signal.is_woken.swap(false, Ordering::AcqRel);
        let waker = Waker::from(Arc::clone(&signal));
        self.signal = Some(signal);
        if !is_woken {
            return Ok(Poll::Pending);
        }
        let polled = panic_is_error(&self.step, || sleep.as_mut().poll(&mut Context::from_waker(&waker)))?;
        if polled.is_ready() {
            self.drop_sleep()?;
        }
        Ok(polled)
    }

    /// Drops the sleep.
    pub(super) fn release(mut self) -> Result<(), HostError> {
        self.drop_sleep()
    }
}

impl<S> Watched<S> {
    fn drop_sleep(&mut self) -> Result<(), HostError> {
        let sleep = self.sleep.take();
        panic_is_error(&self.step, || drop(sleep))
    }
}

impl<S> Drop for Watched<S> {
    fn drop(&mut self) {
        // An error is lost only if another one is being returned already.
        let _ = self.drop_sleep();
    }
}
