//! `tidegate run`: from a pipeline file to finished rows on disk.
//!
//! Everything that can be wrong with the input is found before the output directory is touched and the first call is
//! made ([`preflight`]); then the plan and the limits.

pub mod buffer;
pub mod columns;
pub mod comparison;
pub mod dry_run;
pub mod estimate;
pub mod events;
pub mod exit_status;
pub mod models;
pub mod preflight;
pub mod provider;
pub mod request;
pub mod resolve;
pub mod workload;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::iter;
use std::ops::Range;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use tidegate_core::driver::{self, Progress, RunHandle};
use tidegate_core::observe::{RunFigures, Sinks};
use tidegate_core::pipeline::{AdaptiveRowGroups, Pipeline, PipelineConfig, Strategy, TaskCounts};
use tidegate_core::replay::{Header, Recorded, Sequence, merge};
use tidegate_core::request::{HealthConfig, RequestConfig};
use tokio::task::JoinHandle;

use crate::app::config::pipeline::{ColumnKind, Endpoint, ModelSpec, PipelineFile};
use crate::app::data::DatasetError;
use crate::app::error::{Error, Exit};
use crate::app::example;
use crate::app::interrupt::{Interrupts, StopSignal};
use crate::app::output::{
    Claim, DoneRowGroups, Earlier, Existing, FilePlace, Identity, JobTotals, MANIFEST_SCHEMA, Manifest,
    OutputDirectory, OutputError, OutputSpec, RunState, hash, keep_earlier,
};
use crate::app::provider::cost::{Ledger, Withheld};
use crate::app::replay::LogWriter;
use crate::app::report::progress::{ColumnView, ProviderView, REFRESH, Screen, View, outage_text};
use crate::app::report::summary::Summary;
use crate::app::report::{Timeline, page};
use crate::app::run::columns::Caller;
use crate::app::run::comparison::compare;
use crate::app::run::exit_status::{Ending, summarise, usage};
use crate::app::run::models::{Models, called, task_resources};
use crate::app::run::preflight::{Preflight, Ready};
use crate::app::run::provider::Provider;
use crate::app::run::request::RunRequest;
use crate::app::run::resolve::{GeneratedColumn, Job};
use crate::app::run::workload::{DATASET_NAME, JobWork, Written};
use crate::gate::random_seed;
use crate::host::TokioHost;
use crate::observe::jsonl::{EventNames, ResourceName};
use crate::observe::perfetto::PerfettoSink;
use events::Watch;

/// Runs to the end, showing progress on `screen`.
///
/// An error means that nothing was run; a run that was stopped is a summary that says so.
pub async fn run(request: &RunRequest, screen: &mut Screen) -> Result<Summary, Error> {
    let Ready { name, file, mut job, .. } = Preflight::of(request)?.ready()?;
    let host = TokioHost::current().map_err(|error| Error::Internal(error.to_string()))?;
    let sequence = request.record.as_ref().map(|_| Sequence::default());
    let requests = request_config(&file);
    let models = Models::start(&file, &host, &requests, sequence.as_ref(), Ledger::new(request.max_cost)).await?;
    let callers = callers(&file, &job, &models)?;
    let rows = job.rows.end - job.rows.start;
    let config = pipeline_config(&file, rows);
    // Whatever is wrong with the settings shows before the output is touched.
    Pipeline::new(job.plan.clone(), config.clone()).map_err(|error| Error::Setting(error.to_string()))?;
    let spec = output_spec(request, manifest(&name, &file, &job, request.pipeline.is_none())?, &file, &job);
    let (output, place) = claim(request, &spec)?;
    let output = Arc::new(output);
    let has_prices = file.models.iter().any(|model| model.price.is_some());
    let amount_file = has_prices.then(|| output.amount_file()).transpose()?;
    models.ledger().lock().carry(output.used().spent, amount_file);
    job.pass_over(output.done().iter(), file.run.row_group_size.get());
    let (done_row_groups, missing_rows) = (output.done().iter().collect(), output.missing().to_vec());
    // The jitter of a run's retries differs from that of another, like that of its outages.
    let number = requests.health.map_or(0, |health| health.seed as u32);
    let config = PipelineConfig { done_row_groups, missing_rows, run: number, ..config };
    let watch = Watch::new(&job.plan, &config, &file.run, models.gate());
    let mut watch = watch.with_file(&file, request.max_cost);
    let header = Header::new(&job.plan, &config, &requests);
    let pipeline = Pipeline::new(job.plan.clone(), config).map_err(|error| Error::Setting(error.to_string()))?;
    let mut pipeline = Recorded::new(pipeline);
    if let Some(sequence) = &sequence {
        pipeline.start_recording(sequence);
    }
    let log = place.map(|place| LogWriter::begin(place, &header).map_err(|error| Error::Setting(error.to_string())));
    let mut log = log.transpose()?;
    let sinks = sinks(request, &job, &file, &models, &mut watch)?;
    if request.plan {
        // A reader that went away is no reason not to run.
        let _ = writeln!(io::stdout(), "{}", watch.capacity());
    }
    let columns = task_totals(&job, &output, &spec.manifest);
    let count = columns.len();
    screen.say(&format!("{name}: {rows} rows, {count} columns to fill, output in {}", request.out.display()));
    let earlier = output.earlier();
    if earlier != Earlier::default() {
        let Earlier { rows_out, rows_dropped, .. } = earlier;
        screen.say(&format!("resumed: {rows_out} rows are there already, and {rows_dropped} stay dropped"));
    }

    let is_whole_example = request.pipeline.is_none() && earlier == Earlier::default();
    let comparison = is_whole_example.then(|| compare(&file, &job)).flatten();
    let work = Arc::new(JobWork::new(job, callers, Arc::clone(&output)));
    let calls = if file.run.pressure_advisory { models.calls() } else { Vec::new() };
    let calls: Vec<_> = calls.iter().map(|(name, resource)| (name.as_str(), *resource)).collect();
    let run = driver::run_through(pipeline, Arc::clone(&work), models.gate(), &calls).with_sinks(sinks);
    let watched = Watched { work: &work, columns: &columns, models: &models, output: &output };
    let mut timeline = Timeline::default();
    let ended = drive(run, &watched, &mut log, screen, &mut timeline).await?;
    let ending = Ending { figures: watch.close(models.gate()), ..ended };
    let mut summary = summarise(&name, &file, rows, &ending, &models, &work, &output);
    summary.comparison = comparison.filter(|_| summary.exit == Exit::Done);
    summary.retry = (summary.rows_dropped() > 0).then(|| retry_command(request));
    watch.complaints().iter().for_each(|complaint| screen.say(complaint));
    // The rows are on disk, whatever becomes of what is written about them.
    let report = request.report.as_ref().map_or(Ok(()), |path| {
        let earlier = if request.existing == Existing::Resume { keep_earlier(path) } else { Ok(()) };
        let written = earlier.and_then(|()| std::fs::write(path, page(&summary, &timeline, watch.capacity())));
        written.map_err(|source| OutputError::Io { path: path.clone(), source })
    });
    let written = work.written();
    let closed = close(&output, &summary, &written, &usage(&models), &watch);
    for error in [closed, report].into_iter().filter_map(Result::err) {
        screen.say(&format!("error: {error}"));
        summary.exit = Exit::Output;
        summary.stopped.get_or_insert_with(|| error.to_string());
    }
    Ok(summary)
}

/// The output directory and the place of the decision log, once every file that is asked for can be written; or nothing, and
/// everything is as it was.
fn claim(request: &RunRequest, spec: &OutputSpec) -> Result<(OutputDirectory, Option<FilePlace>), Error> {
    let RunRequest { record, events, trace, report, .. } = request;
    // Before anything else, so that of two runs of one command the second touches nothing of the first.
    let claim = Claim::new(&request.out, request.existing)?;
    let mut places = Vec::new();
    let opened = [record, events, trace, report].into_iter().flatten().try_for_each(|path| {
        places.push(FilePlace::open(path).map_err(|source| OutputError::Io { path: path.clone(), source })?);
        Ok(())
    });
    let prepared = match opened {
        Ok(()) => OutputDirectory::prepare(claim, spec),
        Err(error) => {
            claim.give_up();
            Err(error)
        }
    };
    match prepared {
        Ok(output) => Ok((output, record.is_some().then(|| places.swap_remove(0)))),
        Err(error) => {
            places.into_iter().for_each(FilePlace::give_up);
            Err(error.into())
        }
    }
}

/// What the job writes, and how.
fn output_spec(request: &RunRequest, manifest: Manifest, file: &PipelineFile, job: &Job) -> OutputSpec {
    OutputSpec {
        manifest,
        layout: job.layout(file.output.format),
        keeps_parts: job.plan.keeps_parts(),
        retry_dropped: request.retry_dropped.clone(),
        dataset: (file.seed.format.is_text() && request.pipeline.is_some()).then(|| file.seed.path.clone()),
    }
}

/// The command that makes the dropped rows of the job again.
fn retry_command(request: &RunRequest) -> String {
    let RunRequest { pipeline, out, rows, limit, max_cost, .. } = request;
    let mut words = vec!["tidegate".to_string(), "run".to_string()];
    words.extend(pipeline.as_ref().map(|path| path.display().to_string()));
    words.extend(["--out".to_string(), out.display().to_string()]);
    if let Some(Range { start, end }) = rows {
        let end = if *end == u64::MAX { String::new() } else { end.to_string() };
        words.extend(["--rows".to_string(), format!("{start}..{end}")]);
    }
    words.extend(limit.iter().flat_map(|limit| ["--limit".to_string(), limit.to_string()]));
    words.extend(max_cost.iter().flat_map(|most| ["--max-cost".to_string(), most.exact()]));
    words.extend(["--resume".to_string(), "--retry-dropped".to_string()]);
    // No word of a command line has a NUL, which alone cannot be quoted.
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default()
}

/// The generated columns, each with the tasks that no earlier run has done.
fn task_totals(job: &Job, output: &OutputDirectory, manifest: &Manifest) -> Vec<(String, u64)> {
    let earlier = output.earlier();
    let rows = manifest.rows_in.saturating_sub(earlier.rows_out + earlier.rows_dropped);
    let row_groups = manifest.row_groups().saturating_sub(earlier.row_groups);
    let tasks = |column: &GeneratedColumn| match column.strategy {
        Strategy::Cell => rows,
        Strategy::FullColumn | Strategy::FromScratch => row_groups,
    };
    job.columns.iter().map(|column| (column.name.clone(), tasks(column))).collect()
}

/// Writes down what the run came to, with those before it, and what it has used.
fn close(
    output: &OutputDirectory,
    summary: &Summary,
    written: &Written,
    used: &JobTotals,
    watch: &Watch,
) -> Result<(), OutputError> {
    let earlier = output.remaining();
    let state = RunState::Ended {
        reason: summary.stopped.clone().unwrap_or_else(|| "completed".to_string()),
        rows_out: written.rows + earlier.rows_out,
        rows_dropped: written.rows_dropped() + earlier.rows_dropped,
        row_groups: written.row_groups + earlier.row_groups,
    };
    let closed = output.close(state, used);
    output.write_capacity(watch.capacity()).and(closed)
}

/// Who hears the events of the run.
fn sinks(
    request: &RunRequest,
    job: &Job,
    file: &PipelineFile,
    models: &Models,
    watch: &mut Watch,
) -> Result<Sinks, Error> {
    let unwritable =
        |path: &Option<PathBuf>, source| OutputError::Io { path: path.clone().unwrap_or_default(), source };
    let generated = job.columns.iter().map(|column| column.name.as_str());
    let names = EventNames {
        // The first column of the plan is the dataset.
        columns: iter::once(DATASET_NAME).chain(generated).map(str::to_string).collect(),
        resources: models.resource_names(),
        first_row: job.rows.start,
        row_group_size: file.run.row_group_size.get(),
    };
    let resources: Vec<_> = names.resources.iter().map(ResourceName::traced).collect();
    let trace = request.trace.as_deref().map(|path| PerfettoSink::create(path, &job.plan, &resources)).transpose();
    let trace = trace.map_err(|source| unwritable(&request.trace, source))?;
    let events = request.events.as_deref().map(|path| (path, &names));
    Ok(watch.sinks(events, trace).map_err(|source| unwritable(&request.events, source))?)
}

/// How each generated column calls its model.
fn callers(file: &PipelineFile, job: &Job, models: &Models) -> Result<Vec<Option<Caller>>, Error> {
    let caller = |(column, spec): (&GeneratedColumn, &crate::app::config::pipeline::ColumnSpec)| {
        let Some(model) = spec.kind.model() else { return Ok(None) };
        let refused = |error: &dyn std::fmt::Display| file.source.error(spec.weight.span(), error.to_string());
        let group = models.group(&column.name, column.weight).map_err(|error| refused(&error))?;
        let (provider, client) = models.caller(model);
        Ok(Some(Caller { provider, client, group }))
    };
    job.columns.iter().zip(&file.columns).map(caller).collect()
}

/// The settings of the calls of a run.
fn request_config(file: &PipelineFile) -> RequestConfig {
    let (run, seed) = (&file.run, random_seed());
    let (patience, rate_limit_patience) = (run.outage_patience, run.rate_limit_patience);
    // What a person has to mend is not called again.
    let health = HealthConfig { patience, rate_limit_patience, recheck: None, seed, ..HealthConfig::default() };
    RequestConfig { health: Some(health), rate_limit_headers: run.rate_limit_headers, ..RequestConfig::default() }
}

/// The settings of a run of `rows` rows.
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
        // The gate has it.
        rate_limit_patience: None,
        ..PipelineConfig::default()
    }
}

fn manifest(name: &str, file: &PipelineFile, job: &Job, is_example: bool) -> Result<Manifest, Error> {
    Ok(Manifest {
        schema: MANIFEST_SCHEMA,
        program: concat!("tidegate ", env!("CARGO_PKG_VERSION")).to_string(),
        pipeline: name.to_string(),
        row_key: job.row_key.clone(),
        columns: job.output_columns(),
        types: if file.output.format.is_typed() { job.output_types() } else { Vec::new() },
        rows_in: job.rows.end - job.rows.start,
        row_group_size: file.run.row_group_size.get(),
        first_row: job.rows.start,
        format: file.output.format,
        identity: identity(file, is_example)?,
        done: DoneRowGroups::default(),
        totals: JobTotals::default(),
        state: RunState::Running,
    })
}

/// What a model is to the rows that it fills: `provider/model`, or a hash of its command or address, which
/// may hold a secret.
fn model_identity(model: &ModelSpec) -> io::Result<String> {
    let ModelSpec { provider, model: id, endpoint, .. } = model;
    let hashed = |text: String| hash(text.as_bytes()).map(|(hash, _)| hash);
    match endpoint {
        Endpoint::Command { argv, .. } => hashed(format!("{argv:?}")),
        Endpoint::Http { url, .. } => hashed(url.to_string()),
        Endpoint::Remote { .. } | Endpoint::Mock(_) | Endpoint::SameMock => Ok(format!("{provider}/{id}")),
    }
}

/// What the rows of a run depend on.
fn identity(file: &PipelineFile, is_example: bool) -> Result<Identity, Error> {
    // Sorted, so that the order of keys and the layout of the file do not matter.
    let document: toml::Table =
        toml::from_str(file.source.text()).map_err(|error| Error::Internal(error.to_string()))?;
    let tables = document.get("columns").and_then(toml::Value::as_array).map_or(&[][..], Vec::as_slice);
    let unreadable = |error: io::Error| Error::from(DatasetError::unreadable(&file.seed.path, &error));
    let mut columns = BTreeMap::new();
    for (place, (column, table)) in file.columns.iter().zip(tables).enumerate() {
        // A schema may stand in a file of its own.
        let schema = match &column.kind {
            ColumnKind::Llm(call) => call.structure.as_ref().and_then(|structure| structure.schema.as_ref()),
            _ => None,
        };
        let schema = schema.map_or(String::new(), |schema| schema.get_ref().to_string());
        let (hash, _) = hash(format!("{place}\n{table}\n{schema}").as_bytes()).map_err(unreadable)?;
        columns.insert(column.name.get_ref().clone(), hash);
    }
    // Those that columns call, and of a judge what it is.
    let models =
        called(file).into_iter().map(|at| Ok((file.models[at].name.clone(), model_identity(&file.models[at])?)));
    let models = models.collect::<io::Result<_>>().map_err(unreadable)?;
    let hashed = if is_example {
        hash(example::dataset_bytes())
    } else {
        hash(File::open(&file.seed.path).map_err(unreadable)?)
    };
    let (dataset, dataset_bytes) = hashed.map_err(unreadable)?;
    Ok(Identity { dataset, dataset_bytes, seed: file.run.seed, columns, models })
}

/// What there is to see while a run goes on.
struct Watched<'a> {
    work: &'a JobWork,
    /// The generated columns with the tasks that they take.
    columns: &'a [(String, u64)],
    models: &'a Models,
    output: &'a Arc<OutputDirectory>,
}

/// Writes what the machines have taken down. A log that cannot be written is given up, and the run goes on.
fn take_down(log: &mut Option<LogWriter>, run: &RunHandle<TokioHost>, models: &Models, screen: &mut Screen) {
    let Some(writer) = log else { return };
    let requests = models.gate().with(|machine, _| machine.take_commands());
    if let Err(error) = writer.write(merge(run.take_commands(), requests)) {
        screen.say(&error);
        *log = None;
    }
}

/// Awaits the end of `run`. A person's first signal winds it down: what was paid for is kept. A program's drains it: the calls that are out
/// end, whatever pause their providers are in. The second signal waits for neither; what was not finished is made anew by a resumed run.
async fn drive(
    run: driver::PipelineRun<TokioHost, JobWork>,
    watched: &Watched<'_>,
    log: &mut Option<LogWriter>,
    screen: &mut Screen,
    timeline: &mut Timeline,
) -> Result<Ending, Error> {
    let Watched { work, models, output, .. } = watched;
    let mut interrupts = Interrupts::listen().map_err(|error| Error::Internal(error.to_string()))?;
    let mut run = pin!(run);
    let handle = run.handle();
    let mut refresh = tokio::time::interval(REFRESH);
    let began = std::time::Instant::now();
    let (mut interrupted, mut told) = (false, false);
    let mut keeping = None;
    let report = loop {
        tokio::select! {
            report = &mut run => break Some(report),
            _ = refresh.tick() => {
                work.take_warnings().iter().for_each(|warning| screen.say(warning));
                let view = view(&handle.progress(), began.elapsed(), watched);
                screen.show(&view);
                timeline.sample(&view);
                take_down(log, &handle, models, screen);
                let withheld = models.ledger().lock().withheld().filter(|_| !told).cloned();
                if let Some(withheld) = withheld {
                    told = true;
                    let why = match withheld {
                        Withheld::CostLimit(_) => "the next call might pass the cost limit".to_string(),
                        Withheld::Unwritable(why) => why,
                    };
                    screen.say(&format!("{why}: no other goes out, those that are out are awaited"));
                }
                if keeping.as_ref().is_none_or(JoinHandle::is_finished) {
                    let (output, used) = (Arc::clone(output), usage(models));
                    keeping = Some(tokio::task::spawn_blocking(move || output.keep_usage(&used)));
                }
            }
            signal = interrupts.next() => {
                if interrupted {
                    break None;
                }
                interrupted = true;
                // What is said is true by then.
                match signal {
                    StopSignal::Interrupt => {
                        handle.wind_down();
                        screen.say("interrupted: finishing the row groups in work, beginning no other (once more to stop at once)");
                    }
                    StopSignal::Terminate => {
                        handle.drain();
                        screen.say("terminated: awaiting the calls that are out, making no other (once more to stop at once)");
                    }
                }
            }
        }
    };
    if let Some(keeping) = keeping {
        // What could not be written now is written, or refused, when the run is closed.
        let _ = keeping.await;
    }
    work.take_warnings().iter().for_each(|warning| screen.say(warning));
    timeline.finish(view(&handle.progress(), began.elapsed(), watched));
    take_down(log, &handle, models, screen);
    if let (Some(log), true) = (log.take(), report.is_some()) {
        let digests = (handle.decision_digest(), models.gate().with(|machine, _| machine.decision_digest()));
        log.finish(digests).unwrap_or_else(|error| screen.say(&error));
    }
    Ok(Ending { report, interrupted, wall: began.elapsed(), figures: RunFigures::default() })
}

/// What there is to see now, `elapsed` after the run began.
fn view(progress: &Progress, elapsed: StdDuration, &Watched { columns, models, .. }: &Watched<'_>) -> View {
    let provider = |provider: &Arc<Provider>| {
        let (snapshot, calls) = (provider.snapshot(), provider.calls());
        ProviderView {
            label: provider.label.clone(),
            in_flight: snapshot.in_flight,
            limit: snapshot.current_limit,
            waiting: snapshot.waiters,
            answered: calls.succeeded,
            rate_limited: calls.rate_limited,
            cooling_down: snapshot.blocked_until.is_some_and(|until| until > snapshot.at),
            outage: outage_text(snapshot.health, snapshot.at),
        }
    };
    let column = |((name, total), tasks): (&(String, u64), &TaskCounts)| ColumnView {
        name: name.clone(),
        total: *total,
        done: tasks.succeeded + tasks.skipped + tasks.skipped_with_upstream + tasks.failed,
        in_work: tasks.spawned - tasks.ended(),
    };
    View {
        rows_done: progress.rows_done,
        rows_dropped: progress.rows_dropped,
        rows_total: progress.rows_total,
        elapsed: elapsed.as_secs_f64(),
        // The first column of the plan is the dataset.
        columns: columns.iter().zip(progress.columns.iter().skip(1)).map(column).collect(),
        providers: models.providers().iter().map(provider).collect(),
    }
}
