//! Health calls: minimal calls that show whether a provider answers.
//!
//! While a request that always fails is the only one that is made, its provider stays marked as down. If a
//! health call succeeds meanwhile, the failures count as those of the request, which is then denied with
//! [`DenialReason::RequestAtFault`](crate::request::DenialReason::RequestAtFault).

use alloc::vec::Vec;
use core::fmt;
use core::future::poll_fn;
use core::task::{Context, Poll, Waker};

use super::Gate;
use super::permit::{OwnedPermit, PermitOf};
use crate::request::{RequestLease, ResourceId};
use crate::runtime::Host;

/// The health calls of one provider and model. Created by [`Gate::health_calls`].
///
/// ```
/// # #[cfg(feature = "sim")] {
/// # use tidegate_core::gate::Gate;
/// # use tidegate_core::request::{Domain, RequestAdmission, RequestConfig};
/// # use tidegate_core::runtime::Spawn;
/// # use tidegate_core::sim::executor::Executor;
/// use tidegate_core::request::Outcome;
/// # let runtime = Executor::new();
/// # let gate = Gate::new(runtime.host(), RequestAdmission::new(RequestConfig::default())?);
/// # let check = gate.with(|machine, now| {
/// #     machine
/// #         .register(now, "provider", "model", "default", 4)
/// #         .and_then(|model| machine.resource(model, Domain::Healthcheck))
/// # })?;
/// // In a separate task.
/// let mut health_calls = gate.health_calls(check);
/// runtime.host().spawn(async move {
///     loop {
///         let permit = health_calls.next().await;
///         // ... list the models, or ask for one token ...
///         permit.finish(Outcome::Success);
///     }
/// });
/// # }
/// # Ok::<(), tidegate_core::error::ConfigError>(())
/// ```
#[must_use = "health calls are made only while this is polled"]
pub struct HealthCalls<H: Host> {
    gate: Gate<H>,
    resource: ResourceId,
}

impl<H: Host> HealthCalls<H> {
    pub(super) fn new(gate: Gate<H>, resource: ResourceId) -> Self {
        gate.shared.command(|state, now| state.machine.set_health_calls(now, resource, true));
        Self { gate, resource }
    }

    /// Waits until a health call is due and returns its permit. Finish the permit with the outcome of the
    /// call.
    ///
    /// This method is cancel safe.
    pub async fn next(&mut self) -> OwnedPermit<H> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<OwnedPermit<H>> {
        let waker = context.waker().clone();
        let (lease, unused) = self.gate.shared.command(|state, _| match state.health_calls.take(self.resource) {
            Some(lease) => (Some(lease), Some(waker)),
            None => (None, state.health_calls.set_waker(self.resource, waker)),
        });
        let Some(lease) = lease else { return Poll::Pending };
        let permit = PermitOf::new(self.gate.clone(), Some(lease));
        if permit.may_send() {
            return Poll::Ready(permit);
        }
        // The lease of a shared limit has lapsed. The next call wakes this task.
        let replaced = unused
            .and_then(|waker| self.gate.shared.command(|state, _| state.health_calls.set_waker(self.resource, waker)));
        drop((replaced, permit));
        Poll::Pending
    }
}

impl<H: Host> Drop for HealthCalls<H> {
    fn drop(&mut self) {
        let resource = self.resource;
        let waker = self.gate.shared.command(|state, now| {
            state.machine.set_health_calls(now, resource, false);
            if let Some(lease) = state.health_calls.take(resource) {
                state.release_cancelled(now, lease);
            }
            state.health_calls.remove_waker(resource)
        });
        drop(waker);
    }
}

impl<H: Host> fmt::Debug for HealthCalls<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthCalls").field("resource", &self.resource).finish_non_exhaustive()
    }
}

/// Granted health calls that were not taken yet, and the wakers of handles that wait for one. At most one of
/// each per provider and model.
#[derive(Default)]
pub(super) struct PendingHealthCalls {
    leases: Vec<RequestLease>,
    wakers: Vec<(ResourceId, Waker)>,
}

impl PendingHealthCalls {
    /// Adds a call and returns the waker to wake.
    #[cold]
    pub(super) fn push(&mut self, lease: RequestLease) -> Option<Waker> {
        let resource = lease.resource();
        self.leases.push(lease);
        self.remove_waker(resource)
    }

    fn take(&mut self, resource: ResourceId) -> Option<RequestLease> {
        let position = self.leases.iter().position(|lease| lease.resource() == resource)?;
        Some(self.leases.swap_remove(position))
    }

    /// Sets the waker of a handle and returns the replaced one.
    fn set_waker(&mut self, resource: ResourceId, waker: Waker) -> Option<Waker> {
        let replaced = self.remove_waker(resource);
        self.wakers.push((resource, waker));
        replaced
    }

    fn remove_waker(&mut self, resource: ResourceId) -> Option<Waker> {
        let position = self.wakers.iter().position(|(known, _)| *known == resource)?;
        Some(self.wakers.swap_remove(position).1)
    }
}
