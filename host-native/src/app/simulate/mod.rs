//! `tidegate simulate`: a scenario run in virtual time, judged by every law, and accounted for.
//!
//! What runs is the scheduler itself, against mock providers; a year takes as long as its events, and equal seeds give
//! equal runs on every machine, down to the digest.

pub mod args;
mod file;
pub mod regress;
mod report;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Instant as StdInstant;

use tidegate_core::pipeline::PolicyChoice;
use tidegate_core::sim::scenario::{Scenario, ScenarioError};
use tidegate_core::sim::suite;
use tidegate_core::sim::world::World;

use crate::app::config::pipeline::{FileError, SourceText};
use crate::app::error::{Error, Exit};
use crate::app::output::OutputError;
use crate::app::report::progress::{REFRESH, Screen, View};
use crate::observe::trace::TraceFile;
use args::{PolicyName, SimulateArgs};

pub use file::{Providers, dump, load, parse, parse_providers};
pub use report::{Text, to_json};
pub use tidegate_core::sim::report::{Report, SCHEMA};

/// Steps between two looks at the clock.
const LOOK_EVERY: u32 = 1 << 12;

/// Carries the command out: what to print, and how to end.
pub fn simulate(args: &SimulateArgs) -> Result<(String, Exit), Error> {
    if args.list {
        return Ok((list(), Exit::Done));
    }
    let mut scenario = find(args.scenario.as_deref().unwrap_or_default())?;
    set_up(&mut scenario, args)?;
    if args.dump {
        return Ok((dump(&scenario)?, Exit::Done));
    }
    let screen = &mut Screen::new(!io::stderr().is_terminal(), false);
    let world = if let Some(path) = &args.trace {
        traced(path, &scenario, args.seed, screen)?
    } else {
        let world = World::accounted(&scenario, args.seed).map_err(refused)?;
        let Ok(world) = run(world, screen, |_| Ok::<_, Infallible>(()));
        world
    };
    if world.finished().is_none() {
        return Err(Error::Internal(format!("{}: it stands still and has not ended", scenario.name)));
    }
    let report = Report::of(&scenario, args.seed, &world).map_err(refused)?;
    let text = if args.json { to_json(&report)? } else { Text(&report).to_string() };
    Ok((text, if report.violation.is_none() { Exit::Done } else { Exit::ChecksFailed }))
}

/// Every built-in scenario: those of the playground, then the cases of the idle suite.
#[must_use]
pub fn builtins() -> Vec<Scenario> {
    suite::scenarios().into_iter().map(|listed| listed.scenario).collect()
}

/// One line for each built-in scenario: its name and its title.
#[must_use]
pub fn list() -> String {
    let all = builtins();
    let width = all.iter().map(|scenario| scenario.name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for scenario in &all {
        let _ = writeln!(text, "{:<width$}  {}", scenario.name, scenario.title);
    }
    text
}

/// The built-in scenario of that name, or the one in that file.
pub fn find(name: &str) -> Result<Scenario, Error> {
    let mut all = builtins();
    if let Some(place) = all.iter().position(|scenario| scenario.name == name) {
        return Ok(all.swap_remove(place));
    }
    if let Some(path) = as_file(name) {
        return Ok(load(path)?);
    }
    let unknown = FileError::about(name, "no built-in scenario has this name, and there is no such file");
    let unknown = unknown.expected("a name from `tidegate simulate --list`, or a TOML file");
    Err(unknown.suggest(name, all.iter().map(|scenario| scenario.name.as_str())).into())
}

/// The providers of the built-in scenario of that name, or of that file: a scenario, or models alone.
pub fn find_providers(name: &str) -> Result<Providers, Error> {
    let is_built_in = builtins().iter().any(|scenario| scenario.name == name);
    match as_file(name).filter(|_| !is_built_in) {
        Some(path) => Ok(parse_providers(&SourceText::read(path)?)?),
        None => Ok(find(name)?.models.into_iter().map(|model| (model.name, model.provider)).collect()),
    }
}

/// The path, if the name is of a file or looks like one.
fn as_file(name: &str) -> Option<&Path> {
    let path = Path::new(name);
    let is_file = path.exists() || path.extension().is_some_and(|extension| extension == "toml");
    is_file.then_some(path)
}

/// Puts the settings of the command line in place of the scenario's.
fn set_up(scenario: &mut Scenario, args: &SimulateArgs) -> Result<(), Error> {
    match args.policy {
        // The scenario's own settings of bounded borrowing stay.
        Some(PolicyName::BoundedBorrow) if matches!(scenario.policy, PolicyChoice::BoundedBorrow(_)) => {}
        Some(PolicyName::BoundedBorrow) => scenario.policy = PolicyChoice::default(),
        Some(PolicyName::StrictFair) => scenario.policy = PolicyChoice::StrictFair,
        None => {}
    }
    let Some(name) = args.limit else { return Ok(()) };
    if scenario.models.is_empty() {
        return Err(Error::Setting(format!("`{}` has no model, so `--limit` has nothing to decide", scenario.name)));
    }
    for model in &mut scenario.models {
        model.algorithm = name.with_defaults(model.max_parallel);
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
fn refused(error: ScenarioError) -> Error {
    Error::Setting(error.to_string())
}

/// Runs to the end, and writes a trace of it to `path`.
fn traced(path: &Path, scenario: &Scenario, seed: u64, screen: &mut Screen) -> Result<World, Error> {
    let unwritable = |source| OutputError::Io { path: path.to_owned(), source };
    let world = World::watched_with_events(scenario, seed).map_err(refused)?;
    let plan = scenario.plan().map_err(refused)?;
    let resources: Vec<_> = world.resources().collect();
    let mut file = TraceFile::create(path, &plan, &resources).map_err(unwritable)?;
    let world =
        run(world, screen, |world| world.feed(&mut file)).map_err(|error| unwritable(io::Error::other(error)))?;
    file.end().map_err(unwritable)?;
    Ok(world)
}

/// Runs to the end, and calls `after_each` before the first step and after each.
fn run<E>(
    mut world: World,
    screen: &mut Screen,
    mut after_each: impl FnMut(&mut World) -> Result<(), E>,
) -> Result<World, E> {
    let (mut steps, mut shown) = (0_u32, StdInstant::now());
    after_each(&mut world)?;
    while world.step() {
        after_each(&mut world)?;
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(LOOK_EVERY) && shown.elapsed() >= REFRESH {
            shown = StdInstant::now();
            screen.show(&view(&world));
        }
    }
    std::mem::replace(screen, Screen::Off).close();
    Ok(world)
}

fn view(world: &World) -> View {
    let sample = world.sample();
    View {
        rows_done: sample.rows_done,
        rows_dropped: sample.rows_dropped,
        rows_total: sample.rows_total,
        ..View::default()
    }
}
