//! The progress of a run: bars or a dashboard on a terminal, a line of text every two seconds if standard
//! error is not a terminal, JSON lines for programs, or nothing.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::app::render::table::format_seconds;
use crate::app::report::dashboard::Dashboard;
use crate::app::report::progress_view::{ColumnView, ProgressView, ProviderView};

/// How often a terminal is redrawn.
pub const REFRESH: StdDuration = StdDuration::from_millis(120);

/// How often a line is printed if standard error is not a terminal.
const LINE_INTERVAL: StdDuration = StdDuration::from_secs(2);

/// How often a JSON object is printed.
const JSON_INTERVAL: StdDuration = StdDuration::from_millis(500);

/// Prints progress and messages.
#[derive(Debug)]
pub enum ProgressReporter {
    /// Redraws bars in place on standard error.
    Bars(Bars),
    /// Shows the dashboard of `--tui`.
    Dashboard(Box<Dashboard>),
    /// Prints a line to standard error every two seconds.
    Lines {
        /// When the next line is due.
        next: StdInstant,
    },
    /// Prints JSON objects to standard output, one per line: `progress` twice a second and at the end, and
    /// each `message`.
    Json {
        /// When the next progress object is due.
        next: StdInstant,
    },
    /// Prints nothing.
    Off,
}

/// The bars of a terminal.
#[derive(Debug)]
pub struct Bars {
    all: MultiProgress,
    rows: ProgressBar,
    details: Vec<ProgressBar>,
}

impl ProgressReporter {
    /// Creates a reporter: JSON if `json`, nothing if `quiet`, bars on a terminal, and lines otherwise.
    #[must_use]
    pub fn new(quiet: bool, json: bool) -> Self {
        if json {
            Self::Json { next: StdInstant::now() }
        } else if quiet {
            Self::Off
        } else if io::stderr().is_terminal() {
            Self::Bars(Bars::new())
        } else {
            Self::Lines { next: StdInstant::now() + LINE_INTERVAL }
        }
    }

    /// Returns whether views are shown with the causes of idle time, which take time to compute.
    #[must_use]
    pub fn shows_idle(&self) -> bool {
        matches!(self, Self::Dashboard(_) | Self::Json { .. })
    }

    /// Prints `view`, if an update is due.
    pub fn show(&mut self, view: &ProgressView) {
        match self {
            Self::Bars(bars) => bars.show(view),
            Self::Dashboard(dashboard) => dashboard.show(view),
            Self::Lines { next } if StdInstant::now() >= *next => {
                *next = StdInstant::now() + LINE_INTERVAL;
                // A closed pipe must not stop the run.
                let _ = writeln!(io::stderr(), "{}", line(view));
            }
            Self::Json { next } if StdInstant::now() >= *next => {
                *next = StdInstant::now() + JSON_INTERVAL;
                json_line("progress", &Progress { view, eta_s: view.eta() });
            }
            Self::Lines { .. } | Self::Json { .. } | Self::Off => {}
        }
    }

    /// Prints the last view of a run. As JSON it is always due: before the summary, programs read the final
    /// counts here.
    pub fn finish(&mut self, view: &ProgressView) {
        if let Self::Json { next } = self {
            *next = StdInstant::now();
        }
        self.show(view);
    }

    /// Prints a message: above the bars, or in the dashboard.
    pub fn print_message(&self, text: &str) {
        match self {
            Self::Bars(bars) => drop(bars.all.println(text)),
            Self::Dashboard(dashboard) => dashboard.print_message(text),
            Self::Lines { .. } => drop(writeln!(io::stderr(), "{text}")),
            Self::Json { .. } => json_line("message", &serde_json::json!({ "text": text })),
            Self::Off => {}
        }
    }

    /// Removes the bars or the dashboard from the terminal.
    pub fn close(self) {
        if let Self::Bars(bars) = self {
            let _ = bars.all.clear();
        }
    }
}

/// The content of a `progress` object.
#[derive(Serialize)]
struct Progress<'a> {
    #[serde(flatten)]
    view: &'a ProgressView,
    eta_s: Option<f64>,
}

/// Prints a JSON object with this `kind` to standard output. Write errors, such as a closed pipe, are
/// ignored.
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

impl Bars {
    fn new() -> Self {
        let all = MultiProgress::new();
        let rows = all.add(ProgressBar::new(0));
        rows.set_style(style("{elapsed_precise} [{bar:32}] {msg}"));
        Self { all, rows, details: Vec::new() }
    }

    fn show(&mut self, view: &ProgressView) {
        self.rows.set_length(view.rows_total);
        self.rows.set_position(view.rows_done);
        let mut message = vec![view.rows_text()];
        if view.rows_dropped > 0 {
            message.push(format!("{} dropped", view.rows_dropped));
        }
        message.extend(view.eta().map(|eta| format!("about {} left", format_seconds(eta))));
        message.extend(view.wait().map(str::to_string));
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

/// Creates a bar style. An invalid template falls back to the default style, since it only affects the looks.
fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=> ")
}

fn provider_text(provider: &ProviderView, elapsed: f64) -> String {
    let ProviderView {
        label, in_flight, limit, waiting, answered, rate_limited, cooling_down, outage, batches, ..
    } = provider;
    let rate = provider.rate(elapsed);
    let mut text =
        format!("{label}: {in_flight}/{limit} in flight, {waiting} waiting, {answered} answered ({rate:.1}/s)");
    if *rate_limited > 0 {
        let _ = write!(text, ", {rate_limited} x 429");
    }
    if *cooling_down {
        text.push_str(", cooling down");
    }
    for state in batches.iter().chain(outage) {
        let _ = write!(text, ", {state}");
    }
    text
}

fn column_text(column: &ColumnView) -> String {
    let ColumnView { name, total, done, in_work } = column;
    format!("{name}: {done}/{total} done, {in_work} in progress")
}

/// Formats a view as one line.
fn line(view: &ProgressView) -> String {
    let mut text = view.rows_text();
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
    if let Some(wait) = view.wait() {
        let _ = write!(text, " | {wait}");
    }
    text
}

#[cfg(test)]
mod tests {
    use tidegate_core::request::HealthState;
    use tidegate_core::time::{Duration, Instant};

    use super::*;
    use crate::app::report::progress_view::{AcceptedView, TogetherView, outage_text};

    fn view() -> ProgressView {
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
        ProgressView {
            rows_done: 12,
            rows_dropped: 1,
            rows_total: 240,
            elapsed: 4.0,
            columns: vec![ColumnView { name: "title".to_string(), total: 240, done: 24, in_work: 5 }],
            providers: vec![provider, pressed],
            ..ProgressView::default()
        }
    }

    #[test]
    fn lines_and_the_bar_show_no_causes_of_idle_time() {
        let lines = ProgressReporter::Lines { next: StdInstant::now() };
        assert!(!lines.shows_idle() && !ProgressReporter::new(true, false).shows_idle());
        assert!(ProgressReporter::new(false, true).shows_idle());
    }

    #[test]
    fn a_line_has_the_rows_and_every_provider() {
        assert_eq!(
            line(&view()),
            "12/240 rows, 1 dropped | mock/a: 3/8 in flight, 0 waiting, 40 answered (10.0/s) \
             | mock/b: 0/0 in flight, 2 waiting, 0 answered (0.0/s), 5 x 429, cooling down | about 36.0 s left"
        );
    }

    #[test]
    fn an_outage_is_shown_with_its_duration_the_next_probe_and_the_error() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let mut view = view();
        let down = HealthState::Down { since: at(1_000), probe_at: at(5_500) };
        view.providers[0].outage = outage_text(down, at(4_000), Some("no connection"));
        let expected = "(10.0/s), down for 3.0 s, next probe in 1.5 s: no connection |";
        assert!(line(&view).contains(expected), "{}", line(&view));
        assert_eq!(outage_text(HealthState::Healthy, at(0), None), None);
    }

    #[test]
    fn the_remaining_time_is_estimated_once_enough_tasks_have_finished() {
        assert_eq!(view().eta(), Some(36.0));
        let together = |waits_for_others| ProgressView { together: Some(TogetherView { waits_for_others }), ..view() };
        assert_eq!(together(false).eta(), None, "others make some of the rows");
        assert!(
            !line(&together(false)).contains("wait for")
                && line(&together(true)).ends_with(" | waits for row groups of other processes")
        );
        let mut early = view();
        early.columns[0].done = 3;
        assert_eq!(early.eta(), None);
    }

    #[test]
    fn the_remaining_time_of_a_run_that_accepts_rows_is_that_of_the_rows_and_not_of_all_candidates() {
        let accepted = |rows| Some(AcceptedView { rows, before: 2, wanted: 10 });
        let view = |rows| ProgressView { accepted: accepted(rows), ..view() };
        assert_eq!(view(6).eta(), Some(4.0), "four rows took 4 s, and four are left");
        assert_eq!(view(2).eta(), None, "none was accepted in this run");
        assert!(line(&view(6)).starts_with("12/240 candidates, 6 of 10 accepted, 1 dropped | "));
    }

    #[test]
    fn each_provider_and_each_column_has_a_bar() {
        let mut bars = Bars::new();
        bars.all.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        bars.show(&view());
        bars.show(&view());
        assert_eq!(bars.details.len(), 3);
        assert_eq!(bars.details[2].message(), "title: 24/240 done, 5 in progress");
    }
}
