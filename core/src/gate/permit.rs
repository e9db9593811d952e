//! Permits, borrowed and owned, over one implementation.

use core::fmt;

use super::Gate;
use crate::budget::RateLimitFeedback;
use crate::lease::LeaseId;
use crate::request::{AfterCall, Completion, Outcome, RequestLease, ResourceId};
use crate::runtime::Host;

/// A gate by reference or by handle: `&Gate<H>` or `Gate<H>`. It determines whether a permit is borrowed or
/// owned.
///
/// The trait is sealed, because a permit must be released to the gate that granted it.
pub trait GateRef: sealed::Sealed {
    /// The host of the gate.
    type Host: Host;

    /// Returns the gate.
    fn gate(&self) -> &Gate<Self::Host>;
}

impl<H: Host> GateRef for &Gate<H> {
    type Host = H;

    #[inline]
    fn gate(&self) -> &Gate<H> {
        self
    }
}

impl<H: Host> GateRef for Gate<H> {
    type Host = H;

    #[inline]
    fn gate(&self) -> &Gate<H> {
        self
    }
}

mod sealed {
    pub trait Sealed {}

    impl<H: super::Host> Sealed for &super::Gate<H> {}
    impl<H: super::Host> Sealed for super::Gate<H> {}
}

/// A permit that borrows its gate: the result of [`Gate::acquire`] and [`Gate::try_acquire`].
pub type Permit<'a, H> = PermitOf<&'a Gate<H>>;

/// A permit that keeps its gate alive: the result of [`Gate::acquire_owned`] and
/// [`Gate::try_acquire_owned`].
pub type OwnedPermit<H> = PermitOf<Gate<H>>;

/// The right to make one call. Release it with [`PermitOf::finish`] and the outcome of the call.
///
/// A permit that is dropped, by an early return, a cancelled future or a panic, is released as local
/// cancelled.
#[must_use = "a permit that is dropped releases its slot at once"]
pub struct PermitOf<G: GateRef> {
    gate: G,
    /// `None` once it is released.
    lease: Option<RequestLease>,
}

impl<G: GateRef> PermitOf<G> {
    #[inline]
    pub(super) fn new(gate: G, lease: Option<RequestLease>) -> Self {
        Self { gate, lease }
    }

    /// Returns the resource to call: the resource of the request, or one of its
    /// [fallbacks](crate::request::RequestAdmission::fallbacks).
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "only `finish` and `drop` take the lease")]
    pub fn resource(&self) -> ResourceId {
        self.lease.as_ref().expect("a permit has its lease until it is finished").resource()
    }

    /// Returns the lease id, for commands of the machine: see [`Gate::with`].
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "only `finish` and `drop` take the lease")]
    pub fn lease(&self) -> LeaseId {
        self.lease.as_ref().expect("a permit has its lease until it is finished").id()
    }

    /// Returns whether the call may be sent now.
    ///
    /// It is `false` only if the limit is a [share](crate::share) whose lease has lapsed since the grant, for
    /// example because the process was suspended. [`AcquireOf`](super::AcquireOf) has checked it. Check it
    /// again if something else was awaited between the permit and the first byte of the call. If it is
    /// `false`, drop the permit and acquire another.
    #[must_use]
    pub fn may_send(&self) -> bool {
        self.gate.gate().shared.may_send(self.resource())
    }

    /// Applies the rate limits that an answer states, as in
    /// [`RequestAdmission::rate_limit_feedback`](crate::request::RequestAdmission::rate_limit_feedback). Call
    /// it as soon as the headers of the answer are available, and before [`Self::finish`].
    pub fn rate_limit_feedback(&self, corrections: &[RateLimitFeedback]) {
        if let Some(lease) = self.lease.as_ref().filter(|_| !corrections.is_empty()) {
            self.gate.gate().with(|machine, now| machine.rate_limit_feedback(now, lease.id(), corrections));
        }
    }

    /// Releases the slot and reports how the call ended.
    ///
    /// # Panics
    ///
    /// Panics when the waker of a waiter panics, after the slot is released and every other waiter is woken.
    #[inline]
    pub fn finish(mut self, completion: impl Into<Completion>) {
        self.release(&completion.into());
    }

    /// Releases the slot, reports how the call ended, and returns what to do next. For a caller that repeats
    /// a call which failed in an outage, with [`AcquireOf::with_retry`](super::AcquireOf::with_retry).
    ///
    /// ```
    /// # #[cfg(feature = "sim")] {
    /// # use tidegate_core::gate::Gate;
    /// # use tidegate_core::request::{Domain, HealthConfig, RequestAdmission, RequestConfig};
    /// # use tidegate_core::sim::executor::Executor;
    /// use tidegate_core::request::{AfterCall, Outcome, Request};
    /// # let runtime = Executor::new();
    /// # let config = RequestConfig { health: Some(HealthConfig::default()), ..RequestConfig::default() };
    /// # let gate = Gate::new(runtime.host(), RequestAdmission::new(config)?);
    /// # let chat = gate.with(|machine, now| {
    /// #     let model = machine.register(now, "provider", "model", "default", 4)?;
    /// #     machine.resource(model, Domain::Chat)
    /// # })?;
    /// # let mut failures = 7;
    /// # let mut call = || {
    /// #     failures -= 1;
    /// #     if failures < 0 { Outcome::Success } else { Outcome::ConnectionFailed }
    /// # };
    /// # let answer = runtime.block_on(async {
    /// // However long an outage lasts, the call is made once the provider is back.
    /// let mut retry = None;
    /// loop {
    ///     let permit = match gate.acquire(Request::new(chat)).with_retry(retry).await {
    ///         Ok(permit) => permit,
    ///         Err(denial) => break Err(denial.reason),
    ///     };
    ///     let outcome = call();
    ///     match permit.finish_call(outcome) {
    ///         AfterCall::Final => break Ok(outcome),
    ///         AfterCall::Retry(again) => retry = Some(again),
    ///         // The next acquire is denied, or returns a permit for a fallback.
    ///         AfterCall::Unavailable => {}
    ///     }
    /// }
    /// # });
    /// # assert_eq!(answer, Ok(Ok(Outcome::Success)));
    /// # }
    /// # Ok::<(), tidegate_core::error::ConfigError>(())
    /// ```
    pub fn finish_call(mut self, completion: impl Into<Completion>) -> AfterCall {
        match self.lease.take() {
            Some(lease) => self.gate.gate().shared.finish(lease, &completion.into()),
            None => AfterCall::Final,
        }
    }

    /// Takes the lease, for a permit over another reference to the same gate.
    #[inline]
    pub(super) fn into_lease(mut self) -> Option<RequestLease> {
        self.lease.take()
    }

    #[inline]
    fn release(&mut self, completion: &Completion) {
        if let Some(lease) = self.lease.take() {
            self.gate.gate().shared.release(lease, completion);
        }
    }
}

impl<G: GateRef> Drop for PermitOf<G> {
    #[inline]
    fn drop(&mut self) {
        if self.lease.is_some() {
            self.release(&Outcome::LocalCancelled.into());
        }
    }
}

impl<G: GateRef> fmt::Debug for PermitOf<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("lease", &self.lease).finish_non_exhaustive()
    }
}
