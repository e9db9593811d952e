//! Request admission as the specification words it: lists, linear scans, everything worked out anew each time.

use tidegate_core::request::{DenialReason, Outcome};

/// Nanoseconds.
pub(crate) type Time = u64;

/// Settings, equal for all resources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) successes_until_increase: u32,
    pub(crate) cooldown: Time,
    pub(crate) max_cooldown: Time,
    pub(crate) ramp: Time,
    pub(crate) initial_limit: Option<u32>,
    /// A maximum below the provider's cap.
    pub(crate) max_limit: Option<u32>,
    pub(crate) default_timeout: Option<Time>,
}

impl Settings {
    fn effective_max(&self, cap: u32) -> u32 {
        self.max_limit.map_or(cap, |max| max.min(cap))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Provider {
    pub(crate) aliases: Vec<(usize, u32)>,
}

impl Provider {
    pub(crate) fn cap(&self) -> u32 {
        self.aliases.iter().map(|(_, cap)| *cap).min().expect("a provider has an alias")
    }
}

/// An adaptive limit and its cooldown.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) provider: usize,
    pub(crate) max: u32,
    /// The limit when no ramp runs, and the target of one that does.
    pub(crate) limit: u32,
    pub(crate) is_ramping: bool,
    ramp_started: Option<Time>,
    pub(crate) blocked_until: Time,
    pub(crate) consecutive: u32,
    pub(crate) streak: u32,
    pub(crate) ceiling: u32,
    grants: u64,
    /// Grants that had been given at the last cut.
    epoch: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub(crate) ticket: u64,
    pub(crate) resource: usize,
    admitted_limit: u32,
    grant: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    ticket: u64,
    resource: usize,
    group: usize,
    deadline: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    weight: f64,
    finish: Option<f64>,
    tag: f64,
    turn: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Denial {
    pub(crate) reason: DenialReason,
    pub(crate) changes_at: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted,
    Waiting,
    Denied(Denial),
}

/// News for a waiter. Refusals come in the order of their deadlines; those of one instant in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Granted { ticket: u64 },
    Refused { ticket: u64, deadline: Option<Time>, denial: Denial },
}

/// The model. A request is known by the ticket that its caller drew.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) settings: Settings,
    pub(crate) providers: Vec<Provider>,
    pub(crate) resources: Vec<Resource>,
    groups: Vec<Group>,
    waiters: Vec<Waiter>,
    pub(crate) leases: Vec<Lease>,
    pub(crate) news: Vec<News>,
    virtual_time: f64,
    turns: u64,
    is_shut: bool,
    now: Time,
}

impl Model {
    /// Resources are named by the provider they belong to; groups by their weight.
    pub(crate) fn new(settings: Settings, caps: &[u32], resources: &[usize], weights: &[f64]) -> Self {
        let group = |weight: &f64| Group { weight: *weight, finish: None, tag: 0.0, turn: 0 };
        let resource = |provider: &usize| {
            let max = settings.effective_max(caps[*provider]);
            let limit = settings.initial_limit.unwrap_or(max).clamp(1, max);
            Resource {
                provider: *provider,
                max,
                limit,
                is_ramping: settings.ramp > 0 && limit > 1,
                ramp_started: None,
                blocked_until: 0,
                consecutive: 0,
                streak: 0,
                ceiling: 0,
                grants: 0,
                epoch: 0,
            }
        };
        Self {
            settings,
            providers: caps.iter().map(|cap| Provider { aliases: vec![(0, *cap)] }).collect(),
            resources: resources.iter().map(resource).collect(),
            groups: weights.iter().map(group).collect(),
            waiters: Vec::new(),
            leases: Vec::new(),
            news: Vec::new(),
            virtual_time: 0.0,
            turns: 0,
            is_shut: false,
            now: 0,
        }
    }

    pub(crate) fn set_weight(&mut self, group: usize, weight: f64) {
        self.groups[group].weight = weight;
    }

    pub(crate) fn register(&mut self, now: Time, provider: usize, alias: usize, cap: u32) {
        self.begin(now);
        let aliases = &mut self.providers[provider].aliases;
        aliases.retain(|(known, _)| *known != alias);
        aliases.push((alias, cap));
        let max = self.settings.effective_max(self.providers[provider].cap());
        for at in 0..self.resources.len() {
            self.settle(at);
            let resource = &mut self.resources[at];
            if resource.provider == provider {
                let was_never_cut = resource.epoch == 0;
                if was_never_cut && resource.limit == resource.max {
                    resource.limit = max;
                }
                resource.limit = resource.limit.min(max);
                resource.max = max;
            }
        }
        self.serve(None);
    }

    pub(crate) fn acquire(
        &mut self,
        now: Time,
        ticket: u64,
        resource: usize,
        group: usize,
        timeout: Option<Time>,
    ) -> Answer {
        self.begin(now);
        if let Some(denial) = self.attempt(resource) {
            return Answer::Denied(denial);
        }
        let timeout = timeout.or(self.settings.default_timeout);
        let deadline = timeout.map(|span| self.now + span);
        self.refuse_overdue();
        if !self.waiters.iter().any(|waiter| waiter.group == group) {
            let tag = self.groups[group].finish.unwrap_or(self.virtual_time);
            self.groups[group].tag = tag;
            self.groups[group].turn = self.next_turn();
        }
        self.waiters.push(Waiter { ticket, resource, group, deadline });
        if self.serve(Some(ticket)) {
            return Answer::Granted;
        }
        if timeout == Some(0) {
            self.waiters.retain(|waiter| waiter.ticket != ticket);
            return Answer::Denied(self.denial(resource, DenialReason::QueueTimeout));
        }
        Answer::Waiting
    }

    pub(crate) fn try_acquire(&mut self, now: Time, ticket: u64, resource: usize) -> Answer {
        self.begin(now);
        if let Some(denial) = self.attempt(resource) {
            return Answer::Denied(denial);
        }
        self.refuse_overdue();
        if let Some(reason) = self.blocked(resource) {
            return Answer::Denied(self.denial(resource, reason));
        }
        let provider = self.resources[resource].provider;
        if self.first().is_some_and(|first| self.resources[first.resource].provider == provider) {
            return Answer::Denied(Denial { reason: DenialReason::QueuedWaitersAhead, changes_at: None });
        }
        self.grant(ticket, resource);
        Answer::Granted
    }

    pub(crate) fn cancel(&mut self, now: Time, ticket: u64) -> bool {
        self.begin(now);
        let is_waiting = self.waiters.iter().any(|waiter| waiter.ticket == ticket);
        self.waiters.retain(|waiter| waiter.ticket != ticket);
        if is_waiting {
            self.serve(None);
        }
        is_waiting
    }

    pub(crate) fn release(&mut self, now: Time, ticket: u64, outcome: Outcome, retry_after: Option<Time>) {
        self.begin(now);
        let at = self.leases.iter().position(|lease| lease.ticket == ticket).expect("the lease is out");
        let lease = self.leases.remove(at);
        self.settle(lease.resource);
        let is_last = self.in_flight(lease.resource) == 0;
        let limit = self.limit(lease.resource);
        let Settings { cooldown, max_cooldown, successes_until_increase, .. } = self.settings;
        let now = self.now;
        let resource = &mut self.resources[lease.resource];
        let is_cooling_down = now < resource.blocked_until;
        match outcome {
            Outcome::RateLimited => {
                let asked = retry_after.filter(|span| *span > 0).unwrap_or(cooldown).min(max_cooldown);
                resource.blocked_until = resource.blocked_until.max(now + asked);
                resource.consecutive += 1;
                resource.streak = 0;
                resource.is_ramping = false;
                resource.limit = limit;
                if lease.grant >= resource.epoch {
                    resource.epoch = resource.grants;
                    resource.limit = (limit * 3 / 4).max(1);
                    if resource.ceiling == 0 {
                        resource.ceiling = lease.admitted_limit;
                    }
                }
            }
            Outcome::Success if !is_cooling_down => {
                resource.consecutive = 0;
                if !resource.is_ramping {
                    resource.streak += 1;
                }
                if resource.streak == successes_until_increase {
                    resource.streak = 0;
                    resource.limit = (resource.limit + 1).min(resource.max);
                }
            }
            Outcome::LocalCancelled | Outcome::LocalTimeout => {}
            _ if is_last => resource.consecutive = 0,
            _ => {}
        }
        self.serve(None);
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.begin(now);
        self.serve(None);
    }

    pub(crate) fn shutdown(&mut self, now: Time) {
        self.begin(now);
        self.is_shut = true;
        for waiter in std::mem::take(&mut self.waiters) {
            let denial = self.denial(waiter.resource, DenialReason::Shutdown);
            self.news.push(News::Refused { ticket: waiter.ticket, deadline: None, denial });
        }
    }

    /// The first instant after `now` at which time alone changes something for a waiter.
    pub(crate) fn next_event(&self) -> Option<Time> {
        let events = self.waiters.iter().flat_map(|waiter| [waiter.deadline, self.next_change(waiter.resource)]);
        events.flatten().min()
    }

    /// Moves to `now` and does nothing else, to read figures there.
    pub(crate) fn observe(&mut self, now: Time) {
        self.begin(now);
    }

    /// Whether a waiter could go at the time of the last command.
    pub(crate) fn owes_a_grant(&self) -> bool {
        self.first().is_some()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    pub(crate) fn waiting_for(&self, resource: usize) -> usize {
        self.waiters.iter().filter(|waiter| waiter.resource == resource).count()
    }

    pub(crate) fn in_flight(&self, resource: usize) -> usize {
        self.leases.iter().filter(|lease| lease.resource == resource).count()
    }

    pub(crate) fn in_flight_at(&self, provider: usize) -> usize {
        self.leases.iter().filter(|lease| self.resources[lease.resource].provider == provider).count()
    }

    /// `1 + floor((target - 1) x elapsed / ramp)` while the ramp runs.
    pub(crate) fn limit(&self, resource: usize) -> u32 {
        let Resource { limit, is_ramping, ramp_started, .. } = self.resources[resource];
        match ramp_started {
            _ if !is_ramping => limit,
            None => 1,
            Some(started) if self.now - started >= self.settings.ramp => limit,
            Some(started) => {
                1 + (u128::from(limit - 1) * u128::from(self.now - started) / u128::from(self.settings.ramp)) as u32
            }
        }
    }

    pub(crate) fn is_ramping(&self, resource: usize) -> bool {
        let Resource { is_ramping, ramp_started, .. } = self.resources[resource];
        is_ramping && ramp_started.is_none_or(|started| self.now - started < self.settings.ramp)
    }
}

impl Model {
    fn begin(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// A ramp that has reached its target is over, whatever becomes of the target later.
    fn settle(&mut self, resource: usize) {
        self.resources[resource].is_ramping = self.is_ramping(resource);
    }

    fn attempt(&mut self, resource: usize) -> Option<Denial> {
        let denied = |reason| Some(Denial { reason, changes_at: None });
        if resource >= self.resources.len() {
            return denied(DenialReason::Unregistered);
        }
        if self.is_shut {
            return denied(DenialReason::Shutdown);
        }
        let now = self.now;
        self.resources[resource].ramp_started.get_or_insert(now);
        self.settle(resource);
        None
    }

    fn blocked(&self, resource: usize) -> Option<DenialReason> {
        let Resource { provider, blocked_until, .. } = self.resources[resource];
        if self.now < blocked_until {
            return Some(DenialReason::Cooldown);
        }
        let is_full = self.in_flight_at(provider) >= self.providers[provider].cap() as usize
            || self.in_flight(resource) >= self.limit(resource) as usize;
        is_full.then_some(DenialReason::NoCapacity)
    }

    fn denial(&self, resource: usize, reason: DenialReason) -> Denial {
        Denial { reason, changes_at: self.next_change(resource) }
    }

    /// The end of the cooldown, or else the next step of the ramp: each step in turn until one lies ahead.
    fn next_change(&self, resource: usize) -> Option<Time> {
        let Resource { blocked_until, limit, ramp_started, .. } = self.resources[resource];
        if self.now < blocked_until {
            return Some(blocked_until);
        }
        let started = ramp_started.filter(|_| self.is_ramping(resource))?;
        let steps = u64::from(limit - 1).max(1);
        (1..=steps).map(|step| started + (step * self.settings.ramp).div_ceil(steps)).find(|at| *at > self.now)
    }

    /// The waiter whose turn it is among those that could go: the first of each group, by tag, then by turn.
    fn first(&self) -> Option<Waiter> {
        let mut best: Option<Waiter> = None;
        for group in 0..self.groups.len() {
            let Some(head) = self.waiters.iter().find(|waiter| waiter.group == group) else { continue };
            let key = |group: usize| (self.groups[group].tag, self.groups[group].turn);
            let is_earlier = best.is_none_or(|best| key(group) < key(best.group));
            if is_earlier && self.blocked(head.resource).is_none() {
                best = Some(*head);
            }
        }
        best
    }

    fn refuse_overdue(&mut self) {
        let mut overdue: Vec<Waiter> = self.waiters.clone();
        overdue.retain(|waiter| waiter.deadline.is_some_and(|end| end <= self.now));
        overdue.sort_by_key(|waiter| waiter.deadline);
        for waiter in overdue {
            self.waiters.retain(|known| known.ticket != waiter.ticket);
            let denial = self.denial(waiter.resource, DenialReason::QueueTimeout);
            self.news.push(News::Refused { ticket: waiter.ticket, deadline: waiter.deadline, denial });
        }
    }

    /// Refuses, then grants while somebody may go. Answers whether `direct` was granted; the others get news.
    fn serve(&mut self, direct: Option<u64>) -> bool {
        if direct.is_none() {
            self.refuse_overdue();
        }
        let mut is_granted = false;
        while let Some(waiter) = self.first() {
            self.waiters.retain(|known| known.ticket != waiter.ticket);
            let turn = self.next_turn();
            let group = &mut self.groups[waiter.group];
            self.virtual_time = self.virtual_time.max(group.tag);
            group.tag = self.virtual_time + 1.0 / group.weight;
            group.finish = Some(group.tag);
            group.turn = turn;
            self.grant(waiter.ticket, waiter.resource);
            if direct == Some(waiter.ticket) {
                is_granted = true;
            } else {
                self.news.push(News::Granted { ticket: waiter.ticket });
            }
        }
        is_granted
    }

    fn grant(&mut self, ticket: u64, resource: usize) {
        let admitted_limit = self.limit(resource);
        let entry = &mut self.resources[resource];
        self.leases.push(Lease { ticket, resource, admitted_limit, grant: entry.grants });
        entry.grants += 1;
    }
}
