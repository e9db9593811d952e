//! A scenario in virtual time, and the figures that a page shows of it.
//!
//! [`Playground`] owns a `World` of the core. The caller, usually a worker, decides how virtual time follows
//! real time and calls [`Playground::advance_to`] with a bound on events, as often as it likes. Three streams
//! come out: the *sample*, a plain object with the figures of this instant; the *telemetry*, the charts'
//! history; and the *lanes*, what each worker slot did lately. The last two are typed arrays, and all memory
//! is bounded, however long the run. The same scenario, seed and changes at the same instants give the same
//! digest on every machine.
//!
//! | file | what it is for |
//! | --- | --- |
//! | `mod` | the class |
//! | `layout` | what a run is made of |
//! | `idle` | where the slot-time went |
//! | `shown` | the part of a sample that is shown |
//! | `telemetry` | levels over the whole run |
//! | `lanes` | what workers did lately |

mod idle;
mod lanes;
mod layout;
mod shown;
mod telemetry;

use js_sys::Float64Array;
use serde::{Deserialize, Serialize};
use tidegate_core::sim::world::{self, Sample, Why, World};
use tsify::Tsify;
use wasm_bindgen::prelude::*;

use self::idle::IdleSplit;
use self::lanes::{Lanes, MOST_LANES, spans};
use self::layout::Layout;
use self::shown::{Shown, ShownGroups};
use self::telemetry::{Field, MAX_BUCKETS, ProviderLevel, Telemetry};
use crate::convert::{instant, millis};
use crate::engine::{self, Run};
use crate::json::{from_js, to_js};

/// One run of a scenario.
#[wasm_bindgen]
pub struct Playground {
    run: Run,
    charts: Charts,
    /// A buffer for numbers before they are copied out; kept, so that reading allocates nothing.
    scratch: Vec<f64>,
}

/// The recorded history.
struct Charts {
    telemetry: Telemetry,
    lanes: Lanes,
}

#[wasm_bindgen]
impl Playground {
    /// Starts a run. Equal seeds give equal runs. Throws for an invalid scenario, with the path of the error.
    #[wasm_bindgen(constructor)]
    pub fn new(
        #[wasm_bindgen(unchecked_param_type = "Scenario")] scenario: &JsValue,
        #[wasm_bindgen(param_description = "a whole number from 0 to 2^53 - 1")] seed: f64,
    ) -> Result<Playground, JsError> {
        let mut run = Run::new(engine::scenario(scenario)?, seed)?;
        let charts = Charts::begin(&mut run.world);
        Ok(Self { run, charts, scratch: Vec::with_capacity(MAX_BUCKETS) })
    }

    /// Runs to `virtualMs`, or until `maxEvents` events have happened, or to the end of the run, whichever
    /// comes first. Returns whether it is done: false means that events at or before `virtualMs` are still to
    /// come.
    #[wasm_bindgen(js_name = advanceTo)]
    pub fn advance_to(
        &mut self,
        #[wasm_bindgen(js_name = virtualMs, param_description = "milliseconds since the start of the run")]
        virtual_ms: f64,
        #[wasm_bindgen(js_name = maxEvents, param_description = "the bound of this slice, a whole number")]
        max_events: f64,
    ) -> Result<bool, JsError> {
        let Self { run, charts, .. } = self;
        run.advance_to(virtual_ms, max_events, |world| charts.look(world))
    }

    /// Processes the next event only. Returns false at the end of the run.
    pub fn step(&mut self) -> bool {
        let is_made = self.run.world.step();
        self.charts.look(&mut self.run.world);
        is_made
    }

    /// Goes to a virtual time: call `advanceTo` with it, in slices, until it is done. If it lies in the past,
    /// the run restarts with all changes, and repeats every decision.
    pub fn seek(
        &mut self,
        #[wasm_bindgen(js_name = virtualMs, param_description = "milliseconds since the start of the run")]
        virtual_ms: f64,
    ) -> Result<(), JsError> {
        if instant("virtual time", virtual_ms)? < self.run.world.now() {
            self.run.restart()?;
            self.charts = Charts::begin(&mut self.run.world);
        }
        Ok(())
    }

    /// Sets how far a restarted run had come before: see `change()`.
    #[wasm_bindgen(js_name = takenBack)]
    pub fn taken_back(
        &mut self,
        #[wasm_bindgen(js_name = fromMs, param_description = "milliseconds since the start of the run; undefined: anywhere")]
        from_ms: Option<f64>,
    ) -> Result<(), JsError> {
        self.run.had_reached(from_ms)
    }

    /// Applies a change one nanosecond from now. In a run that went back, later changes up to where it had
    /// come are dropped. Throws for a value out of range or an unknown target, and then changes nothing.
    pub fn change(
        &mut self,
        #[wasm_bindgen(unchecked_param_type = "Intervention")] what: &JsValue,
    ) -> Result<(), JsError> {
        self.run.change(what)
    }

    /// All changes of the run, by the scenario and by `change()`, in order of time, both past and future.
    #[wasm_bindgen(unchecked_return_type = "Change[]")]
    pub fn changes(&self) -> Result<JsValue, JsError> {
        to_js(&self.run.world.changes())
    }

    /// The scenario including all changes so far: it gives the same run.
    #[wasm_bindgen(unchecked_return_type = "Scenario")]
    pub fn scenario(&self) -> Result<JsValue, JsError> {
        to_js(&self.run.scenario)
    }

    /// The seed of the run.
    #[must_use]
    pub fn seed(&self) -> f64 {
        self.run.seed as f64
    }

    /// The virtual time of the next event, in milliseconds, or undefined if there is none.
    #[wasm_bindgen(js_name = nextEventMs)]
    #[must_use]
    pub fn next_event_ms(&self) -> Option<f64> {
        self.run.world.next_event_at().map(millis)
    }

    /// The present virtual time in milliseconds.
    #[must_use]
    pub fn now(&self) -> f64 {
        millis(self.run.world.now())
    }

    /// The structure of the run. It does not change.
    #[wasm_bindgen(unchecked_return_type = "Layout")]
    pub fn layout(&self) -> Result<JsValue, JsError> {
        to_js(&Layout::of(&self.run.scenario)?)
    }

    /// The figures at the present time: of all columns and groups, or of those that `shown` selects.
    #[wasm_bindgen(unchecked_return_type = "PlaygroundSample")]
    pub fn sample(
        &self,
        #[wasm_bindgen(unchecked_optional_param_type = "Shown")] shown: &JsValue,
    ) -> Result<JsValue, JsError> {
        let world = &self.run.world;
        let mut sample = world.sample();
        let shown: Option<Shown> = if shown.is_undefined() { None } else { Some(from_js("what is shown", shown)?) };
        let only = shown.and_then(|shown| shown.cut(&mut sample));
        to_js(&PlaygroundSample { sample, idle: idle::splits(world), only })
    }

    /// Why something waits: one entry for each binding constraint; empty if nothing waits.
    #[wasm_bindgen(unchecked_return_type = "Why[]")]
    pub fn why(
        &self,
        #[wasm_bindgen(unchecked_param_type = "PlaygroundAbout")] about: &JsValue,
    ) -> Result<JsValue, JsError> {
        let about: WhySubject = from_js("what is asked about", about)?;
        to_js(&self.explain(&about))
    }

    /// Events so far.
    #[must_use]
    pub fn steps(&self) -> f64 {
        self.run.world.steps() as f64
    }

    /// The results of the run, as the JSON text that `tidegate simulate --json` prints for the same scenario
    /// and seed.
    pub fn results(&self) -> Result<String, JsError> {
        Ok(serde_json::to_string_pretty(&self.run.report()?)? + "\n")
    }

    /// A hash over every decision so far, as 16 hexadecimal digits. Equal runs have equal digests on every
    /// target.
    #[must_use]
    pub fn digest(&self) -> String {
        self.run.digest()
    }

    /// Whether the run has ended.
    #[wasm_bindgen(js_name = isFinished)]
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.run.world.finished().is_some()
    }

    /// How the run ended; undefined while it has not.
    #[wasm_bindgen(unchecked_return_type = "RunReport | undefined")]
    pub fn report(&self) -> Result<JsValue, JsError> {
        self.run.world.finished().map_or(Ok(JsValue::UNDEFINED), to_js)
    }

    /// Why the run ended, in words; undefined while it has not.
    #[must_use]
    pub fn explanation(&self) -> Option<String> {
        self.run.world.finished().map(|report| report.stop.to_string())
    }

    /// How many numbers an array for `readTelemetry()` must hold.
    #[wasm_bindgen(js_name = telemetryLength)]
    #[must_use]
    pub fn telemetry_length(&self) -> usize {
        MAX_BUCKETS * (1 + self.charts.telemetry.providers() * Field::ALL.len())
    }

    /// Copies the history into `target` and returns how many buckets it has. The layout is a struct of arrays
    /// with a fixed stride of `telemetryStride()`: first the times in virtual milliseconds, then for each
    /// provider in the sample's order one array per name in `telemetryFields()`. Only the first buckets of
    /// each array are meaningful. Throws when `target` is shorter than `telemetryLength()`.
    #[wasm_bindgen(js_name = readTelemetry)]
    pub fn read_telemetry(&mut self, target: &Float64Array) -> Result<usize, JsError> {
        holds("the telemetry of this run", target, self.telemetry_length())?;
        let (telemetry, scratch) = (&self.charts.telemetry, &mut self.scratch);
        let mut start = 0;
        let mut put = |column: &[f64]| {
            target.subarray(start, start + column.len() as u32).copy_from(column);
            start += MAX_BUCKETS as u32;
        };
        telemetry.write_times(scratch);
        put(scratch);
        for provider in 0..telemetry.providers() {
            for field in Field::ALL {
                telemetry.write_column(provider, field, scratch);
                put(scratch);
            }
        }
        Ok(telemetry.buckets())
    }

    /// The distance between two arrays in the telemetry: the most buckets that a run is cut into.
    #[wasm_bindgen(js_name = telemetryStride)]
    #[must_use]
    pub fn telemetry_stride() -> usize {
        MAX_BUCKETS
    }

    /// The names of the arrays per provider, in order.
    #[wasm_bindgen(js_name = telemetryFields, unchecked_return_type = "TelemetryField[]")]
    pub fn telemetry_fields() -> Result<JsValue, JsError> {
        to_js(&Field::ALL)
    }

    /// How many numbers an array for `readLanes()` must hold.
    #[wasm_bindgen(js_name = lanesLength)]
    #[must_use]
    pub fn lanes_length(&self) -> usize {
        lanes::LENGTH
    }

    /// Copies the activity of the first worker slots since `fromMs` into `target`, and returns the number of
    /// spans: five numbers each, the lane, the start and the end in virtual milliseconds, the column, and the
    /// kind: 0 for local work, 1 for waiting for a call, 2 for a call in flight. Open spans end now. The latest
    /// 8192 spans of at most 64 lanes are kept. Throws when `target` is shorter than `lanesLength()`.
    #[wasm_bindgen(js_name = readLanes)]
    pub fn read_lanes(
        &mut self,
        #[wasm_bindgen(js_name = fromMs, param_description = "milliseconds since the start of the run")] from_ms: f64,
        target: &Float64Array,
    ) -> Result<usize, JsError> {
        holds("the worker slots", target, lanes::LENGTH)?;
        let from = instant("virtual time", from_ms.max(0.0))?;
        self.charts.lanes.write(from, self.run.world.now(), &mut self.scratch);
        target.subarray(0, self.scratch.len() as u32).copy_from(&self.scratch);
        Ok(spans(self.scratch.len()))
    }
}

/// The subject of `why()`: an index into an array of `Layout`, or a worker slot that `readLanes()` shows.
#[derive(Deserialize, Tsify)]
#[serde(rename_all = "snake_case")]
#[tsify(rename = "PlaygroundAbout")]
enum WhySubject {
    Column(usize),
    Group(usize),
    Provider(usize),
    Slots(usize),
    Lane(usize),
    RowGroups,
}

/// A sample, and how the capacity was used so far.
#[derive(Serialize, Tsify)]
struct PlaygroundSample {
    #[serde(flatten)]
    sample: Sample,
    /// For `submission`, then each model.
    idle: Vec<IdleSplit>,
    /// Which groups the sample has, unless it has all.
    #[serde(skip_serializing_if = "Option::is_none")]
    only: Option<ShownGroups>,
}

impl Playground {
    fn explain(&self, about: &WhySubject) -> Vec<Why> {
        let about = match *about {
            WhySubject::Column(place) => world::WhySubject::Column(place),
            WhySubject::Group(place) => world::WhySubject::Group(place),
            WhySubject::Provider(place) => world::WhySubject::Provider(place),
            WhySubject::Slots(place) => world::WhySubject::Slots(place),
            WhySubject::RowGroups => world::WhySubject::RowGroups,
            WhySubject::Lane(lane) => match self.charts.lanes.worker(lane) {
                Some(worker) => world::WhySubject::Worker(worker.to_bits()),
                None => return Vec::new(),
            },
        };
        self.run.world.why(&about)
    }
}

impl Charts {
    fn begin(world: &mut World) -> Self {
        world.track(MOST_LANES as u32);
        let telemetry = Telemetry::new(levels(world));
        let mut charts = Self { telemetry, lanes: Lanes::new() };
        charts.look(world);
        charts
    }

    /// Must be called after every event, so that nothing is missed.
    fn look(&mut self, world: &mut World) {
        self.telemetry.advance(world.now());
        for (index, level) in levels(world).enumerate() {
            self.telemetry.set(index, level);
        }
        for moved in world.take_activity_changes() {
            self.lanes.on_move(moved);
        }
    }
}

fn levels(world: &World) -> impl Iterator<Item = ProviderLevel> {
    (0..).map_while(|provider| world.level(provider))
}

fn holds(what: &str, target: &Float64Array, length: usize) -> Result<(), JsError> {
    if (target.length() as usize) < length {
        let message = format!("{what} needs an array of {length} numbers, not {}", target.length());
        return Err(JsError::new(&message));
    }
    Ok(())
}
