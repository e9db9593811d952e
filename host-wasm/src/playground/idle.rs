//! How the slot-time of the workers and of each model was used.

use serde::Serialize;
use tidegate_core::observe::{IdleCause, ResourceFigures};
use tidegate_core::sim::world::World;

/// See `IdleSplit` in `types.d.ts`.
#[derive(Serialize)]
pub(super) struct IdleSplit {
    name: String,
    busy: f64,
    starved: f64,
    frontier: f64,
    why: Vec<Part>,
}

#[derive(Serialize)]
struct Part {
    cause: IdleCause,
    words: &'static str,
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
    let why = figures.why_idle.iter().map(|idle| Part {
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
