//! The request resources of a run, computed from the events of request admission.

use alloc::vec::Vec;

use super::cause::IdleCause;
use super::slots::{AttributedCause, Slots};
use crate::map::Map;
use crate::observe::Histogram;
use crate::request::event::{EventScope, RequestEvent, RequestEventPayload};
use crate::request::{ProviderModelId, ResourceBaseline, ResourceId};
use crate::time::Instant;

#[derive(Clone, Debug)]
struct Call {
    slots: Slots,
    /// Index into [`Calls::models`].
    model: usize,
    clamp: Option<u32>,
    limit: u32,
    blocked_until: Instant,
}

/// The state that the domains of one provider and model share.
#[derive(Clone, Debug)]
struct Model {
    id: ProviderModelId,
    cap: u32,
    in_flight: u32,
    /// Whether the provider is down or unavailable.
    is_down: bool,
}

/// The request resources.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    all: Vec<Call>,
    models: Vec<Model>,
    known: Map<usize, usize>,
    pub(super) waits: Histogram,
    pub(super) waiters: u32,
    in_flight: u32,
    pub(super) max_waiters: u32,
    pub(super) max_in_flight: u32,
}

impl Calls {
    pub(super) fn add(&mut self, at: Instant, baseline: &ResourceBaseline) {
        if self.known.contains_key(&baseline.resource.index()) {
            return;
        }
        let model = self.models.iter().position(|model| model.id == baseline.model).unwrap_or_else(|| {
            let ResourceBaseline { model: id, cap, is_down, .. } = *baseline;
            self.models.push(Model { id, cap, in_flight: 0, is_down });
            self.models.len() - 1
        });
        let mut slots = Slots::new(&baseline.name, effective_max(baseline.cap, baseline.clamp));
        slots.begin(at);
        slots.lease(baseline.in_flight);
        (0..baseline.waiters).for_each(|_| slots.change_demand(true));
        self.models[model].in_flight += baseline.in_flight;
        self.known.insert(baseline.resource.index(), self.all.len());
        let (clamp, limit) = (baseline.clamp, baseline.limit);
        let blocked_until = baseline.blocked_until.unwrap_or(Instant::ZERO);
        self.all.push(Call { slots, model, clamp, limit, blocked_until });
        self.in_flight += baseline.in_flight;
        self.waiters += baseline.waiters;
        self.update_maxima();
    }

    pub(super) fn clamp(&mut self, resource: ResourceId, clamp: Option<u32>) {
        let Some(at) = self.known.get(&resource.index()).copied() else { return };
        let call = &mut self.all[at];
        call.clamp = clamp;
        call.slots.limit = effective_max(self.models[call.model].cap, clamp);
    }

    pub(super) fn begin(&mut self, at: Instant) {
        self.all.iter_mut().for_each(|call| call.slots.begin(at));
    }

    /// Accounts for the time from `from` to `to`, in which no event happened. Cooldowns may have ended in
    /// it.
    pub(super) fn pass(&mut self, from: Instant, to: Instant, without_waiters: IdleCause, yielded: u32) {
        for Call { slots, model, limit, blocked_until, .. } in &mut self.all {
            let model = &self.models[*model];
            let cooldown_end = (*blocked_until).clamp(from, to);
            for (from, to, is_cooling) in [(from, cooldown_end, true), (cooldown_end, to, false)] {
                if from < to {
                    slots.pass(from, to, *limit, |slots| {
                        attribute(slots, model, *limit, is_cooling, without_waiters, yielded)
                    });
                }
            }
        }
    }

    pub(super) fn on_event(&mut self, event: &RequestEvent) {
        let resource = match event.scope {
            EventScope::Model(id) => return self.on_model(id, event.payload),
            EventScope::Resource(resource) => resource,
            EventScope::Controller => return,
        };
        let Some(at) = self.known.get(&resource.index()).copied() else { return };
        let call = &mut self.all[at];
        match event.payload {
            RequestEventPayload::WaitStarted { waiter: Some(_) } => self.count_waiter(at, true),
            RequestEventPayload::WaitCompleted { waiter: Some(_), waited }
            | RequestEventPayload::WaitTimeout { waiter: Some(_), waited }
            | RequestEventPayload::WaitCancelled { waited, .. } => {
                self.waits.record(waited);
                self.count_waiter(at, false);
            }
            RequestEventPayload::LeaseAcquired { limit, in_flight, .. } => {
                call.limit = limit;
                self.set_in_flight(at, in_flight);
            }
            RequestEventPayload::LeaseReleased { in_flight, .. } => self.set_in_flight(at, in_flight),
            RequestEventPayload::RateLimited { blocked_until, .. } => {
                call.blocked_until = blocked_until.unwrap_or(Instant::ZERO);
            }
            RequestEventPayload::LimitDecreased { to, .. }
            | RequestEventPayload::LimitIncreased { to, .. }
            | RequestEventPayload::RampStep { to, .. } => call.limit = to,
            _ => {}
        }
    }

    fn on_model(&mut self, id: ProviderModelId, payload: RequestEventPayload) {
        let Some(at) = self.models.iter().position(|model| model.id == id) else { return };
        let to = match payload {
            RequestEventPayload::EffectiveCapChanged { to, .. } => to,
            RequestEventPayload::ProviderDown { .. } | RequestEventPayload::ProviderUnavailable { .. } => {
                self.models[at].is_down = true;
                return;
            }
            RequestEventPayload::ProviderRecovered { .. } => {
                self.models[at].is_down = false;
                return;
            }
            _ => return,
        };
        self.models[at].cap = to;
        for call in self.all.iter_mut().filter(|call| call.model == at) {
            call.slots.limit = effective_max(to, call.clamp);
        }
    }

    fn count_waiter(&mut self, at: usize, more: bool) {
        self.all[at].slots.change_demand(more);
        self.waiters = if more { self.waiters + 1 } else { self.waiters.saturating_sub(1) };
        self.update_maxima();
    }

    fn set_in_flight(&mut self, at: usize, in_flight: u32) {
        let call = &mut self.all[at];
        let before = call.slots.leased;
        call.slots.give_back(before);
        call.slots.lease(in_flight);
        for sum in [&mut self.models[call.model].in_flight, &mut self.in_flight] {
            *sum = (*sum + in_flight).saturating_sub(before);
        }
        self.update_maxima();
    }

    fn update_maxima(&mut self) {
        self.max_waiters = self.max_waiters.max(self.waiters);
        self.max_in_flight = self.max_in_flight.max(self.in_flight);
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = &Slots> {
        self.all.iter().map(|call| &call.slots)
    }
}

fn effective_max(cap: u32, clamp: Option<u32>) -> u32 {
    clamp.map_or(cap, |clamp| clamp.min(cap)).max(1)
}

/// Returns the causes of the free slots of a request resource. The counts sum to the free slots.
fn attribute(
    slots: &Slots,
    model: &Model,
    limit: u32,
    is_cooling: bool,
    without_waiters: IdleCause,
    yielded: u32,
) -> [(AttributedCause, u32); 3] {
    const NONE: (AttributedCause, u32) = ((IdleCause::RequestTurn, None), 0);
    let free = slots.free();
    if slots.demand == 0 || model.is_down || is_cooling {
        let cause = match slots.demand {
            0 => without_waiters,
            _ if model.is_down => IdleCause::Outage,
            _ => IdleCause::Cooldown,
        };
        return [((cause, None), free), NONE, NONE];
    }
    let within_limit = limit.min(slots.limit).saturating_sub(slots.leased);
    let open = within_limit.min(model.cap.saturating_sub(model.in_flight));
    let open_cause = if yielded > 0 { IdleCause::TaskSlots } else { IdleCause::RequestTurn };
    [
        ((IdleCause::RequestLimit, None), free - within_limit),
        ((IdleCause::ProviderCap, None), within_limit - open),
        ((open_cause, None), open),
    ]
}
