//! `tidegate run`: fills the columns of a pipeline file and writes the finished rows to an output directory.
//!
//! [`preflight`] finds every error of the input before the output directory is changed and before the first
//! call. [`resolve`] compiles the file, [`models`] registers the providers, [`workload`] does the work of
//! each task, and the scheduler of the core decides when.

pub mod batch_jobs;
mod blocking;
pub mod buffer;
pub mod columns;
pub mod comparison;
mod download;
mod drive;
pub mod dry_run;
pub mod estimate;
pub mod exit_status;
mod export;
mod leased_cost;
mod manifest;
mod metrics;
pub mod models;
pub mod observer;
pub mod preflight;
pub mod provider;
mod redirects;
pub mod request;
pub mod resolve;
mod together;
pub mod workload;
pub mod written_counts;

use std::io::{self, Write as _};
use std::iter;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_core::driver;
use tidegate_core::observe::{CapacityPlan, Sinks};
use tidegate_core::pipeline::{AdaptiveRowGroups, Pipeline, PipelineConfig, Strategy};
use tidegate_core::replay::{Header, Recorded, Sequence};
use tidegate_core::request::{HealthConfig, RequestConfig};

use crate::app::config::pipeline::{ColumnSpec, DatasetLocation, PipelineFile};
use crate::app::config::share::flag_settings;
use crate::app::error::{Error, Exit};
use crate::app::output::{
    DirectoryLock, EarlierOutput, ExistingOutput, JobTotals, Manifest, OutputDirectory, OutputError, OutputFile,
    OutputSpec, RunState, open_all, rotate_file,
};
use crate::app::provider::cost::{Ledger, Money};
use crate::app::replay::LogWriter;
use crate::app::report::progress::ProgressReporter;
use crate::app::report::summary::Summary;
use crate::app::report::{ProgressHistory, page};
use crate::app::run::batch_jobs::BatchJobs;
use crate::app::run::columns::Caller;
use crate::app::run::comparison::compare;
use crate::app::run::drive::{Monitored, drive};
use crate::app::run::exit_status::{RunEnd, run_totals, summarise};
use crate::app::run::manifest::manifest;
use crate::app::run::metrics::MetricsServer;
use crate::app::run::models::{Models, task_resources};
use crate::app::run::observer::RunObserver;
use crate::app::run::preflight::{Preflight, Ready};
use crate::app::run::request::RunRequest;
use crate::app::run::resolve::{GeneratedColumn, ResolvedPipeline};
use crate::app::run::together::{DatasetMember, check_together};
use crate::app::run::workload::{DATASET_NAME, PipelineWorkload};
use crate::gate::random_seed;
use crate::host::TokioHost;
use crate::observe::jsonl::{EventNames, ResourceName};
use crate::observe::perfetto::PerfettoSink;
use crate::share::Share;

/// Runs a pipeline until it completes or stops, and shows its progress on `screen`.
///
/// A run that started and then stopped early returns a summary whose `stopped` has the reason.
///
/// # Errors
/// If the input has errors, or the outputs, models or signal handlers cannot be set up.
pub async fn run(request: &RunRequest, screen: &mut ProgressReporter) -> Result<Summary, Error> {
    let ready = Preflight::run(request, &mut |line| screen.print_message(line)).await?.ready()?;
    check_together(&ready.file, request)?;
    let share = connect_share(&ready.file, request).await?.map(Arc::new);
    if let Some(share) = share.as_ref().filter(|_| request.together) {
        share.check_row_groups().await.map_err(|error| Error::Setting(error.to_string()))?;
    }
    let ended = Box::pin(run_ready(request, screen, ready, share.clone())).await;
    if let Some(share) = share {
        // After an error, too, the other processes get its share at once.
        share.leave().await;
    }
    ended
}

/// Runs a pipeline that was checked. Other processes share its limits over `share`.
async fn run_ready(
    request: &RunRequest,
    screen: &mut ProgressReporter,
    ready: Ready,
    share: Option<Arc<Share>>,
) -> Result<Summary, Error> {
    let Ready { name, file, mut resolved, .. } = ready;
    let host = TokioHost::current().map_err(|error| Error::Internal(error.to_string()))?;
    let sequence = request.record.as_ref().map(|_| Sequence::default());
    let requests = request_config(&file);
    let ledger = if request.together { Ledger::leasing(request.max_cost) } else { Ledger::new(request.max_cost) };
    let models = Models::start(&file, &host, &requests, sequence.as_ref(), ledger, share.clone()).await?;
    let mut callers = callers(&file, &resolved, &models)?;
    let rows = resolved.rows.end - resolved.rows.start;
    let config = PipelineConfig { claims_row_groups: request.together, ..pipeline_config(&file, rows) };
    // Errors of the settings must be found before the output is changed.
    Pipeline::new(resolved.plan.clone(), config.clone()).map_err(|error| Error::Setting(error.to_string()))?;
    let metrics = match request.metrics {
        Some(address) => Some(MetricsServer::start(address).await?),
        None => None,
    };
    let spec = output_spec(request, manifest(&name, &file, &resolved, request.partition)?, &file, &resolved);
    let Outputs { mut output, log_file, together } =
        claim_outputs(request, &spec, &file, &resolved, share.as_deref()).await?;
    let (batches, reserved) = open_batches(&file, &mut output, &models, &mut callers)?;
    let output = Arc::new(output);
    let has_prices = file.models.iter().any(|model| model.price.is_some());
    let amount_file = has_prices.then(|| output.create_amount_file()).transpose()?;
    models.ledger().lock().resume_from(output.used().spent, reserved, amount_file);
    resolved.skip_row_groups(output.done().iter(), file.run.row_group_size.get());
    let (done_row_groups, missing_rows) = if output.has_enough() {
        ((0..u32::try_from(spec.manifest.row_group_count()).unwrap_or(u32::MAX)).collect(), Vec::new())
    } else {
        (output.done().iter().collect(), output.missing().to_vec())
    };
    // A seed per run, so that concurrent runs do not retry at the same times.
    let seed = requests.health.map_or(0, |health| health.seed as u32);
    let config = PipelineConfig { done_row_groups, missing_rows, run: seed, ..config };
    let observer = RunObserver::new(&resolved.plan, &config, &file.run, models.gate());
    let mut observer = observer.with_file(&file, request.max_cost);
    let header = Header::new(&resolved.plan, &config, &requests);
    let pipeline = Pipeline::new(resolved.plan.clone(), config).map_err(|error| Error::Setting(error.to_string()))?;
    let mut pipeline = Recorded::new(pipeline);
    if let Some(sequence) = &sequence {
        pipeline.start_recording(sequence);
    }
    let log = log_file.map(|file| LogWriter::create(file, &header).map_err(|error| Error::Setting(error.to_string())));
    let mut log = log.transpose()?;
    let sinks = sinks(request, &resolved, &file, &models, &mut observer)?;
    if request.plan {
        // A standard output that is closed does not stop the run.
        let _ = writeln!(io::stdout(), "{}{}{}", observer.capacity(), file.describe_extras(), file.describe_batches());
    }
    let columns = task_totals(&resolved, &output, &spec.manifest);
    screen.print_message(&format!(
        "{name}: {}, {} columns to fill, output in {}",
        rows_to_make(&file, rows),
        columns.len(),
        request.out.display()
    ));
    print_setup(screen, &models, metrics.as_ref(), output.earlier()).await;

    let is_whole_example = request.pipeline.is_none() && output.earlier() == EarlierOutput::default();
    let comparison = is_whole_example.then(|| compare(&file, &resolved)).flatten();
    let (keeps_calls, to_write) = (file.output.calls, Arc::clone(&output));
    let work = PipelineWorkload::with_together(resolved, callers, to_write, keeps_calls, together.clone());
    let work = Arc::new(work);
    let calls = if file.run.pressure_advisory { models.request_resources() } else { Vec::new() };
    let calls: Vec<_> = calls.iter().map(|(name, resource)| (name.as_str(), *resource)).collect();
    let run = driver::run_through(pipeline, Arc::clone(&work), models.gate(), &calls).with_sinks(sinks);
    let prices = has_prices.then_some((file.currency.as_str(), request.max_cost));
    let monitored = Monitored {
        work: &work,
        columns: &columns,
        models: &models,
        output: &output,
        accepted_before: output.accepted_rows().map_or(0, |rows| rows.accepted),
        observer: &observer,
        prices,
        metrics,
        batches: batches.as_deref(),
    };
    let mut timeline = ProgressHistory::default();
    let drive = drive(run, &monitored, &mut log, screen, &mut timeline);
    let ended = drive_together(together.as_deref(), &work, &output, &models, drive).await?;
    let end = RunEnd { figures: observer.finish(models.gate()), ..ended };
    if let Some(left) = output.remove_surplus(&spec)? {
        work.limit_written(&left);
    }
    let mut summary = summarise(&name, &file, rows, &end, &models, &work, &output);
    models.leave_share().await;
    describe_open_batches(batches.as_deref(), &mut summary, screen);
    summary.output.clone_from(&request.out);
    summary.comparison = comparison.filter(|_| summary.exit == Exit::Done);
    summary.retry = (summary.rows_dropped() > 0).then(|| retry_command(request));
    observer.warnings().iter().for_each(|warning| screen.print_message(warning));
    let closed = close(&output, &summary, &run_totals(&models), observer.capacity(), together.as_deref());
    count_all_usage(&mut summary, together.as_deref(), &models, screen);
    if let Some(path) = request.export.clone() {
        export::export(path, &work, &output, &mut summary, screen).await;
    }
    // The rows are on disk already, so an error of the report does not discard them.
    let report = write_report(request, || page(&summary, &timeline, observer.capacity()));
    for error in [closed, report].into_iter().filter_map(Result::err) {
        screen.print_message(&format!("error: {error}"));
        summary.exit = Exit::Output;
        summary.stopped.get_or_insert_with(|| error.to_string());
    }
    Ok(summary)
}

/// Opens the journal of batches if requests go in batches, and lets the columns use it. Returns the batches,
/// and the reserved cost of those that go on.
fn open_batches(
    file: &PipelineFile,
    output: &mut OutputDirectory,
    models: &Models,
    callers: &mut [Option<Caller>],
) -> Result<(Option<Arc<BatchJobs>>, Money), OutputError> {
    if !file.has_batches() {
        return Ok((None, Money::default()));
    }
    let (journal, lines) = output.open_batches()?;
    let batches = Arc::new(BatchJobs::new(journal, lines));
    let reserved = batches.reserved(models.providers());
    output.reserve(reserved);
    callers.iter_mut().flatten().for_each(|caller| caller.batches = Some(Arc::clone(&batches)));
    Ok((Some(batches), reserved))
}

/// Says which batches go on at their providers: in the reason why the run has stopped or, if it has not, as a
/// message.
fn describe_open_batches(batches: Option<&BatchJobs>, summary: &mut Summary, screen: &ProgressReporter) {
    let open = match batches.map_or(0, BatchJobs::open) {
        0 => return,
        1 => "1 batch goes on at the provider".to_string(),
        open => format!("{open} batches go on at the provider"),
    };
    match &mut summary.stopped {
        Some(why) => *why = format!("{why}; {open}, and `--resume` collects its answers"),
        None => screen.print_message(&format!("warning: {open}, whose requests no row has any more")),
    }
}

/// Describes how many rows a run of at most `rows` rows makes.
fn rows_to_make(file: &PipelineFile, rows: u64) -> String {
    match file.rows.wanted {
        Some(wanted) => format!("{wanted} accepted rows of at most {rows}"),
        None => format!("{rows} rows"),
    }
}

/// Prints with whom limits are shared, where the metrics are, and what earlier runs have done.
async fn print_setup(
    screen: &mut ProgressReporter,
    models: &Models,
    metrics: Option<&MetricsServer>,
    earlier: EarlierOutput,
) {
    if let Some(share) = models.share() {
        screen.print_message(&share.describe().await);
    }
    if let Some(metrics) = metrics {
        screen.print_message(&format!("metrics at http://{}/metrics", metrics.address()));
    }
    if earlier != EarlierOutput::default() {
        screen.print_message(&earlier.to_string());
    }
}

/// Connects to the store of shared limits, if the file or the command line shares limits.
pub(super) async fn connect_share(file: &PipelineFile, request: &RunRequest) -> Result<Option<Share>, Error> {
    let settings = match (&file.share, &request.share) {
        (None, None) => return Ok(None),
        (None, Some(url)) => flag_settings(url),
        (Some(table), Some(url)) => table.settings_at(url),
        (Some(table), None) => table.settings(&file.source, &|name| std::env::var(name).ok())?,
    };
    Share::connect(&settings).await.map(Some).map_err(|error| Error::Setting(error.to_string()))
}

/// Writes the report if one is requested. A resumed job keeps the reports of its earlier runs.
fn write_report(request: &RunRequest, page: impl FnOnce() -> String) -> Result<(), OutputError> {
    let Some(path) = &request.report else { return Ok(()) };
    let earlier = if request.existing == ExistingOutput::Resume { rotate_file(path) } else { Ok(()) };
    let written = earlier.and_then(|()| std::fs::write(path, page()));
    written.map_err(|source| OutputError::Io { path: path.clone(), source })
}

/// What a run writes to.
struct Outputs {
    output: OutputDirectory,
    /// The file of the decision log.
    log_file: Option<OutputFile>,
    /// The part of this process, if several fill the output.
    together: Option<Arc<DatasetMember>>,
}

/// Claims the output directory and opens the decision log, after checking that every requested file can be
/// written. Or joins the processes that fill the directory, if limits are shared over `share` and the request
/// says so.
///
/// On an error, all files and directories are left as they were; but of processes that begin an output
/// together, the job remains even if none of them goes on.
async fn claim_outputs(
    request: &RunRequest,
    spec: &OutputSpec,
    file: &PipelineFile,
    resolved: &ResolvedPipeline,
    share: Option<&Share>,
) -> Result<Outputs, Error> {
    let dataset = resolved.dataset.paths();
    if let Some(share) = share.filter(|_| request.together) {
        return join_outputs(request, &dataset, DatasetMember::join(request, spec, file, share)).await;
    }
    // Before anything else, so that a second run of the same command changes nothing of the first one.
    let claim = DirectoryLock::acquire(&request.out, request.existing)?;
    let export = request.export.as_ref();
    let mut others = inputs(request, &dataset);
    let checked = export.map_or(Ok(()), |export| export.check(&claim, &others));
    others.extend(export.map(|export| ("--export", export.path.as_path())));
    let mut places = match checked.and_then(|()| open_all(requested_files(request), &others, Some(&request.out))) {
        Ok(places) => places,
        Err(error) => {
            claim.release();
            return Err(error.into());
        }
    };
    match OutputDirectory::prepare(claim, spec) {
        Ok(output) => {
            let log_file = request.record.is_some().then(|| places.swap_remove(0));
            Ok(Outputs { output, log_file, together: None })
        }
        Err(error) => {
            places.into_iter().for_each(OutputFile::discard);
            Err(error.into())
        }
    }
}

/// Returns the files that the run writes besides its output directory, each with its flag. The decision log,
/// if there is one, is the first.
fn requested_files(request: &RunRequest) -> impl Iterator<Item = (&'static str, &PathBuf)> {
    let RunRequest { record, events, trace, report, .. } = request;
    let files = [("--record", record), ("--events", events), ("--trace", trace), ("--report", report)];
    files.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?)))
}

/// Returns the files that the run reads, `dataset` among them, each with what it is.
fn inputs<'a>(request: &'a RunRequest, dataset: &[&'a Path]) -> Vec<(&'static str, &'a Path)> {
    let pipeline = request.pipeline.as_deref().map(|path| ("the pipeline file", path));
    // Of the bundled example, the dataset is no file.
    let dataset = dataset.iter().filter(|_| pipeline.is_some()).map(|path| ("the dataset", *path));
    pipeline.into_iter().chain(dataset).collect()
}

/// Joins the processes that fill the output directory, after checking that every requested file can be
/// written.
async fn join_outputs(
    request: &RunRequest,
    dataset: &[&Path],
    join: impl Future<Output = Result<(DatasetMember, OutputDirectory), Error>>,
) -> Result<Outputs, Error> {
    let mut places = open_all(requested_files(request), &inputs(request, dataset), Some(&request.out))?;
    match join.await {
        Ok((together, output)) => {
            let log_file = request.record.is_some().then(|| places.swap_remove(0));
            Ok(Outputs { output, log_file, together: Some(Arc::new(together)) })
        }
        Err(error) => {
            places.into_iter().for_each(OutputFile::discard);
            Err(error)
        }
    }
}

/// Drives a run while the claims of its row groups are kept, if there are any. Then hands back what it has
/// not finished, and counts what other processes have written.
async fn drive_together(
    together: Option<&DatasetMember>,
    work: &PipelineWorkload,
    output: &OutputDirectory,
    models: &Models,
    drive: impl Future<Output = Result<RunEnd, Error>>,
) -> Result<RunEnd, Error> {
    let Some(together) = together else { return drive.await };
    let leave = async {
        let ended = drive.await;
        together.leave().await;
        ended
    };
    let ended = tokio::join!(leave, together.keep_claims(models), together.keep_cost(models.ledger())).0?;
    let (written, dropped) = work.written().counts();
    together.directory().count_others(output, written, &dropped)?;
    Ok(ended)
}

/// Adds the usage of all processes to `summary`, if several fill the output. It is shown only, so a file of
/// another process that cannot be read is no error of this one.
fn count_all_usage(
    summary: &mut Summary,
    together: Option<&DatasetMember>,
    models: &Models,
    screen: &mut ProgressReporter,
) {
    let Some(together) = together else { return };
    match together.directory().job_totals(&run_totals(models)) {
        Ok(totals) => summary.job = totals,
        Err(error) => screen.print_message(&format!("warning: the usage of the job is that of this process: {error}")),
    }
}

/// Returns the description of what the run writes.
fn output_spec(
    request: &RunRequest,
    manifest: Manifest,
    file: &PipelineFile,
    resolved: &ResolvedPipeline,
) -> OutputSpec {
    let dataset = file.rows.dataset.as_ref().filter(|_| request.pipeline.is_some());
    // More rows would change the order of a shuffled dataset, and the boundaries of its parts.
    let is_whole = request.partition.is_none() && dataset.is_some_and(|seed| !seed.shuffle);
    let appendable = dataset.filter(|seed| is_whole && seed.format.is_text()).and_then(|seed| match &seed.location {
        DatasetLocation::Local(path) if path.is_file() => Some(path.clone()),
        _ => None,
    });
    OutputSpec {
        manifest,
        layout: resolved.layout(file.output.format, file.output.compression),
        keeps_parts: resolved.plan.keeps_parts(),
        retry_dropped: request.retry_dropped.clone(),
        dataset: appendable,
    }
}

/// Returns the shell command that retries the dropped rows of this run.
fn retry_command(request: &RunRequest) -> String {
    let RunRequest { pipeline, out, rows, partition, limit, all_columns, max_cost, export, .. } = request;
    let mut words = vec!["tidegate".to_string(), "run".to_string()];
    words.extend(pipeline.as_ref().map(|path| path.display().to_string()));
    words.extend(["--out".to_string(), out.display().to_string()]);
    if let Some(Range { start, end }) = rows {
        let end = if *end == u64::MAX { String::new() } else { end.to_string() };
        words.extend(["--rows".to_string(), format!("{start}..{end}")]);
    }
    words.extend(partition.iter().flat_map(|partition| ["--partition".to_string(), partition.to_string()]));
    words.extend(limit.iter().flat_map(|limit| ["--limit".to_string(), limit.to_string()]));
    words.extend(all_columns.then(|| "--all-columns".to_string()));
    words.extend(max_cost.iter().flat_map(|most| ["--max-cost".to_string(), most.exact()]));
    words.extend(export.iter().flat_map(|export| ["--export".to_string(), export.path.display().to_string()]));
    words.extend(["--resume".to_string(), "--retry-dropped".to_string()]);
    // Joining fails only for a NUL, which cannot occur in a command line.
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default()
}

/// Returns the generated columns, each with the number of tasks that earlier runs have left.
fn task_totals(resolved: &ResolvedPipeline, output: &OutputDirectory, manifest: &Manifest) -> Vec<(String, u64)> {
    let earlier = output.earlier();
    let rows = manifest.rows_in.saturating_sub(earlier.rows_out + earlier.rows_dropped + earlier.rows_rejected);
    let row_groups = manifest.row_group_count().saturating_sub(earlier.row_groups);
    let tasks = |column: &GeneratedColumn| match column.strategy {
        Strategy::Cell => rows,
        Strategy::FullColumn | Strategy::FromScratch => row_groups,
    };
    resolved.columns.iter().map(|column| (column.name.clone(), tasks(column))).collect()
}

/// Records the end of the run in the output directory: its totals together with those of earlier runs, its
/// usage and its capacity plan.
fn close(
    output: &OutputDirectory,
    summary: &Summary,
    used: &JobTotals,
    capacity: &CapacityPlan,
    together: Option<&DatasetMember>,
) -> Result<(), OutputError> {
    let state = RunState::Ended {
        reason: summary.stopped.clone().unwrap_or_else(|| "completed".to_string()),
        rows_out: summary.earlier.rows_out + summary.rows_out,
        rows_dropped: summary.rows_dropped(),
        row_groups: summary.earlier.row_groups + summary.row_groups,
    };
    let ended = together.map_or(Ok(()), |together| together.directory().end());
    let closed = output.close(state, used).and(ended);
    output.write_capacity(capacity).and(closed)
}

/// Returns the sinks for the events of the run.
fn sinks(
    request: &RunRequest,
    resolved: &ResolvedPipeline,
    file: &PipelineFile,
    models: &Models,
    observer: &mut RunObserver,
) -> Result<Sinks, Error> {
    let unwritable =
        |path: &Option<PathBuf>, source| OutputError::Io { path: path.clone().unwrap_or_default(), source };
    let generated = resolved.columns.iter().map(|column| column.name.as_str());
    let names = EventNames {
        // The first column of the plan is the dataset.
        columns: iter::once(DATASET_NAME).chain(generated).map(str::to_string).collect(),
        resources: models.resource_names(),
        first_row: resolved.rows.start,
        row_group_size: file.run.row_group_size.get(),
    };
    let resources: Vec<_> = names.resources.iter().map(ResourceName::traced).collect();
    let trace = request.trace.as_deref().map(|path| PerfettoSink::create(path, &resolved.plan, &resources)).transpose();
    let trace = trace.map_err(|source| unwritable(&request.trace, source))?;
    let events = request.events.as_deref().map(|path| (path, &names));
    Ok(observer.sinks(events, trace).map_err(|source| unwritable(&request.events, source))?)
}

/// Returns, for each generated column, how it calls its models; `None` for a column that calls none.
fn callers(
    file: &PipelineFile,
    resolved: &ResolvedPipeline,
    models_of_run: &Models,
) -> Result<Vec<Option<Caller>>, Error> {
    let caller = |(column, spec): (&GeneratedColumn, &ColumnSpec)| {
        let models = spec.kind.models();
        if models.is_empty() {
            return Ok(None);
        }
        let invalid = |error: &dyn std::fmt::Display| file.source.error(spec.weight.span(), error.to_string());
        let group = models_of_run.group(&column.name, column.weight).map_err(|error| invalid(&error))?;
        let models = models_of_run.called(&models).map_err(|error| invalid(&error))?;
        let tools = spec.kind.chat().map_or_else(Vec::new, |call| models::tool_commands(file, &call.tools));
        Ok(Some(Caller { models, group, batches: None, tools }))
    };
    resolved.columns.iter().zip(&file.columns).map(caller).collect()
}

/// Returns the settings of request admission.
fn request_config(file: &PipelineFile) -> RequestConfig {
    let (run, seed) = (&file.run, random_seed());
    let (patience, rate_limit_patience) = (run.outage_patience, run.rate_limit_patience);
    let fallback_after = run.fallback_after;
    // A model that needs a human, such as one with a rejected key, is not tried again.
    let health =
        HealthConfig { patience, rate_limit_patience, fallback_after, recheck: None, seed, ..HealthConfig::default() };
    RequestConfig { health: Some(health), rate_limit_headers: run.rate_limit_headers, ..RequestConfig::default() }
}

/// Returns the scheduler settings for a run of `rows` rows.
pub(crate) fn pipeline_config(file: &PipelineFile, rows: u64) -> PipelineConfig {
    let run = &file.run;
    PipelineConfig {
        rows,
        row_group_size: run.row_group_size.get(),
        row_groups: run.row_groups.get(),
        adaptive: run.adaptive_row_groups.then(AdaptiveRowGroups::default),
        policy: run.policy.clone(),
        yield_while_waiting: run.yield_while_waiting,
        submission_limit: run.submission_limit.get(),
        resources: task_resources(file),
        retries: run.retries,
        shutdown_window: run.shutdown_window.get(),
        shutdown_rate: run.shutdown_rate,
        degraded_window: run.degraded_window.get(),
        degraded_rate: run.degraded_rate,
        // Request admission has its own.
        rate_limit_patience: None,
        ..PipelineConfig::default()
    }
}
