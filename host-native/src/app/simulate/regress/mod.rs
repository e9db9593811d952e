//! `tidegate regress`: the idle suite, its checks, its baseline and its report; and the control suite with its page.
//!
//! Every figure of the suite is an integer and a function of the code alone, so a [baseline](Baseline) is compared exactly:
//! any change of any figure is a difference to be read, and either a fault or a new baseline.

mod baseline;
pub mod control;
mod html;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use tidegate_core::sim::suite::idle::{self, CaseFigures, IdleCase, TargetCheck};
use tidegate_core::sim::world::World;
use tidegate_core::time::Duration;

use super::args::{RegressArgs, SuiteName};
use crate::app::error::{Error, Exit};
use crate::app::output::{FilePlace, open_all};
use crate::app::render::table::{format_seconds, row, write_table};
use crate::app::report::progress::{ColumnView, REFRESH, Screen, View};

pub use baseline::{Baseline, Difference};
pub use html::page;

/// What a run of the suite came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The cases.
    pub cases: Vec<IdleCase>,
    /// Their figures, each in its place.
    pub figures: Vec<CaseFigures>,
    /// What had to hold of them.
    pub checks: Vec<TargetCheck>,
    /// How long it took.
    pub took: StdDuration,
}

/// Carries the command out: what to print, and how to end.
pub fn regress(args: &RegressArgs) -> Result<(String, Exit), Error> {
    if args.suite == SuiteName::Control {
        return regress_control(args);
    }
    if args.drawn.is_some() || args.from.is_some() {
        return Err(Error::Setting(
            "`--drawn` and `--from` are of the control suite: add `--suite control`".to_string(),
        ));
    }
    let files = [("--update-baseline", &args.update_baseline), ("--report", &args.report)];
    let files = files.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?)));
    // They are written at the end, and made then.
    open_all(files, &[])?.into_iter().for_each(FilePlace::give_up);
    // A baseline that cannot be read is told before anything is run.
    let baseline = args.baseline.as_deref().map(Baseline::load).transpose()?;
    let cases = if args.quick { idle::quick_cases() } else { idle::cases() };
    let outcome = run(cases, Screen::new(!io::stderr().is_terminal(), false))?;
    let mut text = outcome.to_string();
    let mut fails = outcome.missed() > 0;
    if let Some(baseline) = baseline {
        let differences = baseline.compare(&outcome.figures, !args.quick);
        text += &baseline::in_words(&differences);
        fails |= !differences.is_empty();
    }
    if let Some(path) = &args.update_baseline {
        write(path, &Baseline::of(&outcome.figures).to_json()?)?;
    }
    if let Some(path) = &args.report {
        write(path, &page(&outcome))?;
    }
    Ok((text, if fails { Exit::ChecksFailed } else { Exit::Done }))
}

/// Drawn providers of the control suite unless it is told how many: four of each kind on average.
const DRAWN_PROVIDERS: u64 = 68;

/// The control suite: its tables and its page. It has neither targets nor a baseline; `docs/control.md` is held to it by a test.
fn regress_control(args: &RegressArgs) -> Result<(String, Exit), Error> {
    let other = [
        ("--quick", args.quick),
        ("--baseline", args.baseline.is_some()),
        ("--update-baseline", args.update_baseline.is_some()),
    ];
    if let Some((flag, _)) = other.iter().find(|(_, is_given)| *is_given) {
        return Err(Error::Setting(format!("`{flag}` is of the idle suite")));
    }
    let (from, count) = (args.from.unwrap_or(0), args.drawn.unwrap_or(DRAWN_PROVIDERS));
    let screen = Screen::new(!io::stderr().is_terminal(), false);
    let outcome = control::run(from, count, args.report.is_some(), screen)?;
    if let Some(path) = &args.report {
        write(path, &control::page(&outcome))?;
    }
    Ok((outcome.to_string(), Exit::Done))
}

/// Runs these cases, one after another.
pub fn run(cases: Vec<IdleCase>, mut screen: Screen) -> Result<Outcome, Error> {
    let started = StdInstant::now();
    let mut shown = started;
    let mut figures = Vec::with_capacity(cases.len());
    for case in &cases {
        let measured = idle::measure_with(case, |world| {
            if shown.elapsed() >= REFRESH {
                shown = StdInstant::now();
                screen.show(&view(case, world));
            }
        });
        figures.push(measured.map_err(|error| Error::Internal(format!("{}: {error}", case.name())))?);
    }
    screen.close();
    let checks = idle::judge(&cases, &figures);
    Ok(Outcome { cases, figures, checks, took: started.elapsed() })
}

fn view(case: &IdleCase, world: &World) -> View {
    let sample = world.sample();
    let (name, done, total) = (case.name().to_string(), sample.rows_done, sample.rows_total);
    let column = ColumnView { name, total, done, ..ColumnView::default() };
    View {
        rows_done: sample.rows_done,
        rows_dropped: sample.rows_dropped,
        rows_total: sample.rows_total,
        columns: vec![column],
        ..View::default()
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|error| Error::Setting(format!("cannot write {}: {error}", path.display())))
}

impl Outcome {
    /// Checks that do not hold.
    #[must_use]
    pub fn missed(&self) -> usize {
        self.checks.iter().filter(|check| !check.holds).count()
    }

    /// How many checks of a case hold, and how many there are.
    fn checks_of(&self, case: &str) -> (usize, usize) {
        let checks = self.checks.iter().filter(|check| check.case == case);
        checks.fold((0, 0), |(held, all), check| (held + usize::from(check.holds), all + 1))
    }

    /// A line for each case, under the titles.
    fn table(&self) -> Vec<Vec<String>> {
        let mut table = vec![row(TITLES)];
        table.extend(self.figures.iter().map(|figures| self.line(figures)));
        table
    }

    fn line(&self, figures: &CaseFigures) -> Vec<String> {
        let main = figures.main();
        let (held, all) = self.checks_of(&figures.name);
        vec![
            figures.name.clone(),
            main.name.clone(),
            nanos(figures.wall_ns),
            nanos(figures.bound_ns),
            ratio(figures.ratio_ppm()),
            percent(main.utilisation_ppm()),
            percent(main.starved_ppm()),
            percent(main.frontier_ppm()),
            nanos(figures.queue_age_p95_ns),
            nanos(figures.gap_p95_ns),
            figures.advisory_skips.to_string(),
            figures.yields.to_string(),
            format!("{held}/{all}"),
        ]
    }
}

const TITLES: [&str; 13] = [
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

impl fmt::Display for Outcome {
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
        let (cases, checks, missed) = (self.cases.len(), self.checks.len(), self.missed());
        writeln!(f, "\n{cases} cases, {checks} checks, {missed} missed, in {}", format_seconds(self.took.as_secs_f64()))
    }
}

fn nanos(nanos: u64) -> String {
    Duration::from_nanos(nanos).to_string()
}

fn percent(ppm: u32) -> String {
    format!("{:.1} %", f64::from(ppm) / 1e4)
}

fn ratio(ppm: u64) -> String {
    format!("{:.3}", ppm as f64 / 1e6)
}
