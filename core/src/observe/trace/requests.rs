//! The provider resources: calls, waits, cooldowns and counters.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::lanes::Lanes;
use super::{EventBuffer, RESOURCES, TracedResource, Track};
use crate::lease::LeaseId;
use crate::request::event::{EventScope, RequestEvent, RequestEventPayload};
use crate::request::{ResourceId, WaiterId};
use crate::time::Instant;

/// The resources, and the calls that are in flight or waiting.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    resources: Vec<Resource>,
    leases: BTreeMap<LeaseId, (usize, Track, Instant)>,
    waits: BTreeMap<WaiterId, usize>,
}

#[derive(Clone, Debug)]
struct Resource {
    id: ResourceId,
    pid: u32,
    lanes: Lanes,
    /// The start and end of the current cooldown.
    cooldown: Option<[Instant; 2]>,
    waiting: u64,
    limit: u32,
}

/// The id of the track of cooldowns. It is above the ids of the tracks of calls.
const COOLDOWN: u32 = 1_000_000;

impl Calls {
    pub(super) fn new(resources: &[TracedResource<'_>], out: &mut EventBuffer) -> Self {
        let resources = resources.iter().zip(RESOURCES..).map(|(resource, pid)| {
            out.process(pid, resource.name);
            out.track((pid, COOLDOWN), "cooldown".to_string());
            Resource {
                id: resource.resource,
                pid,
                lanes: Lanes::new(pid, "call"),
                cooldown: None,
                waiting: 0,
                limit: 0,
            }
        });
        Self { resources: resources.collect(), leases: BTreeMap::default(), waits: BTreeMap::default() }
    }

    pub(super) fn on_event(&mut self, event: &RequestEvent, out: &mut EventBuffer) {
        let EventScope::Resource(id) = event.scope else { return };
        let Some(at) = self.resources.iter().position(|resource| resource.id == id) else { return };
        let now = event.at;
        self.resources[at].end_cooldown(now, out);
        match event.payload {
            RequestEventPayload::WaitStarted { waiter: Some(waiter) } => {
                self.waits.insert(waiter, at);
                self.resources[at].wait(now, waiter, true, out);
            }
            RequestEventPayload::WaitCompleted { waiter: Some(waiter), .. }
            | RequestEventPayload::WaitTimeout { waiter: Some(waiter), .. }
            | RequestEventPayload::WaitCancelled { waiter, .. } => self.end_wait(now, waiter, out),
            RequestEventPayload::LeaseAcquired { lease, limit, in_flight } => {
                let resource = &mut self.resources[at];
                let track = resource.lanes.take(out);
                resource.set_limit(now, limit, out);
                out.counter(resource.pid, now, "calls out", u64::from(in_flight));
                self.leases.insert(lease, (at, track, now));
            }
            RequestEventPayload::LeaseReleased { lease, outcome, in_flight, .. } => {
                out.counter(self.resources[at].pid, now, "calls out", u64::from(in_flight));
                self.end_call(now, lease, &format!("{outcome:?}"), out);
            }
            RequestEventPayload::RateLimited { blocked_until: Some(until), .. } => self.resources[at].block(now, until),
            RequestEventPayload::LimitDecreased { to, .. }
            | RequestEventPayload::LimitIncreased { to, .. }
            | RequestEventPayload::RampStep { to, .. } => self.resources[at].set_limit(now, to, out),
            _ => {}
        }
    }

    fn end_wait(&mut self, now: Instant, waiter: WaiterId, out: &mut EventBuffer) {
        if let Some(at) = self.waits.remove(&waiter) {
            self.resources[at].wait(now, waiter, false, out);
        }
    }

    fn end_call(&mut self, now: Instant, lease: LeaseId, outcome: &str, out: &mut EventBuffer) {
        if let Some((at, track, since)) = self.leases.remove(&lease) {
            let slice = out.slice(track, "call", "call".to_string(), [since, now]);
            slice.args.outcome = Some(outcome.to_string());
            self.resources[at].lanes.give_back(track);
        }
    }

    pub(super) fn finish(&mut self, now: Instant, out: &mut EventBuffer) {
        while let Some((&waiter, _)) = self.waits.first_key_value() {
            self.end_wait(now, waiter, out);
        }
        while let Some((&lease, _)) = self.leases.first_key_value() {
            self.end_call(now, lease, "open at the end", out);
        }
        for resource in &mut self.resources {
            if let Some(cooldown) = &mut resource.cooldown {
                cooldown[1] = cooldown[1].min(now);
            }
            resource.end_cooldown(now, out);
        }
    }
}

impl Resource {
    fn set_limit(&mut self, now: Instant, limit: u32, out: &mut EventBuffer) {
        if core::mem::replace(&mut self.limit, limit) != limit {
            out.counter(self.pid, now, "limit", u64::from(limit));
        }
    }

    fn wait(&mut self, now: Instant, waiter: WaiterId, begins: bool, out: &mut EventBuffer) {
        let event = out.push((self.pid, 0), now, if begins { 'b' } else { 'e' }, "wait".to_string());
        event.cat = "wait";
        event.id = Some(format!("{:x}", waiter.to_bits()));
        self.waiting = if begins { self.waiting + 1 } else { self.waiting.saturating_sub(1) };
        out.counter(self.pid, now, "calls waiting", self.waiting);
    }

    fn block(&mut self, now: Instant, until: Instant) {
        match &mut self.cooldown {
            Some([_, end]) => *end = until.max(*end),
            none => *none = Some([now, until]),
        }
    }

    /// Shows the cooldown if it has ended.
    fn end_cooldown(&mut self, now: Instant, out: &mut EventBuffer) {
        if let Some(cooldown) = self.cooldown.filter(|[_, end]| *end <= now) {
            out.slice((self.pid, COOLDOWN), "cooldown", "cooldown".to_string(), cooldown);
            self.cooldown = None;
        }
    }
}
