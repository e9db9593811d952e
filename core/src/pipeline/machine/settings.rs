//! What may be changed while a run goes on: the task policy and the weights of fairness groups.

use crate::error::ConfigError;
use crate::pipeline::config::PolicyChoice;
use crate::pipeline::machine::Pipeline;
use crate::pipeline::plan::ColumnId;
use crate::replay::RunCommand;
use crate::time::Instant;

impl Pipeline {
    /// Lets another task policy decide from now on. Workers stay, and so does what a group owes, as far as it holds as much;
    /// under one that lends nothing it is repaid by what comes back. O(fairness groups).
    ///
    /// # Errors
    /// A setting of the policy that is out of range, or about a resource that the run does not have. Nothing is changed then.
    pub fn set_policy(&mut self, now: Instant, policy: PolicyChoice) -> Result<(), ConfigError> {
        self.dispatcher.set_policy(policy.clone().make()?)?;
        // What was refused did not happen: no log has it.
        self.recorder.note(self.effects.len(), || RunCommand::SetPolicy { now, policy });
        let now = self.clock.observe(now);
        self.pump(now);
        Ok(())
    }

    /// Gives a column's fairness group, which other columns may share, another weight from its next turn on. What it may hold
    /// while others press stays.
    ///
    /// # Errors
    /// A weight outside 2^-20 to 2^20, or a column of another plan.
    pub fn set_weight(&mut self, now: Instant, column: ColumnId, weight: f64) -> Result<(), ConfigError> {
        let route = self.routes.get(column.index());
        let route = route.ok_or_else(|| ConfigError::new("column", column.index(), "a column of the plan"))?;
        self.dispatcher.set_weight(route.group, weight)?;
        self.recorder.note(self.effects.len(), || RunCommand::SetWeight { now, column, weight });
        let now = self.clock.observe(now);
        self.pump(now);
        Ok(())
    }
}
