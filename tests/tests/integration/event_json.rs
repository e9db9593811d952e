//! What the events of a run look like in JSON: stable names, nothing that does not apply, no number too long for a reader.

use anyhow::Result;
use serde_json::{Value, json};
use tidegate_core::pipeline::event::{SchedulerEventKind, SchedulerInterest};
use tidegate_core::pipeline::{Column, Pipeline, PipelineConfig, PlanBuilder, Strategy, TaskOutcome, WorkerId};
use tidegate_core::request::Outcome;
use tidegate_core::task::TaskGroup;
use tidegate_core::time::Instant;

/// Every event of a run of one row, as JSON.
fn told() -> Result<Vec<Value>> {
    let group = TaskGroup::model("provider", "model", 1.0);
    let plan = PlanBuilder::new().column(Column::new("answer", Strategy::Cell).with_group(group)).build()?;
    let mut pipeline = Pipeline::new(plan, PipelineConfig { run: 7, rows: 1, ..PipelineConfig::default() })?;
    pipeline.set_interest(SchedulerInterest::ALL);
    pipeline.start(Instant::ZERO);
    let _ = pipeline.task_finished(Instant::from_nanos(5), WorkerId::from_bits(0), TaskOutcome::Success);
    pipeline.checkpoint_finished(Instant::from_nanos(9), 0, Ok(()));
    std::iter::from_fn(|| pipeline.poll_event()).map(|event| Ok(serde_json::to_value(event)?)).collect()
}

#[test]
fn an_outcome_has_one_name_everywhere() -> Result<()> {
    for outcome in Outcome::ALL {
        assert_eq!(serde_json::to_value(outcome)?, outcome.name());
    }
    Ok(())
}

#[test]
fn an_event_of_a_task_names_all_that_it_belongs_to() -> Result<()> {
    let told = told()?;
    let spawned = told.iter().find(|event| event["kind"] == "worker_spawned");
    let expected = json!({
        "sequence": 6,
        "at": 0,
        "kind": "worker_spawned",
        "correlation": {
            "run": 7,
            "row_group": 0,
            "column": 0,
            "row": 0,
            "strategy": "cell",
            "group_kind": "model",
            "group": "067e0cf8e6fdefa5",
            "task": "0000000000000000",
            "attempt": 1
        },
        "worker": { "slot": 0, "generation": 0 }
    });
    assert_eq!(spawned, Some(&expected));
    Ok(())
}

#[test]
fn an_event_of_the_run_says_nothing_of_tasks() -> Result<()> {
    let last = told()?.pop();
    let expected = json!({
        "sequence": 15,
        "at": 9,
        "kind": "job_completed",
        "correlation": { "run": 7 },
        "stop": "completed",
        "rows_out": 1,
        "rows_dropped": 0,
        "rows_unmade": 0
    });
    assert_eq!(last, Some(expected));
    Ok(())
}

#[test]
fn a_kind_is_spelt_in_an_interest_as_it_is_in_an_event() -> Result<()> {
    let kinds: Vec<Value> = SchedulerEventKind::ALL.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    for event in told()? {
        assert!(kinds.contains(&event["kind"]), "{event}");
    }
    assert_eq!(kinds[19], "pressure_advisory_skipped");
    Ok(())
}
