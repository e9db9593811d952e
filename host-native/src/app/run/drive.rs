//! Drives a run to its end: polls the scheduler, refreshes the display, writes the decision log and handles
//! signals.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use tidegate_core::driver::{self, Progress, RunHandle};
use tidegate_core::gate::GateControl;
use tidegate_core::observe::RunFigures;
use tidegate_core::pipeline::{Pipeline, TaskCounts};
use tidegate_core::replay::{Command, Stamped, merge};
use tokio::task::{JoinHandle, JoinSet};

use crate::app::error::Error;
use crate::app::interrupt::{SignalListener, StopSignal};
use crate::app::output::{AcceptedRows, OutputDirectory};
use crate::app::provider::cost::{Ledger, LedgerStop, Money};
use crate::app::replay::LogWriter;
use crate::app::report::ProgressHistory;
use crate::app::report::idle::idle_views;
use crate::app::report::progress::{ProgressReporter, REFRESH};
use crate::app::report::progress_view::{
    AcceptedView, ColumnView, ProgressView, ProviderView, TogetherView, outage_text,
};
use crate::app::run::batch_jobs::BatchJobs;
use crate::app::run::exit_status::{RunEnd, run_totals};
use crate::app::run::metrics::MetricsServer;
use crate::app::run::models::Models;
use crate::app::run::observer::RunObserver;
use crate::app::run::provider::Provider;
use crate::app::run::workload::PipelineWorkload;
use crate::host::TokioHost;
use crate::share::Share;

/// What the progress display reads during a run.
pub(super) struct Monitored<'a> {
    pub(super) work: &'a PipelineWorkload,
    /// The generated columns, each with its number of tasks.
    pub(super) columns: &'a [(String, u64)],
    pub(super) models: &'a Models,
    pub(super) output: &'a Arc<OutputDirectory>,
    /// The rows that earlier runs have accepted.
    pub(super) accepted_before: u64,
    pub(super) observer: &'a RunObserver,
    /// The currency of the prices and the cost limit, if models have prices.
    pub(super) prices: Option<(&'a str, Option<Money>)>,
    pub(super) metrics: Option<MetricsServer>,
    /// The batches of the run, if requests go in batches.
    pub(super) batches: Option<&'a BatchJobs>,
}

/// Takes the commands recorded since the last call, and the digest of the decisions of request admission up
/// to them: those of shared limits go on after the end of the run.
fn take_commands(run: &RunHandle<TokioHost>, models: &Models) -> (Vec<Stamped<Command>>, u64) {
    let take = |machine: &mut GateControl<'_>| (machine.take_commands(), machine.decision_digest());
    let (requests, digest) = models.gate().with(|machine, _| take(machine));
    (merge(run.take_commands(), requests), digest)
}

/// Appends the last commands to the decision log, and the end line if the run `has_ended` by itself.
fn finish_log(mut log: LogWriter, run: &RunHandle<TokioHost>, models: &Models, has_ended: bool) -> Result<(), String> {
    let (commands, requests) = take_commands(run, models);
    log.write(commands)?;
    if has_ended { log.finish((run.decision_digest(), requests)) } else { Ok(()) }
}

/// Drives `run` to its end, refreshes the display and handles signals.
///
/// The first SIGINT winds the run down: row groups in progress are finished, because their calls are paid
/// for. The first SIGTERM drains it: outstanding calls end, and no other is made. So does the first SIGINT if
/// requests go in batches, which may take a day and are not waited for. A second signal of either kind stops
/// the run at once; `--resume` redoes what was not finished.
pub(super) async fn drive(
    run: driver::PipelineRun<TokioHost, PipelineWorkload>,
    monitored: &Monitored<'_>,
    log: &mut Option<LogWriter>,
    screen: &mut ProgressReporter,
    timeline: &mut ProgressHistory,
) -> Result<RunEnd, Error> {
    let Monitored { work, models, output, .. } = monitored;
    let mut interrupts = SignalListener::listen().map_err(|error| Error::Internal(error.to_string()))?;
    let handle = run.handle();
    // As a task, the run is polled on the threads on which its calls end. They need not wake this thread for
    // each.
    let mut task = JoinSet::new();
    task.spawn(run);
    let mut refresh = tokio::time::interval(REFRESH);
    let started = std::time::Instant::now();
    let look = |screen: &ProgressReporter| {
        let mut view = view(&handle.progress(), started.elapsed(), monitored);
        if screen.shows_idle() {
            let labels = models.providers().iter().map(|provider| provider.label.as_str());
            view.why_idle = idle_views(&monitored.observer.figures(), labels);
        }
        view
    };
    let (mut interrupted, mut is_reported, mut has_enough) = (false, false, false);
    let mut usage_write = None;
    let report = loop {
        tokio::select! {
            Some(ended) = task.join_next() => match ended {
                Ok(report) => break Some(report),
                Err(error) => resume_unwind(error.into_panic()),
            },
            _ = refresh.tick() => {
                work.take_warnings().iter().for_each(|warning| screen.print_message(warning));
                let view = look(screen);
                screen.show(&view);
                timeline.sample(&view);
                if let Some(metrics) = &monitored.metrics {
                    metrics.publish(view, models.share().map_or_else(Vec::new, Share::status));
                }
                if let Some(log) = log {
                    let (commands, _) = take_commands(&handle, models);
                    log.write(commands).unwrap_or_else(|error| screen.print_message(&error));
                }
                if handle.inspect(Pipeline::has_stopped) {
                    // A later run collects them.
                    stop_batches(monitored);
                    // No call waits for a part of the cost limit.
                    models.ledger().update(Ledger::close);
                }
                if !has_enough && output.has_enough() {
                    has_enough = true;
                    // The rows of calls in flight are too many, but the calls cost what they cost.
                    handle.drain();
                    work.stop_tools();
                }
                let withheld = models.ledger().lock().stop_reason().filter(|_| !is_reported).cloned();
                if let Some(withheld) = withheld {
                    is_reported = true;
                    work.stop_tools();
                    let why = match withheld {
                        LedgerStop::CostLimit(_) => "the next call might pass the cost limit".to_string(),
                        LedgerStop::Unwritable(why) => why,
                    };
                    screen.print_message(&format!("{why}: no further calls are made, outstanding calls are awaited"));
                }
                if usage_write.as_ref().is_none_or(JoinHandle::is_finished) {
                    let (output, used) = (Arc::clone(output), run_totals(models));
                    usage_write = Some(tokio::task::spawn_blocking(move || output.record_usage(&used)));
                }
            }
            signal = interrupts.next() => {
                if interrupted {
                    task.shutdown().await;
                    break None;
                }
                interrupted = true;
                // The request to stop goes first, so that the message is true when it is shown.
                match signal {
                    StopSignal::Interrupt if monitored.batches.is_some() => {
                        handle.drain();
                        stop_batches(monitored);
                        screen.print_message("interrupted: batches go on at the provider and `--resume` collects them; awaiting other outstanding calls, making no more (interrupt again to stop at once)");
                    }
                    StopSignal::Interrupt => {
                        handle.wind_down();
                        screen.print_message("interrupted: finishing the row groups in progress, starting no more (interrupt again to stop at once)");
                    }
                    StopSignal::Terminate => {
                        handle.drain();
                        stop_batches(monitored);
                        models.ledger().update(Ledger::close);
                        work.stop_tools();
                        screen.print_message("terminated: awaiting outstanding calls, making no more (terminate again to stop at once)");
                    }
                }
                // A run whose claim ends before it is stopped would be complete.
                work.stop_claiming();
            }
        }
    };
    if let Some(usage_write) = usage_write {
        // Ignored here: closing the output writes the usage again and reports the error.
        let _ = usage_write.await;
    }
    work.take_warnings().iter().for_each(|warning| screen.print_message(warning));
    let last = look(screen);
    screen.finish(&last);
    timeline.finish(last);
    if let Some(log) = log.take() {
        finish_log(log, &handle, models, report.is_some()).unwrap_or_else(|error| screen.print_message(&error));
    }
    Ok(RunEnd { report, wall: started.elapsed(), figures: RunFigures::default() })
}

/// Ends all waiting for batches. The run must take no new rows by then: they would find their batches
/// stopped.
fn stop_batches(monitored: &Monitored<'_>) {
    monitored.batches.iter().for_each(|batches| batches.stop());
}

/// Returns the state of the run for the display, `elapsed` after its start, without the causes of idle time.
fn view(progress: &Progress, elapsed: StdDuration, monitored: &Monitored<'_>) -> ProgressView {
    let Monitored { work, columns, models, prices, output, .. } = monitored;
    let (spent, lease) = {
        let ledger = models.ledger().lock();
        (ledger.spent(), ledger.lease())
    };
    let provider = |provider: &Arc<Provider>| {
        let (snapshot, calls, tokens) = (provider.snapshot(), provider.calls(), provider.tokens());
        ProviderView {
            label: provider.label.clone(),
            in_flight: snapshot.in_flight,
            limit: snapshot.current_limit,
            waiting: snapshot.waiters,
            answered: calls.succeeded,
            rate_limited: calls.rate_limited,
            failed: calls.failed,
            input_tokens: tokens.input,
            output_tokens: tokens.output,
            cooling_down: snapshot.blocked_until.is_some_and(|until| until > snapshot.at),
            outage: outage_text(snapshot.health, snapshot.at, provider.outage_error().as_deref()),
            batches: monitored.batches.and_then(|batches| batches.progress(&provider.label)),
        }
    };
    let column = |((name, total), tasks): (&(String, u64), &TaskCounts)| ColumnView {
        name: name.clone(),
        total: *total,
        done: tasks.succeeded + tasks.skipped + tasks.skipped_with_upstream + tasks.failed,
        in_work: tasks.spawned - tasks.ended(),
    };
    let accepted = |rows: AcceptedRows| AcceptedView {
        rows: rows.accepted,
        before: monitored.accepted_before,
        wanted: rows.wanted,
    };
    ProgressView {
        rows_done: progress.rows_done,
        rows_dropped: progress.rows_dropped,
        rows_total: progress.rows_total,
        accepted: output.accepted_rows().map(accepted),
        spent,
        cost: prices.map(|(currency, limit)| match (limit, lease) {
            (Some(limit), Some(lease)) => format!("{spent} of {limit} {currency}, others up to {}", lease.others),
            (Some(limit), None) => format!("{spent} of {limit} {currency}"),
            (None, _) => format!("{spent} {currency}"),
        }),
        elapsed: elapsed.as_secs_f64(),
        together: work.waits_for_others().map(|waits_for_others| TogetherView { waits_for_others }),
        // The first column of the plan is the dataset.
        columns: columns.iter().zip(progress.columns.iter().skip(1)).map(column).collect(),
        providers: models.providers().iter().map(provider).collect(),
        why_idle: Vec::new(),
    }
}
