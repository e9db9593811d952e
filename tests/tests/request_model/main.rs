//! Request admission against a small obvious model: after every command, the same grants, refusals and denials in the
//! same order, and the same figures. An independent ledger watches every lease.

#[path = "../cases/mod.rs"]
mod cases;
mod model;

use model::{Answer, Denial, Model, News, Settings};
use proptest::prelude::*;
use tidegate_core::id::SlotKey;
use tidegate_core::lease::LeaseId;
use tidegate_core::request::{
    self, Acquire, AimdConfig, Completion, DenialReason, Domain, Effect, GroupId, Outcome, Request, RequestAdmission,
    RequestConfig, RequestLease, ResourceId, WaiterId,
};
use tidegate_core::time::{Duration, Instant};
use tidegate_tests::check::ledger::LedgerCheck;

/// Provider of each resource: two domains, three domains, one domain.
const RESOURCES: [usize; 6] = [0, 0, 1, 1, 1, 2];
const PROVIDERS: [&str; 3] = ["a", "b", "c"];
const DOMAINS: [Domain; 3] = [Domain::Chat, Domain::Embedding, Domain::Image];
const WEIGHTS: [f64; 3] = [0.3, 1.0, 5.0];
const CONTROLLER: u32 = 7;
const MILLI: u64 = 1_000_000;

#[derive(Clone, Debug)]
enum Command {
    Acquire {
        resource: usize,
        /// `WEIGHTS.len()` is the resource's own group.
        group: usize,
        timeout_ms: Option<u64>,
    },
    Try {
        resource: usize,
    },
    Cancel {
        which: usize,
    },
    Release {
        which: usize,
        outcome: Outcome,
        retry_after_ms: Option<u64>,
    },
    /// Releases something that is no live lease, made from a real one.
    Forge {
        which: usize,
        how: usize,
    },
    Register {
        provider: usize,
        alias: usize,
        cap: u32,
    },
    Weight {
        group: usize,
        weight: f64,
    },
    /// Time passes and every wake-up is handled when it is due.
    Advance {
        ms: u64,
    },
    /// Time passes unseen.
    Stall {
        ms: u64,
    },
    /// The host's clock ran backwards for one call.
    Relapse {
        ms: u64,
    },
    Wake,
    Shutdown,
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        8 => Just(Outcome::Success),
        3 => Just(Outcome::RateLimited),
        1 => Just(Outcome::ProviderFailure),
        1 => Just(Outcome::ProviderTimeout),
        1 => Just(Outcome::LocalCancelled),
        1 => Just(Outcome::LocalTimeout),
        1 => Just(Outcome::Unexpected),
    ]
}

fn command() -> impl Strategy<Value = Command> {
    let timeout = || prop_oneof![2 => Just(None), 1 => Just(Some(0)), 4 => (1..3_000_u64).prop_map(Some)];
    let retry_after = || prop_oneof![2 => Just(None), 1 => Just(Some(0)), 3 => (1..9_000_u64).prop_map(Some)];
    prop_oneof![
        // The last resource was never made.
        12 => (0..=RESOURCES.len(), 0..=WEIGHTS.len(), timeout())
            .prop_map(|(resource, group, timeout_ms)| Command::Acquire { resource, group, timeout_ms }),
        3 => (0..=RESOURCES.len()).prop_map(|resource| Command::Try { resource }),
        2 => (0..64_usize).prop_map(|which| Command::Cancel { which }),
        10 => (0..64_usize, outcome(), retry_after())
            .prop_map(|(which, outcome, retry_after_ms)| Command::Release { which, outcome, retry_after_ms }),
        2 => (0..64_usize, 0..5_usize).prop_map(|(which, how)| Command::Forge { which, how }),
        2 => (0..PROVIDERS.len(), 0..3_usize, 1..7_u32)
            .prop_map(|(provider, alias, cap)| Command::Register { provider, alias, cap }),
        1 => (0..WEIGHTS.len(), 0.25..8.0_f64).prop_map(|(group, weight)| Command::Weight { group, weight }),
        6 => (0..2_500_u64).prop_map(|ms| Command::Advance { ms }),
        2 => (1..2_500_u64).prop_map(|ms| Command::Stall { ms }),
        1 => (1..2_500_u64).prop_map(|ms| Command::Relapse { ms }),
        1 => Just(Command::Wake),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let ramp = prop_oneof![2 => Just(0), 3 => 1..6_000 * MILLI];
    let limits = (prop::option::of(1..6_u32), prop::option::weighted(0.3, 1..6_u32));
    let default_timeout = prop::option::weighted(0.3, 1..9_000 * MILLI);
    (1..4_u32, ramp, limits, 2_000..5_000_u64, default_timeout).prop_map(
        |(successes_until_increase, ramp, (initial_limit, max_limit), max_cooldown_ms, default_timeout)| Settings {
            successes_until_increase,
            cooldown: 2_000 * MILLI,
            max_cooldown: max_cooldown_ms * MILLI,
            ramp,
            initial_limit,
            max_limit,
            default_timeout,
        },
    )
}

struct Pair {
    machine: RequestAdmission,
    model: Model,
    ledger: LedgerCheck,
    now: u64,
    resources: Vec<ResourceId>,
    groups: Vec<GroupId>,
    /// Leases that are out, by ticket, oldest first.
    held: Vec<(u64, RequestLease)>,
    waiting: Vec<(u64, WaiterId)>,
    /// Where forgeries are taken from.
    spent: Vec<LeaseId>,
    /// By ticket.
    asked: Vec<Asked>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    resource: usize,
    deadline: Option<u64>,
}

fn denial(denial: request::Denial) -> Denial {
    Denial { reason: denial.reason, changes_at: denial.changes_at.map(Instant::as_nanos) }
}

impl Pair {
    fn new(settings: Settings, caps: &[u32; 3]) -> Self {
        let aimd = AimdConfig {
            initial_limit: settings.initial_limit,
            max_limit: settings.max_limit,
            successes_until_increase: settings.successes_until_increase,
            cooldown: Duration::from_nanos(settings.cooldown),
            max_cooldown: Duration::from_nanos(settings.max_cooldown),
            ramp: Duration::from_nanos(settings.ramp),
            ..AimdConfig::default()
        };
        let default_timeout = settings.default_timeout.map(Duration::from_nanos);
        let config = RequestConfig { aimd, controller: CONTROLLER, default_timeout, ..RequestConfig::default() };
        let mut machine = RequestAdmission::new(config).expect("valid settings");
        let groups = WEIGHTS.iter().zip(["x", "y", "z"]);
        let groups = groups.map(|(weight, name)| machine.group(name, *weight).expect("a valid weight")).collect();
        let mut resources = Vec::new();
        for (at, name) in PROVIDERS.iter().enumerate() {
            let id = machine.register(Instant::ZERO, name, "m", "0", caps[at]).expect("a valid cap");
            let domains = RESOURCES.iter().filter(|provider| **provider == at).count();
            resources.extend(
                DOMAINS[..domains].iter().map(|domain| machine.resource(id, domain.clone()).expect("a known model")),
            );
        }
        // Each resource has a group of its own, of weight 1.
        let weights: Vec<f64> = WEIGHTS.iter().copied().chain(RESOURCES.map(|_| 1.0)).collect();
        Self {
            machine,
            model: Model::new(settings, caps, &RESOURCES, &weights),
            ledger: LedgerCheck::new(CONTROLLER),
            now: 0,
            resources,
            groups,
            held: Vec::new(),
            waiting: Vec::new(),
            spent: Vec::new(),
            asked: Vec::new(),
        }
    }

    fn at(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn resource(&self, at: usize) -> ResourceId {
        self.resources.get(at).copied().unwrap_or(ResourceId::new(0, 99))
    }

    fn take(&mut self, ticket: u64, lease: RequestLease) -> Result<(), TestCaseError> {
        let resource = self.asked[ticket as usize].resource;
        self.ledger.on_grant(lease.id(), self.resources[resource].index() as u32).map_err(failed)?;
        self.held.push((ticket, lease));
        Ok(())
    }

    fn acquire(&mut self, resource: usize, group: usize, timeout_ms: Option<u64>) -> Result<(), TestCaseError> {
        let ticket = self.asked.len() as u64;
        let timeout = timeout_ms.map(|ms| ms * MILLI);
        let deadline = timeout.or(self.model.settings.default_timeout).map(|span| self.now + span);
        self.asked.push(Asked { resource, deadline });
        let mut request = Request::new(self.resource(resource));
        if let Some(group) = self.groups.get(group) {
            request = request.in_group(*group);
        }
        if let Some(span) = timeout {
            request = request.within(Duration::from_nanos(span));
        }
        let own_group = WEIGHTS.len() + resource;
        let group = if group < WEIGHTS.len() { group } else { own_group };
        let expected = self.model.acquire(self.now, ticket, resource, group, timeout);
        let answer = match self.machine.acquire(self.at(), &request) {
            Acquire::Granted(lease) => {
                self.take(ticket, lease)?;
                Answer::Granted
            }
            Acquire::Waiting(id) => {
                self.waiting.push((ticket, id));
                Answer::Waiting
            }
            Acquire::Denied(why) => Answer::Denied(denial(why)),
        };
        prop_assert_eq!(answer, expected);
        Ok(())
    }

    fn try_acquire(&mut self, resource: usize) -> Result<(), TestCaseError> {
        let ticket = self.asked.len() as u64;
        self.asked.push(Asked { resource, deadline: None });
        let expected = self.model.try_acquire(self.now, ticket, resource);
        let answer = match self.machine.try_acquire(self.at(), &Request::new(self.resource(resource))) {
            Ok(lease) => {
                self.take(ticket, lease)?;
                Answer::Granted
            }
            Err(why) => Answer::Denied(denial(why)),
        };
        prop_assert_eq!(answer, expected);
        Ok(())
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
        // It changes nothing, but it tells the time.
        self.model.observe(self.now);
        let answer = self.machine.release(self.at(), RequestLease::from_id(forged), &Outcome::Success.into());
        self.ledger.on_release(forged, answer).map_err(failed)
    }

    fn carry_out(&mut self, command: &Command) -> Result<(), TestCaseError> {
        match *command {
            Command::Acquire { resource, group, timeout_ms } => self.acquire(resource, group, timeout_ms)?,
            Command::Try { resource } => self.try_acquire(resource)?,
            Command::Cancel { which } if !self.waiting.is_empty() => {
                let (ticket, id) = self.waiting.remove(which % self.waiting.len());
                prop_assert_eq!(self.machine.cancel(self.at(), id), self.model.cancel(self.now, ticket));
            }
            Command::Release { which, outcome, retry_after_ms } if !self.held.is_empty() => {
                self.release(which, outcome, retry_after_ms)?;
            }
            Command::Forge { which, how } => self.forge(which, how)?,
            Command::Register { provider, alias, cap } => {
                let name = ["0", "1", "2"][alias];
                let registered = self.machine.register(self.at(), PROVIDERS[provider], "m", name, cap);
                prop_assert!(registered.is_ok());
                self.model.register(self.now, provider, alias, cap);
            }
            Command::Weight { group, weight } => {
                let known = self.machine.group(["x", "y", "z"][group], weight);
                prop_assert_eq!(known.ok(), Some(self.groups[group]));
                self.model.set_weight(group, weight);
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
        self.compare_news()?;
        self.compare_figures()
    }

    fn wake(&mut self) {
        self.machine.handle_timeout(self.at());
        self.model.handle_timeout(self.now);
    }

    /// Handles each wake-up when it is due, as a host does; none may be missing or come too early to do anything.
    fn advance(&mut self, target: u64) -> Result<(), TestCaseError> {
        self.wake();
        self.compare_news()?;
        loop {
            let next = self.model.next_event();
            prop_assert_eq!(self.machine.poll_timeout().map(Instant::as_nanos), next, "the next wake-up");
            let Some(at) = next.filter(|at| *at <= target) else { break };
            self.now = self.now.max(at);
            self.wake();
            self.compare_news()?;
        }
        self.now = target;
        self.wake();
        Ok(())
    }

    fn compare_news(&mut self) -> Result<(), TestCaseError> {
        let mut news = Vec::new();
        while let Some(effect) = self.machine.poll_effect() {
            let (Effect::Granted { waiter, .. } | Effect::Refused { waiter, .. }) = &effect;
            let at = self.waiting.iter().position(|(_, id)| id == waiter);
            prop_assert!(at.is_some(), "news for nobody: {:?}", effect);
            let (ticket, _) = self.waiting.remove(at.unwrap_or(0));
            match effect {
                Effect::Granted { lease, .. } => {
                    self.take(ticket, lease)?;
                    news.push(News::Granted { ticket });
                }
                Effect::Refused { denial: why, .. } => {
                    let by_time = why.reason == DenialReason::QueueTimeout;
                    let deadline = self.asked[ticket as usize].deadline.filter(|_| by_time);
                    news.push(News::Refused { ticket, deadline, denial: denial(why) });
                }
            }
        }
        let mut expected = std::mem::take(&mut self.model.news);
        for list in [&mut news, &mut expected] {
            order_ties(list);
        }
        prop_assert_eq!(news, expected);
        Ok(())
    }

    fn compare_figures(&self) -> Result<(), TestCaseError> {
        let (machine, model) = (&self.machine, &self.model);
        prop_assert_eq!(machine.waiting(), model.waiting());
        prop_assert_eq!(machine.waiting(), self.waiting.len());
        prop_assert_eq!(machine.active_leases(), self.held.len());
        prop_assert_eq!(machine.active_leases(), self.ledger.out(), "leases in = leases out");
        prop_assert_eq!(machine.release_diagnostics(), self.ledger.irregular());
        let is_due = machine.poll_timeout().is_some_and(|at| at.as_nanos() <= self.now);
        prop_assert!(is_due || !model.owes_a_grant(), "a waiter that could go has a wake-up due");
        let mut model = model.clone();
        model.observe(self.now);
        for (at, id) in self.resources.iter().enumerate() {
            let state = machine.snapshot(self.at(), *id).expect("it was registered");
            let known = &model.resources[at];
            let figures = (state.current_limit, state.effective_max, state.success_streak, state.ramp.is_some());
            prop_assert_eq!(
                figures,
                (model.limit(at), known.max, known.streak, model.is_ramping(at)),
                "resource {}",
                at
            );
            let figures = (state.consecutive_rate_limits, state.rate_limit_ceiling);
            prop_assert_eq!(figures, (known.consecutive, known.ceiling));
            let blocked_until = Some(known.blocked_until).filter(|end| *end > self.now);
            prop_assert_eq!(state.blocked_until.map(Instant::as_nanos), blocked_until);
            prop_assert_eq!(state.waiters as usize, model.waiting_for(at));
            prop_assert_eq!(state.in_flight as usize, model.in_flight(at));
            prop_assert_eq!(state.in_flight as usize, self.ledger.out_for(id.index() as u32));
            prop_assert_eq!(state.provider_in_flight as usize, model.in_flight_at(known.provider));
            prop_assert_eq!(state.provider_cap, model.providers[known.provider].cap());
        }
        Ok(())
    }

    /// Everything comes back, and nothing is left.
    fn finish(&mut self, by_shutdown: bool) -> Result<(), TestCaseError> {
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
        let loads = self.resources.iter().map(|id| self.machine.load(self.at(), *id));
        let in_flight: u32 = loads.flatten().map(|load| load.in_flight + load.waiters).sum();
        let rest = [("waiters", self.machine.waiting()), ("calls in flight or waiting", in_flight as usize)];
        self.ledger.finish(self.machine.active_leases(), &rest).map_err(failed)?;
        prop_assert_eq!(self.machine.poll_timeout(), None, "nobody waits for time");
        Ok(())
    }
}

/// Refusals of one instant may come in any order; all else is compared as it came.
fn order_ties(news: &mut [News]) {
    let instant = |news: &News| match news {
        News::Refused { deadline, .. } => Some(*deadline),
        News::Granted { .. } => None,
    };
    for tied in news.chunk_by_mut(|a, b| instant(a).is_some() && instant(a) == instant(b)) {
        tied.sort_by_key(|news| match news {
            News::Refused { ticket, .. } | News::Granted { ticket } => *ticket,
        });
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to `map_err`")]
fn failed(error: anyhow::Error) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

/// How many cases: 2 500, or as many as `REQUEST_MODEL_CASES` asks for.
fn cases() -> u32 {
    std::env::var("REQUEST_MODEL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2_500)
}

proptest! {
    #![proptest_config(cases::config(cases()))]

    #[test]
    fn every_answer_and_all_news_equal_the_models(
        settings in settings(),
        caps in [1..8_u32, 1..8_u32, 1..8_u32],
        commands in prop::collection::vec(command(), 1..160),
        by_shutdown in any::<bool>(),
    ) {
        let mut pair = Pair::new(settings, &caps);
        for command in &commands {
            pair.carry_out(command)?;
        }
        pair.finish(by_shutdown)?;
    }
}
