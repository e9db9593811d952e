//! Progress while a run goes on: live bars on a terminal, a plain line now and then when piped, or nothing.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// How often a terminal is redrawn, and the view is asked for.
pub const REFRESH: StdDuration = StdDuration::from_millis(120);

/// How often a line is printed when nobody watches.
const LINE_EVERY: StdDuration = StdDuration::from_secs(2);

/// What there is to see at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Rows finished and written, or about to be.
    pub rows_done: u64,
    /// Rows dropped.
    pub rows_dropped: u64,
    /// Rows of the dataset.
    pub rows_total: u64,
    /// Each generated column with its tasks done.
    pub columns: Vec<(String, u64)>,
    /// Each provider.
    pub providers: Vec<ProviderView>,
}

/// What there is to see of one provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Bars on a terminal, lines elsewhere, nothing when `quiet`.
    #[must_use]
    pub fn new(quiet: bool) -> Self {
        if quiet {
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
            Self::Lines { .. } | Self::Off => {}
        }
    }

    /// Says something once, above the bars if there are any.
    pub fn say(&self, text: &str) {
        match self {
            Self::Bars(bars) => drop(bars.all.println(text)),
            Self::Lines { .. } => drop(writeln!(io::stderr(), "{text}")),
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
        self.rows.set_message(match view.rows_dropped {
            0 => String::new(),
            dropped => format!("{dropped} dropped"),
        });
        let details = view.providers.iter().map(provider_text).chain([columns_text(view)]);
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

fn provider_text(provider: &ProviderView) -> String {
    let ProviderView { label, in_flight, limit, waiting, answered, rate_limited, cooling_down } = provider;
    let mut text = format!("{label}: {in_flight}/{limit} in flight, {waiting} waiting, {answered} answered");
    if *rate_limited > 0 {
        let _ = write!(text, ", {rate_limited} x 429");
    }
    if *cooling_down {
        text.push_str(", cooling down");
    }
    text
}

fn columns_text(view: &View) -> String {
    let columns: Vec<String> = view.columns.iter().map(|(name, done)| format!("{name} {done}")).collect();
    columns.join("  ")
}

/// All of a view in one line.
fn line(view: &View) -> String {
    let mut text = format!("{}/{} rows", view.rows_done, view.rows_total);
    if view.rows_dropped > 0 {
        let _ = write!(text, ", {} dropped", view.rows_dropped);
    }
    for provider in &view.providers {
        text.push_str(" | ");
        text.push_str(&provider_text(provider));
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
            columns: vec![("title".to_string(), 14)],
            providers: vec![provider, pressed],
        }
    }

    #[test]
    fn a_line_tells_rows_and_every_provider() {
        assert_eq!(
            line(&view()),
            "12/240 rows, 1 dropped | mock/a: 3/8 in flight, 0 waiting, 40 answered \
             | mock/b: 0/0 in flight, 2 waiting, 0 answered, 5 x 429, cooling down"
        );
    }

    #[test]
    fn bars_have_a_line_for_each_provider_and_one_for_the_columns() {
        let mut bars = Bars::new();
        bars.all.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        bars.show(&view());
        bars.show(&view());
        assert_eq!(bars.details.len(), 3);
        assert_eq!(bars.details[2].message(), "title 14");
    }
}
