//! The errors that end the program, and its exit codes.

use std::fmt;
use std::fmt::Display as _;
use std::process::{ExitCode, Termination};

use serde::{Serialize, Serializer};

/// An exit code of the program. `tidegate --help` prints the table of all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Every row of the job was finished and written.
    Done = 0,
    /// A bug in this program, not in its input.
    Internal = 1,
    /// The command line, the pipeline file or another input file is invalid.
    Pipeline = 2,
    /// The dataset cannot be read, has a malformed row, or is empty.
    Dataset = 3,
    /// A provider could not be used: too many failures, nothing but rate limits, or not one row finished.
    Provider = 4,
    /// The output directory is not empty, or cannot be written to.
    Output = 5,
    /// The run was completed, but rows were dropped. The summary lists the reasons.
    RowsDropped = 6,
    /// A check failed: an invariant of the simulation, a target of the suite, or the baseline.
    ChecksFailed = 7,
    /// The next call might have exceeded the limit of `--max-cost`. Complete rows are on disk.
    CostLimit = 8,
    /// Interrupted (Ctrl-C or a termination signal). Finished row groups are on disk.
    Interrupted = 130,
}

impl Exit {
    /// All exit codes, in ascending order.
    pub const ALL: [Self; 10] = [
        Self::Done,
        Self::Internal,
        Self::Pipeline,
        Self::Dataset,
        Self::Provider,
        Self::Output,
        Self::RowsDropped,
        Self::ChecksFailed,
        Self::CostLimit,
        Self::Interrupted,
    ];

    /// Returns the numeric exit code.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the description for `--help`.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Done => "every row of the dataset was finished and written",
            Self::Internal => "a bug in tidegate",
            Self::Pipeline => "the command line, the pipeline file or another input file is invalid",
            Self::Dataset => "the dataset cannot be read, has a malformed row, or is empty",
            Self::Provider => {
                "a provider could not be used: too many failures, nothing but rate limits, or no row finished"
            }
            Self::Output => "the output directory is not empty, or cannot be written to",
            Self::RowsDropped => "the run was completed, but rows were dropped (the summary lists the reasons)",
            Self::ChecksFailed => {
                "a check failed: an invariant of the simulation, a target of the suite, or the baseline"
            }
            Self::CostLimit => "the limit of --max-cost was reached; complete rows are on disk",
            Self::Interrupted => "interrupted; finished row groups are on disk",
        }
    }

    /// Returns the table of all exit codes for `--help`.
    #[must_use]
    pub fn table() -> String {
        let lines = Self::ALL.map(|exit| format!("  {:>3}  {}\n", exit.code(), exit.meaning()));
        lines.concat()
    }
}

impl Serialize for Exit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.code())
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        ExitCode::from(self.code())
    }
}

/// An error that ends the program. It is displayed without colours; `{:#}` adds them, for a terminal.
///
/// The error type of each module converts to this type with a `From` implementation, which chooses the exit
/// code.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error of one module of the program.
    #[error(fmt = fmt_component)]
    Component {
        /// The exit code.
        exit: Exit,
        /// The error itself.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An invalid setting in a file, on the command line or in the environment.
    #[error("{0}")]
    Setting(String),
    /// Several errors, at least two.
    #[error(fmt = fmt_several)]
    Several(Vec<Error>),
    /// A bug in this program.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Error {
    /// Creates an error that ends the program with `exit`.
    pub fn new(exit: Exit, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Component { exit, source: Box::new(source) }
    }

    /// Returns the exit code that the program ends with.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Component { exit, .. } => *exit,
            Self::Setting(_) => Exit::Pipeline,
            Self::Internal(_) => Exit::Internal,
            Self::Several(errors) => {
                errors.iter().map(Self::exit).min_by_key(|exit| exit.code()).unwrap_or(Exit::Internal)
            }
        }
    }

    /// Combines `errors` to one error. Returns `None` if there are none.
    #[must_use]
    pub fn combine(mut errors: Vec<Self>) -> Option<Self> {
        if errors.len() > 1 { Some(Self::Several(errors)) } else { errors.pop() }
    }
}

/// Formats the error itself, with colours if `{:#}` asks for them.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "thiserror passes references")]
fn fmt_component(_: &Exit, source: &dyn fmt::Display, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    source.fmt(f)
}

/// Formats the errors, with an empty line between them.
fn fmt_several(errors: &[Error], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{} errors; nothing was started", errors.len())?;
    for error in errors {
        f.write_str("\n\n")?;
        error.fmt(f)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_distinct_and_listed_in_the_help() {
        let mut codes: Vec<u8> = Exit::ALL.iter().map(|exit| exit.code()).collect();
        assert!(codes.is_sorted());
        codes.dedup();
        assert_eq!(codes.len(), Exit::ALL.len());
        assert_eq!(Exit::table().lines().count(), Exit::ALL.len());
    }
}
