//! The commands that a host may give to the request admission behind a gate, apart from calls.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Deref;

use crate::budget::{BudgetConfig, BudgetKey, RateLimitFeedback, WalletLease, WalletReport};
use crate::error::ConfigError;
use crate::lease::LeaseId;
use crate::limit::{LimitAlgorithm, LimitChoice, LimitConfig};
use crate::replay::{Recorded, Stamped};
use crate::request::event::{RequestEvent, RequestInterest};
use crate::request::{Domain, FallbackId, GroupId, ProviderModelId, RequestAdmission, RequestCommand, ResourceId};
use crate::time::Instant;

/// The [`RequestAdmission`] of a [`Gate`](super::Gate), without the commands that drive it.
/// [`Gate::with`](super::Gate::with) lends it.
///
/// Registers resources and groups, changes settings, and takes events and recorded commands. Methods of
/// [`RequestAdmission`] that only read are available through [`Deref`]. Calls, deadlines and effects belong
/// to the gate: a lease that is acquired or released here would have no permit, and an effect that is polled
/// here would wake nothing.
#[derive(Debug)]
pub struct GateControl<'a>(pub(super) &'a mut Recorded<RequestAdmission>);

/// Registration. A command that fails changes nothing.
impl GateControl<'_> {
    /// Registers an alias of a provider and model. See [`RequestAdmission::register`].
    pub fn register(
        &mut self,
        now: Instant,
        provider: &str,
        model: &str,
        alias: &str,
        max_parallel: u32,
    ) -> Result<ProviderModelId, ConfigError> {
        self.0.register(now, provider, model, alias, max_parallel)
    }

    /// Returns the resource of a domain of a provider and model. See [`RequestAdmission::resource`].
    pub fn resource(&mut self, owner: ProviderModelId, domain: Domain) -> Result<ResourceId, ConfigError> {
        self.0.resource(owner, domain)
    }

    /// Registers a fairness group. See [`RequestAdmission::group`].
    pub fn group(&mut self, name: &str, weight: f64) -> Result<GroupId, ConfigError> {
        self.0.group(name, weight)
    }

    /// Returns the fairness group of a tenant. See [`RequestAdmission::group_of_tenant`].
    pub fn group_of_tenant(&mut self, name: &str) -> Result<GroupId, ConfigError> {
        self.0.group_of_tenant(name)
    }

    /// Registers a list of fallbacks, in which each resource replaces those before it. See
    /// [`RequestAdmission::fallbacks`].
    pub fn fallbacks(&mut self, resources: &[ResourceId]) -> Result<FallbackId, ConfigError> {
        self.0.fallbacks(resources)
    }
}

/// Settings of a resource.
impl GateControl<'_> {
    /// Sets the limit settings of a resource, and restarts its limit with AIMD. See
    /// [`RequestAdmission::configure`].
    pub fn configure(&mut self, now: Instant, resource: ResourceId, config: LimitConfig) -> Result<(), ConfigError> {
        self.0.configure(now, resource, config)
    }

    /// Changes the limits of a resource while it is used. See [`RequestAdmission::reconfigure`].
    pub fn reconfigure(&mut self, now: Instant, resource: ResourceId, config: LimitConfig) -> Result<(), ConfigError> {
        self.0.reconfigure(now, resource, config)
    }

    /// Selects the limit algorithm of a resource. See [`RequestAdmission::choose_algorithm`].
    pub fn choose_algorithm(
        &mut self,
        now: Instant,
        resource: ResourceId,
        choice: LimitChoice,
    ) -> Result<(), ConfigError> {
        self.0.choose_algorithm(now, resource, choice)
    }

    /// Sets a custom limit algorithm. The log of a recorded gate then cannot be replayed. See
    /// [`RequestAdmission::set_algorithm`].
    pub fn set_algorithm(
        &mut self,
        now: Instant,
        resource: ResourceId,
        algorithm: Box<dyn LimitAlgorithm>,
    ) -> Result<(), ConfigError> {
        self.0.set_algorithm(now, resource, algorithm)
    }

    /// Handles a change of a custom limit algorithm. See [`RequestAdmission::refresh_limit`].
    pub fn refresh_limit(&mut self, now: Instant, resource: ResourceId) -> Result<(), ConfigError> {
        self.0.refresh_limit(now, resource)
    }

    /// Sets the budgets of a resource. See [`RequestAdmission::set_budgets`].
    pub fn set_budgets(
        &mut self,
        now: Instant,
        resource: ResourceId,
        budgets: &[BudgetConfig],
    ) -> Result<(), ConfigError> {
        self.0.set_budgets(now, resource, budgets)
    }

    /// Applies a lease of shared budgets. See [`RequestAdmission::lease_budgets`].
    pub fn lease_budgets(
        &mut self,
        now: Instant,
        resource: ResourceId,
        lease: &WalletLease,
    ) -> Result<(), ConfigError> {
        self.0.lease_budgets(now, resource, lease)
    }

    /// Returns the states of shared budgets. See [`RequestAdmission::report_budgets`].
    pub fn report_budgets(&mut self, now: Instant, resource: ResourceId) -> BTreeMap<BudgetKey, WalletReport> {
        self.0.report_budgets(now, resource)
    }

    /// Sets the weight of the calls of a resource that name no group. See
    /// [`RequestAdmission::set_resource_weight`].
    pub fn set_resource_weight(&mut self, resource: ResourceId, weight: f64) -> Result<(), ConfigError> {
        self.0.set_resource_weight(resource, weight)
    }

    /// Corrects a budget with a statement of the provider. Returns whether a budget changed. See
    /// [`RequestAdmission::correct_budget`].
    pub fn correct_budget(&mut self, now: Instant, resource: ResourceId, correction: &RateLimitFeedback) -> bool {
        self.0.correct_budget(now, resource, correction)
    }

    /// Applies the rates that the answer to a call states. See [`RequestAdmission::rate_limit_feedback`].
    pub fn rate_limit_feedback(&mut self, now: Instant, lease: LeaseId, corrections: &[RateLimitFeedback]) -> bool {
        self.0.rate_limit_feedback(now, lease, corrections)
    }

    /// Reopens a provider and model that is unavailable. Returns whether it was unavailable. See
    /// [`RequestAdmission::reopen`].
    pub fn reopen(&mut self, now: Instant, model: ProviderModelId) -> bool {
        self.0.reopen(now, model)
    }

    /// Pauses or resumes a provider and model. Returns whether anything changed. See
    /// [`RequestAdmission::set_paused`].
    pub fn set_paused(&mut self, now: Instant, model: ProviderModelId, is_paused: bool) -> bool {
        self.0.set_paused(now, model, is_paused)
    }

    /// Stops admission: every waiter and every later request is denied. See [`RequestAdmission::shutdown`].
    pub fn shutdown(&mut self, now: Instant) {
        self.0.shutdown(now);
    }
}

/// Events and recording.
impl GateControl<'_> {
    /// Sets the kinds of events that are emitted. See [`RequestAdmission::set_interest`].
    pub fn set_interest(&mut self, now: Instant, interest: RequestInterest) {
        self.0.set_interest(now, interest);
    }

    /// Returns the next event. See [`RequestAdmission::poll_event`].
    pub fn poll_event(&mut self) -> Option<RequestEvent> {
        self.0.poll_event()
    }

    /// Takes the commands that were recorded since the last call. See [`Recorded::take_commands`].
    pub fn take_commands(&mut self) -> Vec<Stamped<RequestCommand>> {
        self.0.take_commands()
    }

    /// Returns a hash over every decision. See [`Recorded::decision_digest`].
    #[must_use]
    pub fn decision_digest(&self) -> u64 {
        self.0.decision_digest()
    }
}

impl Deref for GateControl<'_> {
    type Target = RequestAdmission;

    fn deref(&self) -> &RequestAdmission {
        self.0
    }
}
