//! A run of a scenario, processed in slices.

use tidegate_core::sim::report::Report;
use tidegate_core::sim::scenario::{Intervention, Scenario};
use tidegate_core::sim::world::World;
use tidegate_core::time::Instant;
use wasm_bindgen::prelude::*;

use crate::convert::{MAX_SAFE_INTEGER, instant, whole};
use crate::json::from_js;

/// A world, and its scenario and changes.
pub(crate) struct Run {
    pub(crate) world: World,
    pub(crate) scenario: Scenario,
    pub(crate) seed: u64,
    /// How far the run had come, also before it went back: changes up to that time that lie ahead belong to
    /// the old branch.
    reached: Instant,
}

impl Run {
    /// Creates the run at its start.
    pub(crate) fn new(scenario: Scenario, seed: f64) -> Result<Self, JsError> {
        let seed = whole("the seed", seed, MAX_SAFE_INTEGER)?;
        let world = begin(&scenario, seed)?;
        Ok(Self { world, scenario, seed, reached: Instant::ZERO })
    }

    /// Restarts the run, with all changes.
    #[cfg(feature = "playground")]
    pub(crate) fn restart(&mut self) -> Result<(), JsError> {
        self.reached = self.reached.max(self.world.now());
        self.world = begin(&self.scenario, self.seed)?;
        Ok(())
    }

    /// Sets how far the restarted run had come before; without a known value, arbitrarily far.
    #[cfg(feature = "playground")]
    pub(crate) fn had_reached(&mut self, virtual_ms: Option<f64>) -> Result<(), JsError> {
        let reached = virtual_ms.map_or(Ok(Instant::from_nanos(u64::MAX)), |ms| instant("virtual time", ms))?;
        self.reached = self.reached.max(reached);
        Ok(())
    }

    /// Runs to `virtual_ms`, or until `max_events` events have happened, or to the end, whichever comes
    /// first, and calls `look` after each event. Returns whether it is done: false means that events at or
    /// before that time are still to come.
    pub(crate) fn advance_to(
        &mut self,
        virtual_ms: f64,
        max_events: f64,
        mut look: impl FnMut(&mut World),
    ) -> Result<bool, JsError> {
        let target = instant("virtual time", virtual_ms)?;
        let max_events = whole("the bound on events", max_events, MAX_SAFE_INTEGER)?;
        for _ in 0..max_events {
            if self.world.finished().is_some() {
                return Ok(true);
            }
            let due = self.is_due(target);
            if due {
                self.world.step();
            } else {
                self.world.advance_to(target);
            }
            look(&mut self.world);
            if !due {
                return Ok(true);
            }
        }
        Ok(self.world.finished().is_some())
    }

    fn is_due(&self, target: Instant) -> bool {
        self.world.next_event_at().is_some_and(|at| at <= target)
    }

    /// Applies a change one nanosecond from now. In a run that went back, later changes up to where it had
    /// come are dropped.
    pub(crate) fn change(&mut self, what: &JsValue) -> Result<(), JsError> {
        let what: Intervention = from_js("a change", what)?;
        self.world.branch(what, self.reached.max(self.world.now()))?;
        self.reached = self.world.now();
        self.scenario.changes = self.world.changes().to_vec();
        Ok(())
    }

    /// Returns the results of the run, at its end or so far.
    pub(crate) fn report(&self) -> Result<Report, JsError> {
        Ok(Report::of(&self.scenario, self.seed, &self.world)?)
    }

    /// A hash over every decision so far, as 16 hexadecimal digits.
    pub(crate) fn digest(&self) -> String {
        format!("{:016x}", self.world.digest())
    }
}

fn begin(scenario: &Scenario, seed: u64) -> Result<World, JsError> {
    Ok(World::measured(scenario, seed)?)
}
