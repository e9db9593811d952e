//! How the slot-time of the workers and of each model was used.

use serde::Serialize;
use tidegate_core::observe::{IdleCause, ResourceFigures};
use tidegate_core::sim::world::World;
use tsify::Tsify;

/// How the slot-time of one resource was used, from the start to now: shares that sum to 1, or are all 0 at
/// the start.
#[derive(Serialize, Tsify)]
pub(super) struct IdleSplit {
    /// `submission`, or a model.
    name: String,
    /// In use.
    busy: f64,
    /// Idle while a queued task or call required it.
    starved: f64,
    /// Idle while none did.
    frontier: f64,
    /// The idle part by cause, the largest first.
    why: Vec<IdlePart>,
}

/// A part of the idle time.
#[derive(Serialize, Tsify)]
struct IdlePart {
    /// Its cause.
    cause: IdleCause,
    /// The cause in words.
    words: &'static str,
    /// Its share of all slot-time.
    share: f64,
}

/// The split of `submission`, then of each model.
pub(super) fn splits(world: &World) -> Vec<IdleSplit> {
    let figures = world.figures().unwrap_or_default();
    let models =
        figures.requests.iter().zip(world.resources()).map(|(figures, resource)| split(resource.name, figures));
    figures.tasks.iter().take(1).map(|figures| split(&figures.name, figures)).chain(models).collect()
}

fn split(name: &str, figures: &ResourceFigures) -> IdleSplit {
    let whole = (figures.busy_slot_ns + figures.idle_slot_ns).max(1) as f64;
    let share = |part: u128| part as f64 / whole;
    let why = figures.why_idle.iter().map(|idle| IdlePart {
        cause: idle.cause,
        words: idle.cause.as_str(),
        share: share(idle.slot_ns),
    });
    IdleSplit {
        name: name.to_owned(),
        busy: share(figures.busy_slot_ns),
        starved: share(figures.starved_slot_ns),
        frontier: share(figures.frontier_slot_ns),
        why: why.collect(),
    }
}
