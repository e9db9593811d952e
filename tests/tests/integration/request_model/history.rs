//! Random histories: some provider/models, some groups that they share, and what is asked of them.

use proptest::prelude::*;
use tidegate_core::request::Outcome;

use super::limits::Settings;

pub(crate) const MILLI: u64 = 1_000_000;

/// Which provider/models there are, and which groups.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The cap of each provider/model, and the number of its domains.
    pub(crate) owners: Vec<(u32, usize)>,
    /// The weight of each group.
    pub(crate) weights: Vec<f64>,
}

/// Numbers of resources, groups, leases and waiters are taken modulo how many there are.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// One number past the last resource is a resource that was never made; one past the last group is no
    /// group.
    Acquire {
        resource: usize,
        group: usize,
        timeout_ms: Option<u64>,
    },
    Try {
        resource: usize,
        group: usize,
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
        owner: usize,
        alias: usize,
        cap: u32,
    },
    Weight {
        group: usize,
        weight: f64,
    },
    OwnWeight {
        resource: usize,
        weight: f64,
    },
    /// Time passes and every wake-up is handled when it is due.
    Advance {
        ms: u64,
    },
    /// Time passes and no wake-up is handled.
    Stall {
        ms: u64,
    },
    /// The host's clock runs backwards for one call.
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

pub(crate) fn command() -> impl Strategy<Value = Command> {
    // At most twelve resources, four groups and four provider/models.
    let (resource, group, owner, which) = (0..13_usize, 0..5_usize, 0..4_usize, 0..64_usize);
    let timeout = || prop_oneof![2 => Just(None), 1 => Just(Some(0)), 4 => (1..3_000_u64).prop_map(Some)];
    let retry_after = || prop_oneof![2 => Just(None), 1 => Just(Some(0)), 3 => (1..9_000_u64).prop_map(Some)];
    prop_oneof![
        12 => (resource.clone(), group.clone(), timeout())
            .prop_map(|(resource, group, timeout_ms)| Command::Acquire { resource, group, timeout_ms }),
        4 => (resource.clone(), group.clone()).prop_map(|(resource, group)| Command::Try { resource, group }),
        2 => which.clone().prop_map(|which| Command::Cancel { which }),
        10 => (which.clone(), outcome(), retry_after())
            .prop_map(|(which, outcome, retry_after_ms)| Command::Release { which, outcome, retry_after_ms }),
        2 => (which, 0..5_usize).prop_map(|(which, how)| Command::Forge { which, how }),
        2 => (owner, 0..3_usize, 1..7_u32)
            .prop_map(|(owner, alias, cap)| Command::Register { owner, alias, cap }),
        1 => (group, 0.25..8.0_f64).prop_map(|(group, weight)| Command::Weight { group, weight }),
        1 => (resource, 0.25..8.0_f64).prop_map(|(resource, weight)| Command::OwnWeight { resource, weight }),
        6 => (0..2_500_u64).prop_map(|ms| Command::Advance { ms }),
        3 => (1..2_500_u64).prop_map(|ms| Command::Stall { ms }),
        1 => (1..2_500_u64).prop_map(|ms| Command::Relapse { ms }),
        1 => Just(Command::Wake),
    ]
}

pub(crate) fn layout() -> impl Strategy<Value = Layout> {
    let owners = prop::collection::vec((1..7_u32, 1..4_usize), 2..5);
    let weights = prop::collection::vec(prop_oneof![Just(1.0), Just(0.3), Just(5.0), 0.1..10.0_f64], 1..5);
    (owners, weights).prop_map(|(owners, weights)| Layout { owners, weights })
}

pub(crate) fn settings() -> impl Strategy<Value = Settings> {
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
