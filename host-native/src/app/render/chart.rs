//! Charts over time as inline SVG.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::app::render::table::format_seconds;

/// How large a chart is unless it says otherwise.
const SIZE: (f64, f64) = (1_000.0, 180.0);
/// What is kept free for the labels, left, right, top and bottom.
const MARGIN: (f64, f64, f64, f64) = (48.0, 12.0, 10.0, 22.0);

/// How values become heights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Linear,
    /// By the logarithm of one more, so that there is a zero.
    Logarithmic,
}

/// One chart: things over time, which begins at 0.
#[derive(Debug)]
pub(crate) struct Chart<'a> {
    title: &'a str,
    seconds: f64,
    most: f64,
    size: (f64, f64),
    scale: Scale,
    body: Vec<Markup>,
    keys: Vec<(&'static str, String)>,
}

impl<'a> Chart<'a> {
    /// An empty chart of values from 0 to `most`.
    pub(crate) fn new(title: &'a str, seconds: f64, most: f64) -> Self {
        let (seconds, most) = (seconds.max(1e-3), most.max(1.0));
        Self { title, seconds, most, size: SIZE, scale: Scale::Linear, body: Vec::new(), keys: Vec::new() }
    }

    /// The same so wide and so high. Text is as large as ever, so that it can be read where a narrow chart is not scaled down.
    pub(crate) fn sized(self, width: f64, height: f64) -> Self {
        Self { size: (width, height), ..self }
    }

    /// The same with heights by the logarithm, up to the next power of ten.
    pub(crate) fn logarithmic(self) -> Self {
        let most = powers_of_ten().find(|power| *power >= self.most).unwrap_or(self.most);
        Self { scale: Scale::Logarithmic, most, ..self }
    }

    fn x(&self, at: f64) -> f64 {
        MARGIN.0 + (self.size.0 - MARGIN.0 - MARGIN.1) * (at / self.seconds).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        let height = self.size.1 - MARGIN.2 - MARGIN.3;
        let part = match self.scale {
            Scale::Linear => value / self.most,
            Scale::Logarithmic => value.ln_1p() / self.most.ln_1p(),
        };
        MARGIN.2 + height * (1.0 - part.clamp(0.0, 1.0))
    }

    /// The values that have a line and a label.
    fn grid(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => [0.0, 0.5, 1.0].map(|part| self.most * part).to_vec(),
            Scale::Logarithmic => {
                std::iter::once(0.0).chain(powers_of_ten().take_while(|it| *it <= self.most)).collect()
            }
        }
    }

    /// Shades a span of time.
    pub(crate) fn shade(&mut self, class: &'static str, what: &str, (from, until): (f64, f64)) {
        let (x, top) = (self.x(from), self.y(self.most));
        let (width, height) = (self.x(until) - x, self.y(0.0) - top);
        self.body.push(html! {
            rect class=(class) x=(coordinate(x)) y=(coordinate(top)) width=(coordinate(width)) height=(coordinate(height)) {}
        });
        self.key(class, what);
    }

    /// A line through points, with steps where the value changes.
    pub(crate) fn steps(&mut self, class: &'static str, what: &str, points: impl Iterator<Item = (f64, f64)>) {
        let mut path = String::new();
        for (at, value) in points {
            let (x, y) = (self.x(at), self.y(value));
            let _ = if path.is_empty() { write!(path, "M{x:.1} {y:.1}") } else { write!(path, "H{x:.1}V{y:.1}") };
        }
        self.body.push(html! { path class={ "line " (class) } d=(path) {} });
        self.key(class, what);
    }

    /// The same with what is under the line filled.
    pub(crate) fn area(&mut self, class: &'static str, what: &str, points: impl Iterator<Item = (f64, f64)>) {
        let base = self.y(0.0);
        let mut path = format!("M{:.1} {base:.1}", self.x(0.0));
        for (at, value) in points {
            let _ = write!(path, "H{:.1}V{:.1}", self.x(at), self.y(value));
        }
        let _ = write!(path, "V{base:.1}Z");
        self.body.push(html! { path class=(class) d=(path) {} });
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
            self.body.push(html! { path class={ "line " (class) } d=(ticks) {} });
            self.key(class, what);
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

    fn key(&mut self, class: &'static str, what: &str) {
        if self.keys.iter().all(|(_, known)| known != what) {
            self.keys.push((class, what.to_string()));
        }
    }

    /// Returns the chart with its title and its key.
    pub(crate) fn titled(&self) -> Markup {
        html! {
            h2 { (self.title) }
            p { @for (class, what) in &self.keys { span class={ "key " (class) } {} (what) } }
            (self.svg(self.title))
        }
    }

    /// Returns the chart alone, with `label` as its text alternative.
    pub(crate) fn svg(&self, label: &str) -> Markup {
        let (width, height) = self.size;
        let (left, right) = (self.x(0.0), self.x(self.seconds));
        html! {
            svg viewBox={ "0 0 " (width) " " (height) } role="img" aria-label=(label) {
                @for value in self.grid() {
                    @let y = self.y(value);
                    path class="grid" d={ "M" (coordinate(left)) " " (coordinate(y)) "H" (coordinate(right)) } {}
                    text class="quiet end" x=(coordinate(left - 6.0)) y=(coordinate(y + 4.0)) { (self.format_value(value)) }
                }
                @for part in &self.body { (part) }
                @for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
                    @let class = if part < 1.0 { "quiet" } else { "quiet end" };
                    text class=(class) x=(coordinate(self.x(self.seconds * part))) y=(coordinate(height - 6.0)) {
                        (format_seconds(self.seconds * part))
                    }
                }
            }
        }
    }
}

/// Formats a coordinate of the drawing with one decimal.
pub(crate) fn coordinate(value: f64) -> String {
    format!("{value:.1}")
}

fn powers_of_ten() -> impl Iterator<Item = f64> {
    (0..=12).map(|power| 10_f64.powi(power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logarithmic_chart_has_a_line_for_zero_and_for_each_power_of_ten_at_equal_distances_further_up() {
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
