//! `tidegate regress`: runs one of the two suites of simulated scenarios.
//!
//! The [`idle`] suite has checks and a baseline, and decides the exit status. The [`control`] suite compares
//! limit algorithms and always succeeds. Each prints a table and can write its results as an HTML page.

pub mod control;
pub mod idle;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::path::Path;

use tidegate_core::sim::suite::idle::{cases, quick_cases};

use self::idle::Baseline;
use super::args::{RegressArgs, SuiteName};
use crate::app::error::{Error, Exit};
use crate::app::output::{OutputFile, open_all};
use crate::app::report::progress::ProgressReporter;

/// Executes the command. Returns the text to print and the exit status.
pub fn regress(args: &RegressArgs) -> Result<(String, Exit), Error> {
    if args.suite == SuiteName::Control {
        return regress_control_suite(args);
    }
    if args.drawn.is_some() || args.from.is_some() {
        return Err(Error::Setting(
            "`--drawn` and `--from` belong to the control suite: add `--suite control`".to_string(),
        ));
    }
    let files = [("--update-baseline", &args.update_baseline), ("--report", &args.report)];
    let files = files.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?)));
    // They are written at the end.
    open_all(files, &[], None)?.into_iter().for_each(OutputFile::discard);
    // A baseline may be updated in place, but not become a page.
    let read = args.baseline.as_deref().map(|path| ("--baseline", path));
    let page = args.report.iter().map(|path| ("--report", path));
    open_all(page, read.as_slice(), None)?.into_iter().for_each(OutputFile::discard);
    // Read first, so that an invalid baseline is reported before minutes of work.
    let baseline = args.baseline.as_deref().map(Baseline::load).transpose()?;
    let cases = if args.quick { quick_cases() } else { cases() };
    let outcome = idle::run(cases, ProgressReporter::new(!io::stderr().is_terminal(), false))?;
    let mut text = outcome.to_string();
    let mut fails = outcome.missed_checks() > 0;
    if let Some(baseline) = baseline {
        let differences = baseline.compare(&outcome.figures, !args.quick);
        text += &idle::describe_differences(&differences);
        fails |= !differences.is_empty();
    }
    if let Some(path) = &args.update_baseline {
        write_file(path, &Baseline::new(&outcome.figures).to_json()?)?;
    }
    if let Some(path) = &args.report {
        write_file(path, &idle::page(&outcome))?;
    }
    Ok((text, if fails { Exit::ChecksFailed } else { Exit::Done }))
}

/// Number of drawn providers without `--drawn`: four of each kind on average.
const DEFAULT_DRAWN_PROVIDERS: u64 = 68;

/// Runs the control suite. It has neither checks nor a baseline; a test compares its figures with
/// `docs/control.md`.
fn regress_control_suite(args: &RegressArgs) -> Result<(String, Exit), Error> {
    let other = [
        ("--quick", args.quick),
        ("--baseline", args.baseline.is_some()),
        ("--update-baseline", args.update_baseline.is_some()),
    ];
    if let Some((flag, _)) = other.iter().find(|(_, is_given)| *is_given) {
        return Err(Error::Setting(format!("`{flag}` belongs to the idle suite")));
    }
    let (from, count) = (args.from.unwrap_or(0), args.drawn.unwrap_or(DEFAULT_DRAWN_PROVIDERS));
    let screen = ProgressReporter::new(!io::stderr().is_terminal(), false);
    let outcome = control::run(from, count, args.report.is_some(), screen)?;
    if let Some(path) = &args.report {
        write_file(path, &control::page(&outcome))?;
    }
    Ok((outcome.to_string(), Exit::Done))
}

fn write_file(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|error| Error::Setting(format!("cannot write {}: {error}", path.display())))
}
