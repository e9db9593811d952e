//! The settings of the dataset, of a run and of its output.

use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;

use encoding_rs::Encoding;
use reqwest::{Certificate, Url};
use serde_json::{Map, Value};
use tidegate_core::pipeline::PolicyChoice;
use tidegate_core::time::Duration;
use toml::Spanned;

use crate::app::data::DatasetFormat;
use crate::app::data::row_file::{ParquetCompression, RowFormat};

/// Where the rows of a run come from.
#[derive(Clone, Debug)]
pub struct RowSource {
    /// The dataset. Without one, every column is generated.
    pub dataset: Option<SeedSpec>,
    /// The number of accepted rows to write; `None` for all.
    pub wanted: Option<u64>,
    /// The maximum number of rows to make: of a dataset, the first of its rows.
    pub most: u64,
}

/// Where a dataset is.
#[derive(Clone, Debug)]
pub enum DatasetLocation {
    /// A file, a directory of such files, or a pattern such as `logs/*.jsonl`.
    Local(PathBuf),
    /// A file that is downloaded.
    Remote(Box<RemoteFile>),
}

impl fmt::Display for DatasetLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => path.display().fmt(f),
            Self::Remote(file) => f.write_str(&file.shown()),
        }
    }
}

/// A file that is downloaded.
#[derive(Clone, Debug)]
pub struct RemoteFile {
    /// The address.
    pub url: Url,
    /// The certificate authorities to trust instead of those of the system.
    pub authorities: Option<Vec<Certificate>>,
    /// Whether the file may come unencrypted from another machine \[no\].
    pub allow_plain_http: bool,
    /// The most bytes that the file may have \[10 GB\].
    pub max_bytes: u64,
}

impl RemoteFile {
    /// Returns the address without its query, which may hold a secret.
    #[must_use]
    pub fn shown(&self) -> String {
        let mut url = self.url.clone();
        url.set_query(None);
        url.into()
    }
}

/// The dataset that rows are read from.
#[derive(Clone, Debug)]
pub struct SeedSpec {
    /// Where it is.
    pub location: DatasetLocation,
    /// The format of the files.
    pub format: DatasetFormat,
    /// The encoding of texts without a byte order mark \[UTF-8\].
    pub encoding: Option<&'static Encoding>,
    /// Whether the rows are put into a random order \[no\].
    pub shuffle: bool,
}

/// The table `[run]`.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the file, and none depends on another")]
pub struct RunSettings {
    /// The number of rows in a row group, which is written as one unit \[32\].
    pub row_group_size: NonZeroU32,
    /// The number of active row groups, or the maximum if it is adaptive \[3\].
    pub row_groups: NonZeroU32,
    /// Whether a control loop chooses the number of active row groups \[no\].
    pub adaptive_row_groups: bool,
    /// The rule for when a column may start more workers than its share \[bounded borrowing\].
    pub policy: PolicyChoice,
    /// Whether tasks that would wait for their model are skipped while others can call at once \[yes\].
    pub pressure_advisory: bool,
    /// Whether a task returns its worker slot while it waits for its model \[yes\].
    pub yield_while_waiting: bool,
    /// Whether calls are paced to the rates that providers state in headers, for models without a configured
    /// budget \[yes\].
    pub rate_limit_headers: bool,
    /// The maximum number of active tasks \[1024\].
    pub submission_limit: NonZeroU32,
    /// The number of retries after a transient failure. Rate limits and outages do not count \[3\].
    pub retries: u32,
    /// The number of most recent final outcomes that early shutdown considers \[10\].
    pub shutdown_window: NonZeroU32,
    /// The fraction of failures among them that stops the run, above 0 and at most 1. `None` disables early
    /// shutdown \[0.5\].
    pub shutdown_rate: Option<f64>,
    /// The number of most recent answers of a model that the degraded warning considers \[20\].
    pub degraded_window: NonZeroU32,
    /// The fraction of transient failures among them at which the run warns, above 0 and at most 1. `None`
    /// disables the warning \[0.5\].
    pub degraded_rate: Option<f64>,
    /// How long a model may return only rate limits before the run stops without the rows that need it.
    /// `None` is no limit \[10 min\].
    pub rate_limit_patience: Option<Duration>,
    /// How long a model may return only rate limits before calls use the next one of their column \[30 s\].
    pub fallback_after: Duration,
    /// How long a provider may be down before the run stops without the rows that need it. `None` is no limit
    /// \[10 min\].
    pub outage_patience: Option<Duration>,
    /// The seed of all samplers, and of the order of a shuffled dataset \[0\].
    pub seed: u64,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            row_group_size: non_zero(32),
            row_groups: non_zero(3),
            adaptive_row_groups: false,
            policy: PolicyChoice::default(),
            pressure_advisory: true,
            yield_while_waiting: true,
            rate_limit_headers: true,
            submission_limit: non_zero(1_024),
            retries: 3,
            shutdown_window: non_zero(10),
            shutdown_rate: Some(0.5),
            degraded_window: non_zero(20),
            degraded_rate: Some(0.5),
            rate_limit_patience: Some(Duration::from_secs(600)),
            fallback_after: Duration::from_secs(30),
            outage_patience: Some(Duration::from_secs(600)),
            seed: 0,
        }
    }
}

const fn non_zero(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
}

/// The table `[output]`.
#[derive(Clone, Debug)]
pub struct OutputSettings {
    /// The key of the row number in every output row, and its name in templates \[`row`\].
    pub row_key: String,
    /// The format of row files \[JSONL\].
    pub format: RowFormat,
    /// The compression of Parquet files \[Snappy\].
    pub compression: ParquetCompression,
    /// Whether the calls for each row are kept \[no\].
    pub calls: bool,
    /// The columns after the row number; `None` for those of the dataset and all that are
    /// [written](super::ColumnSpec::is_written).
    pub columns: Option<Vec<OutputColumnSpec>>,
    /// The object that each line of an export to JSONL has; `None` for the columns. Strings in it are
    /// templates.
    pub record: Option<Spanned<Map<String, Value>>>,
    /// Which rows an export leaves out; `None` for no row.
    pub unique: Option<UniqueSpec>,
}

/// Which rows an export leaves out: those in which a column is nearly the same as in an earlier row.
#[derive(Clone, Debug)]
pub struct UniqueSpec {
    /// The column of the output.
    pub column: Spanned<String>,
    /// The similarity from which on two texts are nearly the same, from 0.1 to 1 \[0.8\].
    pub similarity: f64,
}

/// A column of the output.
#[derive(Clone, Debug)]
pub struct OutputColumnSpec {
    /// Its name in the output.
    pub name: Spanned<String>,
    /// The name of the column that it is written from; or that, a dot, and the path of a field in its values.
    pub from: Spanned<String>,
}
