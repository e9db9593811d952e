//! Charts over time as inline SVG.

use std::fmt::Write as _;

use crate::html::escaped;
use crate::table::format_seconds;

const WIDTH: f64 = 1_000.0;
const HEIGHT: f64 = 180.0;
/// What is kept free for the labels, left, right, top and bottom.
const MARGIN: (f64, f64, f64, f64) = (48.0, 12.0, 10.0, 22.0);

/// One chart: things over time, which begins at 0.
#[derive(Debug)]
pub(crate) struct Chart<'a> {
    title: &'a str,
    seconds: f64,
    most: f64,
    body: String,
    keys: Vec<(&'static str, String)>,
}

impl<'a> Chart<'a> {
    /// An empty chart of values from 0 to `most`.
    pub(crate) fn new(title: &'a str, seconds: f64, most: f64) -> Self {
        Self { title, seconds: seconds.max(1e-3), most: most.max(1.0), body: String::new(), keys: Vec::new() }
    }

    fn x(&self, at: f64) -> f64 {
        MARGIN.0 + (WIDTH - MARGIN.0 - MARGIN.1) * (at / self.seconds).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        let height = HEIGHT - MARGIN.2 - MARGIN.3;
        MARGIN.2 + height * (1.0 - (value / self.most).clamp(0.0, 1.0))
    }

    /// Shades a span of time.
    pub(crate) fn shade(&mut self, class: &'static str, what: &str, (from, until): (f64, f64)) {
        let (x, top) = (self.x(from), self.y(self.most));
        let (width, height) = (self.x(until) - x, self.y(0.0) - top);
        let _ = writeln!(
            self.body,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        );
        self.key(class, what);
    }

    /// A line through points, with steps where the value changes.
    pub(crate) fn steps(&mut self, class: &'static str, what: &str, points: impl Iterator<Item = (f64, f64)>) {
        let mut path = String::new();
        for (at, value) in points {
            let (x, y) = (self.x(at), self.y(value));
            let _ = if path.is_empty() { write!(path, "M{x:.1} {y:.1}") } else { write!(path, "H{x:.1}V{y:.1}") };
        }
        let _ = writeln!(self.body, "<path class=\"line {class}\" d=\"{path}\"/>");
        self.key(class, what);
    }

    /// The same with what is under the line filled.
    pub(crate) fn area(&mut self, class: &'static str, what: &str, points: impl Iterator<Item = (f64, f64)>) {
        let base = self.y(0.0);
        let mut path = format!("M{:.1} {base:.1}", self.x(0.0));
        for (at, value) in points {
            let _ = write!(path, "H{:.1}V{:.1}", self.x(at), self.y(value));
        }
        let _ = writeln!(self.body, "<path class=\"{class}\" d=\"{path}V{base:.1}Z\"/>");
        self.key(class, what);
    }

    /// Ticks at the bottom.
    pub(crate) fn marks(&mut self, class: &'static str, what: &str, at: impl Iterator<Item = f64>) {
        let base = self.y(0.0);
        let mut ticks = String::new();
        for at in at {
            let _ = write!(ticks, "M{:.1} {base:.1}v-9", self.x(at));
        }
        if !ticks.is_empty() {
            let _ = writeln!(self.body, "<path class=\"line {class}\" d=\"{ticks}\"/>");
            self.key(class, what);
        }
    }

    fn key(&mut self, class: &'static str, what: &str) {
        if self.keys.iter().all(|(_, known)| known != what) {
            self.keys.push((class, what.to_string()));
        }
    }

    /// Writes the chart with its title and its key.
    pub(crate) fn write(self, html: &mut String) {
        let _ = write!(html, "<h2>{}</h2>\n<p>", escaped(self.title));
        for (class, what) in &self.keys {
            let _ = write!(html, "<span class=\"key {class}\"></span>{}", escaped(what));
        }
        let label = escaped(self.title);
        let _ = writeln!(html, "</p>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\">");
        let (left, right) = (self.x(0.0), self.x(self.seconds));
        for part in [0.0, 0.5, 1.0] {
            let (y, value) = (self.y(self.most * part), self.most * part);
            let _ = writeln!(html, "<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>");
            let value = if value < 10.0 && value.fract() > 0.0 { format!("{value:.1}") } else { format!("{value:.0}") };
            let _ =
                writeln!(html, "<text class=\"quiet end\" x=\"{:.1}\" y=\"{:.1}\">{value}</text>", left - 6.0, y + 4.0);
        }
        html.push_str(&self.body);
        for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
            let (at, x) = (self.seconds * part, self.x(self.seconds * part));
            let class = if part < 1.0 { "quiet" } else { "quiet end" };
            let when = format_seconds(at);
            let _ = writeln!(html, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\">{when}</text>", HEIGHT - 6.0);
        }
        html.push_str("</svg>\n");
    }
}
