//! The report of a run of the suite as one HTML file, which needs nothing from anywhere.

use std::fmt::Write as _;

use tidegate_core::sim::suite::idle::CaseFigures;

use super::{Outcome, nanos, percent, ratio};
use crate::app::render::html::escaped;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b2733;--quiet:#5c6b7a;--paper:#fbfcfd;--line:#d8e0e7;--busy:#2f7f8f;--starved:#c2543d;\
--frontier:#c9d3db;--wall:#3a5f8a;--bound:#a9bdd3;--bad:#b3261e}\
@media(prefers-color-scheme:dark){:root{--ink:#e4ebf1;--quiet:#94a3b1;--paper:#12181e;--line:#2c3843;--busy:#4fb0c0;\
--starved:#e0785f;--frontier:#39464f;--wall:#7ba4d6;--bound:#3f566f;--bad:#ff8a7d}}\
body{margin:2rem auto;max-width:72rem;padding:0 1rem;font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper)}\
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{color:var(--quiet);margin:.3rem 0 1rem}\
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px;white-space:nowrap}\
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--line)}th{color:var(--quiet);font-weight:600}\
th:first-child,td:first-child,th:nth-child(2),td:nth-child(2){text-align:left}\
.bad{color:var(--bad);font-weight:600}svg{width:100%;height:auto;display:block}svg text{font-size:11px;fill:var(--ink)}\
svg .quiet{fill:var(--quiet)}.busy{fill:var(--busy)}.starved{fill:var(--starved)}.frontier{fill:var(--frontier)}\
.wall{fill:var(--wall)}.bound{fill:var(--bound)}.key{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em}\
.key.busy{background:var(--busy)}.key.starved{background:var(--starved)}.key.frontier{background:var(--frontier)}\
.key.wall{background:var(--wall)}.key.bound{background:var(--bound)}";

/// The page of a run: its checks, its table, and a chart for each sweep. All text in it is escaped.
#[must_use]
pub fn page(outcome: &Outcome) -> String {
    let mut html = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n");
    html.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n");
    let _ = writeln!(html, "<title>tidegate: the idle suite</title>\n<style>{STYLE}</style>\n</head>\n<body>");
    let (cases, checks, missed) = (outcome.cases.len(), outcome.checks.len(), outcome.missed());
    html.push_str("<h1>Is capacity ever idle without need?</h1>\n");
    let _ = writeln!(html, "<p>{cases} cases, {checks} checks, {missed} missed. Times are virtual.</p>");
    misses(&mut html, outcome);
    charts(&mut html, outcome);
    table(&mut html, outcome);
    html.push_str("</body>\n</html>\n");
    html
}

fn misses(html: &mut String, outcome: &Outcome) {
    if outcome.missed() == 0 {
        return;
    }
    html.push_str("<h2>Missed</h2>\n<ul>\n");
    for check in outcome.checks.iter().filter(|check| !check.holds) {
        let [case, what, found] = [&check.case, &check.what, &check.found].map(|text| escaped(text));
        let _ = writeln!(html, "<li class=\"bad\">{case}: {what}: {found}</li>");
    }
    html.push_str("</ul>\n");
}

fn charts(html: &mut String, outcome: &Outcome) {
    html.push_str("<h2>Wall time beside the least possible, and what the slots did</h2>\n<p>");
    for (class, what) in [
        ("wall", "wall time"),
        ("bound", "lower bound"),
        ("busy", "busy"),
        ("starved", "idle while something wanted it"),
        ("frontier", "idle while nothing did"),
    ] {
        let _ = write!(html, "<span class=\"key {class}\"></span>{what}");
    }
    html.push_str("</p>\n");
    let mut sweeps: Vec<&str> = outcome.cases.iter().map(|case| case.sweep).collect();
    sweeps.dedup();
    for sweep in sweeps {
        let of_sweep = outcome.cases.iter().zip(&outcome.figures).filter(|(case, _)| case.sweep == sweep);
        let figures: Vec<&CaseFigures> = of_sweep.map(|(_, figures)| figures).collect();
        let _ = writeln!(html, "<h2>{}</h2>", escaped(sweep));
        chart(html, &figures);
    }
}

const WIDTH: f64 = 1_000.0;
const LINE: f64 = 46.0;
/// Where the bars of time begin, and how long the longest is.
const TIME: (f64, f64) = (190.0, 330.0);
/// The same for the slots.
const SLOTS: (f64, f64) = (620.0, 300.0);

/// Two bars of time for each case, and one of what became of the slots of its resource.
fn chart(html: &mut String, figures: &[&CaseFigures]) {
    let longest = figures.iter().map(|case| case.wall_ns.max(case.bound_ns)).max().unwrap_or(0).max(1) as f64;
    let height = LINE * figures.len() as f64;
    let _ = writeln!(html, "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">");
    for (place, case) in figures.iter().enumerate() {
        let top = LINE * place as f64;
        let name = case.name.rsplit('/').next().unwrap_or(&case.name);
        text(html, 0.0, top + 19.0, "", name);
        let (from, most) = TIME;
        for (class, nanos, down) in [("wall", case.wall_ns, 4.0), ("bound", case.bound_ns, 15.0)] {
            bar(html, class, (from, top + down), most * nanos as f64 / longest, 10.0);
        }
        let times = format!("{} / {} = {}", nanos(case.wall_ns), nanos(case.bound_ns), ratio(case.ratio_ppm()));
        text(html, from, top + 37.0, "quiet", &times);
        let main = case.main();
        let (mut from, most) = SLOTS;
        for (class, ppm) in
            [("busy", main.utilisation_ppm()), ("starved", main.starved_ppm()), ("frontier", main.frontier_ppm())]
        {
            let width = most * f64::from(ppm) / 1e6;
            bar(html, class, (from, top + 4.0), width, 21.0);
            from += width;
        }
        text(html, SLOTS.0 + SLOTS.1 + 10.0, top + 19.0, "quiet", &percent(main.utilisation_ppm()));
    }
    html.push_str("</svg>\n");
}

fn bar(html: &mut String, class: &str, (x, y): (f64, f64), width: f64, height: f64) {
    if width > 0.0 {
        let _ = writeln!(
            html,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        );
    }
}

fn text(html: &mut String, x: f64, y: f64, class: &str, text: &str) {
    let _ = writeln!(html, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(text));
}

fn table(html: &mut String, outcome: &Outcome) {
    html.push_str("<h2>All figures</h2>\n<div class=\"scroll\"><table>\n");
    for (place, line) in outcome.table().iter().enumerate() {
        let tag = if place == 0 { "th" } else { "td" };
        let has_missed = place > 0 && outcome.checks.iter().any(|check| check.case == line[0] && !check.holds);
        let class = if has_missed { " class=\"bad\"" } else { "" };
        let _ = write!(html, "<tr{class}>");
        for cell in line {
            let _ = write!(html, "<{tag}>{}</{tag}>", escaped(cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
}
