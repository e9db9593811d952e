//! What another limit would have cost: the rows of a run once more, in virtual time, against the same mock providers.
//!
//! It is the scheduler itself that runs, under the settings of the run. Calls take what the mocks would take for them; connections and
//! files take no time. So a simulated time is compared with a simulated time, never with that of the run.

use std::time::Duration as StdDuration;

use tidegate_core::limit::LimitChoice;
use tidegate_core::pipeline::Strategy;
use tidegate_core::sim::scenario::{Model, Scenario, ScenarioColumn};
use tidegate_core::sim::world::World;

use crate::app::config::pipeline::{ColumnKind, Domain, Endpoint, ModelSpec, PipelineFile};
use crate::app::report::comparison::{Comparison, Simulated};
use crate::app::run::pipeline_config;
use crate::app::run::resolve::{GeneratedColumn, Job};
use crate::app::run::workload::DATASET_NAME;

/// The seed of the simulated mocks.
const SEED: u64 = 1;

/// Simulates the run of `job`. `None` where that would not be the same run: a model that is no mock, a condition, or a column that does
/// not call once for each task.
#[must_use]
pub fn compare(file: &PipelineFile, job: &Job) -> Option<Comparison> {
    let own = scenario(file, job)?;
    let mut other = own.clone();
    for model in &mut other.models {
        model.algorithm = LimitChoice::Aimd;
    }
    Some(Comparison { aimd: simulate(&other)?, own: simulate(&own)? })
}

fn simulate(scenario: &Scenario) -> Option<Simulated> {
    let mut world = World::new(scenario, SEED).ok()?;
    while world.step() {}
    let report = world.finished()?;
    let wall = StdDuration::from_nanos((report.ended - report.started).as_nanos());
    let refused = world.sample().providers.iter().map(|provider| provider.refused).sum();
    Some(Simulated { wall_s: wall.as_secs_f64(), refused })
}

/// The run as a scenario.
fn scenario(file: &PipelineFile, job: &Job) -> Option<Scenario> {
    let config = pipeline_config(file, job.rows.end - job.rows.start);
    let models = file.models.iter().map(model).collect::<Option<Vec<_>>>()?;
    let columns = job.columns.iter().zip(&file.columns).map(|(column, spec)| {
        let model = match &spec.kind {
            ColumnKind::Llm(call) if call.structure.is_none() => Some(&file.models[call.model]),
            ColumnKind::Expression(_) | ColumnKind::Sampler(_) => None,
            _ => return None,
        };
        if column.when.is_some() { None } else { Some(scenario_column(job, column, model)) }
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
        request: spec.aimd.clone(),
        algorithm: spec.limit,
        task_limit: None,
    })
}

fn scenario_column(job: &Job, column: &GeneratedColumn, model: Option<&ModelSpec>) -> ScenarioColumn {
    let mut after: Vec<String> = column.upstreams.iter().map(|at| job.columns[*at].name.clone()).collect();
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
    fn the_bundled_example_takes_longer_and_is_refused_more_often_under_aimd() {
        let file = example::pipeline().unwrap();
        let job = Job::resolve(&file, example::dataset().unwrap()).unwrap();
        let comparison = compare(&file, &job).expect("it has mocks alone");
        let Comparison { aimd, own } = comparison;
        assert!(file.models.iter().all(|model| matches!(model.limit, LimitChoice::Tide(_))));
        assert!(own.wall_s < aimd.wall_s && own.refused < aimd.refused, "{comparison:?}");
        assert_eq!(compare(&file, &job), Some(comparison), "equal runs have equal figures");
        let line = comparison.to_string();
        assert!(line.contains("with limit = \"aimd\"") && line.contains("simulated") && !line.contains('\n'), "{line}");
    }

    #[test]
    fn rows_of_a_provider_that_is_no_mock_are_not_simulated() {
        let mut file = example::pipeline().unwrap();
        let job = Job::resolve(&file, example::dataset().unwrap()).unwrap();
        file.models[0].endpoint = Endpoint::Command { argv: Vec::new(), directory: std::path::PathBuf::new() };
        assert_eq!(compare(&file, &job), None);
    }
}
