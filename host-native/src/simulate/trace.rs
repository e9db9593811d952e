//! The trace of a simulated run: the same run once more, listened to.

use std::path::Path;

use tidegate_core::sim::scenario::Scenario;
use tidegate_core::sim::world::World;

use crate::error::Error;
use crate::observe::trace::TraceFile;
use crate::output::OutputError;

/// Writes the trace of a scenario to `path`.
pub(super) fn write(path: &Path, scenario: &Scenario, seed: u64) -> Result<(), Error> {
    let refused = |error: &dyn std::fmt::Display| Error::Setting(error.to_string());
    let unwritable = |source| OutputError::Io { path: path.to_owned(), source };
    let plan = scenario.plan().map_err(|error| refused(&error))?;
    let mut ids = Vec::new();
    let world = World::listened(scenario, seed, |admission| ids = admission.resources().collect());
    let mut world = world.map_err(|error| refused(&error))?;
    let resources: Vec<_> = ids.into_iter().zip(&scenario.models).map(|(id, model)| (id, &*model.name)).collect();
    let mut file = TraceFile::create(path, &plan, &resources).map_err(unwritable)?;
    loop {
        let (requests, tasks) = world.heard();
        requests.iter().try_for_each(|event| file.request(event)).map_err(unwritable)?;
        tasks.iter().try_for_each(|event| file.scheduler(event)).map_err(unwritable)?;
        if !world.step() {
            break;
        }
    }
    Ok(file.end().map_err(unwritable)?)
}
