//! Who goes next at one provider and model.

use super::health::{Health, Mark};
use super::wait_queue::{QueuePosition, WaitQueue};
use super::{Block, ProviderModel, Since, TaskSide, reborrow};
use crate::budget::Usage;
use crate::fair_queue::{Eligibility, GroupId as QueueGroup, Selection, ServiceRecord};
use crate::id::SlotKey;
use crate::request::answer::{Denial, DenialReason, Effect, FailedProbes, RequestLease};
use crate::request::keys::Request;
use crate::request::shared::{Shared, Waiter};
use crate::request::yielding::{YieldState, YieldingWaiter};
use crate::time::Instant;

/// What is to be known of a call that is made again. The default is one that is made for the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::request) struct Attempt {
    pub(in crate::request) failed_probes: FailedProbes,
    /// Whether its last failure is not decided yet.
    pub(in crate::request) is_undecided: bool,
    /// Whether the host makes it to find out how the provider is.
    pub(in crate::request) is_health_call: bool,
}

/// What comes next at a provider and model.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    /// This waiter could go.
    Waiter(Selection, SlotKey),
    /// A health call: it says more than the calls that wait.
    HealthCall,
    Nothing,
}

/// How a request joins the queue.
#[derive(Clone, Copy, Debug)]
pub(in crate::request) struct Joining {
    pub(in crate::request) slot: usize,
    pub(in crate::request) group: QueueGroup,
    pub(in crate::request) attempt: Attempt,
    /// The run whose worker asks, if it is known.
    pub(in crate::request) run: Option<SlotKey>,
    pub(in crate::request) yielding: Option<YieldingWaiter>,
    pub(in crate::request) deadline: Option<Instant>,
}

/// Grants.
impl ProviderModel {
    /// Lets a call out past an empty queue, if nothing blocks it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a tenth of an uncontended call is otherwise spent on entering it")]
    pub(in crate::request) fn grant_directly(
        &mut self,
        now: Instant,
        slot: usize,
        group: QueueGroup,
        request: &Request,
        shared: &mut Shared,
    ) -> Option<RequestLease> {
        if self.has_waiters() || self.blocked(now, slot, request).is_some() {
            return None;
        }
        self.queue.fair.serve_directly(group, 1.0);
        let lease = self.grant(now, slot, ServiceRecord::direct(group), request.estimate, Attempt::default(), shared);
        if shared.events.is_on() {
            self.emit_direct(now, slot, lease.id, shared);
        }
        Some(lease)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a tenth of an uncontended call is otherwise spent on entering it")]
    pub(in crate::request) fn grant(
        &mut self,
        now: Instant,
        slot: usize,
        service: ServiceRecord,
        estimate: Usage,
        attempt: Attempt,
        shared: &mut Shared,
    ) -> RequestLease {
        let mark = match &mut self.health {
            None => Mark::default(),
            Some(health) => health.grant(now, attempt),
        };
        let resource = &mut self.resources[slot];
        let held = resource.grant(now, mark, service, estimate, shared.events.is_on());
        self.in_flight += 1;
        RequestLease { id: shared.ledger.grant(resource.id.index() as u32, held) }
    }

    /// Whether a waiter could be granted at this instant, which a newcomer must not overtake.
    pub(in crate::request) fn is_waiter_ahead(&mut self, now: Instant, shared: &mut Shared) -> bool {
        self.has_waiters() && self.select(now, None, shared) != Next::Nothing
    }

    /// Whether waiters of the same resource wait for a budget, which a newcomer would spend.
    pub(in crate::request) fn would_spend_ahead(&self, slot: usize) -> bool {
        let resource = &self.resources[slot];
        resource.waiters > 0 && !resource.budgets.is_empty()
    }

    /// The denial of a newcomer that would overtake.
    pub(in crate::request) fn overtaking(&self, now: Instant, slot: usize) -> Denial {
        let changes_at = self.next_change(now, slot);
        Denial { reason: DenialReason::QueuedWaitersAhead, changes_at }
    }
}

/// Turns.
impl ProviderModel {
    /// The first waiter that could go at `now`. Serves nothing. A yielded waiter has resumed if `tasks` are
    /// at hand.
    fn select(&mut self, now: Instant, mut tasks: TaskSide<'_>, shared: &mut Shared) -> Next {
        let made = self.health.as_deref().filter(|_| self.health_calls.is_some());
        let spares_all = made.is_some_and(Health::wants_health_call);
        let spares_undecided = made.is_some() && self.in_flight == 0;
        let mut has_spared = false;
        let common = self.common_block(now);
        let health = self.health.as_deref().filter(|_| !self.undecided.is_empty());
        let holds_undecided = health.is_some_and(|health| health.holds_undecided(now, self.in_flight));
        let Self { queue, resources, id, .. } = self;
        let Shared { waiters, yielding, .. } = shared;
        let selection = queue.fair.select(|candidate| {
            let key = SlotKey::from_bits(candidate.item);
            let Some(waiter) = waiters.get(key) else { return Eligibility::Skip };
            // A waiter past its deadline is never granted, not even before it is rejected. The one that
            // arrives at this instant with a timeout of zero is not past it.
            if waiter.deadline.is_some_and(|end| end <= now && !waiter.since.elapsed(now).is_zero()) {
                return Eligibility::Skip;
            }
            let resource = &mut resources[waiter.slot()];
            if waiter.is_undecided && holds_undecided {
                return Eligibility::ClassBlocked(resource.place.undecided.1);
            }
            let block = resource.block(now, common, waiter.estimate);
            resource.budget_wait = block.and_then(Block::budget_fits_at);
            if block.is_some() {
                return Eligibility::ClassBlocked(resource.place.blocked_set);
            }
            if spares_all || spares_undecided && waiter.is_undecided {
                has_spared = true;
                return Eligibility::Skip;
            }
            let yielded = if waiter.is_yielding { yielding.get(key) } else { None };
            match (yielded, &mut tasks) {
                (Some(YieldingWaiter { token, class, state: YieldState::Yielded }), Some(tasks)) => {
                    if yielding.resume(now, *tasks, &token, waiter.resource, waiters) {
                        return Eligibility::Accept;
                    }
                    yielding.block(*id, class.blocked_set, token);
                    Eligibility::ClassBlocked(class.blocked_set)
                }
                _ => Eligibility::Accept,
            }
        });
        match selection {
            Some(selection) => Next::Waiter(selection, SlotKey::from_bits(selection.candidate.item)),
            None if has_spared => Next::HealthCall,
            None => Next::Nothing,
        }
    }

    /// Grants to waiters in order of turn while there is room. The grant of `direct` is returned; every other
    /// becomes an effect.
    ///
    /// Without `tasks` it stops at the first yielded waiter, so that nothing behind it overtakes.
    pub(in crate::request) fn serve(
        &mut self,
        now: Instant,
        direct: Option<SlotKey>,
        mut tasks: TaskSide<'_>,
        shared: &mut Shared,
    ) -> Option<RequestLease> {
        let mut answer = None;
        while self.queue.fair.has_offers() {
            let (selection, key) = match self.select(now, reborrow(&mut tasks), shared) {
                Next::Waiter(selection, key) => (selection, key),
                Next::HealthCall => {
                    self.make_health_call(now, shared);
                    break;
                }
                Next::Nothing => break,
            };
            if tasks.is_none() && shared.yielding.is_yielded(key) {
                shared.yielding.needs_resume = true;
                break;
            }
            let service = self.queue.fair.next_service(selection.candidate.group);
            if self.queue.fair.commit(&selection).is_err() {
                break;
            }
            if shared.yielding.is_yielded(key) {
                shared.yielding.last_resumed = self.id.index();
            }
            let Some(waiter) = shared.waiters.remove(key) else { break };
            self.forget_waiter(key, &waiter, shared);
            let lease = self.grant(now, waiter.slot(), service, waiter.estimate, waiter.attempt(), shared);
            self.block_if_full(now, waiter.slot());
            let id = shared.waiter_id(key);
            if shared.events.is_on() {
                self.emit_served(now, id, &waiter, lease.id, shared);
            }
            if direct == Some(key) {
                answer = Some(lease);
            } else {
                shared.effects.push_back(Effect::Granted { waiter: id, lease });
            }
        }
        answer
    }

    /// Lets a health call out.
    #[cold]
    fn make_health_call(&mut self, now: Instant, shared: &mut Shared) {
        let Some(slot) = self.health_calls else { return };
        let attempt = Attempt { is_health_call: true, ..Attempt::default() };
        let lease = self.grant(now, slot, ServiceRecord::NONE, Usage::default(), attempt, shared);
        if shared.events.is_on() {
            self.emit_granted(now, slot, None, lease.id, shared);
        }
        shared.effects.push_back(Effect::HealthCall { lease });
    }

    /// Whether [`Self::serve`] may have anything to offer.
    pub(in crate::request) fn has_offers(&self) -> bool {
        self.queue.fair.has_offers()
    }

    /// Spares the next waiter of a resource without room an offer that would be refused.
    fn block_if_full(&mut self, now: Instant, slot: usize) {
        let common = self.common_block(now);
        let resource = &mut self.resources[slot];
        if common.is_some() || !resource.controller.has_room(now) {
            resource.budget_wait = None;
            self.queue.fair.block_class(resource.place.class, resource.place.blocked_set);
        }
    }
}

/// Waiters.
impl ProviderModel {
    /// Queues a request.
    #[inline]
    pub(in crate::request) fn enqueue(
        &mut self,
        now: Instant,
        request: &Request,
        joining: &Joining,
        shared: &mut Shared,
    ) -> SlotKey {
        let Joining { slot, group, attempt: Attempt { failed_probes, is_undecided, .. }, run, yielding, deadline } =
            *joining;
        let Request { resource, estimate, .. } = *request;
        let key = shared.waiters.insert(Waiter {
            resource,
            slot: slot as u32,
            number: shared.sequence,
            since: Since::at(now, deadline.is_some() || shared.events.is_on()),
            deadline,
            estimate,
            run,
            failed_probes,
            is_undecided,
            is_yielding: yielding.is_some(),
            fallback: request.fallback,
            node: 0,
        });
        if shared.events.is_on() {
            self.emit_queued(now, slot, key, shared);
        }
        let place = &self.resources[slot].place;
        let class = WaitQueue::class_of(yielding.map(|entry| entry.class), is_undecided, place);
        let yields_in = yielding.map(|entry| entry.token.run.slot);
        let fifo = self.queue.fifo(QueuePosition { group, slot: slot as u32, run: yields_in, is_undecided });
        let node = self.queue.fair.append(key.to_bits(), fifo, class, 1.0);
        if let Some(waiter) = shared.waiters.get_mut(key) {
            waiter.node = node;
            if waiter.fallback.is_some() {
                shared.fallbacks.join(waiter);
            }
        }
        self.resources[slot].waiters += 1;
        if is_undecided {
            self.undecided.push(key);
        }
        if let Some(entry) = &yielding {
            shared.yielding.insert(resource, key, entry);
        }
        self.reconsider(slot);
        key
    }

    /// Removes a waiter that is not served.
    pub(in crate::request) fn withdraw(&mut self, key: SlotKey, shared: &mut Shared) -> Option<Waiter> {
        let waiter = shared.waiters.remove(key)?;
        self.queue.fair.withdraw(waiter.node);
        self.forget_waiter(key, &waiter, shared);
        self.reconsider(waiter.slot());
        Some(waiter)
    }

    /// Offers a resource's first waiter again where its turn or its estimate may differ from the one that was
    /// refused.
    fn reconsider(&mut self, slot: usize) {
        if !self.resources[slot].budgets.is_empty() {
            self.unblock(slot);
        }
    }

    fn forget_waiter(&mut self, key: SlotKey, waiter: &Waiter, shared: &mut Shared) {
        let resource = &mut self.resources[waiter.slot()];
        resource.waiters -= 1;
        if waiter.is_yielding {
            shared.yielding.remove(waiter.resource, key);
        }
        if waiter.fallback.is_some() {
            shared.fallbacks.leave(waiter);
        }
        if waiter.is_undecided {
            self.undecided.retain(|other| *other != key);
            // It may have kept those that failed before it, in an earlier streak.
            self.queue.unblock(resource.place.undecided.1);
        }
        if resource.waiters == 0 {
            resource.budget_wait = None;
        }
        if !self.has_waiters() {
            self.wake_at = None;
        }
    }

    /// The class of the waiters of a resource that yield what `token` stands for.
    pub(in crate::request) fn add_yield_class(&mut self) -> crate::request::yielding::YieldClass {
        self.queue.add_yield_class()
    }
}
