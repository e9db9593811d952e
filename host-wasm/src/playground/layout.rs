//! The structure of a run, for the layout of a page.

use serde::Serialize;
use tidegate_core::pipeline::Strategy;
use tidegate_core::sim::scenario::{Scenario, ScenarioError};
use tidegate_core::task::GroupKind;

use super::lanes::MOST_LANES;

/// See `Layout` in `types.d.ts`.
#[derive(Serialize)]
pub(super) struct Layout {
    columns: Vec<Column>,
    groups: Vec<Group>,
    providers: Vec<Provider>,
    slots: Vec<Slot>,
    lanes: usize,
}

#[derive(Serialize)]
struct Column {
    name: String,
    kind: GroupKind,
    group: usize,
    model: Option<usize>,
    after: Vec<usize>,
    strategy: Strategy,
}

#[derive(Serialize)]
struct Group {
    name: String,
    kind: GroupKind,
    #[serde(skip)]
    identity: Vec<String>,
}

#[derive(Serialize)]
struct Provider {
    name: String,
    cap: u32,
}

#[derive(Serialize)]
struct Slot {
    name: String,
}

impl Layout {
    pub(super) fn of(scenario: &Scenario) -> Result<Self, ScenarioError> {
        let plan = scenario.plan()?;
        let mut groups: Vec<Group> = Vec::new();
        let columns = plan.columns().iter().enumerate().map(|(place, column)| {
            let (kind, identity) = (column.group.kind, &column.group.identity);
            let known = groups.iter().position(|group| group.kind == kind && group.identity == *identity);
            let group = known.unwrap_or_else(|| {
                groups.push(Group { name: identity.join("/"), kind, identity: identity.clone() });
                groups.len() - 1
            });
            let named = scenario.columns.get(place).and_then(|spec| spec.model.as_ref());
            let upstreams = plan.column_id(&column.name).map(|id| plan.upstreams(id)).unwrap_or_default();
            Column {
                name: column.name.clone(),
                kind,
                group,
                model: named.and_then(|name| scenario.models.iter().position(|model| model.name == *name)),
                after: upstreams.iter().map(|id| id.index()).collect(),
                strategy: column.strategy,
            }
        });
        let columns = columns.collect();
        let providers = scenario.models.iter().map(|model| Provider { name: model.name.clone(), cap: model.cap() });
        let resources = scenario.task_resources().into_iter().map(|(name, _)| Slot { name });
        Ok(Self {
            columns,
            groups,
            providers: providers.collect(),
            slots: std::iter::once(Slot { name: "submission".to_owned() }).chain(resources).collect(),
            // Yielding workers free their slots for others, which get further slots.
            lanes: if scenario.yields { MOST_LANES } else { MOST_LANES.min(scenario.submission_limit as usize) },
        })
    }
}
