//! Errors of output directories.

use crate::app::error::{Error, Exit};
use std::io;
use std::path::{Path, PathBuf};

/// Why an output directory or file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The directory is not empty.
    #[error(
        "{} is not empty: choose another directory with --out, continue an earlier run with --resume, or replace its output with \
         --overwrite",
        .0.display()
    )]
    NotEmpty(PathBuf),
    /// The directory is not empty, and holds no job that processes could fill together.
    #[error(
        "{} is not empty and holds no job that processes could fill together: choose another directory with --out",
        .0.display()
    )]
    NoJob(PathBuf),
    /// The directory holds files that this program did not write, so it removes nothing.
    #[error("{} holds files that no run of tidegate wrote ({found}), so --overwrite does not remove them", .path.display())]
    ForeignFiles {
        /// The directory.
        path: PathBuf,
        /// The name of one of these files.
        found: String,
    },
    /// A link or a file is where runs of this program make a directory, so nothing is removed through it.
    #[error(
        "{} is a link or a file, so --overwrite removes nothing: expected a directory of an earlier run; remove it, or choose another \
         directory with --out",
        .0.display()
    )]
    NoDirectory(PathBuf),
    /// The directory does not hold a run that can be resumed.
    #[error("{} holds nothing to resume: {why}", .path.display())]
    NothingToResume {
        /// The directory.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The directory does not hold the output of a run.
    #[error("{} is not the output directory of a run: {why}", .path.display())]
    NoOutput {
        /// The directory.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The output has no such row.
    #[error("{} has no row {row}; {known}", .path.display())]
    NoRow {
        /// The directory.
        path: PathBuf,
        /// The row number.
        row: u64,
        /// Which rows there are.
        known: String,
    },
    /// The directory holds the output of another job, or of this job with another input.
    #[error(
        "{} holds rows of another job: {what}; put it back to go on, or choose another directory with --out",
        .path.display()
    )]
    DifferentJob {
        /// The directory.
        path: PathBuf,
        /// The first difference.
        what: String,
    },
    /// Two outputs, or an output and an input, are the same file.
    #[error("{first} and {second} name one file, {}; expected a file for each of them", .path.display())]
    OneFile {
        /// The flag or input that names the file first.
        first: &'static str,
        /// The flag that names it again.
        second: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// Another run is writing to the directory.
    #[error("another run is writing to {}; with --together and --share, several processes fill one directory", .0.display())]
    InUse(PathBuf),
    /// The file system cannot give one file two names, by which processes agree who writes a row group.
    #[error(
        "{} is on a file system without hard links, which --together needs: {source}; expected another file system, or a part \
         of the dataset for each process with --partition",
        .path.display()
    )]
    NoHardLinks {
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Processes with another name in `[share]` fill the directory.
    #[error(
        "{} is filled together under the name `{was}` in [share], and the name is now `{is}`: expected the same name in all \
         processes; once none fills it any more, --resume without --together goes on under any name",
        .path.display()
    )]
    OtherShare {
        /// The directory.
        path: PathBuf,
        /// The name of the processes that fill the directory.
        was: String,
        /// The name of this process.
        is: String,
    },
    /// Processes with another cost limit fill the directory.
    #[error(
        "{} is filled by processes with {was}, and this one has {is}: expected the same limit in all of them; once none fills it \
         any more, another limit may be set",
        .path.display()
    )]
    OtherCostLimit {
        /// The directory.
        path: PathBuf,
        /// The limit of the processes that fill the directory, as on their command lines.
        was: String,
        /// The limit of this process, as on its command line.
        is: String,
    },
    /// A process that fills the directory is not known at the server of this one.
    #[error(
        "{} belongs to a process that fills the dataset now, and that is not known at {address}: expected the same server, \
         database and version of tidegate in all processes, and none that is suspended",
        .path.display()
    )]
    OtherServer {
        /// The directory of the other process.
        path: PathBuf,
        /// The address of the server, without credentials.
        address: String,
    },
    /// The directory has row groups of which an earlier run made only some rows.
    #[error(
        "{} has row groups with missing rows, which only one process can make: expected --resume instead of --together, which \
         makes them first",
        .0.display()
    )]
    Incomplete(PathBuf),
    /// The file of `--export` was not made by the job in the directory, or has changed since.
    #[error(
        "{} exists, and is not as it was exported from {}: choose another name with --export, or remove the file",
        .path.display(), .root.display()
    )]
    NotExported {
        /// The file.
        path: PathBuf,
        /// The output directory.
        root: PathBuf,
    },
    /// A file that a flag names is in the output directory, whose files the run writes itself.
    #[error("{flag} names {}, which is inside of the output directory {}; expected a file outside of it", .path.display(), .root.display())]
    Inside {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The output directory.
        root: PathBuf,
    },
    /// A signal stopped the export.
    #[error("interrupted: {} was not written; the rows are complete, and --resume exports them", .path.display())]
    ExportInterrupted {
        /// The file.
        path: PathBuf,
    },
    /// `record` fails for a row.
    #[error("{} was not written: `record` in [output] fails for row {row}: {why}", .path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The row number.
        row: u64,
        /// The error of the template.
        why: String,
    },
    /// Rows files were changed or removed.
    #[error("{} has {found} rows, but {expected} were written: its files have changed", .root.display())]
    RowsMissing {
        /// The output directory.
        root: PathBuf,
        /// Rows that were written.
        expected: u64,
        /// Rows that were found.
        found: u64,
    },
    /// A file of an earlier run that cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system, or of the parser.
        source: io::Error,
    },
    /// A directory or file cannot be written.
    #[error("cannot write to {}: {source}", .path.display())]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Returns a function that creates [`OutputError::Io`] for `path`.
pub(super) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> OutputError + use<> {
    let path = path.to_path_buf();
    |source| OutputError::Io { path, source }
}

/// Returns a function that creates [`OutputError::Unreadable`] for `path`.
pub(super) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> OutputError + use<> {
    let path = path.to_path_buf();
    |source| OutputError::Unreadable { path, source }
}

/// Takes a file that does not exist for no value.
pub(super) fn missing_as_none<T>(read: Result<T, OutputError>) -> Result<Option<T>, OutputError> {
    match read {
        Err(OutputError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

impl OutputError {
    /// Returns the exit code of a run with this error.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            // What is wrong with one file for two purposes is the command line.
            Self::OneFile { .. } | Self::Inside { .. } | Self::Record { .. } | Self::NoRow { .. } => Exit::Pipeline,
            Self::ExportInterrupted { .. } => Exit::Interrupted,
            _ => Exit::Output,
        }
    }
}

impl From<OutputError> for Error {
    fn from(error: OutputError) -> Self {
        Self::new(error.exit(), error)
    }
}
