//! Scenarios drawn from a seed: small ones, so that many can be tried, with every setting there is.

use std::ops::Range;

use tidegate_core::limit::{LimitChoice, RetryAfterStops, TideConfig, VegasConfig};
use tidegate_core::pipeline::{AdaptiveRowGroups, PolicyChoice, Strategy};
use tidegate_core::request::LimitConfig;
use tidegate_core::sim::latency::{Latency, Tail};
use tidegate_core::sim::provider::{
    Capacity, Closure, Faults, Neighbour, Outage, Overload, ProviderSpec, Rate, Rejection, RetryAfter, Step, Surge,
};
use tidegate_core::sim::rng::Rng;
use tidegate_core::sim::scenario::{
    CallbackSpec, Change, Holder, Intervention, Model, PreBatch, Scenario, ScenarioColumn,
};
use tidegate_core::task::{BoundedBorrowConfig, ShareRounding};
use tidegate_core::time::Duration;

/// The streams of a seed: one for each part of a world.
const RUN: u64 = 1;
const MODELS: u64 = 2;
const COLUMNS: u64 = 3;
const AROUND: u64 = 4;
const LIMITS: u64 = 5;
const SHARING: u64 = 6;
const CHANGES: u64 = 7;
const TENANTS: u64 = 8;
const RESUMED: u64 = 9;
const FALLBACKS: u64 = 10;
const OUTAGES: u64 = 11;
const HEALTH: u64 = 12;

/// The scenario of a seed.
#[must_use]
pub fn draw(seed: u64) -> Scenario {
    let root = Rng::new(seed);
    let chance = |stream| Chance(root.fork(stream));
    let models = models(&mut chance(MODELS));
    let columns = columns(&mut chance(COLUMNS), &models);
    let run = run(&mut chance(RUN));
    let named = Scenario {
        name: format!("world-{seed}"),
        title: format!("World {seed}"),
        description: "Drawn from a seed.".to_owned(),
        models,
        columns,
        ..run
    };
    let mut scenario = around(&mut chance(AROUND), named);
    let limits = &mut chance(LIMITS);
    scenario.models.iter_mut().for_each(|model| model.algorithm = algorithm(limits));
    sharing(&mut chance(SHARING), &mut scenario);
    tenants(&mut chance(TENANTS), &mut scenario);
    scenario.changes = changes(&mut chance(CHANGES), &scenario);
    scenario.missing_rows = missing_rows(&mut chance(RESUMED), &scenario);
    fallbacks(&mut chance(FALLBACKS), &mut scenario);
    let chance = &mut chance(OUTAGES);
    scenario.models.iter_mut().for_each(|model| model.provider.outages = outages(chance));
    health(&mut Chance(root.fork(HEALTH)), &mut scenario);
    scenario
}

/// Something that a person may do to a world, drawn from a seed.
#[must_use]
pub fn draw_change(seed: u64, scenario: &Scenario) -> Intervention {
    intervention(&mut Chance(Rng::new(seed).fork(CHANGES)), scenario)
}

/// Draws of one part of a world.
struct Chance(Rng);

impl Chance {
    /// A whole number from `low` to `high`.
    fn from(&mut self, low: u32, high: u32) -> u32 {
        low + self.0.below(u64::from(high - low) + 1) as u32
    }

    /// So many out of a hundred.
    fn percent(&mut self, percent: u64) -> bool {
        self.0.below(100) < percent
    }

    fn some<T>(&mut self, percent: u64, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.percent(percent).then(|| draw(self))
    }

    /// A share up to `most`, for so many out of a hundred; 0 for the others.
    fn share(&mut self, percent: u64, most: f64) -> f64 {
        self.some(percent, |chance| chance.0.unit_f64() * most).unwrap_or(0.0)
    }

    fn millis(&mut self, low: u32, high: u32) -> Duration {
        Duration::from_millis(u64::from(self.from(low, high)))
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.0.below(all.len() as u64) as usize]
    }
}

/// The settings of the run itself.
fn run(chance: &mut Chance) -> Scenario {
    // Most worlds are small; a few are not, for what takes long to come about.
    let most = if chance.percent(15) { 400 } else { 60 };
    let rows = if chance.percent(5) { 0 } else { chance.from(1, most) };
    let row_group_size = chance.from(1, 12);
    let row_groups = chance.from(1, 4);
    let floor = chance.millis(1, 100);
    let groups = rows.div_ceil(row_group_size);
    let has_resumed = chance.percent(20);
    let done_row_groups: Vec<u32> = (0..groups).filter(|_| has_resumed && chance.percent(30)).collect();
    Scenario {
        rows: u64::from(rows),
        row_group_size,
        row_groups,
        submission_limit: chance.from(1, 24),
        policy: policy(chance),
        adaptive: chance.some(50, |chance| AdaptiveRowGroups {
            initial: chance.from(1, row_groups),
            max_admitted_rows: chance.some(50, |chance| u64::from(chance.from(1, 30))),
            shrink_after: chance.from(1, 8),
        }),
        advisory: chance.percent(60),
        yields: chance.percent(70),
        retries: chance.from(0, 3),
        shutdown_window: chance.from(1, 12),
        shutdown_rate: chance.some(40, |chance| 0.3 + chance.0.unit_f64() * 0.7),
        rate_limit_patience: chance.some(30, |chance| chance.millis(50, 2_000)),
        degraded_window: chance.from(1, 12),
        degraded_rate: chance.some(60, |chance| 0.2 + chance.0.unit_f64() * 0.8),
        degraded_pause: chance.millis(0, 2_000),
        retry_floor: floor,
        retry_ceiling: floor + chance.millis(0, 3_000),
        done_row_groups,
        ..Scenario::default()
    }
}

/// Other models for some of the columns that call one.
fn fallbacks(chance: &mut Chance, scenario: &mut Scenario) {
    let names: Vec<String> = scenario.models.iter().map(|model| model.name.clone()).collect();
    for column in scenario.columns.iter_mut().filter(|column| column.model.is_some()) {
        if chance.percent(25) {
            let others = names.iter().filter(|name| column.model.as_ref() != Some(name));
            column.fallbacks = others.filter(|_| chance.percent(70)).cloned().collect();
        }
    }
}

/// What an earlier run has left of row groups that it saved in part, now and then, where rows do not depend
/// on each other.
fn missing_rows(chance: &mut Chance, scenario: &Scenario) -> Vec<Range<u64>> {
    let mut missing: Vec<Range<u64>> = Vec::new();
    let has_whole = scenario.columns.iter().any(|column| column.strategy == Strategy::FullColumn);
    if has_whole || !chance.percent(25) {
        return missing;
    }
    let size = u64::from(scenario.row_group_size);
    let groups = (0_u32..).take_while(|group| u64::from(*group) * size < scenario.rows);
    for group in groups.filter(|group| !scenario.done_row_groups.contains(group)) {
        let first = u64::from(group) * size;
        let keeps_part = chance.percent(40);
        for row in first..scenario.rows.min(first + size) {
            match missing.last_mut() {
                _ if !keeps_part || chance.percent(60) => {}
                Some(last) if last.end == row => last.end += 1,
                _ => missing.push(row..row + 1),
            }
        }
    }
    missing
}

fn policy(chance: &mut Chance) -> PolicyChoice {
    if chance.percent(40) {
        return PolicyChoice::StrictFair;
    }
    PolicyChoice::BoundedBorrow(BoundedBorrowConfig {
        default_ceiling: chance.some(30, |chance| chance.from(0, 4)),
        reserve_fraction: chance.share(30, 1.0),
        max_reserved: chance.from(1, 8),
        share_rounding: *chance.one_of(&[ShareRounding::Up, ShareRounding::Down]),
        repays_on_release: chance.percent(80),
        ..BoundedBorrowConfig::default()
    })
}

fn models(chance: &mut Chance) -> Vec<Model> {
    let count = chance.from(1, 3);
    let model = |number| Model {
        name: format!("m{number}"),
        domain_of: None,
        provider: provider(chance),
        max_parallel: chance.from(1, 6),
        request: limit(chance),
        algorithm: LimitChoice::Aimd,
        task_limit: chance.some(40, |chance| chance.from(1, 8)),
    };
    (0..count).map(model).collect()
}

fn limit(chance: &mut Chance) -> LimitConfig {
    LimitConfig {
        initial_limit: chance.some(30, |chance| chance.from(1, 6)),
        max_limit: chance.some(20, |chance| chance.from(1, 6)),
        successes_until_increase: chance.from(1, 25),
        grow_on_evidence: chance.percent(30),
        cooldown: chance.millis(50, 2_000),
        ramp: chance.some(25, |chance| chance.millis(1, 2_000)).unwrap_or_default(),
        ramp_after_idle: chance.some(10, |chance| chance.millis(10, 500)),
        ..LimitConfig::default()
    }
}

fn algorithm(chance: &mut Chance) -> LimitChoice {
    let initial_limit = chance.from(1, 8);
    match chance.from(0, 5) {
        0 => LimitChoice::Fixed { limit: initial_limit },
        1 => {
            let alpha = 0.5 + chance.share(100, 2.0);
            let beta = alpha + chance.share(100, 4.0);
            LimitChoice::Vegas(VegasConfig { initial_limit, alpha, beta, windows_until_relearned: chance.from(2, 60) })
        }
        2 | 3 => {
            let probe_after = chance.from(1, 32);
            LimitChoice::Tide(TideConfig {
                initial_limit,
                probe_after,
                probe_after_most: probe_after * chance.from(1, 16),
                retry_after: *chance.one_of(&[
                    RetryAfterStops::Learned,
                    RetryAfterStops::Resource,
                    RetryAfterStops::Call,
                ]),
                decrease_factor: 0.3 + chance.share(100, 0.6),
                longest_pause: chance.millis(1, 4_000),
                latency_tolerance: 1.05 + chance.share(100, 2.0),
            })
        }
        _ => LimitChoice::Aimd,
    }
}

/// Each mechanism by itself or with others; none refuses for ever.
fn provider(chance: &mut Chance) -> ProviderSpec {
    let provider = ProviderSpec {
        capacity: capacity(chance),
        overload: match chance.from(0, 2) {
            0 => Overload::SlowDown { slope: chance.share(100, 2.0) },
            _ => Overload::Refuse { retry_after: chance.some(60, |chance| chance.millis(1, 800)) },
        },
        latency: latency(chance),
        requests: chance.some(10, rate),
        tokens: chance.some(10, |chance| {
            let rate = rate(chance);
            Rate { per_minute: rate.per_minute * 50, burst: rate.burst.map(|burst| burst * 50), ..rate }
        }),
        neighbour: chance.some(15, |chance| {
            // Less than half: one slot is always left.
            let high_share = chance.0.unit_f64() * 0.49;
            Neighbour { low_share: high_share * chance.0.unit_f64(), high_share, period: chance.millis(20, 1_000) }
        }),
        surge: chance.some(10, |chance| Surge {
            period: chance.millis(20, 1_000),
            growth: 1.0 + chance.0.unit_f64(),
            least: chance.from(1, 8),
            retry_after: chance.some(50, |chance| chance.millis(1, 800)),
        }),
        outages: Vec::new(),
        closures: Vec::new(),
        faults: chance.some(15, faults),
        states_rates: false,
    };
    // Half of those that have one, without a draw of its own: the worlds of old seeds stay what they were.
    let states = |rate: Option<Rate>| rate.is_some_and(|rate| rate.per_minute.is_multiple_of(2));
    ProviderSpec { states_rates: states(provider.requests) || states(provider.tokens), ..provider }
}

fn faults(chance: &mut Chance) -> Faults {
    Faults {
        error_share: chance.share(50, 0.1),
        hang_share: chance.share(30, 0.02),
        hang: chance.millis(1, 2_000),
        cut_share: chance.share(50, 0.1),
        malformed_share: chance.share(50, 0.1),
        refused_share: chance.share(30, 0.3),
        retry_after: chance.some(50, |chance| chance.millis(1, 800)),
        ..Faults::default()
    }
}

fn capacity(chance: &mut Chance) -> Capacity {
    let slots = chance.from(1, 8);
    match chance.from(0, 4) {
        0 => Capacity::WarmUp { slots, warm_up: chance.millis(1, 2_000) },
        1 => {
            let (first, second) = (chance.millis(1, 500), chance.millis(1, 500));
            let fall = Step { at: first, slots: chance.from(0, 8) };
            Capacity::Steps { slots, steps: vec![fall, Step { at: first + second, slots: chance.from(1, 8) }] }
        }
        2 => Capacity::Drift {
            from: slots,
            to: chance.from(1, 8),
            over: chance.millis(1, 2_000),
            back_and_forth: chance.percent(50),
        },
        _ => Capacity::Constant { slots },
    }
}

fn latency(chance: &mut Chance) -> Latency {
    let span = chance.millis(1, 100);
    match chance.from(0, 2) {
        0 => Latency::Constant { latency: span },
        1 => Latency::Uniform { low: span, high: span + chance.millis(0, 100) },
        _ => Latency::LogNormal {
            median: span,
            sigma: chance.share(100, 1.0),
            tail: chance.some(30, |chance| Tail { probability: 0.1, factor: f64::from(chance.from(2, 10)) }),
        },
    }
}

fn rate(chance: &mut Chance) -> Rate {
    let per_minute = chance.from(200, 2_000);
    let window = chance.some(20, |chance| chance.millis(300, 5_000));
    let burst = if window.is_none() { chance.some(70, |chance| chance.from(1, 20)) } else { None };
    let retry_after = [RetryAfter::Exact, RetryAfter::Seconds, RetryAfter::Never][chance.from(0, 2) as usize];
    Rate { burst, window, retry_after, ..Rate::per_minute(per_minute) }
}

/// For three models of ten one outage or several, one after another, each of any length up to a minute: whatever else the provider does.
fn outages(chance: &mut Chance) -> Vec<Outage> {
    let count = if chance.percent(30) { chance.from(1, 4) } else { 0 };
    let mut outages: Vec<Outage> = Vec::new();
    for _ in 0..count {
        let before =
            outages.last().map_or(Duration::ZERO, |last| last.starts_at + last.errors + last.timeouts + last.recovery);
        outages.push(Outage {
            timeouts: chance.some(50, any_length).unwrap_or_default(),
            hang: chance.millis(1, 8_000),
            recovery: chance.some(50, |chance| chance.millis(1, 500)).unwrap_or_default(),
            ..Outage::of_errors(before + chance.millis(0, 500), any_length(chance))
        });
    }
    outages
}

/// What the run tolerates of its models, who finds out how they are, requests that nobody can answer, and models that refuse every call for a
/// while or for ever.
fn health(chance: &mut Chance, scenario: &mut Scenario) {
    if chance.percent(25) {
        scenario.outage_patience = chance.some(80, any_length);
    }
    scenario.recheck = chance.some(20, |chance| chance.millis(50, 5_000));
    scenario.health_calls = chance.percent(35);
    // Such a request that is left as the last one waits until the patience is over, without health calls, or if it is refused for its rate
    // every other time.
    let ends = scenario.rate_limit_patience.is_some() && (scenario.health_calls || scenario.outage_patience.is_some());
    for column in scenario.columns.iter_mut().filter(|column| ends && column.model.is_some()) {
        column.poison_share = chance.share(20, 0.3);
    }
    scenario.models.iter_mut().for_each(|model| model.provider.closures = closures(chance));
}

fn closures(chance: &mut Chance) -> Vec<Closure> {
    let count = if chance.percent(12) { chance.from(1, 3) } else { 0 };
    let mut closures: Vec<Closure> = Vec::new();
    for _ in 0..count {
        let before = match closures.last() {
            None => Duration::ZERO,
            Some(Closure { lasts: None, .. }) => break,
            Some(Closure { starts_at, lasts: Some(lasts), .. }) => *starts_at + *lasts,
        };
        let all = [Rejection::KeyRejected, Rejection::QuotaExhausted, Rejection::ModelNotFound];
        closures.push(Closure {
            starts_at: before + chance.millis(0, 500),
            lasts: chance.some(70, any_length),
            because: *chance.one_of(&all),
        });
    }
    closures
}

/// From a millisecond to a minute; as many below a quarter of a second as above.
fn any_length(chance: &mut Chance) -> Duration {
    let scale = chance.from(0, 15);
    chance.millis(1 << scale, 2 << scale)
}

fn columns(chance: &mut Chance, models: &[Model]) -> Vec<ScenarioColumn> {
    let count = chance.from(1, 8);
    let mut columns: Vec<ScenarioColumn> = Vec::new();
    for number in 0..count {
        let strategy = *chance.one_of(&[Strategy::FromScratch, Strategy::FullColumn, Strategy::Cell, Strategy::Cell]);
        let mut column = ScenarioColumn::new(&format!("c{number}"), strategy);
        for upstream in &columns {
            let is_allowed = strategy != Strategy::FromScratch || upstream.strategy != Strategy::Cell;
            if is_allowed && chance.percent(45) {
                let names = [std::slice::from_ref(&upstream.name), &upstream.also_fills].concat();
                column.after.push(chance.one_of(&names).clone());
            }
        }
        if chance.percent(15) {
            column.also_fills.push(format!("c{number}_too"));
        }
        endings(chance, &mut column);
        if chance.percent(65) {
            column.model = Some(chance.one_of(models).name.clone());
            column.calls = *chance.one_of(&[0, 1, 1, 1, 2, 4]);
            column.tokens = chance.from(0, 400);
        }
        columns.push(column);
    }
    columns
}

/// How long a column's tasks take, and how they end.
fn endings(chance: &mut Chance, column: &mut ScenarioColumn) {
    column.weight = *chance.one_of(&[0.5, 1.0, 1.0, 3.0]);
    column.local = chance.some(60, |chance| chance.millis(0, 40)).unwrap_or_default();
    column.ordered = chance.percent(20);
    column.skips_with_upstream = chance.percent(40);
    column.skip_share = chance.share(25, 0.5);
    column.fail_share = chance.share(20, 0.4);
    column.lose_share = chance.share(12, 0.4);
    column.fatal_at = chance.some(3, |chance| u64::from(chance.from(0, 60)));
}

/// What happens around the run.
fn around(chance: &mut Chance, scenario: Scenario) -> Scenario {
    let answering = |chance: &mut Chance| CallbackSpec {
        takes: chance.some(60, |chance| chance.millis(0, 60)).unwrap_or_default(),
        fails_at: chance.some(6, |chance| chance.from(0, 4)),
    };
    let pre_batch = chance.some(30, |chance| {
        let CallbackSpec { takes, fails_at } = answering(chance);
        PreBatch { takes, fails_at, leaves_out_share: chance.share(50, 1.0) }
    });
    let holders = (0..chance.from(0, 5).saturating_sub(3)).map(|_| {
        let from = chance.some(50, |chance| chance.millis(0, 200)).unwrap_or_default();
        Holder {
            model: chance.one_of(&scenario.models).name.clone(),
            slots: chance.from(1, 6),
            from,
            until: from + chance.millis(1, 600),
        }
    });
    let holders = holders.collect();
    Scenario {
        pre_batch,
        post_batch: chance.some(30, answering),
        checkpoint: answering(chance),
        wind_down_at: chance.some(16, |chance| chance.millis(0, 600)),
        drain_at: chance.some(12, |chance| chance.millis(0, 600)),
        cancel_at: chance.some(12, |chance| chance.millis(0, 600)),
        holders,
        ..scenario
    }
}

/// What columns hold besides a place of their model, and whom they share it with.
fn sharing(chance: &mut Chance, scenario: &mut Scenario) {
    let resources: Vec<(String, u32)> = ["gpu", "disk"]
        .into_iter()
        .filter_map(|name| chance.some(25, |chance| (name.into(), chance.from(1, 6))))
        .collect();
    for column in &mut scenario.columns {
        for (resource, limit) in &resources {
            if let Some(amount) = chance.some(50, |chance| chance.from(1, *limit)) {
                column.holds.insert(resource.clone(), amount);
            }
        }
        column.group = chance.some(20, |_| "shared".to_owned());
        column.admitted_limit = chance.some(20, |chance| chance.from(1, 6));
    }
    scenario.resources = resources.into_iter().collect();
}

/// Who calls the models: tenants whose calls go to several of them, and models that are domains of one.
fn tenants(chance: &mut Chance, scenario: &mut Scenario) {
    let owner = scenario.models[0].name.clone();
    for model in &mut scenario.models[1..] {
        model.domain_of = chance.some(35, |_| owner.clone());
    }
    let tenants = chance.from(0, 2);
    for column in &mut scenario.columns {
        if tenants > 0 {
            column.tenant = chance.some(80, |chance| format!("t{}", chance.from(1, tenants)));
        }
    }
}

/// What is changed in the midst of the run: much at once in some worlds, nothing in most.
fn changes(chance: &mut Chance, scenario: &Scenario) -> Vec<Change> {
    let count = chance.some(40, |chance| chance.from(1, 8)).unwrap_or_default();
    let mut at = Duration::ZERO;
    let one = |_| {
        at = at + chance.some(70, |chance| chance.millis(0, 200)).unwrap_or_default();
        Change { at, what: intervention(chance, scenario) }
    };
    (0..count).map(one).collect()
}

/// Nothing that lasts for ever: a provider that never answers again keeps the run from its end.
fn intervention(chance: &mut Chance, scenario: &Scenario) -> Intervention {
    let model = chance.one_of(&scenario.models).name.clone();
    match chance.from(0, 7) {
        0 => Intervention::Capacity { model, slots: chance.some(80, |chance| chance.from(1, 8)) },
        1 => Intervention::Refuse { model, span: chance.millis(0, 400) },
        2 => {
            let factor = 0.1 + chance.share(100, 5.0);
            Intervention::Slow { model, factor, span: chance.millis(0, 400) }
        }
        3 => Intervention::Algorithm { model, algorithm: algorithm(chance) },
        4 => Intervention::Request { model, request: limit(chance) },
        5 => Intervention::Policy { policy: policy(chance) },
        6 => {
            let column = chance.one_of(&scenario.columns).name.clone();
            Intervention::Weight { column, weight: *chance.one_of(&[0.25, 1.0, 2.0, 8.0]) }
        }
        _ => Intervention::MaxParallel { model, calls: chance.from(1, 8) },
    }
}
