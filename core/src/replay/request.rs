//! The commands of a recorded request admission. [`RequestAdmission`] describes each command.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::ToString;

use super::recorded::{Machine, Recorded};
use crate::budget::{BudgetConfig, BudgetKey, RateLimitFeedback, WalletLease, WalletReport};
use crate::error::ConfigError;
use crate::lease::{LeaseId, ReleaseResult};
use crate::limit::{LimitAlgorithm, LimitChoice, LimitConfig};
use crate::request::event::{RequestEvent, RequestInterest};
use crate::request::{
    AcquireResult, AfterCall, Completion, Denial, Domain, FallbackId, GroupId, ProviderModelId, Request,
    RequestAdmission, RequestCommand, RequestEffect, RequestLease, ResourceId, Retry, WaiterId,
};
use crate::share::{Coordinator, Member, MemberId, SessionCommand, SessionSettings};
use crate::time::{Duration, Instant};
use crate::yielding::{TaskResources, TaskToken};

impl Machine for RequestAdmission {
    type Command = RequestCommand;

    fn pending_effects(&self) -> usize {
        self.pending_effects()
    }
}

/// Custom code of the host, which a log cannot contain.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForeignCode(pub(super) &'static str);

/// The leader of each process that has led a shared limit, by the resource and its member.
pub(super) type Leaders = BTreeMap<(ResourceId, MemberId), Option<Coordinator>>;

/// Registration. A command that fails changes nothing and is not recorded.
impl Recorded<RequestAdmission> {
    /// Calls [`RequestAdmission::register`], and records it unless it fails.
    pub fn register(
        &mut self,
        now: Instant,
        provider: &str,
        model: &str,
        alias: &str,
        max_parallel: u32,
    ) -> Result<ProviderModelId, ConfigError> {
        let command = self.prepare(|| RequestCommand::Register {
            now,
            provider: provider.to_string(),
            model: model.to_string(),
            alias: alias.to_string(),
            max_parallel,
        });
        let answer = self.machine.register(now, provider, model, alias, max_parallel);
        self.record_accepted(command, answer)
    }

    /// Calls [`RequestAdmission::resource`], and records it unless it fails.
    pub fn resource(&mut self, owner: ProviderModelId, domain: Domain) -> Result<ResourceId, ConfigError> {
        let command = self.prepare(|| RequestCommand::Resource { owner, domain: domain.clone() });
        let answer = self.machine.resource(owner, domain);
        self.record_accepted(command, answer)
    }

    /// Calls [`RequestAdmission::configure`], and records it unless it fails.
    pub fn configure(&mut self, now: Instant, resource: ResourceId, config: LimitConfig) -> Result<(), ConfigError> {
        let command = self.prepare(|| RequestCommand::Configure { now, resource, config: config.clone() });
        let answer = self.machine.configure(now, resource, config);
        self.record_accepted(command, answer)
    }

    /// Calls [`RequestAdmission::reconfigure`], and records it unless it fails.
    pub fn reconfigure(&mut self, now: Instant, resource: ResourceId, config: LimitConfig) -> Result<(), ConfigError> {
        let command = self.prepare(|| RequestCommand::Reconfigure { now, resource, config: config.clone() });
        let answer = self.machine.reconfigure(now, resource, config);
        self.record_accepted(command, answer)
    }

    /// Calls [`RequestAdmission::set_algorithm`], and records it unless it fails. The log then cannot be
    /// replayed.
    pub fn set_algorithm(
        &mut self,
        now: Instant,
        resource: ResourceId,
        algorithm: Box<dyn LimitAlgorithm>,
    ) -> Result<(), ConfigError> {
        let command = self.prepare(|| RequestCommand::SetAlgorithm { now, resource });
        let answer = self.machine.set_algorithm(now, resource, algorithm);
        self.record_accepted(command, answer)
    }

    /// Calls [`RequestAdmission::share_limit`], and records it unless it fails.
    pub(crate) fn share_limit<T>(
        &mut self,
        now: Instant,
        resource: ResourceId,
        id: MemberId,
        seed: u64,
        settings: &SessionSettings,
        share: impl FnOnce(Member) -> (Box<dyn LimitAlgorithm>, T),
    ) -> Result<T, ConfigError> {
        let command = self.prepare(|| {
            let settings = Box::new(settings.clone());
            RequestCommand::ShareLimit { now, resource, id, seed, settings }
        });
        let answer = self.machine.share_limit(now, resource, id, seed, settings, share);
        self.record_accepted(command, answer)
    }

    /// Records a command of the session of the member `id`, after it was applied. The result of one of the
    /// member is the limit of the resource, and that of one of the leader its decision.
    pub(crate) fn record_session(&mut self, now: Instant, resource: ResourceId, id: MemberId, command: SessionCommand) {
        match command {
            SessionCommand::Member(command) => {
                self.record(|| RequestCommand::DriveMember { now, resource, id, command });
                let machine = &self.machine;
                self.recorder.add_result(|digest| digest.room(machine.room(now, resource)));
            }
            SessionCommand::Leader { now, command, decide } => {
                self.record(|| RequestCommand::DriveLeader { now, resource, id, command });
                self.recorder.add_result(|digest| digest.decide(decide.as_deref()));
            }
        }
    }

    /// Calls [`RequestAdmission::set_suspended`], and records it if it has an effect.
    #[inline]
    pub fn set_suspended(&mut self, suspended: Duration) {
        if suspended > self.machine.suspended() {
            self.record(|| RequestCommand::SetSuspended { suspended });
            self.machine.set_suspended(suspended);
        }
    }

    /// Calls [`RequestAdmission::refresh_limit`], and records it unless it fails.
    pub fn refresh_limit(&mut self, now: Instant, resource: ResourceId) -> Result<(), ConfigError> {
        let command = self.prepare(|| RequestCommand::RefreshLimit { now, resource });
        let answer = self.machine.refresh_limit(now, resource);
        self.record_accepted(command, answer)
    }

    /// Calls [`RequestAdmission::choose_algorithm`], and records it unless it fails.
    pub fn choose_algorithm(
        &mut self,
        now: Instant,
        resource: ResourceId,
        choice: LimitChoice,
    ) -> Result<(), ConfigError> {
        let command = self.prepare(|| RequestCommand::ChooseAlgorithm { now, resource, choice });
        let answer = self.machine.choose_algorithm(now, resource, choice);
        self.record_accepted(command, answer)
    }

    /// Calls [`RequestAdmission::set_budgets`], and records it unless it fails.
    pub fn set_budgets(
        &mut self,
        now: Instant,
        resource: ResourceId,
        budgets: &[BudgetConfig],
    ) -> Result<(), ConfigError> {
        let command = self.prepare(|| RequestCommand::SetBudgets { now, resource, budgets: budgets.to_vec() });
        let answer = self.machine.set_budgets(now, resource, budgets);
        self.record_accepted(command, answer)
    }

    /// Calls [`RequestAdmission::lease_budgets`], and records it unless it fails or has no effect.
    pub fn lease_budgets(
        &mut self,
        now: Instant,
        resource: ResourceId,
        lease: &WalletLease,
    ) -> Result<(), ConfigError> {
        if self.machine.has_budget_lease(resource, lease) {
            return Ok(());
        }
        let command = self.prepare(|| RequestCommand::LeaseBudgets { now, resource, lease: lease.clone() });
        let answer = self.machine.lease_budgets(now, resource, lease);
        self.record_accepted(command, answer)
    }

    /// Calls [`RequestAdmission::report_budgets`], and records it unless the resource has no budgets.
    pub fn report_budgets(&mut self, now: Instant, resource: ResourceId) -> BTreeMap<BudgetKey, WalletReport> {
        if self.machine.budgets(resource).is_empty() {
            return BTreeMap::new();
        }
        self.record(|| RequestCommand::ReportBudgets { now, resource });
        let wallets = self.machine.report_budgets(now, resource);
        self.recorder.add_result(|digest| digest.wallets(&wallets));
        wallets
    }

    /// Records and calls [`RequestAdmission::correct_budget`].
    pub fn correct_budget(&mut self, now: Instant, resource: ResourceId, correction: &RateLimitFeedback) -> bool {
        self.record(|| RequestCommand::CorrectBudget { now, resource, correction: *correction });
        self.machine.correct_budget(now, resource, correction)
    }

    /// Records and calls [`RequestAdmission::rate_limit_feedback`].
    pub fn rate_limit_feedback(&mut self, now: Instant, lease: LeaseId, corrections: &[RateLimitFeedback]) -> bool {
        self.record(|| RequestCommand::RateLimitFeedback { now, lease, corrections: corrections.to_vec() });
        self.machine.rate_limit_feedback(now, lease, corrections)
    }

    /// Calls [`RequestAdmission::group`], and records it unless it fails.
    pub fn group(&mut self, name: &str, weight: f64) -> Result<GroupId, ConfigError> {
        let command = self.prepare(|| RequestCommand::Group { name: name.to_string(), weight });
        let answer = self.machine.group(name, weight);
        self.record_accepted(command, answer)
    }

    /// Returns the group of a tenant, as [`RequestAdmission::group_of_tenant`] does. A group that it adds is
    /// recorded as [`RequestCommand::Group`].
    pub fn group_of_tenant(&mut self, name: &str) -> Result<GroupId, ConfigError> {
        match self.machine.tenant_group(name) {
            Ok(group) => Ok(group),
            Err(new) => self.group(new, 1.0),
        }
    }

    /// Calls [`RequestAdmission::set_resource_weight`], and records it unless it fails.
    pub fn set_resource_weight(&mut self, resource: ResourceId, weight: f64) -> Result<(), ConfigError> {
        let command = self.prepare(|| RequestCommand::SetResourceWeight { resource, weight });
        let answer = self.machine.set_resource_weight(resource, weight);
        self.record_accepted(command, answer)
    }

    /// Calls [`RequestAdmission::fallbacks`], and records it unless it fails.
    pub fn fallbacks(&mut self, resources: &[ResourceId]) -> Result<FallbackId, ConfigError> {
        let command = self.prepare(|| RequestCommand::Fallbacks { resources: resources.to_vec() });
        let answer = self.machine.fallbacks(resources);
        self.record_accepted(command, answer)
    }
}

/// Calls and time.
impl Recorded<RequestAdmission> {
    /// Records and calls [`RequestAdmission::try_acquire`].
    #[inline]
    pub fn try_acquire(&mut self, now: Instant, request: &Request) -> Result<RequestLease, Denial> {
        self.record(|| RequestCommand::TryAcquire { now, request: *request });
        let answer = self.machine.try_acquire(now, request);
        self.recorder.add_result(|digest| digest.try_acquired(&answer));
        answer
    }

    /// Records and calls [`RequestAdmission::acquire`].
    #[inline]
    pub fn acquire(&mut self, now: Instant, request: &Request) -> AcquireResult {
        self.record(|| RequestCommand::Acquire { now, request: *request });
        let answer = self.machine.acquire(now, request);
        self.recorder.add_result(|digest| digest.acquired(&answer));
        answer
    }

    /// Records and calls [`RequestAdmission::acquire_yielding`].
    pub fn acquire_yielding(
        &mut self,
        now: Instant,
        request: &Request,
        token: TaskToken,
        tasks: &mut dyn TaskResources,
    ) -> AcquireResult {
        self.record(|| RequestCommand::AcquireYielding { now, request: *request, token });
        let answer = self.machine.acquire_yielding(now, request, token, tasks);
        self.recorder.add_result(|digest| digest.acquired(&answer));
        answer
    }

    /// Records and calls [`RequestAdmission::resume_yielded`].
    pub fn resume_yielded(&mut self, now: Instant, tasks: &mut dyn TaskResources) {
        self.record(|| RequestCommand::ResumeYielded { now });
        self.machine.resume_yielded(now, tasks);
    }

    /// Records and calls [`RequestAdmission::deny_stopping`].
    pub fn deny_stopping(&mut self, now: Instant, tasks: &mut dyn TaskResources) {
        self.record(|| RequestCommand::DenyStopping { now });
        self.machine.deny_stopping(now, tasks);
    }

    /// Records and calls [`RequestAdmission::cancel`].
    pub fn cancel(&mut self, now: Instant, waiter: WaiterId) -> bool {
        self.record(|| RequestCommand::Cancel { now, waiter });
        self.machine.cancel(now, waiter)
    }

    /// Records and calls [`RequestAdmission::release`].
    #[inline]
    pub fn release(&mut self, now: Instant, lease: RequestLease, done: &Completion) -> ReleaseResult {
        self.record(|| RequestCommand::Release { now, lease: lease.id(), done: *done });
        self.machine.release(now, lease, done)
    }

    /// Records and calls [`RequestAdmission::finish`].
    #[inline]
    pub fn finish(&mut self, now: Instant, lease: RequestLease, done: &Completion) -> AfterCall {
        self.record(|| RequestCommand::Finish { now, lease: lease.id(), done: *done });
        let answer = self.machine.finish(now, lease, done);
        self.recorder.add_result(|digest| digest.finished(answer));
        answer
    }

    /// Records and calls [`RequestAdmission::retry`].
    pub fn retry(&mut self, now: Instant, request: &Request, retry: Retry) -> AcquireResult {
        self.record(|| RequestCommand::Retry { now, request: *request, retry });
        let answer = self.machine.retry(now, request, retry);
        self.recorder.add_result(|digest| digest.acquired(&answer));
        answer
    }

    /// Records and calls [`RequestAdmission::retry_yielding`].
    pub fn retry_yielding(
        &mut self,
        now: Instant,
        request: &Request,
        retry: Retry,
        token: TaskToken,
        tasks: &mut dyn TaskResources,
    ) -> AcquireResult {
        self.record(|| RequestCommand::RetryYielding { now, request: *request, retry, token });
        let answer = self.machine.retry_yielding(now, request, retry, token, tasks);
        self.recorder.add_result(|digest| digest.acquired(&answer));
        answer
    }

    /// Records and calls [`RequestAdmission::reopen`].
    pub fn reopen(&mut self, now: Instant, model: ProviderModelId) -> bool {
        self.record(|| RequestCommand::Reopen { now, model });
        self.machine.reopen(now, model)
    }

    /// Records and calls [`RequestAdmission::set_paused`].
    pub fn set_paused(&mut self, now: Instant, model: ProviderModelId, is_paused: bool) -> bool {
        self.record(|| RequestCommand::SetPaused { now, model, is_paused });
        self.machine.set_paused(now, model, is_paused)
    }

    /// Records and calls [`RequestAdmission::set_health_calls`].
    pub fn set_health_calls(&mut self, now: Instant, resource: ResourceId, makes_them: bool) -> bool {
        self.record(|| RequestCommand::SetHealthCalls { now, resource, makes_them });
        self.machine.set_health_calls(now, resource, makes_them)
    }

    /// Records and calls [`RequestAdmission::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        self.record(|| RequestCommand::HandleTimeout { now });
        self.machine.handle_timeout(now);
    }

    /// Records and calls [`RequestAdmission::shutdown`].
    pub fn shutdown(&mut self, now: Instant) {
        self.record(|| RequestCommand::Shutdown { now });
        self.machine.shutdown(now);
    }

    /// Applies a recorded command and discards its result. `leaders` are those of shared limits.
    pub(super) fn apply(
        &mut self,
        command: &RequestCommand,
        tasks: &mut dyn TaskResources,
        leaders: &mut Leaders,
    ) -> Result<(), ForeignCode> {
        match command {
            RequestCommand::Register { now, provider, model, alias, max_parallel } => {
                drop(self.register(*now, provider, model, alias, *max_parallel));
            }
            RequestCommand::Resource { owner, domain } => drop(self.resource(*owner, domain.clone())),
            RequestCommand::Configure { now, resource, config } => {
                drop(self.configure(*now, *resource, config.clone()));
            }
            RequestCommand::Reconfigure { now, resource, config } => {
                drop(self.reconfigure(*now, *resource, config.clone()));
            }
            RequestCommand::ChooseAlgorithm { now, resource, choice } => {
                drop(self.choose_algorithm(*now, *resource, *choice));
            }
            RequestCommand::SetAlgorithm { .. } => return Err(ForeignCode("a limit algorithm")),
            RequestCommand::ShareLimit { now, resource, id, seed, settings } => {
                let share = |member| (Box::new(member) as Box<dyn LimitAlgorithm>, ());
                drop(self.share_limit(*now, *resource, *id, *seed, settings, share));
            }
            RequestCommand::DriveMember { now, resource, id, command } => {
                self.machine.drive_member(*now, *resource, *id, command);
                self.record_session(*now, *resource, *id, SessionCommand::Member(command.clone()));
            }
            RequestCommand::DriveLeader { now, resource, id, command } => {
                let leader = leaders.entry((*resource, *id)).or_default();
                let decide = Coordinator::apply(leader, *now, command).map(Box::new);
                let command = SessionCommand::Leader { now: *now, command: command.clone(), decide };
                self.record_session(*now, *resource, *id, command);
            }
            RequestCommand::RefreshLimit { now, resource } => drop(self.refresh_limit(*now, *resource)),
            RequestCommand::SetSuspended { suspended } => self.set_suspended(*suspended),
            RequestCommand::LeaseBudgets { now, resource, lease } => {
                drop(self.lease_budgets(*now, *resource, lease));
            }
            RequestCommand::ReportBudgets { now, resource } => drop(self.report_budgets(*now, *resource)),
            RequestCommand::SetBudgets { now, resource, budgets } => {
                drop(self.set_budgets(*now, *resource, budgets));
            }
            RequestCommand::CorrectBudget { now, resource, correction } => {
                self.correct_budget(*now, *resource, correction);
            }
            RequestCommand::RateLimitFeedback { now, lease, corrections } => {
                self.rate_limit_feedback(*now, *lease, corrections);
            }
            RequestCommand::Group { name, weight } => drop(self.group(name, *weight)),
            RequestCommand::SetResourceWeight { resource, weight } => {
                drop(self.set_resource_weight(*resource, *weight));
            }
            RequestCommand::Fallbacks { resources } => drop(self.fallbacks(resources)),
            RequestCommand::TryAcquire { now, request } => drop(self.try_acquire(*now, request)),
            RequestCommand::Acquire { now, request } => drop(self.acquire(*now, request)),
            RequestCommand::AcquireYielding { now, request, token } => {
                drop(self.acquire_yielding(*now, request, *token, tasks));
            }
            RequestCommand::Retry { now, request, retry } => drop(self.retry(*now, request, *retry)),
            RequestCommand::RetryYielding { now, request, retry, token } => {
                drop(self.retry_yielding(*now, request, *retry, *token, tasks));
            }
            RequestCommand::Finish { now, lease, done } => {
                let _ = self.finish(*now, RequestLease::from_id(*lease), done);
            }
            RequestCommand::SetPaused { now, model, is_paused } => {
                self.set_paused(*now, *model, *is_paused);
            }
            RequestCommand::Reopen { now, model } => {
                self.reopen(*now, *model);
            }
            RequestCommand::SetHealthCalls { now, resource, makes_them } => {
                self.set_health_calls(*now, *resource, *makes_them);
            }
            RequestCommand::ResumeYielded { now } => self.resume_yielded(*now, tasks),
            RequestCommand::DenyStopping { now } => self.deny_stopping(*now, tasks),
            RequestCommand::Cancel { now, waiter } => {
                self.cancel(*now, *waiter);
            }
            RequestCommand::Release { now, lease, done } => {
                let _ = self.release(*now, RequestLease::from_id(*lease), done);
            }
            RequestCommand::HandleTimeout { now } => self.handle_timeout(*now),
            RequestCommand::Shutdown { now } => self.shutdown(*now),
        }
        Ok(())
    }
}

/// Effects and events. They are not commands, because polling makes no decision.
impl Recorded<RequestAdmission> {
    /// Calls [`RequestAdmission::poll_effect`], and adds the effect to the digest.
    #[inline]
    pub fn poll_effect(&mut self) -> Option<RequestEffect> {
        let effect = self.machine.poll_effect()?;
        self.recorder.add_effect(|digest| digest.request_effect(&effect));
        Some(effect)
    }

    /// Calls [`RequestAdmission::set_interest`].
    pub fn set_interest(&mut self, now: Instant, interest: RequestInterest) {
        self.machine.set_interest(now, interest);
    }

    /// Calls [`RequestAdmission::poll_event`].
    pub fn poll_event(&mut self) -> Option<RequestEvent> {
        self.machine.poll_event()
    }
}
