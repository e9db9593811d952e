//! Checks the tables `[seed]`, `[run]` and `[output]`.

use std::num::NonZeroU32;
use std::path::Path;

use encoding_rs::Encoding;
use tidegate_core::pipeline::PolicyChoice;
use tidegate_core::time::Duration;
use toml::Spanned;

use crate::app::config::document::Document;
use crate::app::config::pipeline::names::CallMode;
use crate::app::config::pipeline::raw::{MAX_ROWS, RawOutput, RawOutputColumn, RawRun, RawSeed, RawUnique};
use crate::app::config::pipeline::spec::{
    ColumnSpec, DatasetLocation, ModelSpec, OutputColumnSpec, OutputSettings, RemoteFile, RowSource, RunSettings,
    SeedSpec, UniqueSpec,
};
use crate::app::config::source::FileError;
use crate::app::config::transport::{address, read_authorities};
use crate::app::config::value::{Checked, DurationOrNever, JsonTable, ShareOrNever, Table, Text, WithSpan};
use crate::app::data::DatasetFormat;
use crate::app::data::decoding::encoding_of_label;
#[cfg(not(feature = "parquet"))]
use crate::app::data::row_file::ParquetCompression;
use crate::app::provider::address::is_plain_and_far;
use crate::app::template::is_same_name;

/// The default of `similarity`.
const DEFAULT_SIMILARITY: f64 = 0.8;

/// The least `similarity`. Below it, nearly every pair of texts would be compared.
const MIN_SIMILARITY: f64 = 0.1;

/// The number of rows to make at most for each one to accept without a dataset, unless the file says.
const CANDIDATES_PER_ROW: u64 = 10;

/// The most bytes of a dataset that is downloaded, unless the file says.
const DEFAULT_MAX_BYTES: u64 = 10_000_000_000;

/// Returns where rows come from. `accepts` is whether a column accepts rows.
pub(crate) fn check_rows(
    file: &Document<'_>,
    seed: Option<Table<RawSeed>>,
    run: &mut RawRun,
    accepts: bool,
    directory: &Path,
) -> Result<RowSource, FileError> {
    let (rows, most) = (run.rows.take(), run.max_candidates.take());
    if let Some(most) = most.as_ref().filter(|_| !accepts || rows.is_none()) {
        return Err(file
            .error(most.span(), "`max_candidates` in [run] has no effect without rows to accept")
            .expected("`rows = ` beside it, the number of rows to accept, and a column with `accept_if`"));
    }
    if let Some(rows) = rows.as_ref().filter(|_| seed.is_some() && !accepts) {
        return Err(file
            .error(rows.span(), "`rows` in [run] is given beside [seed], whose dataset has the rows")
            .expected(
                "`rows` or [seed], or a column with `accept_if`, of whose rows so many are written; `--limit N` runs the \
                 first N rows of a dataset",
            ));
    }
    if let Some(rows) = rows.as_ref().filter(|rows| !(1..=MAX_ROWS).contains(rows.get())) {
        return Err(file.wrong(rows.span(), format!("a whole number from 1 to {MAX_ROWS}")));
    }
    let dataset = seed.map(|seed| check_seed(file, seed, directory)).transpose()?;
    let rows = rows.map(WithSpan::into_inner);
    let most = match (rows, most, &dataset) {
        (None, _, None) => {
            return Err(file.error(0..0, "the pipeline file has no [seed]").expected(
                "[seed] with `path = ` the dataset, a .csv, .jsonl or .parquet file; or `rows = ` in [run], the number of rows \
                 to make without one",
            ));
        }
        (Some(rows), Some(most), _) if !(rows..=MAX_ROWS).contains(most.get()) => {
            let expected = format!("a whole number from {rows}, which is `rows`, to {MAX_ROWS}");
            return Err(file.wrong(most.span(), expected));
        }
        (_, Some(most), _) => most.into_inner(),
        (Some(rows), None, None) if accepts => rows.saturating_mul(CANDIDATES_PER_ROW).min(MAX_ROWS),
        (Some(rows), None, None) => rows,
        (_, None, Some(_)) => u64::MAX,
    };
    Ok(RowSource { dataset, wanted: rows.filter(|_| accepts), most })
}

fn check_seed(
    file: &Document<'_>,
    Table(RawSeed { path, format, encoding, shuffle, allow_plain_http, ca_file, max_bytes }): Table<RawSeed>,
    directory: &Path,
) -> Result<SeedSpec, FileError> {
    let Checked(name) = path.get();
    let remote = if is_web_address(name) {
        let url = address(file, "path", Some(&path), &path.span(), true)?;
        let allow_plain_http = allow_plain_http.is_some_and(WithSpan::into_inner);
        if is_plain_and_far(&url) && !allow_plain_http {
            let host = url.host_str().unwrap_or_default();
            return Err(file
                .error(path.span(), format!("the dataset would come from `{host}` unencrypted"))
                .expected("an address with https, or of this machine; or `allow_plain_http = true` beside it"));
        }
        if let Some(most) = max_bytes.as_ref().filter(|most| *most.get() == 0) {
            return Err(file.wrong(most.span(), "a whole number of bytes, at least 1"));
        }
        let max_bytes = max_bytes.map_or(DEFAULT_MAX_BYTES, WithSpan::into_inner);
        let authorities = read_authorities(file, ca_file.as_ref(), directory, &url)?;
        Some(RemoteFile { url, authorities, allow_plain_http, max_bytes })
    } else {
        let keys = [
            ("allow_plain_http", allow_plain_http.map(|key| key.span())),
            ("ca_file", ca_file.map(|key| key.span())),
            ("max_bytes", max_bytes.map(|key| key.span())),
        ];
        if let Some((key, Some(span))) = keys.into_iter().find(|(_, span)| span.is_some()) {
            return Err(file
                .error(span, format!("`{key}` in [seed] is given for a dataset on this machine"))
                .expected(format!("an address with https as `path`, or no `{key}`")));
        }
        None
    };
    // Of an address, its query is no part of the file's name.
    let extension = remote.as_ref().map_or(name.as_str(), |remote| remote.url.path()).to_string();
    let unknown = || {
        let names = DatasetFormat::NAMES.join(", ");
        file.error(path.span(), format!("the extension of {name:?} names no dataset format"))
            .expected(format!(".csv, .jsonl, .ndjson or .parquet, or `format` beside the path, one of: {names}"))
    };
    let format = format.or_else(|| DatasetFormat::of(Path::new(&extension))).ok_or_else(unknown)?;
    let encoding = encoding.map(|label| check_encoding(file, &label, format)).transpose()?;
    let location = match remote {
        Some(remote) => DatasetLocation::Remote(Box::new(remote)),
        None => DatasetLocation::Local(super::relative_to(directory, name)),
    };
    let shuffle = shuffle.unwrap_or(false);
    Ok(SeedSpec { location, format, encoding, shuffle })
}

fn check_encoding(
    file: &Document<'_>,
    label: &WithSpan<Text>,
    format: DatasetFormat,
) -> Result<&'static Encoding, FileError> {
    if !format.is_text() {
        return Err(file
            .error(label.span(), format!("`encoding` in [seed] is given for a {} dataset", format.name()))
            .expected("a CSV or JSONL dataset, or no `encoding`"));
    }
    let Checked(name) = label.get();
    encoding_of_label(name).ok_or_else(|| {
        let message = format!("`encoding` in [seed] is {name:?}, which names no encoding that can be read");
        file.error(label.span(), message).expected(
            "a label of the WHATWG Encoding Standard, such as \"utf-16le\", \"windows-1252\" or \"shift_jis\"; save a file in \
             another encoding as UTF-8",
        )
    })
}

/// Returns whether the `path` of a dataset is an address.
fn is_web_address(path: &str) -> bool {
    ["http://", "https://"]
        .iter()
        .any(|scheme| path.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme)))
}

impl From<RawRun> for RunSettings {
    fn from(raw: RawRun) -> Self {
        let default = Self::default();
        Self {
            row_group_size: raw.row_group_size.unwrap_or(default.row_group_size),
            row_groups: raw.row_groups.unwrap_or(default.row_groups),
            adaptive_row_groups: raw.adaptive_row_groups.unwrap_or(default.adaptive_row_groups),
            policy: raw.policy.map_or(default.policy, PolicyChoice::from),
            pressure_advisory: raw.pressure_advisory.unwrap_or(default.pressure_advisory),
            yield_while_waiting: raw.yield_while_waiting.unwrap_or(default.yield_while_waiting),
            rate_limit_headers: raw.rate_limit_headers.unwrap_or(default.rate_limit_headers),
            submission_limit: raw.submission_limit.unwrap_or(default.submission_limit),
            retries: raw.retries.unwrap_or(default.retries),
            shutdown_window: raw.shutdown_window.unwrap_or(default.shutdown_window),
            shutdown_rate: raw.shutdown_rate.map_or(default.shutdown_rate, |Checked(ShareOrNever(rate))| rate),
            degraded_window: raw.degraded_window.unwrap_or(default.degraded_window),
            degraded_rate: raw.degraded_rate.map_or(default.degraded_rate, |Checked(ShareOrNever(rate))| rate),
            rate_limit_patience: raw
                .rate_limit_patience
                .map_or(default.rate_limit_patience, |Checked(DurationOrNever(span))| span),
            fallback_after: raw.fallback_after.map_or(default.fallback_after, |Checked(span)| span),
            outage_patience: raw.outage_patience.map_or(default.outage_patience, |Checked(DurationOrNever(span))| span),
            seed: raw.seed.unwrap_or(default.seed),
        }
    }
}

/// Returns the settings of a run. Those that are not given depend on whether requests go in batches.
pub(crate) fn run_settings(raw: RawRun, columns: &[ColumnSpec], models: &[ModelSpec]) -> RunSettings {
    let (size, patience) = (raw.row_group_size, raw.rate_limit_patience.is_some());
    let mut settings = RunSettings::from(raw);
    let calls = columns.iter().filter_map(|column| column.kind.chat());
    let batches = calls.filter(|call| models[call.model].mode == CallMode::Batch);
    let Some(largest) = batches.filter_map(|call| NonZeroU32::new(call.batch_size)).max() else { return settings };
    if size.is_none() {
        // A batch has rows of one row group.
        settings.row_group_size = settings.row_group_size.max(largest);
    }
    if !patience {
        // A provider rejects a batch while its queue is full, which may take as long as the batches in it.
        settings.rate_limit_patience = Some(Duration::from_secs(24 * 3_600));
    }
    settings
}

pub(crate) fn check_output(file: &Document<'_>, raw: RawOutput) -> Result<OutputSettings, FileError> {
    #[cfg(feature = "parquet")]
    let compression = raw.compression.unwrap_or_default();
    #[cfg(not(feature = "parquet"))]
    let compression = ParquetCompression::default();
    let RawOutput { row_key, format, calls, columns, record, unique, .. } = raw;
    let row_key = row_key.map_or_else(|| "row".to_string(), |Checked(key)| key);
    let columns = columns.map(|columns| check_output_columns(file, columns, &row_key)).transpose()?;
    let record = record.map(|record| record.map(|JsonTable(table)| table));
    if let Some(record) = record.as_ref().filter(|record| record.get_ref().is_empty()) {
        return Err(file.wrong(record.span(), "at least one key"));
    }
    let unique = unique.map(|Table(unique)| check_unique(file, unique)).transpose()?;
    Ok(OutputSettings { row_key, format, compression, calls: calls.unwrap_or(false), columns, record, unique })
}

fn check_unique(file: &Document<'_>, raw: RawUnique) -> Result<UniqueSpec, FileError> {
    let similarity = raw.similarity.map_or_else(|| Spanned::new(0..0, DEFAULT_SIMILARITY), WithSpan::spanned);
    if !(MIN_SIMILARITY..=1.0).contains(similarity.get_ref()) {
        return Err(file.wrong(similarity.span(), "a number from 0.1 to 1"));
    }
    Ok(UniqueSpec { column: raw.column.spanned(), similarity: similarity.into_inner() })
}

fn check_output_columns(
    file: &Document<'_>,
    given: WithSpan<Vec<Table<RawOutputColumn>>>,
    row_key: &str,
) -> Result<Vec<OutputColumnSpec>, FileError> {
    if given.get().is_empty() {
        return Err(file.wrong(given.span(), "at least one column"));
    }
    let mut columns: Vec<OutputColumnSpec> = Vec::new();
    for Table(RawOutputColumn { name, from }) in given.into_inner() {
        let name = name.spanned();
        let is_row_key = is_same_name(name.get_ref(), row_key);
        if is_row_key || columns.iter().any(|other| is_same_name(other.name.get_ref(), name.get_ref())) {
            let message = format!("the output has the column `{}` already", name.get_ref());
            let error = file.error(name.span(), message).expected("a name that no other column of the output has");
            return Err(if is_row_key { error.help("the row number is always written") } else { error });
        }
        columns.push(OutputColumnSpec { from: from.map_or_else(|| name.clone(), WithSpan::spanned), name });
    }
    Ok(columns)
}
