//! The structure of a run, for the layout of a page.

use serde::Serialize;
use tidegate_core::pipeline::Strategy;
use tidegate_core::sim::scenario::{Scenario, ScenarioError};
use tidegate_core::task::GroupKind;
use tsify::Tsify;

use super::lanes::MOST_LANES;

/// The structure of a run. It does not change.
#[derive(Serialize, Tsify)]
pub(super) struct Layout {
    /// In the plan's order: every column comes after those it needs.
    columns: Vec<LayoutColumn>,
    /// The fairness groups.
    groups: Vec<LayoutGroup>,
    /// By model, in the scenario's order.
    providers: Vec<LayoutProvider>,
    /// The task resources. The first is `submission`, the workers.
    slots: Vec<LayoutSlots>,
    /// How many worker slots `readLanes()` shows, at most 64.
    lanes: usize,
}

/// A column of the pipeline's graph.
#[derive(Serialize, Tsify)]
struct LayoutColumn {
    /// Its name.
    name: String,
    /// What its tasks count as.
    kind: GroupKind,
    /// Its fairness group: an index into `Layout.groups`.
    group: usize,
    /// The model that it calls: an index into `Layout.providers`. Null for local work.
    model: Option<usize>,
    /// The indices of the columns it needs.
    after: Vec<usize>,
    /// How it is filled.
    strategy: Strategy,
}

/// A fairness group.
#[derive(Serialize, Tsify)]
struct LayoutGroup {
    /// Its identity, joined by `/`.
    name: String,
    /// What its tasks count as.
    kind: GroupKind,
    #[serde(skip)]
    identity: Vec<String>,
}

/// A model and its provider.
#[derive(Serialize, Tsify)]
struct LayoutProvider {
    /// The name of the model.
    name: String,
    /// The highest limit at the start.
    cap: u32,
}

/// A task resource.
#[derive(Serialize, Tsify)]
struct LayoutSlots {
    /// Its name.
    name: String,
}

impl Layout {
    pub(super) fn of(scenario: &Scenario) -> Result<Self, ScenarioError> {
        let plan = scenario.plan()?;
        let mut groups: Vec<LayoutGroup> = Vec::new();
        let columns = plan.columns().iter().enumerate().map(|(place, column)| {
            let (kind, identity) = (column.group.kind, &column.group.identity);
            let known = groups.iter().position(|group| group.kind == kind && group.identity == *identity);
            let group = known.unwrap_or_else(|| {
                groups.push(LayoutGroup { name: identity.join("/"), kind, identity: identity.clone() });
                groups.len() - 1
            });
            let named = scenario.columns.get(place).and_then(|spec| spec.model.as_ref());
            let upstreams = plan.column_id(&column.name).map(|id| plan.upstreams(id)).unwrap_or_default();
            LayoutColumn {
                name: column.name.clone(),
                kind,
                group,
                model: named.and_then(|name| scenario.models.iter().position(|model| model.name == *name)),
                after: upstreams.iter().map(|id| id.index()).collect(),
                strategy: column.strategy,
            }
        });
        let columns = columns.collect();
        let providers =
            scenario.models.iter().map(|model| LayoutProvider { name: model.name.clone(), cap: model.cap() });
        let resources = scenario.task_resources().into_iter().map(|(name, _)| LayoutSlots { name });
        Ok(Self {
            columns,
            groups,
            providers: providers.collect(),
            slots: std::iter::once(LayoutSlots { name: "submission".to_owned() }).chain(resources).collect(),
            // Yielding workers free their slots for others, which get further slots.
            lanes: if scenario.yields { MOST_LANES } else { MOST_LANES.min(scenario.submission_limit as usize) },
        })
    }
}
