//! Tests of a panic in a task: on tokio it stops the run, and the program reports it and exits with 1.

use std::future::{Future, ready};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_core::driver::{self, FatalError, SaveError, Workload};
use tidegate_core::gate::Gate;
use tidegate_core::observe::RunFigures;
use tidegate_core::pipeline::{
    Column, FinishedRowGroup, Pipeline, PipelineConfig, PlanBuilder, RunReport, StopReason, Strategy, Task, TaskOutcome,
};
use tidegate_core::request::{Domain, Request, RequestAdmission, RequestConfig, ResourceId};
use tidegate_native::app::config::pipeline::{PipelineFile, SourceText};
use tidegate_native::app::data::row_file::{ParquetCompression, RowFormat};
use tidegate_native::app::data::{Dataset, DatasetFormat};
use tidegate_native::app::error::Exit;
use tidegate_native::app::output::{
    DirectoryLock, DoneRowGroups, ExistingOutput, Identity, JobTotals, MANIFEST_SCHEMA, Manifest, OutputDirectory,
    OutputSpec, RunState,
};
use tidegate_native::app::provider::cost::Ledger;
use tidegate_native::app::run::exit_status::{RunEnd, summarise};
use tidegate_native::app::run::models::{Models, task_resources};
use tidegate_native::app::run::resolve::ResolvedPipeline;
use tidegate_native::app::run::workload::PipelineWorkload;
use tidegate_native::host::TokioHost;
use tokio::runtime::{Builder, Runtime};

/// A workload whose tasks hold a permit. The third task with a permit panics, the later ones never end.
struct PanickingWorkload {
    gate: Gate<TokioHost>,
    resource: ResourceId,
    save_panics: bool,
    admitted: Arc<AtomicUsize>,
}

impl Workload for PanickingWorkload {
    type Work = Pin<Box<dyn Future<Output = Result<TaskOutcome, FatalError>> + Send>>;
    type Save = std::future::Ready<Result<(), SaveError>>;

    fn work(&self, _: Task) -> Self::Work {
        let (gate, resource, breaks) = (self.gate.clone(), self.resource, !self.save_panics);
        let admitted = Arc::clone(&self.admitted);
        Box::pin(async move {
            let _permit = gate.acquire(Request::new(resource)).await;
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            match admitted.fetch_add(1, Ordering::Relaxed) {
                _ if !breaks => Ok(TaskOutcome::Success),
                // `resume_unwind` does not call the panic hook, so the test prints nothing.
                2 => std::panic::resume_unwind(Box::new("index 2 is out of range")),
                _ => std::future::pending().await,
            }
        })
    }

    fn checkpoint(&self, _: FinishedRowGroup) -> Self::Save {
        if self.save_panics {
            std::panic::resume_unwind(Box::new("the disk is gone"));
        }
        ready(Ok(()))
    }
}

fn runtimes() -> [Runtime; 2] {
    [
        Builder::new_current_thread().enable_all().build().unwrap(),
        Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
    ]
}

/// Runs eight rows. Returns the report, and the number of permits and waiters that remain.
async fn run_panicking(save_panics: bool) -> (RunReport, (usize, usize)) {
    let host = TokioHost::current().unwrap();
    let gate = Gate::new(host.clone(), RequestAdmission::new(RequestConfig::default()).unwrap());
    let resource = gate.with(|machine, now| {
        let model = machine.register(now, "provider", "model", "alias", 5).unwrap();
        machine.resource(model, Domain::Chat).expect("a known model")
    });
    let plan = PlanBuilder::new().column(Column::new("title", Strategy::Cell)).build().unwrap();
    let pipeline = Pipeline::new(plan, PipelineConfig { rows: 8, ..PipelineConfig::default() }).unwrap();
    let work = Arc::new(PanickingWorkload { gate: gate.clone(), resource, save_panics, admitted: Arc::default() });
    let report = driver::run(host, pipeline, work).await;
    (report, gate.with(|machine, _| (machine.active_leases(), machine.waiting())))
}

#[test]
fn a_panic_in_a_worker_ends_the_run_with_its_message_and_releases_all_permits() {
    for runtime in runtimes() {
        let (report, left) = runtime.block_on(run_panicking(false));
        let StopReason::Fatal { column, row_group, cause } = &report.stop else { panic!("{:?}", report.stop) };
        assert_eq!((report.columns[column.index()].name.as_str(), *row_group), ("title", 0));
        assert_eq!(cause, "a task panicked: index 2 is out of range");
        let tasks = &report.columns[0].tasks;
        assert_eq!((tasks.spawned, tasks.ended(), tasks.fatal), (8, 8, 1));
        assert_eq!((left, report.rows_out, report.rows_unmade), ((0, 0), 0, 8));
    }
}

#[test]
fn a_panic_in_a_checkpoint_ends_the_run_with_its_message() {
    for runtime in runtimes() {
        let (report, left) = runtime.block_on(run_panicking(true));
        let why = "saving panicked: the disk is gone".to_string();
        assert_eq!((report.stop, left), (StopReason::CheckpointFailed { row_group: 0, why }, (0, 0)));
    }
}

const PIPELINE: &str = "[seed]\npath = \"d.csv\"\n\
     [[models]]\nname = \"m\"\nprovider = \"mock\"\nmax_parallel = 2\nmock = {}\n\
     [[columns]]\nname = \"title\"\nmodel = \"m\"\nprompt = \"A title for {{ note }}\"\n";

/// The workload is built without a required part, which simulates a bug.
#[tokio::test]
async fn the_summary_after_a_panic_names_column_row_group_and_cause_and_the_program_exits_1() {
    let scratch = tempfile::tempdir().unwrap();
    let file = PipelineFile::parse(SourceText::new("p.toml", PIPELINE), Path::new("")).unwrap();
    let dataset = Dataset::parse(Path::new("d.csv"), b"id,note\n1,x\n2,y\n", DatasetFormat::Csv).unwrap();
    let host = TokioHost::current().unwrap();
    let models = Models::start(&file, &host, &RequestConfig::default(), None, Ledger::default(), None).await.unwrap();
    let resolved = ResolvedPipeline::resolve(&file, dataset).unwrap();
    let manifest = Manifest {
        schema: MANIFEST_SCHEMA,
        program: String::new(),
        pipeline: "p.toml".to_string(),
        row_key: resolved.row_key.clone(),
        columns: resolved.output_columns(),
        types: Vec::new(),
        rows_in: 2,
        wanted: None,
        row_group_size: 2,
        first_row: 0,
        partition: None,
        format: RowFormat::Jsonl,
        identity: Identity::default(),
        exports: std::collections::BTreeSet::new(),
        done: DoneRowGroups::default(),
        totals: JobTotals::default(),
        state: RunState::Running,
    };
    let layout = resolved.layout(RowFormat::Jsonl, ParquetCompression::default());
    let spec = OutputSpec { manifest, layout, keeps_parts: true, retry_dropped: None, dataset: None };
    let claim = DirectoryLock::acquire(&scratch.path().join("out"), ExistingOutput::Refuse).unwrap();
    let output = OutputDirectory::prepare(claim, &spec).unwrap();
    let output = Arc::new(output);
    let config = PipelineConfig { rows: 2, resources: task_resources(&file), ..PipelineConfig::default() };
    let pipeline = Pipeline::new(resolved.plan.clone(), config).unwrap();
    let work = Arc::new(PipelineWorkload::new(resolved, vec![None], Arc::clone(&output), false));
    let report = Some(driver::run(host, pipeline, Arc::clone(&work)).await);
    let end = RunEnd { report, wall: std::time::Duration::ZERO, figures: RunFigures::default() };

    let summary = summarise("p.toml", &file, 2, &end, &models, &work, &output);
    assert_eq!((summary.exit, summary.rows_out), (Exit::Internal, 0));
    let first = summary.to_string().lines().next().unwrap().to_string();
    let why = "a bug in column `title` of row group 0: the column `title` has no model to call";
    assert_eq!(first, format!("p.toml: stopped: {why}"));
}
