//! Rows in = rows out + rows dropped, each with a counted reason.

use alloc::format;

use super::books::{Books, Rules};
use super::{Check, Handover, Law, Verdict, hold};
use crate::map::Map;
use crate::pipeline::RunReport;
use crate::pipeline::event::{SchedulerEvent, SchedulerFact};

/// The rows that came in and went out.
#[derive(Clone, Debug, Default)]
pub(super) struct Balance {
    rows_in: u64,
    rows_out: u64,
    /// Rows of the row groups that are handed out and not answered.
    handed_out: Map<u32, u64>,
}

impl Balance {
    fn balance(&self, rows_out: u64, rows_dropped: u64) -> Verdict {
        let Self { rows_in, rows_out: saved, .. } = *self;
        hold(rows_out == saved, || format!("{rows_out} rows are said to be saved; {saved} are"))?;
        hold(rows_in == rows_out + rows_dropped, || {
            format!("{rows_in} rows came in, {rows_out} went out and {rows_dropped} were dropped")
        })
    }
}

impl Check for Balance {
    const LAW: Law = Law::Rows;

    fn on_event(&mut self, _: &Rules, _: &Books, event: &SchedulerEvent) -> Verdict {
        match event.fact {
            SchedulerFact::RowGroupAdmitted { rows, .. } => self.rows_in += u64::from(rows),
            SchedulerFact::JobCompleted { rows_out, rows_dropped, .. } => self.balance(rows_out, rows_dropped)?,
            _ => {}
        }
        Ok(())
    }

    fn on_handover(&mut self, _: &Rules, _: &Books, what: &Handover<'_>) -> Verdict {
        match *what {
            Handover::Checkpoint(group) => {
                self.handed_out.insert(group.row_group, group.live.len() as u64);
            }
            Handover::CheckpointAnswered { row_group, works } => {
                let rows = self.handed_out.remove(&row_group).unwrap_or(0);
                self.rows_out += if works { rows } else { 0 };
            }
            _ => {}
        }
        Ok(())
    }

    fn on_end(&mut self, rules: &Rules, report: &RunReport) -> Verdict {
        self.balance(report.rows_out, report.rows_dropped)?;
        let reasons: u64 = report.dropped.iter().map(|count| count.rows).sum();
        let dropped = report.rows_dropped;
        hold(reasons == dropped, || format!("{dropped} rows were dropped, {reasons} of them with a reason"))?;
        let resumed = rules.config.done_row_groups.iter().collect::<alloc::collections::BTreeSet<_>>();
        let resumed: u64 = resumed.into_iter().map(|row_group| u64::from(rules.rows_of(*row_group))).sum();
        let all = resumed + self.rows_in + report.rows_not_started;
        let rows = rules.config.rows;
        hold(all == rows, || format!("{rows} rows were to be made; {all} are accounted for"))
    }
}
