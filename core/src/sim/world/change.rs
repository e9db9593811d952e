//! Changes in the midst of a run: those that the scenario brings, and those that a person makes while it
//! runs.
//!
//! Both are the same: a change that is made while the run goes on is scheduled for the nanosecond after now,
//! and comes before everything else of that instant. A scenario with [all of them](World::changes) written in
//! gives the same run, decision for decision.

use core::cmp::Reverse;

use super::{Due, World};
use crate::error::ConfigError;
use crate::sim::scenario::{Change, Intervention, KnownNames, ScenarioError};
use crate::time::{Duration, Instant};

impl World {
    /// Changes something from the nanosecond after now on.
    ///
    /// # Errors
    /// What is out of range or not there; the error names the field as a file writes it. Nothing is changed
    /// then.
    pub fn change(&mut self, what: Intervention) -> Result<(), ScenarioError> {
        self.branch(what, self.now)
    }

    /// The same in place of what was to be changed up to `until`: for a run that was taken back from there,
    /// and now takes another way. Changes later than that were never reached, and stay.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn branch(&mut self, what: Intervention, until: Instant) -> Result<(), ScenarioError> {
        let at = Duration::from_nanos(self.now.as_nanos().saturating_add(1));
        let change = Change { at, what };
        self.check(&change)?;
        let (from, to) = (self.first_to_come(self.now), self.first_to_come(until));
        self.changes.drain(from..to.max(from));
        let place = self.changes.partition_point(|other| other.at <= at).max(self.changed);
        self.changes.insert(place, change);
        self.schedule_changes();
        Ok(())
    }

    /// All changes of the run in order of time: those that have come, and those that are to come.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The place of the first change later than `at` that has not come.
    fn first_to_come(&self, at: Instant) -> usize {
        self.changes.partition_point(|change| Instant::ZERO + change.at <= at).max(self.changed)
    }

    /// Carries out those of the beginning, and schedules the others.
    pub(super) fn begin_changes(&mut self) {
        while self.changes.get(self.changed).is_some_and(|change| change.at.is_zero()) {
            self.carry_out_change();
        }
        self.schedule_changes();
    }

    /// Puts the next change on the heap, in place of what was there of them. No other event has a number as
    /// low.
    fn schedule_changes(&mut self) {
        self.events.retain(|Reverse((_, _, due))| *due != Due::Change);
        if let Some(next) = self.changes.get(self.changed) {
            self.events.push(Reverse((Instant::ZERO + next.at, 0, Due::Change)));
        }
    }

    pub(super) fn carry_out_change(&mut self) {
        let Some(change) = self.changes.get(self.changed) else { return };
        let what = change.what.clone();
        self.changed += 1;
        // What was decided under the old settings is judged by them.
        self.observe();
        // It was checked, so that nothing is left to refuse.
        let carried_out = self.carry_out_intervention(&what);
        debug_assert_eq!(carried_out, Ok(()), "{what:?}");
        self.watch_calls_of(&what);
        if let Some(next) = self.changes.get(self.changed) {
            self.events.push(Reverse((Instant::ZERO + next.at, 0, Due::Change)));
        }
    }

    fn check(&self, change: &Change) -> Result<(), ConfigError> {
        change.validate(&KnownNames {
            models: &|name| self.providers.iter().any(|provider| provider.name == name),
            columns: &|name| self.pipeline.plan().columns().iter().any(|column| column.name == name),
            resources: &|name| self.pipeline.usage().any(|(known, _, _)| known == name),
        })
    }

    fn carry_out_intervention(&mut self, what: &Intervention) -> Result<(), ConfigError> {
        let now = self.now;
        match what {
            Intervention::Policy { policy } => {
                self.forward_pressure();
                return self.pipeline.set_policy(now, policy.clone());
            }
            Intervention::Weight { column, weight } => {
                self.forward_pressure();
                let column = self.pipeline.plan().column_id(column);
                let Some(column) = column else { return Ok(()) };
                if let Some(watch) = &mut self.watch {
                    watch.set_weight(now, column, *weight);
                }
                return self.pipeline.set_weight(now, column, *weight);
            }
            _ => {}
        }
        let named = |name| self.providers.iter().position(|provider| provider.name == name);
        let Some(place) = what.model().and_then(named) else { return Ok(()) };
        let Self { providers, admission, .. } = self;
        let provider = &mut providers[place];
        match what {
            Intervention::Capacity { slots: Some(slots), .. } => provider.machine.set_capacity(now, *slots),
            Intervention::Capacity { slots: None, .. } => provider.machine.clear_override(now),
            Intervention::Refuse { span, .. } => provider.machine.refuse_until(now, now + *span),
            Intervention::Slow { factor, span, .. } => provider.machine.slow_down_until(now, now + *span, *factor),
            Intervention::Algorithm { algorithm, .. } => {
                provider.algorithm = Some(*algorithm);
                admission.choose_algorithm(now, provider.resource, *algorithm)?;
            }
            Intervention::Request { request, .. } => admission.reconfigure(now, provider.resource, request.clone())?,
            Intervention::MaxParallel { calls, .. } => {
                provider.max_parallel = *calls;
                admission.register(now, &provider.owner, &provider.owner, &provider.alias, *calls)?;
            }
            Intervention::Policy { .. } | Intervention::Weight { .. } => {}
        }
        Ok(())
    }

    /// Tells the checker and the account how many calls a model bears now.
    fn watch_calls_of(&mut self, what: &Intervention) {
        let Self { providers, admission, watch: Some(watch), now, .. } = self else { return };
        let Some(provider) = what.model().and_then(|name| providers.iter().find(|known| known.name == name)) else {
            return;
        };
        let clamp = admission.settings(provider.resource).and_then(|settings| settings.max_limit);
        watch.cap_calls(*now, provider.resource, provider.max_parallel, clamp);
    }
}
