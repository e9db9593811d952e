//! Progress, summary and report of a run. This file makes the HTML report: one file without external
//! resources, with charts over time, the summary tables and the causes of idle time.

pub mod comparison;
pub mod dashboard;
mod history;
pub(crate) mod idle;
pub mod progress;
pub mod progress_view;
pub mod summary;

use maud::{Markup, html};
use tidegate_core::observe::CapacityPlan;

use crate::app::render;
use crate::app::render::chart::Chart;
use crate::app::render::table::{format_seconds, percent, row};
use crate::app::report::idle::idle_table;
use crate::app::report::progress_view::{ProgressView, ProviderView};
use crate::app::report::summary::Summary;

pub use history::ProgressHistory;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b2733;--quiet:#5c6b7a;--paper:#fbfcfd;--line:#d8e0e7;--flight:#8cc5cf;--limit:#1f5f73;\
--refused:#c2543d;--cooling:#f3dcd4;--rows:#3a5f8a;--waiting:#b58a2f;--bad:#b3261e}\
@media(prefers-color-scheme:dark){:root{--ink:#e4ebf1;--quiet:#94a3b1;--paper:#12181e;--line:#2c3843;--flight:#2b6f7c;\
--limit:#8fd3e0;--refused:#ff9478;--cooling:#3d2a25;--rows:#7ba4d6;--waiting:#d9b25f;--bad:#ff8a7d}}\
body{margin:2rem auto;max-width:72rem;padding:0 1rem;font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper)}\
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{color:var(--quiet);margin:.3rem 0 .6rem}\
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px;white-space:nowrap}\
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--line)}th{color:var(--quiet);font-weight:600}\
th:first-child,td:first-child,.left2 td:nth-child(2),.left2 th:nth-child(2){text-align:left}.bad{color:var(--bad);font-weight:600}\
svg{width:100%;height:auto;display:block}svg text{font-size:11px;fill:var(--quiet)}svg .end{text-anchor:end}\
.line{fill:none;stroke-width:1.6}.grid{stroke:var(--line)}path.flight{fill:var(--flight)}rect.cooling{fill:var(--cooling)}\
path.limit{stroke:var(--limit)}path.refused{stroke:var(--refused)}path.rows{stroke:var(--rows)}path.waiting{stroke:var(--waiting)}\
.key{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em}p .key:first-child{margin-left:0}.key.flight{background:var(--flight)}\
.key.limit{background:var(--limit)}.key.refused{background:var(--refused)}.key.cooling{background:var(--cooling)}\
.key.rows{background:var(--rows)}.key.waiting{background:var(--waiting)}pre{font-size:12px;overflow-x:auto}";

/// Returns the HTML report of a run.
#[must_use]
pub fn page(summary: &Summary, timeline: &ProgressHistory, capacity: &CapacityPlan) -> String {
    let body = html! {
        h1 { (summary.pipeline) }
        (totals(summary))
        (charts(timeline.samples()))
        (tables(summary))
        h2 { "Capacity plan" }
        pre { (capacity) }
    };
    render::page::page(&summary.pipeline, STYLE, &body)
}

fn totals(summary: &Summary) -> Markup {
    let Summary { rows_in, rows_out, earlier, job, .. } = summary;
    html! {
        @if let Some(why) = &summary.stopped { p.bad { "stopped: " (why) } }
        p {
            (rows_out + earlier.rows_out) " of " (rows_in) " rows written"
            @if earlier.rows_out > 0 { ", " (earlier.rows_out) " of them by earlier runs" }
            "; " (summary.rows_dropped()) " dropped, " (summary.rows_left()) " not done; "
            (format_seconds(summary.wall.as_secs_f64()))
        }
        @if let Some(acceptance) = &summary.acceptance { p { "accepted: " (acceptance) } }
        @for share in &summary.shares { p { "shared: " (share.limit) ": " (share.state) } }
        @if let Some(retry) = &summary.retry { p { "To make the dropped rows again: " code { (retry) } } }
        @if job.runs > 1 {
            @let calls: u64 = job.models.values().map(|model| model.calls).sum();
            p {
                "The job: " (calls) " calls in " (job.runs) " runs"
                @if let Some((_, currency)) = &summary.spent { ", " (job.spent) " " (currency) }
            }
        }
    }
}

fn charts(samples: &[ProgressView]) -> Markup {
    let Some(last) = samples.last() else { return html! {} };
    let seconds = last.elapsed;
    let mut charts = Vec::new();
    for at in 0..last.providers.len() {
        let of = || samples.iter().filter_map(move |view| Some((view.elapsed, view.providers.get(at)?)));
        charts.push(provider(seconds, &of().collect::<Vec<_>>()));
    }
    let mut rows = Chart::new("Rows", seconds, last.rows_total as f64);
    rows.steps("rows", "rows done", samples.iter().map(|view| (view.elapsed, view.rows_done as f64)));
    if last.rows_dropped > 0 {
        rows.steps("refused", "dropped", samples.iter().map(|view| (view.elapsed, view.rows_dropped as f64)));
    }
    charts.push(rows.titled());
    for (at, column) in last.columns.iter().enumerate() {
        let title = format!("Column {}", column.name);
        let mut chart = Chart::new(&title, seconds, column.total as f64);
        let of = |value: fn(&progress_view::ColumnView) -> u64| {
            samples.iter().filter_map(move |view| Some((view.elapsed, value(view.columns.get(at)?) as f64)))
        };
        chart.area("flight", "in progress", of(|column| column.in_work));
        chart.steps("rows", "done", of(|column| column.done));
        charts.push(chart.titled());
    }
    html! { @for chart in charts { (chart) } }
}

/// Draws one provider: its calls in flight, its limit, and where it refused calls.
fn provider(seconds: f64, samples: &[(f64, &ProviderView)]) -> Markup {
    let Some((_, last)) = samples.last() else { return html! {} };
    let most = samples.iter().map(|(_, provider)| provider.limit.max(provider.in_flight)).max().unwrap_or(1);
    let mut chart = Chart::new(&last.label, seconds, f64::from(most));
    let mut cooling: Option<f64> = None;
    for (at, provider) in samples {
        match (cooling, provider.cooling_down) {
            (None, true) => cooling = Some(*at),
            (Some(from), false) => {
                chart.shade("cooling", "cooling down", (from, *at));
                cooling = None;
            }
            _ => {}
        }
    }
    if let Some(from) = cooling {
        chart.shade("cooling", "cooling down", (from, seconds));
    }
    chart.area("flight", "in flight", samples.iter().map(|(at, provider)| (*at, f64::from(provider.in_flight))));
    chart.steps("limit", "limit", samples.iter().map(|(at, provider)| (*at, f64::from(provider.limit))));
    let waiting = samples.iter().map(|(at, provider)| (*at, f64::from(provider.waiting)));
    chart.steps("waiting", "waiting (cut off at the top)", waiting);
    let refused = samples.windows(2).filter(|pair| pair[1].1.rate_limited > pair[0].1.rate_limited);
    chart.marks("refused", "429", refused.map(|pair| pair[1].0));
    chart.titled()
}

fn tables(summary: &Summary) -> Markup {
    let mut providers = vec![row(["provider", "calls", "answered", "429s", "failed", "cap", "limit", "utilisation"])];
    providers.extend(summary.providers.iter().zip(&summary.figures.requests).map(|(provider, usage)| {
        let calls = &provider.calls;
        row([
            &provider.label,
            &calls.made.to_string(),
            &calls.succeeded.to_string(),
            &calls.rate_limited.to_string(),
            &calls.failed.to_string(),
            &provider.cap.to_string(),
            &format!("{:.1}", usage.mean_adaptive_limit()),
            &percent(usage.utilisation()),
        ])
    }));
    let mut columns = vec![row(["column", "filled by", "done", "retried", "failed"])];
    columns.extend(summary.columns.iter().map(|column| {
        let [done, retried, failed] = [column.succeeded, column.retried, column.failed].map(|count| count.to_string());
        vec![column.name.clone(), column.filled_by.clone(), done, retried, failed]
    }));
    let mut dropped = vec![row(["column", "reason", "rows", "example row", "error"])];
    dropped.extend(summary.dropped.iter().map(|dropped| {
        let (example, error) =
            dropped.example.clone().map_or_else(Default::default, |(row, error)| (row.to_string(), error));
        vec![dropped.column.clone(), dropped.reason.clone(), dropped.rows.to_string(), example, error]
    }));
    html! {
        (table("Providers", None, &providers))
        (table("Columns", Some("left2"), &columns))
        @for line in summary.answers() { p { (line) } }
        (table("Why slots were idle", Some("left2"), &idle_table(&summary.figures, &summary.labels())))
        (table("Dropped rows", Some("left2"), &dropped))
    }
}

/// A table whose first line has the titles; nothing if there is no other line.
fn table(title: &str, class: Option<&str>, lines: &[Vec<String>]) -> Markup {
    let [titles, lines @ ..] = lines else { return html! {} };
    html! {
        @if !lines.is_empty() {
            h2 { (title) }
            div.scroll {
                table class=[class] {
                    tr { @for title in titles { th { (title) } } }
                    @for line in lines { tr { @for cell in line { td { (cell) } } } }
                }
            }
        }
    }
}
