//! Laws that hold under all faults: every short history of two members, and random worlds.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::super::*;
use super::oracle::{Exemption, Oracle};
use super::short_config;
use crate::budget::{BudgetConfig, Dimension};
use crate::limit::{LimitChoice, TideConfig};
use crate::sim::rng::Rng;
use crate::sim::sharing::{START, SharingConfig, SharingWorld};
use crate::time::{Duration, Instant};

fn random_config(rng: &mut Rng) -> SharingConfig {
    let on_loss = [OnLoss::Share, OnLoss::Stop, OnLoss::Alone][rng.below(3) as usize];
    let share = ShareConfig {
        ttl: Duration::from_secs(2),
        takeover_after: Duration::from_millis(700),
        takeover_jitter: Duration::from_millis(300),
        call_timeout: Duration::from_secs(7),
        on_loss,
        ..ShareConfig::default()
    };
    let cap = 1 + rng.below(24) as u32;
    let choice = match rng.below(4) {
        0 => LimitChoice::Tide(TideConfig::default()),
        _ => LimitChoice::Aimd,
    };
    // AIMD learns no rate.
    let interval = match rng.below(3) {
        0 if !choice.is_aimd() => Some(Duration::from_millis(10 + rng.below(300))),
        _ => None,
    };
    SharingConfig {
        share,
        choice,
        cap,
        capacity: 1 + rng.below(u64::from(cap) + 4) as u32,
        interval,
        longest_call: Duration::from_millis([50, 300, 6_000][rng.below(3) as usize]),
        lost: [0, 0, 20, 200][rng.below(4) as usize],
        repeated: [0, 100][rng.below(2) as usize],
        delay: Duration::from_millis([2, 20, 200][rng.below(3) as usize]),
        step_timeout: Duration::from_millis([100, 400][rng.below(2) as usize]),
        stops_before_send: true,
        clocks_drift: rng.below(2) == 0,
        weights: alloc::vec![1, 1 + rng.below(4) as u32],
        budgets: random_budgets(rng),
        most_tokens: 1 + rng.below(30) as u32,
    }
}

/// Returns no budget in half of the worlds, and else one or two, some of which are smaller than a call.
fn random_budgets(rng: &mut Rng) -> Vec<BudgetConfig> {
    let budget = |rng: &mut Rng, dimension| {
        let limit = 5 + rng.below(60);
        BudgetConfig::per(Duration::from_secs(1), dimension, limit).with_burst(1 + rng.below(2 * limit))
    };
    match rng.below(6) {
        0 => alloc::vec![budget(rng, Dimension::Requests)],
        1 => alloc::vec![budget(rng, Dimension::TotalTokens)],
        2 => alloc::vec![budget(rng, Dimension::TotalTokens), budget(rng, Dimension::Requests)],
        _ => Vec::new(),
    }
}

/// One random fault, and how it ends.
fn random_fault(world: &mut SharingWorld<Oracle>, rng: &mut Rng, endings: &mut Vec<(Instant, Ending)>) {
    let alive: Vec<usize> = (0..world.started()).filter(|p| world.is_alive(*p)).collect();
    let p = alive[rng.below(alive.len() as u64) as usize];
    let span = Duration::from_millis([300, 1_500, 5_000][rng.below(3) as usize]);
    let end = world.now + span;
    match rng.below(12) {
        0 | 1 => {
            world.set_disconnected(p, true);
            endings.push((end, Ending::Disconnected(p)));
        }
        2 => {
            world.stop_store(true);
            endings.push((end, Ending::Store));
        }
        3 => world.suspend(p, span),
        4 => {
            if let Some(leader) = alive.iter().find(|p| world.is_leader(**p)) {
                world.suspend(*leader, span);
            }
        }
        5 if alive.len() > 1 => world.kill(p),
        6 => {
            if let Some(leader) = alive.iter().find(|p| world.is_leader(**p)).filter(|_| alive.len() > 1) {
                world.kill(*leader);
            }
        }
        7 if alive.len() > 1 => world.leave(p),
        8 if world.started() < 8 => {
            world.start_process(1 + rng.below(12) as u32);
        }
        9 => world.roll_back(Some(Duration::from_millis(rng.below(1_000)))),
        10 if rng.below(4) == 0 => world.roll_back(None),
        _ => world.set_demand(p, rng.below(16) as u32),
    }
}

/// A fault that lasts for a time and then ends.
enum Ending {
    Disconnected(usize),
    Store,
}

fn end_faults(world: &mut SharingWorld<Oracle>, endings: &mut Vec<(Instant, Ending)>, until: Instant) {
    endings.retain(|(at, ending)| {
        if *at > until {
            return true;
        }
        match ending {
            Ending::Disconnected(p) => world.set_disconnected(*p, false),
            Ending::Store => world.stop_store(false),
        }
        false
    });
}

/// What happened in some worlds.
#[derive(Default)]
struct Totals {
    calls: u64,
    cuts: u64,
    paced: u64,
    exempt: BTreeMap<Exemption, u64>,
}

fn run_world(seed: u64) -> Totals {
    let rng = Rng::new(seed);
    let mut faults = rng.fork(1);
    let config = random_config(&mut faults);
    let ttl = config.share.ttl;
    let oracle = Oracle::new(&config);
    let mut world = SharingWorld::new(config, rng.fork(2), oracle).expect("valid");
    for _ in 0..=faults.below(4) {
        world.start_process(1 + faults.below(12) as u32);
    }
    let mut endings = Vec::new();
    let heals_at = world.now + Duration::from_secs(10 + faults.below(15));
    let quiet = faults.below(2_000);
    while world.now < heals_at {
        let next = world.now + Duration::from_millis(1 + faults.below(200 + quiet));
        world.advance_to(next);
        random_fault(&mut world, &mut faults, &mut endings);
        end_faults(&mut world, &mut endings, next);
    }
    heal(&mut world, &mut endings, ttl);
    let oracle = world.observer;
    Totals { calls: oracle.calls, cuts: oracle.cuts, paced: oracle.paced, exempt: oracle.exempt }
}

/// Ends all faults. After two TTLs, and after its turn, every member starts calls again; if a rate is
/// learned, some member does.
fn heal(world: &mut SharingWorld<Oracle>, endings: &mut Vec<(Instant, Ending)>, ttl: Duration) {
    end_faults(world, endings, Instant::MAX);
    world.config.lost = 0;
    world.config.repeated = 0;
    world.config.stops_before_send = false;
    world.config.delay = Duration::from_millis(2);
    let alive: Vec<usize> = (0..world.started()).filter(|p| world.is_alive(*p) && !world.leaves(*p)).collect();
    for p in &alive {
        world.suspend(*p, Duration::ZERO);
        world.set_demand(*p, 4);
    }
    // Calls that were sent before may take their time. After a takeover, those of dead members stay reserved
    // for the lease and the longest call.
    world.config.longest_call = Duration::from_millis(50);
    let takeover = Duration::from_secs(1);
    world.advance_to(world.now + takeover + ttl + world.config.share.call_timeout);
    let began = world.now;
    let paced = world.observer.paced;
    // There may be one slot, and two groups that take turns of a second.
    let turns = Duration::from_secs(2 * alive.len() as u64);
    // A budget refills from zero to a full bucket, and for the largest call of each member, by weight. A
    // member with a slot in each other turn gets its part of the budget only then.
    let heaviest = 2 * u64::from(world.config.weights.iter().copied().max().unwrap_or(1));
    let refill = |budget: &BudgetConfig| {
        let largest = if budget.dimension == Dimension::Requests { 1 } else { 2 * u64::from(world.config.most_tokens) };
        let amount = budget.burst.unwrap_or(budget.limit) + (alive.len() as u64 * heaviest + 1) * largest;
        Duration::from_nanos(amount * budget.window.as_nanos() / budget.limit)
    };
    let refill = world.config.budgets.iter().map(refill).max().unwrap_or(Duration::ZERO);
    // While all of a rate went to members that had lost the others, each other call was refused, and `tide`
    // waits for half of the time since then.
    let closed = match world.config.interval {
        Some(_) => Duration::from_nanos((began - START).as_nanos() / 2),
        None => Duration::ZERO,
    };
    world.advance_to(began + ttl + ttl + turns + refill + closed);
    let goes_on = |p: &usize| world.observer.last_start(world.id(*p)) > began;
    // If a rate is refused again meanwhile, the pauses may take the turns of a member. Long calls in few
    // slots may have been taken for a rate, too, which is then far too slow for the short ones.
    let has_rate = world.config.interval.is_some() || world.observer.paced > paced;
    let is_right = if has_rate { alive.is_empty() || alive.iter().any(goes_on) } else { alive.iter().all(goes_on) };
    let starts: Vec<Instant> = alive.iter().map(|p| world.observer.last_start(world.id(*p))).collect();
    assert!(is_right, "members make progress after healing at {began}: {starts:?}, {}", world.state());
}

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is not an integer")))
}

fn replay(seed: u64) -> String {
    format!(
        "replay with\n    TIDEGATE_SEED={seed} cargo test -p tidegate-core --features std,sim in_every_random_world"
    )
}

/// Runs as many seeds as `TIDEGATE_WORLDS` contains, on two threads. If `TIDEGATE_SEED` is set, runs only
/// this seed, to replay a failure.
#[test]
fn the_shared_limit_holds_in_every_random_world() {
    const THREADS: u64 = 2;
    const WORLDS: u64 = 500;
    let run = |first: u64, end: u64, step: usize| {
        let mut totals = Totals::default();
        for seed in (first..end).step_by(step) {
            let world = std::panic::catch_unwind(|| run_world(seed));
            let world = world.unwrap_or_else(|_| panic!("world {seed} breaks a law; {}", replay(seed)));
            totals.calls += world.calls;
            totals.cuts += world.cuts;
            totals.paced += world.paced;
            for (exemption, count) in world.exempt {
                *totals.exempt.entry(exemption).or_default() += count;
            }
        }
        totals
    };
    if let Some(seed) = number("TIDEGATE_SEED") {
        run(seed, seed + 1, 1);
        return;
    }
    let worlds = number("TIDEGATE_WORLDS").unwrap_or(WORLDS);
    let totals: Vec<Totals> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|first| scope.spawn(move || run(first, worlds, THREADS as usize))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no world breaks a law")).collect()
    });
    let sum = |of: &dyn Fn(&Totals) -> u64| totals.iter().map(of).sum::<u64>();
    let (calls, cuts) = (sum(&|totals| totals.calls), sum(&|totals| totals.cuts));
    let paced = sum(&|totals| totals.paced);
    let exempt = [Exemption::E1, Exemption::E2, Exemption::E3, Exemption::E4]
        .map(|exemption| sum(&|totals| totals.exempt.get(&exemption).copied().unwrap_or(0)));
    std::println!(
        "{worlds} worlds: {calls} calls, {cuts} cuts, {paced} paced decisions, exempt by E1 to E4: {exempt:?}"
    );
    assert!(worlds < WORLDS || paced > 0, "rates are shared");
    assert!(worlds < WORLDS || exempt.iter().all(|count| *count > 0), "each exemption is used: {exempt:?}");
    assert!(worlds < WORLDS || exempt.iter().sum::<u64>() < calls / 4, "exemptions are rare: {exempt:?} of {calls}");
}

/// What can happen next to two members with a limit of two.
#[derive(Clone, Copy, Debug)]
enum Step {
    Nothing,
    DisconnectFirst,
    DisconnectSecond,
    StopStore,
    SuspendFirst,
    KillFirst,
    LoseLastWrites,
}

const STEPS: [Step; 7] = [
    Step::Nothing,
    Step::DisconnectFirst,
    Step::DisconnectSecond,
    Step::StopStore,
    Step::SuspendFirst,
    Step::KillFirst,
    Step::LoseLastWrites,
];

/// Runs the history number `history`: each step lasts for two thirds of a TTL, and its fault ends with it.
fn run_history(history: usize, depth: u32, on_loss: OnLoss) {
    let config = SharingConfig {
        longest_call: Duration::from_millis(120),
        weights: alloc::vec![1, 1],
        budgets: alloc::vec![BudgetConfig::per(Duration::from_secs(1), Dimension::Requests, 10).with_burst(2)],
        ..short_config(on_loss, Duration::from_secs(1))
    };
    let ttl = config.share.ttl;
    let oracle = Oracle::new(&config);
    let mut world = SharingWorld::new(config, Rng::new(history as u64), oracle).expect("valid");
    world.start_process(2);
    world.start_process(2);
    world.advance_to(world.now + Duration::from_millis(200));
    let mut rest = history;
    for _ in 0..depth {
        let step = STEPS[rest % STEPS.len()];
        rest /= STEPS.len();
        match step {
            Step::Nothing => {}
            Step::DisconnectFirst => world.set_disconnected(0, true),
            Step::DisconnectSecond => world.set_disconnected(1, true),
            Step::StopStore => world.stop_store(true),
            Step::SuspendFirst => world.suspend(0, ttl),
            Step::KillFirst => world.kill(0),
            Step::LoseLastWrites => world.roll_back(Some(Duration::from_millis(120))),
        }
        world.advance_to(world.now + Duration::from_millis(200));
        world.set_disconnected(0, false);
        world.set_disconnected(1, false);
        world.stop_store(false);
    }
}

/// Returns how many calls start in the world in which a member with a call in flight, and with a part of a
/// budget, is cut off for longer than a lease. While the bucket is full again, the other one spends all of
/// it, and `returns_ms` later the first one is back.
fn calls_with_a_lost_wallet(seed: u64, returns_ms: u64) -> u64 {
    let share = ShareConfig { ttl: Duration::from_secs(2), on_loss: OnLoss::Stop, ..ShareConfig::default() };
    let budget = BudgetConfig::per(Duration::from_secs(1), Dimension::Requests, 20).with_burst(80);
    let config = SharingConfig {
        share,
        choice: LimitChoice::Fixed { limit: 300 },
        cap: 300,
        capacity: 300,
        longest_call: Duration::from_secs(6),
        budgets: alloc::vec![budget],
        ..SharingConfig::default()
    };
    let oracle = Oracle::new(&config);
    let mut world = SharingWorld::new(config, Rng::new(seed), oracle).expect("valid");
    let (first, second) = (world.start_process(0), world.start_process(1));
    world.advance_to(world.now + Duration::from_secs(2));
    // The leader goes on, whichever it is.
    let (lost, other) = if world.is_leader(first) { (second, first) } else { (first, second) };
    world.set_demand(lost, 1);
    world.advance_to(world.now + Duration::from_secs(1));
    world.set_disconnected(lost, true);
    world.advance_to(world.now + Duration::from_millis(3_200));
    let began = world.observer.calls;
    world.set_demand(other, 200);
    world.advance_to(world.now + Duration::from_millis(returns_ms));
    world.set_disconnected(lost, false);
    world.advance_to(world.now + Duration::from_millis(400));
    world.observer.calls - began
}

#[test]
fn a_budget_is_not_overspent_when_a_lost_member_returns_right_after_a_burst() {
    for seed in 0..20 {
        let most = [100, 200, 300, 400].map(|returns_ms| calls_with_a_lost_wallet(seed, returns_ms)).into_iter().max();
        assert!(most >= Some(70), "seed {seed}: the bucket is spent at once: {most:?}");
    }
}

#[test]
fn the_shared_limit_holds_in_every_short_history_of_two_members() {
    const DEPTH: u32 = 5;
    for on_loss in [OnLoss::Share, OnLoss::Stop] {
        for history in 0..STEPS.len().pow(DEPTH) {
            let run = std::panic::catch_unwind(|| run_history(history, DEPTH, on_loss));
            let steps: Vec<Step> = (0..DEPTH).map(|at| STEPS[history / STEPS.len().pow(at) % STEPS.len()]).collect();
            assert!(run.is_ok(), "history {history} with {on_loss:?} breaks a law: {steps:?}");
        }
    }
}
