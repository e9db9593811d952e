//! Pipelines for real work, on the JavaScript event loop.
//!
//! A [`PipelineDraft`] collects columns and settings, each by a plain number or text; [`PipelineDraft::start`] checks them
//! and gives a [`PipelineRun`]. All decisions are the core's: the run calls its [`Callbacks`] when a task, a hook or a
//! checkpoint is to begin, and is told how each ended. Values of cells live in JavaScript only. Callbacks run in a turn of
//! their own, outside any lock, and may give the run commands at once.
//!
//! People use it through the TypeScript package beside this crate, which makes objects of the numbers.

mod desk;
mod event;
mod figures;
mod run;
mod settings;

pub use desk::Callbacks;
pub use run::{PipelineRun, outcome_of_call};

use tidegate_core::gate::Gate;
use tidegate_core::pipeline::{Column, Pipeline, PipelineConfig, PlanBuilder, Strategy};
use tidegate_core::request::ResourceId;
use tidegate_core::task::{GroupKind, TaskGroup};
use wasm_bindgen::prelude::*;

use crate::gate::{RequestGate, random_number};
use crate::host::JsHost;

/// A pipeline that is being put together. Names are checked when it starts.
#[wasm_bindgen]
pub struct PipelineDraft {
    config: PipelineConfig,
    columns: Vec<Column>,
    /// What it calls through, and the task resources that stand for one of the gate's.
    gate: Option<Gate<JsHost>>,
    calls: Vec<(String, ResourceId)>,
}

#[wasm_bindgen]
impl PipelineDraft {
    /// No columns yet, and every setting as it is by default.
    #[must_use]
    #[wasm_bindgen(constructor)]
    pub fn new(rows: f64) -> PipelineDraft {
        let config = PipelineConfig { rows: rows as u64, run: random_number(), ..PipelineConfig::default() };
        Self { config, columns: Vec::new(), gate: None, calls: Vec::new() }
    }

    /// Lets tasks call through a gate.
    pub fn through(&mut self, gate: &RequestGate) {
        self.gate = Some(gate.core().clone());
    }

    /// Sets one setting; NaN switches it off. False if it has no such number.
    pub fn set(&mut self, setting: u32, value: f64) -> bool {
        settings::set(&mut self.config, setting, value)
    }

    /// A resource of the task stage.
    pub fn resource(&mut self, name: &str, limit: u32) {
        self.config.resources.push((name.into(), limit));
    }

    /// A row group that an earlier run has saved.
    pub fn done(&mut self, row_group: u32) {
        self.config.done_row_groups.push(row_group);
    }

    /// A row to make of a row group that an earlier run has saved in part. Rows come in order.
    pub fn missing(&mut self, row: f64) {
        let row = row as u64;
        match self.config.missing_rows.last_mut() {
            Some(last) if last.end == row => last.end += 1,
            _ => self.config.missing_rows.push(row..row + 1),
        }
    }

    /// Adds a column; what follows is about the latest one. `strategy`: 0 cell, 1 row group, 2 from scratch. `yields`: below
    /// 0 if it is not said.
    pub fn column(&mut self, name: &str, strategy: u32, ordered: bool, skips: bool, yields: i32) {
        let strategy = match strategy {
            0 => Strategy::Cell,
            1 => Strategy::FullColumn,
            _ => Strategy::FromScratch,
        };
        let yields = (yields >= 0).then_some(yields > 0);
        let column = Column { ordered, skips_with_upstream: skips, yields, ..Column::new(name, strategy) };
        self.columns.push(column);
    }

    /// The latest column needs another.
    pub fn after(&mut self, upstream: &str) {
        self.latest(|column| column.upstreams.push(upstream.into()));
    }

    /// The latest column's tasks fill another one too.
    #[wasm_bindgen(js_name = alsoFills)]
    pub fn also_fills(&mut self, name: &str) {
        self.latest(|column| column.also_fills.push(name.into()));
    }

    /// What a task of the latest column holds while it runs.
    pub fn holds(&mut self, resource: &str, amount: u32) {
        self.latest(|column| column.demand.push((resource.into(), amount)));
    }

    /// The fairness group of the latest column: all columns of this name share it, and its weight. `limit` 0: no bound.
    pub fn group(&mut self, name: &str, weight: f64, limit: u32) {
        let admitted_limit = (limit > 0).then_some(limit);
        self.latest(|column| column.group = TaskGroup { weight, admitted_limit, ..TaskGroup::local(name) });
    }

    /// The tasks of the latest column call a resource of the pipeline's gate, one call at a time. They hold no more worker
    /// slots than twice the calls that the resource bears. Unless the column has a group, they queue as the resource's. False
    /// if the gate does not know it.
    pub fn calls(&mut self, resource: u32, key: &str) -> bool {
        let id = ResourceId::new(0, resource);
        let Some(state) = self.gate.as_ref().and_then(|gate| gate.snapshot(id)) else { return false };
        let most = state.effective_max.saturating_mul(2);
        let name = ["request:", key].concat();
        if self.calls.iter().all(|(known, _)| *known != name) {
            self.config.resources.push((name.clone(), most));
            self.calls.push((name.clone(), id));
        }
        self.latest(|column| {
            if column.group == TaskGroup::local(&column.name) {
                let identity = vec![key.into(), column.name.clone()];
                column.group = TaskGroup { kind: GroupKind::Model, identity, weight: 1.0, admitted_limit: Some(most) };
            }
            column.demand.push((name, 1));
        });
        true
    }

    /// Checks everything and begins, in the next turn of the event loop. Throws for what cannot work.
    pub fn start(self, callbacks: Callbacks) -> Result<PipelineRun, JsError> {
        let plan = self.columns.into_iter().fold(PlanBuilder::new(), PlanBuilder::column).build();
        let plan = plan.map_err(|error| JsError::new(&error.to_string()))?;
        let pipeline = Pipeline::new(plan, self.config).map_err(|error| JsError::new(&error.to_string()))?;
        Ok(PipelineRun::start(pipeline, self.gate.as_ref(), &self.calls, callbacks))
    }
}

impl PipelineDraft {
    fn latest(&mut self, change: impl FnOnce(&mut Column)) {
        if let Some(column) = self.columns.last_mut() {
            change(column);
        }
    }
}
