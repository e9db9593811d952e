//! Batches: rows of a row group whose cells one call fills.
//!
//! The core starts the tasks of a batch together: see
//! [`Column::batched`](tidegate_core::pipeline::Column::batched). Each task is a *member* that submits its
//! input, or leaves the batch: if its row is skipped, or its template fails. When every member has done
//! either, the task that *leads* the batch makes the calls, and replies to each member.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tidegate_core::pipeline::{ColumnId, Task, TaskOutcome};
use tokio::sync::{Notify, oneshot};

use super::FillError;

/// The batches of a run that members still join.
#[derive(Debug, Default)]
pub struct Batches(Mutex<HashMap<BatchKey, Arc<Batch>>>);

/// The row group, column, and row of the lead.
type BatchKey = (u32, ColumnId, u32);

#[derive(Debug)]
struct Batch {
    state: Mutex<BatchState>,
    /// Notified when every member has submitted or left.
    is_complete: Notify,
}

#[derive(Debug)]
struct BatchState {
    /// The members that have not joined yet.
    absent: u32,
    /// The members that have neither submitted nor left, also absent ones.
    undecided: u32,
    submissions: Vec<Submission>,
    /// Whether the lead has ended, so that there will be no reply.
    is_closed: bool,
}

/// The input of a member, and where its result is sent.
#[derive(Debug)]
pub struct Submission {
    /// The row of the task in its row group.
    row: Option<u32>,
    /// The input.
    pub input: String,
    /// Where the result is sent.
    pub reply: oneshot::Sender<Result<Value, FillError>>,
}

/// The place of a task in its batch. A member that is dropped leaves the batch, unless it has submitted.
#[derive(Debug)]
pub struct Member {
    batch: Arc<Batch>,
    row: Option<u32>,
    has_submitted: Mutex<bool>,
}

/// The part of the task that leads a batch: to make the calls. If it is dropped, the members that have no
/// reply are cancelled.
#[derive(Debug)]
pub struct Lead(Arc<Batch>);

impl Batches {
    /// Lets a task join its batch, and lead it if it is the one to do so. Returns `None` for a task that is
    /// in no batch.
    pub fn join(&self, task: &Task) -> Option<(Member, Option<Lead>)> {
        let batch = task.batch?;
        let key = (task.row_group, task.column, batch.lead);
        let mut open = self.0.lock();
        let new = || {
            let (absent, undecided) = (batch.size, batch.size);
            let state = BatchState { absent, undecided, submissions: Vec::new(), is_closed: false };
            Arc::new(Batch { state: Mutex::new(state), is_complete: Notify::new() })
        };
        let joined = Arc::clone(open.entry(key).or_insert_with(new));
        let mut state = joined.state.lock();
        state.absent = state.absent.saturating_sub(1);
        if state.absent == 0 {
            open.remove(&key);
        }
        drop(state);
        let lead = (!task.follows()).then(|| Lead(Arc::clone(&joined)));
        Some((Member { batch: joined, row: task.row, has_submitted: Mutex::new(false) }, lead))
    }
}

impl Batch {
    /// Counts a member that has submitted or left.
    fn decide(&self, state: &mut BatchState) {
        state.undecided = state.undecided.saturating_sub(1);
        if state.undecided == 0 {
            self.is_complete.notify_one();
        }
    }
}

impl Member {
    /// Submits the input of the task, and returns its result when the lead has replied.
    pub async fn submit(&self, input: String) -> Result<Value, FillError> {
        let (reply, result) = oneshot::channel();
        {
            let mut state = self.batch.state.lock();
            if state.is_closed {
                drop(reply);
            } else {
                state.submissions.push(Submission { row: self.row, input, reply });
            }
            *self.has_submitted.lock() = true;
            self.batch.decide(&mut state);
        }
        result.await.unwrap_or_else(|_| {
            Err(FillError::Outcome(TaskOutcome::Cancelled, "the call for its batch was cancelled".to_string()))
        })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if !*self.has_submitted.lock() {
            self.batch.decide(&mut self.batch.state.lock());
        }
    }
}

impl Lead {
    /// Waits until every member has submitted or left, and returns what they have submitted, in the order of
    /// their rows: so equal batches make equal calls.
    pub async fn submissions(&self) -> Vec<Submission> {
        loop {
            {
                let mut state = self.0.state.lock();
                if state.undecided == 0 {
                    let mut submissions = mem::take(&mut state.submissions);
                    submissions.sort_unstable_by_key(|submission| submission.row);
                    return submissions;
                }
            }
            self.0.is_complete.notified().await;
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_closed = true;
        state.submissions.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    /// Returns the members and the lead of a batch of two.
    fn batch() -> (Member, Member, Lead) {
        let state = BatchState { absent: 0, undecided: 2, submissions: Vec::new(), is_closed: false };
        let batch = Arc::new(Batch { state: Mutex::new(state), is_complete: Notify::new() });
        let member = |row| Member { batch: Arc::clone(&batch), row: Some(row), has_submitted: Mutex::new(false) };
        (member(0), member(1), Lead(Arc::clone(&batch)))
    }

    #[tokio::test]
    async fn the_lead_gets_the_inputs_when_every_member_has_submitted_or_left() {
        let (first, second, lead) = batch();
        let mut result = pin!(first.submit("a".to_string()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(result.as_mut().poll(&mut context).is_pending());
        assert!(pin!(lead.submissions()).poll(&mut context).is_pending(), "a member is undecided");
        drop(second);
        let submissions = lead.submissions().await;
        assert_eq!(submissions.iter().map(|submission| submission.input.as_str()).collect::<Vec<_>>(), ["a"]);
        for Submission { reply, .. } in submissions {
            reply.send(Ok(Value::from(7))).unwrap();
        }
        assert_eq!(result.await.unwrap(), 7);
    }

    #[tokio::test]
    async fn the_inputs_are_in_the_order_of_their_rows() {
        let (first, second, lead) = batch();
        let (mut late, mut early) = (pin!(first.submit("0".to_string())), pin!(second.submit("1".to_string())));
        let mut context = Context::from_waker(Waker::noop());
        assert!(early.as_mut().poll(&mut context).is_pending() && late.as_mut().poll(&mut context).is_pending());
        let inputs = lead.submissions().await.into_iter().map(|submission| submission.input);
        assert_eq!(inputs.collect::<Vec<_>>(), ["0", "1"]);
    }

    #[tokio::test]
    async fn a_member_without_a_reply_is_cancelled_when_the_lead_is_dropped() {
        let (first, second, lead) = batch();
        let mut early = pin!(first.submit("a".to_string()));
        assert!(early.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(lead);
        for result in [early.await, second.submit("b".to_string()).await] {
            assert!(matches!(result, Err(FillError::Outcome(TaskOutcome::Cancelled, _))), "{result:?}");
        }
    }
}
