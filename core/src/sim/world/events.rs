//! The events of a run, for whoever wants to hear them.

use alloc::vec::Vec;

use super::World;
use crate::observe::trace::TracedResource;
use crate::observe::{Sink, SinkError};
use crate::pipeline::event::{Interest, SchedulerEvent};
use crate::request::RequestAdmission;
use crate::request::event::{Interest as RequestInterest, RequestEvent};
use crate::sim::scenario::{Scenario, ScenarioError};

/// Listening to a run.
impl World {
    /// The same world with all its events made: [`World::take_events`] takes them. `prepare` is called before
    /// anything begins, with the controller that the calls go through.
    pub fn with_events(
        scenario: &Scenario,
        seed: u64,
        prepare: impl FnOnce(&RequestAdmission),
    ) -> Result<Self, ScenarioError> {
        let mut world = Self::unstarted(scenario, seed, None, None)?;
        world.pipeline.set_interest(Interest::ALL);
        world.admission.set_interest(world.now, RequestInterest::ALL);
        prepare(&world.admission);
        world.begin(scenario);
        Ok(world)
    }

    /// The request resource of each model, with the model's name, in the order of the scenario.
    pub fn resources(&self) -> impl Iterator<Item = TracedResource<'_>> {
        self.providers.iter().filter_map(|provider| {
            let model = self.admission.owner(provider.resource)?;
            Some(TracedResource { resource: provider.resource, model, name: &provider.name })
        })
    }

    /// Runs to the end and feeds all events to `sink`, up to its first error. It is not told to finish.
    pub fn run_feeding(&mut self, sink: &mut impl Sink) -> Result<(), SinkError> {
        self.feed(sink)?;
        while self.step() {
            self.feed(sink)?;
        }
        Ok(())
    }

    /// Feeds the events since the last call to `sink`, up to its first error. Do so after every
    /// [step](World::step): the two streams then go on together.
    pub fn feed(&mut self, sink: &mut impl Sink) -> Result<(), SinkError> {
        let (requests, scheduler) = self.take_events();
        requests.iter().try_for_each(|event| sink.on_request(event))?;
        scheduler.iter().try_for_each(|event| sink.on_scheduler(event))
    }

    /// The events since the last call, each stream in its order. Take them after every [step](World::step):
    /// all of them are then of one instant. None in a world that nobody [listens](World::with_events) to or
    /// [overhears](World::watched_with_events).
    pub fn take_events(&mut self) -> (Vec<RequestEvent>, Vec<SchedulerEvent>) {
        let Self { admission, pipeline, watch, .. } = self;
        if let Some(watch) = watch {
            return watch.take_events();
        }
        let requests = core::iter::from_fn(|| admission.poll_event());
        (requests.collect(), core::iter::from_fn(|| pipeline.poll_event()).collect())
    }
}
