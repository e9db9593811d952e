//! Changes during a run: those of the scenario, and those that a caller makes while the run goes on.
//!
//! Both are kept in one list, in order of time, and applied in the same way. A change that a caller makes is
//! scheduled for the next nanosecond. It comes before all other events of that instant. A scenario that
//! contains [all changes](World::changes) of a run therefore gives the same run, decision for decision.

use core::cmp::Reverse;

use super::{Due, World};
use crate::error::ConfigError;
use crate::sim::scenario::{Change, Intervention, KnownNames, ScenarioError};
use crate::time::{Duration, Instant};

impl World {
    /// Changes a setting of the run from the next nanosecond on.
    ///
    /// # Errors
    /// Fails if a value is out of range or a name does not exist. The error names the field as in a file.
    /// Nothing is changed then.
    pub fn change(&mut self, what: Intervention) -> Result<(), ScenarioError> {
        self.branch(what, self.now)
    }

    /// Makes a change, and removes the pending changes from now up to and including `until`.
    ///
    /// A caller uses it after it has gone back from `until` to an earlier instant, to let the run continue
    /// differently. The changes up to `until` belong to the abandoned continuation. Later ones were never
    /// reached, and stay.
    ///
    /// # Errors
    /// Fails as [`change`](Self::change) does.
    pub fn branch(&mut self, what: Intervention, until: Instant) -> Result<(), ScenarioError> {
        let at = Duration::from_nanos(self.now.as_nanos().saturating_add(1));
        let change = Change { at, what };
        self.check(&change)?;
        let (from, to) = (self.first_pending(self.now), self.first_pending(until));
        self.changes.drain(from..to.max(from));
        let index = self.changes.partition_point(|other| other.at <= at).max(self.changes_applied);
        self.changes.insert(index, change);
        self.schedule_changes();
        Ok(())
    }

    /// Returns all changes of the run in order of time, including those that are still to come.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Returns the index of the first change after `at` that has not been applied.
    fn first_pending(&self, at: Instant) -> usize {
        self.changes.partition_point(|change| Instant::ZERO + change.at <= at).max(self.changes_applied)
    }

    /// Applies the changes at time zero, and schedules the others.
    pub(super) fn begin_changes(&mut self) {
        while self.changes.get(self.changes_applied).is_some_and(|change| change.at.is_zero()) {
            self.apply_next_change();
        }
        self.schedule_changes();
    }

    /// Schedules the next change, in place of the one that was scheduled. Its number is 0, which is below
    /// that of every other event.
    fn schedule_changes(&mut self) {
        self.events.retain(|Reverse((_, _, due))| *due != Due::Change);
        if let Some(next) = self.changes.get(self.changes_applied) {
            self.events.push(Reverse((Instant::ZERO + next.at, 0, Due::Change)));
        }
    }

    pub(super) fn apply_next_change(&mut self) {
        let Some(change) = self.changes.get(self.changes_applied) else { return };
        let what = change.what.clone();
        self.changes_applied += 1;
        // Decisions under the old settings must be checked with the old settings.
        self.observe();
        // The change was validated when it was added, so it cannot fail here.
        let result = self.apply_intervention(&what);
        debug_assert_eq!(result, Ok(()), "{what:?}");
        self.watch_calls_of(&what);
        if let Some(next) = self.changes.get(self.changes_applied) {
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

    fn apply_intervention(&mut self, what: &Intervention) -> Result<(), ConfigError> {
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
        let Some(model) = what.model().and_then(named) else { return Ok(()) };
        let Self { providers, admission, .. } = self;
        let provider = &mut providers[model];
        match what {
            Intervention::Capacity { slots: Some(slots), .. } => provider.mock.set_capacity(now, *slots),
            Intervention::Capacity { slots: None, .. } => provider.mock.clear_override(now),
            Intervention::Refuse { span, .. } => provider.mock.refuse_until(now, now + *span),
            Intervention::Slow { factor, span, .. } => provider.mock.slow_down_until(now, now + *span, *factor),
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

    /// Updates the checker and the account with the calls that a model's cap and settings allow now.
    fn watch_calls_of(&mut self, what: &Intervention) {
        let Self { providers, admission, watch: Some(watch), now, .. } = self else { return };
        let Some(provider) = what.model().and_then(|name| providers.iter().find(|known| known.name == name)) else {
            return;
        };
        let max_limit = admission.settings(provider.resource).and_then(|settings| settings.max_limit);
        watch.set_call_cap(*now, provider.resource, provider.max_parallel, max_limit);
    }
}
