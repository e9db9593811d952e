//! One resource: a domain of a provider and model, with its controller, its budgets and its placement in the
//! queue.

use alloc::collections::BTreeMap;

use super::health::GrantHealth;
use crate::budget::{
    AnsweredCall, BudgetConfig, BudgetKey, Budgets, DeniedCall, Feedback, RateLimitFeedback, Usage, WaitingCalls,
    WalletLease, WalletReport,
};
use crate::call::{Completion, Outcome};
use crate::fair_queue::{BlockedSetId, ClassId, QueueGroupId, ServiceRecord};
use crate::lease::ReleaseDiagnostics;
use crate::limit::LimitConfig;
use crate::limit::controller::{Controller, Grant};
use crate::request::keys::{Domain, ResourceId};
use crate::request::result::DenialReason;
use crate::time::Instant;

#[derive(Debug)]
pub(in crate::request) struct Resource {
    pub(in crate::request) id: ResourceId,
    pub(in crate::request) domain: Domain,
    pub(in crate::request) controller: Controller,
    pub(in crate::request) budgets: Budgets,
    /// The calls that wait. Its `room` and `next` are set for a report only.
    pub(super) waiting: WaitingCalls,
    pub(in crate::request) last_outcome: Option<Outcome>,
    /// Counts of rejected releases of this resource.
    pub(in crate::request) irregular: ReleaseDiagnostics,
    /// The limit in the last emitted limit event.
    pub(in crate::request) last_emitted_limit: u32,
    pub(super) placement: QueuePlacement,
    /// When the budgets suffice for the first waiter, if only they block it, and its estimate.
    pub(super) budget_wait: Option<(Instant, Usage)>,
    /// The last call that could not start because a shared budget was spent, and does not wait.
    denied: Option<DeniedCall>,
}

/// The classes, blocked sets and group in which a resource's waiters are queued.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuePlacement {
    pub(super) class: ClassId,
    pub(super) blocked_set: BlockedSetId,
    /// The class and blocked set of undecided calls.
    pub(super) undecided: (ClassId, BlockedSetId),
    /// The group of requests without a fairness group.
    pub(super) own_group: QueueGroupId,
}

/// The data that is stored with a lease.
#[derive(Clone, Copy, Debug)]
pub(in crate::request) struct CallRecord {
    /// The index of its resource.
    pub(in crate::request) index: u32,
    pub(super) health_at_grant: GrantHealth,
    pub(in crate::request) grant: Grant,
    /// The turn that it used of its group, which is refunded if the call is rate limited.
    pub(in crate::request) service: ServiceRecord,
    estimate: Usage,
}

/// The reason why a call is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::request) enum Block {
    /// The health of the provider blocks all calls.
    Outage,
    /// The provider and model is paused by its user.
    Paused,
    Cooldown,
    /// The provider's cap is reached, over all domains.
    Cap,
    Limit,
    /// The limit algorithm allows no call before this instant, although fewer calls are in flight than the
    /// limit allows.
    Paced(Instant),
    /// A budget is exhausted until this instant.
    Budget(Instant),
}

impl Block {
    pub(super) fn reason(self) -> DenialReason {
        match self {
            Self::Outage => DenialReason::Outage,
            Self::Paused => DenialReason::Paused,
            Self::Cooldown => DenialReason::Cooldown,
            Self::Cap | Self::Limit => DenialReason::NoCapacity,
            Self::Paced(_) => DenialReason::Paced,
            Self::Budget(_) => DenialReason::BudgetExhausted,
        }
    }

    pub(super) fn budget_fits_at(self) -> Option<Instant> {
        match self {
            Self::Budget(at) => Some(at),
            Self::Outage | Self::Paused | Self::Cooldown | Self::Cap | Self::Limit | Self::Paced(_) => None,
        }
    }
}

impl Resource {
    pub(super) fn new(
        id: ResourceId,
        domain: Domain,
        placement: QueuePlacement,
        config: LimitConfig,
        cap: u32,
    ) -> Self {
        let controller = Controller::new(config, cap);
        Self {
            id,
            domain,
            budgets: Budgets::default(),
            waiting: WaitingCalls::default(),
            last_outcome: None,
            irregular: ReleaseDiagnostics::default(),
            last_emitted_limit: controller.limit(Instant::ZERO),
            placement,
            budget_wait: None,
            denied: None,
            controller,
        }
    }

    /// Replaces the budgets: see [`Budgets::replace`].
    pub(in crate::request) fn set_budgets(&mut self, now: Instant, budgets: &[BudgetConfig]) {
        self.budgets.replace(now, budgets, self.controller.grants());
        self.budget_wait = None;
    }

    /// Applies a lease of budgets: see [`Budgets::lease`].
    pub(in crate::request) fn lease_budgets(&mut self, now: Instant, lease: &WalletLease) {
        self.budgets.lease(now, lease, self.controller.grants());
    }

    /// Returns the state of the shared budgets: see [`Budgets::report`]. O(budgets).
    pub(in crate::request) fn report_budgets(&mut self, now: Instant) -> BTreeMap<BudgetKey, WalletReport> {
        let mut waiting = self.waiting;
        waiting.room = self.controller.limit(now).saturating_sub(self.controller.in_flight());
        // A grant does nothing for a call that waits for an instant.
        let needs_grant = |at: Instant| at == Instant::MAX;
        waiting.next = self.budget_wait.filter(|(at, _)| needs_grant(*at)).map(|(_, estimate)| estimate);
        if let Some(DeniedCall { estimate, .. }) = self.denied.filter(|_| self.waiting.count == 0) {
            waiting.add(estimate);
            let is_next = waiting.room > 0 && self.budgets.fits_at(now, estimate).is_some_and(needs_grant);
            waiting.next = is_next.then_some(estimate);
        }
        self.denied = self.denied.filter(|denied| denied.is_recent(now));
        self.budgets.report(now, &waiting)
    }

    /// Records that a call cannot start because of a block, and does not wait. If it needs an amount of a
    /// shared budget, the next reports ask for it: a caller that tries again would else never get one.
    #[cold]
    pub(super) fn note_denied(&mut self, now: Instant, block: Block, estimate: Usage) {
        if block == Block::Budget(Instant::MAX) {
            self.denied = Some(DeniedCall::new(now, estimate));
        }
    }

    /// Returns the number of calls that wait.
    #[inline]
    pub(in crate::request) fn waiters(&self) -> u32 {
        self.waiting.count
    }

    /// Returns when the capacity next changes by time alone, if it is known.
    pub(in crate::request) fn next_change(&self, now: Instant) -> Option<Instant> {
        let blocked_until = self.controller.blocked_until(now);
        // A grant of a shared budget comes at no known instant.
        let budget_wait = self.budget_wait.map(|(until, _)| until).filter(|until| *until < Instant::MAX);
        blocked_until.or(budget_wait).or_else(|| self.controller.next_limit_change(now))
    }

    /// Records the grant of a call and reserves its estimate.
    #[inline]
    pub(super) fn grant(
        &mut self,
        now: Instant,
        health_at_grant: GrantHealth,
        service: ServiceRecord,
        estimate: Usage,
        emits_events: bool,
    ) -> CallRecord {
        let grant = self.controller.grant(now, emits_events || !self.budgets.is_empty());
        let estimate = self.budgets.reserve(now, grant.number, estimate);
        CallRecord { index: self.id.index() as u32, health_at_grant, grant, service, estimate }
    }

    /// Records the end of a call. A call with `is_hidden` was part of an outage.
    #[inline]
    pub(super) fn end(&mut self, now: Instant, held: &CallRecord, done: &Completion, is_hidden: bool) {
        self.last_outcome = Some(done.outcome);
        self.controller.end(now, &held.grant, done, is_hidden);
        self.budgets.settle(now, held.grant.number, held.estimate, done);
    }

    /// Applies the rates that the response to a call in flight states.
    pub(in crate::request) fn apply_feedback(
        &mut self,
        now: Instant,
        held: &CallRecord,
        corrections: &[RateLimitFeedback],
        learns: bool,
    ) -> Feedback {
        let call = AnsweredCall {
            grant: held.grant.number,
            granted_at: held.grant.since(),
            is_timed: self.controller.is_timed_since(&held.grant),
            grants: self.controller.grants(),
            in_flight: self.controller.in_flight(),
            in_flight_at_grant: held.grant.in_flight,
        };
        self.budgets.apply(now, corrections, &call, learns)
    }

    /// Returns whether a grant or an end of a call may depend on the time, at `latest` or later.
    #[inline]
    pub(super) fn uses_time(&self, latest: Instant) -> bool {
        self.controller.uses_time(latest) || !self.budgets.is_empty()
    }

    /// Returns what blocks a call of this estimate at `now`. `common` is what blocks the calls of all
    /// domains.
    #[inline]
    pub(in crate::request) fn block(&self, now: Instant, common: Option<Block>, estimate: Usage) -> Option<Block> {
        if matches!(common, Some(Block::Outage | Block::Paused)) {
            return common;
        }
        if self.controller.blocked_until(now).is_some() {
            return Some(Block::Cooldown);
        }
        if common.is_some() {
            return common;
        }
        if !self.controller.has_room(now) {
            return Some(self.controller.paced_until(now).map_or(Block::Limit, Block::Paced));
        }
        self.budgets.fits_at(now, estimate).map(Block::Budget)
    }
}
