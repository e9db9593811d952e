use super::*;
use crate::gate::Limits;
use parking_lot::Mutex;
use tidegate_core::pipeline::{StopReason, Strategy};
use tidegate_core::request::{Completion, Outcome};
use tidegate_core::time::Duration;

fn rows(rows: u64) -> PipelineConfig {
    PipelineConfig { rows, row_group_size: 8, ..PipelineConfig::default() }
}

async fn fine(_work: Work) -> Result<TaskOutcome, FatalError> {
    Ok(TaskOutcome::Success)
}

#[tokio::test(start_paused = true)]
async fn every_row_goes_through_every_column_and_is_saved() {
    let gate = RequestGate::new().unwrap();
    let key = ResourceKey::chat("p", "m");
    gate.register(&key, &Limits::at_most(3)).unwrap();
    let saved = Arc::new(Mutex::new(0));
    let most = Arc::new(Mutex::new(0));
    let (kept, highest, watched) = (Arc::clone(&saved), Arc::clone(&most), gate.clone());
    let report = PipelineRunner::new(rows(20))
        .through(&gate)
        .column(Column::new("seed", Strategy::Cell), fine)
        .calling(Column::new("text", Strategy::Cell).with_upstream("seed"), &key, move |work, call| {
            let (highest, gate) = (Arc::clone(&highest), watched.clone());
            async move {
                let slot = work.acquire(&call).await.unwrap();
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                let out = gate.snapshot(&call.key).map_or(0, |state| state.in_flight);
                let mut highest = highest.lock();
                *highest = out.max(*highest);
                slot.finish(Outcome::Success);
                Ok(TaskOutcome::Success)
            }
        })
        .save(move |group| {
            *kept.lock() += group.live.len();
            std::future::ready(Ok(()))
        })
        .start()
        .unwrap()
        .await;
    assert_eq!((report.stop, report.rows_out, *saved.lock(), *most.lock()), (StopReason::Completed, 20, 20, 3));
    assert_eq!(gate.snapshot(&key).map(|state| (state.in_flight, state.waiters)), Some((0, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_tried_again_and_no_row_is_lost() {
    let gate = RequestGate::new().unwrap();
    let key = ResourceKey::chat("p", "m");
    gate.register(&key, &Limits::at_most(2)).unwrap();
    let report = PipelineRunner::new(rows(6))
        .through(&gate)
        .calling(Column::new("text", Strategy::Cell), &key, async |work, call| {
            let slot = work.acquire(&call).await.unwrap();
            if work.task.attempt > 1 {
                slot.finish(Outcome::Success);
                return Ok(TaskOutcome::Success);
            }
            let pause = Some(Duration::from_millis(20));
            slot.finish(Completion::rate_limited(pause));
            Ok(TaskOutcome::Retryable { kind: RetryKind::RateLimited, status: None, retry_after: pause })
        })
        .start()
        .unwrap()
        .await;
    assert_eq!((report.rows_out, report.rows_dropped), (6, 0));
}

#[tokio::test(start_paused = true)]
async fn a_run_without_calls_needs_no_gate_and_can_be_cancelled() {
    let run = PipelineRunner::new(rows(4))
        .column(Column::new("never", Strategy::Cell), |_| std::future::pending())
        .start()
        .unwrap();
    run.handle().cancel();
    assert_eq!(run.await.stop, StopReason::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_column_that_calls_what_the_gate_does_not_know_is_refused_before_anything_runs() {
    let key = ResourceKey::chat("p", "m");
    let calling = |runner: PipelineRunner| {
        runner.calling(Column::new("text", Strategy::Cell), &key, async |_, _| Ok(TaskOutcome::Success)).start()
    };
    let error = calling(PipelineRunner::new(rows(1))).unwrap_err().to_string();
    assert_eq!(error, "the column `text` calls p/m/chat, which needs a gate: see `PipelineRunner::through`");
    let gate = RequestGate::new().unwrap();
    let error = calling(PipelineRunner::new(rows(1)).through(&gate)).unwrap_err().to_string();
    assert_eq!(error, "the column `text` calls p/m/chat, which the gate does not know: see `RequestGate::register`");
}

#[test]
fn a_call_that_was_not_let_out_in_time_is_tried_again() {
    let outcome = |reason| Result::from(NotAdmitted(Denial { reason, changes_at: None }));
    let again = TaskOutcome::Retryable { kind: RetryKind::AdmissionTimeout, status: None, retry_after: None };
    assert_eq!(outcome(DenialReason::QueueTimeout), Ok(again));
    assert_eq!(outcome(DenialReason::Shutdown), Ok(TaskOutcome::Cancelled));
    assert_eq!(outcome(DenialReason::Unavailable), Ok(TaskOutcome::Unavailable));
    assert!(outcome(DenialReason::Unregistered).is_err());
}

/// The provider refuses every connection for half a minute, in the middle of the run.
#[tokio::test(start_paused = true)]
async fn calls_that_meet_an_outage_are_made_again_and_no_row_is_lost() {
    let gate = RequestGate::new().unwrap();
    let key = ResourceKey::chat("p", "m");
    gate.register(&key, &Limits::at_most(4)).unwrap();
    let began = tokio::time::Instant::now();
    let failed = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&failed);
    let report = PipelineRunner::new(rows(64))
        .through(&gate)
        .calling(Column::new("text", Strategy::Cell), &key, move |work, call| {
            let failed = Arc::clone(&counted);
            async move {
                let attempt = async || {
                    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
                    if (2..32).contains(&began.elapsed().as_secs()) {
                        *failed.lock() += 1;
                        return Outcome::ConnectionFailed;
                    }
                    Outcome::Success
                };
                match work.call(&call, attempt).await {
                    Ok(outcome) => Ok(Completion::from(outcome).into()),
                    Err(denied) => denied.into(),
                }
            }
        })
        .start()
        .unwrap()
        .await;
    assert_eq!((report.stop, report.rows_out, report.rows_dropped), (StopReason::Completed, 64, 0));
    assert_eq!(report.columns[0].tasks.retryable, 0, "no task heard of it");
    assert!(*failed.lock() < 30, "{} calls failed", failed.lock());
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_refused_ends_a_run_and_drops_no_row() {
    let gate = RequestGate::new().unwrap();
    let key = ResourceKey::chat("p", "m");
    gate.register(&key, &Limits::at_most(4)).unwrap();
    let report = PipelineRunner::new(rows(64))
        .through(&gate)
        .calling(Column::new("text", Strategy::Cell), &key, async |work, call| {
            match work.call(&call, async || Outcome::KeyRejected).await {
                Ok(outcome) => Ok(Completion::from(outcome).into()),
                Err(denied) => denied.into(),
            }
        })
        .start()
        .unwrap()
        .await;
    assert!(matches!(report.stop, StopReason::ProviderUnavailable { .. }), "{:?}", report.stop);
    assert_eq!(report.rows_out, 0);
    assert_eq!(report.columns[0].tasks.failed, 0);
}
