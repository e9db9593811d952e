//! Charts as inline SVG: of values over time, and of bars beside each other.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::app::render::table::format_seconds;

/// The default width and height of a chart, in SVG units.
const DEFAULT_SIZE: (f64, f64) = (1_000.0, 180.0);
/// The margins for labels: left, right, top and bottom.
const MARGIN: (f64, f64, f64, f64) = (48.0, 12.0, 10.0, 22.0);

/// The scale of the vertical axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Linear,
    /// `ln(1 + value)`, so that 0 can be shown.
    Logarithmic,
}

/// A chart of values over time, from second 0.
#[derive(Debug)]
pub(crate) struct Chart<'a> {
    title: &'a str,
    seconds: f64,
    max: f64,
    size: (f64, f64),
    scale: Scale,
    body: Vec<Markup>,
    legend: Vec<(&'static str, String)>,
}

impl<'a> Chart<'a> {
    /// Creates an empty chart of `seconds` seconds, with values from 0 to `max`.
    pub(crate) fn new(title: &'a str, seconds: f64, max: f64) -> Self {
        let (seconds, max) = (seconds.max(1e-3), max.max(1.0));
        Self { title, seconds, max, size: DEFAULT_SIZE, scale: Scale::Linear, body: Vec::new(), legend: Vec::new() }
    }

    /// Sets the size of the chart. The font size is constant, so text stays readable in a narrow chart.
    pub(crate) fn sized(self, width: f64, height: f64) -> Self {
        Self { size: (width, height), ..self }
    }

    /// Makes the vertical axis logarithmic, up to the next power of ten.
    pub(crate) fn logarithmic(self) -> Self {
        let max = powers_of_ten().find(|power| *power >= self.max).unwrap_or(self.max);
        Self { scale: Scale::Logarithmic, max, ..self }
    }

    fn x(&self, at: f64) -> f64 {
        MARGIN.0 + (self.size.0 - MARGIN.0 - MARGIN.1) * (at / self.seconds).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        let height = self.size.1 - MARGIN.2 - MARGIN.3;
        let fraction = match self.scale {
            Scale::Linear => value / self.max,
            Scale::Logarithmic => value.ln_1p() / self.max.ln_1p(),
        };
        MARGIN.2 + height * (1.0 - fraction.clamp(0.0, 1.0))
    }

    /// Returns the values that have a grid line and a label.
    fn grid(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => [0.0, 0.5, 1.0].map(|fraction| self.max * fraction).to_vec(),
            Scale::Logarithmic => {
                std::iter::once(0.0).chain(powers_of_ten().take_while(|power| *power <= self.max)).collect()
            }
        }
    }

    /// Shades the time from one second to another.
    pub(crate) fn shade(&mut self, class: &'static str, label: &str, (from, until): (f64, f64)) {
        let (x, top) = (self.x(from), self.y(self.max));
        self.body.push(bar(class, (x, top), (self.x(until) - x, self.y(0.0) - top)));
        self.add_to_legend(class, label);
    }

    /// Draws a step line through the points.
    pub(crate) fn steps(&mut self, class: &'static str, label: &str, points: impl Iterator<Item = (f64, f64)>) {
        let mut path = String::new();
        for (at, value) in points {
            let (x, y) = (self.x(at), self.y(value));
            let _ = if path.is_empty() { write!(path, "M{x:.1} {y:.1}") } else { write!(path, "H{x:.1}V{y:.1}") };
        }
        self.body.push(html! { path class={ "line " (class) } d=(path) {} });
        self.add_to_legend(class, label);
    }

    /// Draws the filled area under a step line.
    pub(crate) fn area(&mut self, class: &'static str, label: &str, points: impl Iterator<Item = (f64, f64)>) {
        let base = self.y(0.0);
        let mut path = format!("M{:.1} {base:.1}", self.x(0.0));
        for (at, value) in points {
            let _ = write!(path, "H{:.1}V{:.1}", self.x(at), self.y(value));
        }
        let _ = write!(path, "V{base:.1}Z");
        self.body.push(html! { path class=(class) d=(path) {} });
        self.add_to_legend(class, label);
    }

    /// Draws ticks on the time axis. Adds no legend entry if there are none.
    pub(crate) fn marks(&mut self, class: &'static str, label: &str, at: impl Iterator<Item = f64>) {
        let base = self.y(0.0);
        let mut ticks = String::new();
        for at in at {
            let _ = write!(ticks, "M{:.1} {base:.1}v-9", self.x(at));
        }
        if !ticks.is_empty() {
            self.body.push(html! { path class={ "line " (class) } d=(ticks) {} });
            self.add_to_legend(class, label);
        }
    }

    fn format_value(&self, value: f64) -> String {
        match self.scale {
            Scale::Linear if value < 10.0 && value.fract() > 0.0 => format!("{value:.1}"),
            Scale::Logarithmic if value >= 1e6 => format!("{:.0}M", value / 1e6),
            Scale::Logarithmic if value >= 1e4 => format!("{:.0}k", value / 1e3),
            _ => format!("{value:.0}"),
        }
    }

    fn add_to_legend(&mut self, class: &'static str, label: &str) {
        if self.legend.iter().all(|(_, known)| known != label) {
            self.legend.push((class, label.to_string()));
        }
    }

    /// Returns the chart with its title and its key.
    pub(crate) fn titled(&self) -> Markup {
        html! {
            h2 { (self.title) }
            p { @for (class, what) in &self.legend { span class={ "key " (class) } {} (what) } }
            (self.svg(self.title))
        }
    }

    /// Returns the chart alone, with `label` as its text alternative.
    pub(crate) fn svg(&self, label: &str) -> Markup {
        let (left, right) = (self.x(0.0), self.x(self.seconds));
        let body = html! {
            @for value in self.grid() {
                @let y = self.y(value);
                path class="grid" d={ "M" (coordinate(left)) " " (coordinate(y)) "H" (coordinate(right)) } {}
                (text("quiet end", (left - 6.0, y + 4.0), &self.format_value(value)))
            }
            @for part in &self.body { (part) }
            @for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
                @let class = if part < 1.0 { "quiet" } else { "quiet end" };
                (text(class, (self.x(self.seconds * part), self.size.1 - 6.0), &format_seconds(self.seconds * part)))
            }
        };
        drawing(self.size, label, &body)
    }
}

/// Returns a drawing of this width and height, with `label` as its text alternative.
pub(crate) fn drawing((width, height): (f64, f64), label: &str, body: &Markup) -> Markup {
    html! { svg viewBox={ "0 0 " (width) " " (height) } role="img" aria-label=(label) { (body) } }
}

/// Returns a bar with its upper left corner at a point, of this width and height. Draws nothing without a
/// width.
pub(crate) fn bar(class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) -> Markup {
    html! {
        @if width > 0.0 {
            rect class=(class) x=(coordinate(x)) y=(coordinate(y)) width=(coordinate(width)) height=(coordinate(height)) {}
        }
    }
}

/// Returns a text that begins at a point, or ends there with the class `end`.
pub(crate) fn text(class: &str, (x, y): (f64, f64), text: &str) -> Markup {
    html! { text class=[Some(class).filter(|class| !class.is_empty())] x=(coordinate(x)) y=(coordinate(y)) { (text) } }
}

/// Formats a coordinate of the drawing with one decimal.
fn coordinate(value: f64) -> String {
    format!("{value:.1}")
}

fn powers_of_ten() -> impl Iterator<Item = f64> {
    (0..=12).map(|power| 10_f64.powi(power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logarithmic_chart_has_grid_lines_at_zero_and_at_each_power_of_ten() {
        let mut chart = Chart::new("refused", 10.0, 20_000.0).sized(400.0, 132.0).logarithmic();
        chart.steps("line", "refused", [(0.0, 0.0), (5.0, 100_000.0)].into_iter());
        assert_eq!(chart.grid(), [0.0, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5]);
        assert!((chart.y(0.0) - 110.0).abs() < 1e-9 && (chart.y(1e5) - 10.0).abs() < 1e-9);
        assert!((chart.y(1e3) - chart.y(1e4) - (chart.y(1e4) - chart.y(1e5))).abs() < 0.1);
        let svg = chart.svg("\"so\" many").into_string();
        assert!(svg.contains("viewBox=\"0 0 400 132\"") && svg.contains(">100k</text>"), "{svg}");
        assert!(svg.contains("aria-label=\"&quot;so&quot; many\""), "{svg}");
    }
}
