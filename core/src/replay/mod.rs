//! Records the commands of a run and replays them.
//!
//! The decisions of a machine depend only on its commands. The commands of a run, each with its instant,
//! therefore determine the run. Replayed in another process or on another target, they give the same effects
//! byte for byte. [`Replay::digest`] summarises the decisions in numbers that can be compared.
//!
//! | types | purpose |
//! | --- | --- |
//! | [`Recorded`], [`Machine`] | wrap a machine and record its commands and decisions |
//! | [`Sequence`], [`Stamped`] | number the commands of all machines of a run |
//! | [`Command`], [`merge`] | the commands of both machines in one order |
//! | [`Header`], [`Replay`] | create new machines and apply recorded commands to them |
//! | [`LogLine`], [`LogReader`], [`Log`] | a recording as lines, and the reader of the lines |
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
//! // The run: the commands of both machines are recorded.
//! let sequence = Sequence::default();
//! let mut pipeline = Recorded::new(Pipeline::new(plan, config)?);
//! let mut admission = Recorded::new(RequestAdmission::new(RequestConfig::default())?);
//! pipeline.start_recording(&sequence);
//! admission.start_recording(&sequence);
//! pipeline.start(Instant::ZERO);
//! while pipeline.poll_effect().is_some() {}
//! let log = merge(pipeline.take_commands(), admission.take_commands());
//!
//! // The replay.
//! let mut replay = Replay::new(&header)?;
//! for entry in &log {
//!     replay.apply(entry)?;
//! }
//! assert_eq!(replay.digest(), (pipeline.decision_digest(), admission.decision_digest()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A log is stored as [`LogLine`]s: a header, the commands, and an end with the digests of the run. A host
//! only parses lines. [`LogReader`] reads them, and detects a log that was truncated, shuffled or changed.
//!
//! # Shared limits
//!
//! If several processes [share](crate::share) a limit through a [`SharedLimit`](crate::gate::SharedLimit),
//! the log of a process contains these [commands](crate::request::RequestCommand), too:
//!
//! | command | when |
//! | --- | --- |
//! | `share_limit` | the limit becomes a share: the id, the seed and the settings of its member |
//! | `drive_member` | a beat of the member, its part of a decision of the leader, or the process leaves |
//! | `drive_leader` | a command of the leader, while the process leads |
//! | `refresh_limit` | a decision was adopted, or the process leaves |
//! | `lease_budgets` | the amounts of budgets change that the process may spend |
//! | `report_budgets` | before each report, if the resource has budgets |
//! | `set_suspended` | the machine was suspended |
//!
//! The replay makes the same member and gives it the same commands, so it needs no store and no other
//! process. What the process sends to the store decides nothing here, and is not replayed.
//!
//! A process that leads records the commands of its [leader](crate::share::Coordinator), too: from the
//! takeover with the snapshot of the leader before, and with the reports of all members. The replay makes
//! the same leader, and the digest contains each decision with its snapshot. A leader changes nothing at the
//! gate, which does not wait for it. So its commands are in their order, but may be a little later in the log
//! than their instants, and those of the last moment may be missing. A log that was recorded before these
//! commands existed is replayed without its leaders.
//!
//! # What cannot be recorded
//!
//! Code cannot be recorded. This concerns a custom [task policy](crate::task::TaskPolicy) or a custom [limit
//! algorithm](crate::limit::LimitAlgorithm) of the host. A run with such a policy is replayed with
//! [`Replay::with_policy`]. The replay of a log in which such a limit algorithm was set fails with
//! [`ReplayError::CustomCode`].

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
#[cfg(all(test, feature = "sim"))]
mod tests_share;

pub use command::{Command, merge};
pub use log::{LineError, Log, LogError, LogLine, LogReader, Replayed, UnreadableLine};
pub use recorded::{Machine, Recorded};
pub use recorder::{MAX_PENDING, Sequence, Stamped};

pub use replayer::{Header, Replay, ReplayError};

/// The version of the format of headers and entries. It rises when logs of the version before cannot be read
/// any more, and not for a new command. A change of [`Decide`](crate::share::Decide) changes the digests of
/// logs of leaders.
pub const SCHEMA: u32 = 4;
