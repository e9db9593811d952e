//! The idle suite: scenarios that measure whether capacity is ever idle without need.
//!
//! Every figure is an integer and a function of the code alone, so a [`Baseline`] is compared exactly.

mod baseline;
mod page;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use tidegate_core::sim::suite::idle::{self, CaseFigures, IdleCase, TargetCheck};
use tidegate_core::sim::world::World;
use tidegate_core::time::Duration;

use crate::app::error::Error;
use crate::app::render::table::{format_seconds, row, write_table};
use crate::app::report::progress::{ProgressReporter, REFRESH};
use crate::app::report::progress_view::{ColumnView, ProgressView};

pub use baseline::{Baseline, Difference, describe_differences};
pub use page::page;

/// The result of a run of the idle suite.
#[derive(Clone, Debug)]
pub struct IdleOutcome {
    /// The cases, in the order of the suite.
    pub cases: Vec<IdleCase>,
    /// The figures of the cases, with equal indices.
    pub figures: Vec<CaseFigures>,
    /// The checks of the figures against their targets.
    pub checks: Vec<TargetCheck>,
    /// The real duration of the run.
    pub took: StdDuration,
}

/// Runs the cases one after another and checks their figures. Shows progress on `screen`.
pub fn run(cases: Vec<IdleCase>, mut screen: ProgressReporter) -> Result<IdleOutcome, Error> {
    let started = StdInstant::now();
    let mut shown = started;
    let mut figures = Vec::with_capacity(cases.len());
    for case in &cases {
        let measured = idle::measure_with(case, |world| {
            if shown.elapsed() >= REFRESH {
                shown = StdInstant::now();
                screen.show(&progress_view(case, world));
            }
        });
        figures.push(measured.map_err(|error| Error::Internal(format!("{}: {error}", case.name())))?);
    }
    screen.close();
    let checks = idle::judge(&cases, &figures);
    Ok(IdleOutcome { cases, figures, checks, took: started.elapsed() })
}

fn progress_view(case: &IdleCase, world: &World) -> ProgressView {
    let sample = world.sample();
    let (name, done, total) = (case.name().to_string(), sample.rows_done, sample.rows_total);
    let column = ColumnView { name, total, done, ..ColumnView::default() };
    ProgressView {
        rows_done: sample.rows_done,
        rows_dropped: sample.rows_dropped,
        rows_total: sample.rows_total,
        columns: vec![column],
        ..ProgressView::default()
    }
}

impl IdleOutcome {
    /// Returns the number of checks that do not hold.
    #[must_use]
    pub fn missed_checks(&self) -> usize {
        self.checks.iter().filter(|check| !check.holds).count()
    }

    /// Returns how many checks of a case hold, and how many it has.
    fn check_counts(&self, case: &str) -> (usize, usize) {
        let checks = self.checks.iter().filter(|check| check.case == case);
        checks.fold((0, 0), |(held, all), check| (held + usize::from(check.holds), all + 1))
    }

    /// Returns a row of titles and a row for each case.
    fn table(&self) -> Vec<Vec<String>> {
        let mut table = vec![row(TABLE_TITLES)];
        table.extend(self.figures.iter().map(|figures| self.case_row(figures)));
        table
    }

    fn case_row(&self, figures: &CaseFigures) -> Vec<String> {
        let main = figures.main();
        let (held, all) = self.check_counts(&figures.name);
        vec![
            figures.name.clone(),
            main.name.clone(),
            format_nanos(figures.wall_ns),
            format_nanos(figures.bound_ns),
            format_ppm_ratio(figures.ratio_ppm()),
            format_ppm_percent(main.utilisation_ppm()),
            format_ppm_percent(main.starved_ppm()),
            format_ppm_percent(main.frontier_ppm()),
            format_nanos(figures.queue_age_p95_ns),
            format_nanos(figures.gap_p95_ns),
            figures.advisory_skips.to_string(),
            figures.yields.to_string(),
            format!("{held}/{all}"),
        ]
    }
}

const TABLE_TITLES: [&str; 13] = [
    "case",
    "resource",
    "wall",
    "bound",
    "ratio",
    "utilisation",
    "starved",
    "frontier",
    "queue age p95",
    "gap p95",
    "skips",
    "yields",
    "checks",
];

impl fmt::Display for IdleOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_table(f, &self.table(), 2)?;
        writeln!(
            f,
            "  wall: virtual time; bound: the least that any scheduler needs; ratio: wall / bound; utilisation, starved and"
        )?;
        writeln!(f, "  frontier: of the resource; queue age: from the queue to a worker; gap: from ready to a worker")?;
        for check in self.checks.iter().filter(|check| !check.holds) {
            writeln!(f, "\nmissed: {}: {}: {}", check.case, check.what, check.found)?;
        }
        let (cases, checks, missed) = (self.cases.len(), self.checks.len(), self.missed_checks());
        writeln!(f, "\n{cases} cases, {checks} checks, {missed} missed, in {}", format_seconds(self.took.as_secs_f64()))
    }
}

fn format_nanos(nanos: u64) -> String {
    Duration::from_nanos(nanos).to_string()
}

fn format_ppm_percent(ppm: u32) -> String {
    format!("{:.1} %", f64::from(ppm) / 1e4)
}

fn format_ppm_ratio(ppm: u64) -> String {
    format!("{:.3}", ppm as f64 / 1e6)
}
