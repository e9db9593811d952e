//! The machine and the model side by side: each command goes to both, and all they answer and show is
//! compared.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_core::id::SlotKey;
use tidegate_core::lease::LeaseId;
use tidegate_core::request::{
    self, AcquireResult, Completion, DenialReason, Domain, GroupId, LimitConfig, Outcome, Request, RequestAdmission,
    RequestConfig, RequestEffect, RequestLease, ResourceId, WaiterId,
};
use tidegate_core::time::{Duration, Instant};
use tidegate_tests::check::ledger::LedgerCheck;

use super::history::{Command, Layout, MILLI};
use super::limits::Settings;
use super::model::{Answer, Denial, Model, News};
use super::resource;

/// Two models of one provider, and two providers with a model of one name.
const NAMES: [(&str, &str); 4] = [("p", "m"), ("p", "n"), ("q", "m"), ("r", "m")];
const DOMAINS: [Domain; 3] = [Domain::Chat, Domain::Embedding, Domain::Image];
const GROUPS: [&str; 4] = ["w", "x", "y", "z"];
const CONTROLLER: u32 = 7;

/// How often each kind of answer came.
pub(crate) type Seen = BTreeMap<&'static str, u64>;

pub(crate) struct Pair {
    machine: RequestAdmission,
    model: Model,
    ledger: LedgerCheck,
    now: u64,
    resources: Vec<ResourceId>,
    groups: Vec<GroupId>,
    /// Leases that are out, by ticket, oldest first.
    held: Vec<(u64, RequestLease)>,
    waiting: Vec<(u64, WaiterId)>,
    /// Leases that were released: what forgeries are made from.
    spent: Vec<LeaseId>,
    /// By ticket.
    asked: Vec<Asked>,
    pub(crate) seen: Seen,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    resource: usize,
    group: Option<usize>,
    deadline: Option<u64>,
}

fn denial(denial: request::Denial) -> Denial {
    Denial { reason: denial.reason, changes_at: denial.changes_at.map(Instant::as_nanos) }
}

/// SPEC does not say whether the next change of capacity matters to a request that only a waiter keeps from
/// going: both answers are right.
fn comparable(answer: Answer) -> Answer {
    match answer {
        Answer::Denied(Denial { reason: reason @ DenialReason::QueuedWaitersAhead, .. }) => {
            Answer::Denied(Denial { reason, changes_at: None })
        }
        other => other,
    }
}

/// Preparing.
impl Pair {
    pub(crate) fn new(settings: Settings, layout: &Layout) -> Self {
        let limit = LimitConfig {
            initial_limit: settings.initial_limit,
            max_limit: settings.max_limit,
            successes_until_increase: settings.successes_until_increase,
            cooldown: Duration::from_nanos(settings.cooldown),
            max_cooldown: Duration::from_nanos(settings.max_cooldown),
            ramp: Duration::from_nanos(settings.ramp),
            ..LimitConfig::default()
        };
        let default_timeout = settings.default_timeout.map(Duration::from_nanos);
        // The model knows nothing of outages: the tests of health do.
        let config =
            RequestConfig { limit, health: None, controller: CONTROLLER, default_timeout, ..RequestConfig::default() };
        let mut machine = RequestAdmission::new(config).expect("valid settings");
        let groups = layout.weights.iter().zip(GROUPS);
        let groups = groups.map(|(weight, name)| machine.group(name, *weight).expect("a valid weight")).collect();
        let mut resources = Vec::new();
        for ((cap, domains), (provider, model)) in layout.owners.iter().zip(NAMES) {
            let owner = machine.register(Instant::ZERO, provider, model, "0", *cap).expect("a valid cap");
            resources.extend(DOMAINS[..*domains].iter().map(|domain| resource(&mut machine, owner, domain.clone())));
        }
        Self {
            machine,
            model: Model::new(settings, &layout.owners, &layout.weights),
            ledger: LedgerCheck::new(CONTROLLER),
            now: 0,
            resources,
            groups,
            held: Vec::new(),
            waiting: Vec::new(),
            spent: Vec::new(),
            asked: Vec::new(),
            seen: Seen::new(),
        }
    }

    fn at(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn owner(&self, ticket: u64) -> usize {
        self.model.resources[self.asked[ticket as usize].resource].owner
    }

    /// Draws a ticket for a request: the number of the resource may be one past the last, that of the group
    /// too.
    fn draw(&mut self, resource: usize, group: usize, timeout_ms: Option<u64>) -> (u64, Asked, Request) {
        let resource = resource % (self.resources.len() + 1);
        let group = Some(group % (self.groups.len() + 1)).filter(|group| *group < self.groups.len());
        let id = self.resources.get(resource).copied().unwrap_or(ResourceId::new(0, 99));
        let mut request = Request::new(id);
        if let Some(group) = group {
            request = request.in_group(self.groups[group]);
        }
        if let Some(span) = timeout_ms {
            request = request.within(Duration::from_millis(span));
        }
        let timeout = timeout_ms.map(|ms| ms * MILLI).or(self.model.settings.default_timeout);
        let asked = Asked { resource, group, deadline: timeout.map(|span| self.model.now.max(self.now) + span) };
        self.asked.push(asked);
        (self.asked.len() as u64 - 1, asked, request)
    }

    /// A lease was granted.
    fn take(&mut self, ticket: u64, lease: RequestLease) -> Result<(), TestCaseError> {
        let Asked { resource, group, .. } = self.asked[ticket as usize];
        if self.model.is_group_held_up_elsewhere(self.owner(ticket), group) {
            self.saw("granted while its group waits for another provider/model");
        }
        self.ledger.on_grant(lease.id(), self.resources[resource].index() as u32).map_err(failed)?;
        self.held.push((ticket, lease));
        Ok(())
    }
}

/// Commands.
impl Pair {
    pub(crate) fn carry_out(&mut self, command: &Command) -> Result<(), TestCaseError> {
        match *command {
            Command::Acquire { resource, group, timeout_ms } => self.acquire(resource, group, timeout_ms)?,
            Command::Try { resource, group } => self.try_acquire(resource, group)?,
            Command::Cancel { which } if !self.waiting.is_empty() => {
                let (ticket, id) = self.waiting.remove(which % self.waiting.len());
                prop_assert_eq!(self.machine.cancel(self.at(), id), self.model.cancel(self.now, ticket));
            }
            Command::Release { which, outcome, retry_after_ms } if !self.held.is_empty() => {
                self.release(which, outcome, retry_after_ms)?;
            }
            Command::Forge { which, how } => self.forge(which, how)?,
            Command::Register { owner, alias, cap } => {
                let owner = owner % self.model.owners.len();
                let ((provider, model), name) = (NAMES[owner], ["0", "1", "2"][alias]);
                let registered = self.machine.register(self.at(), provider, model, name, cap);
                prop_assert!(registered.is_ok());
                self.model.register(self.now, owner, alias, cap);
            }
            Command::Weight { group, weight } => {
                let group = group % self.groups.len();
                prop_assert_eq!(self.machine.group(GROUPS[group], weight).ok(), Some(self.groups[group]));
                self.model.set_weight(group, weight);
            }
            Command::OwnWeight { resource, weight } => {
                let resource = resource % self.resources.len();
                prop_assert!(self.machine.set_resource_weight(self.resources[resource], weight).is_ok());
                self.model.set_own_weight(resource, weight);
            }
            Command::Advance { ms } => self.advance(self.now + ms * MILLI)?,
            Command::Stall { ms } => self.now += ms * MILLI,
            Command::Relapse { ms } => {
                let earlier = self.now.saturating_sub(ms * MILLI);
                self.machine.handle_timeout(Instant::from_nanos(earlier));
                self.model.handle_timeout(earlier);
            }
            Command::Wake => self.wake(),
            Command::Shutdown => {
                self.machine.shutdown(self.at());
                self.model.shutdown(self.now);
            }
            Command::Cancel { .. } | Command::Release { .. } => {}
        }
        self.compare_news(!matches!(command, Command::Try { .. }))?;
        self.compare_figures()
    }

    fn acquire(&mut self, resource: usize, group: usize, timeout_ms: Option<u64>) -> Result<(), TestCaseError> {
        let (ticket, asked, request) = self.draw(resource, group, timeout_ms);
        let timeout = timeout_ms.map(|ms| ms * MILLI);
        let expected = self.model.acquire(self.now, ticket, asked.resource, asked.group, timeout);
        let answer = match self.machine.acquire(self.at(), &request) {
            AcquireResult::Granted(lease) => {
                self.take(ticket, lease)?;
                Answer::Granted
            }
            AcquireResult::Waiting(id) => {
                self.waiting.push((ticket, id));
                Answer::Waiting
            }
            AcquireResult::Denied(why) => Answer::Denied(denial(why)),
        };
        self.answered(answer);
        prop_assert_eq!(answer, expected, "acquire, ticket {}", ticket);
        Ok(())
    }

    fn try_acquire(&mut self, resource: usize, group: usize) -> Result<(), TestCaseError> {
        let (ticket, asked, request) = self.draw(resource, group, None);
        let expected = self.model.try_acquire(self.now, ticket, asked.resource);
        let answer = match self.machine.try_acquire(self.at(), &request) {
            Ok(lease) => {
                self.take(ticket, lease)?;
                Answer::Granted
            }
            Err(why) => Answer::Denied(denial(why)),
        };
        self.answered(answer);
        prop_assert_eq!(comparable(answer), comparable(expected), "try_acquire, ticket {}", ticket);
        Ok(())
    }

    fn answered(&mut self, answer: Answer) {
        self.saw(match answer {
            Answer::Granted => "granted at once",
            Answer::Waiting => "waiting",
            Answer::Denied(Denial { reason, .. }) => match reason {
                DenialReason::NoCapacity => "no capacity",
                DenialReason::Cooldown => "cooldown",
                DenialReason::QueuedWaitersAhead => "queued waiters ahead",
                DenialReason::QueueTimeout => "now or not at all",
                DenialReason::Shutdown => "shutdown",
                DenialReason::Unregistered => "unregistered",
                _ => "another reason",
            },
        });
    }

    fn release(&mut self, which: usize, outcome: Outcome, retry_after_ms: Option<u64>) -> Result<(), TestCaseError> {
        let (ticket, lease) = self.held.remove(which % self.held.len());
        let mut done = Completion::from(outcome);
        done.retry_after = retry_after_ms.map(Duration::from_millis);
        self.model.release(self.now, ticket, outcome, retry_after_ms.map(|ms| ms * MILLI));
        let id = lease.id();
        let answer = self.machine.release(self.at(), lease, &done);
        self.spent.push(id);
        self.ledger.on_release(id, answer).map_err(failed)
    }

    fn forge(&mut self, which: usize, how: usize) -> Result<(), TestCaseError> {
        let held = self.held.iter().map(|(_, lease)| lease.id());
        let known: Vec<LeaseId> = self.spent.iter().copied().chain(held).collect();
        let Some(real) = known.get(which % known.len().max(1)).copied() else { return Ok(()) };
        let forged = match how {
            0 => LeaseId { controller: CONTROLLER + 1, ..real },
            1 => LeaseId { item: real.item + 1, ..real },
            2 => LeaseId { key: SlotKey { generation: real.key.generation + 9_999, ..real.key }, ..real },
            3 => LeaseId { key: SlotKey { slot: real.key.slot + 9_999, ..real.key }, ..real },
            _ => self.spent.get(which % self.spent.len().max(1)).copied().unwrap_or(LeaseId { item: 99, ..real }),
        };
        // It changes nothing but the latest instant.
        self.model.observe(self.now);
        let answer = self.machine.release(self.at(), RequestLease::from_id(forged), &Outcome::Success.into());
        self.ledger.on_release(forged, answer).map_err(failed)
    }

    fn wake(&mut self) {
        self.machine.handle_timeout(self.at());
        self.model.handle_timeout(self.now);
    }

    /// Handles each wake-up when it is due, as a host does. None comes after the first instant at which time
    /// alone brings an answer, and none comes at an instant at which nothing changes.
    fn advance(&mut self, target: u64) -> Result<(), TestCaseError> {
        self.wake();
        self.compare_news(true)?;
        loop {
            let next = self.machine.poll_timeout().map(Instant::as_nanos);
            let needed = self.model.next_news();
            let is_in_time = needed.is_none_or(|needed| next.is_some_and(|next| next <= needed));
            prop_assert!(is_in_time, "the next wake-up is at {:?}; an answer falls due at {:?}", next, needed);
            let Some(at) = next.filter(|at| *at <= target) else { break };
            prop_assert!(at > self.now && self.model.is_known_change(at), "nothing changes at {}", at);
            self.now = at;
            self.wake();
            self.compare_news(true)?;
        }
        self.now = target;
        self.wake();
        Ok(())
    }

    /// Everything comes back, and nothing is left.
    pub(crate) fn finish(&mut self, by_shutdown: bool) -> Result<(), TestCaseError> {
        if by_shutdown {
            self.carry_out(&Command::Shutdown)?;
            self.carry_out(&Command::Acquire { resource: 0, group: 0, timeout_ms: None })?;
        }
        while self.machine.active_leases() + self.machine.waiting() > 0 {
            while !self.held.is_empty() {
                self.carry_out(&Command::Release { which: 0, outcome: Outcome::Success, retry_after_ms: None })?;
            }
            if let Some(at) = self.machine.poll_timeout() {
                self.now = self.now.max(at.as_nanos());
                self.carry_out(&Command::Wake)?;
            } else {
                prop_assert_eq!(self.machine.waiting(), 0, "a waiter waits for nothing");
            }
        }
        let stats = self.resources.iter().map(|id| self.machine.stats(self.at(), *id));
        let in_flight: u32 = stats.flatten().map(|stats| stats.in_flight + stats.waiters).sum();
        let rest = [("waiters", self.machine.waiting()), ("calls in flight or waiting", in_flight as usize)];
        self.ledger.finish(self.machine.active_leases(), &rest).map_err(failed)?;
        prop_assert_eq!(self.machine.poll_timeout(), None, "no waiter waits for time");
        Ok(())
    }
}

/// Comparing.
impl Pair {
    /// Effects of different provider/models may come in any order; those of one are compared as they came.
    fn compare_news(&mut self, may_serve: bool) -> Result<(), TestCaseError> {
        let mut news = Vec::new();
        while let Some(effect) = self.machine.poll_effect() {
            let (RequestEffect::Granted { waiter, .. } | RequestEffect::Denied { waiter, .. }) = &effect else {
                return Err(TestCaseError::fail(format!("an effect for no waiter: {effect:?}")));
            };
            let at = self.waiting.iter().position(|(_, id)| id == waiter);
            prop_assert!(at.is_some(), "an effect for a waiter that does not wait: {:?}", effect);
            let (ticket, _) = self.waiting.remove(at.unwrap_or(0));
            let owner = self.owner(ticket);
            match effect {
                RequestEffect::Granted { lease, .. } => {
                    self.saw("granted after waiting");
                    self.take(ticket, lease)?;
                    news.push((owner, News::Granted { ticket }));
                }
                RequestEffect::Denied { denial: why, .. } => {
                    self.saw("refused after waiting");
                    let by_time = why.reason == DenialReason::QueueTimeout;
                    let deadline = self.asked[ticket as usize].deadline.filter(|_| by_time);
                    news.push((owner, News::Refused { ticket, deadline, denial: denial(why) }));
                }
                _ => {}
            }
        }
        for owner in 0..self.model.owners.len() {
            let is_of = |of: &&(usize, News)| of.0 == owner;
            let came: Vec<News> = news.iter().filter(is_of).map(|(_, news)| *news).collect();
            // The model has done what the command must do. More of what had fallen due may be done with it,
            // but then all of it.
            if came.iter().any(|news| matches!(news, News::Refused { .. })) {
                self.model.expire(owner);
            }
            if may_serve && came.iter().any(|news| matches!(news, News::Granted { .. })) {
                self.model.serve(owner);
            }
            let expected: Vec<News> = self.model.news.iter().filter(is_of).map(|(_, news)| *news).collect();
            prop_assert_eq!(ordered(came), ordered(expected), "provider/model {}", owner);
        }
        self.model.news.clear();
        Ok(())
    }

    fn compare_figures(&self) -> Result<(), TestCaseError> {
        let (machine, model) = (&self.machine, &self.model);
        prop_assert_eq!(machine.waiting(), model.waiting());
        prop_assert_eq!(machine.waiting(), self.waiting.len());
        prop_assert_eq!(machine.active_leases(), self.held.len());
        prop_assert_eq!(machine.active_leases(), self.ledger.out(), "leases in = leases out");
        prop_assert_eq!(machine.release_diagnostics(), self.ledger.irregular());
        let mut model = model.clone();
        model.observe(self.now);
        let is_due = machine.poll_timeout().is_some_and(|at| at.as_nanos() <= self.now);
        prop_assert!(is_due || !model.has_work_due(), "a waiter that could be answered has a wake-up due");
        for (at, id) in self.resources.iter().enumerate() {
            let state = machine.snapshot(self.at(), *id).expect("it was registered");
            let known = &model.resources[at];
            let figures = (state.current_limit, state.effective_max, state.success_streak, state.ramp.is_some());
            let expected = (model.limit(at), known.limit.max, known.limit.streak, model.is_ramping(at));
            prop_assert_eq!(figures, expected, "resource {}", at);
            let figures = (state.consecutive_rate_limits, state.rate_limit_ceiling);
            prop_assert_eq!(figures, (known.limit.consecutive, known.limit.ceiling));
            let blocked_until = Some(known.limit.blocked_until).filter(|end| *end > self.now);
            prop_assert_eq!(state.blocked_until.map(Instant::as_nanos), blocked_until);
            prop_assert_eq!(state.waiters as usize, model.waiting_for(at));
            prop_assert_eq!(state.in_flight as usize, model.in_flight(at));
            prop_assert_eq!(state.in_flight as usize, self.ledger.out_for(id.index() as u32));
            prop_assert_eq!(state.provider_in_flight as usize, model.in_flight_of(known.owner));
            prop_assert_eq!(state.provider_cap, model.owners[known.owner].cap());
        }
        Ok(())
    }
}

/// Refusals of one instant may come in any order; all else is compared as it came.
fn ordered(mut news: Vec<News>) -> Vec<News> {
    let instant = |news: &News| match news {
        News::Refused { deadline, .. } => Some(*deadline),
        News::Granted { .. } => None,
    };
    for tied in news.chunk_by_mut(|a, b| instant(a).is_some() && instant(a) == instant(b)) {
        tied.sort_by_key(|news| match news {
            News::Refused { ticket, .. } | News::Granted { ticket } => *ticket,
        });
    }
    news
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to `map_err`")]
fn failed(error: anyhow::Error) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}
