//! Compares the limit algorithm of a run with another one: simulates the rows of the run in virtual time,
//! against the same mock providers.
//!
//! The simulation runs the scheduler with the settings of the run. Calls take as long as the mocks take for
//! them; connections and files take no time. So both compared times are simulated, and neither is that of the
//! run.

use std::time::Duration as StdDuration;

use tidegate_core::limit::LimitChoice;
use tidegate_core::pipeline::Strategy;
use tidegate_core::sim::scenario::{Model, Scenario, ScenarioColumn};
use tidegate_core::sim::world::World;

use crate::app::config::pipeline::{ColumnKind, Domain, Endpoint, ModelSpec, PipelineFile};
use crate::app::report::comparison::{Comparison, SimulatedRun};
use crate::app::run::pipeline_config;
use crate::app::run::resolve::{GeneratedColumn, ResolvedPipeline};
use crate::app::run::workload::DATASET_NAME;

/// The random seed of the simulated mocks.
const SEED: u64 = 1;

/// Simulates the run of `resolved` with its own limit algorithm and with AIMD.
///
/// Returns `None` if the simulation would not be equivalent: for a model without a mock, for a column with a
/// condition, and for a column that does not make exactly one call per task.
#[must_use]
pub fn compare(file: &PipelineFile, resolved: &ResolvedPipeline) -> Option<Comparison> {
    let own = scenario(file, resolved)?;
    let mut other = own.clone();
    for model in &mut other.models {
        model.algorithm = LimitChoice::Aimd;
    }
    Some(Comparison { aimd: simulate(&other)?, own: simulate(&own)? })
}

fn simulate(scenario: &Scenario) -> Option<SimulatedRun> {
    let mut world = World::new(scenario, SEED).ok()?;
    while world.step() {}
    let report = world.finished()?;
    let wall = StdDuration::from_nanos((report.ended - report.started).as_nanos());
    let refused = world.sample().providers.iter().map(|provider| provider.refused).sum();
    Some(SimulatedRun { wall_s: wall.as_secs_f64(), refused })
}

/// Returns the run as a scenario.
fn scenario(file: &PipelineFile, resolved: &ResolvedPipeline) -> Option<Scenario> {
    let config = pipeline_config(file, resolved.rows.end - resolved.rows.start);
    let models = file.models.iter().map(model).collect::<Option<Vec<_>>>()?;
    let columns = resolved.columns.iter().zip(&file.columns).map(|(column, spec)| {
        let model = match &spec.kind {
            ColumnKind::Llm(call) if call.structure.is_none() && call.fallbacks.is_empty() && call.tools.is_empty() => {
                Some(&file.models[call.model])
            }
            ColumnKind::Expression(_) | ColumnKind::Sampler(_) | ColumnKind::Reasoning(_) | ColumnKind::Model(_) => {
                None
            }
            _ => return None,
        };
        if column.when.is_some() { None } else { Some(scenario_column(resolved, column, model)) }
    });
    let seed = ScenarioColumn::new(DATASET_NAME, Strategy::FromScratch);
    let columns = [Some(seed)].into_iter().chain(columns).collect::<Option<_>>()?;
    Some(Scenario {
        rows: config.rows,
        row_group_size: config.row_group_size,
        row_groups: config.row_groups,
        submission_limit: config.submission_limit,
        models,
        columns,
        policy: config.policy,
        adaptive: config.adaptive,
        advisory: file.run.pressure_advisory,
        yields: config.yield_while_waiting,
        retries: config.retries,
        ..Scenario::default()
    })
}

fn model(spec: &ModelSpec) -> Option<Model> {
    let Endpoint::Mock(mock) = &spec.endpoint else { return None };
    (spec.domain == Domain::Chat && spec.budgets.is_empty()).then(|| Model {
        name: spec.label(),
        domain_of: None,
        provider: mock.provider.clone(),
        max_parallel: spec.max_parallel.get(),
        request: spec.limit_config.clone(),
        algorithm: spec.limit,
        task_limit: None,
    })
}

fn scenario_column(resolved: &ResolvedPipeline, column: &GeneratedColumn, model: Option<&ModelSpec>) -> ScenarioColumn {
    let mut after: Vec<String> = column.upstreams.iter().map(|at| resolved.columns[*at].name.clone()).collect();
    if after.is_empty() {
        after.push(DATASET_NAME.to_string());
    }
    ScenarioColumn {
        after,
        model: model.map(ModelSpec::label),
        tenant: model.map(|_| column.name.clone()),
        weight: column.weight,
        ..ScenarioColumn::new(&column.name, column.strategy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::example;

    #[test]
    fn the_bundled_example_takes_longer_and_is_rate_limited_more_often_under_aimd() {
        let file = example::pipeline().unwrap();
        let resolved = ResolvedPipeline::resolve(&file, example::dataset().unwrap()).unwrap();
        let comparison = compare(&file, &resolved).expect("all models are mocks");
        let Comparison { aimd, own } = comparison;
        assert!(file.models.iter().all(|model| matches!(model.limit, LimitChoice::Tide(_))));
        assert!(own.wall_s < aimd.wall_s && own.refused < aimd.refused, "{comparison:?}");
        assert_eq!(compare(&file, &resolved), Some(comparison), "equal runs have equal figures");
        let line = comparison.to_string();
        assert!(line.contains("with limit = \"aimd\"") && line.contains("simulated") && !line.contains('\n'), "{line}");
    }

    #[test]
    fn a_run_with_a_provider_that_is_not_a_mock_is_not_simulated() {
        let mut file = example::pipeline().unwrap();
        let resolved = ResolvedPipeline::resolve(&file, example::dataset().unwrap()).unwrap();
        file.models[0].endpoint =
            Endpoint::Command { argv: Vec::new(), directory: std::path::PathBuf::new(), pass_env: Vec::new() };
        assert_eq!(compare(&file, &resolved), None);
    }
}
