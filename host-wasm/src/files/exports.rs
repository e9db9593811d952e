//! Exports a run as a file: its trace, or all its decisions. The run is repeated for this.

use serde::Serialize;
use tidegate_core::observe::trace::Trace;
use tidegate_core::replay::LogLine;
use tidegate_core::sim::scenario::{Scenario, ScenarioError};
use tidegate_core::sim::world::World;
use tidegate_core::time::Instant;
use wasm_bindgen::prelude::*;

use crate::convert::{MAX_SAFE_INTEGER, instant, whole};
use crate::engine;
use crate::json::to_text;

/// The start of a trace, the same on every host.
const TRACE_BEGINS: &str = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
const TRACE_ENDS: &str = "\n]}\n";

/// Writes a run to text, in parts.
#[wasm_bindgen]
pub struct Exporter {
    world: World,
    until: Instant,
    writes: Writes,
    stage: Stage,
}

/// What is written.
enum Writes {
    /// The trace, the latest time written, and whether an event was written.
    Trace { trace: Box<Trace>, latest: Instant, has_written: bool },
    /// The header, until it is written, and how many commands were.
    Decisions { header: Option<Box<LogLine>>, written: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begins,
    GoesOn,
    Over,
}

#[wasm_bindgen]
impl Exporter {
    /// Starts an export at the start of the run.
    ///
    /// `trace` is a file for the Perfetto UI and other viewers of Chrome traces, `decisions` a file for
    /// `tidegate replay` and `replayDecisions()`. Throws for an invalid scenario.
    #[wasm_bindgen(constructor)]
    pub fn new(
        #[wasm_bindgen(unchecked_param_type = "\"trace\" | \"decisions\"")] kind: &str,
        #[wasm_bindgen(unchecked_param_type = "Scenario")] scenario: &JsValue,
        #[wasm_bindgen(param_description = "a whole number from 0 to 2^53 - 1")] seed: f64,
        #[wasm_bindgen(
            js_name = untilMs,
            param_description = "where to stop, in virtual milliseconds; the end of the run, if it is left out"
        )]
        until_ms: Option<f64>,
    ) -> Result<Exporter, JsError> {
        let scenario = engine::scenario(scenario)?;
        let seed = whole("the seed", seed, MAX_SAFE_INTEGER)?;
        let until = until_ms.map_or(Ok(Instant::from_nanos(u64::MAX)), |millis| instant("virtual time", millis))?;
        let begun = match kind {
            "trace" => traced(&scenario, seed),
            "decisions" => recorded(&scenario, seed),
            _ => return Err(JsError::new("what is exported must be `trace` or `decisions`")),
        };
        let (world, writes) = begun?;
        Ok(Self { world, until, writes, stage: Stage::Begins })
    }

    /// Processes up to `maxEvents` events and returns their text, which may be empty; undefined after the
    /// end.
    pub fn next(
        &mut self,
        #[wasm_bindgen(js_name = maxEvents, param_description = "the bound of this slice, a whole number")]
        max_events: f64,
    ) -> Result<Option<String>, JsError> {
        let max_events = whole("the bound on events", max_events, MAX_SAFE_INTEGER)?;
        let mut text = String::new();
        match self.stage {
            Stage::Over => return Ok(None),
            Stage::Begins => {
                self.begin(&mut text)?;
                self.stage = Stage::GoesOn;
            }
            Stage::GoesOn => {}
        }
        for _ in 0..max_events {
            if self.world.next_event_at().is_none_or(|at| at > self.until) {
                self.end(&mut text)?;
                self.stage = Stage::Over;
                break;
            }
            self.world.step();
            self.write(&mut text)?;
        }
        Ok(Some(text))
    }

    /// How much of the run is written, from 0 to 1: by rows, or by time if it ends before the run does.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.stage == Stage::Over {
            return 1.0;
        }
        let sample = self.world.sample();
        let by_rows = (sample.rows_done + sample.rows_dropped) as f64 / sample.rows_total.max(1) as f64;
        let by_time = self.world.now().as_nanos() as f64 / self.until.as_nanos().max(1) as f64;
        by_rows.max(by_time).min(1.0)
    }
}

impl Exporter {
    fn begin(&mut self, text: &mut String) -> Result<(), JsError> {
        match &mut self.writes {
            Writes::Trace { .. } => text.push_str(TRACE_BEGINS),
            Writes::Decisions { header, .. } => {
                if let Some(header) = header.take() {
                    line(text, &*header)?;
                }
            }
        }
        self.write(text)
    }

    /// Writes what happened since the last time.
    fn write(&mut self, text: &mut String) -> Result<(), JsError> {
        match &mut self.writes {
            Writes::Trace { trace, latest, has_written } => {
                let (requests, scheduler) = self.world.take_events();
                for event in &requests {
                    *latest = event.at.max(*latest);
                    trace.on_request(event);
                }
                for event in &scheduler {
                    *latest = event.at.max(*latest);
                    trace.on_scheduler(event);
                }
                events(text, trace, has_written)
            }
            Writes::Decisions { written, .. } => {
                for command in self.world.take_commands() {
                    *written += 1;
                    line(text, &LogLine::command(command))?;
                }
                Ok(())
            }
        }
    }

    fn end(&mut self, text: &mut String) -> Result<(), JsError> {
        match &mut self.writes {
            Writes::Trace { trace, latest, has_written } => {
                trace.finish(*latest);
                events(text, trace, has_written)?;
                text.push_str(TRACE_ENDS);
                Ok(())
            }
            Writes::Decisions { written, .. } => line(text, &LogLine::end(*written, self.world.decision_digests())),
        }
    }
}

fn traced(scenario: &Scenario, seed: u64) -> Result<(World, Writes), ScenarioError> {
    let world = World::with_events(scenario, seed, |_| ())?;
    let resources: Vec<_> = world.resources().collect();
    let trace = Box::new(Trace::new(&scenario.plan()?, &resources));
    Ok((world, Writes::Trace { trace, latest: Instant::ZERO, has_written: false }))
}

fn recorded(scenario: &Scenario, seed: u64) -> Result<(World, Writes), ScenarioError> {
    let (header, world) = World::recorded(scenario, seed)?;
    Ok((world, Writes::Decisions { header: Some(Box::new(LogLine::header(header))), written: 0 }))
}

fn events(text: &mut String, trace: &mut Trace, has_written: &mut bool) -> Result<(), JsError> {
    for event in trace.take() {
        text.push_str(if *has_written { ",\n" } else { "\n" });
        *has_written = true;
        text.push_str(&to_text(&event)?);
    }
    Ok(())
}

fn line<T: Serialize>(text: &mut String, value: &T) -> Result<(), JsError> {
    text.push_str(&to_text(value)?);
    text.push('\n');
    Ok(())
}
