//! The events of a run, for whoever wants to hear them.

use alloc::vec::Vec;

use super::World;
use crate::pipeline::event::{Interest, SchedulerEvent};
use crate::request::RequestAdmission;
use crate::request::event::{Interest as RequestInterest, RequestEvent};
use crate::sim::scenario::{Scenario, ScenarioError};

/// Listening to a run.
impl World {
    /// The same world with all its events made: [`World::heard`] takes them. `prepare` is called before anything begins, with
    /// the controller that the calls go through.
    pub fn listened(
        scenario: &Scenario,
        seed: u64,
        prepare: impl FnOnce(&RequestAdmission),
    ) -> Result<Self, ScenarioError> {
        let mut world = Self::at_rest(scenario, seed, None, None)?;
        world.pipeline.set_interest(Interest::ALL);
        world.admission.set_interest(world.now, RequestInterest::ALL);
        prepare(&world.admission);
        world.begin(scenario);
        Ok(world)
    }

    /// The events since the last call, each stream in its order. Take them after every [step](World::step): all of them are
    /// then of one instant.
    pub fn heard(&mut self) -> (Vec<RequestEvent>, Vec<SchedulerEvent>) {
        let Self { admission, pipeline, .. } = self;
        let requests = core::iter::from_fn(|| admission.poll_event());
        (requests.collect(), core::iter::from_fn(|| pipeline.poll_event()).collect())
    }
}
