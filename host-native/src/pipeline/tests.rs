use super::*;
use crate::gate::Limits;
use parking_lot::Mutex;
use tidegate_core::pipeline::{StopReason, Strategy};
use tidegate_core::request::{Completion, Outcome};
use tidegate_core::time::Duration;

fn rows(rows: u64) -> PipelineConfig {
    PipelineConfig { rows, row_group_size: 8, ..PipelineConfig::default() }
}

async fn succeed(_context: TaskContext) -> Result<TaskOutcome, FatalError> {
    Ok(TaskOutcome::Success)
}

#[tokio::test(start_paused = true)]
async fn every_row_passes_every_column_and_is_saved() {
    let gate = RequestGate::new().unwrap();
    let key = ResourceKey::chat("p", "m");
    gate.register(&key, &Limits::at_most(3)).unwrap();
    let saved = Arc::new(Mutex::new(0));
    let max_in_flight = Arc::new(Mutex::new(0));
    let (saved_rows, max_seen, observed) = (Arc::clone(&saved), Arc::clone(&max_in_flight), gate.clone());
    let report = PipelineRunner::new(rows(20))
        .with_gate(&gate)
        .column(Column::new("seed", Strategy::Cell), succeed)
        .model_column(Column::new("text", Strategy::Cell).with_upstream("seed"), &key, move |context, call| {
            let (max_seen, gate) = (Arc::clone(&max_seen), observed.clone());
            async move {
                let permit = context.acquire(&call).await.unwrap();
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                let in_flight = gate.snapshot(&call.key).map_or(0, |state| state.in_flight);
                let mut max_seen = max_seen.lock();
                *max_seen = in_flight.max(*max_seen);
                permit.finish(Outcome::Success);
                Ok(TaskOutcome::Success)
            }
        })
        .save(move |group| {
            *saved_rows.lock() += group.live.len();
            std::future::ready(Ok(()))
        })
        .start()
        .unwrap()
        .await;
    assert_eq!(
        (report.stop, report.rows_out, *saved.lock(), *max_in_flight.lock()),
        (StopReason::Completed, 20, 20, 3)
    );
    assert_eq!(gate.snapshot(&key).map(|state| (state.in_flight, state.waiters)), Some((0, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_rate_limited_task_is_retried_and_no_row_is_lost() {
    let gate = RequestGate::new().unwrap();
    let key = ResourceKey::chat("p", "m");
    gate.register(&key, &Limits::at_most(2)).unwrap();
    let report = PipelineRunner::new(rows(6))
        .with_gate(&gate)
        .model_column(Column::new("text", Strategy::Cell), &key, async |context, call| {
            let permit = context.acquire(&call).await.unwrap();
            if context.task.attempt > 1 {
                permit.finish(Outcome::Success);
                return Ok(TaskOutcome::Success);
            }
            let pause = Some(Duration::from_millis(20));
            permit.finish(Completion::rate_limited(pause));
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
async fn a_column_that_calls_an_unregistered_model_prevents_the_start() {
    let key = ResourceKey::chat("p", "m");
    let start = |runner: PipelineRunner| {
        runner.model_column(Column::new("text", Strategy::Cell), &key, async |_, _| Ok(TaskOutcome::Success)).start()
    };
    let error = start(PipelineRunner::new(rows(1))).unwrap_err().to_string();
    assert_eq!(error, "the column `text` calls p/m/chat, which needs a gate: see `PipelineRunner::with_gate`");
    let gate = RequestGate::new().unwrap();
    let error = start(PipelineRunner::new(rows(1)).with_gate(&gate)).unwrap_err().to_string();
    assert_eq!(
        error,
        "the column `text` calls p/m/chat, which is not registered with the gate: see `RequestGate::register`"
    );
}

#[test]
fn a_denied_call_ends_its_task_by_the_reason_of_the_denial() {
    let outcome = |reason| Result::from(CallDenied(Denial { reason, changes_at: None }));
    let retryable = TaskOutcome::Retryable { kind: RetryKind::AdmissionTimeout, status: None, retry_after: None };
    assert_eq!(outcome(DenialReason::QueueTimeout), Ok(retryable));
    assert_eq!(outcome(DenialReason::Shutdown), Ok(TaskOutcome::Cancelled));
    assert_eq!(outcome(DenialReason::Unavailable), Ok(TaskOutcome::Unavailable));
    assert!(outcome(DenialReason::Unregistered).is_err());
}

/// No connection can be made for half a minute, in the middle of the run.
#[tokio::test(start_paused = true)]
async fn calls_that_fail_in_an_outage_are_repeated_and_no_row_is_lost() {
    let gate = RequestGate::new().unwrap();
    let key = ResourceKey::chat("p", "m");
    gate.register(&key, &Limits::at_most(4)).unwrap();
    let began = tokio::time::Instant::now();
    let failed = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&failed);
    let report = PipelineRunner::new(rows(64))
        .with_gate(&gate)
        .model_column(Column::new("text", Strategy::Cell), &key, move |context, call| {
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
                match context.call(&call, attempt).await {
                    Ok(outcome) => Ok(Completion::from(outcome).into()),
                    Err(denied) => denied.into(),
                }
            }
        })
        .start()
        .unwrap()
        .await;
    assert_eq!((report.stop, report.rows_out, report.rows_dropped), (StopReason::Completed, 64, 0));
    assert_eq!(report.columns[0].tasks.retryable, 0, "no task failed");
    assert!(*failed.lock() < 30, "{} calls failed", failed.lock());
}

#[tokio::test(start_paused = true)]
async fn a_rejected_key_stops_the_run_and_drops_no_row() {
    let gate = RequestGate::new().unwrap();
    let key = ResourceKey::chat("p", "m");
    gate.register(&key, &Limits::at_most(4)).unwrap();
    let report = PipelineRunner::new(rows(64))
        .with_gate(&gate)
        .model_column(Column::new("text", Strategy::Cell), &key, async |context, call| {
            match context.call(&call, async || Outcome::KeyRejected).await {
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
