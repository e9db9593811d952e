//! `manifest.json`: the definition of a job, its progress and usage, and how its last run ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::Path;

use encoding_rs::{Encoding, UTF_16BE, UTF_16LE};
use serde::{Deserialize, Serialize};

use super::done_row_groups::DoneRowGroups;
use crate::app::data::column_type::ColumnType;
use crate::app::data::digest::FileDigest;
use crate::app::data::row_file::RowFormat;
use crate::app::provider::cost::Money;

/// The version of the manifest format.
pub const MANIFEST_SCHEMA: u32 = 4;

/// The content of `manifest.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`MANIFEST_SCHEMA`].
    pub schema: u32,
    /// The name and version of the program that wrote the manifest, such as `tidegate 0.1.0`.
    pub program: String,
    /// The name of the pipeline file.
    pub pipeline: String,
    /// The name of the column that holds the row number.
    pub row_key: String,
    /// The columns of every output row after the row number, in order.
    pub columns: Vec<String>,
    /// The types of these columns; empty if the format has no types.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<ColumnType>,
    /// The first row of the dataset that belongs to the job, counted from 0.
    pub first_row: u64,
    /// The part that the job is for, such as `1/4 of 100 rows`; `None` if it is for all rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The number of rows of the job.
    pub rows_in: u64,
    /// The number of rows to accept; `None` if the job keeps all that are accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<u64>,
    /// Rows per row group. The last row group may have fewer.
    pub row_group_size: u32,
    /// The format of the rows files.
    pub format: RowFormat,
    /// The inputs that decide the content of the rows.
    pub identity: Identity,
    /// The row groups without unmade rows, as ranges such as `"0-311"`. Updated about once a second during a
    /// run. The files in `rows` take precedence.
    #[serde(default)]
    pub done: DoneRowGroups,
    /// The SHA-256 of every file that was exported, in hexadecimal.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub exports: BTreeSet<String>,
    /// The usage of all runs. Updated about once a second during a run.
    pub totals: JobTotals,
    /// The state of the last run.
    #[serde(flatten)]
    pub state: RunState,
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RunState {
    /// The run is active, or it was killed. Every rows file is complete.
    Running,
    /// The run has ended.
    Ended {
        /// The reason, such as `completed`.
        reason: String,
        /// Rows written, including those of earlier runs.
        rows_out: u64,
        /// Rows dropped, including those of earlier runs.
        rows_dropped: u64,
        /// Row groups written, including those of earlier runs.
        row_groups: u64,
    },
}

/// The inputs that decide the content of the rows. Runs with equal identities produce rows of the same job,
/// even if their limits, rates, keys or retries differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The SHA-256 of the dataset file, in hexadecimal.
    pub dataset: String,
    /// The length of the dataset file in bytes.
    pub dataset_bytes: u64,
    /// The `encoding` of the dataset, if the pipeline file gives one other than UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset_encoding: Option<String>,
    /// The address of the dataset without its query, if it is at one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset_address: Option<String>,
    /// Whether the rows of the dataset are in a random order, which depends on `seed`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_shuffled: bool,
    /// The seed of samplers and of that order.
    pub seed: u64,
    /// A hash of the definition of each column, by column name.
    pub columns: BTreeMap<String, String>,
    /// For each model of the pipeline file, by name: `provider/model`, or a hash of its command or address.
    pub models: BTreeMap<String, String>,
}

/// The usage of all runs of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTotals {
    /// The number of runs, including the current one.
    pub runs: u64,
    /// The cost of all calls. Calls in flight and calls without reported usage count with their estimates.
    #[serde(with = "crate::app::provider::cost::text")]
    pub spent: Money,
    /// The usage of each model, by `provider/model`.
    pub models: BTreeMap<String, ModelTotals>,
}

/// The usage of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelTotals {
    /// Calls sent.
    pub calls: u64,
    /// Calls that returned a result.
    pub succeeded: u64,
    /// Calls that returned 429, or 503 with Retry-After.
    pub rate_limited: u64,
    /// All other calls.
    pub failed: u64,
    /// Input tokens.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Responses that did not report their usage.
    pub not_counted: u64,
    /// The cost of the tokens.
    #[serde(with = "crate::app::provider::cost::text")]
    pub cost: Money,
}

impl JobTotals {
    /// Returns the sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut models = self.models.clone();
        for (label, more) in &other.models {
            let sum = models.entry(label.clone()).or_default();
            *sum = sum.plus(more);
        }
        Self { runs: self.runs + other.runs, spent: self.spent.saturating_add(other.spent), models }
    }
}

impl ModelTotals {
    /// Returns the sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            succeeded: self.succeeded + other.succeeded,
            rate_limited: self.rate_limited + other.rate_limited,
            failed: self.failed + other.failed,
            input_tokens: self.input_tokens + other.input_tokens,
            output_tokens: self.output_tokens + other.output_tokens,
            not_counted: self.not_counted + other.not_counted,
            cost: self.cost.saturating_add(other.cost),
        }
    }
}

impl Manifest {
    /// Returns the first difference that prevents this job from resuming `earlier`, as a message; `None` if
    /// there is no such difference. The job may have more rows at its end, and a text `dataset` may have been
    /// appended to.
    ///
    /// # Errors
    ///
    /// If the dataset file cannot be read.
    pub fn first_difference(&self, earlier: &Self, dataset: Option<&Path>) -> io::Result<Option<String>> {
        let (now, before) = (&self.identity, &earlier.identity);
        let changed =
            |what: &str, was: &str, is: &str| (was != is).then(|| format!("{what} was {was} and is now {is}"));
        // A job reads the file that it began with, so an unchanged content says nothing about the address.
        if let (Some(was), Some(is)) = (&before.dataset_address, &now.dataset_address)
            && let Some(found) = changed("the address of the dataset", was, is)
        {
            return Ok(Some(found));
        }
        if now.dataset != before.dataset {
            let has_grown = match dataset {
                Some(path) if now.dataset_bytes > before.dataset_bytes => has_only_grown(path, before)?,
                _ => false,
            };
            if !has_grown {
                let (was, is) = (before.dataset_bytes, now.dataset_bytes);
                return Ok(Some(format!(
                    "the dataset has changed since then (it had {was} bytes and now has {is}); a CSV or JSONL file may only be \
                     appended to"
                )));
            }
        }
        let list = |names: &[String]| names.join(", ");
        let (was, is) = (earlier.first_row, self.first_row);
        let part = |manifest: &Self| manifest.partition.clone().unwrap_or_else(|| "all".to_string());
        let encoding = |identity: &Identity| identity.dataset_encoding.clone().unwrap_or_else(|| "UTF-8".to_string());
        let found = changed("`encoding` in [seed]", &encoding(before), &encoding(now))
            .or_else(|| changed("`shuffle` in [seed]", &before.is_shuffled.to_string(), &now.is_shuffled.to_string()))
            .or_else(|| changed("--partition", &part(earlier), &part(self)))
            .or_else(|| changed("the first row of the job", &was.to_string(), &is.to_string()));
        let found = found
            .or_else(|| self.shortened(earlier))
            .or_else(|| changed("`seed` in [run]", &before.seed.to_string(), &now.seed.to_string()))
            .or_else(|| changed_names("the column", "has a different definition", &before.columns, &now.columns))
            .or_else(|| changed_names("the model", "has a different command or address", &before.models, &now.models))
            .or_else(|| changed("the list of output columns", &list(&earlier.columns), &list(&self.columns)))
            .or_else(|| {
                let (was, is) = (format!("{:?}", earlier.types), format!("{:?}", self.types));
                changed("the list of their types", &was, &is).filter(|_| self.format == earlier.format)
            })
            .or_else(|| changed("`format` in [output]", earlier.format.extension(), self.format.extension()))
            .or_else(|| changed("`row_key` in [output]", &earlier.row_key, &self.row_key))
            .or_else(|| {
                let (was, is) = (earlier.row_group_size.to_string(), self.row_group_size.to_string());
                changed("`row_group_size` in [run]", &was, &is)
            });
        Ok(found)
    }

    fn shortened(&self, earlier: &Self) -> Option<String> {
        const RULE: &str = "a job can be extended, not shortened";
        let (was, is) = (earlier.rows_in, self.rows_in);
        // Accepted rows after the last one to keep are removed from the output.
        let accepted = || match (earlier.wanted, self.wanted) {
            (Some(was), Some(is)) if is < was => Some(format!("the job accepted {was} rows and now {is}: {RULE}")),
            (None, Some(is)) => Some(format!("the job kept all accepted rows and now {is}: {RULE}")),
            _ => None,
        };
        (is < was).then(|| format!("the job had {was} rows and now has {is}: {RULE}")).or_else(accepted)
    }

    /// Returns the number of rows in a row group; 0 beyond the last one.
    #[must_use]
    pub fn rows_in_group(&self, row_group: u32) -> u64 {
        let size = u64::from(self.row_group_size);
        self.rows_in.saturating_sub(u64::from(row_group) * size).min(size)
    }

    /// Returns the last row group, if the job has rows.
    pub(super) fn last_row_group(&self) -> Option<u32> {
        u32::try_from(self.row_group_count().checked_sub(1)?).ok()
    }

    /// Returns the number of row groups of the job.
    #[must_use]
    pub fn row_group_count(&self) -> u64 {
        self.rows_in.div_ceil(u64::from(self.row_group_size.max(1)))
    }
}

/// Returns whether the file at `path` is the file of `before` with whole lines appended.
fn has_only_grown(path: &Path, before: &Identity) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let beginning = FileDigest::of(Read::by_ref(&mut file).take(before.dataset_bytes))?;
    if beginning.sha256 != before.dataset {
        return Ok(false);
    }
    let mut first = Vec::new();
    file.rewind()?;
    Read::by_ref(&mut file).take(3).read_to_end(&mut first)?;
    let named = || Encoding::for_label(before.dataset_encoding.as_ref()?.as_bytes());
    let encoding = Encoding::for_bom(&first).map(|(encoding, _)| encoding).or_else(named);
    // A byte of a character in UTF-16 may be that of a line end.
    let is_wide = encoding == Some(UTF_16LE) || encoding == Some(UTF_16BE);
    let unit_bytes: u8 = if is_wide { 2 } else { 1 };
    // The former content must end at a line break: its own, or the first of the appended text.
    file.seek(SeekFrom::Start(before.dataset_bytes.saturating_sub(unit_bytes.into())))?;
    let mut around = Vec::new();
    file.take(3 * u64::from(unit_bytes)).read_to_end(&mut around)?;
    let units = around.chunks_exact(unit_bytes.into()).map(|unit| match *unit {
        [low, high] if encoding == Some(UTF_16LE) => u16::from_le_bytes([low, high]),
        [high, low] => u16::from_be_bytes([high, low]),
        _ => u16::from(unit[0]),
    });
    let around: Vec<u16> = units.collect();
    let (line_feed, carriage_return) = (u16::from(b'\n'), u16::from(b'\r'));
    Ok(match around[..] {
        [last, ..] if last == line_feed => true,
        [_, next, ..] if next == line_feed => true,
        [_, next, after] => next == carriage_return && after == line_feed,
        _ => false,
    })
}

/// Returns a message for the first name that was added, removed, or has another value.
fn changed_names(
    what: &str,
    how: &str,
    before: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
) -> Option<String> {
    let names = before.keys().chain(now.keys());
    names.into_iter().find_map(|name| match (before.get(name), now.get(name)) {
        (Some(was), Some(is)) if was == is => None,
        (Some(was), Some(is)) if was.contains('/') && is.contains('/') => {
            Some(format!("{what} `{name}` was {was} and is now {is}"))
        }
        (Some(_), Some(_)) => Some(format!("{what} `{name}` {how} than before")),
        (Some(_), None) => Some(format!("{what} `{name}` no longer exists")),
        (None, _) => Some(format!("{what} `{name}` did not exist before")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(dataset: &[u8]) -> Identity {
        let FileDigest { sha256: dataset, bytes: dataset_bytes } = FileDigest::of(dataset).unwrap();
        let columns = BTreeMap::from([("title".to_string(), "1".to_string())]);
        let models = BTreeMap::from([("writer".to_string(), "acme/a".to_string())]);
        Identity { dataset, dataset_bytes, seed: 1, columns, models, ..Identity::default() }
    }

    fn before() -> Manifest {
        Manifest {
            schema: MANIFEST_SCHEMA,
            program: "tidegate 0.0.0".to_string(),
            pipeline: "p.toml".to_string(),
            row_key: "row".to_string(),
            columns: vec!["title".to_string()],
            types: Vec::new(),
            first_row: 0,
            partition: None,
            rows_in: 10,
            wanted: None,
            row_group_size: 4,
            format: RowFormat::Jsonl,
            identity: identity(b"id\n1\n"),
            done: DoneRowGroups::default(),
            exports: BTreeSet::new(),
            totals: JobTotals::default(),
            state: RunState::Running,
        }
    }

    fn difference(change: impl FnOnce(&mut Manifest)) -> Option<String> {
        let mut now = before();
        change(&mut now);
        now.first_difference(&before(), None).unwrap()
    }

    #[test]
    fn the_first_difference_names_the_former_and_the_new_value() {
        assert_eq!(difference(|now| now.pipeline = "moved.toml".to_string()), None);
        assert_eq!(difference(|now| now.rows_in = 20), None, "a job can be extended");
        let accepting = |was, is| {
            let [before, now] = [was, is].map(|wanted| Manifest { wanted, ..before() });
            now.first_difference(&before, None).unwrap()
        };
        assert_eq!([accepting(Some(3), Some(4)), accepting(Some(3), None)], [None, None]);
        let fewer = "the job accepted 3 rows and now 2: a job can be extended, not shortened";
        assert_eq!(accepting(Some(3), Some(2)).as_deref(), Some(fewer));
        let some = "the job kept all accepted rows and now 9: a job can be extended, not shortened";
        assert_eq!(accepting(None, Some(9)).as_deref(), Some(some));
        for (change, expected) in [
            (
                Box::new(|now: &mut Manifest| now.rows_in = 9) as Box<dyn Fn(&mut Manifest)>,
                "the job had 10 rows and now has 9: a job can be extended, not shortened",
            ),
            (Box::new(|now| now.first_row = 3), "the first row of the job was 0 and is now 3"),
            (Box::new(|now| now.partition = Some("1/2".to_string())), "--partition was all and is now 1/2"),
            (Box::new(|now| now.identity.is_shuffled = true), "`shuffle` in [seed] was false and is now true"),
            (
                Box::new(|now| now.identity.dataset_encoding = Some("Shift_JIS".to_string())),
                "`encoding` in [seed] was UTF-8 and is now Shift_JIS",
            ),
            (Box::new(|now| now.row_group_size = 5), "`row_group_size` in [run] was 4 and is now 5"),
            (Box::new(|now| now.identity.seed = 2), "`seed` in [run] was 1 and is now 2"),
            (Box::new(|now| now.format = RowFormat::Csv), "`format` in [output] was jsonl and is now csv"),
            (
                Box::new(|now| drop(now.identity.models.insert("writer".to_string(), "acme/b".to_string()))),
                "the model `writer` was acme/a and is now acme/b",
            ),
            (
                Box::new(|now| drop(now.identity.columns.insert("title".to_string(), "2".to_string()))),
                "the column `title` has a different definition than before",
            ),
            (
                Box::new(|now| drop(now.identity.columns.insert("more".to_string(), "2".to_string()))),
                "the column `more` did not exist before",
            ),
            (Box::new(|now| now.identity.columns.clear()), "the column `title` no longer exists"),
        ] {
            assert_eq!(difference(change).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_text_dataset_may_only_grow_by_whole_lines_at_its_end() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("data.csv");
        let grown = |before: &[u8], now: &[u8]| {
            std::fs::write(&path, now).unwrap();
            let earlier = Manifest { identity: identity(before), ..self::before() };
            let now = Manifest { identity: identity(now), ..self::before() };
            now.first_difference(&earlier, Some(&path)).unwrap()
        };
        for (before, now) in [("id\n1\n", "id\n1\n2\n"), ("id\n1", "id\n1\n2"), ("id\r\n1", "id\r\n1\r\n2")] {
            assert_eq!(grown(before.as_bytes(), now.as_bytes()), None, "{now:?}");
        }
        for (before, now) in [("id\n1", "id\n12\n"), ("id\n1\n", "id\n2\n3\n"), ("id\n1\n2\n", "id\n1\n")] {
            let refused = grown(before.as_bytes(), now.as_bytes()).unwrap();
            assert!(refused.starts_with("the dataset has changed since then (it had "), "{refused}");
        }
    }

    #[test]
    fn a_dataset_in_utf_16_may_only_grow_by_whole_lines_at_its_end() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("data.csv");
        for (label, mark) in [("utf-16le", ""), ("utf-16be", ""), ("utf-16le", "\u{feff}"), ("utf-16be", "\u{feff}")] {
            let encoded = |text: &str| -> Vec<u8> {
                let units = mark.encode_utf16().chain(text.encode_utf16());
                units
                    .flat_map(|unit| if label == "utf-16le" { unit.to_le_bytes() } else { unit.to_be_bytes() })
                    .collect()
            };
            // A byte order mark says it all.
            let key = mark.is_empty().then(|| label.to_string());
            let grown = |before: &str, now: &str| {
                let (before, now) = (encoded(before), encoded(now));
                std::fs::write(&path, &now).unwrap();
                let manifest = |text: &[u8]| {
                    let identity = Identity { dataset_encoding: key.clone(), ..identity(text) };
                    Manifest { identity, ..self::before() }
                };
                manifest(&now).first_difference(&manifest(&before), Some(&path)).unwrap()
            };
            for (before, now) in [
                ("id\n1\n", "id\n1\n2\n"),
                ("id\n1\n", "id\n1\n\u{a0a}"),
                ("id\n1", "id\n1\n2"),
                ("id\r\n1", "id\r\n1\r\n2"),
            ] {
                assert_eq!(grown(before, now), None, "{now:?} in {label}, {mark:?}");
            }
            // Letters with a byte like that of a line end.
            for (before, now) in [
                ("id\n1", "id\n12\n"),
                ("id\n\u{10a}", "id\n\u{10a}2\n"),
                ("id\n\u{a00}", "id\n\u{a00}2\n"),
                ("id\n1", "id\n1\u{10a}\n"),
                ("id\n1", "id\n1\u{a00}\n"),
                ("id\n1", "id\n1\r2\n"),
            ] {
                let refused = grown(before, now).unwrap_or_else(|| panic!("{now:?} in {label}, {mark:?}"));
                assert!(refused.starts_with("the dataset has changed since then (it had "), "{refused}");
            }
        }
    }

    #[test]
    fn the_last_row_group_has_fewer_rows_and_usage_adds_up() {
        let before = before();
        assert_eq!(
            (before.row_group_count(), before.rows_in_group(0), before.rows_in_group(2), before.rows_in_group(3)),
            (3, 4, 2, 0)
        );
        let model = ModelTotals { calls: 3, cost: Money::new(0.5).unwrap(), ..ModelTotals::default() };
        let run = JobTotals { runs: 1, spent: Money::new(0.75).unwrap(), models: [("a/b".to_string(), model)].into() };
        let both = run.plus(&run);
        assert_eq!((both.runs, both.spent, both.models["a/b"].calls), (2, Money::new(1.5).unwrap(), 6));
        let text = serde_json::to_string(&both).unwrap();
        assert!(text.contains(r#""spent":"1.500000000000""#), "{text}");
        assert_eq!(serde_json::from_str::<JobTotals>(&text).unwrap(), both);
    }
}
