//! Runs whose host claims each row group, because several runs share the row groups of one dataset.

use alloc::string::ToString as _;
use alloc::vec::Vec;
use core::ops::Range;

use super::*;
use crate::pipeline::event::{SchedulerEventPayload, SchedulerInterest};
use crate::pipeline::tests::harness::*;
use crate::time::Duration;

/// Returns the settings of a run that claims its row groups, of two rows each.
fn claiming(row_count: u64, row_groups: u32) -> PipelineConfig {
    PipelineConfig { claims_row_groups: true, row_groups, ..rows(row_count, 2) }
}

#[test]
fn a_run_claims_one_row_group_at_a_time_until_as_many_as_allowed_are_admitted() {
    let mut rig = Rig::start([cell("a", &[])], claiming(10, 2));
    assert_eq!((rig.claims, rig.running.len()), (1, 0));
    rig.claim(Ok(Some(3)));
    assert_eq!((rig.claims, rig.running_names()), (1, ["a:3.0".into(), "a:3.1".into()].into()));
    rig.claim(Ok(Some(1)));
    assert_eq!((rig.claims, rig.running.len()), (0, 4), "two are admitted");
    rig.succeed("a:3.0");
    rig.succeed("a:3.1");
    assert_eq!(rig.claims, 0, "a row group that is being saved is admitted");
    rig.saved(3);
    assert_eq!(rig.claims, 1);
    rig.claim(Ok(None));
    rig.run_well();
    let report = rig.report();
    assert_eq!((&report.stop, report.rows_out, report.rows_not_started), (&StopReason::Completed, 4, 6));
}

#[test]
fn a_run_that_has_claimed_all_row_groups_ends_without_another_claim() {
    let config = PipelineConfig { done_row_groups: [1].into(), ..claiming(5, 3) };
    let mut rig = Rig::start([cell("a", &[])], config);
    rig.claim(Ok(Some(2)));
    rig.claim(Ok(Some(0)));
    assert_eq!(rig.claims, 0);
    rig.run_well();
    assert_eq!((rig.report().rows_out, rig.report().is_complete()), (3, true));
    let done = PipelineConfig { done_row_groups: [0, 1].into(), ..claiming(4, 3) };
    let rig = Rig::start([cell("a", &[])], done);
    assert_eq!((rig.claims, rig.report().is_complete()), (0, true));
}

#[test]
fn a_row_group_that_is_done_claimed_before_or_unknown_is_not_admitted() {
    let config = PipelineConfig { done_row_groups: [0].into(), ..claiming(8, 3) };
    let mut rig = Rig::start([cell("a", &[])], config);
    rig.claim(Ok(Some(1)));
    for wrong in [0, 1, 4, u32::MAX] {
        rig.claim(Ok(Some(wrong)));
        assert_eq!((rig.claims, rig.running.len()), (1, 2), "row group {wrong}");
    }
    rig.claim(Ok(None));
    rig.run_well();
    assert_eq!(rig.report().rows_out, 2);
}

#[test]
fn a_run_without_work_waits_for_a_claim_as_long_as_it_takes() {
    let mut rig = Rig::start([cell("a", &[])], claiming(4, 1));
    for _ in 0..3 {
        assert_eq!(rig.pipeline.poll_timeout(), None);
        rig.advance(Duration::from_secs(3600));
        assert_eq!((rig.claims, rig.ends), (1, 0));
    }
    assert_eq!(rig.pipeline.why_row_groups(), (RowGroupBlock::Claim, 2, 0));
    assert_eq!(rig.pipeline.why_idle_now(0), Some(SlotWait::RowGroups { reason: RowGroupBlock::Claim }));
    rig.claim(Ok(Some(1)));
    rig.succeed("a:1.0");
    rig.succeed("a:1.1");
    rig.saved(1);
    rig.claim(Ok(None));
    assert_eq!((rig.ends, &rig.report().stop), (1, &StopReason::Completed));
}

#[test]
fn a_run_that_stops_does_not_wait_for_its_claim_and_admits_no_late_one() {
    let stops: [fn(&mut Rig); 3] = [Rig::wind_down, Rig::drain_run, Rig::cancel];
    for stop in stops {
        let mut idle = Rig::start([cell("a", &[])], claiming(4, 2));
        stop(&mut idle);
        assert_eq!((idle.ends, idle.report().rows_not_started), (1, 4));
        idle.claim(Ok(Some(0)));
        assert_eq!((idle.ends, idle.running.len()), (1, 0));

        let mut busy = Rig::start([cell("a", &[])], claiming(4, 2));
        busy.claim(Ok(Some(1)));
        stop(&mut busy);
        busy.claim(Ok(Some(0)));
        assert_eq!(busy.running_names(), ["a:1.0", "a:1.1"]);
        busy.run_well();
        assert_eq!((busy.ends, busy.report().rows_not_started), (1, 2));
    }
}

#[test]
fn a_run_whose_provider_is_unavailable_does_not_wait_for_its_claim() {
    let mut rig = Rig::start([cell("a", &[])], claiming(6, 2));
    rig.claim(Ok(Some(1)));
    assert_eq!(rig.claims, 1);
    rig.end("a:1.0", TaskOutcome::Unavailable);
    rig.end("a:1.1", TaskOutcome::Unavailable);
    rig.run_well();
    let stop = &rig.report().stop;
    assert!(matches!(stop, StopReason::ProviderUnavailable { .. }), "{stop:?}");
}

fn one(rows: Range<u32>) -> Vec<Range<u32>> {
    [rows].into()
}

#[test]
fn of_a_row_group_that_is_claimed_in_part_only_the_missing_rows_are_computed_and_saved() {
    let mut rig = Rig::start([cell("a", &[])], claiming(6, 3));
    rig.claim_part(Ok(Some(ClaimedRowGroup { row_group: 1, missing: one(1..2) })));
    assert_eq!(rig.running_names(), ["a:1.1"]);
    rig.claim(Ok(Some(2)));
    rig.claim(Ok(Some(0)));
    rig.run_well();
    let report = rig.report();
    assert_eq!((report.rows_out, report.rows_resumed, report.rows_not_started), (5, 1, 0));
    assert!(report.is_complete());
}

#[test]
fn a_claim_of_rows_that_a_row_group_does_not_have_stops_the_run() {
    let whole = Column::new("a", Strategy::FullColumn);
    for (column, missing) in [(cell("a", &[]), one(0..3)), (whole, one(0..1))] {
        let mut rig = Rig::start([column], claiming(4, 3));
        rig.claim_part(Ok(Some(ClaimedRowGroup { row_group: 7, missing: missing.clone() })));
        assert_eq!(rig.claims, 1, "a row group that does not exist is left out");
        rig.claim_part(Ok(Some(ClaimedRowGroup { row_group: 1, missing })));
        assert!(matches!(rig.report().stop, StopReason::ClaimFailed { .. }));
    }
    for missing in [one(0..3), one(1..1), [1..2, 0..1].into(), [0..2, 1..2].into()] {
        let mut rig = Rig::start([cell("a", &[])], claiming(4, 3));
        rig.claim_part(Ok(Some(ClaimedRowGroup { row_group: 1, missing: missing.clone() })));
        rig.run_well();
        let stop = &rig.report().stop;
        let names = |why: &str| why.starts_with("row group 1 of 2 rows cannot be computed in the parts");
        assert!(matches!(stop, StopReason::ClaimFailed { why } if names(why)), "{missing:?}: {stop:?}");
    }
}

#[test]
fn a_claim_that_fails_stops_the_run_and_keeps_complete_rows() {
    let mut rig = Rig::start([cell("a", &[])], claiming(6, 2));
    rig.claim(Ok(Some(2)));
    rig.claim(Err("no such directory".into()));
    rig.run_well();
    let why = "no such directory".to_string();
    assert_eq!((&rig.report().stop, rig.report().rows_out), (&StopReason::ClaimFailed { why }, 2));
}

#[test]
fn a_result_without_a_claim_in_progress_has_no_effect() {
    let mut rig = Rig::start([cell("a", &[])], claiming(4, 1));
    rig.claim(Ok(Some(0)));
    rig.pipeline.row_group_claimed(rig.now, Ok(Some(1.into())));
    rig.pipeline.row_group_claimed(rig.now, Err("late".into()));
    rig.drain();
    assert_eq!((rig.claims, rig.running_names()), (0, ["a:0.0".into(), "a:0.1".into()].into()));
    let mut unasked = Rig::start([cell("a", &[])], rows(2, 2));
    unasked.pipeline.row_group_claimed(unasked.now, Ok(None));
    unasked.run_well();
    assert_eq!(unasked.report().rows_out, 2);
}

#[test]
fn the_reason_for_which_no_row_group_is_admitted_is_the_claim() {
    let mut rig = Rig::start_with([cell("a", &[])], claiming(4, 1), SchedulerInterest::ALL);
    let reasons = |rig: &mut Rig| -> Vec<RowGroupBlock> {
        let reason = |payload| match payload {
            SchedulerEventPayload::RowGroupAdmissionBlocked { reason } => Some(reason),
            _ => None,
        };
        rig.events().into_iter().filter_map(|event| reason(event.payload)).collect()
    };
    assert_eq!(reasons(&mut rig), [RowGroupBlock::Claim]);
    rig.claim(Ok(Some(0)));
    assert_eq!(reasons(&mut rig), [RowGroupBlock::AtCap]);
}

#[test]
fn columns_that_are_made_in_order_need_row_groups_in_order() {
    let plan = PlanBuilder::new().column(cell("a", &[]).ordered()).build().unwrap();
    let error = Pipeline::new(plan, claiming(4, 1)).unwrap_err();
    assert!(error.to_string().contains("claims_row_groups"), "{error}");
}
