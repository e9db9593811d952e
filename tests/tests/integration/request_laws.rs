//! Laws of request admission under random command sequences.

use crate::cases;
use proptest::prelude::*;
use tidegate_core::id::SlotKey;
use tidegate_core::lease::{LeaseId, ReleaseResult};
use tidegate_core::request::{
    AcquireResult, Completion, Domain, LimitConfig, Outcome, Request, RequestAdmission, RequestConfig, RequestEffect,
    RequestLease, ResourceId, WaiterId,
};
use tidegate_core::time::{Duration, Instant};
use tidegate_tests::check::ledger::LedgerCheck;

const CAPS: [u32; 2] = [2, 5];
const DOMAINS: [Domain; 2] = [Domain::Chat, Domain::Embedding];

#[derive(Clone, Debug)]
enum Command {
    Acquire {
        resource: usize,
        timeout_ms: Option<u64>,
    },
    Try {
        resource: usize,
    },
    Release {
        which: usize,
        outcome: Outcome,
        retry_after_ms: Option<u64>,
    },
    /// Releases what is no live lease, made from one that is or was.
    Forge {
        which: usize,
        how: usize,
    },
    Cancel {
        which: usize,
    },
    Advance {
        ms: u64,
    },
    /// The clock jumps and nothing is served.
    Stall {
        ms: u64,
    },
    Register {
        provider: usize,
        cap: u32,
    },
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        6 => Just(Outcome::Success),
        3 => Just(Outcome::RateLimited),
        1 => Just(Outcome::ProviderFailure),
        1 => Just(Outcome::ProviderTimeout),
        1 => Just(Outcome::LocalCancelled),
        1 => Just(Outcome::LocalTimeout),
        1 => Just(Outcome::Unexpected),
    ]
}

fn command() -> impl Strategy<Value = Command> {
    let millis = || prop::option::of(0..4_000_u64);
    prop_oneof![
        6 => (0..4_usize, millis()).prop_map(|(resource, timeout_ms)| Command::Acquire { resource, timeout_ms }),
        2 => (0..4_usize).prop_map(|resource| Command::Try { resource }),
        6 => (0..64_usize, outcome(), millis())
            .prop_map(|(which, outcome, retry_after_ms)| Command::Release { which, outcome, retry_after_ms }),
        1 => (0..64_usize, 0..5_usize).prop_map(|(which, how)| Command::Forge { which, how }),
        1 => (0..64_usize).prop_map(|which| Command::Cancel { which }),
        4 => (1..3_000_u64).prop_map(|ms| Command::Advance { ms }),
        1 => (1..3_000_u64).prop_map(|ms| Command::Stall { ms }),
        1 => (0..2_usize, 1..7_u32).prop_map(|(provider, cap)| Command::Register { provider, cap }),
    ]
}

struct Waiter {
    id: WaiterId,
    deadline: Option<Instant>,
}

struct Bench {
    machine: RequestAdmission,
    now: Instant,
    resources: Vec<ResourceId>,
    leases: Vec<RequestLease>,
    waiters: Vec<Waiter>,
    /// Every lease that was ever granted.
    known: Vec<LeaseId>,
    ledger: LedgerCheck,
}

impl Bench {
    fn new(ramp_ms: u64) -> Self {
        let limit =
            LimitConfig { successes_until_increase: 3, ramp: Duration::from_millis(ramp_ms), ..LimitConfig::default() };
        let mut machine =
            RequestAdmission::new(RequestConfig { limit, ..RequestConfig::default() }).expect("valid settings");
        let mut resources = Vec::new();
        for (provider, cap) in ["a", "b"].iter().zip(CAPS) {
            let id = machine.register(Instant::ZERO, provider, "m", "default", cap).expect("a valid cap");
            resources.extend(DOMAINS.map(|domain| machine.resource(id, domain).expect("a known model")));
        }
        let (leases, waiters, known) = (Vec::new(), Vec::new(), Vec::new());
        Self { machine, now: Instant::ZERO, resources, leases, waiters, known, ledger: LedgerCheck::new(0) }
    }

    fn take(&mut self, lease: RequestLease) -> Result<(), TestCaseError> {
        self.ledger.on_grant(lease.id(), lease.id().item).map_err(failed)?;
        self.known.push(lease.id());
        self.leases.push(lease);
        Ok(())
    }

    fn give_back(&mut self, lease: RequestLease, done: &Completion) -> Result<ReleaseResult, TestCaseError> {
        let id = lease.id();
        let answer = self.machine.release(self.now, lease, done);
        self.ledger.on_release(id, answer).map_err(failed)?;
        Ok(answer)
    }

    fn forge(&mut self, which: usize, how: usize) -> Result<(), TestCaseError> {
        let Some(real) = self.known.get(which % self.known.len().max(1)).copied() else { return Ok(()) };
        let later = SlotKey { generation: real.key.generation + 9_999, ..real.key };
        let elsewhere = SlotKey { slot: real.key.slot + 9_999, ..real.key };
        let forged = match how {
            0 => LeaseId { controller: 1, ..real },
            1 => LeaseId { item: real.item + 1, ..real },
            2 => LeaseId { key: later, ..real },
            3 => LeaseId { key: elsewhere, ..real },
            // A second release of what is gone; of what is still out it would not be a forgery.
            _ if self.leases.iter().all(|lease| lease.id() != real) => real,
            _ => return Ok(()),
        };
        let answer = self.give_back(RequestLease::from_id(forged), &Outcome::RateLimited.into())?;
        prop_assert_ne!(answer, ReleaseResult::Released);
        Ok(())
    }

    fn give_all_back(&mut self) -> Result<(), TestCaseError> {
        while let Some(lease) = self.leases.pop() {
            prop_assert_eq!(self.give_back(lease, &Outcome::Success.into())?, ReleaseResult::Released);
            self.drain()?;
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), TestCaseError> {
        while let Some(effect) = self.machine.poll_effect() {
            let (waiter, is_grant) = match &effect {
                RequestEffect::Granted { waiter, .. } => (*waiter, true),
                RequestEffect::Denied { waiter, .. } => (*waiter, false),
                other => return Err(TestCaseError::fail(format!("{other:?} is for no waiter"))),
            };
            let at = self.waiters.iter().position(|known| known.id == waiter);
            prop_assert!(at.is_some(), "news for nobody");
            let known = self.waiters.remove(at.unwrap_or(0));
            let is_overdue = known.deadline.is_some_and(|deadline| deadline <= self.now);
            prop_assert!(is_grant != is_overdue, "a waiter past its deadline is refused and no other is");
            if let RequestEffect::Granted { lease, .. } = effect {
                self.take(lease)?;
            }
        }
        Ok(())
    }

    fn settle_until(&mut self, target: Instant) -> Result<(), TestCaseError> {
        while let Some(at) = self.machine.poll_timeout().filter(|at| *at <= target) {
            self.now = self.now.max(at);
            self.machine.handle_timeout(self.now);
            self.drain()?;
        }
        self.now = target;
        self.machine.handle_timeout(self.now);
        self.drain()
    }

    fn carry_out(&mut self, command: &Command) -> Result<(), TestCaseError> {
        match *command {
            Command::Acquire { resource, timeout_ms } => {
                let timeout = timeout_ms.map(Duration::from_millis);
                let request = Request { timeout, ..Request::new(self.resources[resource]) };
                match self.machine.acquire(self.now, &request) {
                    AcquireResult::Granted(lease) => self.take(lease)?,
                    AcquireResult::Waiting(id) => {
                        self.waiters.push(Waiter { id, deadline: timeout.map(|span| self.now + span) });
                    }
                    AcquireResult::Denied(denial) => prop_assert_eq!(timeout_ms, Some(0), "{}", denial),
                }
            }
            Command::Try { resource } => {
                if let Ok(lease) = self.machine.try_acquire(self.now, &Request::new(self.resources[resource])) {
                    self.take(lease)?;
                }
            }
            Command::Release { which, outcome, retry_after_ms } if !self.leases.is_empty() => {
                let lease = self.leases.swap_remove(which % self.leases.len());
                let mut done = Completion::from(outcome);
                done.retry_after = retry_after_ms.map(Duration::from_millis);
                prop_assert_eq!(self.give_back(lease, &done)?, ReleaseResult::Released);
            }
            Command::Forge { which, how } => self.forge(which, how)?,
            Command::Cancel { which } if !self.waiters.is_empty() => {
                let waiter = self.waiters[which % self.waiters.len()].id;
                if self.machine.cancel(self.now, waiter) {
                    self.waiters.retain(|known| known.id != waiter);
                }
            }
            Command::Advance { ms } => self.settle_until(self.now + Duration::from_millis(ms))?,
            Command::Stall { ms } => self.now += Duration::from_millis(ms),
            Command::Register { provider, cap } => {
                let registered = self.machine.register(self.now, ["a", "b"][provider], "m", "default", cap);
                prop_assert!(registered.is_ok());
            }
            Command::Release { .. } | Command::Cancel { .. } => {}
        }
        self.drain()
    }

    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.machine.active_leases(), self.leases.len());
        prop_assert_eq!(self.machine.waiting(), self.waiters.len());
        prop_assert_eq!(self.ledger.out(), self.leases.len(), "leases in = leases out");
        prop_assert_eq!(self.machine.release_diagnostics(), self.ledger.irregular());
        let mut in_flight = 0;
        for resource in &self.resources {
            let state = self.machine.snapshot(self.now, *resource).expect("it was registered");
            prop_assert!(state.current_limit >= 1 && state.current_limit <= state.effective_max);
            prop_assert!(state.effective_max <= state.provider_cap);
            in_flight += state.in_flight as usize;
        }
        prop_assert_eq!(in_flight, self.leases.len());
        Ok(())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to `map_err`")]
fn failed(error: anyhow::Error) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

fn keeps_the_laws(ramp_ms: u64, commands: &[Command]) -> Result<(), TestCaseError> {
    let mut bench = Bench::new(ramp_ms);
    for command in commands {
        bench.carry_out(command)?;
        bench.check()?;
    }
    bench.give_all_back()?;
    // With every lease back, time alone serves all who still wait.
    while !bench.waiters.is_empty() {
        let next = bench.machine.poll_timeout();
        prop_assert!(next.is_some(), "a waiter waits for nothing");
        bench.settle_until(next.unwrap_or(Instant::MAX))?;
        bench.give_all_back()?;
    }
    bench.check()?;
    prop_assert_eq!(bench.machine.poll_timeout(), None);
    let rest = [("waiters", bench.machine.waiting())];
    bench.ledger.finish(bench.machine.active_leases(), &rest).map_err(failed)
}

proptest! {
    #![proptest_config(cases::config(2_000))]

    #[test]
    fn what_is_granted_is_what_is_held_or_was_released(commands in prop::collection::vec(command(), 1..150)) {
        keeps_the_laws(0, &commands)?;
    }

    #[test]
    fn what_is_granted_is_what_is_held_or_was_released_while_a_limit_ramps(
        ramp_ms in 1..9_000_u64,
        commands in prop::collection::vec(command(), 1..150),
    ) {
        keeps_the_laws(ramp_ms, &commands)?;
    }
}
