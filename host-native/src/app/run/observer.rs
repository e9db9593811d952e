//! Observes a run: its accounts of idle time, its capacity plan, and its event and trace files.

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

/// Observes one run.
#[derive(Debug)]
pub struct RunObserver {
    account: Arc<Mutex<RunAccount>>,
    capacity: CapacityPlan,
    lost_events: Option<Arc<AtomicU64>>,
    warnings: Arc<Mutex<Vec<String>>>,
}

impl RunObserver {
    /// Creates the observer of a run that has not started, for the settings of its pipeline file.
    #[must_use]
    pub fn new(plan: &Plan, config: &PipelineConfig, settings: &RunSettings, gate: &Gate<TokioHost>) -> Self {
        let mut account = RunAccount::new(plan, config);
        let mut capacity = CapacityPlan::of(config);
        gate.with(|machine, now| {
            account.add_all_calls(now, machine);
            capacity.add_calls(now, machine);
        });
        let defaults = RunSettings::default();
        let sources = [
            ("row_group_size", settings.row_group_size == defaults.row_group_size),
            ("row_groups", settings.row_groups == defaults.row_groups),
            ("submission", settings.submission_limit == defaults.submission_limit),
        ];
        let source = |is_default| if is_default { Source::Default } else { Source::File };
        for (name, is_default) in sources {
            capacity.attribute(name, source(is_default), None);
        }
        for (name, value, is_default) in failure_limits(settings, &defaults) {
            capacity.add(name, value, source(is_default));
        }
        capacity.attribute("rows", Source::Derived, None);
        for (name, _) in &config.resources {
            capacity.attribute(&format!("resource:{name}"), Source::Derived, None);
        }
        // The gate limits the number of connections, so the pool has no limit.
        capacity.add("transport.connections", None, Source::Host);
        let (account, warnings) = (Arc::new(Mutex::new(account)), Arc::default());
        Self { account, capacity, lost_events: None, warnings }
    }

    /// Adds the rate budgets of the file's models and the cost limit to the capacity plan.
    #[must_use]
    pub fn with_file(mut self, file: &PipelineFile, max_cost: Option<Money>) -> Self {
        // Models with the same provider, model id and domain share their budgets.
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

    /// Returns the sinks of the run: the account of idle time, and the event file and the trace if requested.
    ///
    /// # Errors
    /// If the event file cannot be created.
    pub fn sinks(&mut self, events: Option<(&Path, &EventNames)>, trace: Option<PerfettoSink>) -> io::Result<Sinks> {
        let mut sinks = Sinks::default();
        let warnings = Arc::clone(&self.warnings);
        sinks.report_to(move |failure| warnings.lock().push(failure.to_string()));
        sinks.add("account", Arc::clone(&self.account));
        if let Some((path, names)) = events {
            let lines = JsonLinesSink::create(path, names)?;
            self.lost_events = Some(lines.lost_lines());
            sinks.add("events", lines);
        }
        if let Some(trace) = trace {
            sinks.add("trace", trace);
        }
        Ok(sinks)
    }

    /// Returns the capacity plan.
    #[must_use]
    pub fn capacity(&self) -> &CapacityPlan {
        &self.capacity
    }

    /// Returns the figures so far.
    #[must_use]
    pub fn figures(&self) -> RunFigures {
        self.account.lock().figures()
    }

    /// Returns the figures of the finished run, and adds the final state to the capacity plan.
    pub fn finish(&mut self, gate: &Gate<TokioHost>) -> RunFigures {
        let figures = self.figures();
        gate.with(|machine, now| self.capacity.close(now, machine, &figures));
        figures
    }

    /// Returns errors of the sinks. They do not affect the run.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.warnings.lock().clone();
        let lost = self.lost_events.as_ref().map_or(0, |lost| lost.load(Ordering::Relaxed));
        if lost > 0 {
            warnings.push(format!("{lost} events were not written: the disk is too slow for them"));
        }
        warnings
    }
}

/// Returns the settings that decide when a run drops a row, warns or stops, each with whether it is the
/// default. A setting without a value never does.
fn failure_limits(settings: &RunSettings, defaults: &RunSettings) -> [(&'static str, Option<u64>, bool); 7] {
    let permille = |share: Option<f64>| share.map(|share| (share * 1_000.0).round() as u64);
    let millis = |span: Option<Duration>| span.map(|span| span.as_nanos() / 1_000_000);
    let count = |number: NonZeroU32| Some(u64::from(number.get()));
    [
        ("retries", Some(u64::from(settings.retries)), settings.retries == defaults.retries),
        ("shutdown_window", count(settings.shutdown_window), settings.shutdown_window == defaults.shutdown_window),
        ("shutdown_rate_permille", permille(settings.shutdown_rate), settings.shutdown_rate == defaults.shutdown_rate),
        ("degraded_window", count(settings.degraded_window), settings.degraded_window == defaults.degraded_window),
        ("degraded_rate_permille", permille(settings.degraded_rate), settings.degraded_rate == defaults.degraded_rate),
        (
            "rate_limit_patience_ms",
            millis(settings.rate_limit_patience),
            settings.rate_limit_patience == defaults.rate_limit_patience,
        ),
        ("outage_patience_ms", millis(settings.outage_patience), settings.outage_patience == defaults.outage_patience),
    ]
}
