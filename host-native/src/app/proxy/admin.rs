//! The admin pages `/healthz`, `/metrics` and `/why`. They are never forwarded.

mod page;

use std::fmt::{self, Write as _};
use std::sync::atomic::Ordering;

use http::header::ACCEPT;
use http::{HeaderMap, Method, Response, StatusCode};
use serde::Serialize;
use serde_json::json;
use tidegate_core::budget::{BudgetSource, Dimension};
use tidegate_core::request::{CallWait, ResourceSnapshot};
use tidegate_core::share::MemberState;
use tidegate_core::time::Instant;

use super::error::{ProxyError, json_response, text_response};
use super::tenant::Level;
use super::upstream::Resource;
use super::{ReplyBody, Shared};
use crate::app::openmetrics;
use crate::gate::ResourceKey;
use crate::share::ShareStatus;

/// The content of `/why`.
#[derive(Debug, Serialize)]
struct StatusReport {
    waiting: u32,
    in_flight: usize,
    resources: Vec<ResourceStatus>,
    tenants: Vec<GroupStatus>,
}

#[derive(Debug, Serialize)]
struct ResourceStatus {
    provider: String,
    model: String,
    domain: String,
    limit: u32,
    /// The algorithm that sets the limit.
    algorithm: &'static str,
    max_parallel: u32,
    in_flight: u32,
    waiting: u32,
    /// A description of the binding constraint, or `None` if nothing binds.
    why: Option<String>,
    cooldown_ms: u64,
    budgets: Vec<BudgetStatus>,
    /// The part of a limit that several processes share; `None` if it is not shared.
    share: Option<SharedPart>,
}

#[derive(Debug, Serialize)]
struct SharedPart {
    members: u32,
    limit: u32,
    share: u32,
    /// The number of the leader, as `--check` shows it; `None` before its first decision.
    leader: Option<String>,
    is_leader: bool,
    /// Whether the process has no valid lease of its share.
    is_degraded: bool,
    /// The time since the last decision of the leader; `None` if there was none.
    age_ms: Option<u64>,
    /// The last error of the store, until a step succeeds.
    error: Option<String>,
    /// All of this, for people.
    #[serde(skip)]
    text: String,
}

impl From<ShareStatus> for SharedPart {
    fn from(status: ShareStatus) -> Self {
        let member = status.member;
        Self {
            members: member.members,
            limit: member.limit,
            share: member.share,
            leader: status.leader(),
            is_leader: member.is_leader,
            is_degraded: !member.has_lease,
            age_ms: member.age.map(|age| age.as_nanos() / 1_000_000),
            text: status.to_string(),
            error: status.error,
        }
    }
}

#[derive(Debug, Serialize)]
struct BudgetStatus {
    counts: Dimension,
    window_secs: f64,
    limit: u64,
    available: i64,
    reserved: u64,
    source: BudgetSource,
}

impl fmt::Display for BudgetStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.counts {
            Dimension::Requests => "requests",
            Dimension::InputTokens => "input tokens",
            Dimension::OutputTokens => "output tokens",
            Dimension::TotalTokens => "tokens",
            _ => "units",
        };
        let Self { window_secs, available, limit, reserved, .. } = self;
        write!(f, "{name} in {window_secs:.0} s: {available} of {limit} left, {reserved} reserved")?;
        if self.source == BudgetSource::Headers { f.write_str(", stated by the provider") } else { Ok(()) }
    }
}

/// The requests of one tenant at one priority level.
#[derive(Debug, Serialize)]
struct GroupStatus {
    tenant: String,
    priority: &'static str,
    weight: f64,
    waiting: u32,
    in_flight: u32,
    admitted: u64,
}

/// Returns the response to a request for an admin page, or `None` if `path` is not one.
pub(super) fn handle(shared: &Shared, method: &Method, path: &str, headers: &HeaderMap) -> Option<Response<ReplyBody>> {
    if !matches!(path, "/healthz" | "/metrics" | "/why") {
        return None;
    }
    if method != Method::GET && method != Method::HEAD {
        return Some(ProxyError::BadMethod { allow: "GET, HEAD".to_string() }.response());
    }
    Some(match path {
        "/healthz" => {
            let (waiting, in_flight) = (shared.waiting(), in_flight(shared));
            json_response(StatusCode::OK, &json!({ "status": "ok", "waiting": waiting, "in_flight": in_flight }))
        }
        "/metrics" => {
            let (status, kind, text) = match shared.metrics.text(&snapshots(shared), &shares(shared)) {
                Ok(text) => (StatusCode::OK, openmetrics::CONTENT_TYPE, text),
                Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "text/plain", openmetrics::CANNOT_ENCODE.to_string()),
            };
            text_response(status, kind, text)
        }
        _ => why(shared, headers),
    })
}

fn in_flight(shared: &Shared) -> usize {
    shared.gate.core().with(|machine, _| machine.active_leases())
}

fn snapshots(shared: &Shared) -> Vec<(ResourceKey, ResourceSnapshot)> {
    let all = shared.upstreams.iter().flat_map(super::upstream::Upstream::resources);
    all.filter_map(|one| Some((one.key.clone(), shared.gate.core().snapshot(one.id)?))).collect()
}

fn shares(shared: &Shared) -> Vec<(ResourceKey, MemberState)> {
    let all = shared.upstreams.iter().flat_map(super::upstream::Upstream::resources);
    all.filter_map(|one| Some((one.key.clone(), shared.gate.share_status(&one.key)?.member))).collect()
}

fn why(shared: &Shared, headers: &HeaderMap) -> Response<ReplyBody> {
    let report = report(shared);
    let accepts = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accepts.contains("text/html") {
        return page::response(&report);
    }
    if accepts.contains("text/plain") {
        return text_response(StatusCode::OK, "text/plain; charset=utf-8", text(&report));
    }
    match serde_json::to_value(&report) {
        Ok(value) => json_response(StatusCode::OK, &value),
        Err(_) => json_response(StatusCode::INTERNAL_SERVER_ERROR, &json!({})),
    }
}

fn report(shared: &Shared) -> StatusReport {
    let resources = shared.upstreams.iter().flat_map(super::upstream::Upstream::resources);
    StatusReport {
        waiting: shared.waiting(),
        in_flight: in_flight(shared),
        resources: resources.filter_map(|resource| resource_status(shared, &resource)).collect(),
        tenants: groups(shared),
    }
}

fn resource_status(shared: &Shared, resource: &Resource) -> Option<ResourceStatus> {
    let now = shared.gate.core().snapshot(resource.id)?;
    let share = shared.gate.share_status(&resource.key);
    let algorithm = match &share {
        Some(share) => share.algorithm.name(),
        None => shared.gate.core().with(|machine, _| machine.limit_choice(resource.id))?.name(),
    };
    let budgets = now.budgets.iter().map(|budget| BudgetStatus {
        counts: budget.config.dimension,
        window_secs: budget.config.window.as_secs_f64(),
        limit: budget.limit,
        available: budget.available,
        reserved: budget.reserved,
        source: budget.source,
    });
    Some(ResourceStatus {
        limit: now.current_limit,
        algorithm,
        max_parallel: now.provider_cap,
        in_flight: now.in_flight,
        waiting: now.waiters,
        why: if now.waiters > 0 { shared.why(resource) } else { None },
        cooldown_ms: now.cooldown_remaining.as_nanos() / 1_000_000,
        budgets: budgets.collect(),
        share: share.map(SharedPart::from),
        provider: now.provider,
        model: now.model,
        domain: now.domain.to_string(),
    })
}

/// Returns the groups that have waiting or admitted requests.
fn groups(shared: &Shared) -> Vec<GroupStatus> {
    let mut all = Vec::new();
    for tenant in shared.tenants.seen() {
        for level in Level::ALL {
            let group = tenant.group(level);
            let admitted = group.admitted.load(Ordering::Relaxed);
            let waiting = group.waiting.load(Ordering::Relaxed);
            if admitted > 0 || waiting > 0 {
                all.push(GroupStatus {
                    tenant: tenant.name.to_string(),
                    priority: level.as_str(),
                    weight: shared.tenants.weight(&tenant, level),
                    waiting,
                    in_flight: group.in_flight.load(Ordering::Relaxed),
                    admitted,
                });
            }
        }
    }
    all
}

impl Shared {
    /// Describes why calls of a resource are not sent now. Returns `None` if no reason is known.
    pub(super) fn why(&self, resource: &Resource) -> Option<String> {
        let share = self.gate.share_status(&resource.key);
        let shared = |in_flight| share.as_ref().map(|at| format!("{}: {at}", at.member.describe_block(in_flight)));
        if share.as_ref().is_some_and(|status| status.member.room == 0) {
            return shared(0);
        }
        let limit_reached = |limit: u32, in_flight: u32| {
            let own = || format!("the adaptive limit of {limit} calls is reached, and {in_flight} are in flight");
            shared(in_flight).unwrap_or_else(own)
        };
        let (at, wait, load) = self
            .gate
            .core()
            .with(|machine, now| (now, machine.why_idle_now(now, resource.id), machine.stats(now, resource.id)));
        let load = load?;
        match wait {
            // No slot is idle: the maximum number of calls is in flight.
            None => Some(maximum_reached(load.in_flight)),
            Some(CallWait::NoRequests) if load.in_flight >= load.limit => {
                Some(limit_reached(load.limit, load.in_flight))
            }
            Some(CallWait::NoRequests) => None,
            Some(CallWait::Limit { limit, in_flight, .. }) => Some(limit_reached(limit, in_flight)),
            Some(CallWait::Share { in_flight, .. }) => shared(in_flight),
            Some(wait) => Some(describe(at, wait)),
        }
    }
}

fn maximum_reached(cap: u32) -> String {
    format!("the maximum of {cap} concurrent calls is reached")
}

fn describe(now: Instant, wait: CallWait) -> String {
    let left = |until: Instant| (until - now).as_secs_f64();
    match wait {
        CallWait::Cooldown { until } => {
            format!("calls are paused after a rate limit response, for another {:.1} s", left(until))
        }
        CallWait::ProviderCap { cap } => maximum_reached(cap),
        CallWait::Paced { until } => format!("calls are spaced in time, and the next goes out in {:.1} s", left(until)),
        CallWait::Budget { until } => {
            format!("a rate budget is spent, and is sufficient again in {:.1} s", left(until))
        }
        CallWait::StatedRate { rate, until } => {
            format!("the provider's own limit of {rate} is reached: next in {:.1} s", left(until))
        }
        CallWait::Outage { since, probe_at: Some(at) } => {
            format!(
                "the provider is down for {:.1} s, and the next probe is in {:.1} s",
                (now - since).as_secs_f64(),
                left(at)
            )
        }
        CallWait::Outage { since, probe_at: None } => {
            format!("the provider is down for {:.1} s, and a probe is in flight", (now - since).as_secs_f64())
        }
        CallWait::Unavailable { cause, probe_at, .. } => {
            let again = probe_at.map(|at| format!("; the next probe is in {:.1} s", left(at)));
            format!("the provider or model cannot be used: {cause}{}", again.unwrap_or_default())
        }
        CallWait::Turn => "other requests go first".to_string(),
        other => other.to_string(),
    }
}

/// Renders the report as plain text.
fn text(report: &StatusReport) -> String {
    let mut out = format!("{} calls in flight, {} requests wait\n", report.in_flight, report.waiting);
    // Writing to a string does not fail.
    for one in &report.resources {
        let _ = write!(
            out,
            "\n{}/{}/{}: {} in flight of {} (by {}, at most {}), {} wait",
            one.provider, one.model, one.domain, one.in_flight, one.limit, one.algorithm, one.max_parallel, one.waiting
        );
        if let Some(why) = &one.why {
            let _ = write!(out, ": {why}");
        }
        if one.cooldown_ms > 0 {
            let _ = write!(out, "\n  cooling down for {} ms", one.cooldown_ms);
        }
        if let Some(share) = &one.share {
            let _ = write!(out, "\n  shared: {}", share.text);
        }
        for budget in &one.budgets {
            let _ = write!(out, "\n  {budget}");
        }
    }
    if !report.tenants.is_empty() {
        out.push('\n');
    }
    for group in &report.tenants {
        let _ = write!(
            out,
            "\ntenant {}, {} (weight {}): {} wait, {} in flight, {} admitted so far",
            group.tenant, group.priority, group.weight, group.waiting, group.in_flight, group.admitted
        );
    }
    out.push('\n');
    out
}
