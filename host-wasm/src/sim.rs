//! Runs in virtual time for programs: the scheduler itself against mock providers, without waiting.

use tidegate_core::sim::world::WhySubject;
use wasm_bindgen::prelude::*;

use crate::convert::millis;
use crate::engine::{self, Run};
use crate::json::{from_js, to_js};

/// Runs a scenario to its end and returns its report. Equal scenarios and seeds give equal reports on every
/// machine.
///
/// It blocks until the run is over; `Simulation` leaves the event loop free between parts. Throws for an
/// invalid scenario, with the path of the error.
#[wasm_bindgen(unchecked_return_type = "Report")]
pub fn simulate(
    #[wasm_bindgen(unchecked_param_type = "Scenario")] scenario: &JsValue,
    #[wasm_bindgen(param_description = "a whole number from 0 to 2^53 - 1; 1, if it is left out")] seed: Option<f64>,
) -> Result<JsValue, JsError> {
    let mut run = Run::new(engine::scenario(scenario)?, seed.unwrap_or(1.0))?;
    while run.world.step() {}
    to_js(&run.report()?)
}

/// A run of a scenario in parts of any size.
#[wasm_bindgen]
pub struct Simulation(Run);

#[wasm_bindgen]
impl Simulation {
    /// Starts a run. Throws as `simulate()` does.
    #[wasm_bindgen(constructor)]
    pub fn new(
        #[wasm_bindgen(unchecked_param_type = "Scenario")] scenario: &JsValue,
        #[wasm_bindgen(param_description = "a whole number from 0 to 2^53 - 1; 1, if it is left out")] seed: Option<
            f64,
        >,
    ) -> Result<Simulation, JsError> {
        Run::new(engine::scenario(scenario)?, seed.unwrap_or(1.0)).map(Self)
    }

    /// Runs to `virtualMs`, or until `maxEvents` events have happened, or to the end of the run, whichever
    /// comes first. Returns whether it is done: false means that events at or before `virtualMs` are still to
    /// come.
    #[wasm_bindgen(js_name = advanceTo)]
    pub fn advance_to(
        &mut self,
        #[wasm_bindgen(js_name = virtualMs, param_description = "milliseconds since the start of the run")]
        virtual_ms: f64,
        #[wasm_bindgen(js_name = maxEvents, param_description = "the bound, a whole number; none, if it is left out")]
        max_events: Option<f64>,
    ) -> Result<bool, JsError> {
        self.0.advance_to(virtual_ms, max_events.unwrap_or(crate::convert::MAX_SAFE_INTEGER), |_| ())
    }

    /// Processes the next event only. Returns false at the end of the run.
    pub fn step(&mut self) -> bool {
        self.0.world.step()
    }

    /// Applies a change one nanosecond from now. Throws for a value out of range or an unknown target, and
    /// then changes nothing.
    pub fn change(
        &mut self,
        #[wasm_bindgen(unchecked_param_type = "Intervention")] what: &JsValue,
    ) -> Result<(), JsError> {
        self.0.change(what)
    }

    /// The scenario including all changes so far: it gives the same run.
    #[wasm_bindgen(unchecked_return_type = "Scenario")]
    pub fn scenario(&self) -> Result<JsValue, JsError> {
        to_js(&self.0.scenario)
    }

    /// The present virtual time in milliseconds.
    #[must_use]
    pub fn now(&self) -> f64 {
        millis(self.0.world.now())
    }

    /// The virtual time of the next event, in milliseconds, or undefined if there is none.
    #[wasm_bindgen(js_name = nextEventMs)]
    #[must_use]
    pub fn next_event_ms(&self) -> Option<f64> {
        self.0.world.next_event_at().map(millis)
    }

    /// Whether the run has ended.
    #[wasm_bindgen(js_name = isFinished)]
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.world.finished().is_some()
    }

    /// The figures at the present time.
    #[wasm_bindgen(unchecked_return_type = "Sample")]
    pub fn sample(&self) -> Result<JsValue, JsError> {
        to_js(&self.0.world.sample())
    }

    /// Why something waits: one entry for each binding constraint; empty if nothing waits.
    #[wasm_bindgen(unchecked_return_type = "Why[]")]
    pub fn why(&self, #[wasm_bindgen(unchecked_param_type = "About")] about: &JsValue) -> Result<JsValue, JsError> {
        let about: WhySubject = from_js("what is asked about", about)?;
        to_js(&self.0.world.why(&about))
    }

    /// A hash over every decision so far, as 16 hexadecimal digits. Equal runs have equal digests on every
    /// target.
    #[must_use]
    pub fn digest(&self) -> String {
        self.0.digest()
    }

    /// The results of the run, at its end or so far.
    #[wasm_bindgen(unchecked_return_type = "Report")]
    pub fn report(&self) -> Result<JsValue, JsError> {
        to_js(&self.0.report()?)
    }
}
