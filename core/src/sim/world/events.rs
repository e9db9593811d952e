//! The two event streams of a run, for callers that observe it.

use alloc::vec::Vec;

use super::World;
use crate::observe::trace::TracedResource;
use crate::observe::{Sink, SinkError};
use crate::pipeline::event::{SchedulerEvent, SchedulerInterest};
use crate::request::RequestAdmission;
use crate::request::event::{RequestEvent, RequestInterest};
use crate::sim::scenario::{Scenario, ScenarioError};

/// Observing a run.
impl World {
    /// Creates the world of a scenario that emits events of all kinds, for [`World::take_events`] and
    /// [`World::feed`]. `prepare` is called with the request admission of the run before anything starts.
    pub fn with_events(
        scenario: &Scenario,
        seed: u64,
        prepare: impl FnOnce(&RequestAdmission),
    ) -> Result<Self, ScenarioError> {
        let mut world = Self::unstarted(scenario, seed, None, None)?;
        world.pipeline.set_interest(SchedulerInterest::ALL);
        world.admission.set_interest(world.now, RequestInterest::ALL);
        prepare(&world.admission);
        world.begin(scenario);
        Ok(world)
    }

    /// Returns the request resource of each model with the model's name, in the order of the scenario.
    pub fn resources(&self) -> impl Iterator<Item = TracedResource<'_>> {
        self.providers.iter().filter_map(|provider| {
            let model = self.admission.owner(provider.resource)?;
            Some(TracedResource { resource: provider.resource, model, name: &provider.name })
        })
    }

    /// Runs to the end and feeds all events to `sink`, up to its first error. Does not call
    /// [`Sink::finish`].
    pub fn run_feeding(&mut self, sink: &mut impl Sink) -> Result<(), SinkError> {
        self.feed(sink)?;
        while self.step() {
            self.feed(sink)?;
        }
        Ok(())
    }

    /// Feeds the events since the last call to `sink`, up to its first error. Call it after every
    /// [step](World::step), so that the two streams stay in order.
    pub fn feed(&mut self, sink: &mut impl Sink) -> Result<(), SinkError> {
        let (requests, scheduler) = self.take_events();
        requests.iter().try_for_each(|event| sink.on_request(event))?;
        scheduler.iter().try_for_each(|event| sink.on_scheduler(event))
    }

    /// Returns the events since the last call, each stream in its order. Call it after every
    /// [step](World::step), so that all of them are of one instant. Empty in a world that was not created
    /// with [`World::with_events`] or [`World::watched_with_events`].
    pub fn take_events(&mut self) -> (Vec<RequestEvent>, Vec<SchedulerEvent>) {
        let Self { admission, pipeline, watch, .. } = self;
        if let Some(watch) = watch {
            return watch.take_events();
        }
        let requests = core::iter::from_fn(|| admission.poll_event());
        (requests.collect(), core::iter::from_fn(|| pipeline.poll_event()).collect())
    }
}
