//! New machines, and the recorded commands of others applied to them.

use alloc::string::String;
use alloc::vec::Vec;

use super::command::Command;
use super::recorded::Recorded;
use super::recorder::{Sequence, Stamped};
use super::request::ForeignCode;
use crate::error::ConfigError;
use crate::pipeline::{Column, Pipeline, PipelineConfig, PipelineError, Plan, PlanBuilder, PlanError};
use crate::request::{RequestAdmission, RequestConfig};
use crate::task::BoxedPolicy;

/// What the machines of a run are made of: the first line of a log.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Header {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// The plan, by its columns in the order of definition.
    pub columns: Vec<Column>,
    /// The settings of the run.
    pub pipeline: PipelineConfig,
    /// The settings of request admission.
    pub requests: RequestConfig,
}

impl Header {
    /// The header of a run.
    #[must_use]
    pub fn new(plan: &Plan, pipeline: &PipelineConfig, requests: &RequestConfig) -> Self {
        let columns = plan.columns().to_vec();
        Self { schema: super::SCHEMA, columns, pipeline: pipeline.clone(), requests: requests.clone() }
    }
}

/// Why a log cannot be replayed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// Another version of the format.
    #[error("the log has schema {found}; this version reads {}", super::SCHEMA)]
    Schema {
        /// What it has.
        found: u32,
    },
    /// Entries are missing, doubled or out of order.
    #[error("entry {expected} is missing: entry {found} comes in its place")]
    Gap {
        /// The number that was due.
        expected: u32,
        /// The number that came.
        found: u32,
    },
    /// The columns make no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The settings of the run are refused.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// A setting of request admission is refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The log says that code of the host's own was used.
    #[error("entry {n}: {what} is code of the host's own, which a log cannot hold")]
    Foreign {
        /// The entry.
        n: u32,
        /// What it is.
        what: String,
    },
}

/// The two machines of a run, to which the commands of another run are applied.
#[derive(Debug)]
pub struct Replay {
    pipeline: Recorded<Pipeline>,
    admission: Recorded<RequestAdmission>,
    next: u32,
}

impl Replay {
    /// Machines as they were before the first command.
    pub fn new(header: &Header) -> Result<Self, ReplayError> {
        Self::of(header, |plan| Pipeline::new(plan, header.pipeline.clone()))
    }

    /// The same for a run under a task policy of one's own.
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
        // For their digests.
        let sequence = Sequence::default();
        pipeline.start_recording(&sequence);
        admission.start_recording(&sequence);
        Ok(Self { pipeline, admission, next: 0 })
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
                let applied = self.admission.apply(command, &mut self.pipeline);
                applied.map_err(|ForeignCode(what)| ReplayError::Foreign { n: entry.n, what: what.into() })?;
            }
        }
        while self.pipeline.poll_effect().is_some() {}
        while self.admission.poll_effect().is_some() {}
        // The same commands again.
        self.pipeline.take_commands();
        self.admission.take_commands();
        Ok(())
    }

    /// Hashes over every decision so far: of the pipeline, and of request admission. Equal to
    /// [`Recorded::decision_digest`] of the run's machines, once it has drained their effects.
    #[must_use]
    pub fn digest(&self) -> (u64, u64) {
        (self.pipeline.decision_digest(), self.admission.decision_digest())
    }

    /// The pipeline as it stands.
    #[must_use]
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Request admission as it stands.
    #[must_use]
    pub fn admission(&self) -> &RequestAdmission {
        &self.admission
    }
}
