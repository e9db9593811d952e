//! The decisions of a run, again: what the machines were told is taken down, and told to new ones.
//!
//! Machines decide by nothing but their commands, so the commands of a run, each with its instant, are the run: told again,
//! in another process or on another target, they give the same effects byte for byte. [`Replay::digest`] says so in one
//! number.
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
//! // The run itself: both machines take down what they are told.
//! let sequence = Sequence::default();
//! let mut pipeline = Recorded::new(Pipeline::new(plan, config)?);
//! let mut admission = RequestAdmission::new(RequestConfig::default())?;
//! pipeline.record(&sequence);
//! admission.record(&sequence);
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
//! A log that is kept is [`Line`]s: a header, the commands, and an end with the digests of the run. [`LogReader`] takes them
//! back, and says of a log that was cut, shuffled or changed what it is; a host parses lines, and no more.
//!
//! What cannot be taken down is code: a [task policy](crate::task::TaskPolicy) or a [limit
//! algorithm](crate::limit::LimitAlgorithm) of one's own. A run under a policy of one's own is replayed with
//! [`Replay::with_policy`]; a log in which a limit algorithm of one's own was set says so when it is replayed.

mod command;
mod digest;
mod log;
mod pipeline;
mod recorded;
mod recorder;
mod replayer;
#[cfg(all(test, feature = "sim"))]
mod tests;
#[cfg(all(test, feature = "sim"))]
mod tests_log;

pub use command::{Command, RequestCommand};
pub use log::{Line, Log, LogError, LogReader, NoLine, Replayed, Unread};
pub use recorded::{Machine, Recorded};
pub use recorder::{MAX_PENDING, Sequence, Stamped, merge};

pub use replayer::{Header, Replay, ReplayError};

pub(crate) use recorder::Recorder;

/// The version of the format of headers and entries.
pub const SCHEMA: u32 = 3;
