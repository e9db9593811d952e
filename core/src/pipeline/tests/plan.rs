//! The plans and configurations that are rejected, and the error messages.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::*;
use crate::pipeline::tests::harness::{cell, rows, scratch, whole};
use crate::time::Duration;

fn build(columns: impl IntoIterator<Item = Column>) -> Result<Plan, PlanError> {
    columns.into_iter().fold(PlanBuilder::new(), PlanBuilder::column).build()
}

fn rejection(columns: impl IntoIterator<Item = Column>) -> String {
    build(columns).unwrap_err().to_string()
}

#[test]
fn the_order_puts_upstreams_first_and_keeps_the_order_of_definition_otherwise() {
    let plan = build([cell("c", &["b"]), cell("z", &[]), cell("b", &["a"]), cell("a", &[])]).unwrap();
    let names: Vec<&str> = plan.order().iter().map(|id| plan.columns()[id.index()].name.as_str()).collect();
    assert_eq!(names, ["z", "a", "b", "c"]);
}

#[test]
fn an_upstream_that_is_named_twice_counts_once() {
    let plan = build([cell("a", &[]).with_also_fills("a2"), cell("b", &["a", "a2", "a"])]).unwrap();
    let (a, b) = (plan.column_id("a2").unwrap(), plan.column_id("b").unwrap());
    assert_eq!((plan.upstreams(b), plan.downstreams(a)), (&[a][..], &[b][..]));
}

#[test]
fn a_cycle_is_rejected_with_exactly_its_columns_in_order() {
    let columns =
        [cell("start", &[]), cell("tail", &["a"]), cell("a", &["c", "start"]), cell("b", &["a"]), cell("c", &["b"])];
    let error = build(columns).unwrap_err();
    let PlanError::Cycle { names } = &error else { panic!("{error}") };
    assert_eq!(names, &["b", "c", "a"]);
    assert_eq!(error.to_string(), "columns need each other in a cycle: b -> c -> a -> b");
    assert_eq!(rejection([cell("me", &["me"])]), "columns need each other in a cycle: me -> me");
}

#[test]
fn an_unknown_upstream_is_rejected_with_the_nearest_name() {
    let text = rejection([cell("question", &[]), cell("answer", &["qestion"])]);
    assert_eq!(text, "column `answer` needs `qestion`, which no column fills; did you mean `question`?");
    assert_eq!(rejection([cell("a", &["unheard"])]), "column `a` needs `unheard`, which no column fills");
}

#[test]
fn a_name_is_filled_by_one_column_only() {
    assert_eq!(rejection([cell("a", &[]), cell("a", &[])]), "column `a` is defined twice");
    assert_eq!(rejection([cell("a", &[]).with_also_fills("b"), cell("b", &[])]), "column `b` is defined twice");
    assert_eq!(rejection([cell("a", &[]).with_also_fills("a")]), "column `a` is defined twice");
}

#[test]
fn a_plan_without_columns_or_with_too_many_or_with_an_empty_name_is_rejected() {
    assert_eq!(build([]).unwrap_err(), PlanError::Empty);
    assert_eq!(build([cell("a", &[]), cell("", &[])]).unwrap_err(), PlanError::EmptyName { position: 2 });
    let columns = (0..=MAX_COLUMNS).map(|n| cell(&n.to_string(), &[]));
    assert_eq!(build(columns).unwrap_err(), PlanError::TooManyColumns { count: MAX_COLUMNS + 1 });
}

#[test]
fn a_from_scratch_column_cannot_depend_on_cells() {
    let text = rejection([cell("a", &[]), scratch("seed").with_upstream("a")]);
    assert_eq!(text, "column `seed` makes rows from scratch and cannot need `a`, which is made cell by cell");
    assert!(build([whole("w", &[]), scratch("seed").with_upstream("w")]).is_ok());
}

#[test]
fn a_setting_outside_its_range_is_rejected_by_name() {
    let good = || rows(10, 5);
    let rejected = [
        ("row_group_size", PipelineConfig { row_group_size: 0, ..good() }),
        ("row_group_size", PipelineConfig { row_group_size: 1 << 24, ..good() }),
        ("row_groups", PipelineConfig { row_groups: 0, ..good() }),
        ("rows", PipelineConfig { rows: u64::MAX, ..good() }),
        ("submission_limit", PipelineConfig { submission_limit: 0, ..good() }),
        ("retries", PipelineConfig { retries: 256, ..good() }),
        ("shutdown_window", PipelineConfig { shutdown_window: 0, ..good() }),
        ("shutdown_rate", PipelineConfig { shutdown_rate: Some(0.0), ..good() }),
        ("shutdown_rate", PipelineConfig { shutdown_rate: Some(1.1), ..good() }),
        ("shutdown_rate", PipelineConfig { shutdown_rate: Some(f64::NAN), ..good() }),
        ("retry_floor", PipelineConfig { retry_floor: Duration::ZERO, ..good() }),
        ("retry_ceiling", PipelineConfig { retry_ceiling: Duration::ZERO, ..good() }),
        ("done_row_groups", PipelineConfig { done_row_groups: [2].into(), ..good() }),
    ];
    for (field, config) in rejected {
        let error = Pipeline::new(build([cell("a", &[])]).unwrap(), config).unwrap_err();
        assert!(error.to_string().starts_with(&alloc::format!("`{field}` is ")), "{error}");
    }
}

#[test]
fn a_row_group_with_too_many_tasks_is_rejected_at_construction() {
    let columns: Vec<Column> = (0..5).map(|n| cell(&n.to_string(), &[])).collect();
    let config = rows(1 << 30, MAX_ROW_GROUP_SIZE);
    assert!(Pipeline::new(build(columns.clone()).unwrap(), config).is_err());
    // The same size is allowed for a run that never fills it.
    assert!(Pipeline::new(build(columns).unwrap(), rows(10, MAX_ROW_GROUP_SIZE)).is_ok());
}

#[test]
fn a_demand_that_can_never_be_met_is_rejected_with_its_column() {
    let rejected = |column: Column| {
        let config = PipelineConfig { resources: [("gpu".to_string(), 2)].into(), ..rows(1, 1) };
        Pipeline::new(build([column]).unwrap(), config).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(rejected(cell("a", &[]).with_demand("gpu", 2)), Ok(()));
    for column in [cell("a", &[]).with_demand("gpu", 3), cell("a", &[]).with_demand("cpu", 1)] {
        let error = rejected(column).unwrap_err();
        assert!(error.starts_with("column `a`: "), "{error}");
    }
}
