//! The recent activity of the first worker slots: spans of local work, of waiting, and of calls.

use std::collections::VecDeque;

use tidegate_core::pipeline::WorkerId;
use tidegate_core::sim::world::{ActivityChange, WorkerActivity};
use tidegate_core::time::Instant;

/// The largest number of worker slots shown.
pub(crate) const MOST_LANES: usize = 64;

/// The number of closed spans kept; older ones are dropped.
const MOST_SPANS: usize = 8192;

/// Numbers for each span in the array that JavaScript reads.
const NUMBERS: usize = 5;

/// The most numbers that reading may write.
pub(crate) const LENGTH: usize = (MOST_SPANS + MOST_LANES) * NUMBERS;

/// One span of one worker.
#[derive(Clone, Copy, Debug)]
struct Span {
    worker: WorkerId,
    doing: WorkerActivity,
    column: u32,
    from: Instant,
    until: Instant,
}

/// The latest spans of the first slots. Its memory is bounded.
#[derive(Debug)]
pub(crate) struct Lanes {
    /// In the order of their ends.
    closed: VecDeque<Span>,
    open: [Option<Span>; MOST_LANES],
}

impl Lanes {
    pub(crate) fn new() -> Self {
        Self { closed: VecDeque::with_capacity(MOST_SPANS), open: [None; MOST_LANES] }
    }

    /// Records that a worker changes its activity. Ignores slots that are not shown.
    pub(crate) fn on_move(&mut self, moved: ActivityChange) {
        let Some(open) = self.open.get_mut(moved.worker.key().slot as usize) else { return };
        let begun = moved.now.map(|(column, doing)| {
            let column = column.index() as u32;
            Span { worker: moved.worker, doing, column, from: moved.at, until: moved.at }
        });
        let Some(span) = std::mem::replace(open, begun) else { return };
        // Spans of length zero cannot be shown.
        if span.from < moved.at {
            if self.closed.len() == MOST_SPANS {
                self.closed.pop_front();
            }
            self.closed.push_back(Span { until: moved.at, ..span });
        }
    }

    /// Returns the task that runs in a lane.
    pub(crate) fn worker(&self, lane: usize) -> Option<WorkerId> {
        self.open.get(lane)?.map(|span| span.worker)
    }

    /// Writes the spans that reach past `from`, five numbers each: lane, start and end in milliseconds,
    /// column, kind. One that is still open ends now.
    pub(crate) fn write(&self, from: Instant, now: Instant, into: &mut Vec<f64>) {
        into.clear();
        let first = self.closed.partition_point(|span| span.until <= from);
        let open = self.open.iter().flatten().map(|span| Span { until: now, ..*span });
        for span in self.closed.range(first..).copied().chain(open) {
            let kind = match span.doing {
                WorkerActivity::Local => 0.0,
                WorkerActivity::Waiting => 1.0,
                WorkerActivity::Calling => 2.0,
            };
            let millis = |at: Instant| at.as_nanos() as f64 / 1e6;
            let lane = f64::from(span.worker.key().slot);
            into.extend([lane, millis(span.from), millis(span.until), f64::from(span.column), kind]);
        }
    }
}

/// How many spans an array of so many numbers holds.
pub(crate) fn spans(numbers: usize) -> usize {
    numbers / NUMBERS
}

#[cfg(test)]
mod tests {
    use tidegate_core::pipeline::ColumnId;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn moved(millis: u64, slot: u32, doing: Option<WorkerActivity>) -> ActivityChange {
        let plan = tidegate_core::sim::scenario::builtin()[0].plan().unwrap();
        let column: ColumnId = plan.order()[0];
        ActivityChange {
            at: at(millis),
            worker: WorkerId::from_bits(u64::from(slot)),
            now: doing.map(|doing| (column, doing)),
        }
    }

    fn read(lanes: &Lanes, from: u64, now: u64) -> Vec<f64> {
        let mut numbers = Vec::new();
        lanes.write(at(from), at(now), &mut numbers);
        numbers
    }

    #[test]
    fn a_worker_waits_calls_works_and_goes() {
        let mut lanes = Lanes::new();
        for (millis, doing) in [(1, WorkerActivity::Waiting), (4, WorkerActivity::Calling), (9, WorkerActivity::Local)]
        {
            lanes.on_move(moved(millis, 3, Some(doing)));
        }
        assert_eq!(read(&lanes, 0, 10), [[3., 1., 4., 0., 1.], [3., 4., 9., 0., 2.], [3., 9., 10., 0., 0.]].concat());
        lanes.on_move(moved(11, 3, None));
        assert_eq!(read(&lanes, 9, 12), [3., 9., 11., 0., 0.], "what ended before is not read");
        assert_eq!(read(&lanes, 11, 12), [0.0; 0]);
    }

    #[test]
    fn what_took_no_time_and_slots_beyond_are_left_out() {
        let mut lanes = Lanes::new();
        lanes.on_move(moved(1, 0, Some(WorkerActivity::Waiting)));
        lanes.on_move(moved(1, 0, Some(WorkerActivity::Calling)));
        lanes.on_move(moved(1, MOST_LANES as u32, Some(WorkerActivity::Calling)));
        assert_eq!(read(&lanes, 0, 2), [0., 1., 2., 0., 2.]);
    }

    #[test]
    fn old_spans_are_forgotten() {
        let mut lanes = Lanes::new();
        for millis in 0..20_000 {
            lanes.on_move(moved(millis, (millis % 64) as u32, Some(WorkerActivity::Local)));
        }
        let numbers = read(&lanes, 0, 20_000);
        assert_eq!(numbers.len(), LENGTH);
        assert_eq!(spans(numbers.len()), 8192 + 64);
    }
}
