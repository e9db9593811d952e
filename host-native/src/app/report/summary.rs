//! What a run came to, for a person: rows, what was dropped and why, and how well each provider was used.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration as StdDuration;

use serde::{Serialize, Serializer};
use tidegate_core::observe::RunFigures;
use tidegate_core::pipeline::RetryableCount;

use crate::app::error::Exit;
use crate::app::output::{Earlier, JobTotals, ModelTotals};
use crate::app::provider::cost::Money;
use crate::app::provider::usage::Usage;
use crate::app::render::table::{format_seconds, percent, row, slot_seconds, write_table};
use crate::app::report::comparison::Comparison;
use crate::app::report::idle::write_idle;

/// The end of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The pipeline, as it was named.
    pub pipeline: String,
    /// Why the run ended, if not because it was done.
    pub stopped: Option<String>,
    /// Rows of the dataset.
    pub rows_in: u64,
    /// What earlier runs have left that this one kept.
    pub earlier: Earlier,
    /// Rows written by this run.
    pub rows_out: u64,
    /// Rows of the job that are dropped, by column and reason.
    pub dropped: Vec<Dropped>,
    /// Failures that were retried, by kind and HTTP status.
    pub retryable: Vec<RetryableCount>,
    /// The command that makes them again, if there are any.
    pub retry: Option<String>,
    /// Row groups of which this run has left nothing to make.
    pub row_groups: u64,
    /// Generated columns, in file order.
    pub columns: Vec<ColumnSummary>,
    /// Providers, in file order of their models.
    pub providers: Vec<ProviderSummary>,
    /// What all runs of the job have used, this one included.
    pub job: JobTotals,
    /// What this run has spent, in this currency, if the file has prices.
    pub spent: Option<(Money, String)>,
    /// Where the capacity went.
    pub figures: RunFigures,
    /// From the first task to the last checkpoint; in JSON in seconds.
    #[serde(rename = "wall_s", serialize_with = "in_seconds")]
    pub wall: StdDuration,
    /// What the same rows take under AIMD, of the bundled example.
    pub comparison: Option<Comparison>,
    /// Where the rows are.
    pub output: PathBuf,
    /// The exit code that tells all this.
    pub exit: Exit,
}

fn in_seconds<S: Serializer>(span: &StdDuration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}

/// Rows that were dropped for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// The column that failed.
    pub column: String,
    /// The name of the reason, as `--retry-dropped` takes it.
    pub reason: String,
    /// How many rows.
    pub rows: u64,
    /// The first of them in this run, with what happened.
    pub example: Option<(u64, String)>,
}

/// How a generated column went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ColumnSummary {
    /// Its name.
    pub name: String,
    /// The model's name, or `expression`.
    pub filled_by: String,
    /// Tasks that succeeded.
    pub succeeded: u64,
    /// Attempts that were put off to be tried again.
    pub retried: u64,
    /// Tasks that failed for good.
    pub failed: u64,
    /// Tasks that a condition left out.
    pub skipped: u64,
}

/// How a provider and model went.
#[derive(Clone, Debug, Serialize)]
pub struct ProviderSummary {
    /// `provider/model`.
    pub label: String,
    /// Calls made, retries included.
    pub calls: CallCounts,
    /// Its cap.
    pub cap: u32,
    /// What its slots did.
    pub usage: Usage,
    /// The tokens it took.
    pub tokens: TokenTotals,
}

/// Tokens by direction, and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TokenTotals {
    /// Sent.
    pub input: u64,
    /// Received.
    pub output: u64,
    /// Answers that did not say what they took.
    pub unbilled: u64,
    /// What they cost, if the file has a price.
    pub cost: Option<Money>,
}

/// Calls by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallCounts {
    /// All that went out.
    pub made: u64,
    /// Answered with a completion.
    pub succeeded: u64,
    /// Answered with 429, or 503 and Retry-After.
    pub rate_limited: u64,
    /// Anything else.
    pub failed: u64,
}

impl Summary {
    /// Rows of the job that are dropped, for all reasons together.
    #[must_use]
    pub fn rows_dropped(&self) -> u64 {
        self.dropped.iter().map(|dropped| dropped.rows).sum()
    }

    /// Rows that are neither written nor dropped: the run stopped before them, or their row groups are kept as they were.
    #[must_use]
    pub fn rows_left(&self) -> u64 {
        self.rows_in.saturating_sub(self.earlier.rows_out + self.rows_out + self.rows_dropped())
    }

    /// The providers by name.
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

    fn write_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  rows in   {:>8}", self.rows_in)?;
        if self.earlier != Earlier::default() {
            let Earlier { rows_out, rows_dropped, row_groups } = self.earlier;
            writeln!(
                f,
                "  resumed   {rows_out:>8}   {row_groups} row groups of an earlier run, {rows_dropped} rows dropped there"
            )?;
        }
        let groups = if self.row_groups == 1 { "row group" } else { "row groups" };
        writeln!(
            f,
            "  rows out  {:>8}   {} {groups} in {}",
            self.rows_out,
            self.row_groups,
            self.output.join("rows").display()
        )?;
        self.write_dropped(f)?;
        if self.rows_left() > 0 {
            let why = match self.stopped {
                Some(_) => "the run stopped before them",
                None => "their row groups are kept as they were",
            };
            writeln!(f, "  not done  {:>8}   {why}", self.rows_left())?;
        }
        let calls = self.call_counts();
        writeln!(
            f,
            "  calls     {:>8}   {} answered, {} rate limited (429), {} failed",
            calls.made, calls.succeeded, calls.rate_limited, calls.failed
        )?;
        self.write_retryable(f)?;
        if let Some((spent, currency)) = &self.spent {
            let counted = self.providers.iter().filter_map(|provider| provider.tokens.cost);
            let estimated = spent.less(counted.fold(Money::default(), Money::plus));
            write!(f, "  cost      {spent:>8}   {currency}, ")?;
            if estimated == Money::default() {
                writeln!(f, "of tokens as counted by the providers")?;
            } else {
                writeln!(f, "of which {estimated} estimated, for calls that were cut short or not counted")?;
            }
        }
        self.write_job(f)?;
        writeln!(f, "  wall time {:>8}", format_seconds(self.wall.as_secs_f64()))
    }

    /// What went wrong with tasks and was tried again, or dropped in the end.
    fn write_retryable(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: u64 = self.retryable.iter().map(|count| count.total).sum();
        if total == 0 {
            return Ok(());
        }
        let kinds: Vec<String> = self.retryable.iter().map(ToString::to_string).collect();
        writeln!(f, "  retryable {total:>8}   {}", kinds.join(", "))
    }

    fn write_dropped(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  dropped   {:>8}", self.rows_dropped())?;
        match self.earlier.rows_dropped {
            0 => writeln!(f)?,
            earlier => writeln!(f, "   {earlier} of them by earlier runs")?,
        }
        for dropped in &self.dropped {
            writeln!(f, "            {:>8}   {}: {}", dropped.rows, dropped.column, dropped.reason)?;
            if let Some((row, what)) = &dropped.example {
                writeln!(f, "                       such as row {row}: {what}")?;
            }
        }
        self.retry.as_ref().map_or(Ok(()), |retry| writeln!(f, "            to make them again: {retry}"))
    }

    /// What all runs together have used, if there was more than one.
    fn write_job(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let JobTotals { runs, spent, models } = &self.job;
        if *runs < 2 {
            return Ok(());
        }
        let all = models.values().fold(ModelTotals::default(), |sum, more| sum.plus(more));
        let ModelTotals { calls, input_tokens, output_tokens, .. } = all;
        write!(
            f,
            "  the job   {calls:>8}   calls in {runs} runs, {input_tokens} input and {output_tokens} output tokens"
        )?;
        match &self.spent {
            Some((_, currency)) => writeln!(f, ", {spent} {currency}"),
            None => writeln!(f),
        }
    }

    fn write_columns(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = vec![row(["column", "filled by", "done", "put off", "failed", "skipped"])];
        for column in &self.columns {
            table.push(vec![
                column.name.clone(),
                column.filled_by.clone(),
                column.succeeded.to_string(),
                column.retried.to_string(),
                column.failed.to_string(),
                column.skipped.to_string(),
            ]);
        }
        if self.columns.iter().all(|column| column.skipped == 0) {
            // Most pipelines have no conditions.
            for line in &mut table {
                line.truncate(5);
            }
        }
        write_table(f, &table, 2)
    }

    fn write_tokens(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = vec![row(["provider", "input tokens", "output tokens", "cost", "not counted"])];
        for provider in &self.providers {
            let tokens = &provider.tokens;
            table.push(vec![
                provider.label.clone(),
                tokens.input.to_string(),
                tokens.output.to_string(),
                tokens.cost.map_or_else(|| "-".to_string(), |cost| cost.to_string()),
                tokens.unbilled.to_string(),
            ]);
        }
        write_table(f, &table, 1)
    }

    fn write_providers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles = [
            "provider",
            "calls",
            "429s",
            "failed",
            "cap",
            "limit",
            "in flight",
            "of limit",
            "utilisation",
            "idle",
            "starved",
        ];
        let mut table = vec![row(titles)];
        for provider in &self.providers {
            let usage = &provider.usage;
            table.push(vec![
                provider.label.clone(),
                provider.calls.made.to_string(),
                provider.calls.rate_limited.to_string(),
                provider.calls.failed.to_string(),
                provider.cap.to_string(),
                format!("{:.1}", usage.mean_limit()),
                format!("{:.1}", usage.mean_in_flight()),
                percent(usage.limit_utilisation()),
                percent(usage.utilisation()),
                slot_seconds(usage.idle_slot_ns),
                slot_seconds(usage.starved_slot_ns),
            ]);
        }
        write_table(f, &table, 1)?;
        writeln!(
            f,
            "  limit and in flight are means over the run; of limit = busy / limit; utilisation = busy / (busy + idle),"
        )?;
        writeln!(
            f,
            "  where busy and idle are the cap's slots x time with and without a call; starved is the part of idle"
        )?;
        writeln!(f, "  in which a call was waiting to go out")
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.stopped {
            None => writeln!(f, "{}: done", self.pipeline)?,
            Some(why) => writeln!(f, "{}: stopped: {why}", self.pipeline)?,
        }
        writeln!(f)?;
        self.write_rows(f)?;
        writeln!(f)?;
        self.write_columns(f)?;
        if !self.providers.is_empty() {
            writeln!(f)?;
            self.write_providers(f)?;
        }
        if self.providers.iter().any(|provider| provider.tokens.input > 0) {
            writeln!(f)?;
            self.write_tokens(f)?;
        }
        writeln!(f)?;
        write_idle(f, &self.figures, &self.labels())?;
        self.comparison.as_ref().map_or(Ok(()), |comparison| write!(f, "\n{comparison}"))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::pipeline::RetryKind;

    use super::*;

    fn summary() -> Summary {
        Summary {
            pipeline: "p.toml".to_string(),
            stopped: Some("interrupted".to_string()),
            rows_in: 10,
            earlier: Earlier::default(),
            rows_out: 7,
            dropped: vec![Dropped {
                column: "title".to_string(),
                reason: "request".to_string(),
                rows: 2,
                example: Some((4, "the request was refused (HTTP 400): too long".to_string())),
            }],
            retryable: vec![
                RetryableCount { kind: RetryKind::RateLimited, status: Some(429), recent: 0, total: 2 },
                RetryableCount { kind: RetryKind::Timeout, status: None, recent: 1, total: 1 },
            ],
            retry: Some("tidegate run p.toml --resume --retry-dropped".to_string()),
            row_groups: 1,
            columns: vec![ColumnSummary {
                name: "title".to_string(),
                filled_by: "writer".to_string(),
                succeeded: 7,
                retried: 3,
                failed: 2,
                skipped: 0,
            }],
            providers: vec![ProviderSummary {
                label: "mock/writer".to_string(),
                calls: CallCounts { made: 12, succeeded: 7, rate_limited: 3, failed: 2 },
                cap: 4,
                usage: Usage {
                    elapsed_ns: 1_000_000_000,
                    busy_slot_ns: 3_000_000_000,
                    idle_slot_ns: 1_000_000_000,
                    ..Usage::default()
                },
                tokens: TokenTotals { cost: Money::new(0.4), ..TokenTotals::default() },
            }],
            job: JobTotals { runs: 1, ..JobTotals::default() },
            spent: Some((Money::new(0.5).unwrap(), "USD".to_string())),
            figures: RunFigures::default(),
            wall: StdDuration::from_millis(1_234),
            comparison: None,
            output: PathBuf::from("out/p"),
            exit: Exit::RowsDropped,
        }
    }

    #[test]
    fn every_row_is_accounted_for_and_every_drop_is_explained() {
        let summary = summary();
        assert_eq!((summary.rows_dropped(), summary.rows_left()), (2, 1));
        let text = summary.to_string();
        for line in [
            "p.toml: stopped: interrupted",
            "  rows in         10",
            "  dropped          2",
            "                   2   title: request",
            "            to make them again: tidegate run p.toml --resume --retry-dropped",
            "                       such as row 4: the request was refused (HTTP 400): too long",
            "  not done         1   the run stopped before them",
            "  calls           12   7 answered, 3 rate limited (429), 2 failed",
            "  retryable        3   2 rate limited (HTTP 429), 1 timeout",
            "  cost        0.5000   USD, of which 0.1000 estimated, for calls that were cut short or not counted",
            "  wall time    1.2 s",
            "  title   writer        7        3       2",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line:?} is not in:\n{text}");
        }
        assert!(text.contains("75.0 %"), "{text}");
    }

    #[test]
    fn what_all_runs_of_the_job_have_used_is_shown_beside_this_one() {
        assert!(!summary().to_string().contains("the job"));
        let model = ModelTotals { calls: 30, input_tokens: 400, output_tokens: 50, ..ModelTotals::default() };
        let job =
            JobTotals { runs: 3, spent: Money::new(2.0).unwrap(), models: [("mock/writer".to_string(), model)].into() };
        let text = Summary { job, ..summary() }.to_string();
        let line = "  the job         30   calls in 3 runs, 400 input and 50 output tokens, 2.00 USD\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_cost_without_estimates_is_of_tokens_as_counted_by_the_providers() {
        let text = Summary { spent: Some((Money::new(0.4).unwrap(), "USD".to_string())), ..summary() }.to_string();
        assert!(text.contains("  cost        0.4000   USD, of tokens as counted by the providers\n"), "{text}");
    }

    #[test]
    fn a_run_that_stopped_says_why_first() {
        let stopped = Some("nothing but rate limits from mock/writer for 10 min".to_string());
        let text = Summary { stopped, ..summary() }.to_string();
        assert!(text.starts_with("p.toml: stopped: nothing but rate limits from mock/writer"), "{text}");
    }
}
