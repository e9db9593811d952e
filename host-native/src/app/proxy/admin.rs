//! The pages for whoever runs the proxy: `/healthz`, `/metrics` and `/why`. They are never forwarded.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use http::header::ACCEPT;
use http::{HeaderMap, Method, Response, StatusCode};
use serde::Serialize;
use serde_json::json;
use tidegate_core::budget::{BudgetSource, Dimension};
use tidegate_core::request::{CallWait, ResourceSnapshot};
use tidegate_core::time::Instant;

use super::answer::{json_answer, text_answer};
use super::route::Resource;
use super::tenant::Level;
use super::{ReplyBody, Shared};
use crate::gate::ResourceKey;

/// Everything that `/why` tells.
#[derive(Debug, Serialize)]
struct ResourceLimits {
    waiting: u32,
    in_flight: usize,
    resources: Vec<ResourceStanding>,
    tenants: Vec<GroupStanding>,
}

#[derive(Debug, Serialize)]
struct ResourceStanding {
    provider: String,
    model: String,
    domain: String,
    limit: u32,
    /// What decides it.
    algorithm: &'static str,
    max_parallel: u32,
    in_flight: u32,
    waiting: u32,
    /// What binds, in words; none if nothing does.
    why: Option<String>,
    cooldown_ms: u64,
    budgets: Vec<BudgetStanding>,
}

#[derive(Debug, Serialize)]
struct BudgetStanding {
    counts: Dimension,
    window_secs: f64,
    limit: u64,
    available: i64,
    reserved: u64,
    source: BudgetSource,
}

/// The requests of one tenant and level.
#[derive(Debug, Serialize)]
struct GroupStanding {
    tenant: String,
    priority: &'static str,
    weight: f64,
    waiting: u32,
    in_flight: u32,
    admitted: u64,
}

/// Answers an admin page; `None` if `path` is none.
pub(super) fn answer(shared: &Shared, method: &Method, path: &str, headers: &HeaderMap) -> Option<Response<ReplyBody>> {
    if !matches!(path, "/healthz" | "/metrics" | "/why") {
        return None;
    }
    if method != Method::GET && method != Method::HEAD {
        return Some(text_answer(
            StatusCode::METHOD_NOT_ALLOWED,
            "text/plain; charset=utf-8",
            "GET only\n".to_string(),
        ));
    }
    Some(match path {
        "/healthz" => {
            let (waiting, in_flight) = (shared.waiting(), in_flight(shared));
            json_answer(StatusCode::OK, &json!({ "status": "ok", "waiting": waiting, "in_flight": in_flight }))
        }
        "/metrics" => match shared.metrics.text(&snapshots(shared)) {
            Ok(text) => text_answer(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text),
            Err(_) => text_answer(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", "no figures\n".to_string()),
        },
        _ => why(shared, headers),
    })
}

fn in_flight(shared: &Shared) -> usize {
    shared.gate.core().with(|machine, _| machine.active_leases())
}

fn snapshots(shared: &Shared) -> Vec<(ResourceKey, ResourceSnapshot)> {
    let all = shared.upstreams.iter().flat_map(super::route::Upstream::resources);
    all.filter_map(|one| Some((one.key.clone(), shared.gate.core().snapshot(one.id)?))).collect()
}

fn why(shared: &Shared, headers: &HeaderMap) -> Response<ReplyBody> {
    let standing = standing(shared);
    let accepts = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accepts.contains("text/html") {
        return text_answer(StatusCode::OK, "text/html; charset=utf-8", page(&standing));
    }
    if accepts.contains("text/plain") {
        return text_answer(StatusCode::OK, "text/plain; charset=utf-8", text(&standing));
    }
    match serde_json::to_value(&standing) {
        Ok(value) => json_answer(StatusCode::OK, &value),
        Err(_) => json_answer(StatusCode::INTERNAL_SERVER_ERROR, &json!({})),
    }
}

fn standing(shared: &Shared) -> ResourceLimits {
    let resources = shared.upstreams.iter().flat_map(super::route::Upstream::resources);
    ResourceLimits {
        waiting: shared.waiting(),
        in_flight: in_flight(shared),
        resources: resources.filter_map(|resource| resource_standing(shared, &resource)).collect(),
        tenants: groups(shared),
    }
}

fn resource_standing(shared: &Shared, resource: &Resource) -> Option<ResourceStanding> {
    let now = shared.gate.core().snapshot(resource.id)?;
    let algorithm = shared.gate.core().with(|machine, _| machine.limit_choice(resource.id))?.name();
    let budgets = now.budgets.iter().map(|budget| BudgetStanding {
        counts: budget.config.dimension,
        window_secs: budget.config.window.as_secs_f64(),
        limit: budget.limit,
        available: budget.available,
        reserved: budget.reserved,
        source: budget.source,
    });
    Some(ResourceStanding {
        limit: now.current_limit,
        algorithm,
        max_parallel: now.provider_cap,
        in_flight: now.in_flight,
        waiting: now.waiters,
        why: if now.waiters > 0 { shared.why(resource) } else { None },
        cooldown_ms: now.cooldown_remaining.as_nanos() / 1_000_000,
        budgets: budgets.collect(),
        provider: now.provider,
        model: now.model,
        domain: now.domain.to_string(),
    })
}

/// Tenants that wait, call, or have called.
fn groups(shared: &Shared) -> Vec<GroupStanding> {
    let mut all = Vec::new();
    for tenant in shared.tenants.met() {
        for level in Level::ALL {
            let group = tenant.group(level);
            let admitted = group.admitted.load(Ordering::Relaxed);
            let waiting = group.waiting.load(Ordering::Relaxed);
            if admitted > 0 || waiting > 0 {
                all.push(GroupStanding {
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
    /// What keeps calls of a resource from going out now, in words; `None` if nothing is known to.
    pub(super) fn why(&self, resource: &Resource) -> Option<String> {
        let (at, wait, load) = self
            .gate
            .core()
            .with(|machine, now| (now, machine.why_idle_now(now, resource.id), machine.stats(now, resource.id)));
        let load = load?;
        match wait {
            // No slot is idle: as many calls are out as may ever be.
            None => Some(format!("all {} calls that may be in flight are", load.in_flight)),
            Some(CallWait::NoRequests) if load.in_flight >= load.limit => {
                Some(limit_reached(load.limit, load.in_flight))
            }
            Some(CallWait::NoRequests) => None,
            Some(wait) => Some(words(at, wait)),
        }
    }
}

fn limit_reached(limit: u32, in_flight: u32) -> String {
    format!("the adaptive limit of {limit} calls is reached, and {in_flight} are in flight")
}

fn words(now: Instant, wait: CallWait) -> String {
    let left = |until: Instant| (until - now).as_secs_f64();
    match wait {
        CallWait::Cooldown { until } => {
            format!("calls pause after a refusal, and {:.1} s of the pause are left", left(until))
        }
        CallWait::ProviderCap { cap } => format!("all {cap} calls that may be in flight are"),
        CallWait::Limit { limit, in_flight, .. } => limit_reached(limit, in_flight),
        CallWait::Paced { until } => format!("calls are spaced in time, and the next goes out in {:.1} s", left(until)),
        CallWait::Budget { until } => format!("a rate budget is spent, and suffices again in {:.1} s", left(until)),
        CallWait::StatedRate { rate, until } => {
            format!("the provider's own limit of {rate} is reached: next in {:.1} s", left(until))
        }
        CallWait::Outage { since, probe_at: Some(at) } => {
            format!(
                "the provider is down for {:.1} s, and is tried again in {:.1} s",
                (now - since).as_secs_f64(),
                left(at)
            )
        }
        CallWait::Outage { since, probe_at: None } => {
            format!("the provider is down for {:.1} s, and a call is out that finds out", (now - since).as_secs_f64())
        }
        CallWait::Unavailable { cause, probe_at, .. } => {
            let again = probe_at.map(|at| format!("; it is tried again in {:.1} s", left(at)));
            format!("the provider or model cannot be used: {cause}{}", again.unwrap_or_default())
        }
        CallWait::Turn => "others go first".to_string(),
        other => other.to_string(),
    }
}

/// The standing for a terminal.
fn text(standing: &ResourceLimits) -> String {
    let mut out = format!("{} calls in flight, {} requests wait\n", standing.in_flight, standing.waiting);
    // Writing to a string does not fail.
    for one in &standing.resources {
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
        for budget in &one.budgets {
            let name = match budget.counts {
                Dimension::Requests => "requests",
                Dimension::InputTokens => "input tokens",
                Dimension::OutputTokens => "output tokens",
                Dimension::TotalTokens => "tokens",
                _ => "units",
            };
            let _ = write!(
                out,
                "\n  {name} in {:.0} s: {} of {} left, {} reserved",
                budget.window_secs, budget.available, budget.limit, budget.reserved
            );
            if budget.source == BudgetSource::Headers {
                out.push_str(", stated by the provider");
            }
        }
    }
    if !standing.tenants.is_empty() {
        out.push('\n');
    }
    for group in &standing.tenants {
        let _ = write!(
            out,
            "\ntenant {}, {} (weight {}): {} wait, {} in flight, {} let out so far",
            group.tenant, group.priority, group.weight, group.waiting, group.in_flight, group.admitted
        );
    }
    out.push('\n');
    out
}

/// The same for a browser, which asks again every two seconds.
fn page(standing: &ResourceLimits) -> String {
    let escaped = text(standing).replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=2><title>tidegate: why</title>\
         <pre style=\"font:14px/1.5 monospace;margin:2em\">{escaped}</pre>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_outside_are_no_markup() {
        let group = GroupStanding {
            tenant: "<script>&".to_string(),
            priority: "normal",
            weight: 1.0,
            waiting: 1,
            in_flight: 0,
            admitted: 0,
        };
        let standing = ResourceLimits { waiting: 1, in_flight: 0, resources: Vec::new(), tenants: vec![group] };
        let page = page(&standing);
        assert!(page.contains("tenant &lt;script>&amp;, normal (weight 1): 1 wait"), "{page}");
    }
}
