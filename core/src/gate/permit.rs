//! Permits, borrowed and owned, over one implementation.

use core::fmt;

use super::Gate;
use crate::request::{Completion, Outcome, RequestLease};
use crate::runtime::Host;

/// A gate by reference or by handle: `&Gate<H>` or `Gate<H>`. What tells a borrowed permit from an owned one.
///
/// Sealed: a permit must come back to the very gate it came from.
pub trait GateRef: sealed::Sealed {
    /// The host of the gate.
    type Host: Host;

    /// The gate.
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

/// A permit that borrows its gate: what [`Gate::acquire`] and [`Gate::try_acquire`] give.
pub type Permit<'a, H> = PermitOf<&'a Gate<H>>;

/// A permit that keeps its gate alive: what [`Gate::acquire_owned`] and [`Gate::try_acquire_owned`] give.
pub type OwnedPermit<H> = PermitOf<Gate<H>>;

/// The right to make one call. Give it back with [`PermitOf::finish`] and what became of the call.
///
/// A permit that is dropped, by an early return, a cancelled future or a panic, is released as local cancelled.
#[must_use = "a permit that is dropped gives its slot back at once"]
pub struct PermitOf<G: GateRef> {
    gate: G,
    /// Taken by whoever releases it.
    lease: Option<RequestLease>,
}

impl<G: GateRef> PermitOf<G> {
    #[inline]
    pub(super) fn new(gate: G, lease: RequestLease) -> Self {
        Self { gate, lease: Some(lease) }
    }

    /// Gives the slot back and tells the gate how the call ended.
    #[inline]
    pub fn finish(mut self, completion: impl Into<Completion>) {
        self.release(&completion.into());
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
