//! The async driver of request admission: `acquire().await` returns a permit, and the permit is always
//! released.
//!
//! A [`Gate`] puts one [`RequestAdmission`] behind a lock. Every command takes the same steps: read the clock
//! if the command depends on the time, take the lock, pass the command to the machine, store the resulting
//! answers, release the lock, and then wake. No waker and no code of the host runs under the lock, so a waker
//! may call back into the gate.
//!
//! A panicking waker does not prevent other waiters from being woken, and loses no permit and no place in the
//! queue. With the feature `std`, the panic resumes in the caller once every other waker has run, and is
//! dropped if the thread is already unwinding. Without `std`, the other wakers run while the panic unwinds.
//!
//! No task polls. A waiter is woken when its own answer is ready. Time reaches the machine through one
//! [`GateTimer`], which sleeps until the machine's next deadline and is woken only when that deadline becomes
//! earlier.
//!
//! A [`Permit`] borrows the gate, an [`OwnedPermit`] keeps it alive, and [`Gate::run`] manages the permit
//! internally.

mod acquire;
pub(crate) mod alarm;
mod classify;
mod control;
mod health_calls;
mod permit;
mod run;
pub(crate) mod runs;
mod shared;
mod sharing;
mod timer;
mod waiter_slab;

use alloc::sync::Arc;
use core::fmt;
use core::future::Future;

pub use acquire::{Acquire, AcquireOf, AcquireOwned};
pub use classify::Classify;
pub use control::GateControl;
pub use health_calls::HealthCalls;
pub use permit::{GateRef, OwnedPermit, Permit, PermitOf};
pub use run::{ByResult, Run};
pub use sharing::SharedLimit;
pub use timer::GateTimer;

use crate::observe::Sinks;
use crate::replay::Recorded;
use crate::request::{
    AfterCall, Completion, Denial, DenialReason, Request, RequestAdmission, ResourceId, ResourceSnapshot, ResourceStats,
};
use crate::runtime::{Host, Spawn};
use crate::time::Instant;
use crate::yielding::TaskToken;
use shared::Shared;

/// Decides when a call may start, and learns from its outcome. Clones are handles to the same gate.
pub struct Gate<H: Host> {
    shared: Arc<Shared<H>>,
}

impl<H: Host> Gate<H> {
    /// Creates a gate in front of `machine`, and spawns the gate's one timer on `host`.
    ///
    /// If the host drops that timer while the gate is in use, for example when a runtime shuts down, the gate
    /// shuts down as well. Every waiter and every later request is then denied with
    /// [`DenialReason::Shutdown`], because no deadline can be met without a timer.
    pub fn new(host: H, machine: impl Into<Recorded<RequestAdmission>>) -> Self
    where
        H: Spawn<GateTimer<H>>,
    {
        let shared = Shared::new(host, machine.into());
        let timer = GateTimer::new(shared.host.clone(), Arc::downgrade(&shared));
        shared.host.spawn(timer);
        Self { shared }
    }

    /// Waits for a permit for `request`. The request is made at the first poll of the returned future.
    /// Dropping the future at any moment leaks nothing.
    #[inline]
    pub fn acquire(&self, request: Request) -> Acquire<'_, H> {
        AcquireOf::new(self, request)
    }

    /// Waits for a permit that may outlive this handle, like [`Gate::acquire`]. Costs one reference count.
    #[inline]
    pub fn acquire_owned(&self, request: Request) -> AcquireOwned<H> {
        AcquireOf::new(self.clone(), request)
    }

    /// Returns a permit or a denial at once. Never overtakes a waiter that could be granted.
    #[inline]
    pub fn try_acquire(&self, request: Request) -> Result<Permit<'_, H>, Denial> {
        self.try_acquire_permit(&request)
    }

    /// Returns a permit that may outlive this handle, like [`Gate::try_acquire`]. Costs one reference count.
    #[inline]
    pub fn try_acquire_owned(&self, request: Request) -> Result<OwnedPermit<H>, Denial> {
        self.try_acquire_permit(&request).map(|permit| PermitOf::new(self.clone(), permit.into_lease()))
    }

    /// Waits for a permit, makes `call`, and finishes the permit with the outcome that the result of `call`
    /// represents.
    ///
    /// Returns the output of `call`, or the denial. `call` is not polled before the permit is granted. If the
    /// future is dropped half-way, the permit is released as local cancelled.
    ///
    /// The call is made once, also if it is rate limited or fails. To repeat it, call `run` again with a
    /// [repeated](Request::repeated) request, which waits until the cooldown is over.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] {
    /// # use tidegate_core::gate::Gate;
    /// # use tidegate_core::request::{Domain, Outcome, RequestAdmission, RequestConfig};
    /// # use tidegate_core::sim::executor::Executor;
    /// use tidegate_core::request::Request;
    /// # let runtime = Executor::new();
    /// # let gate = Gate::new(runtime.host(), RequestAdmission::new(RequestConfig::default())?);
    /// # let chat = gate.with(|machine, now| {
    /// #     let model = machine.register(now, "provider", "model", "default", 4)?;
    /// #     machine.resource(model, Domain::Chat)
    /// # })?;
    /// # let answer = runtime.block_on(async {
    /// // `Outcome`, or the error type of your client: see `Classify`.
    /// async fn ask(question: &str) -> Result<String, Outcome> {
    ///     Ok(format!("you asked: {question}"))
    /// }
    ///
    /// let answer = gate.run(Request::new(chat), ask("why?")).await.expect("the gate is open");
    /// assert_eq!(answer, Ok("you asked: why?".to_owned()));
    ///
    /// // A closure can classify results that have no error type.
    /// let length = gate
    ///     .run_with(Request::new(chat), async { 3 }, |length| match length {
    ///         0 => Outcome::ProviderFailure.into(),
    ///         _ => Outcome::Success.into(),
    ///     })
    ///     .await;
    /// # assert_eq!(length, Ok(3));
    /// # });
    /// # answer.expect("nothing waits forever");
    /// # }
    /// # Ok::<(), tidegate_core::error::ConfigError>(())
    /// ```
    pub fn run<F>(&self, request: Request, call: F) -> Run<'_, H, F, ByResult<F>>
    where
        F: Future,
        F::Output: Classify,
    {
        self.run_with(request, call, F::Output::completion)
    }

    /// Makes `call` like [`Gate::run`], with a closure that returns how the call ended.
    pub fn run_with<F, C>(&self, request: Request, call: F, classify: C) -> Run<'_, H, F, C>
    where
        F: Future,
        C: FnOnce(&F::Output) -> Completion,
    {
        Run::new(self.acquire(request), call, classify)
    }

    /// Makes a call and repeats it after a failure in an outage. However long the outage lasts, the call is
    /// made once the provider is back.
    ///
    /// `attempt` is called once for each try, when the try may start. Its argument is the resource to call:
    /// the resource of the request, or one of its [fallbacks](RequestAdmission::fallbacks). `token` is the
    /// token of the task that makes the call, if there is one: see [`AcquireOf::for_task`]. The timeout of
    /// the request applies to each try. If the future is dropped half-way, the permit is released as local
    /// cancelled.
    ///
    /// Returns the output of the last try, including a failure that is not due to an outage. This is also the
    /// result if a retry is denied with [`DenialReason::RequestAtFault`].
    ///
    /// # Errors
    ///
    /// Returns the denial if a try is denied for another reason. The reason is [`DenialReason::Unavailable`]
    /// while the provider or model is unavailable. The caller should then keep the work for another time.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] {
    /// # use tidegate_core::gate::Gate;
    /// # use tidegate_core::request::{Domain, RequestAdmission, RequestConfig};
    /// # use tidegate_core::sim::executor::Executor;
    /// use tidegate_core::request::{Outcome, Request};
    /// # let runtime = Executor::new();
    /// # let gate = Gate::new(runtime.host(), RequestAdmission::new(RequestConfig::default())?);
    /// # let chat = gate.with(|machine, now| {
    /// #     let model = machine.register(now, "provider", "model", "default", 4)?;
    /// #     machine.resource(model, Domain::Chat)
    /// # })?;
    /// # let answer = runtime.block_on(async {
    /// let mut tries = 0;
    /// let answer = gate
    ///     .run_through_outages(Request::new(chat), None, |_resource| {
    ///         tries += 1;
    ///         let is_up = tries > 7;
    ///         async move { if is_up { Ok("an answer") } else { Err(Outcome::ConnectionFailed) } }
    ///     })
    ///     .await;
    /// # answer
    /// # });
    /// # let answer = answer.expect("nothing waits forever");
    /// assert_eq!(answer, Ok(Ok("an answer")));
    /// # }
    /// # Ok::<(), tidegate_core::error::ConfigError>(())
    /// ```
    pub async fn run_through_outages<F, Fut>(
        &self,
        request: Request,
        token: Option<TaskToken>,
        mut attempt: F,
    ) -> Result<Fut::Output, Denial>
    where
        F: FnMut(ResourceId) -> Fut,
        Fut: Future,
        Fut::Output: Classify,
    {
        let (mut retry, mut failed) = (None, None);
        loop {
            let permit = match self.acquire(request).with_retry(retry).for_task(token).await {
                Ok(permit) => permit,
                Err(denial) if denial.reason == DenialReason::RequestAtFault => return failed.ok_or(denial),
                Err(denial) => return Err(denial),
            };
            let output = attempt(permit.resource()).await;
            match permit.finish_call(output.completion()) {
                AfterCall::Final => return Ok(output),
                AfterCall::Retry(again) => (retry, failed) = (Some(again), Some(output)),
                // The next request is denied, unless there is a fallback or the provider was reopened since.
                AfterCall::Unavailable => {}
            }
        }
    }

    /// Runs `command` on the request admission, for everything but calls: to register, to change settings, to
    /// take events and to read. The results are delivered once `command` returns.
    ///
    /// `command` runs under the gate's lock: it must be short, and must not call back into the gate. If it
    /// panics, the changes that it made until then are delivered.
    pub fn with<R>(&self, command: impl FnOnce(&mut GateControl<'_>, Instant) -> R) -> R {
        self.shared.command(|state, now| command(&mut GateControl(&mut state.machine), now))
    }

    /// Makes the limits of this gate count the time of [`Clock::suspended`](crate::time::Clock::suspended)
    /// from now on. It has no effect on a limit whose
    /// [`set_suspended`](crate::limit::LimitAlgorithm::set_suspended) does nothing.
    ///
    /// [`SharedLimit::install`] calls this. Call it before you install a
    /// [`MemberHandle`](crate::share::MemberHandle) by [`GateControl::set_algorithm`]. From then on, each
    /// command that reads the clock makes one more reading, outside the lock.
    pub fn count_suspended(&self) {
        self.shared.count_suspended();
    }

    /// Emits the pending events to `sinks`, outside the lock.
    ///
    /// Events are recorded after a call of [`set_interest`](RequestAdmission::set_interest). Call this method
    /// often enough that at most [`MAX_PENDING`](crate::event::MAX_PENDING) events are pending. Without
    /// interest, events cost nothing.
    pub fn feed(&self, sinks: &mut Sinks) {
        sinks.feed(|requests, _| self.shared.take_events(requests));
    }

    /// Returns a handle with which the host makes health calls for the provider and model of `resource`.
    ///
    /// The calls use `resource` itself, most often one of the domain
    /// [`Healthcheck`](crate::request::Domain::Healthcheck). Create at most one handle for each provider and
    /// model. Dropping the handle ends the health calls.
    pub fn health_calls(&self, resource: ResourceId) -> HealthCalls<H> {
        HealthCalls::new(self.clone(), resource)
    }

    /// Returns the state of one resource, or `None` if it is not registered. Changes nothing.
    #[must_use]
    pub fn snapshot(&self, resource: ResourceId) -> Option<ResourceSnapshot> {
        self.shared.read_now(|machine, now| machine.snapshot(now, resource))
    }

    /// Returns the figures of one resource that change with each call, or `None` if it is not registered.
    /// Changes nothing. Cheaper than [`Gate::snapshot`].
    #[must_use]
    pub fn stats(&self, resource: ResourceId) -> Option<ResourceStats> {
        self.shared.read_now(|machine, now| machine.stats(now, resource))
    }

    /// Returns the host that the gate runs on. A run that calls through the gate uses the same host.
    #[must_use]
    pub fn host(&self) -> &H {
        &self.shared.host
    }

    /// Denies every waiter and every later request. Existing permits stay valid.
    pub fn shutdown(&self) {
        self.shared.command(|state, now| state.machine.shutdown(now));
    }
}

impl<H: Host> Clone for Gate<H> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<H: Host> fmt::Debug for Gate<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}
