//! Laws of request admission under random command sequences.

mod cases;

use proptest::prelude::*;
use tidegate_core::lease::ReleaseAnswer;
use tidegate_core::request::{
    Acquire, AimdConfig, Completion, Domain, Effect, Outcome, Request, RequestAdmission, RequestConfig, RequestLease,
    ResourceId, WaiterId,
};
use tidegate_core::time::{Duration, Instant};

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
    ]
}

fn command() -> impl Strategy<Value = Command> {
    let millis = || prop::option::of(0..4_000_u64);
    prop_oneof![
        6 => (0..4_usize, millis()).prop_map(|(resource, timeout_ms)| Command::Acquire { resource, timeout_ms }),
        2 => (0..4_usize).prop_map(|resource| Command::Try { resource }),
        6 => (0..64_usize, outcome(), millis())
            .prop_map(|(which, outcome, retry_after_ms)| Command::Release { which, outcome, retry_after_ms }),
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
    granted: usize,
    released: usize,
}

impl Bench {
    fn new(ramp_ms: u64) -> Self {
        let aimd =
            AimdConfig { successes_until_increase: 3, ramp: Duration::from_millis(ramp_ms), ..AimdConfig::default() };
        let mut machine =
            RequestAdmission::new(RequestConfig { aimd, ..RequestConfig::default() }).expect("valid settings");
        let mut resources = Vec::new();
        for (provider, cap) in ["a", "b"].iter().zip(CAPS) {
            let id = machine.register(Instant::ZERO, provider, "m", "default", cap).expect("a valid cap");
            resources.extend(DOMAINS.map(|domain| machine.resource(id, domain)));
        }
        let (leases, waiters) = (Vec::new(), Vec::new());
        Self { machine, now: Instant::ZERO, resources, leases, waiters, granted: 0, released: 0 }
    }

    fn drain(&mut self) -> Result<(), TestCaseError> {
        while let Some(effect) = self.machine.poll_effect() {
            let (waiter, is_grant) = match &effect {
                Effect::Granted { waiter, .. } => (*waiter, true),
                Effect::Refused { waiter, .. } => (*waiter, false),
            };
            let at = self.waiters.iter().position(|known| known.id == waiter);
            prop_assert!(at.is_some(), "news for nobody");
            let known = self.waiters.remove(at.unwrap_or(0));
            let is_overdue = known.deadline.is_some_and(|deadline| deadline <= self.now);
            prop_assert!(is_grant != is_overdue, "a waiter past its deadline is refused and no other is");
            if let Effect::Granted { lease, .. } = effect {
                self.granted += 1;
                self.leases.push(lease);
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
                    Acquire::Granted(lease) => {
                        self.granted += 1;
                        self.leases.push(lease);
                    }
                    Acquire::Waiting(id) => {
                        self.waiters.push(Waiter { id, deadline: timeout.map(|span| self.now + span) });
                    }
                    Acquire::Denied(denial) => prop_assert_eq!(timeout_ms, Some(0), "{}", denial),
                }
            }
            Command::Try { resource } => {
                if let Ok(lease) = self.machine.try_acquire(self.now, &Request::new(self.resources[resource])) {
                    self.granted += 1;
                    self.leases.push(lease);
                }
            }
            Command::Release { which, outcome, retry_after_ms } if !self.leases.is_empty() => {
                let lease = self.leases.swap_remove(which % self.leases.len());
                let done =
                    Completion { retry_after: retry_after_ms.map(Duration::from_millis), ..Completion::new(outcome) };
                prop_assert_eq!(self.machine.release(self.now, lease, &done), ReleaseAnswer::Released);
                self.released += 1;
            }
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
        prop_assert_eq!(self.granted, self.released + self.leases.len(), "leases in = leases out");
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

proptest! {
    #![proptest_config(cases::config(4_000))]

    #[test]
    fn what_is_granted_is_what_is_held_or_was_released(
        ramp_ms in prop_oneof![Just(0_u64), 1..9_000_u64],
        commands in prop::collection::vec(command(), 1..150),
    ) {
        let mut bench = Bench::new(ramp_ms);
        for command in &commands {
            bench.carry_out(command)?;
            bench.check()?;
        }
        while let Some(lease) = bench.leases.pop() {
            let _ = bench.machine.release(bench.now, lease, &Outcome::Success.into());
            bench.released += 1;
            bench.drain()?;
        }
        // With every lease back, time alone serves all who still wait.
        while !bench.waiters.is_empty() {
            let next = bench.machine.poll_timeout();
            prop_assert!(next.is_some(), "a waiter waits for nothing");
            bench.settle_until(next.unwrap_or(Instant::MAX))?;
            while let Some(lease) = bench.leases.pop() {
                let _ = bench.machine.release(bench.now, lease, &Outcome::Success.into());
                bench.released += 1;
                bench.drain()?;
            }
        }
        bench.check()?;
        prop_assert_eq!(bench.machine.poll_timeout(), None);
    }
}
