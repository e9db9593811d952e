//! The async face of request admission: `acquire().await` gives a permit, and the permit comes back whatever happens.
//!
//! A [`Gate`] puts one [`RequestAdmission`] behind a lock and drives it: the clock is read before the lock is taken, if
//! anything in play depends on it, one command is given, its effects are put in the slots of their waiters, the
//! lock is opened, and only then are wakers run. No waker and no code of the host runs under the lock, so a waker may
//! call straight back into the gate.
//!
//! Nobody polls. A waiter is woken when its own answer is there; time reaches the machine through one [`GateTimer`],
//! which sleeps until the machine's next deadline and is woken only when that moves forward.
//!
//! A [`Permit`] borrows the gate, an [`OwnedPermit`] keeps it alive, and [`Gate::run`] keeps the permit to itself.

mod acquire;
pub(crate) mod alarm;
mod classify;
mod permit;
mod run;
mod runs;
pub(crate) mod shared;
mod timer;
mod waiter_slab;

use alloc::sync::Arc;
use core::fmt;
use core::future::Future;

pub use acquire::{Acquire, AcquireOf, AcquireOwned};
pub use classify::Classify;
pub use permit::{GateRef, OwnedPermit, Permit, PermitOf};
pub use run::{ByResult, Run};
pub use timer::GateTimer;

use crate::observe::Sinks;
use crate::request::{Completion, Denial, Request, RequestAdmission, ResourceId, ResourceSnapshot};
use crate::runtime::{Host, Spawn};
use crate::time::Instant;
use shared::Shared;

/// Decides when a call may go out, and learns from what became of it. Clones are the same gate.
pub struct Gate<H: Host> {
    pub(crate) shared: Arc<Shared<H>>,
}

impl<H: Host> Gate<H> {
    /// A gate in front of `machine`. Spawns the gate's one timer on `host`.
    ///
    /// Should the host drop that timer while the gate is in use, as a runtime does that shuts down, the gate shuts down
    /// with it: everybody who waits is refused with [`DenialReason::Shutdown`](crate::request::DenialReason::Shutdown)
    /// and so is everybody who asks later. Nobody is left waiting for a deadline that no timer keeps.
    pub fn new(host: H, machine: RequestAdmission) -> Self
    where
        H: Spawn<GateTimer<H>>,
    {
        let shared = Shared::new(host, machine);
        let timer = GateTimer::new(shared.host.clone(), Arc::downgrade(&shared));
        shared.host.spawn(timer);
        Self { shared }
    }

    /// A permit, as soon as it is this request's turn. The returned future asks at its first poll; dropping it at any
    /// moment leaks nothing.
    #[inline]
    pub fn acquire(&self, request: Request) -> Acquire<'_, H> {
        AcquireOf::new(self, request)
    }

    /// The same for a permit that may outlive this handle, at the cost of one reference count.
    #[inline]
    pub fn acquire_owned(&self, request: Request) -> AcquireOwned<H> {
        AcquireOf::new(self.clone(), request)
    }

    /// A permit at once or not at all. Never overtakes a waiter of the same provider and model.
    #[inline]
    pub fn try_acquire(&self, request: Request) -> Result<Permit<'_, H>, Denial> {
        self.shared.try_ask(&request).map(|lease| PermitOf::new(self, lease))
    }

    /// The same for a permit that may outlive this handle, at the cost of one reference count.
    #[inline]
    pub fn try_acquire_owned(&self, request: Request) -> Result<OwnedPermit<H>, Denial> {
        self.shared.try_ask(&request).map(|lease| PermitOf::new(self.clone(), lease))
    }

    /// Makes `call` as soon as it is this request's turn, and finishes the permit with what its result says.
    ///
    /// `call` is not polled before. Answers its output, or the denial. Dropped half-way, the permit is released as local
    /// cancelled.
    ///
    /// ```
    /// # use tidegate_core::gate::Gate;
    /// # use tidegate_core::request::{Domain, Outcome, RequestAdmission, RequestConfig};
    /// # use tidegate_core::sim::executor::Executor;
    /// use tidegate_core::request::Request;
    /// # let runtime = Executor::<parking_lot::RawMutex>::new();
    /// # let gate = Gate::new(runtime.host(), RequestAdmission::new(RequestConfig::default())?);
    /// # let chat = gate.with(|machine, now| {
    /// #     machine.register(now, "provider", "model", "default", 4).and_then(|model| machine.resource(model, Domain::Chat))
    /// # })?;
    /// # let answer = runtime.block_on(async {
    /// // `Outcome`, or whatever error your client has: see `Classify`.
    /// async fn ask(question: &str) -> Result<String, Outcome> {
    ///     Ok(format!("you asked: {question}"))
    /// }
    ///
    /// let answer = gate.run(Request::new(chat), ask("why?")).await.expect("the gate is open");
    /// assert_eq!(answer, Ok("you asked: why?".to_owned()));
    ///
    /// // Where the result does not say it all, a closure does.
    /// let length = gate
    ///     .run_with(Request::new(chat), async { 3 }, |length| match length {
    ///         0 => Outcome::ProviderFailure.into(),
    ///         _ => Outcome::Success.into(),
    ///     })
    ///     .await;
    /// # assert_eq!(length, Ok(3));
    /// # });
    /// # answer.expect("nothing waits for ever");
    /// # Ok::<(), tidegate_core::error::ConfigError>(())
    /// ```
    pub fn run<F>(&self, request: Request, call: F) -> Run<'_, H, F, ByResult<F>>
    where
        F: Future,
        F::Output: Classify,
    {
        self.run_with(request, call, F::Output::completion)
    }

    /// The same with a closure that says how the call ended.
    pub fn run_with<F, C>(&self, request: Request, call: F, classify: C) -> Run<'_, H, F, C>
    where
        F: Future,
        C: FnOnce(&F::Output) -> Completion,
    {
        Run::new(self.acquire(request), call, classify)
    }

    /// Gives the machine any other command, such as a registration, and delivers what follows from it.
    ///
    /// `command` runs under the gate's lock: it must be short, and must not call back into the gate.
    pub fn with<R>(&self, command: impl FnOnce(&mut RequestAdmission, Instant) -> R) -> R {
        self.shared.command(|state, now| command(&mut state.machine, now))
    }

    /// Hands the events that wait to `sinks`, outside the lock. They are made once somebody asked for them, with
    /// [`set_interest`](RequestAdmission::set_interest); call this often enough that no more than
    /// [`MAX_PENDING`](crate::event::MAX_PENDING) wait. A gate that nobody listens to pays nothing for it.
    pub fn feed(&self, sinks: &mut Sinks) {
        sinks.feed(|requests, _| self.shared.take_events(requests));
    }

    /// The state of one resource; `None` for one that this gate does not know. Changes nothing.
    #[must_use]
    pub fn snapshot(&self, resource: ResourceId) -> Option<ResourceSnapshot> {
        let now = self.shared.host.now();
        self.shared.read(|state| state.machine.snapshot(now, resource))
    }

    /// The host it runs on, as a run that calls [through](crate::driver::run_through) it needs it.
    #[must_use]
    pub fn host(&self) -> &H {
        &self.shared.host
    }

    /// Refuses everybody who waits and everybody who asks from now on. Permits that are out stay valid.
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
