//! Whole worlds drawn from a seed, each run under its laws to its end.
//!
//! A world is a plan, its settings, its providers and their failures, hooks, checkpoints, other callers and a
//! cancellation: everything that a [`Scenario`] can say. [`run`] runs one twice, with the checkers of
//! [`tidegate_core::sim::check`] beside it and without, and says what is wrong with it, if anything is.

mod draw;

use std::collections::BTreeMap;
use std::fmt;

use tidegate_core::pipeline::StopReason;
use tidegate_core::pipeline::event::SchedulerEventKind;
use tidegate_core::sim::check::Violation;
use tidegate_core::sim::scenario::{Scenario, ScenarioError};
use tidegate_core::sim::world::World;

pub use draw::{draw, draw_change};

/// More steps than any drawn world takes, by a factor of about twenty.
pub const STEP_BOUND: u64 = 200_000;

/// How a world ended that keeps the laws.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The name of its [`StopReason`].
    pub stop: &'static str,
    /// Steps it took.
    pub steps: u64,
    /// The hash over its decisions.
    pub digest: u64,
    /// What it came across: events of the scheduler by kind.
    pub seen: BTreeMap<SchedulerEventKind, u64>,
}

/// What is wrong with a world.
#[derive(Debug)]
pub enum Wrong {
    /// The drawing made a scenario that cannot run.
    Refused(ScenarioError),
    /// A law is broken.
    Violation(Violation),
    /// It did not end within the bound, or nothing happens any more.
    DoesNotEnd {
        /// Steps it took.
        steps: u64,
    },
    /// The scheduler itself says that it is stuck.
    Stuck(String),
    /// Leases or waiters are left: of tasks, of calls, waiters for calls.
    Left([usize; 3]),
    /// Watching it changed it.
    Disturbed {
        /// The digest with the checkers.
        watched: u64,
        /// The digest without.
        alone: u64,
    },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "the scenario is refused: {error}"),
            Self::Violation(violation) => violation.fmt(f),
            Self::DoesNotEnd { steps } => write!(f, "the run does not end: {steps} steps"),
            Self::Stuck(why) => write!(f, "the run is stuck: {why}"),
            Self::Left(left) => write!(f, "task leases, request leases and waiters are left: {left:?}"),
            Self::Disturbed { watched, alone } => {
                write!(f, "watching changes the run: digest {watched:016x} instead of {alone:016x}")
            }
        }
    }
}

/// Runs the world of a seed. After a failure, `witness` is called with the world as it was left.
pub fn run(seed: u64, witness: impl FnOnce(&World)) -> Result<Ended, Wrong> {
    let scenario = draw(seed);
    let mut watched = World::watched(&scenario, seed).map_err(Wrong::Refused)?;
    let ended = finish(&mut watched);
    let checked = ended.and_then(|ended| {
        let mut alone = World::new(&scenario, seed).map_err(Wrong::Refused)?;
        let same = finish(&mut alone)?;
        let (watched, alone) = (ended.digest, same.digest);
        if watched == alone { Ok(ended) } else { Err(Wrong::Disturbed { watched, alone }) }
    });
    if checked.is_err() {
        witness(&watched);
    }
    checked
}

/// Runs a world to its end.
fn finish(world: &mut World) -> Result<Ended, Wrong> {
    let mut steps = 0;
    while steps < STEP_BOUND && world.violation().is_none() && world.step() {
        steps += 1;
    }
    if let Some(violation) = world.violation() {
        return Err(Wrong::Violation(violation.clone()));
    }
    let Some(report) = world.finished() else { return Err(Wrong::DoesNotEnd { steps }) };
    if let StopReason::Stuck { why } = &report.stop {
        return Err(Wrong::Stuck(why.clone()));
    }
    match world.outstanding() {
        [0, 0, 0] => {
            let seen = world.event_counts().collect();
            Ok(Ended { stop: name(&report.stop), steps, digest: world.digest(), seen })
        }
        left => Err(Wrong::Left(left)),
    }
}

fn name(stop: &StopReason) -> &'static str {
    match stop {
        StopReason::Completed => "completed",
        StopReason::Cancelled => "cancelled",
        StopReason::EarlyShutdown { .. } => "early shutdown",
        StopReason::ProviderUnavailable { .. } => "provider unavailable",
        StopReason::CheckpointFailed { .. } => "checkpoint failed",
        StopReason::HookFailed { .. } => "hook failed",
        StopReason::Fatal { .. } => "fatal",
        _ => "other",
    }
}

/// The one command that shows what happens in the world of a seed.
#[must_use]
pub fn replay(seed: u64) -> String {
    format!("cargo run --release -p tidegate-tests --bin worlds -- --seed {seed}")
}

/// A scenario as a person reads it.
#[must_use]
pub fn pretty(scenario: &Scenario) -> String {
    serde_json::to_string_pretty(scenario).unwrap_or_else(|error| format!("{scenario:#?}\n({error})"))
}
