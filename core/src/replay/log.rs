//! A decision log as lines, and the reader of the lines.
//!
//! ```text
//! header        the configuration of the machines: always the first line
//! n, command    one line per command; lines may be out of order, since two machines return theirs in batches
//! end           the digests of the run: always the last line, and missing if the run was interrupted
//! ```
//!
//! A log without an end line was truncated. It is replayed up to the first missing number, and there are no
//! digests to compare. Its last line may be incomplete. A log with an end line must be complete.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::command::Command;
use super::recorder::Stamped;
use super::replayer::{Header, Replay, ReplayError};
use crate::pipeline::RunReport;

/// One line of a log.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LogLine {
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    header: Option<Box<Header>>,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    n: Option<u32>,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    command: Option<Command>,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    end: Option<End>,
}

/// The fields of the last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct End {
    entries: u64,
    #[cfg_attr(feature = "serde", serde(with = "crate::hex::one"))]
    run: u64,
    #[cfg_attr(feature = "serde", serde(with = "crate::hex::one"))]
    requests: u64,
}

impl LogLine {
    /// Creates the first line.
    #[must_use]
    pub fn header(header: Header) -> Self {
        Self { header: Some(Box::new(header)), ..Self::default() }
    }

    /// Creates the line of a command.
    #[must_use]
    pub fn command(entry: Stamped<Command>) -> Self {
        Self { n: Some(entry.n), command: Some(entry.command), ..Self::default() }
    }

    /// Creates the last line from the number of commands, and the digests of the run and of its requests.
    #[must_use]
    pub fn end(entries: u64, (run, requests): (u64, u64)) -> Self {
        Self { end: Some(End { entries, run, requests }), ..Self::default() }
    }
}

/// The reason why a host cannot parse a line into a [`LogLine`].
///
/// Exhaustive on purpose: a host creates it, and only this crate reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnreadableLine {
    /// The line is not JSON. A run that was killed may leave such a line at the end of a log without an end
    /// line.
    NotJson(String),
    /// The line is JSON of another shape.
    OtherShape(String),
}

/// The reason why a line is not valid in a log, or not at its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// The log has no lines.
    #[error("the log is empty")]
    Empty,
    /// The host could not parse the line. Contains the message of the host.
    #[error("{0}")]
    Unreadable(String),
    /// The line has the fields of no kind of line, or of two kinds.
    #[error("it is no header, no command and no end")]
    NoKind,
    /// The first line is not a header.
    #[error("the first line is not a header")]
    NotAHeader,
    /// There is a second header.
    #[error("there is a header already")]
    SecondHeader,
    /// A line follows the end line.
    #[error("the line before it is the end")]
    AfterEnd,
    /// The end line counts a different number of commands than the log has.
    #[error("the end line counts {stated} commands, and there are {found}")]
    CountMismatch {
        /// The number in the end line.
        stated: u64,
        /// The number of command lines.
        found: u64,
    },
}

/// The reason why a log cannot be read or replayed.
///
/// Exhaustive on purpose: a host adds the location of the log to every error.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LogError {
    /// A line is invalid.
    #[error("line {line}: this is no line of a decision log: {why}")]
    Line {
        /// The line number, from 1.
        line: usize,
        /// The reason why it is invalid.
        why: LineError,
    },
    /// The commands of the log cannot be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

/// Reads a log line by line.
#[derive(Debug, Default)]
pub struct LogReader {
    lines: usize,
    header: Option<Box<Header>>,
    entries: Vec<Stamped<Command>>,
    end: Option<End>,
    /// The parse error of the latest line, if it may be incomplete.
    incomplete_line: Option<String>,
}

impl LogReader {
    /// Adds the next line of the log. After an error the reader must not be used any more. O(1) amortised.
    pub fn feed(&mut self, line: Result<LogLine, UnreadableLine>) -> Result<(), LogError> {
        self.require_complete_line()?;
        self.lines += 1;
        self.add_line(line).map_err(|why| LogError::Line { line: self.lines, why })
    }

    fn add_line(&mut self, line: Result<LogLine, UnreadableLine>) -> Result<(), LineError> {
        let line = match line {
            _ if self.end.is_some() => return Err(LineError::AfterEnd),
            Ok(line) => line,
            Err(UnreadableLine::NotJson(why)) if self.header.is_some() => {
                self.incomplete_line = Some(why);
                return Ok(());
            }
            Err(UnreadableLine::NotJson(why) | UnreadableLine::OtherShape(why)) => {
                return Err(LineError::Unreadable(why));
            }
        };
        match line {
            LogLine { header: Some(_), n: None, command: None, end: None } if self.header.is_some() => {
                return Err(LineError::SecondHeader);
            }
            LogLine { header: Some(header), n: None, command: None, end: None } => self.header = Some(header),
            _ if self.header.is_none() => return Err(LineError::NotAHeader),
            LogLine { header: None, n: Some(n), command: Some(command), end: None } => {
                self.entries.push(Stamped { n, command });
            }
            LogLine { header: None, n: None, command: None, end: Some(end) } => {
                let found = self.entries.len() as u64;
                if end.entries != found {
                    return Err(LineError::CountMismatch { stated: end.entries, found });
                }
                self.end = Some(end);
            }
            _ => return Err(LineError::NoKind),
        }
        Ok(())
    }

    fn require_complete_line(&mut self) -> Result<(), LogError> {
        match self.incomplete_line.take() {
            Some(why) => Err(LogError::Line { line: self.lines, why: LineError::Unreadable(why) }),
            None => Ok(()),
        }
    }

    /// Returns the log after all lines were added. O(n log n) for n commands.
    pub fn finish(self) -> Result<Log, LogError> {
        let header = self.header.ok_or(LogError::Line { line: 1, why: LineError::Empty })?;
        let mut entries = self.entries;
        entries.sort_by_key(|entry| entry.n);
        let all = entries.len();
        if self.end.is_none() {
            let known = entries.iter().zip(0..).take_while(|(entry, n)| entry.n == *n).count();
            entries.truncate(known);
        }
        let left_out = (all - entries.len()) as u64;
        let recorded = self.end.map(|end| (end.run, end.requests));
        Ok(Log { header: *header, entries, left_out, recorded })
    }
}

/// A log after reading, either complete or truncated.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Log {
    /// The configuration of the machines.
    pub header: Header,
    /// The commands in order. The commands of a truncated log have no gap. A log with an end line may have a
    /// gap if it was changed, and its replay then fails at the gap.
    pub entries: Vec<Stamped<Command>>,
    /// The number of commands behind the first gap of a truncated log. They are not in `entries`.
    pub left_out: u64,
    /// The digests of the run and of its requests. `None` if the log was truncated.
    pub recorded: Option<(u64, u64)>,
}

impl Log {
    /// Replays all commands on new machines.
    pub fn replay(&self) -> Result<Replayed, ReplayError> {
        self.replay_with(Replay::new(&self.header)?)
    }

    /// Replays all commands on the machines of `replay`, for example those of [`Replay::with_policy`].
    pub fn replay_with(&self, mut replay: Replay) -> Result<Replayed, ReplayError> {
        self.entries.iter().try_for_each(|entry| replay.apply(entry))?;
        Ok(Replayed {
            entries: self.entries.len() as u64,
            left_out: self.left_out,
            digests: replay.digest(),
            recorded: self.recorded,
            report: replay.pipeline().report().cloned(),
        })
    }
}

/// The result of a replay.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Replayed {
    /// The number of replayed commands.
    pub entries: u64,
    /// The value of [`Log::left_out`].
    pub left_out: u64,
    /// The digests of this replay: of the run and of its requests.
    pub digests: (u64, u64),
    /// The digests of the recorded run. `None` if its log was truncated.
    pub recorded: Option<(u64, u64)>,
    /// The report of the run, if it ended.
    pub report: Option<RunReport>,
}

impl Replayed {
    /// Returns whether the replay made the same decisions as the run. `None` if the log was truncated,
    /// because there are no digests to compare.
    #[must_use]
    pub fn is_equal(&self) -> Option<bool> {
        self.recorded.map(|recorded| recorded == self.digests)
    }
}
