//! Records the commands of a run, and runs them again.
//!
//! A machine decides by nothing but its commands. The commands of a run, each with its instant, therefore
//! determine the run: applied again, in another process or on another target, they give the same effects byte
//! for byte. [`Replay::digest`] compares them in one number.
//!
//! | file | what it has |
//! | --- | --- |
//! | `recorded` | [`Recorded`], which wraps a machine and records its commands |
//! | `pipeline`, `request` | the commands of a recorded machine |
//! | `command` | the commands of both machines, joined |
//! | `recorder`, `digest` | the recorded commands in their order, and a hash over the decisions |
//! | `replayer` | new machines, and the commands applied to them |
//! | `log` | a recording as lines, and the reader of those lines |
//!
//! ```
//! use tidegate_core::pipeline::{Column, Pipeline, PipelineConfig, PlanBuilder, Strategy};
//! use tidegate_core::replay::{Header, Recorded, Replay, Sequence, merge};
//! use tidegate_core::request::{RequestAdmission, RequestConfig};
//! use tidegate_core::time::Instant;
//!
//! let plan = PlanBuilder::new().column(Column::new("a", Strategy::Cell)).build()?;
//! let config = PipelineConfig { rows: 3, ..PipelineConfig::default() };
//! let header = Header::new(&plan, &config, &RequestConfig::default());
//!
//! // The run itself: the commands of both machines are recorded.
//! let sequence = Sequence::default();
//! let mut pipeline = Recorded::new(Pipeline::new(plan, config)?);
//! let mut admission = Recorded::new(RequestAdmission::new(RequestConfig::default())?);
//! pipeline.start_recording(&sequence);
//! admission.start_recording(&sequence);
//! pipeline.start(Instant::ZERO);
//! while pipeline.poll_effect().is_some() {}
//! let log = merge(pipeline.take_commands(), admission.take_commands());
//!
//! // And again.
//! let mut replay = Replay::new(&header)?;
//! for entry in &log {
//!     replay.apply(entry)?;
//! }
//! assert_eq!(replay.digest(), (pipeline.decision_digest(), admission.decision_digest()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A log is stored as [`LogLine`]s: a header, the commands, and an end with the digests of the run.
//! [`LogReader`] reads them, and reports a log that was cut, shuffled or changed; a host only parses lines.
//!
//! Code cannot be recorded: a [task policy](crate::task::TaskPolicy) or a [limit
//! algorithm](crate::limit::LimitAlgorithm) of the host's own. A run under such a policy is replayed with
//! [`Replay::with_policy`]. A log in which such a limit algorithm was set is refused when it is replayed.

mod command;
mod digest;
mod log;
mod pipeline;
mod recorded;
mod recorder;
mod replayer;
mod request;
#[cfg(all(test, feature = "sim"))]
mod tests;
#[cfg(all(test, feature = "sim"))]
mod tests_log;

pub use command::{Command, merge};
pub use log::{LineError, Log, LogError, LogLine, LogReader, Replayed, UnreadableLine};
pub use recorded::{Machine, Recorded};
pub use recorder::{MAX_PENDING, Sequence, Stamped};

pub use replayer::{Header, Replay, ReplayError};

/// The version of the format of headers and entries.
pub const SCHEMA: u32 = 4;
