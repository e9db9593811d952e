//! A scenario in virtual time, in slices that leave the event loop free.
//!
//! [`Playground`] owns a `World` of the core. The caller, usually a worker, decides how virtual time follows real time
//! and calls [`Playground::advance_to`] with a bound on events, as often as it likes. Two streams come out: the *sample*,
//! a plain object with the figures of this instant, and the *telemetry*, the charts' history as typed arrays. The
//! same scenario, seed and capacity changes at the same instants give the same digest on every machine.

mod telemetry;

use js_sys::Float64Array;
use serde::Serialize;
use tidegate_core::sim::scenario::{self, Scenario};
use tidegate_core::sim::world::World;
use wasm_bindgen::prelude::*;

use crate::convert::{MAX_SAFE_INTEGER, instant, millis, to_js, whole};

use self::telemetry::{Field, Level, MAX_BUCKETS, Telemetry};

/// Types that describe the plain objects which cross the boundary.
#[wasm_bindgen(typescript_custom_section)]
const TYPES: &'static str = include_str!("types.d.ts");

/// What a person picks a scenario by.
#[derive(Serialize)]
struct ScenarioInfo<'a> {
    name: &'a str,
    title: &'a str,
    description: &'a str,
}

/// The scenarios built into this module, in the order in which they should be offered.
#[wasm_bindgen(unchecked_return_type = "ScenarioInfo[]")]
pub fn scenarios() -> Result<JsValue, JsError> {
    let all = scenario::builtin();
    let infos: Vec<_> = all
        .iter()
        .map(|one| ScenarioInfo { name: &one.name, title: &one.title, description: &one.description })
        .collect();
    to_js(&infos)
}

/// One run of a scenario.
#[wasm_bindgen]
pub struct Playground {
    world: World,
    telemetry: Telemetry,
    /// Where a column is put together before it is copied out; kept, so that reading allocates nothing.
    scratch: Vec<f64>,
}

#[wasm_bindgen]
impl Playground {
    /// Starts the built-in scenario `name`. Equal seeds give equal runs. Throws for an unknown name.
    #[wasm_bindgen(constructor)]
    pub fn new(
        #[wasm_bindgen(param_description = "the name of a built-in scenario")] name: &str,
        #[wasm_bindgen(param_description = "a whole number from 0 to 2^53 - 1")] seed: f64,
    ) -> Result<Playground, JsError> {
        let scenario = find(name)?;
        let seed = whole("the seed", seed, MAX_SAFE_INTEGER)?;
        let world = World::new(&scenario, seed).map_err(|error| JsError::new(&error.to_string()))?;
        let telemetry = Telemetry::new(levels(&world));
        Ok(Self { world, telemetry, scratch: Vec::with_capacity(MAX_BUCKETS) })
    }

    /// Runs to `virtualMs`, or until `maxEvents` events have happened, or to the end of the run, whichever comes first.
    /// Returns whether it is done: false means that events at or before `virtualMs` are still to come.
    #[wasm_bindgen(js_name = advanceTo)]
    pub fn advance_to(
        &mut self,
        #[wasm_bindgen(js_name = virtualMs, param_description = "milliseconds since the start of the run")]
        virtual_ms: f64,
        #[wasm_bindgen(js_name = maxEvents, param_description = "the bound of this slice, a whole number")]
        max_events: f64,
    ) -> Result<bool, JsError> {
        let target = instant("virtual time", virtual_ms)?;
        let max_events = whole("the bound on events", max_events, MAX_SAFE_INTEGER)?;
        for _ in 0..max_events {
            if self.world.finished().is_some() {
                return Ok(true);
            }
            let due = self.world.next_event_at().is_some_and(|at| at <= target);
            if due {
                self.world.step();
            } else {
                self.world.advance_to(target);
            }
            self.observe();
            if !due {
                return Ok(true);
            }
        }
        Ok(self.is_finished())
    }

    /// The virtual instant of the next event, in milliseconds, or undefined when nothing is left to happen.
    #[wasm_bindgen(js_name = nextEventMs)]
    #[must_use]
    pub fn next_event_ms(&self) -> Option<f64> {
        self.world.next_event_at().map(millis)
    }

    /// The present virtual time in milliseconds.
    #[must_use]
    pub fn now(&self) -> f64 {
        millis(self.world.now())
    }

    /// The figures of this instant.
    #[wasm_bindgen(unchecked_return_type = "Sample")]
    pub fn sample(&self) -> Result<JsValue, JsError> {
        to_js(&self.world.sample())
    }

    /// A hash over every decision so far, as 16 hexadecimal digits. Equal runs have equal digests on every target.
    #[must_use]
    pub fn digest(&self) -> String {
        format!("{:016x}", self.world.digest())
    }

    /// Whether the run has ended.
    #[wasm_bindgen(js_name = isFinished)]
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.world.finished().is_some()
    }

    /// How the run ended; undefined while it has not.
    #[wasm_bindgen(unchecked_return_type = "RunReport | undefined")]
    pub fn report(&self) -> Result<JsValue, JsError> {
        self.world.finished().map_or(Ok(JsValue::UNDEFINED), to_js)
    }

    /// Why the run ended, in words; undefined while it has not.
    #[must_use]
    pub fn explanation(&self) -> Option<String> {
        self.world.finished().map(|report| report.stop.to_string())
    }

    /// Sets a provider's true capacity from now on; undefined gives it back to the scenario. Throws for an unknown name.
    #[wasm_bindgen(js_name = setCapacity)]
    pub fn set_capacity(&mut self, provider: &str, capacity: Option<f64>) -> Result<(), JsError> {
        let capacity = capacity.map(|calls| whole("a capacity", calls, f64::from(u32::MAX))).transpose()?;
        let sample = self.world.sample();
        let index = sample.providers.iter().position(|known| known.name == provider);
        let index = index.ok_or_else(|| {
            let names: Vec<_> = sample.providers.iter().map(|known| known.name.as_str()).collect();
            JsError::new(&format!("no provider is called `{provider}`; this scenario has {}", names.join(", ")))
        })?;
        self.world.set_capacity(index, capacity.map(|calls| calls as u32));
        self.observe();
        Ok(())
    }

    /// How many numbers an array for `readTelemetry()` must hold.
    #[wasm_bindgen(js_name = telemetryLength)]
    #[must_use]
    pub fn telemetry_length(&self) -> usize {
        MAX_BUCKETS * (1 + self.telemetry.providers() * Field::ALL.len())
    }

    /// Copies the history into `target` and returns how many buckets it has. The layout is a struct of arrays with a
    /// fixed stride of `telemetryStride()`: first the times in virtual milliseconds, then for each provider in the
    /// sample's order one array per name in `telemetryFields()`. Only the first buckets of each array are meaningful.
    /// Throws when `target` is shorter than `telemetryLength()`.
    #[wasm_bindgen(js_name = readTelemetry)]
    pub fn read_telemetry(&mut self, target: &Float64Array) -> Result<usize, JsError> {
        if (target.length() as usize) < self.telemetry_length() {
            return Err(JsError::new(&format!(
                "the telemetry of this run needs an array of {} numbers, not {}",
                self.telemetry_length(),
                target.length()
            )));
        }
        let mut start = 0;
        let mut put = |column: &[f64]| {
            target.subarray(start, start + column.len() as u32).copy_from(column);
            start += MAX_BUCKETS as u32;
        };
        self.telemetry.write_times(&mut self.scratch);
        put(&self.scratch);
        for provider in 0..self.telemetry.providers() {
            for field in Field::ALL {
                self.telemetry.write_column(provider, field, &mut self.scratch);
                put(&self.scratch);
            }
        }
        Ok(self.telemetry.buckets())
    }

    /// The distance between two arrays in the telemetry: the most buckets that a run is cut into.
    #[wasm_bindgen(js_name = telemetryStride)]
    #[must_use]
    pub fn telemetry_stride() -> usize {
        MAX_BUCKETS
    }

    /// The names of the arrays per provider, in order.
    #[wasm_bindgen(js_name = telemetryFields, unchecked_return_type = "TelemetryField[]")]
    #[must_use]
    pub fn telemetry_fields() -> Vec<String> {
        Field::ALL.iter().map(|field| field.name().to_owned()).collect()
    }
}

impl Playground {
    fn observe(&mut self) {
        self.telemetry.advance(self.world.now());
        for (index, level) in levels(&self.world).enumerate() {
            self.telemetry.set(index, level);
        }
    }
}

fn levels(world: &World) -> impl Iterator<Item = Level> {
    world.sample().providers.into_iter().map(|provider| Level {
        limit: provider.limit,
        in_flight: provider.in_flight,
        capacity: provider.capacity,
        refused: provider.refused,
        cooldown_until: provider.cooldown_until,
    })
}

fn find(name: &str) -> Result<Scenario, JsError> {
    let all = scenario::builtin();
    let names: Vec<_> = all.iter().map(|one| one.name.clone()).collect();
    all.into_iter()
        .find(|one| one.name == name)
        .ok_or_else(|| JsError::new(&format!("no scenario is called `{name}`; built in are {}", names.join(", "))))
}
