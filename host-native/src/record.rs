//! Decision logs: what a run's machines were told, in a file, and told again.
//!
//! A log is lines of JSON: a header with all that the machines are made of, a line for each command, and an end with the
//! digests of the run. It holds no prompt, no answer, no row value and no key: the machines know of none. Commands are
//! numbered, and may stand a little out of order, since the two machines hand theirs over in turns.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidegate_core::pipeline::RunReport;
use tidegate_core::replay::{Command, Header, Replay, ReplayError, Stamped};

use crate::error::{Error, Exit};

/// A line of a log.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Header { header: Box<Header> },
    Entry(Stamped<Command>),
    End { end: End },
}

/// The last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct End {
    entries: u64,
    /// The digests, as 16 hex digits: not every reader of JSON has integers of 64 bits.
    #[serde(with = "hex")]
    run: u64,
    #[serde(with = "hex")]
    requests: u64,
}

mod hex {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
    pub(super) fn serialize<S: Serializer>(digest: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{digest:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16)
            .map_err(|_| D::Error::custom(format!("{text:?} is not a digest of 16 hex digits")))
    }
}

/// A file that a log can be written to. What is in it is still there.
#[derive(Debug)]
pub struct LogPlace {
    path: PathBuf,
    is_new: bool,
}

impl LogPlace {
    /// Opens `path` for a log, or makes the file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let is_new = !path.exists();
        File::options().write(true).create(true).truncate(false).open(path)?;
        Ok(Self { path: path.to_owned(), is_new })
    }

    /// Leaves everything as it was.
    pub fn give_up(self) {
        if self.is_new {
            // It is empty; that it cannot be removed harms nobody.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Writes the log of one run. After an error it writes nothing more.
#[derive(Debug)]
pub struct LogWriter {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    entries: u64,
}

impl LogWriter {
    /// Begins a log in this place.
    pub fn begin(place: LogPlace, header: &Header) -> io::Result<Self> {
        let LogPlace { path, .. } = place;
        let file = File::create(&path)?;
        let mut writer = Self { path, file: Some(BufWriter::new(file)), entries: 0 };
        writer.line(&Line::Header { header: Box::new(header.clone()) })?;
        Ok(writer)
    }

    /// Writes these commands. An error comes once.
    pub fn write(&mut self, commands: Vec<Stamped<Command>>) -> Result<(), String> {
        commands.into_iter().try_for_each(|entry| {
            self.entries += 1;
            self.line(&Line::Entry(entry)).map_err(|error| self.give_up(&error))
        })
    }

    /// Ends the log with the digests of the run and of its requests.
    pub fn finish(mut self, (run, requests): (u64, u64)) -> Result<(), String> {
        let end = End { entries: self.entries, run, requests };
        self.line(&Line::End { end })
            .and_then(|()| self.file.take().map_or(Ok(()), |mut file| file.flush()))
            .map_err(|error| self.give_up(&error))
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        serde_json::to_writer(&mut *file, line)?;
        file.write_all(b"\n")
    }

    fn give_up(&mut self, error: &io::Error) -> String {
        self.file = None;
        format!("the decision log {} is not complete: {error}", self.path.display())
    }
}

/// Why a log cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line is none of a log.
    #[error("{path}:{line}: this is no line of a decision log: {why}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// Why not.
        why: String,
    },
    /// The log cannot be told to machines.
    #[error("{path}: {source}")]
    Replay {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: ReplayError,
    },
}

/// What a replay came to.
#[derive(Debug)]
pub struct Replayed {
    /// Commands that were told again.
    pub entries: u64,
    /// The digests of this replay: of the run, and of its requests.
    pub digests: (u64, u64),
    /// Those of the run itself; `None` if its log was cut short.
    pub recorded: Option<(u64, u64)>,
    /// How the run ended, if it did.
    pub report: Option<RunReport>,
}

impl Replayed {
    /// Whether the replay decided as the run did, so far as can be said.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.recorded.is_none_or(|recorded| recorded == self.digests)
    }
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (run, requests) = self.digests;
        writeln!(f, "{} commands replayed", self.entries)?;
        if let Some(report) = &self.report {
            let (rows, out, dropped) = (report.rows, report.rows_out, report.rows_dropped);
            writeln!(
                f,
                "the run: {}; {out} of {rows} rows out, {dropped} dropped, in {}",
                report.stop,
                report.elapsed()
            )?;
        }
        writeln!(f, "decision digest {run:016x} {requests:016x}")?;
        match self.recorded {
            None => {
                write!(f, "the log has no end: the run that wrote it was cut short, and there is nothing to compare")
            }
            Some(_) if self.is_equal() => write!(f, "every decision is the same"),
            Some((run, requests)) => write!(f, "THE DECISIONS DIFFER: the run's digest is {run:016x} {requests:016x}"),
        }
    }
}

/// `tidegate replay`: what to print, and how to exit.
pub fn replay_log(path: &Path) -> Result<(String, Exit), Error> {
    let replayed = replay(path)?;
    let exit = if replayed.is_equal() { Exit::Done } else { Exit::ChecksFailed };
    Ok((format!("{replayed}\n"), exit))
}

/// Tells new machines what the log in `path` has.
pub fn replay(path: &Path) -> Result<Replayed, LogError> {
    let read = |source| LogError::Read { path: path.to_owned(), source };
    let (mut header, mut entries, mut end) = (None, Vec::new(), None);
    for (number, line) in BufReader::new(File::open(path).map_err(read)?).lines().enumerate() {
        let wrong = |why: String| LogError::Line { path: path.to_owned(), line: number + 1, why };
        let line = line.map_err(read)?;
        match serde_json::from_str(&line) {
            _ if end.is_some() => return Err(wrong("the line before it is the end".to_owned())),
            Ok(Line::Header { header: first }) if header.is_none() => header = Some(first),
            Ok(Line::Header { .. }) => return Err(wrong("there is a header already".to_owned())),
            Ok(_) if header.is_none() => return Err(wrong("the first line is not a header".to_owned())),
            Ok(Line::Entry(entry)) => entries.push(entry),
            Ok(Line::End { end: last }) => end = Some(last),
            // A run that was killed leaves half a line at most, and no end.
            Err(error) if error.is_eof() && header.is_some() => break,
            Err(error) => return Err(wrong(explain(&line, &error))),
        }
    }
    let Some(header) = header else {
        return Err(LogError::Line { path: path.to_owned(), line: 1, why: "the file is empty".to_owned() });
    };
    tell(&header, entries, end).map_err(|source| LogError::Replay { path: path.to_owned(), source })
}

fn tell(header: &Header, mut entries: Vec<Stamped<Command>>, end: Option<End>) -> Result<Replayed, ReplayError> {
    entries.sort_by_key(|entry| entry.n);
    if end.is_none() {
        // What stands before the first gap is what there is.
        let known = entries.iter().zip(0..).take_while(|(entry, n)| entry.n == *n).count();
        entries.truncate(known);
    }
    let mut replay = Replay::new(header)?;
    entries.iter().try_for_each(|entry| replay.apply(entry))?;
    Ok(Replayed {
        entries: entries.len() as u64,
        digests: replay.digest(),
        recorded: end.map(|end| (end.run, end.requests)),
        report: replay.pipeline().report().cloned(),
    })
}

/// What is wrong with a line, by the kind of line that it tries to be.
fn explain(line: &str, error: &serde_json::Error) -> String {
    #[derive(Deserialize)]
    struct Headed {
        #[expect(dead_code, reason = "only its error is of interest")]
        header: Header,
    }
    let of_its_kind = if line.contains("\"header\"") {
        serde_json::from_str::<Headed>(line).err()
    } else if line.contains("\"command\"") {
        serde_json::from_str::<Stamped<Command>>(line).err()
    } else {
        return "it is no header, no command and no end".to_owned();
    };
    of_its_kind.as_ref().unwrap_or(error).to_string()
}
