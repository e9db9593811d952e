//! The control suite as one HTML file, which needs nothing from anywhere.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use tidegate_core::sim::suite::control::{KindFigures, OfKind, Series, Trace};

use super::{ControlOutcome, Picture, SPREAD_TITLES, spread_cells, tenths};
use crate::app::render::chart::Chart;

/// A line of the pictures: the contender, its class, and whether it is shown before anyone chooses.
struct Line {
    contender: &'static str,
    class: &'static str,
    is_shown: bool,
}

const fn line(contender: &'static str, class: &'static str, is_shown: bool) -> Line {
    Line { contender, class, is_shown }
}

/// Drawn in this order, so that the most important one is on top.
const LINES: [Line; 8] = [
    line("tower-acc Aimd", "tower-aimd", false),
    line("tower-acc Gradient2", "tower-gradient", true),
    line("tower-acc Vegas", "tower-vegas", false),
    line("throttle-net Aimd", "throttle-aimd", true),
    line("throttle-net Vegas", "throttle-vegas", false),
    line("fixed", "fixed", true),
    line("aimd", "aimd", true),
    line("tide", "tide", true),
];

/// How large the two charts of a picture are: narrow, since three pictures stand beside each other and a telephone is narrow too.
const ANSWERED: (f64, f64) = (420.0, 170.0);
const REFUSED: (f64, f64) = (420.0, 132.0);

const STYLE: &str = include_str!("page.css");

/// The page of a run. All text in it is escaped.
#[must_use]
pub fn page(outcome: &ControlOutcome) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "tidegate: the control suite" }
                style { (PreEscaped(STYLE)) (PreEscaped(hiding())) }
            }
            body {
                main {
                    h1 { "How well does each limit find what a provider can serve?" }
                    p.lead {
                        "Each limit algorithm runs inside the real request admission against mock providers, in virtual time, and there are "
                        "always more calls than could go out. Beside each run stands an oracle, which knows the provider's whole schedule "
                        "beforehand and is never refused. Goodput is the answered calls in percent of the oracle's; refused is the calls "
                        "that the provider answered with 429, in percent of those sent."
                    }
                    (spreads(outcome))
                    (kinds(outcome))
                    (pictures(outcome))
                }
            }
        }
    };
    markup.into_string()
}

/// Rules that hide the lines of a contender while its box is not checked.
fn hiding() -> String {
    let rule = |class: &str| format!("body:has(#show-{class}:not(:checked)) svg .{class}{{display:none}}");
    LINES.map(|line| rule(line.class)).concat()
}

fn spreads(outcome: &ControlOutcome) -> Markup {
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
            "Drawn from the seeds " (first) " to " (last) "; in percent of the oracle's. A twentieth has less than p5, a quarter less than p25. In time: on how many providers nine tenths of the oracle's "
            "goodput came within the later of 2 s and three call durations from the start, where nothing moves, or of 5 s and five durations "
            "after each step that lasts."
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

fn kinds(outcome: &ControlOutcome) -> Markup {
    let kinds = outcome.survey.kinds();
    if kinds.is_empty() {
        return html! {};
    }
    let order = tide_first(&outcome.survey.contenders);
    html! {
        h2 { "By kind" }
        p {
            "For each contender: the median of the goodput, that of the worst tenth, and the median share of refusals, in percent; and on how "
            "many providers in time."
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
                            th scope="col" { "tenth" }
                            th scope="col" { "refused" }
                            th scope="col" { "in time" }
                        }
                    }
                }
                tbody { @for kind in &kinds { (of_kind(kind, &order)) } }
            }
        }
    }
}

fn of_kind(kind: &OfKind, order: &[usize]) -> Markup {
    html! {
        tr {
            th scope="row" { (kind.kind) }
            td { (kind.providers) }
            @for place in order {
                @let KindFigures { goodput_p10_permille, goodput_median_permille, refused_median_permille, in_time, .. } = kind.figures[*place];
                td.first { b { (tenths(goodput_median_permille)) } }
                td { (tenths(goodput_p10_permille)) }
                td { (tenths(refused_median_permille)) }
                td { (in_time) }
            }
        }
    }
}

/// The places of the contenders, that of tide before the others.
fn tide_first(contenders: &[String]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..contenders.len()).collect();
    order.sort_by_key(|place| contenders[*place] != "tide");
    order
}

fn pictures(outcome: &ControlOutcome) -> Markup {
    let (drawn, named): (Vec<&Picture>, Vec<&Picture>) = outcome.pictures.iter().partition(|picture| picture.is_drawn);
    html! {
        h2 { "Over time" }
        p {
            "Above, answered calls a second; the oracle's are the shaded area. Below, refused calls a second, on a logarithmic scale. "
            code { "tower-acc" } " and " code { "throttle-net" } " are the algorithms of other crates: their runs are recorded, and never pause "
            "after a refusal unless the provider says for how long."
        }
        fieldset.lines {
            legend { "Show" }
            span.entry { span.key.oracle {} "oracle" }
            @for line in LINES.iter().rev() {
                label.entry {
                    input type="checkbox" id={ "show-" (line.class) } checked[line.is_shown];
                    span class={ "key " (line.class) } {}
                    (line.contender)
                }
            }
        }
        h3 { "The named cases" }
        div.pictures { @for picture in named { (figure(picture)) } }
        h3 { "One drawn provider of each kind" }
        p { "Of each kind the first seed from 0 on whose provider has a cap from 16 to 256." }
        div.pictures { @for picture in drawn { (figure(picture)) } }
    }
}

fn figure(picture: &Picture) -> Markup {
    // Those of a drawn one begin with its kind; the rest of the name is in the description but for the seed.
    let title = match picture.name.split_once(',') {
        Some((kind, rest)) if picture.is_drawn => (kind, rest.rsplit(", ").next()),
        _ => (picture.name.as_str(), None),
    };
    let traces = || LINES.iter().rev().filter_map(|line| Some((line, trace_of(picture, line)?)));
    html! {
        figure {
            h4 { (title.0) @if let Some(seed) = title.1 { " " small { (seed) } } }
            p { (picture.description) }
            div { div.axis aria-hidden="true" { "answered a second" } (PreEscaped(answered(picture))) }
            div { div.axis aria-hidden="true" { "refused a second" } (PreEscaped(refused(picture))) }
            figcaption {
                table {
                    thead { tr { th scope="col" { "contender" } th scope="col" { "goodput" } th scope="col" { "refused" } th scope="col" { "in time" } } }
                    tbody {
                        @for (line, trace) in traces() {
                            tr.own[line.contender == "tide"] {
                                th scope="row" { span class={ "key " (line.class) } {} (line.contender) }
                                td { (tenths(trace.score.goodput_permille)) " %" }
                                td { (tenths(trace.score.refused_permille)) " %" }
                                td { (match trace.score.is_in_time { Some(true) => "yes", Some(false) => "no", None => "-" }) }
                            }
                        }
                    }
                }
                @if traces().count() < LINES.len() {
                    p { "The other crates' runs were recorded on an earlier version of this provider, and are left out." }
                }
            }
        }
    }
}

fn trace_of<'a>(picture: &'a Picture, line: &Line) -> Option<&'a Trace> {
    picture.traces.iter().find(|trace| trace.contender == line.contender)
}

/// Counts of a series per second, each from the start of its window on, and the last one up to its end.
fn per_second(series: &Series, counts: &[u64]) -> impl Iterator<Item = (f64, f64)> {
    let seconds = series.window_ms as f64 / 1e3;
    let rates: Vec<f64> = counts.iter().map(|count| *count as f64 / seconds).collect();
    let last = rates.last().copied();
    rates.into_iter().chain(last).enumerate().map(move |(nth, rate)| (nth as f64 * seconds, rate))
}

fn most(series: &Series, counts: &[u64]) -> f64 {
    per_second(series, counts).map(|(_, rate)| rate).fold(0.0, f64::max)
}

fn seconds(picture: &Picture) -> f64 {
    let Series { window_ms, answered, .. } = &picture.oracle.series;
    *window_ms as f64 / 1e3 * answered.len() as f64
}

fn answered(picture: &Picture) -> String {
    let all = || std::iter::once(&picture.oracle).chain(&picture.traces);
    let most = all().map(|trace| most(&trace.series, &trace.series.answered)).fold(0.0, f64::max);
    let mut chart = Chart::new(&picture.name, seconds(picture), most).sized(ANSWERED.0, ANSWERED.1);
    let oracle = &picture.oracle.series;
    chart.area("oracle", "oracle", per_second(oracle, &oracle.answered));
    for line in &LINES {
        if let Some(Trace { series, .. }) = trace_of(picture, line) {
            chart.steps(line.class, line.contender, per_second(series, &series.answered));
        }
    }
    chart.svg(&in_words(picture, "answered", |trace| trace.score.goodput_permille))
}

fn refused(picture: &Picture) -> String {
    let most = picture.traces.iter().map(|trace| most(&trace.series, &trace.series.refused)).fold(0.0, f64::max);
    let mut chart = Chart::new(&picture.name, seconds(picture), most).sized(REFUSED.0, REFUSED.1).logarithmic();
    for line in &LINES {
        if let Some(Trace { series, .. }) = trace_of(picture, line) {
            chart.steps(line.class, line.contender, per_second(series, &series.refused));
        }
    }
    chart.svg(&in_words(picture, "refused", |trace| trace.score.refused_permille))
}

/// What a chart shows, for those who do not see it.
fn in_words(picture: &Picture, what: &str, permille: impl Fn(&Trace) -> u64) -> String {
    let each = |trace: &Trace| format!("{} {} %", trace.contender, tenths(permille(trace)));
    let all: Vec<String> = picture.traces.iter().map(each).collect();
    let of = if what == "refused" { "the calls sent" } else { "the oracle's" };
    format!(
        "{}: calls {what} a second over {:.0} s. In all, of {of}: {}.",
        picture.name,
        seconds(picture),
        all.join(", ")
    )
}
