//! `--metrics ADDRESS`: the progress of a run over HTTP, in the text format of Prometheus.
//!
//! The names of the metrics of providers are those of `tidegate proxy`. Label values are the names of the
//! pipeline file. The page ends with the run.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::app::error::Error;
use crate::app::openmetrics::{self, ShareGauges};
use crate::app::report::progress_view::ProgressView;
use crate::share::ShareStatus;

/// The metrics page of a run. It is closed when this is dropped.
#[derive(Debug)]
pub(super) struct MetricsServer {
    view: watch::Sender<(ProgressView, Vec<ShareStatus>)>,
    address: SocketAddr,
    _server: JoinSet<()>,
}

impl MetricsServer {
    /// Serves `http://{address}/metrics`. Port 0 selects a free port.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub(super) async fn start(address: SocketAddr) -> Result<Self, Error> {
        let cannot = |error: std::io::Error| Error::Setting(format!("--metrics {address}: cannot listen: {error}"));
        let listener = TcpListener::bind(address).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let (view, seen) = watch::channel((ProgressView::default(), Vec::new()));
        let page = move || {
            let (view, shares) = &*seen.borrow();
            let text = metrics_text(view, shares);
            async move { response(text) }
        };
        let router = Router::new().route("/metrics", get(page));
        let mut server = JoinSet::new();
        server.spawn(async move {
            // It only ends with an error of the listener; the run goes on without its metrics then.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { view, address, _server: server })
    }

    /// Returns the address that it listens on.
    #[must_use]
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces what the page shows.
    pub(super) fn publish(&self, view: ProgressView, shares: Vec<ShareStatus>) {
        self.view.send_replace((view, shares));
    }
}

fn response(text: Result<String, fmt::Error>) -> Response {
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, openmetrics::CONTENT_TYPE)], text).into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, openmetrics::CANNOT_ENCODE).into_response(),
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ColumnLabel {
    column: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    provider: String,
    model: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShareLabels {
    provider: String,
    model: String,
    domain: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    provider: String,
    model: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    provider: String,
    model: String,
    direction: &'static str,
}

/// Encodes the metrics of a run in this state. They are made anew each time: a page is read every few
/// seconds.
fn metrics_text(view: &ProgressView, shares: &[ShareStatus]) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("tidegate");
    let rows = Family::<StateLabel, Counter>::default();
    registry.register("rows", "Rows that are complete or dropped", rows.clone());
    let set = |counter: &Counter, value| counter.inner().store(value, Ordering::Relaxed);
    set(&rows.get_or_create(&StateLabel { state: "complete" }), view.rows_done);
    set(&rows.get_or_create(&StateLabel { state: "dropped" }), view.rows_dropped);
    let rows_planned = Gauge::<u64, AtomicU64>::default();
    registry.register("rows_planned", "Rows of this run", rows_planned.clone());
    rows_planned.set(view.rows_total);
    // Not a counter: the estimates of calls in flight are part of it, and calls that fail cost nothing.
    let cost = Gauge::<f64, AtomicU64>::default();
    registry.register("cost", "Cost of this run, in the currency of the prices in the file", cost.clone());
    cost.set(view.spent.micros() as f64 / 1e6);

    let tasks = Family::<ColumnLabel, Counter>::default();
    registry.register("tasks", "Tasks that have ended, by column", tasks.clone());
    let tasks_planned = Family::<ColumnLabel, Gauge<u64, AtomicU64>>::default();
    registry.register("tasks_planned", "Tasks of this run, by column", tasks_planned.clone());
    let tasks_in_work = Family::<ColumnLabel, Gauge<u64, AtomicU64>>::default();
    registry.register("tasks_in_work", "Tasks that run or wait for their provider", tasks_in_work.clone());
    for column in &view.columns {
        let label = ColumnLabel { column: column.name.clone() };
        set(&tasks.get_or_create(&label), column.done);
        tasks_planned.get_or_create(&label).set(column.total);
        tasks_in_work.get_or_create(&label).set(column.in_work);
    }

    let attempts = Family::<AttemptLabels, Counter>::default();
    registry.register("attempts", "Calls to a provider, by outcome", attempts.clone());
    let tokens = Family::<TokenLabels, Counter>::default();
    registry.register("tokens", "Tokens used, as reported in responses", tokens.clone());
    let [limit, in_flight, waiting, healthy] =
        [(); 4].map(|()| Family::<ModelLabels, Gauge<u64, AtomicU64>>::default());
    registry.register("limit", "The adaptive limit of calls in flight", limit.clone());
    registry.register("in_flight", "Calls in flight", in_flight.clone());
    registry.register("waiting", "Calls that wait for admission", waiting.clone());
    registry.register(
        "healthy",
        "1 if the provider answers, 0 during an outage or without a valid key",
        healthy.clone(),
    );
    for one in &view.providers {
        let (provider, model) = one.label.split_once('/').unwrap_or(("", &one.label));
        let labels = ModelLabels { provider: provider.to_string(), model: model.to_string() };
        let outcomes = [("success", one.answered), ("rate_limited", one.rate_limited), ("failure", one.failed)];
        for (outcome, count) in outcomes {
            let ModelLabels { provider, model } = labels.clone();
            set(&attempts.get_or_create(&AttemptLabels { provider, model, outcome }), count);
        }
        for (direction, count) in [("input", one.input_tokens), ("output", one.output_tokens)] {
            let ModelLabels { provider, model } = labels.clone();
            set(&tokens.get_or_create(&TokenLabels { provider, model, direction }), count);
        }
        limit.get_or_create(&labels).set(u64::from(one.limit));
        in_flight.get_or_create(&labels).set(u64::from(one.in_flight));
        waiting.get_or_create(&labels).set(u64::from(one.waiting));
        healthy.get_or_create(&labels).set(u64::from(one.outage.is_none()));
    }
    if !shares.is_empty() {
        register_shares(&mut registry, shares);
    }
    openmetrics::page(&registry)
}

/// Adds the metrics of limits that other processes share. They have the names of those of `tidegate proxy`.
fn register_shares(registry: &mut Registry, shares: &[ShareStatus]) {
    let gauges = ShareGauges::register(registry);
    for ShareStatus { limit, member, .. } in shares {
        // A model's name can contain a slash; the others cannot.
        let (provider, rest) = limit.split_once('/').unwrap_or(("", limit));
        let (model, domain) = rest.rsplit_once('/').unwrap_or((rest, ""));
        let [provider, model, domain] = [provider, model, domain].map(str::to_string);
        gauges.set(&ShareLabels { provider, model, domain }, member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::provider::cost::Money;
    use crate::app::report::progress_view::{ColumnView, ProviderView};
    use tidegate_core::limit::LimitChoice;
    use tidegate_core::share::MemberState;

    #[test]
    fn every_figure_of_the_progress_is_a_metric() {
        let provider = ProviderView {
            label: "mock/a \"b\"".to_string(),
            in_flight: 3,
            limit: 8,
            waiting: 2,
            answered: 40,
            rate_limited: 5,
            failed: 1,
            input_tokens: 900,
            output_tokens: 70,
            outage: Some("down for 3.0 s".to_string()),
            ..ProviderView::default()
        };
        let view = ProgressView {
            rows_done: 12,
            rows_dropped: 1,
            rows_total: 240,
            spent: Money::new(0.25).unwrap(),
            columns: vec![ColumnView { name: "title".to_string(), total: 240, done: 24, in_work: 5 }],
            providers: vec![provider],
            ..ProgressView::default()
        };
        let mut member = MemberState::default();
        (member.members, member.limit) = (3, 12);
        member.age = Some(tidegate_core::time::Duration::from_millis(250));
        let limit = "mock/a/b/chat".into();
        let shares = [ShareStatus { limit, algorithm: LimitChoice::Aimd, member, error: None }];
        let text = metrics_text(&view, &shares).unwrap();
        let labels = r#"provider="mock",model="a \"b\"""#;
        for line in [
            r#"tidegate_rows_total{state="complete"} 12"#,
            r#"tidegate_rows_total{state="dropped"} 1"#,
            "tidegate_rows_planned 240",
            "tidegate_cost 0.25",
            r#"tidegate_tasks_total{column="title"} 24"#,
            r#"tidegate_tasks_planned{column="title"} 240"#,
            r#"tidegate_tasks_in_work{column="title"} 5"#,
            &format!(r#"tidegate_attempts_total{{{labels},outcome="success"}} 40"#),
            &format!(r#"tidegate_attempts_total{{{labels},outcome="rate_limited"}} 5"#),
            &format!(r#"tidegate_attempts_total{{{labels},outcome="failure"}} 1"#),
            &format!(r#"tidegate_tokens_total{{{labels},direction="input"}} 900"#),
            &format!(r#"tidegate_tokens_total{{{labels},direction="output"}} 70"#),
            &format!("tidegate_limit{{{labels}}} 8"),
            &format!("tidegate_in_flight{{{labels}}} 3"),
            &format!("tidegate_waiting{{{labels}}} 2"),
            &format!("tidegate_healthy{{{labels}}} 0"),
            r#"tidegate_share_members{provider="mock",model="a/b",domain="chat"} 3"#,
            r#"tidegate_share_slots{provider="mock",model="a/b",domain="chat"} 0"#,
            r#"tidegate_share_limit{provider="mock",model="a/b",domain="chat"} 12"#,
            r#"tidegate_share_is_leader{provider="mock",model="a/b",domain="chat"} 0"#,
            r#"tidegate_share_degraded{provider="mock",model="a/b",domain="chat"} 1"#,
            r#"tidegate_share_age_seconds{provider="mock",model="a/b",domain="chat"} 0.25"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
