//! The dashboard of `tidegate run --tui`: the state of a run on the whole terminal.
//!
//! It is drawn on standard error, so that the summary on standard output can be redirected. The terminal
//! keeps its signals: Ctrl-C winds the run down as it does without a dashboard. Messages, and those of
//! panics, appear in the dashboard and are printed once more when it closes.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _, Stderr, Write as _};
use std::panic;
use std::sync::Arc;

use parking_lot::Mutex;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::symbols::bar::NINE_LEVELS;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, LineGauge, Paragraph, Row, Table};
use ratatui::{Frame, Terminal};

use crate::app::render::table::{format_seconds, percent};
use crate::app::report::progress_view::{ColumnView, IdleView, ProgressView, ProviderView};

/// The number of messages that the dashboard keeps for its screen.
const MAX_MESSAGES: usize = 100;

/// The number of samples in the chart of answers per second, which is its width in characters.
const CHART_SAMPLES: usize = 16;

/// The time between two samples of the chart, in seconds.
const CHART_INTERVAL: f64 = 0.5;

/// The width of a bar, in characters.
const BAR_WIDTH: usize = 16;

/// The causes of idle time that are shown for a provider, largest first.
const SHOWN_CAUSES: usize = 3;

/// A dashboard on the terminal.
#[derive(Debug)]
pub struct Dashboard {
    terminal: Terminal<CrosstermBackend<Stderr>>,
    content: Content,
    messages: Messages,
    // Dropped last: leaves the dashboard's screen.
    _screen: ScreenGuard,
}

/// All messages, in the order in which they came.
type Messages = Arc<Mutex<Vec<String>>>;

impl Dashboard {
    /// Opens the dashboard.
    ///
    /// # Errors
    /// If standard error is not a terminal, or cannot be written to.
    pub fn open() -> io::Result<Self> {
        if !io::stderr().is_terminal() {
            return Err(io::Error::other(
                "standard error is not a terminal; use --json, --metrics or --report instead",
            ));
        }
        let messages = Messages::default();
        let screen = ScreenGuard::enter(Arc::clone(&messages))?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stderr()))?;
        Ok(Self { terminal, content: Content::default(), messages, _screen: screen })
    }

    /// Draws the state of the run.
    pub fn show(&mut self, view: &ProgressView) {
        self.content.sample(view);
        self.content.messages = {
            let messages = self.messages.lock();
            messages[messages.len().saturating_sub(MAX_MESSAGES)..].to_vec()
        };
        // A terminal that is gone must not stop the run.
        let _ = self.terminal.draw(|frame| self.content.draw(frame, view));
    }

    /// Adds a message.
    pub fn print_message(&self, text: &str) {
        self.messages.lock().push(text.to_string());
    }
}

/// Shows the dashboard's screen while it lives, and restores the terminal when it is dropped.
#[derive(Debug)]
struct ScreenGuard {
    messages: Messages,
    #[cfg(unix)]
    input: Option<rustix::termios::Termios>,
}

impl ScreenGuard {
    fn enter(messages: Messages) -> io::Result<Self> {
        execute!(io::stderr(), EnterAlternateScreen)?;
        let shown = Arc::clone(&messages);
        // On the dashboard's screen, the text of a panic would be overwritten, and lost when it closes.
        panic::set_hook(Box::new(move |panic| shown.lock().push(panic.to_string())));
        Ok(Self {
            messages,
            #[cfg(unix)]
            input: hide_input(),
        })
    }
}

impl Drop for ScreenGuard {
    fn drop(&mut self) {
        drop(panic::take_hook());
        #[cfg(unix)]
        if let Some(input) = &self.input {
            let _ = rustix::termios::tcsetattr(io::stdin(), rustix::termios::OptionalActions::Now, input);
        }
        let _ = execute!(io::stderr(), LeaveAlternateScreen, Show);
        for message in self.messages.lock().iter() {
            let _ = writeln!(io::stderr(), "{message}");
        }
    }
}

/// Turns off the echo of keys, which would spoil the dashboard. Keys that send signals still do. Returns the
/// settings to restore; `None` if standard input is not a terminal.
#[cfg(unix)]
fn hide_input() -> Option<rustix::termios::Termios> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let before = tcgetattr(io::stdin()).ok()?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
    tcsetattr(io::stdin(), OptionalActions::Now, &hidden).ok()?;
    Some(before)
}

/// What the dashboard shows beside the latest view.
#[derive(Debug, Default)]
struct Content {
    messages: Vec<String>,
    /// For each provider, its answers per second in the latest intervals.
    rates: Vec<VecDeque<f64>>,
    /// The time of the latest sample and the answers of each provider until then.
    sampled: (f64, Vec<u64>),
}

impl Content {
    /// Adds the rates since the latest sample, if one is due.
    fn sample(&mut self, view: &ProgressView) {
        let (at, answers) = &self.sampled;
        let span = view.elapsed - at;
        if span < CHART_INTERVAL {
            return;
        }
        self.rates.resize_with(view.providers.len(), VecDeque::new);
        for (index, (rates, provider)) in self.rates.iter_mut().zip(&view.providers).enumerate() {
            let before = answers.get(index).copied().unwrap_or_default();
            if rates.len() == CHART_SAMPLES {
                rates.pop_front();
            }
            rates.push_back(provider.answered.saturating_sub(before) as f64 / span);
        }
        self.sampled = (view.elapsed, view.providers.iter().map(|provider| provider.answered).collect());
    }

    fn draw(&self, frame: &mut Frame<'_>, view: &ProgressView) {
        let counts = [view.providers.len(), view.columns.len(), view.why_idle.len()];
        // Two lines of each block are its borders, and the providers have a line of titles.
        let wanted = [counts[0] + 3, counts[1] + 2, counts[2] + 2];
        let room = usize::from(frame.area().height).saturating_sub(4 + 4);
        let [providers, columns, idle] = fit(wanted, room).map(|height| Constraint::Length(height as u16));
        let areas = [Constraint::Length(4), providers, columns, idle, Constraint::Min(0)];
        let [header, providers, columns, idle, messages] = Layout::vertical(areas).areas(frame.area());
        draw_header(frame, header, view);
        self.draw_providers(frame, providers, view);
        draw_columns(frame, columns, &view.columns);
        draw_idle(frame, idle, &view.why_idle);
        self.draw_messages(frame, messages);
    }

    fn draw_providers(&self, frame: &mut Frame<'_>, area: Rect, view: &ProgressView) {
        let titles = ["model", "in flight", "", "waiting", "answers/s", "", "429s", "failed", "tokens", "state"];
        let row = |(index, provider): (usize, &ProviderView)| {
            let empty = VecDeque::new();
            provider_row(provider, self.rates.get(index).unwrap_or(&empty))
        };
        let rows = view.providers.iter().enumerate().map(row);
        let chart = Constraint::Length(CHART_SAMPLES as u16);
        let (number, bar) = (Constraint::Length(9), Constraint::Length(BAR_WIDTH as u16));
        let widths =
            [Constraint::Fill(2), bar, number, number, number, chart, number, number, number, Constraint::Fill(3)];
        let table = Table::new(rows, widths).header(Row::new(titles).dim()).block(Block::bordered().title("providers"));
        frame.render_widget(table, area);
    }

    fn draw_messages(&self, frame: &mut Frame<'_>, area: Rect) {
        let shown = usize::from(area.height).saturating_sub(2);
        let latest = &self.messages[self.messages.len().saturating_sub(shown)..];
        let lines: Vec<Line<'_>> = latest.iter().map(|message| Line::raw(message.as_str())).collect();
        frame.render_widget(Paragraph::new(lines).block(Block::bordered().title("messages")), area);
    }
}

/// Shortens the tallest blocks until all fit in `room` lines.
fn fit<const N: usize>(mut heights: [usize; N], room: usize) -> [usize; N] {
    while heights.iter().sum::<usize>() > room.max(N) {
        if let Some(tallest) = heights.iter_mut().max() {
            *tallest -= 1;
        }
    }
    heights
}

fn draw_header(frame: &mut Frame<'_>, area: Rect, view: &ProgressView) {
    let block = Block::bordered().title("tidegate run").title_bottom("Ctrl-C finishes the row groups in progress");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [rows, figures] = Layout::vertical([Constraint::Length(1), Constraint::Length(1)]).areas(inner);
    let ratio = if view.rows_total == 0 { 0.0 } else { view.rows_done as f64 / view.rows_total as f64 };
    let gauge =
        LineGauge::default().ratio(ratio.clamp(0.0, 1.0)).label(view.rows_text()).filled_style(Style::new().green());
    frame.render_widget(gauge, rows);
    let mut spans = vec![Span::raw(format!("{} elapsed", format_seconds(view.elapsed)))];
    spans.extend(view.eta().map(|eta| Span::raw(format!("   about {} left", format_seconds(eta)))));
    spans.extend(view.wait().map(|wait| Span::raw(format!("   {wait}"))));
    if view.rows_dropped > 0 {
        spans.push(Span::raw(format!("   {} dropped", view.rows_dropped)).red());
    }
    spans.extend(view.cost.as_ref().map(|cost| Span::raw(format!("   cost {cost}"))));
    frame.render_widget(Paragraph::new(Line::from(spans)), figures);
}

fn provider_row(provider: &ProviderView, rates: &VecDeque<f64>) -> Row<'static> {
    let ProviderView { label, in_flight, limit, waiting, rate_limited, failed, .. } = provider;
    let share = if *limit == 0 { 0.0 } else { f64::from(*in_flight) / f64::from(*limit) };
    let (state, color) = match (&provider.outage, provider.cooling_down) {
        (Some(outage), _) => (outage.clone(), Color::Red),
        (None, true) => ("cooling down".to_string(), Color::Yellow),
        (None, false) => (provider.batches.clone().unwrap_or_default(), Color::Reset),
    };
    let warn = |count: u64, color| Span::raw(count.to_string()).fg(if count > 0 { color } else { Color::Reset });
    let rate = rates.back().copied().unwrap_or_default();
    Row::new([
        Line::raw(label.clone()),
        Line::raw(bar(share)),
        Line::raw(format!("{in_flight}/{limit}")),
        Line::raw(waiting.to_string()),
        Line::raw(format!("{rate:.1}")),
        Line::raw(chart(rates)),
        Line::from(warn(*rate_limited, Color::Yellow)),
        Line::from(warn(*failed, Color::Red)),
        Line::raw(short(provider.input_tokens + provider.output_tokens)),
        Line::raw(state).fg(color),
    ])
}

fn draw_columns(frame: &mut Frame<'_>, area: Rect, columns: &[ColumnView]) {
    let row = |ColumnView { name, total, done, in_work }: &ColumnView| {
        let share = if *total == 0 { 1.0 } else { *done as f64 / *total as f64 };
        Row::new([name.clone(), bar(share), format!("{done}/{total}"), format!("{in_work} in progress")])
    };
    let bar = Constraint::Length(BAR_WIDTH as u16);
    let widths = [Constraint::Fill(2), bar, Constraint::Length(20), Constraint::Fill(3)];
    let table = Table::new(columns.iter().map(row), widths).block(Block::bordered().title("columns"));
    frame.render_widget(table, area);
}

fn draw_idle(frame: &mut Frame<'_>, area: Rect, why_idle: &[IdleView]) {
    let row = |IdleView { label, share, causes }: &IdleView| {
        let causes = causes.iter().take(SHOWN_CAUSES);
        let causes: Vec<_> = causes.map(|(cause, share)| format!("{} {cause}", percent(*share))).collect();
        Row::new([label.clone(), format!("{} idle", percent(*share)), causes.join(", ")])
    };
    let widths = [Constraint::Fill(2), Constraint::Length(BAR_WIDTH as u16), Constraint::Fill(5)];
    let table = Table::new(why_idle.iter().map(row), widths).block(Block::bordered().title("why slots are idle"));
    frame.render_widget(table, area);
}

/// Draws a fraction from 0 to 1 as a bar.
fn bar(fraction: f64) -> String {
    let filled = ((BAR_WIDTH as f64 * fraction).round() as usize).min(BAR_WIDTH);
    format!("{}{}", "█".repeat(filled), "░".repeat(BAR_WIDTH - filled))
}

/// Draws numbers as a chart, one character each, relative to the largest.
fn chart(numbers: &VecDeque<f64>) -> String {
    let levels = [
        NINE_LEVELS.empty,
        NINE_LEVELS.one_eighth,
        NINE_LEVELS.one_quarter,
        NINE_LEVELS.three_eighths,
        NINE_LEVELS.half,
        NINE_LEVELS.five_eighths,
        NINE_LEVELS.three_quarters,
        NINE_LEVELS.seven_eighths,
        NINE_LEVELS.full,
    ];
    let most = numbers.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    numbers.iter().map(|number| levels[(8.0 * number / most).round() as usize]).collect()
}

/// Formats a count with three digits at most and a unit: `950`, `12k`, `3M`.
fn short(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{}k", count / 1_000),
        _ => format!("{}M", count / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Cell;

    use super::*;

    fn view() -> ProgressView {
        let healthy = ProviderView {
            label: "mock/a".to_string(),
            in_flight: 4,
            limit: 8,
            answered: 40,
            input_tokens: 12_400,
            ..ProviderView::default()
        };
        let limited = ProviderView {
            label: "mock/b".to_string(),
            waiting: 2,
            rate_limited: 5,
            cooling_down: true,
            ..ProviderView::default()
        };
        let causes = vec![("a cooldown is in force".to_string(), 0.3), ("the run is ending".to_string(), 0.1)];
        ProgressView {
            rows_done: 12,
            rows_dropped: 1,
            rows_total: 240,
            elapsed: 4.0,
            cost: Some("1.50 of 5.00 USD".to_string()),
            columns: vec![ColumnView { name: "title".to_string(), total: 240, done: 120, in_work: 5 }],
            providers: vec![healthy, limited],
            why_idle: vec![IdleView { label: "mock/a".to_string(), share: 0.4, causes }],
            ..ProgressView::default()
        }
    }

    /// Draws the view and returns the lines of the screen.
    fn drawn(content: &Content, view: &ProgressView, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| content.draw(frame, view)).unwrap();
        let cells: Vec<_> = terminal.backend().buffer().content().iter().map(Cell::symbol).collect();
        cells.chunks(usize::from(width)).map(<[&str]>::concat).collect()
    }

    #[test]
    fn it_shows_rows_cost_providers_columns_idle_time_and_messages() {
        let mut content =
            Content { messages: vec!["the first".to_string(), "the last".to_string()], ..Content::default() };
        content.sample(&view());
        let screen = drawn(&content, &view(), 140, 24);
        let shows = |parts: &[&str]| {
            let shown = screen.iter().any(|line| parts.iter().all(|part| line.contains(part)));
            assert!(shown, "{parts:?} in one line of\n{}", screen.join("\n"));
        };
        shows(&["12/240 rows"]);
        shows(&["4.0 s elapsed", "about 4.0 s left", "1 dropped", "cost 1.50 of 5.00 USD"]);
        shows(&["mock/a", "████████░░░░░░░░", "4/8", "10.0", "█", "12k"]);
        shows(&["mock/b", "0/0", "2", "5", "cooling down"]);
        shows(&["title", "████████░░░░░░░░", "120/240", "5 in progress"]);
        shows(&["mock/a", "40.0 % idle", "30.0 % a cooldown is in force, 10.0 % the run is ending"]);
        shows(&["the last"]);
    }

    #[test]
    fn any_size_of_terminal_can_be_drawn() {
        let many = ProgressView {
            columns: vec![view().columns[0].clone(); 40],
            providers: vec![view().providers[0].clone(); 30],
            ..view()
        };
        for (width, height) in [(1, 1), (20, 6), (80, 24), (200, 60)] {
            assert_eq!(drawn(&Content::default(), &many, width, height).len(), usize::from(height));
        }
        let screen = drawn(&Content::default(), &many, 120, 24).join("\n");
        assert!(["rows", "mock/a", "title", "messages"].iter().all(|part| screen.contains(part)), "{screen}");
    }

    #[test]
    fn the_chart_has_the_answers_per_second_of_the_latest_intervals() {
        let mut content = Content::default();
        for step in 1..=100_u64 {
            let provider = ProviderView { answered: step * step, ..ProviderView::default() };
            let view = ProgressView {
                elapsed: step as f64 * CHART_INTERVAL,
                providers: vec![provider],
                ..ProgressView::default()
            };
            content.sample(&view);
        }
        let rates = &content.rates[0];
        assert_eq!((rates.len(), rates.back().copied()), (CHART_SAMPLES, Some(199.0 / CHART_INTERVAL)));
        assert!(chart(rates).ends_with('█') && !chart(rates).starts_with('█'), "{}", chart(rates));
    }
}
