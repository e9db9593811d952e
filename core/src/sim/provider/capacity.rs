//! Capacity schedules: how many calls a provider can serve at once, over time.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::level::Level;
use crate::error::{ConfigError, inside_item, require};
use crate::millis::Millis;
use crate::sim::latency::{in_millis, require_span};
use crate::time::{Duration, Instant};

/// The highest capacity.
const MAX_SLOTS: u32 = 1_000_000;

/// The highest number of steps in a schedule.
const MAX_STEPS: usize = 10_000;

/// A provider's capacity over time. Times count from [`Instant::ZERO`], except for [`Capacity::WarmUp`].
///
/// In a file: `{ shape = "warm_up", slots = 8, warm_up_ms = 20000 }`.
///
/// Exhaustive on purpose: a program that describes a provider must describe every capacity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(tag = "shape", rename_all = "snake_case", deny_unknown_fields)]
pub enum Capacity {
    /// A fixed capacity.
    Constant {
        /// The capacity, 0 to 1000000.
        slots: u32,
    },
    /// A cold server: one slot until its first request, then `1 + floor((slots - 1) x elapsed / warm_up)`.
    /// `elapsed` counts from that request, whatever its response.
    WarmUp {
        /// The capacity when warm, 1 to 1000000.
        slots: u32,
        /// How long the server takes to warm up, up to 365 days.
        #[serde(rename = "warm_up_ms", with = "Millis")]
        warm_up: Duration,
    },
    /// Sudden changes, down or up.
    Steps {
        /// The capacity before the first step, 0 to 1000000.
        slots: u32,
        /// The changes, at most 10000, in strictly ascending order of time.
        steps: Vec<Step>,
    },
    /// A slow linear change from one capacity to another.
    Drift {
        /// The capacity at the start, 0 to 1000000.
        from: u32,
        /// The capacity at the end, 0 to 1000000.
        to: u32,
        /// How long the change takes, above 0 and up to 365 days.
        #[serde(rename = "over_ms", with = "Millis")]
        over: Duration,
        /// Whether the capacity returns to `from` in the same time and repeats this for ever, instead of
        /// staying at `to`. Default no.
        #[serde(default)]
        back_and_forth: bool,
    },
}

/// A sudden change of capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// When the capacity changes, counted from [`Instant::ZERO`], up to 365 days.
    #[serde(rename = "at_ms", with = "Millis")]
    pub at: Duration,
    /// The capacity from then on, 0 to 1000000.
    pub slots: u32,
}

impl Capacity {
    /// Returns an error for the first value that is out of range, with its path in a file, such as
    /// `steps[2].at_ms`.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::Constant { slots } => require_slots("slots", *slots),
            Self::WarmUp { slots, warm_up } => {
                require(*slots >= 1, "slots", slots, "a whole number from 1 to 1000000")?;
                require_slots("slots", *slots)?;
                require_span("warm_up_ms", *warm_up)
            }
            Self::Steps { slots, steps } => {
                require_slots("slots", *slots)?;
                validate_steps(steps)
            }
            Self::Drift { from, to, over, back_and_forth: _ } => {
                require_slots("from", *from)?;
                require_slots("to", *to)?;
                require(!over.is_zero(), "over_ms", 0, "a duration above 0")?;
                require_span("over_ms", *over)
            }
        }
    }

    /// Returns the capacity at `now`. `first_request` is when the provider's first call arrived. O(log
    /// steps).
    pub(super) fn level(&self, now: Instant, first_request: Option<Instant>) -> Level {
        match self {
            Self::Constant { slots } => Level::forever(*slots),
            Self::WarmUp { slots, warm_up } => match first_request {
                Some(start) => Level::ramp(1, *slots, start, *warm_up, now),
                None => Level::forever(1),
            },
            Self::Steps { slots, steps } => {
                let due = steps.partition_point(|step| Instant::ZERO + step.at <= now);
                let slots = due.checked_sub(1).and_then(|last| steps.get(last)).map_or(*slots, |step| step.slots);
                Level { slots, until: steps.get(due).map(|step| Instant::ZERO + step.at) }
            }
            Self::Drift { from, to, over, back_and_forth: false } => Level::ramp(*from, *to, Instant::ZERO, *over, now),
            Self::Drift { from, to, over, back_and_forth: true } => there_and_back(*from, *to, *over, now),
        }
    }
}

/// Returns an error for a capacity above [`MAX_SLOTS`].
pub(in crate::sim) fn require_slots(field: &str, slots: u32) -> Result<(), ConfigError> {
    require(slots <= MAX_SLOTS, field, slots, "a whole number from 0 to 1000000")
}

fn validate_steps(steps: &[Step]) -> Result<(), ConfigError> {
    require(steps.len() <= MAX_STEPS, "steps", steps.len(), "at most 10000 steps")?;
    let mut previous = None;
    for (nth, step) in steps.iter().enumerate() {
        let in_step = inside_item("steps", nth);
        require_slots("slots", step.slots).map_err(in_step)?;
        require_span("at_ms", step.at).map_err(in_step)?;
        let ascends = previous.is_none_or(|previous| previous < step.at);
        require(ascends, "at_ms", in_millis(step.at), "a time after that of the step before").map_err(in_step)?;
        previous = Some(step.at);
    }
    Ok(())
}

/// Returns the level of a drift that turns at each end. Leg `n` starts at `n x over`. Odd legs go from `to`
/// to `from`.
fn there_and_back(from: u32, to: u32, over: Duration, now: Instant) -> Level {
    let over_ns = over.as_nanos().max(1);
    let leg = now.as_nanos() / over_ns;
    let start = Instant::from_nanos(leg * over_ns);
    let (from, to) = if leg.is_multiple_of(2) { (from, to) } else { (to, from) };
    // `Level::ramp` gives no next change if `from` equals `to`, and one at the end of the leg at the latest
    // otherwise.
    Level::ramp(from, to, start, over, now)
}
