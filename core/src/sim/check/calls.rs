//! Checks that no more calls are in flight than the model's cap, and that neither a call nor a waiter is
//! left at the end.

use alloc::collections::BTreeSet;
use alloc::format;

use super::open_row_groups::Rules;
use super::{Check, CheckResult, Law, ensure};
use crate::lease::LeaseId;
use crate::map::Map;
use crate::pipeline::RunReport;
use crate::request::event::{EventScope, RequestEvent, RequestEventPayload};
use crate::request::{ResourceId, WaiterId};

/// The calls in flight and the waiters of the request resources.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    caps: Map<ResourceId, u32>,
    in_flight: Map<ResourceId, u32>,
    leases: BTreeSet<LeaseKey>,
    waiters: BTreeSet<WaiterId>,
}

/// A lease in a form that has an order: the number of its request admission, its slot and its generation.
type LeaseKey = (u32, u32, u32);

fn key(lease: LeaseId) -> LeaseKey {
    (lease.controller, lease.key.slot, lease.key.generation)
}

impl Calls {
    pub(super) fn set_cap(&mut self, resource: ResourceId, cap: u32) {
        self.caps.insert(resource, cap);
    }

    fn acquired(&mut self, resource: ResourceId, lease: LeaseId, limit: u32, counted: u32) -> CheckResult {
        ensure(self.leases.insert(key(lease)), || format!("{lease:?} was granted twice"))?;
        let in_flight = self.in_flight.entry(resource).or_default();
        *in_flight += 1;
        let count = *in_flight;
        ensure(counted == count, || format!("the event counts {counted} calls in flight instead of {count}"))?;
        ensure(count <= limit, || format!("{count} calls are in flight above the limit of {limit}"))?;
        let cap = self.caps.get(&resource).copied().unwrap_or(u32::MAX);
        ensure(limit <= cap, || format!("the limit of {limit} is above the cap of {cap}"))
    }

    fn released(&mut self, resource: ResourceId, lease: LeaseId, counted: u32) -> CheckResult {
        ensure(self.leases.remove(&key(lease)), || format!("{lease:?} was released without being active"))?;
        let in_flight = self.in_flight.entry(resource).or_default();
        *in_flight = in_flight.saturating_sub(1);
        let count = *in_flight;
        ensure(counted == count, || format!("the event counts {counted} calls in flight instead of {count}"))
    }
}

impl Check for Calls {
    const LAW: Law = Law::Calls;

    fn on_request(&mut self, event: &RequestEvent) -> CheckResult {
        let EventScope::Resource(resource) = event.scope else { return Ok(()) };
        match event.payload {
            RequestEventPayload::WaitStarted { waiter: Some(waiter) } => {
                ensure(self.waiters.insert(waiter), || format!("{waiter:?} already waits"))
            }
            RequestEventPayload::WaitCompleted { waiter: Some(waiter), .. }
            | RequestEventPayload::WaitTimeout { waiter: Some(waiter), .. }
            | RequestEventPayload::WaitCancelled { waiter, .. } => {
                ensure(self.waiters.remove(&waiter), || format!("{waiter:?} was not waiting"))
            }
            RequestEventPayload::LeaseAcquired { lease, limit, in_flight } => {
                self.acquired(resource, lease, limit, in_flight)
            }
            RequestEventPayload::LeaseReleased { lease, in_flight, .. } => self.released(resource, lease, in_flight),
            RequestEventPayload::ReleaseDiagnostic { lease, result } => {
                Err(format!("the release of {lease:?} was irregular: {result:?}"))
            }
            _ => Ok(()),
        }
    }

    fn on_end(&mut self, _: &Rules, _: &RunReport) -> CheckResult {
        let (leases, waiters) = (self.leases.len(), self.waiters.len());
        ensure(leases == 0 && waiters == 0, || format!("{leases} calls and {waiters} waiters are left at the end"))
    }
}
