//! Who goes next, and when to look again.

use super::{RequestAdmission, Waiter, yielding};
use crate::budget::Usage;
use crate::fair_queue::{Eligibility, GroupId, Selection};
use crate::id::{SlotKey, Slots};
use crate::request::keys::{ProviderModelId, Request, ResourceId};
use crate::request::outcome::{Acquire, Denial, DenialReason, Effect, RequestLease, WaiterId};
use crate::request::resource::{Block, Resource, Since};
use crate::request::timers::Timer;
use crate::request::yielding::{YieldState, YieldingWaiter};
use crate::time::Instant;
use crate::yielding::TaskResources;

/// The task stage, where it is there to be asked.
type Stage<'a> = Option<&'a mut dyn TaskResources>;

fn reborrow<'a>(stage: &'a mut Stage<'_>) -> Stage<'a> {
    stage.as_mut().map(|stage| &mut **stage as &mut dyn TaskResources)
}

/// Answers.
impl RequestAdmission {
    #[inline]
    pub(super) fn begin(&mut self, now: Instant) -> Instant {
        self.sequence += 1;
        self.time.observe(now)
    }

    /// Checks what no waiting can mend, and tells the limit that somebody wants in.
    #[inline]
    pub(super) fn attempt(&mut self, now: Instant, request: &Request) -> Result<(), Denial> {
        let resource = request.resource;
        let has_group = request.group.is_none_or(|group| self.queue.has_group(group));
        let reason = match self.resources.get_mut(resource.index()).filter(|_| has_group) {
            None => DenialReason::Unregistered,
            Some(_) if self.is_shut => DenialReason::Shutdown,
            Some(entry) => {
                entry.on_attempt(now);
                self.tell_ramp(now, resource);
                return Ok(());
            }
        };
        Err(Denial { reason, changes_at: None })
    }

    /// The answer to a request that was found fit to be tried.
    #[inline]
    pub(super) fn try_grant(&mut self, now: Instant, request: &Request) -> Result<RequestLease, Denial> {
        self.refuse_overdue(now);
        if let Some(denial) = self.blocked(now, request) {
            return Err(denial);
        }
        if self.is_waiter_ahead(now, request.resource) {
            return Err(Denial { reason: DenialReason::QueuedWaitersAhead, changes_at: None });
        }
        Ok(self.grant(now, request.resource, request.estimate))
    }

    /// Why a request could not go out at `now`, waiters aside.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a tenth of an uncontended call is otherwise spent on entering it")]
    pub(super) fn blocked(&self, now: Instant, request: &Request) -> Option<Denial> {
        let entry = &self.resources[request.resource.index()];
        let block = entry.block(now, &self.providers[entry.owner.0 as usize], request.estimate)?;
        Some(entry.denial(now, block))
    }

    /// The answer to a request whose timeout is zero.
    pub(super) fn refuse_at_once(&self, now: Instant, resource: ResourceId) -> Acquire {
        let denial = self.refusal(now, resource, DenialReason::QueueTimeout);
        Acquire::Denied(denial)
    }

    fn refusal(&self, now: Instant, resource: ResourceId, reason: DenialReason) -> Denial {
        Denial { reason, changes_at: self.resources[resource.index()].next_change(now) }
    }

    /// Whether a waiter goes first: one for the same provider and model that could go, or one for the same resource that
    /// waits for a budget, which the newcomer would spend.
    fn is_waiter_ahead(&mut self, now: Instant, resource: ResourceId) -> bool {
        if self.queue.is_empty() {
            return false;
        }
        let entry = &self.resources[resource.index()];
        if entry.waiters > 0 && !entry.budgets.is_empty() {
            return true;
        }
        let owner = entry.owner;
        let first = self.select(now, None);
        first.is_some_and(|(_, key)| self.waiters.get(key).is_some_and(|waiter| self.owner_of(waiter) == owner))
    }

    fn owner_of(&self, waiter: &Waiter) -> ProviderModelId {
        self.resources[waiter.resource.index()].owner
    }
}

/// Turns.
impl RequestAdmission {
    /// The first waiter that could go at `now`. Serves nobody; a suspended one has resumed if there is a `stage` to ask.
    fn select(&mut self, now: Instant, mut stage: Stage<'_>) -> Option<(Selection, SlotKey)> {
        let Self { queue, waiters, resources, providers, ties, .. } = self;
        let selection = queue.select(|candidate| {
            let Some(waiter) = waiters.get(SlotKey::from_bits(candidate.item)) else { return Eligibility::Skip };
            // A waiter past its deadline is never granted, not even before it is told. The one that arrives this
            // instant with "now or not at all" is not past it.
            if waiter.deadline.is_some_and(|end| end <= now && !waiter.since.elapsed(now).is_zero()) {
                return Eligibility::Skip;
            }
            let entry = &mut resources[waiter.resource.index()];
            let block = entry.block(now, &providers[entry.owner.0 as usize], waiter.estimate);
            entry.budget_wait = block.and_then(Block::budget_fits_at);
            if block.is_some() {
                return Eligibility::ClassBlocked(entry.place.set);
            }
            let tied = if waiter.is_tied { ties.get(SlotKey::from_bits(candidate.item)) } else { None };
            match (tied, &mut stage) {
                (Some(YieldingWaiter { tie, place, state: YieldState::Suspended }), Some(stage)) => {
                    let wanted = waiter.resource;
                    if yielding::resume(now, *stage, &tie, wanted, waiters, resources, ties) {
                        return Eligibility::Accept;
                    }
                    ties.shut(place.set, tie);
                    Eligibility::ClassBlocked(place.set)
                }
                _ => Eligibility::Accept,
            }
        })?;
        Some((selection, SlotKey::from_bits(selection.candidate.item)))
    }

    pub(super) fn serve(&mut self, now: Instant) {
        self.serve_for(now, None, None);
    }

    /// Grants to waiters in order of turn while there is room. The grant of `direct` is answered, not queued as news.
    ///
    /// Without a `stage` to ask it stops at the first suspended waiter: whoever is behind it does not go first.
    pub(super) fn serve_for(
        &mut self,
        now: Instant,
        direct: Option<SlotKey>,
        mut stage: Stage<'_>,
    ) -> Option<RequestLease> {
        self.expire(now);
        let mut answer = None;
        while self.queue.has_offers()
            && let Some((selection, key)) = self.select(now, reborrow(&mut stage))
        {
            if stage.is_none() && self.ties.is_suspended(key) {
                self.ties.needs_resume = true;
                break;
            }
            if self.queue.commit(&selection).is_err() {
                break;
            }
            let Some(waiter) = self.waiters.remove(key) else { break };
            self.forget_waiter(key, &waiter);
            let lease = self.grant(now, waiter.resource, waiter.estimate);
            self.close_if_full(now, waiter.resource);
            if self.log.is_on() {
                self.tell_served(now, WaiterId(key), &waiter, lease.id);
            }
            if direct == Some(key) {
                answer = Some(lease);
            } else {
                self.effects.push_back(Effect::Granted { waiter: WaiterId(key), lease });
            }
        }
        self.arm_wakes(now);
        answer
    }

    /// Spares the next waiter of a resource that lets no more calls out an offer that would be refused.
    fn close_if_full(&mut self, now: Instant, resource: ResourceId) {
        let entry = &mut self.resources[resource.index()];
        if entry.is_full(now, &self.providers[entry.owner.0 as usize]) {
            entry.budget_wait = None;
            self.queue.block_class(entry.place.class, entry.place.set);
        }
    }

    /// Lets a call out past an empty queue, if nothing blocks it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a tenth of an uncontended call is otherwise spent on entering it")]
    pub(super) fn grant_directly(&mut self, now: Instant, request: &Request, group: GroupId) -> Option<RequestLease> {
        if !self.queue.is_empty() || self.blocked(now, request).is_some() {
            return None;
        }
        self.queue.serve_directly(group, 1.0);
        let lease = self.grant(now, request.resource, request.estimate);
        if self.log.is_on() {
            self.tell_direct(now, request.resource, lease.id);
        }
        Some(lease)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a tenth of an uncontended call is otherwise spent on entering it")]
    pub(super) fn grant(&mut self, now: Instant, resource: ResourceId, estimate: Usage) -> RequestLease {
        let entry = &mut self.resources[resource.index()];
        let held = entry.grant(now, resource, estimate, self.log.is_on());
        self.providers[entry.owner.0 as usize].in_flight += 1;
        RequestLease { id: self.ledger.grant(resource.0, held) }
    }
}

/// Waiters.
impl RequestAdmission {
    #[inline]
    pub(super) fn enqueue(
        &mut self,
        now: Instant,
        request: &Request,
        group: GroupId,
        deadline: Option<Instant>,
        tied: Option<YieldingWaiter>,
    ) -> SlotKey {
        let Request { resource, estimate, .. } = *request;
        let is_tied = tied.is_some();
        let since = Since::at(now, deadline.is_some() || self.log.is_on());
        let number = self.sequence;
        let key = self.waiters.insert(Waiter { resource, number, since, deadline, estimate, is_tied, place: 0 });
        if self.log.is_on() {
            self.tell_queued(now, resource, WaiterId(key));
        }
        let entry = &mut self.resources[resource.index()];
        let class = tied.map_or(entry.place.class, |tied| tied.place.class);
        let place = self.queue.append(key.to_bits(), self.queue.first_fifo(group), class, 1.0);
        if let Some(waiter) = self.waiters.get_mut(key) {
            waiter.place = place;
        }
        entry.waiters += 1;
        if let Some(tied) = &tied {
            entry.suspended += u32::from(tied.state == YieldState::Suspended);
            self.ties.enter(resource, key, tied);
        }
        if entry.waiters == 1 {
            self.waited.push(resource);
        }
        self.reconsider(resource);
        key
    }

    /// Offers a resource's first waiter anew where its turn or its estimate may differ from the one that was refused.
    fn reconsider(&mut self, resource: ResourceId) {
        let entry = &self.resources[resource.index()];
        if !entry.budgets.is_empty() {
            self.queue.unblock(entry.place.set);
        }
    }

    /// [`Self::expire`] for a caller that serves nobody: a wake-up stays due, because whoever stood behind a refused waiter in
    /// its group, or waits in an opened set, may be free to go. One is enough to serve them all.
    fn refuse_overdue(&mut self, now: Instant) {
        if self.timers.next().is_none_or(|at| at > now) {
            return;
        }
        self.expire_due(now);
        if let Some(resource) = self.waited.first().copied() {
            self.resources[resource.index()].wake_at = Some(now);
            self.arm(now, Timer::Wake(resource.0));
        }
        self.trim();
    }

    /// Refuses the waiters whose deadline has passed and opens the blocked_sets of the resources whose wake-up was due.
    #[inline]
    pub(super) fn expire(&mut self, now: Instant) {
        if self.timers.next().is_some_and(|at| at <= now) {
            self.expire_due(now);
        }
    }

    #[inline(never)]
    fn expire_due(&mut self, now: Instant) {
        while let Some((at, timer)) = self.timers.pop_due(now) {
            match timer {
                Timer::Deadline(key) => {
                    if self.waiters.get(key).is_some_and(|waiter| waiter.deadline == Some(at)) {
                        self.refuse(now, key, DenialReason::QueueTimeout);
                    }
                }
                Timer::Wake(resource) => {
                    let entry = &mut self.resources[resource as usize];
                    if entry.wake_at == Some(at) {
                        entry.wake_at = None;
                        self.queue.unblock(entry.place.set);
                        self.tell_ramp(now, ResourceId(resource));
                    }
                }
            }
        }
    }

    pub(super) fn refuse(&mut self, now: Instant, key: SlotKey, reason: DenialReason) {
        let Some(waiter) = self.remove_waiter(key) else { return };
        let denial = self.refusal(now, waiter.resource, reason);
        if self.log.is_on() {
            self.tell_withdrawn(now, WaiterId(key), &waiter, reason);
        }
        self.effects.push_back(Effect::Refused { waiter: WaiterId(key), denial });
    }

    pub(super) fn remove_waiter(&mut self, key: SlotKey) -> Option<Waiter> {
        let waiter = self.waiters.remove(key)?;
        self.queue.withdraw(waiter.place);
        self.forget_waiter(key, &waiter);
        self.reconsider(waiter.resource);
        Some(waiter)
    }

    /// One waiter fewer; a wake-up that nobody waits for any more is off.
    fn forget_waiter(&mut self, key: SlotKey, waiter: &Waiter) {
        let resource = waiter.resource;
        let entry = &mut self.resources[resource.index()];
        entry.waiters -= 1;
        if waiter.is_tied
            && let Some(tied) = self.ties.leave(resource, key)
        {
            entry.suspended -= u32::from(tied.state == YieldState::Suspended);
        }
        if entry.waiters == 0 {
            entry.wake_at = None;
            entry.budget_wait = None;
            self.waited.retain(|waited| *waited != resource);
        }
    }
}

/// Time.
impl RequestAdmission {
    /// Arms one wake-up for each resource whose waiters wait for time, and drops those that lost their meaning.
    #[inline]
    pub(super) fn arm_wakes(&mut self, now: Instant) {
        for at in 0..self.waited.len() {
            let resource = self.waited[at];
            let entry = &self.resources[resource.index()];
            let next = entry.next_change(now);
            if next != entry.wake_at {
                self.arm_wake(resource, next);
            }
        }
        self.trim();
    }

    #[inline(never)]
    fn arm_wake(&mut self, resource: ResourceId, next: Option<Instant>) {
        self.resources[resource.index()].wake_at = next;
        if let Some(instant) = next {
            self.arm(instant, Timer::Wake(resource.0));
        }
    }

    pub(super) fn arm(&mut self, at: Instant, timer: Timer) {
        let Self { timers, waiters, resources, .. } = self;
        let live = waiters.len() + resources.len();
        timers.arm(at, timer, live, |at, timer| is_current(waiters, resources, at, timer));
    }

    #[inline]
    pub(super) fn trim(&mut self) {
        let Self { timers, waiters, resources, .. } = self;
        timers.trim(|at, timer| is_current(waiters, resources, at, timer));
    }
}

fn is_current(waiters: &Slots<Waiter>, resources: &[Resource], at: Instant, timer: Timer) -> bool {
    match timer {
        Timer::Deadline(key) => waiters.get(key).is_some_and(|waiter| waiter.deadline == Some(at)),
        Timer::Wake(resource) => resources[resource as usize].wake_at == Some(at),
    }
}
