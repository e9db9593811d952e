use super::*;
use crate::pipeline::tests::harness::*;
use crate::task::TaskGroup;
use crate::time::Duration;

/// Returns a column whose tasks hold one unit of `resource`, in the group of a model of that name.
fn model(name: &str, resource: &str) -> Column {
    let group = TaskGroup::model("provider", resource, 1.0);
    Column::new(name, Strategy::Cell).with_group(group).with_demand(resource, 1)
}

fn adaptive(row_count: u64, size: u32, cap: u32, slots: u32) -> PipelineConfig {
    PipelineConfig {
        row_groups: cap,
        adaptive: Some(AdaptiveRowGroups::default()),
        resources: [("scribe".into(), slots), ("judge".into(), slots)].into(),
        ..rows(row_count, size)
    }
}

#[test]
fn row_groups_of_one_row_are_admitted_until_the_model_is_saturated() {
    let rig =
        Rig::start([model("draft", "scribe"), model("review", "scribe").with_upstream("draft")], adaptive(64, 1, 8, 4));
    // Each finished task is one more tick. Once the four slots of the model are leased, nothing more is
    // admitted.
    let mut rig = rig;
    for _ in 0..12 {
        let first = rig.running_names().remove(0);
        rig.succeed(&first);
        if let Some(row_group) = rig.saving.first().copied() {
            rig.saved(row_group);
        }
    }
    let progress = rig.pipeline.progress();
    assert_eq!((rig.running.len(), progress.row_group_target), (4, progress.row_groups_active));
    assert_eq!(progress.row_group_block, Some(RowGroupBlock::ModelSaturated));
    assert!(progress.row_group_target < 8);
}

#[test]
fn a_run_without_a_model_keeps_the_initial_target_and_reports_the_reason() {
    let mut rig = Rig::start([Column::new("local", Strategy::Cell)], adaptive(8, 1, 4, 1));
    rig.succeed("local:0.0");
    rig.saved(0);
    let progress = rig.pipeline.progress();
    assert_eq!((progress.row_group_target, progress.row_group_block), (1, Some(RowGroupBlock::NoModelResource)));
}

#[test]
fn a_retry_of_one_provider_does_not_block_row_groups_that_start_with_another_one() {
    // A new row group calls the scribe first, so a retry of the judge does not affect it.
    let columns = [model("draft", "scribe"), model("grade", "judge").with_upstream("draft")];
    let mut rig = Rig::start(columns, adaptive(9, 1, 9, 2));
    rig.succeed("draft:0.0");
    let before = rig.pipeline.progress().row_group_target;
    rig.end("grade:0.0", rate_limited(Duration::from_secs(5)));
    assert!(rig.pipeline.progress().row_group_target > before);

    let mut rig =
        Rig::start([model("draft", "scribe"), model("grade", "judge").with_upstream("draft")], adaptive(9, 1, 9, 2));
    rig.end("draft:0.0", rate_limited(Duration::from_secs(5)));
    let progress = rig.pipeline.progress();
    assert_eq!(progress.row_group_block, Some(RowGroupBlock::DeferredTasks));
    rig.advance(Duration::from_secs(5));
    assert_ne!(rig.pipeline.progress().row_group_block, Some(RowGroupBlock::DeferredTasks));
}

#[test]
fn the_limit_on_admitted_rows_holds_for_any_target() {
    let guard = AdaptiveRowGroups { max_admitted_rows: Some(10), ..AdaptiveRowGroups::default() };
    let config = PipelineConfig { adaptive: Some(guard), ..adaptive(64, 4, 8, 64) };
    let mut rig = Rig::start([model("draft", "scribe")], config);
    for _ in 0..6 {
        let first = rig.running_names().remove(0);
        rig.succeed(&first);
        assert!(rig.pipeline.progress().row_groups_active <= 2, "three groups of four rows exceed ten rows");
        if let Some(row_group) = rig.saving.first().copied() {
            rig.saved(row_group);
        }
    }
    assert_eq!(rig.pipeline.progress().row_group_block, Some(RowGroupBlock::MaxAdmittedRows));
}

#[test]
fn control_loop_settings_out_of_range_are_rejected() {
    let rejection = |adaptive| {
        let plan = PlanBuilder::new().column(model("draft", "scribe")).build().expect("a valid plan");
        let config = PipelineConfig { adaptive: Some(adaptive), ..adaptive_defaults() };
        std::string::ToString::to_string(&Pipeline::new(plan, config).expect_err("out of range"))
    };
    let good = AdaptiveRowGroups::default();
    assert!(
        rejection(AdaptiveRowGroups { initial: 9, ..good }).contains("`adaptive.initial` is 9; expected from 1 to")
    );
    assert!(rejection(AdaptiveRowGroups { shrink_after: 0, ..good }).contains("`adaptive.shrink_after` is 0"));
    let rows = AdaptiveRowGroups { max_admitted_rows: Some(0), ..good };
    assert!(rejection(rows).contains("`adaptive.max_admitted_rows` is 0"));
}

fn adaptive_defaults() -> PipelineConfig {
    adaptive(8, 1, 8, 1)
}

#[test]
fn saved_rows_free_the_limit_on_admitted_rows_for_as_many_row_groups() {
    let guard = AdaptiveRowGroups { initial: 2, max_admitted_rows: Some(20), ..AdaptiveRowGroups::default() };
    let config = PipelineConfig { row_groups: 2, adaptive: Some(guard), ..rows(100, 10) };
    let mut rig = Rig::start([cell("a", &[])], config);
    let mut active = alloc::vec::Vec::new();
    while rig.ends == 0 {
        active.push(rig.pipeline.progress().row_groups_active);
        rig.end_all(TaskOutcome::Success);
        for row_group in rig.saving.clone() {
            rig.saved(row_group);
        }
    }
    assert_eq!(active, [2, 2, 2, 2, 2]);
}
