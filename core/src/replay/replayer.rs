//! Creates new machines and applies recorded commands to them.

use alloc::string::String;
use alloc::vec::Vec;

use super::command::Command;
use super::recorded::Recorded;
use super::recorder::{Sequence, Stamped};
use super::request::{ForeignCode, Leaders};
use crate::error::ConfigError;
use crate::pipeline::{Column, Pipeline, PipelineConfig, PipelineError, Plan, PlanBuilder, PlanError};
use crate::request::{RequestAdmission, RequestConfig};
use crate::task::BoxedPolicy;

/// The configuration of the machines of a run: the first line of a log.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Header {
    /// The version of the format: [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// The columns of the plan, in definition order.
    pub columns: Vec<Column>,
    /// The settings of the run.
    pub pipeline: PipelineConfig,
    /// The settings of request admission.
    pub requests: RequestConfig,
}

impl Header {
    /// Creates the header of a run.
    #[must_use]
    pub fn new(plan: &Plan, pipeline: &PipelineConfig, requests: &RequestConfig) -> Self {
        let columns = plan.columns().to_vec();
        Self { schema: super::SCHEMA, columns, pipeline: pipeline.clone(), requests: requests.clone() }
    }
}

/// The reason why a log cannot be replayed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The log has another version of the format.
    #[error("the log has schema {found}; this version reads {}", super::SCHEMA)]
    Schema {
        /// The version of the log.
        found: u32,
    },
    /// Entries are missing, duplicated or out of order.
    #[error("entry {expected} is missing: entry {found} comes in its place")]
    Gap {
        /// The expected number.
        expected: u32,
        /// The number that was found instead.
        found: u32,
    },
    /// The columns do not form a valid plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The settings of the run are invalid.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// A setting of request admission is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The run used custom code of the host.
    #[error("entry {n}: {what} is code of the host's own, which a log cannot hold")]
    CustomCode {
        /// The number of the entry.
        n: u32,
        /// The kind of code.
        what: String,
    },
}

/// The machines of a replay, to which recorded commands are applied.
#[derive(Debug)]
pub struct Replay {
    pipeline: Recorded<Pipeline>,
    admission: Recorded<RequestAdmission>,
    leaders: Leaders,
    next: u32,
}

impl Replay {
    /// Creates the machines in their state before the first command.
    pub fn new(header: &Header) -> Result<Self, ReplayError> {
        Self::of(header, |plan| Pipeline::new(plan, header.pipeline.clone()))
    }

    /// Creates the machines of a run with a custom task policy.
    pub fn with_policy(header: &Header, policy: BoxedPolicy) -> Result<Self, ReplayError> {
        Self::of(header, |plan| Pipeline::with_policy(plan, header.pipeline.clone(), policy))
    }

    fn of(header: &Header, make: impl FnOnce(Plan) -> Result<Pipeline, PipelineError>) -> Result<Self, ReplayError> {
        if header.schema != super::SCHEMA {
            return Err(ReplayError::Schema { found: header.schema });
        }
        let columns = header.columns.iter().cloned();
        let plan = columns.fold(PlanBuilder::new(), PlanBuilder::column).build()?;
        let mut pipeline = Recorded::new(make(plan)?);
        let mut admission = Recorded::new(RequestAdmission::new(header.requests.clone())?);
        // Recording is needed only for the digests.
        let sequence = Sequence::default();
        pipeline.start_recording(&sequence);
        admission.start_recording(&sequence);
        Ok(Self { pipeline, admission, leaders: Leaders::new(), next: 0 })
    }

    /// Applies the next command to its machine, and drains the effects.
    pub fn apply(&mut self, entry: &Stamped<Command>) -> Result<(), ReplayError> {
        let expected = self.next;
        if entry.n != expected {
            return Err(ReplayError::Gap { expected, found: entry.n });
        }
        self.next += 1;
        match &entry.command {
            Command::Pipeline(command) => self.pipeline.apply(command),
            Command::Request(command) => {
                let applied = self.admission.apply(command, &mut self.pipeline, &mut self.leaders);
                applied.map_err(|ForeignCode(what)| ReplayError::CustomCode { n: entry.n, what: what.into() })?;
            }
        }
        while self.pipeline.poll_effect().is_some() {}
        while self.admission.poll_effect().is_some() {}
        // These are the same commands again, so they are discarded.
        self.pipeline.take_commands();
        self.admission.take_commands();
        Ok(())
    }

    /// Returns hashes over every decision so far: of the pipeline and of request admission. They equal
    /// [`Recorded::decision_digest`] of the run's machines once their effects were drained.
    #[must_use]
    pub fn digest(&self) -> (u64, u64) {
        (self.pipeline.decision_digest(), self.admission.decision_digest())
    }

    /// Returns the pipeline in its current state.
    #[must_use]
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Returns request admission in its current state.
    #[must_use]
    pub fn admission(&self) -> &RequestAdmission {
        &self.admission
    }
}
