//! `/why` as an HTML page.

use http::header::{CONTENT_SECURITY_POLICY, REFRESH};
use http::{HeaderValue, Response, StatusCode};
use maud::{Markup, html};

use super::super::ReplyBody;
use super::super::error::text_response;
use super::{GroupStatus, ResourceStatus, StatusReport};
use crate::app::render;

const STYLESHEET: &str = include_str!("page.css");

/// The page has no scripts and loads nothing, and no page may frame it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// The number of seconds after which the browser loads the page again.
const RELOAD_SECS: u16 = 2;

/// Returns the page as a response that reloads itself.
pub(super) fn response(report: &StatusReport) -> Response<ReplyBody> {
    let mut response = text_response(StatusCode::OK, "text/html; charset=utf-8", page(report));
    response.headers_mut().insert(REFRESH, HeaderValue::from(RELOAD_SECS));
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

fn page(report: &StatusReport) -> String {
    let body = html! {
        h1 { "Why requests wait" }
        p { (report.in_flight) " calls in flight, " (report.waiting) " requests wait" }
        (resource_table(&report.resources))
        (group_table(&report.tenants))
    };
    render::page::page("why", STYLESHEET, &body)
}

fn resource_table(resources: &[ResourceStatus]) -> Markup {
    html! {
        h2 { "Models" }
        @if resources.is_empty() {
            p { "No model was called yet." }
        } @else {
            table {
                thead {
                    tr {
                        th { "Provider" } th { "Model" } th { "Kind" } th { "Algorithm" }
                        th.number { "In flight" } th.number { "Limit" } th.number { "Maximum" } th.number { "Waiting" }
                        th { "Reason and budgets" }
                    }
                }
                tbody {
                    @for resource in resources {
                        tr {
                            td { (resource.provider) } td { (resource.model) } td { (resource.domain) }
                            td { (resource.algorithm) }
                            td.number { (resource.in_flight) } td.number { (resource.limit) }
                            td.number { (resource.max_parallel) } td.number { (resource.waiting) }
                            td { (reason(resource)) }
                        }
                    }
                }
            }
        }
    }
}

/// Renders the reason for the wait, the cooldown and the budgets.
fn reason(resource: &ResourceStatus) -> Markup {
    html! {
        @if let Some(why) = &resource.why { div { (why) } }
        @if resource.cooldown_ms > 0 { div { "cooling down for " (resource.cooldown_ms) " ms" } }
        @if let Some(share) = &resource.share { div { "shared: " (share.text) } }
        @for budget in &resource.budgets { div { (budget) } }
    }
}

fn group_table(groups: &[GroupStatus]) -> Markup {
    html! {
        @if !groups.is_empty() {
            h2 { "Tenants" }
            table {
                thead {
                    tr {
                        th { "Tenant" } th { "Priority" } th.number { "Weight" }
                        th.number { "Waiting" } th.number { "In flight" } th.number { "Admitted" }
                    }
                }
                tbody {
                    @for group in groups {
                        tr {
                            td { (group.tenant) } td { (group.priority) } td.number { (group.weight) }
                            td.number { (group.waiting) } td.number { (group.in_flight) } td.number { (group.admitted) }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(tenant: &str) -> GroupStatus {
        GroupStatus {
            tenant: tenant.to_string(),
            priority: "normal",
            weight: 1.0,
            waiting: 3,
            in_flight: 0,
            admitted: 0,
        }
    }

    #[test]
    fn names_from_requests_are_escaped() {
        let tenants = vec![group("<script>&\"'")];
        let page = page(&StatusReport { waiting: 3, in_flight: 0, resources: Vec::new(), tenants });
        assert!(page.contains("<td>&lt;script&gt;&amp;&quot;'</td>"), "{page}");
        assert!(!page.contains("<script"), "{page}");
    }

    #[test]
    fn the_response_reloads_itself_and_runs_no_script() {
        let report = StatusReport { waiting: 0, in_flight: 0, resources: Vec::new(), tenants: Vec::new() };
        let response = response(&report);
        assert_eq!(response.headers()[REFRESH], "2");
        assert!(response.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().starts_with("default-src 'none';"));
    }
}
