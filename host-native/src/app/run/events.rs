//! Watching one run of the program.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_core::budget::BudgetConfig;
use tidegate_core::gate::Gate;
use tidegate_core::observe::{CapacityPlan, RunAccount, RunFigures, Sinks, Source};
use tidegate_core::pipeline::{PipelineConfig, Plan};
use tidegate_core::time::Duration;

use crate::app::config::pipeline::{PipelineFile, RunSettings, budget_name};
use crate::app::provider::cost::Money;
use crate::host::TokioHost;
use crate::observe::jsonl::{EventNames, JsonLinesSink};
use crate::observe::perfetto::PerfettoSink;

/// Watches one run of the program.
#[derive(Debug)]
pub struct Watch {
    account: Arc<Mutex<RunAccount>>,
    capacity: CapacityPlan,
    lost: Option<Arc<AtomicU64>>,
    complaints: Arc<Mutex<Vec<String>>>,
}

impl Watch {
    /// Watches a run that has not begun, of settings as the pipeline file has them.
    #[must_use]
    pub fn new(plan: &Plan, config: &PipelineConfig, settings: &RunSettings, gate: &Gate<TokioHost>) -> Self {
        let mut account = RunAccount::new(plan, config);
        let mut capacity = CapacityPlan::of(config);
        gate.with(|machine, now| {
            account.add_all_calls(now, machine);
            capacity.add_calls(now, machine);
        });
        let usual = RunSettings::default();
        let sources = [
            ("row_group_size", settings.row_group_size == usual.row_group_size),
            ("row_groups", settings.row_groups == usual.row_groups),
            ("submission", settings.submission_limit == usual.submission_limit),
        ];
        let source = |is_usual| if is_usual { Source::Default } else { Source::File };
        for (name, is_usual) in sources {
            capacity.attribute(name, source(is_usual), None);
        }
        for (name, value, is_usual) in patience(settings, &usual) {
            capacity.add(name, value, source(is_usual));
        }
        capacity.attribute("rows", Source::Derived, None);
        for (name, _) in &config.resources {
            capacity.attribute(&format!("resource:{name}"), Source::Derived, None);
        }
        // Connections are opened as calls need them: the gate bounds those, not the pool.
        capacity.add("transport.connections", None, Source::Host);
        let (account, complaints) = (Arc::new(Mutex::new(account)), Arc::default());
        Self { account, capacity, lost: None, complaints }
    }

    /// Adds what only the pipeline file says: the rate budgets of its models, and a cost limit in millionths of the
    /// currency.
    #[must_use]
    pub fn with_file(mut self, file: &PipelineFile, max_cost: Option<Money>) -> Self {
        // Models that share a provider, model id and domain share its budgets.
        let budgets = file.models.iter().flat_map(|model| {
            let name = move |budget: &BudgetConfig| format!("budget:{}:{}", model.label(), budget_name(budget));
            model.budgets.iter().map(move |budget| (name(budget), budget.limit))
        });
        for model in &file.models {
            let source = if model.is_limit_given { Source::File } else { Source::Default };
            let resource = format!("{}/{}/{}", model.provider, model.model, model.domain.name());
            self.capacity.attribute_algorithm(&resource, source);
        }
        for (name, limit) in budgets.collect::<BTreeMap<_, _>>() {
            self.capacity.add(&name, Some(limit), Source::File);
        }
        if let Some(limit) = max_cost {
            self.capacity.add(&format!("max_cost_micro_{}", file.currency), Some(limit.micros()), Source::CommandLine);
        }
        self
    }

    /// The sinks for the run, with a file for its events if there is to be one, and a trace of it.
    pub fn sinks(&mut self, events: Option<(&Path, &EventNames)>, trace: Option<PerfettoSink>) -> io::Result<Sinks> {
        let mut sinks = Sinks::default();
        let complaints = Arc::clone(&self.complaints);
        sinks.report_to(move |failure| complaints.lock().push(failure.to_string()));
        sinks.add("account", Arc::clone(&self.account));
        if let Some((path, names)) = events {
            let lines = JsonLinesSink::create(path, names)?;
            self.lost = Some(lines.lost_lines());
            sinks.add("events", lines);
        }
        if let Some(trace) = trace {
            sinks.add("trace", trace);
        }
        Ok(sinks)
    }

    /// The capacity values that apply.
    #[must_use]
    pub fn capacity(&self) -> &CapacityPlan {
        &self.capacity
    }

    /// The run is over: what it came to, and the capacity values with how things stand.
    pub fn close(&mut self, gate: &Gate<TokioHost>) -> RunFigures {
        let figures = self.account.lock().figures();
        gate.with(|machine, now| self.capacity.close(now, machine, &figures));
        figures
    }

    /// What went wrong with the telling. The run itself was not disturbed.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = self.complaints.lock().clone();
        let lost = self.lost.as_ref().map_or(0, |lost| lost.load(Ordering::Relaxed));
        if lost > 0 {
            complaints.push(format!("{lost} events were not written: the disk is too slow for them"));
        }
        complaints
    }
}

/// How much a run bears before it gives up a row, warns, or stops; each with whether it is the default.
/// Without a value it never does.
fn patience(settings: &RunSettings, usual: &RunSettings) -> [(&'static str, Option<u64>, bool); 7] {
    let permille = |share: Option<f64>| share.map(|share| (share * 1_000.0).round() as u64);
    let millis = |span: Option<Duration>| span.map(|span| span.as_nanos() / 1_000_000);
    let count = |number: NonZeroU32| Some(u64::from(number.get()));
    [
        ("retries", Some(u64::from(settings.retries)), settings.retries == usual.retries),
        ("shutdown_window", count(settings.shutdown_window), settings.shutdown_window == usual.shutdown_window),
        ("shutdown_rate_permille", permille(settings.shutdown_rate), settings.shutdown_rate == usual.shutdown_rate),
        ("degraded_window", count(settings.degraded_window), settings.degraded_window == usual.degraded_window),
        ("degraded_rate_permille", permille(settings.degraded_rate), settings.degraded_rate == usual.degraded_rate),
        (
            "rate_limit_patience_ms",
            millis(settings.rate_limit_patience),
            settings.rate_limit_patience == usual.rate_limit_patience,
        ),
        ("outage_patience_ms", millis(settings.outage_patience), settings.outage_patience == usual.outage_patience),
    ]
}
