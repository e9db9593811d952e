//! The summary as text: rows, columns, providers, tokens and idle time.

use std::fmt;

use super::{EarlierOutput, Exported, JobTotals, LeftOut, ModelTotals, Money, SimilarRows, Summary, UnfinishedRows};
use crate::app::render::table::{format_seconds, percent, row, slot_seconds, write_table};
use crate::app::report::idle::write_idle;

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
        for share in &self.shares {
            writeln!(f, "  shared: {}: {}", share.limit, share.state)?;
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

impl Summary {
    fn write_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  rows in   {:>8}", self.rows_in)?;
        if self.earlier != EarlierOutput::default() {
            let EarlierOutput { rows_out, rows_dropped, row_groups, .. } = self.earlier;
            let (title, whose) = if self.is_together {
                ("others ", "other processes and earlier runs")
            } else {
                ("resumed", "earlier runs")
            };
            writeln!(
                f,
                "  {title}   {rows_out:>8}   {row_groups} row groups of {whose}, with {rows_dropped} dropped rows"
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
        if self.is_together {
            writeln!(f, "  in total  {:>8}   rows of all processes", self.earlier.rows_out + self.rows_out)?;
        }
        if let Some(Exported { path, rows, left_out, .. }) = &self.export {
            writeln!(f, "  exported  {rows:>8}   to {}", path.display())?;
            if let Some(LeftOut { rows, example }) = left_out {
                let example = example.map_or_else(String::new, |SimilarRows { row, earlier, similarity }| {
                    format!(", such as row {row}: {:.0} % like row {earlier}", 100.0 * similarity)
                });
                writeln!(f, "  left out  {rows:>8}   nearly the same as an earlier row{example}")?;
            }
        }
        if let Some(acceptance) = &self.acceptance {
            writeln!(f, "  accepted  {:>8}   {acceptance}", acceptance.accepted)?;
        }
        self.write_dropped(f)?;
        if self.rows_left() > 0 {
            let why = match self.stopped {
                Some(_) => "the run stopped before them",
                None => "their row groups were kept unchanged",
            };
            writeln!(f, "  not done  {:>8}   {why}", self.rows_left())?;
        }
        if let Some(UnfinishedRows { rows, row_groups }) = self.unfinished {
            let whose = match row_groups {
                1 => "row group, for the process that goes on with it",
                _ => "row groups, for the processes that go on with them",
            };
            writeln!(f, "  kept      {rows:>8}   complete rows in {row_groups} unfinished {whose}")?;
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
            let estimated = spent.saturating_sub(counted.fold(Money::default(), Money::saturating_add));
            write!(f, "  cost      {spent:>8}   {currency}, ")?;
            if estimated == Money::default() {
                writeln!(f, "of which none is estimated")?;
            } else {
                writeln!(f, "of which {estimated} is estimated, for cancelled calls and unreported usage")?;
            }
        }
        self.write_job(f)?;
        writeln!(f, "  wall time {:>8}", format_seconds(self.wall.as_secs_f64()))
    }

    /// Writes the retryable failures of tasks, whether they were retried or finally dropped.
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
            earlier if self.is_together => writeln!(f, "   {earlier} of them by other processes and earlier runs")?,
            earlier => writeln!(f, "   {earlier} of them by earlier runs")?,
        }
        for dropped in &self.dropped {
            writeln!(f, "            {:>8}   {}: {}", dropped.rows, dropped.column, dropped.reason)?;
            if let Some((row, what)) = &dropped.example {
                writeln!(f, "                       for example row {row}: {what}")?;
            }
        }
        self.retry.as_ref().map_or(Ok(()), |retry| writeln!(f, "            to retry them: {retry}"))
    }

    /// Writes the usage of all runs together, if there was more than one.
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
        let mut table = vec![row(["column", "filled by", "done", "retried", "failed", "skipped"])];
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
            // Most pipelines have no conditions, so the last column would be empty.
            for line in &mut table {
                line.truncate(5);
            }
        }
        write_table(f, &table, 2)?;
        self.answers().try_for_each(|line| writeln!(f, "  {line}"))
    }

    fn write_tokens(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = vec![row(["provider", "input tokens", "output tokens", "cost", "not reported"])];
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
        for (provider, usage) in self.providers.iter().zip(&self.figures.requests) {
            table.push(vec![
                provider.label.clone(),
                provider.calls.made.to_string(),
                provider.calls.rate_limited.to_string(),
                provider.calls.failed.to_string(),
                provider.cap.to_string(),
                format!("{:.1}", usage.mean_adaptive_limit()),
                format!("{:.1}", usage.mean_busy()),
                percent(usage.utilisation_of_limit()),
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
            "  where busy and idle are slots of the cap x time, with and without a call; starved is the part of idle"
        )?;
        writeln!(f, "  while a call was waiting for a slot")
    }
}
