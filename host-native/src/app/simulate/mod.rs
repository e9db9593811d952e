//! `tidegate simulate`: runs a scenario in virtual time, checks every invariant and reports where time went.
//!
//! The real scheduler runs against mock providers. The cost of a run depends on its number of events, not on
//! its virtual duration. Equal seeds give equal runs, with equal digests, on every machine.

pub mod args;
pub(crate) mod file;
pub mod regress;
mod report;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_schema;

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Instant as StdInstant;

use tidegate_core::pipeline::PolicyChoice;
use tidegate_core::sim::report::Report;
use tidegate_core::sim::scenario::{Scenario, ScenarioError};
use tidegate_core::sim::suite;
use tidegate_core::sim::world::World;

use crate::app::config::pipeline::{FileError, SourceText};
use crate::app::error::{Error, Exit};
use crate::app::output::{OutputError, open_all};
use crate::app::report::progress::{ProgressReporter, REFRESH};
use crate::app::report::progress_view::ProgressView;
use crate::observe::perfetto::PerfettoSink;
use args::{PolicyName, SimulateArgs};
use file::{dump, load};
use report::{TextReport, to_json};

pub use file::{ModelProviders, parse_providers, schema};

/// Simulation steps between two reads of the real clock, so that progress costs nothing per step.
const STEPS_PER_CLOCK_READ: u32 = 1 << 12;

/// Executes the command. Returns the text to print and the exit status.
pub fn simulate(args: &SimulateArgs) -> Result<(String, Exit), Error> {
    if args.list {
        return Ok((list_scenarios(), Exit::Done));
    }
    let mut scenario = find_scenario(args.scenario.as_deref().unwrap_or_default())?;
    apply_overrides(&mut scenario, args)?;
    if args.dump {
        return Ok((dump(&scenario)?, Exit::Done));
    }
    let screen = &mut ProgressReporter::new(!io::stderr().is_terminal(), false);
    let world = if let Some(path) = &args.trace {
        let read = args.scenario.as_deref().map(|name| ("SCENARIO", Path::new(name)));
        open_all([("--trace", path)], read.as_slice(), None)?;
        run_with_trace(path, &scenario, args.seed, screen)?
    } else {
        let world = World::accounted(&scenario, args.seed).map_err(scenario_error)?;
        let Ok(world) = run_to_end(world, screen, |_| Ok::<_, Infallible>(()));
        world
    };
    if world.finished().is_none() {
        return Err(Error::Internal(format!("{}: the simulation stopped before the run ended", scenario.name)));
    }
    let report = Report::of(&scenario, args.seed, &world).map_err(scenario_error)?;
    let text = if args.json { to_json(&report)? } else { TextReport(&report).to_string() };
    Ok((text, if report.violation.is_none() { Exit::Done } else { Exit::ChecksFailed }))
}

/// Returns all built-in scenarios: those of the playground, then the cases of the idle suite.
#[must_use]
pub fn builtin_scenarios() -> Vec<Scenario> {
    suite::scenarios().into_iter().map(|listed| listed.scenario).collect()
}

/// Returns a line for each built-in scenario, with its name and its title.
#[must_use]
pub fn list_scenarios() -> String {
    let all = builtin_scenarios();
    let width = all.iter().map(|scenario| scenario.name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for scenario in &all {
        let _ = writeln!(text, "{:<width$}  {}", scenario.name, scenario.title);
    }
    text
}

/// Finds a built-in scenario by its name, or else reads the scenario file at that path.
///
/// Fails if there is neither, or if the file is invalid.
pub fn find_scenario(name: &str) -> Result<Scenario, Error> {
    let mut all = builtin_scenarios();
    if let Some(place) = all.iter().position(|scenario| scenario.name == name) {
        return Ok(all.swap_remove(place));
    }
    if let Some(path) = scenario_path(name) {
        return Ok(load(path)?);
    }
    let unknown = FileError::about(name, "no built-in scenario has this name, and there is no such file");
    let unknown = unknown.expected("a name from `tidegate simulate --list`, or a TOML file");
    Err(unknown.suggest(name, all.iter().map(|scenario| scenario.name.as_str())).into())
}

/// Finds the models of a built-in scenario by its name, or else reads them from the file at that path.
///
/// The file is a scenario, or contains nothing but `[[models]]`.
pub fn find_providers(name: &str) -> Result<ModelProviders, Error> {
    let is_built_in = builtin_scenarios().iter().any(|scenario| scenario.name == name);
    match scenario_path(name).filter(|_| !is_built_in) {
        Some(path) => Ok(parse_providers(&SourceText::read(path)?)?),
        None => Ok(find_scenario(name)?.models.into_iter().map(|model| (model.name, model.provider)).collect()),
    }
}

/// Returns `name` as a path if there is such a file, or if it ends in `.toml`.
fn scenario_path(name: &str) -> Option<&Path> {
    let path = Path::new(name);
    let is_file = path.exists() || path.extension().is_some_and(|extension| extension == "toml");
    is_file.then_some(path)
}

/// Replaces settings of the scenario by those of the command line.
fn apply_overrides(scenario: &mut Scenario, args: &SimulateArgs) -> Result<(), Error> {
    match args.policy {
        // The scenario's settings of bounded borrowing are kept.
        Some(PolicyName::BoundedBorrow) if matches!(scenario.policy, PolicyChoice::BoundedBorrow(_)) => {}
        Some(PolicyName::BoundedBorrow) => scenario.policy = PolicyChoice::default(),
        Some(PolicyName::StrictFair) => scenario.policy = PolicyChoice::StrictFair,
        None => {}
    }
    let Some(name) = args.limit else { return Ok(()) };
    if scenario.models.is_empty() {
        return Err(Error::Setting(format!("`{}` has no model, so `--limit` has no effect", scenario.name)));
    }
    for model in &mut scenario.models {
        model.algorithm = name.with_defaults();
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes the error by value")]
fn scenario_error(error: ScenarioError) -> Error {
    Error::Setting(error.to_string())
}

/// Runs the scenario to its end and writes a trace of the run to `path`.
fn run_with_trace(path: &Path, scenario: &Scenario, seed: u64, screen: &mut ProgressReporter) -> Result<World, Error> {
    let unwritable = |source| OutputError::Io { path: path.to_owned(), source };
    let world = World::watched_with_events(scenario, seed).map_err(scenario_error)?;
    let plan = scenario.plan().map_err(scenario_error)?;
    let resources: Vec<_> = world.resources().collect();
    let mut file = PerfettoSink::create(path, &plan, &resources).map_err(unwritable)?;
    let world = run_to_end(world, screen, |world| world.feed(&mut file))
        .map_err(|error| unwritable(io::Error::other(error)))?;
    file.close().map_err(unwritable)?;
    Ok(world)
}

/// Runs the world to its end, with progress on `screen`. Calls `after_each` before the first step and after
/// every step.
fn run_to_end<E>(
    mut world: World,
    screen: &mut ProgressReporter,
    mut after_each: impl FnMut(&mut World) -> Result<(), E>,
) -> Result<World, E> {
    let (mut steps, mut shown) = (0_u32, StdInstant::now());
    after_each(&mut world)?;
    while world.step() {
        after_each(&mut world)?;
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(STEPS_PER_CLOCK_READ) && shown.elapsed() >= REFRESH {
            shown = StdInstant::now();
            screen.show(&progress_view(&world));
        }
    }
    std::mem::replace(screen, ProgressReporter::Off).close();
    Ok(world)
}

fn progress_view(world: &World) -> ProgressView {
    let sample = world.sample();
    ProgressView {
        rows_done: sample.rows_done,
        rows_dropped: sample.rows_dropped,
        rows_total: sample.rows_total,
        ..ProgressView::default()
    }
}
