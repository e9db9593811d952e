//! The report of the idle suite: one HTML file that loads nothing else.

use maud::{Markup, html};
use tidegate_core::sim::suite::idle::CaseFigures;

use super::{IdleOutcome, format_nanos, format_ppm_percent, format_ppm_ratio};
use crate::app::render;
use crate::app::render::chart::{bar, drawing, text};

const STYLESHEET: &str = include_str!("page.css");

/// Returns the page of a run: failed checks, a chart for each sweep, and a table of all figures.
#[must_use]
pub fn page(outcome: &IdleOutcome) -> String {
    let (cases, checks, missed) = (outcome.cases.len(), outcome.checks.len(), outcome.missed_checks());
    let body = html! {
        h1 { "Is capacity ever idle without need?" }
        p { (cases) " cases, " (checks) " checks, " (missed) " missed. Times are virtual." }
        (missed_section(outcome))
        (chart_section(outcome))
        (figure_table(outcome))
    };
    render::page::page("the idle suite", STYLESHEET, &body)
}

fn missed_section(outcome: &IdleOutcome) -> Markup {
    html! {
        @if outcome.missed_checks() > 0 {
            h2 { "Missed" }
            ul {
                @for check in outcome.checks.iter().filter(|check| !check.holds) {
                    li.bad { (check.case) ": " (check.what) ": " (check.found) }
                }
            }
        }
    }
}

fn chart_section(outcome: &IdleOutcome) -> Markup {
    const KEYS: [(&str, &str); 5] = [
        ("wall", "wall time"),
        ("bound", "lower bound"),
        ("busy", "busy"),
        ("starved", "idle while a task demanded it"),
        ("frontier", "idle while no task did"),
    ];
    let mut sweeps: Vec<&str> = outcome.cases.iter().map(|case| case.sweep).collect();
    sweeps.dedup();
    let figures_of = |sweep: &str| -> Vec<&CaseFigures> {
        let cases = outcome.cases.iter().zip(&outcome.figures);
        cases.filter(|(case, _)| case.sweep == sweep).map(|(_, figures)| figures).collect()
    };
    html! {
        h2 { "Wall time beside the least possible, and what the slots did" }
        p { @for (class, label) in KEYS { span class={ "key " (class) } {} (label) } }
        @for sweep in sweeps {
            h2 { (sweep) }
            (sweep_chart(sweep, &figures_of(sweep)))
        }
    }
}

const CHART_WIDTH: f64 = 1_000.0;
const CASE_HEIGHT: f64 = 46.0;
/// Left edge of the bars of time, and the width of the longest one.
const TIME_BARS: (f64, f64) = (190.0, 330.0);
/// Left edge of the bars of slots, and the width of the whole resource.
const SLOT_BARS: (f64, f64) = (620.0, 300.0);

/// For each case, draws bars of its wall time and lower bound, and a bar of how the slots of its resource
/// were used.
fn sweep_chart(sweep: &str, figures: &[&CaseFigures]) -> Markup {
    let longest = figures.iter().map(|case| case.wall_ns.max(case.bound_ns)).max().unwrap_or(0).max(1) as f64;
    let height = CASE_HEIGHT * figures.len() as f64;
    let bars = html! {
        @for (index, case) in figures.iter().enumerate() { (case_bars(case, CASE_HEIGHT * index as f64, longest)) }
    };
    drawing((CHART_WIDTH, height), &format!("Wall time and slots of the cases of {sweep}"), &bars)
}

fn case_bars(case: &CaseFigures, top: f64, longest: f64) -> Markup {
    let (name, main) = (case.name.rsplit('/').next().unwrap_or(&case.name), case.main());
    let (time_left, time_width) = TIME_BARS;
    let (slots_left, slots_width) = SLOT_BARS;
    let mut right = slots_left;
    let slot_bars =
        [("busy", main.utilisation_ppm()), ("starved", main.starved_ppm()), ("frontier", main.frontier_ppm())].map(
            |(class, ppm)| {
                let (left, width) = (right, slots_width * f64::from(ppm) / 1e6);
                right += width;
                bar(class, (left, top + 4.0), (width, 21.0))
            },
        );
    let times = [format_nanos(case.wall_ns), format_nanos(case.bound_ns), format_ppm_ratio(case.ratio_ppm())];
    html! {
        (text("", (0.0, top + 19.0), name))
        @for (class, nanos, y) in [("wall", case.wall_ns, top + 4.0), ("bound", case.bound_ns, top + 15.0)] {
            (bar(class, (time_left, y), (time_width * nanos as f64 / longest, 10.0)))
        }
        (text("quiet", (time_left, top + 37.0), &format!("{} / {} = {}", times[0], times[1], times[2])))
        @for bar in slot_bars { (bar) }
        (text("quiet", (slots_left + slots_width + 10.0, top + 19.0), &format_ppm_percent(main.utilisation_ppm())))
    }
}

fn figure_table(outcome: &IdleOutcome) -> Markup {
    let table = outcome.table();
    let (titles, rows) = table.split_first().map_or((&[][..], &[][..]), |(titles, rows)| (titles.as_slice(), rows));
    let has_missed = |case: &String| outcome.checks.iter().any(|check| check.case == *case && !check.holds);
    html! {
        h2 { "All figures" }
        div.scroll {
            table {
                tr { @for title in titles { th { (title) } } }
                @for row in rows {
                    tr.bad[row.first().is_some_and(has_missed)] { @for cell in row { td { (cell) } } }
                }
            }
        }
    }
}
