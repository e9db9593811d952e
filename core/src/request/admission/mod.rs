//! The machine that admits requests.

mod facts;
mod register;
mod serve;
mod tell;
mod why;
mod yielding;

pub use register::MAX_STRANGERS;
pub use why::CallWait;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::config::RequestConfig;
use super::event::{EventLog, RequestFact};
use super::keys::{GroupId, Request, ResourceId};
use super::outcome::{Acquire, Denial, DenialReason, Effect, RequestLease, WaiterId};
use super::resource::{Held, ProviderModel, Resource, Since};
use super::timers::{Timer, Timers};
use super::yielding::YieldingWaiters;
use crate::budget::Usage;
use crate::call::Completion;
use crate::error::ConfigError;
use crate::fair_queue::FairQueue;
use crate::id::{Interner, SlotKey, Slots};
use crate::lease::{Ledger, ReleaseAnswer};
use crate::replay::{Recorder, RequestCommand};
use crate::time::{Duration, Instant, Monotonic};

#[derive(Clone, Copy, Debug)]
struct Waiter {
    resource: ResourceId,
    /// In the order of coming.
    number: u64,
    /// Known where it has a deadline, and where somebody wanted events when it came.
    since: Since,
    deadline: Option<Instant>,
    estimate: Usage,
    /// Whether the ties know more of it.
    is_tied: bool,
    /// Where it stands in the queue.
    place: u32,
}

/// Admits calls under provider caps, adaptive limits and budgets. Sans-IO: see the [module documentation](super).
///
/// Cost: O(1) for an uncontended acquire and release, O(log groups) for one that waits or wakes a waiter, and
/// independent of how many wait.
#[derive(Debug)]
pub struct RequestAdmission {
    config: RequestConfig,
    time: Monotonic,
    sequence: u64,
    is_shut: bool,
    providers: Vec<ProviderModel>,
    resources: Vec<Resource>,
    group_names: Interner,
    named_groups: Vec<GroupId>,
    /// Groups of tenants that nobody named.
    strangers: usize,
    queue: FairQueue,
    waiters: Slots<Waiter>,
    /// Resources that have waiters, in no particular order.
    waited: Vec<ResourceId>,
    ties: YieldingWaiters,
    ledger: Ledger<Held>,
    timers: Timers,
    effects: VecDeque<Effect>,
    log: EventLog,
    recorder: Recorder<RequestCommand>,
}

impl RequestAdmission {
    /// A controller with no resources yet.
    pub fn new(config: RequestConfig) -> Result<Self, ConfigError> {
        config.aimd.validate()?;
        Ok(Self {
            time: Monotonic::default(),
            sequence: 0,
            is_shut: false,
            providers: Vec::new(),
            resources: Vec::new(),
            group_names: Interner::default(),
            named_groups: Vec::new(),
            strangers: 0,
            queue: FairQueue::new(),
            waiters: Slots::default(),
            waited: Vec::new(),
            ties: YieldingWaiters::default(),
            ledger: Ledger::new(config.controller),
            timers: Timers::default(),
            effects: VecDeque::new(),
            log: EventLog::default(),
            recorder: Recorder::default(),
            config,
        })
    }
}

/// Commands.
impl RequestAdmission {
    /// Lets a call out now or says why not. Never overtakes a waiter that could go, never serves one.
    pub fn try_acquire(&mut self, now: Instant, request: &Request) -> Result<RequestLease, Denial> {
        self.recorder.note(self.effects.len(), || RequestCommand::TryAcquire { now, request: *request });
        let now = self.begin(now);
        let answer = self.attempt(now, request).and_then(|()| self.try_grant(now, request));
        if self.log.is_on() {
            self.tell_try(now, request.resource, &answer);
        }
        self.recorder.answered(|digest| digest.tried(&answer, RequestLease::id));
        answer
    }

    /// Lets a call out now, or queues it in its group until it may go, its deadline passes or it is cancelled.
    pub fn acquire(&mut self, now: Instant, request: &Request) -> Acquire {
        if self.recorder.is_on() {
            return self.acquire_recorded(now, request);
        }
        self.acquire_now(now, request)
    }

    #[cold]
    fn acquire_recorded(&mut self, now: Instant, request: &Request) -> Acquire {
        self.recorder.note(self.effects.len(), || RequestCommand::Acquire { now, request: *request });
        let answer = self.acquire_now(now, request);
        self.recorder.answered(|digest| digest.acquired(&answer));
        answer
    }

    #[inline]
    fn acquire_now(&mut self, now: Instant, request: &Request) -> Acquire {
        let now = self.begin(now);
        if let Err(denial) = self.attempt(now, request) {
            self.tell(now, request.resource, RequestFact::AcquireDenied { reason: denial.reason });
            return Acquire::Denied(denial);
        }
        let resource = &self.resources[request.resource.index()];
        let group = request.group.unwrap_or(resource.place.group);
        // As recorded, a timeout of zero is refused even where there is room.
        let is_hopeless = self.config.compatibility && request.timeout == Some(Duration::ZERO);
        if !is_hopeless && let Some(lease) = self.grant_directly(now, request, group) {
            return Acquire::Granted(lease);
        }
        self.wait(now, request, group)
    }

    /// Queues a request, and answers it if its turn is now or never.
    #[inline(never)]
    fn wait(&mut self, now: Instant, request: &Request, group: GroupId) -> Acquire {
        self.expire(now);
        let timeout = request.timeout.or(self.config.default_timeout);
        if self.config.compatibility && timeout == Some(Duration::ZERO) {
            self.tell(now, request.resource, RequestFact::WaitTimeout { waiter: None, waited: Duration::ZERO });
            return self.refuse_at_once(now, request.resource);
        }
        let deadline = timeout.map(|span| now + span);
        let key = self.enqueue(now, request, group, deadline, None);
        if !self.queue.has_offers() {
            // It waits behind others, for what they wait for.
            self.arm_wakes(now);
        } else if let Some(lease) = self.serve_for(now, Some(key), None) {
            return Acquire::Granted(lease);
        }
        self.stay(now, request, key, deadline)
    }

    /// The answer to a request that was queued and not served.
    #[inline]
    fn stay(&mut self, now: Instant, request: &Request, key: SlotKey, deadline: Option<Instant>) -> Acquire {
        if deadline == Some(now) {
            if let (Some(waiter), true) = (self.remove_waiter(key), self.log.is_on()) {
                self.tell_withdrawn(now, WaiterId(key), &waiter, DenialReason::QueueTimeout);
            }
            self.trim();
            return self.refuse_at_once(now, request.resource);
        }
        if let Some(at) = deadline {
            self.arm(at, Timer::Deadline(key));
        }
        Acquire::Waiting(WaiterId(key))
    }

    /// Withdraws a waiter; answers whether it was still waiting.
    ///
    /// Where it was not, an [`Effect`] has been or will be polled: a granted lease must be released by its owner.
    pub fn cancel(&mut self, now: Instant, waiter: WaiterId) -> bool {
        self.recorder.note(self.effects.len(), || RequestCommand::Cancel { now, waiter });
        let now = self.begin(now);
        let Some(removed) = self.remove_waiter(waiter.0) else { return false };
        if self.log.is_on() {
            self.tell_withdrawn(now, waiter, &removed, DenialReason::Cancelled);
        }
        self.serve(now);
        true
    }

    /// Ends a call. Never panics; only [`ReleaseAnswer::Released`] changed anything.
    #[expect(clippy::needless_pass_by_value, reason = "a lease is given back, not lent")]
    pub fn release(&mut self, now: Instant, lease: RequestLease, done: &Completion) -> ReleaseAnswer {
        self.recorder.note(self.effects.len(), || RequestCommand::Release { now, lease: lease.id, done: *done });
        let now = self.begin(now);
        let held = match self.ledger.release(lease.id) {
            Ok(held) => held,
            Err(answer) => {
                if let Some(resource) = self.resources.get_mut(lease.id.item as usize) {
                    resource.irregular.count(answer);
                }
                self.tell_irregular(now, lease.id, answer);
                return answer;
            }
        };
        let before = if self.log.is_on() { Some(self.before_outcome(now, held.resource)) } else { None };
        let resource = &mut self.resources[held.resource.index()];
        resource.end(now, &held, done);
        let owner = resource.owner.0 as usize;
        self.providers[owner].in_flight -= 1;
        if let Some(before) = before {
            self.tell_outcome(now, &held, lease.id, done, before);
        }
        // While nobody waits every set is empty and no timer is armed.
        if self.waiters.len() > 0 {
            for sibling in &self.providers[owner].resources {
                self.queue.unblock(self.resources[sibling.index()].place.set);
            }
            self.serve(now);
        }
        ReleaseAnswer::Released
    }

    /// Does what fell due by `now`: expires waiters, ends cooldowns, opens ramp steps, refills budgets. Harmless at any
    /// time.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.recorder.note(self.effects.len(), || RequestCommand::HandleTimeout { now });
        let now = self.begin(now);
        self.serve(now);
    }

    /// Refuses every waiter and every later request. Leases that are out stay valid until released.
    pub fn shutdown(&mut self, now: Instant) {
        self.recorder.note(self.effects.len(), || RequestCommand::Shutdown { now });
        let now = self.begin(now);
        self.is_shut = true;
        let waiting: Vec<SlotKey> = self.waiters.iter().map(|(key, _)| key).collect();
        for key in waiting {
            self.refuse(now, key, DenialReason::Shutdown);
        }
        self.trim();
    }
}
