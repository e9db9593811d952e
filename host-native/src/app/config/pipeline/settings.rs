//! The tables `[seed]`, `[run]` and `[output]`.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use tidegate_core::pipeline::PolicyChoice;
use tidegate_core::task::BoundedBorrowConfig;
use tidegate_core::time::Duration;

use toml::de::DeValue;

use crate::app::config::reader::{FromToml, TableReader, parse_duration};
use crate::app::config::source::{FileError, SourceText};
use crate::app::data::DatasetFormat;
use crate::app::data::row_file::RowFormat;

/// Where the rows come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedSpec {
    /// The dataset file.
    pub path: PathBuf,
    /// How it is written.
    pub format: DatasetFormat,
}

/// The table `[run]`.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the file, and none depends on another")]
pub struct RunSettings {
    /// Rows that are written together \[32\].
    pub row_group_size: NonZeroU32,
    /// Row groups in work at once, or at most so many if they are adaptive \[3\].
    pub row_groups: NonZeroU32,
    /// Whether a control loop chooses how many row groups are in work \[no\].
    pub adaptive_row_groups: bool,
    /// When a column may start more workers than its share \[bounded borrowing\].
    pub policy: PolicyChoice,
    /// Whether tasks that would only wait for their model are passed over while others could call at once \[yes\].
    pub pressure_advisory: bool,
    /// Whether a task gives its worker slot back while it waits for its model \[yes\].
    pub yield_while_waiting: bool,
    /// Whether calls are paced to the rates that providers state in headers, where no budget is configured \[yes\].
    pub rate_limit_headers: bool,
    /// Tasks in work at once \[1024\].
    pub submission_limit: NonZeroU32,
    /// Retries of a call that failed for a reason that may pass, rate limits and outages apart \[3\].
    pub retries: u32,
    /// Final outcomes that early shutdown looks back on \[10\].
    pub shutdown_window: NonZeroU32,
    /// The share of failures among them that stops the run, above 0 and at most 1; none: the run never stops
    /// for that \[0.5\].
    pub shutdown_rate: Option<f64>,
    /// Last answers of a model that are judged together for a warning \[20\].
    pub degraded_window: NonZeroU32,
    /// The share of them that failed for a reason that may pass at which the run warns, above 0 and at most
    /// 1; none: never \[0.5\].
    pub degraded_rate: Option<f64>,
    /// How long a model may answer nothing but rate limits before the run stops without the rows that need it; none: for ever \[10 min\].
    pub rate_limit_patience: Option<Duration>,
    /// How long a provider may be down before the run stops without the rows that need it; none: for ever \[10 min\].
    pub outage_patience: Option<Duration>,
    /// The seed of all samplers \[0\].
    pub seed: u64,
}

/// The table `[output]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputSettings {
    /// The key of the row number in every output row, and its name in templates \[`row`\].
    pub row_key: String,
    /// How rows are written \[JSONL\].
    pub format: RowFormat,
}

pub(super) const SEED_KEYS: &[&str] = &["path", "format"];

pub(super) fn parse_seed(source: &SourceText, root: &TableReader<'_>, directory: &Path) -> Result<SeedSpec, FileError> {
    let Some(table) = root.table("seed", "[seed]", SEED_KEYS)? else {
        return Err(source
            .error(0..0, "the pipeline file has no [seed]")
            .expected("[seed] with `path = ` the dataset, a .csv, .jsonl or .parquet file"));
    };
    let path = table.required::<String>("path")?;
    let format = match table.raw("format") {
        Some(_) => table.choice("format", DatasetFormat::NAMES, DatasetFormat::Csv)?,
        None => DatasetFormat::of(Path::new(path.get_ref())).ok_or_else(|| {
            let names: Vec<&str> = DatasetFormat::NAMES.iter().map(|(name, _)| *name).collect();
            source
                .error(path.span(), format!("the extension of {:?} names no dataset format", path.get_ref()))
                .expected(format!(
                    ".csv, .jsonl, .ndjson or .parquet, or `format` beside the path, one of: {}",
                    names.join(", ")
                ))
        })?,
    };
    Ok(SeedSpec { path: super::relative_to(directory, path.get_ref()), format })
}

pub(super) const RUN_KEYS: &[&str] = &[
    "row_group_size",
    "row_groups",
    "adaptive_row_groups",
    "policy",
    "pressure_advisory",
    "yield_while_waiting",
    "rate_limit_headers",
    "submission_limit",
    "retries",
    "shutdown_window",
    "shutdown_rate",
    "degraded_window",
    "degraded_rate",
    "rate_limit_patience",
    "outage_patience",
    "seed",
];

/// A duration, or `"never"` for one that does not end.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Patience(Option<Duration>);

impl FromToml for Patience {
    const EXPECTED: &'static str = "a duration such as \"10m\", or \"never\"";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        match value.as_str()? {
            "never" => Some(Self(None)),
            span => parse_duration(span).map(|span| Self(Some(span))),
        }
    }
}

/// A share, or `"never"` for one that is never reached.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share(Option<f64>);

impl FromToml for Share {
    const EXPECTED: &'static str = "a number above 0 and at most 1, or \"never\"";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        match value.as_str() {
            Some(text) => (text == "never").then_some(Self(None)),
            None => f64::from_toml(value).filter(|share| *share > 0.0 && *share <= 1.0).map(|share| Self(Some(share))),
        }
    }
}

const fn non_zero(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
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
            outage_patience: Some(Duration::from_secs(600)),
            seed: 0,
        }
    }
}

pub(super) fn parse_run(source: &SourceText, root: &TableReader<'_>) -> Result<RunSettings, FileError> {
    let default = RunSettings::default();
    let Some(table) = root.table("run", "[run]", RUN_KEYS)? else { return Ok(default) };
    Ok(RunSettings {
        row_group_size: table.or("row_group_size", default.row_group_size)?,
        row_groups: table.or("row_groups", default.row_groups)?,
        adaptive_row_groups: table.or("adaptive_row_groups", default.adaptive_row_groups)?,
        policy: parse_policy(source, &table)?,
        pressure_advisory: table.or("pressure_advisory", default.pressure_advisory)?,
        yield_while_waiting: table.or("yield_while_waiting", default.yield_while_waiting)?,
        rate_limit_headers: table.or("rate_limit_headers", default.rate_limit_headers)?,
        submission_limit: table.or("submission_limit", default.submission_limit)?,
        retries: table.or("retries", default.retries)?,
        shutdown_window: table.or("shutdown_window", default.shutdown_window)?,
        shutdown_rate: table.or("shutdown_rate", Share(default.shutdown_rate))?.0,
        degraded_window: table.or("degraded_window", default.degraded_window)?,
        degraded_rate: table.or("degraded_rate", Share(default.degraded_rate))?.0,
        rate_limit_patience: table.or("rate_limit_patience", Patience(default.rate_limit_patience))?.0,
        outage_patience: table.or("outage_patience", Patience(default.outage_patience))?.0,
        seed: table.or("seed", default.seed)?,
    })
}

fn parse_policy(source: &SourceText, table: &TableReader<'_>) -> Result<PolicyChoice, FileError> {
    const NAMES: [&str; 2] = ["bounded_borrow", "strict_fair"];
    let Some(policy) = table.optional::<String>("policy")? else { return Ok(PolicyChoice::default()) };
    match policy.get_ref().as_str() {
        "bounded_borrow" => Ok(PolicyChoice::BoundedBorrow(BoundedBorrowConfig::default())),
        "strict_fair" => Ok(PolicyChoice::StrictFair),
        other => Err(source
            .error(policy.span(), format!("`policy` in [run] is the string {other:?}"))
            .expected("\"bounded_borrow\" or \"strict_fair\"")
            .suggest(other, NAMES)),
    }
}

pub(super) const OUTPUT_KEYS: &[&str] = &["row_key", "format"];

pub(super) fn parse_output(root: &TableReader<'_>) -> Result<OutputSettings, FileError> {
    const FORMATS: &[(&str, RowFormat)] = &[
        ("jsonl", RowFormat::Jsonl),
        ("csv", RowFormat::Csv),
        #[cfg(feature = "parquet")]
        ("parquet", RowFormat::Parquet),
    ];
    let row_key = || "row".to_string();
    let Some(table) = root.table("output", "[output]", OUTPUT_KEYS)? else {
        return Ok(OutputSettings { row_key: row_key(), format: RowFormat::default() });
    };
    let format = table.choice("format", FORMATS, RowFormat::default())?;
    Ok(OutputSettings { row_key: table.or("row_key", row_key())?, format })
}
