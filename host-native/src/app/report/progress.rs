//! Progress while a run goes on: live bars on a terminal, a plain line now and then when piped, JSON lines for a program, or
//! nothing.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde::Serialize;
use tidegate_core::request::HealthState;
use tidegate_core::time::{Duration, Instant};

use crate::app::render::table::format_seconds;

/// How often a terminal is redrawn, and the view is asked for.
pub const REFRESH: StdDuration = StdDuration::from_millis(120);

/// How often a line is printed when nobody watches.
const LINE_EVERY: StdDuration = StdDuration::from_secs(2);

/// How often a program is told.
const JSON_EVERY: StdDuration = StdDuration::from_millis(500);

/// Tasks that must have been done before it is said how long the rest takes.
const ENOUGH_TO_TELL: u64 = 20;

/// What there is to see at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct View {
    /// Since the run began, in seconds.
    #[serde(rename = "elapsed_s")]
    pub elapsed: f64,
    /// Rows finished and written, or about to be.
    pub rows_done: u64,
    /// Rows dropped.
    pub rows_dropped: u64,
    /// Rows of the dataset.
    pub rows_total: u64,
    /// Each generated column.
    pub columns: Vec<ColumnView>,
    /// Each provider.
    pub providers: Vec<ProviderView>,
}

/// What there is to see of one generated column.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ColumnView {
    /// Its name.
    pub name: String,
    /// Tasks that this run has to do.
    pub total: u64,
    /// Those that are done, or given up.
    pub done: u64,
    /// Those that are at work, or wait for their provider.
    pub in_work: u64,
}

/// What there is to see of one provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProviderView {
    /// `provider/model`.
    pub label: String,
    /// Calls out.
    pub in_flight: u32,
    /// The adaptive limit.
    pub limit: u32,
    /// Calls that wait.
    pub waiting: u32,
    /// Calls answered so far.
    pub answered: u64,
    /// 429s so far.
    pub rate_limited: u64,
    /// Whether it is cooling down.
    pub cooling_down: bool,
    /// What is the matter with it, if it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage: Option<String>,
}

/// Where progress is shown.
#[derive(Debug)]
pub enum Screen {
    /// Bars that are redrawn in place, on standard error.
    Bars(Bars),
    /// A line on standard error every few seconds.
    Lines {
        /// When the next line is due.
        next: StdInstant,
    },
    /// JSON objects on standard output, one a line: `progress` twice a second, and each `message`.
    Json {
        /// When the next progress is due.
        next: StdInstant,
    },
    /// Nowhere.
    Off,
}

/// The bars of a terminal.
#[derive(Debug)]
pub struct Bars {
    all: MultiProgress,
    rows: ProgressBar,
    details: Vec<ProgressBar>,
}

impl Screen {
    /// Bars on a terminal, lines elsewhere, nothing when `quiet`; JSON for a program.
    #[must_use]
    pub fn new(quiet: bool, json: bool) -> Self {
        if json {
            Self::Json { next: StdInstant::now() }
        } else if quiet {
            Self::Off
        } else if io::stderr().is_terminal() {
            Self::Bars(Bars::new())
        } else {
            Self::Lines { next: StdInstant::now() + LINE_EVERY }
        }
    }

    /// Shows `view`.
    pub fn show(&mut self, view: &View) {
        match self {
            Self::Bars(bars) => bars.show(view),
            Self::Lines { next } if StdInstant::now() >= *next => {
                *next = StdInstant::now() + LINE_EVERY;
                // Progress is a courtesy: a reader that went away must not stop the run.
                let _ = writeln!(io::stderr(), "{}", line(view));
            }
            Self::Json { next } if StdInstant::now() >= *next => {
                *next = StdInstant::now() + JSON_EVERY;
                json_line("progress", &Progress { view, eta_s: view.eta() });
            }
            Self::Lines { .. } | Self::Json { .. } | Self::Off => {}
        }
    }

    /// Says something once, above the bars if there are any.
    pub fn say(&self, text: &str) {
        match self {
            Self::Bars(bars) => drop(bars.all.println(text)),
            Self::Lines { .. } => drop(writeln!(io::stderr(), "{text}")),
            Self::Json { .. } => json_line("message", &serde_json::json!({ "text": text })),
            Self::Off => {}
        }
    }

    /// Takes the bars away.
    pub fn close(self) {
        if let Self::Bars(bars) = self {
            let _ = bars.all.clear();
        }
    }
}

/// A view as a program is told of it.
#[derive(Serialize)]
struct Progress<'a> {
    #[serde(flatten)]
    view: &'a View,
    eta_s: Option<f64>,
}

/// Writes an object of this kind to standard output. Like all progress, to a reader that may have gone away.
pub fn json_line(kind: &str, content: &impl Serialize) {
    #[derive(Serialize)]
    struct Line<'a, T> {
        kind: &'a str,
        #[serde(flatten)]
        content: &'a T,
    }
    if let Ok(line) = serde_json::to_string(&Line { kind, content }) {
        let _ = writeln!(io::stdout(), "{line}");
    }
}

impl View {
    /// How long the rest takes, in seconds, if it goes on as it went so far; `None` before that can be said.
    #[must_use]
    pub fn eta(&self) -> Option<f64> {
        let sum = |of: fn(&ColumnView) -> u64| self.columns.iter().map(of).sum::<u64>();
        let (total, done) = (sum(|column| column.total), sum(|column| column.done));
        (done >= ENOUGH_TO_TELL && self.elapsed > 0.0)
            .then(|| self.elapsed * total.saturating_sub(done) as f64 / done as f64)
    }
}

impl ProviderView {
    /// Answers per second.
    fn rate(&self, elapsed: f64) -> f64 {
        if elapsed > 0.0 { self.answered as f64 / elapsed } else { 0.0 }
    }
}

impl Bars {
    fn new() -> Self {
        let all = MultiProgress::new();
        let rows = all.add(ProgressBar::new(0));
        rows.set_style(style("{elapsed_precise} [{bar:32}] {pos}/{len} rows  {msg}"));
        Self { all, rows, details: Vec::new() }
    }

    fn show(&mut self, view: &View) {
        self.rows.set_length(view.rows_total);
        self.rows.set_position(view.rows_done);
        let mut message = Vec::new();
        if view.rows_dropped > 0 {
            message.push(format!("{} dropped", view.rows_dropped));
        }
        message.extend(view.eta().map(|eta| format!("about {} left", format_seconds(eta))));
        self.rows.set_message(message.join(", "));
        let providers = view.providers.iter().map(|provider| provider_text(provider, view.elapsed));
        let details = providers.chain(view.columns.iter().map(column_text));
        for (index, text) in details.enumerate() {
            if index == self.details.len() {
                let bar = self.all.add(ProgressBar::no_length());
                bar.set_style(style("  {msg}"));
                self.details.push(bar);
            }
            self.details[index].set_message(text);
        }
        self.rows.tick();
    }
}

/// A template of ours that does not parse would only cost looks.
fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=> ")
}

fn provider_text(provider: &ProviderView, elapsed: f64) -> String {
    let ProviderView { label, in_flight, limit, waiting, answered, rate_limited, cooling_down, outage } = provider;
    let rate = provider.rate(elapsed);
    let mut text =
        format!("{label}: {in_flight}/{limit} in flight, {waiting} waiting, {answered} answered ({rate:.1}/s)");
    if *rate_limited > 0 {
        let _ = write!(text, ", {rate_limited} x 429");
    }
    if *cooling_down {
        text.push_str(", cooling down");
    }
    if let Some(outage) = outage {
        let _ = write!(text, ", {outage}");
    }
    text
}

/// What is the matter at `now` with a provider of this health; `None` if nothing is.
#[must_use]
pub fn outage_text(health: HealthState, now: Instant) -> Option<String> {
    let seconds = |span: Duration| format_seconds(span.as_nanos() as f64 / 1e9);
    Some(match health {
        HealthState::Healthy => return None,
        HealthState::Suspected { .. } => "its latest calls failed".to_string(),
        HealthState::Down { since, probe_at } if probe_at <= now => {
            format!("down for {}, a probe is due", seconds(now - since))
        }
        HealthState::Down { since, probe_at } => {
            format!("down for {}, next probe in {}", seconds(now - since), seconds(probe_at - now))
        }
        HealthState::Probing { since } => format!("down for {}, a probe is out", seconds(now - since)),
        HealthState::Unavailable { cause, .. } => format!("cannot be used: {cause}"),
    })
}

fn column_text(column: &ColumnView) -> String {
    let ColumnView { name, total, done, in_work } = column;
    format!("{name}: {done}/{total} done, {in_work} in work")
}

/// All of a view in one line.
fn line(view: &View) -> String {
    let mut text = format!("{}/{} rows", view.rows_done, view.rows_total);
    if view.rows_dropped > 0 {
        let _ = write!(text, ", {} dropped", view.rows_dropped);
    }
    for provider in &view.providers {
        text.push_str(" | ");
        text.push_str(&provider_text(provider, view.elapsed));
    }
    if let Some(eta) = view.eta() {
        let _ = write!(text, " | about {} left", format_seconds(eta));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        let provider = ProviderView {
            label: "mock/a".to_string(),
            in_flight: 3,
            limit: 8,
            answered: 40,
            ..ProviderView::default()
        };
        let pressed = ProviderView {
            label: "mock/b".to_string(),
            waiting: 2,
            rate_limited: 5,
            cooling_down: true,
            ..ProviderView::default()
        };
        View {
            rows_done: 12,
            rows_dropped: 1,
            rows_total: 240,
            elapsed: 4.0,
            columns: vec![ColumnView { name: "title".to_string(), total: 240, done: 24, in_work: 5 }],
            providers: vec![provider, pressed],
        }
    }

    #[test]
    fn a_line_tells_rows_and_every_provider() {
        assert_eq!(
            line(&view()),
            "12/240 rows, 1 dropped | mock/a: 3/8 in flight, 0 waiting, 40 answered (10.0/s) \
             | mock/b: 0/0 in flight, 2 waiting, 0 answered (0.0/s), 5 x 429, cooling down | about 36.0 s left"
        );
    }

    #[test]
    fn an_outage_is_told_with_its_length_and_the_next_probe() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let mut view = view();
        view.providers[0].outage = outage_text(HealthState::Down { since: at(1_000), probe_at: at(5_500) }, at(4_000));
        assert!(line(&view).contains("(10.0/s), down for 3.0 s, next probe in 1.5 s |"), "{}", line(&view));
        assert_eq!(outage_text(HealthState::Healthy, at(0)), None);
    }

    #[test]
    fn how_long_the_rest_takes_is_said_once_enough_is_done() {
        assert_eq!(view().eta(), Some(36.0));
        let mut early = view();
        early.columns[0].done = 3;
        assert_eq!(early.eta(), None);
    }

    #[test]
    fn bars_have_a_line_for_each_provider_and_each_column() {
        let mut bars = Bars::new();
        bars.all.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        bars.show(&view());
        bars.show(&view());
        assert_eq!(bars.details.len(), 3);
        assert_eq!(bars.details[2].message(), "title: 24/240 done, 5 in work");
    }
}
