//! Everything that can keep a run from its end, and the exit code it gives.

use std::process::{ExitCode, Termination};

use serde::{Serialize, Serializer};

/// How the program ended. The one table of exit codes; `tidegate --help` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Every row of the dataset was finished and written.
    Done = 0,
    /// A bug in this program, not in its input.
    Internal = 1,
    /// The command line, the pipeline file or another input file is wrong.
    Pipeline = 2,
    /// The dataset cannot be read, has a malformed row, or is empty.
    Dataset = 3,
    /// A provider could not be used: too many failures, nothing but rate limits, or not one row finished.
    Provider = 4,
    /// The output directory is not empty, or cannot be written.
    Output = 5,
    /// The run came to its end, but rows were dropped; the summary says why.
    RowsDropped = 6,
    /// A check failed: a law of the simulation, a target of the suite, or the baseline.
    ChecksFailed = 7,
    /// The next call might have passed the limit of `--max-cost`. Complete rows are on disk.
    CostLimit = 8,
    /// Interrupted (Ctrl-C or a termination signal). Finished row groups are on disk.
    Interrupted = 130,
}

impl Exit {
    /// All of them, in order of their codes.
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

    /// The number that the shell sees.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// What it means, for `--help`.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Done => "every row of the dataset was finished and written",
            Self::Internal => "a bug in tidegate",
            Self::Pipeline => "the command line, the pipeline file or another input file is wrong",
            Self::Dataset => "the dataset cannot be read, has a malformed row, or is empty",
            Self::Provider => {
                "a provider could not be used: too many failures, nothing but rate limits, or no row finished"
            }
            Self::Output => "the output directory is not empty, or cannot be written",
            Self::RowsDropped => "the run came to its end, but rows were dropped (the summary says why)",
            Self::ChecksFailed => "a check failed: a law of the simulation, a target of the suite, or the baseline",
            Self::CostLimit => "the limit of --max-cost was reached; complete rows are on disk",
            Self::Interrupted => "interrupted; finished row groups are on disk",
        }
    }

    /// The table for `--help`.
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

/// A run that did not start, or broke.
///
/// Each module whose errors end the program has a `From` implementation for its error type, with the exit code.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error of one part of the program, with the exit code that it ends with.
    #[error("{source}")]
    Of {
        /// The exit code.
        exit: Exit,
        /// The error itself.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A value of a file or of the environment that turns out to be wrong only when it is used.
    #[error("{0}")]
    Setting(String),
    /// Several errors, at least two.
    #[error("{} things are wrong, and nothing was started\n\n{}", .0.len(), listed(.0))]
    Several(Vec<Error>),
    /// A bug in this program.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Error {
    /// Creates an error that ends the program with `exit`.
    pub fn new(exit: Exit, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Of { exit, source: Box::new(source) }
    }

    /// Returns the exit code that the program ends with.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Of { exit, .. } => *exit,
            Self::Setting(_) => Exit::Pipeline,
            Self::Internal(_) => Exit::Internal,
            Self::Several(errors) => {
                errors.iter().map(Self::exit).min_by_key(|exit| exit.code()).unwrap_or(Exit::Internal)
            }
        }
    }

    /// All of `errors` as one; `None` if there is none.
    #[must_use]
    pub fn all(mut errors: Vec<Self>) -> Option<Self> {
        if errors.len() > 1 { Some(Self::Several(errors)) } else { errors.pop() }
    }
}

/// One under the other, with a line between.
fn listed(errors: &[Error]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_distinct_and_in_the_help_table() {
        let mut codes: Vec<u8> = Exit::ALL.iter().map(|exit| exit.code()).collect();
        assert!(codes.is_sorted());
        codes.dedup();
        assert_eq!(codes.len(), Exit::ALL.len());
        assert_eq!(Exit::table().lines().count(), Exit::ALL.len());
    }
}
