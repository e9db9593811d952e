//! Selection of the next waiter, grants, and the wait queue of one provider and model.

use super::health::{Attempt, GrantHealth, Health};
use super::wait_queue::{QueuePosition, WaitQueue};
use super::{Block, ProviderModel, TaskSide, reborrow};
use crate::budget::Usage;
use crate::fair_queue::{Eligibility, QueueGroupId, Selection, ServiceRecord};
use crate::id::SlotKey;
use crate::limit::controller::RecordedInstant;
use crate::request::keys::Request;
use crate::request::result::{Denial, DenialReason, RequestEffect, RequestLease};
use crate::request::shared::Shared;
use crate::request::waiter::Waiter;
use crate::request::yielding::{YieldState, YieldingWaiter};
use crate::time::Instant;

/// The next call to grant at a provider and model.
#[derive(Clone, Copy, Debug, PartialEq)]
enum NextCall {
    /// The call of this waiter, which can be granted.
    Waiter(Selection, SlotKey),
    /// A health call, because it gives more information than a waiting call.
    HealthCall,
    Nothing,
}

/// The properties of a request that joins the queue.
#[derive(Clone, Copy, Debug)]
pub(in crate::request) struct NewWaiter {
    pub(in crate::request) slot: usize,
    pub(in crate::request) group: QueueGroupId,
    pub(in crate::request) attempt: Attempt,
    /// The run whose worker makes the request, if it is known.
    pub(in crate::request) run: Option<SlotKey>,
    pub(in crate::request) yielding: Option<YieldingWaiter>,
    pub(in crate::request) deadline: Option<Instant>,
}

/// Grants.
impl ProviderModel {
    /// Grants a call directly if the queue is empty and nothing blocks the call.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a tenth of an uncontended call is otherwise spent on entering it")]
    pub(in crate::request) fn grant_directly(
        &mut self,
        now: Instant,
        slot: usize,
        group: QueueGroupId,
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
        let health_at_grant = match &mut self.health {
            None => GrantHealth::default(),
            Some(health) => health.grant(now, attempt),
        };
        let resource = &mut self.resources[slot];
        let held = resource.grant(now, health_at_grant, service, estimate, shared.events.is_on());
        self.in_flight += 1;
        RequestLease { id: shared.ledger.grant(resource.id.index() as u32, held) }
    }

    /// Returns whether a waiter could be granted at `now`. A new request must not overtake it.
    pub(in crate::request) fn has_eligible_waiter(&mut self, now: Instant, shared: &mut Shared) -> bool {
        self.has_waiters() && self.select(now, None, shared) != NextCall::Nothing
    }

    /// Returns whether waiters of the same resource may wait for a budget that a new request would use.
    pub(in crate::request) fn has_budget_waiters(&self, slot: usize) -> bool {
        let resource = &self.resources[slot];
        resource.waiters() > 0 && !resource.budgets.is_empty()
    }

    /// Returns the denial of a new request that would overtake a waiter.
    pub(in crate::request) fn overtaking_denial(&self, now: Instant, slot: usize) -> Denial {
        let changes_at = self.next_change(now, slot);
        Denial { reason: DenialReason::QueuedWaitersAhead, changes_at }
    }
}

/// Serving.
impl ProviderModel {
    /// Selects the first waiter that can be granted at `now`, without granting it. If `tasks` is given, a
    /// yielded waiter is selected only after its task resources were resumed.
    fn select(&mut self, now: Instant, mut tasks: TaskSide<'_>, shared: &mut Shared) -> NextCall {
        let health_with_calls = self.health.as_deref().filter(|_| self.health_calls.is_some());
        let prefers_health_call = health_with_calls.is_some_and(Health::next_probe_is_health_call);
        let decides_by_health_call = health_with_calls.is_some() && self.in_flight == 0;
        let mut has_skipped = false;
        let common = self.common_block(now);
        let health = self.health.as_deref().filter(|_| !self.undecided.is_empty());
        let holds_undecided = health.is_some_and(|health| health.holds_undecided(now, self.in_flight));
        let Self { queue, resources, id, .. } = self;
        let Shared { waiters, yielding, .. } = shared;
        let selection = queue.fair.select(|candidate| {
            let key = SlotKey::from_bits(candidate.item);
            let Some(waiter) = waiters.get(key) else { return Eligibility::Skip };
            // A waiter past its deadline is never granted, even if it was not denied yet. A waiter that
            // arrived at this instant with a timeout of zero is not past its deadline.
            if waiter.deadline.is_some_and(|end| end <= now && !waiter.since.elapsed(now).is_zero()) {
                return Eligibility::Skip;
            }
            let resource = &mut resources[waiter.slot()];
            if waiter.is_undecided && holds_undecided {
                return Eligibility::ClassBlocked(resource.placement.undecided.1);
            }
            let block = resource.block(now, common, waiter.estimate);
            resource.budget_wait = block.and_then(Block::budget_fits_at).map(|at| (at, waiter.estimate));
            if block.is_some() {
                return Eligibility::ClassBlocked(resource.placement.blocked_set);
            }
            if prefers_health_call || decides_by_health_call && waiter.is_undecided {
                has_skipped = true;
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
            Some(selection) => NextCall::Waiter(selection, SlotKey::from_bits(selection.candidate.item)),
            None if has_skipped => NextCall::HealthCall,
            None => NextCall::Nothing,
        }
    }

    /// Grants to waiters in order of turn while there is capacity. Returns the lease of `direct` if it is
    /// granted; every other grant becomes an effect.
    ///
    /// Without `tasks` it stops at the first yielded waiter, so that no later waiter overtakes it.
    pub(in crate::request) fn serve(
        &mut self,
        now: Instant,
        direct: Option<SlotKey>,
        mut tasks: TaskSide<'_>,
        shared: &mut Shared,
    ) -> Option<RequestLease> {
        let mut result = None;
        while self.queue.fair.has_offers() {
            let (selection, key) = match self.select(now, reborrow(&mut tasks), shared) {
                NextCall::Waiter(selection, key) => (selection, key),
                NextCall::HealthCall => {
                    self.make_health_call(now, shared);
                    break;
                }
                NextCall::Nothing => break,
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
            self.remove_bookkeeping(key, &waiter, shared);
            let lease = self.grant(now, waiter.slot(), service, waiter.estimate, waiter.attempt(), shared);
            self.block_if_full(now, waiter.slot());
            let id = shared.waiter_id(key);
            if shared.events.is_on() {
                self.emit_served(now, id, &waiter, lease.id, shared);
            }
            if direct == Some(key) {
                result = Some(lease);
            } else {
                shared.effects.push_back(RequestEffect::Granted { waiter: id, lease });
            }
        }
        result
    }

    /// Grants a health call to the host.
    #[cold]
    fn make_health_call(&mut self, now: Instant, shared: &mut Shared) {
        let Some(slot) = self.health_calls else { return };
        let attempt = Attempt { is_health_call: true, ..Attempt::default() };
        let lease = self.grant(now, slot, ServiceRecord::NONE, Usage::default(), attempt, shared);
        if shared.events.is_on() {
            self.emit_granted(now, slot, None, lease.id, shared);
        }
        shared.effects.push_back(RequestEffect::HealthCall { lease });
    }

    /// Returns whether [`Self::serve`] may have waiters to offer.
    pub(in crate::request) fn has_offers(&self) -> bool {
        self.queue.fair.has_offers()
    }

    /// Blocks the class of a resource without capacity, so that its next waiter is not offered in vain.
    fn block_if_full(&mut self, now: Instant, slot: usize) {
        let common = self.common_block(now);
        let resource = &mut self.resources[slot];
        if common.is_some() || !resource.controller.has_room(now) {
            resource.budget_wait = None;
            self.queue.fair.block_class(resource.placement.class, resource.placement.blocked_set);
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
        new_waiter: &NewWaiter,
        shared: &mut Shared,
    ) -> SlotKey {
        let NewWaiter { slot, group, attempt: Attempt { failed_probes, is_undecided, .. }, run, yielding, deadline } =
            *new_waiter;
        let Request { resource, estimate, .. } = *request;
        let key = shared.waiters.insert(Waiter {
            resource,
            slot: slot as u32,
            number: shared.sequence,
            since: RecordedInstant::at(now, deadline.is_some() || shared.events.is_on()),
            deadline,
            estimate,
            run,
            failed_probes,
            is_undecided,
            is_yielding: yielding.is_some(),
            fallback: request.fallback,
            is_repeated: request.is_repeated,
            node: 0,
        });
        if shared.events.is_on() {
            self.emit_queued(now, slot, key, shared);
        }
        let placement = &self.resources[slot].placement;
        let class = WaitQueue::class_of(yielding.map(|entry| entry.class), is_undecided, placement);
        let yields_in = yielding.map(|entry| entry.token.run.slot);
        let fifo = self.queue.fifo(QueuePosition { group, slot: slot as u32, run: yields_in, is_undecided });
        let node = self.queue.fair.append(key.to_bits(), fifo, class, 1.0);
        if let Some(waiter) = shared.waiters.get_mut(key) {
            waiter.node = node;
            if waiter.fallback.is_some() {
                shared.fallbacks.join(waiter);
            }
        }
        self.resources[slot].waiting.add(estimate);
        if is_undecided {
            self.undecided.push(key);
        }
        if let Some(entry) = &yielding {
            shared.yielding.insert(resource, key, entry);
        }
        self.unblock_budget_waiters(slot);
        key
    }

    /// Removes a waiter without granting it.
    pub(in crate::request) fn withdraw(&mut self, now: Instant, key: SlotKey, shared: &mut Shared) -> Option<Waiter> {
        let waiter = shared.waiters.remove(key)?;
        self.queue.fair.withdraw(waiter.node);
        let resource = &mut self.resources[waiter.slot()];
        let is_expired = waiter.deadline.is_some_and(|end| end <= now);
        if let Some((fits_at, estimate)) = resource.budget_wait.filter(|_| is_expired) {
            resource.note_denied(now, Block::Budget(fits_at), estimate);
        }
        self.remove_bookkeeping(key, &waiter, shared);
        self.unblock_budget_waiters(waiter.slot());
        Some(waiter)
    }

    /// Unblocks the waiters of a resource with budgets after a waiter joined or left: another waiter may be
    /// first now, and its estimate may fit.
    fn unblock_budget_waiters(&mut self, slot: usize) {
        if !self.resources[slot].budgets.is_empty() {
            self.unblock(slot);
        }
    }

    fn remove_bookkeeping(&mut self, key: SlotKey, waiter: &Waiter, shared: &mut Shared) {
        let resource = &mut self.resources[waiter.slot()];
        resource.waiting.remove(waiter.estimate);
        if waiter.is_yielding {
            shared.yielding.remove(waiter.resource, key);
        }
        if waiter.fallback.is_some() {
            shared.fallbacks.leave(waiter);
        }
        if waiter.is_undecided {
            self.undecided.retain(|other| *other != key);
            // Undecided waiters behind it may have been blocked because of it.
            self.queue.unblock(resource.placement.undecided.1);
        }
        if resource.waiters() == 0 {
            resource.budget_wait = None;
        }
        if !self.has_waiters() {
            self.wake_at = None;
        }
    }

    /// Adds a queue class for yielding waiters.
    pub(in crate::request) fn add_yield_class(&mut self) -> crate::request::yielding::YieldClass {
        self.queue.add_yield_class()
    }
}
