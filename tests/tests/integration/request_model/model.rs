//! Waiting for requests as SPEC 5.4 words it: plain lists, searched from the start each time.
//!
//! | rule | in the words of SPEC |
//! | --- | --- |
//! | one queue for each provider/model | "One fair queue per provider/model: waiters are grouped by request group and weighted, across all resources that share that cap, and by nothing else." |
//! | a share belongs to a group | "Waiters are grouped by request group and weighted, across all resources that share that cap": one tag, whatever it waits for |
//! | a line belongs to a group and a resource | "A waiter of one domain never delays a waiter of another domain of the same group. A blocked group never blocks another." |
//! | order | "Selection order is ascending (tag, activation sequence)"; first in, first out within one turn |
//! | `try_acquire` | "While any waiter of the same provider/model could be granted at this instant, the answer is *queued waiters ahead*." |
//! | refunds | a refused call gives its turn back, within a bound: the docs of the fair queue word it
//! | who serves | "Waiters are served by acquire, release, register, cap changes and `handle_timeout`, never by `try_acquire` or snapshot." |
//! | deadlines | "Deadline 0 means now or not at all. A waiter past its deadline is never granted." |
//!
//! A command serves the queue of its own provider/model. Whether it also does what fell due in the other
//! queues while the host did not look is left open: [`Model::expire`] and [`Model::serve`] do it for one
//! queue.

use tidegate_core::request::{DenialReason, Outcome};

use super::limits::{Ended, Limit, Settings, Time};

/// A provider/model: its queue, and the cap over all its domains.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    /// Each alias with its cap.
    aliases: Vec<(usize, u32)>,
    /// Of its queue alone.
    virtual_time: f64,
    /// What each group may be given back.
    allowed: f64,
}

impl Owner {
    /// "Several aliases of one provider/model: the lowest cap holds."
    pub(crate) fn cap(&self) -> u32 {
        self.aliases.iter().map(|(_, cap)| *cap).min().expect("a provider/model has an alias")
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) owner: usize,
    pub(crate) limit: Limit,
    /// Weight of the group of requests that name no group.
    own_weight: f64,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    ticket: u64,
    resource: usize,
    grant: u64,
    admitted_limit: u32,
    /// Calls of its resource that were out with it, itself included.
    at_once: usize,
    /// What was charged for it: nothing for one that did not queue.
    charged: Option<Charged>,
}

/// A turn that was taken.
#[derive(Clone, Copy, Debug)]
struct Charged {
    line: Line,
    /// The share of others in the weight of all groups that waited.
    rivals: f32,
}

/// How many turns a group may be ahead of its share of refunds, beyond the calls that were out with the refused one.
const AHEAD: f64 = 8.0;

/// Where a waiter stands: a group, or none, and a resource. First in, first out within one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    group: Option<usize>,
    resource: usize,
}

/// When a line of waiters was activated: when it became non-empty, and by each service of its own.
#[derive(Clone, Copy, Debug)]
struct Turn {
    line: Line,
    activation: u64,
}

/// The share of a group at one provider/model: one for all its lines there.
#[derive(Clone, Copy, Debug)]
struct Share {
    owner: usize,
    holder: Holder,
    /// The tag after its last service.
    finish: Option<f64>,
    tag: f64,
    lag: f64,
    lead: f64,
    allowed_seen: f64,
}

/// What holds a share: a group, or a resource for the requests that name no group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Group(usize),
    Resource(usize),
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    ticket: u64,
    line: Line,
    deadline: Option<Time>,
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

/// What a waiter is answered. Refusals come in the order of their deadlines; those of one instant in any
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Granted { ticket: u64 },
    Refused { ticket: u64, deadline: Option<Time>, denial: Denial },
}

/// The model. A request is known by the ticket that its caller drew.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) settings: Settings,
    pub(crate) owners: Vec<Owner>,
    pub(crate) resources: Vec<Resource>,
    weights: Vec<f64>,
    turns: Vec<Turn>,
    shares: Vec<Share>,
    /// In the order they came.
    waiters: Vec<Waiter>,
    leases: Vec<Lease>,
    /// By provider/model, oldest first.
    pub(crate) news: Vec<(usize, News)>,
    activations: u64,
    is_shut: bool,
    pub(crate) now: Time,
}

/// Commands.
impl Model {
    /// Each provider/model with its cap and its number of domains, and the weight of each group.
    pub(crate) fn new(settings: Settings, owners: &[(u32, usize)], weights: &[f64]) -> Self {
        let owner = |(cap, _): &(u32, usize)| Owner { aliases: vec![(0, *cap)], virtual_time: 0.0, allowed: 0.0 };
        let resources = owners.iter().enumerate().flat_map(|(owner, (cap, domains))| {
            let resource = Resource { owner, limit: Limit::new(&settings, *cap), own_weight: 1.0 };
            vec![resource; *domains]
        });
        Self {
            settings,
            owners: owners.iter().map(owner).collect(),
            resources: resources.collect(),
            weights: weights.to_vec(),
            turns: Vec::new(),
            shares: Vec::new(),
            waiters: Vec::new(),
            leases: Vec::new(),
            news: Vec::new(),
            activations: 0,
            is_shut: false,
            now: 0,
        }
    }

    /// "A `now` that goes backwards is clamped to the latest seen."
    pub(crate) fn observe(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    /// Applies to the group everywhere, from its next service on.
    pub(crate) fn set_weight(&mut self, group: usize, weight: f64) {
        self.weights[group] = weight;
    }

    pub(crate) fn set_own_weight(&mut self, resource: usize, weight: f64) {
        self.resources[resource].own_weight = weight;
    }

    pub(crate) fn register(&mut self, now: Time, owner: usize, alias: usize, cap: u32) {
        self.observe(now);
        let aliases = &mut self.owners[owner].aliases;
        aliases.retain(|(known, _)| *known != alias);
        aliases.push((alias, cap));
        let cap = self.owners[owner].cap();
        for resource in self.resources.iter_mut().filter(|resource| resource.owner == owner) {
            resource.limit.set_cap(&self.settings, self.now, cap);
        }
        self.serve(owner);
    }

    /// The newcomer is enqueued, and then waiters are served in order.
    pub(crate) fn acquire(
        &mut self,
        now: Time,
        ticket: u64,
        resource: usize,
        group: Option<usize>,
        timeout: Option<Time>,
    ) -> Answer {
        self.observe(now);
        if let Some(denial) = self.attempt(resource) {
            return Answer::Denied(denial);
        }
        let owner = self.resources[resource].owner;
        let timeout = timeout.or(self.settings.default_timeout);
        self.expire(owner);
        let line = Line { group, resource };
        self.activate(line);
        self.waiters.push(Waiter { ticket, line, deadline: timeout.map(|span| self.now + span) });
        self.grant_in_order(owner);
        let granted = (owner, News::Granted { ticket });
        if self.news.contains(&granted) {
            self.news.retain(|news| *news != granted);
            return Answer::Granted;
        }
        if timeout == Some(0) {
            self.waiters.retain(|waiter| waiter.ticket != ticket);
            return Answer::Denied(self.denial(resource, DenialReason::QueueTimeout));
        }
        Answer::Waiting
    }

    /// Serves no waiter and passes none.
    pub(crate) fn try_acquire(&mut self, now: Time, ticket: u64, resource: usize) -> Answer {
        self.observe(now);
        if let Some(denial) = self.attempt(resource) {
            return Answer::Denied(denial);
        }
        if self.could_grant(self.resources[resource].owner) {
            return Answer::Denied(self.denial(resource, DenialReason::QueuedWaitersAhead));
        }
        if let Some(reason) = self.blocked(resource) {
            return Answer::Denied(self.denial(resource, reason));
        }
        self.grant(ticket, resource, None);
        Answer::Granted
    }

    /// "Not yet granted: removed."
    pub(crate) fn cancel(&mut self, now: Time, ticket: u64) -> bool {
        self.observe(now);
        let before = self.waiters.len();
        self.waiters.retain(|waiter| waiter.ticket != ticket);
        self.waiters.len() < before
    }

    pub(crate) fn release(&mut self, now: Time, ticket: u64, outcome: Outcome, retry_after: Option<Time>) {
        self.observe(now);
        let at = self.leases.iter().position(|lease| lease.ticket == ticket).expect("the lease is out");
        let Lease { resource, grant, admitted_limit, at_once, charged, .. } = self.leases.remove(at);
        let is_last = self.in_flight(resource) == 0;
        let ended = Ended { outcome, retry_after, admitted_limit, grant, is_last };
        self.resources[resource].limit.release(&self.settings, self.now, &ended);
        match (outcome, charged) {
            (Outcome::RateLimited, Some(charged)) => self.refund(charged, at_once.max(self.in_flight(resource) + 1)),
            (Outcome::Success, Some(charged)) => self.answered(charged),
            _ => {}
        }
        self.serve(self.resources[resource].owner);
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.observe(now);
        for owner in 0..self.owners.len() {
            self.serve(owner);
        }
    }

    /// "Queued waiters get *shutdown*, active leases stay valid until released."
    pub(crate) fn shutdown(&mut self, now: Time) {
        self.observe(now);
        self.is_shut = true;
        for Waiter { ticket, line, .. } in std::mem::take(&mut self.waiters) {
            let denial = self.denial(line.resource, DenialReason::Shutdown);
            let owner = self.resources[line.resource].owner;
            self.news.push((owner, News::Refused { ticket, deadline: None, denial }));
        }
    }
}

/// What falls due.
impl Model {
    /// Refuses the waiters of one queue whose deadlines have passed.
    pub(crate) fn expire(&mut self, owner: usize) {
        let mut overdue = self.waiters.clone();
        overdue.retain(|waiter| self.is_overdue(waiter) && self.resources[waiter.line.resource].owner == owner);
        overdue.sort_by_key(|waiter| waiter.deadline);
        for Waiter { ticket, line, deadline } in overdue {
            self.waiters.retain(|waiter| waiter.ticket != ticket);
            let denial = self.denial(line.resource, DenialReason::QueueTimeout);
            self.news.push((owner, News::Refused { ticket, deadline, denial }));
        }
    }

    /// Refuses whose deadlines have passed, then grants in order while any waiter of this queue may go.
    pub(crate) fn serve(&mut self, owner: usize) {
        self.expire(owner);
        self.grant_in_order(owner);
    }

    fn grant_in_order(&mut self, owner: usize) {
        while let Some(Waiter { ticket, line, .. }) = self.first(owner) {
            let charged = Charged { line, rivals: self.rivals(owner, line) };
            self.waiters.retain(|waiter| waiter.ticket != ticket);
            self.commit(owner, line);
            self.grant(ticket, line.resource, Some(charged));
            self.news.push((owner, News::Granted { ticket }));
        }
    }

    /// Of the queue of `owner`: the first waiter of each line, if it may go, by tag and then by activation.
    fn first(&self, owner: usize) -> Option<Waiter> {
        let mut turns = self.turns.clone();
        turns.retain(|turn| self.resources[turn.line.resource].owner == owner);
        let tag = |turn: &Turn| self.shares[self.share(turn.line).expect("it was activated")].tag;
        turns.sort_by(|a, b| tag(a).total_cmp(&tag(b)).then(a.activation.cmp(&b.activation)));
        turns.retain(|turn| self.blocked(turn.line.resource).is_none());
        turns.iter().find_map(|turn| self.waiters.iter().find(|waiter| waiter.line == turn.line).copied())
    }

    fn holder(line: Line) -> Holder {
        line.group.map_or(Holder::Resource(line.resource), Holder::Group)
    }

    /// The share that a line takes part in.
    fn share(&self, line: Line) -> Option<usize> {
        let (owner, holder) = (self.resources[line.resource].owner, Self::holder(line));
        self.shares.iter().position(|share| share.owner == owner && share.holder == holder)
    }

    /// "A group that becomes non-empty is activated with (tag, activation sequence), tag = its last finish tag, or V if it
    /// never had one."
    fn activate(&mut self, line: Line) {
        let (owner, holder) = (self.resources[line.resource].owner, Self::holder(line));
        let at = self.share(line).unwrap_or_else(|| {
            self.shares.push(Share {
                owner,
                holder,
                finish: None,
                tag: 0.0,
                lag: 0.0,
                lead: 0.0,
                allowed_seen: self.owners[owner].allowed,
            });
            self.shares.len() - 1
        });
        let is_same_share = |waiter: &&Waiter| {
            self.resources[waiter.line.resource].owner == owner && Self::holder(waiter.line) == holder
        };
        if !self.waiters.iter().any(|waiter| is_same_share(&waiter)) {
            let share = &mut self.shares[at];
            share.tag = share.finish.unwrap_or(self.owners[owner].virtual_time);
        }
        if self.waiters.iter().any(|waiter| waiter.line == line) {
            return;
        }
        self.turns.retain(|turn| turn.line != line);
        self.activations += 1;
        self.turns.push(Turn { line, activation: self.activations });
    }

    /// "V = max(V, tag); the group's next tag is V + cost / weight." A line that goes on waiting is activated
    /// anew.
    fn commit(&mut self, owner: usize, line: Line) {
        let weight = self.weight(Self::holder(line));
        let at = self.share(line).expect("a waiter has a share");
        let (virtual_time, share) = (&mut self.owners[owner].virtual_time, &mut self.shares[at]);
        let start = share.tag.max(*virtual_time - share.lag);
        *virtual_time = virtual_time.max(start);
        share.tag = start + 1.0 / weight;
        share.lag = share.lag.min(0.0_f64.max(*virtual_time - share.tag));
        share.finish = Some(share.tag);
        self.activations += 1;
        let turn = self.turns.iter_mut().find(|turn| turn.line == line).expect("a waiter has a turn");
        turn.activation = self.activations;
    }

    fn weight(&self, holder: Holder) -> f64 {
        match holder {
            Holder::Group(group) => self.weights[group],
            Holder::Resource(resource) => self.resources[resource].own_weight,
        }
    }

    /// The share of others than the holder of a line in the weight of all that wait for `owner`.
    fn rivals(&self, owner: usize, line: Line) -> f32 {
        let waits = |share: &&Share| {
            share.owner == owner && self.waiters.iter().any(|waiter| self.share(waiter.line) == self.place(share))
        };
        let all: f64 = self.shares.iter().filter(waits).map(|share| self.weight(share.holder)).sum();
        (1.0 - self.weight(Self::holder(line)) / all) as f32
    }

    fn place(&self, of: &Share) -> Option<usize> {
        self.shares.iter().position(|share| share.owner == of.owner && share.holder == of.holder)
    }

    /// Gives a turn back, unless its group was given back more than its share by `at_once` turns and a few.
    fn refund(&mut self, charged: Charged, at_once: usize) {
        let Charged { line, rivals } = charged;
        let (charge, rivals) = (1.0 / self.weight(Self::holder(line)), f64::from(rivals));
        let at = self.share(line).expect("it was served");
        let Owner { virtual_time, allowed, .. } = &mut self.owners[self.resources[line.resource].owner];
        let share = &mut self.shares[at];
        let lead = 0.0_f64.max(share.lead - (*allowed - share.allowed_seen)) + charge * rivals;
        if lead > charge * (at_once as f64 + AHEAD) {
            return;
        }
        *allowed += charge * (1.0 - rivals);
        share.tag = share.finish.expect("it was served").max(*virtual_time - share.lag) - charge;
        share.finish = Some(share.tag);
        share.lag = 0.0_f64.max(*virtual_time - share.tag);
        (share.lead, share.allowed_seen) = (lead, *allowed);
    }

    /// Each answered call lets groups be given two turns more back, all together.
    fn answered(&mut self, Charged { line, rivals }: Charged) {
        let charge = 1.0 / self.weight(Self::holder(line));
        let allowed = &mut self.owners[self.resources[line.resource].owner].allowed;
        if *allowed > 0.0 {
            *allowed += 2.0 * charge * (1.0 - f64::from(rivals));
        }
    }

    fn grant(&mut self, ticket: u64, resource: usize, charged: Option<Charged>) {
        let (grant, admitted_limit) = self.resources[resource].limit.grant(&self.settings, self.now);
        let at_once = self.in_flight(resource) + 1;
        self.leases.push(Lease { ticket, resource, grant, admitted_limit, at_once, charged });
    }

    /// What no waiting helps against; else the limit is told of the attempt.
    fn attempt(&mut self, resource: usize) -> Option<Denial> {
        let denied = |reason| Some(Denial { reason, changes_at: None });
        if resource >= self.resources.len() {
            return denied(DenialReason::Unregistered);
        }
        if self.is_shut {
            return denied(DenialReason::Shutdown);
        }
        self.resources[resource].limit.attempt(&self.settings, self.now);
        None
    }

    /// What keeps every call of a resource from going out now.
    fn blocked(&self, resource: usize) -> Option<DenialReason> {
        let Resource { owner, limit, .. } = &self.resources[resource];
        if self.now < limit.blocked_until {
            return Some(DenialReason::Cooldown);
        }
        let is_full = self.in_flight_of(*owner) >= self.owners[*owner].cap() as usize
            || self.in_flight(resource) >= limit.at(&self.settings, self.now) as usize;
        is_full.then_some(DenialReason::NoCapacity)
    }

    /// "Each says when capacity is next known to change, if known."
    fn denial(&self, resource: usize, reason: DenialReason) -> Denial {
        Denial { reason, changes_at: self.next_change(resource) }
    }

    fn is_overdue(&self, waiter: &Waiter) -> bool {
        waiter.deadline.is_some_and(|end| end <= self.now)
    }
}

/// Figures, as of the latest instant.
impl Model {
    pub(crate) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    pub(crate) fn waiting_for(&self, resource: usize) -> usize {
        self.waiters.iter().filter(|waiter| waiter.line.resource == resource).count()
    }

    pub(crate) fn in_flight(&self, resource: usize) -> usize {
        self.leases.iter().filter(|lease| lease.resource == resource).count()
    }

    pub(crate) fn in_flight_of(&self, owner: usize) -> usize {
        self.leases.iter().filter(|lease| self.resources[lease.resource].owner == owner).count()
    }

    pub(crate) fn limit(&self, resource: usize) -> u32 {
        self.resources[resource].limit.at(&self.settings, self.now)
    }

    pub(crate) fn is_ramping(&self, resource: usize) -> bool {
        self.resources[resource].limit.is_ramping(&self.settings, self.now)
    }

    pub(crate) fn next_change(&self, resource: usize) -> Option<Time> {
        self.resources[resource].limit.next_change(&self.settings, self.now)
    }

    /// Whether a waiter of this provider/model could be granted now. Its place in the queue makes no
    /// difference: what is before it in its line waits for the same resource, and could be granted instead.
    pub(crate) fn could_grant(&self, owner: usize) -> bool {
        self.waiters.iter().any(|waiter| {
            let resource = waiter.line.resource;
            self.resources[resource].owner == owner && !self.is_overdue(waiter) && self.blocked(resource).is_none()
        })
    }

    /// Whether a waiter could be granted now, or has to be refused.
    pub(crate) fn has_work_due(&self) -> bool {
        self.waiters.iter().any(|waiter| self.is_overdue(waiter))
            || (0..self.owners.len()).any(|owner| self.could_grant(owner))
    }

    /// Whether `at` is a deadline of a waiter, or time alone changes the capacity of one then.
    pub(crate) fn is_known_change(&self, at: Time) -> bool {
        let mut before = self.clone();
        before.observe(at.saturating_sub(1));
        before
            .waiters
            .iter()
            .any(|waiter| waiter.deadline == Some(at) || before.next_change(waiter.line.resource) == Some(at))
    }

    /// The first instant after now at which time alone brings a waiter an answer.
    pub(crate) fn next_news(&self) -> Option<Time> {
        let mut later = self.clone();
        later.news.clear();
        loop {
            let changes =
                later.waiters.iter().flat_map(|waiter| [waiter.deadline, later.next_change(waiter.line.resource)]);
            let at = changes.flatten().min()?;
            later.handle_timeout(at);
            if !later.news.is_empty() {
                return Some(at);
            }
        }
    }

    /// Whether a waiter of one of these groups is held up at another provider/model than `owner`.
    pub(crate) fn is_group_held_up_elsewhere(&self, owner: usize, group: Option<usize>) -> bool {
        group.is_some()
            && self
                .waiters
                .iter()
                .any(|waiter| waiter.line.group == group && self.resources[waiter.line.resource].owner != owner)
    }
}
