//! A decision log as lines, and the one reader of them.
//!
//! ```text
//! header        what the machines are made of: always the first line
//! n, command    one for each command; they may stand out of order, since two machines hand theirs over in turns
//! end           the digests of the run: always the last line, and missing if the run was cut short
//! ```
//!
//! A log without an end was cut: it is told up to the first number that is missing, and has nothing to be
//! compared with. Its last line may then be half a line. A log with an end must be whole.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::command::Command;
use super::recorder::Stamped;
use super::replayer::{Header, Replay, ReplayError};
use crate::pipeline::RunReport;

/// A line of a log.
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

/// The last line.
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
    /// The first line.
    #[must_use]
    pub fn header(header: Header) -> Self {
        Self { header: Some(Box::new(header)), ..Self::default() }
    }

    /// The line of a command.
    #[must_use]
    pub fn command(entry: Stamped<Command>) -> Self {
        Self { n: Some(entry.n), command: Some(entry.command), ..Self::default() }
    }

    /// The last line: how many commands there were, and the digests of the run and of its requests.
    #[must_use]
    pub fn end(entries: u64, (run, requests): (u64, u64)) -> Self {
        Self { end: Some(End { entries, run, requests }), ..Self::default() }
    }
}

/// Why a host has no [`LogLine`] for a line.
///
/// Exhaustive on purpose: a host makes it, and only this crate reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnreadableLine {
    /// It is not JSON. As the last line of a log without an end it is what a run that was killed leaves
    /// behind.
    NotJson(String),
    /// It is JSON of another shape.
    OtherShape(String),
}

/// Why a line is none of a log, or none that may stand where it does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// There is no line at all.
    #[error("the log is empty")]
    Empty,
    /// The host could not read it, in the host's words.
    #[error("{0}")]
    Unreadable(String),
    /// It has the fields of no line, or those of two.
    #[error("it is no header, no command and no end")]
    NoKind,
    /// A header must come first.
    #[error("the first line is not a header")]
    NotAHeader,
    /// A header must come once.
    #[error("there is a header already")]
    SecondHeader,
    /// Nothing may follow the end.
    #[error("the line before it is the end")]
    AfterTheEnd,
    /// The end counts other commands than there are.
    #[error("it ends {said} commands, and there are {found}")]
    OtherCount {
        /// As the end has it.
        said: u64,
        /// Command lines.
        found: u64,
    },
}

/// Why a log cannot be read, or not be told again.
///
/// Exhaustive on purpose: a host adds the place of the log to every error.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LogError {
    /// A line is wrong.
    #[error("line {line}: this is no line of a decision log: {why}")]
    Line {
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        why: LineError,
    },
    /// The machines cannot be told what the log has.
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

/// Reads a log, a line at a time.
#[derive(Debug, Default)]
pub struct LogReader {
    lines: usize,
    header: Option<Box<Header>>,
    entries: Vec<Stamped<Command>>,
    end: Option<End>,
    /// Why the latest line is half of one.
    half: Option<String>,
}

impl LogReader {
    /// Takes the next line of the log. After an error the log is of no use. O(1) amortised.
    pub fn feed(&mut self, line: Result<LogLine, UnreadableLine>) -> Result<(), LogError> {
        self.require_complete_line()?;
        self.lines += 1;
        self.sort_in(line).map_err(|why| LogError::Line { line: self.lines, why })
    }

    fn sort_in(&mut self, line: Result<LogLine, UnreadableLine>) -> Result<(), LineError> {
        let line = match line {
            _ if self.end.is_some() => return Err(LineError::AfterTheEnd),
            Ok(line) => line,
            Err(UnreadableLine::NotJson(why)) if self.header.is_some() => {
                self.half = Some(why);
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
                    return Err(LineError::OtherCount { said: end.entries, found });
                }
                self.end = Some(end);
            }
            _ => return Err(LineError::NoKind),
        }
        Ok(())
    }

    fn require_complete_line(&mut self) -> Result<(), LogError> {
        match self.half.take() {
            Some(why) => Err(LogError::Line { line: self.lines, why: LineError::Unreadable(why) }),
            None => Ok(()),
        }
    }

    /// The log, once every line was taken. O(n log n) for n commands.
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

/// A log that was read.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Log {
    /// What the machines are made of.
    pub header: Header,
    /// The commands, in their order. Those of a log that was cut have no gap; those of one that has its end
    /// may have one if it was changed, and are then refused at it.
    pub entries: Vec<Stamped<Command>>,
    /// Commands of a log that was cut that stand behind its first gap, and are not among `entries`.
    pub left_out: u64,
    /// The digests of the run and of its requests; `None` if the log was cut.
    pub recorded: Option<(u64, u64)>,
}

impl Log {
    /// Tells new machines all of it.
    pub fn replay(&self) -> Result<Replayed, ReplayError> {
        self.replay_with(Replay::new(&self.header)?)
    }

    /// Tells these machines all of it: those of [`Replay::with_policy`], say.
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

/// What a replay came to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Replayed {
    /// Commands that were told again.
    pub entries: u64,
    /// [`Log::left_out`]
    pub left_out: u64,
    /// The digests of this replay: of the run, and of its requests.
    pub digests: (u64, u64),
    /// Those of the run itself; `None` if its log was cut.
    pub recorded: Option<(u64, u64)>,
    /// How the run ended, if it did.
    pub report: Option<RunReport>,
}

impl Replayed {
    /// Whether the replay decided as the run did; `None` if the log was cut, and has nothing to be compared
    /// with.
    #[must_use]
    pub fn is_equal(&self) -> Option<bool> {
        self.recorded.map(|recorded| recorded == self.digests)
    }
}
