//! The table: the [`Figures`] of all contenders on all cases, as one Markdown table per figure.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write as _;

use serde::Serialize;

use super::{Contender, ControlCase, Figures, Oracle, measure};
use crate::error::ConfigError;

/// The figures of every contender on every case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Table {
    /// The contenders' names.
    pub contenders: Vec<String>,
    /// The name of each case, the number of the oracle's answers, and the figures of each contender in the
    /// order of `contenders`.
    pub rows: Vec<(String, u64, Vec<Figures>)>,
}

/// A figure's title, its unit, and its formatter.
type Shown = (&'static str, &'static str, fn(&Figures) -> String);

const SHOWN: [Shown; 6] = [
    ("Goodput", "permille of the oracle's", |figures| figures.goodput_permille.to_string()),
    ("Refused", "permille of the calls sent", |figures| figures.refused_permille.to_string()),
    ("Start", "milliseconds to nine tenths of the oracle's goodput", |figures| millis(figures.start_ms)),
    ("Step", "milliseconds to nine tenths of it after the worst step", |figures| millis(figures.step_ms)),
    ("p95 latency", "permille of the oracle's", |figures| figures.p95_permille.to_string()),
    ("Jain's index of two equal tenants", "permille", |figures| figures.jain_permille.to_string()),
];

fn millis(span: Option<u64>) -> String {
    span.map_or_else(|| "-".to_string(), |span| span.to_string())
}

impl Table {
    /// Runs all contenders on all cases, with the same seed for each provider. Returns an error if a case or
    /// a contender's settings are invalid.
    pub fn of(cases: &[ControlCase], contenders: &[Contender], seed: u64) -> Result<Self, ConfigError> {
        let mut rows = Vec::new();
        for case in cases {
            let oracle = Oracle::of(case, seed)?;
            let figures = contenders.iter().map(|contender| measure(case, contender, &oracle));
            rows.push((case.name.clone(), oracle.answered(), figures.collect::<Result<_, _>>()?));
        }
        Ok(Self { contenders: contenders.iter().map(|contender| contender.name.clone()).collect(), rows })
    }

    /// Returns one Markdown table per figure. Rows without any value are left out, and so are figures without
    /// rows.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut page = String::new();
        for (title, unit, show) in SHOWN {
            let rows = self.rows.iter().map(|(case, _, figures)| {
                let cells: Vec<String> = figures.iter().map(show).collect();
                (case, cells)
            });
            let rows: Vec<_> = rows.filter(|(_, cells)| cells.iter().any(|cell| cell != "-")).collect();
            if rows.is_empty() {
                continue;
            }
            let _ = write!(page, "**{title}**, {unit}\n\n| case |");
            for name in &self.contenders {
                let _ = write!(page, " {name} |");
            }
            let _ = write!(page, "\n| --- |{}\n", " ---: |".repeat(self.contenders.len()));
            for (case, cells) in rows {
                let _ = writeln!(page, "| {case} | {} |", cells.join(" | "));
            }
            page.push('\n');
        }
        page
    }
}
