//! The report of a run as one HTML file, which needs nothing from anywhere: what happened over time, what the run came to,
//! and where the idle time went.

pub mod comparison;
pub(crate) mod idle;
pub mod progress;
pub mod summary;
mod timeline;

use std::fmt::Write as _;

use tidegate_core::observe::CapacityPlan;

use crate::app::render::chart::Chart;
use crate::app::render::html::escaped;
use crate::app::render::table::{format_seconds, percent};
use crate::app::report::idle::idle_table;
use crate::app::report::progress::{ProviderView, View};
use crate::app::report::summary::Summary;

pub use timeline::Timeline;

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

/// The page of a run. All text in it is escaped.
#[must_use]
pub fn page(summary: &Summary, timeline: &Timeline, capacity: &CapacityPlan) -> String {
    let name = escaped(&summary.pipeline);
    let mut html = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n");
    html.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n");
    let _ = writeln!(html, "<title>tidegate: {name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{name}</h1>");
    head(&mut html, summary);
    charts(&mut html, timeline.samples());
    tables(&mut html, summary);
    let _ = writeln!(html, "<h2>Capacity plan</h2>\n<pre>{}</pre>\n</body>\n</html>", escaped(&capacity.to_string()));
    html
}

fn head(html: &mut String, summary: &Summary) {
    if let Some(why) = &summary.stopped {
        let _ = writeln!(html, "<p class=\"bad\">stopped: {}</p>", escaped(why));
    }
    let Summary { rows_in, rows_out, earlier, .. } = summary;
    let wall = format_seconds(summary.wall.as_secs_f64());
    let _ = write!(html, "<p>{} of {rows_in} rows written", rows_out + earlier.rows_out);
    if earlier.rows_out > 0 {
        let _ = write!(html, ", {} of them by earlier runs", earlier.rows_out);
    }
    let _ = writeln!(html, "; {} dropped, {} not done; {wall}</p>", summary.rows_dropped(), summary.rows_left());
    if let Some(retry) = &summary.retry {
        let _ = writeln!(html, "<p>To make the dropped rows again: <code>{}</code></p>", escaped(retry));
    }
    let job = &summary.job;
    if job.runs > 1 {
        let calls: u64 = job.models.values().map(|model| model.calls).sum();
        let cost = summary.spent.as_ref().map_or(String::new(), |(_, currency)| format!(", {} {currency}", job.spent));
        let _ = writeln!(html, "<p>The job: {calls} calls in {} runs{}</p>", job.runs, escaped(&cost));
    }
}

fn charts(html: &mut String, samples: &[View]) {
    let Some(last) = samples.last() else { return };
    let seconds = last.elapsed;
    for at in 0..last.providers.len() {
        let of = || samples.iter().filter_map(move |view| Some((view.elapsed, view.providers.get(at)?)));
        provider(html, seconds, &of().collect::<Vec<_>>());
    }
    let mut rows = Chart::new("Rows", seconds, last.rows_total as f64);
    rows.steps("rows", "rows done", samples.iter().map(|view| (view.elapsed, view.rows_done as f64)));
    if last.rows_dropped > 0 {
        rows.steps("refused", "dropped", samples.iter().map(|view| (view.elapsed, view.rows_dropped as f64)));
    }
    rows.write(html);
    for (at, column) in last.columns.iter().enumerate() {
        let title = format!("Column {}", column.name);
        let mut chart = Chart::new(&title, seconds, column.total as f64);
        let of = |value: fn(&progress::ColumnView) -> u64| {
            samples.iter().filter_map(move |view| Some((view.elapsed, value(view.columns.get(at)?) as f64)))
        };
        chart.area("flight", "in work", of(|column| column.in_work));
        chart.steps("rows", "done", of(|column| column.done));
        chart.write(html);
    }
}

/// The tide of one provider: what it was asked for, what it was held to, and where it pushed back.
fn provider(html: &mut String, seconds: f64, samples: &[(f64, &ProviderView)]) {
    let Some((_, last)) = samples.last() else { return };
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
    chart.steps("waiting", "waiting (cut at the top)", waiting);
    let refused = samples.windows(2).filter(|pair| pair[1].1.rate_limited > pair[0].1.rate_limited);
    chart.marks("refused", "429", refused.map(|pair| pair[1].0));
    chart.write(html);
}

fn tables(html: &mut String, summary: &Summary) {
    let mut providers = vec![cells(["provider", "calls", "answered", "429s", "failed", "cap", "limit", "utilisation"])];
    providers.extend(summary.providers.iter().map(|provider| {
        let (calls, usage) = (&provider.calls, &provider.usage);
        cells([
            &provider.label,
            &calls.made.to_string(),
            &calls.succeeded.to_string(),
            &calls.rate_limited.to_string(),
            &calls.failed.to_string(),
            &provider.cap.to_string(),
            &format!("{:.1}", usage.mean_limit()),
            &percent(usage.utilisation()),
        ])
    }));
    table(html, "Providers", "", &providers);
    let mut columns = vec![cells(["column", "filled by", "done", "put off", "failed"])];
    columns.extend(summary.columns.iter().map(|column| {
        let [done, put_off, failed] = [column.succeeded, column.retried, column.failed].map(|count| count.to_string());
        vec![column.name.clone(), column.filled_by.clone(), done, put_off, failed]
    }));
    table(html, "Columns", "left2", &columns);
    table(html, "Why slots were idle", "left2", &idle_table(&summary.figures, &summary.labels()));
    let mut dropped = vec![cells(["column", "reason", "rows", "such as row", "what happened"])];
    dropped.extend(summary.dropped.iter().map(|dropped| {
        let (row, what) = dropped.example.clone().map_or_else(Default::default, |(row, what)| (row.to_string(), what));
        vec![dropped.column.clone(), dropped.reason.clone(), dropped.rows.to_string(), row, what]
    }));
    table(html, "Dropped rows", "left2", &dropped);
}

fn cells<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_string).to_vec()
}

/// A table whose first line has the titles; nothing if there is no other line.
fn table(html: &mut String, title: &str, class: &str, lines: &[Vec<String>]) {
    if lines.len() < 2 {
        return;
    }
    let _ = writeln!(html, "<h2>{title}</h2>\n<div class=\"scroll\"><table class=\"{class}\">");
    for (place, line) in lines.iter().enumerate() {
        let tag = if place == 0 { "th" } else { "td" };
        html.push_str("<tr>");
        for cell in line {
            let _ = write!(html, "<{tag}>{}</{tag}>", escaped(cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
}
