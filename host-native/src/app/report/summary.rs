//! The summary of a run: rows, drop reasons, cost, and the utilisation of each provider.

mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration as StdDuration;

use serde::{Serialize, Serializer};
use tidegate_core::observe::RunFigures;
use tidegate_core::pipeline::RetryableCount;

use crate::app::error::Exit;
use crate::app::output::{EarlierOutput, Exported, JobTotals, LeftOut, ModelTotals, SimilarRows};
use crate::app::provider::cost::Money;
use crate::app::render::table::percent;
use crate::app::report::comparison::Comparison;

/// The result of a run. Serialized for `--json`, and displayed as text otherwise.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The name of the pipeline.
    pub pipeline: String,
    /// Why the run stopped early, if it did.
    pub stopped: Option<String>,
    /// Rows of the job.
    pub rows_in: u64,
    /// The output of earlier runs that this run kept.
    pub earlier: EarlierOutput,
    /// Rows written by this run.
    pub rows_out: u64,
    /// Dropped rows of the job, by column and reason.
    pub dropped: Vec<DropSummary>,
    /// The decisions of the columns with `accept_if`, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<Acceptance>,
    /// Retryable failures by kind and HTTP status.
    pub retryable: Vec<RetryableCount>,
    /// The command that retries the dropped rows, if there are any.
    pub retry: Option<String>,
    /// Row groups that this run completed.
    pub row_groups: u64,
    /// The generated columns, in file order.
    pub columns: Vec<ColumnSummary>,
    /// The providers, in file order of their models.
    pub providers: Vec<ProviderSummary>,
    /// The last shares of the limits that other processes share, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<ShareSummary>,
    /// The usage of all runs of the job, including this one.
    pub job: JobTotals,
    /// The cost of this run and its currency, if the pipeline file has prices.
    pub spent: Option<(Money, String)>,
    /// Busy and idle time of all resources, with the causes of idle time. The request resources are in the
    /// order of `providers`.
    pub figures: RunFigures,
    /// The time from the first task to the last checkpoint. In seconds in JSON.
    #[serde(rename = "wall_s", serialize_with = "in_seconds")]
    pub wall: StdDuration,
    /// A comparison with AIMD, for the bundled example only.
    pub comparison: Option<Comparison>,
    /// The output directory.
    pub output: PathBuf,
    /// The complete rows of row groups that this process has not finished, if it has stopped early and others
    /// fill the output, too. They are not in `rows_out`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<UnfinishedRows>,
    /// Whether other processes have filled the output directory, too. What they have written is in `earlier`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_together: bool,
    /// The file that the rows were exported to, if one was asked for.
    pub export: Option<Exported>,
    /// The exit code.
    pub exit: Exit,
}

fn in_seconds<S: Serializer>(span: &StdDuration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}

/// Complete rows of row groups that are complete in part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UnfinishedRows {
    /// The number of rows.
    pub rows: u64,
    /// The number of their row groups.
    pub row_groups: u64,
}

/// The last share of a limit that other processes share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShareSummary {
    /// The shared limit: `provider/model/domain`.
    pub limit: String,
    /// The share, the number of processes and the leader.
    pub state: String,
}

/// Rows that were dropped for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DropSummary {
    /// The column that failed.
    pub column: String,
    /// The name of the reason, as `--retry-dropped` takes it.
    pub reason: String,
    /// The number of rows.
    pub rows: u64,
    /// The first of these rows in this run, with its error message.
    pub example: Option<(u64, String)>,
}

/// How many rows of a job were accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Acceptance {
    /// The number of rows that are to be accepted, if the file says.
    pub wanted: Option<u64>,
    /// Whether `max_candidates` is what limits the candidates, and not the dataset or the selection of rows.
    #[serde(skip)]
    pub is_limited: bool,
    /// The number of accepted rows.
    pub accepted: u64,
    /// Rejected rows by column.
    pub rejected: BTreeMap<String, u64>,
    /// Whether all rows that are wanted are accepted.
    pub is_enough: bool,
}

impl Acceptance {
    /// Returns the number of rows that were accepted or rejected.
    #[must_use]
    pub fn decided(&self) -> u64 {
        self.accepted + self.rejected.values().sum::<u64>()
    }

    /// Returns why there are fewer rows than wanted after all candidates were made.
    #[must_use]
    pub fn shortage(&self) -> Option<String> {
        let (wanted, accepted) = (self.wanted?, self.accepted);
        let left = if self.is_limited {
            "no candidates are left; `max_candidates` in [run] allows more"
        } else {
            "no candidates are left among the selected rows"
        };
        (accepted < wanted).then(|| format!("{accepted} of {wanted} rows were accepted, and {left}"))
    }
}

impl fmt::Display for Acceptance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = if self.decided() == 0 { 0.0 } else { self.accepted as f64 / self.decided() as f64 };
        write!(f, "{} of {} candidates ({})", self.accepted, self.decided(), percent(rate))?;
        self.rejected.iter().try_for_each(|(column, rows)| write!(f, ", {rows} rejected by {column}"))
    }
}

/// The results of one generated column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ColumnSummary {
    /// The name of the column.
    pub name: String,
    /// The names of its models in order of preference, or its kind.
    pub filled_by: String,
    /// The answers of each model by `provider/model`, if it has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<(String, u64)>,
    /// Tasks that succeeded.
    pub succeeded: u64,
    /// Attempts that failed and were retried.
    pub retried: u64,
    /// Tasks that failed finally.
    pub failed: u64,
    /// Tasks that were skipped because of a condition.
    pub skipped: u64,
}

/// The results of one model of a provider.
#[derive(Clone, Debug, Serialize)]
pub struct ProviderSummary {
    /// `provider/model`.
    pub label: String,
    /// Calls, including retries.
    pub calls: CallCounts,
    /// The maximum number of calls in flight at the end.
    pub cap: u32,
    /// Token usage.
    pub tokens: TokenTotals,
}

/// Token usage and its cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TokenTotals {
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Responses that did not report their usage.
    pub unbilled: u64,
    /// The cost of the tokens, if the model has a price.
    pub cost: Option<Money>,
}

/// The number of calls by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallCounts {
    /// All calls.
    pub made: u64,
    /// Calls that returned a result.
    pub succeeded: u64,
    /// Calls that returned 429, or 503 with Retry-After.
    pub rate_limited: u64,
    /// All other calls.
    pub failed: u64,
}

impl Summary {
    /// Returns the number of dropped rows of the job.
    #[must_use]
    pub fn rows_dropped(&self) -> u64 {
        self.dropped.iter().map(|dropped| dropped.rows).sum()
    }

    /// Returns the number of rows that are neither written nor dropped: the run stopped before them, or their
    /// row groups were kept unchanged.
    #[must_use]
    pub fn rows_left(&self) -> u64 {
        let rejected = match &self.acceptance {
            Some(acceptance) if acceptance.is_enough => return 0,
            Some(acceptance) => acceptance.rejected.values().sum(),
            None => 0,
        };
        self.rows_in.saturating_sub(self.earlier.rows_out + self.rows_out + self.rows_dropped() + rejected)
    }

    /// Returns a line for each column with several models: the number of answers of each.
    pub(crate) fn answers(&self) -> impl Iterator<Item = String> {
        self.columns.iter().filter(|column| !column.answers.is_empty()).map(|column| {
            let counts: Vec<String> =
                column.answers.iter().map(|(model, count)| format!("{count} by {model}")).collect();
            format!("answers of {}: {}", column.name, counts.join(", "))
        })
    }

    /// Returns the labels of the providers.
    pub(crate) fn labels(&self) -> Vec<String> {
        self.providers.iter().map(|provider| provider.label.clone()).collect()
    }

    fn call_counts(&self) -> CallCounts {
        self.providers.iter().fold(CallCounts::default(), |sum, provider| CallCounts {
            made: sum.made + provider.calls.made,
            succeeded: sum.succeeded + provider.calls.succeeded,
            rate_limited: sum.rate_limited + provider.calls.rate_limited,
            failed: sum.failed + provider.calls.failed,
        })
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::observe::ResourceFigures;
    use tidegate_core::pipeline::RetryKind;

    use super::*;

    fn summary() -> Summary {
        let (busy_slot_ns, idle_slot_ns) = (3_000_000_000, 1_000_000_000);
        let usage = ResourceFigures { busy_slot_ns, idle_slot_ns, ..ResourceFigures::default() };
        Summary {
            pipeline: "p.toml".to_string(),
            stopped: Some("interrupted".to_string()),
            rows_in: 10,
            earlier: EarlierOutput::default(),
            rows_out: 7,
            dropped: vec![DropSummary {
                column: "title".to_string(),
                reason: "request".to_string(),
                rows: 2,
                example: Some((4, "the request was refused (HTTP 400): too long".to_string())),
            }],
            acceptance: None,
            retryable: vec![
                RetryableCount { kind: RetryKind::RateLimited, status: Some(429), recent: 0, total: 2 },
                RetryableCount { kind: RetryKind::Timeout, status: None, recent: 1, total: 1 },
            ],
            retry: Some("tidegate run p.toml --resume --retry-dropped".to_string()),
            row_groups: 1,
            columns: vec![ColumnSummary {
                name: "title".to_string(),
                filled_by: "writer".to_string(),
                answers: Vec::new(),
                succeeded: 7,
                retried: 3,
                failed: 2,
                skipped: 0,
            }],
            providers: vec![ProviderSummary {
                label: "mock/writer".to_string(),
                calls: CallCounts { made: 12, succeeded: 7, rate_limited: 3, failed: 2 },
                cap: 4,
                tokens: TokenTotals { cost: Money::new(0.4), ..TokenTotals::default() },
            }],
            job: JobTotals { runs: 1, ..JobTotals::default() },
            spent: Some((Money::new(0.5).unwrap(), "USD".to_string())),
            figures: RunFigures { requests: vec![usage], ..RunFigures::default() },
            wall: StdDuration::from_millis(1_234),
            shares: Vec::new(),
            comparison: None,
            export: None,
            unfinished: None,
            is_together: false,
            output: PathBuf::from("out/p"),
            exit: Exit::RowsDropped,
        }
    }

    #[test]
    fn every_row_is_counted_and_every_drop_has_a_reason() {
        let summary = summary();
        assert_eq!((summary.rows_dropped(), summary.rows_left()), (2, 1));
        let text = summary.to_string();
        for line in [
            "p.toml: stopped: interrupted",
            "  rows in         10",
            "  dropped          2",
            "                   2   title: request",
            "            to retry them: tidegate run p.toml --resume --retry-dropped",
            "                       for example row 4: the request was refused (HTTP 400): too long",
            "  not done         1   the run stopped before them",
            "  calls           12   7 answered, 3 rate limited (429), 2 failed",
            "  retryable        3   2 rate limited (HTTP 429), 1 timeout",
            "  cost        0.5000   USD, of which 0.1000 is estimated, for cancelled calls and unreported usage",
            "  wall time    1.2 s",
            "  title   writer        7        3       2",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line:?} is not in:\n{text}");
        }
        assert!(text.contains("75.0 %"), "{text}");
    }

    #[test]
    fn the_usage_of_all_runs_is_shown_if_there_was_more_than_one() {
        assert!(!summary().to_string().contains("the job"));
        let model = ModelTotals { calls: 30, input_tokens: 400, output_tokens: 50, ..ModelTotals::default() };
        let job =
            JobTotals { runs: 3, spent: Money::new(2.0).unwrap(), models: [("mock/writer".to_string(), model)].into() };
        let text = Summary { job, ..summary() }.to_string();
        let line = "  the job         30   calls in 3 runs, 400 input and 50 output tokens, 2.00 USD\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn the_rows_of_other_processes_are_shown_beside_those_of_this_one() {
        let earlier = EarlierOutput { rows_out: 20, rows_dropped: 1, row_groups: 3, ..EarlierOutput::default() };
        let text = Summary { rows_in: 30, is_together: true, earlier, ..summary() }.to_string();
        for line in [
            "  others          20   3 row groups of other processes and earlier runs, with 1 dropped rows",
            "  in total        27   rows of all processes",
            "  dropped          2   1 of them by other processes and earlier runs",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line:?} is not in:\n{text}");
        }
    }

    #[test]
    fn the_rows_that_a_process_keeps_for_others_are_shown() {
        for (row_groups, line) in [
            (1, "  kept             3   complete rows in 1 unfinished row group, for the process that goes on with it"),
            (
                2,
                "  kept             3   complete rows in 2 unfinished row groups, for the processes that go on with them",
            ),
        ] {
            let unfinished = Some(UnfinishedRows { rows: 3, row_groups });
            let text = Summary { is_together: true, unfinished, ..summary() }.to_string();
            assert!(text.lines().any(|shown| shown == line), "{line:?} is not in:\n{text}");
        }
    }

    #[test]
    fn a_cost_without_estimates_is_for_the_reported_tokens() {
        let text = Summary { spent: Some((Money::new(0.4).unwrap(), "USD".to_string())), ..summary() }.to_string();
        assert!(text.contains("  cost        0.4000   USD, of which none is estimated\n"), "{text}");
    }

    #[test]
    fn the_reason_of_a_stopped_run_comes_first() {
        let stopped = Some("nothing but rate limits from mock/writer for 10 min".to_string());
        let text = Summary { stopped, ..summary() }.to_string();
        assert!(text.starts_with("p.toml: stopped: nothing but rate limits from mock/writer"), "{text}");
    }
}
