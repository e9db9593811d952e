//! The commands of both machines.

use alloc::vec::Vec;

use super::recorder::Stamped;
use crate::pipeline::PipelineCommand;
use crate::request::RequestCommand;

/// A command of one of the two machines of a run.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Command {
    /// A command of the [`Pipeline`](crate::pipeline::Pipeline).
    Pipeline(PipelineCommand),
    /// A command of the [`RequestAdmission`](crate::request::RequestAdmission).
    Request(RequestCommand),
}

/// Merges the commands of both machines into the order in which they were applied.
#[must_use]
pub fn merge(run: Vec<Stamped<PipelineCommand>>, requests: Vec<Stamped<RequestCommand>>) -> Vec<Stamped<Command>> {
    let run = run.into_iter().map(|Stamped { n, command }| Stamped { n, command: Command::Pipeline(command) });
    let requests = requests.into_iter().map(|Stamped { n, command }| Stamped { n, command: Command::Request(command) });
    let mut all: Vec<_> = run.chain(requests).collect();
    all.sort_by_key(|entry| entry.n);
    all
}
