//! The async face of request admission: `acquire().await` gives a permit, and the permit comes back whatever happens.
//!
//! A [`Gate`] puts one [`RequestAdmission`] behind a lock and drives it: the clock is read before the lock is taken,
//! one command is given, its effects are put in the seats of those they are for, the lock is opened, and only then are
//! wakers run. No waker and no code of the host runs under the lock, so a waker may call straight back into the gate.
//!
//! Nobody polls. A waiter is woken when its own answer is there; time reaches the machine through one [`GateTimer`],
//! which sleeps until the machine's next deadline and is woken only when that moves forward.

mod acquire;
pub(crate) mod alarm;
mod shared;
mod timer;

use alloc::sync::Arc;
use core::fmt;

pub use acquire::Acquire;
pub use timer::GateTimer;

use crate::executor::{Host, Spawn};
use crate::request::{
    Completion, Denial, Outcome, Request, RequestAdmission, RequestLease, ResourceId, ResourceSnapshot,
};
use crate::time::Instant;
use shared::Shared;

/// Decides when a call may go out, and learns from what became of it. Clones are the same gate.
pub struct Gate<H: Host> {
    shared: Arc<Shared<H>>,
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
    pub fn acquire(&self, request: Request) -> Acquire<H> {
        Acquire::new(Arc::clone(&self.shared), request)
    }

    /// A permit at once or not at all. Never overtakes a waiter of the same provider and model.
    pub fn try_acquire(&self, request: Request) -> Result<Permit<H>, Denial> {
        let lease = self.shared.command(|state, now| state.machine.try_acquire(now, &request))?;
        Ok(Permit::new(Arc::clone(&self.shared), lease))
    }

    /// Gives the machine any other command, such as a registration, and delivers what follows from it.
    ///
    /// `command` runs under the gate's lock: it must be short, and must not call back into the gate.
    pub fn with<R>(&self, command: impl FnOnce(&mut RequestAdmission, Instant) -> R) -> R {
        self.shared.command(|state, now| command(&mut state.machine, now))
    }

    /// The state of one resource; `None` for one that this gate does not know. Changes nothing.
    #[must_use]
    pub fn snapshot(&self, resource: ResourceId) -> Option<ResourceSnapshot> {
        let now = self.shared.host.now();
        self.shared.read(|state| state.machine.snapshot(now, resource))
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

/// The right to make one call. Give it back with [`Permit::finish`] and what became of the call.
///
/// A permit that is dropped, by an early return, a cancelled future or a panic, is released as local cancelled.
#[must_use = "a permit that is dropped gives its slot back at once"]
pub struct Permit<H: Host> {
    shared: Arc<Shared<H>>,
    /// Taken by whoever releases it.
    lease: Option<RequestLease>,
}

impl<H: Host> Permit<H> {
    fn new(shared: Arc<Shared<H>>, lease: RequestLease) -> Self {
        Self { shared, lease: Some(lease) }
    }

    /// Gives the slot back and tells the gate how the call ended.
    pub fn finish(mut self, completion: impl Into<Completion>) {
        self.release(&completion.into());
    }

    fn release(&mut self, completion: &Completion) {
        if let Some(lease) = self.lease.take() {
            self.shared.release(lease, completion);
        }
    }
}

impl<H: Host> Drop for Permit<H> {
    fn drop(&mut self) {
        self.release(&Outcome::LocalCancelled.into());
    }
}

impl<H: Host> fmt::Debug for Permit<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("lease", &self.lease).finish_non_exhaustive()
    }
}
