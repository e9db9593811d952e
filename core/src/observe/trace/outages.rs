//! The tracks of outages, one for each provider and model: when it is down, probed, recovering or
//! unavailable.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{EventBuffer, OUTAGES, TracedResource};
use crate::call::Outcome;
use crate::lease::LeaseId;
use crate::request::event::{EventScope, RequestEvent, RequestEventPayload};
use crate::request::{ProviderModelId, ResourceId};
use crate::time::Instant;

/// The providers and models.
#[derive(Clone, Debug)]
pub(super) struct Outages {
    models: Vec<ModelOutage>,
    /// Whether the process and its tracks have their names. They are named at the first outage, so a run
    /// without outages shows none of them.
    is_named: bool,
}

#[derive(Clone, Debug)]
struct ModelOutage {
    id: ProviderModelId,
    /// The names of its resources, joined by commas.
    name: String,
    resources: Vec<ResourceId>,
    state: Option<State>,
}

/// The state of a provider and model that is not healthy.
#[derive(Clone, Copy, Debug)]
struct State {
    phase: OutagePhase,
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutagePhase {
    Down,
    /// A probe call is in flight.
    Probing {
        lease: LeaseId,
        /// Whether it was unavailable before the probe, rather than down.
        is_unavailable: bool,
    },
    /// Its limits rise until this instant.
    Recovering(Instant),
    Unavailable,
}

impl OutagePhase {
    fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Probing { .. } => "probing",
            Self::Recovering(_) => "recovering",
            Self::Unavailable => "unavailable",
        }
    }
}

impl Outages {
    pub(super) fn new(resources: &[TracedResource<'_>]) -> Self {
        let mut models: Vec<ModelOutage> = Vec::new();
        for TracedResource { resource, model, name } in resources {
            if let Some(known) = models.iter_mut().find(|known| known.id == *model) {
                known.resources.push(*resource);
                known.name.extend([", ", name]);
            } else {
                let resources = [*resource].into();
                models.push(ModelOutage { id: *model, name: (*name).to_string(), resources, state: None });
            }
        }
        Self { models, is_named: false }
    }

    pub(super) fn on_event(&mut self, event: &RequestEvent, out: &mut EventBuffer) {
        let is_affected = |model: &ModelOutage| match event.scope {
            EventScope::Model(id) => model.id == id,
            EventScope::Resource(id) => model.resources.contains(&id),
            EventScope::Controller => false,
        };
        let Some(at) = self.models.iter().position(is_affected) else { return };
        let phase = self.models[at].state.map(|state| state.phase);
        let next = match event.payload {
            RequestEventPayload::ProviderDown { .. } => Some(OutagePhase::Down),
            RequestEventPayload::ProviderProbed { lease } => {
                Some(OutagePhase::Probing { lease, is_unavailable: phase == Some(OutagePhase::Unavailable) })
            }
            RequestEventPayload::ProviderRecovered { full_at, .. } => Some(OutagePhase::Recovering(full_at)),
            RequestEventPayload::ProviderUnavailable { .. } => Some(OutagePhase::Unavailable),
            RequestEventPayload::LeaseReleased { lease, outcome, .. } => match phase {
                // The probe ended without a change of state: for example, it was cancelled.
                Some(OutagePhase::Probing { lease: probe, is_unavailable }) if probe == lease => {
                    Some(if is_unavailable { OutagePhase::Unavailable } else { OutagePhase::Down })
                }
                // The recovery ends early.
                Some(OutagePhase::Recovering(_)) if outcome == Outcome::RateLimited || outcome.is_counted_failure() => {
                    None
                }
                _ => return,
            },
            _ => return,
        };
        self.enter(event.at, at, next, out);
    }

    /// Shows the phase that ends and starts the next one. `None` means healthy.
    fn enter(&mut self, now: Instant, at: usize, next: Option<OutagePhase>, out: &mut EventBuffer) {
        let state = self.models[at].state;
        self.models[at].state = match state {
            // The same phase is reported again: nothing changes.
            Some(State { phase, since }) if next == Some(phase) => Some(State { phase, since }),
            _ => next.map(|phase| State { phase, since: now }),
        };
        let Some(State { phase, since }) = state.filter(|state| next != Some(state.phase)) else { return };
        let end = match phase {
            OutagePhase::Recovering(full_at) => full_at.min(now),
            _ => now,
        };
        self.name_tracks(out);
        out.slice((OUTAGES, at as u32 + 1), "outage", phase.name().to_string(), [since, end]);
    }

    fn name_tracks(&mut self, out: &mut EventBuffer) {
        if !core::mem::replace(&mut self.is_named, true) {
            out.process(OUTAGES, "outages");
            for (model, tid) in self.models.iter().zip(1..) {
                out.track((OUTAGES, tid), model.name.clone());
            }
        }
    }

    pub(super) fn finish(&mut self, now: Instant, out: &mut EventBuffer) {
        for at in 0..self.models.len() {
            self.enter(now, at, None, out);
        }
    }
}
