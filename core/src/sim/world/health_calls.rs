//! The health calls that admission requests: small calls that show whether a provider responds.

use super::{Due, World};
use crate::id::SlotKey;
use crate::request::{Completion, Outcome, RequestLease};

/// A health call in flight.
pub(super) struct HealthCall {
    provider: usize,
    lease: RequestLease,
    completion: Completion,
    holds_slot: bool,
}

impl World {
    /// Turns on health calls for every model. They are made through the model itself, and not through the
    /// models that are further [domains](crate::sim::scenario::Model::domain_of) of it.
    pub(super) fn offer_health_calls(&mut self) {
        for provider in self.providers.iter().filter(|provider| provider.name == provider.owner) {
            self.admission.set_health_calls(self.now, provider.resource, true);
        }
    }

    /// Starts a health call.
    pub(super) fn begin_health_call(&mut self, lease: RequestLease) {
        let Some(provider) = self.providers.iter().position(|provider| provider.resource == lease.resource()) else {
            return;
        };
        let answer = self.providers[provider].mock.arrive(self.now, 1);
        let (at, holds_slot, completion, _) = self.consequence(answer);
        let call = HealthCall { provider, lease, completion, holds_slot };
        let key = self.health_calls.insert(call);
        self.schedule_at(at, Due::HealthCall(key));
    }

    pub(super) fn end_health_call(&mut self, key: SlotKey) {
        let Some(call) = self.health_calls.remove(key) else { return };
        self.end_provider_call(call.provider, call.holds_slot);
        let _ = self.admission.release(self.now, call.lease, &call.completion);
    }

    /// Ends the health calls in flight and makes no more, because the run has ended.
    pub(super) fn abandon_health_calls(&mut self) {
        for provider in &self.providers {
            self.admission.set_health_calls(self.now, provider.resource, false);
        }
        let keys: alloc::vec::Vec<SlotKey> = self.health_calls.iter().map(|(key, _)| key).collect();
        for call in keys.into_iter().filter_map(|key| self.health_calls.remove(key)) {
            if call.holds_slot {
                self.providers[call.provider].mock.finish(self.now);
            }
            let _ = self.admission.release(self.now, call.lease, &Outcome::LocalCancelled.into());
        }
    }
}
