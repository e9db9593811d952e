//! What may be called, and how much of it.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::RequestAdmission;
use crate::budget::{BudgetConfig, Corrected, Correction};
use crate::error::{ConfigError, require};
use crate::limit::AimdConfig;
use crate::limit::{LimitAlgorithm, LimitChoice};
use crate::replay::RequestCommand;
use crate::request::event::{EventPlace, RequestFact};
use crate::request::keys::{Domain, GroupId, ProviderModelId, ResourceId};
use crate::request::resource::{Place, ProviderModel, Resource};
use crate::time::Instant;

/// Tenants that get a fairness group of their own without being named by [`RequestAdmission::group`].
pub const MAX_STRANGERS: usize = 1 << 12;

/// The group of all tenants beyond those.
const OTHERS: &str = "(others)";

/// Registration.
impl RequestAdmission {
    /// Registers a provider and model under an alias, or changes the alias's cap. The lowest cap of all aliases holds,
    /// over all domains together; lowering it lowers current limits at once. `max_parallel` is at least 1.
    pub fn register(
        &mut self,
        now: Instant,
        provider: &str,
        model: &str,
        alias: &str,
        max_parallel: u32,
    ) -> Result<ProviderModelId, ConfigError> {
        require(max_parallel > 0, "max_parallel", max_parallel, "at least 1")?;
        self.recorder.note(self.effects.len(), || RequestCommand::Register {
            now,
            provider: provider.to_string(),
            model: model.to_string(),
            alias: alias.to_string(),
            max_parallel,
        });
        let now = self.begin(now);
        let known = self.providers.iter().position(|known| known.provider == provider && known.model == model);
        let at = known.unwrap_or_else(|| {
            self.providers.push(ProviderModel {
                provider: provider.to_string(),
                model: model.to_string(),
                aliases: Vec::new(),
                cap: max_parallel,
                in_flight: 0,
                resources: Vec::new(),
            });
            self.providers.len() - 1
        });
        let id = ProviderModelId(at as u32);
        let entry = &mut self.providers[at];
        let before = known.map(|_| entry.cap);
        match entry.aliases.iter_mut().find(|(name, _)| name == alias) {
            Some((_, cap)) => *cap = max_parallel,
            None => entry.aliases.push((alias.to_string(), max_parallel)),
        }
        entry.cap = entry.aliases.iter().map(|(_, cap)| *cap).min().unwrap_or(max_parallel);
        let cap = entry.cap;
        self.log.push(now, EventPlace::Model(id), RequestFact::ResourceRegistered { cap: max_parallel });
        if before != Some(cap) {
            self.log.push(now, EventPlace::Model(id), RequestFact::EffectiveCapChanged { from: before, to: cap });
        }
        for resource in self.providers[at].resources.clone() {
            self.tell_ramp(now, resource);
            self.resources[resource.index()].set_cap(now, cap, !self.config.compatibility);
            self.tell_limit(now, resource);
            self.queue.unblock(self.resources[resource.index()].place.set);
        }
        self.serve(now);
        Ok(id)
    }

    /// The resource of a domain, made on first mention with the controller's limit settings.
    ///
    /// A model of another controller has none here: every call of the id that is answered is refused as unregistered.
    pub fn resource(&mut self, owner: ProviderModelId, domain: Domain) -> ResourceId {
        self.recorder.note(self.effects.len(), || RequestCommand::Resource { owner, domain: domain.clone() });
        let Some(model) = self.providers.get(owner.0 as usize) else { return ResourceId(u32::MAX) };
        if let Some(known) = model.resources.iter().find(|known| self.resources[known.index()].domain == domain) {
            return *known;
        }
        let id = ResourceId(self.resources.len() as u32);
        let group = self.queue.add_unit_group();
        let place = Place { class: self.queue.add_class(), set: self.queue.add_blocked_set(), group };
        self.resources.push(Resource::new(owner, domain, place, self.config.aimd.clone(), model.cap));
        self.providers[owner.0 as usize].resources.push(id);
        id
    }

    /// Gives a resource limit settings of its own, and starts its limit afresh under them.
    pub fn configure(&mut self, now: Instant, resource: ResourceId, config: AimdConfig) -> Result<(), ConfigError> {
        config.validate()?;
        self.recorder.note(self.effects.len(), || RequestCommand::Configure { now, resource, config: config.clone() });
        self.put_config(now, resource, config)
    }

    /// Gives a resource other limit settings, and keeps its limit, its cooldown and its algorithm: as far as the settings
    /// allow, the limit stays where it is. A ramp that changed begins anew. The initial limit is for the next
    /// [`configure`](Self::configure).
    pub fn reconfigure(&mut self, now: Instant, resource: ResourceId, config: AimdConfig) -> Result<(), ConfigError> {
        config.validate()?;
        let noted = || RequestCommand::Reconfigure { now, resource, config: config.clone() };
        self.recorder.note(self.effects.len(), noted);
        let now = self.begin(now);
        let owner = known(&mut self.resources, resource)?.owner;
        self.tell_ramp(now, resource);
        let (cap, lifts) = (self.providers[owner.0 as usize].cap, !self.config.compatibility);
        let entry = known(&mut self.resources, resource)?;
        entry.reconfigure(now, config, cap, lifts);
        self.queue.unblock(entry.place.set);
        self.tell_limit(now, resource);
        self.serve(now);
        Ok(())
    }

    fn put_config(&mut self, now: Instant, resource: ResourceId, config: AimdConfig) -> Result<(), ConfigError> {
        let now = self.begin(now);
        let Self { resources, providers, .. } = self;
        let entry = known(resources, resource)?;
        entry.configure(now, config, providers[entry.owner.0 as usize].cap);
        self.queue.unblock(entry.place.set);
        self.tell_limit(now, resource);
        self.serve(now);
        Ok(())
    }

    /// Lets another algorithm decide the limit of a resource from now on. Caps, cooldowns and waiting stay as they are.
    pub fn set_algorithm(
        &mut self,
        now: Instant,
        resource: ResourceId,
        algorithm: Box<dyn LimitAlgorithm>,
    ) -> Result<(), ConfigError> {
        self.recorder.note(self.effects.len(), || RequestCommand::SetAlgorithm { now, resource });
        self.put_algorithm(now, resource, algorithm)
    }

    /// The same for an algorithm that comes with the crate, as a setting. AIMD starts afresh, under the resource's settings.
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
        self.recorder.note(self.effects.len(), || RequestCommand::ChooseAlgorithm { now, resource, choice });
        if let Some(algorithm) = algorithm {
            return self.put_algorithm(now, resource, algorithm);
        }
        let fresh = known(&mut self.resources, resource)?.fresh_aimd();
        self.put_algorithm(now, resource, fresh)
    }

    fn put_algorithm(
        &mut self,
        now: Instant,
        resource: ResourceId,
        algorithm: Box<dyn LimitAlgorithm>,
    ) -> Result<(), ConfigError> {
        let now = self.begin(now);
        let entry = known(&mut self.resources, resource)?;
        entry.set_algorithm(now, algorithm);
        self.queue.unblock(entry.place.set);
        self.tell_limit(now, resource);
        self.serve(now);
        Ok(())
    }

    /// Gives a resource these budgets, all of them full, in place of those it had.
    pub fn set_budgets(
        &mut self,
        now: Instant,
        resource: ResourceId,
        budgets: &[BudgetConfig],
    ) -> Result<(), ConfigError> {
        budgets.iter().try_for_each(BudgetConfig::validate)?;
        self.recorder.note(self.effects.len(), || RequestCommand::SetBudgets {
            now,
            resource,
            budgets: budgets.to_vec(),
        });
        let now = self.begin(now);
        let entry = known(&mut self.resources, resource)?;
        entry.set_budgets(now, budgets);
        self.queue.unblock(entry.place.set);
        self.serve(now);
        Ok(())
    }

    /// Takes over what the provider said about a budget, and answers whether that changed one.
    pub fn correct_budget(&mut self, now: Instant, resource: ResourceId, said: &Correction) -> bool {
        self.recorder.note(self.effects.len(), || RequestCommand::CorrectBudget { now, resource, said: *said });
        let now = self.begin(now);
        let Some(entry) = self.resources.get_mut(resource.index()) else { return false };
        let Some(Corrected { dimension, before, after }) = entry.budgets.correct(now, said) else { return false };
        self.queue.unblock(entry.place.set);
        self.tell(now, resource, RequestFact::BudgetCorrected { dimension, before, after });
        self.serve(now);
        true
    }

    /// The fairness group of this name, with this weight from now on. `weight` lies in 2^-20..=2^20.
    pub fn group(&mut self, name: &str, weight: f64) -> Result<GroupId, ConfigError> {
        self.recorder.note(self.effects.len(), || RequestCommand::Group { name: name.to_string(), weight });
        if let Some(group) = self.named_group(name) {
            return self.set_group_weight(group, weight).map(|()| group);
        }
        let group = self.queue.add_group(weight)?;
        self.group_names.intern(name);
        self.named_groups.push(group);
        Ok(group)
    }

    /// The fairness group of a tenant, with weight 1 if nobody has named it before. The first [`MAX_STRANGERS`] that come so have
    /// a group each; those beyond share one, so that names from outside cannot grow the controller without bound.
    pub fn group_of_tenant(&mut self, name: &str) -> Result<GroupId, ConfigError> {
        if let Some(group) = self.named_group(name) {
            return Ok(group);
        }
        if self.strangers < MAX_STRANGERS {
            self.strangers += 1;
            return self.group(name, 1.0);
        }
        match self.named_group(OTHERS) {
            Some(group) => Ok(group),
            None => self.group(OTHERS, 1.0),
        }
    }

    /// Whether this is the group of tenants that came when there were too many to have one each. A host that remembers the groups
    /// of the others by name stays as bounded as they are. O(1).
    #[must_use]
    pub fn is_shared_group(&self, group: GroupId) -> bool {
        self.named_group(OTHERS) == Some(group)
    }

    fn named_group(&self, name: &str) -> Option<GroupId> {
        self.group_names.get(name).map(|id| self.named_groups[id as usize])
    }

    /// Changes the weight of a resource's own group.
    pub fn set_resource_weight(&mut self, resource: ResourceId, weight: f64) -> Result<(), ConfigError> {
        self.recorder.note(self.effects.len(), || RequestCommand::SetResourceWeight { resource, weight });
        let group = known(&mut self.resources, resource)?.place.group;
        self.set_group_weight(group, weight)
    }
}

fn known(resources: &mut [Resource], resource: ResourceId) -> Result<&mut Resource, ConfigError> {
    let entry = resources.get_mut(resource.index());
    entry.ok_or_else(|| ConfigError::new("resource", resource.index(), "a resource that this controller made"))
}
