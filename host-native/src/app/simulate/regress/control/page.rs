//! The report of the control suite: one HTML file that loads nothing else.

use maud::{Markup, html};
use tidegate_core::sim::suite::control::{ControlTrace, KindFigures, KindSummary, Series};

use super::{CaseTraces, ControlOutcome, SPREAD_TITLES, format_permille, spread_cells};
use crate::app::render;
use crate::app::render::chart::Chart;

/// A line of the charts: the contender, its CSS class, and whether it is shown by default.
struct ChartLine {
    contender: &'static str,
    class: &'static str,
    is_shown: bool,
}

const fn chart_line(contender: &'static str, class: &'static str, is_shown: bool) -> ChartLine {
    ChartLine { contender, class, is_shown }
}

/// The lines in drawing order: the most important one is last, and so on top.
const CHART_LINES: [ChartLine; 8] = [
    chart_line("tower-acc Aimd", "tower-aimd", false),
    chart_line("tower-acc Gradient2", "tower-gradient", true),
    chart_line("tower-acc Vegas", "tower-vegas", false),
    chart_line("throttle-net Aimd", "throttle-aimd", true),
    chart_line("throttle-net Vegas", "throttle-vegas", false),
    chart_line("fixed", "fixed", true),
    chart_line("aimd", "aimd", true),
    chart_line("tide", "tide", true),
];

/// Width and height of the two charts of a case. Narrow enough for three cases in a row, and for a phone.
const ANSWERED_CHART_SIZE: (f64, f64) = (420.0, 170.0);
const REFUSED_CHART_SIZE: (f64, f64) = (420.0, 132.0);

const STYLESHEET: &str = include_str!("page.css");

/// Returns the page of a run: tables of all providers, and charts of the cases with traces.
#[must_use]
pub fn page(outcome: &ControlOutcome) -> String {
    let body = html! {
        main {
            h1 { "How well does each limit find what a provider can serve?" }
            p.lead {
                "Each limit algorithm runs in the real request admission against mock providers, in virtual time, with more "
                "calls waiting than can be sent. Each run is compared with an oracle that knows the provider's schedule in "
                "advance and is never refused. Goodput is the number of answered calls in percent of the oracle's. Refused is "
                "the number of calls answered with 429 in percent of the calls sent."
            }
            (spread_section(outcome))
            (kind_section(outcome))
            (chart_section(outcome))
        }
    };
    render::page::page("the control suite", &[STYLESHEET, &visibility_rules()].concat(), &body)
}

/// Returns CSS rules that hide the lines of a contender while its checkbox is not checked.
fn visibility_rules() -> String {
    let rule = |class: &str| format!("body:has(#show-{class}:not(:checked)) svg .{class}{{display:none}}");
    CHART_LINES.map(|line| rule(line.class)).concat()
}

fn spread_section(outcome: &ControlOutcome) -> Markup {
    let providers = &outcome.survey.providers;
    let (Some(first), Some(last)) =
        (providers.iter().map(|it| it.seed).min(), providers.iter().map(|it| it.seed).max())
    else {
        return html! {};
    };
    let spreads = outcome.survey.spreads();
    html! {
        h2 { "Goodput on " (providers.len()) " drawn providers" }
        p {
            "Drawn from the seeds " (first) " to " (last) ", in percent of the oracle's. In time: on how many providers nine tenths of "
            "the oracle's goodput were reached within the later of 2 s and three call durations after the start, if the capacity "
            "is constant, or within the later of 5 s and five call durations after each lasting step."
        }
        div.scroll tabindex="0" role="region" aria-label="Goodput by contender" {
            table {
                thead { tr { @for title in SPREAD_TITLES { th scope="col" { (title) } } } }
                tbody {
                    @for spread in tide_first(&outcome.survey.contenders).into_iter().map(|place| &spreads[place]) {
                        tr.own[spread.contender == "tide"] {
                            @for (place, cell) in spread_cells(spread).into_iter().enumerate() {
                                @if place == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn kind_section(outcome: &ControlOutcome) -> Markup {
    let kinds = outcome.survey.kinds();
    if kinds.is_empty() {
        return html! {};
    }
    let order = tide_first(&outcome.survey.contenders);
    html! {
        h2 { "By kind" }
        p {
            "For each contender: the median and the tenth percentile of the goodput and the median share of refusals, in percent; and "
            "the number of providers in time."
        }
        div.scroll tabindex="0" role="region" aria-label="Goodput by kind of provider" {
            table.kinds {
                thead {
                    tr {
                        th rowspan="2" scope="col" { "kind" }
                        th rowspan="2" scope="col" { "drawn" }
                        @for place in &order { th.first colspan="4" scope="colgroup" { (outcome.survey.contenders[*place]) } }
                    }
                    tr {
                        @for _ in &order {
                            th.first scope="col" { "median" }
                            th scope="col" { "p10" }
                            th scope="col" { "refused" }
                            th scope="col" { "in time" }
                        }
                    }
                }
                tbody { @for kind in &kinds { (kind_row(kind, &order)) } }
            }
        }
    }
}

fn kind_row(kind: &KindSummary, order: &[usize]) -> Markup {
    html! {
        tr {
            th scope="row" { (kind.kind) }
            td { (kind.providers) }
            @for place in order {
                @let KindFigures { goodput_p10_permille, goodput_median_permille, refused_median_permille, in_time, .. } = kind.figures[*place];
                td.first { b { (format_permille(goodput_median_permille)) } }
                td { (format_permille(goodput_p10_permille)) }
                td { (format_permille(refused_median_permille)) }
                td { (in_time) }
            }
        }
    }
}

/// Returns the indices of the contenders, with tide first.
fn tide_first(contenders: &[String]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..contenders.len()).collect();
    order.sort_by_key(|place| contenders[*place] != "tide");
    order
}

fn chart_section(outcome: &ControlOutcome) -> Markup {
    let (drawn, named): (Vec<&CaseTraces>, Vec<&CaseTraces>) = outcome.traces.iter().partition(|case| case.is_drawn);
    html! {
        h2 { "Over time" }
        p {
            "Above: answered calls per second, with those of the oracle as the shaded area. Below: refused calls per second, on a "
            "logarithmic scale. " code { "tower-acc" } " and " code { "throttle-net" } " are limit algorithms of other crates. Their "
            "runs are recorded, and pause after a refusal only if it has a Retry-After."
        }
        fieldset.lines {
            legend { "Show" }
            span.entry { span.key.oracle {} "oracle" }
            @for line in CHART_LINES.iter().rev() {
                label.entry {
                    input type="checkbox" id={ "show-" (line.class) } checked[line.is_shown];
                    span class={ "key " (line.class) } {}
                    (line.contender)
                }
            }
        }
        h3 { "The named cases" }
        div.charts { @for case in named { (chart_figure(case)) } }
        h3 { "One drawn provider of each kind" }
        p { "For each kind, the first seed whose provider has a cap from 16 to 256." }
        div.charts { @for case in drawn { (chart_figure(case)) } }
    }
}

fn chart_figure(case: &CaseTraces) -> Markup {
    // The name of a drawn case begins with its kind and ends with its seed; the description repeats what is
    // between.
    let title = match case.name.split_once(',') {
        Some((kind, rest)) if case.is_drawn => (kind, rest.rsplit(", ").next()),
        _ => (case.name.as_str(), None),
    };
    let traces = || CHART_LINES.iter().rev().filter_map(|line| Some((line, find_trace(case, line)?)));
    html! {
        figure {
            h4 { (title.0) @if let Some(seed) = title.1 { " " small { (seed) } } }
            p { (case.description) }
            div { div.axis aria-hidden="true" { "answered per second" } (answered_chart(case)) }
            div { div.axis aria-hidden="true" { "refused per second" } (refused_chart(case)) }
            figcaption {
                table {
                    thead { tr { th scope="col" { "contender" } th scope="col" { "goodput" } th scope="col" { "refused" } th scope="col" { "in time" } } }
                    tbody {
                        @for (line, trace) in traces() {
                            tr.own[line.contender == "tide"] {
                                th scope="row" { span class={ "key " (line.class) } {} (line.contender) }
                                td { (format_permille(trace.score.goodput_permille)) " %" }
                                td { (format_permille(trace.score.refused_permille)) " %" }
                                td { (match trace.score.is_in_time { Some(true) => "yes", Some(false) => "no", None => "-" }) }
                            }
                        }
                    }
                }
                @if traces().count() < CHART_LINES.len() {
                    p { "The other crates' runs were recorded on an earlier version of this provider, and are left out." }
                }
            }
        }
    }
}

fn find_trace<'a>(case: &'a CaseTraces, line: &ChartLine) -> Option<&'a ControlTrace> {
    case.traces.iter().find(|trace| trace.contender == line.contender)
}

/// Returns the counts of a series per second as points `(seconds, rate)`.
///
/// Each point is at the start of its window; an additional one ends the last window.
fn per_second(series: &Series, counts: &[u64]) -> impl Iterator<Item = (f64, f64)> {
    let seconds = series.window_ms as f64 / 1e3;
    let rates: Vec<f64> = counts.iter().map(|count| *count as f64 / seconds).collect();
    let last = rates.last().copied();
    rates.into_iter().chain(last).enumerate().map(move |(nth, rate)| (nth as f64 * seconds, rate))
}

fn max_rate(series: &Series, counts: &[u64]) -> f64 {
    per_second(series, counts).map(|(_, rate)| rate).fold(0.0, f64::max)
}

fn duration_seconds(case: &CaseTraces) -> f64 {
    let Series { window_ms, answered, .. } = &case.oracle.series;
    *window_ms as f64 / 1e3 * answered.len() as f64
}

fn answered_chart(case: &CaseTraces) -> Markup {
    let all = || std::iter::once(&case.oracle).chain(&case.traces);
    let most = all().map(|trace| max_rate(&trace.series, &trace.series.answered)).fold(0.0, f64::max);
    let mut chart =
        Chart::new(&case.name, duration_seconds(case), most).sized(ANSWERED_CHART_SIZE.0, ANSWERED_CHART_SIZE.1);
    let oracle = &case.oracle.series;
    chart.area("oracle", "oracle", per_second(oracle, &oracle.answered));
    for line in &CHART_LINES {
        if let Some(ControlTrace { series, .. }) = find_trace(case, line) {
            chart.steps(line.class, line.contender, per_second(series, &series.answered));
        }
    }
    chart.svg(&chart_label(case, "answered", |trace| trace.score.goodput_permille))
}

fn refused_chart(case: &CaseTraces) -> Markup {
    let most = case.traces.iter().map(|trace| max_rate(&trace.series, &trace.series.refused)).fold(0.0, f64::max);
    let mut chart = Chart::new(&case.name, duration_seconds(case), most)
        .sized(REFUSED_CHART_SIZE.0, REFUSED_CHART_SIZE.1)
        .logarithmic();
    for line in &CHART_LINES {
        if let Some(ControlTrace { series, .. }) = find_trace(case, line) {
            chart.steps(line.class, line.contender, per_second(series, &series.refused));
        }
    }
    chart.svg(&chart_label(case, "refused", |trace| trace.score.refused_permille))
}

/// Returns the text alternative of a chart.
fn chart_label(case: &CaseTraces, what: &str, permille: impl Fn(&ControlTrace) -> u64) -> String {
    let each = |trace: &ControlTrace| format!("{} {} %", trace.contender, format_permille(permille(trace)));
    let all: Vec<String> = case.traces.iter().map(each).collect();
    let of = if what == "refused" { "the calls sent" } else { "the oracle's answers" };
    format!(
        "{}: calls {what} per second over {:.0} s. Total in percent of {of}: {}.",
        case.name,
        duration_seconds(case),
        all.join(", ")
    )
}
