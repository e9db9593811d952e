//! What stands in `manifest.json`: what the job is, what is done of it, what it has used, and how its last
//! run ended.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::Path;

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::done::DoneRowGroups;
use crate::app::data::column_type::ValueKind;
use crate::app::data::row_file::RowFormat;
use crate::app::provider::cost::Money;

/// Bytes of a dataset that are in memory at once to be hashed.
const CHUNK: usize = 1 << 16;

/// The version of the manifest's form.
pub const MANIFEST_SCHEMA: u32 = 3;

/// What `manifest.json` holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`MANIFEST_SCHEMA`].
    pub schema: u32,
    /// The program and version that wrote it, such as `tidegate 0.1.0`.
    pub program: String,
    /// The pipeline file as it was named.
    pub pipeline: String,
    /// The key of the row number.
    pub row_key: String,
    /// The columns of every output row after the row number, in order.
    pub columns: Vec<String>,
    /// What the values of these columns are, where the format has types.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<ValueKind>,
    /// The first row of the dataset that is asked for, counted from 0.
    pub first_row: u64,
    /// Rows that are asked for.
    pub rows_in: u64,
    /// Rows per row group; the last may have fewer.
    pub row_group_size: u32,
    /// How rows are written.
    pub format: RowFormat,
    /// What the rows depend on.
    pub identity: Identity,
    /// The row groups of which nothing is left to make, as ranges such as `"0-311"`. A running program brings
    /// it up to date every second or so; the files in `rows` are what counts.
    #[serde(default)]
    pub done: DoneRowGroups,
    /// What all runs have used. A running program brings it up to date every second or so.
    pub totals: JobTotals,
    /// How far the run came.
    #[serde(flatten)]
    pub state: RunState,
}

/// How far a run came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RunState {
    /// It runs, or it was killed: the row groups that are there are whole.
    Running,
    /// It ended.
    Ended {
        /// Why, such as `completed`.
        reason: String,
        /// Rows written, those of earlier runs included.
        rows_out: u64,
        /// Rows dropped, those of earlier runs included.
        rows_dropped: u64,
        /// Row groups written, those of earlier runs included.
        row_groups: u64,
    },
}

/// What decides which rows a job makes. Two runs whose identities agree make rows that belong together;
/// limits, rates, keys and retries may differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The dataset, byte for byte: a SHA-256 in hexadecimal.
    pub dataset: String,
    /// How long it is.
    pub dataset_bytes: u64,
    /// The seed of samplers.
    pub seed: u64,
    /// The columns of the pipeline file, with their prompts and options: a hash for each name.
    pub columns: BTreeMap<String, String>,
    /// Which model of which provider each model of the file is: its name there, and `provider/model`, or a
    /// hash.
    pub models: BTreeMap<String, String>,
}

/// What the calls of a job have used, all its runs together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTotals {
    /// Runs, the one under way included.
    pub runs: u64,
    /// What was spent, estimates for calls that were not counted or are out included.
    #[serde(with = "crate::app::provider::cost::text")]
    pub spent: Money,
    /// By `provider/model`.
    pub models: BTreeMap<String, ModelTotals>,
}

/// What calls of one model have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelTotals {
    /// Calls that went out.
    pub calls: u64,
    /// Answered with a completion.
    pub succeeded: u64,
    /// Answered with 429, or 503 and Retry-After.
    pub rate_limited: u64,
    /// Anything else.
    pub failed: u64,
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens received.
    pub output_tokens: u64,
    /// Answers that did not say what they took.
    pub not_counted: u64,
    /// What the tokens cost.
    #[serde(with = "crate::app::provider::cost::text")]
    pub cost: Money,
}

impl JobTotals {
    /// Both together, as one job.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut models = self.models.clone();
        for (label, more) in &other.models {
            let sum = models.entry(label.clone()).or_default();
            *sum = sum.plus(more);
        }
        Self { runs: self.runs + other.runs, spent: self.spent.plus(other.spent), models }
    }
}

impl ModelTotals {
    /// Both together.
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
            cost: self.cost.plus(other.cost),
        }
    }
}

impl Manifest {
    /// What keeps a run of this manifest from going on where `earlier` stopped: the first thing that has
    /// changed, and how. A job may have more rows at its end than before, and a `dataset` that is a text may
    /// have grown there.
    pub fn differs_from(&self, earlier: &Self, dataset: Option<&Path>) -> io::Result<Option<String>> {
        let (now, before) = (&self.identity, &earlier.identity);
        if now.dataset != before.dataset {
            let has_grown = match dataset {
                Some(path) if now.dataset_bytes > before.dataset_bytes => begins_with(path, before)?,
                _ => false,
            };
            if !has_grown {
                let (was, is) = (before.dataset_bytes, now.dataset_bytes);
                return Ok(Some(format!(
                    "the dataset has changed since (it had {was} bytes and has {is}); a CSV or JSONL file may only grow at its end"
                )));
            }
        }
        let changed = |what: &str, was: &str, is: &str| (was != is).then(|| format!("{what} was {was} and is {is}"));
        let list = |names: &[String]| names.join(", ");
        let (was, is) = (earlier.first_row, self.first_row);
        let found = changed("the first row that is asked for", &was.to_string(), &is.to_string())
            .or_else(|| self.is_shorter(earlier))
            .or_else(|| changed("`seed` in [run]", &before.seed.to_string(), &now.seed.to_string()))
            .or_else(|| changed_names("the column", "has another definition", &before.columns, &now.columns))
            .or_else(|| changed_names("the model", "has another command or address", &before.models, &now.models))
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

    fn is_shorter(&self, earlier: &Self) -> Option<String> {
        let (was, is) = (earlier.rows_in, self.rows_in);
        (is < was).then(|| {
            format!("{was} rows were asked for before and {is} are now: a job can be made longer, not shorter")
        })
    }

    /// Rows of row group `row_group`.
    #[must_use]
    pub fn rows_of(&self, row_group: u32) -> u64 {
        let size = u64::from(self.row_group_size);
        self.rows_in.saturating_sub(u64::from(row_group) * size).min(size)
    }

    /// Row groups of the whole run.
    #[must_use]
    pub fn row_groups(&self) -> u64 {
        self.rows_in.div_ceil(u64::from(self.row_group_size.max(1)))
    }
}

/// Hashes `bytes` to the end, and counts them.
pub fn hash(mut bytes: impl Read) -> io::Result<(String, u64)> {
    let mut hasher = Context::new(&SHA256);
    let mut chunk = vec![0; CHUNK];
    let mut length = 0;
    loop {
        match bytes.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => {
                hasher.update(&chunk[..count]);
                length += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let mut text = String::with_capacity(64);
    for byte in hasher.finish().as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    Ok((text, length))
}

/// Whether the file at `path` is what it was before with lines added at its end.
fn begins_with(path: &Path, before: &Identity) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let (hash, _) = hash(Read::by_ref(&mut file).take(before.dataset_bytes))?;
    if hash != before.dataset {
        return Ok(false);
    }
    // The last line ended there, with its own end or with the one that comes next.
    file.seek(SeekFrom::Start(before.dataset_bytes.saturating_sub(1)))?;
    let mut around = [0; 3];
    let count = file.read(&mut around)?;
    let (last, next) = (around[0], &around[1..count.max(1)]);
    Ok(last == b'\n' || next.first() == Some(&b'\n') || next == b"\r\n")
}

/// The first name that is new, gone, or stands for something else.
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
            Some(format!("{what} `{name}` was {was} and is {is}"))
        }
        (Some(_), Some(_)) => Some(format!("{what} `{name}` {how} than before")),
        (Some(_), None) => Some(format!("{what} `{name}` is not there any more")),
        (None, _) => Some(format!("{what} `{name}` was not there before")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(dataset: &[u8]) -> Identity {
        let (dataset, dataset_bytes) = hash(dataset).unwrap();
        let columns = BTreeMap::from([("title".to_string(), "1".to_string())]);
        let models = BTreeMap::from([("writer".to_string(), "acme/a".to_string())]);
        Identity { dataset, dataset_bytes, seed: 1, columns, models }
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
            rows_in: 10,
            row_group_size: 4,
            format: RowFormat::Jsonl,
            identity: identity(b"id\n1\n"),
            done: DoneRowGroups::default(),
            totals: JobTotals::default(),
            state: RunState::Running,
        }
    }

    fn difference(change: impl FnOnce(&mut Manifest)) -> Option<String> {
        let mut now = before();
        change(&mut now);
        now.differs_from(&before(), None).unwrap()
    }

    #[test]
    fn a_change_of_what_decides_the_rows_is_named_with_what_it_was_and_is() {
        assert_eq!(difference(|now| now.pipeline = "moved.toml".to_string()), None);
        assert_eq!(difference(|now| now.rows_in = 20), None, "a job can be made longer");
        for (change, expected) in [
            (
                Box::new(|now: &mut Manifest| now.rows_in = 9) as Box<dyn Fn(&mut Manifest)>,
                "10 rows were asked for before and 9 are now: a job can be made longer, not shorter",
            ),
            (Box::new(|now| now.first_row = 3), "the first row that is asked for was 0 and is 3"),
            (Box::new(|now| now.row_group_size = 5), "`row_group_size` in [run] was 4 and is 5"),
            (Box::new(|now| now.identity.seed = 2), "`seed` in [run] was 1 and is 2"),
            (Box::new(|now| now.format = RowFormat::Csv), "`format` in [output] was jsonl and is csv"),
            (
                Box::new(|now| drop(now.identity.models.insert("writer".to_string(), "acme/b".to_string()))),
                "the model `writer` was acme/a and is acme/b",
            ),
            (
                Box::new(|now| drop(now.identity.columns.insert("title".to_string(), "2".to_string()))),
                "the column `title` has another definition than before",
            ),
            (
                Box::new(|now| drop(now.identity.columns.insert("more".to_string(), "2".to_string()))),
                "the column `more` was not there before",
            ),
            (Box::new(|now| now.identity.columns.clear()), "the column `title` is not there any more"),
        ] {
            assert_eq!(difference(change).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_text_may_grow_by_whole_lines_at_its_end_and_in_no_other_way() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("data.csv");
        let grown = |before: &[u8], now: &[u8]| {
            std::fs::write(&path, now).unwrap();
            let earlier = Manifest { identity: identity(before), ..self::before() };
            let now = Manifest { identity: identity(now), ..self::before() };
            now.differs_from(&earlier, Some(&path)).unwrap()
        };
        for (before, now) in [("id\n1\n", "id\n1\n2\n"), ("id\n1", "id\n1\n2"), ("id\r\n1", "id\r\n1\r\n2")] {
            assert_eq!(grown(before.as_bytes(), now.as_bytes()), None, "{now:?}");
        }
        for (before, now) in [("id\n1", "id\n12\n"), ("id\n1\n", "id\n2\n3\n"), ("id\n1\n2\n", "id\n1\n")] {
            let refused = grown(before.as_bytes(), now.as_bytes()).unwrap();
            assert!(refused.starts_with("the dataset has changed since (it had "), "{refused}");
        }
    }

    #[test]
    fn row_groups_have_their_rows_and_usage_adds_up() {
        let before = before();
        assert_eq!((before.row_groups(), before.rows_of(0), before.rows_of(2), before.rows_of(3)), (3, 4, 2, 0));
        let model = ModelTotals { calls: 3, cost: Money::new(0.5).unwrap(), ..ModelTotals::default() };
        let run = JobTotals { runs: 1, spent: Money::new(0.75).unwrap(), models: [("a/b".to_string(), model)].into() };
        let both = run.plus(&run);
        assert_eq!((both.runs, both.spent, both.models["a/b"].calls), (2, Money::new(1.5).unwrap(), 6));
        let text = serde_json::to_string(&both).unwrap();
        assert!(text.contains(r#""spent":"1.500000000000""#), "{text}");
        assert_eq!(serde_json::from_str::<JobTotals>(&text).unwrap(), both);
    }
}
