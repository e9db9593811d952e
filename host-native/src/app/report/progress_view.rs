//! The progress of a run at one moment, as reporters, reports and metrics show it.

use serde::Serialize;
use tidegate_core::request::HealthState;
use tidegate_core::time::{Duration, Instant};

use crate::app::provider::cost::Money;
use crate::app::render::table::format_seconds;

/// The number of finished tasks from which the remaining time is estimated.
const MIN_TASKS_FOR_ETA: u64 = 20;

/// The progress of a run at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProgressView {
    /// The time since the start of the run, in seconds.
    #[serde(rename = "elapsed_s")]
    pub elapsed: f64,
    /// Complete rows, of earlier runs as well, whether they are written yet or not.
    pub rows_done: u64,
    /// Rows dropped.
    pub rows_dropped: u64,
    /// All rows.
    pub rows_total: u64,
    /// The accepted rows, if the run makes rows until a number of them is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<AcceptedView>,
    /// The cost of this run, with the estimates of calls in flight.
    #[serde(with = "crate::app::provider::cost::text")]
    pub spent: Money,
    /// The cost so far of this run with its currency, and the cost limit if there is one; `None` without
    /// prices.
    #[serde(skip)]
    pub cost: Option<String>,
    /// What this process does of a dataset that several processes fill; `None` if it is alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub together: Option<TogetherView>,
    /// The generated columns.
    pub columns: Vec<ColumnView>,
    /// The providers.
    pub providers: Vec<ProviderView>,
    /// Why slots of the providers were idle since the start. Empty if the reporter does not show it.
    pub why_idle: Vec<IdleView>,
}

/// The idle time of the slots of one provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IdleView {
    /// `provider/model`.
    pub label: String,
    /// The share of its slots' time that was idle, from 0 to 1.
    pub share: f64,
    /// The causes, largest first, each with its part of `share`.
    pub causes: Vec<(String, f64)>,
}

/// The part of this process in a dataset that several processes fill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TogetherView {
    /// Whether the others hold all row groups that are left. This process gets one if another process ends or
    /// is stuck.
    pub waits_for_others: bool,
}

/// The accepted rows of a run that makes rows until a number of them is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AcceptedView {
    /// The accepted rows of complete row groups, of earlier runs as well.
    pub rows: u64,
    /// Those of earlier runs.
    #[serde(skip)]
    pub before: u64,
    /// The rows to accept.
    pub wanted: u64,
}

/// The progress of one generated column.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ColumnView {
    /// The name of the column.
    pub name: String,
    /// The number of tasks of this run.
    pub total: u64,
    /// Tasks that have succeeded or failed.
    pub done: u64,
    /// Tasks that run, or wait for their provider.
    pub in_work: u64,
}

/// The state of one provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProviderView {
    /// `provider/model`.
    pub label: String,
    /// Calls in flight.
    pub in_flight: u32,
    /// The adaptive limit.
    pub limit: u32,
    /// Calls that wait for a slot.
    pub waiting: u32,
    /// Calls that were answered so far.
    pub answered: u64,
    /// Calls that were rate limited so far.
    pub rate_limited: u64,
    /// Calls that failed otherwise so far.
    pub failed: u64,
    /// Input tokens used so far.
    pub input_tokens: u64,
    /// Output tokens used so far.
    pub output_tokens: u64,
    /// Whether it is cooling down.
    pub cooling_down: bool,
    /// A description of the outage, if the provider is not healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage: Option<String>,
    /// The state of its batches, such as `batch in progress 120 of 1000`, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batches: Option<String>,
}

impl ProgressView {
    /// Estimates the remaining time in seconds from the speed so far. Returns `None` until enough tasks have
    /// finished, and if other processes make an unknown part of them.
    #[must_use]
    pub fn eta(&self) -> Option<f64> {
        if self.together.is_some() {
            return None;
        }
        let sum = |of: fn(&ColumnView) -> u64| self.columns.iter().map(of).sum::<u64>();
        let (total, done) = (sum(|column| column.total), sum(|column| column.done));
        if done < MIN_TASKS_FOR_ETA || self.elapsed <= 0.0 {
            return None;
        }
        let time = |left: u64, made: u64| self.elapsed * left as f64 / made as f64;
        let of_all = time(total.saturating_sub(done), done);
        // Such a run ends before it has made all candidates, if enough are accepted.
        let Some(AcceptedView { rows, before, wanted }) = self.accepted else { return Some(of_all) };
        let made = rows.checked_sub(before).filter(|made| *made > 0)?;
        Some(time(wanted.saturating_sub(rows), made).min(of_all))
    }

    /// Returns the rows that are done, as text.
    pub(super) fn rows_text(&self) -> String {
        let Self { rows_done, rows_total, .. } = self;
        match self.accepted {
            None => format!("{rows_done}/{rows_total} rows"),
            Some(AcceptedView { rows, wanted, .. }) => {
                format!("{rows_done}/{rows_total} candidates, {rows} of {wanted} accepted")
            }
        }
    }

    /// Returns why the run makes no calls although rows are left, if that is because of other processes.
    pub(super) fn wait(&self) -> Option<&'static str> {
        let waits = self.together.is_some_and(|together| together.waits_for_others);
        waits.then_some("waits for row groups of other processes")
    }
}

impl ProviderView {
    /// Returns the answered calls per second since the start of the run.
    pub(super) fn rate(&self, elapsed: f64) -> f64 {
        if elapsed > 0.0 { self.answered as f64 / elapsed } else { 0.0 }
    }
}

/// Describes the outage of a provider at `now`, whose latest error was `error`. Returns `None` if it is
/// healthy.
#[must_use]
pub fn outage_text(health: HealthState, now: Instant, error: Option<&str>) -> Option<String> {
    let seconds = |span: Duration| format_seconds(span.as_nanos() as f64 / 1e9);
    let state = match health {
        HealthState::Healthy => return None,
        HealthState::Suspected { .. } => "its latest calls failed".to_string(),
        HealthState::Down { since, probe_at } if probe_at <= now => {
            format!("down for {}, a probe is due", seconds(now - since))
        }
        HealthState::Down { since, probe_at } => {
            format!("down for {}, next probe in {}", seconds(now - since), seconds(probe_at - now))
        }
        HealthState::Probing { since } => format!("down for {}, a probe is in flight", seconds(now - since)),
        HealthState::Unavailable { cause, .. } => return Some(format!("cannot be used: {cause}")),
    };
    Some(match error {
        Some(error) => format!("{state}: {error}"),
        None => state,
    })
}
