//! Registration of providers, resources and groups, and the settings of limits and budgets.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::any::Any;

use super::{Address, RequestAdmission};
use crate::budget::{BudgetConfig, BudgetKey, Corrected, RateLimitFeedback, WalletLease, WalletReport};
use crate::error::{ConfigError, require};
use crate::fair_queue::check_weight;
use crate::lease::LeaseId;
use crate::limit::{LimitAlgorithm, LimitChoice, LimitConfig};
use crate::request::event::{EventScope, RequestEventPayload};
use crate::request::keys::{Domain, GroupId, MAX_IDS, ProviderModelId, ResourceId};
use crate::request::provider::ProviderModel;
use crate::request::shared::Shared;
use crate::share::{Member, MemberCommand, MemberId, SessionSettings};
use crate::time::{Duration, Instant};

/// Registration.
impl RequestAdmission {
    /// Registers a provider and model under an alias, or changes the cap of an alias. The lowest cap of all
    /// aliases applies, over all domains. Lowering it lowers current limits at once.
    ///
    /// # Errors
    ///
    /// `max_parallel` is 0, or there are more than [`MAX_IDS`] providers and models.
    pub fn register(
        &mut self,
        now: Instant,
        provider: &str,
        model: &str,
        alias: &str,
        max_parallel: u32,
    ) -> Result<ProviderModelId, ConfigError> {
        require(max_parallel > 0, "max_parallel", max_parallel, "at least 1")?;
        let known = self.providers.iter().position(|known| known.provider == provider && known.model == model);
        let at = match known {
            Some(at) => at,
            None => self.add_provider(provider, model, max_parallel)?,
        };
        let now = self.begin(now);
        let entry = &mut self.providers[at];
        let before = known.map(|_| entry.cap);
        entry.set_alias(alias, max_parallel);
        let (id, cap) = (entry.id, entry.cap);
        let events = &mut self.shared.events;
        events.push(now, EventScope::Model(id), RequestEventPayload::ResourceRegistered { cap: max_parallel });
        if before != Some(cap) {
            events.push(now, EventScope::Model(id), RequestEventPayload::EffectiveCapChanged { from: before, to: cap });
        }
        let lifts = !self.shared.config.compatibility;
        self.providers[at].apply_cap(now, lifts, &mut self.shared);
        if known.is_none() {
            self.inherit_account_closure(now, at);
        }
        self.serve_after_change(now, at);
        Ok(id)
    }

    /// Pauses a provider and model, or resumes it. While it is paused, requests wait and are not granted;
    /// calls in flight are not affected, and deadlines keep running. Returns whether anything changed.
    pub fn set_paused(&mut self, now: Instant, model: ProviderModelId, is_paused: bool) -> bool {
        let now = self.begin(now);
        let is_own = model.controller() == self.shared.config.controller;
        let at = model.index();
        let Some(owner) = self.providers.get_mut(at).filter(|owner| is_own && owner.is_paused() != is_paused) else {
            return false;
        };
        owner.set_paused(is_paused);
        owner.unblock_all();
        self.expire(now);
        self.serve(now, at, None, None);
        self.serve_unserved(now, None);
        true
    }

    fn add_provider(&mut self, provider: &str, model: &str, cap: u32) -> Result<usize, ConfigError> {
        let at = self.providers.len();
        require(at < MAX_IDS as usize, "provider", at, "at most 2^20 providers and models")?;
        let id = ProviderModelId::new(self.shared.config.controller, at as u32);
        // In compatibility mode this is `None`: the recorded system has no outages.
        let health = self.health_config().copied();
        self.providers.push(ProviderModel::new(id, provider, model, cap, health));
        Ok(at)
    }

    /// Returns the resource of a domain. The first call creates it, with the machine's limit settings.
    ///
    /// # Errors
    /// This machine did not register the provider and model, or there are more than [`MAX_IDS`] resources.
    pub fn resource(&mut self, owner: ProviderModelId, domain: Domain) -> Result<ResourceId, ConfigError> {
        let controller = self.shared.config.controller;
        let Some(entry) = self.providers.get_mut(owner.index()).filter(|_| owner.controller() == controller) else {
            return Err(ConfigError::new("owner", owner.index(), "a provider and model of this machine"));
        };
        if let Some(known) = entry.find(&domain) {
            return Ok(known);
        }
        let index = self.addresses.len();
        require(index < MAX_IDS as usize, "resource", index, "at most 2^20 resources")?;
        let id = ResourceId::new(controller, index as u32);
        let slot = entry.add_resource(id, domain, self.shared.config.limit.clone());
        self.addresses.push(Address { provider: owner.index() as u32, slot });
        Ok(id)
    }

    /// Sets the limit settings of a resource, and restarts its limit from them with AIMD and without a
    /// cooldown.
    pub fn configure(&mut self, now: Instant, resource: ResourceId, config: LimitConfig) -> Result<(), ConfigError> {
        config.validate()?;
        self.change(now, resource, |now, provider, slot, _| {
            let cap = provider.cap;
            provider.resources[slot].controller.configure(now, config, cap);
        })
    }

    /// Changes the limit settings of a resource, and keeps its limit, cooldown and algorithm. The limit stays
    /// at its value as far as the new settings allow. A ramp whose length changed restarts. The initial limit
    /// only takes effect at the next [`configure`](Self::configure).
    pub fn reconfigure(&mut self, now: Instant, resource: ResourceId, config: LimitConfig) -> Result<(), ConfigError> {
        config.validate()?;
        let lifts = !self.shared.config.compatibility;
        self.change(now, resource, |now, provider, slot, shared| {
            provider.emit_ramp_steps(now, slot, shared);
            let cap = provider.cap;
            provider.resources[slot].controller.reconfigure(now, config, cap, lifts);
        })
    }

    /// Changes a resource, unblocks its waiters and serves them.
    fn change(
        &mut self,
        now: Instant,
        resource: ResourceId,
        change: impl FnOnce(Instant, &mut ProviderModel, usize, &mut Shared),
    ) -> Result<(), ConfigError> {
        let Address { provider: at, slot } = self.known(resource)?;
        let now = self.begin(now);
        let (at, slot) = (at as usize, slot as usize);
        let provider = &mut self.providers[at];
        change(now, provider, slot, &mut self.shared);
        provider.unblock(slot);
        provider.emit_limit(now, slot, &mut self.shared);
        self.serve_after_change(now, at);
        Ok(())
    }

    /// Serves one provider and model after a change, and all at which a timer is due.
    fn serve_after_change(&mut self, now: Instant, at: usize) {
        self.expire(now);
        self.serve(now, at, None, None);
        self.serve_unserved(now, None);
    }

    fn known(&self, resource: ResourceId) -> Result<Address, ConfigError> {
        let expected = "a resource that this machine made";
        self.find(resource).ok_or_else(|| ConfigError::new("resource", resource.index(), expected))
    }

    /// Sets a custom limit algorithm for a resource. Caps, cooldowns and waiters are unaffected. If the
    /// resource's settings have a ramp, the ramp starts with the next call.
    pub fn set_algorithm(
        &mut self,
        now: Instant,
        resource: ResourceId,
        mut algorithm: Box<dyn LimitAlgorithm>,
    ) -> Result<(), ConfigError> {
        algorithm.set_suspended(self.suspended);
        self.change(now, resource, |now, provider, slot, _| {
            provider.resources[slot].controller.set_algorithm(now, Some(algorithm), None);
        })
    }

    /// Makes the limit of a resource a share of a new member. `share` returns the member as the limit
    /// algorithm, and what is returned. If it fails, it changes at most the settings of the limit.
    pub(crate) fn share_limit<T>(
        &mut self,
        now: Instant,
        resource: ResourceId,
        id: MemberId,
        seed: u64,
        settings: &SessionSettings,
        share: impl FnOnce(Member) -> (Box<dyn LimitAlgorithm>, T),
    ) -> Result<T, ConfigError> {
        let cap = self.stats(now, resource).map_or(1, |stats| stats.effective_max);
        let (algorithm, shared) = share(settings.member(now + self.suspended, id, cap, seed)?);
        // The leader has the ramp. A ramp of its own here would hold back the share.
        let local = LimitConfig { ramp: Duration::ZERO, ..settings.limit.clone() };
        self.reconfigure(now, resource, local)?;
        self.set_algorithm(now, resource, algorithm)?;
        Ok(shared)
    }

    /// Applies a recorded command of the member `id`. It has no effect if this member is not the limit of
    /// the resource any more, as for a host that still drives it. [`Self::refresh_limit`] then serves the
    /// waiters.
    pub(crate) fn drive_member(&mut self, now: Instant, resource: ResourceId, id: MemberId, command: &MemberCommand) {
        let Some(Address { provider, slot }) = self.find(resource) else { return };
        let controller = &mut self.providers[provider as usize].resources[slot as usize].controller;
        let algorithm: &mut dyn Any = controller.algorithm_mut();
        if let Some(member) = algorithm.downcast_mut::<Member>()
            && member.id() == id
        {
            member.apply(now, command);
        }
    }

    /// Sets the limit algorithm of a resource to one of this crate's algorithms. AIMD restarts from the
    /// resource's settings. Otherwise it acts as [`Self::set_algorithm`].
    ///
    /// # Errors
    /// A setting of the algorithm is out of range, or this machine did not create the resource.
    pub fn choose_algorithm(
        &mut self,
        now: Instant,
        resource: ResourceId,
        choice: LimitChoice,
    ) -> Result<(), ConfigError> {
        let algorithm = choice.make()?;
        self.change(now, resource, |now, provider, slot, _| {
            provider.resources[slot].controller.set_algorithm(now, algorithm, Some(choice));
        })
    }

    /// Sets the time for which the clock of the host has stopped so far, for example because the machine was
    /// suspended. Only the leases of [shared](crate::share) limits count it. A time that is not longer than
    /// the one before has no effect, and any other costs O(resources).
    pub fn set_suspended(&mut self, suspended: Duration) {
        if suspended <= self.suspended {
            return;
        }
        self.suspended = suspended;
        for resource in self.providers.iter_mut().flat_map(|provider| &mut provider.resources) {
            resource.controller.set_suspended(suspended);
        }
    }

    /// Handles a change of the results of a custom limit algorithm that no call and no instant caused, such
    /// as a new share of a limit that several processes [share](crate::share). Serves the waiters.
    ///
    /// # Errors
    /// This machine did not create the resource.
    pub fn refresh_limit(&mut self, now: Instant, resource: ResourceId) -> Result<(), ConfigError> {
        self.change(now, resource, |now, provider, slot, _| provider.resources[slot].controller.refresh(now))
    }

    /// Replaces the budgets of a resource. The new budgets are full, and calls in flight are not counted in
    /// them. Budgets from response headers are removed. If several processes
    /// [share](Self::lease_budgets) the budgets, they stay as they are unless a value changes, and else wait
    /// for the next lease.
    ///
    /// # Errors
    /// A value is out of range, or this machine did not create the resource.
    pub fn set_budgets(
        &mut self,
        now: Instant,
        resource: ResourceId,
        budgets: &[BudgetConfig],
    ) -> Result<(), ConfigError> {
        budgets.iter().try_for_each(BudgetConfig::validate)?;
        self.change(now, resource, |now, provider, slot, _| provider.resources[slot].set_budgets(now, budgets))
    }

    /// Shares the budgets of a resource with other processes: from now on, they spend what `lease` grants.
    /// [`Member::wallet_lease`](crate::share::Member::wallet_lease) returns it. Serves the waiters. A lease
    /// that was applied before has no effect.
    ///
    /// # Errors
    /// This machine did not create the resource.
    pub fn lease_budgets(
        &mut self,
        now: Instant,
        resource: ResourceId,
        lease: &WalletLease,
    ) -> Result<(), ConfigError> {
        if self.has_budget_lease(resource, lease) {
            return Ok(());
        }
        self.change(now, resource, |now, provider, slot, _| provider.resources[slot].lease_budgets(now, lease))
    }

    /// Returns whether this lease of the budgets of a resource was applied before.
    pub(crate) fn has_budget_lease(&self, resource: ResourceId, lease: &WalletLease) -> bool {
        self.entry(resource).is_some_and(|(_, entry)| entry.budgets.has_lease(lease))
    }

    /// Hands back what the shared budgets of a resource do not need, and returns their states for
    /// [`Member::set_wallets`](crate::share::Member::set_wallets). It is empty without budgets, or if they
    /// are not shared. O(budgets).
    ///
    /// A request that was denied because a shared budget was spent counts as one that waits for one second,
    /// and for at least one report.
    pub fn report_budgets(&mut self, now: Instant, resource: ResourceId) -> BTreeMap<BudgetKey, WalletReport> {
        let Some(Address { provider, slot }) = self.find(resource) else { return BTreeMap::new() };
        let now = self.time.observe(now);
        self.providers[provider as usize].resources[slot as usize].report_budgets(now)
    }

    /// Applies a correction from the provider to a budget. Returns whether it changed one.
    pub fn correct_budget(&mut self, now: Instant, resource: ResourceId, correction: &RateLimitFeedback) -> bool {
        let now = self.begin(now);
        let Some(Address { provider: at, slot }) = self.find(resource) else { return false };
        let (at, slot) = (at as usize, slot as usize);
        let provider = &mut self.providers[at];
        let Some(Corrected { dimension, before, after }) = provider.resources[slot].budgets.correct(now, correction)
        else {
            return false;
        };
        provider.unblock(slot);
        self.shared.emit(now, resource, RequestEventPayload::BudgetCorrected { dimension, before, after });
        self.serve_after_change(now, at);
        true
    }

    /// Applies the rates that the response to a call states, while its lease is active. Configured budgets
    /// are corrected as by [`Self::correct_budget`]. A dimension without a budget gets one from the first
    /// response that states the limit, the remaining amount, and a reset or a window, unless
    /// [`RequestConfig::rate_limit_headers`](crate::request::RequestConfig::rate_limit_headers) is off.
    /// Returns whether anything was applied. O(budgets of the resource).
    pub fn rate_limit_feedback(&mut self, now: Instant, lease: LeaseId, correction: &[RateLimitFeedback]) -> bool {
        let now = self.begin(now);
        let learns = self.shared.config.rate_limit_headers && !self.shared.config.compatibility;
        let Some(held) = self.shared.ledger.get(lease).copied() else { return false };
        let Address { provider: at, slot } = self.addresses[held.index as usize];
        let (at, slot) = (at as usize, slot as usize);
        let provider = &mut self.providers[at];
        let feedback = provider.resources[slot].apply_feedback(now, &held, correction, learns);
        if !feedback.is_any {
            return false;
        }
        let resource = provider.resources[slot].id;
        provider.unblock(slot);
        for Corrected { dimension, before, after } in feedback.corrected {
            self.shared.emit(now, resource, RequestEventPayload::BudgetCorrected { dimension, before, after });
        }
        for rate in feedback.learned {
            self.shared.emit(now, resource, RequestEventPayload::RateLearned { rate });
        }
        self.serve_after_change(now, at);
        true
    }

    /// Returns the fairness group of this name, and sets its weight. O(providers and models).
    ///
    /// # Errors
    /// `weight` is not in 2^-20..=2^20, or there are more than [`MAX_IDS`] groups.
    pub fn group(&mut self, name: &str, weight: f64) -> Result<GroupId, ConfigError> {
        let group = self.groups.set(name, weight)?;
        for provider in &mut self.providers {
            provider.set_group_weight(group.index() as u32, weight);
        }
        Ok(group)
    }

    /// Returns the fairness group of a tenant. An unregistered tenant gets a new group of the default weight.
    ///
    /// The default weight is 1. The first [`MAX_UNREGISTERED_TENANTS`](super::MAX_UNREGISTERED_TENANTS)
    /// unregistered tenants get a group each. Further ones share the overflow group, so that names from
    /// outside cannot grow memory without bound.
    ///
    /// # Errors
    /// There are more than [`MAX_IDS`] groups.
    pub fn group_of_tenant(&mut self, name: &str) -> Result<GroupId, ConfigError> {
        match self.tenant_group(name) {
            Ok(group) => Ok(group),
            Err(new) => self.group(new, 1.0),
        }
    }

    /// Returns the group of a tenant, or else the name of the group that must be added for it.
    pub(crate) fn tenant_group<'a>(&mut self, name: &'a str) -> Result<GroupId, &'a str> {
        if let Some(group) = self.groups.find(name) {
            return Ok(group);
        }
        let name = self.groups.name_for_tenant(name);
        self.groups.find(name).ok_or(name)
    }

    /// Returns whether this is the overflow group of [`RequestAdmission::group_of_tenant`]. A host that
    /// caches groups by tenant name must not cache it, so that the cache stays bounded. O(1).
    #[must_use]
    pub fn is_shared_group(&self, group: GroupId) -> bool {
        self.groups.overflow() == Some(group)
    }

    /// Sets the weight of a resource's own group, in which requests without a group wait. `weight` is in
    /// 2^-20..=2^20.
    pub fn set_resource_weight(&mut self, resource: ResourceId, weight: f64) -> Result<(), ConfigError> {
        check_weight(weight)?;
        let Address { provider, slot } = self.known(resource)?;
        self.providers[provider as usize].set_own_weight(slot as usize, weight);
        Ok(())
    }
}
