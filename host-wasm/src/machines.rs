//! Machines that share the limit of one provider, for the lesson about it.

use tidegate_core::sim::rng::Rng;
use tidegate_core::sim::sharing::{START, SharingChange, SharingConfig, SharingWorld};
use wasm_bindgen::prelude::*;

use crate::convert::{MAX_SAFE_INTEGER, duration, whole};
use crate::json::{from_js, to_js};

/// The number of machines, with one process each.
const MACHINES: usize = 3;

/// How many calls the provider serves at once, and the demand of each machine.
const CALLS: u32 = 12;

/// A run of three machines, one store and one provider, in virtual time. The processes are those that share a
/// limit over Redis.
#[wasm_bindgen]
pub struct Machines(SharingWorld);

#[wasm_bindgen]
impl Machines {
    /// Starts a run. Equal seeds, with equal changes at the same times, give equal runs.
    #[wasm_bindgen(constructor)]
    pub fn new(
        #[wasm_bindgen(param_description = "a whole number from 0 to 2^53 - 1")] seed: f64,
    ) -> Result<Machines, JsError> {
        let seed = whole("the seed", seed, MAX_SAFE_INTEGER)?;
        let mut world = SharingWorld::new(SharingConfig::known(CALLS), Rng::new(seed), ())?;
        for _ in 0..MACHINES {
            world.start_process(CALLS);
        }
        Ok(Self(world))
    }

    /// Runs to `virtualMs`. A second takes about a millisecond. A time in the past has no effect.
    #[wasm_bindgen(js_name = advanceTo)]
    pub fn advance_to(
        &mut self,
        #[wasm_bindgen(js_name = virtualMs, param_description = "milliseconds since the start of the run")]
        virtual_ms: f64,
    ) -> Result<(), JsError> {
        self.0.advance_to(START + duration("virtual time", virtual_ms)?);
        Ok(())
    }

    /// Applies a change now. Throws for a machine that does not exist, and then changes nothing.
    pub fn change(
        &mut self,
        #[wasm_bindgen(unchecked_param_type = "SharingChange")] what: &JsValue,
    ) -> Result<(), JsError> {
        let what: SharingChange = from_js("a change", what)?;
        Ok(self.0.change(what)?)
    }

    /// The figures at the present time.
    #[wasm_bindgen(unchecked_return_type = "SharingSample")]
    pub fn sample(&self) -> Result<JsValue, JsError> {
        to_js(&self.0.sample())
    }

    /// What happened since the last time, oldest first.
    #[wasm_bindgen(js_name = takeEvents, unchecked_return_type = "SharingEvent[]")]
    pub fn take_events(&mut self) -> Result<JsValue, JsError> {
        to_js(&self.0.take_events())
    }
}
