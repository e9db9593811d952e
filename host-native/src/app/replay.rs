//! Decision logs: what a run's machines were told, in a file, and told again.
//!
//! A log is lines of JSON: a header with all that the machines are made of, a line for each command, and an end with the
//! digests of the run. It holds no prompt, no answer, no row value and no key: the machines know of none. Commands are
//! numbered, and may stand a little out of order, since the two machines hand theirs over in turns.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use tidegate_core::replay::{
    Command, Header, LineError, LogError as WrongLog, LogLine, LogReader, ReplayError, Replayed, Stamped,
    UnreadableLine,
};

use crate::app::error::{Error, Exit};
use crate::app::output::FilePlace;

/// Writes the log of one run. After an error it writes nothing more.
#[derive(Debug)]
pub struct LogWriter {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    entries: u64,
}

impl LogWriter {
    /// Begins a log in this place.
    pub fn begin(place: FilePlace, header: &Header) -> io::Result<Self> {
        let path = place.keep();
        let file = File::create(&path)?;
        let mut writer = Self { path, file: Some(BufWriter::new(file)), entries: 0 };
        writer.line(&LogLine::header(header.clone()))?;
        Ok(writer)
    }

    /// Writes these commands. An error comes once.
    pub fn write(&mut self, commands: Vec<Stamped<Command>>) -> Result<(), String> {
        commands.into_iter().try_for_each(|entry| {
            self.entries += 1;
            self.line(&LogLine::command(entry)).map_err(|error| self.give_up(&error))
        })
    }

    /// Ends the log with the digests of the run and of its requests.
    pub fn finish(mut self, digests: (u64, u64)) -> Result<(), String> {
        self.line(&LogLine::end(self.entries, digests))
            .and_then(|()| self.file.take().map_or(Ok(()), |mut file| file.flush()))
            .map_err(|error| self.give_up(&error))
    }

    fn line(&mut self, line: &LogLine) -> io::Result<()> {
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
        why: LineError,
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

/// `tidegate replay`: what to print, and how to exit.
pub fn replay_log(path: &Path) -> Result<(String, Exit), Error> {
    let replayed = replay(path)?;
    let exit = if replayed.is_equal() == Some(false) { Exit::ChecksFailed } else { Exit::Done };
    Ok((describe(&replayed), exit))
}

/// Tells new machines what the log in `path` has.
pub fn replay(path: &Path) -> Result<Replayed, LogError> {
    let read = |source| LogError::Read { path: path.to_owned(), source };
    let wrong = |error| match error {
        WrongLog::Line { line, why } => LogError::Line { path: path.to_owned(), line, why },
        WrongLog::Replay(source) => LogError::Replay { path: path.to_owned(), source },
    };
    let mut reader = LogReader::default();
    for line in BufReader::new(File::open(path).map_err(read)?).split(b'\n') {
        reader.feed(parse(&line.map_err(read)?)).map_err(wrong)?;
    }
    let log = reader.finish().map_err(wrong)?;
    log.replay().map_err(|source| wrong(WrongLog::Replay(source)))
}

pub(super) fn parse(line: &[u8]) -> Result<LogLine, UnreadableLine> {
    serde_json::from_slice(line).map_err(|error| {
        if error.is_data() {
            UnreadableLine::OtherShape(error.to_string())
        } else {
            UnreadableLine::NotJson(error.to_string())
        }
    })
}

/// What a replay came to, to be printed.
fn describe(replayed: &Replayed) -> String {
    let mut lines = vec![format!("{} commands replayed", replayed.entries)];
    if let Some(report) = &replayed.report {
        let (rows, out, dropped) = (report.rows, report.rows_out, report.rows_dropped);
        let elapsed = report.elapsed();
        lines.push(format!("the run: {}; {out} of {rows} rows out, {dropped} dropped, in {elapsed}", report.stop));
    }
    let (run, requests) = replayed.digests;
    lines.push(format!("decision digest {run:016x} {requests:016x}"));
    if replayed.left_out > 0 {
        lines.push(format!("{} commands stand behind the first gap, and were left out", replayed.left_out));
    }
    lines.push(match replayed.recorded {
        None => "the log has no end: the run that wrote it was cut short, and there is nothing to compare".to_owned(),
        Some(recorded) if recorded == replayed.digests => "every decision is the same".to_owned(),
        Some((run, requests)) => format!("THE DECISIONS DIFFER: the run's digest is {run:016x} {requests:016x}"),
    });
    lines.join("\n") + "\n"
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Self {
        Self::new(Exit::Pipeline, error)
    }
}
