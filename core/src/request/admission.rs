//! The machine that admits requests.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::vec::Vec;

use smallvec::SmallVec;

use super::config::{AimdConfig, RequestConfig};
use super::keys::{Domain, GroupId, ProviderModelId, Request, ResourceId};
use super::limit::LimitAlgorithm;
use super::outcome::{Acquire, Completion, Denial, DenialReason, Effect, RequestLease, WaiterId};
use super::resource::{Held, Place, ProviderModel, Resource};
use super::snapshot::{ProviderModelSnapshot, ResourceLoad, ResourceSnapshot};
use super::timers::{Timer, Timers};
use crate::error::{ConfigError, require};
use crate::fair_queue::{FairQueue, Selection, Verdict};
use crate::handle::{Interner, SlotKey, Slots};
use crate::lease::{Ledger, ReleaseAnswer, ReleaseDiagnostics};
use crate::time::{Duration, Instant, Monotonic};

#[derive(Clone, Copy, Debug)]
struct Waiter {
    resource: ResourceId,
    since: Instant,
    deadline: Option<Instant>,
}

/// Admits calls under provider caps and adaptive limits. Sans-IO: see the [module documentation](super).
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
    queue: FairQueue,
    waiters: Slots<Waiter>,
    /// Resources that have waiters, in no particular order.
    waited: Vec<ResourceId>,
    ledger: Ledger<Held>,
    timers: Timers,
    effects: VecDeque<Effect>,
}

/// Registration.
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
            queue: FairQueue::new(),
            waiters: Slots::default(),
            waited: Vec::new(),
            ledger: Ledger::new(config.controller),
            timers: Timers::default(),
            effects: VecDeque::new(),
            config,
        })
    }

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
        let now = self.begin(now);
        let known = self.providers.iter().position(|known| known.provider == provider && known.model == model);
        let at = known.unwrap_or_else(|| {
            self.providers.push(ProviderModel {
                provider: provider.to_string(),
                model: model.to_string(),
                aliases: Vec::new(),
                cap: max_parallel,
                in_flight: 0,
                resources: SmallVec::new(),
            });
            self.providers.len() - 1
        });
        let entry = &mut self.providers[at];
        match entry.aliases.iter_mut().find(|(name, _)| name == alias) {
            Some((_, cap)) => *cap = max_parallel,
            None => entry.aliases.push((alias.to_string(), max_parallel)),
        }
        entry.cap = entry.aliases.iter().map(|(_, cap)| *cap).min().unwrap_or(max_parallel);
        for resource in entry.resources.clone() {
            let lifts = !self.config.compatibility;
            self.resources[resource.index()].set_cap(now, self.providers[at].cap, lifts);
            self.queue.open_lot(self.resources[resource.index()].place.lot);
        }
        self.serve(now);
        Ok(ProviderModelId(at as u32))
    }

    /// The resource of a domain, made on first mention with the controller's limit settings.
    ///
    /// # Panics
    /// For a model that another controller registered.
    pub fn resource(&mut self, owner: ProviderModelId, domain: Domain) -> ResourceId {
        let model = &self.providers[owner.0 as usize];
        if let Some(known) = model.resources.iter().find(|known| self.resources[known.index()].domain == domain) {
            return *known;
        }
        let id = ResourceId(self.resources.len() as u32);
        let group = self.queue.add_unit_group();
        let place = Place { class: self.queue.add_class(), lot: self.queue.add_lot(), group };
        self.resources.push(Resource::new(owner, domain, place, self.config.aimd.clone(), model.cap));
        self.providers[owner.0 as usize].resources.push(id);
        id
    }

    /// Gives a resource limit settings of its own, and starts its limit afresh under them.
    ///
    /// # Panics
    /// For a resource that this controller never made.
    pub fn configure(&mut self, now: Instant, resource: ResourceId, config: AimdConfig) -> Result<(), ConfigError> {
        config.validate()?;
        let now = self.begin(now);
        let entry = &mut self.resources[resource.index()];
        entry.configure(config, self.providers[entry.owner.0 as usize].cap);
        self.queue.open_lot(entry.place.lot);
        self.serve(now);
        Ok(())
    }

    /// Lets another algorithm decide the limit of a resource from now on. Caps, cooldowns and waiting stay as they are.
    ///
    /// # Panics
    /// For a resource that this controller never made.
    pub fn set_algorithm(&mut self, now: Instant, resource: ResourceId, algorithm: Box<dyn LimitAlgorithm>) {
        let now = self.begin(now);
        let entry = &mut self.resources[resource.index()];
        entry.set_algorithm(now, algorithm);
        self.queue.open_lot(entry.place.lot);
        self.serve(now);
    }

    /// The fairness group of this name, with this weight from now on. `weight` lies in 2^-20..=2^20.
    pub fn group(&mut self, name: &str, weight: f64) -> Result<GroupId, ConfigError> {
        if let Some(id) = self.group_names.get(name) {
            let group = self.named_groups[id as usize];
            return self.queue.set_weight(group, weight).map(|()| group);
        }
        let group = self.queue.add_group(weight)?;
        self.group_names.intern(name);
        self.named_groups.push(group);
        Ok(group)
    }

    /// Changes the weight of a resource's own group.
    pub fn set_resource_weight(&mut self, resource: ResourceId, weight: f64) -> Result<(), ConfigError> {
        self.queue.set_weight(self.resources[resource.index()].place.group, weight)
    }
}

/// Commands.
impl RequestAdmission {
    /// Lets a call out now or says why not. Never overtakes a waiter that could go, never serves one.
    pub fn try_acquire(&mut self, now: Instant, request: &Request) -> Result<RequestLease, Denial> {
        let now = self.begin(now);
        self.attempt(now, request.resource)?;
        self.refuse_overdue(now);
        if let Some(denial) = self.blocked(now, request.resource) {
            return Err(denial);
        }
        if self.is_waiter_ahead(now, request.resource) {
            return Err(Denial { reason: DenialReason::QueuedWaitersAhead, changes_at: None });
        }
        Ok(self.grant(now, request.resource))
    }

    /// Lets a call out now, or queues it in its group until it may go, its deadline passes or it is cancelled.
    pub fn acquire(&mut self, now: Instant, request: &Request) -> Acquire {
        let now = self.begin(now);
        if let Err(denial) = self.attempt(now, request.resource) {
            return Acquire::Denied(denial);
        }
        let resource = &self.resources[request.resource.index()];
        let group = request.group.unwrap_or(resource.place.group);
        let is_direct = !self.config.compatibility || request.timeout != Some(Duration::ZERO);
        if is_direct && self.queue.is_empty() && self.blocked(now, request.resource).is_none() {
            self.queue.serve_directly(group, 1.0);
            return Acquire::Granted(self.grant(now, request.resource));
        }
        self.expire(now);
        let timeout = request.timeout.or(self.config.default_timeout);
        if self.config.compatibility && timeout == Some(Duration::ZERO) {
            return Acquire::Denied(self.refusal(now, request.resource, DenialReason::QueueTimeout));
        }
        let deadline = timeout.map(|span| now + span);
        let key = self.waiters.insert(Waiter { resource: request.resource, since: now, deadline });
        let class = self.resources[request.resource.index()].place.class;
        self.queue.enqueue(key.to_bits(), group, class, 1.0);
        self.resources[request.resource.index()].waiters += 1;
        if self.resources[request.resource.index()].waiters == 1 {
            self.waited.push(request.resource);
        }
        let granted = self.serve_for(now, Some(key));
        if let Some(lease) = granted {
            return Acquire::Granted(lease);
        }
        if timeout == Some(Duration::ZERO) {
            let denial = self.refusal(now, request.resource, DenialReason::QueueTimeout);
            self.remove_waiter(key);
            self.trim();
            return Acquire::Denied(denial);
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
        let now = self.begin(now);
        let removed = self.remove_waiter(waiter.0).is_some();
        if removed {
            self.serve(now);
        }
        removed
    }

    /// Ends a call. Never panics; only [`ReleaseAnswer::Released`] changed anything.
    #[expect(clippy::needless_pass_by_value, reason = "a lease is given back, not lent")]
    pub fn release(&mut self, now: Instant, lease: RequestLease, done: &Completion) -> ReleaseAnswer {
        let now = self.begin(now);
        let held = match self.ledger.release(lease.id) {
            Ok(held) => held,
            Err(answer) => return answer,
        };
        let resource = &mut self.resources[held.resource.index()];
        resource.end(now, &held, done);
        let owner = &mut self.providers[resource.owner.0 as usize];
        owner.in_flight -= 1;
        // While nobody waits every lot is empty and no timer is armed.
        if self.waiters.len() > 0 {
            for sibling in &owner.resources {
                self.queue.open_lot(self.resources[sibling.index()].place.lot);
            }
            self.serve(now);
        }
        ReleaseAnswer::Released
    }

    /// Does what fell due by `now`: expires waiters, ends cooldowns, opens ramp steps. Harmless at any time.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.begin(now);
        self.serve(now);
    }

    /// Refuses every waiter and every later request. Leases that are out stay valid until released.
    pub fn shutdown(&mut self, now: Instant) {
        let now = self.begin(now);
        self.is_shut = true;
        let waiting: Vec<SlotKey> = self.waiters.iter().map(|(key, _)| key).collect();
        for key in waiting {
            self.refuse(now, key, DenialReason::Shutdown);
        }
        self.trim();
    }
}

/// Polling.
impl RequestAdmission {
    /// The next piece of news for a waiter. Drain it after every command.
    #[inline]
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to call [`RequestAdmission::handle_timeout`] next, at the latest; `None` while nothing waits for time.
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Whether the end of a call of `resource` may change anything that depends on the time. Where it does not, `release`
    /// may be given [`RequestAdmission::latest`] instead of a fresh instant, unless the call was rate limited.
    #[inline]
    #[must_use]
    pub fn needs_clock(&self, resource: ResourceId) -> bool {
        /// Resources with waiters that are asked one by one: a look is cheaper than a clock.
        const MOST: usize = 4;
        let latest = self.latest();
        let uses_time =
            |id: &ResourceId| self.resources.get(id.index()).is_none_or(|resource| resource.uses_time(latest));
        uses_time(&resource)
            || self.timers.next().is_some()
            || self.waited.len() > MOST
            || self.waited.iter().any(uses_time)
    }

    /// The same for `acquire` and `try_acquire`: also true if the request may have to wait.
    #[inline]
    #[must_use]
    pub fn needs_clock_to_admit(&self, request: &Request) -> bool {
        request.timeout.or(self.config.default_timeout).is_some()
            || !self.waited.is_empty()
            || self.needs_clock(request.resource)
            || self
                .resources
                .get(request.resource.index())
                .is_none_or(|entry| entry.block(self.latest(), &self.providers[entry.owner.0 as usize]).is_some())
    }

    /// The latest instant that any command was given.
    #[inline]
    #[must_use]
    pub fn latest(&self) -> Instant {
        self.time.peek(Instant::ZERO)
    }

    /// The state of a resource at `now`. Changes nothing.
    ///
    /// # Panics
    /// For a resource that this controller never made.
    #[must_use]
    pub fn snapshot(&self, now: Instant, resource: ResourceId) -> ResourceSnapshot {
        let now = self.time.peek(now);
        let entry = &self.resources[resource.index()];
        let owner = &self.providers[entry.owner.0 as usize];
        let blocked_until = entry.cooldown.until(now);
        let state = entry.limit_state(now);
        ResourceSnapshot {
            at: now,
            sequence: self.sequence,
            provider: owner.provider.clone(),
            model: owner.model.clone(),
            domain: entry.domain.clone(),
            effective_max: entry.effective_max(),
            current_limit: entry.limit(now),
            in_flight: entry.in_flight,
            waiters: entry.waiters,
            blocked_until,
            cooldown_remaining: blocked_until.map_or(Duration::ZERO, |end| end - now),
            rate_limit_ceiling: state.rate_limit_ceiling,
            consecutive_rate_limits: entry.cooldown.consecutive_rate_limits,
            success_streak: state.success_streak,
            last_outcome: entry.last_outcome,
            ramp_active: state.ramp_active,
            provider_cap: owner.cap,
            provider_in_flight: owner.in_flight,
        }
    }

    /// The three figures of a resource that change most, without the cost of a whole snapshot.
    #[must_use]
    pub fn load(&self, now: Instant, resource: ResourceId) -> ResourceLoad {
        let entry = &self.resources[resource.index()];
        let limit = entry.limit(self.time.peek(now));
        ResourceLoad { limit, in_flight: entry.in_flight, waiters: entry.waiters }
    }

    /// The state of a provider and model.
    #[must_use]
    pub fn provider_model(&self, id: ProviderModelId) -> ProviderModelSnapshot {
        let entry = &self.providers[id.0 as usize];
        ProviderModelSnapshot {
            provider: entry.provider.clone(),
            model: entry.model.clone(),
            static_cap: entry.cap,
            in_flight: entry.in_flight,
            aliases: entry.aliases.clone(),
        }
    }

    /// Every resource, in order of first mention.
    pub fn resources(&self) -> impl Iterator<Item = ResourceId> + use<> {
        (0..self.resources.len() as u32).map(ResourceId)
    }

    /// The limit settings of a resource.
    #[must_use]
    pub fn settings(&self, resource: ResourceId) -> &AimdConfig {
        self.resources[resource.index()].config()
    }

    /// Leases that are out.
    #[must_use]
    pub fn active_leases(&self) -> usize {
        self.ledger.active()
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Counts of irregular releases.
    #[must_use]
    pub fn release_diagnostics(&self) -> ReleaseDiagnostics {
        self.ledger.diagnostics()
    }

    /// How often `now` ran backwards and was clamped.
    #[must_use]
    pub fn clock_regressions(&self) -> u64 {
        self.time.regressions()
    }
}

/// The machinery.
impl RequestAdmission {
    #[inline]
    fn begin(&mut self, now: Instant) -> Instant {
        self.sequence += 1;
        self.time.observe(now)
    }

    /// Checks what no waiting can mend, and tells the limit that somebody wants in.
    fn attempt(&mut self, now: Instant, resource: ResourceId) -> Result<(), Denial> {
        let reason = if resource.index() >= self.resources.len() {
            DenialReason::Unregistered
        } else if self.is_shut {
            DenialReason::Shutdown
        } else {
            let entry = &mut self.resources[resource.index()];
            entry.on_attempt(now);
            return Ok(());
        };
        Err(Denial { reason, changes_at: None })
    }

    /// Why a call of `resource` could not go out at `now`, waiters aside.
    fn blocked(&self, now: Instant, resource: ResourceId) -> Option<Denial> {
        let entry = &self.resources[resource.index()];
        let reason = entry.block(now, &self.providers[entry.owner.0 as usize])?;
        Some(Denial { reason, changes_at: entry.next_change(now) })
    }

    fn refusal(&self, now: Instant, resource: ResourceId, reason: DenialReason) -> Denial {
        Denial { reason, changes_at: self.resources[resource.index()].next_change(now) }
    }

    /// Whether the first waiter that could go waits for the same provider and model.
    fn is_waiter_ahead(&mut self, now: Instant, resource: ResourceId) -> bool {
        if self.queue.is_empty() {
            return false;
        }
        let owner = self.resources[resource.index()].owner;
        let first = self.select(now);
        first.is_some_and(|(_, selected)| self.resources[selected.index()].owner == owner)
    }

    /// The first waiter that could go at `now`. Serves nobody.
    fn select(&mut self, now: Instant) -> Option<(Selection, ResourceId)> {
        let Self { queue, waiters, resources, providers, .. } = self;
        let mut chosen = None;
        let selection = queue.select(|candidate| {
            let key = SlotKey::from_bits(candidate.item);
            let Some(waiter) = waiters.get(key) else { return Verdict::Skip };
            let entry = &resources[waiter.resource.index()];
            // A waiter past its deadline is never granted, not even before it is told. The one that arrives this
            // instant with "now or not at all" is not past it.
            if waiter.deadline.is_some_and(|end| end <= now && waiter.since < now) {
                return Verdict::Skip;
            }
            if entry.block(now, &providers[entry.owner.0 as usize]).is_some() {
                return Verdict::ClassBlocked(entry.place.lot);
            }
            chosen = Some(waiter.resource);
            Verdict::Accept
        })?;
        chosen.map(|resource| (selection, resource))
    }

    fn serve(&mut self, now: Instant) {
        self.serve_for(now, None);
    }

    /// Grants to waiters in order of turn while there is room. The grant of `direct` is answered, not queued as news.
    fn serve_for(&mut self, now: Instant, direct: Option<SlotKey>) -> Option<RequestLease> {
        self.expire(now);
        let mut answer = None;
        while let Some((selection, resource)) = self.select(now) {
            let key = SlotKey::from_bits(selection.candidate.item);
            if self.queue.commit(&selection).is_err() || self.waiters.remove(key).is_none() {
                break;
            }
            self.forget_waiter(resource);
            let lease = self.grant(now, resource);
            if direct == Some(key) {
                answer = Some(lease);
            } else {
                self.effects.push_back(Effect::Granted { waiter: WaiterId(key), lease });
            }
        }
        self.arm_wakes(now);
        answer
    }

    fn grant(&mut self, now: Instant, resource: ResourceId) -> RequestLease {
        let entry = &mut self.resources[resource.index()];
        let held = entry.grant(now, resource);
        self.providers[entry.owner.0 as usize].in_flight += 1;
        RequestLease { id: self.ledger.grant(resource.0, held) }
    }

    /// Refuses the waiters whose deadline has passed and opens the lots whose time has come.
    fn expire(&mut self, now: Instant) {
        self.take_due(now);
    }

    /// The same for a caller that serves nobody: wake-ups that are due stay due.
    fn refuse_overdue(&mut self, now: Instant) {
        if self.timers.next().is_none_or(|at| at > now) {
            return;
        }
        for resource in self.take_due(now) {
            if self.resources[resource.index()].waiters > 0 {
                self.resources[resource.index()].wake_at = Some(now);
                self.arm(now, Timer::Wake(resource.0));
            }
        }
        self.trim();
    }

    /// Refuses the waiters whose deadline has passed, opens the lots of the resources whose wake-up was due, and answers
    /// these resources.
    fn take_due(&mut self, now: Instant) -> SmallVec<[ResourceId; 4]> {
        let mut woken = SmallVec::new();
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
                        self.queue.open_lot(entry.place.lot);
                        woken.push(ResourceId(resource));
                    }
                }
            }
        }
        woken
    }

    fn refuse(&mut self, now: Instant, key: SlotKey, reason: DenialReason) {
        if let Some(waiter) = self.remove_waiter(key) {
            let denial = self.refusal(now, waiter.resource, reason);
            self.effects.push_back(Effect::Refused { waiter: WaiterId(key), denial });
        }
    }

    fn remove_waiter(&mut self, key: SlotKey) -> Option<Waiter> {
        let waiter = self.waiters.remove(key)?;
        self.queue.discard(key.to_bits());
        self.forget_waiter(waiter.resource);
        Some(waiter)
    }

    /// One waiter fewer; a wake-up that nobody waits for any more is off.
    fn forget_waiter(&mut self, resource: ResourceId) {
        let entry = &mut self.resources[resource.index()];
        entry.waiters -= 1;
        if entry.waiters == 0 {
            entry.wake_at = None;
            self.waited.retain(|waited| *waited != resource);
        }
    }

    /// Arms one wake-up for each resource whose waiters wait for time, and drops those that lost their meaning.
    fn arm_wakes(&mut self, now: Instant) {
        for at in 0..self.waited.len() {
            let resource = self.waited[at];
            let entry = &mut self.resources[resource.index()];
            let next = entry.next_change(now);
            if next != entry.wake_at {
                entry.wake_at = next;
                if let Some(instant) = next {
                    self.arm(instant, Timer::Wake(resource.0));
                }
            }
        }
        self.trim();
    }

    fn arm(&mut self, at: Instant, timer: Timer) {
        let Self { timers, waiters, resources, .. } = self;
        let live = waiters.len() + resources.len();
        timers.arm(at, timer, live, |at, timer| is_current(waiters, resources, at, timer));
    }

    fn trim(&mut self) {
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
