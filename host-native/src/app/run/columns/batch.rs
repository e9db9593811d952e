//! Batches: rows of a row group whose cells one call fills.
//!
//! The core starts the tasks of a batch together: see
//! [`Column::batched`](tidegate_core::pipeline::Column::batched). Each task is a *member* that submits its
//! input, or leaves the batch: if its row is skipped, or its template fails. When every member has done
//! either, the task that *leads* the batch makes the calls, and replies to each member.
//!
//! A member that has its reply may submit again, such as a request that corrects a malformed answer. So a
//! batch has *rounds*: each is complete when those that had a reply in the round before have submitted again
//! or left.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tidegate_core::pipeline::{ColumnId, Task, TaskOutcome};
use tokio::sync::{Notify, oneshot};

use super::error::FillError;
use crate::app::provider::batch::{BatchRequest, ChatResult};

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
    /// The members that have neither submitted in this round nor left, also absent ones.
    undecided: u32,
    submissions: Vec<Submission>,
    /// Whether the lead has ended, so that there will be no reply.
    is_closed: bool,
}

/// What a member submits.
#[derive(Debug)]
pub enum BatchInput {
    /// A text to embed.
    Text(String),
    /// A request to a chat model.
    Request(BatchRequest),
}

/// The reply to a member.
#[derive(Clone, Debug, PartialEq)]
pub enum BatchReply {
    /// The vector of a text.
    Vector(Value),
    /// The result of a request.
    Chat(ChatResult),
}

/// Where the result of a member is sent.
pub type ReplySender = oneshot::Sender<Result<BatchReply, FillError>>;

/// The input of a member, and where its result is sent.
#[derive(Debug)]
pub struct Submission {
    /// The row of the task in its row group.
    row: Option<u32>,
    /// The input.
    pub input: BatchInput,
    /// Where the result is sent.
    pub reply: ReplySender,
}

/// The place of a task in its batch. A member that is dropped leaves the batch.
#[derive(Debug)]
pub struct Member {
    batch: Arc<Batch>,
    row: Option<u32>,
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
        Some((Member { batch: joined, row: task.row }, lead))
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
    /// Submits an input of the task, and returns its result when the lead has replied.
    pub async fn submit(&self, input: BatchInput) -> Result<BatchReply, FillError> {
        let (reply, result) = oneshot::channel();
        {
            let mut state = self.batch.state.lock();
            if state.is_closed {
                drop(reply);
            } else {
                state.submissions.push(Submission { row: self.row, input, reply });
            }
            self.batch.decide(&mut state);
        }
        result.await.unwrap_or_else(|_| {
            Err(FillError::Outcome(TaskOutcome::Cancelled, "the call for its batch was cancelled".to_string()))
        })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = self.batch.state.lock();
        match state.submissions.iter().position(|submission| submission.row == self.row) {
            // The lead has not taken it, and the member counts as decided.
            Some(at) => drop(state.submissions.swap_remove(at)),
            None => self.batch.decide(&mut state),
        }
    }
}

impl Lead {
    /// Waits until every member has submitted or left, and returns what they have submitted, in the order of
    /// their rows: so equal batches make equal calls. Begins the next round. In the round after the last one
    /// nothing is submitted.
    pub async fn submissions(&self) -> Vec<Submission> {
        loop {
            {
                let mut state = self.0.state.lock();
                if state.undecided == 0 {
                    let mut submissions = mem::take(&mut state.submissions);
                    submissions.sort_unstable_by_key(|submission| submission.row);
                    state.undecided = u32::try_from(submissions.len()).unwrap_or(u32::MAX);
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
        let member = |row| Member { batch: Arc::clone(&batch), row: Some(row) };
        (member(0), member(1), Lead(Arc::clone(&batch)))
    }

    fn text(text: &str) -> BatchInput {
        BatchInput::Text(text.to_string())
    }

    fn texts(submissions: &[Submission]) -> Vec<&str> {
        fn text(submission: &Submission) -> Option<&str> {
            match &submission.input {
                BatchInput::Text(text) => Some(text),
                BatchInput::Request(_) => None,
            }
        }
        submissions.iter().filter_map(text).collect()
    }

    fn reply_to_all(submissions: Vec<Submission>, number: i32) {
        for Submission { reply, .. } in submissions {
            reply.send(Ok(BatchReply::Vector(number.into()))).unwrap();
        }
    }

    fn waker() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    #[tokio::test]
    async fn the_lead_gets_the_inputs_when_every_member_has_submitted_or_left() {
        let (first, second, lead) = batch();
        let mut result = pin!(first.submit(text("a")));
        assert!(result.as_mut().poll(&mut waker()).is_pending());
        assert!(pin!(lead.submissions()).poll(&mut waker()).is_pending(), "a member is undecided");
        drop(second);
        let submissions = lead.submissions().await;
        assert_eq!(texts(&submissions), ["a"]);
        reply_to_all(submissions, 7);
        assert_eq!(result.await.unwrap(), BatchReply::Vector(7.into()));
    }

    #[tokio::test]
    async fn the_inputs_are_in_the_order_of_their_rows() {
        let (first, second, lead) = batch();
        let (mut late, mut early) = (pin!(first.submit(text("0"))), pin!(second.submit(text("1"))));
        assert!(early.as_mut().poll(&mut waker()).is_pending() && late.as_mut().poll(&mut waker()).is_pending());
        assert_eq!(texts(&lead.submissions().await), ["0", "1"]);
    }

    #[tokio::test]
    async fn a_member_with_a_reply_may_submit_again_and_the_others_leave() {
        let (first, second, lead) = batch();
        {
            let (mut one, mut other) = (pin!(first.submit(text("0"))), pin!(second.submit(text("1"))));
            assert!(one.as_mut().poll(&mut waker()).is_pending() && other.as_mut().poll(&mut waker()).is_pending());
            reply_to_all(lead.submissions().await, 1);
            assert!(one.await.is_ok() && other.await.is_ok());
        }
        {
            let mut again = pin!(second.submit(text("1, corrected")));
            assert!(again.as_mut().poll(&mut waker()).is_pending());
            assert!(pin!(lead.submissions()).poll(&mut waker()).is_pending(), "the first may submit again");
            drop(first);
            let submissions = lead.submissions().await;
            assert_eq!(texts(&submissions), ["1, corrected"]);
            reply_to_all(submissions, 2);
            again.await.unwrap();
        }
        drop(second);
        assert!(lead.submissions().await.is_empty(), "the end");
    }

    #[tokio::test]
    async fn a_member_that_is_dropped_while_it_waits_is_not_waited_for() {
        let (first, second, lead) = batch();
        assert!(pin!(first.submit(text("0"))).poll(&mut waker()).is_pending());
        drop(first);
        let mut result = pin!(second.submit(text("1")));
        assert!(result.as_mut().poll(&mut waker()).is_pending());
        assert_eq!(texts(&lead.submissions().await), ["1"]);
    }

    #[tokio::test]
    async fn a_member_without_a_reply_is_cancelled_when_the_lead_is_dropped() {
        let (first, second, lead) = batch();
        let mut early = pin!(first.submit(text("a")));
        assert!(early.as_mut().poll(&mut waker()).is_pending());
        drop(lead);
        for result in [early.await, second.submit(text("b")).await] {
            assert!(matches!(result, Err(FillError::Outcome(TaskOutcome::Cancelled, _))), "{result:?}");
        }
    }
}
