//! What rate budgets promise, whatever is asked of them: no interval lets more through than the bucket and its refill,
//! nobody waits a nanosecond longer than that takes, and what is out is what is reserved.

use crate::cases;
use proptest::prelude::*;
use tidegate_core::budget::{BudgetConfig, BudgetSnapshot, Dimension, Usage};
use tidegate_core::request::{
    AcquireResult, Completion, Domain, Outcome, Request, RequestAdmission, RequestConfig, RequestEffect, RequestLease,
    ResourceId,
};
use tidegate_core::time::{Duration, Instant};

const DIMENSIONS: [Dimension; 4] =
    [Dimension::Requests, Dimension::InputTokens, Dimension::OutputTokens, Dimension::TotalTokens];

const OUTCOMES: [Outcome; 8] = [
    Outcome::Success,
    Outcome::RateLimited,
    Outcome::ProviderFailure,
    Outcome::LocalCancelled,
    Outcome::LocalTimeout,
    Outcome::ConnectionFailed,
    Outcome::RequestRejected,
    Outcome::TlsFailed,
];

#[derive(Clone, Debug)]
enum Command {
    Acquire { estimate: Usage },
    Release { pick: usize, outcome: Outcome, share: u32 },
    Advance { nanos: u64 },
}

fn amount(usage: Usage, dimension: Dimension) -> u64 {
    match dimension {
        Dimension::Requests => 1,
        Dimension::InputTokens => u64::from(usage.input_tokens),
        Dimension::OutputTokens => u64::from(usage.output_tokens),
        Dimension::TotalTokens => u64::from(usage.input_tokens) + u64::from(usage.output_tokens),
        _ => unreachable!("it is one of DIMENSIONS"),
    }
}

/// A limit, and a bucket that holds any estimate that is drawn.
fn budget() -> impl Strategy<Value = BudgetConfig> {
    let window = prop_oneof![Just(1_u64), 2..100_u64, 1_000..5_000_u64];
    (0..DIMENSIONS.len(), window, 1..200_u64, 40..90_u64).prop_map(|(dimension, window, limit, burst)| {
        BudgetConfig::per(Duration::from_nanos(window), DIMENSIONS[dimension], limit).with_burst(burst)
    })
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        3 => (0..=20_u32, 0..=20_u32).prop_map(|(input, output)| Command::Acquire { estimate: Usage::tokens(input, output) }),
        2 => (any::<usize>(), prop::sample::select(&OUTCOMES[..]), 0..=100_u32)
            .prop_map(|(pick, outcome, share)| Command::Release { pick, outcome, share }),
        2 => (0..400_u64).prop_map(|nanos| Command::Advance { nanos }),
    ]
}

/// A call that is out or was.
struct Call {
    estimate: Usage,
    lease: Option<RequestLease>,
}

/// What was taken when a call went out, or what came back when it ended.
struct Move {
    at: Instant,
    usage: Usage,
    is_taken: bool,
    /// A call that ended gives its request back only if it was refused or cancelled.
    requests: u64,
}

struct World {
    machine: RequestAdmission,
    resource: ResourceId,
    budgets: Vec<BudgetConfig>,
    now: Instant,
    waiting: Vec<(tidegate_core::request::WaiterId, Usage)>,
    calls: Vec<Call>,
    moves: Vec<Move>,
}

impl World {
    fn new(budgets: Vec<BudgetConfig>) -> Self {
        // Budgets by themselves: an outage holds calls back, too.
        let config = RequestConfig { health: None, ..RequestConfig::default() };
        let mut machine = RequestAdmission::new(config).expect("the defaults are valid");
        let now = Instant::ZERO;
        let model = machine.register(now, "provider", "model", "default", 1_000_000).expect("a valid cap");
        let resource = machine.resource(model, Domain::Chat).expect("a known model");
        machine.set_budgets(now, resource, &budgets).expect("valid budgets");
        Self { machine, resource, budgets, now, waiting: Vec::new(), calls: Vec::new(), moves: Vec::new() }
    }

    fn budgets_at(&self, at: Instant) -> Vec<BudgetSnapshot> {
        self.machine.snapshot(at, self.resource).expect("it was registered").budgets
    }

    fn note(&mut self, estimate: Usage, lease: RequestLease) {
        self.calls.push(Call { estimate, lease: Some(lease) });
        self.moves.push(Move { at: self.now, usage: estimate, is_taken: true, requests: 1 });
    }

    fn drain(&mut self) {
        while let Some(effect) = self.machine.poll_effect() {
            let RequestEffect::Granted { waiter, lease } = effect else { panic!("no request has a deadline") };
            assert_eq!(waiter, self.waiting[0].0, "one group is served in order");
            let (_, estimate) = self.waiting.remove(0);
            self.note(estimate, lease);
        }
    }

    fn apply(&mut self, command: &Command) {
        match *command {
            Command::Acquire { estimate } => {
                match self.machine.acquire(self.now, &Request::new(self.resource).estimated(estimate)) {
                    AcquireResult::Granted(lease) => self.note(estimate, lease),
                    AcquireResult::Waiting(waiter) => self.waiting.push((waiter, estimate)),
                    AcquireResult::Denied(denial) => panic!("{denial}"),
                }
            }
            Command::Release { pick, outcome, share } => {
                let mut out: Vec<_> = self.calls.iter_mut().filter(|call| call.lease.is_some()).collect();
                if out.is_empty() {
                    return;
                }
                let pick = pick % out.len();
                let call = &mut *out[pick];
                let part = |tokens: u32| tokens * share / 100;
                let usage = Usage::tokens(part(call.estimate.input_tokens), part(call.estimate.output_tokens));
                // Half of the calls that end do not say what they used.
                let says = share % 2 == 0 && outcome == Outcome::Success;
                let (input, output) = (call.estimate.input_tokens, call.estimate.output_tokens);
                let (usage_back, requests) = match outcome {
                    Outcome::RateLimited | Outcome::LocalCancelled | Outcome::ConnectionFailed | Outcome::TlsFailed => {
                        (call.estimate, 1)
                    }
                    Outcome::RequestRejected => (call.estimate, 0),
                    _ if says => (Usage::tokens(input - usage.input_tokens, output - usage.output_tokens), 0),
                    _ => (Usage::default(), 0),
                };
                self.moves.push(Move { at: self.now, usage: usage_back, is_taken: false, requests });
                let done = if says { Completion::new(outcome).used(usage) } else { outcome.into() };
                let lease = call.lease.take().expect("it was filtered");
                let _ = self.machine.release(self.now, lease, &done);
                self.drain();
            }
            Command::Advance { nanos } => self.advance(self.now + Duration::from_nanos(nanos)),
        }
    }

    fn advance(&mut self, to: Instant) {
        while let Some(due) = self.machine.poll_timeout().filter(|due| *due <= to) {
            let just_before = Instant::from_nanos(due.as_nanos() - 1);
            let before = self.machine.snapshot(just_before, self.resource).expect("it was registered");
            self.now = due;
            let first = self.waiting[0];
            self.machine.handle_timeout(due);
            self.drain();
            let is_served = self.waiting.first() != Some(&first);
            // A cooldown wakes too; at its end the budgets may long have sufficed.
            let was_cooling = before.blocked_until.is_some();
            if is_served && just_before > Instant::ZERO && !was_cooling {
                let short = before.budgets.iter().any(|budget| {
                    budget.available < i64::try_from(amount(first.1, budget.config.dimension)).expect("small numbers")
                });
                assert!(short, "at {just_before} the budgets sufficed, and nobody was served before {due}");
            }
        }
        self.now = to;
    }

    /// Checks every interval that begins and ends with a move: what was taken, less what came back, fits the bucket and
    /// its refill.
    fn check(&self) {
        for budget in &self.budgets {
            let window = i128::from(budget.window.as_nanos());
            let held = i128::from(budget.burst.unwrap_or(budget.limit)) * window;
            for (at, start) in self.moves.iter().enumerate() {
                let mut sum = 0;
                for end in &self.moves[at..] {
                    let of_requests = budget.dimension == Dimension::Requests;
                    let amount = if of_requests { end.requests } else { amount(end.usage, budget.dimension) };
                    sum += i128::from(amount) * if end.is_taken { 1 } else { -1 };
                    let refill = i128::from(budget.limit) * i128::from((end.at - start.at).as_nanos());
                    let (start, end) = (start.at, end.at);
                    assert!(sum * window <= held + refill, "{sum} from {start} to {end} under {budget:?}");
                }
            }
        }
        for (shown, budget) in self.budgets_at(self.now).iter().zip(&self.budgets) {
            let out = self.calls.iter().filter(|call| call.lease.is_some());
            assert_eq!(shown.reserved, out.map(|call| amount(call.estimate, budget.dimension)).sum::<u64>());
            assert!(u64::try_from(shown.available).unwrap_or(0) <= budget.burst.unwrap_or(budget.limit));
        }
    }
}

proptest! {
    #![proptest_config(cases::config(1_500))]

    #[test]
    fn no_interval_lets_more_through_than_its_bucket_and_refill_and_nobody_waits_longer_than_that(
        budgets in prop::collection::vec(budget(), 1..4),
        commands in prop::collection::vec(command(), 1..80),
    ) {
        let mut world = World::new(budgets);
        for command in &commands {
            world.apply(command);
            world.check();
        }
        // Everybody is served in the end: no wake-up is ever lost.
        for _ in 0..1_000_000 {
            if world.waiting.is_empty() {
                break;
            }
            let due = world.machine.poll_timeout().expect("a request that waits for a budget has a wake-up");
            world.advance(due);
            world.check();
        }
        prop_assert!(world.waiting.is_empty());
    }
}
