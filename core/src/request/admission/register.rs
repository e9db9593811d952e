//! What may be called, and how much of it.

use alloc::boxed::Box;

use super::{Address, RequestAdmission};
use crate::budget::{BudgetConfig, Corrected, Correction};
use crate::error::{ConfigError, require};
use crate::fair_queue::check_weight;
use crate::lease::LeaseId;
use crate::limit::{AimdConfig, LimitAlgorithm, LimitChoice};
use crate::request::event::{EventPlace, RequestEventPayload};
use crate::request::keys::{Domain, GroupId, MAX_IDS, ProviderModelId, ResourceId};
use crate::request::provider::ProviderModel;
use crate::request::shared::Shared;
use crate::time::Instant;

/// Registration.
impl RequestAdmission {
    /// Registers a provider and model under an alias, or changes the alias's cap. The lowest cap of all
    /// aliases holds, over all domains together; lowering it lowers current limits at once. `max_parallel` is
    /// at least 1.
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
        events.push(now, EventPlace::Model(id), RequestEventPayload::ResourceRegistered { cap: max_parallel });
        if before != Some(cap) {
            events.push(now, EventPlace::Model(id), RequestEventPayload::EffectiveCapChanged { from: before, to: cap });
        }
        let lifts = !self.shared.config.compatibility;
        self.providers[at].apply_cap(now, lifts, &mut self.shared);
        if known.is_none() {
            self.join_account(now, at);
        }
        self.settle(now, at);
        Ok(id)
    }

    fn add_provider(&mut self, provider: &str, model: &str, cap: u32) -> Result<usize, ConfigError> {
        let at = self.providers.len();
        require(at < MAX_IDS as usize, "provider", at, "at most 2^20 providers and models")?;
        let id = ProviderModelId::new(self.shared.config.controller, at as u32);
        // The recorded system knows no outages.
        let health = self.health_config().copied();
        self.providers.push(ProviderModel::new(id, provider, model, cap, health));
        Ok(at)
    }

    /// The resource of a domain, made on first mention with the controller's limit settings.
    ///
    /// # Errors
    /// A provider and model that this controller did not register, or more than [`MAX_IDS`] resources.
    pub fn resource(&mut self, owner: ProviderModelId, domain: Domain) -> Result<ResourceId, ConfigError> {
        let controller = self.shared.config.controller;
        let Some(entry) = self.providers.get_mut(owner.index()).filter(|_| owner.controller() == controller) else {
            return Err(ConfigError::new("owner", owner.index(), "a provider and model of this controller"));
        };
        if let Some(known) = entry.find(&domain) {
            return Ok(known);
        }
        let index = self.addresses.len();
        require(index < MAX_IDS as usize, "resource", index, "at most 2^20 resources")?;
        let id = ResourceId::new(controller, index as u32);
        let slot = entry.add_resource(id, domain, self.shared.config.aimd.clone());
        self.addresses.push(Address { provider: owner.index() as u32, slot });
        Ok(id)
    }

    /// Gives a resource limit settings of its own, and starts its limit afresh under them.
    pub fn configure(&mut self, now: Instant, resource: ResourceId, config: AimdConfig) -> Result<(), ConfigError> {
        config.validate()?;
        self.change(now, resource, |now, provider, slot, _| {
            let cap = provider.cap;
            provider.resources[slot].controller.configure(now, config, cap);
        })
    }

    /// Gives a resource other limit settings, and keeps its limit, its cooldown and its algorithm: as far as
    /// the settings allow, the limit stays where it is. A ramp that changed begins anew. The initial limit is
    /// for the next [`configure`](Self::configure).
    pub fn reconfigure(&mut self, now: Instant, resource: ResourceId, config: AimdConfig) -> Result<(), ConfigError> {
        config.validate()?;
        let lifts = !self.shared.config.compatibility;
        self.change(now, resource, |now, provider, slot, shared| {
            provider.emit_ramp_steps(now, slot, shared);
            let cap = provider.cap;
            provider.resources[slot].controller.reconfigure(now, config, cap, lifts);
        })
    }

    /// Changes a resource, offers its waiters again and serves them.
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
        self.settle(now, at);
        Ok(())
    }

    /// Serves one provider and model after a change, and all at which something fell due.
    fn settle(&mut self, now: Instant, at: usize) {
        self.expire(now);
        self.serve(now, at, None, None);
        self.serve_unserved(now, None);
    }

    fn known(&self, resource: ResourceId) -> Result<Address, ConfigError> {
        let expected = "a resource that this controller made";
        self.find(resource).ok_or_else(|| ConfigError::new("resource", resource.index(), expected))
    }

    /// Lets another algorithm decide the limit of a resource from now on. Caps, cooldowns and waiting stay as
    /// they are. Where the resource's settings have a ramp, it begins with the next call.
    pub fn set_algorithm(
        &mut self,
        now: Instant,
        resource: ResourceId,
        algorithm: Box<dyn LimitAlgorithm>,
    ) -> Result<(), ConfigError> {
        self.change(now, resource, |now, provider, slot, _| {
            provider.resources[slot].controller.set_algorithm(now, Some(algorithm), None);
        })
    }

    /// The same for an algorithm that comes with the crate, as a setting. AIMD starts afresh, under the
    /// resource's settings.
    ///
    /// # Errors
    /// A setting of the algorithm that is out of range, or a resource of another controller.
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

    /// Gives a resource these budgets, all of them full, in place of those it had.
    pub fn set_budgets(
        &mut self,
        now: Instant,
        resource: ResourceId,
        budgets: &[BudgetConfig],
    ) -> Result<(), ConfigError> {
        budgets.iter().try_for_each(BudgetConfig::validate)?;
        self.change(now, resource, |now, provider, slot, _| provider.resources[slot].set_budgets(now, budgets))
    }

    /// Takes over what the provider said about a budget, and answers whether that changed one.
    pub fn correct_budget(&mut self, now: Instant, resource: ResourceId, correction: &Correction) -> bool {
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
        self.settle(now, at);
        true
    }

    /// Takes over what the answer to a call says of the provider's rates, while the call is out. Budgets that
    /// are configured are corrected as by [`Self::correct_budget`]. A dimension that has none gets one from
    /// the first statement of limit, what remains and reset, unless
    /// [`RequestConfig::rate_limit_headers`](crate::request::RequestConfig::rate_limit_headers) is off.
    /// Answers whether there was anything to take over. O(budgets of the resource).
    pub fn rate_limit_feedback(&mut self, now: Instant, lease: LeaseId, correction: &[Correction]) -> bool {
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
        self.settle(now, at);
        true
    }

    /// The fairness group of this name, with this weight from now on. `weight` lies in 2^-20..=2^20.
    pub fn group(&mut self, name: &str, weight: f64) -> Result<GroupId, ConfigError> {
        let group = self.groups.set(name, weight)?;
        for provider in &mut self.providers {
            provider.set_group_weight(group.index() as u32, weight);
        }
        Ok(group)
    }

    /// The fairness group of a tenant, with weight 1 if it was never named before. The first
    /// [`MAX_UNREGISTERED_TENANTS`](super::MAX_UNREGISTERED_TENANTS) of these have a group each; further ones
    /// share the overflow group, so that names from outside cannot grow the controller without bound.
    pub fn group_of_tenant(&mut self, name: &str) -> Result<GroupId, ConfigError> {
        match self.tenant_group(name) {
            Ok(group) => Ok(group),
            Err(new) => self.group(new, 1.0),
        }
    }

    /// The group of a tenant, or the name of the group that has to be added for it.
    pub(crate) fn tenant_group<'a>(&mut self, name: &'a str) -> Result<GroupId, &'a str> {
        if let Some(group) = self.groups.find(name) {
            return Ok(group);
        }
        let name = self.groups.name_for_tenant(name);
        self.groups.find(name).ok_or(name)
    }

    /// Whether this is the overflow group of [`RequestAdmission::group_of_tenant`]. A host that caches groups
    /// by name caches only those that are not, and so stays bounded. O(1).
    #[must_use]
    pub fn is_shared_group(&self, group: GroupId) -> bool {
        self.groups.overflow() == Some(group)
    }

    /// Changes the weight of a resource's own group.
    pub fn set_resource_weight(&mut self, resource: ResourceId, weight: f64) -> Result<(), ConfigError> {
        check_weight(weight)?;
        let Address { provider, slot } = self.known(resource)?;
        self.providers[provider as usize].set_own_weight(slot as usize, weight);
        Ok(())
    }
}
